/* responses_answer.c: answers of OpenAI's Responses, whole and streamed (server
 * specification, section 8).
 *
 * A whole answer is made as a stream that nobody sees: the items of both, and
 * what is kept for later, come from the same steps. */
#include "responses.h"
#include "responses_store.h"
#include "tools.h"

#include "base/alloc.h"

typedef enum open_item {
    OPEN_NONE,
    OPEN_REASONING,
    OPEN_MESSAGE,
    OPEN_CALL
} open_item;

typedef struct state {
    open_item open;
    int index;   /* of the open item, or the next one */
    bool said;   /* there is a message, or a call */
    size_t call; /* number and function of the open one; text: its arguments */
    qn_buf name;
    qn_buf calls; /* that are done, for the conversation: elements of a list */
    int64_t sequence;
    qn_buf text;          /* of the open item */
    qn_logprobs logprobs; /* of the next delta */
    qn_buf item_logprobs; /* of the open item, elements of a list */
    qn_buf output;        /* items that are done, elements of a list */
    qn_buf thoughts, answer;
    qn_buf made; /* the response, once it is whole */
} state;

/* ---- the response ---- */

static void write_key_raw(qn_json_writer *w, const char *key, const char *json)
{
    qn_json_write_key(w, key);
    qn_json_write_raw(w, qn_str_of(json));
}

static void write_usage(qn_json_writer *w, const quern_result *r)
{
    qn_json_write_key(w, "usage");
    if (!r) {
        qn_json_write_null(w);
        return;
    }
    qn_json_write_object(w);
    qn_json_pair_int(w, "input_tokens", r->prompt_tokens);
    qn_json_write_key(w, "input_tokens_details");
    qn_json_write_object(w);
    qn_json_pair_int(w, "cached_tokens", r->cached_tokens);
    /* Prompts are kept as long as there is room: none is written at a price. */
    qn_json_pair_int(w, "cache_write_tokens", 0);
    qn_json_write_object_end(w);
    qn_json_pair_int(w, "output_tokens", r->completion_tokens);
    qn_json_write_key(w, "output_tokens_details");
    qn_json_write_object(w);
    qn_json_pair_int(w, "reasoning_tokens", r->reasoning_tokens);
    qn_json_write_object_end(w);
    qn_json_pair_int(w, "total_tokens",
                     r->prompt_tokens + r->completion_tokens);
    qn_json_write_object_end(w);
}

static void write_error(qn_json_writer *w, const qn_api_error *error)
{
    qn_json_write_key(w, "error");
    if (!error) {
        qn_json_write_null(w);
        return;
    }
    qn_json_write_object(w);
    qn_json_pair_text(w, "code", qn_api_code_name(error->code));
    qn_json_pair_text(w, "message", error->message);
    qn_json_write_object_end(w);
}

/* What the request said, as it counts. */
static void write_request(qn_json_writer *w, const qn_api_call *call)
{
    const qn_asked_response *a = call->extra;
    const quern_request *q = call->count ? call->requests : &call->asked;
    qn_json_pair_text(w, "instructions", a->instructions);
    qn_json_write_key(w, "max_output_tokens");
    if (a->max_tokens)
        qn_json_write_int(w, a->max_tokens);
    else
        qn_json_write_null(w);
    qn_json_write_key(w, "metadata");
    if (a->metadata)
        qn_json_write_value(w, a->metadata);
    else
        qn_json_write_raw(w, QN_STR("{}"));
    qn_json_write_key(w, "parallel_tool_calls");
    qn_json_write_bool(w, !call->tools.single);
    qn_json_pair_text(w, "previous_response_id", a->previous);
    qn_json_write_key(w, "reasoning");
    qn_json_write_object(w);
    qn_json_write_key(w, "effort");
    if (a->effort)
        qn_json_write_value(w, a->effort);
    else
        qn_json_write_null(w);
    qn_json_pair_text(w, "summary", NULL);
    qn_json_write_object_end(w);
    qn_json_write_key(w, "store");
    qn_json_write_bool(w, a->store);
    qn_json_write_key(w, "temperature");
    qn_json_write_double(w, q->sampling.temperature);
    write_key_raw(w, "text", "{\"format\":{\"type\":\"text\"}}");
    qn_json_write_key(w, "tool_choice");
    if (a->tool_choice)
        qn_json_write_value(w, a->tool_choice);
    else
        qn_json_write_text(w, "auto");
    qn_json_write_key(w, "tools");
    if (a->tools)
        qn_json_write_value(w, a->tools);
    else
        qn_json_write_raw(w, QN_STR("[]"));
    qn_json_pair_int(w, "top_logprobs", q->top_logprobs);
    qn_json_write_key(w, "top_p");
    qn_json_write_double(w, q->sampling.top_p);
    qn_json_pair_text(w, "truncation", "disabled");
    qn_json_pair_text(w, "user", call->user);
}

static const char *status_of(const quern_result *r, const qn_api_error *error)
{
    if (error)
        return "failed";
    if (!r)
        return "in_progress";
    return r->finish == QUERN_FINISH_LENGTH ? "incomplete" : "completed";
}

static void write_response(qn_json_writer *w, const qn_api_stream *s,
                           const quern_result *r, const qn_api_error *error)
{
    const state *st = s->state;
    const char *status = status_of(r, error);
    char id[QN_API_ID_SIZE];
    qn_api_id(id, s->head, "resp_", 0);
    qn_json_write_object(w);
    qn_json_pair_text(w, "id", id);
    qn_json_pair_text(w, "object", "response");
    qn_json_pair_int(w, "created_at", s->head->created);
    qn_json_pair_text(w, "status", status);
    write_key_raw(w, "background", "false");
    write_error(w, error);
    write_key_raw(w, "incomplete_details",
                  strcmp(status, "incomplete")
                      ? "null"
                      : "{\"reason\":\"max_output_tokens\"}");
    qn_json_pair_text(w, "model", s->head->model);
    qn_json_write_key(w, "output");
    qn_json_write_raw(w, (qn_str){"", 0});
    qn_buf_add_char(w->out, '[');
    qn_buf_add_str(w->out, qn_buf_str(&st->output));
    qn_buf_add_char(w->out, ']');
    write_request(w, s->call);
    write_usage(w, r);
    qn_json_write_object_end(w);
}

/* ---- events ---- */

static void begin_event(qn_json_writer *w, qn_api_stream *s, const char *type,
                        qn_buf *out)
{
    state *st = s->state;
    qn_buf_printf(out, "event: %s\ndata: ", type);
    qn_json_write_begin(w, out);
    qn_json_write_object(w);
    qn_json_pair_text(w, "type", type);
    qn_json_pair_int(w, "sequence_number", st->sequence++);
}

static void end_event(qn_json_writer *w)
{
    qn_json_write_object_end(w);
    qn_buf_add_text(w->out, "\n\n");
}

static void write_response_event(qn_api_stream *s, const char *type,
                                 const quern_result *r,
                                 const qn_api_error *error, qn_buf *out)
{
    qn_json_writer w;
    begin_event(&w, s, type, out);
    qn_json_write_key(&w, "response");
    write_response(&w, s, r, error);
    end_event(&w);
}

/* ---- items ---- */

static void item_id(char id[QN_API_ID_SIZE], const qn_api_stream *s)
{
    const state *st = s->state;
    static const char *const prefixes[] = {"", "rs_", "msg_", "fc_"};
    qn_api_id(id, s->head, prefixes[st->open], (uint64_t)st->index + 1);
}

/* The part of the open item, with its text once it is done. */
static void write_part(qn_json_writer *w, const state *st, bool done)
{
    bool message = st->open == OPEN_MESSAGE;
    qn_json_write_object(w);
    qn_json_pair_text(w, "type", message ? "output_text" : "summary_text");
    qn_json_write_key(w, "text");
    qn_json_write_str(w, done ? qn_buf_str(&st->text) : (qn_str){"", 0});
    if (message) {
        write_key_raw(w, "annotations", "[]");
        qn_json_write_key(w, "logprobs");
        qn_json_write_raw(w, (qn_str){"", 0});
        qn_buf_add_char(w->out, '[');
        if (done)
            qn_buf_add_str(w->out, qn_buf_str(&st->item_logprobs));
        qn_buf_add_char(w->out, ']');
    }
    qn_json_write_object_end(w);
}

static void write_call_item(qn_json_writer *w, const qn_api_stream *s,
                            const char *id, const char *status)
{
    const state *st = s->state;
    char call_id[QN_API_ID_SIZE];
    qn_call_id(call_id, s->head, "call_", 0, st->call);
    qn_json_write_object(w);
    qn_json_pair_text(w, "id", id);
    qn_json_pair_text(w, "type", "function_call");
    qn_json_pair_text(w, "status", status ? status : "in_progress");
    qn_json_pair_text(w, "call_id", call_id);
    qn_json_pair_text(w, "name", st->name.data);
    qn_json_write_key(w, "arguments");
    qn_json_write_str(w, status ? qn_buf_str(&st->text) : (qn_str){"", 0});
    qn_json_write_object_end(w);
}

/* `status` NULL: the item has just begun. */
static void write_item(qn_json_writer *w, const qn_api_stream *s,
                       const char *status)
{
    const state *st = s->state;
    bool message = st->open == OPEN_MESSAGE;
    char id[QN_API_ID_SIZE];
    item_id(id, s);
    if (st->open == OPEN_CALL) {
        write_call_item(w, s, id, status);
        return;
    }
    qn_json_write_object(w);
    qn_json_pair_text(w, "id", id);
    qn_json_pair_text(w, "type", message ? "message" : "reasoning");
    if (message) {
        qn_json_pair_text(w, "status", status ? status : "in_progress");
        qn_json_pair_text(w, "role", "assistant");
    }
    qn_json_write_key(w, message ? "content" : "summary");
    qn_json_write_array(w);
    if (status)
        write_part(w, st, true);
    qn_json_write_array_end(w);
    qn_json_write_object_end(w);
}

static void write_item_event(qn_api_stream *s, const char *type,
                             const char *status, qn_buf *out)
{
    const state *st = s->state;
    qn_json_writer w;
    begin_event(&w, s, type, out);
    qn_json_pair_int(&w, "output_index", st->index);
    qn_json_write_key(&w, "item");
    write_item(&w, s, status);
    end_event(&w);
}

/* The front of an event about the open item's part. */
static void begin_part_event(qn_json_writer *w, qn_api_stream *s,
                             const char *of_message, const char *of_reasoning,
                             qn_buf *out)
{
    const state *st = s->state;
    bool message = st->open == OPEN_MESSAGE;
    char id[QN_API_ID_SIZE];
    item_id(id, s);
    begin_event(w, s, message ? of_message : of_reasoning, out);
    qn_json_pair_text(w, "item_id", id);
    qn_json_pair_int(w, "output_index", st->index);
    qn_json_pair_int(w, message ? "content_index" : "summary_index", 0);
}

static void write_part_event(qn_api_stream *s, const char *of_message,
                             const char *of_reasoning, bool done, qn_buf *out)
{
    qn_json_writer w;
    begin_part_event(&w, s, of_message, of_reasoning, out);
    qn_json_write_key(&w, "part");
    write_part(&w, s->state, done);
    end_event(&w);
}

static void write_logprobs(qn_json_writer *w, const qn_buf *elements)
{
    qn_json_write_key(w, "logprobs");
    qn_json_write_raw(w, (qn_str){"", 0});
    qn_buf_add_char(w->out, '[');
    qn_buf_add_str(w->out, qn_buf_str(elements));
    qn_buf_add_char(w->out, ']');
}

static void write_text_done(qn_api_stream *s, qn_buf *out)
{
    const state *st = s->state;
    qn_json_writer w;
    begin_part_event(&w, s, "response.output_text.done",
                     "response.reasoning_summary_text.done", out);
    qn_json_write_key(&w, "text");
    qn_json_write_str(&w, qn_buf_str(&st->text));
    if (st->open == OPEN_MESSAGE)
        write_logprobs(&w, &st->item_logprobs);
    end_event(&w);
}

/* An event of the open call's arguments. */
static void write_arguments_event(qn_api_stream *s, const char *type,
                                  const char *member, qn_str text, qn_buf *out)
{
    const state *st = s->state;
    char id[QN_API_ID_SIZE];
    qn_json_writer w;
    item_id(id, s);
    begin_event(&w, s, type, out);
    qn_json_pair_text(&w, "item_id", id);
    qn_json_pair_int(&w, "output_index", st->index);
    qn_json_write_key(&w, member);
    qn_json_write_str(&w, text);
    end_event(&w);
}

/* The open call as a message has it. */
static void keep_call(const qn_api_stream *s)
{
    state *st = s->state;
    qn_buf *out = &st->calls;
    char id[QN_API_ID_SIZE];
    qn_call_id(id, s->head, "call_", 0, st->call);
    qn_buf_printf(out,
                  "%s{\"id\":\"%s\",\"type\":\"function\",\"function\":{"
                  "\"name\":",
                  out->size ? "," : "", id);
    qn_json_quote(out, qn_buf_str(&st->name));
    qn_buf_add_text(out, ",\"arguments\":");
    qn_arguments_close(out, qn_buf_str(&st->text));
    qn_buf_add_text(out, "}}");
}

static void close_item(qn_api_stream *s, const char *status, qn_buf *out)
{
    state *st = s->state;
    qn_json_writer w;
    if (st->open == OPEN_NONE)
        return;
    if (st->open == OPEN_CALL) {
        write_arguments_event(s, "response.function_call_arguments.done",
                              "arguments", qn_buf_str(&st->text), out);
        keep_call(s);
    } else {
        write_text_done(s, out);
        write_part_event(s, "response.content_part.done",
                         "response.reasoning_summary_part.done", true, out);
    }
    write_item_event(s, "response.output_item.done", status, out);
    if (st->output.size)
        qn_buf_add_char(&st->output, ',');
    qn_json_write_begin(&w, &st->output);
    write_item(&w, s, status);
    qn_buf_clear(&st->text);
    qn_buf_clear(&st->item_logprobs);
    st->open = OPEN_NONE;
    st->index++;
}

static void open_item_of(qn_api_stream *s, open_item wanted, qn_buf *out)
{
    state *st = s->state;
    if (st->open == wanted)
        return;
    close_item(s, "completed", out);
    st->open = wanted;
    st->said = st->said || wanted == OPEN_MESSAGE;
    write_item_event(s, "response.output_item.added", NULL, out);
    write_part_event(s, "response.content_part.added",
                     "response.reasoning_summary_part.added", false, out);
}

static void open_call(qn_api_stream *s, size_t call, qn_str name, qn_buf *out)
{
    state *st = s->state;
    close_item(s, "completed", out);
    st->open = OPEN_CALL;
    st->said = true;
    st->call = call;
    qn_buf_clear(&st->name);
    qn_buf_add_str(&st->name, name);
    if (!st->name.failed)
        write_item_event(s, "response.output_item.added", NULL, out);
}

static void add_arguments(qn_api_stream *s, qn_str text, qn_buf *out)
{
    state *st = s->state;
    qn_buf_add_str(&st->text, text);
    write_arguments_event(s, "response.function_call_arguments.delta", "delta",
                          text, out);
}

/* ---- the steps ---- */

/* Tokens since the last delta belong to the open item. */
static void settle_logprobs(state *st)
{
    qn_buf *elements = &st->logprobs.parts[0];
    if (elements->size && st->item_logprobs.size)
        qn_buf_add_char(&st->item_logprobs, ',');
    qn_buf_add_str(&st->item_logprobs, qn_buf_str(elements));
    if (elements->failed)
        st->item_logprobs.failed = true;
    qn_buf_clear(elements);
    st->logprobs.count = 0;
}

static void add_text(qn_api_stream *s, bool thought, qn_str text,
                     const quern_token *tokens, size_t count, qn_buf *out)
{
    state *st = s->state;
    qn_json_writer w;
    for (size_t i = 0; s->call->asked.logprobs && i < count; i++)
        if (!tokens[i].thought && !tokens[i].called) /* the message's own */
            qn_logprobs_add(&st->logprobs, &tokens[i], 1);
    if (!text.size)
        return;
    open_item_of(s, thought ? OPEN_REASONING : OPEN_MESSAGE, out);
    qn_buf_add_str(&st->text, text);
    qn_buf_add_str(thought ? &st->thoughts : &st->answer, text);
    begin_part_event(&w, s, "response.output_text.delta",
                     "response.reasoning_summary_text.delta", out);
    qn_json_write_key(&w, "delta");
    qn_json_write_str(&w, text);
    if (!thought) {
        write_logprobs(&w, &st->logprobs.parts[0]);
        settle_logprobs(st);
    }
    end_event(&w);
}

/* The conversation with this answer, for those that go on with it. */
static void write_conversation(qn_buf *out, const qn_api_stream *s)
{
    const qn_asked_response *a = s->call->extra;
    const state *st = s->state;
    qn_buf_add_str(out, a->messages);
    if (out->size)
        qn_buf_add_char(out, ',');
    qn_buf_add_text(out, "{\"role\":\"assistant\",");
    if (st->thoughts.size) {
        qn_buf_add_text(out, "\"reasoning_content\":");
        qn_json_quote(out, qn_buf_str(&st->thoughts));
        qn_buf_add_char(out, ',');
    }
    qn_buf_add_text(out, "\"content\":");
    qn_json_quote(out, qn_buf_str(&st->answer));
    if (st->calls.size) {
        qn_buf_add_text(out, ",\"tool_calls\":[");
        qn_buf_add_str(out, qn_buf_str(&st->calls));
        qn_buf_add_char(out, ']');
    }
    qn_buf_add_char(out, '}');
}

static void keep(const qn_api_stream *s, qn_buf *out)
{
    const qn_asked_response *a = s->call->extra;
    const state *st = s->state;
    qn_responses *store = s->call->server->responses;
    qn_buf messages = QN_BUF_INIT;
    char id[QN_API_ID_SIZE];
    if (!a->store || !store)
        return;
    qn_api_id(id, s->head, "resp_", 0);
    write_conversation(&messages, s);
    if (messages.failed || st->made.failed ||
        qn_responses_put(store, s->head->space ? s->head->space : "", id,
                         qn_buf_str(&st->made), qn_buf_str(&messages),
                         s->head->created))
        out->failed = true;
    qn_buf_free(&messages);
}

static void finish(qn_api_stream *s, const quern_result *r, qn_buf *out)
{
    state *st = s->state;
    const char *status = status_of(r, NULL);
    qn_json_writer w;
    if (!st->said)
        open_item_of(s, OPEN_MESSAGE, out);
    if (st->open == OPEN_MESSAGE) /* tokens behind the last text */
        settle_logprobs(st);
    close_item(s, status, out);
    qn_json_write_begin(&w, &st->made);
    write_response(&w, s, r, NULL);
    write_response_event(s,
                         r->finish == QUERN_FINISH_LENGTH
                             ? "response.incomplete"
                             : "response.completed",
                         r, NULL, out);
    keep(s, out);
}

void qn_response_begin(qn_api_stream *s, qn_buf *out)
{
    state *st = qn_calloc(1, sizeof *st);
    s->state = st;
    if (st)
        st->logprobs.style = QN_LOGPROBS_CHAT;
    else
        out->failed = true;
}

static bool any_failed(const state *st)
{
    return st->text.failed || st->item_logprobs.failed || st->output.failed ||
           st->thoughts.failed || st->answer.failed || st->made.failed ||
           st->name.failed || st->calls.failed;
}

void qn_response_event(qn_api_stream *s, size_t index, const quern_event *event,
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
        write_response_event(s, "response.created", NULL, NULL, out);
        write_response_event(s, "response.in_progress", NULL, NULL, out);
        break;
    case QUERN_EVENT_PROMPT:
        break;
    case QUERN_EVENT_TEXT:
    case QUERN_EVENT_REASONING:
        add_text(s, event->type == QUERN_EVENT_REASONING,
                 (qn_str){event->text, event->size}, event->tokens,
                 event->token_count, out);
        break;
    case QUERN_EVENT_CALL:
        open_call(s, event->call, (qn_str){event->text, event->size}, out);
        break;
    case QUERN_EVENT_ARGUMENTS:
        add_arguments(s, (qn_str){event->text, event->size}, out);
        break;
    case QUERN_EVENT_CALL_END:
        close_item(s, event->whole ? "completed" : "incomplete", out);
        break;
    case QUERN_EVENT_DONE:
        finish(s, event->result, out);
        break;
    }
    if (any_failed(s->state))
        out->failed = true;
}

void qn_response_end(qn_api_stream *s, qn_buf *out)
{
    (void)s; /* the last event was the end */
    (void)out;
}

void qn_response_error(qn_api_stream *s, const qn_api_error *error, qn_buf *out)
{
    if (!s->state)
        out->failed = true;
    else
        write_response_event(s, "response.failed", NULL, error, out);
}

void qn_response_clear(qn_api_stream *s)
{
    state *st = s->state;
    if (st) {
        qn_buf *const all[] = {&st->text,     &st->item_logprobs, &st->output,
                               &st->thoughts, &st->answer,        &st->made,
                               &st->name,     &st->calls};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            qn_buf_free(all[i]);
        qn_logprobs_free(&st->logprobs);
    }
    qn_free(st);
    s->state = NULL;
}

/* A text with the tokens that it comes from: those up to the next call. */
static void add_text_of(qn_api_stream *s, const quern_result *r, qn_str text,
                        size_t *token, qn_buf *out)
{
    size_t from = *token;
    while (from < r->token_count && r->tokens[from].called)
        from++;
    for (*token = from; *token < r->token_count && !r->tokens[*token].called;)
        ++*token;
    add_text(s, false, text, r->tokens + from, *token - from, out);
}

/* Texts and calls in their order. */
static void add_answer(qn_api_stream *s, const quern_result *r, qn_buf *out)
{
    size_t from = 0, token = 0;
    for (size_t i = 0; i < r->call_count; i++) {
        const quern_call *made = &r->calls[i];
        size_t to = made->text_before;
        if (to > from)
            add_text_of(s, r, (qn_str){r->text + from, to - from}, &token, out);
        open_call(s, i, qn_str_of(made->name), out);
        add_arguments(s, (qn_str){made->arguments, made->size}, out);
        close_item(s, made->whole ? "completed" : "incomplete", out);
        from = to;
    }
    add_text_of(s, r, (qn_str){r->text + from, r->size - from}, &token, out);
}

void qn_response_answer(qn_buf *out, const qn_api_call *call,
                        const qn_api_head *head, const quern_result *results)
{
    const quern_result *r = results;
    qn_api_stream s = {.call = call, .head = head};
    qn_buf unseen = QN_BUF_INIT;
    qn_response_begin(&s, &unseen);
    if (s.state) {
        add_text(&s, true, (qn_str){r->reasoning, r->reasoning_size}, NULL, 0,
                 &unseen);
        add_answer(&s, r, &unseen);
        finish(&s, r, &unseen);
        qn_buf_add_str(out, qn_buf_str(&((state *)s.state)->made));
    }
    out->failed =
        out->failed || unseen.failed || (s.state && any_failed(s.state));
    qn_buf_free(&unseen);
    qn_response_clear(&s);
}
