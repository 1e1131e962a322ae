/* grad_map.c: gradients of operations on each element by itself.
 *
 * One line per operation: the derivative over x and y = f(x), or over a, b and
 * y = f(a, b).  A cotangent is multiplied by its conjugate. */
#include "rules.h"

#include <math.h>

/* In scope of the lines below: c, the inputs, the output, the cotangent. */
#define NUMBER(value) scalar_of(c, value, x)
#define UN(op, a) unary(c, QN_OP_##op, a)
#define BI(op, a, b) binary(c, QN_OP_##op, a, b)

static qn_array *times(qn_scope *c, qn_array *cot, qn_array *derivative)
{
    return mul(c, cot, UN(CONJUGATE, derivative));
}

void qn_grad_zero(qn_grad *g)
{
    (void)g;
}

void qn_grad_none(qn_grad *g)
{
    qn_scope_fail(g->c, qn_fail(QN_E_UNSUPPORTED,
                                "[%s] This operation has no gradient.",
                                qn_op_info_of(g->node->op)->name));
}

/* ---- of one element ---- */

#define UNARY(name, gradient)                                                  \
    void qn_grad_##name(qn_grad *g)                                            \
    {                                                                          \
        qn_scope *c = g->c;                                                    \
        qn_array *x = g->in[0], *y = g->out[0], *cot = g->cot[0];              \
        (void)x;                                                               \
        (void)y;                                                               \
        g->grad[0] = gradient;                                                 \
    }
#define DERIVATIVE(name, derivative) UNARY(name, times(c, cot, derivative))

static qn_array *one_minus_square(qn_scope *c, qn_array *x)
{
    return sub(c, NUMBER(1), UN(SQUARE, x));
}

static qn_array *one_plus_square(qn_scope *c, qn_array *x)
{
    return add(c, NUMBER(1), UN(SQUARE, x));
}

/* 1 / cosh(x)^2. */
static qn_array *tanh_slope(qn_scope *c, qn_array *x)
{
    if (x->dtype == QN_COMPLEX64)
        return divide(c, NUMBER(1), UN(SQUARE, UN(COSH, x)));
    qn_array *twice = mul(c, x, NUMBER(2));
    qn_array *both =
        mul(c, UN(SIGMOID, twice), UN(SIGMOID, UN(NEGATIVE, twice)));
    return mul(c, both, NUMBER(4));
}

static const double two_over_root_pi = 1.1283791670955125739;
static const double half_root_pi = 0.88622692545275801365;
static const double ln2 = 0.69314718055994530942;
static const double ln10 = 2.3025850929940456840;

/* clang-format off */
/* |x| grows fastest in the direction of x. */
UNARY(abs,             mul(c, cot, UN(SIGN, x)))
UNARY(conjugate,       UN(CONJUGATE, cot))
UNARY(negative,        UN(NEGATIVE, cot))
UNARY(real,            cast(c, cot, x->dtype))
DERIVATIVE(arccos,     UN(NEGATIVE, UN(RSQRT, one_minus_square(c, x))))
DERIVATIVE(arccosh,    UN(RSQRT, sub(c, UN(SQUARE, x), NUMBER(1))))
DERIVATIVE(arcsin,     UN(RSQRT, one_minus_square(c, x)))
DERIVATIVE(arcsinh,    UN(RSQRT, one_plus_square(c, x)))
DERIVATIVE(arctan,     divide(c, NUMBER(1), one_plus_square(c, x)))
DERIVATIVE(arctanh,    divide(c, NUMBER(1), one_minus_square(c, x)))
DERIVATIVE(cos,        UN(NEGATIVE, UN(SIN, x)))
DERIVATIVE(cosh,       UN(SINH, x))
DERIVATIVE(erf,        mul(c, NUMBER(two_over_root_pi), UN(EXP, UN(NEGATIVE, UN(SQUARE, x)))))
DERIVATIVE(erfinv,     mul(c, NUMBER(half_root_pi), UN(EXP, UN(SQUARE, y))))
DERIVATIVE(exp,        y)
DERIVATIVE(expm1,      UN(EXP, x))
DERIVATIVE(log,        divide(c, NUMBER(1), x))
DERIVATIVE(log10,      divide(c, NUMBER(1 / ln10), x))
DERIVATIVE(log1p,      divide(c, NUMBER(1), add(c, x, NUMBER(1))))
DERIVATIVE(log2,       divide(c, NUMBER(1 / ln2), x))
DERIVATIVE(rsqrt,      mul(c, NUMBER(-0.5), divide(c, y, x)))
/* 1 - y and 1 - y^2 would lose what is left of them near 1. */
DERIVATIVE(sigmoid,    mul(c, y, UN(SIGMOID, UN(NEGATIVE, x))))
DERIVATIVE(sin,        UN(COS, x))
DERIVATIVE(sinh,       UN(COSH, x))
DERIVATIVE(sqrt,       divide(c, NUMBER(0.5), y))
DERIVATIVE(square,     mul(c, NUMBER(2), x))
DERIVATIVE(tan,        one_plus_square(c, y))
DERIVATIVE(tanh,       tanh_slope(c, x))
/* clang-format on */

/* Grows along the imaginary axis; the imaginary part of a real is constant. */
void qn_grad_imag(qn_grad *g)
{
    if (g->in[0]->dtype != QN_COMPLEX64)
        return;
    qn_scope *c = g->c;
    float i[2] = {0, 1};
    qn_array *unit = NULL;
    if (!c->status)
        qn_scope_hold(c, qn_array_from_scalar(&unit, i, QN_COMPLEX64), &unit);
    g->grad[0] = mul(c, g->cot[0], unit);
}

/* x / |x| of a complex number is not constant, its real sign is. */
void qn_grad_sign(qn_grad *g)
{
    if (g->in[0]->dtype != QN_COMPLEX64)
        return;
    /* With s = x / |x|: (cot - s Re(conj(s) cot)) / |x|, the part of the
     * cotangent across x. */
    qn_scope *c = g->c;
    qn_array *s = g->out[0], *cot = g->cot[0];
    qn_array *along = UN(REAL, mul(c, UN(CONJUGATE, s), cot));
    qn_array *across = sub(c, cot, mul(c, s, along));
    qn_array *size = UN(ABS, g->in[0]);
    qn_array *zero = scalar(c, 0, QN_COMPLEX64);
    qn_array *nonzero = BI(NOT_EQUAL, size, scalar(c, 0, QN_FLOAT32));
    g->grad[0] = where(c, nonzero, divide(c, across, size), zero);
}

/* ---- of two elements ---- */

#define BINARY(name, left, right)                                              \
    void qn_grad_##name(qn_grad *g)                                            \
    {                                                                          \
        qn_scope *c = g->c;                                                    \
        qn_array *a = g->in[0], *b = g->in[1], *x = a, *y = g->out[0],         \
                 *cot = g->cot[0];                                             \
        (void)a, (void)b, (void)c, (void)x, (void)y;                           \
        if (g->wanted[0])                                                      \
            g->grad[0] = left;                                                 \
        if (g->wanted[1])                                                      \
            g->grad[1] = right;                                                \
    }

/* The cotangent where the condition holds. */
static qn_array *masked(qn_scope *c, qn_array *condition, qn_array *cot)
{
    return where(c, condition, cot, scalar_of(c, 0, cot));
}

static qn_array *radius(qn_scope *c, qn_array *a, qn_array *b)
{
    return add(c, UN(SQUARE, a), UN(SQUARE, b));
}

/* The share of a in log(exp(a) + exp(b)). */
static qn_array *share(qn_scope *c, qn_array *a, qn_array *b)
{
    if (a->dtype != QN_COMPLEX64)
        return UN(SIGMOID, sub(c, a, b));
    qn_array *one = scalar(c, 1, QN_COMPLEX64);
    return divide(c, one, add(c, one, UN(EXP, sub(c, b, a))));
}

/* b a^(b-1); nothing where b is 0, whatever a is. */
static qn_array *power_base(qn_scope *c, qn_array *a, qn_array *b)
{
    qn_array *zero = scalar_of(c, 0, a), *one = scalar_of(c, 1, a);
    qn_array *flat = BI(EQUAL, b, zero);
    qn_array *slope =
        mul(c, b, BI(POWER, a, where(c, flat, one, sub(c, b, one))));
    return where(c, flat, zero, slope);
}

/* a^b log(a); nothing where a is 0 and stays it. */
static qn_array *power_exponent(qn_scope *c, qn_array *a, qn_array *y)
{
    qn_array *zero = scalar_of(c, 0, a), *one = scalar_of(c, 1, a);
    qn_array *flat = BI(EQUAL, a, zero);
    qn_array *slope = mul(c, y, UN(LOG, where(c, flat, one, a)));
    return where(c, flat, scalar_of(c, 0, y), slope);
}

/* clang-format off */
BINARY(add,       cot,                                        cot)
BINARY(subtract,  cot,                                        UN(NEGATIVE, cot))
BINARY(multiply,  times(c, cot, b),                           times(c, cot, a))
BINARY(divide,    divide(c, cot, UN(CONJUGATE, b)),           times(c, cot, UN(NEGATIVE, divide(c, y, b))))
BINARY(arctan2,   mul(c, cot, divide(c, b, radius(c, a, b))), mul(c, cot, divide(c, UN(NEGATIVE, a), radius(c, a, b))))
BINARY(logaddexp, times(c, cot, share(c, a, b)),              times(c, cot, share(c, b, a)))
BINARY(maximum,   masked(c, BI(GREATER, a, b), cot),          masked(c, BI(LESS_EQUAL, a, b), cot))
BINARY(minimum,   masked(c, BI(LESS, a, b), cot),             masked(c, BI(GREATER_EQUAL, a, b), cot))
BINARY(power,     times(c, cot, power_base(c, a, b)),         times(c, cot, power_exponent(c, a, y)))
BINARY(remainder, cot,                                        UN(NEGATIVE, mul(c, cot, BI(FLOOR_DIVIDE, a, b))))
/* clang-format on */

/* ---- choice and conversion ---- */

void qn_grad_where(qn_grad *g)
{
    qn_scope *c = g->c;
    qn_array *cot = g->cot[0], *zero = scalar_of(c, 0, cot);
    if (g->wanted[1])
        g->grad[1] = where(c, g->in[0], cot, zero);
    if (g->wanted[2])
        g->grad[2] = where(c, g->in[0], zero, cot);
}

/* The walk converts gradients to the type of what they belong to. */
void qn_grad_same(qn_grad *g)
{
    for (int i = 0; i < g->node->noutputs && i < g->node->ninputs; i++)
        g->grad[i] = g->cot[i];
}

void qn_grad_view(qn_grad *g)
{
    qn_array *made = NULL;
    if (!g->c->status)
        g->grad[0] = qn_scope_hold(
            g->c, qn_op_view(&made, g->cot[0], g->in[0]->dtype, g->c->stream),
            &made);
}
