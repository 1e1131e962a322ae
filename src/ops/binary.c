/* binary.c: functions of two elements.
 *
 * Operands of one shape and the row's type go straight into the node.  Only a
 * difference adds nodes: a conversion where the type differs, a view where the
 * shape does. */
#include "scope.h"

#include <math.h>

/* The operand converted and broadcast; a new reference in any case. */
static qn_status prepare(qn_array **out, qn_array *x, qn_dtype dtype,
                         const qn_dims *dims, qn_stream *s)
{
    qn_array *typed = NULL;
    qn_status status = qn_op_astype(&typed, x, dtype, s);
    if (status)
        return status;
    status =
        qn_op_broadcast_derived(out, typed, dims->dim, (size_t)dims->ndim, s);
    qn_array_unref(typed);
    return status;
}

qn_status qn_op_binary(qn_array **out, qn_op op, qn_array *a, qn_array *b,
                       qn_stream *s)
{
    const qn_op_info *info = qn_op_info_of(op);
    qn_dtype operand;
    qn_status status =
        qn_operand_type(&operand, info, qn_promote(a->dtype, b->dtype));
    if (status)
        return status;
    qn_dtype result = qn_result_type(info, operand);
    if (a->dtype == operand && b->dtype == operand && qn_same_shape(a, b))
        return qn_make(out, op, s, (qn_array *[]){a, b}, 2, NULL, 0, result,
                       a->shape, a->ndim);

    qn_dims da = qn_dims_of(a), db = qn_dims_of(b), dims;
    status = qn_dims_broadcast(&dims, info->name, &da, &db);
    if (status)
        return status;
    qn_array *inputs[2] = {NULL, NULL};
    status = prepare(&inputs[0], a, operand, &dims, s);
    if (!status)
        status = prepare(&inputs[1], b, operand, &dims, s);
    if (!status)
        status = qn_make(out, op, s, inputs, 2, NULL, 0, result, dims.dim,
                         dims.ndim);
    qn_array_unref(inputs[0]);
    qn_array_unref(inputs[1]);
    return status;
}

qn_status qn_op_divmod(qn_array **out, qn_array *a, qn_array *b, qn_stream *s)
{
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *quotient = binary(&c, QN_OP_FLOOR_DIVIDE, a, b);
    qn_array *rest = binary(&c, QN_OP_REMAINDER, a, b);
    /* Integer floor_divide truncates, remainder does not: a quotient below
     * zero that is not exact is one less, so that q * b + rest is a. */
    if (quotient && qn_dtype_kind(quotient->dtype) == QN_KIND_INT) {
        qn_array *zero = scalar(&c, 0, quotient->dtype);
        qn_array *below =
            binary(&c, QN_OP_LOGICAL_XOR, binary(&c, QN_OP_LESS, a, zero),
                   binary(&c, QN_OP_LESS, b, zero));
        qn_array *inexact = binary(&c, QN_OP_NOT_EQUAL, rest, zero);
        qn_array *one = binary(&c, QN_OP_LOGICAL_AND, below, inexact);
        quotient = sub(&c, quotient, cast(&c, one, quotient->dtype));
    }
    return qn_scope_end_many(&c, out, (qn_array *[]){quotient, rest}, 2);
}

qn_status qn_op_clip(qn_array **out, qn_array *x, qn_array *min, qn_array *max,
                     qn_stream *s)
{
    if (!min && !max)
        return qn_fail(QN_E_ARG, "[clip] At least one of a_min and a_max is "
                                 "needed, found neither.");
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *y = x;
    if (min)
        y = binary(&c, QN_OP_MAXIMUM, y, min);
    if (max)
        y = binary(&c, QN_OP_MINIMUM, y, max);
    return qn_scope_end(&c, out, y);
}

/* ---- comparison with tolerance ---- */

static qn_array *nan_of(qn_scope *c, qn_array *x)
{
    return binary(c, QN_OP_NOT_EQUAL, x, x);
}

static qn_array *both_nan(qn_scope *c, qn_array *a, qn_array *b)
{
    return binary(c, QN_OP_LOGICAL_AND, nan_of(c, a), nan_of(c, b));
}

static qn_array *close(qn_scope *c, qn_array *a, qn_array *b, double rtol,
                       double atol, bool equal_nan)
{
    qn_dtype type = qn_promote(a->dtype, b->dtype);
    a = cast(c, a, type);
    b = cast(c, b, type);
    /* Differences of integers may wrap, and those of half types round away
     * what the tolerance asks about. */
    if (type == QN_BOOL || qn_dtype_is_integer(type))
        type = QN_FLOAT64;
    else if (type == QN_FLOAT16 || type == QN_BFLOAT16)
        type = QN_FLOAT32;
    a = cast(c, a, type);
    b = cast(c, b, type);
    qn_dtype real = type == QN_COMPLEX64 ? QN_FLOAT32 : type;
    qn_array *size = unary(c, QN_OP_ABS, b);
    qn_array *bound =
        add(c, scalar(c, atol, real), mul(c, scalar(c, rtol, real), size));
    qn_array *near =
        binary(c, QN_OP_LESS_EQUAL, unary(c, QN_OP_ABS, sub(c, a, b)), bound);
    /* An infinity is close to itself alone, whatever the bound becomes. */
    qn_array *inf = scalar(c, INFINITY, real);
    qn_array *wild = binary(c, QN_OP_LOGICAL_OR,
                            binary(c, QN_OP_EQUAL, unary(c, QN_OP_ABS, a), inf),
                            binary(c, QN_OP_EQUAL, size, inf));
    near = where(c, wild, binary(c, QN_OP_EQUAL, a, b), near);
    if (equal_nan)
        near = binary(c, QN_OP_LOGICAL_OR, near, both_nan(c, a, b));
    return near;
}

qn_status qn_op_isclose(qn_array **out, qn_array *a, qn_array *b, double rtol,
                        double atol, bool equal_nan, qn_stream *s)
{
    qn_scope c;
    qn_scope_begin(&c, s);
    return qn_scope_end(&c, out, close(&c, a, b, rtol, atol, equal_nan));
}

qn_status qn_op_allclose(qn_array **out, qn_array *a, qn_array *b, double rtol,
                         double atol, bool equal_nan, qn_stream *s)
{
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *near = close(&c, a, b, rtol, atol, equal_nan);
    return qn_scope_end(&c, out,
                        reduce(&c, QN_OP_ALL, near, NULL, QN_ALL_AXES, false));
}

qn_status qn_op_array_equal(qn_array **out, qn_array *a, qn_array *b,
                            bool equal_nan, qn_stream *s)
{
    if (!qn_same_shape(a, b))
        return qn_op_scalar(out, 0, QN_BOOL);
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *same = binary(&c, QN_OP_EQUAL, a, b);
    if (equal_nan)
        same = binary(&c, QN_OP_LOGICAL_OR, same, both_nan(&c, a, b));
    return qn_scope_end(&c, out,
                        reduce(&c, QN_OP_ALL, same, NULL, QN_ALL_AXES, false));
}
