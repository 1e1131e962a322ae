/* simd_math.h: functions of vectors, and loads and stores of any floating
 * type, built on the words of simd_<isa>.h.  Include it after one of those.
 *
 * A lane's result depends on that lane alone, so an element has the same bits
 * wherever it stands; a rest shorter than a vector goes through the same
 * functions (vf_load_part).  The polynomials are minimax fits of our own; the
 * bounds are the largest errors against correctly rounded double arithmetic,
 * in units of the last place, that tests/backend/cpu/test_map.c checks.
 *
 *   vf_exp 1, vf_log 1, vf_sigmoid 2.5, vf_tanh 1.5, vf_erf 1.5
 *
 * NaN gives NaN; infinities and signed zeros are those of the C functions. */
#ifndef QN_CPU_SIMD_MATH_H
#define QN_CPU_SIMD_MATH_H

#include "core/dtype.h"

#include <math.h>

typedef int32_t VI __attribute__((vector_size(4 * VF_LANES)));
typedef uint32_t VU __attribute__((vector_size(4 * VF_LANES)));

/* ---- any floating type; `type` is a constant wherever these are used ---- */

VF_INLINE size_t vf_item(qn_dtype type)
{
    return type == QN_FLOAT32 ? 4 : 2;
}

/* VF_LANES elements from element i on. */
VF_INLINE VF vf_load_any(const void *p, size_t i, qn_dtype type)
{
    if (type == QN_FLOAT32)
        return vf_load((const float *)p + i);
    if (type == QN_FLOAT16)
        return vf_load_f16((const uint16_t *)p + i);
    return vf_load_bf16((const uint16_t *)p + i);
}

/* VF_LANES bytes with a sign, 4 bits of exponent, biased by 7, and 3 of
 * fraction: as a float16, with one more bit of exponent, such a number is 2^8
 * times too small. */
VF_INLINE VF vf_load_e4m3(const uint8_t *p)
{
    uint16_t half[VF_LANES];
    for (int i = 0; i < VF_LANES; i++)
        half[i] = (uint16_t)((p[i] & 127) << 7 | (p[i] & 128) << 8);
    return vf_mul(vf_load_f16(half), vf_set1(256.0f));
}

/* 2^(e - 127) of VF_LANES bytes e: the exponent, but for 0, which is a
 * subnormal number, and 255, which is NaN. */
VF_INLINE VF vf_load_e8m0(const uint8_t *p)
{
    VI e = __builtin_convertvector(vf_load_u8(p), VI);
    VI odd = (VI)((e == 0) | (e == 255)) & 0x00400000;
    return (VF)(e << 23 | odd);
}

VF_INLINE void vf_store_any(void *p, size_t i, VF v, qn_dtype type)
{
    if (type == QN_FLOAT32)
        vf_store((float *)p + i, v);
    else if (type == QN_FLOAT16)
        vf_store_f16((uint16_t *)p + i, v);
    else
        vf_store_bf16((uint16_t *)p + i, v);
}

/* A vector's worth of elements of any floating type. */
typedef union vf_elements {
    float wide[VF_LANES];
    uint16_t half[VF_LANES];
} vf_elements;

/* The first `count` < VF_LANES lanes; the others are zero. */
VF_INLINE VF vf_load_part(const void *p, size_t i, size_t count, qn_dtype type)
{
    vf_elements lanes;
    size_t item = vf_item(type);
    memset(&lanes, 0, sizeof lanes);
    memcpy(&lanes, (const char *)p + i * item, count * item);
    if (type == QN_FLOAT32)
        return vf_load(lanes.wide);
    return type == QN_FLOAT16 ? vf_load_f16(lanes.half)
                              : vf_load_bf16(lanes.half);
}

VF_INLINE void vf_store_part(void *p, size_t i, VF v, size_t count,
                             qn_dtype type)
{
    vf_elements lanes;
    size_t item = vf_item(type);
    if (type == QN_FLOAT32)
        vf_store(lanes.wide, v);
    else if (type == QN_FLOAT16)
        vf_store_f16(lanes.half, v);
    else
        vf_store_bf16(lanes.half, v);
    memcpy((char *)p + i * item, &lanes, count * item);
}

VF_INLINE float vf_load_one(const void *p, size_t i, qn_dtype type)
{
    if (type == QN_FLOAT32)
        return ((const float *)p)[i];
    uint16_t half = ((const uint16_t *)p)[i];
    return type == QN_FLOAT16 ? qn_f16_to_f32(half) : qn_bf16_to_f32(half);
}

/* ---- functions ---- */

VF_INLINE VF vf_exp(VF x)
{
    /* Beyond these the result is 0 or infinity; NaN is the second operand. */
    x = vf_max(vf_set1(-104.0f), vf_min(vf_set1(89.0f), x));
    /* x = n ln 2 + r.  The product of n with the first part of ln 2 is exact
     * for every n, fused or not; what r loses is kept in `lost`. */
    VF n = vf_rint(vf_mul(x, vf_set1(0x1.715476p+0f)));
    VF high = vf_fma(n, vf_set1(-0x1.63p-1f), x);
    VF step = vf_mul(n, vf_set1(0x1.bd0106p-13f));
    VF r = vf_add(high, step), lost = vf_add(vf_sub(high, r), step);
    VF q = vf_set1(0x1.6a2350p-10f);
    q = vf_fma(q, r, vf_set1(0x1.123a6cp-7f));
    q = vf_fma(q, r, vf_set1(0x1.5558f4p-5f));
    q = vf_fma(q, r, vf_set1(0x1.555490p-3f));
    q = vf_fma(q, r, vf_set1(0x1.fffffcp-2f));
    /* 1 + r + r^2 q with one rounding that counts. */
    VF one = vf_set1(1.0f), sum = vf_add(one, r);
    lost = vf_add(lost, vf_sub(r, vf_sub(sum, one)));
    sum = vf_add(sum, vf_fma(vf_mul(r, r), q, lost));
    return vf_scale2(sum, n);
}

VF_INLINE VF vf_log(VF x)
{
    VF zero = vf_zero();
    /* x = 2^e (1 + f) with 1 + f between sqrt(1/2) and sqrt(2). */
    VM small = vm_lt(x, vf_set1(0x1p-126f));
    VF y = vf_select(small, vf_mul(x, vf_set1(0x1p23f)), x);
    /* Bits of negative numbers wrap; their logarithm is NaN in the end. */
    VU bits = (VU)y, root = (VU)vf_set1(0x1.6a09e6p-1f);
    VI exponent = (VI)(bits - root) >> 23;
    VF e = (VF) __builtin_convertvector(exponent, VF);
    e = vf_select(small, vf_sub(e, vf_set1(23.0f)), e);
    VF f = vf_sub((VF)(bits - ((VU)exponent << 23)), vf_set1(1.0f));
    VF p = vf_set1(0x1.1457c4p-4f);
    p = vf_fma(p, f, vf_set1(-0x1.de3c1cp-4f));
    p = vf_fma(p, f, vf_set1(0x1.e6f062p-4f));
    p = vf_fma(p, f, vf_set1(-0x1.fc2206p-4f));
    p = vf_fma(p, f, vf_set1(0x1.233768p-3f));
    p = vf_fma(p, f, vf_set1(-0x1.555c4ep-3f));
    p = vf_fma(p, f, vf_set1(0x1.99a4b6p-3f));
    p = vf_fma(p, f, vf_set1(-0x1.000006p-2f));
    p = vf_fma(p, f, vf_set1(0x1.555548p-2f));
    VF square = vf_mul(f, f);
    /* Small terms first; e times the first part of ln 2 is exact. */
    VF low = vf_mul(vf_mul(square, f), p);
    low = vf_fma(e, vf_set1(-0x1.bd0106p-13f), low);
    low = vf_fma(vf_set1(-0.5f), square, low);
    VF result = vf_fma(e, vf_set1(0x1.63p-1f), vf_add(f, low));
    result = vf_select(vm_lt(x, zero), vf_set1(NAN), result);
    result = vf_select(vm_eq(x, zero), vf_set1(-INFINITY), result);
    /* Infinity and NaN are their own logarithms. */
    VF plus = vf_set1(INFINITY);
    return vf_select(vm_or(vm_eq(x, plus), vm_nan(x)), x, result);
}

VF_INLINE VF vf_sigmoid(VF x)
{
    /* e^-|x| never overflows. */
    VF one = vf_set1(1.0f), e = vf_exp(vf_neg(vf_abs(x)));
    return vf_div(vf_select(vm_lt(x, vf_zero()), e, one), vf_add(one, e));
}

VF_INLINE VF vf_tanh(VF x)
{
    VF size = vf_abs(x), square = vf_mul(x, x);
    VF p = vf_set1(0x1.0df40cp-9f);
    p = vf_fma(p, square, vf_set1(-0x1.08f326p-7f));
    p = vf_fma(p, square, vf_set1(0x1.62eee6p-6f));
    p = vf_fma(p, square, vf_set1(-0x1.b9e042p-5f));
    p = vf_fma(p, square, vf_set1(0x1.11101ep-3f));
    p = vf_fma(p, square, vf_set1(-0x1.555552p-2f));
    VF near = vf_fma(vf_mul(square, p), x, x);
    /* 1 - 2 / (e^2|x| + 1); from 10 on it is 1. */
    VF e = vf_exp(vf_min(vf_set1(20.0f), vf_add(size, size)));
    VF one = vf_set1(1.0f);
    VF far = vf_sub(one, vf_div(vf_set1(2.0f), vf_add(e, one)));
    return vf_copysign(vf_select(vm_lt(size, vf_set1(0.65f)), near, far), x);
}

VF_INLINE VF vf_erf(VF x)
{
    VF size = vf_abs(x), square = vf_mul(x, x);
    VF p = vf_set1(0x1.496a32p-14f);
    p = vf_fma(p, square, vf_set1(-0x1.a3f700p-11f));
    p = vf_fma(p, square, vf_set1(0x1.5405b2p-8f));
    p = vf_fma(p, square, vf_set1(-0x1.b7f90ep-6f));
    p = vf_fma(p, square, vf_set1(0x1.ce2cf8p-4f));
    p = vf_fma(p, square, vf_set1(-0x1.81273ep-2f));
    p = vf_fma(p, square, vf_set1(0x1.06eba8p-3f)); /* 2 / sqrt(pi) - 1 */
    VF near = vf_fma(p, x, x);
    /* From 1 on, 1 - e^-q with q a fit of -log(erfc); from 4 on it is 1. */
    VF t = vf_min(vf_set1(4.0f), size);
    VF q = vf_set1(0x1.6c068ep-16f);
    q = vf_fma(q, t, vf_set1(-0x1.ceeaecp-12f));
    q = vf_fma(q, t, vf_set1(0x1.1398fap-8f));
    q = vf_fma(q, t, vf_set1(-0x1.9d0bd4p-6f));
    q = vf_fma(q, t, vf_set1(0x1.bc18d0p-4f));
    q = vf_fma(q, t, vf_set1(0x1.4434f0p-1f));
    q = vf_fma(q, t, vf_set1(0x1.212c2cp+0f));
    q = vf_fma(q, t, vf_set1(-0x1.8b3f14p-13f));
    VF far = vf_sub(vf_set1(1.0f), vf_exp(vf_neg(q)));
    return vf_select(vm_lt(size, vf_set1(1.0f)), near, vf_copysign(far, x));
}

#endif
