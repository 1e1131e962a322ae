/* fit.c: what a model takes in memory, and whether there is so much.
 *
 * One prediction serves questions (quern_model_fit) and the admission of a
 * load, so both agree. */
#include "runtime.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/json.h"
#include "kv/engine.h"
#include "model/family.h"
#include "model/predict.h"

#include <quern/ext.h>

#include <stdio.h>
#include <string.h>

enum {
    /* The program, its threads, and what a token of the vocabulary takes in
     * tokenizer and output. */
    BASE = 10 << 20,
    TOKEN = 110,
    LEAST_CTX = 256
};

typedef struct question {
    const quern_model *model;
    const qn_config *config;
    const qn_kv_shape *shape;
    quern_machine machine;
    int64_t ctx;
    int parallel;
    uint64_t kv_budget; /* of all sequences together; 0: none */
} question;

static uint64_t at_most(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t state_bytes(const question *q)
{
    return qn_kv_room_bytes(q->shape, 0, q->model->prefill_chunk) *
           (uint64_t)q->parallel;
}

/* What one sequence takes beside its own cache where tokens are guessed: the
 * small model's cache, and a copy of its own where that can't go back. */
static uint64_t guess_bytes(const quern_model *m, const qn_kv_shape *shape,
                            int64_t tokens)
{
    const quern_model *draft = m->draft;
    uint64_t bytes = 0;
    bool returns = true;
    for (int i = 0; i < shape->layers; i++)
        returns = returns && !qn_kv_layer_of(shape, i)->recurrence.channels;
    if (m->num_draft && !returns)
        bytes += qn_kv_room_bytes(shape, tokens, m->prefill_chunk);
    if (m->num_draft && draft)
        bytes += qn_kv_room_bytes(&draft->kv,
                                  tokens < draft->ctx ? tokens : draft->ctx,
                                  draft->prefill_chunk);
    return bytes;
}

/* A budget is for everything that sequences take. */
static uint64_t kv_bytes(const question *q, int64_t tokens)
{
    qn_kv_shape shape = *q->shape;
    shape.limit = (int)q->ctx;
    uint64_t rows = (uint64_t)q->parallel, state = state_bytes(q);
    uint64_t kv =
        qn_kv_room_bytes(&shape, tokens, q->model->prefill_chunk) * rows -
        state;
    uint64_t beside = state + guess_bytes(q->model, &shape, tokens) * rows;
    if (!q->kv_budget)
        return kv;
    return at_most(kv, q->kv_budget > beside ? q->kv_budget - beside : 0);
}

uint64_t quern_model_kv_bytes(const quern_model *m, int64_t tokens,
                              bool guesses)
{
    qn_kv_shape shape = m->kv;
    if (tokens > m->ctx)
        tokens = m->ctx;
    shape.limit = (int)tokens;
    return qn_kv_room_bytes(&shape, tokens, m->prefill_chunk) +
           (guesses ? guess_bytes(m, &shape, tokens) : 0);
}

static uint64_t workspace(const question *q)
{
    const quern_model *m = q->model;
    const qn_family *family = qn_family_find(qn_str_of(q->config->family));
    int64_t chunk = m->prefill_chunk;
    /* An encoder takes whole texts, as many as make a chunk. */
    bool whole = family && family->encoder;
    qn_step_size step = {
        .tokens = (chunk < q->ctx) != whole ? chunk : q->ctx,
        .context = q->ctx,
        .rows = q->parallel,
        .dtype = m->dtype,
        .dense = m->held.dense,
        .packed = m->held.packed,
        .dense_head = m->held.dense_head,
        .dense_beside = m->held.dense_beside,
        .panels = m->held.panels,
        .longest = q->ctx,
    };
    return qn_predict_workspace(q->config, &step);
}

static uint64_t all_guess_bytes(const question *q)
{
    qn_kv_shape shape = *q->shape;
    shape.limit = (int)q->ctx;
    return guess_bytes(q->model, &shape, q->ctx) * (uint64_t)q->parallel;
}

static void predict(quern_fit *out, const question *q)
{
    const quern_model *m = q->model;
    *out = (quern_fit){
        .weights = m->held.weights,
        .kv = kv_bytes(q, q->ctx),
        .state = state_bytes(q),
        .workspace = workspace(q),
        .prefix = m->prefixes.limit,
        .draft = m->draft ? m->draft->held.weights : 0,
        .guesses = all_guess_bytes(q),
        .base = BASE + (uint64_t)m->vocab * TOKEN,
        .kv_per_token = qn_kv_token_bytes(q->shape),
        .usable = q->machine.usable,
        .context = q->ctx,
        .model_context = q->config->max_positions,
        .parallel = q->parallel,
    };
    out->draft += out->guesses;
    out->required = out->weights + out->kv + out->state + out->workspace +
                    out->prefix + out->draft + out->base;
    out->fits = out->required <= out->usable;
}

/* The longest context that fits; 0: none does. */
static int64_t longest(const question *q, const quern_fit *fit)
{
    uint64_t fixed = fit->required - fit->kv - fit->guesses;
    if (fixed >= fit->usable)
        return 0;
    int64_t low = 0, high = q->config->max_positions;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        question other = *q;
        other.ctx = middle;
        if (kv_bytes(&other, middle) + all_guess_bytes(&other) <=
            fit->usable - fixed)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* ---- remedies ---- */

static quern_remedy *add_remedy(quern_fit *fit, const char *flag,
                                uint64_t saves)
{
    if (!saves || fit->remedy_count == QUERN_REMEDIES)
        return NULL;
    quern_remedy *r = &fit->remedies[fit->remedy_count++];
    *r = (quern_remedy){.flag = flag, .saves = saves};
    return r;
}

/* Layers that store otherwise; NULL: the scheme can't be, or no memory. */
static qn_kv_layer *other_layers(const qn_kv_shape *shape, const char *kv)
{
    qn_kv_scheme scheme;
    qn_kv_layer *layers = qn_calloc((size_t)shape->layers, sizeof *layers);
    bool good = layers && !qn_kv_scheme_parse(&scheme, kv, shape->floats);
    for (int i = 0; good && i < shape->layers; i++) {
        layers[i] = *qn_kv_layer_of(shape, i);
        if (!layers[i].kv_heads || (scheme.key_bits && layers[i].window))
            continue;
        layers[i].scheme = scheme;
        good = !qn_kv_scheme_fit(&layers[i].scheme, layers[i].head_dim);
    }
    if (good)
        return layers;
    qn_free(layers);
    return NULL;
}

static void add_remedies(quern_fit *fit, const question *q)
{
    quern_remedy *r;
    question other = *q;
    uint64_t over = fit->required - fit->usable;
    uint64_t row = (fit->kv + fit->state) / (uint64_t)q->parallel;
    if (q->kv_budget > over && (r = add_remedy(fit, "kv-budget", over)))
        snprintf(r->value, sizeof r->value, "%llu",
                 (unsigned long long)(q->kv_budget - over));
    if (q->parallel > 1 && row && !q->kv_budget) {
        uint64_t fewer =
            at_most((over + row - 1) / row, (uint64_t)q->parallel - 1);
        if ((r = add_remedy(fit, "parallel", fewer * row)))
            snprintf(r->value, sizeof r->value, "%d", q->parallel - (int)fewer);
    }
    other.ctx = fit->max_context < LEAST_CTX ? LEAST_CTX : fit->max_context;
    if (other.ctx < q->ctx &&
        (r = add_remedy(fit, "ctx", fit->kv - kv_bytes(&other, other.ctx))))
        snprintf(r->value, sizeof r->value, "%lld", (long long)other.ctx);
    static const char *const kinds[] = {"affine8", "affine4"};
    for (size_t i = 0; i < 2; i++) {
        qn_kv_shape shape = *q->shape;
        qn_kv_layer *layers = other_layers(q->shape, kinds[i]);
        if (!layers)
            continue;
        shape.layer = layers;
        other = *q;
        other.shape = &shape;
        uint64_t kv = kv_bytes(&other, q->ctx);
        if (kv < fit->kv && (r = add_remedy(fit, "kv", fit->kv - kv)))
            snprintf(r->value, sizeof r->value, "%s", kinds[i]);
        qn_free(layers);
    }
}

/* ---- speeds ---- */

static void set_rates(quern_fit *fit, const question *q)
{
    const qn_held *held = &q->model->held;
    if (q->machine.bandwidth > 0 && held->read)
        fit->decode_rate = 0.8 * q->machine.bandwidth / (double)held->read;
    /* Two operations for each weight that a token meets: as many weights as a
     * decode step reads, by the average width. */
    const quern_model *m = q->model;
    double all = (double)m->parameters, bytes = (double)held->weights;
    if (q->machine.operations > 0 && bytes > 0 && all > 0)
        fit->prefill_rate = 0.8 * q->machine.operations /
                            (2 * all * (double)held->read / bytes);
}

/* ---- the outside ---- */

static qn_status ask(quern_fit *out, question *q, const char *kv)
{
    qn_kv_shape shape = *q->shape;
    qn_kv_layer *layers = NULL;
    if (kv) {
        qn_kv_scheme scheme;
        qn_status status = qn_kv_scheme_parse(&scheme, kv, shape.floats);
        if (status)
            return qn_fail_where(status, "kv");
        layers = other_layers(q->shape, kv);
        if (!layers)
            return qn_fail(QN_E_UNSUPPORTED,
                           "kv: %s can't store heads of this size", kv);
        shape.layer = layers;
        q->shape = &shape;
    }
    predict(out, q);
    out->max_context = longest(q, out);
    if (!out->fits)
        add_remedies(out, q);
    set_rates(out, q);
    qn_free(layers);
    return QN_OK;
}

void qn_fit_measure(quern_model *m, const qn_weights *weights,
                    const qn_config *config, bool int8)
{
    qn_predict_weights(&m->held, weights, config, m->dtype,
                       int8 && quern_panel_available());
}

qn_status qn_fit_admit(quern_model *m, const qn_config *config,
                       const quern_options *options)
{
    quern_fit fit;
    question q = {.model = m, .config = config, .shape = &m->kv};
    quern_machine_get(&q.machine, false);
    q.ctx = m->ctx;
    q.parallel = options->parallel > 0 ? options->parallel : 1;
    q.kv_budget = options->kv_budget;
    qn_status status = ask(&fit, &q, NULL);
    if (status || fit.fits || options->force)
        return status;
    /* A context that nobody asked for is as long as memory lets it be. */
    if (!options->ctx && fit.max_context >= LEAST_CTX) {
        m->ctx = fit.max_context;
        m->kv.limit = (int)m->ctx;
        return QN_OK;
    }
    char way[96] = "";
    if (fit.remedy_count)
        snprintf(way, sizeof way, "; %s %s needs %.1f MiB less",
                 fit.remedies[0].flag, fit.remedies[0].value,
                 (double)fit.remedies[0].saves / (1 << 20));
    return qn_fail(QN_E_NOMEM,
                   "the model needs %.1f MiB with a context of %lld, and %.1f "
                   "MiB can be used%s",
                   (double)fit.required / (1 << 20), (long long)fit.context,
                   (double)fit.usable / (1 << 20), way);
}

quern_status quern_model_fit(quern_fit *out, const quern_model *m,
                             const quern_fit_options *options,
                             quern_error *error)
{
    quern_fit_options none = {0};
    const quern_fit_options *o = options ? options : &none;
    question q = {
        .model = m,
        .config = m->model ? qn_model_config(m->model) : &m->headers.config,
        .shape = &m->kv,
        .ctx = o->ctx ? o->ctx : m->ctx,
        .parallel = o->parallel ? o->parallel : 1,
        .kv_budget = o->kv_budget,
    };
    if (q.ctx < 1 || q.ctx > q.config->max_positions) {
        qn_status status =
            qn_fail(QN_E_ARG, "ctx: the model allows at most %lld, found %lld",
                    (long long)q.config->max_positions, (long long)q.ctx);
        return qn_give(error, qn_fail_where(status, "ctx"));
    }
    if (q.parallel < 1 || q.parallel > 1024) {
        qn_status status = qn_fail(QN_E_ARG,
                                   "parallel: expected 1..1024, found "
                                   "%d",
                                   q.parallel);
        return qn_give(error, qn_fail_where(status, "parallel"));
    }
    if (o->machine)
        q.machine = *o->machine;
    else
        quern_machine_get(&q.machine, false);
    return qn_give(error, ask(out, &q, o->kv));
}

static void put_rate(qn_json_writer *w, const char *key, double value)
{
    qn_json_write_key(w, key);
    if (value > 0)
        qn_json_write_double(w, value);
    else
        qn_json_write_null(w);
}

static void put_remedies(qn_json_writer *w, const quern_fit *f)
{
    qn_json_write_key(w, "remedies");
    qn_json_write_array(w);
    for (int i = 0; i < f->remedy_count; i++) {
        qn_json_write_object(w);
        qn_json_write_key(w, "flag");
        qn_json_write_text(w, f->remedies[i].flag);
        qn_json_write_key(w, "value");
        qn_json_write_text(w, f->remedies[i].value);
        qn_json_pair_uint(w, "saves_bytes", f->remedies[i].saves);
        qn_json_write_object_end(w);
    }
    qn_json_write_array_end(w);
}

quern_status quern_fit_json(const quern_fit *f, char **json, quern_error *error)
{
    qn_buf text = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &text);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "fits");
    qn_json_write_bool(&w, f->fits);
    qn_json_pair_uint(&w, "usable_bytes", f->usable);
    qn_json_pair_uint(&w, "required_bytes", f->required);
    qn_json_write_key(&w, "parts");
    qn_json_write_object(&w);
    qn_json_pair_uint(&w, "weights", f->weights);
    qn_json_pair_uint(&w, "kv", f->kv);
    qn_json_pair_uint(&w, "state", f->state);
    qn_json_pair_uint(&w, "workspace", f->workspace);
    qn_json_pair_uint(&w, "prefix", f->prefix);
    qn_json_pair_uint(&w, "draft", f->draft);
    qn_json_pair_uint(&w, "base", f->base);
    qn_json_write_object_end(&w);
    qn_json_pair_uint(&w, "kv_bytes_per_token", f->kv_per_token);
    qn_json_pair_uint(&w, "context", (uint64_t)f->context);
    qn_json_pair_uint(&w, "max_context", (uint64_t)f->max_context);
    qn_json_pair_uint(&w, "model_context", (uint64_t)f->model_context);
    qn_json_pair_uint(&w, "parallel", (uint64_t)f->parallel);
    put_rate(&w, "decode_tokens_per_s", f->decode_rate);
    put_rate(&w, "prefill_tokens_per_s", f->prefill_rate);
    put_remedies(&w, f);
    qn_json_write_object_end(&w);
    char *made = qn_buf_take(&text);
    if (made)
        *json = made;
    return qn_give(error, made ? QN_OK : QN_E_NOMEM);
}
