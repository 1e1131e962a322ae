/* vnni.c: the limits of one core, for AVX-512 with 8-bit dot products. */
#include "peak.h"

#include "backend/cpu/simd_avx512.h"

#undef FN
#define FN(name) name##_vnni
#define BYTES __m512i
#define bytes_set1(x) _mm512_set1_epi8((char)(x))
#define bytes_dot(acc, a, b) _mm512_dpbusd_epi32(acc, a, b)
#define BYTES_AGAIN(a) ((void)0)

#include "peak.inc"
