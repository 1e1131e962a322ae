/* avx2.c: heads of gated delta nets, for AVX2 and FMA. */
#include "delta.h"

#include "backend/cpu/simd_avx2.h"

#include "delta.inc"
