/* avx2.c: rows times columns, for AVX2 and FMA. */
#include "gemm.h"

#include "backend/cpu/simd_avx2.h"

#include "gemm.inc"
