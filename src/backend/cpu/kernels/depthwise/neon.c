/* neon.c: channels that do not mix, for NEON. */
#include "depthwise.h"

#include "backend/cpu/simd_neon.h"

#include "depthwise.inc"
