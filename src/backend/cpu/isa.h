/* isa.h: which rows of a kernels.def this processor can run. */
#ifndef QN_CPU_ISA_H
#define QN_CPU_ISA_H

#include "base/cpu.h"

static inline bool qn_isa_usable(qn_isa isa)
{
    qn_isa have = qn_cpu_isa();
    return isa == QN_ISA_NONE || isa == have ||
           (isa == QN_ISA_AVX2 && have == QN_ISA_AVX512);
}

#endif
