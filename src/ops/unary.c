/* unary.c: functions of one element, and tests for special values.
 *
 * Integers and bool have no infinities and no NaN, and are whole already: the
 * tests give constants for them and rounding gives the input itself. */
#include "scope.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static bool is_whole(qn_dtype d)
{
    return d == QN_BOOL || qn_dtype_is_integer(d);
}

/* Ops that leave some types as they are. */
static bool keeps(qn_op op, qn_dtype d)
{
    switch (op) {
    case QN_OP_CEIL:
    case QN_OP_FLOOR:
    case QN_OP_TRUNC:
    case QN_OP_ROUND:
        return is_whole(d);
    case QN_OP_CONJUGATE:
    case QN_OP_REAL:
        return d != QN_COMPLEX64;
    case QN_OP_ABS:
        return d == QN_BOOL || qn_dtype_kind(d) == QN_KIND_UINT;
    default:
        return false;
    }
}

qn_status qn_op_unary(qn_array **out, qn_op op, qn_array *x, qn_stream *s)
{
    const qn_op_info *info = qn_op_info_of(op);
    qn_dtype operand;
    qn_status status = qn_operand_type(&operand, info, x->dtype);
    if (status)
        return status;
    if (op == QN_OP_NEGATIVE && operand == QN_BOOL)
        return qn_fail(QN_E_ARG, "[negative] Not supported for bool, use "
                                 "logical_not instead.");
    if (keeps(op, operand))
        return qn_same(out, x);

    qn_dtype result = qn_result_type(info, operand);
    if (operand == x->dtype)
        return qn_make(out, op, s, &x, 1, NULL, 0, result, x->shape, x->ndim);
    qn_array *converted = NULL;
    status = qn_op_astype(&converted, x, operand, s);
    if (!status)
        status = qn_make(out, op, s, &converted, 1, NULL, 0, result, x->shape,
                         x->ndim);
    qn_array_unref(converted);
    return status;
}

qn_status qn_op_positive(qn_array **out, qn_array *x, qn_stream *s)
{
    (void)s;
    return qn_same(out, x);
}

qn_status qn_op_reciprocal(qn_array **out, qn_array *x, qn_stream *s)
{
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *one = scalar(&c, 1, qn_promote_float(x->dtype));
    return qn_scope_end(&c, out, divide(&c, one, x));
}

/* x times a constant, in the floating type of x. */
static qn_status scaled(qn_array **out, qn_array *x, double factor,
                        qn_stream *s)
{
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *constant = scalar(&c, factor, qn_promote_float(x->dtype));
    return qn_scope_end(&c, out, mul(&c, x, constant));
}

qn_status qn_op_degrees(qn_array **out, qn_array *x, qn_stream *s)
{
    return scaled(out, x, 57.295779513082320877, s);
}

qn_status qn_op_radians(qn_array **out, qn_array *x, qn_stream *s)
{
    return scaled(out, x, 0.017453292519943295769, s);
}

/* ---- tests ---- */

static qn_status constant(qn_array **out, qn_array *x, double value,
                          qn_stream *s)
{
    return qn_op_full_value(out, x->shape, (size_t)x->ndim, value, QN_BOOL, s);
}

qn_status qn_op_isnan(qn_array **out, qn_array *x, qn_stream *s)
{
    if (is_whole(x->dtype))
        return constant(out, x, 0, s);
    return qn_op_binary(out, QN_OP_NOT_EQUAL, x, x, s);
}

/* |x| == infinity for reals; either part for complex. */
static qn_array *infinite(qn_scope *c, qn_array *x)
{
    if (x->dtype != QN_COMPLEX64)
        return binary(c, QN_OP_EQUAL, unary(c, QN_OP_ABS, x),
                      scalar_of(c, INFINITY, x));
    qn_array *inf = scalar(c, INFINITY, QN_FLOAT32);
    qn_array *re = unary(c, QN_OP_ABS, unary(c, QN_OP_REAL, x));
    qn_array *im = unary(c, QN_OP_ABS, unary(c, QN_OP_IMAG, x));
    return binary(c, QN_OP_LOGICAL_OR, binary(c, QN_OP_EQUAL, re, inf),
                  binary(c, QN_OP_EQUAL, im, inf));
}

qn_status qn_op_isinf(qn_array **out, qn_array *x, qn_stream *s)
{
    if (is_whole(x->dtype))
        return constant(out, x, 0, s);
    qn_scope c;
    qn_scope_begin(&c, s);
    return qn_scope_end(&c, out, infinite(&c, x));
}

static qn_status equals(qn_array **out, qn_array *x, double value, qn_stream *s)
{
    if (is_whole(x->dtype))
        return constant(out, x, 0, s);
    qn_scope c;
    qn_scope_begin(&c, s);
    return qn_scope_end(&c, out,
                        binary(&c, QN_OP_EQUAL, x, scalar_of(&c, value, x)));
}

qn_status qn_op_isposinf(qn_array **out, qn_array *x, qn_stream *s)
{
    return equals(out, x, INFINITY, s);
}

qn_status qn_op_isneginf(qn_array **out, qn_array *x, qn_stream *s)
{
    return equals(out, x, -INFINITY, s);
}

qn_status qn_op_isfinite(qn_array **out, qn_array *x, qn_stream *s)
{
    if (is_whole(x->dtype))
        return constant(out, x, 1, s);
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *nan = binary(&c, QN_OP_NOT_EQUAL, x, x);
    qn_array *either = binary(&c, QN_OP_LOGICAL_OR, nan, infinite(&c, x));
    return qn_scope_end(&c, out, unary(&c, QN_OP_LOGICAL_NOT, either));
}

/* ---- with further arguments ---- */

qn_status qn_op_round(qn_array **out, qn_array *x, int decimals, qn_stream *s)
{
    if (decimals == 0)
        return qn_op_unary(out, QN_OP_ROUND, x, s);
    /* An integer has no decimals to lose. */
    if (is_whole(x->dtype) && (decimals > 0 || x->dtype == QN_BOOL))
        return qn_same(out, x);
    /* Beyond this every power of ten is infinite. */
    int digits = decimals < -400 ? 400 : decimals > 400 ? 400 : abs(decimals);
    qn_scope c;
    qn_scope_begin(&c, s);
    /* Half types round where the scaled value is still exact enough. */
    qn_dtype wide = x->dtype == QN_COMPLEX64 || x->dtype == QN_FLOAT64
                        ? x->dtype
                    : is_whole(x->dtype) ? QN_FLOAT64
                                         : QN_FLOAT32;
    qn_array *y = cast(&c, x, wide);
    qn_array *power = scalar(&c, pow(10, digits), wide);
    qn_op there = decimals < 0 ? QN_OP_DIVIDE : QN_OP_MULTIPLY;
    qn_op back = decimals < 0 ? QN_OP_MULTIPLY : QN_OP_DIVIDE;
    y = binary(&c, back, unary(&c, QN_OP_ROUND, binary(&c, there, y, power)),
               power);
    return qn_scope_end(&c, out, cast(&c, y, x->dtype));
}

static double largest(qn_dtype d)
{
    switch (d) {
    case QN_FLOAT16:
        return 65504;
    case QN_BFLOAT16:
        return 0x1.fep127;
    case QN_FLOAT64:
        return DBL_MAX;
    default:
        return FLT_MAX;
    }
}

qn_status qn_op_nan_to_num(qn_array **out, qn_array *x, float nan,
                           const float *posinf, const float *neginf,
                           qn_stream *s)
{
    if (is_whole(x->dtype))
        return qn_same(out, x);
    if (x->dtype == QN_COMPLEX64 && (!posinf || !neginf))
        return qn_fail(QN_E_ARG, "[nan_to_num] complex64 has no largest value: "
                                 "posinf and neginf are needed.");
    qn_scope c;
    qn_scope_begin(&c, s);
    double high = posinf ? *posinf : largest(x->dtype);
    double low = neginf ? *neginf : -largest(x->dtype);
    qn_array *y =
        where(&c, binary(&c, QN_OP_NOT_EQUAL, x, x), scalar_of(&c, nan, x), x);
    y = where(&c, binary(&c, QN_OP_EQUAL, x, scalar_of(&c, INFINITY, x)),
              scalar_of(&c, high, x), y);
    y = where(&c, binary(&c, QN_OP_EQUAL, x, scalar_of(&c, -INFINITY, x)),
              scalar_of(&c, low, x), y);
    return qn_scope_end(&c, out, y);
}
