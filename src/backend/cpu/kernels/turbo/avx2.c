/* avx2.c: the packed KV format, for AVX2 and FMA. */
#include "turbo.h"

#include "backend/cpu/simd_avx2.h"

#include "turbo.inc"
