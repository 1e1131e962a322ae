/* submit.c: jobs as their callers see them: asking, waiting, reading. */
#include "job.h"

#include "base/alloc.h"
#include "share.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* ---- asking ---- */

static qn_status prompt_ids(const quern_model *m, const quern_request *r,
                            qn_ids *out)
{
    if (r->chat.messages)
        return qn_chat_ids(m, &r->chat, out);
    if (r->prompt)
        return qn_prompt_ids(m, qn_str_of(r->prompt), out);
    qn_status status = QN_OK;
    for (size_t i = 0; i < r->id_count && !status; i++)
        status = qn_ids_add(out, r->ids[i]);
    if (status || out->size)
        return status;
    return qn_prompt_ids(m, (qn_str){"", 0}, out);
}

/* A session that begins with unknown tokens is continued: the prompt is what
 * comes behind them. */
static qn_status more_ids(const quern_session *s, const quern_request *r,
                          qn_ids *out)
{
    qn_status status = QN_OK;
    for (size_t i = 0; i < s->unknown && !status; i++)
        status = qn_ids_add(out, QN_UNKNOWN_ID);
    if (!status && r->chat.messages)
        return qn_chat_tail_ids(s->model, &r->chat, out);
    if (!status && r->prompt)
        return qn_model_encode(s->model, out, qn_str_of(r->prompt),
                               QN_ENCODE_PARSE_SPECIAL, NULL);
    for (size_t i = 0; i < r->id_count && !status; i++)
        status = qn_ids_add(out, r->ids[i]);
    return status;
}

static qn_status check_prompt(const quern_model *m, const qn_ids *ids,
                              size_t unknown)
{
    if (ids->size == unknown)
        return qn_fail(QN_E_ARG, "the prompt is empty");
    for (size_t i = unknown; i < ids->size; i++)
        if (ids->data[i] < 0 || ids->data[i] >= m->vocab)
            return qn_fail(QN_E_ARG, "token %zu: expected 0..%d, found %d", i,
                           m->vocab - 1, ids->data[i]);
    if ((int64_t)ids->size > m->ctx)
        return qn_fail(QN_E_UNSUPPORTED,
                       "the prompt of %zu tokens does not fit the context of "
                       "%lld",
                       ids->size, (long long)m->ctx);
    return QN_OK;
}

static void init_waiting(quern_job *job)
{
    pthread_condattr_t attr;
    pthread_mutex_init(&job->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&job->changed, &attr);
    pthread_condattr_destroy(&attr);
}

static qn_status take_session(quern_job *job, quern_session *session)
{
    quern_error error;
    if (session && session->model != job->model)
        return qn_fail(QN_E_ARG, "the session is of another model");
    job->session = session;
    if (!session) {
        qn_status status =
            (qn_status)quern_session_new(&job->session, job->model, &error);
        if (status)
            return status;
        job->own_session = true;
    }
    return qn_session_take(job->session);
}

/* ---- what is kept ---- */

static size_t common(const qn_ids *a, const qn_ids *b)
{
    size_t n = 0;
    while (n < a->size && n < b->size && a->data[n] == b->data[n])
        n++;
    return n;
}

static qn_status check_checkpoints(const quern_request *r, size_t prompt)
{
    size_t before = 0;
    if (r->checkpoint_count > QUERN_CHECKPOINTS)
        return qn_fail(QN_E_ARG, "checkpoints: at most %d, found %zu",
                       QUERN_CHECKPOINTS, r->checkpoint_count);
    for (size_t i = 0; i < r->checkpoint_count; i++) {
        const quern_checkpoint *c = &r->checkpoints[i];
        if (c->tokens <= before || c->tokens > prompt)
            return qn_fail(QN_E_ARG,
                           "checkpoint %zu: expected a length from %zu to %zu, "
                           "found %zu",
                           i, before + 1, prompt, c->tokens);
        if (c->pin_seconds < 0)
            return qn_fail(QN_E_ARG,
                           "checkpoint %zu: expected 0 or more seconds, found "
                           "%lld",
                           i, (long long)c->pin_seconds);
        before = c->tokens;
    }
    return QN_OK;
}

/* The next turn of a conversation has this one's messages, and not what asks
 * for an answer to them: a length to keep, 0 for none. */
static size_t turn_length(const quern_job *job, const quern_request *r)
{
    if (!r->chat.messages || !r->chat.add_generation_prompt || !job->forgets)
        return 0;
    quern_chat chat = r->chat;
    qn_ids ids = {0};
    chat.add_generation_prompt = false;
    /* A template may refuse that: nothing is kept then. */
    size_t length =
        qn_chat_ids(job->model, &chat, &ids) ? 0 : common(&ids, &job->all);
    qn_ids_free(&ids);
    return length;
}

static qn_status set_up_store(quern_job *job, const quern_request *r)
{
    qn_status status = check_checkpoints(r, job->all.size);
    quern_model *m = job->model;
    if (status || !m->prefixes.limit || r->no_cache || r->prompt_logprobs ||
        !job->own_session)
        return status;
    job->forgets = qn_cache_forgets(m);
    size_t n = r->checkpoint_count, turn = turn_length(job, r), made = 0;
    job->space = qn_strdup(r->cache_space ? r->cache_space : "");
    job->checkpoints = qn_calloc(n + 1, sizeof *job->checkpoints);
    if (!job->space || !job->checkpoints)
        return QN_E_NOMEM;
    for (size_t i = 0; i < n; i++) {
        if (turn && turn < r->checkpoints[i].tokens)
            job->checkpoints[made++].tokens = turn;
        if (turn && turn <= r->checkpoints[i].tokens)
            turn = 0;
        job->checkpoints[made++] = r->checkpoints[i];
    }
    if (turn)
        job->checkpoints[made++].tokens = turn;
    job->checkpoint_count = made;
    int64_t all = (int64_t)job->all.size + r->max_tokens;
    job->choice =
        qn_model_rope_choice(m->model, (int)(all < m->ctx ? all : m->ctx));
    job->store = &m->prefixes;
    return QN_OK;
}

static qn_status set_up(quern_job *job, const quern_request *r)
{
    size_t unknown = job->session->unknown;
    qn_status status = qn_answer_check(r);
    if (!status)
        status = unknown ? more_ids(job->session, r, &job->all)
                         : prompt_ids(job->model, r, &job->all);
    if (!status)
        status = check_prompt(job->model, &job->all, unknown);
    if (!status)
        status =
            qn_answer_init(&job->answer, job->model, r, job->all.data + unknown,
                           job->all.size - unknown);
    if (!status && unknown && r->prompt_logprobs)
        status = qn_fail(QN_E_UNSUPPORTED,
                         "prompt_logprobs: the session begins with tokens that "
                         "nobody knows");
    /* Guesses need to know all tokens. */
    if (!status)
        status = qn_draft_init(&job->draft, job->model, &job->all,
                               unknown ? 0 : r->num_draft);
    if (!status)
        status = set_up_store(job, r);
    job->answer.ahead = (int64_t)unknown;
    job->unknown = unknown;
    job->prompt = (int64_t)job->all.size;
    job->unread_limit = r->unread_limit;
    job->wake = r->wake;
    job->wake_data = r->wake_data;
    return status;
}

static void drop_events(quern_job *job)
{
    while (job->events) {
        qn_event_node *node = job->events;
        job->events = node->next;
        qn_free(node->tokens);
        qn_free(node);
    }
    job->last = &job->events;
}

static void drop_current(quern_job *job)
{
    if (job->current)
        qn_free(job->current->tokens);
    qn_free(job->current);
    job->current = NULL;
}

static void free_job(quern_job *job)
{
    drop_current(job);
    drop_events(job);
    quern_result_free(&job->result);
    qn_answer_clear(&job->answer);
    qn_draft_clear(&job->draft);
    qn_ids_free(&job->all);
    qn_free(job->space);
    qn_free(job->checkpoints);
    if (job->own_session)
        quern_session_free(job->session);
    if (job->fd >= 0)
        close(job->fd);
    pthread_cond_destroy(&job->changed);
    pthread_mutex_destroy(&job->lock);
    qn_free(job);
}

/* A job that nobody has handed over yet. */
static qn_status make_job(quern_job **out, quern_model *model,
                          quern_session *session, const quern_request *request)
{
    quern_job *job = qn_calloc(1, sizeof *job);
    if (!job)
        return QN_E_NOMEM;
    job->model = model;
    job->fd = -1;
    job->last = &job->events;
    job->called = qn_now();
    job->result = (quern_result){.stop = -1, .end_id = -1};
    init_waiting(job);
    qn_status status = take_session(job, session);
    bool taken = !status;
    if (!status)
        status = set_up(job, request);
    if (status) {
        qn_error kept;
        qn_error_save(&kept);
        if (taken)
            qn_session_give_back(job->session);
        free_job(job);
        qn_error_restore(&kept);
        return status;
    }
    /* Pieces of a prompt that is scored have more rows than there is room for
     * picks. */
    bool picks = qn_answer_is_plain(&job->answer) && !job->answer.prompt;
    job->answer.emit = qn_job_emit;
    job->answer.data = job;
    job->row = (qn_row){.calls = &qn_job_calls,
                        .session = job->session,
                        .picks = picks ? job->picks : NULL,
                        .draft = &job->draft,
                        .limited = true};
    *out = job;
    return QN_OK;
}

/* Gives up jobs that were not handed over. */
static void drop_jobs(quern_job **jobs, size_t count)
{
    qn_error kept;
    qn_error_save(&kept);
    for (size_t i = 0; i < count; i++) {
        qn_session_give_back(jobs[i]->session);
        free_job(jobs[i]);
        jobs[i] = NULL;
    }
    qn_error_restore(&kept);
}

quern_status quern_submit(quern_job **out, quern_model *model,
                          quern_session *session, const quern_request *request,
                          quern_error *error)
{
    quern_job *job;
    qn_status status = make_job(&job, model, session, request);
    if (status)
        return qn_give(error, status);
    status = qn_scheduler_add(&model->scheduler, &job->row);
    if (status)
        drop_jobs(&job, 1);
    else
        *out = job;
    return qn_give(error, status);
}

quern_status quern_submit_n(quern_job **out, size_t count, quern_model *model,
                            const quern_request *request, quern_error *error)
{
    quern_request each = *request;
    qn_status status =
        count && count <= QUERN_MOST_ANSWERS
            ? QN_OK
            : qn_fail(QN_E_ARG, "answers: expected 1..%d, found %zu",
                      QUERN_MOST_ANSWERS, count);
    size_t made = 0;
    while (made < count && !status) {
        each.sampling.seed =
            (request->sampling.seed + made) & (uint64_t)INT64_MAX;
        status = make_job(&out[made], model, NULL, &each);
        if (status)
            break;
        if (made) {
            qn_share_join(out[made], out[0], out[0]->all.size, true);
            out[made - 1]->row.next = &out[made]->row;
        }
        made++;
    }
    if (!status)
        status = qn_scheduler_add(&model->scheduler, &out[0]->row);
    if (status)
        drop_jobs(out, made);
    return qn_give(error, status);
}

const double *quern_step_bounds(void)
{
    return qn_step_bounds;
}

void quern_model_steps(const quern_model *model, quern_steps *out)
{
    /* The lock is the scheduler's own business. */
    quern_model *m = (quern_model *)(uintptr_t)model;
    qn_scheduler_steps(&m->scheduler, out);
}

/* ---- what is kept, from outside ---- */

void quern_model_prefixes(quern_model *model, quern_prefix_stats *out)
{
    qn_prefixes_stats(&model->prefixes, out);
}

typedef struct flush {
    quern_model *model;
    size_t entries;
    uint64_t bytes;
} flush;

static qn_status do_flush(void *data)
{
    flush *f = data;
    qn_prefixes_flush(&f->model->prefixes, &f->entries, &f->bytes);
    mlx_clear_cache();
    return QN_OK;
}

quern_status quern_model_flush(quern_model *model, size_t *entries,
                               uint64_t *bytes, quern_error *error)
{
    flush f = {.model = model};
    qn_status status = qn_scheduler_call(&model->scheduler, do_flush, &f);
    if (entries)
        *entries = f.entries;
    if (bytes)
        *bytes = f.bytes;
    return qn_give(error, status);
}

static qn_status do_flush_disk(void *data)
{
    flush *f = data;
    qn_prefixes_flush_disk(&f->model->prefixes, &f->entries, &f->bytes);
    return QN_OK;
}

quern_status quern_model_flush_disk(quern_model *model, size_t *entries,
                                    uint64_t *bytes, quern_error *error)
{
    flush f = {.model = model};
    qn_status status = qn_scheduler_call(&model->scheduler, do_flush_disk, &f);
    if (entries)
        *entries = f.entries;
    if (bytes)
        *bytes = f.bytes;
    return qn_give(error, status);
}

/* ---- waiting ---- */

/* Waits until there is an event or the end; with the lock. */
static bool wait_for_event(quern_job *job, int timeout_ms)
{
    struct timespec until;
    if (timeout_ms > 0) {
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += timeout_ms / 1000;
        until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000;
        }
    }
    int rc = 0;
    while (!job->events && !job->done && timeout_ms && rc != ETIMEDOUT)
        rc = timeout_ms < 0
                 ? pthread_cond_wait(&job->changed, &job->lock)
                 : pthread_cond_timedwait(&job->changed, &job->lock, &until);
    return job->events || job->done;
}

/* The descriptor is no longer readable, if it was; with the lock. */
static void quiet_fd(const quern_job *job)
{
    uint64_t ignored;
    ssize_t n = 0;
    if (job->fd >= 0)
        n = read(job->fd, &ignored, sizeof ignored);
    (void)n;
}

bool quern_job_next(quern_job *job, int timeout_ms, quern_event *event)
{
    bool wake = false;
    drop_current(job);
    pthread_mutex_lock(&job->lock);
    bool some = wait_for_event(job, timeout_ms);
    if (job->events) {
        qn_event_node *node = job->events;
        job->events = node->next;
        if (!job->events)
            job->last = &job->events;
        job->unread -= node->event.size;
        wake = job->paused && job->unread <= job->unread_limit;
        job->current = node;
        *event = node->event;
    } else if (some) {
        *event = (quern_event){.type = QUERN_EVENT_DONE,
                               .text = "",
                               .result = &job->result,
                               .error = &job->error};
    }
    if (!job->events && !job->done)
        quiet_fd(job);
    pthread_mutex_unlock(&job->lock);
    if (wake)
        qn_scheduler_wake(&job->model->scheduler);
    return some;
}

int quern_job_fd(quern_job *job)
{
    pthread_mutex_lock(&job->lock);
    if (job->fd < 0)
        job->fd = eventfd(job->events || job->done, EFD_CLOEXEC | EFD_NONBLOCK);
    int fd = job->fd;
    pthread_mutex_unlock(&job->lock);
    return fd;
}

void quern_job_cancel(quern_job *job)
{
    atomic_store(&job->row.cancelled, true);
    qn_scheduler_wake(&job->model->scheduler);
}

static void wait_for_end(quern_job *job)
{
    pthread_mutex_lock(&job->lock);
    while (!job->done)
        pthread_cond_wait(&job->changed, &job->lock);
    pthread_mutex_unlock(&job->lock);
}

quern_status quern_job_result(quern_job *job, quern_result *result,
                              quern_error *error)
{
    wait_for_end(job);
    /* Events point into what the result owns. */
    drop_current(job);
    drop_events(job);
    if (result) {
        *result = job->result;
        job->result = (quern_result){.stop = -1, .end_id = -1};
    }
    if (error)
        *error = job->error;
    return (quern_status)job->status;
}

void quern_job_free(quern_job *job)
{
    if (!job)
        return;
    quern_job_cancel(job);
    wait_for_end(job);
    free_job(job);
}

void quern_model_jobs(const quern_model *model, size_t *running,
                      size_t *waiting)
{
    /* The lock is the scheduler's own business. */
    quern_model *m = (quern_model *)(uintptr_t)model;
    qn_scheduler_load(&m->scheduler, running, waiting);
}

void quern_result_free(quern_result *result)
{
    if (!result)
        return;
    qn_free(result->text);
    qn_free(result->reasoning);
    qn_free(result->tokens);
    qn_free(result->prompt);
    qn_free(result->calls);
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
    case QUERN_FINISH_TOOL_CALLS:
        return "tool_calls";
    case QUERN_FINISH_NONE:
        break;
    }
    return "error";
}
