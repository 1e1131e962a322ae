/* none.c: heads of gated delta nets, in portable C. */
#include "delta.h"

#include "backend/cpu/simd_none.h"

#include "delta.inc"
