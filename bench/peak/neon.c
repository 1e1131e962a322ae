/* neon.c: the limits of one core, for Advanced SIMD. */
#include "peak.h"

#include "backend/cpu/simd_neon.h"

#include "peak.inc"
