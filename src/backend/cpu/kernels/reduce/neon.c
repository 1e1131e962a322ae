/* neon.c: reductions, for Advanced SIMD. */
#include "reduce.h"

#include "backend/cpu/simd_neon.h"

#include "reduce.inc"
