/* avx2.c: rows times rows for AVX2 and FMA: a tile of 3 x 4 vectors. */
#include "rowdot.h"

#include "backend/cpu/simd_avx2.h"

#define TILE_M 3
#define DIRECT_M 2

#include "rowdot.inc"
