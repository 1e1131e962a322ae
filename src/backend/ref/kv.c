/* kv.c: attention over caches, row by row, with sums in double. */
#include "loops.h"
#include "stage.h"

#include "backend/common/kv.h"
#include "backend/common/kv_codes.h"
#include "base/alloc.h"
#include "base/turboquant.h"
#include "ops/params.h"

#include <math.h>
#include <string.h>

typedef struct job {
    const qn_kv_params *p;
    const qn_array *in[3]; /* q, k, v */
    const qn_array *freqs, *sinks;
    qn_array *out;
    qn_array *const *arrays;  /* of the present sequence */
    int row, place, position; /* in the cache, in the sequence */
    float *q, *k, *v, *cosine, *sine;
    double *scores, *sum;
} job;

/* Head `head` of a row as floats. */
static void load_head(const job *j, float *to, int which, int head)
{
    const qn_array *x = j->in[which];
    int d = j->p->form.head_dim, last = x->ndim - 1;
    int64_t at = head * (int64_t)d * x->strides[last];
    int row = j->row;
    for (int i = last - 1; i >= 0; i--) {
        at += row % x->shape[i] * x->strides[i];
        row /= x->shape[i];
    }
    qn_floats_load(to, x->dtype, qn_element(x, at), x->strides[last],
                   (size_t)d);
}

static float turn_of(const job *j, int i)
{
    if (!j->freqs)
        return expf((float)-i * (logf(j->p->base) / (float)(j->p->dims / 2)));
    float period;
    qn_floats_load(&period, j->freqs->dtype,
                   qn_element(j->freqs, i * j->freqs->strides[0]), 1, 1);
    return 1 / period;
}

static void find_angles(const job *j)
{
    float position = (float)j->position * j->p->rope_scale;
    for (int i = 0; i < j->p->dims / 2; i++) {
        float angle = position * turn_of(j, i);
        j->cosine[i] = cosf(angle);
        j->sine[i] = sinf(angle);
    }
}

/* Turns a head and rounds it to the type of q. */
static void turn(const job *j, float *x)
{
    int half = j->p->dims / 2;
    for (int i = 0; i < half; i++) {
        int first = j->p->traditional ? 2 * i : i;
        int second = j->p->traditional ? 2 * i + 1 : i + half;
        float a = x[first], b = x[second], c = j->cosine[i], s = j->sine[i];
        float y[2] = {a * c - b * s, a * s + b * c};
        uint8_t rounded[2 * sizeof(float)];
        qn_floats_store(rounded, j->out->dtype, 1, y, 2);
        qn_floats_load(y, j->out->dtype, rounded, 1, 2);
        x[first] = y[0];
        x[second] = y[1];
    }
}

static void store_head(const job *j, int head)
{
    const qn_kv_form *f = &j->p->form;
    size_t d = (size_t)f->head_dim;
    load_head(j, j->k, 1, head);
    load_head(j, j->v, 2, head);
    turn(j, j->k);
    if (!qn_kv_packed(f)) {
        qn_floats_store(j->q, f->dtype, 1, j->k, d);
        memcpy(j->k, j->q, d * sizeof(float));
        qn_floats_store(j->q, f->dtype, 1, j->v, d);
        memcpy(j->v, j->q, d * sizeof(float));
    }
    qn_kv_put(f, j->arrays, head, j->place, j->k, j->v);
}

/* The key or value of a token, as stored; that of a turbo cache rotated. */
static void load_token(const job *j, float *to, bool key, int head, int token)
{
    const qn_kv_form *f = &j->p->form;
    if (qn_kv_packed(f)) {
        qn_kv_side side = qn_kv_side_of(f, j->arrays, key, head, token);
        qn_kv_side_decode(&side, token % QN_KV_BLOCK, to);
        return;
    }
    const qn_array *x = j->arrays[!key];
    int64_t at = (int64_t)qn_kv_at(x, head, token);
    if (key)
        at += token % QN_KV_BLOCK;
    qn_floats_load(to, f->dtype, qn_element(x, at), key ? QN_KV_BLOCK : 1,
                   (size_t)f->head_dim);
}

/* The first token that a row sees from `t` on. */
static int next_seen(const job *j, int t)
{
    const qn_kv_params *p = j->p;
    bool narrow = p->window && j->place >= p->window;
    int from = narrow ? j->place - p->window + 1 : 0;
    return t < p->keep || t > from ? t : from;
}

static void attend_head(const job *j, int head)
{
    const qn_kv_params *p = j->p;
    int d = p->form.head_dim, kv = head / (p->heads / p->form.kv_heads);
    double top = -INFINITY, total = 0;
    float sink = 0;
    load_head(j, j->q, 0, head);
    turn(j, j->q);
    for (int t = next_seen(j, 0); t <= j->place; t = next_seen(j, t + 1)) {
        double score = 0;
        load_token(j, j->k, true, kv, t);
        for (int i = 0; i < d; i++)
            score += (double)j->q[i] * (double)j->k[i];
        score *= (double)p->scale;
        if (p->cap > 0)
            score = (double)p->cap * tanh(score / (double)p->cap);
        j->scores[t] = score;
        top = j->scores[t] > top || isnan(j->scores[t]) ? j->scores[t] : top;
    }
    if (j->sinks) {
        qn_floats_load(&sink, j->sinks->dtype,
                       qn_element(j->sinks, head * j->sinks->strides[0]), 1, 1);
        top = (double)sink > top ? (double)sink : top;
        total = exp((double)sink - top);
    }
    memset(j->sum, 0, (size_t)d * sizeof *j->sum);
    for (int t = next_seen(j, 0); t <= j->place; t = next_seen(j, t + 1)) {
        double weight = exp(j->scores[t] - top);
        total += weight;
        load_token(j, j->v, false, kv, t);
        for (int i = 0; i < d; i++)
            j->sum[i] += weight * (double)j->v[i];
    }
    for (int i = 0; i < d; i++)
        j->q[i] = (float)(j->sum[i] / total);
    if (p->form.value_bits)
        qn_tq_unrotate(j->q, j->q, d);
    int64_t at = ((int64_t)j->row * p->heads + head) * d;
    qn_floats_store(qn_element(j->out, at), j->out->dtype, 1, j->q, (size_t)d);
}

static void run_sequence(job *j, qn_kv_step step)
{
    for (int t = 0; t < step.count; t++) {
        j->place = step.offset + t;
        j->position = j->place + step.skipped;
        find_angles(j);
        for (int h = 0; h < j->p->form.kv_heads && !j->p->stored; h++)
            store_head(j, h);
        for (int h = 0; h < j->p->heads; h++)
            attend_head(j, h);
        j->row++;
    }
}

static qn_status make_room(job *j, int longest)
{
    size_t d = (size_t)j->p->form.head_dim;
    j->q = qn_calloc(5 * d, sizeof *j->q);
    j->scores = qn_calloc((size_t)longest + d, sizeof *j->scores);
    if (!j->q || !j->scores)
        return QN_E_NOMEM;
    j->k = j->q + d;
    j->v = j->k + d;
    j->cosine = j->v + d;
    j->sine = j->cosine + d;
    j->sum = j->scores + longest;
    return QN_OK;
}

/* The row-major caches that a node leaves behind. */
static qn_status open_caches(qn_node *node, int first)
{
    for (int i = 1; i < node->noutputs; i++) {
        const qn_array *in = node->inputs[first + i - 1];
        if (qn_kv_take_over(node->outputs[i], in))
            continue;
        qn_status status = qn_array_alloc(node->outputs[i]);
        if (!status)
            status = qn_ref_copy_to(node->outputs[i], in);
        if (status)
            return status;
    }
    return QN_OK;
}

/* An input, or a copy that is row-major, which the caller deletes. */
static qn_status in_rows(qn_array **out, qn_array *x)
{
    *out = x;
    if (x->row_contiguous)
        return QN_OK;
    qn_status status = qn_array_new(out, x->dtype, x->shape, x->ndim);
    if (status)
        return status;
    status = qn_array_alloc(*out);
    if (!status)
        status = qn_ref_copy_to(*out, x);
    if (status)
        qn_array_unref(*out);
    return status;
}

/* All sequences, whose caches are the inputs from `first` on where they have
 * the rows already, else the outputs. */
static qn_status run_sequences(job *j, qn_node *node, int first)
{
    int parts = qn_kv_parts(&j->p->form);
    qn_status status = QN_OK;
    for (int i = 0; i < j->p->count && !status; i++) {
        qn_array *held[QN_KV_PARTS], **in = node->inputs + first + i * parts;
        int made = 0;
        for (; j->p->stored && made < parts && !status; made++)
            status = in_rows(&held[made], in[made]);
        if (status)
            made--;
        j->arrays = j->p->stored ? held : node->outputs + 1 + i * parts;
        if (!status)
            run_sequence(j, j->p->steps[i]);
        while (made--)
            if (held[made] != in[made])
                qn_array_unref(held[made]);
    }
    return status;
}

qn_status qn_ref_kv_attention(qn_node *node)
{
    const qn_kv_params *p = node->params;
    int after = qn_kv_after_rows(p), first = qn_kv_first_cache(p), longest = 0;
    job j = {.p = p,
             .in = {node->inputs[0]},
             .freqs = p->has_freqs ? node->inputs[after] : NULL,
             .sinks = p->has_sinks ? node->inputs[after + p->has_freqs] : NULL,
             .out = node->outputs[0]};
    for (int i = 1; i < after; i++)
        j.in[i] = node->inputs[i];
    for (int i = 0; i < p->count; i++) {
        int end = p->steps[i].offset + p->steps[i].count;
        longest = end > longest ? end : longest;
    }
    qn_status status = make_room(&j, longest);
    if (!status)
        status = open_caches(node, first);
    if (!status)
        status = qn_array_alloc(j.out);
    if (!status)
        status = run_sequences(&j, node, first);
    qn_free(j.q);
    qn_free(j.scores);
    return status;
}

/* ---- reading and writing ---- */

static qn_status copy_cache(qn_node *node, bool write)
{
    const qn_kv_copy_params *p = node->params;
    qn_array *in[QN_KV_PARTS];
    int made = 0, parts = qn_kv_parts(&p->form);
    qn_status status = QN_OK;
    for (; made < parts && !status; made++)
        status = in_rows(&in[made], node->inputs[made]);
    if (status)
        made--;
    for (int i = 0; i < parts && !status; i++) {
        status = qn_array_alloc(node->outputs[i]);
        if (!status && write)
            memset(qn_array_data(node->outputs[i]), 0,
                   qn_array_nbytes(node->outputs[i]));
    }
    for (int h = 0; h < p->form.kv_heads && !status; h++)
        if (write)
            qn_kv_write_head(&p->form, node->outputs, in, h, p->count);
        else
            qn_kv_read_head(&p->form, node->outputs, in, h, p->count);
    while (made--)
        if (in[made] != node->inputs[made])
            qn_array_unref(in[made]);
    return status;
}

qn_status qn_ref_kv_read(qn_node *node)
{
    return copy_cache(node, false);
}

qn_status qn_ref_kv_write(qn_node *node)
{
    return copy_cache(node, true);
}
