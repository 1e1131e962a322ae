/* avx2.c: passes of Fourier transforms, for AVX2. */
#include "fft.h"

#define FFT_PASS run_pass
#include "backend/ref/fft.inc"

void qn_fft_pass_avx2(const qn_fft_pass *pass)
{
    run_pass(pass);
}
