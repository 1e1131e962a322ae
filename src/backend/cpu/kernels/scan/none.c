/* none.c: running combinations, in portable C. */
#include "scan.h"

#include "backend/cpu/simd_none.h"

#include "scan.inc"
