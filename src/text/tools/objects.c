/* objects.c: calls whose arguments are JSON as it is.
 *
 *   {"name": F, "arguments": {...}}      hermes, llama3, mistral: the object
 *   F, a mark, {...}                     kimi, mistral, harmony: the arguments
 *
 * A call is whole as soon as its function and its arguments are: models forget
 * a last brace more often than anything else. */
#include "parser.h"
#include "text/find.h"

enum { MOST_HEAD = 1024, MOST_NAME = 256 };

/* Takes the next byte that is no white space when it is one of `wanted`. */
static qn_step one_of(qn_tool_parser *p, const char *wanted, char *found)
{
    qn_tool_space(p);
    qn_str left = qn_tool_left(p);
    if (!left.size)
        return QN_STEP_MORE;
    if (!qn_tool_in(wanted, left.data[0]))
        return QN_STEP_FAULT;
    *found = left.data[0];
    p->pos++;
    return QN_STEP_ON;
}

/* ---- the arguments ---- */

/* Passes arguments on; they may be announced once something that an object can
 * have follows its brace. */
static qn_step arguments(qn_tool_parser *p)
{
    qn_buf *out = &p->arguments;
    qn_step step = qn_tool_scan(p, out);
    qn_str text = qn_buf_str(out);
    size_t i = p->announced ? 0 : 1;
    while (i && i < text.size && qn_tool_is_space(text.data[i]))
        i++;
    if (i && i < text.size && p->tool)
        qn_tool_announce(p);
    p->has_arguments = true;
    return step;
}

static qn_step begin_arguments(qn_tool_parser *p, int state)
{
    qn_tool_space(p);
    qn_str left = qn_tool_left(p);
    if (!left.size)
        return QN_STEP_MORE;
    p->scan = (qn_scan){0};
    return left.data[0] == '{' ? qn_tool_go(p, QN_STEP_ON, state)
                               : QN_STEP_FAULT;
}

/* ---- an object with a name and arguments ---- */

enum {
    OBJECT, /* its brace */
    FIRST,  /* a key, or the end */
    KEY,    /* behind a comma */
    KEY_TEXT,
    COLON,
    VALUE,
    NAME,
    ARGUMENTS,
    QUOTED, /* arguments as a string */
    NOTHING,
    SKIPPED,
    NEXT, /* a comma, or the end */
    DONE, /* behind its brace: the formats' states follow */
    BEGIN,
    AFTER,
    HEAD,
    CALL_ID,
    JSON,
    END
};

static qn_step begin_key(qn_tool_parser *p)
{
    char c = 0;
    qn_tool_space(p);
    size_t at = p->pos;
    qn_step step = one_of(p, p->state == FIRST ? "\"}" : "\"", &c);
    if (step != QN_STEP_ON)
        return step;
    if (c == '}')
        return qn_tool_go(p, step, DONE);
    p->pos = at; /* the scan wants the quote */
    p->scan = (qn_scan){0};
    qn_buf_clear(&p->key);
    return qn_tool_go(p, step, KEY_TEXT);
}

static qn_step key_text(qn_tool_parser *p)
{
    qn_step step = qn_tool_scan(p, &p->key);
    if (step == QN_STEP_ON)
        step = qn_tool_unquote(p, &p->key);
    return qn_tool_go(p, step, COLON);
}

static bool is_key(const qn_tool_parser *p, const char *name)
{
    return qn_str_is(qn_buf_str(&p->key), name);
}

/* What kind of value the key has. */
static qn_step begin_value(qn_tool_parser *p)
{
    qn_tool_space(p);
    qn_str left = qn_tool_left(p);
    if (!left.size)
        return QN_STEP_MORE;
    char c = left.data[0];
    p->scan = (qn_scan){0};
    qn_buf_clear(&p->value);
    if (is_key(p, "name") && !p->tool && p->trying)
        return c == '"' ? qn_tool_go(p, QN_STEP_ON, NAME) : QN_STEP_FAULT;
    bool is_arguments = is_key(p, "arguments") || is_key(p, "parameters");
    /* An object that no mark announces has to look like nothing else. */
    if (!is_arguments && p->open < 0 && !is_key(p, "type"))
        return QN_STEP_FAULT;
    if (!is_arguments || p->has_arguments || !p->trying)
        return qn_tool_go(p, QN_STEP_ON, SKIPPED);
    if (c == '{')
        return qn_tool_go(p, QN_STEP_ON, ARGUMENTS);
    if (c == '"')
        return qn_tool_go(p, QN_STEP_ON, QUOTED);
    return c == 'n' ? qn_tool_go(p, QN_STEP_ON, NOTHING) : QN_STEP_FAULT;
}

static void end_if_whole(qn_tool_parser *p)
{
    if (p->tool && p->has_arguments)
        qn_tool_end(p);
}

static qn_step name(qn_tool_parser *p)
{
    qn_step step = qn_tool_scan(p, &p->name);
    if (step == QN_STEP_ON)
        step = qn_tool_unquote(p, &p->name);
    if (step == QN_STEP_ON && !qn_tool_known(p))
        step = QN_STEP_FAULT;
    if (step == QN_STEP_ON)
        end_if_whole(p);
    return qn_tool_go(p, step, NEXT);
}

/* Arguments that are an object in a string. */
static qn_step quoted(qn_tool_parser *p)
{
    size_t used;
    qn_scan scan = {0};
    qn_step step = qn_tool_scan(p, &p->value);
    if (step == QN_STEP_ON)
        step = qn_tool_unquote(p, &p->value);
    if (step != QN_STEP_ON)
        return step;
    qn_str text = qn_buf_str(&p->value);
    while (text.size && qn_tool_is_space(text.data[0]))
        text = (qn_str){text.data + 1, text.size - 1};
    while (text.size && qn_tool_is_space(text.data[text.size - 1]))
        text.size--;
    qn_buf_clear(&p->arguments);
    if (!text.size || text.data[0] != '{' ||
        qn_scan_feed(&scan, &p->arguments, text, &used) != QN_SCAN_DONE ||
        used != text.size)
        return QN_STEP_FAULT;
    p->has_arguments = true;
    end_if_whole(p);
    return qn_tool_go(p, step, NEXT);
}

static qn_step skipped(qn_tool_parser *p, int state)
{
    qn_buf ignored = QN_BUF_INIT;
    qn_step step = qn_tool_scan(p, &ignored);
    p->value.failed = p->value.failed || ignored.failed;
    qn_buf_free(&ignored);
    return qn_tool_go(p, step, state);
}

static qn_step next(qn_tool_parser *p)
{
    char c = 0;
    qn_step step = one_of(p, ",}", &c);
    return qn_tool_go(p, step, c == ',' ? KEY : DONE);
}

/* Steps of an object; it is over with the state DONE. */
static qn_step object(qn_tool_parser *p)
{
    char c;
    qn_step step;
    switch (p->state) {
    case OBJECT:
        return qn_tool_go(p, one_of(p, "{", &c), FIRST);
    case FIRST:
    case KEY:
        return begin_key(p);
    case KEY_TEXT:
        return key_text(p);
    case COLON:
        return qn_tool_go(p, one_of(p, ":", &c), VALUE);
    case VALUE:
        return begin_value(p);
    case NAME:
        return name(p);
    case ARGUMENTS:
        step = arguments(p);
        if (step == QN_STEP_ON)
            end_if_whole(p);
        return qn_tool_go(p, step, NEXT);
    case QUOTED:
        return quoted(p);
    case NOTHING:
        return skipped(p, NEXT);
    case SKIPPED:
        return skipped(p, NEXT);
    case NEXT:
        return next(p);
    default: /* behind it: a call without arguments is whole here */
        if (!p->tool)
            return QN_STEP_FAULT;
        if (p->trying)
            qn_tool_end(p);
        qn_tool_settle(p);
        return qn_tool_go(p, QN_STEP_ON, AFTER);
    }
}

/* ---- hermes: <tool_call>{...}</tool_call> ---- */

qn_step qn_step_hermes(qn_tool_parser *p)
{
    if (p->state != AFTER)
        return object(p);
    qn_step end = qn_tool_word_after_space(p, "</tool_call>");
    return end == QN_STEP_MORE ? end : QN_STEP_OVER;
}

/* ---- Llama 3: {...}, with or without a mark, and more behind ';' ---- */

qn_step qn_step_llama3(qn_tool_parser *p)
{
    if (p->state != AFTER)
        return object(p);
    qn_str left = qn_tool_left(p);
    size_t n = 0;
    while (n < left.size && qn_tool_in(" \n\t\r;", left.data[n]))
        n++;
    if (n == left.size)
        return QN_STEP_MORE;
    if (left.data[n] != '{')
        return QN_STEP_OVER;
    qn_tool_try(p);
    p->pos += n;
    return qn_tool_go(p, QN_STEP_ON, OBJECT);
}

/* ---- Kimi: marks around a name with a number, and arguments ---- */

/* functions.F:0 */
static bool kimi_name(qn_tool_parser *p)
{
    qn_str name = qn_buf_str(&p->name);
    qn_str prefix = QN_STR("functions.");
    const char *at = qn_find(name, prefix);
    if (at)
        name = (qn_str){at + prefix.size,
                        name.size - (size_t)(at - name.data) - prefix.size};
    for (size_t i = name.size; i-- > 0;)
        if (name.data[i] == ':') {
            name.size = i;
            break;
        }
    qn_buf own = QN_BUF_INIT;
    qn_buf_add_str(&own, name);
    qn_buf_free(&p->name);
    p->name = own;
    return qn_tool_known(p);
}

static qn_step kimi_head(qn_tool_parser *p)
{
    size_t before = p->pos;
    qn_step step =
        qn_tool_until(p, &p->name, "<|tool_call_argument_begin|>", MOST_NAME);
    if (step != QN_STEP_ON || kimi_name(p))
        return qn_tool_go(p, step, JSON);
    p->pos = before;
    return QN_STEP_FAULT;
}

/* A call, or the end of all. */
static qn_step kimi_between(qn_tool_parser *p)
{
    qn_step end = QN_STEP_FAULT; /* a section has a call */
    if (p->state == AFTER)
        end = qn_tool_word_after_space(p, "<|tool_calls_section_end|>");
    if (end == QN_STEP_ON)
        return QN_STEP_OVER;
    const char *begin = "<|tool_call_begin|>";
    qn_step call = p->state == AFTER ? qn_tool_try_word(p, begin)
                                     : qn_tool_word_after_space(p, begin);
    if (call != QN_STEP_FAULT)
        return qn_tool_go(p, call, HEAD);
    return end == QN_STEP_MORE ? end
           : p->state == AFTER ? QN_STEP_OVER
                               : QN_STEP_FAULT;
}

qn_step qn_step_kimi(qn_tool_parser *p)
{
    qn_step step;
    switch (p->state) {
    case HEAD:
        return kimi_head(p);
    case JSON:
        return begin_arguments(p, ARGUMENTS);
    case ARGUMENTS:
        step = arguments(p);
        if (step == QN_STEP_ON)
            qn_tool_end(p);
        return qn_tool_go(p, step, END);
    case END:
        step = qn_tool_word_after_space(p, "<|tool_call_end|>");
        if (step == QN_STEP_ON)
            qn_tool_settle(p);
        return qn_tool_go(p, step, AFTER);
    default:
        return kimi_between(p);
    }
}

/* ---- Mistral: a list of objects, or names and arguments ---- */

static bool is_name(char c)
{
    return qn_tool_name_valid((qn_str){&c, 1});
}

/* Whether a name with its mark comes: then the name is p->name. */
static qn_step mistral_head(qn_tool_parser *p)
{
    static const char *const marks[] = {"[ARGS]", "[CALL_ID]"};
    qn_str left = qn_tool_left(p);
    size_t from = 0, n, size;
    while (from < left.size && qn_tool_is_space(left.data[from]))
        from++;
    for (n = from; n < left.size && is_name(left.data[n]); n++)
        ;
    size = n - from;
    while (n < left.size && left.data[n] == ' ')
        n++;
    if (size > MOST_NAME || (n < left.size && (!size || left.data[n] != '[')))
        return QN_STEP_FAULT;
    for (int i = 0; i < 2; i++) {
        size_t before = p->pos;
        p->pos += n;
        qn_step step = qn_tool_word(p, marks[i]);
        size_t behind = p->pos;
        p->pos = before;
        if (step == QN_STEP_MORE)
            return step;
        if (step == QN_STEP_FAULT)
            continue;
        if (!p->trying)
            qn_tool_try(p);
        qn_buf_clear(&p->name);
        qn_buf_add(&p->name, left.data + from, size);
        if (!qn_tool_known(p))
            return QN_STEP_FAULT;
        p->pos = behind;
        return qn_tool_go(p, step, i ? CALL_ID : JSON);
    }
    return QN_STEP_FAULT;
}

static qn_step mistral_begin(qn_tool_parser *p)
{
    qn_tool_space(p);
    qn_str left = qn_tool_left(p);
    if (!left.size)
        return QN_STEP_MORE;
    p->depth = left.data[0] == '[';
    p->pos += (size_t)p->depth;
    return qn_tool_go(p, QN_STEP_ON, p->depth ? OBJECT : HEAD);
}

/* Behind a call of a list: a comma or its end; behind another one: perhaps
 * one more. */
static qn_step mistral_after(qn_tool_parser *p)
{
    qn_str left = qn_tool_left(p);
    size_t n = 0;
    if (!p->depth) {
        p->doubt = true;
        qn_step step = mistral_head(p);
        return step == QN_STEP_FAULT && !p->trying ? QN_STEP_OVER : step;
    }
    while (n < left.size && qn_tool_is_space(left.data[n]))
        n++;
    if (n == left.size)
        return QN_STEP_MORE;
    if (left.data[n] == ']')
        p->pos += n + 1;
    if (left.data[n] != ',')
        return QN_STEP_OVER;
    qn_tool_try(p);
    p->depth = 1;
    p->pos += n + 1;
    return qn_tool_go(p, QN_STEP_ON, OBJECT);
}

qn_step qn_step_mistral(qn_tool_parser *p)
{
    qn_buf id = QN_BUF_INIT;
    qn_step step;
    if (p->state == OBJECT && !p->depth)
        p->state = BEGIN;
    switch (p->state) {
    case BEGIN:
        return mistral_begin(p);
    case HEAD:
        return mistral_head(p);
    case CALL_ID:
        step = qn_tool_until(p, &id, "[ARGS]", MOST_NAME);
        qn_buf_free(&id);
        return qn_tool_go(p, step, JSON);
    case JSON:
        return begin_arguments(p, ARGUMENTS);
    case AFTER:
        return mistral_after(p);
    case ARGUMENTS:
        if (p->depth)
            return object(p);
        step = arguments(p);
        if (step == QN_STEP_ON)
            qn_tool_end(p);
        return qn_tool_go(p, step, AFTER);
    default:
        return object(p);
    }
}

/* ---- harmony: a message to a function ---- */

static qn_step harmony_head(qn_tool_parser *p)
{
    size_t before = p->pos;
    qn_step step = qn_tool_until(p, &p->value, "<|message|>", MOST_HEAD);
    if (step != QN_STEP_ON)
        return step;
    qn_str head = qn_buf_str(&p->value), to = QN_STR("to=functions.");
    const char *at = qn_find(head, to), *end = head.data + head.size;
    qn_buf_clear(&p->name);
    if (at)
        for (at += to.size; at < end && is_name(*at); at++)
            qn_buf_add_char(&p->name, *at);
    if (at && qn_tool_known(p))
        return qn_tool_go(p, step, JSON);
    p->pos = before;
    return QN_STEP_FAULT;
}

qn_step qn_step_harmony(qn_tool_parser *p)
{
    qn_step step;
    switch (p->state) {
    case JSON:
        return begin_arguments(p, ARGUMENTS);
    case ARGUMENTS:
        step = arguments(p);
        if (step == QN_STEP_ON)
            qn_tool_end(p);
        return qn_tool_go(p, step, END);
    case END:
        step = qn_tool_word_after_space(p, "<|call|>");
        return step == QN_STEP_MORE ? step : QN_STEP_OVER;
    default:
        return harmony_head(p);
    }
}
