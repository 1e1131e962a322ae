/* scan.c: picks the kernel for this processor. */
#include "scan.h"

#include "backend/cpu/isa.h"

const qn_scan_kernel *qn_scan_at(qn_isa isa)
{
#define QN_SCAN_KERNEL(level, name)                                            \
    if (isa == QN_ISA_##level && qn_isa_usable(isa))                           \
        return &name;
#include "kernels.def"
#undef QN_SCAN_KERNEL
    return NULL;
}

const qn_scan_kernel *qn_scan_pick(void)
{
#define QN_SCAN_KERNEL(level, name)                                            \
    if (qn_isa_usable(QN_ISA_##level))                                         \
        return &name;
#include "kernels.def"
#undef QN_SCAN_KERNEL
    return &qn_scan_none;
}
