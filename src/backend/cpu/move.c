/* move.c: operations that move elements without looking at them: copies,
 * slice updates, concatenation, gathering of rows.
 *
 * All are windows: elements of one shape, read with some strides and written
 * with others.  Runs that are neighbours on both sides are one memcpy; threads
 * share what is large. */
#include "cpu.h"

#include "backend/common/output.h"
#include "backend/common/plan.h"
#include "backend/common/view.h"
#include "ops/ops.h"
#include "ops/params.h"
#include "pool.h"

#include <string.h>

enum { GRAIN_BYTES = 128 * 1024 /* of a copy that is not shared */ };

typedef struct window {
    void *at; /* the first element */
    const int64_t *strides;
} window;

typedef struct copy_job {
    qn_plan plan; /* operands: target, source */
    char *to;
    const char *from;
    size_t item;
} copy_job;

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
        copy_run(job->to + to * item, plan->step[0], job->from + from * item,
                 plan->step[1], n, job->item);
        begin += n;
    }
}

static void copy_window(window to, window from, const int *shape, int ndim,
                        size_t item)
{
    copy_job job = {.to = to.at, .from = from.at, .item = item};
    qn_plan_make(&job.plan, shape, ndim,
                 (const int64_t *[]){to.strides, from.strides}, 2);
    if (job.plan.kind != QN_PLAN_EMPTY)
        qn_pool_split(copy_range, &job, job.plan.size, GRAIN_BYTES / item, 64);
}

static window window_of(const qn_array *array)
{
    return (window){qn_array_data(array), array->strides};
}

static char *element_at(const qn_array *array, int64_t offset)
{
    return (char *)qn_array_data(array) +
           offset * (int64_t)qn_array_itemsize(array);
}

/* ---- views, and the copies behind them ---- */

static qn_status copy_to(qn_array *target, const qn_array *source)
{
    /* Over the source's shape; the target is row-major, so its own shape
     * does not matter. */
    int64_t strides[QN_MAX_NDIM];
    qn_row_strides(strides, source->shape, source->ndim);
    copy_window((window){qn_array_data(target), strides}, window_of(source),
                source->shape, source->ndim, qn_array_itemsize(source));
    return QN_OK;
}

qn_status qn_cpu_view(qn_node *node, bool *done)
{
    *done = true;
    return qn_view_run(node, copy_to);
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
        copy_to(out, source);
    }
    if (!update->size)
        return QN_OK;
    int64_t strides[QN_MAX_NDIM], start = 0;
    for (int axis = 0; axis < out->ndim; axis++) {
        start += p->start[axis] * out->strides[axis];
        strides[axis] = out->strides[axis] * p->strides[axis];
    }
    copy_window((window){element_at(out, start), strides}, window_of(update),
                update->shape, update->ndim, qn_array_itemsize(out));
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
            (window){element_at(out, at * out->strides[p->axis]), out->strides},
            window_of(in), in->shape, in->ndim, qn_array_itemsize(out));
        at += in->shape[p->axis];
    }
    return QN_OK;
}

/* ---- gather of rows ---- */

typedef struct gather_job {
    const qn_array *source, *index, *out;
    qn_plan places; /* operand index; a point per row */
    size_t row_bytes;
} gather_job;

/* Index number `offset` of the storage, counted from the end if negative and
 * moved to the nearest valid place. */
static int64_t index_at(const qn_array *index, int64_t offset, int64_t length)
{
    const void *at = element_at(index, offset);
    int64_t i = 0;
    uint64_t large;
    switch (index->dtype) {
    case QN_INT8:
        i = *(const int8_t *)at;
        break;
    case QN_UINT8:
        i = *(const uint8_t *)at;
        break;
    case QN_INT16:
        i = *(const int16_t *)at;
        break;
    case QN_UINT16:
        i = *(const uint16_t *)at;
        break;
    case QN_INT32:
        i = *(const int32_t *)at;
        break;
    case QN_UINT32:
        i = *(const uint32_t *)at;
        break;
    case QN_INT64:
        i = *(const int64_t *)at;
        break;
    default:
        large = *(const uint64_t *)at;
        i = large > INT64_MAX ? INT64_MAX : (int64_t)large;
        break;
    }
    i += i < 0 ? length : 0;
    return i < 0 ? 0 : i >= length ? length - 1 : i;
}

static void gather_rows(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const gather_job *job = ctx;
    int64_t length = job->source->shape[0], stride = job->source->strides[0];
    qn_walk walk;
    for (qn_walk_start(&walk, &job->places, begin, end - begin); walk.left;
         qn_walk_next(&walk), begin++) {
        int64_t row = index_at(job->index, walk.offsets[0], length);
        memcpy((char *)qn_array_data(job->out) + begin * job->row_bytes,
               element_at(job->source, row * stride), job->row_bytes);
    }
}

/* Whole rows along axis 0, each without gaps. */
static bool whole_rows(const qn_gather_params *p, const qn_array *source)
{
    if (p->naxes != 1 || p->axes[0] != 0 || !source->size ||
        p->slice_sizes[0] != 1)
        return false;
    int64_t filled = 1;
    for (int axis = source->ndim - 1; axis > 0; axis--) {
        if (p->slice_sizes[axis] != source->shape[axis] ||
            (source->shape[axis] > 1 && source->strides[axis] != filled))
            return false;
        filled *= source->shape[axis];
    }
    return true;
}

qn_status qn_cpu_gather(qn_node *node, bool *done)
{
    const qn_array *source = node->inputs[0], *index = node->inputs[1];
    qn_array *out = node->outputs[0];
    if (node->ninputs != 2 || !out->size ||
        !qn_dtype_is_integer(index->dtype) || !whole_rows(node->params, source))
        return QN_OK;
    qn_status status = qn_array_alloc(out);
    if (status)
        return status;
    *done = true;
    gather_job job = {.source = source,
                      .index = index,
                      .out = out,
                      .row_bytes = source->size / (size_t)source->shape[0] *
                                   qn_array_itemsize(source)};
    qn_plan_make(&job.places, index->shape, index->ndim,
                 (const int64_t *[]){index->strides}, 1);
    qn_plan_points(&job.places);
    qn_pool_split(gather_rows, &job, job.places.nruns,
                  GRAIN_BYTES / job.row_bytes + 1, 1);
    return QN_OK;
}
