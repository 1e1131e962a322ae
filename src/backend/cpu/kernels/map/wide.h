/* wide.h: functions of float32 computed in double, one element at a time and
 * without branches, so that compilers make vectors of them.
 *
 * With 29 bits to spare short polynomials do, and the result is rounded once:
 * it is off by little more than half a unit in the last place.  Coefficients
 * are Taylor's or minimax fits of our own, good to 1e-10 of the value.  NaN
 * gives NaN; infinities and signed zeros are those of the C functions. */
#ifndef QN_CPU_MAP_WIDE_H
#define QN_CPU_MAP_WIDE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define WIDE_INLINE static inline __attribute__((always_inline, unused))

/* a b + c, fused where that is one instruction. */
#if defined(__FMA__) || defined(__aarch64__)
#define MAD(a, b, c) __builtin_fma(a, b, c)
#else
#define MAD(a, b, c) ((a) * (b) + (c))
#endif

/* Added to a small number it leaves the nearest whole one in the last bits. */
#define WHOLE 0x1.8p52

WIDE_INLINE uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

WIDE_INLINE double of_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- exponentials and logarithms ---- */

/* Beyond 200 either way float has infinity or zero. */
WIDE_INLINE double wide_exp(double x)
{
    x = x < -200.0 ? -200.0 : x > 200.0 ? 200.0 : x;
    double shifted = MAD(x, 0x1.71547652b82fep+0, WHOLE), n = shifted - WHOLE;
    double r = MAD(n, -0x1.62e42feep-1, x);
    r = MAD(n, -0x1.a39ef35793c76p-33, r);
    double p = 1.0 / 362880;
    p = MAD(p, r, 1.0 / 40320);
    p = MAD(p, r, 1.0 / 5040);
    p = MAD(p, r, 1.0 / 720);
    p = MAD(p, r, 1.0 / 120);
    p = MAD(p, r, 1.0 / 24);
    p = MAD(p, r, 1.0 / 6);
    p = MAD(p, r, 0.5);
    p = MAD(p, r, 1.0);
    p = MAD(p, r, 1.0);
    return of_bits(bits_of(p) + (bits_of(shifted) << 52));
}

/* Of a positive normal number. */
WIDE_INLINE double wide_log_core(double x)
{
    /* x = 2^e m with m between sqrt(1/2) and sqrt(2). */
    const uint64_t root = 0x3fe6a09e667f3bcd, one = 0x3ff0000000000000;
    uint64_t shifted = bits_of(x) + (one - root);
    double e = of_bits(0x4330000000000000 | shifted >> 52) - (0x1p52 + 1023.0);
    double m = of_bits((shifted & 0x000fffffffffffff) + root);
    double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 2.0 / 15;
    p = MAD(p, z, 2.0 / 13);
    p = MAD(p, z, 2.0 / 11);
    p = MAD(p, z, 2.0 / 9);
    p = MAD(p, z, 2.0 / 7);
    p = MAD(p, z, 2.0 / 5);
    p = MAD(p, z, 2.0 / 3);
    p = MAD(p * z, s, 2.0 * s);
    return MAD(e, 0x1.62e42fefa39efp-1, p);
}

WIDE_INLINE double wide_log(double x)
{
    double rest = x == 0.0 ? -(double)INFINITY : (double)NAN;
    double large = x < (double)INFINITY ? wide_log_core(x) : x;
    return x > 0.0 ? large : rest;
}

WIDE_INLINE double wide_log1p(double x)
{
    double u = 1.0 + x;
    /* What 1 + x lost. */
    double lost = (x - (u - 1.0)) / u, r = wide_log_core(u) + lost;
    r = u > 0.0 ? r : u == 0.0 ? -(double)INFINITY : (double)NAN;
    r = x < (double)INFINITY ? r : x;
    return x == 0.0 ? x : r;
}

WIDE_INLINE double wide_expm1(double x)
{
    double near = x * MAD(0.5, x, 1.0), far = wide_exp(x) - 1.0;
    return __builtin_fabs(x) < 0x1p-20 ? near : far;
}

/* ---- hyperbolic functions ---- */

WIDE_INLINE double wide_sinh(double x)
{
    double a = __builtin_fabs(x), z = x * x, e = wide_exp(a);
    double p = 1.0 / 6227020800.0;
    p = MAD(p, z, 1.0 / 39916800);
    p = MAD(p, z, 1.0 / 362880);
    p = MAD(p, z, 1.0 / 5040);
    p = MAD(p, z, 1.0 / 120);
    p = MAD(p, z, 1.0 / 6);
    double near = MAD(a * z, p, a), far = 0.5 * (e - 1.0 / e);
    return __builtin_copysign(a < 1.0 ? near : far, x);
}

WIDE_INLINE double wide_cosh(double x)
{
    double e = wide_exp(__builtin_fabs(x));
    return 0.5 * (e + 1.0 / e);
}

WIDE_INLINE double wide_asinh(double x)
{
    double a = __builtin_fabs(x), z = a * a;
    double r = wide_log1p(a + z / (1.0 + __builtin_sqrt(1.0 + z)));
    return __builtin_copysign(a < (double)INFINITY ? r : a, x);
}

WIDE_INLINE double wide_acosh(double x)
{
    double t = x - 1.0;
    double r = wide_log1p(t + __builtin_sqrt(t * (t + 2.0)));
    return x >= 1.0 ? r : (double)NAN;
}

WIDE_INLINE double wide_atanh(double x)
{
    double a = __builtin_fabs(x);
    double r = 0.5 * wide_log1p(2.0 * a / (1.0 - a));
    return __builtin_copysign(r, x);
}

/* ---- circular functions ---- */

/* Where the steps below are exact enough. */
#define WIDE_TURNS 0x1p20

/* sin and cos of x less the nearest multiple of pi / 2, whose number comes in
 * the last bits of *turns. */
WIDE_INLINE void wide_circle(double x, double *sine, double *cosine,
                             uint64_t *turns)
{
    double shifted = MAD(x, 0x1.45f306dc9c883p-1, WHOLE), n = shifted - WHOLE;
    /* The products with the first two parts of pi / 2 are exact. */
    double r = MAD(n, -0x1.921fb544p+0, x);
    r = MAD(n, -0x1.0b4611a6p-34, r);
    r = MAD(n, -0x1.3198a2e037073p-69, r);
    double z = r * r;
    double s = -1.0 / 39916800;
    s = MAD(s, z, 1.0 / 362880);
    s = MAD(s, z, -1.0 / 5040);
    s = MAD(s, z, 1.0 / 120);
    s = MAD(s, z, -1.0 / 6);
    *sine = MAD(r * z, s, r);
    double c = 1.0 / 479001600;
    c = MAD(c, z, -1.0 / 3628800);
    c = MAD(c, z, 1.0 / 40320);
    c = MAD(c, z, -1.0 / 720);
    c = MAD(c, z, 1.0 / 24);
    c = MAD(c, z, -0.5);
    *cosine = MAD(c, z, 1.0);
    *turns = bits_of(shifted);
}

/* a where the last bit of `turns` is 0, else b, as bits. */
WIDE_INLINE uint64_t wide_turn(uint64_t turns, double a, double b)
{
    uint64_t odd = 0 - (turns & 1);
    return (bits_of(a) & ~odd) | (bits_of(b) & odd);
}

WIDE_INLINE double wide_sin(double x)
{
    double s, c;
    uint64_t turns;
    wide_circle(x, &s, &c, &turns);
    /* -0 becomes +0 on its way through the steps. */
    double r = of_bits(wide_turn(turns, s, c) ^ (turns & 2) << 62);
    return x == 0.0 ? x : r;
}

WIDE_INLINE double wide_cos(double x)
{
    double s, c;
    uint64_t turns;
    wide_circle(x, &s, &c, &turns);
    return of_bits(wide_turn(turns, c, s) ^ ((turns + 1) & 2) << 62);
}

WIDE_INLINE double wide_tan(double x)
{
    double s, c;
    uint64_t turns;
    wide_circle(x, &s, &c, &turns);
    double above = of_bits(wide_turn(turns, s, -c));
    double below = of_bits(wide_turn(turns, c, s));
    return x == 0.0 ? x : above / below;
}

/* t times this is the arc tangent, up to tan(pi / 8). */
WIDE_INLINE double wide_atan_part(double t)
{
    double z = t * t, p = 0.0470734814196802;
    p = MAD(p, z, -0.08456192886940496);
    p = MAD(p, z, 0.1104048922721824);
    p = MAD(p, z, -0.14281588772654125);
    p = MAD(p, z, 0.19999883856551304);
    p = MAD(p, z, -0.33333332097609386);
    return MAD(p, z, 0.9999999999783987);
}

#define WIDE_PI 3.14159265358979323846

/* Of a >= 0. */
WIDE_INLINE double wide_atan_core(double a)
{
    /* atan a = pi/4 + atan((a - 1) / (a + 1)) = pi/2 + atan(-1 / a) */
    double above = a, below = 1.0, base = 0.0;
    above = a > 0.41421356237309503 ? a - 1.0 : above;
    below = a > 0.41421356237309503 ? a + 1.0 : below;
    base = a > 0.41421356237309503 ? 0.25 * WIDE_PI : base;
    above = a > 2.4142135623730950 ? -1.0 : above;
    below = a > 2.4142135623730950 ? a : below;
    base = a > 2.4142135623730950 ? 0.5 * WIDE_PI : base;
    double t = above / below;
    return MAD(t, wide_atan_part(t), base);
}

WIDE_INLINE double wide_atan(double x)
{
    return __builtin_copysign(wide_atan_core(__builtin_fabs(x)), x);
}

/* The arc sine of s, whose square is z, up to 1/2. */
WIDE_INLINE double wide_asin_core(double s, double z)
{
    double p = 0.0347484248080839;
    p = MAD(p, z, 0.0074010072390753795);
    p = MAD(p, z, 0.024650862660604088);
    p = MAD(p, z, 0.03010250689966149);
    p = MAD(p, z, 0.04466113930866896);
    p = MAD(p, z, 0.07499941908754719);
    p = MAD(p, z, 0.16666667364186447);
    return s * MAD(p, z, 0.9999999999863537);
}

/* asin a = pi/2 - 2 asin(sqrt((1 - a) / 2)) */
WIDE_INLINE double wide_asin(double x)
{
    double a = __builtin_fabs(x), rest = 0.5 * (1.0 - a);
    double z = a > 0.5 ? rest : a * a, root = __builtin_sqrt(z);
    double p = wide_asin_core(a > 0.5 ? root : a, z);
    p = a > 0.5 ? MAD(-2.0, p, 0.5 * WIDE_PI) : p;
    return __builtin_copysign(p, x);
}

WIDE_INLINE double wide_acos(double x)
{
    double a = __builtin_fabs(x), rest = 0.5 * (1.0 - a);
    double z = a > 0.5 ? rest : a * a, root = __builtin_sqrt(z);
    double p = wide_asin_core(a > 0.5 ? root : a, z);
    double low = 0.5 * WIDE_PI - __builtin_copysign(p, x);
    double high = x > 0.0 ? 2.0 * p : MAD(-2.0, p, WIDE_PI);
    return a > 0.5 ? high : low;
}

/* ---- functions of two numbers ---- */

/* a^b of a positive finite a and a finite b. */
WIDE_INLINE double wide_pow(double a, double b)
{
    return wide_exp(b * wide_log_core(a));
}

/* Of finite numbers that are not zero. */
WIDE_INLINE double wide_atan2(double y, double x)
{
    double up = __builtin_fabs(y), along = __builtin_fabs(x);
    double above = up > along ? along : up, below = up > along ? up : along;
    double r = wide_atan_core(above / below);
    r = up > along ? 0.5 * WIDE_PI - r : r;
    r = x < 0.0 ? WIDE_PI - r : r;
    return __builtin_copysign(r, y);
}

/* Of finite numbers. */
WIDE_INLINE double wide_logaddexp(double a, double b)
{
    double high = a > b ? a : b;
    return high + wide_log1p(wide_exp(-__builtin_fabs(a - b)));
}

WIDE_INLINE int wide_finite(float x)
{
    return __builtin_fabsf(x) < INFINITY;
}

#endif
