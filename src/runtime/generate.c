/* generate.c: a request into an answer.
 *
 * The loop is: take a token from the logits, turn it into text, let the text
 * through the stops, tell the caller, compute the next logits. */
#include "runtime.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "sampler.h"
#include "stops.h"
#include "text/detok.h"

#include <math.h>
#include <string.h>

enum { MAX_TOP = 20 };

/* A token of the answer, until it is handed over. */
typedef struct answer_token {
    quern_token token;
    size_t end; /* of its text in everything decoded */
} answer_token;

/* One answer in the making. */
typedef struct answer {
    quern_session *session;
    const quern_model *model;
    const quern_request *request;
    quern_event_fn on_event;
    void *data;
    qn_sampler *sampler;
    qn_detok *detok;
    qn_stops stops;
    qn_arena arena; /* bytes and top lists of tokens */
    answer_token *tokens;
    size_t count, capacity;
    size_t told;       /* tokens that events have brought */
    size_t decoded;    /* bytes that the detokenizer has given */
    qn_buf text;       /* the answer */
    qn_buf piece;      /* scratch: decoded text of one step */
    quern_token *list; /* scratch: tokens of one event */
    size_t list_capacity;
    quern_finish finish;
    int32_t end_id;
    int64_t cached, prompt;
    bool sampled; /* the sampler's lists are those of the last token */
    double start, prompt_end, first, end;
} answer;

/* ---- checks and setup ---- */

static qn_status bad_value(const char *name, const char *expected,
                           long long found)
{
    qn_status status =
        qn_fail(QN_E_ARG, "%s: expected %s, found %lld", name, expected, found);
    return qn_fail_where(status, "%s", name);
}

static qn_status check_request(const quern_request *r)
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
    return QN_OK;
}

static qn_status prompt_ids(const answer *a, qn_ids *out)
{
    const quern_request *r = a->request;
    if (r->chat.messages)
        return qn_chat_ids(a->model, &r->chat, out);
    if (r->prompt)
        return qn_prompt_ids(a->model, qn_str_of(r->prompt), out);
    qn_status status = QN_OK;
    for (size_t i = 0; i < r->id_count && !status; i++)
        status = qn_ids_add(out, r->ids[i]);
    if (status || out->size)
        return status;
    return qn_prompt_ids(a->model, (qn_str){"", 0}, out);
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

static qn_status set_up(answer *a)
{
    const quern_model *m = a->model;
    const quern_request *r = a->request;
    qn_sampler_setup setup = {
        .sampling = &r->sampling,
        .vocab = m->vocab,
        .token_count = m->token_count,
        .end_ids = m->end_ids.data,
        .end_count = m->end_ids.size,
        .newline = r->sampling.xtc_probability > 0 ? newline_id(m) : -1,
        .stream = m->stream,
    };
    qn_status status = qn_stops_init(&a->stops, r->stops, r->stop_count);
    if (!status)
        status = qn_sampler_new(&a->sampler, &setup);
    return status ? status : qn_detok_new(&a->detok, m->tokenizer, true);
}

static void tear_down(answer *a)
{
    qn_sampler_free(a->sampler);
    qn_detok_free(a->detok);
    qn_stops_clear(&a->stops);
    qn_buf_free(&a->text);
    qn_buf_free(&a->piece);
    qn_arena_free(&a->arena);
    qn_free(a->tokens);
    qn_free(a->list);
}

/* ---- the prompt ---- */

static bool tell_progress(void *data, size_t done)
{
    answer *a = data;
    if (!a->on_event)
        return true;
    quern_event event = {
        .type = QUERN_EVENT_PROMPT,
        .done = a->cached + (int64_t)done,
        .total = a->prompt,
        .text = "",
    };
    return a->on_event(a->data, &event);
}

/* Tokens that the prompt shares with the sequence; one of the prompt's is
 * always computed, for its logits. */
static size_t shared_prefix(const quern_session *s, const qn_ids *ids)
{
    size_t most = ids->size - 1 < s->ids.size ? ids->size - 1 : s->ids.size;
    size_t n = 0;
    while (n < most && ids->data[n] == s->ids.data[n])
        n++;
    return n;
}

static qn_status compute_prompt(answer *a, const qn_ids *ids, qn_pick *pick)
{
    quern_session *s = a->session;
    a->prompt = (int64_t)ids->size;
    if (a->prompt > a->model->ctx)
        return qn_fail(QN_E_UNSUPPORTED,
                       "the prompt of %lld tokens does not fit the context of "
                       "%lld",
                       (long long)a->prompt, (long long)a->model->ctx);
    size_t shared = shared_prefix(s, ids);
    qn_status status = qn_session_keep(s, shared);
    if (status == QN_E_UNSUPPORTED) {
        quern_session_reset(s);
        shared = 0;
        status = QN_OK;
    }
    a->cached = (int64_t)shared;
    if (!status)
        status = qn_session_append(s, ids->data + shared, ids->size - shared,
                                   pick, tell_progress, a);
    return status;
}

/* ---- one token ---- */

static bool is_end(const quern_model *m, int32_t id)
{
    for (size_t i = 0; i < m->end_ids.size; i++)
        if (m->end_ids.data[i] == id)
            return true;
    return false;
}

static qn_status take_token(answer *a, const qn_pick *pick, int32_t *out)
{
    const quern_request *r = a->request;
    bool no_end = r->ignore_eos || (int64_t)a->count < r->min_tokens;
    a->sampled = false;
    if (isnan(pick->logit))
        return qn_fail(QN_E_INTERNAL, "the model gave logits that are no "
                                      "numbers");
    /* The engine has found the likeliest token already; the whole list is only
     * looked at when something may change the choice, or wants to know. */
    if (qn_sampler_is_plain(a->sampler) && !r->logprobs &&
        pick->id < a->model->token_count &&
        !(no_end && is_end(a->model, pick->id))) {
        *out = pick->id;
        return QN_OK;
    }
    const float *logits;
    qn_status status = qn_session_last(a->session, &logits);
    if (status)
        return status;
    a->sampled = true;
    pthread_mutex_lock(&a->session->model->lock);
    status = qn_sampler_take(a->sampler, out, logits, a->session->ids.data,
                             a->session->ids.size, no_end);
    pthread_mutex_unlock(&a->session->model->lock);
    return status;
}

/* The bytes of a token, kept as long as the answer. */
static qn_status token_bytes(answer *a, int32_t id, const char **bytes,
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

static qn_status describe_token(answer *a, quern_token *token, int32_t id)
{
    const quern_request *r = a->request;
    *token = (quern_token){.id = id};
    qn_status status = token_bytes(a, id, &token->bytes, &token->byte_count);
    if (status || !r->logprobs || !a->sampled)
        return status;
    token->logprob = qn_sampler_logprob(a->sampler, id);
    if (!r->top_logprobs)
        return QN_OK;
    quern_top_logprob *top =
        qn_arena_alloc(&a->arena, (size_t)r->top_logprobs * sizeof *top);
    if (!top)
        return QN_E_NOMEM;
    token->top_count = qn_sampler_top(a->sampler, top, r->top_logprobs);
    token->top = top;
    for (int i = 0; i < token->top_count && !status; i++)
        status = token_bytes(a, top[i].id, &top[i].bytes, &top[i].byte_count);
    return status;
}

static qn_status add_token(answer *a, int32_t id)
{
    if (a->count == a->capacity) {
        size_t capacity = a->capacity ? 2 * a->capacity : 64;
        answer_token *grown =
            qn_reallocarray(a->tokens, capacity, sizeof *grown);
        if (!grown)
            return QN_E_NOMEM;
        a->tokens = grown;
        a->capacity = capacity;
    }
    answer_token *t = &a->tokens[a->count];
    qn_status status = describe_token(a, &t->token, id);
    if (!status) {
        t->end = SIZE_MAX; /* known when its text is */
        a->count++;
    }
    return status;
}

/* Hands over the text from byte `from` of the answer on, with the tokens whose
 * text is complete (all that are left, at the end). */
static qn_status tell_text(answer *a, size_t from, bool last)
{
    size_t to = a->told;
    size_t passed = a->decoded - a->stops.held.size;
    while (to < a->count && (last || a->tokens[to].end <= passed))
        to++;
    size_t size = a->text.size - from;
    if (!size && !(last && to > a->told))
        return QN_OK;
    size_t count = to - a->told;
    if (count > a->list_capacity) {
        quern_token *grown = qn_reallocarray(a->list, count, sizeof *grown);
        if (!grown)
            return QN_E_NOMEM;
        a->list = grown;
        a->list_capacity = count;
    }
    for (size_t i = 0; i < count; i++)
        a->list[i] = a->tokens[a->told + i].token;
    a->told = to;
    quern_event event = {
        .type = QUERN_EVENT_TEXT,
        .text = size ? a->text.data + from : "",
        .size = size,
        .tokens = a->list,
        .token_count = count,
    };
    if (a->on_event && !a->on_event(a->data, &event))
        return qn_fail(QN_E_CANCELLED, "cancelled");
    return QN_OK;
}

/* Passes what has been decoded through the stops into the answer. */
static qn_status pass_on(answer *a, int32_t id)
{
    const qn_tokenizer *tokenizer = a->model->tokenizer;
    size_t from = a->text.size;
    a->decoded += a->piece.size;
    qn_status status =
        qn_stops_add(&a->stops, &a->text, qn_buf_str(&a->piece), false);
    if (!status && id >= 0 && qn_tokenizer_is_special(tokenizer, id)) {
        qn_str spelling = qn_tokenizer_token_text(tokenizer, id);
        a->decoded += spelling.size;
        status = qn_stops_add(&a->stops, &a->text, spelling, true);
    }
    /* Tokens whose text was waiting for this piece end with it. */
    for (size_t i = a->count; i-- > a->told;)
        if (a->tokens[i].end == SIZE_MAX)
            a->tokens[i].end = a->decoded;
    return status ? status : tell_text(a, from, a->stops.matched >= 0);
}

/* The text of one more token. */
static qn_status add_text(answer *a, int32_t id)
{
    qn_buf_clear(&a->piece);
    qn_status status = qn_detok_add(a->detok, &a->piece, id);
    return status ? status : pass_on(a, id);
}

/* What the detokenizer and the stops still hold. */
static qn_status finish_text(answer *a)
{
    if (a->stops.matched >= 0)
        return QN_OK;
    qn_buf_clear(&a->piece);
    qn_status status = qn_detok_finish(a->detok, &a->piece);
    size_t from = a->text.size;
    a->decoded += a->piece.size;
    if (!status)
        status =
            qn_stops_add(&a->stops, &a->text, qn_buf_str(&a->piece), false);
    if (!status)
        status = qn_stops_finish(&a->stops, &a->text);
    return status ? status : tell_text(a, from, true);
}

/* ---- the loop ---- */

static qn_status answer_loop(answer *a, qn_pick *pick)
{
    const quern_request *r = a->request;
    quern_session *s = a->session;
    for (;;) {
        int32_t id = -1;
        qn_status status = take_token(a, pick, &id);
        if (!a->first)
            a->first = qn_now();
        if (status)
            return status;
        if (is_end(a->model, id)) {
            a->end_id = id;
            a->finish = QUERN_FINISH_STOP;
            return QN_OK;
        }
        status = add_token(a, id);
        if (!status)
            status = add_text(a, id);
        if (status)
            return status;
        if (a->stops.matched >= 0) {
            a->finish = QUERN_FINISH_STOP;
            return QN_OK;
        }
        if ((int64_t)a->count >= r->max_tokens ||
            (int64_t)s->ids.size >= a->model->ctx) {
            a->finish = QUERN_FINISH_LENGTH;
            return QN_OK;
        }
        status = qn_session_append(s, &id, 1, pick, NULL, NULL);
        if (status)
            return status;
    }
}

static qn_status run(answer *a)
{
    qn_ids ids = {0};
    qn_pick pick = {0};
    qn_status status = check_request(a->request);
    if (!status)
        status = set_up(a);
    if (!status)
        status = prompt_ids(a, &ids);
    a->start = qn_now();
    if (!status)
        status = compute_prompt(a, &ids, &pick);
    a->prompt_end = qn_now();
    qn_ids_free(&ids);
    if (!status)
        status = answer_loop(a, &pick);
    if (!status)
        status = finish_text(a);
    a->end = qn_now();
    if (status)
        a->finish = status == QN_E_CANCELLED ? QUERN_FINISH_CANCELLED
                                             : QUERN_FINISH_NONE;
    return status;
}

/* ---- the result ---- */

/* What a result owns: the arena of the tokens' parts. */
static qn_status hand_over(answer *a, quern_result *out, double called)
{
    *out = (quern_result){
        .finish = a->finish,
        .stop = a->stops.matched,
        .end_id = a->end_id,
        .seed = a->sampler ? qn_sampler_seed(a->sampler) : 0,
        .prompt_tokens = a->prompt,
        .cached_tokens = a->cached,
        .completion_tokens = (int64_t)a->count + (a->end_id >= 0),
        .prompt_seconds = a->prompt_end - a->start,
        .first_token_seconds = a->first ? a->first - called : 0,
        .decode_seconds = a->first ? a->end - a->first : 0,
    };
    size_t size = a->text.size;
    char *text = qn_buf_take(&a->text);
    quern_token *tokens = qn_calloc(a->count, sizeof *tokens);
    qn_arena *arena = qn_calloc(1, sizeof *arena);
    if (!text || !tokens || !arena) {
        qn_free(text);
        qn_free(tokens);
        qn_free(arena);
        return QN_E_NOMEM;
    }
    for (size_t i = 0; i < a->count; i++)
        tokens[i] = a->tokens[i].token;
    *arena = a->arena;
    a->arena = (qn_arena){0};
    out->text = text;
    out->size = size;
    out->tokens = tokens;
    out->token_count = a->count;
    out->owned = arena;
    return QN_OK;
}

/* Freed buffers are kept for the next step; after a long prompt there are
 * many that decoding has no use for. */
static void trim_memory(void)
{
    enum { KEPT = 256 << 20 };
    size_t cached = 0;
    quern_memory(NULL, NULL, &cached);
    if (cached > KEPT)
        mlx_clear_cache();
}

quern_status quern_generate(quern_session *session,
                            const quern_request *request,
                            quern_event_fn on_event, void *data,
                            quern_result *result, quern_error *error)
{
    double called = qn_now();
    answer a = {
        .session = session,
        .model = session->model,
        .request = request,
        .on_event = on_event,
        .data = data,
        .end_id = -1,
        .stops.matched = -1,
    };
    qn_status status = run(&a);
    qn_error kept;
    qn_error_save(&kept);
    if (result) {
        qn_status handed = hand_over(&a, result, called);
        if (handed && !status) {
            status = handed;
            result->finish = QUERN_FINISH_NONE;
            qn_error_save(&kept);
        }
    }
    tear_down(&a);
    trim_memory();
    qn_error_restore(&kept);
    return qn_give(error, status);
}

void quern_result_free(quern_result *result)
{
    if (!result)
        return;
    qn_free(result->text);
    qn_free(result->tokens);
    if (result->owned)
        qn_arena_free(result->owned);
    qn_free(result->owned);
    *result = (quern_result){.stop = -1, .end_id = -1};
}

const char *quern_finish_name(quern_finish finish)
{
    switch (finish) {
    case QUERN_FINISH_STOP:
        return "stop";
    case QUERN_FINISH_LENGTH:
        return "length";
    case QUERN_FINISH_CANCELLED:
        return "cancelled";
    case QUERN_FINISH_NONE:
        break;
    }
    return "error";
}
