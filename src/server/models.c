/* models.c: see models.h. */
#include "models.h"

#include "base/alloc.h"
#include "base/digest.h"
#include "common.h"
#include "state.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* ---- what is known of a model ---- */

static void learn_facts(qn_model_facts *out, const quern_info *i,
                        quern_pooling pooling)
{
    const char *template = i->chat_template;
    *out = (qn_model_facts){
        .max_ctx = i->max_ctx,
        .bytes = i->weight_bytes,
        .completes = !i->encoder,
        .chats = i->has_chat_template,
        .embeds = i->pooling || pooling,
        .calls = i->has_chat_template && i->tool_format,
        .reasons = template && (strstr(template, "<think>") ||
                                strstr(template, "enable_thinking") ||
                                strstr(template, "<|channel|>")),
    };
    snprintf(out->family, sizeof out->family, "%s", i->family);
    snprintf(out->quantization, sizeof out->quantization, "%s",
             i->quantization);
}

static qn_api_model as_unloaded(const qn_server *s, const qn_slot *slot)
{
    return (qn_api_model){.id = slot->id,
                          .disk = s->config.models[slot->index].disk};
}

/* Tells apart models that give other answers: what is known of this one. */
static void make_fingerprint(qn_slot *slot)
{
    const quern_info *i = &slot->info;
    char text[512], hex[QN_DIGEST_SIZE];
    qn_digest digest;
    int n =
        snprintf(text, sizeof text, "%s|%s|%s|%llu|%llu|%d|%d|%s|%s", i->family,
                 i->name, i->quantization, (unsigned long long)i->parameters,
                 (unsigned long long)i->weight_bytes, i->layers, i->hidden,
                 i->dtype, i->kv);
    qn_digest_begin(&digest, QN_SHA256);
    qn_digest_add(&digest, text,
                  n < (int)sizeof text ? (size_t)n : sizeof text - 1);
    qn_digest_end(&digest, hex);
    snprintf(slot->fingerprint, sizeof slot->fingerprint, "quern-%s-%.8s",
             quern_release(), hex);
}

/* The slot has its model. */
static void learn_model(qn_server *s, qn_slot *slot, quern_model *model)
{
    const qn_server_config *c = &s->config;
    slot->model = model;
    slot->state = QN_SLOT_LOADED;
    slot->used_at = qn_server_now();
    slot->until =
        c->idle_unload > 0 ? slot->used_at + c->idle_unload : INFINITY;
    /* Its facts are those of its files, whatever form weights have here. */
    quern_model_info(model, &slot->info);
    make_fingerprint(slot);
    quern_request_init(&slot->defaults, model);
    if (c->compat_mlx_lm)
        qn_sampling_as_mlx_lm(&slot->defaults.sampling);
    c->settle(c->data, &slot->defaults);
    slot->api = (qn_api_model){.id = slot->id,
                               .fingerprint = slot->fingerprint,
                               .model = model,
                               .disk = c->models[slot->index].disk,
                               .machine = &s->config.machine,
                               .ctx = slot->info.ctx,
                               .parallel = slot->plan.parallel,
                               .kv_asked = c->kv_asked,
                               .default_max_tokens = c->default_max_tokens,
                               .drafts = slot->plan.drafts,
                               .pooling = c->pooling,
                               .sampling = &slot->defaults.sampling};
}

/* ---- on a worker's thread ---- */

static void plan(qn_server *s, const qn_slot *slot, int64_t ctx,
                 qn_model_plan *plan, qn_model_facts *facts, quern_error *error)
{
    const qn_server_config *c = &s->config;
    quern_model *headers = NULL;
    quern_info info;
    *error = (quern_error){.status = QUERN_OK};
    if (c->headers(c->data, slot->index, &headers, error))
        return;
    quern_model_info(headers, &info);
    learn_facts(facts, &info, c->pooling);
    c->plan(c->data, slot->index, headers, ctx, plan, error);
    quern_model_free(headers);
}

static void load(qn_server *s, const qn_slot *slot, qn_model_plan *plan)
{
    const qn_server_config *c = &s->config;
    qn_models *m = &s->models;
    m->error = (quern_error){.status = QUERN_OK};
    m->expected = plan->fit.weights;
    c->load(c->data, slot->index, plan, &m->made, &m->error);
}

static void say_failed(const qn_server *s, const qn_slot *slot)
{
    char text[2 * QUERN_ERROR_SIZE + 300];
    const quern_error *e = &slot->failure;
    snprintf(text, sizeof text, "%s can't be loaded: %s%s%s", slot->id,
             e->where, *e->where ? ": " : "", e->message);
    qn_server_say(s, QUERN_LOG_ERROR, text);
}

/* Nobody else looks at slots before the server has started. */
static void start(qn_server *s)
{
    const qn_server_config *c = &s->config;
    qn_models *m = &s->models;
    for (size_t i = 0; i < m->count && !m->code; i++) {
        qn_slot *slot = &m->slots[i];
        plan(s, slot, 0, &slot->usual, &slot->facts, &slot->failure);
        slot->planned = !slot->failure.status;
        slot->plan = slot->usual;
        if (slot->planned)
            continue;
        slot->state = QN_SLOT_FAILED;
        if (c->models[i].optional)
            say_failed(s, slot);
        else
            m->code = c->fail(c->data, i, &slot->usual, &slot->failure);
    }
    if (m->code || c->many)
        return;
    load(s, &m->slots[0], &m->slots[0].plan);
    if (m->error.status)
        m->code = c->fail(c->data, 0, &m->slots[0].plan, &m->error);
}

static void run(qn_work *work)
{
    qn_models *m = (qn_models *)((char *)work - offsetof(qn_models, work));
    qn_server *s = (qn_server *)((char *)m - offsetof(qn_server, models));
    switch (m->task) {
    case QN_MODELS_START:
        start(s);
        break;
    case QN_MODELS_PLAN:
        plan(s, m->slot, m->asked_ctx, &m->plan, &m->facts, &m->error);
        break;
    case QN_MODELS_LOAD:
        load(s, m->slot, &m->plan);
        break;
    case QN_MODELS_FREE:
        quern_model_free(m->made);
        m->made = NULL;
        qn_alloc_trim();
        break;
    }
    qn_loop_post(s->loop, &m->done);
}

/* ---- those who wait ---- */

static void wake(qn_server *s)
{
    qn_loop_post(s->loop, &s->models.advance);
}

static void add_waiter(qn_server *s, qn_slot *slot, qn_waiter *w)
{
    qn_waiter **end = &slot->line;
    while (*end)
        end = &(*end)->next;
    *end = w;
    w->next = NULL;
    w->slot = slot;
    w->number = ++s->models.numbers;
    wake(s);
}

static void remove_waiter(qn_waiter *w)
{
    qn_waiter **at = &w->slot->line;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    w->slot = NULL;
}

/* Whether a call that waits so can have the slot as it is. */
static bool is_ready(const qn_slot *slot, int64_t ctx)
{
    return slot->state == QN_SLOT_LOADED && !slot->leaving && !slot->unwanted &&
           (!ctx || ctx == slot->plan.ctx);
}

static void let_in(qn_waiter *w)
{
    w->slot->users++;
    remove_waiter(w);
    w->ready(w, NULL);
}

/* Ends the waits of those who want this of the slot; with a `ctx` only of those
 * who want that. */
static void end_waits(qn_slot *slot, qn_wait what, int64_t ctx,
                      const qn_api_error *error)
{
    for (qn_waiter *w = slot->line, *next; w; w = next) {
        next = w->next;
        if (w->what != what || (ctx && w->ctx != ctx))
            continue;
        remove_waiter(w);
        w->ready(w, error);
    }
}

/* Who came first of those who want something loaded; `ready`: that is. */
static qn_waiter *first_waiter(const qn_models *m, bool ready)
{
    qn_waiter *first = NULL;
    for (size_t i = 0; i < m->count; i++)
        for (qn_waiter *w = m->slots[i].line; w; w = w->next)
            if (w->what == QN_WAIT_LOADED &&
                (!first || w->number < first->number) &&
                (!ready || is_ready(&m->slots[i], w->ctx)))
                first = w;
    return first;
}

/* ---- one thing after the other ---- */

static void fail_slot(qn_slot *slot, int64_t ctx, const quern_error *cause)
{
    qn_api_error error;
    qn_api_fail(&error,
                cause->status == QUERN_E_NOMEM ? QN_API_INSUFFICIENT_MEMORY
                                               : QN_API_MODEL_LOAD_FAILED,
                "model", "%s can't be loaded: %s", slot->id, cause->message);
    end_waits(slot, QN_WAIT_LOADED, ctx, &error);
}

static void begin(qn_server *s, qn_models_task task, qn_slot *slot)
{
    qn_models *m = &s->models;
    m->busy = true;
    m->task = task;
    m->slot = slot;
    m->began = qn_server_now();
    if (!qn_workers_add(s->workers, &m->work))
        return;
    /* There is no thread at all, so nothing can wait for one. */
    m->error = (quern_error){.status = QUERN_E_NOMEM};
    snprintf(m->error.message, sizeof m->error.message, "%s", qn_error_text());
    if (task == QN_MODELS_FREE) {
        quern_model_free(m->made);
        m->made = NULL;
    }
    qn_loop_post(s->loop, &m->done);
}

/* What the slot counted goes on to be counted. */
static void keep_counts(qn_slot *slot)
{
    quern_prefix_stats kept;
    quern_steps steps;
    quern_model_prefixes(slot->model, &kept);
    quern_model_steps(slot->model, &steps);
    qn_model_metrics_keep(&slot->metrics, &kept, &steps);
}

static void begin_free(qn_server *s, qn_slot *slot)
{
    qn_models *m = &s->models;
    keep_counts(slot);
    m->made = slot->model;
    slot->model = NULL;
    slot->api = as_unloaded(s, slot);
    slot->state = QN_SLOT_UNLOADING;
    slot->unwanted = false;
    begin(s, QN_MODELS_FREE, slot);
}

static void begin_load(qn_server *s, qn_slot *slot)
{
    slot->state = QN_SLOT_LOADING;
    s->models.plan = slot->plan;
    begin(s, QN_MODELS_LOAD, slot);
}

/* The loaded slot that was not used for longest, among the idle ones or those
 * with calls that are not to go yet. */
static qn_slot *oldest(const qn_models *m, bool idle)
{
    qn_slot *found = NULL;
    for (size_t i = 0; i < m->count; i++) {
        qn_slot *slot = &m->slots[i];
        bool fits = idle ? !slot->users : slot->users && !slot->leaving;
        if (slot->state == QN_SLOT_LOADED && fits &&
            (!found || slot->used_at < found->used_at))
            found = slot;
    }
    return found;
}

/* Whether a slot has room beside those that are loaded, or beside those of them
 * that stay. */
static bool has_room(const qn_server *s, const qn_slot *slot, bool stay)
{
    const qn_models *m = &s->models;
    uint64_t needed = slot->plan.fit.required, taken = 0;
    quern_machine now;
    bool alone = true;
    for (size_t i = 0; i < m->count; i++)
        if (m->slots[i].state == QN_SLOT_LOADED &&
            !(stay && m->slots[i].leaving)) {
            taken += m->slots[i].plan.fit.required;
            alone = false;
        }
    /* Whether one fits that is alone was asked before. */
    if (alone || s->config.force)
        return true;
    if (taken + needed > s->config.machine.usable)
        return false;
    quern_machine_get(&now, false);
    return needed <= now.usable;
}

/* False: something is freed first, or has calls and takes no new ones. */
static bool make_room(qn_server *s, const qn_slot *slot)
{
    qn_slot *victim;
    if (has_room(s, slot, false))
        return true;
    if ((victim = oldest(&s->models, true))) {
        begin_free(s, victim);
        return false;
    }
    while (!has_room(s, slot, true) && (victim = oldest(&s->models, false)))
        victim->leaving = true;
    return false;
}

/* Those that are to go stay those as long as the same caller needs the room:
 * every call that ends makes another one the oldest, and nobody would ever be
 * idle. */
static void choose_leaving(qn_models *m)
{
    const qn_waiter *w = first_waiter(m, false);
    uint64_t number = w ? w->number : 0;
    for (size_t i = 0; i < m->count && number != m->room_for; i++)
        m->slots[i].leaving = false;
    m->room_for = number;
}

/* Goes one step towards what the first waiter wants. */
static void serve_first(qn_server *s, const qn_waiter *w)
{
    qn_models *m = &s->models;
    qn_slot *slot = w->slot;
    if (slot->state == QN_SLOT_LOADED) { /* with another context */
        if (slot->users)
            slot->leaving = true;
        else
            begin_free(s, slot);
        return;
    }
    if (slot->users)
        return; /* visited */
    if (slot->planned && !w->ctx)
        slot->plan = slot->usual;
    if (w->ctx ? slot->plan.ctx != w->ctx : !slot->planned) {
        m->asked_ctx = w->ctx;
        begin(s, QN_MODELS_PLAN, slot);
    } else if (make_room(s, slot)) {
        begin_load(s, slot);
    }
}

/* Lets in who can be let in, and begins what has to be done first. */
static void advance(qn_task *task)
{
    qn_models *m = (qn_models *)((char *)task - offsetof(qn_models, advance));
    qn_server *s = (qn_server *)((char *)m - offsetof(qn_server, models));
    double now = qn_server_now();
    qn_waiter *w;
    choose_leaving(m);
    for (size_t i = 0; i < m->count && !m->busy; i++) {
        qn_slot *slot = &m->slots[i];
        if (slot->state == QN_SLOT_LOADED && !slot->users &&
            (slot->unwanted || (slot->until <= now && !slot->line)))
            begin_free(s, slot);
    }
    if (!m->busy) {
        while ((w = first_waiter(m, false)) && is_ready(w->slot, w->ctx)) {
            let_in(w);
            choose_leaving(m);
        }
        if (w)
            serve_first(s, w);
    }
    /* Others, that are in nobody's way. */
    while ((w = first_waiter(m, true)))
        let_in(w);
}

static void say_loaded(const qn_server *s, const qn_slot *slot)
{
    char text[512];
    snprintf(text, sizeof text, "%s is loaded (ctx %" PRId64 ", %.1f s)",
             slot->id, slot->plan.ctx, qn_server_now() - s->models.began);
    qn_server_say(s, QUERN_LOG_INFO, text);
}

static void on_loaded(qn_server *s, qn_slot *slot)
{
    qn_models *m = &s->models;
    if (!m->error.status) {
        slot->plan = m->plan;
        learn_model(s, slot, m->made);
        m->made = NULL;
        say_loaded(s, slot);
        return;
    }
    slot->state = QN_SLOT_FAILED;
    slot->failure = m->error;
    slot->unwanted = false;
    say_failed(s, slot);
    fail_slot(slot, 0, &m->error);
    end_waits(slot, QN_WAIT_UNLOADED, 0, NULL);
}

static void on_planned(qn_server *s, qn_slot *slot)
{
    qn_models *m = &s->models;
    if (m->error.status) {
        slot->state = QN_SLOT_FAILED;
        slot->failure = m->error;
        say_failed(s, slot);
        /* Who wants another context may have more luck. */
        fail_slot(slot, m->asked_ctx, &m->error);
        return;
    }
    slot->facts = m->facts;
    slot->plan = m->plan;
    if (m->asked_ctx)
        slot->plan.ctx = m->asked_ctx;
    else
        slot->usual = m->plan;
    slot->planned |= !m->asked_ctx;
}

static void on_done(qn_task *task)
{
    qn_models *m = (qn_models *)((char *)task - offsetof(qn_models, done));
    qn_server *s = (qn_server *)((char *)m - offsetof(qn_server, models));
    qn_slot *slot = m->slot;
    m->busy = false;
    m->slot = NULL;
    switch (m->task) {
    case QN_MODELS_START:
        if (m->made)
            learn_model(s, &m->slots[0], m->made);
        m->made = NULL;
        qn_server_started(s, m->code);
        break;
    case QN_MODELS_PLAN:
        on_planned(s, slot);
        break;
    case QN_MODELS_LOAD:
        on_loaded(s, slot);
        break;
    case QN_MODELS_FREE:
        slot->state = QN_SLOT_UNLOADED;
        end_waits(slot, QN_WAIT_UNLOADED, 0, NULL);
        break;
    }
    if (slot)
        end_waits(slot, QN_WAIT_SETTLED, 0, NULL);
    wake(s);
}

/* ---- the outside ---- */

qn_status qn_models_init(qn_server *s)
{
    qn_models *m = &s->models;
    const qn_server_config *c = &s->config;
    m->work.run = run;
    m->done.run = on_done;
    m->advance.run = advance;
    m->slots = qn_calloc(c->model_count, sizeof *m->slots);
    if (!m->slots)
        return QN_E_NOMEM;
    m->count = c->model_count;
    for (size_t i = 0; i < m->count; i++) {
        m->slots[i].index = i;
        m->slots[i].id = c->models[i].id;
        m->slots[i].api = as_unloaded(s, &m->slots[i]);
    }
    return QN_OK;
}

void qn_models_clear(qn_server *s)
{
    qn_models *m = &s->models;
    quern_model_free(m->made);
    for (size_t i = 0; i < m->count; i++) {
        quern_model_free(m->slots[i].model);
        qn_queue_free(&m->slots[i].queue);
    }
    qn_free(m->slots);
}

qn_status qn_models_lanes(qn_server *s, size_t count)
{
    qn_status status = QN_OK;
    for (size_t i = 0; i < s->models.count && !status; i++)
        status = qn_queue_lanes(&s->models.slots[i].queue, count);
    return status;
}

qn_status qn_models_start(qn_server *s)
{
    s->models.busy = true;
    s->models.task = QN_MODELS_START;
    return qn_workers_add(s->workers, &s->models.work);
}

/* What there is, as far as a message has room for it. */
static bool fail_unknown(const qn_server *s, qn_api_error *error)
{
    qn_buf ids = QN_BUF_INIT;
    for (size_t i = 0; i < s->models.count; i++)
        qn_buf_printf(&ids, "%s'%s'", i ? ", " : "", s->models.slots[i].id);
    qn_api_fail(error, QN_API_MODEL_NOT_FOUND, "model",
                "there is no such model here; there is %s",
                qn_buf_status(&ids) ? "another" : ids.data);
    qn_buf_free(&ids);
    return false;
}

qn_slot *qn_models_find(qn_server *s, const char *name, bool exact,
                        qn_api_error *error)
{
    qn_models *m = &s->models;
    const qn_server_config *c = &s->config;
    if (!name && c->many)
        qn_api_fail(error, QN_API_MISSING_FIELD, "model",
                    "this server has several models: which one?");
    else if (!name || !exact)
        return &m->slots[0];
    for (size_t i = 0; name && i < m->count; i++)
        if (!strcmp(m->slots[i].id, name))
            return &m->slots[i];
    for (size_t i = 0; name && i < c->alias_count; i++)
        if (!strcmp(c->aliases[i].name, name))
            return &m->slots[c->aliases[i].model];
    if (name)
        fail_unknown(s, error);
    return NULL;
}

bool qn_models_take(qn_server *s, qn_slot *slot, qn_waiter *w)
{
    bool ready = is_ready(slot, w->ctx);
    if (ready)
        slot->users++;
    else
        add_waiter(s, slot, w);
    return ready;
}

bool qn_models_visit(qn_server *s, qn_slot *slot, qn_waiter *w)
{
    bool settled =
        slot->state != QN_SLOT_LOADING && slot->state != QN_SLOT_UNLOADING;
    w->what = QN_WAIT_SETTLED;
    if (settled)
        slot->users++;
    else
        add_waiter(s, slot, w);
    return settled;
}

void qn_models_give_back(qn_server *s, qn_slot *slot, int64_t keep_alive)
{
    double idle = s->config.idle_unload;
    slot->users--;
    slot->used_at = qn_server_now();
    if (!s->config.many)
        return;
    if (keep_alive == INT64_MIN)
        slot->until = idle > 0 ? slot->used_at + idle : INFINITY;
    else
        slot->until =
            keep_alive < 0 ? INFINITY : slot->used_at + (double)keep_alive;
    if (!slot->users)
        wake(s);
}

bool qn_models_unload(qn_server *s, qn_slot *slot, qn_waiter *w)
{
    if (slot->state == QN_SLOT_UNLOADED || slot->state == QN_SLOT_FAILED) {
        slot->state = QN_SLOT_UNLOADED;
        return true;
    }
    slot->unwanted = slot->state != QN_SLOT_UNLOADING;
    w->what = QN_WAIT_UNLOADED;
    add_waiter(s, slot, w);
    return false;
}

void qn_models_leave(qn_server *s, qn_waiter *w)
{
    if (!w->slot)
        return;
    remove_waiter(w);
    wake(s);
}

bool qn_models_in_use(const qn_slot *slot)
{
    for (const qn_waiter *w = slot->line; w; w = w->next)
        if (w->what == QN_WAIT_LOADED)
            return true;
    return slot->users;
}

size_t qn_models_waiting(const qn_server *s)
{
    size_t count = 0;
    for (size_t i = 0; i < s->models.count; i++)
        count += qn_slot_waiting(&s->models.slots[i]);
    return count;
}

size_t qn_slot_waiting(const qn_slot *slot)
{
    size_t count = slot->queue.count;
    for (const qn_waiter *w = slot->line; w; w = w->next)
        count += w->what == QN_WAIT_LOADED;
    return count;
}

int qn_models_idle(qn_server *s, double now)
{
    qn_models *m = &s->models;
    double first = INFINITY;
    if (!s->config.many || m->busy)
        return -1;
    for (size_t i = 0; i < m->count; i++)
        if (m->slots[i].state == QN_SLOT_LOADED && !m->slots[i].users &&
            m->slots[i].until < first)
            first = m->slots[i].until;
    if (first == INFINITY)
        return -1;
    if (first <= now)
        wake(s);
    return first <= now ? 0 : (int)fmin(ceil(1e3 * (first - now)), 60e3);
}
