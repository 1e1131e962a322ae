/* avx2.c: element by element, for AVX2 and FMA. */
#include "map.h"

#include "backend/cpu/simd_avx2.h"

#include "map.inc"
