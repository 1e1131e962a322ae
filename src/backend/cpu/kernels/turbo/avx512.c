/* avx512.c: the packed KV format, for AVX-512. */
#include "turbo.h"

#include "backend/cpu/simd_avx512.h"

#include "turbo.inc"
