/* casts.c: picks the loops for this processor. */
#include "casts.h"

#include "backend/cpu/isa.h"
#include "backend/ref/stage.h"

const qn_casts_kernel *qn_casts_at(qn_isa isa)
{
#define QN_CASTS(level, name)                                                  \
    if (isa == QN_ISA_##level && qn_isa_usable(isa))                           \
        return &name;
#include "kernels.def"
#undef QN_CASTS
    return NULL;
}

static const qn_casts_kernel *pick(void)
{
#define QN_CASTS(level, name)                                                  \
    if (qn_isa_usable(QN_ISA_##level))                                         \
        return &name;
#include "kernels.def"
#undef QN_CASTS
    return &qn_casts_none;
}

qn_ref_kernel qn_casts_pick(qn_dtype from, qn_dtype to)
{
    return pick()->cast[qn_value_dtype(from)][to];
}
