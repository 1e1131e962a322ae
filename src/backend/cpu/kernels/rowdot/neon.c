/* neon.c: rows times rows for Advanced SIMD: a tile of 5 x 4 vectors. */
#include "rowdot.h"

#include "backend/cpu/simd_neon.h"

#define TILE_M 5
#define DIRECT_M 4

#include "rowdot.inc"
