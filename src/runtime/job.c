/* job.c: an answer as a row of the scheduler's: the model's thread.
 *
 * The row's tokens are first the prompt, as far as the session lacks it, then
 * the last token of the answer, each time with guesses behind it where there
 * is speculation. */
#include "job.h"

#include "base/alloc.h"

#include <string.h>
#include <unistd.h>

/* ---- events ---- */

/* Makes the descriptor readable; with the lock.  A write that fails found it
 * readable. */
static void tell_fd(const quern_job *job)
{
    ssize_t n = 0;
    if (job->fd >= 0)
        n = write(job->fd, &(uint64_t){1}, sizeof(uint64_t));
    (void)n;
}

qn_status qn_job_emit(void *data, const quern_event *event)
{
    quern_job *job = data;
    size_t size = event->size, count = event->token_count;
    qn_event_node *node = qn_alloc(sizeof *node + size + 1);
    quern_token *tokens = count ? qn_calloc(count, sizeof *tokens) : NULL;
    if (!node || (count && !tokens)) {
        qn_free(node);
        qn_free(tokens);
        return QN_E_NOMEM;
    }
    *node = (qn_event_node){.event = *event, .tokens = tokens};
    if (size)
        memcpy(node->text, event->text, size);
    node->text[size] = '\0';
    if (count)
        memcpy(tokens, event->tokens, count * sizeof *tokens);
    node->event.text = node->text;
    node->event.tokens = tokens;
    pthread_mutex_lock(&job->lock);
    bool none = !job->events;
    *job->last = node;
    job->last = &node->next;
    job->unread += size;
    if (none) {
        tell_fd(job);
        pthread_cond_signal(&job->changed);
    }
    pthread_mutex_unlock(&job->lock);
    if (none && job->wake)
        job->wake(job->wake_data);
    return QN_OK;
}

static qn_status tell_progress(quern_job *job, quern_event_type type,
                               int64_t done)
{
    return qn_job_emit(
        job, &(quern_event){
                 .type = type, .done = done, .total = job->prompt, .text = ""});
}

/* ---- the row ---- */

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

/* The row computes everything from `from` on. */
static void compute_from(quern_job *job, size_t from)
{
    qn_row *row = &job->row;
    row->ids = job->all.data + from;
    row->count = job->all.size - from;
    row->done = 0;
    row->wanted = 1;
    row->answered = (int64_t)job->answer.count;
    qn_kv_cache_expect(job->session->cache, (int)job->all.size);
}

static qn_status job_begin(qn_row *row)
{
    quern_job *job = (quern_job *)row;
    quern_session *s = job->session;
    size_t shared = shared_prefix(s, &job->all);
    job->start = qn_now();
    qn_status status = qn_session_keep(s, shared);
    if (status == QN_E_UNSUPPORTED && !job->unknown) {
        quern_session_reset(s);
        shared = 0;
        status = QN_OK;
    }
    int64_t all = (int64_t)job->all.size + job->answer.max_tokens;
    if (!status && !qn_session_aim(s, all))
        shared = 0;
    job->cached = (int64_t)shared;
    compute_from(job, shared);
    return status ? status : tell_progress(job, QUERN_EVENT_START, job->cached);
}

static bool job_ready(qn_row *row)
{
    quern_job *job = (quern_job *)row;
    if (!job->unread_limit)
        return true;
    pthread_mutex_lock(&job->lock);
    job->paused = job->unread > job->unread_limit;
    bool paused = job->paused;
    pthread_mutex_unlock(&job->lock);
    return !paused;
}

/* Takes tokens from the logits that a step gave, as long as they are those that
 * were guessed. */
static qn_status take_tokens(quern_job *job)
{
    qn_row *row = &job->row;
    qn_answer *a = &job->answer;
    qn_draft *d = &job->draft;
    for (int i = 0; i < row->wanted; i++) {
        int32_t id;
        size_t back = (size_t)(row->wanted - 1 - i);
        qn_status status = qn_answer_take(
            a, job->session, back, row->picks ? &row->picks[i] : NULL,
            job->all.data + job->unknown, job->all.size - job->unknown, &id);
        if (!job->first)
            job->first = qn_now();
        if (status || a->finish)
            return status;
        status = qn_ids_add(&job->all, id);
        if (status || i == row->wanted - 1 || d->tokens[1 + i] != id)
            return status;
        d->accepted++;
    }
    return QN_OK;
}

/* The sequence becomes what it would be without guesses, and the row the next
 * token. */
static qn_status go_on(quern_job *job)
{
    qn_draft *d = &job->draft;
    qn_row *row = &job->row;
    bool finished = job->answer.finish != QUERN_FINISH_NONE;
    size_t length = job->all.size - !finished;
    qn_status status = QN_OK;
    if (length < job->session->ids.size)
        status = qn_session_keep(job->session, length);
    if (status == QN_E_UNSUPPORTED && qn_draft_restore(d, job->session)) {
        compute_from(job, job->session->ids.size);
        return QN_OK;
    }
    if (status == QN_E_UNSUPPORTED) {
        /* The cache can't go back: without guesses, all of it again. */
        d->on = false;
        d->stopped = true;
        quern_session_reset(job->session);
        if (!finished)
            compute_from(job, 0);
        return QN_OK;
    }
    if (status || finished)
        return status;
    d->tokens[0] = job->all.data[job->all.size - 1];
    d->count = 0;
    d->left = job->answer.max_tokens - (int64_t)job->answer.count;
    row->ids = d->tokens;
    row->count = 1;
    row->done = 0;
    row->wanted = 1;
    row->answered = (int64_t)job->answer.count;
    return QN_OK;
}

static qn_status job_step(qn_row *row, bool *more)
{
    quern_job *job = (quern_job *)row;
    bool whole = row->done == row->count;
    qn_status status = QN_OK;
    if (!job->prompted) {
        status = tell_progress(job, QUERN_EVENT_PROMPT,
                               job->prompt - (int64_t)(row->count - row->done));
        job->prompted = whole;
        job->prompt_end = qn_now();
    }
    if (status || !whole)
        return status;
    status = take_tokens(job);
    if (!status)
        status = go_on(job);
    *more = !job->answer.finish;
    return status;
}

static bool job_rebuild(qn_row *row)
{
    quern_job *job = (quern_job *)row;
    if (job->unknown)
        return false; /* nobody knows how */
    quern_session_reset(job->session);
    compute_from(job, 0);
    return true;
}

static void fill_result(quern_job *job)
{
    quern_result *r = &job->result;
    *r = (quern_result){
        .prompt_tokens = job->prompt,
        .cached_tokens = job->cached,
        .drafted = job->draft.drafted,
        .accepted = job->draft.accepted,
        .draft_stopped = job->draft.stopped,
        .queue_seconds = job->start - job->called,
        .prompt_seconds =
            job->prompt_end > job->start ? job->prompt_end - job->start : 0,
        .first_token_seconds = job->first ? job->first - job->called : 0,
        .decode_seconds = job->first ? job->end - job->first : 0,
    };
    qn_status status = qn_answer_hand_over(&job->answer, r);
    if (status && !job->status) {
        job->status = status;
        qn_give(&job->error, status);
        r->finish = QUERN_FINISH_NONE;
    }
}

static void job_end(qn_row *row, qn_status status)
{
    quern_job *job = (quern_job *)row;
    if (!status)
        status = qn_answer_finish(&job->answer);
    job->end = qn_now();
    if (!job->start)
        job->start = job->end; /* cancelled while it waited */
    if (!job->prompted)
        job->prompt_end = job->end;
    if (status)
        job->answer.finish = status == QN_E_CANCELLED ? QUERN_FINISH_CANCELLED
                                                      : QUERN_FINISH_NONE;
    job->status = status;
    qn_give(&job->error, status);
    fill_result(job);
    qn_draft_clear(&job->draft);
    void (*wake)(void *data) = job->wake;
    void *data = job->wake_data;
    pthread_mutex_lock(&job->lock);
    bool none = !job->events;
    qn_session_give_back(job->session);
    job->done = true;
    tell_fd(job);
    /* Who frees the job waits for this lock. */
    pthread_cond_broadcast(&job->changed);
    if (none && wake)
        wake(data);
    pthread_mutex_unlock(&job->lock);
}

const qn_row_calls qn_job_calls = {
    .begin = job_begin,
    .ready = job_ready,
    .step = job_step,
    .rebuild = job_rebuild,
    .end = job_end,
};
