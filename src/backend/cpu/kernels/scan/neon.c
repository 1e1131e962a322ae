/* neon.c: running combinations, for Advanced SIMD. */
#include "scan.h"

#include "backend/cpu/simd_neon.h"

#include "scan.inc"
