/* answer.c: see answer.h. */
#include "answer.h"

#include "base/alloc.h"
#include "draft.h"

#include <math.h>
#include <string.h>

enum { MAX_TOP = 20 };

/* ---- checks and setup ---- */

static qn_status bad_value(const char *name, const char *expected,
                           long long found)
{
    qn_status status =
        qn_fail(QN_E_ARG, "%s: expected %s, found %lld", name, expected, found);
    return qn_fail_where(status, "%s", name);
}

qn_status qn_answer_check(const quern_request *r)
{
    int prompts =
        (r->chat.messages != NULL) + (r->prompt != NULL) + (r->ids != NULL);
    if (prompts != 1)
        return bad_value("prompt", "exactly one of messages, text and ids",
                         prompts);
    if (r->max_tokens < 1)
        return bad_value("max_tokens", "1 or more", r->max_tokens);
    if (r->min_tokens < 0)
        return bad_value("min_tokens", "0 or more", r->min_tokens);
    if (r->top_logprobs < 0 || r->top_logprobs > MAX_TOP)
        return bad_value("top_logprobs", "0..20", r->top_logprobs);
    if (r->prompt_logprobs && !r->logprobs)
        return bad_value("prompt_logprobs", "false without logprobs", 1);
    if (r->num_draft < -1 || r->num_draft > QN_MAX_DRAFT)
        return bad_value("num_draft", "-1..16", r->num_draft);
    if (r->reasoning_budget < -1)
        return bad_value("reasoning_budget", "-1 or more", r->reasoning_budget);
    return QN_OK;
}

/* The token of "\n", which XTC leaves alone; -1 when it is not one token. */
static int32_t newline_id(const quern_model *m)
{
    qn_ids ids = {0};
    int32_t id = -1;
    if (!qn_tokenizer_encode(m->tokenizer, &ids, QN_STR("\n"), 0, NULL) &&
        ids.size == 1)
        id = ids.data[0];
    qn_ids_free(&ids);
    return id;
}

/* The stops, which the caller may take back. */
static qn_status copy_stops(qn_answer *a, const quern_request *r)
{
    qn_status status = qn_stops_init(&a->stops, r->stops, r->stop_count);
    if (status || !r->stop_count)
        return status;
    const char **texts =
        qn_arena_alloc(&a->arena, r->stop_count * sizeof *texts);
    for (size_t i = 0; texts && i < r->stop_count; i++) {
        qn_str copy, text = qn_str_of(r->stops[i]);
        text.size++; /* with its end */
        if (!qn_arena_copy(&a->arena, &copy, text))
            return QN_E_NOMEM;
        texts[i] = copy.data;
    }
    return texts ? qn_stops_init(&a->stops, texts, r->stop_count) : QN_E_NOMEM;
}

static qn_status take_piece(void *data, qn_tool_piece piece, qn_str text);

/* The functions that may be called. */
static qn_status set_up_calls(qn_answer *a, const quern_request *r)
{
    const qn_tool_format *format = a->model->tool_format;
    const char *tools = r->tools;
    if (!tools && r->chat.messages && format)
        tools = r->chat.tools;
    if (!tools)
        return QN_OK;
    qn_status status =
        qn_calls_init(&a->calls, format, tools, r->single_call, take_piece, a);
    a->router.calls = a->calls.parser != NULL;
    return status;
}

qn_status qn_answer_init(qn_answer *a, const quern_model *m,
                         const quern_request *r, const int32_t *prompt,
                         size_t count)
{
    a->model = m;
    a->max_tokens = r->max_tokens;
    a->min_tokens = r->min_tokens;
    a->ignore_eos = r->ignore_eos;
    a->logprobs = r->logprobs;
    a->top_logprobs = r->top_logprobs;
    a->budget = r->reasoning_budget;
    a->end_id = -1;
    a->stops.matched = -1;
    qn_router_init(&a->router, &m->markers, m->tokenizer, prompt, count);
    a->fresh = a->router.span == QN_SPAN_REASONING;
    qn_sampler_setup setup = {
        .sampling = &r->sampling,
        .vocab = m->vocab,
        .token_count = m->token_count,
        .end_ids = m->end_ids.data,
        .end_count = m->end_ids.size,
        .newline = r->sampling.xtc_probability > 0 ? newline_id(m) : -1,
        .stream = m->stream,
    };
    qn_status status = copy_stops(a, r);
    if (!status)
        status = set_up_calls(a, r);
    if (!status && r->prompt_logprobs) {
        a->prompt = qn_calloc(count, sizeof *a->prompt);
        status = a->prompt ? QN_OK : QN_E_NOMEM;
    }
    if (!status)
        status = qn_sampler_new(&a->sampler, &setup);
    return status ? status : qn_detok_new(&a->detok, m->tokenizer, true);
}

void qn_answer_clear(qn_answer *a)
{
    qn_sampler_free(a->sampler);
    qn_detok_free(a->detok);
    qn_stops_clear(&a->stops);
    qn_router_clear(&a->router);
    qn_calls_clear(&a->calls);
    qn_buf_free(&a->passed);
    qn_buf_free(&a->text);
    qn_buf_free(&a->thought);
    qn_buf_free(&a->piece);
    qn_arena_free(&a->arena);
    qn_free(a->prompt);
    qn_free(a->tokens);
    qn_free(a->list);
}

bool qn_answer_is_plain(const qn_answer *a)
{
    return qn_sampler_is_plain(a->sampler) && !a->logprobs;
}

/* ---- one token ---- */

static bool is_end(const quern_model *m, int32_t id)
{
    for (size_t i = 0; i < m->end_ids.size; i++)
        if (m->end_ids.data[i] == id)
            return true;
    return false;
}

/* *sampled: the sampler's lists are those of this token. */
static qn_status pick_token(qn_answer *a, quern_session *session, size_t back,
                            const qn_pick *pick, const int32_t *history,
                            size_t count, int32_t *id, bool *sampled)
{
    bool no_end = a->ignore_eos || (int64_t)a->count < a->min_tokens;
    *sampled = false;
    if (pick && isnan(pick->logit))
        return qn_fail(QN_E_INTERNAL, "the model gave logits that are no "
                                      "numbers");
    /* The engine has found the likeliest token already; the whole list is only
     * looked at when something may change the choice, or wants to know. */
    if (pick && qn_answer_is_plain(a) && pick->id < a->model->token_count &&
        !(no_end && is_end(a->model, pick->id))) {
        *id = pick->id;
        return QN_OK;
    }
    const float *logits;
    qn_status status = qn_session_last(session, back, &logits);
    if (status)
        return status;
    *sampled = true;
    return qn_sampler_take(a->sampler, id, logits, history, count, no_end);
}

/* The bytes of a token, kept as long as the answer. */
static qn_status token_bytes(qn_answer *a, int32_t id, const char **bytes,
                             size_t *count)
{
    qn_buf buf = QN_BUF_INIT;
    qn_status status = qn_tokenizer_token_bytes(a->model->tokenizer, &buf, id);
    qn_str copy = {"", 0};
    if (!status && !qn_arena_copy(&a->arena, &copy, qn_buf_str(&buf)))
        status = QN_E_NOMEM;
    qn_buf_free(&buf);
    *bytes = copy.data;
    *count = copy.size;
    return status;
}

static qn_status describe_token(qn_answer *a, quern_token *token, int32_t id,
                                bool sampled)
{
    *token = (quern_token){.id = id};
    qn_status status = token_bytes(a, id, &token->bytes, &token->byte_count);
    if (status || !a->logprobs || !sampled)
        return status;
    token->logprob = qn_sampler_logprob(a->sampler, id);
    if (!a->top_logprobs)
        return QN_OK;
    quern_top_logprob *top =
        qn_arena_alloc(&a->arena, (size_t)a->top_logprobs * sizeof *top);
    if (!top)
        return QN_E_NOMEM;
    token->top_count = qn_sampler_top(a->sampler, top, a->top_logprobs);
    token->top = top;
    for (int i = 0; i < token->top_count && !status; i++)
        status = token_bytes(a, top[i].id, &top[i].bytes, &top[i].byte_count);
    return status;
}

qn_status qn_answer_score(qn_answer *a, quern_session *session, size_t back,
                          int32_t id)
{
    const float *logits;
    quern_token *token = &a->prompt[a->scored];
    qn_status status = QN_OK;
    if (a->scored) {
        status = qn_session_last(session, back, &logits);
        if (!status)
            status = qn_sampler_score(a->sampler, logits);
    }
    if (!status)
        status = describe_token(a, token, id, a->scored);
    if (!a->scored)
        token->logprob = NAN;
    a->scored += !status;
    return status;
}

static qn_status add_token(qn_answer *a, int32_t id, bool sampled)
{
    if (a->count == a->capacity) {
        size_t capacity = a->capacity ? 2 * a->capacity : 64;
        qn_answer_token *grown =
            qn_reallocarray(a->tokens, capacity, sizeof *grown);
        if (!grown)
            return QN_E_NOMEM;
        a->tokens = grown;
        a->capacity = capacity;
    }
    qn_answer_token *t = &a->tokens[a->count];
    qn_status status = describe_token(a, &t->token, id, sampled);
    if (!status) {
        t->end = SIZE_MAX; /* known when its text is */
        a->count++;
    }
    return status;
}

/* ---- text ---- */

/* Bytes of everything decoded that no event has yet. */
static size_t waiting(const qn_answer *a)
{
    size_t calls =
        a->calls.parser ? qn_tool_parser_pending(a->calls.parser) : 0;
    return a->stops.held.size + a->line_ends + calls;
}

/* Hands over an event with its text, and with the tokens whose text is complete
 * (all that are left, at the end). */
static qn_status tell_event(qn_answer *a, quern_event event, bool last)
{
    size_t to = a->told;
    size_t passed = a->decoded - waiting(a);
    while (to < a->count && (last || a->tokens[to].end <= passed))
        to++;
    size_t count = to - a->told;
    if (count > a->list_capacity) {
        quern_token *grown = qn_reallocarray(a->list, count, sizeof *grown);
        if (!grown)
            return QN_E_NOMEM;
        a->list = grown;
        a->list_capacity = count;
    }
    /* What ends before an event's text, behind a call, are its marks. */
    size_t marks =
        a->calls.count && event.type == QUERN_EVENT_TEXT && passed > event.size
            ? passed - event.size
            : 0;
    bool called = event.type == QUERN_EVENT_CALL ||
                  event.type == QUERN_EVENT_ARGUMENTS ||
                  event.type == QUERN_EVENT_CALL_END;
    for (size_t i = 0; i < count; i++) {
        qn_answer_token *t = &a->tokens[a->told + i];
        t->token.called = called || (marks && t->end <= marks);
        a->list[i] = t->token;
    }
    a->told = to;
    event.tokens = a->list;
    event.token_count = count;
    return a->emit(a->data, &event);
}

/* Hands over the text from byte `from` of `text` on. */
static qn_status tell(qn_answer *a, quern_event_type type, const qn_buf *text,
                      size_t from, bool last)
{
    size_t size = text->size - from;
    if (!size && !(last && a->told < a->count))
        return QN_OK;
    quern_event event = {
        .type = type, .text = size ? text->data + from : "", .size = size};
    return tell_event(a, event, last);
}

/* What the parser makes of the answer; of a call that is the only one, nothing
 * behind it. */
static qn_status take_piece(void *data, qn_tool_piece piece, qn_str text)
{
    qn_answer *a = data;
    qn_calls *c = &a->calls;
    quern_event event = {.text = text.data, .size = text.size};
    size_t from = a->text.size;
    qn_status status = QN_OK;
    if (c->over)
        return QN_OK;
    switch (piece) {
    case QN_TOOL_TEXT:
        qn_buf_add_str(&a->text, text);
        status = qn_buf_status(&a->text);
        return status ? status
                      : tell(a, QUERN_EVENT_TEXT, &a->text, from, false);
    case QN_TOOL_CALL:
        event.type = QUERN_EVENT_CALL;
        status = qn_calls_begin(c, text, from);
        break;
    case QN_TOOL_ARGUMENTS:
        event.type = QUERN_EVENT_ARGUMENTS;
        status = qn_calls_add(c, text);
        break;
    case QN_TOOL_END:
    case QN_TOOL_BROKEN:
        event.type = QUERN_EVENT_CALL_END;
        event.whole = piece == QN_TOOL_END;
        qn_calls_end(c, event.whole);
        break;
    }
    event.call = c->count - 1;
    return status ? status : tell_event(a, event, false);
}

/* Passes on what the stops have let through; at the end of a text all of it. */
static qn_status parse(qn_answer *a, bool last, bool cut)
{
    qn_status status =
        qn_tool_parser_feed(a->calls.parser, qn_buf_str(&a->passed));
    qn_buf_clear(&a->passed);
    if (!status && last)
        status = qn_tool_parser_finish(a->calls.parser, cut);
    return status;
}

/* What a mark has behind it: models end its line. */
static qn_str without_line_ends(qn_answer *a, qn_str text)
{
    while (a->fresh && text.size && *text.data == '\n') {
        text.data++;
        text.size--;
    }
    a->fresh = a->fresh && !text.size;
    return text;
}

/* Thoughts come out as they are, but for line ends before the closing mark. */
static qn_status add_thought(qn_answer *a, qn_str text)
{
    size_t from = a->thought.size, end = text.size;
    while (end && text.data[end - 1] == '\n')
        end--;
    if (end) {
        for (; a->line_ends; a->line_ends--)
            qn_buf_add_char(&a->thought, '\n');
        qn_buf_add(&a->thought, text.data, end);
    }
    a->line_ends += text.size - end;
    qn_status status = qn_buf_status(&a->thought);
    return status ? status
                  : tell(a, QUERN_EVENT_REASONING, &a->thought, from, false);
}

static qn_status add_answer(qn_answer *a, qn_str text, qn_str hidden)
{
    qn_buf *out = a->calls.parser ? &a->passed : &a->text;
    size_t from = a->text.size;
    qn_status status = qn_stops_add(&a->stops, out, text, false);
    if (!status && hidden.size) {
        a->decoded += hidden.size;
        status = qn_stops_add(&a->stops, out, hidden, true);
    }
    bool stopped = a->stops.matched >= 0;
    if (!status && a->calls.parser) {
        status = parse(a, stopped, true);
        from = a->text.size;
    }
    return status ? status : tell(a, QUERN_EVENT_TEXT, &a->text, from, stopped);
}

/* Tokens whose text was waiting end where the text does now. */
static void mark_ends(qn_answer *a, size_t end)
{
    for (size_t i = a->count; i-- > a->told;)
        if (a->tokens[i].end == SIZE_MAX)
            a->tokens[i].end = end;
}

/* The text of a special token: hidden, unless it is a part of calls. */
static qn_str special_text(qn_answer *a, int32_t id)
{
    const qn_tokenizer *tokenizer = a->model->tokenizer;
    const qn_tool_format *format = a->model->tool_format;
    if (id < 0 || !qn_tokenizer_is_special(tokenizer, id))
        return (qn_str){"", 0};
    qn_str text = qn_tokenizer_token_text(tokenizer, id);
    if (!format || !qn_tool_format_has_mark(format, text))
        return text;
    qn_buf_add_str(&a->piece, text);
    return (qn_str){"", 0};
}

/* Passes what has been decoded on to where `span` belongs; `id` is the token
 * behind it, or -1. */
static qn_status pass_on(qn_answer *a, qn_span span, int32_t id)
{
    qn_str hidden = {"", 0};
    if (span == QN_SPAN_ANSWER)
        hidden = special_text(a, id);
    qn_str text = qn_buf_str(&a->piece);
    a->decoded += text.size;
    qn_status status = qn_buf_status(&a->piece);
    if (status)
        return status;
    if (span != QN_SPAN_ANSWER) {
        mark_ends(a, a->decoded);
        return add_thought(a, without_line_ends(a, text));
    }
    mark_ends(a, a->decoded + hidden.size);
    return add_answer(a, without_line_ends(a, text), hidden);
}

/* Ends the text of a span: what the detokenizer and the stops still hold. */
static qn_status end_span(qn_answer *a, qn_span span, bool last)
{
    qn_buf_clear(&a->piece);
    qn_status status = qn_detok_finish(a->detok, &a->piece);
    if (!status && a->piece.size)
        status = pass_on(a, span, -1);
    if (status || a->stops.matched >= 0)
        return status;
    size_t from = a->text.size;
    bool calls = a->calls.parser && span == QN_SPAN_ANSWER;
    status = qn_stops_finish(&a->stops, calls ? &a->passed : &a->text);
    if (calls && !status) {
        status = parse(a, true, last && a->finish == QUERN_FINISH_LENGTH);
        from = a->text.size;
    }
    if (!last) {
        a->line_ends = 0;
        return status ? status
                      : tell(a, QUERN_EVENT_TEXT, &a->text, from, false);
    }
    size_t thought = a->thought.size;
    for (; a->line_ends; a->line_ends--)
        qn_buf_add_char(&a->thought, '\n');
    if (!status)
        status = qn_buf_status(&a->thought);
    if (!status && a->thought.size > thought)
        status = tell(a, QUERN_EVENT_REASONING, &a->thought, thought, true);
    return status ? status : tell(a, QUERN_EVENT_TEXT, &a->text, from, true);
}

/* A message to a function is a call from its header on. */
static qn_status add_header(qn_answer *a)
{
    qn_buf *text = &a->passed;
    qn_buf_add_text(text, "<|channel|>");
    qn_buf_add_str(text, qn_buf_str(&a->router.header));
    qn_buf_add_text(text, "<|message|>");
    a->decoded += text->size;
    a->router.addressed = false;
    qn_status status = qn_buf_status(text);
    return status ? status : parse(a, false, false);
}

/* The text of one more token. */
static qn_status add_text(qn_answer *a, int32_t id)
{
    qn_span before = a->router.span;
    bool silent;
    qn_status status = qn_router_take(&a->router, id, &silent);
    qn_span span = a->router.span;
    bool thought = silent || span == QN_SPAN_REASONING;
    /* Before what it ends is told. */
    a->tokens[a->count - 1].token.thought = thought;
    if (!status && span != before) {
        if (before != QN_SPAN_HEADER)
            status = end_span(a, before, false);
        a->fresh = span == QN_SPAN_REASONING || a->thought_tokens > 0;
        if (!status && a->router.addressed)
            status = add_header(a);
    }
    a->thought_tokens += thought;
    if (!silent && span == QN_SPAN_REASONING && a->budget > 0)
        a->budget--;
    if (!status && silent)
        mark_ends(a, a->decoded);
    if (status || silent)
        return status;
    qn_buf_clear(&a->piece);
    status = qn_detok_add(a->detok, &a->piece, id);
    return status ? status : pass_on(a, span, id);
}

qn_status qn_answer_take(qn_answer *a, quern_session *session, size_t back,
                         const qn_pick *pick, const int32_t *history,
                         size_t count, int32_t *id)
{
    bool sampled;
    qn_status status =
        pick_token(a, session, back, pick, history, count, id, &sampled);
    if (status)
        return status;
    /* In the place of what was picked, so that a draw is made for every token
     * and those behind are the same with any budget. */
    if (!a->budget && a->router.span == QN_SPAN_REASONING)
        *id = a->router.markers->close;
    if (is_end(a->model, *id)) {
        a->end_id = *id;
        a->finish = QUERN_FINISH_STOP;
        return QN_OK;
    }
    status = add_token(a, *id, sampled);
    if (!status)
        status = add_text(a, *id);
    if (status)
        return status;
    if (a->stops.matched >= 0 || a->calls.over)
        a->finish = QUERN_FINISH_STOP;
    else if ((int64_t)a->count >= a->max_tokens ||
             a->ahead + (int64_t)count >= a->model->ctx)
        a->finish = QUERN_FINISH_LENGTH;
    return QN_OK;
}

qn_status qn_answer_finish(qn_answer *a)
{
    if (a->stops.matched >= 0)
        return QN_OK;
    return end_span(a, a->router.span, true);
}

/* ---- the result ---- */

/* What a result owns beside its members: the arena of the tokens' parts. */
qn_status qn_answer_hand_over(qn_answer *a, quern_result *out)
{
    out->stop = a->stops.matched;
    out->end_id = a->end_id;
    out->finish = a->finish;
    if (a->finish == QUERN_FINISH_STOP && qn_calls_any_whole(&a->calls))
        out->finish = QUERN_FINISH_TOOL_CALLS;
    out->seed = a->sampler ? qn_sampler_seed(a->sampler) : 0;
    out->completion_tokens = (int64_t)a->count + (a->end_id >= 0);
    out->reasoning_tokens = a->thought_tokens;
    size_t size = a->text.size, thought_size = a->thought.size;
    char *text = qn_buf_take(&a->text), *thought = qn_buf_take(&a->thought);
    quern_token *tokens = qn_calloc(a->count, sizeof *tokens);
    qn_arena *arena = qn_calloc(1, sizeof *arena);
    bool good = text && thought && tokens && arena &&
                !qn_calls_hand_over(&a->calls, &a->arena, out);
    if (!good) {
        qn_free(text);
        qn_free(thought);
        qn_free(tokens);
        qn_free(arena);
        return QN_E_NOMEM;
    }
    for (size_t i = 0; i < a->count; i++)
        tokens[i] = a->tokens[i].token;
    if ((int64_t)a->scored == out->prompt_tokens) {
        out->prompt = a->prompt;
        a->prompt = NULL;
    }
    *arena = a->arena;
    a->arena = (qn_arena){0};
    out->text = text;
    out->size = size;
    out->reasoning = thought;
    out->reasoning_size = thought_size;
    out->tokens = tokens;
    out->token_count = a->count;
    out->owned = arena;
    return QN_OK;
}
