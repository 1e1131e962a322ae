/* vnni.c: products with packed keys and values for AVX-512 with VNNI. */
#include "kvcodes.h"
#include "words_avx512.h"

#undef FN
#define FN(name) name##_vnni

#define vi_madd(acc, c, q)                                                     \
    ((VI)_mm512_dpwssd_epi32((__m512i)(acc), (__m512i)(c), (__m512i)(q)))

#include "kvcodes.inc"
