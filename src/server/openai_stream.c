/* openai_stream.c: streamed answers of chat completions and completions
 * (server specification, section 5).
 *
 * Every chunk begins with the same members, which are made once.  A chunk has
 * one choice, and a choice's log probabilities wait for the chunk whose text
 * they cover: the runtime gives tokens with their text, and those without any
 * go with the next. */
#include "openai.h"
#include "tools.h"

#include "base/alloc.h"

#include <math.h>

typedef struct choice {
    qn_logprobs logprobs;
    int64_t cached; /* prompt tokens, for return_progress */
    bool started;
} choice;

typedef struct state {
    bool chat;
    qn_buf head; /* up to the list of choices */
    qn_openai_usage usage;
    choice *choices;
} state;

/* ---- chunks ---- */

static void write_head(const qn_api_stream *s, qn_buf *out, bool chat,
                       const char *object)
{
    qn_json_writer w;
    qn_json_write_begin(&w, out);
    qn_json_write_object(&w);
    qn_openai_write_head(&w, s->head, chat ? "chatcmpl-" : "cmpl-", object);
    qn_json_write_key(&w, "choices");
    qn_buf_add_char(out, '[');
}

static void begin_chunk(const state *st, qn_buf *out)
{
    qn_buf_add_text(out, "data: ");
    qn_buf_add_str(out, qn_buf_str(&st->head));
}

static void end_chunk(const qn_api_stream *s, qn_buf *out)
{
    qn_buf_add_text(out,
                    s->call->include_usage ? ",\"usage\":null}\n\n" : "}\n\n");
}

/* The front of a chunk of one choice; end_choice closes it. */
static void begin_choice(const state *st, size_t index, qn_buf *out)
{
    begin_chunk(st, out);
    qn_buf_printf(out, "{\"index\":%zu,", index);
}

static void end_choice(qn_api_stream *s, size_t index, const char *finish,
                       qn_buf *out)
{
    state *st = s->state;
    qn_buf_add_text(out, ",\"logprobs\":");
    qn_logprobs_write(&st->choices[index].logprobs, out);
    if (finish)
        qn_buf_printf(out, ",\"finish_reason\":\"%s\"}]", finish);
    else
        qn_buf_add_text(out, ",\"finish_reason\":null}]");
    end_chunk(s, out);
}

/* ---- the steps ---- */

static void begin(qn_api_stream *s, bool chat)
{
    state *st = qn_calloc(1, sizeof *st);
    choice *choices =
        st ? qn_calloc(s->call->count, sizeof *st->choices) : NULL;
    if (!choices) {
        qn_free(st);
        return;
    }
    st->chat = chat;
    st->choices = choices;
    for (size_t i = 0; i < s->call->count; i++) {
        choices[i].logprobs.style = qn_logprob_style_of(s->call, chat);
        if (!chat)
            choices[i].logprobs.offset =
                qn_characters(qn_completions_echo(s->call, i));
    }
    write_head(s, &st->head, chat,
               chat ? "chat.completion.chunk" : "text_completion");
    s->state = st;
}

/* Memory that is missing shows in what is written. */
static state *state_of(qn_api_stream *s, qn_buf *out)
{
    state *st = s->state;
    if (!st || st->head.failed)
        out->failed = true;
    return st;
}

void qn_chat_begin(qn_api_stream *s, qn_buf *out)
{
    begin(s, true);
    state_of(s, out);
}

void qn_completions_begin(qn_api_stream *s, qn_buf *out)
{
    begin(s, false);
    state_of(s, out);
}

static void write_progress(qn_api_stream *s, size_t index,
                           const quern_event *event, double elapsed_ms,
                           qn_buf *out)
{
    const state *st = s->state;
    if (!s->call->return_progress || index % (size_t)s->call->n)
        return;
    qn_json_writer w;
    begin_chunk(st, out);
    qn_buf_add_text(out, "],\"prompt_progress\":");
    qn_json_write_begin(&w, out);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "total");
    qn_json_write_int(&w, event->total);
    qn_json_write_key(&w, "cached");
    qn_json_write_int(&w, st->choices[index].cached);
    qn_json_write_key(&w, "processed");
    qn_json_write_int(&w, event->done);
    qn_json_write_key(&w, "time_ms");
    qn_json_write_double(&w, round(elapsed_ms * 1e3) / 1e3);
    qn_json_write_object_end(&w);
    end_chunk(s, out);
}

static void write_start(qn_api_stream *s, size_t index, qn_buf *out)
{
    state *st = s->state;
    if (st->choices[index].started)
        return;
    st->choices[index].started = true;
    qn_str echo = st->chat ? (qn_str){0} : qn_completions_echo(s->call, index);
    if (!st->chat && !echo.size)
        return;
    begin_choice(st, index, out);
    if (st->chat) {
        qn_buf_add_text(out, "\"delta\":{\"role\":\"assistant\",\"content\":"
                             "\"\"}");
    } else {
        qn_buf_add_text(out, "\"text\":");
        qn_json_quote(out, echo);
    }
    end_choice(s, index, NULL, out);
}

/* All answers to a prompt start before the first one goes on. */
static void write_starts(qn_api_stream *s, size_t index, qn_buf *out)
{
    size_t n = (size_t)s->call->n, first = index - index % n;
    for (size_t i = first; i < first + n; i++)
        write_start(s, i, out);
}

static void write_text(qn_api_stream *s, size_t index, const quern_event *event,
                       qn_buf *out)
{
    state *st = s->state;
    bool thought = event->type == QUERN_EVENT_REASONING;
    const char *thoughts = qn_reasoning_name(s->call);
    const qn_openai *asked = s->call->extra;
    if (!asked->max_tokens)
        return;
    qn_logprobs_add(&st->choices[index].logprobs, event->tokens,
                    event->token_count);
    if (!event->size)
        return;
    begin_choice(st, index, out);
    if (st->chat)
        qn_buf_printf(out,
                      "\"delta\":{\"%s\":", thought ? thoughts : "content");
    else if (thought)
        qn_buf_printf(out, "\"text\":\"\",\"%s\":", thoughts);
    else
        qn_buf_add_text(out, "\"text\":");
    qn_json_quote(out, (qn_str){event->text, event->size});
    if (st->chat)
        qn_buf_add_char(out, '}');
    end_choice(s, index, NULL, out);
}

/* A call's beginning, or more of its arguments. */
static void write_call(qn_api_stream *s, size_t index, const quern_event *event,
                       qn_buf *out)
{
    state *st = s->state;
    bool begins = event->type == QUERN_EVENT_CALL;
    qn_json_writer w;
    qn_logprobs_add(&st->choices[index].logprobs, event->tokens,
                    event->token_count);
    if (event->type == QUERN_EVENT_CALL_END || (!event->size && !begins))
        return;
    begin_choice(st, index, out);
    qn_buf_add_text(out, "\"delta\":{\"tool_calls\":[");
    qn_json_write_begin(&w, out);
    qn_json_write_object(&w);
    qn_json_pair_int(&w, "index", (int64_t)event->call);
    if (begins) {
        char id[QN_API_ID_SIZE];
        qn_call_id(id, s->head, "call_", index, event->call);
        qn_json_pair_text(&w, "id", id);
        qn_json_pair_text(&w, "type", "function");
    }
    qn_json_write_key(&w, "function");
    qn_json_write_object(&w);
    if (begins)
        qn_json_pair_text(&w, "name", event->text);
    qn_json_write_key(&w, "arguments");
    qn_json_write_str(&w, begins ? (qn_str){"", 0}
                                 : (qn_str){event->text, event->size});
    qn_json_write_object_end(&w);
    qn_json_write_object_end(&w);
    qn_buf_add_text(out, "]}");
    end_choice(s, index, NULL, out);
}

static void write_done(qn_api_stream *s, size_t index,
                       const quern_result *result, qn_buf *out)
{
    state *st = s->state;
    quern_result shown = qn_completions_shown(s->call, result);
    qn_openai_count(&st->usage, &shown, index, s->call->n);
    begin_choice(st, index, out);
    qn_buf_add_text(out, st->chat ? "\"delta\":{}" : "\"text\":\"\"");
    end_choice(s, index, quern_finish_name(shown.finish), out);
}

void qn_openai_event(qn_api_stream *s, size_t index, const quern_event *event,
                     double elapsed_ms, qn_buf *out)
{
    state *st = state_of(s, out);
    if (!st)
        return;
    switch (event->type) {
    case QUERN_EVENT_START:
        st->choices[index].cached = event->done;
        write_starts(s, index, out);
        write_progress(s, index, event, elapsed_ms, out);
        break;
    case QUERN_EVENT_PROMPT:
        write_progress(s, index, event, elapsed_ms, out);
        break;
    case QUERN_EVENT_TEXT:
    case QUERN_EVENT_REASONING:
        write_text(s, index, event, out);
        break;
    case QUERN_EVENT_CALL:
    case QUERN_EVENT_ARGUMENTS:
    case QUERN_EVENT_CALL_END:
        write_call(s, index, event, out);
        break;
    case QUERN_EVENT_DONE:
        write_done(s, index, event->result, out);
        break;
    }
}

void qn_openai_end(qn_api_stream *s, qn_buf *out)
{
    const state *st = state_of(s, out);
    if (st && s->call->include_usage) {
        qn_json_writer w;
        if (s->call->server->compat_mlx_lm) {
            /* mlx-lm's server has this name here on both routes. */
            qn_buf_add_text(out, "data: ");
            write_head(s, out, st->chat, "chat.completion");
        } else {
            begin_chunk(st, out);
        }
        qn_buf_add_text(out, "],");
        qn_json_write_begin(&w, out);
        w.depth = 1; /* of the chunk, which begin_chunk has opened */
        qn_openai_write_usage(&w, &st->usage);
        qn_openai_write_timings(&w, &st->usage);
        qn_buf_add_text(out, "}\n\n");
    }
    qn_buf_add_text(out, "data: [DONE]\n\n");
}

void qn_openai_error(qn_api_stream *s, const qn_api_error *error, qn_buf *out)
{
    qn_buf_add_text(out, "data: ");
    qn_api_error_write(out, error, QN_API_OPENAI, s->head->request_id);
    qn_buf_add_text(out, "\n\n");
}

void qn_openai_ping(qn_api_stream *s, qn_buf *out)
{
    (void)s;
    qn_buf_add_text(out, ": keepalive\n\n");
}

void qn_openai_clear(qn_api_stream *s)
{
    state *st = s->state;
    for (size_t i = 0; st && i < s->call->count; i++)
        qn_logprobs_free(&st->choices[i].logprobs);
    if (st) {
        qn_buf_free(&st->head);
        qn_free(st->choices);
    }
    qn_free(st);
    s->state = NULL;
}
