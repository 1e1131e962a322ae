/* peak.c: which limits belong to which level.  Levels that add nothing to what
 * is measured have those of the one below. */
#include "peak.h"

const peak *peak_at(qn_isa isa)
{
#if defined(__x86_64__)
    if (isa >= QN_ISA_AVX512_VNNI)
        return &peak_vnni;
    if (isa >= QN_ISA_AVX512)
        return &peak_avx512;
    if (isa >= QN_ISA_AVX_VNNI)
        return &peak_avxvnni;
    if (isa >= QN_ISA_AVX2)
        return &peak_avx2;
#elif defined(__aarch64__)
    if (isa >= QN_ISA_NEON_DOT)
        return &peak_neondot;
    if (isa >= QN_ISA_NEON)
        return &peak_neon;
#endif
    return &peak_none;
}

const peak *peak_best(void)
{
    return peak_at(qn_cpu_isa());
}
