/* isa.h: which rows of a kernels.def this processor can run. */
#ifndef QN_CPU_ISA_H
#define QN_CPU_ISA_H

#include "base/cpu.h"

static inline bool qn_isa_usable(qn_isa isa)
{
    qn_isa have = qn_cpu_isa();
    /* The levels of one architecture stand in order. */
    return isa == QN_ISA_NONE || isa == have ||
           (have != QN_ISA_NEON && isa < have);
}

#endif
