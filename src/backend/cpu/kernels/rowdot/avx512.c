/* avx512.c: rows times rows for AVX-512: a tile of 6 x 4 vectors. */
#include "rowdot.h"

#include "backend/cpu/simd_avx512.h"

#define TILE_M 6
#define DIRECT_M 4

/* Sixteen 4-bit codes are two words.  Broadcast as one quadword they fill
 * the lanes alternately, so lane 2i is code i and lane 2i + 1 code 8 + i; x is
 * put into the same order. */
#define ORDER_Q4 order_q4
static inline void order_q4(float *dst, const float *src, size_t k)
{
    const __m512i index =
        _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    for (size_t i = 0; i < k; i += 16)
        vf_store(dst + i, _mm512_permutexvar_ps(index, vf_load(src + i)));
}

/* A group's sixteen possible values are a register, and the permute that looks
 * codes up ignores the bits above the low four: no mask, no conversion. */
#define HAS_TABLE_Q4
VF_INLINE VF table_q4(float scale, float bias)
{
    const VF codes =
        _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return vf_fma(codes, vf_set1(scale), vf_set1(bias));
}

VF_INLINE VF look_up_q4(const uint8_t *w, VF table)
{
    const __m512i shifts = _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16,
                                             20, 20, 24, 24, 28, 28);
    int64_t words;
    memcpy(&words, w, 8);
    return _mm512_permutexvar_ps(
        _mm512_srlv_epi32(_mm512_set1_epi64(words), shifts), table);
}

#include "rowdot.inc"
