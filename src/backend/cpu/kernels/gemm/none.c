/* none.c: rows times columns, in portable C. */
#include "gemm.h"

#include "backend/cpu/simd_none.h"

#include "gemm.inc"
