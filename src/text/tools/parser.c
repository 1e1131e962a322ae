/* parser.c: text into pieces: what is told when, and what comes back. */
#include "parser.h"

#include "base/alloc.h"
#include "base/utf8.h"
#include "text/find.h"

qn_status qn_tool_parser_new(qn_tool_parser **out, const qn_tool_format *format,
                             const qn_tools *tools, qn_tool_take take,
                             void *data)
{
    qn_tool_parser *p = qn_calloc(1, sizeof *p);
    if (!p)
        return QN_E_NOMEM;
    p->format = format;
    p->tools = tools;
    p->take = take;
    p->data = data;
    *out = p;
    return QN_OK;
}

void qn_tool_parser_free(qn_tool_parser *p)
{
    if (!p)
        return;
    qn_buf_free(&p->text);
    qn_buf_free(&p->space);
    qn_buf_free(&p->key);
    qn_buf_free(&p->value);
    qn_buf_free(&p->name);
    qn_buf_free(&p->arguments);
    qn_free(p);
}

size_t qn_tool_parser_pending(const qn_tool_parser *p)
{
    return p->text.size - p->pos;
}

size_t qn_tool_parser_failures(const qn_tool_parser *p)
{
    return p->failures;
}

/* ---- telling ---- */

static void tell(qn_tool_parser *p, qn_tool_piece piece, qn_str text)
{
    if (!p->status)
        p->status = p->take(p->data, piece, text);
}

/* White space alone between calls is none of the answer. */
static void tell_text(qn_tool_parser *p, qn_str text)
{
    size_t n = 0;
    while (!p->said && n < text.size && qn_tool_is_space(text.data[n]))
        n++;
    if (n == text.size && !p->said) {
        qn_buf_add_str(&p->space, text);
        return;
    }
    if (!text.size)
        return;
    p->said = p->anything = true;
    if (!p->space.size) {
        tell(p, QN_TOOL_TEXT, text);
        return;
    }
    qn_buf_add_str(&p->space, text);
    if (!p->space.failed)
        tell(p, QN_TOOL_TEXT, qn_buf_str(&p->space));
    qn_buf_clear(&p->space);
}

static void tell_arguments(qn_tool_parser *p)
{
    if (!p->announced || !p->arguments.size)
        return;
    tell(p, QN_TOOL_ARGUMENTS, qn_buf_str(&p->arguments));
    qn_buf_clear(&p->arguments);
}

/* ---- for the formats ---- */

void qn_tool_settle(qn_tool_parser *p)
{
    p->held = p->pos;
}

qn_step qn_tool_go(qn_tool_parser *p, qn_step step, int state)
{
    if (step == QN_STEP_ON)
        p->state = state;
    return step;
}

void qn_tool_try(qn_tool_parser *p)
{
    qn_tool_settle(p);
    p->trying = true;
    p->doubt = false;
    p->scan = (qn_scan){0};
    p->tool = NULL;
    p->has_arguments = false;
    p->seen = 0;
    p->depth = 0;
    qn_buf_clear(&p->name);
    qn_buf_clear(&p->key);
    qn_buf_clear(&p->value);
    qn_buf_clear(&p->arguments);
}

qn_step qn_tool_try_word(qn_tool_parser *p, const char *word)
{
    size_t before = p->pos;
    qn_step step = qn_tool_word_after_space(p, word);
    if (step == QN_STEP_ON) {
        size_t behind = p->pos;
        p->pos = before;
        qn_tool_try(p);
        p->pos = behind;
    }
    return step;
}

bool qn_tool_known(qn_tool_parser *p)
{
    qn_str name = qn_buf_str(&p->name);
    while (name.size && qn_tool_is_space(name.data[0]))
        name = (qn_str){name.data + 1, name.size - 1};
    while (name.size && qn_tool_is_space(name.data[name.size - 1]))
        name.size--;
    if (name.size > 1 && qn_tool_in("\"'", name.data[0]) &&
        name.data[name.size - 1] == name.data[0])
        name = (qn_str){name.data + 1, name.size - 2};
    p->tool = NULL;
    for (size_t i = 0; i < p->tools->count && !p->tool; i++)
        if (qn_str_eq(p->tools->items[i].name, name))
            p->tool = &p->tools->items[i];
    return p->tool != NULL;
}

void qn_tool_announce(qn_tool_parser *p)
{
    if (p->announced)
        return;
    p->announced = p->called = p->anything = true;
    p->trying = false;
    p->said = false;
    qn_buf_clear(&p->space);
    tell(p, QN_TOOL_CALL, p->tool->name);
}

void qn_tool_end(qn_tool_parser *p)
{
    qn_tool_announce(p);
    if (!p->has_arguments)
        qn_buf_add_text(&p->arguments, "{}");
    tell_arguments(p);
    tell(p, QN_TOOL_END, (qn_str){"", 0});
    p->announced = false;
    qn_tool_settle(p);
}

void qn_tool_add_key(qn_tool_parser *p, qn_str key)
{
    qn_buf *out = &p->arguments;
    qn_buf_add_text(out, p->has_arguments ? ", " : "{");
    p->has_arguments = true;
    qn_json_quote(out, key);
    qn_buf_add_text(out, ": ");
}

/* ---- the steps ---- */

static void begin_call(qn_tool_parser *p, size_t at, int open)
{
    p->inside = true;
    p->open = open;
    p->state = 0;
    p->pos = at;
    qn_tool_try(p);
    p->pos += open < 0 ? 0 : strlen(p->format->opens[open]);
}

/* Bytes at the end that may be the beginning of a mark. */
static size_t unsure(const qn_tool_parser *p, qn_str text)
{
    size_t found = 0;
    for (int i = 0; i < QN_TOOL_OPENS && p->format->opens[i]; i++) {
        const char *open = p->format->opens[i];
        size_t size = strlen(open);
        size_t n = size - 1 < text.size ? size - 1 : text.size;
        while (n > found && memcmp(text.data + text.size - n, open, n) != 0)
            n--;
        found = n > found ? n : found;
    }
    return found;
}

/* A message that begins with an object may be a call. */
static bool begins_message(qn_tool_parser *p)
{
    qn_str left = qn_tool_left(p);
    size_t n = 0;
    if (!p->format->whole_message || p->anything)
        return false;
    while (n < left.size && qn_tool_is_space(left.data[n]))
        n++;
    if (n == left.size || left.data[n] != '{')
        return false;
    tell_text(p, (qn_str){left.data, n});
    begin_call(p, p->pos + n, -1);
    return true;
}

/* Tells text up to where a call may begin; false: there is none (yet). */
static bool find_call(qn_tool_parser *p)
{
    qn_str left = qn_tool_left(p);
    const char *first = NULL;
    int which = 0;
    if (begins_message(p))
        return true;
    for (int i = 0; i < QN_TOOL_OPENS && p->format->opens[i]; i++) {
        const char *at = qn_find(left, qn_str_of(p->format->opens[i]));
        if (at && (!first || at < first)) {
            first = at;
            which = i;
        }
    }
    size_t size = left.size - (first || p->last ? 0 : unsure(p, left));
    if (first)
        size = (size_t)(first - left.data);
    p->pos += size; /* before it is told: see qn_tool_parser_pending */
    tell_text(p, (qn_str){left.data, size});
    if (first)
        begin_call(p, p->pos, which);
    return first != NULL;
}

/* It was no call, or no whole one; `fault`: which is the model's. */
static void give_up(qn_tool_parser *p, bool fault)
{
    p->failures += fault && (p->trying || p->announced);
    if (p->announced) {
        tell_arguments(p);
        tell(p, QN_TOOL_BROKEN, (qn_str){"", 0});
    } else {
        tell_text(p, (qn_str){p->text.data + p->held, p->pos - p->held});
    }
    p->inside = p->trying = p->announced = p->doubt = false;
    qn_buf_clear(&p->arguments);
}

/* The text ends inside of a call.  Cut off, what can be part of its arguments
 * is; half a mark behind a call is none of the answer. */
static void end_inside(qn_tool_parser *p, bool cut)
{
    qn_str rest = qn_tool_left(p);
    qn_scan scan = {0};
    qn_buf value = QN_BUF_INIT;
    size_t used = 0;
    bool between = !p->announced && !p->trying && !p->doubt;
    if (p->announced && cut) {
        if (qn_scan_feed(&scan, &value, rest, &used) != QN_SCAN_BAD &&
            used == rest.size)
            qn_buf_add_str(&p->arguments, qn_buf_str(&value));
        p->arguments.failed = p->arguments.failed || value.failed;
        qn_buf_free(&value);
    }
    if (!p->announced || cut)
        p->pos = p->limit;
    if (between)
        qn_tool_settle(p);
    give_up(p, !cut);
}

static bool any_failed(const qn_tool_parser *p)
{
    return p->text.failed || p->space.failed || p->key.failed ||
           p->value.failed || p->name.failed || p->arguments.failed;
}

static void run(qn_tool_parser *p)
{
    while (!p->status && !any_failed(p)) {
        if (!p->inside && !find_call(p))
            return;
        switch (p->format->step(p)) {
        case QN_STEP_ON:
            break;
        case QN_STEP_MORE:
            return;
        case QN_STEP_FAULT:
            give_up(p, true);
            break;
        case QN_STEP_OVER:
            p->inside = p->trying = false;
            break;
        }
    }
}

/* Forgets what was told, now and then. */
static void forget(qn_tool_parser *p)
{
    enum { WORTH = 4096 };
    size_t keep = p->inside && !p->announced ? p->held : p->pos;
    if (keep < p->text.size && keep < WORTH)
        return;
    if (keep)
        memmove(p->text.data, p->text.data + keep, p->text.size - keep);
    qn_buf_truncate(&p->text, p->text.size - keep);
    p->limit -= keep;
    p->pos -= keep;
    p->held -= p->held < keep ? p->held : keep;
}

static qn_status status_of(const qn_tool_parser *p)
{
    if (p->status)
        return p->status;
    return any_failed(p) ? QN_E_NOMEM : QN_OK;
}

qn_status qn_tool_parser_feed(qn_tool_parser *p, qn_str text)
{
    qn_buf_add_str(&p->text, text);
    if (any_failed(p))
        return status_of(p);
    p->limit = p->text.size - qn_utf8_incomplete_tail(qn_buf_str(&p->text));
    run(p);
    tell_arguments(p);
    forget(p);
    return status_of(p);
}

qn_status qn_tool_parser_finish(qn_tool_parser *p, bool cut)
{
    p->last = true;
    p->limit = p->text.size;
    run(p);
    /* What comes behind a fault may be a call again. */
    while (p->inside && !status_of(p)) {
        end_inside(p, cut);
        run(p);
    }
    if (p->space.size && !p->called && !p->status)
        tell(p, QN_TOOL_TEXT, qn_buf_str(&p->space));
    qn_buf_clear(&p->space);
    qn_buf_clear(&p->text);
    p->limit = p->pos = p->held = 0;
    p->last = p->said = false;
    return status_of(p);
}
