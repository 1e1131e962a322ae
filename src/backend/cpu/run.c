/* run.c: the door of the CPU backend: kernel or reference loop. */
#include "cpu.h"

#include "backend/ref/ref.h"
#include "base/alloc.h"
#include "ops/ops.h"

static const qn_cpu_run table[QN_OP_COUNT] = {
/* clang-format off */
#define QN_UNARY(id, ...) [QN_OP_##id] = qn_cpu_unary,
#define QN_BINARY(id, ...) [QN_OP_##id] = qn_cpu_binary,
#include "ops/ops.def"
    /* clang-format on */
    [QN_OP_MATMUL] = qn_cpu_matmul,
    [QN_OP_QUANTIZED_MATMUL] = qn_cpu_quantized_matmul,
    [QN_OP_SDPA] = qn_cpu_attention,
    [QN_OP_SELECT] = qn_cpu_where,
    [QN_OP_ASTYPE] = qn_cpu_astype,
};

static qn_status run(qn_node *node)
{
    qn_cpu_run fast = table[node->op];
    if (fast) {
        bool done = false;
        qn_status status = fast(node, &done);
        if (status || done)
            return status;
    }
    return qn_ref_run(node);
}

const qn_backend *qn_backend_cpu(void)
{
    static const qn_backend backend = {.name = "cpu", .run = run};
    return &backend;
}

qn_status qn_cpu_scratch(qn_buffer **out, size_t count, size_t size,
                         size_t *stride)
{
    size_t step, total;
    if (!qn_add_size(&step, size, 127) ||
        !qn_mul_size(&total, step / 128 * 128, count))
        return qn_fail(QN_E_NOMEM, "cpu: scratch memory of %zu x %zu bytes",
                       count, size);
    *stride = step / 128 * 128;
    return qn_buffer_new(out, total);
}
