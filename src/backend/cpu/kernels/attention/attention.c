/* attention.c: picks the kernel for this processor. */
#include "attention.h"

#include "backend/cpu/isa.h"

const qn_attention_kernel *qn_attention_at(qn_isa isa)
{
#define QN_ATTENTION(level, name)                                              \
    if (isa == QN_ISA_##level && qn_isa_usable(isa))                           \
        return &name;
#include "kernels.def"
#undef QN_ATTENTION
    return NULL;
}

const qn_attention_kernel *qn_attention_pick(void)
{
#define QN_ATTENTION(level, name)                                              \
    if (qn_isa_usable(QN_ISA_##level))                                         \
        return &name;
#include "kernels.def"
#undef QN_ATTENTION
    return &qn_attention_none;
}
