/* words_neon.h: what panel.inc needs of Advanced SIMD besides products. */
#ifndef QN_CPU_PANEL_WORDS_NEON_H
#define QN_CPU_PANEL_WORDS_NEON_H

#include "backend/cpu/simd_neon.h"

#define vi_table(p) vld1q_u8(p)
#define vi_lookup(t, c) vqtbl1q_u8((uint8x16_t)(t), (uint8x16_t)(c))
#define vi_bytes(to, v) store_bytes(to, (int32x4_t)(v))
VF_INLINE void store_bytes(int8_t *to, int32x4_t v)
{
    int16x4_t words = vmovn_s32(v);
    int8x8_t bytes = vmovn_s16(vcombine_s16(words, words));
    memcpy(to, &bytes, 4);
}
#define vf_fused(a, b, c) vf_fma(a, b, c)

#endif
