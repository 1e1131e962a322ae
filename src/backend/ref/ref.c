/* ref.c: from an operation's number to its loop. */
#include "ref.h"

#include "loops.h"

typedef qn_status (*node_fn)(qn_node *node);

static const node_fn table[QN_OP_COUNT] = {
/* clang-format off */
#define QN_UNARY(id, ...) [QN_OP_##id] = qn_ref_unary,
#define QN_BINARY(id, ...) [QN_OP_##id] = qn_ref_binary,
#define QN_REDUCE(id, ...) [QN_OP_##id] = qn_ref_reduce,
#define QN_SCAN(id, ...) [QN_OP_##id] = qn_ref_scan,
#define QN_PRIM(id, name, ...) [QN_OP_##id] = qn_ref_##name,
#include "ops/ops.def"
    /* clang-format on */
};

qn_status qn_ref_run(qn_node *node)
{
    if (node->op < 0 || node->op >= QN_OP_COUNT)
        return qn_fail(QN_E_INTERNAL, "operation %d has no loop", node->op);
    return table[node->op](node);
}

qn_status qn_ref_unsupported(const qn_node *node, qn_dtype dtype)
{
    return qn_fail(QN_E_UNSUPPORTED, "[%s] no loop for %s",
                   qn_op_info_of(node->op)->name, qn_dtype_name(dtype));
}

const qn_backend *qn_backend_ref(void)
{
    static const qn_backend backend = {.name = "ref", .run = qn_ref_run};
    return &backend;
}
