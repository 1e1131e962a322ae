/* Several sequences side by side, on the tiny model of the fixtures. */
#include "support/qn_feed.h"

#include "runtime/runtime.h"

/* A way to load a model. */
typedef struct way {
    const char *fixture;
    quern_dtype dtype;
    const char *kv;
    int64_t start, most;
} way;

static const way plain = {.fixture = "tiny"};

static quern_model *load(const way *how, int chunk)
{
    char name[80];
    snprintf(name, sizeof name, "cases/fixtures/models/%s", how->fixture);
    char *path = qn_path_join(QN_TEST_VECTORS, name);
    quern_options options;
    quern_model *model = NULL;
    quern_error error_;
    quern_options_init(&options);
    options.dtype = how->dtype;
    options.kv = how->kv;
    options.kv_quant_start = how->start;
    options.max_kv_size = how->most;
    options.prefill_chunk = chunk;
    check_feed(quern_model_load(&model, path, &options, &error_));
    qn_free(path);
    return model;
}

static void test_rows_are_those_alone(void **state)
{
    (void)state;
    /* Where packing starts late, sequences of one step are stored in two
     * ways. */
    static const way types[] = {
        {"tiny", QUERN_DTYPE_AUTO, NULL, 0, 0},
        {"tiny", QUERN_DTYPE_F32, "f32", 0, 0},
        {"tiny", QUERN_DTYPE_BF16, NULL, 0, 0},
        {"tiny_h64", QUERN_DTYPE_AUTO, "affine8", 0, 0},
        {"tiny_h64", QUERN_DTYPE_AUTO, "affine4", 9, 0},
        {"tiny_h64", QUERN_DTYPE_F32, "turbo", 0, 0},
        {"tiny_h64", QUERN_DTYPE_AUTO, "turbo:k4v5", 20, 0},
        {"tiny", QUERN_DTYPE_F32, "f32", 0, 12},
        {"tiny_h64", QUERN_DTYPE_AUTO, "affine8", 9, 17},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        /* A chunk of 12 cuts prompts while others decode. */
        for (int chunk = 0; chunk <= 12; chunk += 12) {
            quern_model *model = load(&types[i], chunk);
            check_feeds(model);
            quern_model_free(model);
        }
}

static void test_a_cancelled_one_leaves(void **state)
{
    (void)state;
    quern_model *model = load(&plain, 4);
    quern_session *s[2];
    quern_error error_;
    static const int32_t ids[] = {5, 6, 7, 8, 9, 10};
    for (int i = 0; i < 2; i++)
        check_feed(quern_session_new(&s[i], model, &error_));
    quern_session_cancel(s[1]);
    quern_feed items[2] = {{.session = s[0], .ids = ids, .count = 6},
                           {.session = s[1], .ids = ids, .count = 6}};
    check_feed(quern_sessions_feed(items, 2, &error_));
    assert_int_equal(items[0].status, QUERN_OK);
    assert_int_equal(items[1].status, QUERN_E_CANCELLED);
    assert_int_equal(quern_session_length(s[0]), 6);
    assert_int_equal(quern_session_length(s[1]), 0);
    check_feed(quern_sessions_feed(items + 1, 1, &error_));
    assert_int_equal(quern_session_length(s[1]), 6);
    for (int i = 0; i < 2; i++)
        quern_session_free(s[i]);
    quern_model_free(model);
}

static void logits_after(quern_session *s, const int32_t *ids, size_t count,
                         float *out)
{
    quern_error error_;
    check_feed(quern_session_feed(s, ids, count, &error_));
    check_feed(quern_session_logits(s, out, &error_));
}

/* Tokens that are dropped and fed again: the logits that they gave before.  A
 * sequence that is packed late can't go back to where it was not; it stays as
 * it is then, its logits too. */
static void test_tokens_are_dropped(void **state)
{
    (void)state;
    static const int32_t ids[] = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    static const way types[] = {
        {"tiny_h64", QUERN_DTYPE_AUTO, "f16", 0, 0},
        {"tiny_h64", QUERN_DTYPE_AUTO, "affine8", 0, 0},
        {"tiny_h64", QUERN_DTYPE_AUTO, "turbo", 9, 0},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        quern_model *model = load(&types[i], 0);
        quern_info info;
        quern_model_info(model, &info);
        size_t vocab = (size_t)info.vocab_size;
        float *before = malloc(vocab * sizeof *before);
        float *after = malloc(vocab * sizeof *after);
        assert_non_null(before);
        assert_non_null(after);
        quern_session *s;
        quern_error error_;
        check_feed(quern_session_new(&s, model, &error_));
        logits_after(s, ids, 12, before);
        for (size_t length = 12; length-- > 0;) {
            bool possible = !length || length >= (size_t)types[i].start;
            quern_status status = quern_session_trim(s, length, &error_);
            assert_int_equal(status, possible ? QUERN_OK : QUERN_E_UNSUPPORTED);
            assert_int_equal(quern_session_length(s), possible ? length : 12);
            if (possible)
                logits_after(s, ids + length, 12 - length, after);
            else
                check_feed(quern_session_logits(s, after, &error_));
            assert_memory_equal(before, after, vocab * sizeof *before);
        }
        quern_session_free(s);
        quern_model_free(model);
        free(before);
        free(after);
    }
}

static void test_wrong_items_are_refused(void **state)
{
    (void)state;
    quern_model *model = load(&plain, 0);
    quern_model *other = load(&plain, 0);
    quern_session *s, *foreign;
    quern_error error_;
    static const int32_t ids[] = {5, 100000};
    check_feed(quern_session_new(&s, model, &error_));
    check_feed(quern_session_new(&foreign, other, &error_));
    quern_feed items[2] = {{.session = s, .ids = ids, .count = 1},
                           {.session = s, .ids = ids, .count = 1}};
    assert_int_equal(quern_sessions_feed(items, 2, &error_), QUERN_E_ARG);
    assert_non_null(strstr(error_.message, "0 and 1 are the same"));
    items[1].session = foreign;
    assert_int_equal(quern_sessions_feed(items, 2, &error_), QUERN_E_ARG);
    assert_non_null(strstr(error_.message, "another model"));
    items[0].count = 2;
    assert_int_equal(quern_sessions_feed(items, 1, &error_), QUERN_E_ARG);
    assert_non_null(strstr(error_.message, "found 100000"));
    assert_int_equal(quern_session_length(s), 0);
    check_feed(quern_sessions_feed(items, 0, &error_));
    quern_session_free(s);
    quern_session_free(foreign);
    quern_model_free(model);
    quern_model_free(other);
}

/* Memory runs out at every allocation of a step: an error, and no leak; the
 * sequences of the step are empty, or as they were. */
static quern_model *scarce;
static qn_status feed_scenario(void)
{
    static const int32_t ids[] = {5, 6, 7};
    quern_session *s[2] = {NULL, NULL};
    quern_error error_;
    quern_status status = quern_session_new(&s[0], scarce, &error_);
    if (!status)
        status = quern_session_new(&s[1], scarce, &error_);
    quern_feed items[2] = {{.session = s[0], .ids = ids, .count = 3},
                           {.session = s[1], .ids = ids, .count = 1}};
    if (!status)
        status = quern_sessions_feed(items, 2, &error_);
    quern_session_free(s[0]);
    quern_session_free(s[1]);
    return (qn_status)status;
}

static void test_memory_may_run_out(void **state)
{
    (void)state;
    scarce = load(&(way){"tiny", QUERN_DTYPE_F32, "f16", 0, 0}, 0);
    each_alloc_may_fail(feed_scenario);
    quern_model_free(scarce);
}

/* A sequence that is not to grow fails alone. */
static void test_one_without_room_fails_alone(void **state)
{
    (void)state;
    quern_model *model = load(&plain, 4);
    quern_session *s[2];
    quern_error error_;
    static const int32_t ids[] = {5, 6, 7, 8, 9, 10};
    for (int i = 0; i < 2; i++)
        check_feed(quern_session_new(&s[i], model, &error_));
    qn_kv_cache_admit(s[0]->cache, 8);
    for (int round = 0; round < 2; round++) {
        quern_feed items[2] = {{s[0], ids, 6, QUERN_OK},
                               {s[1], ids, 6, QUERN_OK}};
        quern_status expected = round ? QUERN_E_NOMEM : QUERN_OK;
        assert_int_equal(quern_sessions_feed(items, 2, &error_), expected);
        assert_int_equal(items[0].status, expected);
        assert_int_equal(items[1].status, QUERN_OK);
    }
    assert_non_null(strstr(error_.message, "room for 8 tokens, asked for 12"));
    assert_int_equal(quern_session_length(s[0]), 6);
    assert_int_equal(quern_session_length(s[1]), 12);
    for (int i = 0; i < 2; i++)
        quern_session_free(s[i]);
    quern_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_those_alone),
        cmocka_unit_test(test_a_cancelled_one_leaves),
        cmocka_unit_test(test_tokens_are_dropped),
        cmocka_unit_test(test_wrong_items_are_refused),
        cmocka_unit_test(test_memory_may_run_out),
        cmocka_unit_test(test_one_without_room_fails_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
