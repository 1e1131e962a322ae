/* avx2.c: rows of floats, for AVX2 and FMA. */
#include "rows.h"

#include "backend/cpu/simd_avx2.h"

#include "rows.inc"
