/* avx512.c: channels that do not mix, for AVX-512. */
#include "depthwise.h"

#include "backend/cpu/simd_avx512.h"

#include "depthwise.inc"
