/* fused.c: fused steps with vector loops where there are any, else with those
 * of the reference backend: the same choice as for operations on their own, so
 * fusing changes no bit. */
#include "cpu.h"

#include "backend/cpu/kernels/map/map.h"
#include "backend/ref/fused.h"
#include "ops/params.h"
#include "pool.h"

#include <string.h>

enum { GRAIN = 16384 }; /* copies' worth of work that is not split */

static bool is_half(qn_dtype dtype)
{
    return dtype == QN_FLOAT16 || dtype == QN_BFLOAT16;
}

static void load(void *values, qn_dtype dtype, const void *from, int64_t step,
                 size_t n)
{
    if (step == 1 && is_half(dtype))
        qn_cpu_widen(values, from, n, dtype);
    else
        qn_ref_fused_words.load(values, dtype, from, step, n);
}

static void store(void *to, qn_dtype dtype, int64_t step, const void *values,
                  size_t n)
{
    if (step == 1 && is_half(dtype))
        qn_cpu_narrow(to, values, n, dtype);
    else
        qn_ref_fused_words.store(to, dtype, step, values, n);
}

/* What an operation would have stored and loaded again. */
static void rounded(qn_dtype dtype, float *values, size_t n)
{
    uint16_t stored[QN_FUSED_BLOCK];
    if (!is_half(dtype))
        return;
    qn_cpu_narrow(stored, values, n, dtype);
    qn_cpu_widen(values, stored, n, dtype);
}

static void run_unary(const qn_fused_loop *loop, size_t n, void *out,
                      const void *const *in, const int *steps)
{
    (void)steps;
    ((qn_map_unary)loop->kernel)(out, in[0], n);
    rounded(loop->to, out, n);
}

static void run_binary(const qn_fused_loop *loop, size_t n, void *out,
                       const void *const *in, const int *steps)
{
    ((qn_map_binary)loop->kernel)(out, in[0], in[1], n, steps[0], steps[1]);
    rounded(loop->to, out, n);
}

static void run_compare(const qn_fused_loop *loop, size_t n, void *out,
                        const void *const *in, const int *steps)
{
    (void)steps;
    ((qn_map_compare)loop->kernel)(out, in[0], in[1], n, 1, 1);
}

static void run_select(const qn_fused_loop *loop, size_t n, void *out,
                       const void *const *in, const int *steps)
{
    (void)steps;
    ((qn_map_select)loop->kernel)(out, in[0], in[1], in[2], n, 1, 1);
}

static void run_convert(const qn_fused_loop *loop, size_t n, void *out,
                        const void *const *in, const int *steps)
{
    (void)steps;
    if (out != in[0])
        memcpy(out, in[0], n * sizeof(float));
    rounded(loop->to, out, n);
}

/* The vector loop, if there is one. */
static bool bind_vector(qn_fused_loop *loop)
{
    const qn_map_kernel *kernel = qn_map_pick();
    bool floats = qn_map_type(loop->from) >= 0;
    void (*found)(void) = NULL;
    if (loop->op == QN_OP_ASTYPE) {
        loop->run = run_convert;
        return floats && qn_map_type(loop->to) >= 0;
    }
    if (loop->op == QN_OP_SELECT) {
        /* As values; complex64 is not aligned for 64-bit elements. */
        size_t size = is_half(loop->to) ? 4 : qn_dtype_size(loop->to);
        if (loop->to == QN_COMPLEX64)
            return false;
        loop->run = run_select;
        loop->kernel = (void (*)(void))kernel->select[size == 1   ? 0
                                                      : size == 2 ? 1
                                                      : size == 4 ? 2
                                                                  : 3];
        return true;
    }
    if (!floats)
        return false;
    if (qn_fused_arity(loop->op) == 1) {
        /* Results of another type have no vector loop. */
        if (loop->to == loop->from)
            found = (void (*)(void))kernel->unary[loop->op];
        loop->run = run_unary;
    } else if (kernel->binary[loop->op]) {
        found = (void (*)(void))kernel->binary[loop->op];
        loop->run = run_binary;
        loop->scalars = true;
    } else {
        found = (void (*)(void))kernel->compare[loop->op];
        loop->run = run_compare;
    }
    loop->kernel = found;
    return found != NULL;
}

static bool bind(qn_fused_loop *loop)
{
    return bind_vector(loop) || qn_ref_fused_bind(loop);
}

/* ---- threads ---- */

typedef struct shared {
    const qn_fused_job *job;
    char *scratch;
    size_t stride;
} shared;

static void run_range(void *ctx, size_t begin, size_t end, int worker)
{
    const shared *s = ctx;
    qn_fused_run(s->job, begin, end, s->scratch + (size_t)worker * s->stride);
}

/* What one element costs beside a copy. */
static size_t work_of(const qn_fused *program)
{
    size_t work = 0;
    for (int k = 0; k < program->nsteps; k++) {
        int one = qn_map_work((qn_op)program->steps[k].op);
        work += one > 0 ? (size_t)one : 1;
    }
    return work;
}

qn_status qn_cpu_fused(qn_node *node, bool *done)
{
    static const qn_fused_words words = {
        .bind = bind, .load = load, .store = store};
    qn_fused_job job;
    qn_buffer *scratch = NULL;
    shared s = {.job = &job};
    /* Before the job gives the outputs anything. */
    const qn_fused *p = ((const qn_fused_params *)node->params)->program;
    qn_status status = qn_cpu_scratch(&scratch, (size_t)qn_pool_threads(),
                                      qn_fused_scratch(p), &s.stride);
    if (status)
        return status;
    status = qn_fused_open(&job, node, &words);
    if (!status) {
        s.scratch = scratch->data;
        *done = true;
        qn_pool_split(run_range, &s, job.plan.size, GRAIN / work_of(p) + 1, 64);
    }
    qn_buffer_unref(scratch);
    return status;
}
