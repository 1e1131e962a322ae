/* Bodies of completions: prompts of every form, and what is refused. */
#include "support/qn_api.h"

static const qn_api_protocol *const completions = &qn_api_completions;

#define BAD(rows) rows, sizeof(rows) / sizeof *(rows)
#define FIELD(json) "{\"prompt\":\"a\"," json "}"

static void test_bodies_are_refused_with_their_field(void **state)
{
    (void)state;
    static const bad_body rows[] = {
        {"{}", QN_API_MISSING_FIELD, "prompt"},
        {"{\"prompt\":5}", QN_API_INVALID_TYPE, "prompt"},
        {"{\"prompt\":{}}", QN_API_INVALID_TYPE, "prompt"},
        {"{\"prompt\":[]}", QN_API_EMPTY_PROMPT, "prompt"},
        {"{\"prompt\":[null]}", QN_API_INVALID_TYPE, "prompt[0]"},
        {"{\"prompt\":[true]}", QN_API_INVALID_TYPE, "prompt[0]"},
        {"{\"prompt\":[1.5]}", QN_API_INVALID_TYPE, "prompt[0]"},
        {"{\"prompt\":[\"a\",1]}", QN_API_INVALID_TYPE, "prompt[1]"},
        {"{\"prompt\":[1,\"a\"]}", QN_API_INVALID_TYPE, "prompt[1]"},
        {"{\"prompt\":[[1],2]}", QN_API_INVALID_TYPE, "prompt[1]"},
        {"{\"prompt\":[[1],[\"a\"]]}", QN_API_INVALID_TYPE, "prompt[1][0]"},
        {FIELD("\"logprobs\":true"), QN_API_INVALID_TYPE, "logprobs"},
        {FIELD("\"logprobs\":21"), QN_API_OUT_OF_RANGE, "logprobs"},
        {FIELD("\"max_tokens\":0"), QN_API_OUT_OF_RANGE, "max_tokens"},
        {FIELD("\"best_of\":2"), QN_API_UNSUPPORTED_VALUE, "best_of"},
        {FIELD("\"best_of\":2,\"n\":3"), QN_API_UNSUPPORTED_VALUE, "best_of"},
        {FIELD("\"echo\":1"), QN_API_INVALID_TYPE, "echo"},
        {FIELD("\"echo\":true,\"logprobs\":1,\"stream\":true"),
         QN_API_UNSUPPORTED_VALUE, "stream"},
        {FIELD("\"suffix\":[]"), QN_API_INVALID_TYPE, "suffix"},
        {"{\"prompt\":[1],\"suffix\":\"b\"}", QN_API_UNSUPPORTED_VALUE,
         "suffix"},
        {FIELD("\"tools\":[{}]"), QN_API_UNSUPPORTED_VALUE, "tools"},
        {FIELD("\"grammar\":\"root ::= x\""), QN_API_UNSUPPORTED_VALUE,
         "grammar"},
        {FIELD("\"messages\":[]"), QN_API_UNKNOWN_FIELD, "messages"},
    };
    check_bad_bodies(completions, &strict_server, BAD(rows));
    qn_buf body = QN_BUF_INIT;
    qn_buf_add_text(&body, "{\"prompt\":[\"\"");
    for (int i = 0; i < 64; i++)
        qn_buf_add_text(&body, ",\"\"");
    qn_buf_add_text(&body, "]}");
    const bad_body many = {body.data, QN_API_OUT_OF_RANGE, "prompt"};
    check_bad_bodies(completions, &strict_server, &many, 1);
    qn_buf_free(&body);
}

static void test_what_the_model_can_not_take_is_refused(void **state)
{
    (void)state;
    static const bad_body rows[] = {
        {"{\"prompt\":[[]]}", QN_API_EMPTY_PROMPT, "prompt[0]"},
        {"{\"prompt\":[332]}", QN_API_OUT_OF_RANGE, "prompt[0]"},
        {"{\"prompt\":[[1],[1,-1]]}", QN_API_OUT_OF_RANGE, "prompt[1][1]"},
        {FIELD("\"max_tokens\":9223372036854775807"),
         QN_API_CONTEXT_LENGTH_EXCEEDED, "max_tokens"},
        {FIELD("\"max_tokens\":256"), QN_API_CONTEXT_LENGTH_EXCEEDED,
         "max_tokens"},
        {FIELD("\"suffix\":\"b\""), QN_API_UNSUPPORTED_VALUE, "suffix"},
    };
    qn_api_model m = tiny_model(NULL);
    check_bad_calls(completions, &m, BAD(rows));
    tiny_free(&m);
}

/* Prompts, as numbers, one line for each request. */
static void check_prompts(const qn_api_model *m, const char *body,
                          const char *expected)
{
    qn_api_call call;
    qn_buf found = QN_BUF_INIT;
    parse_good(&call, completions, &strict_server, body);
    prepare_good(&call, completions, m);
    for (size_t i = 0; i < call.count; i++) {
        const quern_request *r = &call.requests[i];
        qn_buf_printf(&found, "%d:", (int)(r->sampling.seed - call.seed));
        for (size_t j = 0; j < r->id_count; j++)
            qn_buf_printf(&found, " %d", (int)r->ids[j]);
        qn_buf_add_char(&found, '\n');
    }
    assert_string_equal(found.data, expected);
    qn_buf_free(&found);
    qn_api_call_free(&call);
}

static void test_prompts_of_every_form_become_tokens(void **state)
{
    (void)state;
    qn_api_model m = tiny_model(NULL);
    check_prompts(&m, "{\"prompt\":\"ab\"}", "0: 97 98\n");
    check_prompts(&m, "{\"prompt\":\"a\\u0000<|im_end|>\"}", "0: 97 0 324\n");
    check_prompts(&m, "{\"prompt\":[\"a\",\"b\"]}", "0: 97\n0: 98\n");
    check_prompts(&m, "{\"prompt\":[72,101]}", "0: 72 101\n");
    /* Answers to one prompt stand together, and their seeds are those that
     * they have when the prompt is alone. */
    check_prompts(&m, "{\"prompt\":[[72,101],[72]],\"n\":2}",
                  "0: 72 101\n1: 72 101\n0: 72\n1: 72\n");
    /* An empty text is the token that begins one. */
    quern_info info;
    quern_model_info(m.model, &info);
    if (info.bos_id >= 0) {
        char expected[32];
        snprintf(expected, sizeof expected, "0: %d\n", (int)info.bos_id);
        check_prompts(&m, "{\"prompt\":\"\"}", expected);
    } else {
        static const bad_body empty = {"{\"prompt\":\"\"}", QN_API_EMPTY_PROMPT,
                                       "prompt"};
        check_bad_calls(completions, &m, &empty, 1);
    }
    tiny_free(&m);
}

static void test_defaults_are_those_of_completions(void **state)
{
    (void)state;
    qn_api_model m = tiny_model(NULL);
    qn_api_call call;
    parse_good(&call, completions, &strict_server, "{\"prompt\":\"ab\"}");
    prepare_good(&call, completions, &m);
    assert_int_equal(call.requests[0].max_tokens, 16);
    assert_false(call.requests[0].logprobs);
    qn_api_call_free(&call);
    parse_good(&call, completions, &strict_server,
               "{\"prompt\":\"ab\",\"logprobs\":0,\"best_of\":2,\"n\":2,"
               "\"n_predict\":7,\"suffix\":\"\"}");
    prepare_good(&call, completions, &m);
    assert_int_equal(call.count, 2);
    assert_int_equal(call.requests[1].max_tokens, 7);
    assert_true(call.requests[1].logprobs);
    assert_int_equal(call.requests[1].top_logprobs, 0);
    qn_api_call_free(&call);
    tiny_free(&m);
}

static void check_text(const qn_api_model *m, const char *body,
                       const char *first, const char *second)
{
    qn_api_call call;
    qn_buf out = QN_BUF_INIT;
    quern_result results[2] = {
        {.text = (char *)"x", .size = 1, .finish = QUERN_FINISH_STOP},
        {.text = (char *)"y", .size = 1, .finish = QUERN_FINISH_STOP}};
    parse_good(&call, completions, &strict_server, body);
    prepare_good(&call, completions, m);
    assert_int_equal(call.count, 2);
    completions->answer(&out, &call, &test_head, results);
    qn_json_doc *doc = NULL;
    check_status(qn_json_parse(&doc, qn_buf_str(&out), 0), QN_OK);
    const qn_json *choices = qn_json_get(qn_json_root(doc), "choices");
    check_str(qn_json_get(qn_json_at(choices, 0), "text")->text, first);
    check_str(qn_json_get(qn_json_at(choices, 1), "text")->text, second);
    qn_json_doc_free(doc);
    qn_buf_free(&out);
    qn_api_call_free(&call);
}

static void test_echo_puts_the_prompt_before_the_answer(void **state)
{
    (void)state;
    qn_api_model m = tiny_model(NULL);
    check_text(&m, "{\"prompt\":[\"ab\",\"c\"]}", "x", "y");
    check_text(&m, "{\"prompt\":[\"ab\",\"c\"],\"echo\":true}", "abx", "cy");
    check_text(&m, "{\"prompt\":\"ab\",\"n\":2,\"echo\":true}", "abx", "aby");
    check_text(&m, "{\"prompt\":[[97,324],[98]],\"echo\":true}", "a<|im_end|>x",
               "by");
    tiny_free(&m);
}

/* Prompts with log probabilities come from a whole run, n answers to one of
 * them too. */
static void check_scored(const qn_api_model *m, const char *body,
                         const char *tokens, const char *offsets,
                         size_t numbers, const char *text, int completion)
{
    qn_api_call call;
    quern_error error;
    qn_buf out = QN_BUF_INIT;
    quern_job *jobs[2];
    quern_result results[2] = {0};
    parse_good(&call, completions, &strict_server, body);
    prepare_good(&call, completions, m);
    assert_in_range(call.count, 1, 2);
    assert_int_equal(quern_submit_n(jobs, call.count, (quern_model *)m->model,
                                    call.requests, &error),
                     QUERN_OK);
    for (size_t i = 0; i < call.count; i++)
        assert_int_equal(quern_job_result(jobs[i], &results[i], &error),
                         QUERN_OK);
    completions->answer(&out, &call, &test_head, results);
    qn_json_doc *doc = NULL;
    check_status(qn_json_parse(&doc, qn_buf_str(&out), 0), QN_OK);
    const qn_json *root = qn_json_root(doc);
    const qn_json *usage = qn_json_get(root, "usage");
    int64_t number = -1;
    assert_true(
        qn_json_as_int(qn_json_get(usage, "completion_tokens"), &number));
    assert_int_equal(number, completion);
    for (size_t i = 0; i < call.count; i++) {
        const qn_json *choice = qn_json_at(qn_json_get(root, "choices"), i);
        const qn_json *logprobs = qn_json_get(choice, "logprobs");
        const qn_json *list = qn_json_get(logprobs, "token_logprobs");
        qn_buf part = QN_BUF_INIT;
        qn_json_writer w;
        qn_json_write_begin(&w, &part);
        qn_json_write_value(&w, qn_json_get(logprobs, "tokens"));
        assert_memory_equal(part.data, tokens, strlen(tokens));
        qn_buf_clear(&part);
        qn_json_write_begin(&w, &part);
        qn_json_write_value(&w, qn_json_get(logprobs, "text_offset"));
        assert_memory_equal(part.data, offsets, strlen(offsets));
        qn_buf_free(&part);
        assert_int_equal(list->count, numbers);
        assert_int_equal(list->items[0].type, QN_JSON_T_NULL);
        for (uint32_t k = 1; k < list->count; k++)
            assert_int_equal(list->items[k].type, QN_JSON_T_NUMBER);
        if (text)
            check_str(qn_json_get(choice, "text")->text, text);
        quern_result_free(&results[i]);
        quern_job_free(jobs[i]);
    }
    qn_json_doc_free(doc);
    qn_buf_free(&out);
    qn_api_call_free(&call);
}

static void test_what_is_echoed_has_log_probabilities(void **state)
{
    (void)state;
    qn_api_model m = tiny_model(NULL);
    check_scored(&m,
                 "{\"prompt\":\"a\\u20acb\",\"echo\":true,\"logprobs\":2,"
                 "\"max_tokens\":0}",
                 "[\"a\",\"bytes:\\\\xe2\",\"bytes:\\\\x82\",\"bytes:"
                 "\\\\xac\",\"b\"]",
                 "[0,1,2,2,2]", 5,
                 "a\xe2\x82\xac"
                 "b",
                 0);
    check_scored(&m,
                 "{\"prompt\":[97,98],\"echo\":true,\"logprobs\":0,"
                 "\"max_tokens\":3,\"n\":2,\"ignore_eos\":true}",
                 "[\"a\",\"b\",", "[0,1,2,", 5, NULL, 6);
    tiny_free(&m);
}

static qn_api_model shared_model;

static qn_status parse_and_prepare(void)
{
    qn_api_call call = {0};
    qn_api_error error = {0};
    bool good = completions->parse(&call,
                                   QN_STR("{\"prompt\":[\"a\",\"b\"],\"echo\":"
                                          "true,\"n\":2}"),
                                   &plain_server, &error) &&
                completions->prepare(&call, &shared_model, &test_head, &error);
    qn_api_call_free(&call);
    if (good)
        return QN_OK;
    assert_int_equal(error.code, QN_API_INSUFFICIENT_MEMORY);
    return QN_E_NOMEM;
}

static void test_each_allocation_may_fail(void **state)
{
    (void)state;
    shared_model = tiny_model(NULL);
    each_alloc_may_fail(parse_and_prepare);
    tiny_free(&shared_model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bodies_are_refused_with_their_field),
        cmocka_unit_test(test_what_the_model_can_not_take_is_refused),
        cmocka_unit_test(test_prompts_of_every_form_become_tokens),
        cmocka_unit_test(test_defaults_are_those_of_completions),
        cmocka_unit_test(test_echo_puts_the_prompt_before_the_answer),
        cmocka_unit_test(test_what_is_echoed_has_log_probabilities),
        cmocka_unit_test(test_each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
