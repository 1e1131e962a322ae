/* rowdot.c: picks the kernel for this processor. */
#include "rowdot.h"

static bool usable(qn_isa isa)
{
    qn_isa have = qn_cpu_isa();
    if (isa == QN_ISA_NONE || isa == have)
        return true;
    return isa == QN_ISA_AVX2 && have == QN_ISA_AVX512;
}

const qn_rowdot_kernel *qn_rowdot_at(qn_isa isa)
{
    if (!usable(isa))
        return NULL;
#define QN_ROWDOT(level, name)                                                 \
    if (isa == QN_ISA_##level)                                                 \
        return &name;
#include "kernels.def"
#undef QN_ROWDOT
    return NULL;
}

const qn_rowdot_kernel *qn_rowdot_pick(void)
{
#define QN_ROWDOT(level, name)                                                 \
    if (usable(QN_ISA_##level))                                                \
        return &name;
#include "kernels.def"
#undef QN_ROWDOT
    return &qn_rowdot_none;
}
