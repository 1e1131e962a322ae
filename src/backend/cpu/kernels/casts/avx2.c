/* avx2.c: conversions, for AVX2 and FMA. */
#include "casts.h"

#include "backend/cpu/simd_avx2.h"

#include "casts.inc"
