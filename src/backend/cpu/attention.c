/* attention.c: scaled dot product attention over the attention kernels.
 *
 * The unit of work is a block of rows (queries and heads of one group) that
 * walks over all keys.  When there are too few blocks to keep the threads
 * busy, as in decoding, each chunk of keys is a task too: its state goes to
 * memory, and the states are merged afterwards in the order in which a walk
 * would have done it.  Which way is taken changes no bit. */
#include "cpu.h"

#include "backend/cpu/kernels/attention/attention.h"
#include "base/alloc.h"
#include "ops/params.h"
#include "pool.h"

enum {
    /* Multiply-adds below which waking threads costs more than it saves. */
    SMALL_WORK = 100 * 1000,
    /* Tasks per thread that balance well. */
    TASKS_PER_THREAD = 3,
    /* Bytes of states that a split may take. */
    MAX_STATES = 64 << 20
};

typedef struct attention_run {
    const qn_attention_kernel *kernel;
    qn_attention job;       /* of batch 0 and head 0; offsets come on top */
    size_t kv_heads, heads; /* heads of keys per batch row, and of all */
    int64_t q_batch, q_group, k_batch, k_head, v_batch, v_head;
    int64_t mask_batch, mask_group, out_batch, out_group;
    size_t rows, block, blocks; /* rows of one head of keys */
    char *scratch;
    size_t scratch_stride;
    /* When chunks are tasks: states [head, chunk, row]. */
    float *states;
    size_t chunks, state;
} attention_run;

static const void *at(const void *base, int64_t elements, qn_dtype type)
{
    return (const char *)base + elements * (int64_t)qn_dtype_size(type);
}

/* The job of head number `head` among batch * kv_heads. */
static qn_attention job_of(const attention_run *run, size_t head)
{
    qn_attention job = run->job;
    int64_t b = (int64_t)(head / run->kv_heads);
    int64_t h = (int64_t)(head % run->kv_heads);
    job.q = at(job.q, b * run->q_batch + h * run->q_group, job.q_type);
    job.k = at(job.k, b * run->k_batch + h * run->k_head, job.k_type);
    job.v = at(job.v, b * run->v_batch + h * run->v_head, job.v_type);
    if (job.mask)
        job.mask = at(job.mask, b * run->mask_batch + h * run->mask_group,
                      job.mask_type);
    if (job.sinks)
        job.sinks += (size_t)h * job.group;
    job.out = (char *)job.out + (b * run->out_batch + h * run->out_group) *
                                    (int64_t)qn_dtype_size(job.out_type);
    return job;
}

static size_t block_end(const attention_run *run, size_t row0)
{
    return run->rows - row0 < run->block ? run->rows : row0 + run->block;
}

static void run_block(void *ctx, size_t index, int worker)
{
    const attention_run *run = ctx;
    qn_attention job = job_of(run, index % run->heads);
    /* Causal blocks grow with their number: the long ones go first. */
    size_t row0 = (run->blocks - 1 - index / run->heads) * run->block;
    void *scratch = run->scratch + (size_t)worker * run->scratch_stride;
    run->kernel->run(&job, row0, block_end(run, row0), scratch);
}

static float *states_of(const attention_run *run, size_t head, size_t chunk,
                        size_t row)
{
    return run->states +
           ((head * run->chunks + chunk) * run->rows + row) * run->state;
}

static void run_chunk(void *ctx, size_t index, int worker)
{
    const attention_run *run = ctx;
    size_t chunk = index % run->chunks, head = index / run->chunks;
    size_t row0 = head % run->blocks * run->block;
    head /= run->blocks;
    qn_attention job = job_of(run, head);
    void *scratch = run->scratch + (size_t)worker * run->scratch_stride;
    run->kernel->part(&job, row0, block_end(run, row0), chunk,
                      states_of(run, head, chunk, row0), scratch);
}

/* Rows begin .. end, numbered over all heads. */
static void merge_rows(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const attention_run *run = ctx;
    while (begin < end) {
        size_t head = begin / run->rows, row0 = begin % run->rows;
        size_t count = run->rows - row0;
        if (count > end - begin)
            count = end - begin;
        qn_attention job = job_of(run, head);
        run->kernel->merge(&job, row0, row0 + count,
                           states_of(run, head, 0, row0),
                           run->rows * run->state);
        begin += count;
    }
}

static bool supported(qn_dtype type)
{
    return type == QN_FLOAT32 || type == QN_FLOAT16 || type == QN_BFLOAT16;
}

/* Elements along the last axis are neighbours. */
static bool rows_contiguous(const qn_array *array)
{
    return array->strides[3] == 1 || array->shape[3] == 1;
}

static bool can_run(const qn_node *node, const qn_sdpa_params *p)
{
    const qn_array *out = node->outputs[0];
    if (!out->size || !node->inputs[1]->size || !node->inputs[2]->size)
        return false;
    for (int i = 0; i < 3; i++)
        if (node->inputs[i]->ndim != 4 || !supported(node->inputs[i]->dtype) ||
            !rows_contiguous(node->inputs[i]))
            return false;
    if (p->has_mask) {
        const qn_array *mask = node->inputs[3];
        if (mask->ndim != 4 ||
            (mask->dtype != QN_BOOL && !supported(mask->dtype)))
            return false;
    }
    return supported(out->dtype);
}

/* Everything but where the output is. */
static void set_up(attention_run *run, const qn_node *node,
                   const qn_sdpa_params *p)
{
    const qn_array *q = node->inputs[0], *k = node->inputs[1];
    const qn_array *v = node->inputs[2];
    size_t group = (size_t)(q->shape[1] / k->shape[1]);
    run->kv_heads = (size_t)k->shape[1];
    run->heads = run->kv_heads * (size_t)q->shape[0];
    run->job = (qn_attention){.queries = (size_t)q->shape[2],
                              .group = group,
                              .keys = (size_t)k->shape[2],
                              .d = (size_t)q->shape[3],
                              .dv = (size_t)v->shape[3],
                              .scale = p->scale,
                              .causal = p->causal,
                              .q_type = q->dtype,
                              .k_type = k->dtype,
                              .v_type = v->dtype,
                              .q = qn_array_data(q),
                              .q_query = q->strides[2],
                              .q_head = q->strides[1],
                              .k = qn_array_data(k),
                              .k_row = k->strides[2],
                              .v = qn_array_data(v),
                              .v_row = v->strides[2]};
    run->q_batch = q->strides[0];
    run->q_group = q->strides[1] * (int64_t)group;
    run->k_batch = k->strides[0];
    run->k_head = k->strides[1];
    run->v_batch = v->strides[0];
    run->v_head = v->strides[1];
    if (p->has_mask) {
        const qn_array *mask = node->inputs[3];
        run->job.mask = qn_array_data(mask);
        run->job.mask_type = mask->dtype;
        run->job.mask_query = mask->strides[2];
        run->job.mask_head = mask->strides[1];
        run->job.mask_key = mask->strides[3];
        run->mask_batch = mask->strides[0];
        run->mask_group = mask->strides[1] * (int64_t)group;
    }
    run->rows = run->job.queries * group;
    run->block = run->kernel->block(&run->job);
    if (run->block > run->rows)
        run->block = run->rows;
    run->blocks = (run->rows + run->block - 1) / run->block;
    run->chunks = qn_attention_chunks(&run->job);
    run->state = qn_attention_state(&run->job);
}

/* Sinks become floats, one per query head. */
static qn_status read_sinks(attention_run *run, qn_buffer **held,
                            const qn_array *sinks)
{
    qn_status status = qn_buffer_new(held, sinks->size * sizeof(float));
    if (status)
        return status;
    float *values = (*held)->data;
    for (size_t i = 0; i < sinks->size; i++)
        qn_cpu_widen(values + i,
                     at(qn_array_data(sinks), (int64_t)i * sinks->strides[0],
                        sinks->dtype),
                     1, sinks->dtype);
    run->job.sinks = values;
    return QN_OK;
}

/* Whether the chunks of keys are tasks of their own. */
static bool splits(const attention_run *run, size_t *bytes)
{
    size_t threads = (size_t)qn_pool_threads();
    size_t count = run->heads * run->chunks;
    return threads > 1 && run->chunks > 1 &&
           run->heads * run->blocks < threads * TASKS_PER_THREAD &&
           qn_mul_size(&count, count, run->rows) &&
           qn_mul_size(bytes, count, run->state * sizeof(float)) &&
           *bytes <= MAX_STATES;
}

static qn_status compute(attention_run *run)
{
    qn_buffer *scratch = NULL, *states = NULL;
    size_t bytes = 0;
    const qn_attention *job = &run->job;
    double work = (double)run->heads * (double)run->rows * (double)job->keys *
                  (double)(job->d + job->dv);
    bool small = work < SMALL_WORK, split = !small && splits(run, &bytes);
    qn_status status =
        qn_cpu_scratch(&scratch, (size_t)qn_pool_threads(),
                       run->kernel->scratch(job, run->block) * sizeof(float),
                       &run->scratch_stride);
    if (status)
        return status;
    run->scratch = scratch->data;
    if (split) {
        status = qn_buffer_new(&states, bytes);
        if (status)
            goto done;
        run->states = states->data;
        qn_pool_run(run_chunk, run, run->heads * run->blocks * run->chunks);
        size_t row_work = run->chunks * run->state;
        qn_pool_split(merge_rows, run, run->heads * run->rows,
                      SMALL_WORK / row_work + 1, 1);
    } else if (small) {
        for (size_t i = 0; i < run->heads * run->blocks; i++)
            run_block(run, i, 0);
    } else {
        qn_pool_run(run_block, run, run->heads * run->blocks);
    }
done:
    if (states)
        qn_buffer_unref(states);
    qn_buffer_unref(scratch);
    return status;
}

qn_status qn_cpu_attention(qn_node *node, bool *done)
{
    const qn_sdpa_params *p = node->params;
    if (!can_run(node, p))
        return QN_OK;
    attention_run run = {.kernel = qn_attention_pick()};
    set_up(&run, node, p);
    qn_buffer *sinks = NULL;
    qn_status status = QN_OK;
    if (p->has_sinks) {
        const qn_array *source = node->inputs[3 + p->has_mask];
        if (!supported(source->dtype) || source->ndim != 1)
            return QN_OK;
        status = read_sinks(&run, &sinks, source);
    }
    qn_array *out = node->outputs[0];
    if (!status)
        status = qn_array_alloc(out);
    if (!status) {
        run.job.out = qn_array_data(out);
        run.job.out_type = out->dtype;
        run.job.out_query = out->strides[2];
        run.job.out_head = out->strides[1];
        run.out_batch = out->strides[0];
        run.out_group = out->strides[1] * (int64_t)run.job.group;
        *done = true;
        status = compute(&run);
    }
    if (sinks)
        qn_buffer_unref(sinks);
    return status;
}
