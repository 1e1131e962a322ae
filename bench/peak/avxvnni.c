/* avxvnni.c: the limits of one core, for AVX2 with 8-bit dot products. */
#include "peak.h"

#include "backend/cpu/simd_avx2.h"

#undef FN
#define FN(name) name##_avxvnni
#define BYTES __m256i
#define bytes_set1(x) _mm256_set1_epi8((char)(x))
#define bytes_dot(acc, a, b) _mm256_dpbusd_avx_epi32(acc, a, b)
#define BYTES_AGAIN(a) ((void)0)

#include "peak.inc"
