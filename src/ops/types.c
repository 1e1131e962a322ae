/* types.c: conversion between element types, and choice between arrays. */
#include "scope.h"

#include <math.h>

qn_status qn_op_astype(qn_array **out, qn_array *x, qn_dtype dtype,
                       qn_stream *s)
{
    if (x->dtype == dtype)
        return qn_same(out, x);
    return qn_make(out, QN_OP_ASTYPE, s, &x, 1, NULL, 0, dtype, x->shape,
                   x->ndim);
}

qn_status qn_op_view(qn_array **out, qn_array *x, qn_dtype dtype, qn_stream *s)
{
    if (x->dtype == dtype)
        return qn_same(out, x);
    qn_dims dims = qn_dims_of(x);
    size_t from = qn_dtype_size(x->dtype), to = qn_dtype_size(dtype);
    if (from != to) {
        if (!dims.ndim)
            return qn_fail(QN_E_ARG,
                           "[view] Changing the type of a scalar is only "
                           "allowed for types of equal size, found %s to %s.",
                           qn_dtype_name(x->dtype), qn_dtype_name(dtype));
        int *last = &dims.dim[dims.ndim - 1];
        int64_t bytes = (int64_t)*last * (int64_t)from;
        if (bytes % (int64_t)to)
            return qn_fail(QN_E_ARG,
                           "[view] A last dimension of %d elements of %s does "
                           "not divide into elements of %s.",
                           *last, qn_dtype_name(x->dtype),
                           qn_dtype_name(dtype));
        qn_status status = qn_dim_fit(last, "view", bytes / (int64_t)to);
        if (status)
            return status;
    }
    return qn_make(out, QN_OP_VIEW, s, &x, 1, NULL, 0, dtype, dims.dim,
                   dims.ndim);
}

qn_status qn_op_where(qn_array **out, qn_array *condition, qn_array *x,
                      qn_array *y, qn_stream *s)
{
    qn_dtype dtype = qn_promote(x->dtype, y->dtype);
    qn_dims dims = qn_dims_of(condition), dx = qn_dims_of(x),
            dy = qn_dims_of(y);
    qn_status status = qn_dims_broadcast(&dims, "where", &dims, &dx);
    if (!status)
        status = qn_dims_broadcast(&dims, "where", &dims, &dy);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *inputs[3] = {
        broadcast(&c, cast(&c, condition, QN_BOOL), &dims),
        broadcast(&c, cast(&c, x, dtype), &dims),
        broadcast(&c, cast(&c, y, dtype), &dims),
    };
    qn_array *made = NULL;
    if (!c.status)
        qn_scope_hold(&c,
                      qn_make(&made, QN_OP_SELECT, s, inputs, 3, NULL, 0, dtype,
                              dims.dim, dims.ndim),
                      &made);
    return qn_scope_end(&c, out, made);
}

/* ---- eight-bit floats ----
 *
 * E4M3 has a sign, four bits of exponent (bias 7) and three of fraction.  MLX
 * reads it without NaN.  There are few enough codes to look them up. */

enum { FP8_CODES = 127 }; /* without a sign, up to 448 */

static float fp8_value(int code)
{
    int exponent = code >> 3;
    float fraction = (float)(code & 7) / 8;
    return exponent ? ldexpf(1 + fraction, exponent - 7) : ldexpf(fraction, -6);
}

qn_status qn_op_from_fp8(qn_array **out, qn_array *x, qn_dtype dtype,
                         qn_stream *s)
{
    if (x->dtype != QN_UINT8)
        return qn_fail(QN_E_ARG,
                       "[from_fp8] The input must be uint8, found %s.",
                       qn_dtype_name(x->dtype));
    if (!qn_dtype_is_float(dtype))
        return qn_fail(QN_E_ARG,
                       "[from_fp8] Only real floating types are supported, "
                       "found %s.",
                       qn_dtype_name(dtype));
    float values[256];
    int count = 256;
    for (int i = 0; i < 128; i++) {
        values[i] = fp8_value(i);
        values[128 + i] = -values[i];
    }
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *table = NULL, *made = NULL;
    qn_scope_hold(&c, qn_array_from_data(&table, values, &count, 1, QN_FLOAT32),
                  &table);
    if (!c.status)
        qn_scope_hold(&c, qn_op_take(&made, table, x, 0, s), &made);
    return qn_scope_end(&c, out, cast(&c, made, dtype));
}

qn_status qn_op_to_fp8(qn_array **out, qn_array *x, qn_stream *s)
{
    if (!qn_dtype_is_float(x->dtype))
        return qn_fail(QN_E_ARG,
                       "[to_fp8] Only real floating types are supported, found "
                       "%s.",
                       qn_dtype_name(x->dtype));
    /* A code is the number of bounds below the value.  The bound after an even
     * code is the middle, so that a tie stays; after an odd one the number
     * before the middle, so that a tie goes on. */
    float bounds[FP8_CODES - 1];
    int count = FP8_CODES - 1;
    for (int i = 0; i < count; i++) {
        float middle = (fp8_value(i) + fp8_value(i + 1)) / 2;
        bounds[i] = i % 2 ? nextafterf(middle, 0) : middle;
    }
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *y = cast(&c, x, QN_FLOAT32);
    qn_array *table = NULL, *code = NULL, *word = NULL;
    qn_scope_hold(&c, qn_array_from_data(&table, bounds, &count, 1, QN_FLOAT32),
                  &table);
    qn_array *size = unary(&c, QN_OP_ABS, y);
    if (!c.status)
        qn_scope_hold(&c, qn_op_searchsorted(&code, table, size, "left", s),
                      &code);
    if (!c.status)
        qn_scope_hold(&c, qn_op_view(&word, y, QN_UINT32, s), &word);
    /* The sign bit moves from place 31 to place 7; that of -0 too. */
    qn_array *sign =
        binary(&c, QN_OP_RIGHT_SHIFT, word, scalar(&c, 31, QN_UINT32));
    sign = binary(&c, QN_OP_LEFT_SHIFT, sign, scalar(&c, 7, QN_UINT32));
    return qn_scope_end(
        &c, out, cast(&c, binary(&c, QN_OP_BITWISE_OR, code, sign), QN_UINT8));
}
