/* avx2.c: attention for AVX2 and FMA. */
#include "attention.h"

#include "backend/cpu/simd_avx2.h"

#include "attention.inc"
