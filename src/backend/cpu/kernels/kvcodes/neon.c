/* neon.c: products with packed keys and values for Advanced SIMD. */
#include "kvcodes.h"

#include "backend/cpu/simd_neon.h"

#include "words_plain.h"

#define vi_madd(acc, c, q)                                                     \
    ((VI)add_pairs((int32x4_t)(acc), (int16x8_t)(c), (int16x8_t)(q)))
VF_INLINE int32x4_t add_pairs(int32x4_t acc, int16x8_t c, int16x8_t q)
{
    int32x4_t low = vmull_s16(vget_low_s16(c), vget_low_s16(q));
    int32x4_t high = vmull_s16(vget_high_s16(c), vget_high_s16(q));
    return vaddq_s32(acc, vpaddq_s32(low, high));
}

#define vf_fused(a, b, c) vf_fma(a, b, c)

#include "kvcodes.inc"
