/* arg_reduce.c: the place of the largest or smallest element along an axis, on
 * all threads.
 *
 * Rows of narrow floats are shared block by block (rows.c); rows of other types
 * one by one, each block's extreme first and then its place.  Lines that lie
 * side by side are walked row by row in blocks of columns.  The first of
 * equals is one alone, so nothing depends on the threads. */
#include "cpu.h"

#include "backend/common/plan.h"
#include "backend/cpu/kernels/reduce/reduce.h"
#include "backend/ref/stage.h"
#include "ops/params.h"
#include "pool.h"

#include <string.h>

enum {
    BLOCK = 4096,     /* elements of a row between looks at the best */
    GRAIN = 16 * 1024 /* elements that are not shared among threads */
};

typedef struct arg_job {
    const qn_place_loop *place;
    const qn_reduce_loop *extreme;
    const qn_array *in, *out;
    qn_lines lines; /* operand input */
    size_t n, size, blocks, width;
} arg_job;

static void columns_range(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const arg_job *job = ctx;
    const qn_plan *outer = &job->lines.outer;
    uint32_t *out = qn_array_data(job->out);
    for (size_t i = begin; i < end; i++) {
        int64_t at[QN_PLAN_OPERANDS];
        double best[QN_PLACE_COLUMNS];
        size_t run = i / job->blocks, column = i % job->blocks * job->width;
        size_t count = outer->run - column;
        count = count < job->width ? count : job->width;
        qn_plan_offsets(outer, run, at);
        job->place->columns(best, out + run * outer->run + column,
                            qn_element(job->in, at[0] + (int64_t)column), count,
                            job->n, job->lines.step[0]);
    }
}

static uint32_t place_in_row(const arg_job *job, const char *row)
{
    double best[1], top[1]; /* room for any type */
    size_t place = 0, length = 0;
    for (size_t first = 0; first < job->n; first += BLOCK) {
        size_t n = job->n - first < BLOCK ? job->n - first : BLOCK;
        const char *block = row + first * job->size;
        if (!first) {
            job->extreme->start(best, 1);
            job->extreme->rows(best, block, n, 1, 0);
            length = n;
            continue;
        }
        memcpy(top, best, sizeof top);
        job->extreme->rows(best, block, n, 1, 0);
        if (job->place->find(top, 1, best) == 0)
            continue;
        place = first;
        length = n;
    }
    const char *block = row + place * job->size;
    return (uint32_t)(place + job->place->find(block, length, best));
}

static void rows_range(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const arg_job *job = ctx;
    uint32_t *to = (uint32_t *)qn_array_data(job->out) + begin;
    qn_walk walk;
    for (qn_walk_start(&walk, &job->lines.outer, begin, end - begin); walk.left;
         qn_walk_next(&walk))
        *to++ = place_in_row(job, qn_element(job->in, walk.offsets[0]));
}

static void by_columns(arg_job *job)
{
    qn_plan *outer = &job->lines.outer; /* points; now in runs again */
    outer->outer = outer->ndim - 1;
    outer->run = (size_t)outer->shape[outer->outer];
    outer->nruns = outer->size / outer->run;
    /* Fewer columns a block where threads would have none. */
    size_t threads = (size_t)qn_pool_threads();
    job->width = QN_PLACE_COLUMNS;
    while (job->width > 64 && outer->size / job->width < 2 * threads)
        job->width /= 2;
    job->blocks = (outer->run + job->width - 1) / job->width;
    qn_pool_split(columns_range, job, outer->nruns * job->blocks,
                  GRAIN / (job->n * job->width) + 1, 1);
}

qn_status qn_cpu_arg_reduce(qn_node *node, bool *done)
{
    const qn_arg_reduce_params *p = node->params;
    const qn_array *in = node->inputs[0];
    qn_array *out = node->outputs[0];
    qn_status status = qn_cpu_arg_rows(node, done);
    if (status || *done || !in->size)
        return status;
    const qn_reduce_kernel *kernel = qn_reduce_pick();
    arg_job job = {.in = in,
                   .out = out,
                   .n = (size_t)in->shape[p->axis],
                   .size = qn_array_itemsize(in)};
    job.place =
        p->max ? &kernel->largest[in->dtype] : &kernel->smallest[in->dtype];
    job.extreme =
        &kernel->loops[p->max ? QN_REDUCE_MAX : QN_REDUCE_MIN][in->dtype];
    qn_lines_make(&job.lines, in->shape, in->ndim, p->axis,
                  (const int64_t *[]){in->strides}, 1);
    const qn_plan *outer = &job.lines.outer;
    int last = outer->ndim - 1;
    bool columns = job.place->columns && outer->strides[0][last] == 1 &&
                   outer->shape[last] >= 8;
    if (!columns && !(job.place->find && job.lines.step[0] == 1))
        return QN_OK;
    status = qn_array_alloc(out);
    if (status)
        return status;
    *done = true;
    if (columns)
        by_columns(&job);
    else
        qn_pool_split(rows_range, &job, outer->nruns, GRAIN / job.n + 1, 1);
    return QN_OK;
}
