/* braces.c: calls of Gemma.
 *
 *   call:F{key:<|"|>text<|"|>,n:2,list:[1,2],inner:{a:true}}
 *
 * Keys are bare, and strings stand between marks.  Everything becomes JSON
 * while it comes. */
#include "parser.h"

enum {
    CALL,
    NAME,
    FIRST,
    KEY,
    KEY_TEXT,
    COLON,
    VALUE,
    STRING,
    JSON,
    AFTER,
    DONE
};

enum { MOST_NAME = 256, MOST_VALUE = 1 << 16 };

static qn_step name(qn_tool_parser *p)
{
    size_t before = p->pos;
    qn_step step = qn_tool_until(p, &p->name, "{", MOST_NAME);
    if (step != QN_STEP_ON)
        return step;
    if (!qn_tool_known(p)) {
        p->pos = before;
        return QN_STEP_FAULT;
    }
    p->levels[0] = '}';
    p->depth = 1;
    return qn_tool_go(p, step, FIRST);
}

static bool open_level(qn_tool_parser *p, char close)
{
    if (p->depth == QN_JSON_MAX_DEPTH)
        return false;
    p->levels[p->depth++] = (uint8_t)close;
    qn_buf_add_char(&p->arguments, close == '}' ? '{' : '[');
    p->state = FIRST;
    return true;
}

/* Closes the innermost container with the byte that comes next. */
static qn_step close_level(qn_tool_parser *p)
{
    p->pos++;
    p->depth--;
    if (p->depth || p->has_arguments)
        qn_buf_add_char(&p->arguments, (char)p->levels[p->depth]);
    if (!p->depth)
        qn_tool_end(p);
    return qn_tool_go(p, QN_STEP_ON, p->depth ? AFTER : DONE);
}

static bool in_object(const qn_tool_parser *p)
{
    return p->levels[p->depth - 1] == '}';
}

/* The first thing in a container, or its end. */
static qn_step first(qn_tool_parser *p)
{
    qn_tool_space(p);
    qn_str left = qn_tool_left(p);
    if (!left.size)
        return QN_STEP_MORE;
    if ((uint8_t)left.data[0] == p->levels[p->depth - 1])
        return close_level(p);
    return qn_tool_go(p, QN_STEP_ON, in_object(p) ? KEY : VALUE);
}

static qn_step key(qn_tool_parser *p)
{
    qn_tool_space(p);
    qn_buf_clear(&p->key);
    qn_step quote = qn_tool_word(p, p->format->quote);
    if (quote == QN_STEP_MORE)
        return quote;
    return qn_tool_go(p, QN_STEP_ON, quote == QN_STEP_ON ? KEY_TEXT : COLON);
}

static qn_step key_text(qn_tool_parser *p)
{
    return qn_tool_go(p, qn_tool_until(p, &p->key, p->format->quote, MOST_NAME),
                      COLON);
}

static qn_step colon(qn_tool_parser *p)
{
    qn_buf bare = QN_BUF_INIT;
    qn_step step = qn_tool_until(p, &bare, ":", MOST_NAME);
    qn_buf_add_str(&p->key, qn_buf_str(&bare));
    p->key.failed = p->key.failed || bare.failed;
    qn_buf_free(&bare);
    if (step != QN_STEP_ON)
        return step;
    qn_str text = qn_buf_str(&p->key);
    while (text.size && text.data[text.size - 1] == ' ')
        text.size--;
    if (text.size > 1 && text.data[0] == '"' && text.data[text.size - 1] == '"')
        text = (qn_str){text.data + 1, text.size - 2};
    p->types = QN_MAY_ANY;
    if (p->depth == 1) {
        qn_tool_announce(p);
        qn_tool_add_key(p, text);
        p->types = qn_tool_types(p->tool, text);
    } else {
        qn_json_quote(&p->arguments, text);
        qn_buf_add_text(&p->arguments, ": ");
    }
    return qn_tool_go(p, step, VALUE);
}

/* A word or a number ends where something else must come. */
static qn_step bare(qn_tool_parser *p)
{
    qn_str left = qn_tool_left(p);
    size_t n = p->seen;
    while (n < left.size && !qn_tool_in(",}]", left.data[n]))
        n++;
    if (n > MOST_VALUE)
        return QN_STEP_FAULT;
    p->seen = n;
    if (n == left.size)
        return QN_STEP_MORE;
    p->seen = 0;
    qn_str text = {left.data, n};
    while (text.size && qn_tool_is_space(text.data[text.size - 1]))
        text.size--;
    if (!text.size)
        return QN_STEP_FAULT;
    qn_tool_add_value(p, text, p->types);
    p->pos += n;
    return qn_tool_go(p, QN_STEP_ON, AFTER);
}

static qn_step value(qn_tool_parser *p)
{
    if (!p->seen)
        qn_tool_space(p);
    qn_str left = qn_tool_left(p);
    if (!left.size)
        return QN_STEP_MORE;
    char c = left.data[0];
    if (c == '{' || c == '[') {
        if (!open_level(p, c == '{' ? '}' : ']'))
            return QN_STEP_FAULT;
        p->pos++;
        p->types = QN_MAY_ANY;
        return QN_STEP_ON;
    }
    qn_step quote = p->seen ? QN_STEP_FAULT : qn_tool_word(p, p->format->quote);
    if (quote == QN_STEP_ON)
        qn_buf_add_char(&p->arguments, '"');
    if (quote != QN_STEP_FAULT)
        return qn_tool_go(p, quote, STRING);
    p->scan = (qn_scan){0};
    return c == '"' ? qn_tool_go(p, QN_STEP_ON, JSON) : bare(p);
}

static qn_step string(qn_tool_parser *p)
{
    qn_step step = qn_tool_string(p, p->format->quote, false);
    if (step == QN_STEP_ON)
        qn_buf_add_char(&p->arguments, '"');
    return qn_tool_go(p, step, AFTER);
}

static qn_step after(qn_tool_parser *p)
{
    qn_tool_space(p);
    qn_str left = qn_tool_left(p);
    if (!left.size)
        return QN_STEP_MORE;
    if ((uint8_t)left.data[0] == p->levels[p->depth - 1])
        return close_level(p);
    if (left.data[0] != ',')
        return QN_STEP_FAULT;
    p->pos++;
    if (p->depth > 1)
        qn_buf_add_text(&p->arguments, ", "); /* else with the key */
    return qn_tool_go(p, QN_STEP_ON, in_object(p) ? KEY : VALUE);
}

/* The mark that closes, or another call before it. */
static qn_step done(qn_tool_parser *p)
{
    qn_step end = qn_tool_word_after_space(p, p->format->close);
    if (end == QN_STEP_ON)
        return QN_STEP_OVER;
    qn_step call = qn_tool_try_word(p, "call:");
    if (call == QN_STEP_ON)
        return qn_tool_go(p, call, NAME);
    return end == QN_STEP_MORE || call == QN_STEP_MORE ? QN_STEP_MORE
                                                       : QN_STEP_OVER;
}

qn_step qn_step_braces(qn_tool_parser *p)
{
    switch (p->state) {
    case CALL:
        return qn_tool_go(p, qn_tool_word_after_space(p, "call:"), NAME);
    case NAME:
        return name(p);
    case FIRST:
        return first(p);
    case KEY:
        return key(p);
    case KEY_TEXT:
        return key_text(p);
    case COLON:
        return colon(p);
    case VALUE:
        return value(p);
    case STRING:
        return string(p);
    case JSON:
        return qn_tool_go(p, qn_tool_scan(p, &p->arguments), AFTER);
    case AFTER:
        return after(p);
    default:
        return done(p);
    }
}
