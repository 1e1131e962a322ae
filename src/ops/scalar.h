/* scalar.h: what each operation does to one element.
 *
 * Written once: the reference loops, the SIMD builds and CUDA compile these
 * lines.  A function exists once per element type, under a name that ends in
 * the type (qn_add_i8, qn_exp_f64); the name without that ending picks by the
 * type of its first argument, so that a row of ops.def can say `qn_add(a, b)`
 * for every type.  Half types are stored in 16 bits and computed in float.
 *
 * Meanings that C leaves open are fixed here.  Integers wrap: arithmetic is
 * done in uint64_t and cut to the type.  Division by integer zero gives 0;
 * shifts by a negative count or by the width and more push out every bit.
 * float64 functions are double throughout; complex64 functions compute in
 * double and round once, where a formula of the standard library is used. */
#ifndef QN_OPS_SCALAR_H
#define QN_OPS_SCALAR_H

#include <complex.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifndef QN_FN
#define QN_FN static inline
#endif

typedef float _Complex qn_complex64;

/* A function whose body is one expression over x, or over a and b. */
#define QN_ONE(name, T, expression)                                            \
    QN_FN T qn_##name(T x)                                                     \
    {                                                                          \
        return expression;                                                     \
    }
#define QN_TWO(name, T, expression)                                            \
    QN_FN T qn_##name(T a, T b)                                                \
    {                                                                          \
        return expression;                                                     \
    }

/* clang-format off */

/* Order of types that C compares; complex numbers have their own. */
#define QN_ORDER(S, T)                                                         \
    QN_FN bool qn_less_##S(T a, T b)                                           \
    {                                                                          \
        return a < b;                                                          \
    }                                                                          \
    QN_FN bool qn_less_equal_##S(T a, T b)                                     \
    {                                                                          \
        return a <= b;                                                         \
    }                                                                          \
    QN_FN bool qn_greater_##S(T a, T b)                                        \
    {                                                                          \
        return a > b;                                                          \
    }                                                                          \
    QN_FN bool qn_greater_equal_##S(T a, T b)                                  \
    {                                                                          \
        return a >= b;                                                         \
    }

/* ---- integers ---- */

/* Signed and unsigned alike.  S is the ending of the name. */
#define QN_INTEGER(S, T)                                                       \
    QN_ORDER(S, T)                                                             \
    QN_ONE(real_##S, T, x)                                                     \
    QN_ONE(imag_##S, T, ((void)x, (T)0))                                       \
    QN_ONE(ceil_##S, T, x)                                                     \
    QN_ONE(floor_##S, T, x)                                                    \
    QN_ONE(trunc_##S, T, x)                                                    \
    QN_ONE(round_##S, T, x)                                                    \
    QN_ONE(conj_##S, T, x)                                                     \
    QN_ONE(neg_##S, T, (T)(0 - (uint64_t)x))                                   \
    QN_ONE(invert_##S, T, (T)~x)                                               \
    QN_TWO(add_##S, T, (T)((uint64_t)a + (uint64_t)b))                         \
    QN_TWO(sub_##S, T, (T)((uint64_t)a - (uint64_t)b))                         \
    QN_TWO(mul_##S, T, (T)((uint64_t)a * (uint64_t)b))                         \
    QN_TWO(max_##S, T, a > b ? a : b)                                          \
    QN_TWO(min_##S, T, a < b ? a : b)                                          \
    QN_TWO(bit_and_##S, T, (T)(a & b))                                         \
    QN_TWO(bit_or_##S, T, (T)(a | b))                                          \
    QN_TWO(bit_xor_##S, T, (T)(a ^ b))                                         \
    QN_FN bool qn_all_out_##S(T b)                                             \
    {                                                                          \
        return (uint64_t)b >= 8 * sizeof(T);                                   \
    }                                                                          \
    QN_TWO(shl_##S, T, qn_all_out_##S(b) ? 0 : (T)((uint64_t)a << b))          \
    QN_FN T qn_wrap_pow_##S(T a, T b)                                          \
    {                                                                          \
        uint64_t power = 1, base = (uint64_t)a;                                \
        for (uint64_t e = (uint64_t)b; e; e >>= 1) {                           \
            if (e & 1)                                                         \
                power *= base;                                                 \
            base *= base;                                                      \
        }                                                                      \
        return (T)power;                                                       \
    }

#define QN_UNSIGNED(S, T)                                                      \
    QN_INTEGER(S, T)                                                           \
    QN_ONE(abs_##S, T, x)                                                      \
    QN_ONE(sign_##S, T, x != 0)                                                \
    QN_TWO(floor_div_##S, T, b ? (T)(a / b) : 0)                               \
    QN_TWO(rem_##S, T, b ? (T)(a % b) : 0)                                     \
    QN_TWO(shr_##S, T, qn_all_out_##S(b) ? 0 : (T)(a >> b))                    \
    QN_TWO(pow_##S, T, qn_wrap_pow_##S(a, b))

/* Dividing the smallest number by -1 overflows: -1 goes its own way.  A
 * negative power is the true value cut to an integer: 0 unless a is 1 or -1. */
#define QN_SIGNED(S, T)                                                        \
    QN_INTEGER(S, T)                                                           \
    QN_ONE(abs_##S, T, x < 0 ? qn_neg_##S(x) : x)                              \
    QN_ONE(sign_##S, T, (T)((x > 0) - (x < 0)))                                \
    QN_TWO(floor_div_##S, T, b == -1 ? qn_neg_##S(a) : b ? (T)(a / b) : 0)     \
    QN_FN T qn_rem_##S(T a, T b)                                               \
    {                                                                          \
        T rest = b == -1 || b == 0 ? 0 : (T)(a % b);                           \
        return rest && (rest < 0) != (b < 0) ? (T)(rest + b) : rest;           \
    }                                                                          \
    QN_TWO(shr_##S, T, (T)(a >> (qn_all_out_##S(b) ? 8 * (int)sizeof(T) - 1    \
                                                   : (int)b)))                 \
    QN_FN T qn_pow_##S(T a, T b)                                               \
    {                                                                          \
        if (b >= 0)                                                            \
            return qn_wrap_pow_##S(a, b);                                      \
        return a == 1 ? 1 : a == -1 ? (T)(b & 1 ? -1 : 1) : 0;                 \
    }

QN_UNSIGNED(u8, uint8_t)
QN_UNSIGNED(u16, uint16_t)
QN_UNSIGNED(u32, uint32_t)
QN_UNSIGNED(u64, uint64_t)
QN_SIGNED(i8, int8_t)
QN_SIGNED(i16, int16_t)
QN_SIGNED(i32, int32_t)
QN_SIGNED(i64, int64_t)

/* Truth values: what integers would give, with anything nonzero true. */
QN_ORDER(bool, bool)
QN_ONE(real_bool, bool, x)
QN_ONE(imag_bool, bool, ((void)x, false))
QN_ONE(abs_bool, bool, x)
QN_ONE(ceil_bool, bool, x)
QN_ONE(floor_bool, bool, x)
QN_ONE(trunc_bool, bool, x)
QN_ONE(round_bool, bool, x)
QN_ONE(conj_bool, bool, x)
QN_ONE(sign_bool, bool, x)
QN_ONE(neg_bool, bool, x)
QN_ONE(invert_bool, bool, !x)
QN_TWO(add_bool, bool, a || b)
QN_TWO(sub_bool, bool, a != b)
QN_TWO(mul_bool, bool, a && b)
QN_TWO(max_bool, bool, a || b)
QN_TWO(min_bool, bool, a && b)
QN_TWO(pow_bool, bool, a || !b)
QN_TWO(floor_div_bool, bool, a && b)
QN_TWO(rem_bool, bool, ((void)a, (void)b, false))
QN_TWO(bit_and_bool, bool, a && b)
QN_TWO(bit_or_bool, bool, a || b)
QN_TWO(bit_xor_bool, bool, a != b)
QN_TWO(shl_bool, bool, a && !b)
QN_TWO(shr_bool, bool, a && !b)

/* clang-format on */

/* ---- complex64: helpers ---- */

/* Not CMPLXF, which compilers lack; a sum with `I` would lose signed zeros. */
QN_FN qn_complex64 qn_complex64_of(float re, float im)
{
    float parts[2] = {re, im};
    qn_complex64 z;
    memcpy(&z, parts, sizeof z);
    return z;
}

QN_FN double _Complex qn_complex_of(double re, double im)
{
    double parts[2] = {re, im};
    double _Complex z;
    memcpy(&z, parts, sizeof z);
    return z;
}

QN_FN bool qn_isnan_c64(qn_complex64 x)
{
    return isnan(crealf(x)) || isnan(cimagf(x));
}

/* Order by the real part, then by the imaginary one; no order with NaN. */
QN_FN bool qn_less_c64(qn_complex64 a, qn_complex64 b)
{
    return crealf(a) < crealf(b) ||
           (crealf(a) == crealf(b) && cimagf(a) < cimagf(b));
}
QN_FN bool qn_less_equal_c64(qn_complex64 a, qn_complex64 b)
{
    return qn_less_c64(a, b) || a == b;
}
QN_FN bool qn_greater_c64(qn_complex64 a, qn_complex64 b)
{
    return qn_less_c64(b, a);
}
QN_FN bool qn_greater_equal_c64(qn_complex64 a, qn_complex64 b)
{
    return qn_less_equal_c64(b, a);
}

/* ---- floats: functions of the standard library ---- */

#define QN_LIBM(name, function)                                                \
    QN_FN float qn_##name##_f32(float x)                                       \
    {                                                                          \
        return function##f(x);                                                 \
    }                                                                          \
    QN_FN double qn_##name##_f64(double x)                                     \
    {                                                                          \
        return function(x);                                                    \
    }

#define QN_LIBM_COMPLEX(name, function)                                        \
    QN_LIBM(name, function)                                                    \
    QN_FN qn_complex64 qn_##name##_c64(qn_complex64 x)                         \
    {                                                                          \
        return (qn_complex64)c##function(x);                                   \
    }

/* clang-format off */
QN_LIBM_COMPLEX(acos, acos)
QN_LIBM_COMPLEX(acosh, acosh)
QN_LIBM_COMPLEX(asin, asin)
QN_LIBM_COMPLEX(asinh, asinh)
QN_LIBM_COMPLEX(atan, atan)
QN_LIBM_COMPLEX(atanh, atanh)
QN_LIBM_COMPLEX(cos, cos)
QN_LIBM_COMPLEX(cosh, cosh)
QN_LIBM_COMPLEX(exp, exp)
QN_LIBM_COMPLEX(log, log)
QN_LIBM_COMPLEX(sin, sin)
QN_LIBM_COMPLEX(sinh, sinh)
QN_LIBM_COMPLEX(sqrt, sqrt)
QN_LIBM_COMPLEX(tan, tan)
QN_LIBM_COMPLEX(tanh, tanh)
QN_LIBM(ceil, ceil)
QN_LIBM(floor, floor)
QN_LIBM(trunc, trunc)
QN_LIBM(round, rint) /* half to even */
QN_LIBM(erf, erf)
QN_LIBM(expm1, expm1)
QN_LIBM(log10, log10)
QN_LIBM(log1p, log1p)
QN_LIBM(log2, log2)
/* clang-format on */

QN_FN qn_complex64 qn_log10_c64(qn_complex64 x)
{
    return (qn_complex64)(clog(x) / 2.302585092994045684);
}

QN_FN qn_complex64 qn_log2_c64(qn_complex64 x)
{
    return (qn_complex64)(clog(x) / 0.693147180559945309);
}

QN_FN qn_complex64 qn_log1p_c64(qn_complex64 x)
{
    /* |1 + x|^2 - 1 without the 1, which would swallow a small x. */
    double re = crealf(x), im = cimagf(x);
    double size = 0.5 * log1p(re * (2 + re) + im * im);
    return qn_complex64_of((float)size, (float)atan2(im, 1 + re));
}

/* ---- floats: the rest, one variant per type ---- */

/* clang-format off */
#define QN_REALFLOAT(S, T, F)                                                  \
    QN_ORDER(S, T)                                                             \
    QN_ONE(real_##S, T, x)                                                     \
    QN_ONE(imag_##S, T, ((void)x, (T)0))                                       \
    QN_ONE(abs_##S, T, F(fabs)(x))                                             \
    QN_ONE(neg_##S, T, -x)                                                     \
    QN_ONE(conj_##S, T, x)                                                     \
    QN_ONE(sign_##S, T, (T)((x > 0) - (x < 0)))                                \
    QN_ONE(rsqrt_##S, T, 1 / F(sqrt)(x))                                       \
    QN_TWO(add_##S, T, a + b)                                                  \
    QN_TWO(sub_##S, T, a - b)                                                  \
    QN_TWO(mul_##S, T, a * b)                                                  \
    QN_TWO(div_##S, T, a / b)                                                  \
    QN_TWO(pow_##S, T, F(pow)(a, b))                                           \
    QN_TWO(atan2_##S, T, F(atan2)(a, b))                                       \
    QN_TWO(floor_div_##S, T, F(floor)(a / b))                                  \
    /* Of equal operands the second, as a running maximum needs it. */         \
    QN_TWO(max_##S, T, isnan(a) || a > b ? a : b)                              \
    QN_TWO(min_##S, T, isnan(a) || a < b ? a : b)                              \
    QN_FN T qn_rem_##S(T a, T b)                                               \
    {                                                                          \
        T rest = F(fmod)(a, b);                                                \
        return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;           \
    }                                                                          \
    QN_FN T qn_sigmoid_##S(T x)                                                \
    {                                                                          \
        /* exp of a negative number never overflows. */                        \
        T e = F(exp)(-F(fabs)(x));                                             \
        return x >= 0 ? 1 / (1 + e) : e / (1 + e);                             \
    }                                                                          \
    QN_FN T qn_logaddexp_##S(T a, T b)                                         \
    {                                                                          \
        T hi = a > b ? a : b, lo = a > b ? b : a;                              \
        if (isnan(lo) || isnan(hi))                                            \
            return lo + hi;                                                    \
        /* inf - inf is NaN; two equal infinities stay that infinity. */       \
        return isinf(hi) ? hi : hi + F(log1p)(F(exp)(lo - hi));                \
    }

#define QN_FLOAT_NAME(function) function##f
#define QN_DOUBLE_NAME(function) function
QN_REALFLOAT(f32, float, QN_FLOAT_NAME)
QN_REALFLOAT(f64, double, QN_DOUBLE_NAME)
#undef QN_FLOAT_NAME
#undef QN_DOUBLE_NAME
/* clang-format on */

/* A rough start, then two steps of Halley's method (f'' / f' is -2 y), each
 * of which triples the number of right digits: 5e-3 becomes 1e-7, then what
 * double can hold; the far tails, where the start is rougher, take a third.
 * Near 1 the error is measured on erfc, which keeps the
 * digits that erf loses there; 1 - x is exact. */
QN_FN double qn_erfinv_f64(double x)
{
    const double pi = 3.14159265358979323846, bend = 0.147;
    double a = fabs(x), y;
    if (!(a < 1))
        return a == 1 ? copysign(INFINITY, x) : NAN;
    if (a < 0.1) {
        y = 0.5 * sqrt(pi) * a * (1 + pi / 12 * a * a);
    } else {
        /* Winitzki: erf(y)^2 is about
         * 1 - exp(-y^2 (4/pi + bend y^2) / (1 + bend y^2)). */
        double log1 = log1p(-a) + log1p(a);
        double mid = 2 / (pi * bend) + log1 / 2;
        y = sqrt(sqrt(mid * mid - log1 / bend) - mid);
    }
    int steps = 1 - a < 1e-6 ? 3 : 2;
    for (int step = 0; step < steps; step++) {
        double error = a < 0.5 ? erf(y) - a : (1 - a) - erfc(y);
        double newton = error * (0.5 * sqrt(pi)) * exp(y * y);
        y -= newton / (1 + y * newton);
    }
    return copysign(y, x);
}

QN_FN float qn_erfinv_f32(float x)
{
    return (float)qn_erfinv_f64(x);
}

/* ---- complex64: the rest ---- */

QN_FN float qn_abs_c64(qn_complex64 x)
{
    return (float)hypot(crealf(x), cimagf(x));
}
QN_ONE(neg_c64, qn_complex64, -x)
QN_ONE(conj_c64, qn_complex64, conjf(x))
QN_FN qn_complex64 qn_sign_c64(qn_complex64 x)
{
    double size = hypot(crealf(x), cimagf(x));
    if (size == 0)
        return 0;
    return qn_complex64_of((float)(crealf(x) / size),
                           (float)(cimagf(x) / size));
}
QN_FN float qn_real_c64(qn_complex64 x)
{
    return crealf(x);
}
QN_FN float qn_imag_c64(qn_complex64 x)
{
    return cimagf(x);
}
QN_FN qn_complex64 qn_round_c64(qn_complex64 x)
{
    return qn_complex64_of(rintf(crealf(x)), rintf(cimagf(x)));
}
QN_FN qn_complex64 qn_rsqrt_c64(qn_complex64 x)
{
    return (qn_complex64)(1 / csqrt(x));
}
/* clang-format off */
QN_TWO(add_c64, qn_complex64, a + b)
QN_TWO(sub_c64, qn_complex64, a - b)
QN_TWO(mul_c64, qn_complex64, a * b)
/* clang-format on */
QN_FN qn_complex64 qn_div_c64(qn_complex64 a, qn_complex64 b)
{
    return (qn_complex64)((double _Complex)a / (double _Complex)b);
}
QN_FN qn_complex64 qn_pow_c64(qn_complex64 a, qn_complex64 b)
{
    /* cpow goes through log(a): zero has none. */
    if (b == 0)
        return 1;
    if (a == 0 && crealf(b) > 0)
        return 0;
    return (qn_complex64)cpow(a, b);
}
QN_FN qn_complex64 qn_max_c64(qn_complex64 a, qn_complex64 b)
{
    return qn_isnan_c64(a) || (!qn_isnan_c64(b) && qn_less_c64(b, a)) ? a : b;
}
QN_FN qn_complex64 qn_min_c64(qn_complex64 a, qn_complex64 b)
{
    return qn_isnan_c64(a) || (!qn_isnan_c64(b) && qn_less_c64(a, b)) ? a : b;
}
QN_FN qn_complex64 qn_logaddexp_c64(qn_complex64 a, qn_complex64 b)
{
    /* The larger goes outside, so that neither term overflows; of equal real
     * parts the larger imaginary one, so that the order does not matter. */
    bool swap = qn_less_c64(a, b);
    double _Complex hi = swap ? b : a, lo = swap ? a : b;
    if (isinf(creal(hi)))
        return (qn_complex64)hi;
    return (qn_complex64)(hi + clog(1 + cexp(lo - hi)));
}

/* ---- the names of ops.def ---- */

/* clang-format off */
#define QN_PICK_INTS(f)                                                        \
    bool: f##_bool,                                                            \
    uint8_t: f##_u8, uint16_t: f##_u16, uint32_t: f##_u32, uint64_t: f##_u64,  \
    int8_t: f##_i8, int16_t: f##_i16, int32_t: f##_i32, int64_t: f##_i64
#define QN_PICK_FLOATS(f) float: f##_f32, double: f##_f64
#define QN_PICK_COMPLEX(f) qn_complex64: f##_c64
/* clang-format on */

#define QN_BITS_FN(f, x) _Generic((x), QN_PICK_INTS(f))
#define QN_RFLOAT_FN(f, x) _Generic((x), QN_PICK_FLOATS(f))
#define QN_FLOAT_FN(f, x) _Generic((x), QN_PICK_FLOATS(f), QN_PICK_COMPLEX(f))
#define QN_REAL_FN(f, x) _Generic((x), QN_PICK_INTS(f), QN_PICK_FLOATS(f))
#define QN_NUM_FN(f, x)                                                        \
    _Generic((x), QN_PICK_INTS(f), QN_PICK_FLOATS(f), QN_PICK_COMPLEX(f))

#define qn_abs(x) QN_NUM_FN(qn_abs, x)(x)
#define qn_acos(x) QN_FLOAT_FN(qn_acos, x)(x)
#define qn_acosh(x) QN_FLOAT_FN(qn_acosh, x)(x)
#define qn_asin(x) QN_FLOAT_FN(qn_asin, x)(x)
#define qn_asinh(x) QN_FLOAT_FN(qn_asinh, x)(x)
#define qn_atan(x) QN_FLOAT_FN(qn_atan, x)(x)
#define qn_atanh(x) QN_FLOAT_FN(qn_atanh, x)(x)
#define qn_ceil(x) QN_REAL_FN(qn_ceil, x)(x)
#define qn_conj(x) QN_NUM_FN(qn_conj, x)(x)
#define qn_cos(x) QN_FLOAT_FN(qn_cos, x)(x)
#define qn_cosh(x) QN_FLOAT_FN(qn_cosh, x)(x)
#define qn_erf(x) QN_RFLOAT_FN(qn_erf, x)(x)
#define qn_erfinv(x) QN_RFLOAT_FN(qn_erfinv, x)(x)
#define qn_exp(x) QN_FLOAT_FN(qn_exp, x)(x)
#define qn_expm1(x) QN_RFLOAT_FN(qn_expm1, x)(x)
#define qn_floor(x) QN_REAL_FN(qn_floor, x)(x)
#define qn_imag(x) QN_NUM_FN(qn_imag, x)(x)
#define qn_invert(x) QN_BITS_FN(qn_invert, x)(x)
#define qn_log(x) QN_FLOAT_FN(qn_log, x)(x)
#define qn_log10(x) QN_FLOAT_FN(qn_log10, x)(x)
#define qn_log1p(x) QN_FLOAT_FN(qn_log1p, x)(x)
#define qn_log2(x) QN_FLOAT_FN(qn_log2, x)(x)
#define qn_neg(x) QN_NUM_FN(qn_neg, x)(x)
#define qn_real(x) QN_NUM_FN(qn_real, x)(x)
#define qn_round(x) QN_NUM_FN(qn_round, x)(x)
#define qn_rsqrt(x) QN_FLOAT_FN(qn_rsqrt, x)(x)
#define qn_sigmoid(x) QN_RFLOAT_FN(qn_sigmoid, x)(x)
#define qn_sign(x) QN_NUM_FN(qn_sign, x)(x)
#define qn_sin(x) QN_FLOAT_FN(qn_sin, x)(x)
#define qn_sinh(x) QN_FLOAT_FN(qn_sinh, x)(x)
#define qn_sqrt(x) QN_FLOAT_FN(qn_sqrt, x)(x)
#define qn_tan(x) QN_FLOAT_FN(qn_tan, x)(x)
#define qn_tanh(x) QN_FLOAT_FN(qn_tanh, x)(x)
#define qn_trunc(x) QN_REAL_FN(qn_trunc, x)(x)

#define qn_add(a, b) QN_NUM_FN(qn_add, a)(a, b)
#define qn_atan2(a, b) QN_RFLOAT_FN(qn_atan2, a)(a, b)
#define qn_bit_and(a, b) QN_BITS_FN(qn_bit_and, a)(a, b)
#define qn_bit_or(a, b) QN_BITS_FN(qn_bit_or, a)(a, b)
#define qn_bit_xor(a, b) QN_BITS_FN(qn_bit_xor, a)(a, b)
#define qn_div(a, b) QN_FLOAT_FN(qn_div, a)(a, b)
#define qn_floor_div(a, b) QN_REAL_FN(qn_floor_div, a)(a, b)
#define qn_greater(a, b) QN_NUM_FN(qn_greater, a)(a, b)
#define qn_greater_equal(a, b) QN_NUM_FN(qn_greater_equal, a)(a, b)
#define qn_less(a, b) QN_NUM_FN(qn_less, a)(a, b)
#define qn_less_equal(a, b) QN_NUM_FN(qn_less_equal, a)(a, b)
#define qn_logaddexp(a, b) QN_FLOAT_FN(qn_logaddexp, a)(a, b)
#define qn_max(a, b) QN_NUM_FN(qn_max, a)(a, b)
#define qn_min(a, b) QN_NUM_FN(qn_min, a)(a, b)
#define qn_mul(a, b) QN_NUM_FN(qn_mul, a)(a, b)
#define qn_pow(a, b) QN_NUM_FN(qn_pow, a)(a, b)
#define qn_rem(a, b) QN_REAL_FN(qn_rem, a)(a, b)
#define qn_shl(a, b) QN_BITS_FN(qn_shl, a)(a, b)
#define qn_shr(a, b) QN_BITS_FN(qn_shr, a)(a, b)
#define qn_sub(a, b) QN_NUM_FN(qn_sub, a)(a, b)

#endif
