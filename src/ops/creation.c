/* creation.c: arrays made of numbers. */
#include "params.h"
#include "scope.h"

#include "base/f16.h"
#include "core/record.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* ---- constants ---- */

/* The integer that a double stands for, modulo 2^64; 0 where there is none. */
static uint64_t whole(double value)
{
    if (!(fabs(value) < 0x1p64))
        return 0;
    return value < 0 ? UINT64_C(0) - (uint64_t)-value : (uint64_t)value;
}

qn_status qn_op_scalar(qn_array **out, double value, qn_dtype dtype)
{
    union {
        bool b;
        uint8_t u8;
        uint16_t u16;
        uint32_t u32;
        uint64_t u64;
        float f32[2];
        double f64;
    } as;
    memset(&as, 0, sizeof as);
    switch (dtype) {
    case QN_BOOL:
        as.b = value != 0;
        break;
    case QN_UINT8:
    case QN_INT8:
        as.u8 = (uint8_t)whole(value);
        break;
    case QN_UINT16:
    case QN_INT16:
        as.u16 = (uint16_t)whole(value);
        break;
    case QN_UINT32:
    case QN_INT32:
        as.u32 = (uint32_t)whole(value);
        break;
    case QN_UINT64:
    case QN_INT64:
        as.u64 = whole(value);
        break;
    case QN_FLOAT16:
        as.u16 = qn_f32_to_f16((float)value);
        break;
    case QN_BFLOAT16:
        as.u16 = qn_f32_to_bf16((float)value);
        break;
    case QN_FLOAT32:
    case QN_COMPLEX64:
        as.f32[0] = (float)value;
        break;
    case QN_FLOAT64:
        as.f64 = value;
        break;
    default:
        return qn_fail(QN_E_ARG, "[scalar] Unknown dtype %d.", (int)dtype);
    }
    return qn_array_from_scalar(out, &as, dtype);
}

qn_status qn_op_full(qn_array **out, const int *shape, size_t ndim,
                     qn_array *value, qn_dtype dtype, qn_stream *s)
{
    qn_dims dims, have = qn_dims_of(value), common;
    qn_status status = qn_dims_given(&dims, "full", shape, ndim);
    if (!status)
        status = qn_dims_broadcast(&common, "full", &have, &dims);
    if (status)
        return status;
    if (common.ndim != dims.ndim ||
        memcmp(common.dim, dims.dim, (size_t)dims.ndim * sizeof(int)))
        return qn_fail(
            QN_E_ARG, "[full] A value of shape %s cannot fill shape %s.",
            qn_array_shape_text(value).text, qn_shape_text(shape, ndim).text);
    qn_array *typed = NULL;
    status = qn_op_astype(&typed, value, dtype, s);
    if (!status)
        status = qn_make(out, QN_OP_FULL, s, &typed, 1, NULL, 0, dtype,
                         dims.dim, dims.ndim);
    qn_array_unref(typed);
    return status;
}

qn_status qn_op_full_value(qn_array **out, const int *shape, size_t ndim,
                           double value, qn_dtype dtype, qn_stream *s)
{
    qn_array *scalar_value = NULL;
    qn_status status = qn_op_scalar(&scalar_value, value, dtype);
    if (!status)
        status = qn_op_full(out, shape, ndim, scalar_value, dtype, s);
    qn_array_unref(scalar_value);
    return status;
}

qn_status qn_op_broadcast_like(qn_array **out, qn_array *value, qn_array *x,
                               qn_stream *s)
{
    if (!qn_record_shapeless())
        return qn_op_broadcast_derived(out, value, x->shape, (size_t)x->ndim,
                                       s);
    /* A choice, always of the value, follows x when it is made again. */
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *yes = scalar(&c, 1, QN_BOOL);
    return qn_scope_end(&c, out,
                        where(&c, yes, value, cast(&c, x, value->dtype)));
}

static qn_status constant_like(qn_array **out, double value, qn_array *x,
                               qn_stream *s)
{
    if (!qn_record_shapeless())
        return qn_op_full_value(out, x->shape, (size_t)x->ndim, value, x->dtype,
                                s);
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *one = scalar_of(&c, value, x), *made = NULL;
    if (!c.status)
        qn_scope_hold(&c, qn_op_broadcast_like(&made, one, x, s), &made);
    return qn_scope_end(&c, out, made);
}

qn_status qn_op_zeros_like(qn_array **out, qn_array *x, qn_stream *s)
{
    return constant_like(out, 0, x, s);
}

qn_status qn_op_ones_like(qn_array **out, qn_array *x, qn_stream *s)
{
    return constant_like(out, 1, x, s);
}

/* ---- ranges ---- */

/* `count` numbers start, start + step, ...: floats from the real numbers,
 * integers from their whole parts. */
static qn_status range(qn_array **out, double start, double step, int count,
                       qn_dtype dtype, qn_stream *s)
{
    qn_arange_params params = {.start = start, .step = step};
    params.istart = (int64_t)whole(start);
    params.istep = (int64_t)whole(step);
    return qn_make(out, QN_OP_ARANGE, s, NULL, 0, &params, sizeof params, dtype,
                   &count, 1);
}

qn_status qn_op_arange(qn_array **out, double start, double stop, double step,
                       qn_dtype dtype, qn_stream *s)
{
    if (dtype == QN_BOOL)
        return qn_fail(QN_E_ARG, "[arange] bool is not supported.");
    if (step == 0)
        return qn_fail(QN_E_ARG, "[arange] step must not be zero.");
    /* One infinite step leads out of every range. */
    double length = isinf(step) && !isnan(start) && !isnan(stop)
                        ? (step > 0 ? start < stop : start > stop)
                        : ceil((stop - start) / step);
    if (!isfinite(length) || !isfinite(start))
        return qn_fail(QN_E_ARG,
                       "[arange] Cannot compute the length from %g to %g by "
                       "%g.",
                       start, stop, step);
    if (length > INT_MAX)
        return qn_fail(QN_E_ARG,
                       "[arange] The length %.0f is above the maximum of %d.",
                       length, INT_MAX);
    if (isinf(step))
        step = 0;
    int count = length > 0 ? (int)length : 0;
    if (dtype != QN_COMPLEX64)
        return range(out, start, step, count, dtype, s);
    qn_array *real = NULL;
    qn_status status = range(&real, start, step, count, QN_FLOAT32, s);
    if (!status)
        status = qn_op_astype(out, real, dtype, s);
    qn_array_unref(real);
    return status;
}

qn_status qn_op_linspace(qn_array **out, double start, double stop, int num,
                         bool endpoint, qn_dtype dtype, qn_stream *s)
{
    if (num < 0)
        return qn_fail(QN_E_ARG,
                       "[linspace] The number of samples must not be negative, "
                       "found %d.",
                       num);
    int gaps = endpoint ? num - 1 : num;
    double step = gaps > 0 ? (stop - start) / gaps : 0;
    if (dtype == QN_FLOAT64 || dtype == QN_FLOAT16 || dtype == QN_BFLOAT16 ||
        dtype == QN_FLOAT32)
        return range(out, start, step, num, dtype, s);
    /* Rounding to float32 first takes away the error of the steps, which
     * would cut whole numbers down by one. */
    qn_array *real = NULL;
    qn_status status = range(&real, start, step, num, QN_FLOAT32, s);
    if (!status)
        status = qn_op_astype(out, real, dtype, s);
    qn_array_unref(real);
    return status;
}

/* ---- triangles and diagonals ---- */

/* Compares column numbers with row numbers moved by k: an n x m bool matrix
 * that is true where `op` holds between row + k and column. */
static qn_array *row_against_column(qn_scope *c, qn_op op, int n, int m, int k)
{
    qn_array *rows = arange(c, k, (double)n + k, 1, QN_INT64);
    qn_array *columns = arange(c, 0, m, 1, QN_INT64);
    return binary(c, op, expand(c, rows, 1), columns);
}

qn_status qn_op_eye(qn_array **out, int n, int m, int k, qn_dtype dtype,
                    qn_stream *s)
{
    if (n < 0 || m < 0)
        return qn_fail(QN_E_ARG,
                       "[eye] The numbers of rows and columns must not be "
                       "negative, found %d and %d.",
                       n, m);
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *mask = row_against_column(&c, QN_OP_EQUAL, n, m, k);
    return qn_scope_end(&c, out, cast(&c, mask, dtype));
}

qn_status qn_op_tri(qn_array **out, int n, int m, int k, qn_dtype dtype,
                    qn_stream *s)
{
    n = n < 0 ? 0 : n;
    m = m < 0 ? 0 : m;
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *mask = row_against_column(&c, QN_OP_GREATER_EQUAL, n, m, k);
    return qn_scope_end(&c, out, cast(&c, mask, dtype));
}

static qn_status triangle(qn_array **out, const char *op, qn_array *x, int k,
                          bool lower, qn_stream *s)
{
    if (x->ndim < 2)
        return qn_fail(QN_E_ARG,
                       "[%s] The array must have at least 2 dimensions, found "
                       "%d.",
                       op, x->ndim);
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *mask =
        row_against_column(&c, lower ? QN_OP_GREATER_EQUAL : QN_OP_LESS_EQUAL,
                           x->shape[x->ndim - 2], x->shape[x->ndim - 1], k);
    return qn_scope_end(&c, out, where(&c, mask, x, scalar_of(&c, 0, x)));
}

qn_status qn_op_tril(qn_array **out, qn_array *x, int k, qn_stream *s)
{
    return triangle(out, "tril", x, k, true, s);
}

qn_status qn_op_triu(qn_array **out, qn_array *x, int k, qn_stream *s)
{
    return triangle(out, "triu", x, k, false, s);
}

/* ---- windows ---- */

qn_status qn_op_window(qn_array **out, qn_window window, int m, qn_stream *s)
{
    if (m <= 1) {
        int length = m == 1;
        return qn_op_full_value(out, &length, 1, 1, QN_FLOAT32, s);
    }
    qn_scope c;
    qn_scope_begin(&c, s);
    /* t runs from 0 to 1; in float64, since the ends are meant to be 0. */
    qn_array *t = NULL;
    qn_scope_hold(&c, qn_op_linspace(&t, 0, 1, m, true, QN_FLOAT64, s), &t);
    qn_array *y = NULL;
    if (window == QN_WINDOW_BARTLETT) {
        qn_array *slope = mul(&c, t, scalar(&c, 2, QN_FLOAT64));
        qn_array *one = scalar(&c, 1, QN_FLOAT64);
        y = sub(&c, one, unary(&c, QN_OP_ABS, sub(&c, slope, one)));
    } else {
        static const double terms[][3] = {
            [QN_WINDOW_BLACKMAN] = {0.42, 0.5, 0.08},
            [QN_WINDOW_HAMMING] = {0.54, 0.46, 0},
            [QN_WINDOW_HANNING] = {0.5, 0.5, 0},
        };
        const double *a = terms[window];
        qn_array *angle =
            mul(&c, t, scalar(&c, 6.283185307179586477, QN_FLOAT64));
        y = sub(
            &c, scalar(&c, a[0], QN_FLOAT64),
            mul(&c, scalar(&c, a[1], QN_FLOAT64), unary(&c, QN_OP_COS, angle)));
        if (a[2] != 0) {
            qn_array *twice = unary(&c, QN_OP_COS, add(&c, angle, angle));
            y = add(&c, y, mul(&c, scalar(&c, a[2], QN_FLOAT64), twice));
        }
    }
    return qn_scope_end(&c, out, cast(&c, y, QN_FLOAT32));
}

/* ---- grids ---- */

qn_status qn_op_meshgrid(qn_array **out, qn_array *const *arrays, size_t count,
                         bool sparse, const char *indexing, qn_stream *s)
{
    bool xy = !strcmp(indexing, "xy");
    if (!xy && strcmp(indexing, "ij"))
        return qn_fail(QN_E_ARG,
                       "[meshgrid] The indexing must be 'xy' or 'ij', found "
                       "'%s'.",
                       indexing);
    if (count > QN_MAX_NDIM)
        return qn_fail(QN_E_ARG, "[meshgrid] At most %d arrays, found %zu.",
                       QN_MAX_NDIM, count);
    qn_dims grid = {.ndim = (int)count};
    for (size_t i = 0; i < count; i++) {
        if (arrays[i]->size > INT_MAX)
            return qn_fail(QN_E_ARG, "[meshgrid] Array %zu is too large.", i);
        grid.dim[i] = (int)arrays[i]->size;
    }
    /* In 'xy' the first two axes change places. */
    bool swap = xy && count > 1;
    if (swap) {
        int first = grid.dim[0];
        grid.dim[0] = grid.dim[1];
        grid.dim[1] = first;
    }
    qn_array *results[QN_MAX_NDIM];
    qn_scope c;
    qn_scope_begin(&c, s);
    for (size_t i = 0; i < count; i++) {
        size_t axis = swap && i < 2 ? 1 - i : i;
        qn_dims line = {.ndim = (int)count};
        for (size_t j = 0; j < count; j++)
            line.dim[j] = j == axis ? grid.dim[axis] : 1;
        results[i] = reshape(&c, arrays[i], &line);
        if (!sparse)
            results[i] = broadcast(&c, results[i], &grid);
    }
    return qn_scope_end_many(&c, out, results, (int)count);
}
