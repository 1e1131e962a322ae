/* avx512.c: the limits of one core, for AVX-512. */
#include "peak.h"

#include "backend/cpu/simd_avx512.h"

#define BYTES __m512i
#define bytes_set1(x) _mm512_set1_epi8((char)(x))
#define bytes_dot(acc, a, b)                                                   \
    _mm512_add_epi32(acc, _mm512_madd_epi16(_mm512_maddubs_epi16(a, b),        \
                                            _mm512_set1_epi16(1)))
#define BYTES_AGAIN(a) __asm__ volatile("" : "+v"(a))

#include "peak.inc"
