/* read.c: taking parts of a text that is not all there yet. */
#include "base/utf8.h"
#include "parser.h"
#include "text/find.h"

qn_str qn_tool_left(const qn_tool_parser *p)
{
    if (p->pos >= p->limit)
        return (qn_str){"", 0};
    return (qn_str){p->text.data + p->pos, p->limit - p->pos};
}

static size_t spaces(qn_str text)
{
    size_t n = 0;
    while (n < text.size && qn_tool_is_space(text.data[n]))
        n++;
    return n;
}

void qn_tool_space(qn_tool_parser *p)
{
    p->pos += spaces(qn_tool_left(p));
}

/* Whether `text` begins with `word`, MORE: or is a beginning of it. */
static qn_step begins(qn_str text, const char *word)
{
    size_t size = strlen(word);
    if (memcmp(text.data, word, size < text.size ? size : text.size) != 0)
        return QN_STEP_FAULT;
    return text.size < size ? QN_STEP_MORE : QN_STEP_ON;
}

qn_step qn_tool_word(qn_tool_parser *p, const char *word)
{
    qn_step step = begins(qn_tool_left(p), word);
    if (step == QN_STEP_ON)
        p->pos += strlen(word);
    return step;
}

qn_step qn_tool_word_after_space(qn_tool_parser *p, const char *word)
{
    qn_str left = qn_tool_left(p);
    size_t n = spaces(left);
    qn_step step = begins((qn_str){left.data + n, left.size - n}, word);
    if (step == QN_STEP_ON)
        p->pos += n + strlen(word);
    return step;
}

qn_step qn_tool_until(qn_tool_parser *p, qn_buf *out, const char *word,
                      size_t most)
{
    qn_str left = qn_tool_left(p);
    size_t from = p->seen < left.size ? p->seen : left.size;
    const char *end =
        qn_find((qn_str){left.data + from, left.size - from}, qn_str_of(word));
    size_t tail = strlen(word) - 1; /* that may be the word's beginning */
    size_t size = end                ? (size_t)(end - left.data)
                  : left.size > tail ? left.size - tail
                                     : 0;
    if (size > most)
        return QN_STEP_FAULT;
    if (!end) {
        p->seen = size;
        return QN_STEP_MORE;
    }
    qn_buf_add(out, left.data, size);
    p->pos += size + strlen(word);
    p->seen = 0;
    return QN_STEP_ON;
}

qn_step qn_tool_scan(qn_tool_parser *p, qn_buf *out)
{
    size_t used;
    qn_str left = qn_tool_left(p);
    if (!left.size)
        return QN_STEP_MORE;
    qn_scanned what = qn_scan_feed(&p->scan, out, left, &used);
    p->pos += used;
    if (what == QN_SCAN_BAD)
        return QN_STEP_FAULT;
    return what == QN_SCAN_DONE ? QN_STEP_ON : QN_STEP_MORE;
}

/* Bytes at the end of a text that may belong to what ends it. */
static size_t unsure(qn_str text, const char *word, bool trim)
{
    size_t size = strlen(word) + trim;
    size_t most = size - 1 < text.size ? size - 1 : text.size;
    for (size_t n = most; n > 0; n--) {
        const char *tail = text.data + text.size - n;
        bool line = trim && *tail == '\n';
        if (!memcmp(tail + line, word, n - line) && n - line < strlen(word))
            return n;
    }
    return 0;
}

qn_step qn_tool_string(qn_tool_parser *p, const char *word, bool trim)
{
    qn_str left = qn_tool_left(p);
    const char *end = qn_find(left, qn_str_of(word));
    size_t size =
        end ? (size_t)(end - left.data) : left.size - unsure(left, word, trim);
    size_t said = size;
    if (end && trim && said && left.data[said - 1] == '\n')
        said--;
    qn_tool_escape(&p->arguments, (qn_str){left.data, said});
    p->pos += size + (end ? strlen(word) : 0);
    return end ? QN_STEP_ON : QN_STEP_MORE;
}

qn_step qn_tool_unquote(qn_tool_parser *p, qn_buf *buf)
{
    qn_json_reader *r =
        qn_json_reader_new(qn_buf_str(buf), QN_JSON_ALLOW_LONE_SURROGATES, 1);
    if (!r) {
        p->status = p->status ? p->status : QN_E_NOMEM;
        return QN_STEP_FAULT;
    }
    qn_buf text = QN_BUF_INIT;
    bool good = qn_json_next(r) == QN_JSON_STRING;
    if (good)
        qn_buf_add_str(&text, qn_json_text(r));
    qn_json_reader_free(r);
    qn_buf_free(buf);
    *buf = text;
    return good ? QN_STEP_ON : QN_STEP_FAULT;
}

void qn_tool_escape(qn_buf *out, qn_str text)
{
    size_t from = out->size;
    if (!text.size)
        return;
    qn_json_quote(out, text);
    if (out->failed)
        return;
    /* Without the quotes. */
    memmove(out->data + from, out->data + from + 1, out->size - from - 2);
    qn_buf_truncate(out, out->size - 2);
}
