/* turn_read.c: turns from a body to a place in the queue of their model.
 *
 * A worker parses the body.  The call then means a model, which is loaded first
 * if need be, and a worker makes requests of it. */
#include "turn_parts.h"

#include "base/alloc.h"
#include "pages.h"

#include <stdio.h>
#include <sys/random.h>

static const char unloaded[] = "the model is being unloaded";

static qn_turn *turn_of_task(qn_task *task)
{
    return (qn_turn *)((char *)task - offsetof(qn_turn, task));
}

/* ---- reading ---- */

static bool check_kv(qn_turn *t)
{
    const qn_slot *slot = t->slot;
    size_t n = (size_t)t->call.n;
    for (size_t i = 0; i < t->call.count; i += n) {
        const quern_request *r = &t->call.requests[i];
        uint64_t kv = n * qn_turn_answer_bytes(slot, r);
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
    qn_turn *t = qn_turn_of_work(work);
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
        if (t->good && t->prepared && qn_turn_is_embedding(t))
            t->kv = qn_turn_embedding_bytes(t->slot, &t->call);
    qn_loop_post(s->loop, &t->task);
}

static void hand_over(qn_turn *t)
{
    t->state = QN_TURN_READING;
    t->work.run = read_call;
    if (qn_workers_add(t->s->workers, &t->work)) {
        t->state = QN_TURN_WAITING;
        qn_api_fail_memory(&t->error);
        qn_turn_fail(t);
        qn_turn_settle(t);
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
    qn_turn_reply(t, &out);
    qn_buf_free(&out);
    qn_turn_settle(t);
}

static void visit(qn_turn *t);

/* The model is loaded, or unloaded, or can't be. */
static void on_ready(qn_waiter *waiter, const qn_api_error *error)
{
    qn_turn *t = (qn_turn *)((char *)waiter - offsetof(qn_turn, waiter));
    t->state = QN_TURN_WAITING;
    if (error) {
        t->error = *error;
        qn_turn_fail(t);
        qn_turn_settle(t);
        return;
    }
    if (t->call.kind == QN_API_UNLOAD) {
        describe(t);
        return;
    }
    if (waiter->what == QN_WAIT_SETTLED) {
        visit(t);
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
    t->state = QN_TURN_LOADING;
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
        bool waits = other->state == QN_TURN_LOADING;
        if (other == t || other->slot != t->slot ||
            (waits ? other->call.kind == QN_API_UNLOAD : !other->has_slot) ||
            other->route->protocol->scope == QN_API_EACH_MODEL)
            continue;
        if (other->x && other->state != QN_TURN_OVER)
            qn_turn_end_with(other, QN_API_SHUTTING_DOWN, unloaded);
    }
}

/* The call is parsed and means a model. */
static void choose_model(qn_turn *t)
{
    const qn_api_protocol *p = t->route->protocol;
    t->state = QN_TURN_WAITING;
    t->slot = qn_models_find(t->s, t->call.model, true, &t->error);
    bool waits = t->call.kind != QN_API_UNLOAD && p->scope != QN_API_HEADERS;
    if (!t->slot || !check_residency(t) ||
        (waits && !check_room(t, t->slot->line != NULL))) {
        qn_turn_fail(t);
        qn_turn_settle(t);
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

/* What each model has to do for the call. */
static void visit(qn_turn *t)
{
    t->waiter = (qn_waiter){.ready = on_ready};
    if (qn_models_visit(t->s, t->slot, &t->waiter)) {
        hold(t, t->slot);
        hand_over(t);
    } else {
        t->state = QN_TURN_LOADING;
        t->waited_from = qn_server_now();
    }
}

/* One model after the other; false: there is no other one. */
static bool next_model(qn_turn *t)
{
    size_t next = t->slot ? t->slot->index + 1 : 0;
    qn_turn_give_back(t);
    t->slot = NULL;
    if (next == t->s->models.count)
        return false;
    t->slot = &t->s->models.slots[next];
    visit(t);
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
        qn_turn_fail(t);
    }
}

/* A worker has read the call. */
static void take_call(qn_turn *t)
{
    t->state = QN_TURN_WAITING;
    if (!t->good)
        qn_turn_fail(t);
    else if (t->call.kind == QN_API_ANSWERED)
        qn_turn_reply(t, &t->call.body);
    else if (t->x)
        enter_queue(t);
    if (!t->x)
        t->state = QN_TURN_OVER;
    if (t->state != QN_TURN_WAITING) {
        qn_turn_settle(t);
        return;
    }
    qn_queue_add(&t->slot->queue, &t->place);
    qn_slot_pump(t->slot);
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
               other->state != QN_TURN_OVER;
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
        t->s->config.many && t->route->protocol->scope == QN_API_EACH_MODEL;
    if (t->state != QN_TURN_READING && qn_turn_is_embedding(t)) {
        if (qn_turn_in_flight(t) && atomic_load(&t->embedded))
            qn_turn_end_embedding(t);
        return;
    }
    if (t->state != QN_TURN_READING) {
        qn_turn_take_events(t);
        return;
    }
    if (atomic_load(&t->unwanted)) {
        t->state = QN_TURN_OVER;
        qn_turn_settle(t);
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

/* A model that is alone is loaded. */
static void hold_first(qn_turn *t)
{
    qn_slot *slot = &t->s->models.slots[0];
    if (qn_models_take(t->s, slot, &t->waiter))
        hold(t, slot);
}

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
        hold_first(t);
    t->next = s->turns;
    if (s->turns)
        s->turns->before = t;
    s->turns = t;
    if (qn_workers_add(s->workers, &t->work)) {
        qn_api_fail_memory(&t->error);
        take_call(t);
    }
}
