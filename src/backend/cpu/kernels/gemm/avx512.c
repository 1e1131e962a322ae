/* avx512.c: rows times columns, for AVX-512. */
#include "gemm.h"

#include "backend/cpu/simd_avx512.h"

#include "gemm.inc"
