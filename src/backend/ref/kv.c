/* kv.c: attention over caches, row by row, with sums in double. */
#include "loops.h"
#include "stage.h"

#include "backend/common/kv.h"
#include "backend/common/quant.h"
#include "base/alloc.h"
#include "ops/params.h"

#include <math.h>
#include <string.h>

typedef struct job {
    const qn_kv_params *p;
    const qn_array *in[3]; /* q, k, v */
    const qn_array *freqs, *sinks;
    qn_array *out;
    qn_array *const *arrays; /* of the present sequence */
    int row, position;
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
    if (!f->bits) {
        qn_floats_store(j->q, f->dtype, 1, j->k, d);
        memcpy(j->k, j->q, d * sizeof(float));
        qn_floats_store(j->q, f->dtype, 1, j->v, d);
        memcpy(j->v, j->q, d * sizeof(float));
    }
    qn_kv_put(f, j->arrays, head, j->position, j->k, j->v);
}

/* The key (part 0) or value (the middle part) of a token, as stored. */
static void load_token(const job *j, float *to, bool key, int head, int token)
{
    const qn_kv_form *f = &j->p->form;
    size_t d = (size_t)f->head_dim, group = (size_t)f->group;
    int part = key ? 0 : qn_kv_parts(f) / 2;
    const qn_array *x = j->arrays[part];
    if (!f->bits && key) {
        int column = token % QN_KV_BLOCK;
        size_t at = qn_kv_at(f, j->arrays, 0, head, token - column);
        qn_floats_load(to, f->dtype, qn_element(x, (int64_t)at + column),
                       QN_KV_BLOCK, d);
        return;
    }
    size_t at = qn_kv_at(f, j->arrays, part, head, token);
    if (!f->bits) {
        qn_floats_load(to, f->dtype, qn_element(x, (int64_t)at), 1, d);
        return;
    }
    size_t factors = qn_kv_at(f, j->arrays, part + 1, head, token);
    for (size_t i = 0; i < d; i++) {
        uint8_t code;
        float factor[2];
        int64_t g = (int64_t)(factors + i / group);
        qn_quant_unpack(&code, qn_element(x, (int64_t)at), i, 1, f->bits);
        for (int n = 0; n < 2; n++)
            qn_floats_load(&factor[n], f->dtype,
                           qn_element(j->arrays[part + 1 + n], g), 1, 1);
        to[i] = (float)code * factor[0] + factor[1];
    }
}

static void attend_head(const job *j, int head)
{
    const qn_kv_params *p = j->p;
    int d = p->form.head_dim, kv = head / (p->heads / p->form.kv_heads);
    int from =
        p->window && j->position >= p->window ? j->position - p->window + 1 : 0;
    double top = -INFINITY, total = 0;
    float sink = 0;
    load_head(j, j->q, 0, head);
    turn(j, j->q);
    for (int t = from; t <= j->position; t++) {
        double score = 0;
        load_token(j, j->k, true, kv, t);
        for (int i = 0; i < d; i++)
            score += (double)j->q[i] * (double)j->k[i];
        j->scores[t] = score * (double)p->scale;
        top = j->scores[t] > top || isnan(j->scores[t]) ? j->scores[t] : top;
    }
    if (j->sinks) {
        qn_floats_load(&sink, j->sinks->dtype,
                       qn_element(j->sinks, head * j->sinks->strides[0]), 1, 1);
        top = (double)sink > top ? (double)sink : top;
        total = exp((double)sink - top);
    }
    memset(j->sum, 0, (size_t)d * sizeof *j->sum);
    for (int t = from; t <= j->position; t++) {
        double weight = exp(j->scores[t] - top);
        total += weight;
        load_token(j, j->v, false, kv, t);
        for (int i = 0; i < d; i++)
            j->sum[i] += weight * (double)j->v[i];
    }
    for (int i = 0; i < d; i++)
        j->q[i] = (float)(j->sum[i] / total);
    int64_t at = ((int64_t)j->row * p->heads + head) * d;
    qn_floats_store(qn_element(j->out, at), j->out->dtype, 1, j->q, (size_t)d);
}

static void run_sequence(job *j, qn_kv_step step)
{
    for (int t = 0; t < step.count; t++) {
        j->position = step.offset + t;
        find_angles(j);
        for (int h = 0; h < j->p->form.kv_heads; h++)
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

qn_status qn_ref_kv_attention(qn_node *node)
{
    const qn_kv_params *p = node->params;
    int first = 3 + p->has_freqs + p->has_sinks, longest = 0;
    job j = {.p = p,
             .in = {node->inputs[0], node->inputs[1], node->inputs[2]},
             .freqs = p->has_freqs ? node->inputs[3] : NULL,
             .sinks = p->has_sinks ? node->inputs[3 + p->has_freqs] : NULL,
             .out = node->outputs[0]};
    for (int i = 0; i < p->count; i++) {
        int end = p->steps[i].offset + p->steps[i].count;
        longest = end > longest ? end : longest;
    }
    qn_status status = make_room(&j, longest);
    if (!status)
        status = open_caches(node, first);
    if (!status)
        status = qn_array_alloc(j.out);
    for (int i = 0; i < p->count && !status; i++) {
        j.arrays = node->outputs + 1 + i * qn_kv_parts(&p->form);
        run_sequence(&j, p->steps[i]);
    }
    qn_free(j.q);
    qn_free(j.scores);
    return status;
}
