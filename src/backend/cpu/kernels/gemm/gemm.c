/* gemm.c: picks the kernel for this processor. */
#include "gemm.h"

#include "backend/cpu/isa.h"

const qn_gemm_kernel *qn_gemm_at(qn_isa isa)
{
#define QN_GEMM(level, name)                                                   \
    if (isa == QN_ISA_##level && qn_isa_usable(isa))                           \
        return &name;
#include "kernels.def"
#undef QN_GEMM
    return NULL;
}

const qn_gemm_kernel *qn_gemm_pick(void)
{
#define QN_GEMM(level, name)                                                   \
    if (qn_isa_usable(QN_ISA_##level))                                         \
        return &name;
#include "kernels.def"
#undef QN_GEMM
    return &qn_gemm_none;
}
