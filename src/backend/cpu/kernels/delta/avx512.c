/* avx512.c: heads of gated delta nets, for AVX-512. */
#include "delta.h"

#include "backend/cpu/simd_avx512.h"

#include "delta.inc"
