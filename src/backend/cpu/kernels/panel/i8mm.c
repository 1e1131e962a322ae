/* i8mm.c: products in 8-bit integers for Advanced SIMD with products of small
 * matrices (FEAT_I8MM).
 *
 * One instruction multiplies 8 codes of each of two rows of w with 8 high and 8
 * low bytes of a row of x, twice what a dot product does.  Codes of two rows
 * are brought together once for all rows of x; with one row that and what takes
 * the sums apart again would cost what is won, so it has dot products. */
#include "panel.h"
#include "words_neon.h"

#undef FN
#define FN(name) name##_i8mm
#define TILE_M 8
#define EIGHTS

#include "panel.inc"

VF_INLINE VI one_row(int unit, width w, VI table, const uint8_t *at, int quad,
                     const int32_t *q)
{
    int32x4_t high = vdupq_n_s32(0), low = high;
#pragma GCC unroll 4
    for (int i = 0; i < unit / 4; i += 2) {
        uint8x16_t c0 = (uint8x16_t)values(at, quad + i, w, table);
        uint8x16_t c1 = (uint8x16_t)values(at, quad + i + 1, w, table);
        int8x16_t x = vreinterpretq_s8_s32(vld1q_s32(q + 2 * i));
        high = vusdotq_laneq_s32(high, c0, x, 0);
        low = vusdotq_laneq_s32(low, c0, x, 2);
        high = vusdotq_laneq_s32(high, c1, x, 1);
        low = vusdotq_laneq_s32(low, c1, x, 3);
    }
    return (VI)vaddq_s32(vshlq_s32(high, vdupq_n_s32(shift_of(w))), low);
}

VF_INLINE void products(VI sum[QN_PANEL_TILE], int rows, size_t all, width w,
                        int unit, VI table, const uint8_t *at, int quad,
                        const int32_t *q)
{
    if (rows == 1 && all == 1) {
        sum[0] = one_row(unit, w, table, at, quad, q);
        return;
    }
    /* Of the rows 0 and 1, and 2 and 3, of a part: high, low, high, low. */
    int32x4_t first[QN_PANEL_TILE], second[QN_PANEL_TILE];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        first[r] = second[r] = vdupq_n_s32(0);
#pragma GCC unroll 4
    for (int i = 0; i < unit / 4; i += 2) {
        int32x4_t c0 = (int32x4_t)values(at, quad + i, w, table);
        int32x4_t c1 = (int32x4_t)values(at, quad + i + 1, w, table);
        uint8x16_t w01 = vreinterpretq_u8_s32(vzip1q_s32(c0, c1));
        uint8x16_t w23 = vreinterpretq_u8_s32(vzip2q_s32(c0, c1));
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const int32_t *words = q + 4 * ((size_t)i / 2 * all + (size_t)r);
            int8x16_t x = vreinterpretq_s8_s32(vld1q_s32(words));
            first[r] = vusmmlaq_s32(first[r], w01, x);
            second[r] = vusmmlaq_s32(second[r], w23, x);
        }
    }
    /* (high << shift) + low, neighbours added. */
    const int32x4_t shifts = {shift_of(w), 0, shift_of(w), 0};
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        sum[r] = (VI)vpaddq_s32(vshlq_s32(first[r], shifts),
                                vshlq_s32(second[r], shifts));
}
