/* kernel.c: custom kernels on the pool's threads. */
#include "cpu.h"

#include "backend/ref/loops.h"
#include "ops/kernel.h"
#include "pool.h"

typedef struct workers {
    char *scratch;
    size_t stride;
} workers;

typedef struct region {
    const workers *w;
    void (*fn)(void *arg, size_t i, void *scratch);
    void *arg;
} region;

static void run_task(void *ctx, size_t index, int worker)
{
    const region *r = ctx;
    r->fn(r->arg, index, r->w->scratch + (size_t)worker * r->w->stride);
}

static void parallel(void *ctx, size_t n, void (*fn)(void *, size_t, void *),
                     void *arg)
{
    region r = {ctx, fn, arg};
    if (n)
        qn_pool_run(run_task, &r, n);
}

qn_status qn_cpu_kernel(qn_node *node, bool *done)
{
    const qn_kernel_call *call = ((const qn_kernel_params *)node->params)->call;
    workers w;
    qn_buffer *held;
    /* Pieces are cache lines apart and the first is aligned to one. */
    qn_status status =
        qn_cpu_scratch(&held, (size_t)qn_pool_threads(),
                       call->scratch ? call->scratch : 1, &w.stride);
    if (status)
        return status;
    *done = true;
    w.scratch = held->data;
    status = qn_ref_kernel_run(node, w.scratch, parallel, &w);
    qn_buffer_unref(held);
    return status;
}
