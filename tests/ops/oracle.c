/* oracle.c: elements of the regular rows, written a second time. */
#include "oracle.h"

#include <math.h>

/* ---- whole numbers ---- */

static bool is_whole(qn_dtype type)
{
    return type == QN_BOOL || qn_dtype_is_integer(type);
}

real oracle_wrap(real x, qn_dtype type)
{
    if (type == QN_BOOL)
        return x != 0;
    if (!qn_dtype_is_integer(type))
        return x;
    real range = ldexpl(1, 8 * (int)qn_dtype_size(type));
    x -= floorl(x / range) * range;
    if (qn_dtype_kind(type) == QN_KIND_INT && x >= range / 2)
        x -= range;
    return x;
}

/* The bits of a whole number and back. */
static uint64_t bits_of(real x)
{
    return x < 0 ? (uint64_t)(int64_t)x : (uint64_t)x;
}

static real number_of(uint64_t bits, qn_dtype type)
{
    return oracle_wrap((real)bits, type);
}

/* ---- reals: one element (b is not used) ---- */

/* clang-format off */
#define REAL(name, expression)                                                 \
    static real r_##name(real a, real b, qn_dtype type)                        \
    {                                                                          \
        (void)a; (void)b; (void)type;                                          \
        return expression;                                                     \
    }

static real inverse_erf(real x)
{
    if (!(fabsl(x) < 1))
        return fabsl(x) == 1 ? x * INFINITY : NAN;
    real low = 0, high = 7, size = fabsl(x);
    for (int i = 0; i < 200; i++) {
        real middle = (low + high) / 2;
        /* Near 1 the complement has the digits. */
        bool above = size < 0.5L ? erfl(middle) > size
                                 : erfcl(middle) < 1 - size;
        if (above)
            high = middle;
        else
            low = middle;
    }
    return x < 0 ? -low : low;
}

static real sign_of(real x) { return (x > 0) - (x < 0); }

REAL(abs, oracle_wrap(fabsl(a), type))
REAL(arccos, acosl(a))
REAL(arccosh, acoshl(a))
REAL(arcsin, asinl(a))
REAL(arcsinh, asinhl(a))
REAL(arctan, atanl(a))
REAL(arctanh, atanhl(a))
REAL(bitwise_invert, type == QN_BOOL ? a == 0 : oracle_wrap(-a - 1, type))
REAL(ceil, ceill(a))
REAL(same, a)
REAL(cos, cosl(a))
REAL(cosh, coshl(a))
REAL(erf, erfl(a))
REAL(erfinv, inverse_erf(a))
REAL(exp, expl(a))
REAL(expm1, expm1l(a))
REAL(floor, floorl(a))
REAL(zero, 0)
REAL(log, logl(a))
REAL(log10, log10l(a))
REAL(log1p, log1pl(a))
REAL(log2, log2l(a))
REAL(logical_not, a == 0)
REAL(negative, oracle_wrap(-a, type))
REAL(round, rintl(a))
REAL(rsqrt, 1 / sqrtl(a))
REAL(sigmoid, 1 / (1 + expl(-a)))
REAL(sign, isnan(a) ? 0 : sign_of(a))
REAL(sin, sinl(a))
REAL(sinh, sinhl(a))
REAL(sqrt, sqrtl(a))
REAL(square, oracle_wrap(a * a, type))
REAL(tan, tanl(a))
REAL(tanh, tanhl(a))
REAL(trunc, truncl(a))

/* ---- reals: two elements ---- */

static real power_of(real a, real b, qn_dtype type)
{
    if (!is_whole(type))
        return powl(a, b);
    if (b < 0)
        return a == 1 ? 1 : a == -1 ? (fmodl(b, 2) == 0 ? 1 : -1) : 0;
    real power = 1;
    /* Modulo 2^64 the powers of any number repeat soon enough. */
    for (real square = oracle_wrap(a, type); b > 0; b = floorl(b / 2)) {
        if (fmodl(b, 2) == 1)
            power = oracle_wrap(power * square, type);
        square = oracle_wrap(square * square, type);
    }
    return oracle_wrap(power, type);
}

static real floor_divide_of(real a, real b, qn_dtype type)
{
    if (is_whole(type))
        return b == 0 ? 0 : oracle_wrap(truncl(a / b), type);
    return floorl(a / b);
}

static real remainder_of(real a, real b, qn_dtype type)
{
    if (is_whole(type) && b == 0)
        return 0;
    real rest = fmodl(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static real shifted(real a, real b, qn_dtype type, bool left)
{
    real width = 8 * (real)qn_dtype_size(type);
    if (b < 0 || b >= width)
        return left || a >= 0 ? 0 : -1;
    return left ? oracle_wrap(ldexpl(a, (int)b), type)
                : floorl(ldexpl(a, -(int)b));
}

static real logaddexp_of(real a, real b)
{
    real high = a > b ? a : b, low = a > b ? b : a;
    if (isnan(a) || isnan(b))
        return NAN;
    return isinf(high) ? high : high + log1pl(expl(low - high));
}

static real extreme(real a, real b, bool largest)
{
    if (isnan(a) || isnan(b))
        return NAN;
    return (a > b) == largest ? a : b;
}

REAL(add, oracle_wrap(a + b, type))
REAL(arctan2, atan2l(a, b))
REAL(bitwise_and, number_of(bits_of(a) & bits_of(b), type))
REAL(bitwise_or, number_of(bits_of(a) | bits_of(b), type))
REAL(bitwise_xor, number_of(bits_of(a) ^ bits_of(b), type))
REAL(divide, a / b)
REAL(equal, a == b)
REAL(floor_divide, floor_divide_of(a, b, type))
REAL(greater, a > b)
REAL(greater_equal, a >= b)
REAL(left_shift, shifted(a, b, type, true))
REAL(less, a < b)
REAL(less_equal, a <= b)
REAL(logaddexp, logaddexp_of(a, b))
REAL(logical_and, a != 0 && b != 0)
REAL(logical_or, a != 0 || b != 0)
REAL(logical_xor, (a != 0) != (b != 0))
REAL(maximum, extreme(a, b, true))
REAL(minimum, extreme(a, b, false))
REAL(multiply, oracle_wrap(a * b, type))
REAL(not_equal, a != b)
REAL(power, power_of(a, b, type))
REAL(remainder, remainder_of(a, b, type))
REAL(right_shift, shifted(a, b, type, false))
REAL(subtract, oracle_wrap(a - b, type))

/* ---- complex numbers ---- */

#define CPLX(name, expression)                                                 \
    static cplx c_##name(cplx a, cplx b)                                       \
    {                                                                          \
        (void)a; (void)b;                                                      \
        return expression;                                                     \
    }

bool oracle_less(cplx a, cplx b)
{
    return creal(a) != creal(b) ? creal(a) < creal(b) : cimag(a) < cimag(b);
}

#define LN2 0.69314718055994530942
#define LN10 2.30258509299404568402

CPLX(abs, cabs(a))
CPLX(arccos, cacos(a))
CPLX(arccosh, cacosh(a))
CPLX(arcsin, casin(a))
CPLX(arcsinh, casinh(a))
CPLX(arctan, catan(a))
CPLX(arctanh, catanh(a))
CPLX(conjugate, conj(a))
CPLX(cos, ccos(a))
CPLX(cosh, ccosh(a))
CPLX(exp, cexp(a))
CPLX(imag, cimag(a))
CPLX(log, clog(a))
CPLX(log10, clog(a) / LN10)
CPLX(log1p, clog(1 + a))
CPLX(log2, clog(a) / LN2)
CPLX(logical_not, a == 0)
CPLX(negative, -a)
CPLX(real, creal(a))
CPLX(round, rint(creal(a)) + rint(cimag(a)) * (cplx)I)
CPLX(rsqrt, 1 / csqrt(a))
CPLX(sign, a == 0 ? 0 : a / cabs(a))
CPLX(sin, csin(a))
CPLX(sinh, csinh(a))
CPLX(sqrt, csqrt(a))
CPLX(square, a * a)
CPLX(tan, ctan(a))
CPLX(tanh, ctanh(a))

CPLX(add, a + b)
CPLX(divide, a / b)
CPLX(equal, a == b)
CPLX(greater, oracle_less(b, a))
CPLX(greater_equal, !oracle_less(a, b))
CPLX(less, oracle_less(a, b))
CPLX(less_equal, !oracle_less(b, a))
/* The imaginary part goes on from that of the larger operand. */
CPLX(logaddexp, oracle_less(a, b) ? b + clog(1 + cexp(a - b))
                                  : a + clog(1 + cexp(b - a)))
CPLX(logical_and, a != 0 && b != 0)
CPLX(logical_or, a != 0 || b != 0)
CPLX(logical_xor, (a != 0) != (b != 0))
CPLX(maximum, oracle_less(a, b) ? b : a)
CPLX(minimum, oracle_less(b, a) ? b : a)
CPLX(multiply, a * b)
CPLX(not_equal, a != b)
CPLX(power, cpow(a, b))
CPLX(subtract, a - b)

const oracle oracles[QN_OP_COUNT] = {
#define BOTH(id, name) [QN_OP_##id] = {r_##name, c_##name, false}
#define ONLY_REAL(id, name) [QN_OP_##id] = {r_##name, NULL, false}
    BOTH(ABS, abs), BOTH(ARCCOS, arccos), BOTH(ARCCOSH, arccosh),
    BOTH(ARCSIN, arcsin), BOTH(ARCSINH, arcsinh), BOTH(ARCTAN, arctan),
    BOTH(ARCTANH, arctanh), ONLY_REAL(BITWISE_INVERT, bitwise_invert),
    ONLY_REAL(CEIL, ceil), [QN_OP_CONJUGATE] = {r_same, c_conjugate, false},
    BOTH(COS, cos), BOTH(COSH, cosh), ONLY_REAL(ERF, erf),
    ONLY_REAL(ERFINV, erfinv), BOTH(EXP, exp), ONLY_REAL(EXPM1, expm1),
    ONLY_REAL(FLOOR, floor), [QN_OP_IMAG] = {r_zero, c_imag, false},
    BOTH(LOG, log), BOTH(LOG10, log10), BOTH(LOG1P, log1p), BOTH(LOG2, log2),
    BOTH(LOGICAL_NOT, logical_not), BOTH(NEGATIVE, negative),
    [QN_OP_REAL] = {r_same, c_real, false}, BOTH(ROUND, round),
    BOTH(RSQRT, rsqrt), ONLY_REAL(SIGMOID, sigmoid), BOTH(SIGN, sign),
    BOTH(SIN, sin), BOTH(SINH, sinh), BOTH(SQRT, sqrt), BOTH(SQUARE, square),
    BOTH(TAN, tan), BOTH(TANH, tanh), ONLY_REAL(TRUNC, trunc),

    BOTH(ADD, add), ONLY_REAL(ARCTAN2, arctan2),
    ONLY_REAL(BITWISE_AND, bitwise_and), ONLY_REAL(BITWISE_OR, bitwise_or),
    ONLY_REAL(BITWISE_XOR, bitwise_xor), BOTH(DIVIDE, divide),
    BOTH(EQUAL, equal), [QN_OP_FLOOR_DIVIDE] = {r_floor_divide, NULL, true},
    BOTH(GREATER, greater), BOTH(GREATER_EQUAL, greater_equal),
    ONLY_REAL(LEFT_SHIFT, left_shift), BOTH(LESS, less),
    BOTH(LESS_EQUAL, less_equal), BOTH(LOGADDEXP, logaddexp),
    BOTH(LOGICAL_AND, logical_and), BOTH(LOGICAL_OR, logical_or),
    BOTH(LOGICAL_XOR, logical_xor), BOTH(MAXIMUM, maximum),
    BOTH(MINIMUM, minimum), BOTH(MULTIPLY, multiply),
    BOTH(NOT_EQUAL, not_equal), BOTH(POWER, power),
    [QN_OP_REMAINDER] = {r_remainder, NULL, true},
    ONLY_REAL(RIGHT_SHIFT, right_shift), BOTH(SUBTRACT, subtract),
};
/* clang-format on */
