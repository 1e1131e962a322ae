/* fused.c: the loops of fused steps: those of the operations themselves. */
#include "fused.h"

#include "loops.h"
#include "stage.h"

#include "base/alloc.h"

#include <string.h>

static bool is_half(qn_dtype dtype)
{
    return dtype == QN_FLOAT16 || dtype == QN_BFLOAT16;
}

/* What an operation would have stored and loaded again. */
static void rounded(qn_dtype dtype, void *values, size_t n)
{
    uint16_t stored[QN_BLOCK];
    float *v = values;
    for (size_t i = 0; i < n && is_half(dtype); i += QN_BLOCK) {
        size_t part = n - i < QN_BLOCK ? n - i : QN_BLOCK;
        qn_values_store(stored, dtype, 1, v + i, part);
        qn_values_load(v + i, dtype, stored, 1, part);
    }
}

static void run_kernel(const qn_fused_loop *loop, size_t n, void *out,
                       const void *const *in, const int *steps)
{
    (void)steps;
    ((qn_ref_kernel)loop->kernel)(n, out, in);
    rounded(loop->to, out, n);
}

static void run_astype(const qn_fused_loop *loop, size_t n, void *out,
                       const void *const *in, const int *steps)
{
    (void)steps;
    qn_dtype from = qn_value_dtype(loop->from), to = qn_value_dtype(loop->to);
    if (from == to) {
        /* Between floats of different width. */
        memmove(out, in[0], n * qn_dtype_size(from));
        rounded(loop->to, out, n);
        return;
    }
    qn_wide wide = qn_wide_of(loop->from);
    size_t size_in = qn_dtype_size(from), size_out = qn_dtype_size(to);
    qn_block block;
    for (size_t i = 0; i < n; i += QN_BLOCK) {
        size_t part = n - i < QN_BLOCK ? n - i : QN_BLOCK;
        uint16_t stored[QN_BLOCK];
        qn_wide_load(&block, from, (const char *)in[0] + i * size_in, 1, part);
        void *at = (char *)out + i * size_out;
        /* Rounded once: straight to the half type. */
        bool half = is_half(loop->to);
        qn_wide_store(half ? (void *)stored : at, loop->to, 1, &block, wide,
                      part);
        if (half)
            qn_values_load(at, loop->to, stored, 1, part);
    }
}

bool qn_ref_fused_bind(qn_fused_loop *loop)
{
    loop->scalars = false;
    if (loop->op == QN_OP_ASTYPE) {
        loop->run = run_astype;
        return true;
    }
    qn_ref_kernel kernel;
    if (loop->op == QN_OP_SELECT)
        kernel = qn_ref_where_kernel(loop->to);
    else if (qn_fused_arity(loop->op) == 1)
        kernel = qn_ref_unary_kernel((qn_op)loop->op, loop->from);
    else
        kernel = qn_ref_binary_kernel((qn_op)loop->op, loop->from);
    loop->run = run_kernel;
    loop->kernel = (void (*)(void))kernel;
    return kernel != NULL;
}

const qn_fused_words qn_ref_fused_words = {
    .bind = qn_ref_fused_bind,
    .load = qn_values_load,
    .store = qn_values_store,
};

qn_status qn_ref_fused(qn_node *node)
{
    qn_fused_job job;
    qn_status status = qn_fused_open(&job, node, &qn_ref_fused_words);
    if (status)
        return status;
    void *scratch = qn_alloc_aligned(64, qn_fused_scratch(job.program));
    if (!scratch)
        return QN_E_NOMEM;
    qn_fused_run(&job, 0, job.plan.size, scratch);
    qn_free(scratch);
    return QN_OK;
}
