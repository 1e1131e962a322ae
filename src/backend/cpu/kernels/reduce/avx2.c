/* avx2.c: reductions, for AVX2 and FMA. */
#include "reduce.h"

#include "backend/cpu/simd_avx2.h"

#include "reduce.inc"
