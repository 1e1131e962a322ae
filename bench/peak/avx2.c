/* avx2.c: the limits of one core, for AVX2 and FMA. */
#include "peak.h"

#include "backend/cpu/simd_avx2.h"

#include "peak.inc"
