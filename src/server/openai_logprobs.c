/* openai_logprobs.c: log probabilities in the shapes that clients know. */
#include "openai.h"

#include "base/utf8.h"

#include <math.h>

/* Lists of the legacy shapes; the last one differs. */
enum { TOKENS, LOGPROBS, TOPS, OFFSETS, CONTENT = OFFSETS };

void qn_logprobs_free(qn_logprobs *l)
{
    for (size_t i = 0; i < 4; i++)
        qn_buf_free(&l->parts[i]);
}

/* What can't be is -9999, as in OpenAI's API; rounding may leave a certain
 * token a hair above 0. */
static void write_logprob(qn_buf *out, float logprob)
{
    qn_json_writer w;
    qn_json_write_begin(&w, out);
    if (isnan(logprob)) /* nothing came before it */
        qn_json_write_null(&w);
    else if (logprob > -9999)
        qn_json_write_double(&w, fmin((double)logprob, 0));
    else
        qn_json_write_int(&w, -9999);
}

static void write_bytes(qn_buf *out, const char *bytes, size_t count)
{
    qn_buf_add_char(out, '[');
    for (size_t i = 0; i < count; i++)
        qn_buf_printf(out, "%s%u", i ? "," : "",
                      (unsigned)(unsigned char)bytes[i]);
    qn_buf_add_char(out, ']');
}

/* ---- chat ---- */

/* The front of {"token", "logprob", "bytes"}: the caller closes it. */
static void chat_front(qn_buf *out, const char *bytes, size_t count,
                       float logprob)
{
    qn_buf_add_text(out, "{\"token\":");
    qn_json_quote(out, (qn_str){bytes, count});
    qn_buf_add_text(out, ",\"logprob\":");
    write_logprob(out, logprob);
    qn_buf_add_text(out, ",\"bytes\":");
    write_bytes(out, bytes, count);
}

static void add_chat(qn_buf *out, const quern_token *t)
{
    chat_front(out, t->bytes, t->byte_count, t->logprob);
    qn_buf_add_text(out, ",\"top_logprobs\":[");
    for (int i = 0; i < t->top_count; i++) {
        const quern_top_logprob *top = &t->top[i];
        if (i)
            qn_buf_add_char(out, ',');
        chat_front(out, top->bytes, top->byte_count, top->logprob);
        qn_buf_add_char(out, '}');
    }
    qn_buf_add_text(out, "]}");
}

/* ---- completions ---- */

int64_t qn_characters(qn_str text)
{
    int64_t count = 0;
    /* A character counts with its first byte. */
    for (size_t i = 0; i < text.size; i++)
        count += ((unsigned char)text.data[i] & 0xc0) != 0x80;
    return count;
}

/* A part of a character is spelled "bytes:\xe2\x82", as OpenAI does, so that
 * different tokens are different keys. */
static void write_legacy_text(qn_buf *out, const char *bytes, size_t count)
{
    qn_str text = {bytes, count};
    if (qn_utf8_valid(text, NULL)) {
        qn_json_quote(out, text);
        return;
    }
    qn_buf_add_text(out, "\"bytes:");
    for (size_t i = 0; i < count; i++)
        qn_buf_printf(out, "\\\\x%02x", (unsigned)(unsigned char)bytes[i]);
    qn_buf_add_char(out, '"');
}

/* Several ids may have the same bytes: the likeliest, which is first, has the
 * key. */
static bool is_repeated(const quern_token *t, int i)
{
    for (int j = 0; j < i; j++)
        if (t->top[j].byte_count == t->top[i].byte_count &&
            !memcmp(t->top[j].bytes, t->top[i].bytes, t->top[i].byte_count))
            return true;
    return false;
}

static void write_tops(qn_buf *out, const quern_token *t, bool ids)
{
    bool first = true;
    if (!t->top_count) { /* none asked for, or nothing before the token */
        bool none = ids || isnan(t->logprob);
        qn_buf_add_text(out, none ? "null" : "{}");
        return;
    }
    for (int i = 0; i < t->top_count; i++) {
        if (!ids && is_repeated(t, i))
            continue;
        qn_buf_add_char(out, first ? '{' : ',');
        first = false;
        if (ids)
            qn_buf_printf(out, "\"%d\"", (int)t->top[i].id);
        else
            write_legacy_text(out, t->top[i].bytes, t->top[i].byte_count);
        qn_buf_add_char(out, ':');
        write_logprob(out, t->top[i].logprob);
    }
    qn_buf_add_char(out, '}');
}

/* {"id", "token", "logprob"}: the caller closes it. */
static void mlx_front(qn_buf *out, int32_t id, const char *bytes, size_t count,
                      float logprob)
{
    qn_buf_printf(out, "{\"id\":%d,\"token\":", (int)id);
    qn_json_quote(out, (qn_str){bytes, count});
    qn_buf_add_text(out, ",\"logprob\":");
    write_logprob(out, logprob);
}

/* An element of the list that newer releases of mlx-lm have. */
static void add_mlx(qn_buf *out, const quern_token *t)
{
    mlx_front(out, t->id, t->bytes, t->byte_count, t->logprob);
    qn_buf_add_text(out, ",\"top_logprobs\":[");
    for (int i = 0; i < t->top_count; i++) {
        const quern_top_logprob *top = &t->top[i];
        if (i)
            qn_buf_add_char(out, ',');
        mlx_front(out, top->id, top->bytes, top->byte_count, top->logprob);
        qn_buf_add_char(out, '}');
    }
    qn_buf_add_text(out, "]}");
}

static void add_legacy(qn_logprobs *l, const quern_token *t)
{
    bool ids = l->style == QN_LOGPROBS_MLX;
    for (size_t i = 0; i < 4 && l->count; i++)
        qn_buf_add_char(&l->parts[i], ',');
    if (ids)
        qn_buf_printf(&l->parts[TOKENS], "%d", (int)t->id);
    else
        write_legacy_text(&l->parts[TOKENS], t->bytes, t->byte_count);
    write_logprob(&l->parts[LOGPROBS], t->logprob);
    write_tops(&l->parts[TOPS], t, ids);
    if (ids)
        add_mlx(&l->parts[CONTENT], t);
    else
        qn_buf_printf(&l->parts[OFFSETS], "%lld",
                      (long long)(l->offset > 0 ? l->offset : 0));
    l->offset += qn_characters((qn_str){t->bytes, t->byte_count});
}

/* ---- all ---- */

void qn_logprobs_add(qn_logprobs *l, const quern_token *tokens, size_t count)
{
    for (size_t i = 0; i < count && l->style != QN_LOGPROBS_NONE; i++) {
        if (l->style != QN_LOGPROBS_CHAT) {
            add_legacy(l, &tokens[i]);
        } else {
            if (l->count)
                qn_buf_add_char(&l->parts[0], ',');
            add_chat(&l->parts[0], &tokens[i]);
        }
        l->count++;
    }
}

/* The prompt's text may lack what its first tokens have, such as the token that
 * begins a text: it is the end that stands at the offset. */
void qn_logprobs_add_prompt(qn_logprobs *l, const quern_token *tokens,
                            size_t count)
{
    for (size_t i = 0; i < count; i++)
        l->offset -=
            qn_characters((qn_str){tokens[i].bytes, tokens[i].byte_count});
    qn_logprobs_add(l, tokens, count);
}

void qn_logprobs_write(qn_logprobs *l, qn_buf *out)
{
    static const char *const names[][4] = {
        [QN_LOGPROBS_CHAT] = {"content"},
        [QN_LOGPROBS_LEGACY] = {"tokens", "token_logprobs", "top_logprobs",
                                "text_offset"},
        [QN_LOGPROBS_MLX] = {"tokens", "token_logprobs", "top_logprobs",
                             "content"},
    };
    if (!l->count) {
        qn_buf_add_text(out, "null");
        return;
    }
    for (size_t i = 0; i < 4 && names[l->style][i]; i++) {
        qn_buf_printf(out, "%s\"%s\":[", i ? "," : "{", names[l->style][i]);
        qn_buf_add_str(out, qn_buf_str(&l->parts[i]));
        qn_buf_add_char(out, ']');
        out->failed = out->failed || l->parts[i].failed;
    }
    qn_buf_add_char(out, '}');
    for (size_t i = 0; i < 4; i++)
        qn_buf_clear(&l->parts[i]);
    l->count = 0;
}
