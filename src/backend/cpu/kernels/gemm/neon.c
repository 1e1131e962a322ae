/* neon.c: rows times columns, for Advanced SIMD. */
#include "gemm.h"

#include "backend/cpu/simd_neon.h"

#include "gemm.inc"
