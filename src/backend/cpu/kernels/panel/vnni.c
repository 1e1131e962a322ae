/* vnni.c: products in 8-bit integers for AVX-512 with VNNI. */
#include "panel.h"

#include "backend/cpu/simd_avx512.h"
#include "vnni.h"

#undef FN
#define FN(name) name##_vnni

#include "panel.inc"
