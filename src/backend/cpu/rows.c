/* rows.c: operations along the last axis: norms, softmax, log-sum-exp, the
 * place of the largest element or score, rotary embedding.
 *
 * Threads share rows.  A row that is long and nearly alone, such as the
 * logits of one token, is shared by blocks (kernels/rows/rows.h) whose partial
 * results are joined in order; so the bits never depend on the threads. */
#include "cpu.h"

#include "backend/common/output.h"
#include "backend/common/plan.h"
#include "backend/cpu/kernels/rows/rows.h"
#include "base/alloc.h"
#include "ops/ops.h"
#include "ops/params.h"
#include "pool.h"

#include <math.h>
#include <string.h>

enum { GRAIN = 8192 /* elements that are not shared among threads */ };

/* ---- rows in, rows out ---- */

typedef struct rows_job rows_job;
struct rows_job {
    const qn_rows_kernel *kernel;
    void (*work)(const rows_job *job, float *out, const float *x);
    size_t n;
    float eps;
    const float *weight, *bias;
    qn_plan rows; /* operands output, input; a point per row */
    qn_dtype dtype;
    char *out, *in;
    char *scratch; /* a row of floats per worker, for half types */
    size_t scratch_stride;
};

static void softmax_work(const rows_job *job, float *out, const float *x)
{
    job->kernel->softmax(out, x, job->n);
}

static void rms_norm_work(const rows_job *job, float *out, const float *x)
{
    job->kernel->rms_norm(out, x, job->n, job->eps, job->weight);
}

static void layer_norm_work(const rows_job *job, float *out, const float *x)
{
    job->kernel->layer_norm(out, x, job->n, job->eps, job->weight, job->bias);
}

static void run_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const rows_job *job = ctx;
    int64_t item = (int64_t)qn_dtype_size(job->dtype);
    float *row = NULL;
    if (job->scratch)
        row = (float *)(void *)(job->scratch +
                                (size_t)worker * job->scratch_stride);
    qn_walk walk;
    for (qn_walk_start(&walk, &job->rows, begin, end - begin); walk.left;
         qn_walk_next(&walk)) {
        void *out = job->out + walk.offsets[0] * item;
        const void *in = job->in + walk.offsets[1] * item;
        if (!row) {
            job->work(job, out, in);
            continue;
        }
        qn_cpu_widen(row, in, job->n, job->dtype);
        job->work(job, row, row);
        qn_cpu_narrow(out, row, job->n, job->dtype);
    }
}

qn_status qn_cpu_floats(const float **out, qn_buffer **held,
                        const qn_array *vector, size_t n)
{
    if (vector->dtype == QN_FLOAT32) {
        *out = qn_array_data(vector);
        return QN_OK;
    }
    qn_status status = qn_buffer_new(held, n * sizeof(float));
    if (status)
        return status;
    qn_cpu_widen((*held)->data, qn_array_data(vector), n, vector->dtype);
    *out = (*held)->data;
    return QN_OK;
}

/* Input 0 and the output have one shape and dtype. */
static qn_status map_rows(qn_node *node, rows_job *job)
{
    const qn_array *in = node->inputs[0];
    qn_array *out = node->outputs[0];
    int last = in->ndim - 1;
    qn_buffer *scratch = NULL;
    qn_status status;
    job->kernel = qn_rows_pick();
    job->n = (size_t)in->shape[last];
    job->dtype = in->dtype;
    if (in->dtype != QN_FLOAT32) {
        status = qn_cpu_scratch(&scratch, (size_t)qn_pool_threads(),
                                job->n * sizeof(float), &job->scratch_stride);
        if (status)
            return status;
        job->scratch = scratch->data;
    }
    /* A row is read whole before it is written. */
    status = qn_output_reuse(out, node->inputs, 1);
    if (status)
        goto done;
    qn_lines lines;
    qn_lines_make(&lines, in->shape, in->ndim, last,
                  (const int64_t *[]){out->strides, in->strides}, 2);
    job->rows = lines.outer;
    job->out = qn_array_data(out);
    job->in = qn_array_data(in);
    qn_pool_split(run_rows, job, lines.outer.nruns, GRAIN / job->n + 1, 1);
done:
    if (scratch)
        qn_buffer_unref(scratch);
    return status;
}

qn_status qn_cpu_softmax(qn_node *node, bool *done)
{
    const qn_array *in = node->inputs[0];
    if (!qn_cpu_narrow_float(in->dtype) || !qn_cpu_rows_contiguous(in) ||
        node->outputs[0]->dtype != in->dtype)
        return QN_OK;
    *done = true;
    return map_rows(node, &(rows_job){.work = softmax_work});
}

qn_status qn_cpu_norm(qn_node *node, bool *done)
{
    const qn_norm_params *p = node->params;
    const qn_array *in = node->inputs[0];
    bool rms = node->op == QN_OP_RMS_NORM;
    rows_job job = {.work = rms ? rms_norm_work : layer_norm_work,
                    .eps = p->eps};
    const float **vectors[2];
    qn_buffer *held[2] = {NULL, NULL};
    int count = 0;
    if (p->has_weight)
        vectors[count++] = &job.weight;
    if (p->has_bias)
        vectors[count++] = &job.bias;
    if (!qn_cpu_narrow_float(in->dtype) || !qn_cpu_rows_contiguous(in) ||
        node->outputs[0]->dtype != in->dtype)
        return QN_OK;
    int n = in->shape[in->ndim - 1];
    for (int i = 0; i < count; i++) {
        const qn_array *vector = node->inputs[i + 1];
        if (!qn_cpu_narrow_float(vector->dtype) || vector->ndim != 1 ||
            vector->shape[0] != n || !qn_cpu_rows_contiguous(vector))
            return QN_OK;
    }
    *done = true;
    qn_status status = QN_OK;
    for (int i = 0; i < count && !status; i++)
        status =
            qn_cpu_floats(vectors[i], &held[i], node->inputs[i + 1], (size_t)n);
    if (!status)
        status = map_rows(node, &job);
    for (int i = 0; i < 2; i++)
        if (held[i])
            qn_buffer_unref(held[i]);
    return status;
}

/* ---- rows in, one element out ---- */

typedef struct fold_job fold_job;
struct fold_job {
    const qn_rows_kernel *kernel;
    /* The result of a block: n elements at x. */
    void (*part)(const fold_job *job, float result[2], const float *x,
                 size_t n);
    size_t n, blocks; /* elements and blocks in a row */
    bool max;
    qn_plan rows; /* operand input; a point per row */
    qn_dtype dtype;
    const char *in;
    float (*results)[2]; /* [row, block] */
};

/* The elements of a block as floats. */
static const float *block_floats(const fold_job *job, const char *row,
                                 size_t block, size_t *n, float *space)
{
    size_t first = block * QN_ROWS_BLOCK;
    *n = job->n - first < QN_ROWS_BLOCK ? job->n - first : QN_ROWS_BLOCK;
    const void *at = row + first * qn_dtype_size(job->dtype);
    if (job->dtype == QN_FLOAT32)
        return at;
    qn_cpu_widen(space, at, *n, job->dtype);
    return space;
}

static const char *row_of(const fold_job *job, size_t row)
{
    int64_t offsets[QN_PLAN_OPERANDS];
    qn_plan_offsets(&job->rows, row, offsets);
    return job->in + offsets[0] * (int64_t)qn_dtype_size(job->dtype);
}

static void run_blocks(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const fold_job *job = ctx;
    float space[QN_ROWS_BLOCK];
    for (size_t i = begin; i < end; i++) {
        size_t n;
        const char *row = row_of(job, i / job->blocks);
        const float *x = block_floats(job, row, i % job->blocks, &n, space);
        job->part(job, job->results[i], x, n);
    }
}

/* The largest element and the sum of the exponentials of the distances to it,
 * which is 0 for a block of -inf. */
static void exp_part(const fold_job *job, float result[2], const float *x,
                     size_t n)
{
    result[0] = job->kernel->extreme(x, n, true);
    result[1] = isinf(result[0]) ? 0.0f : job->kernel->exp_sum(x, n, result[0]);
}

/* A row of one block is searched for its place at once, while it is in the
 * cache; of a longer one only the best block is. */
static void best_part(const fold_job *job, float result[2], const float *x,
                      size_t n)
{
    result[0] = job->kernel->extreme(x, n, job->max);
    /* Below QN_ROWS_BLOCK: a float holds it. */
    result[1] = job->blocks == 1
                    ? (float)(int)job->kernel->find(x, n, result[0])
                    : 0.0f;
}

/* The block whose value is best: the first of equal ones, or of NaNs. */
static size_t best_block(const float (*parts)[2], size_t blocks, bool max)
{
    size_t best = 0;
    for (size_t b = 1; b < blocks && !isnan(parts[best][0]); b++) {
        float value = parts[b][0], top = parts[best][0];
        if (isnan(value) || (max ? value > top : value < top))
            best = b;
    }
    return best;
}

static float join_exponentials(const float (*parts)[2], size_t blocks)
{
    float top = parts[best_block(parts, blocks, true)][0], sum = 0;
    if (isinf(top) || isnan(top))
        return top;
    for (size_t b = 0; b < blocks; b++)
        sum += parts[b][1] * expf(parts[b][0] - top);
    return top + logf(sum);
}

/* Fills job->results (in *held) from input 0 of the node. */
static qn_status fold_rows(fold_job *job, qn_buffer **held, const qn_array *in)
{
    int last = in->ndim - 1;
    qn_lines lines;
    size_t count, bytes;
    job->kernel = qn_rows_pick();
    job->n = (size_t)in->shape[last];
    job->blocks = (job->n + QN_ROWS_BLOCK - 1) / QN_ROWS_BLOCK;
    job->dtype = in->dtype;
    job->in = qn_array_data(in);
    qn_lines_make(&lines, in->shape, in->ndim, last,
                  (const int64_t *[]){in->strides}, 1);
    job->rows = lines.outer;
    count = job->rows.nruns * job->blocks;
    if (!qn_mul_size(&bytes, count, sizeof *job->results))
        return qn_fail(QN_E_NOMEM, "cpu: results of %zu blocks", count);
    qn_status status = qn_buffer_new(held, bytes);
    if (status)
        return status;
    job->results = (*held)->data;
    size_t size = job->n < QN_ROWS_BLOCK ? job->n : QN_ROWS_BLOCK;
    qn_pool_split(run_blocks, job, count, GRAIN / size, 1);
    return QN_OK;
}

qn_status qn_cpu_logsumexp(qn_node *node, bool *done)
{
    const qn_array *in = node->inputs[0];
    qn_array *out = node->outputs[0];
    if (!qn_cpu_narrow_float(in->dtype) || !qn_cpu_rows_contiguous(in) ||
        out->dtype != in->dtype)
        return QN_OK;
    *done = true;
    fold_job job = {.part = exp_part};
    qn_buffer *held = NULL;
    qn_status status = fold_rows(&job, &held, in);
    if (!status)
        status = qn_array_alloc(out);
    if (!status) {
        size_t item = qn_array_itemsize(out);
        for (size_t row = 0; row < out->size; row++) {
            float value = join_exponentials(
                (const float(*)[2])job.results + row * job.blocks, job.blocks);
            qn_cpu_narrow((char *)qn_array_data(out) + row * item, &value, 1,
                          out->dtype);
        }
    }
    if (held)
        qn_buffer_unref(held);
    return status;
}

static void max_part(const fold_job *job, float result[2], const float *x,
                     size_t n)
{
    result[0] = job->kernel->extreme(x, n, true);
}

/* round(x - shift) in the type, over x. */
static void score(float *x, size_t n, float shift, qn_dtype type)
{
    uint16_t halves[QN_ROWS_BLOCK];
    for (size_t i = 0; i < n; i++)
        x[i] -= shift;
    if (type == QN_FLOAT32)
        return;
    qn_cpu_narrow(halves, x, n, type);
    qn_cpu_widen(x, halves, n, type);
}

/* The first place of the largest score.  Subtracting and rounding keep the
 * order, so the largest element has it, and so has the first block whose
 * largest element does. */
static uint32_t first_place(const fold_job *job, size_t row, float shift)
{
    const float(*parts)[2] =
        (const float(*)[2])job->results + row * job->blocks;
    float space[QN_ROWS_BLOCK], wanted = -INFINITY;
    size_t block = 0, n;
    if (!isfinite(shift))
        return 0; /* every score is -inf or NaN */
    for (size_t b = 0; b < job->blocks; b++) {
        float best = parts[b][0];
        score(&best, 1, shift, job->dtype);
        if (best > wanted) {
            wanted = best;
            block = b;
        }
    }
    const float *x = block_floats(job, row_of(job, row), block, &n, space);
    if (x != space)
        memcpy(space, x, n * sizeof *x);
    score(space, n, shift, job->dtype);
    size_t at = job->kernel->find(space, n, wanted);
    return at < n ? (uint32_t)(block * QN_ROWS_BLOCK + at) : 0;
}

qn_status qn_cpu_normalized_argmax(qn_node *node, bool *done)
{
    const qn_array *in = node->inputs[0], *lse = node->inputs[1];
    qn_array *out = node->outputs[0];
    if (!qn_cpu_narrow_float(in->dtype) || !qn_cpu_rows_contiguous(in) ||
        lse->dtype != in->dtype || !lse->row_contiguous)
        return QN_OK;
    *done = true;
    fold_job job = {.part = max_part};
    qn_buffer *held = NULL;
    qn_status status = fold_rows(&job, &held, in);
    if (!status)
        status = qn_array_alloc(out);
    if (!status) {
        uint32_t *to = qn_array_data(out);
        size_t item = qn_array_itemsize(lse);
        for (size_t row = 0; row < out->size; row++) {
            float shift;
            qn_cpu_widen(&shift, (char *)qn_array_data(lse) + row * item, 1,
                         lse->dtype);
            to[row] = first_place(&job, row, shift);
        }
    }
    if (held)
        qn_buffer_unref(held);
    return status;
}

qn_status qn_cpu_arg_rows(qn_node *node, bool *done)
{
    const qn_arg_reduce_params *p = node->params;
    const qn_array *in = node->inputs[0];
    qn_array *out = node->outputs[0];
    if (!qn_cpu_narrow_float(in->dtype) || !qn_cpu_rows_contiguous(in) ||
        p->axis != in->ndim - 1)
        return QN_OK;
    *done = true;
    fold_job job = {.part = best_part, .max = p->max};
    qn_buffer *held = NULL;
    qn_status status = fold_rows(&job, &held, in);
    if (!status)
        status = qn_array_alloc(out);
    if (!status) {
        uint32_t *to = qn_array_data(out);
        for (size_t row = 0; row < out->size; row++) {
            const float(*parts)[2] =
                (const float(*)[2])job.results + row * job.blocks;
            if (job.blocks == 1) {
                to[row] = (uint32_t)parts[0][1];
                continue;
            }
            size_t block = best_block(parts, job.blocks, p->max), n;
            float space[QN_ROWS_BLOCK];
            const float *x =
                block_floats(&job, row_of(&job, row), block, &n, space);
            to[row] = (uint32_t)(block * QN_ROWS_BLOCK +
                                 job.kernel->find(x, n, parts[block][0]));
        }
    }
    if (held)
        qn_buffer_unref(held);
    return status;
}

/* ---- rotary embedding ---- */

typedef struct rope_job {
    const qn_rows_kernel *kernel;
    const qn_rope_params *p;
    const qn_array *in, *out;
    const int32_t *offsets; /* NULL: p->offset */
    int64_t offset_step;    /* from batch row to batch row */
    size_t half, width, times;
    float *turn; /* half */
    qn_plan heads;
    /* Per worker: cosines, sines, a row of floats. */
    char *scratch;
    size_t scratch_stride;
} rope_job;

static void rope_turns(const rope_job *job, const qn_array *freqs)
{
    float slope = logf(job->p->base) / (float)job->half;
    for (size_t i = 0; i < job->half; i++) {
        const float *periods = freqs ? qn_array_data(freqs) : NULL;
        job->turn[i] = periods ? 1.0f / periods[(int64_t)i * freqs->strides[0]]
                               : expf(-(float)i * slope);
    }
}

static void rope_row(const rope_job *job, void *out, const void *in,
                     const float *cosine, const float *sine, float *row)
{
    size_t dims = 2 * job->half, item = qn_array_itemsize(job->in);
    bool neighbours = job->p->traditional;
    if (job->in->dtype == QN_FLOAT32) {
        job->kernel->rotate(out, in, cosine, sine, job->half, neighbours);
    } else {
        qn_cpu_widen(row, in, dims, job->in->dtype);
        job->kernel->rotate(row, row, cosine, sine, job->half, neighbours);
        qn_cpu_narrow(out, row, dims, job->in->dtype);
    }
    if (out != in && job->width > dims)
        memcpy((char *)out + dims * item, (const char *)in + dims * item,
               (job->width - dims) * item);
}

/* Positions begin .. end, numbered over batch rows and times. */
static void run_positions(void *ctx, size_t begin, size_t end, int worker)
{
    const rope_job *job = ctx;
    const qn_array *in = job->in, *out = job->out;
    int time = in->ndim - 2;
    int64_t item = (int64_t)qn_array_itemsize(in);
    float *cosine =
        (float *)(void *)(job->scratch + (size_t)worker * job->scratch_stride);
    float *sine = cosine + job->half, *row = sine + job->half;
    for (size_t i = begin; i < end; i++) {
        int64_t b = (int64_t)(i / job->times), t = (int64_t)(i % job->times);
        int32_t offset =
            job->offsets ? job->offsets[b * job->offset_step] : job->p->offset;
        float position = ((float)t + (float)offset) * job->p->scale;
        job->kernel->angles(cosine, sine, position, job->turn, job->half);
        int64_t to = b * out->strides[0] + t * out->strides[time];
        int64_t from = b * in->strides[0] + t * in->strides[time];
        qn_walk walk;
        for (qn_walk_start(&walk, &job->heads, 0, job->heads.nruns); walk.left;
             qn_walk_next(&walk))
            rope_row(job,
                     (char *)qn_array_data(out) + (to + walk.offsets[0]) * item,
                     (const char *)qn_array_data(in) +
                         (from + walk.offsets[1]) * item,
                     cosine, sine, row);
    }
}

static qn_status run_rope(qn_node *node, rope_job *job, const qn_array *freqs)
{
    const qn_array *in = job->in;
    qn_array *out = node->outputs[0];
    int time = in->ndim - 2;
    qn_buffer *turn = NULL, *scratch = NULL;
    qn_status status = qn_buffer_new(&turn, job->half * sizeof(float));
    if (status)
        goto done;
    job->turn = turn->data;
    status =
        qn_cpu_scratch(&scratch, (size_t)qn_pool_threads(),
                       job->half * 4 * sizeof(float), &job->scratch_stride);
    if (status)
        goto done;
    job->scratch = scratch->data;
    /* Both elements of a pair are read before either is written. */
    status = qn_output_reuse(out, node->inputs, 1);
    if (status)
        goto done;
    qn_plan_make(&job->heads, in->shape + 1, time - 1,
                 (const int64_t *[]){out->strides + 1, in->strides + 1}, 2);
    qn_plan_points(&job->heads);
    rope_turns(job, freqs);
    size_t per_position = job->heads.nruns * job->width;
    qn_pool_split(run_positions, job, (size_t)in->shape[0] * job->times,
                  GRAIN / per_position + 1, 1);
done:
    if (turn)
        qn_buffer_unref(turn);
    if (scratch)
        qn_buffer_unref(scratch);
    return status;
}

qn_status qn_cpu_rope(qn_node *node, bool *done)
{
    const qn_rope_params *p = node->params;
    const qn_array *in = node->inputs[0];
    rope_job job = {.kernel = qn_rows_pick(),
                    .p = p,
                    .in = in,
                    .out = node->outputs[0],
                    .half = (size_t)(p->dims / 2)};
    if (!qn_cpu_narrow_float(in->dtype) || !qn_cpu_rows_contiguous(in) ||
        in->ndim < 3)
        return QN_OK;
    job.width = (size_t)in->shape[in->ndim - 1];
    job.times = (size_t)in->shape[in->ndim - 2];
    int next = 1;
    if (p->has_offset_array) {
        const qn_array *offsets = node->inputs[next++];
        if (offsets->dtype != QN_INT32)
            return QN_OK;
        job.offsets = qn_array_data(offsets);
        job.offset_step = offsets->size > 1 ? offsets->strides[0] : 0;
    }
    const qn_array *freqs = p->has_freqs ? node->inputs[next] : NULL;
    if (freqs && freqs->dtype != QN_FLOAT32)
        return QN_OK;
    *done = true;
    return run_rope(node, &job, freqs);
}
