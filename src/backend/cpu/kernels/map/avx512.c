/* avx512.c: element by element, for AVX-512. */
#include "map.h"

#include "backend/cpu/simd_avx512.h"

#include "map.inc"
