/* fuzz_tools.c: calls of functions in texts.
 *
 * The input is a byte that chooses the format and how the text is cut, and the
 * text.  Whatever it is: what comes out is UTF-8 where the text was, calls
 * begin and end in order with functions of the request, whole ones have
 * arguments that are an object, and the pieces join to the same, however the
 * text was cut. Without calls, that is the text. */
#include "fuzz.h"

#include "base/utf8.h"
#include "text/tools.h"

#include <string.h>

static const char *const formats[] = {
    "minimax_m2",  "gemma4",      "function_gemma", "longcat", "glm",
    "pythonic",    "qwen_xml",    "kimi_k2",        "mistral", "hermes_json",
    "llama3_json", "minicpm_xml", "harmony"};
enum { FORMATS = sizeof formats / sizeof *formats };

static const char tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{"
    "\"properties\":{\"s\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},"
    "\"b\":{\"type\":\"boolean\"},\"o\":{\"type\":\"object\"}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]";

typedef struct record {
    qn_buf out, arguments;
    bool in_call, valid;
    size_t calls;
} record;

static void check_whole(const qn_buf *arguments)
{
    qn_json_doc *doc = NULL;
    qn_status status = qn_json_parse(&doc, qn_buf_str(arguments),
                                     QN_JSON_ALLOW_DUPLICATE_KEYS |
                                         QN_JSON_ALLOW_LONE_SURROGATES);
    FUZZ_CHECK(!status && qn_json_root(doc)->type == QN_JSON_T_OBJECT);
    qn_json_doc_free(doc);
}

static qn_status take(void *data, qn_tool_piece piece, qn_str text)
{
    record *r = data;
    FUZZ_CHECK(r->in_call == (piece > QN_TOOL_CALL));
    FUZZ_CHECK(!r->valid || qn_utf8_valid(text, NULL));
    switch (piece) {
    case QN_TOOL_CALL:
        FUZZ_CHECK(qn_str_is(text, "f") || qn_str_is(text, "g"));
        qn_buf_add_char(&r->out, '\1');
        r->in_call = true;
        r->calls++;
        break;
    case QN_TOOL_ARGUMENTS:
        qn_buf_add_str(&r->arguments, text);
        break;
    case QN_TOOL_END:
    case QN_TOOL_BROKEN:
        if (piece == QN_TOOL_END && r->valid)
            check_whole(&r->arguments);
        qn_buf_clear(&r->arguments);
        qn_buf_add_char(&r->out, piece == QN_TOOL_END ? '\2' : '\3');
        r->in_call = false;
        break;
    case QN_TOOL_TEXT:
        break;
    }
    qn_buf_add_str(&r->out, text);
    return QN_OK;
}

static record parse(const qn_tool_format *format, const qn_tools *tools,
                    qn_str text, size_t piece, bool cut)
{
    record r = {.valid = qn_utf8_valid(text, NULL)};
    qn_tool_parser *p = NULL;
    FUZZ_CHECK(!qn_tool_parser_new(&p, format, tools, take, &r));
    for (size_t i = 0, n; i < text.size; i += n) {
        n = piece < text.size - i ? piece : text.size - i;
        FUZZ_CHECK(!qn_tool_parser_feed(p, (qn_str){text.data + i, n}));
        FUZZ_CHECK(qn_tool_parser_pending(p) <= text.size);
    }
    FUZZ_CHECK(!qn_tool_parser_finish(p, cut));
    FUZZ_CHECK(!qn_tool_parser_pending(p) && !r.in_call);
    qn_tool_parser_free(p);
    qn_buf_free(&r.arguments);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    const qn_tool_format *format =
        qn_tool_format_named(formats[*data % FORMATS]);
    qn_str text = {(const char *)data + 1, size - 1};
    bool cut = *data & 128;
    qn_tools *tools = NULL;
    FUZZ_CHECK(format && !qn_tools_parse(&tools, qn_str_of(tools_json)));
    /* What is decoded is UTF-8; where a piece ends, bad bytes may be others. */
    bool valid = qn_utf8_valid(text, NULL);
    record whole = parse(format, tools, text, text.size + 1, cut);
    record bytes = parse(format, tools, text, 1, cut);
    record some = parse(format, tools, text, 2 + *data / FORMATS, cut);
    FUZZ_CHECK(!valid ||
               qn_str_eq(qn_buf_str(&whole.out), qn_buf_str(&bytes.out)));
    FUZZ_CHECK(!valid ||
               qn_str_eq(qn_buf_str(&whole.out), qn_buf_str(&some.out)));
    FUZZ_CHECK(whole.calls || qn_str_eq(qn_buf_str(&whole.out), text));
    qn_buf_free(&whole.out);
    qn_buf_free(&bytes.out);
    qn_buf_free(&some.out);
    qn_tools_free(tools);
    return 0;
}
