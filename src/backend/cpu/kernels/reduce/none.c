/* none.c: reductions, in portable C. */
#include "reduce.h"

#include "backend/cpu/simd_none.h"

#include "reduce.inc"
