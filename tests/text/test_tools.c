/* Calls of functions: each format, whole, byte by byte and in random pieces;
 * what is none and comes back; what breaks off. */
#include "support/qn_test.h"

#include "base/utf8.h"
#include "text/tools.h"

static const char tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},"
    "\"wind\":{\"type\":\"boolean\"},\"spots\":{\"type\":\"array\"},"
    "\"more\":{\"type\":\"object\"},\"zip\":{\"type\":[\"string\",\"null\"]},"
    "\"unit\":{\"enum\":[\"c\",\"f\"]},"
    "\"any\":{\"anyOf\":[{\"type\":\"number\"},{\"type\":\"null\"}]}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"now\"}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"a-b.c\","
    "\"parameters\":null}}]";

/* What the pieces join to: text as it is, calls as name(arguments) between
 * brackets, broken ones with '!'. */
typedef struct record {
    qn_buf out, arguments;
    bool in_call;
} record;

static qn_status take(void *data, qn_tool_piece piece, qn_str text)
{
    record *r = data;
    assert_true(qn_utf8_valid(text, NULL));
    assert_int_equal(r->in_call, piece > QN_TOOL_CALL);
    switch (piece) {
    case QN_TOOL_TEXT:
        assert_true(text.size);
        qn_buf_add_str(&r->out, text);
        break;
    case QN_TOOL_CALL:
        qn_buf_printf(&r->out, "[%.*s(", (int)text.size, text.data);
        r->in_call = true;
        break;
    case QN_TOOL_ARGUMENTS:
        assert_true(text.size);
        qn_buf_add_str(&r->arguments, text);
        qn_buf_add_str(&r->out, text);
        break;
    case QN_TOOL_END:
    case QN_TOOL_BROKEN:
        r->in_call = false;
        if (piece == QN_TOOL_END) { /* whole: an object */
            qn_json_doc *doc = NULL;
            check_status(qn_json_parse(&doc, qn_buf_str(&r->arguments),
                                       QN_JSON_ALLOW_DUPLICATE_KEYS |
                                           QN_JSON_ALLOW_LONE_SURROGATES),
                         QN_OK);
            assert_int_equal(qn_json_root(doc)->type, QN_JSON_T_OBJECT);
            qn_json_doc_free(doc);
        }
        qn_buf_clear(&r->arguments);
        qn_buf_add_text(&r->out, piece == QN_TOOL_END ? ")]" : "!");
        break;
    }
    return QN_OK;
}

static size_t parse(qn_buf *out, const qn_tool_format *format,
                    const qn_tools *tools, qn_str text, size_t piece, bool cut)
{
    record r = {0};
    qn_tool_parser *p = NULL;
    uint32_t seed = (uint32_t)piece;
    check_status(qn_tool_parser_new(&p, format, tools, take, &r), QN_OK);
    for (size_t i = 0, n; i < text.size; i += n) {
        n = piece;
        if (piece > 1000 && piece < 2000) { /* random pieces of 1..8 */
            seed = seed * 1664525U + 1013904223U;
            n = 1 + (seed >> 24) % 8;
        }
        n = n < text.size - i ? n : text.size - i;
        check_status(qn_tool_parser_feed(p, (qn_str){text.data + i, n}), QN_OK);
    }
    check_status(qn_tool_parser_finish(p, cut), QN_OK);
    assert_int_equal(qn_tool_parser_pending(p), 0);
    size_t failures = qn_tool_parser_failures(p);
    qn_tool_parser_free(p);
    qn_buf_free(&r.arguments);
    *out = r.out;
    return failures;
}

#define check(name, text, expected, failures)                                  \
    check_at(name, text, expected, failures, false, __LINE__)
#define check_cut(name, text, expected)                                        \
    check_at(name, text, expected, 0, true, __LINE__)

static void check_at(const char *name, const char *text, const char *expected,
                     size_t failures, bool cut, int line)
{
    static const size_t pieces[] = {1, 2, 3, 7, 1001, 1002, 1003, 100000};
    const qn_tool_format *format = qn_tool_format_named(name);
    qn_tools *tools = NULL;
    assert_non_null(format);
    check_status(qn_tools_parse(&tools, qn_str_of(tools_json)), QN_OK);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        qn_buf out = QN_BUF_INIT;
        size_t found =
            parse(&out, format, tools, qn_str_of(text), pieces[i], cut);
        check_str_at(qn_buf_str(&out), expected, __FILE__, line);
        if (found != failures)
            fail_msg("line %d, pieces of %zu: %zu failures", line, pieces[i],
                     found);
        qn_buf_free(&out);
    }
    qn_tools_free(tools);
}

/* ---- formats ---- */

static void test_hermes_json(void **state)
{
    (void)state;
    const char *f = "hermes_json";
    check(f, "Hello <b>you</b> <tool", "Hello <b>you</b> <tool", 0);
    check(f, " \n", " \n", 0);
    check(f,
          "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
          "\"Paris\"}}\n</tool_call>",
          "[get_weather({\"city\": \"Paris\"})]", 0);
    check(f,
          "I look.\n<tool_call>\n{\"name\": \"now\"}\n</tool_call>\n"
          "<tool_call>{\"arguments\": {\"days\": 3, \"x\": [1, {}]}, \"id\": "
          "[1], \"name\":\"get_weather\"}</tool_call>\n\nDone.",
          "I look.\n[now({})][get_weather({\"days\": 3, \"x\": [1, "
          "{}]})]\n\nDone.",
          0);
    /* An end inside of a string, escapes, and raw control characters. */
    check(f,
          "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": "
          "\"</tool_call> \\\"q\\\" \\u00e9 \\ud83d\\ude00 \xc3\xa9\n\t\"}}"
          "</tool_call>",
          "[now({\"a\": \"</tool_call> \\\"q\\\" \\u00e9 \\ud83d\\ude00 "
          "\xc3\xa9\\n\\t\"})]",
          0);
    check(f,
          "<tool_call>{\"name\": \"now\", \"arguments\": \"{\\\"a\\\": "
          "1}\"}</tool_call>",
          "[now({\"a\": 1})]", 0);
    check(f, "<tool_call>{\"name\": \"now\", \"arguments\": null}</tool_call>",
          "[now({})]", 0);
    /* Whole without what would close it. */
    check(f, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1}",
          "[now({\"a\": 1})]", 0);
    check(f, "<tool_call>{\"name\": \"now\", \"arguments\": {}}\nOk",
          "[now({})]\nOk", 0);
    check(f, "<tool_call>{\"name\": \"now\", \"arguments\": {}}]</tool_call>",
          "[now({})]]</tool_call>", 0);
}

static void test_what_is_no_call_comes_back(void **state)
{
    (void)state;
    const char *f = "hermes_json";
    const char *const bad[] = {
        "<tool_call>\n{\"name\": \"now\", \"arguments\": {a: 1}}\n</tool_call>",
        "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": 3, \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"now\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"now\", \"arguments\": \"text\"}</tool_call>",
        "<tool_call>{\"arguments\": {\"a\": 1}}</tool_call>",
        "<tool_call>now()</tool_call>",
        "<tool_call>{\"name\": \"now\", \"argu",
        " a <tool_call>",
        "<tool_call>{\"name\": \"\xc3\xa9",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check(f, bad[i], bad[i], 1);
    check_cut(f, "<tool_call>{\"name\": \"now\", \"argu",
              "<tool_call>{\"name\": \"now\", \"argu");
    /* A good one behind a bad one, and inside of it. */
    check(f, "<tool_call>no<tool_call>{\"name\":\"now\"}</tool_call>",
          "<tool_call>no[now({})]", 1);
    check(f,
          "<tool_call>{\"name\": \"x\"}</tool_call>\n<tool_call>{\"name\":"
          "\"now\"}</tool_call>",
          "<tool_call>{\"name\": \"x\"}</tool_call>\n[now({})]", 1);
}

static void test_a_call_that_breaks_off_keeps_what_it_has(void **state)
{
    (void)state;
    check("hermes_json",
          "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1, b: 2}}",
          "[now({\"a\": 1, !b: 2}}", 1);
    check("hermes_json",
          "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"x",
          "[now({\"a\": \"x!", 1);
    check_cut("hermes_json",
              "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"ci",
              "[now({\"ci!");
    check_cut("hermes_json",
              "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_c",
              "[now({})]");
    check_cut(
        "qwen_xml",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nPar\n</pa",
        "[get_weather({\"city\": \"Par!");
    check_cut("qwen_xml",
              "<tool_call>\n<function=get_weather>\n<parameter=spots>\n[1, 2",
              "[get_weather({\"spots\": [1, 2!");
    check("qwen_xml",
          "<tool_call><function=get_weather><parameter=city>x</parameter>oh",
          "[get_weather({\"city\": \"x\"!oh", 1);
    check("pythonic", "<|tool_call_start|>[get_weather(city=\"x\", =)]",
          "[get_weather({\"city\": \"x\"!=)]", 1);
    check_cut("gemma4", "<|tool_call>call:get_weather{days:1",
              "[get_weather({\"days\": 1!");
}

static void test_qwen_xml(void **state)
{
    (void)state;
    const char *f = "qwen_xml";
    check(f,
          "<tool_call>\n<function=get_weather>\n<parameter=city>\nNew\n\"York\""
          "\n\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
          "<parameter=wind>\ntrue\n</parameter>\n<parameter=spots>\n[1, \"a\"]"
          "\n</parameter>\n<parameter=more>\n{\"k\": null}\n</parameter>\n"
          "</function>\n</tool_call>",
          "[get_weather({\"city\": \"New\\n\\\"York\\\"\\n\", \"days\": 3, "
          "\"wind\": true, \"spots\": [1, \"a\"], \"more\": {\"k\": null}})]",
          0);
    /* Values that are not what the schema says are strings, and so is what may
     * be one; words of Python; nothing known of a parameter. */
    check(f,
          "<function=get_weather><parameter=days>three</parameter>"
          "<parameter=zip>02134</parameter><parameter=wind>False</parameter>"
          "<parameter=unit>c</parameter><parameter=any>2.5</parameter>"
          "<parameter=other>[1]</parameter><parameter=last>it is</parameter>"
          "</function>",
          "[get_weather({\"days\": \"three\", \"zip\": \"02134\", \"wind\": "
          "false, \"unit\": \"c\", \"any\": 2.5, \"other\": [1], \"last\": "
          "\"it is\"})]",
          0);
    check(f,
          "<tool_call><function=get_weather><parameter=zip>null</parameter>"
          "</function></tool_call>",
          "[get_weather({\"zip\": null})]", 0);
    check(
        f,
        "ok <tool_call>\n<function=now>\n</function>\n<function=now></function>"
        "\n</tool_call>",
        "ok [now({})][now({})]", 0);
    check(f, "<tool_call>\n<function=none>\n</function>\n</tool_call>",
          "<tool_call>\n<function=none>\n</function>\n</tool_call>", 1);
    check(f, "a <function b", "a <function b", 0);
    check(f,
          "<function=get_weather><parameter=city><![CDATA[x]]></parameter>"
          "</function>",
          "[get_weather({\"city\": \"<![CDATA[x]]>\"})]", 0);
    check(f,
          "<function=get_weather><parameter=city></parameter>"
          "<parameter=days></parameter></function>",
          "[get_weather({\"city\": \"\", \"days\": \"\"})]", 0);
    check(
        f,
        "<function=get_weather><parameter=city>a</param></parameter_>"
        "\n\xe2\x82\xac</parameter></function>",
        "[get_weather({\"city\": \"a</param></parameter_>\\n\xe2\x82\xac\"})]",
        0);
}

static void test_minimax_m2(void **state)
{
    (void)state;
    check("minimax_m2",
          "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter "
          "name=\"city\">Oslo</parameter>\n<parameter name=\"days\">2"
          "</parameter>\n</invoke>\n<invoke name=\"now\">\n</invoke>\n"
          "</minimax:tool_call>",
          "[get_weather({\"city\": \"Oslo\", \"days\": 2})][now({})]", 0);
    check("minimax_m2", "<minimax:tool_call>\n<invoke name=\"x\">",
          "<minimax:tool_call>\n<invoke name=\"x\">", 1);
    check("minimax_m2",
          "<minimax:tool_call><invoke name=\"now\"></invoke><invoke "
          "name=\"x\"></invoke></minimax:tool_call>",
          "[now({})]<invoke name=\"x\"></invoke></minimax:tool_call>", 1);
}

#define TEN "0123456789"
#define FIFTY TEN TEN TEN TEN TEN
#define LONG FIFTY FIFTY FIFTY FIFTY FIFTY "1234"

static void test_glm_and_longcat(void **state)
{
    (void)state;
    check("glm",
          "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome"
          "</arg_value>\n<arg_key>days</arg_key>\n<arg_value>4</arg_value>\n"
          "</tool_call>\n<tool_call>now</tool_call>",
          "[get_weather({\"city\": \"Rome\", \"days\": 4})][now({})]", 0);
    /* A name is as long as it may be, with its tag or without. */
    check("glm",
          "<tool_call>get_weather<arg_key>" LONG "</arg_key><arg_value>1"
          "</arg_value></tool_call>",
          "[get_weather({\"" LONG "\": 1})]", 0);
    check("glm", "<tool_call>get_weather<arg_key>" LONG "12345678</arg_key>",
          "[get_weather(!" LONG "12345678</arg_key>", 1);
    check("glm", "<tool_call>later</tool_call>", "<tool_call>later</tool_call>",
          1);
    check("longcat",
          "<longcat_tool_call>get_weather\n<longcat_arg_key>city"
          "</longcat_arg_key>\n<longcat_arg_value>Rome</longcat_arg_value>\n"
          "</longcat_tool_call>",
          "[get_weather({\"city\": \"Rome\"})]", 0);
}

static void test_minicpm_xml(void **state)
{
    (void)state;
    check("minicpm_xml",
          "<function name=\"get_weather\"><param name=\"city\">"
          "<![CDATA[a <b> & c\n]]></param><param name=\"days\">1</param>"
          "</function><function name=\"now\"></function>",
          "[get_weather({\"city\": \"a <b> & c\\n\", \"days\": 1})][now({})]",
          0);
}

static void test_gemma(void **state)
{
    (void)state;
    const char *f = "gemma4";
    check(f,
          "<|tool_call>call:get_weather{city:<|\"|>Ulm, {x}\n<|\"|>,days:2,"
          "more:{a:[1,true,<|\"|>s<|\"|>,{}],b:{c:null}},spots:[]}<tool_call|>",
          "[get_weather({\"city\": \"Ulm, {x}\\n\", \"days\": 2, \"more\": "
          "{\"a\": [1, true, \"s\", {}], \"b\": {\"c\": null}}, \"spots\": "
          "[]})]",
          0);
    check(f,
          "<|tool_call>call:now{}<tool_call|><|tool_call>call:a-b.c{}"
          "<tool_call|>",
          "[now({})][a-b.c({})]", 0);
    check(f, "<|tool_call>call:get_weather{city:Ulm am See,\"zip\": \"1\"}",
          "[get_weather({\"city\": \"Ulm am See\", \"zip\": \"1\"})]", 0);
    check(f, "<|tool_call>call:zzz{}<tool_call|>",
          "<|tool_call>call:zzz{}<tool_call|>", 1);
    check("function_gemma",
          "<start_function_call>call:get_weather{city:<escape>Ulm<escape>,"
          "days:3}<end_function_call>",
          "[get_weather({\"city\": \"Ulm\", \"days\": 3})]", 0);
}

static void test_pythonic(void **state)
{
    (void)state;
    const char *f = "pythonic";
    check(f,
          "<|tool_call_start|>[get_weather(city=\"N'Y\", days=2, wind=True, "
          "spots=[1, 'a', None, (2,), -3.5], more={'k': {\"l\": false}, 1: "
          "2})]<|tool_call_end|>Wait.",
          "[get_weather({\"city\": \"N'Y\", \"days\": 2, \"wind\": true, "
          "\"spots\": [1, \"a\", null, [2], -3.5], \"more\": {\"k\": {\"l\": "
          "false}, \"1\": 2}})]Wait.",
          0);
    check(f,
          "<|tool_call_start|>[now(), get_weather(city='a\\n\\x41\\u00e9\\'"
          "\\q')]<|tool_call_end|>",
          "[now({})][get_weather({\"city\": \"a\\nA\\u00e9'\\\\q\"})]", 0);
    check(f,
          "<|tool_call_start|>[get_weather(city=\"\"\"a \"b\"\nc\"\"\", "
          "zip='')]<|tool_call_end|>",
          "[get_weather({\"city\": \"a \\\"b\\\"\\nc\", \"zip\": \"\"})]", 0);
    check(f, "<|tool_call_start|>[get_weather(\"Paris\")]<|tool_call_end|>",
          "<|tool_call_start|>[get_weather(\"Paris\")]<|tool_call_end|>", 1);
    check(f, "<|tool_call_start|>[x(a=1)]", "<|tool_call_start|>[x(a=1)]", 1);
    check(f, "<|tool_call_start|>[now()  3]", "[now({})]  3]", 0);
}

static void test_kimi_k2(void **state)
{
    (void)state;
    const char *f = "kimi_k2";
    check(f,
          "Ok.<|tool_calls_section_begin|><|tool_call_begin|>functions."
          "get_weather:0<|tool_call_argument_begin|>{\"city\": \"Xi\"}"
          "<|tool_call_end|><|tool_call_begin|>functions.now:1"
          "<|tool_call_argument_begin|>{}<|tool_call_end|>"
          "<|tool_calls_section_end|>",
          "Ok.[get_weather({\"city\": \"Xi\"})][now({})]", 0);
    check(f, "<|tool_calls_section_begin|><|tool_calls_section_end|>",
          "<|tool_calls_section_begin|><|tool_calls_section_end|>", 1);
    check(f, "<|tool_calls_section_begin|> none",
          "<|tool_calls_section_begin|>"
          " none",
          1);
}

static void test_mistral(void **state)
{
    (void)state;
    const char *f = "mistral";
    check(f,
          "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": "
          "\"Nice\"}, \"id\": \"abc123def\"}, {\"name\": \"now\", "
          "\"arguments\": {}}]",
          "[get_weather({\"city\": \"Nice\"})][now({})]", 0);
    check(f,
          "[TOOL_CALLS]get_weather[ARGS]{\"days\": 1}[TOOL_CALLS]now[CALL_ID]"
          "x9[ARGS]{}",
          "[get_weather({\"days\": 1})][now({})]", 0);
    check(f, "[TOOL_CALLS]now[ARGS]{}now[ARGS]{\"a\": 1} Thanks",
          "[now({})][now({\"a\": 1})] Thanks", 0);
    check(f, "[TOOL_CALLS]now[ARGS]{} Thanks", "[now({})] Thanks", 0);
    check(f, "[TOOL_CALLS]nothing[ARGS]{}", "[TOOL_CALLS]nothing[ARGS]{}", 1);
    check(f, "see [1] [TOOL", "see [1] [TOOL", 0);
}

static void test_llama3_json(void **state)
{
    (void)state;
    const char *f = "llama3_json";
    check(f,
          "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Bonn\"}}",
          "[get_weather({\"city\": \"Bonn\"})]", 0);
    check(f,
          "<|python_tag|>{\"type\": \"function\", \"name\": \"now\", "
          "\"parameters\": {}}; {\"name\": \"now\", \"parameters\": {}}",
          "[now({})][now({})]", 0);
    /* Other objects are answers. */
    check(f, "{\"city\": \"Bonn\", \"name\": \"now\"}",
          "{\"city\": \"Bonn\", \"name\": \"now\"}", 1);
    check(f, "Say {\"name\": \"now\", \"parameters\": {}}",
          "Say {\"name\": \"now\", \"parameters\": {}}", 0);
    check(f, "<|python_tag|>print(1)", "<|python_tag|>print(1)", 1);
}

static void test_harmony(void **state)
{
    (void)state;
    const char *f = "harmony";
    check(f,
          "<|channel|>commentary to=functions.get_weather <|constrain|>json"
          "<|message|>{\"city\":\"SF\"}<|call|>",
          "[get_weather({\"city\":\"SF\"})]", 0);
    check(f, "<|channel|> to=functions.now<|channel|>commentary<|message|>{}",
          "[now({})]", 0);
    check(f, "<|channel|>commentary to=browser.open<|message|>{}",
          "<|channel|>commentary to=browser.open<|message|>{}", 1);
}

/* ---- texts that mlx-lm reads, too (tests/tools/make_tool_calls.py) ---- */

static bool same(const qn_json *a, const qn_json *b)
{
    double x, y;
    if (a->type != b->type || a->count != b->count)
        return false;
    if (a->type == QN_JSON_T_NUMBER)
        return qn_json_as_double(a, &x) && qn_json_as_double(b, &y) && x == y;
    if (a->type == QN_JSON_T_STRING)
        return qn_str_eq(a->text, b->text);
    for (uint32_t i = 0; i < a->count; i++) {
        const qn_json *other = a->type == QN_JSON_T_OBJECT
                                   ? qn_json_get_str(b, a->keys[i])
                                   : &b->items[i];
        if (!other || !same(&a->items[i], other))
            return false;
    }
    return a->boolean == b->boolean;
}

/* The calls as a JSON array, of pieces that have nothing else. */
static qn_status take_calls(void *data, qn_tool_piece piece, qn_str text)
{
    qn_buf *out = data;
    assert_true(piece != QN_TOOL_TEXT && piece != QN_TOOL_BROKEN);
    if (piece == QN_TOOL_CALL)
        qn_buf_printf(out, "%s{\"name\":\"%.*s\",\"arguments\":",
                      out->size > 1 ? "," : "", (int)text.size, text.data);
    else if (piece == QN_TOOL_ARGUMENTS)
        qn_buf_add_str(out, text);
    else
        qn_buf_add_char(out, '}');
    return QN_OK;
}

static void check_line(const qn_json *line, const qn_tools *tools, size_t piece)
{
    qn_str text = qn_json_get(line, "text")->text;
    char name[32];
    qn_buf out = QN_BUF_INIT;
    qn_tool_parser *p = NULL;
    qn_json_doc *doc = NULL;
    qn_str format = qn_json_get(line, "format")->text;
    snprintf(name, sizeof name, "%.*s", (int)format.size, format.data);
    check_status(qn_tool_parser_new(&p, qn_tool_format_named(name), tools,
                                    take_calls, &out),
                 QN_OK);
    qn_buf_add_char(&out, '[');
    for (size_t i = 0, n; i < text.size; i += n) {
        n = piece < text.size - i ? piece : text.size - i;
        check_status(qn_tool_parser_feed(p, (qn_str){text.data + i, n}), QN_OK);
    }
    check_status(qn_tool_parser_finish(p, false), QN_OK);
    qn_buf_add_char(&out, ']');
    check_status(
        qn_json_parse(&doc, qn_buf_str(&out), QN_JSON_ALLOW_LONE_SURROGATES),
        QN_OK);
    if (!same(qn_json_root(doc), qn_json_get(line, "calls"))) {
        print_error("%s: %.*s\n%s\n", name, (int)text.size, text.data,
                    out.data);
        fail();
    }
    qn_json_doc_free(doc);
    qn_tool_parser_free(p);
    qn_buf_free(&out);
}

static void test_calls_are_those_that_mlx_lm_finds(void **state)
{
    static const char known[] =
        "[{\"function\":{\"name\":\"edit\",\"parameters\":{\"properties\":{"
        "\"path\":{\"type\":\"string\"},\"text\":{\"type\":\"string\"},"
        "\"count\":{\"type\":\"integer\"},\"ratio\":{\"type\":\"number\"},"
        "\"flag\":{\"type\":\"boolean\"},\"list\":{\"type\":\"array\"},"
        "\"deep\":{\"type\":\"object\"}}}}},{\"function\":{\"name\":\"now\"}}]";
    qn_tools *tools = NULL;
    size_t size, lines = 0;
    char *all = vector_read("text/tools.jsonl", &size);
    (void)state;
    check_status(qn_tools_parse(&tools, qn_str_of(known)), QN_OK);
    for (char *p = all, *end; p < all + size; p = end + 1, lines++) {
        qn_json_doc *doc = NULL;
        end = memchr(p, '\n', (size_t)(all + size - p));
        assert_non_null(end);
        check_status(qn_json_parse(&doc, (qn_str){p, (size_t)(end - p)}, 0),
                     QN_OK);
        check_line(qn_json_root(doc), tools, SIZE_MAX);
        check_line(qn_json_root(doc), tools, 1);
        check_line(qn_json_root(doc), tools, 5);
        qn_json_doc_free(doc);
    }
    assert_int_equal(lines, 13 * 6);
    qn_tools_free(tools);
    qn_free(all);
}

/* ---- which format ---- */

static void test_a_template_shows_its_format(void **state)
{
    static const struct {
        const char *source, *format;
    } rows[] = {
        {"<minimax:tool_call><tool_call>", "minimax_m2"},
        {"<|tool_call> x <tool_call|>", "gemma4"},
        {"<start_function_call>", "function_gemma"},
        {"<longcat_tool_call>", "longcat"},
        {"<tool_call>{{ n }}\\n<arg_key>", "glm"},
        {"<|tool_list_start|>", "pythonic"},
        {"'<tool_call>\\n<function=' + tool_call.name", "qwen_xml"},
        {"<tool_call>\n<function=", "qwen_xml"},
        {"<|tool_calls_section_begin|>", "kimi_k2"},
        {"[TOOL_CALLS]", "mistral"},
        {"<tool_call> tool_call.name <|start_header_id|>", "hermes_json"},
        {"<|start_header_id|>", "llama3_json"},
        {"<function name=\"", "minicpm_xml"},
        {"<|channel|>", "harmony"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const qn_tool_format *f = qn_tool_format_of(qn_str_of(rows[i].source));
        assert_non_null(f);
        assert_string_equal(qn_tool_format_name(f), rows[i].format);
    }
    assert_null(qn_tool_format_of(QN_STR("<tool_call> {{ messages }}")));
    assert_null(qn_tool_format_of(QN_STR("")));
    assert_null(qn_tool_format_named("none"));
    const qn_tool_format *mistral = qn_tool_format_named("mistral");
    assert_true(qn_tool_format_has_mark(mistral, QN_STR("[ARGS]")));
    assert_false(qn_tool_format_has_mark(mistral, QN_STR("[INST]")));
}

/* Templates in the style of public ones. */
static void test_templates_of_families_show_theirs(void **state)
{
    static const char *const rows[][2] = {
        {"qwen_tools", "hermes_json"},
        {"mistral_tools", "mistral"},
        {"glm_style", "glm"},
        {"gemma4_style", "gemma4"},
        {"channels", "harmony"},
        {"xml_tools", "qwen_xml"},
        {"header_ids_tools_date", "llama3_json"},
        {"phi_tools", NULL},
        {"granite_style", NULL},
        {"chatml", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[64];
        size_t size;
        snprintf(name, sizeof name, "text/chat/%s.jinja", rows[i][0]);
        char *source = vector_read(name, &size);
        const qn_tool_format *f = qn_tool_format_of((qn_str){source, size});
        assert_string_equal(f ? qn_tool_format_name(f) : "none",
                            rows[i][1] ? rows[i][1] : "none");
        qn_free(source);
    }
}

static void test_functions_are_checked(void **state)
{
#define NAMED(name)                                                            \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"
    static const char *const bad[] = {
        "{}",
        "[1]",
        "[{\"function\":{}}]",
        "[",
        "[" NAMED("") "]",
        "[" NAMED("a b") "]",
        "[" NAMED("a") "," NAMED("a") "]",
        "[" NAMED(
            "a234567890123456789012345678901234567890123456789012345678901"
            "2345") "]"};
    qn_tools *tools = NULL;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_status(qn_tools_parse(&tools, qn_str_of(bad[i])), QN_E_ARG);
    check_status(qn_tools_parse(&tools, QN_STR("[" NAMED("a_B.9-") "]")),
                 QN_OK);
    assert_int_equal(qn_tools_count(tools), 1);
    qn_tools_free(tools);
}

/* ---- limits ---- */

static void test_deep_arguments_end_a_call(void **state)
{
    qn_buf text = QN_BUF_INIT, out = QN_BUF_INIT;
    qn_tools *tools = NULL;
    (void)state;
    check_status(qn_tools_parse(&tools, qn_str_of(tools_json)), QN_OK);
    qn_buf_add_text(&text, "<|tool_call>call:get_weather{more:");
    for (int i = 0; i < 3000; i++)
        qn_buf_add_char(&text, '[');
    size_t failures = parse(&out, qn_tool_format_named("gemma4"), tools,
                            qn_buf_str(&text), 5, false);
    assert_int_equal(failures, 1);
    /* All of it: 127 brackets before the mark of the break, the rest behind. */
    assert_int_equal(out.size, strlen("[get_weather({\"more\": ") + 3000 + 1);
    qn_buf_free(&out);
    qn_buf_free(&text);
    qn_tools_free(tools);
}

/* Long values don't take the square of their length, nor do marks without
 * calls. */
static void test_long_texts_are_read_once(void **state)
{
    static const char *const parts[][2] = {
        {"<tool_call><function=get_weather><parameter=spots>[", "1,"},
        {"<tool_call><function=get_weather><parameter=city>", "</param"},
        {"", "<tool_call>"},
    };
    qn_tools *tools = NULL;
    (void)state;
    check_status(qn_tools_parse(&tools, qn_str_of(tools_json)), QN_OK);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        qn_buf text = QN_BUF_INIT, out = QN_BUF_INIT;
        qn_buf_add_text(&text, parts[i][0]);
        while (text.size < 300000)
            qn_buf_add_text(&text, parts[i][1]);
        parse(&out, qn_tool_format_named("qwen_xml"), tools, qn_buf_str(&text),
              3, false);
        assert_true(out.size >= 300000 - 64);
        qn_buf_free(&out);
        qn_buf_free(&text);
    }
    qn_tools_free(tools);
}

static qn_status scenario(void)
{
    record r = {0};
    qn_tools *tools = NULL;
    qn_tool_parser *p = NULL;
    qn_str text = QN_STR(
        "a <tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": "
        "\"x\"}}</tool_call> b <tool_call>{\"name\": 1}");
    qn_status status = qn_tools_parse(&tools, qn_str_of(tools_json));
    if (!status)
        status = qn_tool_parser_new(&p, qn_tool_format_named("hermes_json"),
                                    tools, take, &r);
    for (size_t i = 0; i < text.size && !status; i++)
        status = qn_tool_parser_feed(p, (qn_str){text.data + i, 1});
    if (!status)
        status = qn_tool_parser_finish(p, false);
    qn_tool_parser_free(p);
    qn_tools_free(tools);
    qn_buf_free(&r.out);
    qn_buf_free(&r.arguments);
    return status;
}

static void test_any_allocation_may_fail(void **state)
{
    (void)state;
    each_alloc_may_fail(scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hermes_json),
        cmocka_unit_test(test_what_is_no_call_comes_back),
        cmocka_unit_test(test_a_call_that_breaks_off_keeps_what_it_has),
        cmocka_unit_test(test_qwen_xml),
        cmocka_unit_test(test_minimax_m2),
        cmocka_unit_test(test_glm_and_longcat),
        cmocka_unit_test(test_minicpm_xml),
        cmocka_unit_test(test_gemma),
        cmocka_unit_test(test_pythonic),
        cmocka_unit_test(test_kimi_k2),
        cmocka_unit_test(test_mistral),
        cmocka_unit_test(test_llama3_json),
        cmocka_unit_test(test_harmony),
        cmocka_unit_test(test_calls_are_those_that_mlx_lm_finds),
        cmocka_unit_test(test_a_template_shows_its_format),
        cmocka_unit_test(test_templates_of_families_show_theirs),
        cmocka_unit_test(test_functions_are_checked),
        cmocka_unit_test(test_deep_arguments_end_a_call),
        cmocka_unit_test(test_long_texts_are_read_once),
        cmocka_unit_test(test_any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
