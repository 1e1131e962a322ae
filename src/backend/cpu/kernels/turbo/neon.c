/* neon.c: the packed KV format, for Advanced SIMD. */
#include "turbo.h"

#include "backend/cpu/simd_neon.h"

#include "turbo.inc"
