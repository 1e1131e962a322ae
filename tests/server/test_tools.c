/* Functions in requests and their calls in answers, in three protocols. */
#include "support/qn_api.h"

#include "server/anthropic.h"
#include "server/responses.h"
#include "server/tools.h"

extern const qn_api_protocol qn_api_chat, qn_api_messages, qn_api_responses;

/* Shows its tools, and the format hermes_json. */
#define TEMPLATE                                                               \
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}"     \
    "{{ m.role }}:{{ m.content }}{% for tool_call in m.tool_calls or [] %}"    \
    "<tool_call>{{ tool_call.name }}{% endfor %}|{% endfor %}"

#define CHAT_FUNCTION(more)                                                    \
    "{\"type\":\"function\",\"function\":{\"name\":\"f\"" more "}}"
#define CHAT_TOOLS(list, more) CHAT(",\"tools\":[" list "]" more)
#define RESPONSES_TOOLS(list, more)                                            \
    "{\"input\":\"Hi\",\"tools\":[" list "]" more "}"
#define MESSAGES_TOOLS(list, more)                                             \
    "{\"max_tokens\":8,\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]," \
    "\"tools\":[" list "]" more "}"
#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

/* ---- requests ---- */

static void test_chat_tools_are_checked(void **state)
{
    static const bad_body rows[] = {
        {CHAT_TOOLS("1", ""), QN_API_INVALID_TYPE, "tools[0]"},
        {CHAT_TOOLS("{}", ""), QN_API_MISSING_FIELD, "tools[0].type"},
        {CHAT_TOOLS("{\"type\":1}", ""), QN_API_INVALID_TYPE, "tools[0].type"},
        {CHAT_TOOLS("{\"type\":\"custom\"}", ""), QN_API_UNSUPPORTED_VALUE,
         "tools[0].type"},
        {CHAT_TOOLS("{\"type\":\"function\"}", ""), QN_API_MISSING_FIELD,
         "tools[0].function"},
        {CHAT_TOOLS("{\"type\":\"function\",\"function\":{}}", ""),
         QN_API_MISSING_FIELD, "tools[0].function.name"},
        {CHAT_TOOLS("{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}",
                    ""),
         QN_API_INVALID_TOOL, "tools[0].function.name"},
        {CHAT_TOOLS("{\"type\":\"function\",\"function\":{\"name\":\"\"}}", ""),
         QN_API_INVALID_TOOL, "tools[0].function.name"},
        {CHAT_TOOLS(CHAT_FUNCTION("") "," CHAT_FUNCTION(""), ""),
         QN_API_INVALID_TOOL, "tools[1].function.name"},
        {CHAT_TOOLS(CHAT_FUNCTION(",\"parameters\":[]"), ""),
         QN_API_INVALID_TYPE, "tools[0].function.parameters"},
        {CHAT_TOOLS(CHAT_FUNCTION(",\"strict\":1"), ""), QN_API_INVALID_TYPE,
         "tools[0].function.strict"},
        {CHAT_TOOLS(CHAT_FUNCTION(",\"strict\":true"), ""),
         QN_API_UNSUPPORTED_VALUE, "tools[0].function.strict"},
        {CHAT_TOOLS(CHAT_FUNCTION(""), ",\"tool_choice\":\"maybe\""),
         QN_API_UNSUPPORTED_VALUE, "tool_choice"},
        {CHAT_TOOLS(CHAT_FUNCTION(""), ",\"tool_choice\":\"required\""),
         QN_API_UNSUPPORTED_VALUE, "tool_choice"},
        {CHAT_TOOLS(CHAT_FUNCTION(""),
                    ",\"tool_choice\":{\"type\":\"function\",\"function\":{"
                    "\"name\":\"f\"}}"),
         QN_API_UNSUPPORTED_VALUE, "tool_choice"},
        {CHAT_TOOLS(CHAT_FUNCTION(""),
                    ",\"tool_choice\":{\"type\":\"function\",\"function\":{"
                    "\"name\":\"g\"}}"),
         QN_API_INVALID_TOOL, "tool_choice"},
        {CHAT_TOOLS(CHAT_FUNCTION(""), ",\"tool_choice\":{\"type\":\"tool\"}"),
         QN_API_UNSUPPORTED_VALUE, "tool_choice.type"},
        {CHAT_TOOLS("", ",\"tool_choice\":\"auto\""), QN_API_UNSUPPORTED_VALUE,
         "tool_choice"},
        {CHAT(",\"parallel_tool_calls\":1"), QN_API_INVALID_TYPE,
         "parallel_tool_calls"},
    };
    (void)state;
    check_bad_bodies(&qn_api_chat, &plain_server, rows, COUNT(rows));
}

static void test_too_many_tools_are_refused(void **state)
{
    qn_buf body = QN_BUF_INIT;
    (void)state;
    for (int most = 256; most <= 257; most++) {
        qn_buf_clear(&body);
        qn_buf_add_text(&body, "{\"messages\":[{\"role\":\"user\",\"content\":"
                               "\"Hi\"}],\"tools\":[");
        for (int i = 0; i < most; i++)
            qn_buf_printf(&body,
                          "%s{\"type\":\"function\",\"function\":{\"name\":"
                          "\"f%d\"}}",
                          i ? "," : "", i);
        qn_buf_add_text(&body, "]}");
        const bad_body row = {body.data, QN_API_OUT_OF_RANGE, "tools"};
        qn_api_call call = {0};
        if (most == 256)
            parse_good(&call, &qn_api_chat, &plain_server, body.data);
        else
            check_bad_bodies(&qn_api_chat, &plain_server, &row, 1);
        qn_api_call_free(&call);
    }
    qn_buf_free(&body);
}

static void test_tools_of_other_protocols_are_checked(void **state)
{
    static const bad_body responses[] = {
        {RESPONSES_TOOLS("{\"type\":\"web_search\"}", ""),
         QN_API_UNSUPPORTED_VALUE, "tools[0].type"},
        {RESPONSES_TOOLS("{\"type\":\"function\"}", ""), QN_API_MISSING_FIELD,
         "tools[0].name"},
        {RESPONSES_TOOLS("{\"type\":\"function\",\"name\":\"f\",\"strict\":"
                         "true}",
                         ""),
         QN_API_UNSUPPORTED_VALUE, "tools[0].strict"},
        {RESPONSES_TOOLS("{\"type\":\"function\",\"name\":\"f\"}",
                         ",\"tool_choice\":{\"type\":\"function\",\"name\":"
                         "\"f\"}"),
         QN_API_UNSUPPORTED_VALUE, "tool_choice"},
    };
    static const bad_body messages[] = {
        {MESSAGES_TOOLS("{\"name\":\"f\"}", ""), QN_API_MISSING_FIELD,
         "tools[0].input_schema"},
        {MESSAGES_TOOLS("{\"type\":\"bash_20250124\",\"name\":\"bash\"}", ""),
         QN_API_UNSUPPORTED_VALUE, "tools[0].type"},
        {MESSAGES_TOOLS("{\"name\":\"f\",\"input_schema\":{}}",
                        ",\"tool_choice\":{\"type\":\"any\"}"),
         QN_API_UNSUPPORTED_VALUE, "tool_choice"},
        {MESSAGES_TOOLS("{\"name\":\"f\",\"input_schema\":{}}",
                        ",\"tool_choice\":{\"type\":\"tool\",\"name\":\"g\"}"),
         QN_API_INVALID_TOOL, "tool_choice"},
        {MESSAGES_TOOLS("{\"name\":\"f\",\"input_schema\":{}}",
                        ",\"tool_choice\":{\"type\":\"auto\","
                        "\"disable_parallel_tool_use\":1}"),
         QN_API_INVALID_TYPE, "tool_choice.disable_parallel_tool_use"},
        {MESSAGES_TOOLS("{\"name\":\"f\",\"input_schema\":{},"
                        "\"cache_control\":{\"type\":\"x\"}}",
                        ""),
         QN_API_UNSUPPORTED_VALUE, "tools[0].cache_control.type"},
    };
    (void)state;
    check_bad_bodies(&qn_api_responses, &plain_server, responses,
                     COUNT(responses));
    check_bad_bodies(&qn_api_messages, &plain_server, messages,
                     COUNT(messages));
}

/* The functions as the model gets them, and the prompt's length. */
static size_t check_prepared(const qn_api_protocol *p,
                             const qn_api_model *model, const char *body,
                             const char *tools, bool single)
{
    qn_api_call call;
    parse_good(&call, p, &plain_server, body);
    prepare_good(&call, p, model);
    const quern_request *r = call.requests;
    if (tools)
        assert_string_equal(r->tools, tools);
    else
        assert_null(r->tools);
    assert_int_equal(r->single_call, single);
    size_t count = r->id_count;
    qn_api_call_free(&call);
    return count;
}

#define MADE                                                                   \
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":"    \
    "\"d\",\"parameters\":{\"type\":\"object\"}}}]"

static void test_three_spellings_are_one_to_the_model(void **state)
{
    qn_api_model model = tiny_model(TEMPLATE);
    (void)state;
    size_t n = check_prepared(
        &qn_api_chat, &model,
        CHAT_TOOLS(CHAT_FUNCTION(",\"description\":\"d\",\"strict\":false,"
                                 "\"parameters\":{\"type\":\"object\"}"),
                   ",\"parallel_tool_calls\":false"),
        MADE, true);
    assert_int_equal(
        n,
        check_prepared(&qn_api_responses, &model,
                       RESPONSES_TOOLS("{\"type\":\"function\",\"name\":\"f\","
                                       "\"description\":\"d\",\"strict\":null,"
                                       "\"parameters\":{\"type\":\"object\"}}",
                                       ",\"tool_choice\":\"auto\""),
                       MADE, false));
    assert_int_equal(
        n, check_prepared(
               &qn_api_messages, &model,
               MESSAGES_TOOLS("{\"name\":\"f\",\"description\":\"d\","
                              "\"input_schema\":{\"type\":\"object\"},"
                              "\"cache_control\":{\"type\":\"ephemeral\"}}",
                              ",\"tool_choice\":{\"type\":\"auto\","
                              "\"disable_parallel_tool_use\":true}"),
               MADE, true));
    /* Functions without parameters have an empty schema. */
    check_prepared(&qn_api_chat, &model, CHAT_TOOLS(CHAT_FUNCTION(""), ""),
                   "[{\"type\":\"function\",\"function\":{\"name\":\"f\","
                   "\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]",
                   false);
    tiny_free(&model);
}

/* cache_control on a tool keeps the prompt up to it. */
static void test_tools_may_be_pinned(void **state)
{
#define TOOL(name, more)                                                       \
    "{\"name\":\"" name "\",\"input_schema\":{\"type\":\"object\"}" more "}"
#define PIN ",\"cache_control\":{\"type\":\"ephemeral\"}"
    static const bad_body five = {
        MESSAGES_TOOLS(TOOL("a", PIN) "," TOOL("b", PIN) "," TOOL(
                           "c", PIN) "," TOOL("d", PIN) "," TOOL("e", PIN),
                       ""),
        QN_API_UNSUPPORTED_VALUE, "tools[4].cache_control"};
    static const bad_body four_and_one = {
        MESSAGES_TOOLS(TOOL("a", PIN) "," TOOL("b", PIN) "," TOOL(
                           "c", PIN) "," TOOL("d", PIN),
                       ",\"system\":[{\"type\":\"text\",\"text\":\"x\"" PIN
                       "}]"),
        QN_API_UNSUPPORTED_VALUE, "system[0].cache_control"};
    /* The tokens are bytes: two tools, and where the first of them ends. */
    static const char first[] = "[{\"type\": \"function\", \"function\": {"
                                "\"name\": \"a\", \"parameters\": {\"type\": "
                                "\"object\"}}}";
    qn_api_model model = tiny_model_with(TEMPLATE, 1 << 20);
    qn_api_call call;
    (void)state;
    model.ctx = 4096;
    check_bad_bodies(&qn_api_messages, &plain_server, &five, 1);
    check_bad_bodies(&qn_api_messages, &plain_server, &four_and_one, 1);
    parse_good(&call, &qn_api_messages, &plain_server,
               MESSAGES_TOOLS(TOOL("a", PIN) "," TOOL("b", ""), ""));
    prepare_good(&call, &qn_api_messages, &model);
    const quern_request *r = call.requests;
    assert_int_equal(r->checkpoint_count, 1);
    assert_int_equal(r->checkpoints[0].pin_seconds, 300);
    /* A further tool may begin alike. */
    assert_in_range(r->checkpoints[0].tokens, sizeof first - 1,
                    sizeof first + 45);
    qn_api_call_free(&call);
    tiny_free(&model);
}

static void test_a_choice_of_none_shows_no_tools(void **state)
{
    qn_api_model model = tiny_model(TEMPLATE);
    (void)state;
    size_t plain = check_prepared(&qn_api_chat, &model, CHAT(""), NULL, false);
    size_t none = check_prepared(
        &qn_api_chat, &model,
        CHAT_TOOLS(CHAT_FUNCTION(""), ",\"tool_choice\":\"none\""), NULL,
        false);
    assert_int_equal(plain, none);
    tiny_free(&model);
}

static void test_a_model_without_a_format_gets_no_tools(void **state)
{
    static const bad_body row = {CHAT_TOOLS(CHAT_FUNCTION(""), ""),
                                 QN_API_UNSUPPORTED_VALUE, "tools"};
    qn_api_model model = tiny_model(NULL);
    (void)state;
    check_bad_calls(&qn_api_chat, &model, &row, 1);
    tiny_free(&model);
}

/* ---- answers ---- */

static const quern_call calls[] = {
    {.name = "f",
     .arguments = "{\"a\": 1}",
     .size = 8,
     .whole = true,
     .text_before = 2},
    {.name = "g", .arguments = "{\"b\": \"x", .size = 8, .text_before = 2},
};

static quern_result result_with(size_t count)
{
    return (quern_result){.text = (char *)"t.u",
                          .size = 3,
                          .reasoning = (char *)"",
                          .calls = (quern_call *)calls,
                          .call_count = count,
                          .finish = QUERN_FINISH_TOOL_CALLS,
                          .stop = -1,
                          .prompt_tokens = 4,
                          .completion_tokens = 2};
}

/* The answer's JSON; the caller frees. */
static qn_json_doc *answer_of(const qn_api_protocol *p, const char *body,
                              const quern_result *r)
{
    qn_api_call call;
    qn_buf out = QN_BUF_INIT;
    qn_json_doc *doc = NULL;
    parse_good(&call, p, &plain_server, body);
    call.count = 1;
    call.requests = &call.asked;
    p->answer(&out, &call, &test_head, r);
    check_status(qn_json_parse(&doc, qn_buf_str(&out), 0), QN_OK);
    call.requests = NULL;
    call.count = 0;
    qn_buf_free(&out);
    qn_api_call_free(&call);
    return doc;
}

/* The value at a path of keys and indexes is written so. */
static void check_at(const qn_json_doc *doc, const char *path,
                     const char *expected)
{
    const qn_json *value = qn_json_root(doc);
    char word[64];
    while (*path) {
        size_t n = strcspn(path, ".");
        memcpy(word, path, n);
        word[n] = '\0';
        value = *word >= '0' && *word <= '9'
                    ? qn_json_at(value, (size_t)atoi(word))
                    : qn_json_get(value, word);
        path += n + (path[n] == '.');
    }
    qn_buf out = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &out);
    if (value)
        qn_json_write_value(&w, value);
    check_str(qn_buf_str(&out), expected);
    qn_buf_free(&out);
}

static void test_chat_answers_have_calls(void **state)
{
    quern_result r = result_with(2);
    char id[2][QN_API_ID_SIZE], expected[600];
    (void)state;
    for (size_t i = 0; i < 2; i++)
        qn_call_id(id[i], &test_head, "call_", 0, i);
    assert_int_equal(strlen(id[0]), 5 + 24);
    assert_string_not_equal(id[0], id[1]);
    snprintf(expected, sizeof expected,
             "[{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":"
             "\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}},{\"id\":\"%s\",\"type\":"
             "\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{"
             "\\\"b\\\": \\\"x\"}}]",
             id[0], id[1]);
    qn_json_doc *doc = answer_of(&qn_api_chat, CHAT(""), &r);
    check_at(doc, "choices.0.message.tool_calls", expected);
    check_at(doc, "choices.0.message.content", "\"t.u\"");
    check_at(doc, "choices.0.finish_reason", "\"tool_calls\"");
    qn_json_doc_free(doc);
    r.size = 0;
    r.text = (char *)"";
    doc = answer_of(&qn_api_chat, CHAT(""), &r);
    check_at(doc, "choices.0.message.content", "null");
    qn_json_doc_free(doc);
}

static void test_messages_have_blocks_in_order(void **state)
{
    quern_result r = result_with(2);
    char id[2][QN_API_ID_SIZE], expected[600];
    (void)state;
    for (size_t i = 0; i < 2; i++)
        qn_call_id(id[i], &test_head, "toolu_", 0, i);
    snprintf(expected, sizeof expected,
             "[{\"type\":\"text\",\"text\":\"t.\"},{\"type\":\"tool_use\","
             "\"id\":\"%s\",\"name\":\"f\",\"input\":{\"a\":1}},{\"type\":"
             "\"tool_use\",\"id\":\"%s\",\"name\":\"g\",\"input\":{\"b\":\"x\"}"
             "},{\"type\":\"text\",\"text\":\"u\"}]",
             id[0], id[1]);
    qn_json_doc *doc = answer_of(&qn_api_messages, MESSAGES_TOOLS("", ""), &r);
    check_at(doc, "content", expected);
    check_at(doc, "stop_reason", "\"tool_use\"");
    check_at(doc, "stop_sequence", "null");
    qn_json_doc_free(doc);
}

static void test_responses_have_items_in_order(void **state)
{
    quern_result r = result_with(2);
    (void)state;
    qn_json_doc *doc =
        answer_of(&qn_api_responses, RESPONSES_TOOLS("", ""), &r);
    char id[QN_API_ID_SIZE], quoted[QN_API_ID_SIZE + 2];
    qn_call_id(id, &test_head, "call_", 0, 1);
    snprintf(quoted, sizeof quoted, "\"%s\"", id);
    check_at(doc, "output.0.type", "\"message\"");
    check_at(doc, "output.1.type", "\"function_call\"");
    check_at(doc, "output.1.arguments", "\"{\\\"a\\\": 1}\"");
    check_at(doc, "output.1.status", "\"completed\"");
    check_at(doc, "output.2.call_id", quoted);
    check_at(doc, "output.2.name", "\"g\"");
    check_at(doc, "output.2.status", "\"incomplete\"");
    check_at(doc, "output.3.content.0.text", "\"u\"");
    check_at(doc, "output.4", "");
    check_at(doc, "parallel_tool_calls", "true");
    qn_json_doc_free(doc);
}

/* ---- streams ---- */

/* What a stream writes for a call with two fragments, without ids. */
static void check_stream(const qn_api_protocol *p, const char *body,
                         const char *const *expected)
{
    static const quern_event events[] = {
        {.type = QUERN_EVENT_CALL, .text = "f", .size = 1},
        {.type = QUERN_EVENT_ARGUMENTS, .text = "{\"a\"", .size = 4},
        {.type = QUERN_EVENT_ARGUMENTS, .text = ": 1}", .size = 4},
        {.type = QUERN_EVENT_CALL_END, .text = "", .whole = true},
    };
    qn_api_call call;
    qn_buf out = QN_BUF_INIT;
    parse_good(&call, p, &plain_server, body);
    call.count = 1;
    call.requests = &call.asked;
    qn_api_stream s = {.call = &call, .head = &test_head};
    p->begin(&s, &out);
    for (size_t i = 0; i < COUNT(events); i++) {
        qn_buf_clear(&out);
        p->event(&s, 0, &events[i], 1, &out);
        assert_false(out.failed);
        const char *found = out.size ? out.data : "";
        /* Each part, in order. */
        for (const char *part = expected[i]; *part;) {
            char word[200];
            size_t n = strcspn(part, "\n");
            memcpy(word, part, n);
            word[n] = '\0';
            const char *at = strstr(found, word);
            if (!at) {
                print_error("no %s in %s\n", word, found);
                fail();
            }
            found = at + n;
            part += n + (part[n] == '\n');
        }
        if (!*expected[i])
            assert_int_equal(out.size, 0);
    }
    p->clear(&s);
    call.requests = NULL;
    call.count = 0;
    qn_buf_free(&out);
    qn_api_call_free(&call);
}

static void test_streams_pass_arguments_on(void **state)
{
    static const char *const chat[] = {
        "\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_\n\",\"type\":"
        "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]}",
        "{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{"
        "\\\"a\\\"\"}}]}",
        "\"arguments\":\": 1}\"", ""};
    static const char *const messages[] = {
        "event: content_block_start\n\"index\":0,\"content_block\":{\"type\":"
        "\"tool_use\",\"id\":\"toolu_\n\"name\":\"f\",\"input\":{}}",
        "event: content_block_delta\n{\"type\":\"input_json_delta\","
        "\"partial_json\":\"{\\\"a\\\"\"}",
        "\"partial_json\":\": 1}\"", "event: content_block_stop\n\"index\":0"};
    static const char *const responses[] = {
        "event: response.output_item.added\n\"output_index\":0,\"item\":{"
        "\"id\":\"fc_\n\"type\":\"function_call\",\"status\":\"in_progress\","
        "\"call_id\":\"call_\n\"name\":\"f\",\"arguments\":\"\"}",
        "event: response.function_call_arguments.delta\n\"item_id\":\"fc_\n"
        "\"output_index\":0,\"delta\":\"{\\\"a\\\"\"",
        "\"delta\":\": 1}\"",
        "event: response.function_call_arguments.done\n\"arguments\":\"{"
        "\\\"a\\\": 1}\"\nevent: response.output_item.done\n\"completed\""};
    (void)state;
    check_stream(&qn_api_chat, CHAT(""), chat);
    check_stream(&qn_api_messages, MESSAGES_TOOLS("", ""), messages);
    check_stream(&qn_api_responses, RESPONSES_TOOLS("", ""), responses);
}

static void test_arguments_that_break_off_are_closed(void **state)
{
    static const char *const rows[][2] = {
        {"{\"a\": 1}", "{\"a\": 1}"},
        {"", "{}"},
        {"{", "{}"},
        {"{\"a", "{}"},
        {"{\"a\"", "{}"},
        {"{\"a\": ", "{}"},
        {"{\"a\": 1", "{}"}, /* more digits may follow */
        {"{\"a\": 1, \"b\": tr", "{\"a\": 1}"},
        {"{\"a\": [1, 2, {\"b\": \"x\", \"c",
         "{\"a\": [1, 2, {\"b\": \"x\"}]}"},
        {"{\"a\": \"te", "{\"a\": \"te\"}"},
        {"{\"a\": \"te\\", "{\"a\": \"te\"}"},
        {"{\"a\": \"te\\u00", "{\"a\": \"te\"}"},
        {"{\"a\": \"\\ud83d", "{\"a\": \"\"}"},
        {"{\"a\": \"\\ud83d\\ude00\\\"", "{\"a\": \"\\ud83d\\ude00\\\"\"}"},
        {"{\"a\": {\"b]\": null}, ", "{\"a\": {\"b]\": null}}"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        qn_buf out = QN_BUF_INIT;
        qn_arguments_close(&out, qn_str_of(rows[i][0]));
        check_str(qn_buf_str(&out), rows[i][1]);
        qn_buf_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat_tools_are_checked),
        cmocka_unit_test(test_too_many_tools_are_refused),
        cmocka_unit_test(test_tools_of_other_protocols_are_checked),
        cmocka_unit_test(test_three_spellings_are_one_to_the_model),
        cmocka_unit_test(test_tools_may_be_pinned),
        cmocka_unit_test(test_a_choice_of_none_shows_no_tools),
        cmocka_unit_test(test_a_model_without_a_format_gets_no_tools),
        cmocka_unit_test(test_chat_answers_have_calls),
        cmocka_unit_test(test_messages_have_blocks_in_order),
        cmocka_unit_test(test_responses_have_items_in_order),
        cmocka_unit_test(test_streams_pass_arguments_on),
        cmocka_unit_test(test_arguments_that_break_off_are_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
