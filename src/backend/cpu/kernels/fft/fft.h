/* fft.h: the passes of Fourier transforms (backend/common/fft.h): the
 * reference's loops, compiled for wider vectors.  No multiplication is fused
 * with an addition, so results have the bits of the reference's. */
#ifndef QN_CPU_FFT_H
#define QN_CPU_FFT_H

#include "backend/common/fft.h"

/* The best pass that this processor has; NULL: none but the reference's. */
qn_fft_pass_fn qn_cpu_fft_pick(void);

#define QN_FFT(isa, name) void name(const qn_fft_pass *pass);
#include "kernels.def"
#undef QN_FFT

#endif
