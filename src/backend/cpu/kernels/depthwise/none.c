/* none.c: channels that do not mix, in portable C. */
#include "depthwise.h"

#include "backend/cpu/simd_none.h"

#include "depthwise.inc"
