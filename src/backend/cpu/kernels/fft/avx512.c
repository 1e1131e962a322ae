/* avx512.c: steps of Fourier transforms, for AVX-512. */
#include "fft.h"

#include "backend/cpu/simd_avx512.h"

#include "fft.inc"
