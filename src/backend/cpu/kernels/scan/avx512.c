/* avx512.c: running combinations, for AVX-512. */
#include "scan.h"

#include "backend/cpu/simd_avx512.h"

#include "scan.inc"
