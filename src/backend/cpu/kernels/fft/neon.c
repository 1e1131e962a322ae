/* neon.c: steps of Fourier transforms, for NEON. */
#include "fft.h"

#include "backend/cpu/simd_neon.h"

#include "fft.inc"
