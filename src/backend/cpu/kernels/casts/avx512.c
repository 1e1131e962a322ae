/* avx512.c: conversions, for AVX-512. */
#include "casts.h"

#include "backend/cpu/simd_avx512.h"

#include "casts.inc"
