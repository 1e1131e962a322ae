/* dims.c: shapes and axes. */
#include "dims.h"

#include "base/alloc.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

qn_shape_str qn_shape_text(const int *shape, size_t ndim)
{
    qn_shape_str str;
    size_t used = 0;
    str.text[used++] = '(';
    for (size_t i = 0; i < ndim && i < QN_MAX_NDIM; i++)
        used += (size_t)snprintf(str.text + used, sizeof str.text - used,
                                 i ? ",%d" : "%d", shape[i]);
    str.text[used++] = ')';
    str.text[used] = '\0';
    return str;
}

qn_status qn_dims_given(qn_dims *out, const char *op, const int *shape,
                        size_t ndim)
{
    if (ndim > QN_MAX_NDIM)
        return qn_fail(QN_E_ARG,
                       "[%s] Shapes have at most %d dimensions, found %zu.", op,
                       QN_MAX_NDIM, ndim);
    for (size_t i = 0; i < ndim; i++)
        if (shape[i] < 0)
            return qn_fail(QN_E_ARG,
                           "[%s] Negative dimensions are not allowed, found "
                           "shape %s.",
                           op, qn_shape_text(shape, ndim).text);
    out->ndim = (int)ndim;
    if (ndim)
        memcpy(out->dim, shape, ndim * sizeof *shape);
    return QN_OK;
}

qn_status qn_dim_fit(int *out, const char *op, int64_t dim)
{
    if (dim < 0 || dim > INT_MAX)
        return qn_fail(QN_E_ARG,
                       "[%s] A dimension of %lld is out of range (0 to %d).",
                       op, (long long)dim, INT_MAX);
    *out = (int)dim;
    return QN_OK;
}

qn_status qn_dims_insert(qn_dims *dims, const char *op, int axis, int dim)
{
    if (dims->ndim == QN_MAX_NDIM)
        return qn_fail(QN_E_ARG, "[%s] Shapes have at most %d dimensions.", op,
                       QN_MAX_NDIM);
    for (int i = dims->ndim; i > axis; i--)
        dims->dim[i] = dims->dim[i - 1];
    dims->dim[axis] = dim;
    dims->ndim++;
    return QN_OK;
}

void qn_dims_remove(qn_dims *dims, int axis)
{
    dims->ndim--;
    for (int i = axis; i < dims->ndim; i++)
        dims->dim[i] = dims->dim[i + 1];
}

qn_status qn_axis_of(int *out, const char *op, int axis, int ndim)
{
    if (axis < -ndim || axis >= ndim)
        return qn_fail(
            QN_E_ARG,
            "[%s] Axis %d is out of bounds for array with %d dimensions.", op,
            axis, ndim);
    *out = axis < 0 ? axis + ndim : axis;
    return QN_OK;
}

qn_status qn_axes_of(int *out, const char *op, const int *axes, size_t naxes,
                     int ndim)
{
    uint32_t seen = 0; /* one bit for each of the QN_MAX_NDIM axes */
    if (naxes > (size_t)ndim)
        return qn_fail(QN_E_ARG,
                       "[%s] Received %zu axes for array with %d dimensions.",
                       op, naxes, ndim);
    for (size_t i = 0; i < naxes; i++) {
        qn_status status = qn_axis_of(&out[i], op, axes[i], ndim);
        if (status)
            return status;
        if (seen & UINT32_C(1) << out[i])
            return qn_fail(QN_E_ARG, "[%s] Axis %d is given twice.", op,
                           axes[i]);
        seen |= UINT32_C(1) << out[i];
    }
    return QN_OK;
}

qn_status qn_dims_broadcast(qn_dims *out, const char *op, const qn_dims *a,
                            const qn_dims *b)
{
    qn_dims result;
    result.ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    for (int i = 0; i < result.ndim; i++) {
        int ia = i - (result.ndim - a->ndim), ib = i - (result.ndim - b->ndim);
        int da = ia < 0 ? 1 : a->dim[ia], db = ib < 0 ? 1 : b->dim[ib];
        if (da != db && da != 1 && db != 1)
            return qn_fail(QN_E_ARG,
                           "[%s] Shapes %s and %s cannot be broadcast.", op,
                           qn_shape_text(a->dim, (size_t)a->ndim).text,
                           qn_shape_text(b->dim, (size_t)b->ndim).text);
        result.dim[i] = da == 1 ? db : da;
    }
    *out = result;
    return QN_OK;
}

bool qn_dims_size(size_t *out, const qn_dims *dims)
{
    /* A 0 anywhere makes it 0, whatever the others multiply to. */
    size_t size = 1;
    for (int i = 0; i < dims->ndim; i++)
        if (dims->dim[i] == 0) {
            *out = 0;
            return true;
        }
    for (int i = 0; i < dims->ndim; i++)
        if (!qn_mul_size(&size, size, (size_t)dims->dim[i]))
            return false;
    *out = size;
    return true;
}
