/* fast.c: operations along the last axis, and rotary position embedding.
 *
 * Softmax, log-sum-exp and the norms compute in double and round once, for
 * every floating dtype.  Each row is worked on by itself. */
#include "loops.h"
#include "stage.h"

#include "backend/common/output.h"
#include "base/alloc.h"
#include "ops/scalar.h"

/* ---- rows of doubles ---- */

typedef struct row_job row_job;
struct row_job {
    const qn_norm_params *norm;
    size_t n;
    double *weight, *bias; /* n each, or NULL; owned */
    /* Works on `row` in place; how many of its first elements are results. */
    size_t (*work)(const row_job *job, double *row);
};

static size_t softmax_row(const row_job *job, double *row)
{
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < job->n; i++)
        max = qn_max_f64(max, row[i]);
    /* A row of -inf, or with +inf, becomes NaN here: inf - inf. */
    for (size_t i = 0; i < job->n; i++) {
        row[i] = exp(row[i] - max);
        sum += row[i];
    }
    for (size_t i = 0; i < job->n; i++)
        row[i] /= sum;
    return job->n;
}

static size_t logsumexp_row(const row_job *job, double *row)
{
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < job->n; i++)
        max = qn_max_f64(max, row[i]);
    for (size_t i = 0; i < job->n; i++)
        sum += exp(row[i] - max);
    row[0] = isinf(max) ? max : max + log(sum);
    return 1;
}

static void scale_and_shift(const row_job *job, double *row, double scale)
{
    for (size_t i = 0; i < job->n; i++) {
        row[i] *= scale;
        if (job->weight)
            row[i] *= job->weight[i];
        if (job->bias)
            row[i] += job->bias[i];
    }
}

static double mean_square(const double *row, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += row[i] * row[i];
    return sum / (double)n;
}

static size_t rms_norm_row(const row_job *job, double *row)
{
    double square = mean_square(row, job->n);
    scale_and_shift(job, row, 1 / sqrt(square + (double)job->norm->eps));
    return job->n;
}

static size_t layer_norm_row(const row_job *job, double *row)
{
    double mean = 0;
    for (size_t i = 0; i < job->n; i++)
        mean += row[i];
    mean /= (double)job->n;
    for (size_t i = 0; i < job->n; i++)
        row[i] -= mean;
    double square = mean_square(row, job->n);
    scale_and_shift(job, row, 1 / sqrt(square + (double)job->norm->eps));
    return job->n;
}

/* Every row of input 0 through job->work. */
static qn_status run_rows(qn_node *node, row_job *job)
{
    const qn_array *in = node->inputs[0];
    qn_array *out = node->outputs[0];
    if (!qn_dtype_is_float(in->dtype))
        return qn_ref_unsupported(node, in->dtype);
    /* A row is read whole before it is written. */
    qn_status status = qn_output_reuse(out, node->inputs, 1);
    if (status || !out->size)
        return status;
    int last = in->ndim - 1;
    job->n = (size_t)in->shape[last];
    double *row = qn_calloc(job->n + 1, sizeof *row);
    if (!row)
        return QN_E_NOMEM;
    qn_lines lines;
    qn_walk walk;
    qn_lines_make(&lines, in->shape, in->ndim, last,
                  (const int64_t *[]){out->strides, in->strides}, 2);
    for (qn_walk_start(&walk, &lines.outer, 0, lines.outer.nruns); walk.left;
         qn_walk_next(&walk)) {
        qn_wide_load(row, in->dtype, qn_element(in, walk.offsets[1]),
                     lines.step[1], job->n);
        size_t n = job->work(job, row);
        qn_wide_store(qn_element(out, walk.offsets[0]), out->dtype,
                      lines.step[0], row, QN_WIDE_FLOAT, n);
    }
    qn_free(row);
    return QN_OK;
}

qn_status qn_ref_softmax(qn_node *node)
{
    return run_rows(node, &(row_job){.work = softmax_row});
}

qn_status qn_ref_logsumexp(qn_node *node)
{
    return run_rows(node, &(row_job){.work = logsumexp_row});
}

/* A vector of n elements as doubles; one element serves all. */
static double *load_vector(const qn_array *array, size_t n)
{
    double *vector = qn_calloc(n, sizeof *vector);
    int64_t step = array->size == 1 ? 0 : array->strides[array->ndim - 1];
    if (vector)
        qn_wide_load(vector, array->dtype, qn_array_data(array), step, n);
    return vector;
}

static qn_status run_norm(qn_node *node, row_job job)
{
    qn_status status = QN_E_NOMEM;
    const qn_array *in = node->inputs[0];
    size_t n = in->ndim ? (size_t)in->shape[in->ndim - 1] : 1;
    int next = 1;
    job.norm = node->params;
    if (job.norm->has_weight &&
        !(job.weight = load_vector(node->inputs[next++], n)))
        goto done;
    if (job.norm->has_bias && !(job.bias = load_vector(node->inputs[next], n)))
        goto done;
    status = run_rows(node, &job);
done:
    qn_free(job.weight);
    qn_free(job.bias);
    return status;
}

qn_status qn_ref_rms_norm(qn_node *node)
{
    return run_norm(node, (row_job){.work = rms_norm_row});
}

qn_status qn_ref_layer_norm(qn_node *node)
{
    return run_norm(node, (row_job){.work = layer_norm_row});
}

/* ---- rotary position embedding ----
 *
 * Angles, their cosines and the products are float32, rounded once to the
 * output's type (float64: double products of float32 angles).  A row's result
 * depends on its position alone. */

typedef struct rope_job {
    const qn_rope_params *p;
    const qn_array *in, *offsets, *freqs; /* the latter two may be NULL */
    qn_array *out;
    int half;
    float *turn;          /* half: how fast pair i turns */
    float *cosine, *sine; /* half, of the present position */
} rope_job;

static void rope_turns(const rope_job *job)
{
    float slope = logf(job->p->base) / (float)job->half;
    for (int i = 0; i < job->half; i++) {
        if (job->freqs) {
            float period;
            qn_floats_load(&period, job->freqs->dtype,
                           qn_element(job->freqs, i * job->freqs->strides[0]),
                           1, 1);
            job->turn[i] = 1 / period;
        } else {
            job->turn[i] = expf((float)-i * slope);
        }
    }
}

static void rope_angles(const rope_job *job, int batch, int t)
{
    float offset = (float)job->p->offset;
    if (job->offsets) {
        bool each = job->offsets->size > 1;
        int64_t at = each ? batch * job->offsets->strides[0] : 0;
        offset = (float)qn_integer_at(job->offsets->dtype,
                                      qn_element(job->offsets, at));
    }
    float position = ((float)t + offset) * job->p->scale;
    for (int i = 0; i < job->half; i++) {
        float angle = position * job->turn[i];
        job->cosine[i] = cosf(angle);
        job->sine[i] = sinf(angle);
    }
}

/* One row of D elements. */
static void rope_row(const rope_job *job, int64_t to_at, int64_t from_at)
{
    const qn_array *in = job->in;
    int64_t by = in->strides[in->ndim - 1];
    int64_t to_by = job->out->strides[in->ndim - 1];
    for (int i = 0; i < job->half; i++) {
        int64_t first = job->p->traditional ? 2 * i : i;
        int64_t second = job->p->traditional ? 2 * i + 1 : i + job->half;
        const void *from1 = qn_element(in, from_at + first * by);
        const void *from2 = qn_element(in, from_at + second * by);
        void *to1 = qn_element(job->out, to_at + first * to_by);
        void *to2 = qn_element(job->out, to_at + second * to_by);
        float c = job->cosine[i], s = job->sine[i], x1, x2;
        if (in->dtype == QN_FLOAT64) {
            double d1 = *(const double *)from1, d2 = *(const double *)from2;
            *(double *)to1 = d1 * (double)c - d2 * (double)s;
            *(double *)to2 = d1 * (double)s + d2 * (double)c;
            continue;
        }
        qn_values_load(&x1, in->dtype, from1, 1, 1);
        qn_values_load(&x2, in->dtype, from2, 1, 1);
        float y1 = x1 * c - x2 * s, y2 = x1 * s + x2 * c;
        qn_values_store(to1, in->dtype, 1, &y1, 1);
        qn_values_store(to2, in->dtype, 1, &y2, 1);
    }
    /* The elements beyond keep their bits. */
    size_t rest = (size_t)(in->shape[in->ndim - 1] - job->p->dims);
    qn_ref_copy_run(qn_element(job->out, to_at + job->p->dims * to_by), to_by,
                    qn_element(in, from_at + job->p->dims * by), by, rest,
                    qn_array_itemsize(in));
}

static void rope_run(const rope_job *job)
{
    const qn_array *in = job->in, *out = job->out;
    int time = in->ndim - 2;
    qn_plan heads; /* the axes between batch and time */
    qn_walk walk;
    qn_plan_make(&heads, in->shape + 1, time - 1,
                 (const int64_t *[]){out->strides + 1, in->strides + 1}, 2);
    qn_plan_points(&heads);
    rope_turns(job);
    for (int batch = 0; batch < in->shape[0]; batch++)
        for (int t = 0; t < in->shape[time]; t++) {
            int64_t to = batch * out->strides[0] + t * out->strides[time];
            int64_t from = batch * in->strides[0] + t * in->strides[time];
            rope_angles(job, batch, t);
            for (qn_walk_start(&walk, &heads, 0, heads.nruns); walk.left;
                 qn_walk_next(&walk))
                rope_row(job, to + walk.offsets[0], from + walk.offsets[1]);
        }
}

qn_status qn_ref_rope(qn_node *node)
{
    const qn_rope_params *p = node->params;
    rope_job job = {.p = p, .in = node->inputs[0], .out = node->outputs[0]};
    int next = 1;
    if (p->has_offset_array)
        job.offsets = node->inputs[next++];
    if (p->has_freqs)
        job.freqs = node->inputs[next];
    if (!qn_dtype_is_float(job.in->dtype))
        return qn_ref_unsupported(node, job.in->dtype);
    /* Both elements of a pair are read before either is written. */
    qn_status status = qn_output_reuse(job.out, node->inputs, 1);
    if (status || !job.out->size)
        return status;
    job.half = p->dims / 2;
    job.turn = qn_calloc((size_t)job.half, 3 * sizeof *job.turn);
    if (!job.turn)
        return QN_E_NOMEM;
    job.cosine = job.turn + job.half;
    job.sine = job.cosine + job.half;
    rope_run(&job);
    qn_free(job.turn);
    return QN_OK;
}
