/* gather.c: elements and rows at places that an array of indices names.
 *
 * Indices are hostile input: a block of them at a time is read, counted from
 * the end where negative and moved to the nearest valid place; then elements
 * are copied. */
#include "cpu.h"

#include "backend/common/plan.h"
#include "backend/ref/stage.h"
#include "ops/ops.h"
#include "ops/params.h"
#include "pool.h"

#include <string.h>

enum { BLOCK = 256, GRAIN = 8192, GRAIN_BYTES = 128 * 1024 };

/* ---- indices ---- */

#define READ(T)                                                                \
    do {                                                                       \
        const T *from = (const void *)qn_element(index, offset);               \
        for (size_t i = 0; i < n; i++)                                         \
            out[i] = (int64_t)from[(int64_t)i * step];                         \
    } while (0)

/* n places along an axis of `length`, from indices `step` apart. */
static void read_places(int64_t *out, const qn_array *index, int64_t offset,
                        int64_t step, size_t n, int64_t length)
{
    const uint64_t *large;
    switch (index->dtype) {
    case QN_INT8:
        READ(int8_t);
        break;
    case QN_BOOL:
    case QN_UINT8:
        READ(uint8_t);
        break;
    case QN_INT16:
        READ(int16_t);
        break;
    case QN_UINT16:
        READ(uint16_t);
        break;
    case QN_INT32:
        READ(int32_t);
        break;
    case QN_UINT32:
        READ(uint32_t);
        break;
    case QN_INT64:
        READ(int64_t);
        break;
    default:
        large = (const void *)qn_element(index, offset);
        for (size_t i = 0; i < n; i++) {
            uint64_t x = large[(int64_t)i * step];
            out[i] = x > INT64_MAX ? INT64_MAX : (int64_t)x;
        }
        break;
    }
    for (size_t i = 0; i < n; i++) {
        int64_t at = out[i] + (out[i] < 0 ? length : 0);
        out[i] = at < 0 ? 0 : at >= length ? length - 1 : at;
    }
}

/* ---- copies ---- */

#define COPY(size)                                                             \
    for (size_t i = 0; i < n; i++)                                             \
    memcpy(to + (int64_t)i * to_step * (size),                                 \
           from + places[i] * step * (size), size)

/* n elements of `size` bytes. */
static void copy_elements(char *to, int64_t to_step, const char *from,
                          int64_t step, const int64_t *places, size_t n,
                          size_t size)
{
    switch (size) {
    case 1:
        COPY(1);
        break;
    case 2:
        COPY(2);
        break;
    case 4:
        COPY(4);
        break;
    default:
        COPY(8);
        break;
    }
}

/* ---- rows along the first axis ---- */

typedef struct gather_job {
    const qn_array *source, *index, *out;
    qn_plan places; /* operand index */
    size_t row_bytes;
} gather_job;

/* n rows from row number `first` of the output on. */
static void gather_block(const gather_job *job, const int64_t *places,
                         size_t first, size_t n)
{
    size_t bytes = job->row_bytes;
    char *to = (char *)qn_array_data(job->out) + first * bytes;
    const char *from = qn_array_data(job->source);
    int64_t stride = job->source->strides[0];
    size_t item = qn_array_itemsize(job->source);
    if (bytes == item) {
        copy_elements(to, 1, from, stride, places, n, item);
        return;
    }
    for (size_t i = 0; i < n; i++)
        memcpy(to + i * bytes, from + places[i] * stride * (int64_t)item,
               bytes);
}

static void gather_rows(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const gather_job *job = ctx;
    const qn_plan *plan = &job->places;
    size_t run = begin / plan->run, skip = begin % plan->run;
    int64_t places[BLOCK];
    qn_walk walk;
    for (qn_walk_start(&walk, plan, run, plan->nruns - run); begin < end;
         qn_walk_next(&walk), skip = 0)
        while (skip < plan->run && begin < end) {
            size_t n = plan->run - skip, left = end - begin;
            n = n < left ? n : left;
            n = n < BLOCK ? n : BLOCK;
            int64_t offset = walk.offsets[0] + (int64_t)skip * plan->step[0];
            read_places(places, job->index, offset, plan->step[0], n,
                        job->source->shape[0]);
            gather_block(job, places, begin, n);
            begin += n;
            skip += n;
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
    size_t grain = GRAIN_BYTES / job.row_bytes + 1;
    qn_pool_split(gather_rows, &job, job.places.size,
                  grain < GRAIN ? grain : GRAIN, 1);
    return QN_OK;
}

/* ---- one element per index along an axis ---- */

typedef struct along_job {
    const qn_array *source, *index, *out;
    qn_lines lines; /* operands: out, source, index */
    size_t n;       /* indices in a line */
    int64_t length; /* of the source's axis */
} along_job;

/* Asks for a line of the source, in order, before it is read at random.  Only
 * where most of its cache lines will be read, and not too many. */
static void ask_for(const along_job *job, int64_t offset)
{
    enum { LINE = 64, MOST = 64 * 1024 };
    size_t bytes = (size_t)job->length * qn_array_itemsize(job->source);
    if (job->lines.step[1] != 1 || bytes > MOST || job->n * LINE < bytes)
        return;
    const char *line = qn_element(job->source, offset);
    for (size_t i = 0; i < bytes; i += LINE)
        __builtin_prefetch(line + i);
}

/* A whole block of neighbours of 4 bytes at places of 32 bits: loops of a fixed
 * length and narrow places, which the compiler makes vectors of. */
static void gather_words(uint32_t *restrict to, const uint32_t *restrict from,
                         const int32_t *restrict index, int32_t length)
{
    int32_t places[BLOCK];
    for (int i = 0; i < BLOCK; i++) {
        int32_t at = index[i] + (index[i] < 0 ? length : 0);
        at = at < 0 ? 0 : at;
        places[i] = at < length ? at : length - 1;
    }
    for (int i = 0; i < BLOCK; i++)
        to[i] = from[places[i]];
}

static bool is_words(const along_job *job)
{
    const int64_t *step = job->lines.step;
    return job->index->dtype == QN_INT32 && job->length <= INT32_MAX &&
           qn_array_itemsize(job->out) == 4 && step[0] == 1 && step[1] == 1 &&
           step[2] == 1;
}

static void gather_lines(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const along_job *job = ctx;
    const int64_t *step = job->lines.step;
    const bool words = is_words(job);
    int64_t places[BLOCK];
    qn_walk walk, next;
    for (qn_walk_start(&walk, &job->lines.outer, begin, end - begin); walk.left;
         walk = next) {
        next = walk;
        qn_walk_next(&next);
        if (next.left)
            ask_for(job, next.offsets[1]);
        for (size_t first = 0; first < job->n; first += BLOCK) {
            size_t n = job->n - first < BLOCK ? job->n - first : BLOCK;
            int64_t at = (int64_t)first;
            if (words && n == BLOCK) {
                gather_words(
                    (void *)qn_element(job->out, walk.offsets[0] + at),
                    (const void *)qn_element(job->source, walk.offsets[1]),
                    (const void *)qn_element(job->index, walk.offsets[2] + at),
                    (int32_t)job->length);
                continue;
            }
            read_places(places, job->index, walk.offsets[2] + at * step[2],
                        step[2], n, job->length);
            copy_elements(qn_element(job->out, walk.offsets[0] + at * step[0]),
                          step[0], qn_element(job->source, walk.offsets[1]),
                          step[1], places, n, qn_array_itemsize(job->out));
        }
    }
}

qn_status qn_cpu_take_along_axis(qn_node *node, bool *done)
{
    int axis = ((const qn_axis_params *)node->params)->axis;
    const qn_array *source = node->inputs[0], *index = node->inputs[1];
    qn_array *out = node->outputs[0];
    if (!out->size || !source->size || !qn_dtype_is_integer(index->dtype))
        return QN_OK;
    qn_status status = qn_array_alloc(out);
    if (status)
        return status;
    *done = true;
    /* Axes that the source has only once stand still, but for the indexed. */
    int64_t spread[QN_MAX_NDIM];
    for (int i = 0; i < index->ndim; i++)
        spread[i] = source->shape[i] == 1 && i != axis ? 0 : source->strides[i];
    along_job job = {.source = source,
                     .index = index,
                     .out = out,
                     .n = (size_t)index->shape[axis],
                     .length = source->shape[axis]};
    qn_lines_make(&job.lines, index->shape, index->ndim, axis,
                  (const int64_t *[]){out->strides, spread, index->strides}, 3);
    qn_pool_split(gather_lines, &job, job.lines.outer.nruns, GRAIN / job.n + 1,
                  1);
    return QN_OK;
}
