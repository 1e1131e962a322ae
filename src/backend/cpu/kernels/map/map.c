/* map.c: picks the kernel for this processor. */
#include "map.h"

#include "backend/cpu/isa.h"

int qn_map_work(qn_op op)
{
    static const int work[QN_OP_COUNT] = {
#define QN_MAP_UNARY(id, ulp, cost, vector) [QN_OP_##id] = cost,
#define QN_MAP_WIDE(id, ulp, cost, ...) [QN_OP_##id] = cost,
#define QN_MAP_WIDE_BINARY(id, ulp, cost, ...) [QN_OP_##id] = cost,
#define QN_MAP_BINARY(id, vector) [QN_OP_##id] = 1,
#include "functions.def"
    };
    return work[op];
}

const qn_map_kernel *qn_map_at(qn_isa isa)
{
#define QN_MAP(level, name)                                                    \
    if (isa == QN_ISA_##level && qn_isa_usable(isa))                           \
        return &name;
#include "kernels.def"
#undef QN_MAP
    return NULL;
}

const qn_map_kernel *qn_map_pick(void)
{
#define QN_MAP(level, name)                                                    \
    if (qn_isa_usable(QN_ISA_##level))                                         \
        return &name;
#include "kernels.def"
#undef QN_MAP
    return &qn_map_none;
}
