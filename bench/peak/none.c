/* none.c: the limits of one core, in portable C. */
#include "peak.h"

#include "backend/cpu/simd_none.h"

#include "peak.inc"
