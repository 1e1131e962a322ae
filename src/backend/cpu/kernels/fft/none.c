/* none.c: steps of Fourier transforms, in portable C. */
#include "fft.h"

#include "backend/cpu/simd_none.h"

#include "fft.inc"
