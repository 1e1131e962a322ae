/* simd_none.h: the vector words in portable C, by the compilers' vector
 * types.  Every simd_<isa>.h defines the same words:
 *
 *   VF, VF_LANES        a vector of floats and its length
 *   vf_zero vf_set1 vf_load vf_store (unaligned) vf_add vf_sub vf_mul vf_div
 *   vf_max vf_min
 *   vf_fma(a, b, c)     a * b + c (fused where the hardware fuses)
 *   vf_sum(a)           the sum of the lanes, in a fixed order
 *   vf_sum4(out, a..d)  the sums of four vectors, each in vf_sum's order
 *   vf_load_f16 vf_load_bf16, vf_store_f16 vf_store_bf16
 *   vf_load_u8          VF_LANES bytes as floats
 *   FN(name)            name_<isa>
 */
#ifndef QN_CPU_SIMD_NONE_H
#define QN_CPU_SIMD_NONE_H

#include "base/f16.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FN(name) name##_none
enum { VF_LANES = 4 };
typedef float VF __attribute__((vector_size(16)));

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
VF_INLINE VF vf_max(VF a, VF b)
{
    VF r;
    for (int i = 0; i < VF_LANES; i++)
        r[i] = a[i] > b[i] ? a[i] : b[i];
    return r;
}
VF_INLINE VF vf_min(VF a, VF b)
{
    VF r;
    for (int i = 0; i < VF_LANES; i++)
        r[i] = a[i] < b[i] ? a[i] : b[i];
    return r;
}
VF_INLINE VF vf_fma(VF a, VF b, VF c)
{
    return a * b + c;
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

#endif
