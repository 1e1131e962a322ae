/* rules.c: the table of rules, made of ops.def. */
#include "rules.h"

#include <assert.h>

/* clang-format off */
#define ELEMENTWISE(op) ((op) == QN_OP_SELECT || (op) == QN_OP_ASTYPE)
#define BROADCASTS(op)                                                         \
    ((op) == QN_OP_SELECT || (op) == QN_OP_MATMUL ||                           \
     (op) == QN_OP_QUANTIZED_MATMUL || (op) == QN_OP_GATHER ||                 \
     (op) == QN_OP_GATHER_AXIS || (op) == QN_OP_SCATTER ||                     \
     (op) == QN_OP_SCATTER_AXIS || (op) == QN_OP_SDPA)
#define TALKS(op)                                                              \
    ((op) == QN_OP_ALL_REDUCE || (op) == QN_OP_ALL_GATHER ||                   \
     (op) == QN_OP_SUM_SCATTER || (op) == QN_OP_SEND || (op) == QN_OP_RECV)

static const qn_rules table[QN_OP_COUNT] = {
#define QN_UNARY(id, name, types, result, gradient, element, doc)              \
    [QN_OP_##id] = {qn_##gradient, qn_vmap_front, qn_again_unary,              \
                    true, false, false, false},
#define QN_BINARY(id, name, types, result, gradient, element, doc)             \
    [QN_OP_##id] = {qn_##gradient, qn_vmap_front, qn_again_binary,             \
                    true, true, false, false},
#define QN_REDUCE(id, name, types, gradient, doc)                              \
    [QN_OP_##id] = {qn_##gradient, qn_vmap_reduce, qn_again_reduce,            \
                    false, false, false, false},
#define QN_SCAN(id, name, types, gradient, doc)                                \
    [QN_OP_##id] = {qn_##gradient, qn_vmap_scan, qn_again_scan,                \
                    false, false, false, false},
#define QN_PRIM(id, name, inputs, file, gradient, batch, again, doc)           \
    [QN_OP_##id] = {qn_##gradient, qn_##batch, qn_##again,                     \
                    ELEMENTWISE(QN_OP_##id), BROADCASTS(QN_OP_##id),           \
                    TALKS(QN_OP_##id), QN_OP_##id == QN_OP_MATERIALIZE},
#include "ops.def"
};
/* clang-format on */

const qn_rules *qn_rules_of(int op)
{
    assert(op >= 0 && op < QN_OP_COUNT);
    return &table[op];
}
