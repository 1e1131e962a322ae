/* avx2.c: products in 8-bit integers for AVX2 and FMA. */
#include "panel.h"

#include "backend/cpu/simd_avx2.h"

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
#define vi_table(p)                                                            \
    _mm256_broadcastsi128_si256(                                               \
        _mm_loadu_si128((const __m128i *)(const void *)(p)))
#define vi_lookup(t, c) _mm256_shuffle_epi8((__m256i)(t), (__m256i)(c))
#define vi_bytes(to, v) store_bytes(to, (__m256i)(v))
VF_INLINE void store_bytes(int8_t *to, __m256i v)
{
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(v),
                                    _mm256_extracti128_si256(v, 1));
    _mm_storel_epi64((__m128i *)(void *)to, _mm_packs_epi16(words, words));
}
#define vf_fused(a, b, c) vf_fma(a, b, c)

#include "panel.inc"
