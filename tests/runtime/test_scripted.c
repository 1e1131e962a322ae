/* Answers that are scripted: thoughts and their marks, faults in a batch. */
#include "support/qn_script.h"

static quern_request ask_for(const quern_model *m)
{
    quern_request r;
    quern_request_init(&r, m);
    r.prompt = "ab";
    r.sampling.temperature = 0;
    return r;
}

static void check_spans(const char *const *tokens, const char *ids,
                        const char *prompt, const char *reasoning,
                        const char *text)
{
    quern_model *m = load_script(tokens, ids, "");
    quern_session *s;
    quern_request r = ask_for(m);
    quern_result result;
    r.prompt = prompt;
    check_quern(quern_session_new(&s, m, &error));
    check_quern(quern_generate(s, &r, NULL, NULL, &result, &error));
    assert_string_equal(result.reasoning, reasoning);
    assert_string_equal(result.text, text);
    assert_int_equal(result.finish, QUERN_FINISH_STOP);
    assert_true(result.reasoning_tokens <= result.completion_tokens);
    quern_result_free(&result);
    quern_session_free(s);
    quern_model_free(m);
}

static const char *const think[] = {"<think>", "</think>", NULL};
static const char *const channel[] = {"<|channel>", "<channel|>", NULL};
static const char *const harmony[] = {"<|channel|>", "<|message|>", "<|start|>",
                                      "<|end|>", NULL};

static void test_thoughts_are_told_from_answers(void **state)
{
    (void)state;
    /* a = 97; \n = 10 */
    check_spans(think, "[332, 97, 98, 333, 99]", "x", "ab", "c");
    /* Line ends beside the marks are theirs; others stay. */
    check_spans(think, "[332, 10, 97, 10, 98, 10, 10, 333, 10, 10, 99, 10]",
                "x", "a\nb", "c\n");
    /* Thinking again, and never ending. */
    check_spans(think, "[97, 332, 98, 333, 99, 332, 100, 10]", "x", "bd\n",
                "ac");
    /* The prompt ends inside, or only spells that further up. */
    check_spans(think, "[97, 333, 98]", "x<think>\n", "a", "b");
    check_spans(think, "[97, 98]", "x<think></think>", "", "ab");
    check_spans(think, "[97, 98]", "<think><|im_end|>\n", "", "ab");
    /* No marks, no thoughts. */
    check_spans(NULL, "[97, 98]", "x", "", "ab");
}

static void test_channels_have_names(void **state)
{
    (void)state;
    /* thought\n: 116 104 111 117 103 104 116 10 */
    check_spans(channel,
                "[332, 116, 104, 111, 117, 103, 104, 116, 10, 97, 333, 98]",
                "x", "a", "b");
    check_spans(channel, "[332, 116, 10, 97, 333, 98]", "x", "", "ab");
}

static void test_harmony_channels(void **state)
{
    (void)state;
    /* analysis, then final: 97 110 97 108 121 115 105 115; 102 105 */
    check_spans(harmony,
                "[332, 97, 110, 97, 108, 121, 115, 105, 115, 333, 65, 66, 335,"
                " 334, 97, 332, 102, 105, 333, 67, 68]",
                "<|start|>a", "AB", "CD");
    check_spans(harmony, "[65, 66]", "x", "", "AB");
}

static void check_budget(const char *const *tokens, const char *ids,
                         const char *prompt, int64_t budget, bool logprobs,
                         const char *reasoning, const char *text)
{
    quern_model *m = load_script(tokens, ids, "");
    quern_session *s;
    quern_request r = ask_for(m);
    quern_result result;
    r.prompt = prompt;
    r.reasoning_budget = budget;
    r.logprobs = logprobs;
    check_quern(quern_session_new(&s, m, &error));
    check_quern(quern_generate(s, &r, NULL, NULL, &result, &error));
    assert_string_equal(result.reasoning, reasoning);
    assert_string_equal(result.text, text);
    quern_result_free(&result);
    quern_session_free(s);
    quern_model_free(m);
}

static void test_thoughts_end_with_their_budget(void **state)
{
    (void)state;
    const char *ids = "[332, 97, 98, 99, 100, 333, 101, 332, 102, 103]";
    for (int logprobs = 0; logprobs < 2; logprobs++) {
        check_budget(think, ids, "x", -1, logprobs, "abcdfg", "e");
        check_budget(think, ids, "x", 9, logprobs, "abcdfg", "e");
        /* The mark takes a token's place; what the model says of the rest is
         * its own affair. */
        check_budget(think, ids, "x", 2, logprobs, "ab", "deg");
        check_budget(think, ids, "x", 0, logprobs, "", "bcdeg");
        check_budget(think, "[97, 98]", "x<think>\n", 0, logprobs, "", "b");
        check_budget(think, "[97, 98]", "x", 0, logprobs, "", "ab");
    }
    /* A channel's name is no thought yet, and its end is the mark. */
    check_budget(channel,
                 "[332, 116, 104, 111, 117, 103, 104, 116, 10, 97, 98, 99]",
                 "x", 1, false, "a", "c");
    check_budget(NULL, "[97, 98]", "x", 0, false, "", "ab");
    quern_model *m = load_script(think, "[97]", "");
    quern_session *s;
    quern_request r = ask_for(m);
    quern_result result;
    r.reasoning_budget = -2;
    check_quern(quern_session_new(&s, m, &error));
    assert_int_equal(quern_generate(s, &r, NULL, NULL, &result, &error),
                     QUERN_E_ARG);
    quern_result_free(&result);
    quern_session_free(s);
    quern_model_free(m);
}

/* Ids of the script that come as events, with their kinds. */
static bool hear(void *data, const quern_event *event)
{
    qn_buf *out = data;
    if (event->type == QUERN_EVENT_TEXT)
        qn_buf_printf(out, "t%zu'%s'", event->token_count, event->text);
    if (event->type == QUERN_EVENT_REASONING)
        qn_buf_printf(out, "r%zu'%s'", event->token_count, event->text);
    return true;
}

static void test_events_say_which_is_which(void **state)
{
    (void)state;
    quern_model *m =
        load_script(think, "[332, 97, 10, 98, 10, 333, 99, 100]", "");
    quern_session *s;
    quern_request r = ask_for(m);
    quern_result result;
    qn_buf heard = QN_BUF_INIT;
    check_quern(quern_session_new(&s, m, &error));
    check_quern(quern_generate(s, &r, hear, &heard, &result, &error));
    assert_string_equal(heard.data, "r2'a'r2'\nb't3'c't1'd'");
    quern_result_free(&result);
    qn_buf_clear(&heard);
    /* Stops count in answers alone: there is no "\nb" in this one. */
    r.stops = (const char *const[]){"\nb", "cd"};
    r.stop_count = 2;
    check_quern(quern_generate(s, &r, hear, &heard, &result, &error));
    assert_string_equal(heard.data, "r2'a'r2'\nb't4''");
    assert_int_equal(result.stop, 1);
    quern_result_free(&result);
    qn_buf_free(&heard);
    quern_session_free(s);
    quern_model_free(m);
}

static void test_a_fault_is_one_row_s(void **state)
{
    (void)state;
    quern_model *m = load_script(NULL, "[97, 98, 99, 100, 101, 102]",
                                 ", \"fail_at\": 4, \"delay_ms\": 3");
    quern_request r = ask_for(m), shorter = r;
    quern_job *bad, *good;
    quern_result result;
    quern_event event;
    shorter.max_tokens = 3;
    check_quern(quern_submit(&bad, m, NULL, &r, &error));
    /* The other one joins while the first has a token or two. */
    while (quern_job_next(bad, -1, &event) && event.type != QUERN_EVENT_TEXT)
        ;
    check_quern(quern_submit(&good, m, NULL, &shorter, &error));
    assert_int_equal(quern_job_result(bad, &result, &error), QUERN_E_INTERNAL);
    assert_string_equal(error.message, "the script fails here");
    assert_string_equal(result.text, "abc");
    assert_int_equal(result.finish, QUERN_FINISH_NONE);
    quern_result_free(&result);
    check_quern(quern_job_result(good, &result, &error));
    assert_string_equal(result.text, "abc");
    quern_result_free(&result);
    quern_job_free(bad);
    quern_job_free(good);
    quern_model_free(m);
}

static void test_a_long_prompt_can_be_left(void **state)
{
    (void)state;
    quern_model *m =
        load_script(NULL, "[97]", ", \"prefill_us\": 200, \"delay_ms\": 1");
    quern_request r = ask_for(m);
    int32_t *ids = qn_calloc(4000, sizeof *ids);
    quern_job *job;
    quern_event event;
    assert_non_null(ids);
    r.prompt = NULL;
    r.ids = ids;
    r.id_count = 4000;
    check_quern(quern_submit(&job, m, NULL, &r, &error));
    qn_free(ids); /* the request is copied */
    while (quern_job_next(job, -1, &event) && event.type != QUERN_EVENT_PROMPT)
        ;
    assert_true(event.done < event.total);
    quern_job_cancel(job);
    quern_result result;
    assert_int_equal(quern_job_result(job, &result, &error), QUERN_E_CANCELLED);
    assert_int_equal(result.token_count, 0);
    quern_result_free(&result);
    quern_job_free(job);
    quern_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thoughts_are_told_from_answers),
        cmocka_unit_test(test_channels_have_names),
        cmocka_unit_test(test_harmony_channels),
        cmocka_unit_test(test_thoughts_end_with_their_budget),
        cmocka_unit_test(test_events_say_which_is_which),
        cmocka_unit_test(test_a_fault_is_one_row_s),
        cmocka_unit_test(test_a_long_prompt_can_be_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
