/* none.c: element by element, in portable C. */
#include "map.h"

#include "backend/cpu/simd_none.h"

#include "map.inc"
