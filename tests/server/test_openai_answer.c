/* Whole and streamed answers of chat completions and completions, byte for
 * byte. */
#include "support/qn_api.h"

#include <math.h>

#define HEAD(object)                                                           \
    "{\"id\":\"%s\",\"object\":\"" object "\",\"created\":1700000000,"         \
    "\"model\":\"tiny\",\"system_fingerprint\":\"quern-0-abc\","
#define CHUNK "data: " HEAD("chat.completion.chunk") "\"choices\":["
#define TEXT_CHUNK "data: " HEAD("text_completion") "\"choices\":["
#define NO_END ",\"logprobs\":null,\"finish_reason\":null}]"

static char chat_id[QN_API_ID_SIZE], text_id[QN_API_ID_SIZE];

/* The expected bytes: `format` with the answer's id in each %s. */
static void check_bytes(qn_buf *found, const char *format, const char *id)
{
    qn_buf expected = QN_BUF_INIT;
    for (const char *at; (at = strstr(format, "%s")); format = at + 2) {
        qn_buf_add(&expected, format, (size_t)(at - format));
        qn_buf_add_text(&expected, id);
    }
    qn_buf_add_text(&expected, format);
    assert_false(found->failed);
    assert_string_equal(qn_buf_str(found).data, qn_buf_str(&expected).data);
    qn_buf_free(&expected);
    qn_buf_clear(found);
}

static int set_ids(void **state)
{
    (void)state;
    qn_api_id(chat_id, &test_head, "chatcmpl-", 0);
    qn_api_id(text_id, &test_head, "cmpl-", 0);
    return 0;
}

/* ---- made-up results ---- */

static const quern_top_logprob euro_tops[] = {
    {.id = 5, .logprob = -0.5F, .bytes = "\xe2\x82", .byte_count = 2},
    {.id = 6, .logprob = -INFINITY, .bytes = "b", .byte_count = 1},
    {.id = 7, .logprob = -INFINITY, .bytes = "b", .byte_count = 1},
};
static const quern_token euro[] = {
    {.id = 5,
     .logprob = -0.5F,
     .bytes = "\xe2\x82",
     .byte_count = 2,
     .top = euro_tops,
     .top_count = 3},
    {.id = 9, .logprob = 1e-9F, .bytes = "\xac", .byte_count = 1},
};

static quern_result result_of(const char *text, const char *reasoning)
{
    return (quern_result){
        .text = (char *)text,
        .size = strlen(text),
        .reasoning = (char *)reasoning,
        .reasoning_size = strlen(reasoning),
        .finish = QUERN_FINISH_STOP,
        .stop = -1,
        .prompt_tokens = 10,
        .cached_tokens = 4,
        .completion_tokens = 3,
        .reasoning_tokens = 1,
        .drafted = 5,
        .accepted = 2,
        .queue_seconds = 0.001,
        .prompt_seconds = 0.5,
        .first_token_seconds = 0.25,
        .decode_seconds = 2,
    };
}

#define USAGE                                                                  \
    "\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":3,"                 \
    "\"total_tokens\":13,\"prompt_tokens_details\":{\"cached_tokens\":4},"     \
    "\"completion_tokens_details\":{\"reasoning_tokens\":1,"                   \
    "\"accepted_prediction_tokens\":2,\"rejected_prediction_tokens\":3}},"     \
    "\"timings\":{\"queue_ms\":1,\"prompt_ms\":500,\"ttft_ms\":250,"           \
    "\"decode_ms\":2000,\"prompt_per_second\":12,\"decode_per_second\":1}"

/* Of two answers to one prompt: it counts once, and all of them are timed. */
#define USAGE2                                                                 \
    "\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":6,"                 \
    "\"total_tokens\":16,\"prompt_tokens_details\":{\"cached_tokens\":4},"     \
    "\"completion_tokens_details\":{\"reasoning_tokens\":2,"                   \
    "\"accepted_prediction_tokens\":4,\"rejected_prediction_tokens\":6}},"     \
    "\"timings\":{\"queue_ms\":1,\"prompt_ms\":500,\"ttft_ms\":250,"           \
    "\"decode_ms\":2000,\"prompt_per_second\":24,\"decode_per_second\":2}"

/* A call as prepare leaves it, without a model. */
static void open_call(qn_api_call *call, const qn_api_protocol *p,
                      const qn_api_server *server, const char *body)
{
    parse_good(call, p, server, body);
    call->count = (size_t)call->n;
}

static void check_answer(const qn_api_protocol *p, const qn_api_server *server,
                         const char *body, const quern_result *results,
                         const char *expected)
{
    qn_api_call call;
    qn_buf out = QN_BUF_INIT;
    open_call(&call, p, server, body);
    p->answer(&out, &call, &test_head, results);
    check_bytes(&out, expected, p == &qn_api_chat ? chat_id : text_id);
    qn_buf_free(&out);
    qn_api_call_free(&call);
}

/* ---- whole answers ---- */

static void test_an_answer_has_text_reasoning_usage_and_times(void **state)
{
    (void)state;
    const quern_result r = result_of("He\"y\n", "hm");
    check_answer(&qn_api_chat, &plain_server, CHAT(""), &r,
                 HEAD("chat.completion") "\"choices\":[{\"index\":0,"
                                         "\"message\":{\"role\":"
                                         "\"assistant\",\"content\":"
                                         "\"He\\\"y\\n\",\"refusal\":null,"
                                         "\"reasoning_content\":\"hm\"},"
                                         "\"logprobs\":null,"
                                         "\"finish_reason\":\"stop\"}]," USAGE
                                         "}");
    check_answer(
        &qn_api_chat, &mlx_server, CHAT(""), &r,
        HEAD("chat.completion") "\"choices\":[{\"index\":0,\"message\":{"
                                "\"role\":"
                                "\"assistant\",\"content\":\"He\\\"y\\n\","
                                "\"refusal\":null,"
                                "\"reasoning\":\"hm\"},\"logprobs\":null,"
                                "\"finish_reason\":\"stop\"}]," USAGE "}");
}

static void test_n_answers_share_a_prompt(void **state)
{
    (void)state;
    quern_result r[2] = {result_of("a", ""), result_of("", "")};
    r[1].finish = QUERN_FINISH_LENGTH;
    check_answer(
        &qn_api_chat, &plain_server, CHAT(",\"n\":2"), r,
        HEAD("chat.completion") "\"choices\":[{\"index\":0,\"message\":{"
                                "\"role\":"
                                "\"assistant\",\"content\":\"a\",\"refusal\":"
                                "null},"
                                "\"logprobs\":null,\"finish_reason\":\"stop\"},"
                                "{\"index\":1,\"message\":{\"role\":"
                                "\"assistant\","
                                "\"content\":\"\",\"refusal\":null},"
                                "\"logprobs\":null,"
                                "\"finish_reason\":\"length\"}]," USAGE2 "}");
}

#define FFFD "\xef\xbf\xbd"
#define CHAT_LOGPROBS                                                          \
    "{\"content\":[{\"token\":\"" FFFD "\",\"logprob\":-0.5,\"bytes\":"        \
    "[226,130],\"top_logprobs\":[{\"token\":\"" FFFD "\",\"logprob\":-0.5,"    \
    "\"bytes\":[226,130]},{\"token\":\"b\",\"logprob\":-9999,\"bytes\":[98]}," \
    "{\"token\":\"b\",\"logprob\":-9999,\"bytes\":[98]}]},{\"token\":\"" FFFD  \
    "\",\"logprob\":0,\"bytes\":[172],\"top_logprobs\":[]}]}"
#define LEGACY_LOGPROBS                                                        \
    "{\"tokens\":[\"bytes:\\\\xe2\\\\x82\",\"bytes:\\\\xac\"],"                \
    "\"token_logprobs\":[-0.5,0],\"top_logprobs\":[{\"bytes:\\\\xe2\\\\x82\":" \
    "-0.5,\"b\":-9999},{}],\"text_offset\":[0,1]}"
#define MLX_LOGPROBS                                                           \
    "{\"tokens\":[5,9],\"token_logprobs\":[-0.5,0],\"top_logprobs\":[{\"5\":"  \
    "-0.5,\"6\":-9999,\"7\":-9999},null],\"content\":[{\"id\":5,\"token\":"    \
    "\"" FFFD                                                                  \
    "\",\"logprob\":-0.5,\"top_logprobs\":[{\"id\":5,\"token\":\"" FFFD        \
    "\",\"logprob\":-0.5},{\"id\":6,\"token\":\"b\",\"logprob\":-9999},{"      \
    "\"id\":7,"                                                                \
    "\"token\":\"b\",\"logprob\":-9999}]},{\"id\":9,\"token\":\"" FFFD         \
    "\",\"logprob\":0,\"top_logprobs\":[]}]}"

static void test_log_probabilities_have_the_shape_of_the_route(void **state)
{
    (void)state;
    quern_result r = result_of("\xe2\x82\xac", "");
    r.tokens = (quern_token *)euro;
    r.token_count = 2;
    check_answer(&qn_api_chat, &plain_server,
                 CHAT(",\"logprobs\":true,\"top_logprobs\":3"), &r,
                 HEAD("chat.completion") "\"choices\":[{\"index\":0,"
                                         "\"message\":{\"role\":"
                                         "\"assistant\",\"content\":"
                                         "\"\xe2\x82\xac\",\"refusal\":"
                                         "null},\"logprobs\":" CHAT_LOGPROBS
                                         ",\"finish_reason\":\"stop\"}]," USAGE
                                         "}");
    check_answer(&qn_api_chat, &mlx_server, CHAT(",\"logprobs\":true"), &r,
                 HEAD("chat.completion") "\"choices\":[{\"index\":0,"
                                         "\"message\":{\"role\":"
                                         "\"assistant\",\"content\":"
                                         "\"\xe2\x82\xac\",\"refusal\":"
                                         "null},\"logprobs\":" MLX_LOGPROBS
                                         ",\"finish_reason\":\"stop\"}]," USAGE
                                         "}");
    check_answer(&qn_api_completions, &plain_server,
                 "{\"prompt\":\"a\",\"logprobs\":3}", &r,
                 HEAD("text_completion") "\"choices\":[{\"index\":0,\"text\":"
                                         "\"\xe2\x82\xac\","
                                         "\"logprobs\":" LEGACY_LOGPROBS
                                         ",\"finish_reason\":\"stop\"}]," USAGE
                                         "}");
    /* Tokens are there in any case; only a request shows them. */
    check_answer(&qn_api_completions, &plain_server, "{\"prompt\":\"a\"}", &r,
                 HEAD("text_completion") "\"choices\":[{\"index\":0,\"text\":"
                                         "\"\xe2\x82\xac\","
                                         "\"logprobs\":null,\"finish_reason\":"
                                         "\"stop\"}]," USAGE "}");
}

/* ---- streams ---- */

static void tell(qn_api_stream *s, const qn_api_protocol *p, size_t index,
                 quern_event event, qn_buf *out)
{
    if (!event.text)
        event.text = "";
    event.size = strlen(event.text);
    p->event(s, index, &event, 12.3456, out);
}

static void test_a_stream_has_its_chunks_in_order(void **state)
{
    (void)state;
    const qn_api_protocol *p = &qn_api_chat;
    const quern_result result = result_of("ab", "t");
    qn_api_call call;
    qn_buf out = QN_BUF_INIT;
    open_call(&call, p, &plain_server, CHAT(",\"stream\":true"));
    qn_api_stream s = {.call = &call, .head = &test_head};
    p->begin(&s, &out);
    check_bytes(&out, "", chat_id);
    tell(&s, p, 0, (quern_event){.type = QUERN_EVENT_START, .total = 9}, &out);
    check_bytes(&out,
                CHUNK "{\"index\":0,\"delta\":{\"role\":\"assistant\","
                      "\"content\":\"\"}" NO_END "}\n\n",
                chat_id);
    tell(&s, p, 0, (quern_event){.type = QUERN_EVENT_PROMPT, .total = 9}, &out);
    check_bytes(&out, "", chat_id);
    p->ping(&s, &out);
    check_bytes(&out, ": keepalive\n\n", chat_id);
    tell(&s, p, 0, (quern_event){.type = QUERN_EVENT_REASONING, .text = "t\n"},
         &out);
    check_bytes(&out,
                CHUNK
                "{\"index\":0,\"delta\":{\"reasoning_content\":\"t\\n\"}" NO_END
                "}\n\n",
                chat_id);
    tell(&s, p, 0, (quern_event){.type = QUERN_EVENT_TEXT, .text = "a"}, &out);
    check_bytes(
        &out, CHUNK "{\"index\":0,\"delta\":{\"content\":\"a\"}" NO_END "}\n\n",
        chat_id);
    /* Tokens without text say nothing. */
    tell(&s, p, 0,
         (quern_event){
             .type = QUERN_EVENT_TEXT, .tokens = euro, .token_count = 2},
         &out);
    check_bytes(&out, "", chat_id);
    tell(&s, p, 0, (quern_event){.type = QUERN_EVENT_DONE, .result = &result},
         &out);
    check_bytes(&out,
                CHUNK "{\"index\":0,\"delta\":{},\"logprobs\":null,"
                      "\"finish_reason\":\"stop\"}]}\n\n",
                chat_id);
    p->end(&s, &out);
    check_bytes(&out, "data: [DONE]\n\n", chat_id);
    p->clear(&s);
    qn_api_call_free(&call);
    qn_buf_free(&out);
}

static void test_usage_and_progress_come_when_asked_for(void **state)
{
    (void)state;
    const qn_api_protocol *p = &qn_api_chat;
    const quern_result result = result_of("ab", "t");
    qn_api_call call;
    qn_buf out = QN_BUF_INIT;
    open_call(&call, p, &mlx_server,
              CHAT(",\"stream\":true,\"n\":2,\"return_progress\":true,"
                   "\"stream_options\":{\"include_usage\":true}"));
    qn_api_stream s = {.call = &call, .head = &test_head};
    p->begin(&s, &out);
    quern_event start = {.type = QUERN_EVENT_START, .done = 4, .total = 9};
    tell(&s, p, 0, start, &out);
    check_bytes(&out,
                CHUNK "{\"index\":0,\"delta\":{\"role\":\"assistant\","
                      "\"content\":\"\"}" NO_END ",\"usage\":null}\n\n" CHUNK
                      "{\"index\":1,\"delta\":{\"role\":\"assistant\","
                      "\"content\":\"\"}" NO_END ",\"usage\":null}\n\n" CHUNK
                      "],\"prompt_progress\":{\"total\":9,\"cached\":4,"
                      "\"processed\":4,\"time_ms\":12.346},\"usage\":null}"
                      "\n\n",
                chat_id);
    /* The second answer's prompt is the first one's. */
    start.done = 8;
    tell(&s, p, 1, start, &out);
    check_bytes(&out, "", chat_id);
    tell(&s, p, 0,
         (quern_event){.type = QUERN_EVENT_PROMPT, .done = 9, .total = 9},
         &out);
    check_bytes(&out,
                CHUNK "],\"prompt_progress\":{\"total\":9,\"cached\":4,"
                      "\"processed\":9,\"time_ms\":12.346},\"usage\":null}"
                      "\n\n",
                chat_id);
    tell(&s, p, 1, (quern_event){.type = QUERN_EVENT_REASONING, .text = "t"},
         &out);
    check_bytes(&out,
                CHUNK "{\"index\":1,\"delta\":{\"reasoning\":\"t\"}" NO_END
                      ",\"usage\":null}\n\n",
                chat_id);
    for (size_t i = 0; i < 2; i++)
        tell(&s, p, i,
             (quern_event){.type = QUERN_EVENT_DONE, .result = &result}, &out);
    qn_buf_clear(&out);
    p->end(&s, &out);
    /* mlx-lm's server has another name in this one. */
    check_bytes(&out,
                "data: " HEAD("chat.completion") "\"choices\":[]," USAGE2
                                                 "}\n\ndata: [DONE]\n\n",
                chat_id);
    p->clear(&s);
    qn_api_call_free(&call);
    qn_buf_free(&out);
}

static void test_log_probabilities_ride_with_their_text(void **state)
{
    (void)state;
    const qn_api_protocol *p = &qn_api_chat;
    quern_result result = result_of("ab", "t");
    qn_api_call call;
    qn_buf out = QN_BUF_INIT;
    open_call(&call, p, &plain_server,
              CHAT(",\"stream\":true,\"logprobs\":true"));
    qn_api_stream s = {.call = &call, .head = &test_head};
    p->begin(&s, &out);
    tell(&s, p, 0,
         (quern_event){
             .type = QUERN_EVENT_TEXT, .tokens = euro, .token_count = 1},
         &out);
    check_bytes(&out, "", chat_id);
    tell(&s, p, 0,
         (quern_event){.type = QUERN_EVENT_TEXT,
                       .text = "\xe2\x82\xac",
                       .tokens = euro + 1,
                       .token_count = 1},
         &out);
    check_bytes(&out,
                CHUNK "{\"index\":0,\"delta\":{\"content\":\"\xe2\x82\xac\"},"
                      "\"logprobs\":" CHAT_LOGPROBS
                      ",\"finish_reason\":null}]}\n\n",
                chat_id);
    /* Those behind the last text come with the end. */
    tell(&s, p, 0,
         (quern_event){
             .type = QUERN_EVENT_TEXT, .tokens = euro + 1, .token_count = 1},
         &out);
    result.finish = QUERN_FINISH_LENGTH;
    tell(&s, p, 0, (quern_event){.type = QUERN_EVENT_DONE, .result = &result},
         &out);
    check_bytes(&out,
                CHUNK "{\"index\":0,\"delta\":{},\"logprobs\":{\"content\":["
                      "{\"token\":\"" FFFD "\",\"logprob\":0,\"bytes\":[172],"
                      "\"top_logprobs\":[]}]},\"finish_reason\":\"length\"}]}"
                      "\n\n",
                chat_id);
    p->clear(&s);
    qn_api_call_free(&call);
    qn_buf_free(&out);
}

static void test_a_stream_that_fails_ends_with_its_error(void **state)
{
    (void)state;
    const qn_api_protocol *p = &qn_api_chat;
    qn_api_call call;
    qn_api_error error;
    qn_buf out = QN_BUF_INIT;
    open_call(&call, p, &plain_server, CHAT(",\"stream\":true"));
    qn_api_stream s = {.call = &call, .head = &test_head};
    p->begin(&s, &out);
    qn_api_fail(&error, QN_API_INTERNAL, NULL, "no numbers");
    p->error(&s, &error, &out);
    check_bytes(&out,
                "data: {\"error\":{\"message\":\"no numbers\",\"type\":"
                "\"server_error\",\"param\":null,\"code\":\"internal\"}}\n\n",
                chat_id);
    p->clear(&s);
    p->clear(&s);
    qn_api_call_free(&call);
    qn_buf_free(&out);
}

static void test_completions_stream_text_without_roles(void **state)
{
    (void)state;
    const qn_api_protocol *p = &qn_api_completions;
    const quern_result result = result_of("ab", "t");
    qn_api_model m = tiny_model(NULL);
    qn_api_call call;
    qn_buf out = QN_BUF_INIT;
    parse_good(&call, p, &plain_server,
               "{\"prompt\":\"a\xe2\x82\xac\",\"stream\":true,\"echo\":true}");
    prepare_good(&call, p, &m);
    qn_api_stream s = {.call = &call, .head = &test_head};
    p->begin(&s, &out);
    tell(&s, p, 0, (quern_event){.type = QUERN_EVENT_START, .total = 9}, &out);
    check_bytes(&out,
                TEXT_CHUNK "{\"index\":0,\"text\":\"a\xe2\x82\xac\"" NO_END
                           "}\n\n",
                text_id);
    tell(&s, p, 0, (quern_event){.type = QUERN_EVENT_REASONING, .text = "t"},
         &out);
    check_bytes(&out,
                TEXT_CHUNK "{\"index\":0,\"text\":\"\",\"reasoning_content\":"
                           "\"t\"" NO_END "}\n\n",
                text_id);
    tell(&s, p, 0, (quern_event){.type = QUERN_EVENT_TEXT, .text = "b"}, &out);
    check_bytes(&out, TEXT_CHUNK "{\"index\":0,\"text\":\"b\"" NO_END "}\n\n",
                text_id);
    tell(&s, p, 0, (quern_event){.type = QUERN_EVENT_DONE, .result = &result},
         &out);
    p->end(&s, &out);
    check_bytes(&out,
                TEXT_CHUNK "{\"index\":0,\"text\":\"\",\"logprobs\":null,"
                           "\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
                text_id);
    p->clear(&s);
    qn_api_call_free(&call);
    qn_buf_free(&out);
    tiny_free(&m);
}

/* ---- memory ---- */

static qn_api_call shared_call;

static qn_status write_all(void)
{
    const qn_api_protocol *p = &qn_api_chat;
    quern_result result = result_of("\xe2\x82\xac", "hm");
    result.tokens = (quern_token *)euro;
    result.token_count = 2;
    qn_buf out = QN_BUF_INIT;
    qn_api_stream s = {.call = &shared_call, .head = &test_head};
    p->answer(&out, &shared_call, &test_head, &result);
    p->begin(&s, &out);
    tell(&s, p, 0, (quern_event){.type = QUERN_EVENT_START, .total = 9}, &out);
    tell(&s, p, 0,
         (quern_event){.type = QUERN_EVENT_TEXT,
                       .text = "a",
                       .tokens = euro,
                       .token_count = 2},
         &out);
    tell(&s, p, 0, (quern_event){.type = QUERN_EVENT_DONE, .result = &result},
         &out);
    p->end(&s, &out);
    p->clear(&s);
    qn_status status = qn_buf_status(&out);
    qn_buf_free(&out);
    return status;
}

static void test_each_allocation_may_fail(void **state)
{
    (void)state;
    open_call(&shared_call, &qn_api_chat, &plain_server,
              CHAT(",\"stream\":true,\"logprobs\":true,\"return_progress\":"
                   "true,\"stream_options\":{\"include_usage\":true}"));
    each_alloc_may_fail(write_all);
    qn_api_call_free(&shared_call);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_answer_has_text_reasoning_usage_and_times),
        cmocka_unit_test(test_n_answers_share_a_prompt),
        cmocka_unit_test(test_log_probabilities_have_the_shape_of_the_route),
        cmocka_unit_test(test_a_stream_has_its_chunks_in_order),
        cmocka_unit_test(test_usage_and_progress_come_when_asked_for),
        cmocka_unit_test(test_log_probabilities_ride_with_their_text),
        cmocka_unit_test(test_a_stream_that_fails_ends_with_its_error),
        cmocka_unit_test(test_completions_stream_text_without_roles),
        cmocka_unit_test(test_each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, set_ids, NULL);
}
