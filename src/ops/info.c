/* info.c: the table of operations, made of ops.def. */
#include "ops.h"

#include <assert.h>

/* clang-format off */
static const qn_op_info table[QN_OP_COUNT] = {
#define QN_UNARY(id, name, types, result, gradient, element, doc)              \
    [QN_OP_##id] = {#id, #name, QN_FAMILY_UNARY, QN_UNARY_##id, QN_TYPES_##types,             \
                    QN_RESULT_##result, 1, doc},
#define QN_BINARY(id, name, types, result, gradient, element, doc)             \
    [QN_OP_##id] = {#id, #name, QN_FAMILY_BINARY, QN_BINARY_##id, QN_TYPES_##types,            \
                    QN_RESULT_##result, 2, doc},
#define QN_REDUCE(id, name, types, gradient, doc)                              \
    [QN_OP_##id] = {#id, #name, QN_FAMILY_REDUCE, QN_REDUCE_##id, QN_TYPES_##types,            \
                    QN_RESULT_SAME, 1, doc},
#define QN_SCAN(id, name, types, gradient, doc)                                \
    [QN_OP_##id] = {#id, #name, QN_FAMILY_SCAN, QN_SCAN_##id, QN_TYPES_##types,              \
                    QN_RESULT_SAME, 1, doc},
#define QN_PRIM(id, name, inputs, file, gradient, batch, again, doc)           \
    [QN_OP_##id] = {#id, #name, QN_FAMILY_PRIM, 0, QN_TYPES_ANY,                  \
                    QN_RESULT_SAME, inputs, doc},
#include "ops.def"
};
/* clang-format on */

const qn_op_info *qn_op_info_of(int op)
{
    assert(op >= 0 && op < QN_OP_COUNT);
    return &table[op];
}
