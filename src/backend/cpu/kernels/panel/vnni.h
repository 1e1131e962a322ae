/* vnni.h: the words of panel.inc for AVX-512 with VNNI. */
#ifndef QN_CPU_PANEL_VNNI_H
#define QN_CPU_PANEL_VNNI_H

#define TILE_M 8

#define vi_dot(acc, c, q, bits)                                                \
    ((VI)_mm512_dpbusd_epi32((__m512i)(acc), (__m512i)(c), (__m512i)(q)))
#define vi_table(p)                                                            \
    _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define vi_lookup(t, c) _mm512_shuffle_epi8((__m512i)(t), (__m512i)(c))
#define vi_bytes(to, v)                                                        \
    _mm_storeu_si128((__m128i *)(void *)(to),                                  \
                     _mm512_cvtepi32_epi8((__m512i)(v)))
#define vf_fused(a, b, c) vf_fma(a, b, c)

#endif
