/* sampler.c: see sampler.h. */
#include "sampler.h"

#include "base/alloc.h"
#include "filters.h"
#include "kv/engine.h"

#include <math.h>
#include <string.h>
#include <sys/random.h>

enum { MAX_BIAS = 1024 };

struct qn_sampler {
    quern_sampling p;
    int32_t vocab, token_count;
    quern_logit_bias *bias;
    int32_t *exempt; /* from XTC: end ids and the newline */
    size_t exempt_count, end_count;
    mlx_stream stream;
    mlx_array key;
    float *lp;        /* processed logits, then log probabilities */
    float *left;      /* what the filters leave of them */
    int32_t *scratch; /* for the filters */
    uint32_t *seen;   /* how often an id is in a window; 0 between uses */
};

/* ---- ranges ---- */

static qn_status out_of_range(const char *name, double value,
                              const char *expected)
{
    qn_status status =
        qn_fail(QN_E_ARG, "%s: expected %s, found %g", name, expected, value);
    return qn_fail_where(status, "%s", name);
}

static qn_status check_windows(const quern_sampling *p)
{
    const struct {
        const char *name;
        int32_t value;
    } windows[] = {
        {"repetition_context_size", p->repetition_context_size},
        {"presence_context_size", p->presence_context_size},
        {"frequency_context_size", p->frequency_context_size},
    };
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        if (windows[i].value < 0)
            return out_of_range(windows[i].name, windows[i].value, "0 or more");
    return QN_OK;
}

static qn_status check_bias(const quern_sampling *p, int32_t vocab)
{
    if (p->logit_bias_count > MAX_BIAS)
        return out_of_range("logit_bias", (double)p->logit_bias_count,
                            "at most 1024 ids");
    for (size_t i = 0; i < p->logit_bias_count; i++) {
        const quern_logit_bias *b = &p->logit_bias[i];
        if (b->id < 0 || b->id >= vocab)
            return out_of_range("logit_bias", b->id, "an id of the vocabulary");
        if (!(b->bias >= -100 && b->bias <= 100))
            return out_of_range("logit_bias", b->bias, "-100..100");
    }
    return QN_OK;
}

qn_status qn_sampling_check(const quern_sampling *p, int32_t vocab)
{
    /* Each test is false for NaN, which is refused too. */
    const struct {
        const char *name;
        double value;
        bool good;
        const char *expected;
    } rows[] = {
        {"temperature", p->temperature,
         p->temperature >= 0 && p->temperature <= 5, "0..5"},
        {"top_p", p->top_p, p->top_p > 0 && p->top_p <= 1,
         "more than 0, at most 1"},
        {"top_k", p->top_k, p->top_k >= -1, "-1 or more"},
        {"min_p", p->min_p, p->min_p >= 0 && p->min_p <= 1, "0..1"},
        {"typical_p", p->typical_p, p->typical_p > 0 && p->typical_p <= 1,
         "more than 0, at most 1"},
        {"xtc_probability", p->xtc_probability,
         p->xtc_probability >= 0 && p->xtc_probability <= 1, "0..1"},
        {"xtc_threshold", p->xtc_threshold,
         p->xtc_threshold >= 0 && p->xtc_threshold <= 0.5, "0..0.5"},
        {"repetition_penalty", p->repetition_penalty,
         p->repetition_penalty >= 0 && p->repetition_penalty <= 10, "0..10"},
        {"presence_penalty", p->presence_penalty,
         p->presence_penalty >= -2 && p->presence_penalty <= 2, "-2..2"},
        {"frequency_penalty", p->frequency_penalty,
         p->frequency_penalty >= -2 && p->frequency_penalty <= 2, "-2..2"},
        {"seed", (double)p->seed, !p->has_seed || p->seed <= INT64_MAX,
         "0..2^63-1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!rows[i].good)
            return out_of_range(rows[i].name, rows[i].value, rows[i].expected);
    qn_status status = check_windows(p);
    return status ? status : check_bias(p, vocab);
}

/* ---- making one ---- */

static qn_status draw_seed(uint64_t *out)
{
    if (getrandom(out, sizeof *out, 0) != (ssize_t)sizeof *out)
        return qn_fail(QN_E_IO, "the system gives no random numbers");
    *out &= INT64_MAX;
    return QN_OK;
}

static qn_status copy_lists(qn_sampler *s, const qn_sampler_setup *setup)
{
    size_t bias = s->p.logit_bias_count;
    s->bias = qn_calloc(bias, sizeof *s->bias);
    s->exempt = qn_calloc(setup->end_count + 1, sizeof *s->exempt);
    if (!s->bias || !s->exempt)
        return QN_E_NOMEM;
    if (bias)
        memcpy(s->bias, s->p.logit_bias, bias * sizeof *s->bias);
    s->p.logit_bias = s->bias;
    for (size_t i = 0; i < setup->end_count; i++)
        s->exempt[i] = setup->end_ids[i];
    s->end_count = s->exempt_count = setup->end_count;
    if (setup->newline >= 0)
        s->exempt[s->exempt_count++] = setup->newline;
    return QN_OK;
}

static bool has_penalties(const quern_sampling *p)
{
    return (p->repetition_penalty != 0 && p->repetition_penalty != 1) ||
           p->presence_penalty != 0 || p->frequency_penalty != 0;
}

static qn_status make_room(qn_sampler *s)
{
    size_t n = (size_t)s->vocab;
    s->lp = qn_calloc(n, sizeof *s->lp);
    if (!s->lp)
        return QN_E_NOMEM;
    if (has_penalties(&s->p) && !(s->seen = qn_calloc(n, sizeof *s->seen)))
        return QN_E_NOMEM;
    if (s->p.temperature == 0)
        return QN_OK;
    s->left = qn_calloc(n, sizeof *s->left);
    s->scratch = qn_calloc(n, sizeof *s->scratch);
    return s->left && s->scratch ? qn_engine(mlx_random_key(&s->key, s->p.seed))
                                 : QN_E_NOMEM;
}

qn_status qn_sampler_new(qn_sampler **out, const qn_sampler_setup *setup)
{
    qn_status status = qn_sampling_check(setup->sampling, setup->vocab);
    if (status)
        return status;
    qn_sampler *s = qn_calloc(1, sizeof *s);
    if (!s)
        return QN_E_NOMEM;
    s->p = *setup->sampling;
    s->vocab = setup->vocab;
    s->token_count = setup->token_count;
    s->stream = setup->stream;
    if (!s->p.has_seed)
        status = draw_seed(&s->p.seed);
    if (!status)
        status = copy_lists(s, setup);
    if (!status)
        status = make_room(s);
    if (status)
        qn_sampler_free(s);
    else
        *out = s;
    return status;
}

void qn_sampler_free(qn_sampler *s)
{
    if (!s)
        return;
    if (s->key.ctx)
        mlx_array_free(s->key);
    qn_free(s->bias);
    qn_free(s->exempt);
    qn_free(s->lp);
    qn_free(s->left);
    qn_free(s->scratch);
    qn_free(s->seen);
    qn_free(s);
}

uint64_t qn_sampler_seed(const qn_sampler *s)
{
    return s->p.seed;
}

bool qn_sampler_is_plain(const qn_sampler *s)
{
    return s->p.temperature == 0 && !s->p.logit_bias_count &&
           !has_penalties(&s->p);
}

/* ---- logits to log probabilities ---- */

/* The last `window` tokens; 0: all. */
static const int32_t *tail(const int32_t *history, size_t *count,
                           int32_t window)
{
    size_t size = *count;
    if (window > 0 && (size_t)window < size)
        *count = (size_t)window;
    return history + (size - *count);
}

/* Calls `change` once for each distinct token of the window. */
static void each_distinct(qn_sampler *s, const int32_t *history, size_t count,
                          int32_t window,
                          void (*change)(qn_sampler *s, int32_t id,
                                         uint32_t times))
{
    const int32_t *ids = tail(history, &count, window);
    for (size_t i = 0; i < count; i++)
        s->seen[ids[i]]++;
    for (size_t i = 0; i < count; i++) {
        uint32_t times = s->seen[ids[i]];
        s->seen[ids[i]] = 0;
        if (times)
            change(s, ids[i], times);
    }
}

static void repeat_less(qn_sampler *s, int32_t id, uint32_t times)
{
    (void)times;
    float r = (float)s->p.repetition_penalty, l = s->lp[id];
    s->lp[id] = l < 0 ? l * r : l / r;
}

static void be_absent(qn_sampler *s, int32_t id, uint32_t times)
{
    (void)times;
    s->lp[id] -= (float)s->p.presence_penalty;
}

static void be_rare(qn_sampler *s, int32_t id, uint32_t times)
{
    s->lp[id] -= (float)s->p.frequency_penalty * (float)times;
}

static void add_bias(qn_sampler *s)
{
    for (size_t i = 0; i < s->p.logit_bias_count; i++) {
        const quern_logit_bias *b = &s->bias[i];
        if (b->bias <= -100)
            s->lp[b->id] = -INFINITY;
        else
            s->lp[b->id] += b->bias;
    }
}

static void add_penalties(qn_sampler *s, const int32_t *history, size_t count)
{
    const quern_sampling *p = &s->p;
    if (p->repetition_penalty != 0 && p->repetition_penalty != 1)
        each_distinct(s, history, count, p->repetition_context_size,
                      repeat_less);
    if (p->presence_penalty != 0)
        each_distinct(s, history, count, p->presence_context_size, be_absent);
    if (p->frequency_penalty != 0)
        each_distinct(s, history, count, p->frequency_context_size, be_rare);
}

/* l - logsumexp(l), in place, with the sum in double. */
static qn_status normalize(qn_sampler *s)
{
    float top = -INFINITY;
    bool nan = false;
    for (int32_t i = 0; i < s->vocab; i++) {
        top = s->lp[i] > top ? s->lp[i] : top;
        nan |= isnan(s->lp[i]);
    }
    if (nan || top == INFINITY)
        return qn_fail(QN_E_INTERNAL, "the model gave logits that are no "
                                      "numbers");
    if (top == -INFINITY)
        return qn_fail(QN_E_INTERNAL, "no token is allowed");
    double sum = 0;
    for (int32_t i = 0; i < s->vocab; i++)
        sum += expf(s->lp[i] - top);
    double norm = top + log(sum);
    for (int32_t i = 0; i < s->vocab; i++)
        s->lp[i] = (float)(s->lp[i] - norm);
    return QN_OK;
}

static int32_t likeliest(const float *lp, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        best = lp[i] > lp[best] ? i : best;
    return best;
}

/* ---- the draw ---- */

/* The next key of the sequence: splits, keeps one half and gives the other. */
static qn_status next_key(qn_sampler *s, mlx_array *out)
{
    return qn_engine(mlx_random_split(&s->key, out, s->key, s->stream));
}

/* A number in [0, 1). */
static qn_status draw_uniform(qn_sampler *s, float *out)
{
    mlx_array key = {NULL}, u = {NULL};
    mlx_array low = mlx_array_new_float32(0);
    mlx_array high = mlx_array_new_float32(1);
    qn_status status = qn_engine_made(low.ctx);
    if (!status)
        status = qn_engine_made(high.ctx);
    if (!status)
        status = next_key(s, &key);
    if (!status)
        status = qn_engine(mlx_random_uniform(&u, low, high, (int[]){1}, 1,
                                              MLX_FLOAT32, key, s->stream));
    if (!status)
        status = qn_engine(mlx_array_item_float32(out, u));
    mlx_array_free(key);
    mlx_array_free(u);
    mlx_array_free(low);
    mlx_array_free(high);
    return status;
}

/* An id, drawn with probabilities exp(left / temperature). */
static qn_status draw_id(qn_sampler *s, int32_t *out)
{
    float scale = (float)(1 / s->p.temperature);
    for (int32_t i = 0; i < s->vocab; i++)
        s->left[i] *= scale;
    mlx_array key = {NULL}, id = {NULL};
    mlx_array logits =
        mlx_array_new_data(s->left, (int[]){1, s->vocab}, 2, MLX_FLOAT32);
    qn_status status = qn_engine_made(logits.ctx);
    uint32_t value = 0;
    if (!status)
        status = next_key(s, &key);
    if (!status)
        status =
            qn_engine(mlx_random_categorical(&id, logits, -1, key, s->stream));
    if (!status)
        status = qn_engine(mlx_array_item_uint32(&value, id));
    mlx_array_free(key);
    mlx_array_free(id);
    mlx_array_free(logits);
    /* Rounding in the cumulative sum may give an id behind the last allowed
     * one, never a token that a filter dropped. */
    if (!status && (value >= (uint32_t)s->vocab || isinf(s->left[value])))
        value = (uint32_t)likeliest(s->left, s->vocab);
    *out = (int32_t)value;
    return status;
}

static qn_status filter(qn_sampler *s)
{
    const quern_sampling *p = &s->p;
    memcpy(s->left, s->lp, (size_t)s->vocab * sizeof *s->left);
    qn_filter_top_p(s->left, s->vocab, p->top_p, s->scratch);
    qn_filter_min_p(s->left, s->vocab, p->min_p);
    qn_filter_typical(s->left, s->vocab, p->typical_p, s->scratch);
    if (p->xtc_probability > 0) {
        float u = 0;
        qn_status status = draw_uniform(s, &u);
        if (status)
            return status;
        if (u < p->xtc_probability)
            qn_filter_xtc(s->left, s->vocab, p->xtc_threshold, s->exempt,
                          s->exempt_count);
    }
    qn_filter_top_k(s->left, s->vocab, p->top_k, s->scratch);
    return QN_OK;
}

qn_status qn_sampler_take(qn_sampler *s, int32_t *out, const float *logits,
                          const int32_t *history, size_t count, bool no_end)
{
    memcpy(s->lp, logits, (size_t)s->vocab * sizeof *s->lp);
    add_bias(s);
    add_penalties(s, history, count);
    for (int32_t i = s->token_count; i < s->vocab; i++)
        s->lp[i] = -INFINITY;
    for (size_t i = 0; no_end && i < s->end_count; i++)
        s->lp[s->exempt[i]] = -INFINITY;
    qn_status status = normalize(s);
    if (status)
        return status;
    if (s->p.temperature == 0) {
        *out = likeliest(s->lp, s->vocab);
        return QN_OK;
    }
    status = filter(s);
    return status ? status : draw_id(s, out);
}

qn_status qn_sampler_score(qn_sampler *s, const float *logits)
{
    memcpy(s->lp, logits, (size_t)s->vocab * sizeof *s->lp);
    for (int32_t i = s->token_count; i < s->vocab; i++)
        s->lp[i] = -INFINITY;
    return normalize(s);
}

float qn_sampler_logprob(const qn_sampler *s, int32_t id)
{
    return s->lp[id];
}

int qn_sampler_top(const qn_sampler *s, quern_top_logprob *out, int count)
{
    int found = 0;
    for (int32_t id = 0; id < s->vocab; id++) {
        float lp = s->lp[id];
        if (lp == -INFINITY ||
            (found == count && (!count || lp <= out[count - 1].logprob)))
            continue;
        int at = found < count ? found++ : count - 1;
        for (; at > 0 && out[at - 1].logprob < lp; at--)
            out[at] = out[at - 1];
        out[at] = (quern_top_logprob){.id = id, .logprob = lp};
    }
    return found;
}
