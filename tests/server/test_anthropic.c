/* Bodies of Anthropic's Messages and count_tokens: what they ask, and what is
 * refused. */
#include "support/qn_api.h"

#include "server/anthropic.h"

#define BAD(rows) rows, sizeof(rows) / sizeof *(rows)
#define BODY(json) "{\"max_tokens\":8," json "}"
#define HI "{\"role\":\"user\",\"content\":\"Hi\"}"
#define FIELD(json) BODY("\"messages\":[" HI "]," json)
#define MESSAGES(json) BODY("\"messages\":[" json "]")
#define USER(blocks) MESSAGES("{\"role\":\"user\",\"content\":[" blocks "]}")
#define CACHED "\"cache_control\":{\"type\":\"ephemeral\"}"
#define USE                                                                    \
    "{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":"      \
    "\"t1\",\"name\":\"f\",\"input\":{\"a\":[1,2.50]}}]}"

static const qn_api_protocol *const messages = &qn_api_messages;

static void test_types_are_refused_with_their_place(void **state)
{
    (void)state;
    static const bad_body rows[] = {
        {"", QN_API_INVALID_JSON, ""},
        {"[]", QN_API_INVALID_JSON, ""},
        {"{\"messages\":[" HI "]}", QN_API_MISSING_FIELD, "max_tokens"},
        {"{\"max_tokens\":8}", QN_API_MISSING_FIELD, "messages"},
        {FIELD("\"max_tokens\":\"8\""), QN_API_INVALID_JSON, ""},
        {"{\"max_tokens\":\"8\",\"messages\":[" HI "]}", QN_API_INVALID_TYPE,
         "max_tokens"},
        {BODY("\"messages\":\"Hi\""), QN_API_INVALID_TYPE, "messages"},
        {MESSAGES("\"Hi\""), QN_API_INVALID_TYPE, "messages[0]"},
        {MESSAGES("{\"content\":\"a\"}"), QN_API_MISSING_FIELD,
         "messages[0].role"},
        {MESSAGES("{\"role\":\"user\"}"), QN_API_MISSING_FIELD,
         "messages[0].content"},
        {MESSAGES("{\"role\":\"user\",\"content\":null}"), QN_API_MISSING_FIELD,
         "messages[0].content"},
        {MESSAGES("{\"role\":\"user\",\"content\":{}}"), QN_API_INVALID_TYPE,
         "messages[0].content"},
        {USER("\"a\""), QN_API_INVALID_TYPE, "messages[0].content[0]"},
        {USER("{\"text\":\"a\"}"), QN_API_MISSING_FIELD,
         "messages[0].content[0].type"},
        {USER("{\"type\":\"text\"}"), QN_API_MISSING_FIELD,
         "messages[0].content[0].text"},
        {USER("{\"type\":\"text\",\"text\":1}"), QN_API_INVALID_TYPE,
         "messages[0].content[0].text"},
        {USER("{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"content\":"
              "[{\"type\":\"text\"}]}"),
         QN_API_MISSING_FIELD, "messages[0].content[0].content[0].text"},
        {USER("{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"is_error\":"
              "1}"),
         QN_API_INVALID_TYPE, "messages[0].content[0].is_error"},
        {USER("{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{}}"),
         QN_API_MISSING_FIELD, "messages[0].content[0].cache_control.type"},
        {FIELD("\"system\":1"), QN_API_INVALID_TYPE, "system"},
        {FIELD("\"system\":[{\"type\":\"text\"}]"), QN_API_MISSING_FIELD,
         "system[0].text"},
        {FIELD("\"stop_sequences\":\"a\""), QN_API_INVALID_TYPE,
         "stop_sequences"},
        {FIELD("\"stop_sequences\":[1]"), QN_API_INVALID_TYPE,
         "stop_sequences[0]"},
        {FIELD("\"thinking\":true"), QN_API_INVALID_TYPE, "thinking"},
        {FIELD("\"thinking\":{}"), QN_API_MISSING_FIELD, "thinking.type"},
        {FIELD("\"metadata\":{\"user_id\":5}"), QN_API_INVALID_TYPE,
         "metadata.user_id"},
        {FIELD("\"tools\":{}"), QN_API_INVALID_TYPE, "tools"},
        {FIELD("\"tool_choice\":\"auto\""), QN_API_INVALID_TYPE, "tool_choice"},
        {FIELD("\"top_k\":1.5"), QN_API_INVALID_TYPE, "top_k"},
    };
    check_bad_bodies(messages, &plain_server, BAD(rows));
}

static void test_values_are_refused_with_their_place(void **state)
{
    (void)state;
    static const bad_body rows[] = {
        {"{\"max_tokens\":0,\"messages\":[" HI "]}", QN_API_OUT_OF_RANGE,
         "max_tokens"},
        {BODY("\"messages\":[]"), QN_API_OUT_OF_RANGE, "messages"},
        {FIELD("\"temperature\":1.1"), QN_API_OUT_OF_RANGE, "temperature"},
        {FIELD("\"top_p\":0"), QN_API_OUT_OF_RANGE, "top_p"},
        {FIELD("\"stop_sequences\":[\"a\",\"\"]"), QN_API_OUT_OF_RANGE,
         "stop_sequences[1]"},
        {FIELD("\"thinking\":{\"type\":\"on\"}"), QN_API_UNSUPPORTED_VALUE,
         "thinking.type"},
        {FIELD("\"thinking\":{\"type\":\"enabled\"}"), QN_API_MISSING_FIELD,
         "thinking.budget_tokens"},
        {FIELD("\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":0}"),
         QN_API_OUT_OF_RANGE, "thinking.budget_tokens"},
        {FIELD("\"thinking\":{\"type\":\"adaptive\",\"budget_tokens\":5}"),
         QN_API_UNSUPPORTED_VALUE, "thinking.budget_tokens"},
        {FIELD("\"output_config\":{\"effort\":\"huge\"}"),
         QN_API_UNSUPPORTED_VALUE, "output_config.effort"},
        {FIELD("\"output_config\":{\"format\":{}}"), QN_API_UNSUPPORTED_VALUE,
         "output_config.format"},
        {FIELD("\"tool_choice\":{\"type\":\"auto\"}"), QN_API_UNSUPPORTED_VALUE,
         "tool_choice"},
        {FIELD("\"mcp_servers\":[{}]"), QN_API_UNSUPPORTED_VALUE,
         "mcp_servers"},
        {MESSAGES("{\"role\":\"tool\",\"content\":\"a\"}"),
         QN_API_UNSUPPORTED_VALUE, "messages[0].role"},
        {USER("{\"type\":\"image\",\"source\":{}}"), QN_API_UNSUPPORTED_CONTENT,
         "messages[0].content[0].type"},
        {USER("{\"type\":\"document\"}"), QN_API_UNSUPPORTED_CONTENT,
         "messages[0].content[0].type"},
        {USER("{\"type\":\"server_tool_use\"}"), QN_API_UNSUPPORTED_CONTENT,
         "messages[0].content[0].type"},
        {USER("{\"type\":\"thinking\",\"thinking\":\"a\"}"),
         QN_API_UNSUPPORTED_CONTENT, "messages[0].content[0].type"},
        {FIELD("\"system\":[{\"type\":\"image\"}]"), QN_API_UNSUPPORTED_CONTENT,
         "system[0].type"},
        {USER("{\"type\":\"tool_result\",\"tool_use_id\":\"t1\"}"),
         QN_API_INVALID_TOOL, "messages[0].content[0].tool_use_id"},
        {MESSAGES(HI "," USE ",{\"role\":\"user\",\"content\":[{\"type\":"
                     "\"tool_result\",\"tool_use_id\":\"t1\",\"content\":[{"
                     "\"type\":\"image\"}]}]}"),
         QN_API_UNSUPPORTED_CONTENT, "messages[2].content[0].content[0].type"},
        {MESSAGES(HI "," USE), QN_API_INVALID_TOOL, "messages"},
        {USER("{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{\"type\":"
              "\"persistent\"}}"),
         QN_API_UNSUPPORTED_VALUE, "messages[0].content[0].cache_control.type"},
        {USER("{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{\"type\":"
              "\"ephemeral\",\"ttl\":\"2h\"}}"),
         QN_API_UNSUPPORTED_VALUE, "messages[0].content[0].cache_control.ttl"},
        {BODY("\"system\":[{\"type\":\"text\",\"text\":\"a\"," CACHED
              "},{\"type\":\"text\",\"text\":\"a\"," CACHED
              "}],\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":"
              "\"text\",\"text\":\"a\"," CACHED
              "},{\"type\":\"text\",\"text\":\"a\"," CACHED
              "},{\"type\":\"text\",\"text\":\"a\"," CACHED "}]}]"),
         QN_API_UNSUPPORTED_VALUE, "messages[0].content[2].cache_control"},
        {MESSAGES(HI ",{\"role\":\"assistant\",\"content\":[{\"type\":"
                     "\"thinking\",\"thinking\":\"a\"," CACHED "}]}"),
         QN_API_UNSUPPORTED_VALUE, "messages[1].content[0].cache_control"},
    };
    check_bad_bodies(messages, &plain_server, BAD(rows));
}

static void test_unknown_fields_are_listed_or_refused(void **state)
{
    (void)state;
    static const char body[] =
        BODY("\"x\":1,\"messages\":[{\"role\":\"user\",\"y\":1,\"content\":[{"
             "\"type\":\"text\",\"text\":\"a\",\"z\":1}]}],\"thinking\":{"
             "\"type\":\"disabled\",\"display\":\"omitted\"}");
    static const bad_body rows[] = {
        {FIELD("\"x\":1"), QN_API_UNKNOWN_FIELD, "x"},
        {MESSAGES("{\"role\":\"user\",\"content\":\"a\",\"y\":1}"),
         QN_API_UNKNOWN_FIELD, "messages[0].y"},
        {USER("{\"type\":\"text\",\"text\":\"a\",\"z\":1}"),
         QN_API_UNKNOWN_FIELD, "messages[0].content[0].z"},
    };
    qn_api_call call;
    check_bad_bodies(messages, &strict_server, BAD(rows));
    parse_good(&call, messages, &plain_server, body);
    assert_string_equal(call.ignored.data,
                        "x,messages[0].y,messages[0].content[0].z,"
                        "thinking.display");
    qn_api_call_free(&call);
}

/* ---- conversations ---- */

static void check_messages(const char *body, bool lists, const char *expected)
{
    qn_api_call call;
    qn_buf out = QN_BUF_INIT;
    parse_good(&call, messages, &strict_server, body);
    const qn_anthropic *a = call.extra;
    qn_blocks_write(&out, a->blocks, a->block_count, lists);
    assert_string_equal(out.data, expected);
    qn_buf_free(&out);
    qn_api_call_free(&call);
}

static void test_neighbours_of_one_role_are_one_message(void **state)
{
    (void)state;
    static const char body[] =
        BODY("\"system\":[{\"type\":\"text\",\"text\":\"S\"},{\"type\":"
             "\"text\",\"text\":\"T\"}],\"messages\":[" HI
             ",{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
             "\"a\"},{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":"
             "\"assistant\",\"content\":\"c\"},{\"role\":\"assistant\","
             "\"content\":\"d\"},{\"role\":\"user\",\"content\":[]}]");
    check_messages(body, false,
                   "[{\"role\":\"system\",\"content\":\"ST\"},{\"role\":"
                   "\"user\",\"content\":\"Hi\\n\\nab\"},{\"role\":"
                   "\"assistant\",\"content\":\"c\\n\\nd\"},{\"role\":"
                   "\"user\",\"content\":\"\"}]");
#define TEXT(text) "{\"type\":\"text\",\"text\":\"" text "\"}"
    check_messages(body, true,
                   "[{\"role\":\"system\",\"content\":[" TEXT("S") "," TEXT("T") "]},{\"role\":\"user\",\"content\":[" TEXT(
                       "Hi") "," TEXT("\\n\\n") "," TEXT("a") "," TEXT("b") "]}"
                                                                            ",{"
                                                                            "\""
                                                                            "ro"
                                                                            "le"
                                                                            "\""
                                                                            ":"
                                                                            "\""
                                                                            "as"
                                                                            "si"
                                                                            "st"
                                                                            "an"
                                                                            "t"
                                                                            "\""
                                                                            ","
                                                                            "\""
                                                                            "co"
                                                                            "nt"
                                                                            "en"
                                                                            "t"
                                                                            "\""
                                                                            ":"
                                                                            "[" TEXT("c") "," TEXT("\\n\\n") "," TEXT(
                                                                                "d") "]},{\"role\":\"user\","
                                                                                     "\"content\":\"\"}]");
}

static void test_tools_and_thoughts_have_their_places(void **state)
{
    (void)state;
    check_messages(
        MESSAGES(HI
                 ",{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\","
                 "\"thinking\":\"hm\",\"signature\":\"s\"},{\"type\":"
                 "\"redacted_thinking\",\"data\":\"x\"},{\"type\":\"text\","
                 "\"text\":\"Let me\",\"citations\":null}]}," USE
                 ",{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\","
                 "\"tool_use_id\":\"t1\",\"content\":[{\"type\":\"text\","
                 "\"text\":\"o\"},{\"type\":\"text\",\"text\":\"k\"}]},{"
                 "\"type\":\"tool_result\",\"tool_use_id\":\"t1\","
                 "\"is_error\":true},{\"type\":\"text\",\"text\":\"so?\"}]}"),
        false,
        "[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\","
        "\"reasoning_content\":\"hm\",\"content\":\"Let me\",\"tool_calls\":[{"
        "\"id\":\"t1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":{\"a\":[1,2.50]}}}]},{\"role\":\"tool\","
        "\"tool_call_id\":\"t1\",\"name\":\"f\",\"content\":\"ok\"},{\"role\":"
        "\"tool\",\"tool_call_id\":\"t1\",\"name\":\"f\",\"content\":"
        "\"Error\"},{\"role\":\"user\",\"content\":\"so?\"}]");
}

/* ---- beside a model ---- */

static const char tmpl[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if enable_thinking is defined %}[{{ enable_thinking }}]{% endif %}"
    "{% if reasoning_effort is defined %}[{{ reasoning_effort }}]{% endif %}"
    "{% if add_generation_prompt %}<a>{% endif %}";

static void check_prompt(const qn_api_model *m, const char *body,
                         const char *expected)
{
    qn_api_call call;
    char *text;
    parse_good(&call, messages, &plain_server, body);
    prepare_good(&call, messages, m);
    assert_int_equal(call.count, 1);
    assert_int_equal(quern_detokenize(m->model, call.requests[0].ids,
                                      call.requests[0].id_count, false, &text,
                                      NULL, NULL),
                     QUERN_OK);
    assert_string_equal(text, expected);
    quern_free(text);
    qn_api_call_free(&call);
}

static void test_prompts_are_the_templates(void **state)
{
    (void)state;
    qn_api_model m = tiny_model(tmpl);
    check_prompt(&m, FIELD("\"system\":\"S\""), "<system>S<user>Hi[True]<a>");
    check_prompt(&m, FIELD("\"thinking\":{\"type\":\"disabled\"}"),
                 "<user>Hi[False]<a>");
    check_prompt(&m,
                 FIELD("\"thinking\":{\"type\":\"adaptive\"},"
                       "\"output_config\":{\"effort\":\"low\"}"),
                 "<user>Hi[True][low]<a>");
    /* Instructions may come later, and join those that they follow. */
    check_prompt(&m, MESSAGES(HI ",{\"role\":\"system\",\"content\":\"S\"}"),
                 "<user>Hi<system>S[True]<a>");
    check_prompt(&m,
                 BODY("\"system\":\"S\",\"messages\":[{\"role\":\"system\","
                      "\"content\":[" TEXT("T") "]}," HI "]"),
                 "<system>S\n\nT<user>Hi[True]<a>");
    /* An assistant's last message is gone on with. */
    check_prompt(&m,
                 MESSAGES(HI ",{\"role\":\"assistant\",\"content\":[" TEXT(
                     "On") "," TEXT("ce ") "]}"),
                 "<user>Hi<assistant>Once ");
    tiny_free(&m);
}

static void test_requests_have_what_the_body_says(void **state)
{
    (void)state;
    qn_api_model m = tiny_model(NULL);
    qn_api_call call;
    parse_good(&call, messages, &strict_server,
               FIELD("\"temperature\":0.5,\"top_p\":0.25,\"top_k\":7,"
                     "\"stop_sequences\":[\"x\",\"y\"],\"stream\":true,"
                     "\"model\":\"claude\",\"metadata\":{\"user_id\":\"u\"},"
                     "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":"
                     "1024},\"seed\":3,\"cache_salt\":\"z\",\"tools\":[]"));
    prepare_good(&call, messages, &m);
    const quern_request *q = call.requests;
    assert_true(q->sampling.temperature == 0.5);
    assert_true(q->sampling.top_p == 0.25);
    assert_int_equal(q->sampling.top_k, 7);
    assert_int_equal(q->sampling.seed, 3);
    assert_int_equal(q->max_tokens, 8);
    assert_int_equal(q->reasoning_budget, 1024);
    assert_int_equal(q->stop_count, 2);
    assert_string_equal(q->stops[1], "y");
    assert_string_equal(call.model, "claude");
    assert_string_equal(call.user, "u");
    assert_string_equal(call.cache_salt, "z");
    assert_true(call.stream);
    assert_int_equal(q->checkpoint_count, 0);
    /* The template knows nothing of thoughts. */
    assert_string_equal(call.ignored.data, "thinking");
    qn_api_call_free(&call);
    parse_good(&call, messages, &strict_server,
               FIELD("\"thinking\":{\"type\":\"disabled\"}"));
    prepare_good(&call, messages, &m);
    assert_int_equal(call.requests[0].reasoning_budget, 0);
    assert_int_equal(call.ignored.size, 0);
    qn_api_call_free(&call);
    tiny_free(&m);
}

static void test_what_the_model_can_not_take_is_refused(void **state)
{
    (void)state;
    static const bad_body rows[] = {
        {"{\"max_tokens\":256,\"messages\":[" HI "]}",
         QN_API_CONTEXT_LENGTH_EXCEEDED, "max_tokens"},
    };
    static const bad_body refused[] = {
        {FIELD("\"top_k\":1"), QN_API_TEMPLATE_ERROR, "messages"},
    };
    static const bad_body graded[] = {
        {FIELD("\"output_config\":{\"effort\":\"max\"}"),
         QN_API_UNSUPPORTED_VALUE, "output_config.effort"},
    };
    qn_api_model m = tiny_model(NULL);
    check_bad_calls(messages, &m, BAD(rows));
    tiny_free(&m);
    m = tiny_model(tmpl);
    check_bad_calls(messages, &m, BAD(graded));
    tiny_free(&m);
    m = tiny_model("{{ raise_exception('never') }}");
    check_bad_calls(messages, &m, BAD(refused));
    check_bad_calls(&qn_api_count_tokens, &m, BAD(refused));
    tiny_free(&m);
}

static void test_tokens_are_counted_as_a_request_has_them(void **state)
{
    (void)state;
    qn_api_model m = tiny_model(tmpl);
    qn_api_call call;
    char expected[64];
    parse_good(&call, messages, &strict_server, FIELD("\"system\":\"S\""));
    prepare_good(&call, messages, &m);
    snprintf(expected, sizeof expected, "{\"input_tokens\":%zu}",
             call.requests[0].id_count);
    assert_true(call.requests[0].id_count > 8);
    qn_api_call_free(&call);
    m.ctx = 4; /* counting has no limit */
    parse_good(&call, &qn_api_count_tokens, &strict_server,
               "{\"model\":\"m\",\"messages\":[" HI "],\"system\":\"S\"}");
    prepare_good(&call, &qn_api_count_tokens, &m);
    assert_int_equal(call.kind, QN_API_ANSWERED);
    assert_string_equal(call.body.data, expected);
    qn_api_call_free(&call);
    tiny_free(&m);
}

/* ---- pins ---- */

/* A breakpoint, as the text of the prompt up to it. */
typedef struct pin {
    const char *text;
    int64_t seconds;
} pin;

static void check_pins(const qn_api_model *m, const char *body,
                       const pin *expected, size_t count)
{
    qn_api_call call;
    parse_good(&call, messages, &strict_server, body);
    prepare_good(&call, messages, m);
    const quern_request *q = call.requests;
    assert_int_equal(q->checkpoint_count, count);
    size_t tokens = 0;
    for (size_t i = 0; i < count; i++) {
        char *text;
        tokens = q->checkpoints[i].tokens;
        assert_int_equal(quern_detokenize(m->model, q->ids, tokens, false,
                                          &text, NULL, NULL),
                         QUERN_OK);
        assert_string_equal(text, expected[i].text);
        assert_int_equal(q->checkpoints[i].pin_seconds, expected[i].seconds);
        quern_free(text);
    }
    assert_int_equal(((qn_anthropic *)call.extra)->pinned_tokens, tokens);
    qn_api_call_free(&call);
}

#define HOUR "\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"1h\"}"

static void test_breakpoints_are_lengths_of_the_prompt(void **state)
{
    (void)state;
    qn_api_model m = tiny_model_with("{% for m in messages %}<{{ m.role[0] }}>"
                                     "{{ m.content }}</>{% endfor %}"
                                     "{% if add_generation_prompt %}<a>"
                                     "{% endif %}",
                                     1 << 20);
    static const char body[] = BODY(
        "\"system\":[{\"type\":\"text\",\"text\":\"12345\"," HOUR
        "}],\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
        "\"text\":\"ab\"," CACHED "},{\"type\":\"text\",\"text\":\"cd\"}]}]");
    const pin two[] = {{"<s>12345</>", 3600}, {"<s>12345</><u>ab", 300}};
    check_pins(&m, body, two, 2);
    /* The whole of it, without what asks for an answer; two at one place. */
    const pin all[] = {{"<u>Hi</>", 3600}};
    check_pins(&m,
               BODY(HOUR ",\"messages\":[{\"role\":\"user\",\"content\":[{"
                         "\"type\":\"text\",\"text\":\"Hi\"," CACHED "}]}]"),
               all, 1);
    check_pins(&m, FIELD(CACHED ",\"cache_prompt\":false"), NULL, 0);
    tiny_free(&m);
    /* A template that wants a question. */
    m = tiny_model_with("{% if not messages[1:] %}{{ raise_exception('x') }}"
                        "{% endif %}{% for m in messages %}{{ m.role[0] }}"
                        "{{ m.content }}{% endfor %}",
                        1 << 20);
    const pin system[] = {{"s1u", 300}};
    check_pins(
        &m, FIELD("\"system\":[{\"type\":\"text\",\"text\":\"1\"," CACHED "}]"),
        system, 1);
    tiny_free(&m);
    /* Nothing is kept. */
    m = tiny_model(NULL);
    check_pins(&m, FIELD(CACHED), NULL, 0);
    tiny_free(&m);
}

static void test_any_allocation_may_fail(void **state)
{
    (void)state;
    qn_api_model m = tiny_model_with(tmpl, 1 << 20);
    static const char body[] =
        BODY("\"messages\":[" HI "," USE ",{\"role\":\"user\",\"content\":[{"
             "\"type\":\"tool_result\",\"tool_use_id\":\"t1\",\"content\":"
             "\"ok\"," CACHED "}]}],\"stop_sequences\":[\"x\"]");
    bool good = false;
    for (long n = 0; !good && n < 4000; n++) {
        qn_api_call call = {0};
        qn_api_error error = {0};
        qn_test_fail_alloc(n);
        good = messages->parse(&call, qn_str_of(body), &plain_server, &error) &&
               messages->prepare(&call, &m, &test_head, &error);
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
        cmocka_unit_test(test_types_are_refused_with_their_place),
        cmocka_unit_test(test_values_are_refused_with_their_place),
        cmocka_unit_test(test_unknown_fields_are_listed_or_refused),
        cmocka_unit_test(test_neighbours_of_one_role_are_one_message),
        cmocka_unit_test(test_tools_and_thoughts_have_their_places),
        cmocka_unit_test(test_prompts_are_the_templates),
        cmocka_unit_test(test_requests_have_what_the_body_says),
        cmocka_unit_test(test_what_the_model_can_not_take_is_refused),
        cmocka_unit_test(test_tokens_are_counted_as_a_request_has_them),
        cmocka_unit_test(test_breakpoints_are_lengths_of_the_prompt),
        cmocka_unit_test(test_any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
