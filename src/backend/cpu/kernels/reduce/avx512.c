/* avx512.c: reductions, for AVX-512. */
#include "reduce.h"

#include "backend/cpu/simd_avx512.h"

#include "reduce.inc"
