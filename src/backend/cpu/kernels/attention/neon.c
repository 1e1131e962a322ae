/* neon.c: attention for Advanced SIMD. */
#include "attention.h"

#include "backend/cpu/simd_neon.h"

#include "attention.inc"
