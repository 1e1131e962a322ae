/* avxvnni.c: products in 8-bit integers for AVX2 with AVX-VNNI.
 *
 * The tests build this file for AVX-512 with VNNI, too, whose instruction of
 * 256 bits has another encoding and the same meaning. */
#include "panel.h"
#include "words_avx2.h"

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
#include "panel.inc"
