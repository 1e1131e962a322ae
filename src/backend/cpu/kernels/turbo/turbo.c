/* turbo.c: picks the kernel for this processor. */
#include "turbo.h"

#include "backend/cpu/isa.h"

const qn_turbo_kernel *qn_turbo_at(qn_isa isa)
{
#define QN_TURBO(level, name)                                                  \
    if (isa == QN_ISA_##level && qn_isa_usable(isa))                           \
        return &name;
#include "kernels.def"
#undef QN_TURBO
    return NULL;
}

const qn_turbo_kernel *qn_turbo_pick(void)
{
#define QN_TURBO(level, name)                                                  \
    if (qn_isa_usable(QN_ISA_##level))                                         \
        return &name;
#include "kernels.def"
#undef QN_TURBO
    return &qn_turbo_none;
}
