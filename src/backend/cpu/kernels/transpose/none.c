/* none.c: transposed blocks, in portable C. */
#include "transpose.h"

#include "backend/cpu/simd_none.h"

#include "transpose.inc"
