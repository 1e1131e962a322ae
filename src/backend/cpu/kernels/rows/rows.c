/* rows.c: picks the kernel for this processor. */
#include "rows.h"

#include "backend/cpu/isa.h"

const qn_rows_kernel *qn_rows_at(qn_isa isa)
{
#define QN_ROWS(level, name)                                                   \
    if (isa == QN_ISA_##level && qn_isa_usable(isa))                           \
        return &name;
#include "kernels.def"
#undef QN_ROWS
    return NULL;
}

const qn_rows_kernel *qn_rows_pick(void)
{
#define QN_ROWS(level, name)                                                   \
    if (qn_isa_usable(QN_ISA_##level))                                         \
        return &name;
#include "kernels.def"
#undef QN_ROWS
    return &qn_rows_none;
}
