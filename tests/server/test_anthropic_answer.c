/* Whole and streamed answers of Anthropic's Messages, byte for byte. */
#include "support/qn_api.h"

#include "server/anthropic.h"

#define BODY                                                                   \
    "{\"max_tokens\":8,\"messages\":[{\"role\":\"user\",\"content\":"          \
    "\"Hi\"}],\"stop_sequences\":[\"x\",\"END\\n\"]}"

static const qn_api_protocol *const messages = &qn_api_messages;
static char message_id[QN_API_ID_SIZE], signatures[3][QN_API_ID_SIZE];

static int set_ids(void **state)
{
    (void)state;
    qn_api_id(message_id, &test_head, "msg_", 0);
    for (uint64_t i = 0; i < 3; i++)
        qn_api_id(signatures[i], &test_head, "sig_", i + 1);
    return 0;
}

/* The expected bytes: `format` with the message's id in each %s, and the
 * signature of block N in each %N. */
static void check_bytes(qn_buf *found, const char *format)
{
    qn_buf expected = QN_BUF_INIT;
    for (const char *at; (at = strchr(format, '%')); format = at + 2) {
        qn_buf_add(&expected, format, (size_t)(at - format));
        qn_buf_add_text(&expected,
                        at[1] == 's' ? message_id : signatures[at[1] - '0']);
    }
    qn_buf_add_text(&expected, format);
    assert_false(found->failed);
    assert_string_equal(qn_buf_str(found).data, qn_buf_str(&expected).data);
    qn_buf_free(&expected);
    qn_buf_clear(found);
}

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
    };
}

static void check_answer(const quern_result *r, int64_t pinned,
                         const char *expected)
{
    qn_api_call call;
    qn_buf out = QN_BUF_INIT;
    parse_good(&call, messages, &plain_server, BODY);
    ((qn_anthropic *)call.extra)->pinned_tokens = pinned;
    messages->answer(&out, &call, &test_head, r);
    check_bytes(&out, expected);
    qn_buf_free(&out);
    qn_api_call_free(&call);
}

#define HEAD                                                                   \
    "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":"    \
    "\"tiny\",\"content\":["
#define USAGE(input, created, output)                                          \
    "\"usage\":{\"input_tokens\":" #input                                      \
    ",\"cache_creation_input_tokens\":" #created                               \
    ",\"cache_read_input_tokens\":4,\"output_tokens\":" #output "}"
#define TEXT(text) "{\"type\":\"text\",\"text\":\"" text "\"}"
#define ENDED(reason) "\"stop_reason\":\"" reason "\",\"stop_sequence\":null"

static void test_an_answer_has_its_blocks_reason_and_usage(void **state)
{
    (void)state;
    quern_result r = result_of("He\"y\n", "");
    check_answer(
        &r, 0,
        HEAD TEXT("He\\\"y\\n") "]," ENDED("end_turn") "," USAGE(6, 0, 3) "}");
    r = result_of("a", "hm");
    r.finish = QUERN_FINISH_LENGTH;
    check_answer(&r, 0,
                 HEAD "{\"type\":\"thinking\",\"thinking\":\"hm\","
                      "\"signature\":\"%0\"}," TEXT("a") "]," ENDED(
                          "max_tokens") "," USAGE(6, 0, 3) "}");
    r = result_of("a", "");
    r.stop = 1;
    check_answer(
        &r, 0,
        HEAD TEXT("a") "],\"stop_reason\":\"stop_sequence\","
                       "\"stop_sequence\":\"END\\n\"," USAGE(6, 0, 3) "}");
    /* There are no empty blocks. */
    r = result_of("", "");
    check_answer(&r, 0, HEAD "]," ENDED("end_turn") "," USAGE(6, 0, 3) "}");
}

static void test_input_is_split_by_what_the_cache_had_and_keeps(void **state)
{
    (void)state;
    const quern_result r = result_of("a", "");
    check_answer(&r, 9,
                 HEAD TEXT("a") "]," ENDED("end_turn") "," USAGE(1, 5, 3) "}");
    /* All up to the pin was found. */
    check_answer(&r, 3,
                 HEAD TEXT("a") "]," ENDED("end_turn") "," USAGE(6, 0, 3) "}");
}

/* ---- streams ---- */

static void tell(qn_api_stream *s, quern_event event, qn_buf *out)
{
    if (!event.text)
        event.text = "";
    event.size = strlen(event.text);
    messages->event(s, 0, &event, 12.5, out);
}

#define EVENT(type, more)                                                      \
    "event: " type "\ndata: {\"type\":\"" type "\"" more "}\n\n"
#define START                                                                  \
    EVENT("message_start",                                                     \
          ",\"message\":" HEAD "],\"stop_reason\":null,\"stop_sequence\":"     \
          "null," USAGE(5, 0, 1) "}")                                          \
    EVENT("ping", "")
#define OPEN(index, block)                                                     \
    EVENT("content_block_start", ",\"index\":" #index ",\"content_block\":"    \
                                 "{\"type\":" block "}")
#define DELTA(index, delta)                                                    \
    EVENT("content_block_delta",                                               \
          ",\"index\":" #index ",\"delta\":{\"type\":" delta "}")
#define STOP(index) EVENT("content_block_stop", ",\"index\":" #index)
#define OPEN_THOUGHT(index)                                                    \
    OPEN(index, "\"thinking\",\"thinking\":\"\",\"signature\":\"\"")
#define OPEN_TEXT(index) OPEN(index, "\"text\",\"text\":\"\"")
#define SAY(index, text) DELTA(index, "\"text_delta\",\"text\":\"" text "\"")
#define THINK(index, text)                                                     \
    DELTA(index, "\"thinking_delta\",\"thinking\":\"" text "\"")
#define SIGN(index)                                                            \
    DELTA(index, "\"signature_delta\",\"signature\":\"%" #index "\"")

static void open_stream(qn_api_stream *s, qn_api_call *call, qn_buf *out)
{
    parse_good(call, messages, &plain_server, BODY);
    *s = (qn_api_stream){.call = call, .head = &test_head};
    messages->begin(s, out);
    check_bytes(out, "");
    tell(s, (quern_event){.type = QUERN_EVENT_START, .done = 4, .total = 9},
         out);
    check_bytes(out, START);
    tell(s, (quern_event){.type = QUERN_EVENT_PROMPT, .done = 9, .total = 9},
         out);
    check_bytes(out, "");
}

static void close_stream(qn_api_stream *s, qn_api_call *call, qn_buf *out)
{
    messages->clear(s);
    messages->clear(s);
    qn_api_call_free(call);
    qn_buf_free(out);
}

static void test_a_stream_has_its_events_in_order(void **state)
{
    (void)state;
    const quern_result result = result_of("ab", "t");
    const quern_token token = {.bytes = "\xe2", .byte_count = 1};
    qn_api_call call;
    qn_api_stream s;
    qn_buf out = QN_BUF_INIT;
    open_stream(&s, &call, &out);
    tell(&s, (quern_event){.type = QUERN_EVENT_REASONING, .text = "t\n"}, &out);
    check_bytes(&out, OPEN_THOUGHT(0) THINK(0, "t\\n"));
    tell(&s, (quern_event){.type = QUERN_EVENT_REASONING, .text = "u"}, &out);
    check_bytes(&out, THINK(0, "u"));
    /* Tokens without text say nothing. */
    tell(&s,
         (quern_event){
             .type = QUERN_EVENT_TEXT, .tokens = &token, .token_count = 1},
         &out);
    check_bytes(&out, "");
    tell(&s, (quern_event){.type = QUERN_EVENT_TEXT, .text = "a"}, &out);
    check_bytes(&out, SIGN(0) STOP(0) OPEN_TEXT(1) SAY(1, "a"));
    tell(&s, (quern_event){.type = QUERN_EVENT_TEXT, .text = "b"}, &out);
    check_bytes(&out, SAY(1, "b"));
    messages->ping(&s, &out);
    check_bytes(&out, EVENT("ping", ""));
    /* It thinks again. */
    tell(&s, (quern_event){.type = QUERN_EVENT_REASONING, .text = "v"}, &out);
    check_bytes(&out, STOP(1) OPEN_THOUGHT(2) THINK(2, "v"));
    tell(&s, (quern_event){.type = QUERN_EVENT_DONE, .result = &result}, &out);
    check_bytes(
        &out, SIGN(2) STOP(2)
                  EVENT("message_delta",
                        ",\"delta\":{" ENDED("end_turn") "}," USAGE(6, 0, 3)));
    messages->end(&s, &out);
    check_bytes(&out, EVENT("message_stop", ""));
    close_stream(&s, &call, &out);
}

static void test_an_answer_of_nothing_has_no_block(void **state)
{
    (void)state;
    quern_result result = result_of("", "");
    qn_api_call call;
    qn_api_stream s;
    qn_buf out = QN_BUF_INIT;
    result.stop = 0;
    open_stream(&s, &call, &out);
    tell(&s, (quern_event){.type = QUERN_EVENT_DONE, .result = &result}, &out);
    check_bytes(&out, EVENT("message_delta",
                            ",\"delta\":{\"stop_reason\":\"stop_sequence\","
                            "\"stop_sequence\":\"x\"}," USAGE(6, 0, 3)));
    close_stream(&s, &call, &out);
}

static void test_a_stream_that_fails_ends_with_its_error(void **state)
{
    (void)state;
    qn_api_call call;
    qn_api_stream s;
    qn_api_error error;
    qn_buf out = QN_BUF_INIT;
    open_stream(&s, &call, &out);
    tell(&s, (quern_event){.type = QUERN_EVENT_TEXT, .text = "a"}, &out);
    qn_buf_clear(&out);
    qn_api_fail(&error, QN_API_TIMEOUT, NULL, "too slow");
    messages->error(&s, &error, &out);
    check_bytes(&out, "event: error\ndata: {\"type\":\"error\",\"error\":{"
                      "\"type\":\"api_error\",\"message\":\"too slow\"},"
                      "\"request_id\":\"req_1\"}\n\n");
    close_stream(&s, &call, &out);
}

static void test_a_stream_without_memory_says_so(void **state)
{
    (void)state;
    qn_api_call call;
    qn_buf out = QN_BUF_INIT;
    parse_good(&call, messages, &plain_server, BODY);
    qn_api_stream s = {.call = &call, .head = &test_head};
    qn_test_fail_alloc(0);
    messages->begin(&s, &out);
    qn_test_fail_alloc(-1);
    assert_true(out.failed);
    out = QN_BUF_INIT;
    tell(&s, (quern_event){.type = QUERN_EVENT_START, .total = 9}, &out);
    assert_true(out.failed);
    close_stream(&s, &call, &out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_answer_has_its_blocks_reason_and_usage),
        cmocka_unit_test(test_input_is_split_by_what_the_cache_had_and_keeps),
        cmocka_unit_test(test_a_stream_has_its_events_in_order),
        cmocka_unit_test(test_an_answer_of_nothing_has_no_block),
        cmocka_unit_test(test_a_stream_that_fails_ends_with_its_error),
        cmocka_unit_test(test_a_stream_without_memory_says_so),
    };
    return cmocka_run_group_tests(tests, set_ids, NULL);
}
