/* slice.c: parts of arrays, parts replaced, arrays joined and bordered. */
#include "params.h"
#include "scope.h"

#include "base/alloc.h"

#include <limits.h>
#include <string.h>

/* ---- static slices ---- */

/* A slice after Python's rules: where it starts in the array, how many
 * elements it has along each axis. */
typedef struct part {
    qn_dims dims;
    int start[QN_MAX_NDIM];
    int strides[QN_MAX_NDIM];
    bool whole; /* everything, in order */
} part;

static qn_status part_of(part *p, const char *op, const qn_array *x,
                         const int *start, size_t nstart, const int *stop,
                         size_t nstop, const int *strides, size_t nstrides)
{
    size_t ndim = (size_t)x->ndim;
    if (nstart != ndim || nstop != ndim || nstrides != ndim)
        return qn_fail(QN_E_ARG,
                       "[%s] Expected one start, stop and stride for each of "
                       "%d dimensions, found %zu, %zu and %zu.",
                       op, x->ndim, nstart, nstop, nstrides);
    p->dims.ndim = x->ndim;
    p->whole = true;
    for (int i = 0; i < x->ndim; i++) {
        int64_t n = x->shape[i], step = strides[i];
        int64_t first = start[i], last = stop[i], count;
        if (!step)
            return qn_fail(QN_E_ARG,
                           "[%s] The stride of axis %d must not be 0.", op, i);
        first += first < 0 ? n : 0;
        last += last < 0 ? n : 0;
        /* The places just outside: 0 and n going up, -1 and n-1 going down. */
        int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
        first = first < low ? low : first > high ? high : first;
        last = last < low ? low : last > high ? high : last;
        int64_t gap = step > 0 ? last - first : first - last;
        int64_t size = step > 0 ? step : -step;
        count = gap > 0 ? (gap + size - 1) / size : 0;
        p->dims.dim[i] = (int)count;
        p->start[i] = count ? (int)first : 0;
        p->strides[i] = (int)step;
        /* With one element or none the stride leads nowhere. */
        if (count <= 1)
            p->strides[i] = 1;
        p->whole &= count == n && (p->strides[i] == 1);
    }
    return QN_OK;
}

static qn_status sliced(qn_array **out, qn_array *x, const part *p,
                        qn_stream *s)
{
    if (p->whole)
        return qn_same(out, x);
    qn_slice_params params;
    memset(&params, 0, sizeof params);
    for (int i = 0; i < x->ndim; i++) {
        params.start[i] = p->start[i];
        params.strides[i] = p->strides[i];
    }
    return qn_make(out, QN_OP_SLICE, s, &x, 1, &params, sizeof params, x->dtype,
                   p->dims.dim, p->dims.ndim);
}

qn_status qn_op_slice(qn_array **out, qn_array *x, const int *start,
                      size_t nstart, const int *stop, size_t nstop,
                      const int *strides, size_t nstrides, qn_stream *s)
{
    part p;
    qn_status status =
        part_of(&p, "slice", x, start, nstart, stop, nstop, strides, nstrides);
    return status ? status : sliced(out, x, &p, s);
}

qn_status qn_op_slice_axis(qn_array **out, qn_array *x, int axis, int start,
                           int stop, qn_stream *s)
{
    part p = {.whole = start == 0 && stop == x->shape[axis]};
    p.dims = qn_dims_of(x);
    for (int i = 0; i < x->ndim; i++)
        p.strides[i] = 1;
    p.dims.dim[axis] = stop - start;
    p.start[axis] = stop > start ? start : 0;
    return sliced(out, x, &p, s);
}

qn_status qn_op_slice_update(qn_array **out, qn_array *x, qn_array *update,
                             const int *start, size_t nstart, const int *stop,
                             size_t nstop, const int *strides, size_t nstrides,
                             int combine, qn_stream *s)
{
    part p;
    qn_status status = part_of(&p, "slice_update", x, start, nstart, stop,
                               nstop, strides, nstrides);
    if (status)
        return status;
    /* Leading dimensions of length 1 beyond the array's own don't count. */
    qn_dims have = qn_dims_of(update);
    while (have.ndim > x->ndim && have.dim[0] == 1)
        qn_dims_remove(&have, 0);
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *typed = cast(&c, reshape(&c, update, &have), x->dtype);
    typed = broadcast(&c, typed, &p.dims);
    if (c.status || typed->size == 0)
        return qn_scope_end(&c, out, x);
    if (p.whole && combine == QN_COMBINE_SET)
        return qn_scope_end(&c, out, typed);
    qn_slice_update_params params;
    memset(&params, 0, sizeof params);
    params.combine = (qn_combine)combine;
    for (int i = 0; i < x->ndim; i++) {
        params.start[i] = p.start[i];
        params.strides[i] = p.strides[i];
    }
    qn_array *made = NULL;
    qn_scope_hold(&c,
                  qn_make(&made, QN_OP_SLICE_UPDATE, s,
                          (qn_array *[]){x, typed}, 2, &params, sizeof params,
                          x->dtype, x->shape, x->ndim),
                  &made);
    return qn_scope_end(&c, out, made);
}

/* ---- slices whose corner is an array ---- */

static qn_status dynamic_params(qn_slice_dynamic_params *params, const char *op,
                                const qn_array *x, const qn_array *start,
                                const int *axes, size_t naxes)
{
    memset(params, 0, sizeof *params);
    if (!qn_dtype_is_integer(start->dtype))
        return qn_fail(QN_E_ARG,
                       "[%s] Start indices must be integers, got type %s.", op,
                       qn_dtype_name(start->dtype));
    if (start->ndim > 1)
        return qn_fail(QN_E_ARG,
                       "[%s] Start indices must have at most one dimension, "
                       "found shape %s.",
                       op, qn_array_shape_text(start).text);
    if (start->size != naxes)
        return qn_fail(QN_E_ARG,
                       "[%s] Number of starting indices %zu does not match "
                       "number of axes %zu.",
                       op, start->size, naxes);
    params->naxes = (int)naxes;
    return qn_axes_of(params->axes, op, axes, naxes, x->ndim);
}

qn_status qn_op_slice_dynamic(qn_array **out, qn_array *x, qn_array *start,
                              const int *axes, size_t naxes, const int *size,
                              size_t nsize, qn_stream *s)
{
    qn_slice_dynamic_params params;
    qn_status status =
        dynamic_params(&params, "slice_dynamic", x, start, axes, naxes);
    if (status)
        return status;
    bool fits = nsize == (size_t)x->ndim;
    for (int i = 0; fits && i < x->ndim; i++)
        fits = size[i] >= 0 && size[i] <= x->shape[i];
    if (!fits)
        return qn_fail(QN_E_ARG,
                       "[slice_dynamic] Invalid slice size %s for array with "
                       "shape %s.",
                       qn_shape_text(size, nsize).text,
                       qn_array_shape_text(x).text);
    return qn_make(out, QN_OP_SLICE_DYNAMIC, s, (qn_array *[]){x, start}, 2,
                   &params, sizeof params, x->dtype, size, x->ndim);
}

qn_status qn_op_slice_update_dynamic(qn_array **out, qn_array *x,
                                     qn_array *update, qn_array *start,
                                     const int *axes, size_t naxes,
                                     qn_stream *s)
{
    qn_slice_dynamic_params params;
    qn_status status =
        dynamic_params(&params, "slice_update_dynamic", x, start, axes, naxes);
    if (status)
        return status;
    /* Where the update has no such dimension, an axis without a start is
     * covered whole and one with a start by one element. */
    qn_dims dims = qn_dims_of(x);
    int missing = x->ndim - update->ndim;
    if (missing < 0)
        return qn_fail(QN_E_ARG,
                       "[slice_update_dynamic] An update of shape %s has more "
                       "dimensions than the array of shape %s.",
                       qn_array_shape_text(update).text,
                       qn_array_shape_text(x).text);
    for (int i = 0; i < params.naxes; i++)
        if (params.axes[i] < missing)
            dims.dim[params.axes[i]] = 1;
    for (int i = missing; i < x->ndim; i++)
        if (update->shape[i - missing] < dims.dim[i])
            dims.dim[i] = update->shape[i - missing];
    for (int i = 0; i < x->ndim; i++)
        if (dims.dim[i] > x->shape[i])
            dims.dim[i] = x->shape[i];
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *typed = broadcast(&c, cast(&c, update, x->dtype), &dims);
    if (c.status || typed->size == 0)
        return qn_scope_end(&c, out, x);
    qn_array *made = NULL;
    qn_scope_hold(&c,
                  qn_make(&made, QN_OP_SLICE_UPDATE_DYNAMIC, s,
                          (qn_array *[]){x, typed, start}, 3, &params,
                          sizeof params, x->dtype, x->shape, x->ndim),
                  &made);
    return qn_scope_end(&c, out, made);
}

/* ---- joining ---- */

qn_status qn_op_concatenate(qn_array **out, qn_array *const *arrays,
                            size_t count, int axis, qn_stream *s)
{
    if (!count)
        return qn_fail(QN_E_ARG,
                       "[concatenate] No arrays provided for concatenation");
    if (count > INT_MAX)
        return qn_fail(QN_E_ARG, "[concatenate] Too many arrays.");
    if (count == 1)
        return qn_same(out, arrays[0]);
    qn_axis_params params;
    qn_dims dims = qn_dims_of(arrays[0]);
    qn_dtype dtype = arrays[0]->dtype;
    qn_status status = qn_axis_of(&params.axis, "concatenate", axis, dims.ndim);
    if (status)
        return status;
    int64_t length = 0;
    for (size_t i = 0; i < count; i++) {
        const qn_array *x = arrays[i];
        if (x->ndim != dims.ndim)
            return qn_fail(QN_E_ARG,
                           "[concatenate] All the input arrays must have the "
                           "same number of dimensions, found %d and %d.",
                           dims.ndim, x->ndim);
        for (int j = 0; j < dims.ndim; j++)
            if (j != params.axis && x->shape[j] != dims.dim[j])
                return qn_fail(QN_E_ARG,
                               "[concatenate] All the input array dimensions "
                               "must match exactly except for the "
                               "concatenation axis %d, found shapes %s and %s.",
                               axis, qn_array_shape_text(arrays[0]).text,
                               qn_array_shape_text(x).text);
        length += x->shape[params.axis];
        if (length > INT_MAX)
            break;
        dtype = qn_promote(dtype, x->dtype);
    }
    status = qn_dim_fit(&dims.dim[params.axis], "concatenate", length);
    if (status)
        return status;

    bool typed = true;
    for (size_t i = 0; i < count; i++)
        typed &= arrays[i]->dtype == dtype;
    if (typed)
        return qn_make(out, QN_OP_CONCATENATE, s, arrays, (int)count, &params,
                       sizeof params, dtype, dims.dim, dims.ndim);
    qn_array **converted = qn_calloc(count, sizeof *converted);
    if (!converted)
        return QN_E_NOMEM;
    for (size_t i = 0; i < count && !status; i++)
        status = qn_op_astype(&converted[i], arrays[i], dtype, s);
    if (!status)
        status = qn_make(out, QN_OP_CONCATENATE, s, converted, (int)count,
                         &params, sizeof params, dtype, dims.dim, dims.ndim);
    for (size_t i = 0; i < count; i++)
        qn_array_unref(converted[i]);
    qn_free(converted);
    return status;
}

/* ---- borders ---- */

/* The element of 0 .. n-1 that place i, which may be outside, repeats. */
static int source_of(int64_t i, int n, char mode)
{
    if (mode == 'e' || n == 1)
        return i < 0 ? 0 : i >= n ? n - 1 : (int)i;
    /* reflect turns at the outer elements, symmetric between them and their
     * own images; both repeat after going there and back. */
    int64_t period = mode == 'r' ? 2 * ((int64_t)n - 1) : 2 * (int64_t)n;
    int64_t at = (i % period + period) % period;
    return (int)(at < n ? at : (mode == 'r' ? period : period - 1) - at);
}

/* One axis of modes "edge", "reflect", "symmetric". */
static qn_array *mirrored(qn_scope *c, qn_array *x, int axis, int low, int high,
                          char mode)
{
    if (c->status || (!low && !high))
        return x;
    int n = x->shape[axis], length = low + n + high;
    int *places = qn_calloc((size_t)length, sizeof *places);
    if (!places) {
        qn_scope_fail(c, QN_E_NOMEM);
        return NULL;
    }
    for (int i = 0; i < length; i++)
        places[i] = source_of((int64_t)i - low, n, mode);
    qn_array *index = NULL, *made = NULL;
    qn_scope_hold(c, qn_array_from_data(&index, places, &length, 1, QN_INT32),
                  &index);
    qn_free(places);
    if (c->status)
        return NULL;
    return qn_scope_hold(c, qn_op_take(&made, x, index, axis, c->stream),
                         &made);
}

qn_status qn_op_pad(qn_array **out, qn_array *x, const int *axes, size_t naxes,
                    const int *low, size_t nlow, const int *high, size_t nhigh,
                    qn_array *value, const char *mode, qn_stream *s)
{
    static const char *const modes[] = {"constant", "edge", "reflect",
                                        "symmetric"};
    int list[QN_MAX_NDIM];
    char kind = 0;
    for (int i = 0; i < 4; i++)
        if (!strcmp(mode, modes[i]))
            kind = modes[i][0];
    if (!kind)
        return qn_fail(QN_E_ARG,
                       "[pad] The mode must be 'constant', 'edge', 'reflect' "
                       "or 'symmetric', found '%s'.",
                       mode);
    if (nlow != naxes || nhigh != naxes)
        return qn_fail(QN_E_ARG,
                       "[pad] Expected one low and one high size for each of "
                       "%zu axes, found %zu and %zu.",
                       naxes, nlow, nhigh);
    qn_status status = qn_axes_of(list, "pad", axes, naxes, x->ndim);
    if (status)
        return status;
    /* MLX refuses this, and programs may count on it. */
    if (kind == 'e' && naxes != (size_t)x->ndim)
        return qn_fail(QN_E_ARG,
                       "[pad] Mode 'edge' needs sizes for every axis, found "
                       "%zu of %d.",
                       naxes, x->ndim);
    qn_dims dims = qn_dims_of(x);
    qn_pad_params params;
    memset(&params, 0, sizeof params);
    for (size_t i = 0; i < naxes; i++) {
        int axis = list[i], n = x->shape[axis];
        if (low[i] < 0 || high[i] < 0)
            return qn_fail(QN_E_ARG,
                           "[pad] Sizes must not be negative, found %d and %d "
                           "for axis %d.",
                           low[i], high[i], axes[i]);
        if (kind != 'c' && !n && (low[i] || high[i]))
            return qn_fail(QN_E_ARG,
                           "[pad] Mode '%s' needs an element along axis %d.",
                           mode, axes[i]);
        status =
            qn_dim_fit(&dims.dim[axis], "pad", (int64_t)n + low[i] + high[i]);
        if (status)
            return status;
        params.low[axis] = low[i];
    }
    if (qn_has_dims(x, &dims))
        return qn_same(out, x);
    qn_scope c;
    qn_scope_begin(&c, s);
    if (kind != 'c') {
        for (size_t i = 0; i < naxes; i++)
            x = mirrored(&c, x, list[i], low[i], high[i], kind);
        return qn_scope_end(&c, out, x);
    }
    if (value->size != 1)
        qn_scope_fail(&c,
                      qn_fail(QN_E_ARG,
                              "[pad] The padding value must be one element, "
                              "found shape %s.",
                              qn_array_shape_text(value).text));
    qn_dims none = {.ndim = 0};
    qn_array *one = cast(&c, reshape(&c, value, &none), x->dtype);
    qn_array *made = NULL;
    if (!c.status)
        qn_scope_hold(&c,
                      qn_make(&made, QN_OP_PAD, s, (qn_array *[]){x, one}, 2,
                              &params, sizeof params, x->dtype, dims.dim,
                              dims.ndim),
                      &made);
    return qn_scope_end(&c, out, made);
}
