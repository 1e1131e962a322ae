/* loops.c: picks the loops for this processor. */
#include "loops.h"

#include "backend/cpu/isa.h"
#include "backend/ref/stage.h"

const qn_loops_kernel *qn_loops_at(qn_isa isa)
{
#define QN_LOOPS(level, name)                                                  \
    if (isa == QN_ISA_##level && qn_isa_usable(isa))                           \
        return &name;
#include "kernels.def"
#undef QN_LOOPS
    return NULL;
}

static const qn_loops_kernel *pick(void)
{
#define QN_LOOPS(level, name)                                                  \
    if (qn_isa_usable(QN_ISA_##level))                                         \
        return &name;
#include "kernels.def"
#undef QN_LOOPS
    return NULL;
}

qn_ref_kernel qn_loops_unary(qn_op op, qn_dtype dtype)
{
    const qn_loops_kernel *kernel = pick();
    const qn_op_info *info = qn_op_info_of(op);
    qn_ref_kernel found = NULL;
    if (kernel && info->family == QN_FAMILY_UNARY)
        found = kernel->unary[info->place][qn_value_dtype(dtype)];
    return found ? found : qn_ref_unary_kernel(op, dtype);
}

qn_ref_kernel qn_loops_binary(qn_op op, qn_dtype dtype)
{
    const qn_loops_kernel *kernel = pick();
    const qn_op_info *info = qn_op_info_of(op);
    qn_ref_kernel found = NULL;
    if (kernel && info->family == QN_FAMILY_BINARY)
        found = kernel->binary[info->place][qn_value_dtype(dtype)];
    return found ? found : qn_ref_binary_kernel(op, dtype);
}
