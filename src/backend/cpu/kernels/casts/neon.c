/* neon.c: conversions, for Advanced SIMD. */
#include "casts.h"

#include "backend/cpu/simd_neon.h"

#include "casts.inc"
