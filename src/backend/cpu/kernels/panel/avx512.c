/* avx512.c: products in 8-bit integers for AVX-512 without VNNI. */
#include "panel.h"
#include "words_avx512.h"

#define TILE_M 4
#define FEW_TILES
#define WIDE_VALUES

VF_INLINE __m512i dot_bytes(__m512i acc, __m512i c, __m512i q)
{
    __m512i pairs = _mm512_maddubs_epi16(c, q);
    return _mm512_add_epi32(acc,
                            _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}

#define vi_dot(acc, c, q, bits)                                                \
    ((VI)dot_words((__m512i)(acc), (__m512i)(c), (__m512i)(q), bits))
VF_INLINE __m512i dot_words(__m512i acc, __m512i c, __m512i q, int bits)
{
    /* Pairs of products are added with saturation at 2^15: 8 bits are two
     * times 4. */
    if (bits < 8)
        return dot_bytes(acc, c, q);
    const __m512i low = _mm512_set1_epi8(15);
    __m512i high = _mm512_and_si512(_mm512_srli_epi16(c, 4), low);
    __m512i sum = dot_bytes(_mm512_setzero_si512(), high, q);
    return dot_bytes(_mm512_add_epi32(acc, _mm512_slli_epi32(sum, 4)),
                     _mm512_and_si512(c, low), q);
}

#include "panel.inc"
