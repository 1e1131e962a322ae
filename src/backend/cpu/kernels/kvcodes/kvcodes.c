/* kvcodes.c: picks the kernel for this processor. */
#include "kvcodes.h"

#include "backend/cpu/isa.h"

const qn_kvcodes_kernel *qn_kvcodes_at(qn_isa isa)
{
#define QN_KVCODES(level, name)                                                \
    if (isa == QN_ISA_##level && qn_isa_usable(isa))                           \
        return &name;
#include "kernels.def"
#undef QN_KVCODES
    return NULL;
}

const qn_kvcodes_kernel *qn_kvcodes_pick(void)
{
#define QN_KVCODES(level, name)                                                \
    if (qn_isa_usable(QN_ISA_##level))                                         \
        return &name;
#include "kernels.def"
#undef QN_KVCODES
    return &qn_kvcodes_none;
}
