/* none.c: rows of floats, in portable C. */
#include "rows.h"

#include "backend/cpu/simd_none.h"

#include "rows.inc"
