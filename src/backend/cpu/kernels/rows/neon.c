/* neon.c: rows of floats, for Advanced SIMD. */
#include "rows.h"

#include "backend/cpu/simd_neon.h"

#include "rows.inc"
