/* depthwise.c: picks the kernel for this processor. */
#include "depthwise.h"

#include "backend/cpu/isa.h"

qn_depthwise_fn qn_depthwise_pick(void)
{
#define QN_DEPTHWISE(level, name)                                              \
    if (qn_isa_usable(QN_ISA_##level))                                         \
        return name;
#include "kernels.def"
#undef QN_DEPTHWISE
    return qn_depthwise_none;
}
