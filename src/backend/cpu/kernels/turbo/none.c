/* none.c: the packed KV format, in portable C. */
#include "turbo.h"

#include "backend/cpu/simd_none.h"

#include "turbo.inc"
