/* shape.c: other views of the same elements.
 *
 * These nodes move nothing where strides can express the result
 * (backend/common/view.h).  A result of the input's own shape is the input. */
#include "params.h"
#include "scope.h"

#include "base/alloc.h"
#include "core/record.h"

#include <limits.h>
#include <string.h>

/* ---- reshaping ---- */

static qn_status reshaped(qn_array **out, qn_array *x, const qn_dims *dims,
                          qn_stream *s)
{
    if (qn_has_dims(x, dims))
        return qn_same(out, x);
    return qn_make(out, QN_OP_RESHAPE, s, &x, 1, NULL, 0, x->dtype, dims->dim,
                   dims->ndim);
}

qn_status qn_op_reshape_derived(qn_array **out, qn_array *x, const int *shape,
                                size_t ndim, qn_stream *s)
{
    qn_dims dims;
    size_t size;
    qn_status status = qn_dims_given(&dims, "reshape", shape, ndim);
    if (status)
        return status;
    if (!qn_dims_size(&size, &dims) || size != x->size)
        return qn_op_reshape(out, x, shape, ndim, s); /* which says so */
    return reshaped(out, x, &dims, s);
}

qn_status qn_op_reshape(qn_array **out, qn_array *x, const int *shape,
                        size_t ndim, qn_stream *s)
{
    if (ndim > QN_MAX_NDIM)
        return qn_fail(QN_E_ARG,
                       "[reshape] Shapes have at most %d dimensions, found "
                       "%zu.",
                       QN_MAX_NDIM, ndim);
    qn_dims dims = {.ndim = (int)ndim};
    int open = -1;
    size_t size;
    for (int i = 0; i < dims.ndim; i++) {
        dims.dim[i] = shape[i];
        if (shape[i] == -1) {
            if (open >= 0)
                return qn_fail(QN_E_ARG, "[reshape] Only one dimension can be "
                                         "inferred (-1), found several.");
            open = i;
            dims.dim[i] = 1;
        } else if (shape[i] < 0) {
            goto mismatch;
        }
    }
    if (!qn_dims_size(&size, &dims))
        goto mismatch;
    if (open >= 0) {
        if (!size)
            return qn_fail(QN_E_ARG,
                           "[reshape] Cannot infer a dimension of an empty "
                           "array: shape %s.",
                           qn_shape_text(shape, ndim).text);
        if (x->size % size || x->size / size > INT_MAX)
            goto mismatch;
        dims.dim[open] = (int)(x->size / size);
        size = x->size;
    }
    if (size != x->size)
        goto mismatch;
    if (qn_has_dims(x, &dims) && (open < 0 || !qn_record_shapeless()))
        return qn_same(out, x);
    qn_reshape_params params;
    memset(&params, 0, sizeof params);
    params.given = true;
    params.open = open;
    return qn_make(out, QN_OP_RESHAPE, s, &x, 1, &params, sizeof params,
                   x->dtype, dims.dim, dims.ndim);

mismatch:
    return qn_fail(QN_E_ARG,
                   "[reshape] Cannot reshape array of size %zu into shape %s.",
                   x->size, qn_shape_text(shape, ndim).text);
}

qn_status qn_op_flatten(qn_array **out, qn_array *x, int start, int end,
                        qn_stream *s)
{
    if (!x->ndim)
        return reshaped(out, x, &(qn_dims){.ndim = 1, .dim = {1}}, s);
    /* Axes outside count as the nearest one. */
    start = start < 0 ? start + x->ndim : start;
    end = end < 0 ? end + x->ndim : end;
    start = start < 0 ? 0 : start;
    end = end >= x->ndim ? x->ndim - 1 : end;
    if (end < start)
        return qn_fail(QN_E_ARG,
                       "[flatten] start_axis must not be after end_axis, found "
                       "%d and %d for an array with %d dimensions.",
                       start, end, x->ndim);
    qn_dims dims = {.ndim = x->ndim - (end - start)};
    int64_t size = 1;
    for (int i = start; i <= end; i++)
        size = size > INT_MAX && x->shape[i] ? size : size * x->shape[i];
    qn_status status = qn_dim_fit(&dims.dim[start], "flatten", size);
    if (status)
        return status;
    for (int i = 0; i < start; i++)
        dims.dim[i] = x->shape[i];
    for (int i = start + 1; i < dims.ndim; i++)
        dims.dim[i] = x->shape[i + end - start];
    return reshaped(out, x, &dims, s);
}

qn_status qn_op_unflatten(qn_array **out, qn_array *x, int axis,
                          const int *shape, size_t ndim, qn_stream *s)
{
    int at;
    qn_status status = qn_axis_of(&at, "unflatten", axis, x->ndim);
    if (status)
        return status;
    if (!ndim)
        return qn_fail(QN_E_ARG,
                       "[unflatten] The shape of the new dimensions is empty.");
    if (ndim > (size_t)(QN_MAX_NDIM - x->ndim + 1))
        return qn_fail(QN_E_ARG,
                       "[unflatten] Shapes have at most %d dimensions.",
                       QN_MAX_NDIM);
    qn_dims dims = {.ndim = x->ndim - 1 + (int)ndim};
    size_t known = 1;
    int open = -1;
    for (int i = 0; i < (int)ndim; i++) {
        if (shape[i] == -1 && open < 0) {
            open = i;
            continue;
        }
        if (shape[i] < 0)
            goto mismatch;
        known = known > INT_MAX && shape[i] ? known : known * (size_t)shape[i];
    }
    size_t length = (size_t)x->shape[at];
    if (open < 0 ? known != length : !known || length % known)
        goto mismatch;
    for (int i = 0; i < at; i++)
        dims.dim[i] = x->shape[i];
    for (int i = 0; i < (int)ndim; i++)
        dims.dim[at + i] = i == open ? (int)(length / known) : shape[i];
    for (int i = at + 1; i < x->ndim; i++)
        dims.dim[i + (int)ndim - 1] = x->shape[i];
    return reshaped(out, x, &dims, s);

mismatch:
    return qn_fail(QN_E_ARG,
                   "[unflatten] Cannot unflatten axis %d with size %d into "
                   "shape %s.",
                   axis, x->shape[at], qn_shape_text(shape, ndim).text);
}

qn_status qn_op_squeeze(qn_array **out, qn_array *x, const int *axes,
                        size_t naxes, qn_stream *s)
{
    int list[QN_MAX_NDIM];
    bool drop[QN_MAX_NDIM] = {false};
    if (naxes == QN_ALL_AXES) {
        for (int i = 0; i < x->ndim; i++)
            drop[i] = x->shape[i] == 1;
    } else {
        qn_status status = qn_axes_of(list, "squeeze", axes, naxes, x->ndim);
        if (status)
            return status;
        for (size_t i = 0; i < naxes; i++) {
            if (x->shape[list[i]] != 1)
                return qn_fail(QN_E_ARG,
                               "[squeeze] Cannot squeeze axis %d with size %d "
                               "which is not equal to 1.",
                               axes[i], x->shape[list[i]]);
            drop[list[i]] = true;
        }
    }
    qn_dims dims = {.ndim = 0};
    for (int i = 0; i < x->ndim; i++)
        if (!drop[i])
            dims.dim[dims.ndim++] = x->shape[i];
    return reshaped(out, x, &dims, s);
}

qn_status qn_op_expand_dims(qn_array **out, qn_array *x, const int *axes,
                            size_t naxes, qn_stream *s)
{
    if (naxes > (size_t)(QN_MAX_NDIM - x->ndim))
        return qn_fail(QN_E_ARG,
                       "[expand_dims] Shapes have at most %d dimensions, "
                       "found %zu more for an array with %d.",
                       QN_MAX_NDIM, naxes, x->ndim);
    int list[QN_MAX_NDIM];
    bool fresh[QN_MAX_NDIM] = {false};
    qn_dims dims = {.ndim = x->ndim + (int)naxes};
    qn_status status = qn_axes_of(list, "expand_dims", axes, naxes, dims.ndim);
    if (status)
        return status;
    for (size_t i = 0; i < naxes; i++)
        fresh[list[i]] = true;
    for (int i = 0, from = 0; i < dims.ndim; i++)
        dims.dim[i] = fresh[i] ? 1 : x->shape[from++];
    return reshaped(out, x, &dims, s);
}

static qn_status at_least(qn_array **out, qn_array *x, int ndim, qn_stream *s)
{
    /* A line becomes a row of a matrix; a matrix a stack of columns. */
    qn_dims dims = qn_dims_of(x);
    while (dims.ndim < ndim) {
        int axis = dims.ndim == 1 ? 0 : dims.ndim;
        qn_status status = qn_dims_insert(&dims, "atleast", axis, 1);
        if (status)
            return status;
    }
    return reshaped(out, x, &dims, s);
}

qn_status qn_op_atleast_1d(qn_array **out, qn_array *x, qn_stream *s)
{
    return at_least(out, x, 1, s);
}

qn_status qn_op_atleast_2d(qn_array **out, qn_array *x, qn_stream *s)
{
    return at_least(out, x, 2, s);
}

qn_status qn_op_atleast_3d(qn_array **out, qn_array *x, qn_stream *s)
{
    return at_least(out, x, 3, s);
}

/* ---- broadcasting ---- */

static qn_status stretched(qn_array **out, qn_array *x, const int *shape,
                           size_t ndim, bool derived, qn_stream *s)
{
    qn_dims dims, have = qn_dims_of(x);
    qn_status status = qn_dims_given(&dims, "broadcast_to", shape, ndim);
    if (status)
        return status;
    if (qn_has_dims(x, &dims))
        return qn_same(out, x);
    int missing = dims.ndim - have.ndim;
    bool fits = missing >= 0;
    for (int i = 0; fits && i < have.ndim; i++)
        fits = have.dim[i] == 1 || have.dim[i] == dims.dim[missing + i];
    if (!fits)
        return qn_fail(QN_E_ARG,
                       "[broadcast_to] An array of shape %s cannot be "
                       "broadcast to %s.",
                       qn_array_shape_text(x).text,
                       qn_shape_text(shape, ndim).text);
    qn_broadcast_params params = {.derived = derived};
    return qn_make(out, QN_OP_BROADCAST, s, &x, 1, &params, sizeof params,
                   x->dtype, dims.dim, dims.ndim);
}

qn_status qn_op_broadcast_to(qn_array **out, qn_array *x, const int *shape,
                             size_t ndim, qn_stream *s)
{
    return stretched(out, x, shape, ndim, false, s);
}

qn_status qn_op_broadcast_derived(qn_array **out, qn_array *x, const int *shape,
                                  size_t ndim, qn_stream *s)
{
    return stretched(out, x, shape, ndim, true, s);
}

qn_status qn_op_broadcast_arrays(qn_array **out, qn_array *const *arrays,
                                 size_t count, qn_stream *s)
{
    qn_dims dims = {.ndim = 0};
    for (size_t i = 0; i < count; i++) {
        qn_dims have = qn_dims_of(arrays[i]);
        qn_status status =
            qn_dims_broadcast(&dims, "broadcast_arrays", &dims, &have);
        if (status)
            return status;
    }
    for (size_t i = 0; i < count; i++) {
        qn_status status = qn_op_broadcast_to(&out[i], arrays[i], dims.dim,
                                              (size_t)dims.ndim, s);
        if (status) {
            while (i)
                qn_array_unref(out[--i]);
            return status;
        }
    }
    return QN_OK;
}

/* ---- order of the axes ---- */

qn_status qn_op_transpose(qn_array **out, qn_array *x, const int *axes,
                          size_t naxes, qn_stream *s)
{
    qn_transpose_params params = {{0}};
    qn_dims dims = {.ndim = x->ndim};
    if (naxes == QN_ALL_AXES) {
        for (int i = 0; i < x->ndim; i++)
            params.axes[i] = x->ndim - 1 - i;
    } else {
        if (naxes != (size_t)x->ndim)
            return qn_fail(QN_E_ARG,
                           "[transpose] Received %zu axes for array with %d "
                           "dimensions.",
                           naxes, x->ndim);
        qn_status status =
            qn_axes_of(params.axes, "transpose", axes, naxes, x->ndim);
        if (status)
            return status;
    }
    bool moved = false;
    for (int i = 0; i < x->ndim; i++) {
        dims.dim[i] = x->shape[params.axes[i]];
        moved |= params.axes[i] != i;
    }
    if (!moved)
        return qn_same(out, x);
    return qn_make(out, QN_OP_TRANSPOSE, s, &x, 1, &params, sizeof params,
                   x->dtype, dims.dim, dims.ndim);
}

qn_status qn_op_swapaxes(qn_array **out, qn_array *x, int axis1, int axis2,
                         qn_stream *s)
{
    int a, b, axes[QN_MAX_NDIM];
    qn_status status = qn_axis_of(&a, "swapaxes", axis1, x->ndim);
    if (!status)
        status = qn_axis_of(&b, "swapaxes", axis2, x->ndim);
    if (status)
        return status;
    for (int i = 0; i < x->ndim; i++)
        axes[i] = i == a ? b : i == b ? a : i;
    return qn_op_transpose(out, x, axes, (size_t)x->ndim, s);
}

qn_status qn_op_moveaxis(qn_array **out, qn_array *x, int source,
                         int destination, qn_stream *s)
{
    int from, to, axes[QN_MAX_NDIM];
    qn_status status = qn_axis_of(&from, "moveaxis", source, x->ndim);
    if (!status)
        status = qn_axis_of(&to, "moveaxis", destination, x->ndim);
    if (status)
        return status;
    for (int i = 0, next = 0; i < x->ndim; i++) {
        if (next == from)
            next++;
        axes[i] = i == to ? from : next++;
    }
    return qn_op_transpose(out, x, axes, (size_t)x->ndim, s);
}

/* ---- layout ---- */

qn_status qn_op_contiguous(qn_array **out, qn_array *x, bool allow_col_major,
                           qn_stream *s)
{
    qn_contiguous_params params = {.allow_col_major = allow_col_major};
    return qn_make(out, QN_OP_CONTIGUOUS, s, &x, 1, &params, sizeof params,
                   x->dtype, x->shape, x->ndim);
}

qn_status qn_op_copy(qn_array **out, qn_array *x, qn_stream *s)
{
    return qn_make(out, QN_OP_COPY, s, &x, 1, NULL, 0, x->dtype, x->shape,
                   x->ndim);
}

qn_status qn_op_materialize(qn_array **out, qn_array *x, qn_stream *s)
{
    return qn_make(out, QN_OP_MATERIALIZE, s, &x, 1, NULL, 0, x->dtype,
                   x->shape, x->ndim);
}

qn_status qn_op_as_strided(qn_array **out, qn_array *x, const int *shape,
                           size_t ndim, const int64_t *strides, size_t nstrides,
                           size_t offset, qn_stream *s)
{
    qn_dims dims;
    qn_as_strided_params params = {.offset = offset};
    qn_status status = qn_dims_given(&dims, "as_strided", shape, ndim);
    if (status)
        return status;
    if (nstrides != ndim)
        return qn_fail(QN_E_ARG,
                       "[as_strided] Received %zu strides for a shape of %zu "
                       "dimensions.",
                       nstrides, ndim);
    /* The elements reached must lie in the input: `low` and `high` are the
     * distances to both ends that are still free. */
    bool empty = false;
    for (int i = 0; i < dims.ndim; i++) {
        params.strides[i] = strides[i];
        empty |= dims.dim[i] == 0;
    }
    bool inside = empty || offset < x->size;
    uint64_t low = offset, high = x->size - 1 - offset;
    for (int i = 0; inside && !empty && i < dims.ndim; i++) {
        uint64_t steps = (uint64_t)dims.dim[i] - 1;
        uint64_t stride = strides[i] < 0 ? UINT64_C(0) - (uint64_t)strides[i]
                                         : (uint64_t)strides[i];
        uint64_t *left = strides[i] < 0 ? &low : &high;
        inside = !steps || stride <= *left / steps;
        if (inside)
            *left -= steps * stride;
    }
    /* Steps that nobody takes: any number, but loops may compute with it. */
    for (int i = 0; i < dims.ndim; i++)
        if ((empty || dims.dim[i] == 1) &&
            (strides[i] > (int64_t)x->size || strides[i] < -(int64_t)x->size))
            params.strides[i] = 0;
    if (!inside)
        return qn_fail(QN_E_ARG,
                       "[as_strided] A view of shape %s at offset %zu reaches "
                       "outside of an array of %zu elements.",
                       qn_shape_text(shape, ndim).text, offset, x->size);
    return qn_make(out, QN_OP_AS_STRIDED, s, &x, 1, &params, sizeof params,
                   x->dtype, dims.dim, dims.ndim);
}

/* ---- others ---- */

qn_status qn_op_number_of_elements(qn_array **out, qn_array *x, const int *axes,
                                   size_t naxes, bool inverted, qn_dtype dtype,
                                   qn_stream *s)
{
    qn_number_of_elements_params params;
    memset(&params, 0, sizeof params);
    params.naxes = (int)naxes;
    params.inverted = inverted;
    qn_status status =
        qn_axes_of(params.axes, "number_of_elements", axes, naxes, x->ndim);
    if (status)
        return status;
    /* A number, unless the graph is to serve other shapes too. */
    if (qn_record_shapeless())
        return qn_make(out, QN_OP_NUMBER_OF_ELEMENTS, s, &x, 1, &params,
                       sizeof params, dtype, NULL, 0);
    double count = 1;
    for (size_t i = 0; i < naxes; i++)
        count *= x->shape[params.axes[i]];
    return qn_op_scalar(out, inverted ? 1 / count : count, dtype);
}

qn_status qn_op_stop_gradient(qn_array **out, qn_array *x, qn_stream *s)
{
    return qn_make(out, QN_OP_STOP_GRADIENT, s, &x, 1, NULL, 0, x->dtype,
                   x->shape, x->ndim);
}

qn_status qn_op_depends(qn_array **out, qn_array *const *inputs, size_t ninputs,
                        qn_array *const *dependencies, size_t ndependencies,
                        qn_stream *s)
{
    if (!ninputs)
        return QN_OK;
    size_t total;
    if (!qn_add_size(&total, ninputs, ndependencies) || total > INT_MAX)
        return qn_fail(QN_E_ARG, "[depends] Too many arrays.");
    qn_status status = QN_E_NOMEM;
    size_t made = 0;
    qn_array **all = qn_calloc(total, sizeof *all);
    qn_array **outputs = qn_calloc(ninputs, sizeof *outputs);
    if (!all || !outputs)
        goto done;
    memcpy(all, inputs, ninputs * sizeof *all);
    if (ndependencies)
        memcpy(all + ninputs, dependencies, ndependencies * sizeof *all);
    for (; made < ninputs; made++) {
        qn_array *like = inputs[made];
        status =
            qn_array_new(&outputs[made], like->dtype, like->shape, like->ndim);
        if (status)
            goto done;
    }
    qn_node_spec spec = {
        .op = QN_OP_DEPENDS, .stream = s, .inputs = all, .ninputs = (int)total};
    status = qn_node_attach(&spec, outputs, (int)ninputs);
    if (status)
        goto done;
    memcpy(out, outputs, ninputs * sizeof *out);
    made = 0;
done:
    while (made)
        qn_array_unref(outputs[--made]);
    qn_free(outputs);
    qn_free(all);
    return status;
}
