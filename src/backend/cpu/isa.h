/* isa.h: which rows of a kernels.def this processor can run. */
#ifndef QN_CPU_ISA_H
#define QN_CPU_ISA_H

#include "base/cpu.h"

static inline bool qn_isa_usable(qn_isa isa)
{
    return qn_cpu_levels() >> isa & 1;
}

#endif
