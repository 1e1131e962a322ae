/* none.c: attention in portable C. */
#include "attention.h"

#include "backend/cpu/simd_none.h"

#include "attention.inc"
