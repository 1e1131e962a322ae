/* fft.c: picks the kernel for this processor. */
#include "fft.h"

#include "backend/cpu/isa.h"

const qn_fft_kernel *qn_fft_pick(void)
{
#define QN_FFT(level, name)                                                    \
    if (qn_isa_usable(QN_ISA_##level))                                         \
        return &name;
#include "kernels.def"
#undef QN_FFT
    return &qn_fft_none;
}
