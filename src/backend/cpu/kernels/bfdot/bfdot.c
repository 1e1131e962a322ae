/* bfdot.c: picks the kernel for this processor. */
#include "bfdot.h"

#include "backend/cpu/isa.h"

const qn_bfdot_kernel *qn_bfdot_at(qn_isa isa)
{
#define QN_BFDOT(level, name)                                                  \
    if (isa == QN_ISA_##level && qn_isa_usable(isa))                           \
        return &name;
#include "kernels.def"
#undef QN_BFDOT
    (void)isa;
    return NULL;
}

const qn_bfdot_kernel *qn_bfdot_pick(void)
{
#define QN_BFDOT(level, name)                                                  \
    if (qn_isa_usable(QN_ISA_##level))                                         \
        return &name;
#include "kernels.def"
#undef QN_BFDOT
    return NULL;
}
