/* neon.c: the limits of one core, for Advanced SIMD. */
#include "peak.h"

#include "backend/cpu/simd_neon.h"

#define BYTES int32x4_t
#define bytes_set1(x) vreinterpretq_s32_s8(vdupq_n_s8((signed char)(x)))
#define BYTES_AGAIN(a) __asm__ volatile("" : "+w"(a))

/* Products fit 16 bits, the sum of two neighbours 32. */
VF_INLINE int32x4_t bytes_dot(int32x4_t acc, int32x4_t a, int32x4_t b)
{
    int8x16_t x = vreinterpretq_s8_s32(a), y = vreinterpretq_s8_s32(b);
    acc = vpadalq_s16(acc, vmull_s8(vget_low_s8(x), vget_low_s8(y)));
    return vpadalq_s16(acc, vmull_high_s8(x, y));
}

#include "peak.inc"
