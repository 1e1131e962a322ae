/* words_avx2.h: what panel.inc needs of AVX2 besides vi_dot. */
#ifndef QN_CPU_PANEL_WORDS_AVX2_H
#define QN_CPU_PANEL_WORDS_AVX2_H

#include "backend/cpu/simd_avx2.h"

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

#endif
