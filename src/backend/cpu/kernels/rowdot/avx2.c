/* avx2.c: rows times rows for AVX2 and FMA: a tile of 2 x 4 vectors. */
#include "rowdot.h"

#include "backend/cpu/simd_avx2.h"

#define TILE_M 2

/* Eight codes are one word: the same word in every lane, shifted by 4 bits
 * more from lane to lane. */
VF_INLINE VF codes_q4(const uint8_t *w)
{
    const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const __m256i mask = _mm256_set1_epi32(15);
    uint32_t word;
    memcpy(&word, w, 4);
    return _mm256_cvtepi32_ps(_mm256_and_si256(
        _mm256_srlv_epi32(_mm256_set1_epi32((int)word), shifts), mask));
}

#define HAS_FILL_Q4
static void fill_q4(float *dst, const uint8_t *w, const float *scales,
                    const float *biases, size_t k, int group)
{
    size_t width = (size_t)group;
    for (size_t g = 0; g * width < k; g++) {
        VF scale = vf_set1(scales[g]), bias = vf_set1(biases[g]);
        for (size_t i = g * width; i < (g + 1) * width; i += 8)
            vf_store(dst + i, vf_fma(codes_q4(w + i / 2), scale, bias));
    }
}

typedef struct group_words {
    VF scale, bias;
} group_words;

VF_INLINE group_words group_begin(qn_row_format format, float scale, float bias)
{
    (void)format;
    return (group_words){vf_set1(scale), vf_set1(bias)};
}

VF_INLINE VF group_step(qn_row_format format, const uint8_t *w, size_t i,
                        group_words g)
{
    VF codes = format == QN_ROW_Q4 ? codes_q4(w + i / 2) : vf_load_u8(w + i);
    return vf_fma(codes, g.scale, g.bias);
}

#define SINGLE_GROUP group_words
#define SINGLE_BEGIN group_begin
#define SINGLE_STEP group_step

#include "rowdot.inc"
