/* turn.c: see turn.h. */
#include "turn_parts.h"

#include "base/alloc.h"

#include <stdio.h>

static void on_pump(qn_task *task)
{
    qn_slot_pump((qn_slot *)((char *)task - offsetof(qn_slot, pump)));
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

/* ---- letting go ---- */

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
    if (t->state == QN_TURN_READING)
        return; /* the worker hands it back first */
    if (t->state == QN_TURN_LOADING)
        qn_models_leave(t->s, &t->waiter);
    leave_queue(t);
    t->state = QN_TURN_OVER;
    for (size_t i = 0; t->rows && i < t->call.count; i++)
        if (t->rows[i].job)
            quern_job_cancel(t->rows[i].job);
}

void qn_turn_give_back(qn_turn *t)
{
    if (t->has_slot)
        qn_models_give_back(t->s, t->slot, t->call.keep_alive);
    t->has_slot = false;
}

/* Lets go of the model when nothing more is asked of it, and frees a turn that
 * nothing holds any more. */
void qn_turn_settle(qn_turn *t)
{
    if (t->state != QN_TURN_OVER || qn_turn_in_flight(t))
        return;
    qn_turn_give_back(t);
    if (!t->x)
        free_turn(t);
}

/* ---- replies ---- */

void qn_turn_headers(qn_turn *t)
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
void qn_turn_fail(qn_turn *t)
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
void qn_turn_end_with(qn_turn *t, qn_api_code code, const char *why)
{
    qn_api_error error;
    if (t->state != QN_TURN_READING) {
        qn_api_fail(&t->error, code, NULL, "%s", why);
        qn_turn_fail(t);
        qn_turn_settle(t);
    } else if (!atomic_exchange(&t->unwanted, true)) {
        /* The worker has t->error. */
        t->failure = qn_api_code_name(code);
        qn_api_fail(&error, code, NULL, "%s", why);
        qn_server_fail(t->s, t->x, &error);
    }
}

void qn_turn_reply(qn_turn *t, qn_buf *body)
{
    t->state = QN_TURN_OVER;
    if (!t->x)
        return;
    qn_turn_headers(t);
    qn_server_json(t->s, t->x, body);
}

/* All rows are done. */
void qn_turn_finish(qn_turn *t)
{
    qn_buf out = QN_BUF_INIT;
    if (t->streaming) {
        t->route->protocol->end(&t->stream, &out);
        qn_exchange_write(t->x, qn_buf_str(&out));
        qn_exchange_finish(t->x);
        t->state = QN_TURN_OVER;
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
            qn_turn_fail(t);
        } else {
            qn_turn_reply(t, &out);
        }
    }
    qn_buf_free(&out);
}

void qn_turn_write(qn_turn *t, qn_buf *out)
{
    if (t->x && out->size && t->state == QN_TURN_RUNNING) {
        qn_exchange_write(t->x, qn_buf_str(out));
        t->wrote = qn_server_now();
    }
    qn_buf_free(out);
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
    if (t->s->content.fd >= 0 && t->state != QN_TURN_READING)
        log_content(t);
    if (how == QN_EXCHANGE_DONE && t->begun && !t->failure)
        note_service(t->s, qn_server_now() - t->came);
    give_up(t);
    /* Events that a slow reader held up are of no use now. */
    if (qn_turn_in_flight(t))
        qn_loop_post(t->s->loop, &t->task);
    qn_turn_settle(t);
}

/* ---- time ---- */

static void ping(qn_turn *t, double now)
{
    qn_buf out = QN_BUF_INIT;
    if (t->route->protocol->ping && !qn_exchange_pending(t->x))
        t->route->protocol->ping(&t->stream, &out);
    qn_turn_write(t, &out);
    t->wrote = now;
}

static void tick(qn_turn *t, double now)
{
    const qn_server_config *c = &t->s->config;
    bool waits = t->state == QN_TURN_WAITING || t->state == QN_TURN_LOADING;
    double most = c->limits.request_timeout;
    if (!t->x || t->state == QN_TURN_OVER)
        return;
    if (most > 0 && now - t->came >= most)
        qn_turn_end_with(t, QN_API_TIMEOUT, "the request took too long");
    else if (waits && c->queue_timeout > 0 &&
             now - t->waited_from >= c->queue_timeout)
        qn_turn_end_with(t, QN_API_QUEUE_TIMEOUT,
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
        if (t->x && t->state != QN_TURN_OVER)
            qn_turn_end_with(t, code, why);
}

void qn_turns_end_loading(qn_server *s, qn_api_code code, const char *why)
{
    for (qn_turn *t = s->turns; t; t = t->next)
        if (t->x && t->state == QN_TURN_LOADING)
            qn_turn_end_with(t, code, why);
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
