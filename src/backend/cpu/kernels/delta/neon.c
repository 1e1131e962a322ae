/* neon.c: heads of gated delta nets, for NEON. */
#include "delta.h"

#include "backend/cpu/simd_neon.h"

#include "delta.inc"
