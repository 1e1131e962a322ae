/* avx512.c: loops of any type, for AVX-512. */
#include "loops.h"

#include "backend/cpu/simd_avx512.h"

#include "loops.inc"
