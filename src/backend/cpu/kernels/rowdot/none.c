/* none.c: rows times rows in portable C. */
#include "rowdot.h"

#include "backend/cpu/simd_none.h"

#define TILE_M 2
#define DIRECT_M 2

#include "rowdot.inc"
