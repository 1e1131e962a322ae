/* attention.c: scaled dot product attention over the attention kernels.
 *
 * The unit of work is a block of rows (queries and heads of one group) that
 * walks over all keys.  When the blocks are too few or too uneven to keep the
 * threads busy, as in decoding, a few chunks of keys are a task: their states
 * go to memory, and are merged afterwards in the order in which a walk would
 * have done it.  Which way is taken changes no bit. */
#include "attention.h"

#include "base/alloc.h"
#include "cpu.h"
#include "ops/params.h"
#include "pool.h"

enum {
    /* Multiply-adds below which waking threads costs more than it saves. */
    SMALL_WORK = 100 * 1000,
    /* Tasks per thread that balance well. */
    TASKS_PER_THREAD = 3,
    SPLIT_TASKS = 6, /* of a few chunks */
    /* Chunks of a task at most, where there are enough: a query is made ready
     * once for them. */
    MAX_SPAN = 8,
    /* Bytes of states that a split may take. */
    MAX_STATES = 64 << 20
};

typedef struct attention_run {
    const qn_attention_kernel *kernel;
    qn_attention_part *parts;
    size_t count;
    size_t span; /* chunks of a task, when chunks are tasks */
    char *scratch;
    size_t scratch_stride;
} attention_run;

static const void *at(const void *base, int64_t elements, qn_dtype type)
{
    return (const char *)base + elements * (int64_t)qn_dtype_size(type);
}

/* The job of head number `head` among batch * kv_heads. */
static qn_attention job_of(const qn_attention_part *part, size_t head)
{
    qn_attention job = part->job;
    int64_t b = (int64_t)(head / part->kv_heads);
    int64_t h = (int64_t)(head % part->kv_heads);
    job.q = at(job.q, b * part->q_batch + h * part->q_group, job.q_type);
    if (job.codes) {
        size_t blocks = (size_t)h * part->packed_head;
        job.keys_packed = qn_kvcodes_after(job.keys_packed, blocks);
        job.values_packed = qn_kvcodes_after(job.values_packed, blocks);
    } else {
        job.k = at(job.k, b * part->k_batch + h * part->k_head, job.k_type);
        job.v = at(job.v, b * part->v_batch + h * part->v_head, job.v_type);
    }
    if (job.mask)
        job.mask = at(job.mask, b * part->mask_batch + h * part->mask_group,
                      job.mask_type);
    if (job.sinks)
        job.sinks += (size_t)h * job.group;
    job.out = (char *)job.out + (b * part->out_batch + h * part->out_group) *
                                    (int64_t)qn_dtype_size(job.out_type);
    return job;
}

static size_t block_end(const qn_attention_part *part, size_t row0)
{
    return part->rows - row0 < part->block ? part->rows : row0 + part->block;
}

/* The part that has task *index, which becomes the number within it. */
static const qn_attention_part *part_of(const attention_run *run, size_t *index)
{
    size_t low = 0, high = run->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (run->parts[middle].first <= *index)
            low = middle;
        else
            high = middle;
    }
    *index -= run->parts[low].first;
    return &run->parts[low];
}

static void run_block(void *ctx, size_t index, int worker)
{
    const attention_run *run = ctx;
    const qn_attention_part *part = part_of(run, &index);
    qn_attention job = job_of(part, index % part->heads);
    /* Causal blocks grow with their number: the long ones go first. */
    size_t row0 = (part->blocks - 1 - index / part->heads) * part->block;
    void *scratch = run->scratch + (size_t)worker * run->scratch_stride;
    run->kernel->run(&job, row0, block_end(part, row0), scratch);
}

static float *states_of(const qn_attention_part *part, size_t head,
                        size_t chunk, size_t row)
{
    return part->states +
           ((head * part->chunks + chunk) * part->rows + row) * part->state;
}

static void run_span(void *ctx, size_t index, int worker)
{
    const attention_run *run = ctx;
    const qn_attention_part *part = part_of(run, &index);
    size_t span = index % part->spans, head = index / part->spans;
    size_t begin = span * run->span, end = begin + run->span;
    size_t row0 = head % part->blocks * part->block;
    head /= part->blocks;
    qn_attention job = job_of(part, head);
    void *scratch = run->scratch + (size_t)worker * run->scratch_stride;
    run->kernel->part(&job, row0, block_end(part, row0), begin,
                      end < part->chunks ? end : part->chunks,
                      states_of(part, head, begin, row0),
                      part->rows * part->state, scratch);
}

/* Rows begin .. end, numbered over all heads of all parts. */
static void merge_rows(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const attention_run *run = ctx;
    while (begin < end) {
        size_t row0 = begin;
        const qn_attention_part *part = part_of(run, &row0);
        size_t head = row0 / part->rows;
        row0 %= part->rows;
        size_t count = part->rows - row0;
        if (count > end - begin)
            count = end - begin;
        qn_attention job = job_of(part, head);
        run->kernel->merge(&job, row0, row0 + count,
                           states_of(part, head, 0, row0),
                           part->rows * part->state);
        begin += count;
    }
}

/* Multiply-adds of all parts, and of the longest block. */
static double measure(const attention_run *run, double *longest)
{
    double all = 0;
    *longest = 0;
    for (size_t i = 0; i < run->count; i++) {
        const qn_attention_part *p = &run->parts[i];
        double row = (double)p->job.keys * (double)(p->job.d + p->job.dv);
        double one = row * (double)p->block;
        all += row * (double)p->heads * (double)p->rows;
        *longest = one > *longest ? one : *longest;
    }
    return all;
}

/* Bytes of the states of all parts; false when they are too many. */
static bool count_states(const attention_run *run, size_t *bytes)
{
    *bytes = 0;
    for (size_t i = 0; i < run->count; i++) {
        const qn_attention_part *p = &run->parts[i];
        size_t one = p->heads * p->chunks;
        if (!qn_mul_size(&one, one, p->rows) ||
            !qn_mul_size(&one, one, p->state * sizeof(float)) ||
            !qn_add_size(bytes, *bytes, one))
            return false;
    }
    return *bytes <= MAX_STATES;
}

static void set_up_part(const attention_run *run, qn_attention_part *p)
{
    p->heads = p->batch * p->kv_heads;
    p->rows = p->job.queries * p->job.group;
    p->block = run->kernel->block(&p->job);
    if (p->block > p->rows)
        p->block = p->rows;
    p->blocks = (p->rows + p->block - 1) / p->block;
    p->chunks = qn_attention_chunks(&p->job);
    p->state = qn_attention_state(&p->job);
}

typedef size_t (*task_count)(const qn_attention_part *part);
static size_t block_tasks(const qn_attention_part *p)
{
    return p->heads * p->blocks;
}
static size_t span_tasks(const qn_attention_part *p)
{
    return p->heads * p->blocks * p->spans;
}
static size_t row_tasks(const qn_attention_part *p)
{
    return p->heads * p->rows;
}

/* Gives each part its tasks; returns how many there are. */
static size_t number_tasks(const attention_run *run, task_count count)
{
    size_t total = 0;
    for (size_t i = 0; i < run->count; i++) {
        run->parts[i].first = total;
        total += count(&run->parts[i]);
    }
    return total;
}

static void run_split(attention_run *run, float *states)
{
    size_t longest = 0, chunks = 0;
    for (size_t i = 0; i < run->count; i++)
        chunks +=
            run->parts[i].heads * run->parts[i].blocks * run->parts[i].chunks;
    size_t tasks = (size_t)qn_pool_threads() * SPLIT_TASKS;
    run->span = chunks < 2 * tasks          ? 1
                : chunks < MAX_SPAN * tasks ? chunks / tasks
                                            : MAX_SPAN;
    for (size_t i = 0; i < run->count; i++) {
        qn_attention_part *p = &run->parts[i];
        p->spans = (p->chunks + run->span - 1) / run->span;
        p->states = states;
        states += p->heads * p->chunks * p->rows * p->state;
        longest = p->chunks > longest ? p->chunks : longest;
    }
    qn_pool_run(run_span, run, number_tasks(run, span_tasks));
    size_t row_work = longest * run->parts[0].state;
    qn_pool_split(merge_rows, run, number_tasks(run, row_tasks),
                  SMALL_WORK / row_work + 1, 1);
}

/* How the work is shared. */
typedef struct shares {
    size_t block; /* rows of the longest */
    bool small;   /* too little for several threads */
    bool chunks;  /* chunks of keys are tasks, if their states fit */
} shares;

static shares share(const attention_run *run)
{
    size_t threads = (size_t)qn_pool_threads();
    shares s = {.block = 0};
    for (size_t i = 0; i < run->count; i++) {
        set_up_part(run, &run->parts[i]);
        if (run->parts[i].block > s.block)
            s.block = run->parts[i].block;
    }
    double longest, work = measure(run, &longest);
    s.small = work < SMALL_WORK;
    s.chunks = !s.small && threads > 1 &&
               longest * (double)(threads * TASKS_PER_THREAD) > work;
    return s;
}

size_t qn_cpu_attention_room(qn_attention_part *part)
{
    attention_run run = {
        .kernel = qn_attention_pick(), .parts = part, .count = 1};
    shares s = share(&run);
    size_t room = run.kernel->scratch(&part->job, s.block) * sizeof(float);
    room *= (size_t)qn_pool_threads();
    if (!s.chunks)
        return room;
    size_t chunk = part->heads * part->rows * part->state * sizeof(float);
    size_t most = MAX_STATES / chunk;
    return room + chunk * (part->chunks < most ? part->chunks : most);
}

qn_status qn_cpu_attend(qn_attention_part *parts, size_t count)
{
    attention_run run = {
        .kernel = qn_attention_pick(), .parts = parts, .count = count};
    size_t threads = (size_t)qn_pool_threads(), bytes = 0;
    shares s = share(&run);
    size_t block = s.block;
    bool small = s.small, split = s.chunks && count_states(&run, &bytes);
    qn_buffer *scratch = NULL, *states = NULL;
    qn_status status = qn_cpu_scratch(
        &scratch, threads,
        run.kernel->scratch(&parts[0].job, block) * sizeof(float),
        &run.scratch_stride);
    if (status)
        return status;
    run.scratch = scratch->data;
    if (split)
        status = qn_buffer_new(&states, bytes);
    if (split && !status) {
        run_split(&run, states->data);
        qn_buffer_unref(states);
    } else if (!status) {
        size_t tasks = number_tasks(&run, block_tasks);
        if (!small)
            qn_pool_run(run_block, &run, tasks);
        for (size_t i = 0; small && i < tasks; i++)
            run_block(&run, i, 0);
    }
    qn_buffer_unref(scratch);
    return status;
}

static bool can_run(const qn_node *node, const qn_sdpa_params *p)
{
    const qn_array *out = node->outputs[0];
    if (!out->size)
        return false;
    for (int i = 0; i < 3; i++)
        if (node->inputs[i]->ndim != 4 ||
            !qn_cpu_narrow_float(node->inputs[i]->dtype) ||
            !qn_cpu_rows_contiguous(node->inputs[i]))
            return false;
    if (p->has_mask) {
        const qn_array *mask = node->inputs[3];
        if (mask->ndim != 4 ||
            (mask->dtype != QN_BOOL && !qn_cpu_narrow_float(mask->dtype)))
            return false;
    }
    return qn_cpu_narrow_float(out->dtype);
}

/* Everything but where the output is. */
static void set_up(qn_attention_part *part, const qn_node *node,
                   const qn_sdpa_params *p)
{
    const qn_array *q = node->inputs[0], *k = node->inputs[1];
    const qn_array *v = node->inputs[2];
    size_t group = (size_t)(q->shape[1] / k->shape[1]);
    *part = (qn_attention_part){.batch = (size_t)q->shape[0],
                                .kv_heads = (size_t)k->shape[1],
                                .q_batch = q->strides[0],
                                .q_group = q->strides[1] * (int64_t)group,
                                .k_batch = k->strides[0],
                                .k_head = k->strides[1],
                                .v_batch = v->strides[0],
                                .v_head = v->strides[1],
                                .job = {.queries = (size_t)q->shape[2],
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
                                        .v_row = v->strides[2]}};
    if (p->has_mask) {
        const qn_array *mask = node->inputs[3];
        part->job.mask = qn_array_data(mask);
        part->job.mask_type = mask->dtype;
        part->job.mask_query = mask->strides[2];
        part->job.mask_head = mask->strides[1];
        part->job.mask_key = mask->strides[3];
        part->mask_batch = mask->strides[0];
        part->mask_group = mask->strides[1] * (int64_t)group;
    }
}

qn_status qn_cpu_sinks(const float **out, qn_buffer **held,
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
    *out = values;
    return QN_OK;
}

qn_status qn_cpu_attention(qn_node *node, bool *done)
{
    const qn_sdpa_params *p = node->params;
    if (!can_run(node, p))
        return QN_OK;
    qn_attention_part part;
    set_up(&part, node, p);
    qn_buffer *sinks = NULL;
    qn_status status = QN_OK;
    if (p->has_sinks) {
        const qn_array *source = node->inputs[3 + p->has_mask];
        if (!qn_cpu_narrow_float(source->dtype) || source->ndim != 1)
            return QN_OK;
        status = qn_cpu_sinks(&part.job.sinks, &sinks, source);
    }
    qn_array *out = node->outputs[0];
    if (!status)
        status = qn_array_alloc(out);
    if (!status) {
        part.job.out = qn_array_data(out);
        part.job.out_type = out->dtype;
        part.job.out_query = out->strides[2];
        part.job.out_head = out->strides[1];
        part.out_batch = out->strides[0];
        part.out_group = out->strides[1] * (int64_t)part.job.group;
        *done = true;
        status = qn_cpu_attend(&part, 1);
    }
    if (sinks)
        qn_buffer_unref(sinks);
    return status;
}
