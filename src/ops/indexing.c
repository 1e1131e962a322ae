/* indexing.c: elements and slices picked or replaced by arrays of indices.
 *
 * The indices' values are the backend's business: negative ones count from
 * the end, ones outside are handled as params.h says. */
#include "params.h"
#include "scope.h"

#include <limits.h>
#include <string.h>

static qn_status check_indices(const char *op, const qn_array *indices)
{
    if (!qn_dtype_is_integer(indices->dtype))
        return qn_fail(QN_E_ARG,
                       "[%s] Indices must be integers, found type %s.", op,
                       qn_dtype_name(indices->dtype));
    return QN_OK;
}

/* The common shape of some index arrays, which must be integers. */
static qn_status index_dims(qn_dims *dims, const char *op,
                            qn_array *const *indices, size_t nindices)
{
    dims->ndim = 0;
    for (size_t i = 0; i < nindices; i++) {
        qn_status status = check_indices(op, indices[i]);
        if (status)
            return status;
        qn_dims have = qn_dims_of(indices[i]);
        status = qn_dims_broadcast(dims, op, dims, &have);
        if (status)
            return status;
    }
    return QN_OK;
}

/* The shape of one slice behind the shape of the indices. */
static qn_status dims_join(qn_dims *dims, const char *op, const int *shape,
                           int ndim)
{
    if (dims->ndim + ndim > QN_MAX_NDIM)
        return qn_fail(QN_E_ARG,
                       "[%s] The result would have %d dimensions, more than "
                       "%d.",
                       op, dims->ndim + ndim, QN_MAX_NDIM);
    for (int i = 0; i < ndim; i++)
        dims->dim[dims->ndim++] = shape[i];
    return QN_OK;
}

static qn_status check_counts(const char *op, const qn_array *x,
                              size_t nindices, size_t naxes)
{
    if (nindices != naxes || naxes > (size_t)x->ndim)
        return qn_fail(QN_E_ARG,
                       "[%s] Expected one axis for each index array, found %zu "
                       "axes and %zu index arrays for an array with %d "
                       "dimensions.",
                       op, naxes, nindices, x->ndim);
    return QN_OK;
}

/* ---- slices at indices ---- */

qn_status qn_op_gather(qn_array **out, qn_array *x, qn_array *const *indices,
                       size_t nindices, const int *axes, size_t naxes,
                       const int *slice_sizes, size_t nsizes, qn_stream *s)
{
    qn_gather_params params;
    memset(&params, 0, sizeof params);
    qn_dims dims;
    qn_status status = check_counts("gather", x, nindices, naxes);
    if (!status)
        status = qn_axes_of(params.axes, "gather", axes, naxes, x->ndim);
    if (!status)
        status = index_dims(&dims, "gather", indices, nindices);
    if (status)
        return status;
    params.naxes = (int)naxes;
    bool fits = nsizes == (size_t)x->ndim;
    for (int i = 0; fits && i < x->ndim; i++) {
        params.slice_sizes[i] = slice_sizes[i];
        fits = slice_sizes[i] >= 0 && slice_sizes[i] <= x->shape[i];
    }
    if (!fits)
        return qn_fail(QN_E_ARG,
                       "[gather] Slice sizes %s do not fit an array of shape "
                       "%s.",
                       qn_shape_text(slice_sizes, nsizes).text,
                       qn_array_shape_text(x).text);
    qn_dims index = dims;
    status = dims_join(&dims, "gather", slice_sizes, x->ndim);
    if (status)
        return status;
    qn_array *inputs[1 + QN_MAX_NDIM], *made = NULL;
    qn_scope c;
    qn_scope_begin(&c, s);
    inputs[0] = x;
    for (size_t i = 0; i < nindices; i++)
        inputs[1 + i] = broadcast(&c, indices[i], &index);
    if (!c.status)
        qn_scope_hold(&c,
                      qn_make(&made, QN_OP_GATHER, s, inputs, 1 + (int)nindices,
                              &params, sizeof params, x->dtype, dims.dim,
                              dims.ndim),
                      &made);
    return qn_scope_end(&c, out, made);
}

qn_status qn_op_take(qn_array **out, qn_array *x, qn_array *indices, int axis,
                     qn_stream *s)
{
    int at, sizes[QN_MAX_NDIM], order[QN_MAX_NDIM];
    qn_status status = qn_axis_of(&at, "take", axis, x->ndim);
    if (!status)
        status = check_indices("take", indices);
    if (status)
        return status;
    if (!x->shape[at]) {
        if (indices->size)
            return qn_fail(QN_E_ARG, "[take] Cannot do a non-empty take from "
                                     "an empty axis.");
    }
    /* What is gathered has the indices' dimensions first, then those of x
     * with 1 for the axis. */
    int ni = indices->ndim;
    qn_dims dims = qn_dims_of(indices);
    memcpy(sizes, x->shape, (size_t)x->ndim * sizeof *sizes);
    sizes[at] = 1;
    status = dims_join(&dims, "take", sizes, x->ndim);
    if (status)
        return status;
    qn_dims_remove(&dims, ni + at);
    for (int i = 0; i < dims.ndim; i++)
        order[i] = i < at ? ni + i : i < at + ni ? i - at : i;

    qn_scope c;
    qn_scope_begin(&c, s);
    if (!x->shape[at]) {
        /* Nothing of nothing: the shape is all there is. */
        qn_dims none = {.ndim = dims.ndim};
        for (int i = 0; i < dims.ndim; i++)
            none.dim[i] = dims.dim[order[i]];
        return qn_scope_end(&c, out, full(&c, &none, 0, x->dtype));
    }
    qn_array *made = NULL;
    qn_scope_hold(
        &c,
        qn_op_gather(&made, x, &indices, 1, &at, 1, sizes, (size_t)x->ndim, s),
        &made);
    made = reshape(&c, made, &dims);
    if (at)
        made = c.status ? NULL : transpose(&c, made, order);
    return qn_scope_end(&c, out, made);
}

/* ---- one element per index ---- */

/* The common shape of two arrays of equal rank, `axis` left out of it. */
static qn_status dims_beside(qn_dims *out, const char *op, const qn_array *x,
                             const qn_array *indices, int axis)
{
    if (x->ndim != indices->ndim)
        return qn_fail(QN_E_ARG,
                       "[%s] Indices of dimension %d do not match an array of "
                       "dimension %d.",
                       op, indices->ndim, x->ndim);
    qn_dims a = qn_dims_of(x), b = qn_dims_of(indices);
    a.dim[axis] = b.dim[axis] = 1;
    return qn_dims_broadcast(out, op, &a, &b);
}

qn_status qn_op_take_along_axis(qn_array **out, qn_array *x, qn_array *indices,
                                int axis, qn_stream *s)
{
    static const char op[] = "take_along_axis";
    qn_axis_params params;
    qn_dims dims;
    qn_status status = qn_axis_of(&params.axis, op, axis, x->ndim);
    if (!status)
        status = check_indices(op, indices);
    if (!status)
        status = dims_beside(&dims, op, x, indices, params.axis);
    if (status)
        return status;
    int length = x->shape[params.axis], count = indices->shape[params.axis];
    if (!length && indices->size)
        return qn_fail(QN_E_ARG, "[%s] Cannot take from an empty axis.", op);
    qn_scope c;
    qn_scope_begin(&c, s);
    dims.dim[params.axis] = length;
    qn_array *source = broadcast(&c, x, &dims);
    dims.dim[params.axis] = count;
    qn_array *index = broadcast(&c, indices, &dims), *made = NULL;
    if (!c.status)
        qn_scope_hold(&c,
                      qn_make(&made, QN_OP_GATHER_AXIS, s,
                              (qn_array *[]){source, index}, 2, &params,
                              sizeof params, x->dtype, dims.dim, dims.ndim),
                      &made);
    return qn_scope_end(&c, out, made);
}

qn_status qn_op_scatter_axis(qn_array **out, qn_array *x, qn_array *indices,
                             qn_array *values, int axis, int combine,
                             qn_stream *s)
{
    const char *op =
        combine == QN_COMBINE_SET ? "put_along_axis" : "scatter_add_axis";
    qn_scatter_axis_params params = {.combine = (qn_combine)combine};
    qn_dims dims;
    qn_status status = qn_axis_of(&params.axis, op, axis, x->ndim);
    if (!status)
        status = check_indices(op, indices);
    if (!status)
        status = dims_beside(&dims, op, x, indices, params.axis);
    if (status)
        return status;
    for (int i = 0; i < x->ndim; i++)
        if (i != params.axis && dims.dim[i] != x->shape[i])
            return qn_fail(QN_E_ARG,
                           "[%s] Indices of shape %s do not fit an array of "
                           "shape %s along axis %d.",
                           op, qn_array_shape_text(indices).text,
                           qn_array_shape_text(x).text, axis);
    dims.dim[params.axis] = indices->shape[params.axis];
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *index = broadcast(&c, indices, &dims);
    qn_array *typed = broadcast(&c, cast(&c, values, x->dtype), &dims);
    if (c.status || !index->size)
        return qn_scope_end(&c, out, x);
    qn_array *made = NULL;
    qn_scope_hold(&c,
                  qn_make(&made, QN_OP_SCATTER_AXIS, s,
                          (qn_array *[]){x, index, typed}, 3, &params,
                          sizeof params, x->dtype, x->shape, x->ndim),
                  &made);
    return qn_scope_end(&c, out, made);
}

/* ---- slices replaced ---- */

qn_status qn_op_scatter(qn_array **out, qn_array *x, qn_array *const *indices,
                        size_t nindices, qn_array *updates, const int *axes,
                        size_t naxes, int combine, qn_stream *s)
{
    static const char *const names[] = {
        [QN_COMBINE_SET] = "scatter",       [QN_COMBINE_SUM] = "scatter_add",
        [QN_COMBINE_PROD] = "scatter_prod", [QN_COMBINE_MAX] = "scatter_max",
        [QN_COMBINE_MIN] = "scatter_min",
    };
    const char *op = names[combine];
    qn_scatter_params params;
    memset(&params, 0, sizeof params);
    qn_dims dims;
    qn_status status = check_counts(op, x, nindices, naxes);
    if (!status)
        status = qn_axes_of(params.axes, op, axes, naxes, x->ndim);
    if (!status)
        status = index_dims(&dims, op, indices, nindices);
    if (status)
        return status;
    params.naxes = (int)naxes;
    params.combine = (qn_combine)combine;
    bool fits = updates->ndim == dims.ndim + x->ndim;
    for (int i = 0; fits && i < dims.ndim; i++)
        fits = updates->shape[i] == dims.dim[i];
    for (int i = 0; fits && i < x->ndim; i++)
        fits = updates->shape[dims.ndim + i] <= x->shape[i];
    if (!fits)
        return qn_fail(QN_E_ARG,
                       "[%s] Updates of shape %s do not fit indices of shape "
                       "%s into an array of shape %s.",
                       op, qn_array_shape_text(updates).text,
                       qn_shape_text(dims.dim, (size_t)dims.ndim).text,
                       qn_array_shape_text(x).text);
    if (!updates->size)
        return qn_same(out, x);
    qn_array *inputs[2 + QN_MAX_NDIM], *made = NULL;
    qn_scope c;
    qn_scope_begin(&c, s);
    inputs[0] = x;
    for (size_t i = 0; i < nindices; i++)
        inputs[1 + i] = broadcast(&c, indices[i], &dims);
    inputs[1 + nindices] = cast(&c, updates, x->dtype);
    if (!c.status)
        qn_scope_hold(&c,
                      qn_make(&made, QN_OP_SCATTER, s, inputs,
                              2 + (int)nindices, &params, sizeof params,
                              x->dtype, x->shape, x->ndim),
                      &made);
    return qn_scope_end(&c, out, made);
}

/* ---- elements where a mask is true ---- */

static qn_status check_mask(const qn_array *a, const qn_array *mask)
{
    if (mask->dtype != QN_BOOL)
        return qn_fail(QN_E_ARG,
                       "[masked_scatter] The mask has to be boolean, "
                       "found %s.",
                       qn_dtype_name(mask->dtype));
    if (mask->ndim > a->ndim)
        return qn_fail(QN_E_ARG,
                       "[masked_scatter] The mask cannot have more dimensions "
                       "than the target, found shapes %s and %s.",
                       qn_array_shape_text(mask).text,
                       qn_array_shape_text(a).text);
    for (int i = 0; i < mask->ndim; i++)
        if (mask->shape[i] != a->shape[i])
            return qn_fail(QN_E_ARG,
                           "[masked_scatter] The boolean mask should have the "
                           "same shape as the beginning of the indexed array "
                           "but the mask has shape %s and the array has shape "
                           "%s.",
                           qn_array_shape_text(mask).text,
                           qn_array_shape_text(a).text);
    return QN_OK;
}

/* The values in a line: one entry per place of the mask, each broadcast to the
 * `rest` last dimensions of a.  Values without an axis of entries are the
 * same for all. */
static qn_array *entries(qn_scope *c, qn_array *src, const qn_array *a,
                         int rest)
{
    if (c->status)
        return NULL;
    if (src->ndim > rest + 1) {
        qn_scope_fail(c, qn_fail(QN_E_ARG,
                                 "[masked_scatter] Value array shape must be "
                                 "broadcastable with the last %d dimensions of "
                                 "the input, found %s.",
                                 rest, qn_array_shape_text(src).text));
        return NULL;
    }
    qn_dims dims = qn_dims_of(a);
    if (src->ndim == rest + 1) {
        dims = qn_dims_of(src);
        for (int i = 0; i < rest; i++)
            dims.dim[1 + i] = a->shape[a->ndim - rest + i];
    }
    src = cast(c, src, a->dtype);
    return flatten(c, broadcast(c, src, &dims));
}

qn_status qn_op_masked_scatter(qn_array **out, qn_array *a, qn_array *mask,
                               qn_array *src, qn_stream *s)
{
    qn_status status = check_mask(a, mask);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, s);
    bool single = !mask->ndim;
    if (single) {
        a = expand(&c, a, 0);
        mask = expand(&c, mask, 0);
    }
    if (c.status)
        return qn_scope_end(&c, out, NULL);
    int rest = a->ndim - mask->ndim;
    qn_dims dims = qn_dims_of(mask);
    for (int i = 0; i < rest; i++)
        dims.dim[dims.ndim++] = 1;
    qn_dims all = qn_dims_of(a);
    qn_array *inputs[3] = {a, broadcast(&c, reshape(&c, mask, &dims), &all),
                           entries(&c, src, a, rest)};
    qn_array *made = NULL;
    if (!c.status)
        qn_scope_hold(&c,
                      qn_make(&made, QN_OP_MASKED_SCATTER, s, inputs, 3, NULL,
                              0, a->dtype, a->shape, a->ndim),
                      &made);
    return qn_scope_end(&c, out, single ? squeeze(&c, made, 0) : made);
}
