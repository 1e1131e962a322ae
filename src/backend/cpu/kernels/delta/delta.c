/* delta.c: picks the kernel for this processor. */
#include "delta.h"

#include "backend/cpu/isa.h"

qn_delta_fn qn_delta_pick(void)
{
#define QN_DELTA(level, name)                                                  \
    if (qn_isa_usable(QN_ISA_##level))                                         \
        return name;
#include "kernels.def"
#undef QN_DELTA
    return qn_delta_none;
}
