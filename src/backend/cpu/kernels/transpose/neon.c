/* neon.c: transposed blocks, for Advanced SIMD. */
#include "transpose.h"

#include "backend/cpu/simd_neon.h"

#include "transpose.inc"
