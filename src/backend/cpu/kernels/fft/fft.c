/* fft.c: picks the passes for this processor. */
#include "fft.h"

#include "backend/cpu/isa.h"

qn_fft_pass_fn qn_cpu_fft_pick(void)
{
#define QN_FFT(level, name)                                                    \
    if (qn_isa_usable(QN_ISA_##level))                                         \
        return name;
#include "kernels.def"
#undef QN_FFT
    return NULL;
}
