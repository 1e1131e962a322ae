/* avx512.c: transposed blocks, for AVX-512. */
#include "transpose.h"

#include "backend/cpu/simd_avx512.h"

#include "transpose.inc"
