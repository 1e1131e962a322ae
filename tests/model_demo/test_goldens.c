/* The demo model against the reference, as tests/vectors/goldens says: the
 * prompts and their ids, the log probabilities when the reference's tokens are
 * fed one by one, and the tokens when running freely. */
#include "support/qn_feed.h"

#include "base/json.h"

#include <quern/quern.h>

#include <math.h>

static const char *const model_name = "SmolLM2-135M-Instruct.Q4_1.gguf";
static const double margin_limit = 0.02, logprob_limit = 0.01;

static quern_model *model;
static quern_session *session;
static qn_json_doc *goldens;
static double largest; /* difference of a log probability */

#define check_quern(call, error)                                               \
    do {                                                                       \
        quern_status status_ = call;                                           \
        if (status_)                                                           \
            print_error("%s: %s\n", (error).where, (error).message);           \
        assert_int_equal(status_, QUERN_OK);                                   \
    } while (0)

/* Where scripts/fetch-model.sh puts the model. */
static char *model_path(void)
{
    const char *given = getenv("QUERN_DEMO_MODEL");
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    qn_buf path = QN_BUF_INIT;
    if (given && *given)
        qn_buf_add_text(&path, given);
    else if (cache && *cache)
        qn_buf_printf(&path, "%s/quern/models/%s", cache, model_name);
    else
        qn_buf_printf(&path, "%s/.cache/quern/models/%s", home ? home : "",
                      model_name);
    return qn_buf_take(&path);
}

static int open_all(void **state)
{
    (void)state;
    char *text;
    size_t size;
    check_status(qn_file_read(&text, &size,
                              QN_TEST_VECTORS "/goldens/smollm2_greedy.json",
                              16 << 20),
                 QN_OK);
    check_status(qn_json_parse(&goldens, (qn_str){text, size}, 0), QN_OK);
    qn_free(text);

    char *path = model_path();
    quern_options options;
    quern_options_init(&options);
    options.dtype = QUERN_DTYPE_F32;
    options.kv = "f32";
    quern_error error;
    quern_status status = quern_model_load(&model, path, &options, &error);
    if (status == QUERN_E_NOTFOUND)
        print_error("no demo model: scripts/fetch-model.sh fetches it\n");
    qn_free(path);
    check_quern(status, error);
    check_quern(quern_session_new(&session, model, &error), error);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    print_message("largest difference of a log probability: %.5f\n", largest);
    quern_session_free(session);
    quern_model_free(model);
    qn_json_doc_free(goldens);
    return 0;
}

static const qn_json *cases(void)
{
    return qn_json_get(qn_json_root(goldens), "cases");
}

static qn_str text_of(const qn_json *object, const char *key)
{
    qn_str text = {"", 0};
    assert_true(qn_json_as_str(qn_json_get(object, key), &text));
    return text;
}

static int32_t *ids_of(const qn_json *object, const char *key, size_t *count)
{
    const qn_json *list = qn_json_get(object, key);
    assert_non_null(list);
    int32_t *ids = qn_calloc(list->count, sizeof *ids);
    assert_non_null(ids);
    for (uint32_t i = 0; i < list->count; i++) {
        int64_t id;
        assert_true(qn_json_as_int(&list->items[i], &id));
        ids[i] = (int32_t)id;
    }
    *count = list->count;
    return ids;
}

static double number_of(const qn_json *value)
{
    double number = NAN;
    assert_true(qn_json_as_double(value, &number));
    return number;
}

/* The conversation of a case as JSON. */
static char *messages_of(const qn_json *golden)
{
    qn_buf out = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &out);
    qn_json_write_array(&w);
    const char *const roles[] = {"system", "user"};
    const char *const keys[] = {"system", "prompt"};
    for (int i = 0; i < 2; i++) {
        qn_str content;
        if (!qn_json_as_str(qn_json_get(golden, keys[i]), &content))
            continue;
        qn_json_write_object(&w);
        qn_json_write_key(&w, "role");
        qn_json_write_text(&w, roles[i]);
        qn_json_write_key(&w, "content");
        qn_json_write_str(&w, content);
        qn_json_write_object_end(&w);
    }
    qn_json_write_array_end(&w);
    return qn_buf_take(&out);
}

/* Step by step: which step's margin is too small to say who wins. */
static double margin_of(const qn_json *golden, size_t step)
{
    const qn_json *steps = qn_json_get(golden, "steps");
    return number_of(qn_json_get(qn_json_at(steps, step), "margin"));
}

static void check_ids(const int32_t *found, size_t found_count,
                      const int32_t *expected, size_t count)
{
    assert_int_equal(found_count, count);
    assert_memory_equal(found, expected, count * sizeof *found);
}

static void check_prompt(const qn_json *golden)
{
    bool chat = false;
    quern_error error;
    assert_true(qn_json_as_bool(qn_json_get(golden, "chat"), &chat));
    qn_str rendered = text_of(golden, "rendered");
    size_t expected_count, count;
    int32_t *expected = ids_of(golden, "prompt_ids", &expected_count), *ids;
    if (chat) {
        char *messages = messages_of(golden), *text;
        quern_chat c;
        quern_chat_init(&c);
        c.messages = messages;
        size_t size;
        check_quern(quern_render(model, &c, &text, &size, &error), error);
        assert_int_equal(size, rendered.size);
        assert_memory_equal(text, rendered.data, size);
        quern_free(text);
        check_quern(quern_render_ids(model, &c, &ids, &count, &error), error);
        qn_free(messages);
    } else {
        check_quern(quern_tokenize(model, rendered.data, rendered.size,
                                   QUERN_ADD_SPECIAL | QUERN_PARSE_SPECIAL,
                                   &ids, &count, &error),
                    error);
    }
    check_ids(ids, count, expected, expected_count);
    quern_free(ids);
    qn_free(expected);

    expected = ids_of(golden, "greedy_ids", &expected_count);
    char *text;
    size_t size;
    check_quern(quern_detokenize(model, expected, expected_count, false, &text,
                                 &size, &error),
                error);
    qn_str answer = text_of(golden, "greedy_text");
    assert_int_equal(size, answer.size);
    assert_memory_equal(text, answer.data, size);
    quern_free(text);
    qn_free(expected);
}

static void test_prompts_and_ids_are_those_of_the_reference(void **state)
{
    (void)state;
    assert_int_equal(cases()->count, 10);
    for (uint32_t i = 0; i < cases()->count; i++)
        check_prompt(qn_json_at(cases(), i));
}

static void check_step(const qn_json *step, const float *log_probs,
                       int32_t vocab)
{
    const qn_json *ids = qn_json_get(step, "top_ids");
    const qn_json *values = qn_json_get(step, "top_logprobs");
    assert_int_equal(ids->count, 8);
    int32_t best = 0;
    for (int32_t i = 1; i < vocab; i++)
        best = log_probs[i] > log_probs[best] ? i : best;
    if (number_of(qn_json_get(step, "margin")) >= margin_limit)
        assert_int_equal(best, number_of(&ids->items[0]));
    for (uint32_t i = 0; i < ids->count; i++) {
        int32_t id = (int32_t)number_of(&ids->items[i]);
        double off = fabs(log_probs[id] - number_of(&values->items[i]));
        /* Written so that NaN fails. */
        assert_true(off <= logprob_limit);
        largest = off > largest ? off : largest;
    }
}

static void test_logprobs_are_those_of_the_reference(void **state)
{
    (void)state;
    quern_info info;
    quern_error error;
    quern_model_info(model, &info);
    float *log_probs = qn_calloc((size_t)info.vocab_size, sizeof *log_probs);
    assert_non_null(log_probs);
    for (uint32_t i = 0; i < cases()->count; i++) {
        const qn_json *golden = qn_json_at(cases(), i);
        const qn_json *steps = qn_json_get(golden, "steps");
        size_t prompt_count, count;
        int32_t *prompt = ids_of(golden, "prompt_ids", &prompt_count);
        int32_t *ids = ids_of(golden, "greedy_ids", &count);
        assert_int_equal(steps->count, count);
        quern_session_reset(session);
        check_quern(quern_session_feed(session, prompt, prompt_count, &error),
                    error);
        for (size_t t = 0; t < count; t++) {
            check_quern(quern_session_log_probs(session, log_probs, &error),
                        error);
            check_step(qn_json_at(steps, t), log_probs, info.vocab_size);
            check_quern(quern_session_feed(session, &ids[t], 1, &error), error);
        }
        qn_free(prompt);
        qn_free(ids);
    }
    qn_free(log_probs);
}

static void test_free_running_takes_the_same_tokens(void **state)
{
    (void)state;
    quern_error error;
    for (uint32_t i = 0; i < cases()->count; i++) {
        const qn_json *golden = qn_json_at(cases(), i);
        size_t prompt_count, count, same = 0;
        int32_t *prompt = ids_of(golden, "prompt_ids", &prompt_count);
        int32_t *ids = ids_of(golden, "greedy_ids", &count);
        quern_request request;
        quern_request_init(&request, model);
        request.ids = prompt;
        request.id_count = prompt_count;
        request.max_tokens = (int64_t)count;
        request.sampling.temperature = 0;
        quern_result result;
        check_quern(
            quern_generate(session, &request, NULL, NULL, &result, &error),
            error);
        size_t taken = result.token_count;
        while (same < taken && result.tokens[same].id == ids[same])
            same++;
        /* The end token is no token of the answer. */
        if (same == taken && same < count && result.end_id == ids[same])
            same++;
        if (same < count)
            assert_true(margin_of(golden, same) < margin_limit);
        quern_result_free(&result);
        qn_free(prompt);
        qn_free(ids);
    }
}

/* Products in 8-bit integers and a cache of halves, as a server would have. */
static void test_sequences_side_by_side(void **state)
{
    (void)state;
    char *path = model_path();
    quern_model *plain = NULL;
    quern_error error;
    check_quern(quern_model_load(&plain, path, NULL, &error), error);
    qn_free(path);
    check_feeds(plain);
    quern_model_free(plain);
}

int main(void)
{
    const char *skip = getenv("QUERN_SKIP_MODEL_TESTS");
    if (skip && !strcmp(skip, "1")) {
        printf("QUERN_SKIP_MODEL_TESTS=1: the demo model is not tested\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts_and_ids_are_those_of_the_reference),
        cmocka_unit_test(test_logprobs_are_those_of_the_reference),
        cmocka_unit_test(test_free_running_takes_the_same_tokens),
        cmocka_unit_test(test_sequences_side_by_side),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
