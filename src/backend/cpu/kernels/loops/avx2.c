/* avx2.c: loops of any type, for AVX2 and FMA. */
#include "loops.h"

#include "backend/cpu/simd_avx2.h"

#include "loops.inc"
