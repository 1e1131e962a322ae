/* reduce.c: reductions over axes, and the statistics made of them.
 *
 * Over no axis at all (an empty list, or every axis of an array without
 * dimensions) a reduction has nothing to combine: the result is the input,
 * its type included. */
#include "params.h"
#include "scope.h"

#include "core/record.h"

#include <stdlib.h>
#include <string.h>

/* The axes in ascending order and the shape that is left. */
typedef struct reduction {
    qn_reduce_params params;
    qn_dims dims;
    size_t count; /* elements that make one; may wrap for empty arrays */
} reduction;

static int ascending(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static qn_status plan(reduction *r, const char *op, const qn_array *x,
                      const int *axes, size_t naxes, bool keepdims)
{
    qn_reduce_params *p = &r->params;
    memset(r, 0, sizeof *r);
    if (naxes == QN_ALL_AXES) {
        for (int i = 0; i < x->ndim; i++)
            p->axes[i] = i;
        p->naxes = x->ndim;
    } else {
        qn_status status = qn_axes_of(p->axes, op, axes, naxes, x->ndim);
        if (status)
            return status;
        p->naxes = (int)naxes;
        qsort(p->axes, naxes, sizeof *p->axes, ascending);
    }
    r->count = 1;
    for (int i = 0, next = 0; i < x->ndim; i++) {
        bool reduced = next < p->naxes && p->axes[next] == i;
        if (!reduced || keepdims)
            r->dims.dim[r->dims.ndim++] = reduced ? 1 : x->shape[i];
        if (reduced) {
            r->count *= (size_t)x->shape[i];
            next++;
        }
    }
    return QN_OK;
}

/* sum and prod widen small integers. */
static qn_dtype widened(qn_dtype d)
{
    switch (d) {
    case QN_BOOL:
    case QN_INT8:
    case QN_INT16:
        return QN_INT32;
    case QN_UINT8:
    case QN_UINT16:
        return QN_UINT32;
    default:
        return d;
    }
}

qn_status qn_op_reduce(qn_array **out, qn_op op, qn_array *x, const int *axes,
                       size_t naxes, bool keepdims, qn_stream *s)
{
    const qn_op_info *info = qn_op_info_of(op);
    qn_dtype operand;
    reduction r;
    qn_status status = qn_operand_type(&operand, info, x->dtype);
    if (!status)
        status = plan(&r, info->name, x, axes, naxes, keepdims);
    if (status)
        return status;
    if (!r.params.naxes)
        return qn_op_astype(out, x, operand, s);
    if (op == QN_OP_MAX || op == QN_OP_MIN)
        for (int i = 0; i < r.params.naxes; i++)
            if (!x->shape[r.params.axes[i]])
                return qn_fail(QN_E_ARG,
                               "[%s] Cannot %s reduce over axis %d with size "
                               "0.",
                               info->name, info->name, r.params.axes[i]);
    qn_dtype result =
        op == QN_OP_SUM || op == QN_OP_PROD ? widened(operand) : operand;
    qn_array *typed = NULL;
    status = qn_op_astype(&typed, x, operand, s);
    if (!status)
        status = qn_make(out, op, s, &typed, 1, &r.params, sizeof r.params,
                         result, r.dims.dim, r.dims.ndim);
    qn_array_unref(typed);
    return status;
}

qn_status qn_op_count_nonzero(qn_array **out, qn_array *x, const int *axes,
                              size_t naxes, bool keepdims, qn_stream *s)
{
    qn_scope c;
    qn_scope_begin(&c, s);
    /* A count has no slope: a cast would pass one on. */
    qn_array *held = binary(&c, QN_OP_NOT_EQUAL, x, scalar(&c, 0, x->dtype));
    qn_array *sum = reduce(&c, QN_OP_SUM, held, axes, naxes, keepdims);
    return qn_scope_end(&c, out, cast(&c, sum, QN_INT32));
}

/* ---- means ---- */

/* The type that sums for a mean are formed in: integers exactly, halves wide
 * enough not to overflow. */
static qn_dtype sum_type(qn_dtype d)
{
    if (d == QN_UINT64)
        return d;
    if (d == QN_BOOL || qn_dtype_is_integer(d))
        return QN_INT64;
    return d == QN_FLOAT16 || d == QN_BFLOAT16 ? QN_FLOAT32 : d;
}

/* The number of elements that make one, less `ddof`, not below 0: a number, or
 * where the graph is to serve other shapes too, what they will have. */
static qn_array *count_of(qn_scope *c, qn_array *x, const reduction *r,
                          int ddof, qn_dtype type)
{
    double freedom = (double)r->count - ddof;
    if (!qn_record_shapeless())
        return scalar(c, freedom > 0 ? freedom : 0, type);
    qn_array *count = NULL;
    if (!c->status)
        qn_scope_hold(c,
                      qn_op_number_of_elements(&count, x, r->params.axes,
                                               (size_t)r->params.naxes, false,
                                               type, c->stream),
                      &count);
    if (!ddof)
        return count;
    return binary(c, QN_OP_MAXIMUM, sub(c, count, scalar(c, ddof, type)),
                  scalar(c, 0, type));
}

/* The sum divided by the number of elements less `ddof`, in the type of the
 * sum, or float32 for integers. */
static qn_array *mean(qn_scope *c, qn_array *x, const reduction *r, int ddof,
                      bool keepdims)
{
    if (c->status)
        return NULL;
    qn_array *wide = cast(c, x, sum_type(x->dtype));
    qn_array *sum = reduce(c, QN_OP_SUM, wide, r->params.axes,
                           (size_t)r->params.naxes, keepdims);
    if (c->status)
        return NULL;
    return divide(c, sum,
                  count_of(c, x, r, ddof, qn_promote_float(sum->dtype)));
}

qn_status qn_op_mean(qn_array **out, qn_array *x, const int *axes, size_t naxes,
                     bool keepdims, qn_stream *s)
{
    reduction r;
    qn_status status = plan(&r, "mean", x, axes, naxes, keepdims);
    if (status)
        return status;
    qn_dtype result = qn_promote_float(x->dtype);
    if (!r.params.naxes)
        return qn_op_astype(out, x, result, s);
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *y = mean(&c, x, &r, 0, keepdims);
    return qn_scope_end(&c, out, cast(&c, y, result));
}

/* The variance in float32 or float64. */
static qn_array *variance(qn_scope *c, qn_array *x, const reduction *r,
                          bool keepdims, int ddof)
{
    qn_dtype type = qn_promote_float(x->dtype);
    if (type == QN_FLOAT16 || type == QN_BFLOAT16)
        type = QN_FLOAT32;
    qn_array *y = cast(c, x, type);
    y = sub(c, y, mean(c, y, r, 0, true));
    if (type == QN_COMPLEX64)
        y = unary(c, QN_OP_ABS, y);
    /* A count at or below ddof leaves no degrees of freedom: NaN or inf. */
    return mean(c, unary(c, QN_OP_SQUARE, y), r, ddof, keepdims);
}

static qn_status spread(qn_array **out, const char *op, qn_array *x,
                        const int *axes, size_t naxes, bool keepdims, int ddof,
                        bool root, qn_stream *s)
{
    reduction r;
    qn_status status = plan(&r, op, x, axes, naxes, keepdims);
    if (status)
        return status;
    qn_dtype result = qn_promote_float(x->dtype);
    if (result == QN_COMPLEX64)
        result = QN_FLOAT32;
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *y = variance(&c, x, &r, keepdims, ddof);
    if (root)
        y = unary(&c, QN_OP_SQRT, y);
    return qn_scope_end(&c, out, cast(&c, y, result));
}

qn_status qn_op_var(qn_array **out, qn_array *x, const int *axes, size_t naxes,
                    bool keepdims, int ddof, qn_stream *s)
{
    return spread(out, "var", x, axes, naxes, keepdims, ddof, false, s);
}

qn_status qn_op_std(qn_array **out, qn_array *x, const int *axes, size_t naxes,
                    bool keepdims, int ddof, qn_stream *s)
{
    return spread(out, "std", x, axes, naxes, keepdims, ddof, true, s);
}
