/* What fit.c predicts beside what is allocated, for each tiny model. */
#include "support/qn_test.h"

#include "base/alloc.h"
#include "runtime/runtime.h"

enum { CTX = 256, SLACK = 16 << 10 };

/* Within a tenth, and some kilobytes: the pool hands out whole pages. */
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

static void check_model(const char *path)
{
    quern_options options;
    quern_error error = {.status = QUERN_OK};
    quern_model *model = NULL;
    quern_fit fit;
    size_t before, active, peak;
    quern_options_init(&options);
    quern_memory(&before, NULL, NULL);
    if (quern_model_load(&model, path, &options, &error))
        print_error("%s: %s\n", path, error.message);
    assert_non_null(model);
    quern_memory(&active, NULL, NULL);
    assert_int_equal(quern_model_fit(&fit, model, NULL, &error), QUERN_OK);
    quern_info info;
    quern_model_info(model, &info);
    /* Weights that stay in the file's pages are not the pool's. */
    uint64_t held = active - before;
    uint64_t weights = held > info.weight_bytes ? held : info.weight_bytes;
    check_near(path, "weights", fit.weights, weights);

    quern_session *session = NULL;
    assert_int_equal(quern_session_new(&session, model, &error), QUERN_OK);
    int64_t count = info.ctx < CTX ? info.ctx : CTX;
    int32_t *ids = qn_calloc((size_t)count, sizeof *ids);
    assert_non_null(ids);
    for (int64_t i = 0; i < count; i++)
        ids[i] = (int32_t)(3 + i % 50);
    quern_fit_options o = {.ctx = count};
    assert_int_equal(quern_model_fit(&fit, model, &o, &error), QUERN_OK);
    quern_memory_reset_peak();
    assert_int_equal(quern_session_feed(session, ids, (size_t)count, &error),
                     QUERN_OK);
    quern_memory(&active, &peak, NULL);
    mlx_vector_array arrays = mlx_vector_array_new();
    uint64_t kv = 0;
    assert_int_equal(qn_kv_cache_arrays(session->cache, arrays), QN_OK);
    for (size_t i = 0; i < mlx_vector_array_size(arrays); i++) {
        mlx_array part = mlx_array_new();
        mlx_vector_array_get(&part, arrays, i);
        kv += mlx_array_nbytes(part);
        mlx_array_free(part);
    }
    mlx_vector_array_free(arrays);
    check_near(path, "kv", fit.kv + fit.state, kv);
    check_near(path, "workspace", fit.workspace, peak - before - held - kv);
    qn_free(ids);
    quern_session_free(session);
    quern_model_free(model);
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
        check_model(path);
    }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny_models),
        cmocka_unit_test(test_admission),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
