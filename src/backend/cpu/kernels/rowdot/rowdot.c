/* rowdot.c: picks the kernel for this processor. */
#include "rowdot.h"

#include "backend/cpu/isa.h"

const qn_rowdot_kernel *qn_rowdot_at(qn_isa isa)
{
#define QN_ROWDOT(level, name)                                                 \
    if (isa == QN_ISA_##level && qn_isa_usable(isa))                           \
        return &name;
#include "kernels.def"
#undef QN_ROWDOT
    return NULL;
}

const qn_rowdot_kernel *qn_rowdot_pick(void)
{
#define QN_ROWDOT(level, name)                                                 \
    if (qn_isa_usable(QN_ISA_##level))                                         \
        return &name;
#include "kernels.def"
#undef QN_ROWDOT
    return &qn_rowdot_none;
}
