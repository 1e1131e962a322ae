/* neon.c: products in 8-bit integers for Advanced SIMD without its dot
 * products. */
#include "panel.h"
#include "words_neon.h"

#define TILE_M 4

VF_INLINE int32x4_t dot_bytes(int32x4_t acc, int8x16_t c, int8x16_t q)
{
    int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(c), vget_low_s8(q)));
    int32x4_t high = vpaddlq_s16(vmull_s8(vget_high_s8(c), vget_high_s8(q)));
    return vaddq_s32(acc, vpaddq_s32(low, high));
}

#define vi_dot(acc, c, q, bits)                                                \
    ((VI)dot_words((int32x4_t)(acc), (uint8x16_t)(c), (int8x16_t)(q), bits))
VF_INLINE int32x4_t dot_words(int32x4_t acc, uint8x16_t c, int8x16_t q,
                              int bits)
{
    /* The products are signed: 8 bits are two times 4. */
    if (bits < 8)
        return dot_bytes(acc, vreinterpretq_s8_u8(c), q);
    int32x4_t high =
        dot_bytes(vdupq_n_s32(0), vreinterpretq_s8_u8(vshrq_n_u8(c, 4)), q);
    return dot_bytes(vaddq_s32(acc, vshlq_n_s32(high, 4)),
                     vreinterpretq_s8_u8(vandq_u8(c, vdupq_n_u8(15))), q);
}

#define WIDE_VALUES

#include "panel.inc"
