/* simd_neon.h: the vector words (simd_none.h) for Advanced SIMD of aarch64. */
#ifndef QN_CPU_SIMD_NEON_H
#define QN_CPU_SIMD_NEON_H

#include "base/f16.h"
#include "bits.h"

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FN(name) name##_neon
enum { VF_LANES = 4, VF_REGISTERS = 32 };
typedef float32x4_t VF;
typedef uint32x4_t VM;

#define VF_INLINE static inline __attribute__((always_inline, unused))

VF_INLINE VF vf_set1(float x)
{
    return vdupq_n_f32(x);
}
VF_INLINE VF vf_zero(void)
{
    return vdupq_n_f32(0.0f);
}
VF_INLINE VF vf_load(const float *p)
{
    return vld1q_f32(p);
}
VF_INLINE void vf_store(float *p, VF v)
{
    vst1q_f32(p, v);
}
VF_INLINE VF vf_add(VF a, VF b)
{
    return vaddq_f32(a, b);
}
VF_INLINE VF vf_sub(VF a, VF b)
{
    return vsubq_f32(a, b);
}
VF_INLINE VF vf_mul(VF a, VF b)
{
    return vmulq_f32(a, b);
}
VF_INLINE VF vf_div(VF a, VF b)
{
    return vdivq_f32(a, b);
}
VF_INLINE VM vm_lt(VF a, VF b)
{
    return vcltq_f32(a, b);
}
VF_INLINE VM vm_le(VF a, VF b)
{
    return vcleq_f32(a, b);
}
VF_INLINE VM vm_eq(VF a, VF b)
{
    return vceqq_f32(a, b);
}
VF_INLINE VM vm_nan(VF a)
{
    return vmvnq_u32(vceqq_f32(a, a));
}
VF_INLINE VM vm_or(VM a, VM b)
{
    return vorrq_u32(a, b);
}
VF_INLINE VF vf_select(VM m, VF a, VF b)
{
    return vbslq_f32(m, a, b);
}
/* Not vmaxq and vminq: those order zeros and prefer NaN. */
VF_INLINE VF vf_max(VF a, VF b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
VF_INLINE VF vf_min(VF a, VF b)
{
    return vbslq_f32(vcltq_f32(a, b), a, b);
}
VF_INLINE VF vf_abs(VF a)
{
    return vabsq_f32(a);
}
VF_INLINE VF vf_neg(VF a)
{
    return vnegq_f32(a);
}
VF_INLINE VF vf_copysign(VF size, VF sign)
{
    return vbslq_f32(vdupq_n_u32(0x80000000u), sign, size);
}
VF_INLINE VF vf_sqrt(VF a)
{
    return vsqrtq_f32(a);
}
VF_INLINE VF vf_rint(VF a)
{
    return vrndnq_f32(a);
}
VF_INLINE VF vf_floor(VF a)
{
    return vrndmq_f32(a);
}
VF_INLINE VF vf_ceil(VF a)
{
    return vrndpq_f32(a);
}
VF_INLINE VF vf_trunc(VF a)
{
    return vrndq_f32(a);
}
VF_INLINE VF vf_fma(VF a, VF b, VF c)
{
    return vfmaq_f32(c, a, b);
}
VF_INLINE VF vf_scale2(VF a, VF n)
{
    /* Two steps, so that neither factor leaves the range of exponents; only
     * the second can round. */
    const int32x4_t bias = vdupq_n_s32(127);
    int32x4_t all = vcvtnq_s32_f32(n), half = vshrq_n_s32(all, 1);
    int32x4_t rest = vsubq_s32(all, half);
    int32x4_t first = vshlq_n_s32(vaddq_s32(half, bias), 23);
    int32x4_t second = vshlq_n_s32(vaddq_s32(rest, bias), 23);
    return vmulq_f32(vmulq_f32(a, vreinterpretq_f32_s32(first)),
                     vreinterpretq_f32_s32(second));
}
VF_INLINE float vf_hmax(VF a)
{
    return vmaxvq_f32(a);
}
VF_INLINE float vf_sum(VF a)
{
    VF pairs = vpaddq_f32(a, a);
    return vgetq_lane_f32(vpaddq_f32(pairs, pairs), 0);
}
VF_INLINE void vf_sum4(float out[4], VF a, VF b, VF c, VF d)
{
    vst1q_f32(out, vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d)));
}
typedef float64x2_t VD;
VF_INLINE VD vd_low(VF a)
{
    return vcvt_f64_f32(vget_low_f32(a));
}
VF_INLINE VD vd_high(VF a)
{
    return vcvt_high_f64_f32(a);
}
VF_INLINE VF vf_load_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
VF_INLINE VF vf_load_bf16(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
VF_INLINE void vf_store_f16(uint16_t *p, VF v)
{
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v)));
}
VF_INLINE void vf_store_bf16(uint16_t *p, VF v)
{
    /* Round to nearest even as qn_f32_to_bf16 does; NaN becomes 0x7fc0. */
    uint32x4_t u = vreinterpretq_u32_f32(v);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    uint32x4_t r = vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    r = vbslq_u32(vm_nan(v), vdupq_n_u32(0x7fc00000), r);
    vst1_u16(p, vshrn_n_u32(r, 16));
}
VF_INLINE VF vf_load_u8(const uint8_t *p)
{
    uint32_t four;
    memcpy(&four, p, sizeof four);
    uint8x8_t bytes = vcreate_u8(four);
    return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes))));
}
VF_INLINE void vf_codes16(VF out[16 / VF_LANES], const uint8_t *w, int bits)
{
    /* Eight codes are `bits` bytes; each lane picks the two bytes its code
     * touches and shifts.  An index out of the table gives zero. */
    uint32_t picks[8];
    int32_t shifts[8];
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t byte = i * (uint32_t)bits >> 3;
        picks[i] = byte | (byte + 1) << 8 | 0xffff0000u;
        shifts[i] = -(int32_t)(i * (uint32_t)bits & 7);
    }
    uint32x4_t mask = vdupq_n_u32((1u << bits) - 1);
    for (int half = 0; half < 2; half++) {
        uint64_t stream = qn_load_bytes(w + half * bits, bits);
        uint8x16_t table = vcombine_u8(vcreate_u8(stream), vcreate_u8(0));
        for (int i = 0; i < 2; i++) {
            uint8x16_t pick = vreinterpretq_u8_u32(vld1q_u32(picks + 4 * i));
            uint32x4_t v = vreinterpretq_u32_u8(vqtbl1q_u8(table, pick));
            v = vandq_u32(vshlq_u32(v, vld1q_s32(shifts + 4 * i)), mask);
            out[2 * half + i] = vcvtq_f32_u32(v);
        }
    }
}
VF_INLINE VF vf_load_i8(const uint8_t *p)
{
    uint32_t four;
    memcpy(&four, p, sizeof four);
    int8x8_t bytes = vreinterpret_s8_u8(vcreate_u8(four));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))));
}
VF_INLINE void vf_store_u8(uint8_t *p, VF v)
{
    int16x4_t half = vmovn_s32(vcvtq_s32_f32(v));
    int8x8_t bytes = vmovn_s16(vcombine_s16(half, half));
    uint32_t four = vget_lane_u32(vreinterpret_u32_s8(bytes), 0);
    memcpy(p, &four, sizeof four);
}
VF_INLINE VF vf_gather(const float *table, VF at)
{
    uint32_t i[4];
    vst1q_u32(i, vcvtq_u32_f32(at));
    float lanes[4] = {table[i[0]], table[i[1]], table[i[2]], table[i[3]]};
    return vld1q_f32(lanes);
}
VF_INLINE void vf_take16(VF out[16 / VF_LANES], const uint8_t *w, int bits,
                         const float *table)
{
    vf_codes16(out, w, bits);
    for (int i = 0; i < 4; i++)
        out[i] = vf_gather(table, out[i]);
}
VF_INLINE VF vf_partner(VF a, int by)
{
    return by == 1 ? vrev64q_f32(a) : vextq_f32(a, a, 2);
}
VF_INLINE void vf_transpose(VF r[VF_LANES])
{
    float32x4x2_t lo = vzipq_f32(r[0], r[2]), hi = vzipq_f32(r[1], r[3]);
    float32x4x2_t first = vzipq_f32(lo.val[0], hi.val[0]);
    float32x4x2_t second = vzipq_f32(lo.val[1], hi.val[1]);
    r[0] = first.val[0];
    r[1] = first.val[1];
    r[2] = second.val[0];
    r[3] = second.val[1];
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
