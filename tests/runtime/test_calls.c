/* Calls of functions in answers: events, results, marks that are tokens of
 * their own, and what ends an answer. */
#include "support/qn_script.h"

#define TOOLS                                                                  \
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{"    \
    "\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"}}}}}]"

static const char *const harmony[] = {"<|channel|>",   "<|message|>",
                                      "<|start|>",     "<|end|>",
                                      "<|constrain|>", NULL};
static const char *const gemma[] = {"<|tool_call>", "<tool_call|>", "<|\"|>",
                                    NULL};
static const char *const think[] = {"<think>", "</think>", NULL};

/* The ids of a text: an added token for its spelling, else bytes. */
static void add_ids(qn_buf *out, const char *text, const char *const *tokens)
{
    qn_buf_add_char(out, '[');
    for (const char *p = text; *p;) {
        int token = 0;
        while (tokens && tokens[token] &&
               strncmp(p, tokens[token], strlen(tokens[token])) != 0)
            token++;
        bool found = tokens && tokens[token];
        qn_buf_printf(out, "%s%d", out->size > 1 ? ", " : "",
                      found ? 332 + token : (uint8_t)*p);
        p += found ? strlen(tokens[token]) : 1;
    }
    qn_buf_add_char(out, ']');
}

static quern_model *load(const char *text, const char *const *tokens,
                         const char *format)
{
    qn_buf ids = QN_BUF_INIT, names = QN_BUF_INIT;
    const char *spelled[8] = {NULL};
    char own[8][64];
    quern_options options;
    quern_options_init(&options);
    options.tool_format = format;
    add_ids(&ids, text, tokens);
    /* Spelled as JSON. */
    for (int i = 0; tokens && tokens[i]; i++) {
        qn_buf_clear(&names);
        qn_buf_add_text(&names, tokens[i]);
        char *quote = strchr(names.data, '"');
        snprintf(own[i], sizeof own[i], "%.*s%s%s",
                 (int)(quote ? quote - names.data : 63), names.data,
                 quote ? "\\" : "", quote ? quote : "");
        spelled[i] = own[i];
    }
    quern_model *m =
        load_script_with(tokens ? spelled : NULL, ids.data, "", &options);
    qn_buf_free(&ids);
    qn_buf_free(&names);
    return m;
}

/* What events bring: text as it is, thoughts in (), calls as [name|arguments]
 * or, broken off, [name|arguments!. */
typedef struct heard {
    qn_buf out;
    size_t tokens, calls;
} heard;

static bool hear(void *data, const quern_event *event)
{
    heard *h = data;
    h->tokens += event->token_count;
    switch (event->type) {
    case QUERN_EVENT_TEXT:
        qn_buf_add(&h->out, event->text, event->size);
        break;
    case QUERN_EVENT_REASONING:
        qn_buf_printf(&h->out, "(%s)", event->text);
        break;
    case QUERN_EVENT_CALL:
        assert_int_equal(event->call, h->calls);
        qn_buf_printf(&h->out, "[%s|", event->text);
        break;
    case QUERN_EVENT_ARGUMENTS:
        assert_int_equal(event->call, h->calls);
        assert_true(event->size);
        qn_buf_add(&h->out, event->text, event->size);
        break;
    case QUERN_EVENT_CALL_END:
        assert_int_equal(event->call, h->calls++);
        qn_buf_add_char(&h->out, event->whole ? ']' : '!');
        break;
    default:
        break;
    }
    return true;
}

/* The same of a result. */
static void spell_result(qn_buf *out, const quern_result *r)
{
    size_t from = 0;
    for (size_t i = 0; i < r->call_count; i++) {
        const quern_call *c = &r->calls[i];
        qn_buf_add(out, r->text + from, c->text_before - from);
        qn_buf_printf(out, "[%s|%.*s%s", c->name, (int)c->size, c->arguments,
                      c->whole ? "]" : "!");
        assert_int_equal(strlen(c->arguments), c->size);
        from = c->text_before;
    }
    qn_buf_add(out, r->text + from, r->size - from);
}

typedef struct row {
    const char *text, *expected;
    quern_finish finish;
    const char *stop; /* NULL: none */
    int64_t max_tokens;
    bool single, no_tools;
} row;

static void check_row(const char *format, const char *const *tokens,
                      const row *asked)
{
    quern_model *m = load(asked->text, tokens, format);
    quern_session *s;
    quern_result result;
    quern_request r;
    heard h = {.calls = 0};
    qn_buf whole = QN_BUF_INIT;
    quern_request_init(&r, m);
    r.prompt = tokens == harmony ? "<|start|>a" : "x";
    r.tools = asked->no_tools ? NULL : TOOLS;
    r.single_call = asked->single;
    r.max_tokens = asked->max_tokens ? asked->max_tokens : 1000;
    r.stops = asked->stop ? &asked->stop : NULL;
    r.stop_count = asked->stop != NULL;
    check_quern(quern_session_new(&s, m, &error));
    check_quern(quern_generate(s, &r, hear, &h, &result, &error));
    check_str(qn_buf_str(&h.out), asked->expected);
    assert_int_equal(result.finish, asked->finish);
    assert_int_equal(h.tokens, result.token_count);
    assert_int_equal(h.calls, result.call_count);
    if (!result.reasoning_size) {
        spell_result(&whole, &result);
        check_str(qn_buf_str(&whole), asked->expected);
    }
    quern_result_free(&result);
    quern_session_free(s);
    quern_model_free(m);
    qn_buf_free(&whole);
    qn_buf_free(&h.out);
}

#define CALL                                                                   \
    "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b\"}}</tool_call>"

static void test_calls_are_events(void **state)
{
    static const row rows[] = {
        {"So" CALL "\n" CALL " Ok", "So[f|{\"a\": \"b\"}][f|{\"a\": \"b\"}] Ok",
         QUERN_FINISH_TOOL_CALLS, NULL, 0, false, false},
        {"So" CALL, "So" CALL, QUERN_FINISH_STOP, NULL, 0, false, true},
        /* One call ends the answer. */
        {"So" CALL "\n" CALL " Ok", "So[f|{\"a\": \"b\"}]",
         QUERN_FINISH_TOOL_CALLS, NULL, 0, true, false},
        {"<tool_call>{\"name\": \"g\"}</tool_call>",
         "<tool_call>{\"name\": \"g\"}</tool_call>", QUERN_FINISH_STOP, NULL, 0,
         true, false},
        /* Cut off: before it is a call, in it, and behind it. */
        {CALL, "<tool_call>{\"name", QUERN_FINISH_LENGTH, NULL, 17, false,
         false},
        {CALL, "[f|{\"a\": \"!", QUERN_FINISH_LENGTH, NULL, 45, false, false},
        {CALL, "[f|{\"a\": \"b\"}]", QUERN_FINISH_LENGTH, NULL, 52, false,
         false},
        /* A stop ends a call, too. */
        {CALL, "[f|{\"a\": !", QUERN_FINISH_STOP, "\"b\"", 0, false, false},
        {CALL " END", "[f|{\"a\": \"b\"}]", QUERN_FINISH_TOOL_CALLS, "END", 0,
         false, false},
        {"a <tool_ca", "a <tool_ca", QUERN_FINISH_STOP, "zzz", 0, false, false},
        /* White space around calls is none of the answer; alone it is. */
        {"\n\n" CALL "\n\n", "[f|{\"a\": \"b\"}]", QUERN_FINISH_TOOL_CALLS,
         NULL, 0, false, false},
        {"\n\n", "\n\n", QUERN_FINISH_STOP, NULL, 0, false, false},
        /* Characters of several tokens. */
        {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": "
         "\"\xf0\x9f\x98\x80\"}}\xc3\xa9",
         "[f|{\"a\": \"\xf0\x9f\x98\x80\"}]\xc3\xa9", QUERN_FINISH_TOOL_CALLS,
         NULL, 0, false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_row("hermes_json", NULL, &rows[i]);
}

static void test_marks_may_be_special_tokens(void **state)
{
    static const row rows[] = {
        {"So<|tool_call>call:f{a:<|\"|>b<|\"|>}<tool_call|>",
         "So[f|{\"a\": \"b\"}]", QUERN_FINISH_TOOL_CALLS, NULL, 0, false,
         false},
        {"<|tool_call>call:g{}<tool_call|>", "<|tool_call>call:g{}<tool_call|>",
         QUERN_FINISH_STOP, NULL, 0, false, false},
        {"<|tool_call>call:f{}<tool_call|>", "<|tool_call>call:f{}<tool_call|>",
         QUERN_FINISH_STOP, NULL, 0, false, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_row("gemma4", gemma, &rows[i]);
    /* Without a format they are hidden, as others are. */
    const row hidden = {
        "a<|tool_call>b", "ab", QUERN_FINISH_STOP, NULL, 0, false, true};
    check_row("none", gemma, &hidden);
}

static void test_thoughts_and_calls_take_turns(void **state)
{
    static const row rows[] = {
        {"<think>hm</think>" CALL, "(h)(m)[f|{\"a\": \"b\"}]",
         QUERN_FINISH_TOOL_CALLS, NULL, 0, false, false},
        /* What a model thinks of a call is none. */
        {"<think><tool_call></think>a", "(<)(t)(o)(o)(l)(_)(c)(a)(l)(l)(>)a",
         QUERN_FINISH_STOP, NULL, 0, false, false},
        {"<tool_call>{\"name<think>x</think>y", "<tool_call>{\"name(x)y",
         QUERN_FINISH_STOP, NULL, 0, false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_row("hermes_json", think, &rows[i]);
}

static void test_harmony_sends_messages_to_functions(void **state)
{
    static const row rows[] = {
        {"<|channel|>analysis<|message|>t<|end|><|start|>assistant<|channel|>"
         "commentary to=functions.f <|constrain|>json<|message|>{\"a\":\"b\"}",
         "(t)[f|{\"a\":\"b\"}]", QUERN_FINISH_TOOL_CALLS, NULL, 0, false,
         false},
        /* The role may name the function, and the channel may be any. */
        {" to=functions.f<|channel|>analysis<|message|>{}<|end|><|start|>"
         "assistant<|channel|>final<|message|>Ok",
         "[f|{}]Ok", QUERN_FINISH_TOOL_CALLS, NULL, 0, false, false},
        /* Another one, or arguments that are none: all of it is text. */
        {"<|channel|>commentary to=functions.g<|message|>{}",
         "<|channel|>commentary to=functions.g<|message|>{}", QUERN_FINISH_STOP,
         NULL, 0, false, false},
        {"<|channel|>commentary to=functions.f<|message|>no<|end|>",
         "<|channel|>commentary to=functions.f<|message|>no", QUERN_FINISH_STOP,
         NULL, 0, false, false},
        {"<|channel|>commentary to=functions.f<|message|>{}", "{}",
         QUERN_FINISH_STOP, NULL, 0, false, true},
        {"<|channel|>final<|message|>Ok", "Ok", QUERN_FINISH_STOP, NULL, 0,
         false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_row("harmony", harmony, &rows[i]);
}

static void test_tools_are_checked(void **state)
{
    static const struct {
        const char *format, *tools;
        quern_status status;
    } rows[] = {
        {"none", TOOLS, QUERN_E_UNSUPPORTED},
        {"hermes_json", "{}", QUERN_E_ARG},
        {"hermes_json", "[{}]", QUERN_E_ARG},
        {"hermes_json", "[", QUERN_E_ARG},
        {"hermes_json", "[]", QUERN_OK},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        quern_model *m = load("a", NULL, rows[i].format);
        quern_session *s;
        quern_request r;
        quern_request_init(&r, m);
        r.prompt = "x";
        r.tools = rows[i].tools;
        check_quern(quern_session_new(&s, m, &error));
        assert_int_equal(quern_generate(s, &r, NULL, NULL, NULL, &error),
                         rows[i].status);
        if (rows[i].status)
            assert_string_equal(error.where, "tools");
        quern_session_free(s);
        quern_model_free(m);
    }
    quern_options options;
    quern_model *m;
    quern_options_init(&options);
    options.tool_format = "other";
    assert_int_equal(
        quern_model_load(&m, QN_TEST_VECTORS "/cases/fixtures/models/tiny",
                         &options, &error),
        QUERN_E_ARG);
    assert_non_null(strstr(error.message, "hermes_json"));
}

/* The result ends where the callback stopped it. */
static bool stop_in_call(void *data, const quern_event *event)
{
    int *left = data;
    return event->type != QUERN_EVENT_ARGUMENTS || --*left > 0;
}

static void test_a_callback_may_stop_inside_of_a_call(void **state)
{
    quern_model *m = load(CALL CALL, NULL, "hermes_json");
    quern_session *s;
    quern_request r;
    quern_result result;
    int left = 3;
    (void)state;
    quern_request_init(&r, m);
    r.prompt = "x";
    r.tools = TOOLS;
    check_quern(quern_session_new(&s, m, &error));
    assert_int_equal(
        quern_generate(s, &r, stop_in_call, &left, &result, &error),
        QUERN_E_CANCELLED);
    assert_int_equal(result.call_count, 1);
    assert_false(result.calls[0].whole);
    assert_int_equal(result.calls[0].size, 4); /* {"a" */
    quern_result_free(&result);
    quern_session_free(s);
    quern_model_free(m);
}

/* Templates that want ids of nine letters and digits get them, the same for a
 * call and its result. */
static void test_ids_are_as_long_as_a_template_wants_them(void **state)
{
    static const struct {
        const char *format, *id;
        bool kept;
    } rows[] = {{"mistral", "call_0123456789abcdef01234567", false},
                {"mistral", "abcDEF123", true},
                {"mistral", "abcDEF-23", false},
                {"hermes_json", "call_1", true}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        quern_options options;
        quern_model *m;
        quern_chat chat;
        char messages[512], *text;
        quern_options_init(&options);
        options.tool_format = rows[i].format;
        options.chat_template =
            "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.id }}"
            "{{ c.function.name }} {% endfor %}{{ m.tool_call_id }}{% endfor "
            "%}";
        check_quern(
            quern_model_load(&m, QN_TEST_VECTORS "/cases/fixtures/models/tiny",
                             &options, &error));
        snprintf(messages, sizeof messages,
                 "[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"%s\","
                 "\"function\":{\"name\":\"f\"}}]},{\"role\":\"tool\","
                 "\"tool_call_id\":\"%s\"}]",
                 rows[i].id, rows[i].id);
        quern_chat_init(&chat);
        chat.messages = messages;
        check_quern(quern_render(m, &chat, &text, NULL, &error));
        char *second = strstr(text, "f ");
        assert_non_null(second);
        *second = '\0';
        assert_string_equal(text, second + 2);
        if (rows[i].kept)
            assert_string_equal(text, rows[i].id);
        else
            assert_int_equal(strspn(text, "0123456789abcdefghijklmnopqrstuvwxyz"
                                          "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
                             9);
        quern_free(text);
        quern_model_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_are_events),
        cmocka_unit_test(test_marks_may_be_special_tokens),
        cmocka_unit_test(test_thoughts_and_calls_take_turns),
        cmocka_unit_test(test_harmony_sends_messages_to_functions),
        cmocka_unit_test(test_tools_are_checked),
        cmocka_unit_test(test_a_callback_may_stop_inside_of_a_call),
        cmocka_unit_test(test_ids_are_as_long_as_a_template_wants_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
