/* sort.c: order along an axis. */
#include "params.h"
#include "scope.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

qn_status qn_op_sort(qn_array **out, qn_op op, qn_array *x, int axis,
                     qn_stream *s)
{
    const qn_op_info *info = qn_op_info_of(op);
    qn_axis_params params;
    qn_status status = qn_axis_of(&params.axis, info->name, axis, x->ndim);
    if (status)
        return status;
    qn_dtype dtype = op == QN_OP_SORT ? x->dtype : QN_UINT32;
    return qn_make(out, op, s, &x, 1, &params, sizeof params, dtype, x->shape,
                   x->ndim);
}

qn_status qn_op_partition(qn_array **out, qn_op op, qn_array *x, int kth,
                          int axis, qn_stream *s)
{
    const qn_op_info *info = qn_op_info_of(op);
    qn_partition_params params;
    qn_status status = qn_axis_of(&params.axis, info->name, axis, x->ndim);
    if (status)
        return status;
    int n = x->shape[params.axis];
    if (kth < -n || kth >= n)
        return qn_fail(QN_E_ARG,
                       "[%s] Received invalid kth %d along axis %d for array "
                       "with shape %s.",
                       info->name, kth, axis, qn_array_shape_text(x).text);
    params.kth = kth < 0 ? kth + n : kth;
    qn_dtype dtype = op == QN_OP_PARTITION ? x->dtype : QN_UINT32;
    return qn_make(out, op, s, &x, 1, &params, sizeof params, dtype, x->shape,
                   x->ndim);
}

qn_status qn_op_topk(qn_array **out, qn_array *x, int k, int axis, qn_stream *s)
{
    int at;
    qn_status status = qn_axis_of(&at, "topk", axis, x->ndim);
    if (status)
        return status;
    int n = x->shape[at];
    if (k < 0 || k > n)
        return qn_fail(QN_E_ARG,
                       "[topk] Received invalid k=%d along axis %d for array "
                       "with shape %s.",
                       k, axis, qn_array_shape_text(x).text);
    if (k == n)
        return qn_same(out, x);
    if (!k)
        return qn_op_slice_axis(out, x, at, n, n, s);
    qn_array *parted = NULL;
    status = qn_op_partition(&parted, QN_OP_PARTITION, x, n - k, at, s);
    if (!status)
        status = qn_op_slice_axis(out, parted, at, n - k, n, s);
    qn_array_unref(parted);
    return status;
}

/* ---- extrema ---- */

qn_status qn_op_arg_reduce(qn_array **out, qn_array *x, bool max, int axis,
                           bool keepdims, qn_stream *s)
{
    const char *op = max ? "argmax" : "argmin";
    qn_arg_reduce_params params = {.max = max};
    qn_status status = qn_axis_of(&params.axis, op, axis, x->ndim);
    if (status)
        return status;
    if (!x->size)
        return qn_fail(QN_E_ARG, "[%s] Cannot %s reduce zero size array.", op,
                       op);
    qn_dims dims = qn_dims_of(x);
    if (keepdims)
        dims.dim[params.axis] = 1;
    else
        qn_dims_remove(&dims, params.axis);
    return qn_make(out, QN_OP_ARG_REDUCE, s, &x, 1, &params, sizeof params,
                   QN_UINT32, dims.dim, dims.ndim);
}

qn_status qn_op_arg_reduce_all(qn_array **out, qn_array *x, bool max,
                               bool keepdims, qn_stream *s)
{
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *flat = flatten(&c, x), *made = NULL;
    if (!c.status)
        qn_scope_hold(&c, qn_op_arg_reduce(&made, flat, max, 0, false, s),
                      &made);
    if (keepdims) {
        qn_dims ones = {.ndim = x->ndim};
        for (int i = 0; i < x->ndim; i++)
            ones.dim[i] = 1;
        made = reshape(&c, made, &ones);
    }
    return qn_scope_end(&c, out, made);
}

/* ---- others ---- */

static int ascending(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

qn_status qn_op_median(qn_array **out, qn_array *x, const int *axes,
                       size_t naxes, bool keepdims, qn_stream *s)
{
    int list[QN_MAX_NDIM], order[QN_MAX_NDIM], n = x->ndim;
    if (naxes == QN_ALL_AXES) {
        for (int i = 0; i < x->ndim; i++)
            list[i] = i;
    } else {
        qn_status status = qn_axes_of(list, "median", axes, naxes, x->ndim);
        if (status)
            return status;
        n = (int)naxes;
        qsort(list, naxes, sizeof *list, ascending);
    }
    /* The chosen axes are moved behind the others and made one. */
    qn_dims kept = {.ndim = 0}, result = {.ndim = 0};
    int64_t count = 1;
    int next = 0, at = 0;
    for (int i = 0; i < x->ndim; i++) {
        bool chosen = next < n && list[next] == i;
        if (chosen) {
            next++;
            count =
                count > INT_MAX && x->shape[i] ? count : count * x->shape[i];
        } else {
            kept.dim[kept.ndim++] = x->shape[i];
            order[at++] = i;
        }
        if (!chosen || keepdims)
            result.dim[result.ndim++] = chosen ? 1 : x->shape[i];
    }
    memcpy(order + at, list, (size_t)n * sizeof *list);
    int length;
    qn_status status = qn_dim_fit(&length, "median", count);
    if (status)
        return status;
    if (!length)
        return qn_fail(QN_E_ARG,
                       "[median] Cannot take the median along an empty axis.");
    qn_dtype type = qn_promote_float(x->dtype);
    qn_scope c;
    qn_scope_begin(&c, s);
    int axis = kept.ndim;
    status = qn_dims_insert(&kept, "median", axis, length);
    if (status)
        return status;
    qn_array *line =
        reshape(&c, transpose(&c, cast(&c, x, type), order), &kept);
    qn_array *sorted = NULL;
    if (!c.status)
        qn_scope_hold(&c, qn_op_sort(&sorted, QN_OP_SORT, line, axis, s),
                      &sorted);
    if (c.status)
        return qn_scope_end(&c, out, NULL);
    int middle = length / 2;
    qn_array *y = slice_axis(&c, sorted, axis, middle, middle + 1);
    if (length % 2 == 0) {
        qn_array *below = slice_axis(&c, sorted, axis, middle - 1, middle);
        qn_array *half = scalar(&c, 0.5, type);
        y = add(&c, mul(&c, below, half), mul(&c, y, half));
    }
    /* NaN sorts last: if there is one, it is there. */
    qn_array *last = slice_axis(&c, sorted, axis, length - 1, length);
    y = where(&c, binary(&c, QN_OP_NOT_EQUAL, last, last), last, y);
    return qn_scope_end(&c, out, reshape(&c, y, &result));
}

qn_status qn_op_searchsorted(qn_array **out, qn_array *sorted, qn_array *values,
                             const char *side, qn_stream *s)
{
    qn_searchsorted_params params = {.right = !strcmp(side, "right")};
    if (!params.right && strcmp(side, "left"))
        return qn_fail(QN_E_ARG,
                       "[searchsorted] The side must be 'left' or 'right', "
                       "found '%s'.",
                       side);
    if (sorted->ndim != 1)
        return qn_fail(QN_E_ARG,
                       "[searchsorted] The sorted sequence must be 1-D but has "
                       "%d dimensions.",
                       sorted->ndim);
    qn_dtype type = qn_promote(sorted->dtype, values->dtype);
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *inputs[2] = {cast(&c, sorted, type), cast(&c, values, type)};
    qn_array *made = NULL;
    if (!c.status)
        qn_scope_hold(&c,
                      qn_make(&made, QN_OP_SEARCHSORTED, s, inputs, 2, &params,
                              sizeof params, QN_UINT32, values->shape,
                              values->ndim),
                      &made);
    return qn_scope_end(&c, out, made);
}
