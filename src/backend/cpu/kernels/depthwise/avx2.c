/* avx2.c: channels that do not mix, for AVX2 and FMA. */
#include "depthwise.h"

#include "backend/cpu/simd_avx2.h"

#include "depthwise.inc"
