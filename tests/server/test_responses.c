/* OpenAI's Responses: bodies, answers and streams, byte for byte. */
#include "support/qn_api.h"

#include "server/responses.h"
#include "server/responses_store.h"

#define BAD(rows) rows, sizeof(rows) / sizeof *(rows)
#define FIELD(json) "{\"input\":\"a\"," json "}"
#define INPUT(items) "{\"input\":[" items "]}"
#define CALL                                                                   \
    "{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\","            \
    "\"arguments\":\"{\\\"x\\\": 1}\"}"

static const qn_api_protocol *const responses = &qn_api_responses;

static void test_bodies_are_refused_with_their_field(void **state)
{
    (void)state;
    static const bad_body rows[] = {
        {"{}", QN_API_MISSING_FIELD, "input"},
        {"{\"input\":5}", QN_API_INVALID_TYPE, "input"},
        {INPUT("\"a\""), QN_API_INVALID_TYPE, "input[0]"},
        {INPUT("{\"role\":\"user\"}"), QN_API_MISSING_FIELD,
         "input[0].content"},
        {INPUT("{\"role\":\"user\",\"content\":[{\"text\":\"a\"}]}"),
         QN_API_MISSING_FIELD, "input[0].content[0].type"},
        {INPUT("{\"type\":\"function_call\",\"call_id\":\"c\"}"),
         QN_API_MISSING_FIELD, "input[0].name"},
        {INPUT("{\"type\":\"function_call_output\",\"output\":\"a\"}"),
         QN_API_MISSING_FIELD, "input[0].call_id"},
        {FIELD("\"max_output_tokens\":0"), QN_API_OUT_OF_RANGE,
         "max_output_tokens"},
        {FIELD("\"truncation\":\"auto\""), QN_API_UNSUPPORTED_VALUE,
         "truncation"},
        {FIELD("\"background\":true"), QN_API_UNSUPPORTED_VALUE, "background"},
        {FIELD("\"conversation\":\"c\""), QN_API_UNSUPPORTED_VALUE,
         "conversation"},
        {FIELD("\"tools\":[{\"type\":\"web_search\"}]"),
         QN_API_UNSUPPORTED_VALUE, "tools[0].type"},
        {FIELD("\"text\":{\"format\":{\"type\":\"json_object\"}}"),
         QN_API_UNSUPPORTED_VALUE, "text.format.type"},
        {FIELD("\"reasoning\":{\"effort\":\"huge\"}"), QN_API_UNSUPPORTED_VALUE,
         "reasoning.effort"},
        {FIELD("\"include\":[\"file_search_call.results\"]"),
         QN_API_UNSUPPORTED_VALUE, "include[0]"},
        {FIELD("\"top_logprobs\":2"), QN_API_UNSUPPORTED_VALUE, "top_logprobs"},
        {FIELD("\"temperature\":\"1\""), QN_API_INVALID_TYPE, "temperature"},
        {FIELD("\"messages\":[]"), QN_API_UNKNOWN_FIELD, "messages"},
        {INPUT("{\"role\":\"user\",\"content\":\"a\",\"x\":1}"),
         QN_API_UNKNOWN_FIELD, "input[0].x"},
        {INPUT("{\"role\":\"user\",\"content\":[{\"type\":\"input_text\","
               "\"text\":\"a\",\"x\":1}]}"),
         QN_API_UNKNOWN_FIELD, "input[0].content[0].x"},
        {INPUT("{\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\","
               "\"refusal\":1}]}"),
         QN_API_INVALID_TYPE, "input[0].content[0].refusal"},
    };
    check_bad_bodies(responses, &strict_server, BAD(rows));
}

static void test_items_are_refused_beside_the_conversation(void **state)
{
    (void)state;
    static const bad_body rows[] = {
        {"{\"input\":[]}", QN_API_OUT_OF_RANGE, "input"},
        {INPUT("{\"role\":\"robot\",\"content\":\"a\"}"),
         QN_API_UNSUPPORTED_VALUE, "input[0].role"},
        {INPUT("{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}"),
         QN_API_UNSUPPORTED_CONTENT, "input[0].content[0].type"},
        {INPUT("{\"type\":\"item_reference\",\"id\":\"a\"}"),
         QN_API_UNSUPPORTED_CONTENT, "input[0].type"},
        {INPUT("{\"type\":\"function_call_output\",\"call_id\":\"c\","
               "\"output\":\"a\"}"),
         QN_API_INVALID_TOOL, "input[0].call_id"},
        {INPUT("{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\","
               "\"arguments\":\"[]\"}"),
         QN_API_INVALID_TOOL, "input[0].arguments"},
        {FIELD("\"previous_response_id\":\"resp_1\""),
         QN_API_RESPONSE_NOT_FOUND, "previous_response_id"},
        {FIELD("\"max_output_tokens\":9223372036854775807"),
         QN_API_CONTEXT_LENGTH_EXCEEDED, "max_output_tokens"},
        {FIELD("\"max_output_tokens\":256"), QN_API_CONTEXT_LENGTH_EXCEEDED,
         "max_output_tokens"},
    };
    qn_api_model m = tiny_model(NULL);
    check_bad_calls(responses, &m, BAD(rows));
    tiny_free(&m);
}

/* ---- conversations ---- */

static const char tmpl[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}"
    "{% for c in m.tool_calls %}[{{ c.function.name }} "
    "{{ c.function.arguments.x }}]{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}";

static void check_prompt(const qn_api_model *m, const qn_api_server *server,
                         const char *body, const char *expected)
{
    qn_api_call call;
    char *text;
    parse_good(&call, responses, server, body);
    prepare_good(&call, responses, m);
    assert_int_equal(call.count, 1);
    assert_int_equal(quern_detokenize(m->model, call.requests[0].ids,
                                      call.requests[0].id_count, false, &text,
                                      NULL, NULL),
                     QUERN_OK);
    assert_string_equal(text, expected);
    quern_free(text);
    qn_api_call_free(&call);
}

static void test_items_become_messages(void **state)
{
    (void)state;
    qn_api_model m = tiny_model(tmpl);
    check_prompt(&m, &plain_server, FIELD("\"instructions\":\"S\""),
                 "<system>S<user>a<a>");
    check_prompt(
        &m, &plain_server,
        INPUT("{\"role\":\"developer\",\"content\":\"D\"},{\"type\":"
              "\"message\",\"role\":\"user\",\"content\":[{\"type\":"
              "\"input_text\",\"text\":\"b\"},{\"type\":\"input_text\","
              "\"text\":\"c\"}]},{\"type\":\"reasoning\",\"id\":\"r\","
              "\"summary\":[{\"type\":\"summary_text\",\"text\":\"t\"}]},{"
              "\"type\":\"message\",\"id\":\"m\",\"status\":\"completed\","
              "\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\","
              "\"text\":\"d\",\"annotations\":[]},{\"type\":\"refusal\","
              "\"refusal\":\"!\"}]}," CALL
              ",{\"type\":\"function_call_output\",\"call_id\":\"c\","
              "\"output\":\"ok\"},{\"role\":\"assistant\",\"content\":\"e\"},"
              "{\"role\":\"assistant\",\"content\":\"f\"}"),
        "<system>D<user>bc<assistant>d!(t)[f 1]<tool>ok<assistant>e<assistant>"
        "f<a>");
    tiny_free(&m);
}

static void test_a_response_goes_on_with_another(void **state)
{
    (void)state;
    qn_api_model m = tiny_model(tmpl);
    qn_api_server server = {0};
    assert_int_equal(qn_responses_new(&server.responses, 1 << 20, 3600), QN_OK);
    qn_responses_put(server.responses, "", "resp_1", QN_STR("{}"),
                     QN_STR("{\"role\":\"user\",\"content\":\"q\"},{\"role\":"
                            "\"assistant\",\"content\":\"r\",\"tool_calls\":"
                            "[{\"id\":\"c\",\"function\":{\"name\":\"f\","
                            "\"arguments\":{\"x\":2}}}]}"),
                     test_head.created);
    check_prompt(&m, &server,
                 "{\"previous_response_id\":\"resp_1\",\"instructions\":"
                 "\"new\",\"input\":[{\"type\":\"function_call_output\","
                 "\"call_id\":\"c\",\"output\":\"ok\"}]}",
                 "<system>new<user>q<assistant>r[f 2]<tool>ok<a>");
    qn_responses_free(server.responses);
    tiny_free(&m);
}

/* ---- answers ---- */

static char ids[4][QN_API_ID_SIZE]; /* %r %s %m %n */

static int set_ids(void **state)
{
    (void)state;
    qn_api_id(ids[0], &test_head, "resp_", 0);
    qn_api_id(ids[1], &test_head, "rs_", 1);
    qn_api_id(ids[2], &test_head, "msg_", 1);
    qn_api_id(ids[3], &test_head, "msg_", 2);
    return 0;
}

static void check_bytes(qn_buf *found, const char *format)
{
    static const char names[] = "rsmn";
    qn_buf expected = QN_BUF_INIT;
    for (const char *at; (at = strchr(format, '%')); format = at + 2) {
        qn_buf_add(&expected, format, (size_t)(at - format));
        qn_buf_add_text(&expected, ids[strchr(names, at[1]) - names]);
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
        .reasoning_tokens = 1,
    };
}

/* A body without limits, and the members of its response. */
#define BODY                                                                   \
    "{\"input\":\"a\",\"temperature\":0.5,\"top_p\":1,\"metadata\":{\"k\":"    \
    "\"v\"},\"max_output_tokens\":9}"
#define RESPONSE(status, details, output, usage)                               \
    "{\"id\":\"%r\",\"object\":\"response\",\"created_at\":1700000000,"        \
    "\"status\":\"" status "\",\"background\":false,\"error\":null,"           \
    "\"incomplete_details\":" details                                          \
    ",\"model\":\"tiny\",\"output\":[" output                                  \
    "],\"instructions\":null,\"max_output_tokens\":9,\"metadata\":{"           \
    "\"k\":\"v\"},\"parallel_tool_calls\":true,\"previous_response_id\":null," \
    "\"reasoning\":{\"effort\":null,\"summary\":null},\"store\":true,"         \
    "\"temperature\":0.5,\"text\":{\"format\":{\"type\":\"text\"}},"           \
    "\"tool_choice\":\"auto\",\"tools\":[],\"top_logprobs\":0,\"top_p\":1,"    \
    "\"truncation\":\"disabled\",\"user\":null,\"usage\":" usage "}"
#define USAGE                                                                  \
    "{\"input_tokens\":10,\"input_tokens_details\":{\"cached_tokens\":4,"      \
    "\"cache_write_tokens\":0},"                                               \
    "\"output_tokens\":3,\"output_tokens_details\":{\"reasoning_tokens\":1},"  \
    "\"total_tokens\":13}"
#define TEXT(text)                                                             \
    "{\"type\":\"output_text\",\"text\":\"" text                               \
    "\",\"annotations\":[],\"logprobs\":[]}"
#define THOUGHT(text) "{\"type\":\"summary_text\",\"text\":\"" text "\"}"
#define MESSAGE(id, status, parts)                                             \
    "{\"id\":\"" id "\",\"type\":\"message\",\"status\":\"" status             \
    "\",\"role\":\"assistant\",\"content\":[" parts "]}"
#define REASONING(parts)                                                       \
    "{\"id\":\"%s\",\"type\":\"reasoning\",\"summary\":[" parts "]}"

static void check_answer(const quern_result *r, const char *expected)
{
    qn_api_call call;
    qn_buf out = QN_BUF_INIT;
    parse_good(&call, responses, &plain_server, BODY);
    responses->answer(&out, &call, &test_head, r);
    check_bytes(&out, expected);
    qn_buf_free(&out);
    qn_api_call_free(&call);
}

static void test_an_answer_has_its_items_and_usage(void **state)
{
    (void)state;
    quern_result r = result_of("He\"y\n", "");
    check_answer(&r, RESPONSE("completed", "null",
                              MESSAGE("%m", "completed", TEXT("He\\\"y\\n")),
                              USAGE));
    r = result_of("a", "hm");
    r.finish = QUERN_FINISH_LENGTH;
    check_answer(
        &r, RESPONSE("incomplete", "{\"reason\":\"max_output_tokens\"}",
                     REASONING(THOUGHT("hm")) "," MESSAGE("%n", "incomplete",
                                                          TEXT("a")),
                     USAGE));
    r = result_of("", "");
    check_answer(&r, RESPONSE("completed", "null",
                              MESSAGE("%m", "completed", TEXT("")), USAGE));
}

/* ---- streams ---- */

static void tell(qn_api_stream *s, quern_event event, qn_buf *out)
{
    if (!event.text)
        event.text = "";
    event.size = strlen(event.text);
    responses->event(s, 0, &event, 12.5, out);
}

#define EVENT(type, number, more)                                              \
    "event: response." type "\ndata: {\"type\":\"response." type               \
    "\",\"sequence_number\":" #number "," more "}\n\n"
#define OF_RESPONSE(type, number, response)                                    \
    EVENT(type, number, "\"response\":" response)
#define OF_ITEM(type, number, index, item)                                     \
    EVENT("output_item." type, number,                                         \
          "\"output_index\":" #index ",\"item\":" item)
#define OF_TEXT(type, number, more)                                            \
    EVENT(type, number,                                                        \
          "\"item_id\":\"%n\",\"output_index\":1,\"content_index\":0," more)
#define OF_THOUGHT(type, number, more)                                         \
    EVENT(type, number,                                                        \
          "\"item_id\":\"%s\",\"output_index\":0,\"summary_index\":0," more)
#define BEGUN RESPONSE("in_progress", "null", "", "null")

static void test_a_stream_has_its_events_in_order(void **state)
{
    (void)state;
    const quern_result result = result_of("ab", "t");
    qn_api_server server = {0};
    qn_api_call call;
    qn_buf out = QN_BUF_INIT, kept = QN_BUF_INIT, said = QN_BUF_INIT;
    assert_int_equal(qn_responses_new(&server.responses, 1 << 20, 3600), QN_OK);
    parse_good(&call, responses, &server, BODY);
    ((qn_asked_response *)call.extra)->messages = QN_STR("{}");
    qn_api_stream s = {.call = &call, .head = &test_head};
    responses->begin(&s, &out);
    tell(&s, (quern_event){.type = QUERN_EVENT_START, .total = 9}, &out);
    check_bytes(&out, OF_RESPONSE("created", 0, BEGUN)
                          OF_RESPONSE("in_progress", 1, BEGUN));
    tell(&s, (quern_event){.type = QUERN_EVENT_REASONING, .text = "t"}, &out);
    check_bytes(&out, OF_ITEM("added", 2, 0, REASONING(""))
                          OF_THOUGHT("reasoning_summary_part.added", 3,
                                     "\"part\":" THOUGHT(""))
                              OF_THOUGHT("reasoning_summary_text.delta", 4,
                                         "\"delta\":\"t\""));
    tell(&s, (quern_event){.type = QUERN_EVENT_TEXT, .text = "a"}, &out);
    check_bytes(
        &out,
        OF_THOUGHT("reasoning_summary_text.done", 5, "\"text\":\"t\"")
            OF_THOUGHT("reasoning_summary_part.done", 6,
                       "\"part\":" THOUGHT("t"))
                OF_ITEM("done", 7, 0, REASONING(THOUGHT("t")))
                    OF_ITEM("added", 8, 1, MESSAGE("%n", "in_progress", ""))
                        OF_TEXT("content_part.added", 9, "\"part\":" TEXT(""))
                            OF_TEXT("output_text.delta", 10,
                                    "\"delta\":\"a\",\"logprobs\":[]"));
    tell(&s, (quern_event){.type = QUERN_EVENT_TEXT, .text = "b"}, &out);
    check_bytes(&out, OF_TEXT("output_text.delta", 11,
                              "\"delta\":\"b\",\"logprobs\":[]"));
    tell(&s, (quern_event){.type = QUERN_EVENT_DONE, .result = &result}, &out);
#define DONE_ITEM MESSAGE("%n", "completed", TEXT("ab"))
#define WHOLE                                                                  \
    RESPONSE("completed", "null", REASONING(THOUGHT("t")) "," DONE_ITEM, USAGE)
    check_bytes(
        &out, OF_TEXT("output_text.done", 12, "\"text\":\"ab\",\"logprobs\":[]")
                  OF_TEXT("content_part.done", 13, "\"part\":" TEXT("ab"))
                      OF_ITEM("done", 14, 1, DONE_ITEM)
                          OF_RESPONSE("completed", 15, WHOLE));
    responses->end(&s, &out);
    check_bytes(&out, "");
    /* It is kept, with the conversation up to its end. */
    assert_true(qn_responses_get(server.responses, "", ids[0],
                                 test_head.created, &kept, &said));
    check_bytes(&kept, WHOLE);
    check_bytes(&said, "{},{\"role\":\"assistant\",\"reasoning_content\":"
                       "\"t\",\"content\":\"ab\"}");
    responses->clear(&s);
    qn_api_call_free(&call);
    qn_buf_free(&out);
    qn_buf_free(&kept);
    qn_buf_free(&said);
    qn_responses_free(server.responses);
}

static void test_log_probabilities_ride_with_their_text(void **state)
{
    (void)state;
    static const quern_token tokens[] = {
        {.id = 6, .bytes = "b", .byte_count = 1, .thought = true},
        {.id = 5, .logprob = -0.5F, .bytes = "a", .byte_count = 1}};
    qn_api_call call;
    qn_buf out = QN_BUF_INIT;
    quern_result r = result_of("a", "");
    r.tokens = (quern_token *)tokens;
    r.token_count = 2;
    parse_good(&call, responses, &plain_server,
               FIELD("\"include\":[\"message.output_text.logprobs\"],"
                     "\"top_logprobs\":1,\"store\":false"));
    responses->answer(&out, &call, &test_head, &r);
    assert_non_null(strstr(
        out.data, "\"annotations\":[],\"logprobs\":[{\"token\":\"a\","
                  "\"logprob\":-0.5,\"bytes\":[97],\"top_logprobs\":[]}]}"));
    qn_buf_free(&out);
    qn_api_call_free(&call);
}

static void test_a_stream_that_fails_ends_with_its_error(void **state)
{
    (void)state;
    qn_api_call call;
    qn_api_error error;
    qn_buf out = QN_BUF_INIT;
    parse_good(&call, responses, &plain_server, BODY);
    qn_api_stream s = {.call = &call, .head = &test_head};
    responses->begin(&s, &out);
    tell(&s, (quern_event){.type = QUERN_EVENT_START, .total = 9}, &out);
    qn_buf_clear(&out);
    qn_api_fail(&error, QN_API_TIMEOUT, NULL, "too slow");
    responses->error(&s, &error, &out);
    assert_non_null(strstr(out.data, "event: response.failed\n"));
    assert_non_null(strstr(out.data, "\"sequence_number\":2,"));
    assert_non_null(strstr(out.data, "\"status\":\"failed\",\"background\":"
                                     "false,\"error\":{\"code\":\"timeout\","
                                     "\"message\":\"too slow\"}"));
    responses->clear(&s);
    responses->clear(&s);
    qn_api_call_free(&call);
    qn_buf_free(&out);
}

static void test_any_allocation_may_fail(void **state)
{
    (void)state;
    qn_api_model m = tiny_model(tmpl);
    bool good = false;
    for (long n = 0; !good && n < 4000; n++) {
        qn_api_call call = {0};
        qn_api_error error = {0};
        qn_test_fail_alloc(n);
        good = responses->parse(&call,
                                QN_STR("{\"instructions\":\"s\",\"input\":["
                                       "{\"role\":\"user\",\"content\":\"a\"}"
                                       "," CALL "]}"),
                                &plain_server, &error) &&
               responses->prepare(&call, &m, &test_head, &error);
        qn_test_fail_alloc(-1);
        if (!good)
            assert_int_equal(error.code, QN_API_INSUFFICIENT_MEMORY);
        qn_api_call_free(&call);
    }
    assert_true(good);
    tiny_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bodies_are_refused_with_their_field),
        cmocka_unit_test(test_items_are_refused_beside_the_conversation),
        cmocka_unit_test(test_items_become_messages),
        cmocka_unit_test(test_a_response_goes_on_with_another),
        cmocka_unit_test(test_an_answer_has_its_items_and_usage),
        cmocka_unit_test(test_a_stream_has_its_events_in_order),
        cmocka_unit_test(test_log_probabilities_ride_with_their_text),
        cmocka_unit_test(test_a_stream_that_fails_ends_with_its_error),
        cmocka_unit_test(test_any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, set_ids, NULL);
}
