/* turn_run.c: turns from the queue of their model to the last token. */
#include "turn_parts.h"

#include "embeddings.h"

enum { OUT_LIMIT = 256 << 10 };

/* ---- events ---- */

static bool has_room(const qn_turn *t, const qn_buf *out)
{
    return !t->x || !t->call.stream || t->state == QN_TURN_OVER ||
           qn_exchange_pending(t->x) + out->size < OUT_LIMIT;
}

/* Before its first row begins, and after the last that was begun has ended. */
static void begin_turn(qn_turn *t)
{
    if (qn_turn_in_flight(t))
        return;
    t->slot->running++;
    qn_queue_begin(&t->slot->queue, t->place.lane);
}

static void end_turn(qn_turn *t)
{
    if (qn_turn_in_flight(t))
        return;
    t->slot->running--;
    qn_queue_end(&t->slot->queue, t->place.lane);
}

static void begin_stream(qn_turn *t, qn_buf *out)
{
    qn_turn_headers(t);
    qn_exchange_header(t->x, "Cache-Control", "no-cache");
    qn_exchange_stream(t->x, "text/event-stream");
    t->streaming = true;
    t->route->protocol->begin(&t->stream, out);
}

static void note_tokens(qn_turn *t, qn_turn_row *r)
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
    counters[QN_COUNTER_TOOL_FAILURES] += (uint64_t)r->call_failures;
    t->completion += r->completion_tokens;
    t->drafted += r->drafted;
    t->accepted += r->accepted;
    t->finish = quern_finish_name(r->finish);
}

/* A job has told its end. */
static void end_row(qn_turn *t, qn_turn_row *r)
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
    if (status && t->state == QN_TURN_RUNNING) {
        qn_api_fail_runtime(&t->error, &error);
        qn_turn_fail(t);
    }
}

static void take_event(qn_turn *t, size_t index, const quern_event *event,
                       qn_buf *out)
{
    qn_turn_row *r = &t->rows[index];
    bool failed = event->type == QUERN_EVENT_DONE && event->error->status;
    if (event->token_count || event->size)
        note_tokens(t, r);
    if (t->x && t->call.stream && t->state == QN_TURN_RUNNING && !failed) {
        if (!t->streaming)
            begin_stream(t, out);
        t->route->protocol->event(&t->stream, index, event,
                                  1e3 * (qn_server_now() - t->came), out);
    }
}

void qn_turn_take_events(qn_turn *t)
{
    qn_buf out = QN_BUF_INIT;
    quern_event event;
    bool ended = false;
    for (size_t i = 0; t->rows && i < t->call.count; i++) {
        qn_turn_row *r = &t->rows[i];
        while (r->job && has_room(t, &out) &&
               quern_job_next(r->job, 0, &event)) {
            take_event(t, i, &event, &out);
            if (event.type != QUERN_EVENT_DONE)
                continue;
            ended = true;
            qn_turn_write(t, &out);
            end_row(t, r);
        }
    }
    qn_turn_write(t, &out);
    if (t->state == QN_TURN_RUNNING && t->done == t->call.count)
        qn_turn_finish(t);
    qn_slot *slot = t->slot;
    qn_turn_settle(t);
    if (ended)
        qn_slot_pump(slot);
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
uint64_t qn_turn_answer_bytes(const qn_slot *slot, const quern_request *r)
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
        qn_turn_fail(t);
        return;
    }
    begin_turn(t);
    for (size_t i = 0; i < n; i++, t->begun++) {
        t->rows[t->begun].job = jobs[i];
        t->rows[t->begun].kv = qn_turn_answer_bytes(slot, request);
        slot->kv_used += t->rows[t->begun].kv;
    }
    slot->rows += n;
}

static void begin_to_run(qn_turn *t)
{
    t->state = QN_TURN_RUNNING;
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
    qn_turn *t = qn_turn_of_work(work);
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
        qn_embeddings_fail(&t->cause, call, &error);
    quern_embeddings_free(&made);
    atomic_store(&t->embedded, true);
    qn_loop_post(t->s->loop, &t->task);
}

/* A text has no more tokens than bytes and special ones; one step has the
 * tokens of the longest text, or of several that make no more than a chunk. */
uint64_t qn_turn_embedding_bytes(const qn_slot *slot, const qn_api_call *call)
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
        qn_turn_fail(t);
        return;
    }
    begin_turn(t);
    t->begun = 1;
    slot->rows++;
    slot->kv_used += t->kv;
}

/* Its thread has handed it back. */
void qn_turn_end_embedding(qn_turn *t)
{
    qn_slot *slot = t->slot;
    t->done = 1;
    slot->rows--;
    slot->kv_used -= t->kv;
    t->prompt = t->tokens;
    slot->metrics.counters[QN_COUNTER_PROMPT_TOKENS] += (uint64_t)t->tokens;
    qn_queue_charge(&slot->queue, t->place.lane, (uint64_t)t->tokens);
    end_turn(t);
    if (t->state == QN_TURN_RUNNING && t->good) {
        qn_turn_reply(t, &t->made);
    } else if (t->state == QN_TURN_RUNNING) {
        t->error = t->cause;
        qn_turn_fail(t);
    }
    qn_turn_settle(t);
    qn_slot_pump(slot);
}

/* ---- whose turn it is ---- */

/* Whether the next answers of a turn can begin; more at once than there is room
 * for begin alone. */
static bool has_place(const qn_turn *t)
{
    const qn_slot *slot = t->slot;
    size_t n = (size_t)t->call.n;
    uint64_t kv =
        qn_turn_is_embedding(t)
            ? t->kv
            : n * qn_turn_answer_bytes(slot, &t->call.requests[t->begun]);
    return !slot->rows || (slot->rows + n <= (size_t)slot->plan.parallel &&
                           kv <= slot->plan.kv_budget - slot->kv_used);
}

/* Begins rows as long as there is room for the turn that is next.  Nobody
 * passes it, so that one that needs much is not kept waiting by those that need
 * little. */
void qn_slot_pump(qn_slot *slot)
{
    qn_turn *t;
    while ((t = (qn_turn *)qn_queue_next(&slot->queue, 0)) && has_place(t)) {
        if (t->state == QN_TURN_WAITING)
            begin_to_run(t);
        if (qn_turn_is_embedding(t))
            begin_embedding(t);
        else
            begin_rows(t);
        if (t->state == QN_TURN_OVER || t->begun >= t->call.count)
            qn_queue_remove(&slot->queue, &t->place);
        qn_turn_settle(t);
    }
}
