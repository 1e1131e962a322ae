/* The sampler: ranges, the order of its steps against a slow double-precision
 * version, draws, seeds. */
#include "support/qn_test.h"

#include "kv/engine.h"
#include "runtime/sampler.h"

#include <math.h>

enum { V = 64 };

static mlx_stream stream;

static int open_engine(void **state)
{
    (void)state;
    if (qn_engine_start())
        return 1;
    stream = mlx_default_cpu_stream_new();
    return !stream.ctx;
}

static int close_engine(void **state)
{
    (void)state;
    return mlx_stream_free(stream);
}

static quern_sampling plain(void)
{
    return (quern_sampling){
        .temperature = 1,
        .top_p = 1,
        .typical_p = 1,
        .repetition_context_size = 20,
        .presence_context_size = 20,
        .frequency_context_size = 20,
        .has_seed = true,
        .seed = 1,
    };
}

static const int32_t end_ids[] = {3, 5};

static qn_status make(qn_sampler **out, const quern_sampling *sampling)
{
    qn_sampler_setup setup = {
        .sampling = sampling,
        .vocab = V,
        .token_count = V,
        .end_ids = end_ids,
        .end_count = 2,
        .newline = 7,
        .stream = stream,
    };
    return qn_sampler_new(out, &setup);
}

static uint32_t random_state = 7;

static float uniform(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return (float)(random_state / 4294967296.0);
}

static void random_logits(float *logits)
{
    for (int i = 0; i < V; i++)
        logits[i] = 12 * uniform() - 6;
}

/* ---- ranges ---- */

static void check_range(void (*set)(quern_sampling *s, double value),
                        double low, double high, bool open_low,
                        const char *name)
{
    const struct {
        double value;
        bool good;
    } rows[] = {
        {low, !open_low},   {high, true},        {(low + high) / 2, true},
        {low - 0.1, false}, {high + 0.1, false}, {NAN, false},
        {INFINITY, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        quern_sampling s = plain();
        set(&s, rows[i].value);
        if (rows[i].good) {
            check_status(qn_sampling_check(&s, V), QN_OK);
        } else {
            check_error(qn_sampling_check(&s, V), QN_E_ARG, name);
            assert_string_equal(qn_error_where(), name);
        }
    }
}

#define SETTER(member)                                                         \
    static void set_##member(quern_sampling *s, double value)                  \
    {                                                                          \
        s->member = value;                                                     \
    }
SETTER(temperature)
SETTER(top_p)
SETTER(min_p)
SETTER(typical_p)
SETTER(xtc_probability)
SETTER(xtc_threshold)
SETTER(repetition_penalty)
SETTER(presence_penalty)
SETTER(frequency_penalty)

static void test_each_range_is_checked(void **state)
{
    (void)state;
    check_range(set_temperature, 0, 5, false, "temperature");
    check_range(set_top_p, 0, 1, true, "top_p");
    check_range(set_min_p, 0, 1, false, "min_p");
    check_range(set_typical_p, 0, 1, true, "typical_p");
    check_range(set_xtc_probability, 0, 1, false, "xtc_probability");
    check_range(set_xtc_threshold, 0, 0.5, false, "xtc_threshold");
    check_range(set_repetition_penalty, 0, 10, false, "repetition_penalty");
    check_range(set_presence_penalty, -2, 2, false, "presence_penalty");
    check_range(set_frequency_penalty, -2, 2, false, "frequency_penalty");

    quern_sampling s = plain();
    s.top_k = -1;
    check_status(qn_sampling_check(&s, V), QN_OK);
    s.top_k = INT32_MAX;
    check_status(qn_sampling_check(&s, V), QN_OK);
    s.top_k = -2;
    check_error(qn_sampling_check(&s, V), QN_E_ARG, "top_k");
    s = plain();
    s.seed = INT64_MAX;
    check_status(qn_sampling_check(&s, V), QN_OK);
    s.seed++;
    check_error(qn_sampling_check(&s, V), QN_E_ARG, "seed");
    s = plain();
    s.frequency_context_size = -1;
    check_error(qn_sampling_check(&s, V), QN_E_ARG, "frequency_context_size");
}

static void test_biases_are_checked(void **state)
{
    (void)state;
    static quern_logit_bias many[1025];
    quern_sampling s = plain();
    s.logit_bias = many;
    s.logit_bias_count = 1024;
    check_status(qn_sampling_check(&s, V), QN_OK);
    s.logit_bias_count = 1025;
    check_error(qn_sampling_check(&s, V), QN_E_ARG, "1024");
    quern_logit_bias one = {V, 1};
    s.logit_bias = &one;
    s.logit_bias_count = 1;
    check_error(qn_sampling_check(&s, V), QN_E_ARG, "vocabulary");
    one = (quern_logit_bias){-1, 1};
    check_error(qn_sampling_check(&s, V), QN_E_ARG, "vocabulary");
    one = (quern_logit_bias){0, 100.5f};
    check_error(qn_sampling_check(&s, V), QN_E_ARG, "-100..100");
    one = (quern_logit_bias){0, NAN};
    check_error(qn_sampling_check(&s, V), QN_E_ARG, "-100..100");
}

/* ---- log probabilities ---- */

static int in_window(const int32_t *history, int count, int window, int32_t id)
{
    int times = 0;
    int first = window && window < count ? count - window : 0;
    for (int i = first; i < count; i++)
        times += history[i] == id;
    return times;
}

/* Steps 1 to 6 of the order, in double. */
static void slow_log_probs(double *out, const float *logits,
                           const quern_sampling *s, const int32_t *history,
                           int count)
{
    double sum = 0;
    for (int id = 0; id < V; id++) {
        double l = logits[id];
        for (size_t b = 0; b < s->logit_bias_count; b++)
            if (s->logit_bias[b].id == id)
                l = s->logit_bias[b].bias <= -100 ? -INFINITY
                                                  : l + s->logit_bias[b].bias;
        double r = s->repetition_penalty;
        if (r != 0 && in_window(history, count, s->repetition_context_size, id))
            l = l < 0 ? l * r : l / r;
        if (in_window(history, count, s->presence_context_size, id))
            l -= s->presence_penalty;
        l -= s->frequency_penalty *
             in_window(history, count, s->frequency_context_size, id);
        out[id] = l;
        sum += exp(l);
    }
    for (int id = 0; id < V; id++)
        out[id] -= log(sum);
}

static void test_log_probs_follow_bias_and_penalties(void **state)
{
    (void)state;
    static const quern_logit_bias bias[] = {{1, 3}, {2, -100}, {9, -0.5f}};
    for (int round = 0; round < 60; round++) {
        float logits[V];
        double expected[V];
        int32_t history[40];
        int count = round % 41;
        random_logits(logits);
        for (int i = 0; i < count; i++)
            history[i] = (int32_t)(uniform() * 20);
        quern_sampling s = plain();
        s.temperature = 0;
        if (round % 2)
            s.repetition_penalty = 0.5 + 2 * uniform();
        if (round % 3)
            s.presence_penalty = 4 * uniform() - 2;
        if (round % 5)
            s.frequency_penalty = 4 * uniform() - 2;
        s.repetition_context_size = round % 7 ? 5 : 0;
        s.presence_context_size = round % 4;
        s.frequency_context_size = 30;
        if (round % 6 < 3) {
            s.logit_bias = bias;
            s.logit_bias_count = 3;
        }
        qn_sampler *sampler;
        check_status(make(&sampler, &s), QN_OK);
        int32_t id;
        check_status(qn_sampler_take(sampler, &id, logits, history,
                                     (size_t)count, false),
                     QN_OK);
        slow_log_probs(expected, logits, &s, history, count);
        int32_t best = 0;
        for (int i = 0; i < V; i++) {
            float lp = qn_sampler_logprob(sampler, i);
            if (isinf(expected[i]))
                assert_true(isinf(lp));
            else
                assert_true(fabs(lp - expected[i]) < 1e-4);
            best = expected[i] > expected[best] ? i : best;
        }
        assert_true(expected[best] - expected[id] < 1e-5);
        qn_sampler_free(sampler);
    }
}

static void test_top_lists_are_in_order(void **state)
{
    (void)state;
    float logits[V];
    for (int i = 0; i < V; i++)
        logits[i] = (float)(i * 13 % 8); /* eight values, eight ids each */
    quern_sampling s = plain();
    s.temperature = 0;
    qn_sampler *sampler;
    check_status(make(&sampler, &s), QN_OK);
    int32_t id;
    check_status(qn_sampler_take(sampler, &id, logits, NULL, 0, false), QN_OK);
    /* The lowest id among the likeliest: 13 i mod 8 is 7 first at 3. */
    assert_int_equal(id, 3);
    quern_top_logprob top[20];
    assert_int_equal(qn_sampler_top(sampler, top, 20), 20);
    for (int i = 1; i < 20; i++) {
        assert_true(top[i - 1].logprob > top[i].logprob ||
                    (top[i - 1].logprob == top[i].logprob &&
                     top[i - 1].id < top[i].id));
    }
    assert_int_equal(top[0].id, 3);
    assert_int_equal(qn_sampler_top(sampler, top, 0), 0);
    qn_sampler_free(sampler);
}

/* ---- masks and broken logits ---- */

static void test_masked_ids_are_never_taken(void **state)
{
    (void)state;
    float logits[V] = {0};
    logits[3] = 50;  /* an end id */
    logits[60] = 40; /* behind what the tokenizer knows */
    logits[8] = 30;
    for (int greedy = 0; greedy < 2; greedy++) {
        quern_sampling s = plain();
        s.temperature = greedy ? 0 : 1;
        qn_sampler *sampler;
        qn_sampler_setup setup = {.sampling = &s,
                                  .vocab = V,
                                  .token_count = 60,
                                  .end_ids = end_ids,
                                  .end_count = 2,
                                  .newline = -1,
                                  .stream = stream};
        check_status(qn_sampler_new(&sampler, &setup), QN_OK);
        int32_t id;
        check_status(qn_sampler_take(sampler, &id, logits, NULL, 0, false),
                     QN_OK);
        assert_int_equal(id, 3);
        check_status(qn_sampler_take(sampler, &id, logits, NULL, 0, true),
                     QN_OK);
        assert_int_equal(id, 8);
        qn_sampler_free(sampler);
    }
}

static void test_broken_logits_give_no_token(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY};
    for (int i = 0; i < 2; i++)
        for (int greedy = 0; greedy < 2; greedy++) {
            float logits[V];
            random_logits(logits);
            logits[41] = bad[i];
            quern_sampling s = plain();
            s.temperature = greedy ? 0 : 1;
            qn_sampler *sampler;
            check_status(make(&sampler, &s), QN_OK);
            int32_t id = -1;
            check_status(qn_sampler_take(sampler, &id, logits, NULL, 0, false),
                         QN_E_INTERNAL);
            assert_int_equal(id, -1);
            qn_sampler_free(sampler);
        }
    float none[V];
    for (int i = 0; i < V; i++)
        none[i] = -INFINITY;
    quern_sampling s = plain();
    qn_sampler *sampler;
    check_status(make(&sampler, &s), QN_OK);
    int32_t id;
    check_error(qn_sampler_take(sampler, &id, none, NULL, 0, false),
                QN_E_INTERNAL, "no token is allowed");
    qn_sampler_free(sampler);
}

/* ---- draws ---- */

static void draw(const quern_sampling *s, const float *logits, int count,
                 int32_t *out)
{
    qn_sampler *sampler;
    check_status(make(&sampler, s), QN_OK);
    for (int i = 0; i < count; i++)
        check_status(qn_sampler_take(sampler, &out[i], logits, NULL, 0, false),
                     QN_OK);
    qn_sampler_free(sampler);
}

static void test_seeds_repeat_and_differ(void **state)
{
    (void)state;
    float logits[V];
    int32_t a[40], b[40], c[40];
    random_logits(logits);
    quern_sampling s = plain();
    draw(&s, logits, 40, a);
    draw(&s, logits, 40, b);
    assert_memory_equal(a, b, sizeof a);
    s.seed = 2;
    draw(&s, logits, 40, c);
    assert_memory_not_equal(a, c, sizeof a);
    /* The upper half of the seed counts too. */
    s.seed = 1 + (UINT64_C(1) << 32);
    draw(&s, logits, 40, c);
    assert_memory_not_equal(a, c, sizeof a);

    s.has_seed = false;
    qn_sampler *x, *y;
    check_status(make(&x, &s), QN_OK);
    check_status(make(&y, &s), QN_OK);
    assert_int_not_equal(qn_sampler_seed(x), qn_sampler_seed(y));
    assert_true(qn_sampler_seed(x) <= INT64_MAX);
    qn_sampler_free(x);
    qn_sampler_free(y);
}

/* The key of draw t, made by the library itself: split, keep the first. */
static void test_draws_are_those_of_the_library(void **state)
{
    (void)state;
    float logits[V], lp[V];
    double sum = 0;
    int32_t found[10];
    random_logits(logits);
    quern_sampling s = plain();
    s.temperature = 0.7;
    s.seed = 12345678901234;
    draw(&s, logits, 10, found);
    for (int i = 0; i < V; i++)
        sum += expf(logits[i] - 6);
    for (int i = 0; i < V; i++)
        lp[i] = (float)(logits[i] - (6 + log(sum))) * (float)(1 / 0.7);
    mlx_array key = {NULL}, use = {NULL}, id = {NULL};
    mlx_array x = mlx_array_new_data(lp, (int[]){1, V}, 2, MLX_FLOAT32);
    assert_int_equal(mlx_random_key(&key, s.seed), 0);
    for (int t = 0; t < 10; t++) {
        uint32_t value;
        assert_int_equal(mlx_random_split(&key, &use, key, stream), 0);
        assert_int_equal(mlx_random_categorical(&id, x, -1, use, stream), 0);
        assert_int_equal(mlx_array_item_uint32(&value, id), 0);
        assert_int_equal(found[t], (int32_t)value);
    }
    mlx_array_free(key);
    mlx_array_free(use);
    mlx_array_free(id);
    mlx_array_free(x);
}

static void test_draws_follow_the_distribution(void **state)
{
    (void)state;
    enum { N = 4000 };
    static int32_t ids[N];
    float logits[V];
    double p[V], sum = 0, chi = 0;
    int counts[V] = {0}, cells = 0;
    random_logits(logits);
    quern_sampling s = plain();
    s.temperature = 2;
    draw(&s, logits, N, ids);
    for (int i = 0; i < V; i++)
        sum += p[i] = exp(logits[i] / 2);
    for (int i = 0; i < N; i++)
        counts[ids[i]]++;
    for (int i = 0; i < V; i++) {
        double expected = N * p[i] / sum;
        if (expected < 5)
            continue;
        chi += (counts[i] - expected) * (counts[i] - expected) / expected;
        cells++;
    }
    /* Mean cells, standard deviation sqrt(2 cells): six of them away means
     * another distribution. */
    assert_true(cells > 20);
    assert_true(chi < cells + 6 * sqrt(2.0 * cells));
}

static void test_filters_limit_the_draws(void **state)
{
    (void)state;
    enum { N = 300 };
    int32_t ids[N];
    float logits[V];
    for (int i = 0; i < V; i++)
        logits[i] = -0.1f * (float)i;
    quern_sampling s = plain();
    s.top_k = 3;
    draw(&s, logits, N, ids);
    for (int i = 0; i < N; i++)
        assert_true(ids[i] < 3);
    s = plain();
    s.min_p = 0.5; /* e^-0.1i >= 0.5: ids up to 6 */
    draw(&s, logits, N, ids);
    for (int i = 0; i < N; i++)
        assert_true(ids[i] <= 6);
    s = plain();
    s.top_p = 1e-9;
    draw(&s, logits, N, ids);
    for (int i = 0; i < N; i++)
        assert_int_equal(ids[i], 0);
    /* XTC with probability 1 drops all likely ids but the least likely one;
     * the exempt end ids and newline stay. */
    s = plain();
    s.xtc_probability = 1;
    s.xtc_threshold = 0.05; /* ids 0 to 6 are above it */
    draw(&s, logits, N, ids);
    bool seen_end = false;
    for (int i = 0; i < N; i++) {
        assert_true(ids[i] >= 6 || ids[i] == 3 || ids[i] == 5);
        seen_end |= ids[i] == 3;
    }
    assert_true(seen_end);
}

static qn_status take_scenario(void)
{
    static const quern_logit_bias bias[] = {{1, 3}};
    float logits[V] = {0};
    quern_sampling s = plain();
    s.logit_bias = bias;
    s.logit_bias_count = 1;
    s.repetition_penalty = 1.5;
    s.xtc_probability = 0.5;
    qn_sampler *sampler;
    qn_status status = make(&sampler, &s);
    if (status)
        return status;
    int32_t id, history[] = {1, 2, 1};
    status = qn_sampler_take(sampler, &id, logits, history, 3, false);
    qn_sampler_free(sampler);
    return status;
}

static void test_memory_may_run_out(void **state)
{
    (void)state;
    each_alloc_may_fail(take_scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_range_is_checked),
        cmocka_unit_test(test_biases_are_checked),
        cmocka_unit_test(test_log_probs_follow_bias_and_penalties),
        cmocka_unit_test(test_top_lists_are_in_order),
        cmocka_unit_test(test_masked_ids_are_never_taken),
        cmocka_unit_test(test_broken_logits_give_no_token),
        cmocka_unit_test(test_seeds_repeat_and_differ),
        cmocka_unit_test(test_draws_are_those_of_the_library),
        cmocka_unit_test(test_draws_follow_the_distribution),
        cmocka_unit_test(test_filters_limit_the_draws),
        cmocka_unit_test(test_memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
