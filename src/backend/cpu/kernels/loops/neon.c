/* neon.c: loops of any type, for Advanced SIMD. */
#include "loops.h"

#include "backend/cpu/simd_neon.h"

#include "loops.inc"
