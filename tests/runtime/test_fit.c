/* What fit.c predicts beside what is allocated, for a tiny model of every
 * family and form. */
#include "support/recipe.h"

#include "runtime/job.h"

#include <dirent.h>

/* SLACK: the pool hands out whole pages, and small things beside the large. */
enum { CTX = 256, SLACK = 4 << 10 };

/* ---- what lies outside of the pool ---- */

/* Arrays over memory that is not the pool's: files, and what was converted. */
static uint64_t outside;

typedef struct lent {
    void *payload;
    void (*done)(void *);
    uint64_t bytes;
} lent;

static void give_back(void *data)
{
    lent *l = data;
    outside -= l->bytes;
    l->done(l->payload);
    qn_free(l);
}

mlx_array __real_mlx_array_new_data_managed_payload(void *, const int *, int,
                                                    mlx_dtype, void *,
                                                    void (*)(void *));
mlx_array __wrap_mlx_array_new_data_managed_payload(void *data,
                                                    const int *shape, int dim,
                                                    mlx_dtype dtype,
                                                    void *payload,
                                                    void (*done)(void *));
mlx_array __wrap_mlx_array_new_data_managed(void *data, const int *shape,
                                            int dim, mlx_dtype dtype,
                                            void (*done)(void *));

mlx_array __wrap_mlx_array_new_data_managed_payload(void *data,
                                                    const int *shape, int dim,
                                                    mlx_dtype dtype,
                                                    void *payload,
                                                    void (*done)(void *))
{
    lent *l = qn_calloc(1, sizeof *l);
    assert_non_null(l);
    *l = (lent){payload, done, mlx_dtype_size(dtype)};
    for (int i = 0; i < dim; i++)
        l->bytes *= (uint64_t)shape[i];
    outside += l->bytes;
    return __real_mlx_array_new_data_managed_payload(data, shape, dim, dtype, l,
                                                     give_back);
}

mlx_array __wrap_mlx_array_new_data_managed(void *data, const int *shape,
                                            int dim, mlx_dtype dtype,
                                            void (*done)(void *))
{
    return __wrap_mlx_array_new_data_managed_payload(data, shape, dim, dtype,
                                                     data, done);
}

/* ---- a model ---- */

/* Within a tenth, and some kilobytes. */
static void check_near(const char *name, const char *part, uint64_t predicted,
                       uint64_t measured)
{
    double p = (double)predicted, m = (double)measured;
    if (p >= m * 0.9 - SLACK && p <= m * 1.1 + SLACK)
        return;
    print_error("%s: %s: predicted %llu, measured %llu\n", name, part,
                (unsigned long long)predicted, (unsigned long long)measured);
    fail();
}

static uint64_t cache_bytes(const quern_session *session)
{
    uint64_t sum = 0;
    mlx_vector_array arrays = mlx_vector_array_new();
    assert_int_equal(qn_kv_cache_arrays(session->cache, arrays), QN_OK);
    for (size_t i = 0; i < mlx_vector_array_size(arrays); i++) {
        mlx_array part = mlx_array_new();
        mlx_vector_array_get(&part, arrays, i);
        sum += mlx_array_nbytes(part);
        mlx_array_free(part);
    }
    mlx_vector_array_free(arrays);
    return sum;
}

static size_t peak_memory(void)
{
    size_t peak;
    quern_memory(NULL, &peak, NULL);
    return peak;
}

/* Takes `count` tokens in one step; *kv is what its cache has then. */
static size_t feed(quern_model *model, const int32_t *ids, size_t count,
                   uint64_t *kv)
{
    quern_error error = {.status = QUERN_OK};
    quern_session *session = NULL;
    assert_int_equal(quern_session_new(&session, model, &error), QUERN_OK);
    quern_memory_reset_peak();
    if (quern_session_feed(session, ids, count, &error))
        fail_msg("%s", error.message);
    size_t peak = peak_memory();
    *kv = cache_bytes(session);
    quern_session_free(session);
    return peak;
}

/* Texts of `count` tokens and a rest, which make one step. */
static size_t embed(quern_model *model, const int32_t *ids, size_t count)
{
    quern_error error = {.status = QUERN_OK};
    quern_embed_options options;
    quern_embed_input inputs[CTX];
    quern_embeddings vectors;
    size_t texts = 0, left = (size_t)model->prefill_chunk;
    quern_embed_options_init(&options);
    options.pooling = QUERN_POOLING_CLS;
    assert_true(left <= CTX * count);
    for (; left; left -= inputs[texts++].id_count)
        inputs[texts] = (quern_embed_input){
            .ids = ids, .id_count = left < count ? left : count};
    quern_memory_reset_peak();
    if (quern_embed(model, inputs, texts, &options, &vectors, &error))
        fail_msg("%s", error.message);
    quern_embeddings_free(&vectors);
    return peak_memory();
}

static void check_parts(const char *name, quern_model *model, size_t before,
                        size_t held)
{
    quern_error error = {.status = QUERN_OK};
    quern_fit fit;
    quern_info info;
    quern_model_info(model, &info);
    int64_t count = info.ctx < CTX ? info.ctx : CTX;
    quern_fit_options o = {.ctx = count};
    assert_int_equal(quern_model_fit(&fit, model, &o, &error), QUERN_OK);
    check_near(name, "weights", fit.weights, held + outside);
    int32_t ids[CTX];
    for (int i = 0; i < CTX; i++)
        ids[i] = 3 + i % 50;
    uint64_t kv = 0, peak;
    if (qn_model_is_encoder(model->model))
        peak = embed(model, ids, (size_t)count);
    else
        peak = feed(model, ids, (size_t)count, &kv);
    check_near(name, "kv", fit.kv + fit.state, kv);
    check_near(name, "workspace", fit.workspace, peak - before - held - kv);
}

static void check_model(const char *name, const char *path, quern_dtype dtype,
                        const char *dense)
{
    quern_options options;
    quern_error error = {.status = QUERN_OK};
    quern_model *model = NULL;
    size_t before, active, limit;
    quern_options_init(&options);
    options.dtype = dtype;
    options.gguf_dequant = dense;
    options.compat = strncmp(name, "compat-", 7) ? NULL : "mlx-lm";
    /* A block that lies ready is taken for less than it is, and counted as if
     * all of it were in use. */
    mlx_set_cache_limit(&limit, 0);
    quern_memory(&before, NULL, NULL);
    assert_int_equal(outside, 0);
    if (quern_model_load(&model, path, &options, &error))
        fail_msg("%s: %s: %s", name, error.where, error.message);
    quern_memory(&active, NULL, NULL);
    check_parts(name, model, before, active - before);
    quern_model_free(model);
    mlx_set_cache_limit(&limit, limit);
}

static void check_all(const char *name, const char *path)
{
    static const quern_dtype ways[] = {QUERN_DTYPE_AUTO, QUERN_DTYPE_F32,
                                       QUERN_DTYPE_BF16};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        check_model(name, path, ways[i], NULL);
    /* How popular one of three dense experts is, is a guess: 11 % there. */
    if (!strncmp(name, "gguf-", 5) && strcmp(name, "gguf-mixtral-q4_k") != 0)
        check_model(name, path, QUERN_DTYPE_AUTO, "f16");
}

static void test_tiny_models(void **state)
{
    (void)state;
    static const char *const names[] = {"tiny",       "tiny_h64",
                                        "tiny_head",  "tiny_q4",
                                        "tiny_mxfp4", "tiny_q_mixed"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/cases/fixtures/models/%s",
                 QN_TEST_VECTORS, names[i]);
        check_all(names[i], path);
    }
}

static void check_golden(const char *name)
{
    char *dir = temp_dir_new(), *path = recipe_write(name, dir);
    size_t size;
    char *text =
        vector_read("cases/fixtures/models/tiny/tokenizer.json", &size);
    temp_write(dir, "tokenizer.json", text, size);
    qn_free(text);
    check_all(name, path);
    qn_free(path);
    temp_dir_remove(dir);
}

/* Every model that test_goldens has. */
static void test_every_family(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s/models", QN_TEST_VECTORS);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    int count = 0;
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.') {
            check_golden(e->d_name);
            count++;
        }
    closedir(dir);
    assert_true(count > 60);
}

/* What does not fit is refused before it is read, and `force` loads it. */
static void test_admission(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s/cases/fixtures/models/tiny",
             QN_TEST_VECTORS);
    quern_options options;
    quern_error error = {.status = QUERN_OK};
    quern_model *model = NULL;
    quern_fit fit;
    quern_options_init(&options);
    options.headers_only = true;
    assert_int_equal(quern_model_load(&model, path, &options, &error),
                     QUERN_OK);
    quern_machine small = {.memory = 10 << 20, .usable = 9 << 20};
    quern_fit_options o = {.machine = &small, .parallel = 8};
    assert_int_equal(quern_model_fit(&fit, model, &o, &error), QUERN_OK);
    assert_false(fit.fits);
    assert_int_equal(fit.max_context, 0);
    small.usable = fit.required - 1;
    assert_int_equal(quern_model_fit(&fit, model, &o, &error), QUERN_OK);
    assert_false(fit.fits);
    assert_true(fit.max_context > 0 && fit.max_context < fit.context);
    assert_true(fit.remedy_count > 0);
    assert_string_equal(fit.remedies[0].flag, "parallel");
    assert_string_equal(fit.remedies[0].value, "7");
    /* The remedy is one. */
    o.parallel = 7;
    assert_int_equal(quern_model_fit(&fit, model, &o, &error), QUERN_OK);
    assert_true(fit.fits);
    o = (quern_fit_options){.machine = &small, .kv = "nothing"};
    assert_int_equal(quern_model_fit(&fit, model, &o, &error), QUERN_E_ARG);
    o = (quern_fit_options){.machine = &small, .parallel = 2000};
    assert_int_equal(quern_model_fit(&fit, model, &o, &error), QUERN_E_ARG);
    quern_model_free(model);
}

/* ---- what an answer sets aside ---- */

static quern_model *load_fixture(const char *name, const quern_options *options)
{
    quern_error error = {.status = QUERN_OK};
    quern_model *model = NULL;
    char path[512];
    snprintf(path, sizeof path, "%s/cases/fixtures/models/%s", QN_TEST_VECTORS,
             name);
    if (quern_model_load(&model, path, options, &error))
        fail_msg("%s: %s", error.where, error.message);
    return model;
}

static quern_model *load_tiny(const quern_options *options)
{
    return load_fixture("tiny", options);
}

/* An answer of `answer` tokens behind `prompt` takes what was said, or less
 * than that by no more than a window's move. */
static void check_answer(quern_model *model, int prompt, int answer, bool exact)
{
    int32_t ids[CTX];
    quern_error error = {.status = QUERN_OK};
    quern_request r;
    quern_job *job = NULL;
    for (int i = 0; i < prompt; i++)
        ids[i] = 3 + i % 50;
    quern_request_init(&r, model);
    r.ids = ids;
    r.id_count = (size_t)prompt;
    r.max_tokens = answer;
    r.ignore_eos = true;
    assert_int_equal(quern_submit(&job, model, NULL, &r, &error), QUERN_OK);
    assert_int_equal(quern_job_result(job, NULL, &error), QUERN_OK);
    uint64_t held = cache_bytes(job->session);
    uint64_t said = quern_model_kv_bytes(model, prompt + answer, false);
    if (exact)
        assert_int_equal(held, said);
    else
        assert_true(held <= said && held > 0);
    quern_job_free(job);
}

static void test_answers_take_what_they_set_aside(void **state)
{
    (void)state;
    static const int sizes[][2] = {{1, 1},    {20, 8},  {100, 27},
                                   {100, 29}, {127, 2}, {5, 250},
                                   {200, 56}, {129, 1}, {128, 128}};
    quern_options options[4];
    for (int i = 0; i < 4; i++)
        quern_options_init(&options[i]);
    options[1].kv = options[3].kv = "affine8";
    options[2].max_kv_size = 32;
    options[3].kv_quant_start = 150;
    for (int k = 0; k < 4; k++) {
        quern_model *model = load_fixture("tiny_h64", &options[k]);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            check_answer(model, sizes[i][0], sizes[i][1], k < 2);
        /* Nobody's sequence is longer than the context. */
        assert_int_equal(quern_model_kv_bytes(model, CTX, false),
                         quern_model_kv_bytes(model, 10 * CTX, false));
        quern_model_free(model);
    }
}

static uint64_t kept_bytes(quern_model *model)
{
    quern_prefix_stats stats;
    quern_model_prefixes(model, &stats);
    return stats.bytes;
}

static void run_job(quern_model *model, const quern_request *r,
                    quern_result *result)
{
    quern_error error = {.status = QUERN_OK};
    quern_job *job = NULL;
    assert_int_equal(quern_submit(&job, model, NULL, r, &error), QUERN_OK);
    assert_int_equal(quern_job_result(job, result, &error), QUERN_OK);
    quern_job_free(job);
}

/* A kept sequence that is longer than what is asked now has more room than the
 * new answer set aside. */
static void test_a_hit_takes_no_more_than_the_answer_set_aside(void **state)
{
    (void)state;
    int32_t ids[CTX];
    quern_options options;
    quern_request r;
    quern_result result;
    quern_options_init(&options);
    options.prefix_cache = 1 << 20;
    quern_model *model = load_tiny(&options);
    for (int i = 0; i < CTX; i++)
        ids[i] = 3 + i % 50;
    quern_request_init(&r, model);
    r.ids = ids;
    r.id_count = 240;
    r.max_tokens = 10;
    r.ignore_eos = true;
    run_job(model, &r, &result);
    quern_result_free(&result);
    uint64_t before = kept_bytes(model);
    for (int i = 40; i < CTX; i++)
        ids[i] = 4;
    r.id_count = 50;
    run_job(model, &r, &result);
    assert_int_equal(result.cached_tokens, 40);
    quern_result_free(&result);
    assert_true(kept_bytes(model) - before <=
                quern_model_kv_bytes(model, 60, false));
    quern_model_free(model);
}

/* The small model's sequence comes on top. */
static void test_guesses_take_what_they_set_aside(void **state)
{
    (void)state;
    char path[512];
    quern_options options;
    quern_options_init(&options);
    snprintf(path, sizeof path, "%s/cases/fixtures/models/tiny",
             QN_TEST_VECTORS);
    options.draft = path;
    quern_model *model = load_tiny(&options);
    uint64_t plain = quern_model_kv_bytes(model, 100, false);
    assert_true(quern_model_kv_bytes(model, 100, true) >= 2 * plain);
    quern_error error = {.status = QUERN_OK};
    quern_fit fit;
    quern_fit_options o = {.parallel = 3};
    assert_int_equal(quern_model_fit(&fit, model, &o, &error), QUERN_OK);
    assert_int_equal(fit.kv + fit.state + fit.guesses,
                     3 * quern_model_kv_bytes(model, CTX, true));
    assert_int_equal(fit.draft - fit.guesses, model->draft->held.weights);
    quern_model_free(model);
    options.draft = NULL;
    options.ngram = true;
    model = load_tiny(&options);
    assert_int_equal(quern_model_kv_bytes(model, 100, true), plain);
    quern_model_free(model);
}

/* A budget bounds what sequences take, however many there may be. */
static void test_a_budget_is_what_is_counted(void **state)
{
    (void)state;
    quern_error error = {.status = QUERN_OK};
    quern_options options;
    quern_options_init(&options);
    quern_model *model = load_tiny(&options);
    quern_machine small = {.memory = 1 << 30, .usable = 1 << 30};
    quern_fit fit, budgeted;
    quern_fit_options o = {.machine = &small, .parallel = 900};
    assert_int_equal(quern_model_fit(&fit, model, &o, &error), QUERN_OK);
    o.kv_budget = 100000;
    assert_int_equal(quern_model_fit(&budgeted, model, &o, &error), QUERN_OK);
    assert_int_equal(budgeted.kv + budgeted.state, 100000);
    assert_int_equal(fit.required - budgeted.required, fit.kv - 100000);
    /* Where it is too much, less is a remedy. */
    small.usable = budgeted.required - 1000;
    assert_int_equal(quern_model_fit(&budgeted, model, &o, &error), QUERN_OK);
    assert_false(budgeted.fits);
    assert_string_equal(budgeted.remedies[0].flag, "kv-budget");
    assert_string_equal(budgeted.remedies[0].value, "99000");
    o.kv_budget = 99000;
    assert_int_equal(quern_model_fit(&budgeted, model, &o, &error), QUERN_OK);
    assert_true(budgeted.fits);
    quern_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny_models),
        cmocka_unit_test(test_every_family),
        cmocka_unit_test(test_admission),
        cmocka_unit_test(test_answers_take_what_they_set_aside),
        cmocka_unit_test(test_a_hit_takes_no_more_than_the_answer_set_aside),
        cmocka_unit_test(test_guesses_take_what_they_set_aside),
        cmocka_unit_test(test_a_budget_is_what_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
