/* none.c: conversions, in portable C. */
#include "casts.h"

#include "backend/cpu/simd_none.h"

#include "casts.inc"
