/* avx2.c: steps of Fourier transforms, for AVX2 and FMA. */
#include "fft.h"

#include "backend/cpu/simd_avx2.h"

#include "fft.inc"
