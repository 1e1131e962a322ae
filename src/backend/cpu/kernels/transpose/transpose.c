/* transpose.c: picks the kernel for this processor. */
#include "transpose.h"

#include "backend/cpu/isa.h"

const qn_transpose_kernel *qn_transpose_at(qn_isa isa)
{
#define QN_TRANSPOSE(level, name)                                              \
    if (isa == QN_ISA_##level && qn_isa_usable(isa))                           \
        return &name;
#include "kernels.def"
#undef QN_TRANSPOSE
    return NULL;
}

const qn_transpose_kernel *qn_transpose_pick(void)
{
#define QN_TRANSPOSE(level, name)                                              \
    if (qn_isa_usable(QN_ISA_##level))                                         \
        return &name;
#include "kernels.def"
#undef QN_TRANSPOSE
    return &qn_transpose_none;
}
