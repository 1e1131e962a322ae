/* avx512.c: attention for AVX-512. */
#include "attention.h"

#include "backend/cpu/simd_avx512.h"

#include "attention.inc"
