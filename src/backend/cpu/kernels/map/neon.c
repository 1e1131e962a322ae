/* neon.c: element by element, for Advanced SIMD. */
#include "map.h"

#include "backend/cpu/simd_neon.h"

#include "map.inc"
