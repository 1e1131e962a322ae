/* vnni.h: the words of panel.inc for AVX-512 with VNNI. */
#ifndef QN_CPU_PANEL_VNNI_H
#define QN_CPU_PANEL_VNNI_H

#include "words_avx512.h"

#define TILE_M 8

#define vi_dot(acc, c, q, bits)                                                \
    ((VI)_mm512_dpbusd_epi32((__m512i)(acc), (__m512i)(c), (__m512i)(q)))
#endif
