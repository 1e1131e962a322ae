/* anthropic_answer.c: answers of Anthropic's Messages, whole and streamed
 * (server specification, section 8). */
#include "anthropic.h"
#include "tools.h"

#include "base/alloc.h"

/* ---- what both have ---- */

typedef struct input_counts {
    int64_t input, created, read;
} input_counts;

/* Of a prompt's tokens: found, newly kept up to the last pin, others. */
static input_counts count_input(const qn_api_call *call, int64_t prompt,
                                int64_t cached)
{
    const qn_anthropic *a = call->extra;
    int64_t created = a->pinned_tokens > cached ? a->pinned_tokens - cached : 0;
    return (input_counts){prompt - cached - created, created, cached};
}

static void write_usage(qn_json_writer *w, const input_counts *in,
                        int64_t output)
{
    qn_json_write_key(w, "usage");
    qn_json_write_object(w);
    qn_json_pair_int(w, "input_tokens", in->input);
    qn_json_pair_int(w, "cache_creation_input_tokens", in->created);
    qn_json_pair_int(w, "cache_read_input_tokens", in->read);
    qn_json_pair_int(w, "output_tokens", output);
    qn_json_write_object_end(w);
}

/* "stop_reason" and "stop_sequence"; `r` NULL: not known yet. */
static void write_stop(qn_json_writer *w, const qn_api_call *call,
                       const quern_result *r)
{
    const char *reason = NULL, *sequence = NULL;
    if (r && r->finish == QUERN_FINISH_LENGTH) {
        reason = "max_tokens";
    } else if (r && r->finish == QUERN_FINISH_TOOL_CALLS) {
        reason = "tool_use";
    } else if (r && r->stop >= 0 && (size_t)r->stop < call->asked.stop_count) {
        reason = "stop_sequence";
        sequence = call->asked.stops[r->stop];
    } else if (r) {
        reason = "end_turn";
    }
    qn_json_pair_text(w, "stop_reason", reason);
    qn_json_pair_text(w, "stop_sequence", sequence);
}

/* The members of a message up to its content. */
static void write_head(qn_json_writer *w, const qn_api_head *head)
{
    char id[QN_API_ID_SIZE];
    qn_api_id(id, head, "msg_", 0);
    qn_json_pair_text(w, "id", id);
    qn_json_pair_text(w, "type", "message");
    qn_json_pair_text(w, "role", "assistant");
    qn_json_pair_text(w, "model", head->model);
    qn_json_write_key(w, "content");
}

/* Thoughts are taken back as they are, so what signs them only has to be
 * there: clients leave out those without. */
static void write_signature(qn_json_writer *w, const qn_api_head *head,
                            uint64_t index)
{
    char id[QN_API_ID_SIZE];
    qn_api_id(id, head, "sig_", index + 1);
    qn_json_pair_text(w, "signature", id);
}

/* ---- whole ---- */

/* An empty block would be refused elsewhere when it is sent back. */
static void write_text_block(qn_json_writer *w, qn_str text)
{
    if (!text.size)
        return;
    qn_json_write_object(w);
    qn_json_pair_text(w, "type", "text");
    qn_json_write_key(w, "text");
    qn_json_write_str(w, text);
    qn_json_write_object_end(w);
}

static void write_call_block(qn_json_writer *w, const qn_api_head *head,
                             const quern_call *made, size_t index)
{
    char id[QN_API_ID_SIZE];
    qn_call_id(id, head, "toolu_", 0, index);
    qn_json_write_object(w);
    qn_json_pair_text(w, "type", "tool_use");
    qn_json_pair_text(w, "id", id);
    qn_json_pair_text(w, "name", made->name);
    qn_json_write_key(w, "input");
    qn_json_write_raw(w, (qn_str){"", 0});
    qn_arguments_close(w->out, (qn_str){made->arguments, made->size});
    qn_json_write_object_end(w);
}

/* Texts and calls in their order. */
static void write_blocks(qn_json_writer *w, const qn_api_head *head,
                         const quern_result *r)
{
    size_t from = 0;
    for (size_t i = 0; i < r->call_count; i++) {
        size_t to = r->calls[i].text_before;
        write_text_block(w, (qn_str){r->text + from, to - from});
        write_call_block(w, head, &r->calls[i], i);
        from = to;
    }
    write_text_block(w, (qn_str){r->text + from, r->size - from});
}

void qn_messages_answer(qn_buf *out, const qn_api_call *call,
                        const qn_api_head *head, const quern_result *results)
{
    const quern_result *r = results;
    input_counts in = count_input(call, r->prompt_tokens, r->cached_tokens);
    qn_json_writer w;
    qn_json_write_begin(&w, out);
    qn_json_write_object(&w);
    write_head(&w, head);
    qn_json_write_array(&w);
    if (r->reasoning_size) {
        qn_json_write_object(&w);
        qn_json_pair_text(&w, "type", "thinking");
        qn_json_write_key(&w, "thinking");
        qn_json_write_str(&w, (qn_str){r->reasoning, r->reasoning_size});
        write_signature(&w, head, 0);
        qn_json_write_object_end(&w);
    }
    write_blocks(&w, head, r);
    qn_json_write_array_end(&w);
    write_stop(&w, call, r);
    write_usage(&w, &in, r->completion_tokens);
    qn_json_write_object_end(&w);
}

/* ---- streamed ---- */

typedef enum open_block {
    OPEN_NONE,
    OPEN_THINKING,
    OPEN_TEXT,
    OPEN_CALL
} open_block;

typedef struct state {
    open_block open;
    uint64_t index; /* of the open block, or the next one */
} state;

static void begin_event(qn_json_writer *w, const char *type, qn_buf *out)
{
    qn_buf_printf(out, "event: %s\ndata: ", type);
    qn_json_write_begin(w, out);
    qn_json_write_object(w);
    qn_json_pair_text(w, "type", type);
}

static void end_event(qn_json_writer *w)
{
    qn_json_write_object_end(w);
    qn_buf_add_text(w->out, "\n\n");
}

/* An event of the block that is open; end_block_event closes it. */
static void begin_block_event(qn_json_writer *w, const state *st,
                              const char *type, const char *member,
                              const char *kind, qn_buf *out)
{
    begin_event(w, type, out);
    qn_json_write_key(w, "index");
    qn_json_write_uint(w, st->index);
    qn_json_write_key(w, member);
    qn_json_write_object(w);
    qn_json_pair_text(w, "type", kind);
}

static void end_block_event(qn_json_writer *w)
{
    qn_json_write_object_end(w);
    end_event(w);
}

static void close_block(qn_api_stream *s, qn_buf *out)
{
    state *st = s->state;
    qn_json_writer w;
    if (st->open == OPEN_NONE)
        return;
    if (st->open == OPEN_THINKING) {
        begin_block_event(&w, st, "content_block_delta", "delta",
                          "signature_delta", out);
        write_signature(&w, s->head, st->index);
        end_block_event(&w);
    }
    begin_event(&w, "content_block_stop", out);
    qn_json_write_key(&w, "index");
    qn_json_write_uint(&w, st->index);
    end_event(&w);
    st->open = OPEN_NONE;
    st->index++;
}

static void open_block_of(qn_api_stream *s, open_block wanted, qn_buf *out)
{
    state *st = s->state;
    qn_json_writer w;
    if (st->open == wanted)
        return;
    close_block(s, out);
    st->open = wanted;
    if (wanted == OPEN_THINKING) {
        begin_block_event(&w, st, "content_block_start", "content_block",
                          "thinking", out);
        qn_json_pair_text(&w, "thinking", "");
        qn_json_pair_text(&w, "signature", "");
    } else {
        begin_block_event(&w, st, "content_block_start", "content_block",
                          "text", out);
        qn_json_pair_text(&w, "text", "");
    }
    end_block_event(&w);
}

static void begin_call(qn_api_stream *s, const quern_event *event, qn_buf *out)
{
    state *st = s->state;
    char id[QN_API_ID_SIZE];
    qn_json_writer w;
    close_block(s, out);
    st->open = OPEN_CALL;
    qn_call_id(id, s->head, "toolu_", 0, event->call);
    begin_block_event(&w, st, "content_block_start", "content_block",
                      "tool_use", out);
    qn_json_pair_text(&w, "id", id);
    qn_json_pair_text(&w, "name", event->text);
    qn_json_write_key(&w, "input");
    qn_json_write_raw(&w, QN_STR("{}"));
    end_block_event(&w);
}

static void write_arguments(qn_api_stream *s, const quern_event *event,
                            qn_buf *out)
{
    qn_json_writer w;
    begin_block_event(&w, s->state, "content_block_delta", "delta",
                      "input_json_delta", out);
    qn_json_write_key(&w, "partial_json");
    qn_json_write_str(&w, (qn_str){event->text, event->size});
    end_block_event(&w);
}

static void write_start(qn_api_stream *s, const quern_event *event, qn_buf *out)
{
    input_counts in = count_input(s->call, event->total, event->done);
    qn_json_writer w;
    begin_event(&w, "message_start", out);
    qn_json_write_key(&w, "message");
    qn_json_write_object(&w);
    write_head(&w, s->head);
    qn_json_write_array(&w);
    qn_json_write_array_end(&w);
    write_stop(&w, s->call, NULL);
    write_usage(&w, &in, 1);
    qn_json_write_object_end(&w);
    end_event(&w);
    qn_messages_ping(s, out);
}

static void write_delta(qn_api_stream *s, const quern_event *event, qn_buf *out)
{
    bool thought = event->type == QUERN_EVENT_REASONING;
    qn_json_writer w;
    if (!event->size)
        return;
    open_block_of(s, thought ? OPEN_THINKING : OPEN_TEXT, out);
    begin_block_event(&w, s->state, "content_block_delta", "delta",
                      thought ? "thinking_delta" : "text_delta", out);
    qn_json_write_key(&w, thought ? "thinking" : "text");
    qn_json_write_str(&w, (qn_str){event->text, event->size});
    end_block_event(&w);
}

static void write_done(qn_api_stream *s, const quern_result *r, qn_buf *out)
{
    input_counts in = count_input(s->call, r->prompt_tokens, r->cached_tokens);
    qn_json_writer w;
    close_block(s, out);
    begin_event(&w, "message_delta", out);
    qn_json_write_key(&w, "delta");
    qn_json_write_object(&w);
    write_stop(&w, s->call, r);
    qn_json_write_object_end(&w);
    write_usage(&w, &in, r->completion_tokens);
    end_event(&w);
}

void qn_messages_begin(qn_api_stream *s, qn_buf *out)
{
    s->state = qn_calloc(1, sizeof(state));
    if (!s->state)
        out->failed = true;
}

void qn_messages_event(qn_api_stream *s, size_t index, const quern_event *event,
                       double elapsed_ms, qn_buf *out)
{
    (void)index;
    (void)elapsed_ms;
    if (!s->state) {
        out->failed = true;
        return;
    }
    switch (event->type) {
    case QUERN_EVENT_START:
        write_start(s, event, out);
        break;
    case QUERN_EVENT_PROMPT:
        break;
    case QUERN_EVENT_TEXT:
    case QUERN_EVENT_REASONING:
        write_delta(s, event, out);
        break;
    case QUERN_EVENT_CALL:
        begin_call(s, event, out);
        break;
    case QUERN_EVENT_ARGUMENTS:
        write_arguments(s, event, out);
        break;
    case QUERN_EVENT_CALL_END:
        close_block(s, out);
        break;
    case QUERN_EVENT_DONE:
        write_done(s, event->result, out);
        break;
    }
}

void qn_messages_end(qn_api_stream *s, qn_buf *out)
{
    (void)s;
    qn_buf_add_text(out, "event: message_stop\n"
                         "data: {\"type\":\"message_stop\"}\n\n");
}

void qn_messages_error(qn_api_stream *s, const qn_api_error *error, qn_buf *out)
{
    qn_buf_add_text(out, "event: error\ndata: ");
    qn_api_error_write(out, error, QN_API_ANTHROPIC, s->head->request_id);
    qn_buf_add_text(out, "\n\n");
}

void qn_messages_ping(qn_api_stream *s, qn_buf *out)
{
    (void)s;
    qn_buf_add_text(out, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
}

void qn_messages_clear(qn_api_stream *s)
{
    qn_free(s->state);
    s->state = NULL;
}
