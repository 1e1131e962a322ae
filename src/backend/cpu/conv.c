/* conv.c: convolutions as matrix products.
 *
 * For a block of output places, the elements that the kernel meets are put
 * together as rows [taps, channels], and these are multiplied with the weight
 * as [taps * channels, outputs] (kernels/gemm).  Where the rows would be the
 * input itself (a kernel of one tap) they are read where they lie.  Channels
 * that do not mix have a kernel of their own (kernels/depthwise).
 *
 * Half types are converted once, the input and the weight before the products
 * and the result after them; float64 is left to the reference.  An element of
 * the result is one sum in an order that depends on the kernel's shape
 * alone. */
#include "cpu.h"

#include "backend/common/plan.h"
#include "backend/cpu/kernels/depthwise/depthwise.h"
#include "backend/cpu/kernels/gemm/gemm.h"
#include "backend/ref/stage.h"
#include "base/alloc.h"
#include "ops/params.h"
#include "pool.h"

#include <string.h>

enum {
    /* Floats of a block of rows: they should stay in a second-level cache. */
    BLOCK_FLOATS = 96 * 1024,
    LEAST_ROWS = 4 * QN_GEMM_ROWS,
    MOST_ROWS = 64 * QN_GEMM_ROWS,
    GRAIN_COPY = 16 * 1024
};

typedef struct conv_job {
    const qn_conv_params *p;
    qn_array *out;
    int ndim;          /* spatial axes */
    const int *kernel; /* their lengths, here and below */
    const int *in, *to;
    size_t taps, groups;
    size_t channels, per_group; /* of the input, as it is stored in x */
    size_t outputs, each;       /* all of them, and of a group */
    size_t rows;                /* output places of all images */
    /* Input: strides in floats, of images and of the spatial axes. */
    const float *x;
    int64_t x_strides[QN_MAX_NDIM];
    bool whole_runs; /* taps along the last axis lie side by side */
    bool as_is;      /* a row is a line of x */
    float *w;        /* [groups, taps, per_group, each] */
    /* Tasks: blocks of rows, and of columns where there are few. */
    size_t block, blocks, columns, splits;
    char *scratch;
    size_t scratch_stride;
} conv_job;

/* ---- operands as floats ---- */

typedef struct stage_job {
    const qn_array *x;
    qn_lines lines; /* operand: x; a line per place */
    float *to;
    size_t channels, repeat;
} stage_job;

/* Lines of channels; `repeat` copies of each channel side by side. */
static void stage_lines(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const stage_job *job = ctx;
    size_t n = job->channels;
    float *to = job->to + begin * n * job->repeat;
    qn_walk walk;
    for (qn_walk_start(&walk, &job->lines.outer, begin, end - begin); walk.left;
         qn_walk_next(&walk), to += n * job->repeat) {
        const void *from = qn_element(job->x, walk.offsets[0]);
        qn_values_load(to, job->x->dtype, from, job->lines.step[0], n);
        for (size_t i = n; job->repeat > 1 && i-- > 0;)
            for (size_t r = job->repeat; r-- > 0;)
                to[i * job->repeat + r] = to[i];
    }
}

/* The input, where it lies if that will do. */
static qn_status stage_input(conv_job *job, qn_buffer **held, const qn_array *x,
                             size_t repeat)
{
    int last = x->ndim - 1;
    if (x->dtype == QN_FLOAT32 && repeat == 1 &&
        (x->strides[last] == 1 || x->shape[last] == 1)) {
        job->x = qn_array_data(x);
        memcpy(job->x_strides, x->strides, (size_t)last * sizeof *x->strides);
        return QN_OK;
    }
    size_t bytes;
    if (!qn_mul_size(&bytes, x->size, repeat * sizeof(float)))
        return qn_fail(QN_E_NOMEM, "[conv] %zu x %zu floats", x->size, repeat);
    qn_status status = qn_buffer_new(held, bytes);
    if (status)
        return status;
    stage_job stage = {.x = x,
                       .to = (*held)->data,
                       .channels = (size_t)x->shape[last],
                       .repeat = repeat};
    qn_lines_make(&stage.lines, x->shape, x->ndim, last,
                  (const int64_t *[]){x->strides}, 1);
    qn_pool_split(stage_lines, &stage, stage.lines.outer.nruns,
                  GRAIN_COPY / (stage.channels * repeat) + 1, 1);
    job->x = stage.to;
    int64_t step = (int64_t)job->channels;
    for (int i = last - 1; i >= 0; i--) {
        job->x_strides[i] = step;
        step *= x->shape[i];
    }
    return QN_OK;
}

/* Moves an index over `shape` to the next place. */
static void next_place(int *index, const int *shape, int ndim)
{
    for (int i = ndim - 1; i >= 0; i--) {
        if (++index[i] < shape[i])
            return;
        index[i] = 0;
    }
}

typedef struct weight_job {
    const conv_job *job;
    const qn_array *w;
} weight_job;

/* Taps begin .. end, turned around if the kernel is flipped: each output's
 * channels become a column. */
static void stage_taps(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    enum { CHUNK = 64 };
    const conv_job *job = ((const weight_job *)ctx)->job;
    const qn_array *w = ((const weight_job *)ctx)->w;
    size_t n = (size_t)w->shape[w->ndim - 1];
    int64_t along = w->strides[w->ndim - 1];
    for (size_t t = begin; t < end; t++) {
        int64_t at = 0;
        size_t left = job->p->flip ? job->taps - 1 - t : t;
        for (int i = job->ndim - 1; i >= 0; i--) {
            at += (int64_t)(left % (size_t)job->kernel[i]) * w->strides[i + 1];
            left /= (size_t)job->kernel[i];
        }
        for (size_t o = 0; o < job->outputs; o++) {
            size_t group = o / job->each, column = o % job->each;
            float *to = job->w +
                        (group * job->taps + t) * job->per_group * job->each +
                        column;
            for (size_t c = 0; c < n; c += CHUNK) {
                size_t count = n - c < CHUNK ? n - c : CHUNK;
                float block[CHUNK];
                int64_t from = at + (int64_t)o * w->strides[0];
                qn_values_load(block, w->dtype,
                               qn_element(w, from + (int64_t)c * along), along,
                               count);
                for (size_t i = 0; i < count; i++)
                    to[(c + i) * job->each] = block[i];
            }
        }
    }
}

/* ---- what the kernel meets ---- */

/* Where tap `tap` of output place `index` (image first) meets the input; NULL
 * on the border and between elements. */
static const float *met_at(const conv_job *job, const int *index,
                           const int *tap)
{
    const qn_conv_params *p = job->p;
    int64_t at = index[0] * job->x_strides[0];
    for (int i = 0; i < job->ndim; i++) {
        int64_t place = (int64_t)index[i + 1] * p->stride[i] +
                        (int64_t)tap[i] * p->dilation[i] - p->low[i];
        int64_t spread = p->in_dilation[i];
        if (place < 0)
            return NULL;
        if (spread > 1) {
            if (place % spread)
                return NULL;
            place /= spread;
        }
        if (place >= job->in[i])
            return NULL;
        at += place * job->x_strides[i + 1];
    }
    return job->x + at;
}

/* A row whose taps along the last axis lie side by side: a copy for each place
 * of the other axes. */
static void fill_runs(const conv_job *job, const int *index, float *to)
{
    int last = job->ndim - 1, tap[QN_MAX_NDIM] = {0};
    size_t taps = (size_t)job->kernel[last], line = taps * job->channels;
    int64_t first =
        (int64_t)index[last + 1] * job->p->stride[last] - job->p->low[last];
    int64_t begin = first < 0 ? -first : 0, end = job->in[last] - first;
    if (end > (int64_t)taps)
        end = (int64_t)taps;
    for (size_t done = 0; done < job->taps; done += taps, to += line) {
        const float *from = NULL;
        if (begin < end) {
            tap[last] = (int)begin;
            from = met_at(job, index, tap);
            tap[last] = 0;
        }
        if (!from) {
            memset(to, 0, line * sizeof *to);
        } else {
            size_t head = (size_t)begin * job->channels;
            size_t body = (size_t)(end - begin) * job->channels;
            memset(to, 0, head * sizeof *to);
            memcpy(to + head, from, body * sizeof *to);
            memset(to + head + body, 0, (line - head - body) * sizeof *to);
        }
        next_place(tap, job->kernel, last);
    }
}

/* Rows first .. first + count - 1 for one group. */
static void fill_rows(const conv_job *job, size_t group, size_t first,
                      size_t count, float *to)
{
    size_t n = job->per_group, line = job->taps * n;
    int index[QN_MAX_NDIM];
    const int *shape = job->out->shape;
    for (int i = job->ndim; i >= 0; i--) {
        index[i] = (int)(first % (size_t)shape[i]);
        first /= (size_t)shape[i];
    }
    for (; count; count--, to += line) {
        if (job->whole_runs) {
            fill_runs(job, index, to);
        } else {
            int tap[QN_MAX_NDIM] = {0};
            for (size_t t = 0; t < job->taps; t++) {
                const float *from = met_at(job, index, tap);
                if (from)
                    memcpy(to + t * n, from + group * n, n * sizeof *to);
                else
                    memset(to + t * n, 0, n * sizeof *to);
                next_place(tap, job->kernel, job->ndim);
            }
        }
        next_place(index, shape, job->ndim + 1);
    }
}

/* ---- products ---- */

static void *output_at(const conv_job *job, size_t row, size_t column)
{
    size_t at = row * job->outputs + column;
    return qn_element(job->out, (int64_t)at);
}

/* Scratch memory: rows, the kernel's, results before they are narrowed. */
static size_t scratch_floats(const conv_job *job)
{
    size_t depth = job->taps * job->per_group;
    return (job->as_is ? 0 : job->block * depth) + QN_GEMM_SCRATCH +
           (job->out->dtype == QN_FLOAT32 ? 0 : job->block * job->columns);
}

static void multiply_block(void *ctx, size_t index, int worker)
{
    const conv_job *job = ctx;
    const qn_gemm_kernel *kernel = qn_gemm_pick();
    size_t depth = job->taps * job->per_group;
    size_t first = index / job->splits * job->block;
    size_t count =
        job->rows - first < job->block ? job->rows - first : job->block;
    size_t n0 = index % job->splits * job->columns;
    size_t n1 = n0 + job->columns < job->each ? n0 + job->columns : job->each;
    char *room = job->scratch + (size_t)worker * job->scratch_stride;
    float *rows = (float *)(void *)room;
    float *space = rows + (job->as_is ? 0 : job->block * depth);
    float *wide = space + QN_GEMM_SCRATCH;
    bool direct = job->out->dtype == QN_FLOAT32;
    for (size_t group = 0; group < job->groups && n0 < n1; group++) {
        size_t column = group * job->each;
        qn_gemm gemm = {.m = count,
                        .n = n1 - n0,
                        .k = depth,
                        .a = rows,
                        .a_stride = depth,
                        .b = job->w + group * depth * job->each + n0,
                        .b_stride = job->each,
                        .b_type = QN_FLOAT32,
                        .out = wide,
                        .out_stride = n1 - n0};
        if (job->as_is) {
            gemm.a = job->x + first * job->channels + group * job->per_group;
            gemm.a_stride = job->channels;
        } else {
            fill_rows(job, group, first, count, rows);
        }
        if (direct) {
            gemm.out = output_at(job, first, column + n0);
            gemm.out_stride = job->outputs;
        }
        kernel->run(&gemm, 0, count, 0, n1 - n0, space);
        for (size_t i = 0; i < count && !direct; i++)
            qn_cpu_narrow(output_at(job, first + i, column + n0),
                          wide + i * (n1 - n0), n1 - n0, job->out->dtype);
    }
}

static qn_status multiply(conv_job *job)
{
    size_t depth = job->taps * job->per_group;
    size_t threads = (size_t)qn_pool_threads();
    size_t fit = BLOCK_FLOATS / depth / QN_GEMM_ROWS * QN_GEMM_ROWS;
    size_t fair = job->rows / (2 * threads) + 1;
    job->block = fit < LEAST_ROWS  ? LEAST_ROWS
                 : fit > MOST_ROWS ? MOST_ROWS
                                   : fit;
    fair = (fair + QN_GEMM_ROWS - 1) / QN_GEMM_ROWS * QN_GEMM_ROWS;
    if (fair < LEAST_ROWS)
        fair = LEAST_ROWS;
    if (job->block > fair)
        job->block = fair;
    job->blocks = (job->rows + job->block - 1) / job->block;
    /* Few blocks: the columns are shared out too. */
    job->splits = 1;
    size_t panels = (job->each + QN_GEMM_COLUMNS - 1) / QN_GEMM_COLUMNS;
    while (job->blocks * job->splits < 2 * threads && 2 * job->splits <= panels)
        job->splits *= 2;
    job->columns = (panels + job->splits - 1) / job->splits * QN_GEMM_COLUMNS;
    if (job->columns > job->each)
        job->columns = job->each;
    qn_buffer *scratch;
    qn_status status =
        qn_cpu_scratch(&scratch, threads, scratch_floats(job) * sizeof(float),
                       &job->scratch_stride);
    if (status)
        return status;
    job->scratch = scratch->data;
    qn_pool_run(multiply_block, job, job->blocks * job->splits);
    qn_buffer_unref(scratch);
    return QN_OK;
}

/* ---- channels that do not mix ---- */

static void depthwise_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const conv_job *job = ctx;
    char *room = job->scratch + (size_t)worker * job->scratch_stride;
    const float **lines = (const float **)(void *)room;
    float *wide = (float *)(void *)(lines + job->taps);
    bool direct = job->out->dtype == QN_FLOAT32;
    qn_depthwise_fn run = qn_depthwise_pick();
    qn_depthwise one = {.channels = job->outputs,
                        .taps = job->taps,
                        .x = lines,
                        .w = job->w,
                        .out = wide};
    int index[QN_MAX_NDIM];
    size_t left = begin;
    for (int i = job->ndim; i >= 0; i--) {
        index[i] = (int)(left % (size_t)job->out->shape[i]);
        left /= (size_t)job->out->shape[i];
    }
    for (size_t row = begin; row < end; row++) {
        int tap[QN_MAX_NDIM] = {0};
        for (size_t t = 0; t < job->taps; t++) {
            lines[t] = met_at(job, index, tap);
            next_place(tap, job->kernel, job->ndim);
        }
        if (direct)
            one.out = output_at(job, row, 0);
        run(&one);
        if (!direct)
            qn_cpu_narrow(output_at(job, row, 0), wide, job->outputs,
                          job->out->dtype);
        next_place(index, job->out->shape, job->ndim + 1);
    }
}

static qn_status depthwise(conv_job *job)
{
    qn_buffer *scratch;
    qn_status status = qn_cpu_scratch(&scratch, (size_t)qn_pool_threads(),
                                      job->taps * sizeof(float *) +
                                          job->outputs * sizeof(float),
                                      &job->scratch_stride);
    if (status)
        return status;
    job->scratch = scratch->data;
    qn_pool_split(depthwise_rows, job, job->rows,
                  GRAIN_COPY / (job->taps * job->outputs) + 1, 1);
    qn_buffer_unref(scratch);
    return QN_OK;
}

/* ---- nodes ---- */

/* True when output place i is input place i: one tap, no border, no steps. */
static bool same_places(const conv_job *job)
{
    const qn_conv_params *p = job->p;
    int64_t step = (int64_t)job->channels;
    if (job->taps != 1)
        return false;
    for (int i = job->ndim; i >= 0; i--) {
        if (i && (p->stride[i - 1] != 1 || p->in_dilation[i - 1] != 1 ||
                  p->low[i - 1] || job->in[i - 1] != job->to[i - 1]))
            return false;
        if (job->x_strides[i] != step && job->out->shape[i] != 1)
            return false;
        step *= job->out->shape[i];
    }
    return true;
}

qn_status qn_cpu_conv(qn_node *node, bool *done)
{
    const qn_array *x = node->inputs[0], *w = node->inputs[1];
    qn_array *out = node->outputs[0];
    int last = x->ndim - 3;
    conv_job job = {.p = node->params,
                    .out = out,
                    .ndim = x->ndim - 2,
                    .kernel = w->shape + 1,
                    .in = x->shape + 1,
                    .to = out->shape + 1,
                    .taps = 1,
                    .channels = (size_t)x->shape[x->ndim - 1],
                    .per_group = (size_t)w->shape[w->ndim - 1],
                    .outputs = (size_t)w->shape[0]};
    if (!qn_cpu_narrow_float(x->dtype) || !out->size || !x->size || !w->size)
        return QN_OK;
    for (int i = 0; i < job.ndim; i++)
        job.taps *= (size_t)job.kernel[i];
    job.groups = (size_t)job.p->groups;
    job.each = job.outputs / job.groups;
    job.rows = out->size / job.outputs;
    /* One channel each: repeated for its outputs, and then all alike. */
    bool alone = job.per_group == 1 && job.groups > 1;
    size_t repeat = alone ? job.each : 1;
    if (alone) {
        job.channels = job.outputs;
        job.groups = 1;
        job.each = job.outputs;
    }
    qn_buffer *staged = NULL, *weights = NULL;
    qn_status status = qn_array_alloc(out);
    *done = true;
    if (!status)
        status = stage_input(&job, &staged, x, repeat);
    size_t bytes;
    if (!status && !qn_mul_size(&bytes, w->size, sizeof(float)))
        status = qn_fail(QN_E_NOMEM, "[conv] %zu weights", w->size);
    if (!status)
        status = qn_buffer_new(&weights, bytes);
    if (!status) {
        job.w = weights->data;
        weight_job stage = {&job, w};
        qn_pool_split(stage_taps, &stage, job.taps,
                      GRAIN_COPY / (w->size / job.taps) + 1, 1);
        job.as_is = same_places(&job);
        job.whole_runs = job.groups == 1 && job.p->dilation[last] == 1 &&
                         job.p->in_dilation[last] == 1 &&
                         job.x_strides[last + 1] == (int64_t)job.channels;
        status = alone ? depthwise(&job) : multiply(&job);
    }
    qn_buffer_unref(staged);
    qn_buffer_unref(weights);
    return status;
}
