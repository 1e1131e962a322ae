/* neondot.c: products in 8-bit integers for Advanced SIMD with dot products.
 *
 * The 16 bytes of x that belong to 8 elements of a row are four words, one for
 * each lane of a register that a dot product can name, so that no word is
 * loaded for itself.  Eight rows at once would want more registers than there
 * are. */
#include "panel.h"
#include "words_neon.h"

#undef FN
#define FN(name) name##_neondot
#define TILE_M 4
#define EIGHTS
#define WIDE_VALUES

#include "panel.inc"

/* The products are signed, so values of 8 bits lack 128: here `lacking` is
 * -128 times the sums of x's words, and is taken off. */
VF_INLINE void complete(int32x4_t *high, int32x4_t *low, int32x4_t lacking)
{
    int32x4_t both = vpaddq_s32(lacking, lacking);
    *high = vsubq_s32(*high, vdupq_laneq_s32(both, 0));
    *low = vsubq_s32(*low, vdupq_laneq_s32(both, 1));
}

VF_INLINE void products(VI sum[QN_PANEL_TILE], int rows, size_t all, width w,
                        int unit, VI table, const uint8_t *at, int quad,
                        const int32_t *q)
{
    const bool wide = w.value == 8;
    int32x4_t high[TILE_M], low[TILE_M], lacking[TILE_M];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        high[r] = low[r] = lacking[r] = vdupq_n_s32(0);
#pragma GCC unroll 4
    for (int i = 0; i < unit / 4; i += 2) {
        int8x16_t c0 = (int8x16_t)values(at, quad + i, w, table);
        int8x16_t c1 = (int8x16_t)values(at, quad + i + 1, w, table);
        if (wide) {
            c0 = veorq_s8(c0, vdupq_n_s8(-128));
            c1 = veorq_s8(c1, vdupq_n_s8(-128));
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            const int32_t *words = q + 4 * ((size_t)i / 2 * all + (size_t)r);
            int8x16_t x = vreinterpretq_s8_s32(vld1q_s32(words));
            high[r] = vdotq_laneq_s32(high[r], c0, x, 0);
            low[r] = vdotq_laneq_s32(low[r], c0, x, 2);
            high[r] = vdotq_laneq_s32(high[r], c1, x, 1);
            low[r] = vdotq_laneq_s32(low[r], c1, x, 3);
            if (wide)
                lacking[r] = vdotq_s32(lacking[r], x, vdupq_n_s8(-128));
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        if (wide)
            complete(&high[r], &low[r], lacking[r]);
        sum[r] =
            (VI)vaddq_s32(vshlq_s32(high[r], vdupq_n_s32(shift_of(w))), low[r]);
    }
}
