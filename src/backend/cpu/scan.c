/* scan.c: running combinations along an axis, on all threads.
 *
 * Lines are apart from one another: threads share them, and lanes are lines.
 * Lines that lie side by side are walked row by row in blocks of columns;
 * lines of neighbours are turned, tile by tile.  Other layouts, other types
 * and log-sum-exps take the reference's loop, line by line. */
#include "cpu.h"

#include "backend/common/output.h"
#include "backend/common/plan.h"
#include "backend/cpu/kernels/scan/scan.h"
#include "backend/ref/loops.h"
#include "backend/ref/stage.h"
#include "ops/ops.h"
#include "ops/params.h"
#include "pool.h"

enum {
    GRAIN = 16 * 1024, /* elements that are not shared among threads */
    TURNED = 4         /* so many lines are worth turning */
};

typedef struct scan_job {
    const qn_node *node;
    const qn_scan_loop *loop;
    const qn_array *in, *out;
    qn_lines lines; /* operands output, input */
    size_t n, blocks, width;
    bool reverse, inclusive;
} scan_job;

static void scan_columns(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const scan_job *job = ctx;
    const qn_plan *outer = &job->lines.outer;
    int64_t out_step = job->lines.step[0], in_step = job->lines.step[1];
    int64_t last = job->reverse ? (int64_t)job->n - 1 : 0;
    for (size_t i = begin; i < end; i++) {
        int64_t at[QN_PLAN_OPERANDS];
        size_t column = i % job->blocks * job->width;
        size_t count = outer->run - column;
        count = count < job->width ? count : job->width;
        qn_plan_offsets(outer, i / job->blocks, at);
        int64_t out = at[0] + (int64_t)column + last * out_step;
        int64_t in = at[1] + (int64_t)column + last * in_step;
        job->loop->columns(
            qn_element(job->out, out), job->reverse ? -out_step : out_step,
            qn_element(job->in, in), job->reverse ? -in_step : in_step, count,
            job->n, job->inclusive);
    }
}

static void scan_lines(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const scan_job *job = ctx;
    qn_walk walk;
    qn_walk_start(&walk, &job->lines.outer, begin, end - begin);
    while (walk.left) {
        void *out[QN_SCAN_LINES];
        const void *in[QN_SCAN_LINES];
        size_t count = 0;
        for (; walk.left && count < QN_SCAN_LINES; qn_walk_next(&walk)) {
            out[count] = qn_element(job->out, walk.offsets[0]);
            in[count++] = qn_element(job->in, walk.offsets[1]);
        }
        job->loop->lines(out, in, count, job->n, job->reverse, job->inclusive);
    }
}

static void scan_one_by_one(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const scan_job *job = ctx;
    qn_ref_scan_lines(job->node, begin, end - begin);
}

/* Neighbouring lines whose elements are neighbours. */
static bool side_by_side(const qn_plan *outer)
{
    int last = outer->ndim - 1;
    return outer->shape[last] >= 8 && outer->strides[0][last] == 1 &&
           outer->strides[1][last] == 1;
}

static void by_columns(scan_job *job)
{
    qn_plan *outer = &job->lines.outer; /* points; now in runs again */
    outer->outer = outer->ndim - 1;
    outer->run = (size_t)outer->shape[outer->outer];
    outer->nruns = outer->size / outer->run;
    /* Fewer columns a block where threads would have none. */
    size_t threads = (size_t)qn_pool_threads();
    job->width = QN_SCAN_COLUMNS;
    while (job->width > 64 && outer->size / job->width < 2 * threads)
        job->width /= 2;
    job->blocks = (outer->run + job->width - 1) / job->width;
    qn_pool_split(scan_columns, job, outer->nruns * job->blocks,
                  GRAIN / (job->n * job->width) + 1, 1);
}

qn_status qn_cpu_scan(qn_node *node, bool *done)
{
    const qn_scan_params *p = node->params;
    const qn_array *in = node->inputs[0];
    qn_array *out = node->outputs[0];
    if (!in->size || !qn_ref_scan_takes(node))
        return QN_OK;
    qn_status status = qn_output_reuse(out, node->inputs, 1);
    if (status)
        return status;
    *done = true;
    scan_job job = {
        .node = node,
        .loop =
            &qn_scan_pick()->loops[qn_op_info_of(node->op)->place][in->dtype],
        .in = in,
        .out = out,
        .n = (size_t)in->shape[p->axis],
        .reverse = p->reverse,
        .inclusive = p->inclusive};
    qn_lines_make(&job.lines, in->shape, in->ndim, p->axis,
                  (const int64_t *[]){out->strides, in->strides}, 2);
    const qn_plan *outer = &job.lines.outer;
    size_t grain = GRAIN / job.n + 1;
    if (job.loop->columns && job.n > 1 && side_by_side(outer))
        by_columns(&job);
    else if (job.loop->lines && job.lines.step[0] == 1 &&
             job.lines.step[1] == 1 && outer->nruns >= TURNED)
        qn_pool_split(scan_lines, &job, outer->nruns,
                      grain < QN_SCAN_LINES ? QN_SCAN_LINES : grain,
                      QN_SCAN_LINES);
    else
        qn_pool_split(scan_one_by_one, &job, outer->nruns, grain, 1);
    return QN_OK;
}
