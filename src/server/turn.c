/* turn.c: see turn.h. */
#include "turn.h"

#include "base/alloc.h"
#include "embeddings.h"
#include "pages.h"

#include <math.h>
#include <stdio.h>
#include <sys/random.h>

enum { OUT_LIMIT = 256 << 10 };

typedef enum turn_state {
    TURN_READING, /* a worker has it */
    TURN_LOADING, /* waits for its model */
    TURN_WAITING, /* in the queue, with none of its rows begun */
    TURN_RUNNING,
    TURN_OVER /* the reply is made, or nobody waits for it */
} turn_state;

/* One request of a call; embeddings are one that has no job. */
typedef struct row {
    quern_job *job; /* NULL: not begun, or done */
    bool done;
    uint64_t kv; /* reserved */
    double last; /* when it gave tokens */
    quern_result result;
} row;

typedef struct qn_turn {
    qn_place place; /* first: a place is its turn */
    qn_task task;
    qn_work work;
    qn_waiter waiter;
    struct qn_turn *next, *before;
    qn_server *s;
    qn_slot *slot; /* its model; NULL: not known yet, or none */
    bool has_slot; /* until it gives that back */
    bool parsed, prepared;
    int64_t head_ctx, head_parallel; /* of a model that is not loaded */
    qn_exchange *x;                  /* NULL: the client is gone */
    const qn_route *route;
    turn_state state;
    char request_id[QN_REQUEST_ID_SIZE];
    char key_name[sizeof(((qn_key *)0)->name)]; /* "": none */
    double came, waited_from, wrote;

    /* The worker's until it hands the turn back. */
    qn_buf body;
    qn_api_head head;
    qn_api_call call;
    qn_api_error error;
    bool good;
    /* What the worker makes of it is of no use any more: its client is gone, or
     * has got another answer. */
    atomic_bool unwanted;
    /* Vectors: the worker's until `embedded`. */
    atomic_bool embedded;
    uint64_t kv; /* reserved */
    qn_api_error cause;
    int64_t tokens;
    qn_buf made;  /* the reply, of calls that need no turn */
    qn_buf space; /* whose prompts are kept together */

    row *rows;
    size_t begun, done;
    qn_api_stream stream;
    bool streaming;
    /* For the log. */
    double first_token; /* seconds after it came; 0: none */
    int64_t prompt, cached, completion, drafted, accepted;
    double queued; /* seconds */
    const char *finish, *failure;
} qn_turn;

static qn_turn *turn_of_task(qn_task *task)
{
    return (qn_turn *)((char *)task - offsetof(qn_turn, task));
}

static qn_turn *turn_of_work(qn_work *work)
{
    return (qn_turn *)((char *)work - offsetof(qn_turn, work));
}

static void pump(qn_slot *slot);

static void on_pump(qn_task *task)
{
    pump((qn_slot *)((char *)task - offsetof(qn_slot, pump)));
}

/* Out of the queue; whom it kept waiting may begin, but not in the middle of
 * this. */
static void leave_queue(qn_turn *t)
{
    qn_slot *slot = t->slot;
    if (!slot || !qn_queue_remove(&slot->queue, &t->place))
        return;
    slot->pump.run = on_pump;
    qn_loop_post(t->s->loop, &slot->pump);
}

static const char unloaded[] = "the model is being unloaded";

/* ---- letting go ---- */

static size_t in_flight(const qn_turn *t)
{
    return t->begun - t->done;
}

static bool is_embedding(const qn_turn *t)
{
    return t->call.kind == QN_API_EMBED;
}

/* Before its first row begins, and after the last that was begun has ended. */
static void begin_turn(qn_turn *t)
{
    if (in_flight(t))
        return;
    t->slot->running++;
    qn_queue_begin(&t->slot->queue, t->place.lane);
}

static void end_turn(qn_turn *t)
{
    if (in_flight(t))
        return;
    t->slot->running--;
    qn_queue_end(&t->slot->queue, t->place.lane);
}

static void free_turn(qn_turn *t)
{
    qn_server *s = t->s;
    qn_loop_withdraw(s->loop, &t->task);
    if (t->before)
        t->before->next = t->next;
    else
        s->turns = t->next;
    if (t->next)
        t->next->before = t->before;
    if (t->route->protocol->clear)
        t->route->protocol->clear(&t->stream);
    for (size_t i = 0; t->rows && i < t->call.count; i++)
        quern_result_free(&t->rows[i].result);
    qn_free(t->rows);
    qn_api_call_free(&t->call);
    qn_buf_free(&t->body);
    qn_buf_free(&t->made);
    qn_buf_free(&t->space);
    qn_free(t);
}

/* Nothing more comes of a turn: what waits is taken back, what runs is told to
 * end. */
static void give_up(qn_turn *t)
{
    atomic_store(&t->unwanted, true);
    if (t->state == TURN_READING)
        return; /* the worker hands it back first */
    if (t->state == TURN_LOADING)
        qn_models_leave(t->s, &t->waiter);
    leave_queue(t);
    t->state = TURN_OVER;
    for (size_t i = 0; t->rows && i < t->call.count; i++)
        if (t->rows[i].job)
            quern_job_cancel(t->rows[i].job);
}

static void give_back(qn_turn *t)
{
    if (t->has_slot)
        qn_models_give_back(t->s, t->slot, t->call.keep_alive);
    t->has_slot = false;
}

/* Lets go of the model when nothing more is asked of it, and frees a turn that
 * nothing holds any more. */
static void settle(qn_turn *t)
{
    if (t->state != TURN_OVER || in_flight(t))
        return;
    give_back(t);
    if (!t->x)
        free_turn(t);
}

/* ---- replies ---- */

static void add_headers(qn_turn *t)
{
    char text[32];
    if (t->slot)
        qn_exchange_header(t->x, "X-Quern-Model", t->slot->id);
    if (t->call.sampled) {
        snprintf(text, sizeof text, "%llu", (unsigned long long)t->call.seed);
        qn_exchange_header(t->x, "X-Quern-Seed", text);
    }
    if (t->call.ignored.size)
        qn_exchange_header(t->x, "X-Quern-Ignored", t->call.ignored.data);
}

/* The turn ends with t->error. */
static void fail(qn_turn *t)
{
    qn_buf out = QN_BUF_INIT;
    t->failure = qn_api_code_name(t->error.code);
    if (t->x && t->streaming) {
        t->route->protocol->error(&t->stream, &t->error, &out);
        qn_exchange_write(t->x, qn_buf_str(&out));
        qn_exchange_close(t->x);
        qn_exchange_finish(t->x);
        qn_buf_free(&out);
    } else if (t->x) {
        qn_server_fail(t->s, t->x, &t->error);
    }
    give_up(t);
}

/* A turn ends with an error; it is freed only when its client is gone. */
static void end_with(qn_turn *t, qn_api_code code, const char *why)
{
    qn_api_error error;
    if (t->state != TURN_READING) {
        qn_api_fail(&t->error, code, NULL, "%s", why);
        fail(t);
        settle(t);
    } else if (!atomic_exchange(&t->unwanted, true)) {
        /* The worker has t->error. */
        t->failure = qn_api_code_name(code);
        qn_api_fail(&error, code, NULL, "%s", why);
        qn_server_fail(t->s, t->x, &error);
    }
}

static void reply(qn_turn *t, qn_buf *body)
{
    t->state = TURN_OVER;
    if (!t->x)
        return;
    add_headers(t);
    qn_server_json(t->s, t->x, body);
}

/* All rows are done. */
static void finish(qn_turn *t)
{
    qn_buf out = QN_BUF_INIT;
    if (t->streaming) {
        t->route->protocol->end(&t->stream, &out);
        qn_exchange_write(t->x, qn_buf_str(&out));
        qn_exchange_finish(t->x);
        t->state = TURN_OVER;
    } else {
        size_t count = t->call.count;
        quern_result *results = qn_calloc(count, sizeof *results);
        for (size_t i = 0; results && i < count; i++)
            results[i] = t->rows[i].result;
        if (results)
            t->route->protocol->answer(&out, &t->call, &t->head, results);
        qn_free(results);
        if (!results) {
            qn_api_fail_memory(&t->error);
            fail(t);
        } else {
            reply(t, &out);
        }
    }
    qn_buf_free(&out);
}

/* ---- events ---- */

static bool has_room(const qn_turn *t, const qn_buf *out)
{
    return !t->x || !t->call.stream || t->state == TURN_OVER ||
           qn_exchange_pending(t->x) + out->size < OUT_LIMIT;
}

static void begin_stream(qn_turn *t, qn_buf *out)
{
    add_headers(t);
    qn_exchange_header(t->x, "Cache-Control", "no-cache");
    qn_exchange_stream(t->x, "text/event-stream");
    t->streaming = true;
    t->route->protocol->begin(&t->stream, out);
}

static void note_tokens(qn_turn *t, row *r)
{
    double now = qn_server_now();
    if (!t->first_token) {
        t->first_token = now - t->came;
        qn_metrics_time(&t->slot->metrics, QN_TIMING_TTFT, t->first_token);
    } else if (r->last > 0) {
        qn_metrics_time(&t->slot->metrics, QN_TIMING_INTER_TOKEN,
                        now - r->last);
    }
    r->last = now;
}

/* As in an answer's usage, the answers to a prompt have one prompt. */
static void note_prompt(qn_turn *t, const quern_result *r)
{
    uint64_t *counters = t->slot->metrics.counters;
    counters[QN_COUNTER_PROMPT_TOKENS] += (uint64_t)r->prompt_tokens;
    counters[QN_COUNTER_CACHED_TOKENS] += (uint64_t)r->cached_tokens;
    t->prompt += r->prompt_tokens;
    t->cached += r->cached_tokens;
}

static void note_result(qn_turn *t, const quern_result *r)
{
    uint64_t *counters = t->slot->metrics.counters;
    counters[QN_COUNTER_COMPLETION_TOKENS] += (uint64_t)r->completion_tokens;
    counters[QN_COUNTER_SPEC_DRAFTED] += (uint64_t)r->drafted;
    counters[QN_COUNTER_SPEC_ACCEPTED] += (uint64_t)r->accepted;
    t->completion += r->completion_tokens;
    t->drafted += r->drafted;
    t->accepted += r->accepted;
    t->finish = quern_finish_name(r->finish);
}

/* A job has told its end. */
static void end_row(qn_turn *t, row *r)
{
    qn_slot *slot = t->slot;
    quern_error error;
    quern_status status = quern_job_result(r->job, &r->result, &error);
    quern_job_free(r->job);
    r->job = NULL;
    r->done = true;
    t->done++;
    slot->rows--;
    slot->kv_used -= r->kv;
    if ((size_t)(r - t->rows) % (size_t)t->call.n == 0)
        note_prompt(t, &r->result);
    note_result(t, &r->result);
    int64_t served = r->result.prompt_tokens - r->result.cached_tokens +
                     r->result.completion_tokens;
    qn_queue_charge(&slot->queue, t->place.lane, (uint64_t)served);
    end_turn(t);
    if (status && t->state == TURN_RUNNING) {
        qn_api_fail_runtime(&t->error, &error);
        fail(t);
    }
}

static void take_event(qn_turn *t, size_t index, const quern_event *event,
                       qn_buf *out)
{
    row *r = &t->rows[index];
    bool failed = event->type == QUERN_EVENT_DONE && event->error->status;
    if (event->type == QUERN_EVENT_TEXT || event->type == QUERN_EVENT_REASONING)
        note_tokens(t, r);
    if (t->x && t->call.stream && t->state == TURN_RUNNING && !failed) {
        if (!t->streaming)
            begin_stream(t, out);
        t->route->protocol->event(&t->stream, index, event,
                                  1e3 * (qn_server_now() - t->came), out);
    }
}

static void flush(qn_turn *t, qn_buf *out)
{
    if (t->x && out->size && t->state == TURN_RUNNING) {
        qn_exchange_write(t->x, qn_buf_str(out));
        t->wrote = qn_server_now();
    }
    qn_buf_free(out);
}

static void take_events(qn_turn *t)
{
    qn_buf out = QN_BUF_INIT;
    quern_event event;
    bool ended = false;
    for (size_t i = 0; t->rows && i < t->call.count; i++) {
        row *r = &t->rows[i];
        while (r->job && has_room(t, &out) &&
               quern_job_next(r->job, 0, &event)) {
            take_event(t, i, &event, &out);
            if (event.type != QUERN_EVENT_DONE)
                continue;
            ended = true;
            flush(t, &out);
            end_row(t, r);
        }
    }
    flush(t, &out);
    if (t->state == TURN_RUNNING && t->done == t->call.count)
        finish(t);
    qn_slot *slot = t->slot;
    settle(t);
    if (ended)
        pump(slot);
}

/* ---- running ---- */

/* On the model's thread. */
static void on_wake(void *data)
{
    qn_turn *t = data;
    qn_loop_post(t->s->loop, &t->task);
}

/* What an answer stores.  Each has a cache of its own: what is shared with
 * others is copied when it goes on. */
static uint64_t kv_of(const qn_slot *slot, const quern_request *r)
{
    return quern_model_kv_bytes(
        slot->model, (int64_t)r->id_count + r->max_tokens, r->num_draft != 0);
}

/* The answers to one prompt, which begin together. */
static void begin_rows(qn_turn *t)
{
    qn_slot *slot = t->slot;
    quern_error error;
    quern_job *jobs[QUERN_MOST_ANSWERS];
    size_t n = (size_t)t->call.n;
    quern_request *request = &t->call.requests[t->begun];
    request->wake = on_wake;
    request->wake_data = t;
    request->unread_limit = OUT_LIMIT;
    request->no_cache = t->call.no_cache;
    request->cache_space = t->space.data;
    if (quern_submit_n(jobs, n, slot->model, request, &error)) {
        qn_api_fail_runtime(&t->error, &error);
        fail(t);
        return;
    }
    begin_turn(t);
    for (size_t i = 0; i < n; i++, t->begun++) {
        t->rows[t->begun].job = jobs[i];
        t->rows[t->begun].kv = kv_of(slot, request);
        slot->kv_used += t->rows[t->begun].kv;
    }
    slot->rows += n;
}

static void begin_to_run(qn_turn *t)
{
    t->state = TURN_RUNNING;
    t->queued = qn_server_now() - t->waited_from;
    qn_metrics_time(&t->slot->metrics, QN_TIMING_QUEUE, t->queued);
}

/* ---- embeddings ---- */

static bool is_wanted(void *data)
{
    return !atomic_load(&((qn_turn *)data)->unwanted);
}

/* On a thread for embeddings: there may be much to compute, and requests that
 * are only to be read do not wait for that. */
static void embed(qn_work *work)
{
    qn_turn *t = turn_of_work(work);
    quern_error error;
    quern_embeddings made = {0};
    qn_api_call *call = &t->call;
    call->embed.go_on = is_wanted;
    call->embed.data = t;
    t->good = !quern_embed(t->slot->model, call->inputs, call->input_count,
                           &call->embed, &made, &error);
    t->tokens = made.tokens;
    if (t->good)
        t->route->protocol->embeddings(&t->made, call, &t->head, &made);
    else
        qn_embeddings_fail(&t->cause, &error);
    quern_embeddings_free(&made);
    atomic_store(&t->embedded, true);
    qn_loop_post(t->s->loop, &t->task);
}

/* A text has no more tokens than bytes and special ones; one step has the
 * tokens of the longest text, or of several that make no more than a chunk. */
static uint64_t embed_kv(const qn_slot *slot, const qn_api_call *call)
{
    enum { SPECIAL = 2 };
    const char *query = call->embed.instruction;
    size_t all = 0, longest = (size_t)slot->info.prefill_chunk;
    for (size_t i = 0; i < call->input_count; i++) {
        const quern_embed_input *x = &call->inputs[i];
        size_t size = x->text ? x->size + SPECIAL : x->id_count;
        size += query ? strlen(query) : 0;
        all += size;
        longest = size > longest ? size : longest;
    }
    all = all < longest ? all : longest;
    all = all < (size_t)slot->info.ctx ? all : (size_t)slot->info.ctx;
    uint64_t most = slot->plan.kv_budget;
    uint64_t kv = slot->info.encoder
                      ? 0
                      : quern_model_kv_bytes(slot->model, (int64_t)all, false);
    return kv < most ? kv : most;
}

static void begin_embedding(qn_turn *t)
{
    qn_slot *slot = t->slot;
    t->work.run = embed;
    if (qn_workers_add(t->s->embedders, &t->work)) {
        qn_api_fail_memory(&t->error);
        fail(t);
        return;
    }
    begin_turn(t);
    t->begun = 1;
    slot->rows++;
    slot->kv_used += t->kv;
}

/* Its thread has handed it back. */
static void end_embedding(qn_turn *t)
{
    qn_slot *slot = t->slot;
    t->done = 1;
    slot->rows--;
    slot->kv_used -= t->kv;
    t->prompt = t->tokens;
    slot->metrics.counters[QN_COUNTER_PROMPT_TOKENS] += (uint64_t)t->tokens;
    qn_queue_charge(&slot->queue, t->place.lane, (uint64_t)t->tokens);
    end_turn(t);
    if (t->state == TURN_RUNNING && t->good) {
        reply(t, &t->made);
    } else if (t->state == TURN_RUNNING) {
        t->error = t->cause;
        fail(t);
    }
    settle(t);
    pump(slot);
}

/* ---- whose turn it is ---- */

/* Whether the next answers of a turn can begin; more at once than there is room
 * for begin alone. */
static bool has_place(const qn_turn *t)
{
    const qn_slot *slot = t->slot;
    size_t n = (size_t)t->call.n;
    uint64_t kv =
        is_embedding(t) ? t->kv : n * kv_of(slot, &t->call.requests[t->begun]);
    return !slot->rows || (slot->rows + n <= (size_t)slot->plan.parallel &&
                           kv <= slot->plan.kv_budget - slot->kv_used);
}

/* Begins rows as long as there is room for the turn that is next.  Nobody
 * passes it, so that one that needs much is not kept waiting by those that need
 * little. */
static void pump(qn_slot *slot)
{
    qn_turn *t;
    while ((t = (qn_turn *)qn_queue_next(&slot->queue, 0)) && has_place(t)) {
        if (t->state == TURN_WAITING)
            begin_to_run(t);
        if (is_embedding(t))
            begin_embedding(t);
        else
            begin_rows(t);
        if (t->state == TURN_OVER || t->begun >= t->call.count)
            qn_queue_remove(&slot->queue, &t->place);
        settle(t);
    }
}

/* ---- reading ---- */

static bool check_kv(qn_turn *t)
{
    const qn_slot *slot = t->slot;
    size_t n = (size_t)t->call.n;
    for (size_t i = 0; i < t->call.count; i += n) {
        const quern_request *r = &t->call.requests[i];
        uint64_t kv = n * kv_of(slot, r);
        if (kv > slot->plan.kv_budget)
            return qn_api_fail(
                &t->error, QN_API_KV_BUDGET_EXCEEDED, NULL,
                "%zu tokens of prompt and %zu x %lld of answers need %llu "
                "bytes of KV cache, and this server has %llu",
                r->id_count, n, (long long)r->max_tokens,
                (unsigned long long)kv,
                (unsigned long long)slot->plan.kv_budget);
    }
    return true;
}

/* Prompts are shared between requests with one key, salt and cache key, so that
 * nobody learns by the clock what others have asked. */
static bool name_space(qn_turn *t)
{
    const qn_api_call *c = &t->call;
    const char *salt = c->cache_salt ? c->cache_salt : "";
    const char *own = c->prompt_cache_key ? c->prompt_cache_key : "";
    if (!t->s->config.shared_cache)
        qn_buf_add_text(&t->space, t->key_name);
    qn_buf_printf(&t->space, "/%zu/%s/%s", strlen(salt), salt, own);
    return qn_buf_status(&t->space) ? qn_api_fail_memory(&t->error) : true;
}

/* What the headers of a model that is not loaded say is enough. */
static bool prepare_by_headers(qn_turn *t)
{
    const qn_server_config *c = &t->s->config;
    const qn_slot *slot = t->slot;
    quern_model *headers = NULL;
    quern_error cause;
    if (c->headers(c->data, slot->index, &headers, &cause))
        return qn_api_fail(&t->error, QN_API_MODEL_LOAD_FAILED, "model",
                           "%s can't be read: %s", slot->id, cause.message);
    const qn_api_model model = {
        .id = slot->id,
        .model = headers,
        .machine = &c->machine,
        .ctx = t->head_ctx,
        .parallel = (int)t->head_parallel,
    };
    bool good =
        t->route->protocol->prepare(&t->call, &model, &t->head, &t->error);
    quern_model_free(headers);
    return good;
}

/* The body is parsed, and its model known and loaded, if it needs one. */
static bool prepare(qn_turn *t)
{
    const qn_api_protocol *p = t->route->protocol;
    if (!t->has_slot)
        return prepare_by_headers(t);
    return p->prepare(&t->call, &t->slot->api, &t->head, &t->error) &&
           (t->call.kind != QN_API_GENERATE || (check_kv(t) && name_space(t)));
}

/* A model that is alone has the turn before its name is known. */
static bool check_name(qn_turn *t)
{
    bool exact = t->s->config.strict_model ||
                 t->route->protocol->scope == QN_API_HEADERS;
    return !t->slot ||
           qn_models_find(t->s, t->call.model, exact, &t->error) != NULL;
}

/* On a worker's thread: as far as a call comes without (another) model. */
static void read_call(qn_work *work)
{
    qn_turn *t = turn_of_work(work);
    const qn_api_protocol *p = t->route->protocol;
    qn_server *s = t->s;
    t->good = t->parsed ||
              (p->parse(&t->call, qn_buf_str(&t->body), &s->facts, &t->error) &&
               check_name(t));
    t->parsed = true;
    if (t->good && t->slot) {
        t->good = prepare(t);
        t->prepared = true;
    }
    if (!s->config.log_content)
        qn_buf_free(&t->body);
    if (t->prepared)
        if (t->good && t->prepared && is_embedding(t))
            t->kv = embed_kv(t->slot, &t->call);
    qn_loop_post(s->loop, &t->task);
}

static void hand_over(qn_turn *t)
{
    t->state = TURN_READING;
    t->work.run = read_call;
    if (qn_workers_add(t->s->workers, &t->work)) {
        t->state = TURN_WAITING;
        qn_api_fail_memory(&t->error);
        fail(t);
        settle(t);
    }
}

/* ---- choosing a model ---- */

static void hold(qn_turn *t, qn_slot *slot)
{
    t->slot = slot;
    t->has_slot = true;
    t->head.model = slot->id;
    t->head.fingerprint = slot->fingerprint;
}

/* The answer to load and unload: the model as it is now. */
static void describe(qn_turn *t)
{
    qn_buf out = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &out);
    qn_page_write_model(&w, t->s, t->slot);
    reply(t, &out);
    qn_buf_free(&out);
    settle(t);
}

/* The model is loaded, or unloaded, or can't be. */
static void on_ready(qn_waiter *waiter, const qn_api_error *error)
{
    qn_turn *t = (qn_turn *)((char *)waiter - offsetof(qn_turn, waiter));
    t->state = TURN_WAITING;
    if (error) {
        t->error = *error;
        fail(t);
        settle(t);
        return;
    }
    if (t->call.kind == QN_API_UNLOAD) {
        describe(t);
        return;
    }
    hold(t, t->slot);
    if (t->call.kind == QN_API_LOAD)
        describe(t);
    else
        hand_over(t);
}

static bool check_room(qn_turn *t, bool full)
{
    size_t waiting = qn_models_waiting(t->s);
    if (!full || waiting < (size_t)t->s->config.max_queue)
        return true;
    return qn_api_fail(&t->error, QN_API_SERVER_OVERLOADED, NULL,
                       "%zu requests wait already", waiting);
}

/* True: the slot is the turn's, or empty as it wants it; false: it waits. */
static bool take_model(qn_turn *t)
{
    qn_slot *slot = t->slot;
    qn_server *s = t->s;
    t->waiter = (qn_waiter){.ctx = t->call.context, .ready = on_ready};
    if (t->call.kind == QN_API_UNLOAD ? qn_models_unload(s, slot, &t->waiter)
                                      : qn_models_take(s, slot, &t->waiter)) {
        if (t->call.kind != QN_API_UNLOAD)
            hold(t, slot);
        return true;
    }
    t->state = TURN_LOADING;
    t->waited_from = qn_server_now();
    return false;
}

static bool check_residency(qn_turn *t)
{
    const qn_slot *slot = t->slot;
    const qn_api_call *c = &t->call;
    bool busy = qn_models_in_use(slot);
    if (c->kind == QN_API_UNLOAD && busy && !c->force)
        return qn_api_fail(&t->error, QN_API_MODEL_BUSY, "model",
                           "%s has requests", slot->id);
    if (c->kind != QN_API_LOAD || !c->context)
        return true;
    if (slot->facts.max_ctx && c->context > slot->facts.max_ctx)
        return qn_api_fail(&t->error, QN_API_OUT_OF_RANGE, "context",
                           "context: expected 1..%lld",
                           (long long)slot->facts.max_ctx);
    if (busy && slot->plan.ctx != c->context)
        return qn_api_fail(&t->error, QN_API_MODEL_BUSY, "model",
                           "%s has requests, and a context of %lld", slot->id,
                           (long long)slot->plan.ctx);
    return true;
}

/* Ends what others ask of a model that is to go. */
static void end_others(qn_turn *t)
{
    for (qn_turn *other = t->s->turns; other; other = other->next) {
        bool waits = other->state == TURN_LOADING;
        if (other == t || other->slot != t->slot ||
            !(waits || other->has_slot) || other->call.kind == QN_API_UNLOAD ||
            other->route->protocol->scope == QN_API_ALL_LOADED)
            continue;
        if (other->x && other->state != TURN_OVER)
            end_with(other, QN_API_SHUTTING_DOWN, unloaded);
    }
}

/* The call is parsed and means a model. */
static void choose_model(qn_turn *t)
{
    const qn_api_protocol *p = t->route->protocol;
    t->state = TURN_WAITING;
    t->slot = qn_models_find(t->s, t->call.model, true, &t->error);
    bool waits = t->call.kind != QN_API_UNLOAD && p->scope != QN_API_HEADERS;
    if (!t->slot || !check_residency(t) ||
        (waits && !check_room(t, t->slot->line != NULL))) {
        fail(t);
        settle(t);
        return;
    }
    if (p->scope == QN_API_HEADERS && t->slot->state != QN_SLOT_LOADED) {
        t->head_ctx = t->slot->usual.ctx;
        t->head_parallel = t->slot->usual.parallel;
        hand_over(t);
        return;
    }
    if (t->call.kind == QN_API_UNLOAD && t->call.force)
        end_others(t);
    if (!take_model(t))
        return;
    if (t->call.kind == QN_API_LOAD || t->call.kind == QN_API_UNLOAD)
        describe(t);
    else
        hand_over(t);
}

/* One loaded model after the other; false: there is no other one. */
static bool next_model(qn_turn *t)
{
    size_t from = t->slot ? t->slot->index + 1 : 0;
    give_back(t);
    qn_slot *slot = qn_models_take_loaded(t->s, from);
    t->slot = NULL;
    if (!slot)
        return false;
    hold(t, slot);
    hand_over(t);
    return true;
}

/* ---- waiting ---- */

static void enter_queue(qn_turn *t)
{
    t->rows = qn_calloc(t->call.count + 1, sizeof *t->rows);
    t->stream.call = &t->call;
    t->stream.head = &t->head;
    if (!t->waited_from)
        t->waited_from = qn_server_now();
    if (!t->rows) {
        qn_api_fail_memory(&t->error);
        fail(t);
    }
}

/* A worker has read the call. */
static void take_call(qn_turn *t)
{
    t->state = TURN_WAITING;
    if (!t->good)
        fail(t);
    else if (t->call.kind == QN_API_ANSWERED)
        reply(t, &t->call.body);
    else if (t->x)
        enter_queue(t);
    if (!t->x)
        t->state = TURN_OVER;
    if (t->state != TURN_WAITING) {
        settle(t);
        return;
    }
    qn_queue_add(&t->slot->queue, &t->place);
    pump(t->slot);
}

/* Whether a call may wait for its turn. */
static bool admit(qn_turn *t)
{
    qn_server *s = t->s;
    const qn_server_config *c = &s->config;
    const qn_slot *slot = t->slot;
    if (!check_room(t, slot->queue.count ||
                           slot->rows >= (size_t)slot->plan.parallel))
        return false;
    size_t own = 0;
    for (qn_turn *other = s->turns; c->key_parallel && other;
         other = other->next)
        own += other != t && other->place.lane == t->place.lane &&
               other->state != TURN_OVER;
    if (c->key_parallel && own >= (size_t)c->key_parallel)
        return qn_api_fail(&t->error, QN_API_RATE_LIMIT_EXCEEDED, NULL,
                           "this key has %zu requests already, and may have "
                           "%d",
                           own, c->key_parallel);
    return true;
}

static void on_task(qn_task *task)
{
    qn_turn *t = turn_of_task(task);
    bool all =
        t->s->config.many && t->route->protocol->scope == QN_API_ALL_LOADED;
    if (t->state != TURN_READING && is_embedding(t)) {
        if (in_flight(t) && atomic_load(&t->embedded))
            end_embedding(t);
        return;
    }
    if (t->state != TURN_READING) {
        take_events(t);
        return;
    }
    if (atomic_load(&t->unwanted)) {
        t->state = TURN_OVER;
        settle(t);
        return;
    }
    if (t->good && t->x && all && next_model(t))
        return;
    if (t->good && t->x && !all && !t->prepared) {
        choose_model(t);
        return;
    }
    if (t->good && t->call.kind != QN_API_ANSWERED && t->x)
        t->good = admit(t);
    take_call(t);
}

/* ---- beginning ---- */

static void fill_head(qn_turn *t)
{
    uint64_t random[3] = {0};
    ssize_t n = getrandom(random, sizeof random, 0);
    (void)n;
    snprintf(t->request_id, sizeof t->request_id, "%s", t->x->request_id);
    t->head = (qn_api_head){.created = (int64_t)qn_server_time(),
                            .random = {random[0], random[1]},
                            .seed = random[2] >> 1,
                            .request_id = t->request_id,
                            .space = t->key_name};
}

void qn_turn_begin(qn_server *s, qn_exchange *x, const qn_route *route)
{
    qn_api_error error;
    qn_turn *t = qn_calloc(1, sizeof *t);
    if (!t) {
        qn_api_fail_memory(&error);
        qn_server_fail(s, x, &error);
        return;
    }
    t->s = s;
    t->x = x;
    t->route = route;
    t->came = t->wrote = x->began;
    t->task.run = on_task;
    t->work.run = read_call;
    if (qn_str_is(x->head.method, "POST")) {
        t->body = x->body;
        x->body = QN_BUF_INIT;
    } else {
        qn_buf_add_str(&t->body, x->head.query);
    }
    x->owner = t;
    int key = qn_server_key(s, x);
    t->place.lane = (size_t)(key + 1);
    if (key >= 0)
        memcpy(t->key_name, s->keys.items[key].name, sizeof t->key_name);
    fill_head(t);
    if (!s->config.many)
        hold(t, qn_models_take_loaded(s, 0));
    t->next = s->turns;
    if (s->turns)
        s->turns->before = t;
    s->turns = t;
    if (qn_workers_add(s->workers, &t->work)) {
        qn_api_fail_memory(&t->error);
        take_call(t);
    }
}

void qn_turn_drained(qn_exchange *x)
{
    qn_turn *t = x->owner;
    /* Not here: the library is in the middle of writing. */
    if (t)
        qn_loop_post(t->s->loop, &t->task);
}

/* ---- the end ---- */

static void note_service(qn_server *s, double seconds)
{
    s->service = s->service ? 0.8 * s->service + 0.2 * seconds : seconds;
}

static void log_turn(const qn_turn *t, qn_access_line *line)
{
    line->finish = t->failure ? NULL : t->finish;
    line->error = t->failure;
    line->model = t->slot ? t->slot->id : NULL;
    if (!t->begun)
        return;
    line->prompt_tokens = t->prompt;
    line->cached_tokens = t->cached;
    line->completion_tokens = t->completion;
    line->queue_ms = 1e3 * t->queued;
    if (t->first_token)
        line->ttft_ms = 1e3 * t->first_token;
    if (t->drafted)
        line->accept_rate = (double)t->accepted / (double)t->drafted;
}

static void log_content(const qn_turn *t)
{
    size_t count = t->rows ? t->call.count : 0;
    quern_result *results = qn_calloc(count + 1, sizeof *results);
    for (size_t i = 0; results && i < count; i++)
        results[i] = t->rows[i].result;
    if (results)
        qn_access_content(&t->s->content, qn_server_time(), t->request_id,
                          qn_buf_str(&t->body), results, count);
    qn_free(results);
}

void qn_turn_exchange_end(qn_exchange *x, qn_exchange_end how,
                          qn_access_line *line)
{
    qn_turn *t = x->owner;
    t->x = NULL;
    x->owner = NULL;
    log_turn(t, line);
    if (t->s->content.fd >= 0 && t->state != TURN_READING)
        log_content(t);
    if (how == QN_EXCHANGE_DONE && t->begun && !t->failure)
        note_service(t->s, qn_server_now() - t->came);
    give_up(t);
    /* Events that a slow reader held up are of no use now. */
    if (in_flight(t))
        qn_loop_post(t->s->loop, &t->task);
    settle(t);
}

/* ---- time ---- */

static void ping(qn_turn *t, double now)
{
    qn_buf out = QN_BUF_INIT;
    if (t->route->protocol->ping && !qn_exchange_pending(t->x))
        t->route->protocol->ping(&t->stream, &out);
    flush(t, &out);
    t->wrote = now;
}

static void tick(qn_turn *t, double now)
{
    const qn_server_config *c = &t->s->config;
    bool waits = t->state == TURN_WAITING || t->state == TURN_LOADING;
    double most = c->limits.request_timeout;
    if (!t->x || t->state == TURN_OVER)
        return;
    if (most > 0 && now - t->came >= most)
        end_with(t, QN_API_TIMEOUT, "the request took too long");
    else if (waits && c->queue_timeout > 0 &&
             now - t->waited_from >= c->queue_timeout)
        end_with(t, QN_API_QUEUE_TIMEOUT,
                 "the request waited too long for its turn");
    else if (t->streaming && c->ping > 0 && now - t->wrote >= c->ping)
        ping(t, now);
}

void qn_turns_tick(qn_server *s, double now)
{
    /* A turn with an exchange is not freed here. */
    for (qn_turn *t = s->turns; t; t = t->next)
        tick(t, now);
}

void qn_turns_end(qn_server *s, qn_api_code code, const char *why)
{
    for (qn_turn *t = s->turns; t; t = t->next)
        if (t->x && t->state != TURN_OVER)
            end_with(t, code, why);
}

void qn_turns_end_loading(qn_server *s, qn_api_code code, const char *why)
{
    for (qn_turn *t = s->turns; t; t = t->next)
        if (t->x && t->state == TURN_LOADING)
            end_with(t, code, why);
}

void qn_turns_drop(qn_server *s)
{
    /* No thread has one any more, and no client. */
    while (s->turns) {
        qn_turn *t = s->turns;
        for (size_t i = 0; t->rows && i < t->call.count; i++)
            quern_job_free(t->rows[i].job);
        free_turn(t);
    }
}
