/* avx2.c: transposed blocks, for AVX2 and FMA. */
#include "transpose.h"

#include "backend/cpu/simd_avx2.h"

#include "transpose.inc"
