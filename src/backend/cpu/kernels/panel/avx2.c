/* avx2.c: products in 8-bit integers for AVX2 and FMA. */
#include "panel.h"
#include "words_avx2.h"

#define TILE_M 4
#define FEW_TILES

VF_INLINE __m256i dot_bytes(__m256i acc, __m256i c, __m256i q)
{
    __m256i pairs = _mm256_maddubs_epi16(c, q);
    return _mm256_add_epi32(acc,
                            _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

#define vi_dot(acc, c, q, bits)                                                \
    ((VI)dot_words((__m256i)(acc), (__m256i)(c), (__m256i)(q), bits))
VF_INLINE __m256i dot_words(__m256i acc, __m256i c, __m256i q, int bits)
{
    /* Pairs of products are added with saturation at 2^15: 8 bits are two
     * times 4. */
    if (bits < 8)
        return dot_bytes(acc, c, q);
    const __m256i low = _mm256_set1_epi8(15);
    __m256i high = _mm256_and_si256(_mm256_srli_epi16(c, 4), low);
    __m256i sum = dot_bytes(_mm256_setzero_si256(), high, q);
    return dot_bytes(_mm256_add_epi32(acc, _mm256_slli_epi32(sum, 4)),
                     _mm256_and_si256(c, low), q);
}

#define WIDE_VALUES
#include "panel.inc"
