/* avx512.c: rows of floats, for AVX-512. */
#include "rows.h"

#include "backend/cpu/simd_avx512.h"

#include "rows.inc"
