/* move.c: operations that move elements without looking at them: copies,
 * slice updates, concatenation, values repeated.
 *
 * All are windows: elements of one shape, read with some strides and written
 * with others.  Runs that are neighbours on both sides are one memcpy; where
 * neighbours of the target lie apart in the source, but its own neighbours
 * along another axis, blocks are transposed.  Threads share what is large, and
 * write it around the caches. */
#include "cpu.h"

#include "backend/common/output.h"
#include "backend/common/plan.h"
#include "backend/common/view.h"
#include "backend/cpu/kernels/map/map.h"
#include "backend/cpu/kernels/transpose/transpose.h"
#include "backend/ref/stage.h"
#include "ops/ops.h"
#include "ops/params.h"
#include "pool.h"

#include <string.h>

enum {
    GRAIN_BYTES = 128 * 1024, /* of a copy that is not shared */
    REPEAT_BYTES = 4096       /* written with one memcpy */
};

typedef struct window {
    void *at; /* the first element */
    const int64_t *strides;
} window;

typedef struct copy_job {
    qn_plan plan; /* operands: target, source */
    char *to;
    const char *from;
    size_t item;
    bool stream;
} copy_job;

/* n times the element at `from`: what is there already is copied behind it. */
static void repeat(char *to, const char *from, size_t n, size_t item)
{
    size_t all = n * item, done = item;
    memcpy(to, from, item);
    while (done < all) {
        size_t some = done < REPEAT_BYTES ? done : REPEAT_BYTES;
        some = some < all - done ? some : all - done;
        memcpy(to + done, to, some);
        done += some;
    }
}

/* Sizes spelled out become plain loads and stores. */
#define COPY_STRIDED(size)                                                     \
    for (size_t i = 0; i < n; i++)                                             \
    memcpy(to + (int64_t)i * to_step * (size),                                 \
           from + (int64_t)i * from_step * (size), size)

static void copy_run(char *to, int64_t to_step, const char *from,
                     int64_t from_step, size_t n, size_t item)
{
    if (to_step == 1 && from_step == 1) {
        memcpy(to, from, n * item);
        return;
    }
    if (to_step == 1 && from_step == 0) {
        repeat(to, from, n, item);
        return;
    }
    switch (item) {
    case 1:
        COPY_STRIDED(1);
        break;
    case 2:
        COPY_STRIDED(2);
        break;
    case 4:
        COPY_STRIDED(4);
        break;
    default:
        COPY_STRIDED(8);
        break;
    }
}

/* Elements begin .. end in the order of the plan. */
static void copy_range(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const copy_job *job = ctx;
    const qn_plan *plan = &job->plan;
    int64_t item = (int64_t)job->item;
    size_t run = begin / plan->run, skip = begin % plan->run;
    qn_walk walk;
    for (qn_walk_start(&walk, plan, run, plan->nruns - run); begin < end;
         qn_walk_next(&walk), skip = 0) {
        size_t left = plan->run - skip,
               n = end - begin < left ? end - begin : left;
        int64_t to = walk.offsets[0] + (int64_t)skip * plan->step[0];
        int64_t from = walk.offsets[1] + (int64_t)skip * plan->step[1];
        char *target = job->to + to * item;
        const char *source = job->from + from * item;
        if (job->stream)
            qn_map_pick()->stream(target, source, n * job->item);
        else
            copy_run(target, plan->step[0], source, plan->step[1], n,
                     job->item);
        begin += n;
    }
    if (job->stream)
        qn_map_pick()->fence();
}

/* ---- blocks with two axes exchanged ---- */

typedef struct turn_job {
    const copy_job *copy;
    qn_transpose_block block;
    int side;    /* elements in a row of a block */
    size_t run;  /* along the target's innermost axis */
    size_t rows; /* along the axis in which the source has neighbours */
    int64_t to_row, from_row; /* bytes: target's rows, source's */
    size_t strips;            /* blocks side by side in a run */
    qn_plan outer;            /* the other axes; target, source */
} turn_job;

/* A part of a block: its edges. */
static void turn_edge(const turn_job *job, char *to, const char *from,
                      size_t columns, size_t rows)
{
    int64_t item = (int64_t)job->copy->item;
    for (size_t j = 0; j < rows; j++)
        copy_run(to + (int64_t)j * job->to_row, 1, from + (int64_t)j * item,
                 job->from_row / item, columns, job->copy->item);
}

/* A strip of `side` neighbours in the target, over all rows. */
static void turn_strip(const turn_job *job, char *to, const char *from,
                       size_t columns)
{
    int64_t item = (int64_t)job->copy->item;
    size_t side = (size_t)job->side, row = 0;
    bool lines =
        !(((uintptr_t)to | (uintptr_t)job->to_row) % QN_TRANSPOSE_LINE);
    if (columns == side)
        for (; row + side <= job->rows; row += side)
            job->block(to + (int64_t)row * job->to_row, job->to_row,
                       from + (int64_t)row * item, job->from_row,
                       job->copy->stream && lines);
    if (row < job->rows)
        turn_edge(job, to + (int64_t)row * job->to_row,
                  from + (int64_t)row * item, columns, job->rows - row);
}

static void turn_strips(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const turn_job *job = ctx;
    int64_t item = (int64_t)job->copy->item;
    for (; begin < end; begin++) {
        int64_t offsets[QN_PLAN_OPERANDS];
        qn_plan_offsets(&job->outer, begin / job->strips, offsets);
        size_t column = begin % job->strips * (size_t)job->side;
        size_t left = job->run - column, side = (size_t)job->side;
        turn_strip(job, job->copy->to + (offsets[0] + (int64_t)column) * item,
                   job->copy->from + offsets[1] * item +
                       (int64_t)column * job->from_row,
                   left < side ? left : side);
    }
    qn_transpose_pick()->fence();
}

/* The axis along which the source has neighbours; -1: none, or blocks do not
 * fit. */
static int turned_axis(const qn_plan *plan, int side)
{
    int last = plan->ndim - 1;
    if (plan->step[0] != 1 || plan->step[1] == 1 || plan->run < (size_t)side)
        return -1;
    for (int axis = 0; axis < last; axis++)
        if (plan->strides[1][axis] == 1 && plan->shape[axis] >= side)
            return axis;
    return -1;
}

static bool copy_turned(copy_job *copy)
{
    const qn_plan *plan = &copy->plan;
    turn_job job = {.copy = copy,
                    .side = QN_TRANSPOSE_LINE / (int)copy->item,
                    .run = plan->run};
    int turned = turned_axis(plan, job.side);
    if (turned < 0)
        return false;
    int shape[QN_MAX_NDIM], n = 0;
    int64_t strides[2][QN_MAX_NDIM];
    for (int axis = 0; axis < plan->ndim - 1; axis++) {
        if (axis == turned)
            continue;
        if (plan->shape[axis] > INT32_MAX)
            return false;
        shape[n] = (int)plan->shape[axis];
        strides[0][n] = plan->strides[0][axis];
        strides[1][n++] = plan->strides[1][axis];
    }
    qn_plan_make(&job.outer, shape, n,
                 (const int64_t *[]){strides[0], strides[1]}, 2);
    qn_plan_points(&job.outer);
    int power = copy->item == 1   ? 0
                : copy->item == 2 ? 1
                : copy->item == 4 ? 2
                                  : 3;
    job.block = qn_transpose_pick()->block[power];
    job.rows = (size_t)plan->shape[turned];
    job.to_row = plan->strides[0][turned] * (int64_t)copy->item;
    job.from_row = plan->step[1] * (int64_t)copy->item;
    job.strips = (job.run + (size_t)job.side - 1) / (size_t)job.side;
    qn_pool_split(turn_strips, &job, job.outer.nruns * job.strips,
                  GRAIN_BYTES / (job.rows * QN_TRANSPOSE_LINE) + 1, 1);
    return true;
}

/* ---- windows ---- */

/* `fresh`: nothing of the target is in the caches. */
static void copy_window(window to, window from, const int *shape, int ndim,
                        size_t item, bool fresh)
{
    copy_job job = {.to = to.at, .from = from.at, .item = item};
    qn_plan_make(&job.plan, shape, ndim,
                 (const int64_t *[]){to.strides, from.strides}, 2);
    if (job.plan.kind == QN_PLAN_EMPTY)
        return;
    job.stream = fresh && job.plan.size * item >= QN_CPU_STREAM;
    if (copy_turned(&job))
        return;
    job.stream = job.stream && job.plan.step[0] == 1 && job.plan.step[1] == 1 &&
                 job.plan.run * item >= 1024;
    qn_pool_split(copy_range, &job, job.plan.size, GRAIN_BYTES / item, 64);
}

static window window_of(const qn_array *array)
{
    return (window){qn_array_data(array), array->strides};
}

/* ---- views, and the copies behind them ---- */

qn_status qn_cpu_copy_to(qn_array *target, const qn_array *source)
{
    /* Over the source's shape; the target is row-major, so its own shape
     * does not matter. */
    int64_t strides[QN_MAX_NDIM];
    qn_row_strides(strides, source->shape, source->ndim);
    copy_window((window){qn_array_data(target), strides}, window_of(source),
                source->shape, source->ndim, qn_array_itemsize(source), true);
    return QN_OK;
}

qn_status qn_cpu_view(qn_node *node, bool *done)
{
    *done = true;
    return qn_view_run(node, qn_cpu_copy_to);
}

qn_status qn_cpu_full(qn_node *node, bool *done)
{
    const qn_array *value = node->inputs[0];
    qn_array *out = node->outputs[0];
    qn_status status = qn_array_alloc(out);
    if (status)
        return status;
    *done = true;
    int64_t strides[QN_MAX_NDIM];
    qn_view_broadcast(strides, value, out->shape, out->ndim);
    copy_window(window_of(out), (window){qn_array_data(value), strides},
                out->shape, out->ndim, qn_array_itemsize(out), true);
    return QN_OK;
}

/* ---- slice_update ---- */

qn_status qn_cpu_slice_update(qn_node *node, bool *done)
{
    const qn_slice_update_params *p = node->params;
    qn_array *out = node->outputs[0], *source = node->inputs[0];
    const qn_array *update = node->inputs[1];
    if (p->combine != QN_COMBINE_SET)
        return QN_OK;
    *done = true;
    if (!qn_output_donate(out, source)) {
        qn_status status = qn_array_alloc(out);
        if (status)
            return status;
        qn_cpu_copy_to(out, source);
    }
    if (!update->size)
        return QN_OK;
    int64_t strides[QN_MAX_NDIM], start = 0;
    for (int axis = 0; axis < out->ndim; axis++) {
        start += p->start[axis] * out->strides[axis];
        strides[axis] = out->strides[axis] * p->strides[axis];
    }
    copy_window((window){qn_element(out, start), strides}, window_of(update),
                update->shape, update->ndim, qn_array_itemsize(out), false);
    return QN_OK;
}

/* ---- concatenate ---- */

qn_status qn_cpu_concatenate(qn_node *node, bool *done)
{
    const qn_axis_params *p = node->params;
    qn_array *out = node->outputs[0];
    qn_status status = qn_array_alloc(out);
    if (status)
        return status;
    *done = true;
    int64_t at = 0;
    for (int i = 0; i < node->ninputs; i++) {
        const qn_array *in = node->inputs[i];
        copy_window(
            (window){qn_element(out, at * out->strides[p->axis]), out->strides},
            window_of(in), in->shape, in->ndim, qn_array_itemsize(out), true);
        at += in->shape[p->axis];
    }
    return QN_OK;
}
