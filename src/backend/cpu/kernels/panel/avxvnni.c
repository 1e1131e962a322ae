/* avxvnni.c: products in 8-bit integers for AVX2 with AVX-VNNI.
 *
 * The tests build this file for AVX-512 with VNNI, too, whose instruction of
 * 256 bits has another encoding and the same meaning. */
#include "panel.h"

#include "backend/cpu/simd_avx2.h"

#undef FN
#ifdef __AVXVNNI__
#define FN(name) name##_avxvnni
#define dot_words _mm256_dpbusd_avx_epi32
#else
#define FN(name) name##_evex
#define dot_words _mm256_dpbusd_epi32
#endif
#define TILE_M 4
#define FEW_TILES

#define vi_dot(acc, c, q, bits)                                                \
    ((VI)dot_words((__m256i)(acc), (__m256i)(c), (__m256i)(q)))
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
