/* avx2.c: running combinations, for AVX2 and FMA. */
#include "scan.h"

#include "backend/cpu/simd_avx2.h"

#include "scan.inc"
