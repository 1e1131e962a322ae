/* sort.c: order along an axis, on all threads.
 *
 * Elements become keys: unsigned numbers in the elements' order (sort_keys.h),
 * which radix.h sorts.  Short lines are shared among the threads.  A long line
 * is sorted by all of them: cut into chunks, moved into buckets by the
 * highest bits in which its keys differ, bucket after bucket in order.  A
 * stable order is one alone, so nothing depends on the threads.
 *
 * A partition of a long line orders the bucket that the kth element falls into
 * and the shorter side of it; the other buckets are only apart.  Where NaN or
 * -0 are to be restored every bucket is ordered. */
#include "cpu.h"

#include "backend/common/plan.h"
#include "backend/ref/stage.h"
#include "base/alloc.h"
#include "ops/ops.h"
#include "ops/params.h"
#include "pool.h"
#include "radix.h"
#include "sort_keys.h"

#include <string.h>

enum {
    LONG = 32 * 1024, /* lines that are cut */
    CHUNKS = 16,      /* of a long line */
    GROUPS = 64,      /* of buckets, to be shared */
    GRAIN = 4 * 1024  /* elements that are not shared among threads */
};

typedef struct sort_job {
    qn_sort_keys keys;
    size_t n;
    size_t size; /* of an item */
    const qn_array *in, *out;
    qn_lines lines; /* operands output, input */
    /* Short lines: per worker, items, spare ones and counts. */
    char *scratch;
    size_t stride;
    /* A long line. */
    size_t kth; /* only this place has to be right; n: all of them */
    const char *from;
    char *to;
    char *items, *spare;
    int low, high, shift; /* bits: all that differ, those of the bucket */
    uint32_t *counts;     /* [CHUNKS + workers][QN_RADIX_BUCKETS] */
    size_t starts[QN_RADIX_BUCKETS + 1];
    qn_key_facts facts[CHUNKS];
} sort_job;

/* ---- one kind of item or another ---- */

static void sort_range(const sort_job *job, char *items, char *spare, size_t n,
                       int low, int high, uint32_t *counts)
{
    void *a = items, *b = spare;
    if (job->size == sizeof(uint32_t))
        qn_sort_u32(a, b, n, low, high, counts);
    else if (job->size == sizeof(uint64_t))
        qn_sort_u64(a, b, n, low, high, counts);
    else
        qn_sort_wide(a, b, n, low, high, counts);
}

static void count_range(const sort_job *job, const void *items, size_t n,
                        uint32_t *counts)
{
    if (job->size == sizeof(uint32_t))
        qn_count_u32(counts, items, n, job->shift);
    else if (job->size == sizeof(uint64_t))
        qn_count_u64(counts, items, n, job->shift);
    else
        qn_count_wide(counts, items, n, job->shift);
}

static void scatter_range(const sort_job *job, const void *items, size_t n,
                          uint32_t *places)
{
    void *to = job->spare;
    if (job->size == sizeof(uint32_t))
        qn_scatter_u32(to, items, n, job->shift, places);
    else if (job->size == sizeof(uint64_t))
        qn_scatter_u64(to, items, n, job->shift, places);
    else
        qn_scatter_wide(to, items, n, job->shift, places);
}

/* Whether the output needs more than its items. */
static bool restores(const sort_job *job, const qn_key_facts *facts)
{
    return job->keys.restore && (facts->nans || facts->minus_zeros);
}

/* The bits of an item in which keys differ: low .. high - 1. */
static void differing(const sort_job *job, const qn_key_facts *facts, int *low,
                      int *high)
{
    uint64_t differ = facts->any & ~facts->all;
    int base = job->keys.shift;
    *low = *high = base;
    if (differ) {
        *low += __builtin_ctzll(differ);
        *high += 64 - __builtin_clzll(differ);
    }
}

/* ---- short lines ---- */

static void sort_lines(void *ctx, size_t begin, size_t end, int worker)
{
    const sort_job *job = ctx;
    char *items = job->scratch + (size_t)worker * job->stride;
    char *spare = items + job->n * job->size;
    uint32_t *counts = (void *)(spare + job->n * job->size);
    qn_walk walk;
    for (qn_walk_start(&walk, &job->lines.outer, begin, end - begin); walk.left;
         qn_walk_next(&walk)) {
        const char *from = qn_element(job->in, walk.offsets[1]);
        char *to = qn_element(job->out, walk.offsets[0]);
        qn_key_facts facts;
        int low, high;
        job->keys.load(items, from, job->lines.step[1], 0, job->n, &facts);
        differing(job, &facts, &low, &high);
        if (high > low)
            sort_range(job, items, spare, job->n, low, high, counts);
        job->keys.store(to, job->lines.step[0], items, job->n, from,
                        job->lines.step[1]);
        if (restores(job, &facts))
            job->keys.restore(to, job->lines.step[0], from, job->lines.step[1],
                              job->n, facts.nans);
    }
}

static qn_status sort_short(sort_job *job)
{
    qn_buffer *held;
    size_t bytes;
    /* n is below LONG. */
    bytes = 2 * job->n * job->size + QN_RADIX_BUCKETS * sizeof(uint32_t);
    qn_status status =
        qn_cpu_scratch(&held, (size_t)qn_pool_threads(), bytes, &job->stride);
    if (status)
        return status;
    job->scratch = held->data;
    qn_pool_split(sort_lines, job, job->lines.outer.nruns, GRAIN / job->n + 1,
                  1);
    qn_buffer_unref(held);
    return QN_OK;
}

/* ---- a long line ---- */

static void chunk_of(const sort_job *job, size_t chunk, size_t *first,
                     size_t *count)
{
    size_t step = (job->n + CHUNKS - 1) / CHUNKS;
    *first = chunk * step < job->n ? chunk * step : job->n;
    *count = job->n - *first < step ? job->n - *first : step;
}

static void load_chunk(void *ctx, size_t index, int worker)
{
    (void)worker;
    sort_job *job = ctx;
    size_t first, count;
    chunk_of(job, index, &first, &count);
    int64_t step = job->lines.step[1];
    int64_t item = (int64_t)qn_array_itemsize(job->in);
    job->keys.load(job->items + first * job->size,
                   job->from + (int64_t)first * step * item, step, first, count,
                   &job->facts[index]);
}

static void count_chunk(void *ctx, size_t index, int worker)
{
    (void)worker;
    const sort_job *job = ctx;
    uint32_t *counts = job->counts + index * QN_RADIX_BUCKETS;
    size_t first, count;
    chunk_of(job, index, &first, &count);
    memset(counts, 0, QN_RADIX_BUCKETS * sizeof *counts);
    count_range(job, job->items + first * job->size, count, counts);
}

static void scatter_chunk(void *ctx, size_t index, int worker)
{
    (void)worker;
    const sort_job *job = ctx;
    size_t first, count;
    chunk_of(job, index, &first, &count);
    scatter_range(job, job->items + first * job->size, count,
                  job->counts + index * QN_RADIX_BUCKETS);
}

/* Whether the places first .. end - 1, a bucket's, have to be in order. */
static bool needed(const sort_job *job, size_t first, size_t end)
{
    if (job->kth >= job->n || restores(job, job->facts))
        return true;
    return job->kth < job->n / 2 ? first <= job->kth : end > job->kth;
}

/* Orders the buckets that begin in a range of places, and stores them. */
static void sort_group(void *ctx, size_t index, int worker)
{
    const sort_job *job = ctx;
    uint32_t *counts =
        job->counts + (size_t)(CHUNKS + worker) * QN_RADIX_BUCKETS;
    size_t step = (job->n + GROUPS - 1) / GROUPS;
    size_t begin = index * step, end = begin + step;
    int64_t to_item = (int64_t)qn_array_itemsize(job->out);
    for (size_t b = 0; b < QN_RADIX_BUCKETS; b++) {
        size_t first = job->starts[b], n = job->starts[b + 1] - first;
        if (!n || first < begin || first >= end)
            continue;
        char *bucket = job->spare + first * job->size;
        if (job->shift > job->low && needed(job, first, first + n))
            sort_range(job, bucket, job->items + first * job->size, n, job->low,
                       job->shift, counts);
        job->keys.store(job->to + (int64_t)first * job->lines.step[0] * to_item,
                        job->lines.step[0], bucket, n, job->from,
                        job->lines.step[1]);
    }
}

static void join_facts(sort_job *job)
{
    qn_key_facts *facts = job->facts;
    for (int i = 1; i < CHUNKS; i++) {
        facts->any |= facts[i].any;
        facts->all &= facts[i].all;
        facts->nans += facts[i].nans;
        facts->minus_zeros += facts[i].minus_zeros;
    }
    differing(job, facts, &job->low, &job->high);
    job->shift = job->high - QN_RADIX_BITS;
    if (job->shift < job->low)
        job->shift = job->low;
}

/* Counts become places: by bucket, then by chunk. */
static void place_chunks(sort_job *job)
{
    size_t sum = 0;
    for (size_t b = 0; b < QN_RADIX_BUCKETS; b++) {
        job->starts[b] = sum;
        for (size_t c = 0; c < CHUNKS; c++) {
            uint32_t *count = job->counts + c * QN_RADIX_BUCKETS + b;
            uint32_t have = *count;
            *count = (uint32_t)sum;
            sum += have;
        }
    }
    job->starts[QN_RADIX_BUCKETS] = sum;
}

static void sort_long_line(sort_job *job)
{
    qn_pool_run(load_chunk, job, CHUNKS);
    join_facts(job);
    qn_pool_run(count_chunk, job, CHUNKS);
    place_chunks(job);
    qn_pool_run(scatter_chunk, job, CHUNKS);
    qn_pool_run(sort_group, job, GROUPS);
    if (restores(job, job->facts))
        job->keys.restore(job->to, job->lines.step[0], job->from,
                          job->lines.step[1], job->n, job->facts->nans);
}

static qn_status sort_long(sort_job *job)
{
    size_t tables = CHUNKS + (size_t)qn_pool_threads(), bytes;
    if (!qn_mul_size(&bytes, 2 * job->n, job->size))
        return qn_fail(QN_E_NOMEM, "cpu: sorting %zu elements", job->n);
    qn_buffer *items = NULL, *counts = NULL;
    qn_status status = qn_buffer_new(&items, bytes);
    if (!status)
        status = qn_buffer_new(&counts,
                               tables * QN_RADIX_BUCKETS * sizeof(uint32_t));
    if (!status) {
        job->items = items->data;
        job->spare = job->items + job->n * job->size;
        job->counts = counts->data;
        qn_walk walk;
        for (qn_walk_start(&walk, &job->lines.outer, 0, job->lines.outer.nruns);
             walk.left; qn_walk_next(&walk)) {
            job->to = qn_element(job->out, walk.offsets[0]);
            job->from = qn_element(job->in, walk.offsets[1]);
            sort_long_line(job);
        }
    }
    if (items)
        qn_buffer_unref(items);
    if (counts)
        qn_buffer_unref(counts);
    return status;
}

/* ---- nodes ---- */

/* Elements, or uint32 indices, in order along `axis`; kth < 0: all of them. */
static qn_status sort_along(qn_node *node, int axis, int kth, bool indices)
{
    const qn_array *in = node->inputs[0];
    qn_array *out = node->outputs[0];
    qn_status status = qn_array_alloc(out);
    if (status || !out->size)
        return status;
    sort_job job = {.in = in, .out = out, .n = (size_t)in->shape[axis]};
    job.keys = qn_sort_keys_of(in->dtype, indices);
    job.size = job.keys.item;
    job.kth = kth < 0 ? job.n : (size_t)kth;
    qn_lines_make(&job.lines, in->shape, in->ndim, axis,
                  (const int64_t *[]){out->strides, in->strides}, 2);
    return job.n < LONG ? sort_short(&job) : sort_long(&job);
}

qn_status qn_cpu_sort(qn_node *node, bool *done)
{
    const qn_axis_params *p = node->params;
    *done = true;
    return sort_along(node, p->axis, -1, node->op == QN_OP_ARGSORT);
}

qn_status qn_cpu_partition(qn_node *node, bool *done)
{
    const qn_partition_params *p = node->params;
    *done = true;
    return sort_along(node, p->axis, p->kth, node->op == QN_OP_ARGPARTITION);
}
