/* reduce.c: picks the kernel for this processor. */
#include "reduce.h"

#include "backend/cpu/isa.h"

const qn_reduce_kernel *qn_reduce_at(qn_isa isa)
{
#define QN_REDUCE_KERNEL(level, name)                                          \
    if (isa == QN_ISA_##level && qn_isa_usable(isa))                           \
        return &name;
#include "kernels.def"
#undef QN_REDUCE_KERNEL
    return NULL;
}

const qn_reduce_kernel *qn_reduce_pick(void)
{
#define QN_REDUCE_KERNEL(level, name)                                          \
    if (qn_isa_usable(QN_ISA_##level))                                         \
        return &name;
#include "kernels.def"
#undef QN_REDUCE_KERNEL
    return &qn_reduce_none;
}
