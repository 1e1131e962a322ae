/* python.c: calls that look like Python.
 *
 *   [f(a="x", n=2, more=[1, {'k': None}]), g()]
 *
 * Literals become JSON while they come. */
#include "base/utf8.h"
#include "parser.h"

enum {
    LIST, /* its bracket */
    NAME,
    FIRST, /* an argument, or the end */
    KEY,
    VALUE,
    ITEM, /* a value of a container, or its end */
    STRING,
    COLON,
    AFTER,
    BETWEEN, /* calls */
    DONE
};

enum { MOST_NAME = 256, MOST_VALUE = 1 << 16 };

/* The next byte that is no white space, or -1. */
static int peek(qn_tool_parser *p)
{
    qn_tool_space(p);
    qn_str left = qn_tool_left(p);
    return left.size ? (uint8_t)left.data[0] : -1;
}

static qn_step take(qn_tool_parser *p, int state)
{
    p->pos++;
    return qn_tool_go(p, QN_STEP_ON, state);
}

static qn_step list(qn_tool_parser *p)
{
    int c = peek(p);
    if (c < 0)
        return QN_STEP_MORE;
    return c == '[' ? take(p, NAME) : QN_STEP_FAULT;
}

/* A word up to a byte of another kind; 0: it may go on. */
static size_t word(qn_tool_parser *p)
{
    qn_str left = qn_tool_left(p);
    size_t n = 0;
    while (n < left.size && n <= MOST_NAME &&
           qn_tool_name_valid((qn_str){left.data + n, 1}))
        n++;
    return n == left.size ? 0 : n + 1;
}

static qn_step name(qn_tool_parser *p)
{
    qn_tool_space(p);
    size_t n = word(p);
    qn_str left = qn_tool_left(p);
    if (!n)
        return QN_STEP_MORE;
    qn_buf_clear(&p->name);
    qn_buf_add(&p->name, left.data, n - 1);
    if (left.data[n - 1] != '(' || !qn_tool_known(p))
        return QN_STEP_FAULT;
    p->pos += n;
    return qn_tool_go(p, QN_STEP_ON, FIRST);
}

static qn_step end_call(qn_tool_parser *p)
{
    p->pos++;
    if (p->has_arguments)
        qn_buf_add_char(&p->arguments, '}');
    qn_tool_end(p);
    return qn_tool_go(p, QN_STEP_ON, BETWEEN);
}

static qn_step key(qn_tool_parser *p)
{
    int c = peek(p);
    if (c == ')')
        return end_call(p);
    size_t n = word(p), end = n;
    qn_str left = qn_tool_left(p);
    if (!n)
        return QN_STEP_MORE;
    while (end <= left.size && left.data[end - 1] == ' ')
        end++;
    if (end > left.size)
        return QN_STEP_MORE;
    if (n == 1 || left.data[end - 1] != '=')
        return QN_STEP_FAULT;
    qn_str text = {left.data, n - 1};
    qn_tool_announce(p);
    qn_tool_add_key(p, text);
    p->types = qn_tool_types(p->tool, text);
    p->pos += end;
    return qn_tool_go(p, QN_STEP_ON, VALUE);
}

/* ---- values ---- */

static bool in_dict(const qn_tool_parser *p)
{
    return p->depth && p->levels[p->depth - 1] == '}';
}

/* Closing bytes in the text and in JSON, by the opening one. */
static bool open_level(qn_tool_parser *p, char c)
{
    if (p->depth == QN_JSON_MAX_DEPTH)
        return false;
    p->levels[p->depth++] = c == '{' ? '}' : c == '[' ? ']' : ')';
    qn_buf_add_char(&p->arguments, c == '{' ? '{' : '[');
    p->types = QN_MAY_ANY;
    p->pos++;
    p->state = ITEM;
    return true;
}

static void close_level(qn_tool_parser *p)
{
    char c = (char)p->levels[--p->depth];
    qn_buf_add_char(&p->arguments, c == '}' ? '}' : ']');
    p->pos++;
    p->state = AFTER;
}

/* One quote or three of them. */
static qn_step open_string(qn_tool_parser *p)
{
    qn_str left = qn_tool_left(p);
    char c = left.data[0];
    if (left.size < 2 || (left.data[1] == c && left.size < 3))
        return QN_STEP_MORE;
    bool three = left.data[1] == c && left.data[2] == c;
    memset(p->quote, 0, sizeof p->quote);
    memset(p->quote, c, three ? 3 : 1);
    p->pos += three ? 3 : 1;
    qn_buf_add_char(&p->arguments, '"');
    return qn_tool_go(p, QN_STEP_ON, STRING);
}

/* Numbers and words; keys of a dict are strings in JSON. */
static qn_step bare(qn_tool_parser *p)
{
    qn_str left = qn_tool_left(p);
    size_t n = p->seen;
    while (n < left.size && !qn_tool_in(",:)]}\n", left.data[n]))
        n++;
    if (n > MOST_VALUE)
        return QN_STEP_FAULT;
    p->seen = n;
    if (n == left.size)
        return QN_STEP_MORE;
    p->seen = 0;
    qn_str text = {left.data, n};
    while (text.size && text.data[text.size - 1] == ' ')
        text.size--;
    if (!text.size)
        return QN_STEP_FAULT;
    bool is_key = p->key.size != 0;
    if (is_key)
        qn_json_quote(&p->arguments, text);
    else if (qn_str_is(text, "True") || qn_str_is(text, "False"))
        qn_buf_add_text(&p->arguments, text.data[0] == 'T' ? "true" : "false");
    else if (qn_str_is(text, "None"))
        qn_buf_add_text(&p->arguments, "null");
    else
        qn_tool_add_value(p, text, p->types);
    p->pos += n;
    return qn_tool_go(p, QN_STEP_ON, is_key ? COLON : AFTER);
}

static qn_step value(qn_tool_parser *p)
{
    int c = p->seen ? 'x' : peek(p);
    if (c < 0)
        return QN_STEP_MORE;
    bool is_key = p->key.size != 0;
    if (c == '"' || c == '\'')
        return open_string(p);
    if (c == '[' || c == '(' || c == '{')
        return !is_key && open_level(p, (char)c) ? QN_STEP_ON : QN_STEP_FAULT;
    return bare(p);
}

/* p->key has something as long as a dict's key is read. */
static void expect_key(qn_tool_parser *p, bool expected)
{
    qn_buf_clear(&p->key);
    if (expected)
        qn_buf_add_char(&p->key, 'k');
}

static qn_step item(qn_tool_parser *p)
{
    int c = peek(p);
    if (c < 0)
        return QN_STEP_MORE;
    if (c == p->levels[p->depth - 1]) {
        close_level(p);
        return QN_STEP_ON;
    }
    expect_key(p, in_dict(p));
    return qn_tool_go(p, QN_STEP_ON, VALUE);
}

/* ---- strings ---- */

static void add_code(qn_tool_parser *p, uint32_t code)
{
    char bytes[4];
    int n = qn_utf8_encode(code, bytes);
    qn_tool_escape(&p->arguments, (qn_str){bytes, (size_t)n});
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* \xhh, \uhhhh, \Uhhhhhhhh: bytes taken, 0: more is needed. */
static size_t hex_escape(qn_tool_parser *p, qn_str left)
{
    size_t digits = left.data[1] == 'x' ? 2 : left.data[1] == 'u' ? 4 : 8;
    uint32_t code = 0;
    for (size_t i = 0; i < digits; i++) {
        int digit = i + 2 < left.size ? hex_digit(left.data[i + 2]) : 0;
        if (i + 2 >= left.size)
            return 0;
        if (digit < 0) { /* no escape */
            qn_tool_escape(&p->arguments, (qn_str){left.data, 2});
            return 2;
        }
        code = code << 4 | (uint32_t)digit;
    }
    /* Halves of a pair stay as they are: the other one comes next. */
    if (digits == 4)
        qn_buf_printf(&p->arguments, "\\u%04x", code);
    else
        add_code(p, code);
    return digits + 2;
}

/* The escape at the front of `left`; bytes taken, 0: more is needed. */
static size_t escape(qn_tool_parser *p, qn_str left)
{
    static const char names[] = "ntrbfav0\\'\"\n";
    static const char chars[] = "\n\t\r\b\f\a\v\0\\'\"";
    if (left.size < 2)
        return 0;
    char c = left.data[1];
    if (c == 'x' || c == 'u' || c == 'U')
        return hex_escape(p, left);
    const char *name = c ? strchr(names, c) : NULL;
    if (name && c != '\n') /* a line end is left out with its backslash */
        add_code(p, (uint8_t)chars[name - names]);
    if (name)
        return 2;
    qn_tool_escape(&p->arguments, (qn_str){left.data, 1});
    return 1;
}

static qn_step end_string(qn_tool_parser *p)
{
    bool is_key = p->key.size != 0;
    p->pos += strlen(p->quote);
    qn_buf_add_char(&p->arguments, '"');
    return qn_tool_go(p, QN_STEP_ON, is_key ? COLON : AFTER);
}

static qn_step string(qn_tool_parser *p)
{
    qn_str left = qn_tool_left(p);
    size_t n = 0, quotes = strlen(p->quote);
    while (n < left.size && left.data[n] != '\\' && left.data[n] != p->quote[0])
        n++;
    qn_tool_escape(&p->arguments, (qn_str){left.data, n});
    p->pos += n;
    left = qn_tool_left(p);
    if (!left.size)
        return QN_STEP_MORE;
    if (left.data[0] == '\\') {
        size_t taken = escape(p, left);
        p->pos += taken;
        return taken ? QN_STEP_ON : QN_STEP_MORE;
    }
    if (!memcmp(left.data, p->quote, quotes < left.size ? quotes : left.size))
        return left.size < quotes ? QN_STEP_MORE : end_string(p);
    qn_tool_escape(&p->arguments, (qn_str){left.data, 1});
    p->pos++;
    return QN_STEP_ON;
}

/* ---- what follows ---- */

static qn_step colon(qn_tool_parser *p)
{
    int c = peek(p);
    if (c < 0)
        return QN_STEP_MORE;
    if (c != ':')
        return QN_STEP_FAULT;
    qn_buf_add_text(&p->arguments, ": ");
    expect_key(p, false);
    return take(p, VALUE);
}

static qn_step after(qn_tool_parser *p)
{
    int c = peek(p);
    if (c < 0)
        return QN_STEP_MORE;
    if (!p->depth)
        return c == ')' ? end_call(p) : c == ',' ? take(p, KEY) : QN_STEP_FAULT;
    if (c == p->levels[p->depth - 1]) {
        close_level(p);
        return QN_STEP_ON;
    }
    if (c != ',')
        return QN_STEP_FAULT;
    /* A comma before the end says nothing. */
    size_t before = p->pos++;
    int next = peek(p);
    if (next < 0)
        p->pos = before;
    if (next < 0)
        return QN_STEP_MORE;
    if (next != p->levels[p->depth - 1])
        qn_buf_add_text(&p->arguments, ", ");
    return qn_tool_go(p, QN_STEP_ON, ITEM);
}

static qn_step between(qn_tool_parser *p)
{
    size_t before = p->pos;
    int c = peek(p);
    if (c == ']') {
        take(p, DONE);
        qn_tool_settle(p);
        return QN_STEP_ON;
    }
    size_t behind = p->pos + 1;
    p->pos = before; /* white space before something else is its */
    if (c < 0)
        return QN_STEP_MORE;
    if (c != ',')
        return QN_STEP_OVER;
    qn_tool_try(p);
    p->pos = behind;
    return qn_tool_go(p, QN_STEP_ON, NAME);
}

qn_step qn_step_python(qn_tool_parser *p)
{
    qn_step step;
    switch (p->state) {
    case LIST:
        return list(p);
    case NAME:
        return name(p);
    case FIRST:
    case KEY:
        return key(p);
    case VALUE:
        return value(p);
    case ITEM:
        return item(p);
    case STRING:
        return string(p);
    case COLON:
        return colon(p);
    case AFTER:
        return after(p);
    case BETWEEN:
        return between(p);
    default:
        step = qn_tool_word_after_space(p, p->format->close);
        return step == QN_STEP_MORE ? step : QN_STEP_OVER;
    }
}
