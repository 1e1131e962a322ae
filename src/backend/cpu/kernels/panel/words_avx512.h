/* words_avx512.h: what panel.inc needs of AVX-512 besides vi_dot. */
#ifndef QN_CPU_PANEL_WORDS_AVX512_H
#define QN_CPU_PANEL_WORDS_AVX512_H

#include "backend/cpu/simd_avx512.h"

#define vi_table(p)                                                            \
    _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define vi_lookup(t, c) _mm512_shuffle_epi8((__m512i)(t), (__m512i)(c))
#define vi_bytes(to, v)                                                        \
    _mm_storeu_si128((__m128i *)(void *)(to),                                  \
                     _mm512_cvtepi32_epi8((__m512i)(v)))
#define vf_fused(a, b, c) vf_fma(a, b, c)

#endif
