/* reasoning.c: see reasoning.h. */
#include "reasoning.h"

#include "base/buf.h"
#include "text/find.h"

static int32_t find(const qn_tokenizer *t, const char *text)
{
    return qn_tokenizer_find(t, qn_str_of(text));
}

void qn_markers_find(qn_markers *out, const qn_tokenizer *t)
{
    static const struct {
        qn_marker_kind kind;
        const char *open, *close, *message, *start;
    } rows[] = {
        {QN_MARKERS_HARMONY, "<|channel|>", "<|end|>", "<|message|>",
         "<|start|>"},
        {QN_MARKERS_CHANNEL, "<|channel>", "<channel|>", NULL, NULL},
        {QN_MARKERS_THINK, "<think>", "</think>", NULL, NULL},
    };
    *out = (qn_markers){.kind = QN_MARKERS_NONE};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        qn_markers m = {.kind = rows[i].kind,
                        .open = find(t, rows[i].open),
                        .close = find(t, rows[i].close),
                        .message = -1,
                        .start = -1};
        if (rows[i].message) {
            m.message = find(t, rows[i].message);
            m.start = find(t, rows[i].start);
        }
        if (m.open < 0 || m.close < 0 ||
            (rows[i].message && (m.message < 0 || m.start < 0)))
            continue;
        *out = m;
        return;
    }
}

/* The last mark decides, if no other special token comes behind it: what a
 * message spells is followed by the end of its turn. */
static bool ends_open(const qn_router *r, const int32_t *prompt, size_t count)
{
    for (size_t i = count; i-- > 0;) {
        if (prompt[i] == r->markers->close)
            return false;
        if (prompt[i] == r->markers->open)
            return true;
        if (qn_tokenizer_is_special(r->tokenizer, prompt[i]))
            return false;
    }
    return false;
}

void qn_router_init(qn_router *r, const qn_markers *markers,
                    const qn_tokenizer *tokenizer, const int32_t *prompt,
                    size_t count)
{
    *r = (qn_router){.markers = markers, .tokenizer = tokenizer};
    if (markers->kind == QN_MARKERS_THINK && ends_open(r, prompt, count))
        r->span = QN_SPAN_REASONING;
    if (markers->kind == QN_MARKERS_HARMONY && count > 1 &&
        prompt[count - 2] == markers->start)
        r->span = QN_SPAN_HEADER; /* "<|start|>assistant" */
}

void qn_router_clear(qn_router *r)
{
    qn_buf_free(&r->header);
}

static bool header_begins(const qn_router *r, const char *name)
{
    qn_str text = qn_buf_str(&r->header);
    size_t n = strlen(name);
    return text.size >= r->channel + n &&
           !memcmp(text.data + r->channel, name, n);
}

static bool header_is_of_call(const qn_router *r)
{
    return r->calls && qn_find(qn_buf_str(&r->header), QN_STR("to=functions."));
}

static qn_status take_think(qn_router *r, int32_t id, bool *silent)
{
    if (id == r->markers->open)
        r->span = QN_SPAN_REASONING;
    else if (id == r->markers->close)
        r->span = QN_SPAN_ANSWER;
    else
        *silent = false;
    return QN_OK;
}

/* The name ends with its line. */
static qn_status take_channel(qn_router *r, int32_t id, bool *silent)
{
    if (id == r->markers->open) {
        qn_buf_clear(&r->header);
        r->span = QN_SPAN_HEADER;
    } else if (id == r->markers->close) {
        r->span = QN_SPAN_ANSWER;
    } else if (r->span != QN_SPAN_HEADER) {
        *silent = false;
    } else {
        qn_status status =
            qn_tokenizer_token_bytes(r->tokenizer, &r->header, id);
        qn_str text = qn_buf_str(&r->header);
        if (status || !memchr(text.data, '\n', text.size))
            return status;
        r->span =
            header_begins(r, "thought") ? QN_SPAN_REASONING : QN_SPAN_ANSWER;
    }
    return QN_OK;
}

/* <|start|>ROLE<|channel|>NAME<|message|>TEXT<|end|>; the role may say to whom
 * the message is, and so may the channel. */
static qn_status take_harmony(qn_router *r, int32_t id, bool *silent)
{
    const qn_markers *m = r->markers;
    if (id == m->open || id == m->start || id == m->close) {
        if (id != m->open || r->span != QN_SPAN_HEADER)
            qn_buf_clear(&r->header);
        else if (r->header.size)
            qn_buf_add_text(&r->header, "<|channel|>"); /* behind the role */
        r->channel = r->header.size;
        r->span = QN_SPAN_HEADER;
    } else if (id == m->message) {
        r->addressed = header_is_of_call(r);
        r->span = !r->addressed && header_begins(r, "analysis")
                      ? QN_SPAN_REASONING
                      : QN_SPAN_ANSWER;
    } else if (r->span == QN_SPAN_HEADER) {
        return qn_tokenizer_token_bytes(r->tokenizer, &r->header, id);
    } else {
        *silent = false;
    }
    return qn_buf_status(&r->header);
}

qn_status qn_router_take(qn_router *r, int32_t id, bool *silent)
{
    *silent = true;
    switch (r->markers->kind) {
    case QN_MARKERS_THINK:
        return take_think(r, id, silent);
    case QN_MARKERS_CHANNEL:
        return take_channel(r, id, silent);
    case QN_MARKERS_HARMONY:
        return take_harmony(r, id, silent);
    case QN_MARKERS_NONE:
        break;
    }
    *silent = false;
    return QN_OK;
}
