/* avx512.c: the limits of one core, for AVX-512. */
#include "peak.h"

#include "backend/cpu/simd_avx512.h"

#include "peak.inc"
