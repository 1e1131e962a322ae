/* avx2.c: the limits of one core, for AVX2 and FMA. */
#include "peak.h"

#include "backend/cpu/simd_avx2.h"

#define BYTES __m256i
#define bytes_set1(x) _mm256_set1_epi8((char)(x))
#define bytes_dot(acc, a, b)                                                   \
    _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b),        \
                                            _mm256_set1_epi16(1)))
#define BYTES_AGAIN(a) __asm__ volatile("" : "+x"(a))

#include "peak.inc"
