/* hadamard.c: Hadamard matrices: the reference's lines on all threads. */
#include "cpu.h"

#include "backend/ref/loops.h"
#include "pool.h"

enum { GRAIN = 4096 };

typedef struct share {
    const qn_node *node;
    char *rooms;
    size_t stride;
} share;

static void run_lines(void *ctx, size_t begin, size_t end, int worker)
{
    const share *s = ctx;
    qn_ref_hadamard_lines(s->node, begin, end - begin,
                          s->rooms + (size_t)worker * s->stride);
}

qn_status qn_cpu_hadamard(qn_node *node, bool *done)
{
    qn_array *out = node->outputs[0];
    size_t n = (size_t)out->shape[out->ndim - 1];
    share s = {.node = node};
    qn_buffer *rooms;
    if (!out->size)
        return QN_OK;
    qn_status status = qn_cpu_scratch(&rooms, (size_t)qn_pool_threads(),
                                      n * sizeof(double), &s.stride);
    if (status)
        return status;
    status = qn_array_alloc(out);
    if (!status) {
        *done = true;
        s.rooms = rooms->data;
        qn_pool_split(run_lines, &s, out->size / n, GRAIN / n + 1, 1);
    }
    qn_buffer_unref(rooms);
    return status;
}
