/* simd_none.h: the vector words in portable C, by the compilers' vector
 * types.  Every simd_<isa>.h defines the same words:
 *
 *   VF, VF_LANES        a vector of floats and its length
 *   VF_REGISTERS        how many of them the processor holds
 *   VM                  a mask: one truth value per lane
 *   vf_zero vf_set1 vf_load vf_store (unaligned) vf_add vf_sub vf_mul vf_div
 *   vf_sqrt vf_abs vf_neg vf_copysign(size, sign)
 *   vf_max vf_min       a > b ? a : b and a < b ? a : b in each lane: the
 *                       second operand when one is NaN or both are zero
 *   vf_rint             to the nearest whole number, halves to even
 *   vf_floor vf_ceil vf_trunc
 *   vf_fma(a, b, c)     a * b + c (fused where the hardware fuses)
 *   vf_scale2(a, n)     a * 2^n for whole n in -250 .. 250, rounded once
 *   vf_sum(a)           the sum of the lanes, in a fixed order
 *   vf_sum4(out, a..d)  the sums of four vectors, each in vf_sum's order
 *   vf_hmax(a)          the largest lane; any lane or NaN if one is NaN
 *   vf_load_f16 vf_load_bf16, vf_store_f16 vf_store_bf16
 *   vf_load_u8          VF_LANES bytes as floats
 *   vf_codes16(out, w, bits)  16 codes of 2, 3, 4, 5, 6 or 8 bits (a constant)
 *                       of a little-endian bit stream as floats, in 16 /
 *                       VF_LANES vectors; reads exactly 2 * bits bytes
 *   vf_load_i8          VF_LANES signed bytes as floats
 *   vf_store_u8         the low byte of each lane, a whole number in -128 ..
 * 255 vf_take16(out, w, bits, table)  table[code] for the codes of vf_codes16;
 * the table is readable for 32 floats even with fewer codes vf_gather(table,
 * at)  table[at], `at` being whole numbers vf_partner(a, by)   each lane's
 * neighbour across `by`, a power of two below VF_LANES: lane i is a[i ^ by]
 *   vf_transpose(r)     of VF_LANES vectors, in place
 *   vm_lt vm_le vm_eq vm_nan(a) vm_or, vf_select(m, a, b): m ? a : b
 *   VD                  a vector of VF_LANES / 2 doubles, with the compilers'
 *                       operators
 *   vd_low vd_high      the first and the second half of the lanes as doubles
 *   vf_stream(to, from) VF_STREAM bytes to a place aligned to that, past the
 *                       caches where the processor can; vf_fence() after them
 *   FN(name)            name_<isa>
 *
 * simd_math.h builds the functions and the partial loads on them. */
#ifndef QN_CPU_SIMD_NONE_H
#define QN_CPU_SIMD_NONE_H

#include "base/f16.h"
#include "bits.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FN(name) name##_none
enum { VF_LANES = 4, VF_REGISTERS = 16 };
typedef float VF __attribute__((vector_size(16)));
typedef int32_t VM __attribute__((vector_size(16)));

#define VF_INLINE static inline __attribute__((always_inline, unused))

VF_INLINE VF vf_set1(float x)
{
    return (VF){x, x, x, x};
}
VF_INLINE VF vf_zero(void)
{
    return vf_set1(0.0f);
}
VF_INLINE VF vf_load(const float *p)
{
    VF v;
    memcpy(&v, p, sizeof v);
    return v;
}
VF_INLINE void vf_store(float *p, VF v)
{
    memcpy(p, &v, sizeof v);
}
VF_INLINE VF vf_add(VF a, VF b)
{
    return a + b;
}
VF_INLINE VF vf_sub(VF a, VF b)
{
    return a - b;
}
VF_INLINE VF vf_mul(VF a, VF b)
{
    return a * b;
}
VF_INLINE VF vf_div(VF a, VF b)
{
    return a / b;
}
VF_INLINE VM vm_lt(VF a, VF b)
{
    return a < b;
}
VF_INLINE VM vm_le(VF a, VF b)
{
    return a <= b;
}
VF_INLINE VM vm_eq(VF a, VF b)
{
    return a == b;
}
VF_INLINE VM vm_nan(VF a)
{
    return a != a;
}
VF_INLINE VM vm_or(VM a, VM b)
{
    return a | b;
}
VF_INLINE VF vf_select(VM m, VF a, VF b)
{
    return (VF)((m & (VM)a) | (~m & (VM)b));
}
VF_INLINE VF vf_max(VF a, VF b)
{
    return vf_select(a > b, a, b);
}
VF_INLINE VF vf_min(VF a, VF b)
{
    return vf_select(a < b, a, b);
}
VF_INLINE VF vf_abs(VF a)
{
    return (VF)((VM)a & (VM){INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX});
}
VF_INLINE VF vf_neg(VF a)
{
    return -a;
}
VF_INLINE VF vf_copysign(VF size, VF sign)
{
    VM bit = {INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN};
    return (VF)(((VM)size & ~bit) | ((VM)sign & bit));
}
VF_INLINE VF vf_sqrt(VF a)
{
    for (int i = 0; i < VF_LANES; i++)
        a[i] = __builtin_sqrtf(a[i]);
    return a;
}
/* From 2^23 on every float is whole; below, adding 2^23 rounds. */
VF_INLINE VF vf_rint(VF a)
{
    VF big = vf_set1(0x1p23f), size = vf_abs(a);
    VF rounded = vf_copysign((size + big) - big, a);
    return vf_select(size < big, rounded, a);
}
VF_INLINE VF vf_floor(VF a)
{
    VF r = vf_rint(a);
    return vf_select(r > a, r - 1.0f, r);
}
VF_INLINE VF vf_ceil(VF a)
{
    VF r = vf_rint(a);
    return vf_copysign(vf_select(r < a, r + 1.0f, r), a);
}
VF_INLINE VF vf_trunc(VF a)
{
    return vf_copysign(vf_floor(vf_abs(a)), a);
}
VF_INLINE VF vf_fma(VF a, VF b, VF c)
{
    return a * b + c;
}
VF_INLINE VF vf_scale2(VF a, VF n)
{
    /* Two steps, so that neither factor leaves the range of exponents; only
     * the second can round. */
    VM all = __builtin_convertvector(n, VM), half = all >> 1;
    VM first = (half + 127) << 23, second = (all - half + 127) << 23;
    return a * (VF)first * (VF)second;
}
VF_INLINE float vf_hmax(VF a)
{
    float lo = a[0] > a[2] ? a[0] : a[2], hi = a[1] > a[3] ? a[1] : a[3];
    return lo > hi ? lo : hi;
}
VF_INLINE float vf_sum(VF a)
{
    return (a[0] + a[2]) + (a[1] + a[3]);
}
VF_INLINE void vf_sum4(float out[4], VF a, VF b, VF c, VF d)
{
    out[0] = vf_sum(a);
    out[1] = vf_sum(b);
    out[2] = vf_sum(c);
    out[3] = vf_sum(d);
}
typedef double VD __attribute__((vector_size(16)));
VF_INLINE VD vd_low(VF a)
{
    return (VD){(double)a[0], (double)a[1]};
}
VF_INLINE VD vd_high(VF a)
{
    return (VD){(double)a[2], (double)a[3]};
}
VF_INLINE VF vf_load_f16(const uint16_t *p)
{
    VF r;
    for (int i = 0; i < VF_LANES; i++)
        r[i] = qn_f16_to_f32(p[i]);
    return r;
}
VF_INLINE VF vf_load_bf16(const uint16_t *p)
{
    VF r;
    for (int i = 0; i < VF_LANES; i++)
        r[i] = qn_bf16_to_f32(p[i]);
    return r;
}
VF_INLINE void vf_store_f16(uint16_t *p, VF v)
{
    for (int i = 0; i < VF_LANES; i++)
        p[i] = qn_f32_to_f16(v[i]);
}
VF_INLINE void vf_store_bf16(uint16_t *p, VF v)
{
    for (int i = 0; i < VF_LANES; i++)
        p[i] = qn_f32_to_bf16(v[i]);
}
VF_INLINE VF vf_load_u8(const uint8_t *p)
{
    VF r;
    for (int i = 0; i < VF_LANES; i++)
        r[i] = (float)p[i];
    return r;
}
VF_INLINE void vf_codes16(VF out[16 / VF_LANES], const uint8_t *w, int bits)
{
    for (int half = 0; half < 2; half++) {
        uint64_t stream = qn_load_bytes(w + half * bits, bits);
        uint32_t mask = (1u << bits) - 1;
        for (int i = 0; i < 8; i++)
            out[half * 2 + i / 4][i % 4] =
                (float)(int)((uint32_t)(stream >> (i * bits)) & mask);
    }
}
VF_INLINE VF vf_load_i8(const uint8_t *p)
{
    VF r;
    for (int i = 0; i < VF_LANES; i++)
        r[i] = (float)(int8_t)p[i];
    return r;
}
VF_INLINE void vf_store_u8(uint8_t *p, VF v)
{
    for (int i = 0; i < VF_LANES; i++)
        p[i] = (uint8_t)(int)v[i];
}
VF_INLINE void vf_take16(VF out[16 / VF_LANES], const uint8_t *w, int bits,
                         const float *table)
{
    for (int half = 0; half < 2; half++) {
        uint64_t stream = qn_load_bytes(w + half * bits, bits);
        uint32_t mask = (1u << bits) - 1;
        for (int i = 0; i < 8; i++)
            out[half * 2 + i / 4][i % 4] =
                table[(uint32_t)(stream >> (i * bits)) & mask];
    }
}
VF_INLINE VF vf_gather(const float *table, VF at)
{
    VF r;
    for (int i = 0; i < VF_LANES; i++)
        r[i] = table[(int)at[i]];
    return r;
}
VF_INLINE VF vf_partner(VF a, int by)
{
    return by == 1 ? (VF){a[1], a[0], a[3], a[2]}
                   : (VF){a[2], a[3], a[0], a[1]};
}
VF_INLINE void vf_transpose(VF r[VF_LANES])
{
    VF a = r[0], b = r[1], c = r[2], d = r[3];
    for (int i = 0; i < VF_LANES; i++)
        r[i] = (VF){a[i], b[i], c[i], d[i]};
}

enum { VF_STREAM = 64 };
VF_INLINE void vf_stream(void *to, const void *from)
{
    memcpy(to, from, VF_STREAM);
}
static inline __attribute__((unused)) void vf_fence(void)
{
}

#endif
