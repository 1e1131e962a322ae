/* job.c: an answer as a row of the scheduler's: the model's thread.
 *
 * The row's tokens are first the prompt, as far as the session lacks it, then
 * the last token of the answer, each time with guesses behind it where there
 * is speculation. */
#include "job.h"

#include "base/alloc.h"
#include "share.h"

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

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The log probabilities of the prompt's tokens are wanted and not there. */
static bool scores(const quern_job *job)
{
    return job->answer.prompt && !job->prompted && !job->given;
}

/* The row computes everything from `from` on; of a prompt that is scored the
 * next piece, all of whose logits are wanted. */
static void compute_from(quern_job *job, size_t from)
{
    enum { PIECE = 32 };
    qn_row *row = &job->row;
    row->ids = job->all.data + from;
    row->count = job->all.size - from;
    row->done = 0;
    row->wanted = 1;
    if (scores(job)) {
        size_t room = qn_session_room(job->session);
        size_t most = room && room < PIECE ? room : PIECE;
        row->count = row->count < most ? row->count : most;
        row->wanted = (int)row->count;
    }
    row->answered = (int64_t)job->answer.count;
    qn_kv_cache_expect(job->session->cache, (int)job->all.size);
    /* Storage grows by whole steps, but takes no more than was counted on. */
    if (job->own_session)
        qn_kv_cache_admit(
            job->session->cache,
            (int)least(job->prompt + job->answer.max_tokens, job->model->ctx));
}

/* ---- checkpoints ---- */

/* Keeps what was asked for at the lengths that the sequence has come to.  A
 * cache that can go back needs none of it, unless it is pinned: what is kept at
 * the end can be cut. */
static void keep_checkpoints(quern_job *job)
{
    quern_session *s = job->session;
    if (job->learnt && job->learnt <= s->ids.size) {
        qn_prefixes_mark(job->store, s, job->space, job->choice, job->learnt,
                         0);
        job->learnt = 0;
    }
    for (; job->store && job->next_checkpoint < job->checkpoint_count;
         job->next_checkpoint++) {
        const quern_checkpoint *c = &job->checkpoints[job->next_checkpoint];
        if (c->tokens > s->ids.size)
            return;
        if (c->pin_seconds || job->forgets)
            qn_prefixes_mark(job->store, s, job->space, job->choice, c->tokens,
                             c->pin_seconds);
    }
}

/* Where the next step has to end. */
static void set_stop(quern_job *job)
{
    size_t stop = qn_share_next(job), have = job->session->ids.size;
    if (job->next_checkpoint < job->checkpoint_count &&
        job->checkpoints[job->next_checkpoint].tokens < stop)
        stop = job->checkpoints[job->next_checkpoint].tokens;
    if (job->learnt && job->learnt < stop)
        stop = job->learnt;
    job->row.stop = stop == SIZE_MAX ? 0 : job->row.done + (stop - have);
}

/* ---- beginning ---- */

static qn_status tell_start(quern_job *job)
{
    if (job->told_start)
        return QN_OK;
    job->told_start = true;
    return tell_progress(job, QUERN_EVENT_START, job->cached);
}

/* Takes what is kept of the prompt. */
static void look_up(quern_job *job)
{
    quern_session *s = job->session;
    size_t most = job->all.size - 1;
    qn_prefixes_take(job->store, s, job->space, job->choice, job->all.data,
                     most);
    size_t common = qn_prefixes_common(job->store, job->space, job->choice,
                                       job->all.data, most);
    /* An entry has more of it and can't give it: the next one shall. */
    if (common > s->ids.size + QN_PREFIX_LEAST)
        job->learnt = common;
}

/* What is not in the session yet is to be computed. */
static qn_status begin_prompt(quern_job *job)
{
    quern_session *s = job->session;
    if (scores(job))
        quern_session_reset(s);
    if (job->store && !s->ids.size)
        look_up(job);
    size_t shared = shared_prefix(s, &job->all);
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
    if (!status)
        keep_checkpoints(job);
    return status;
}

/* Another job has computed this prompt: nothing is left to do. */
static void begin_given(quern_job *job)
{
    job->cached = job->prompt;
    compute_from(job, job->all.size - 1);
    job->row.done = job->row.count;
}

void qn_job_go(quern_job *job)
{
    if (job->given) {
        begin_given(job);
        return;
    }
    job->late = begin_prompt(job);
    if (job->late)
        qn_error_save(&job->late_error);
}

static qn_status job_begin(qn_row *row)
{
    quern_job *job = (quern_job *)row;
    job->start = qn_now();
    job->begun = true;
    if (job->given)
        begin_given(job);
    else if (!job->leader && !qn_share_follow(job)) {
        qn_status status = begin_prompt(job);
        return status ? status : tell_start(job);
    }
    return QN_OK;
}

static bool job_ready(qn_row *row)
{
    quern_job *job = (quern_job *)row;
    if (job->leader)
        return false;
    row->stop = 0;
    if (!job->prompted && !job->given)
        set_stop(job);
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
        bool picked = row->picks && !job->given;
        job->given = false;
        qn_status status = qn_answer_take(
            a, job->session, back, picked ? &row->picks[i] : NULL,
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

/* What a piece's logits say of the tokens behind them. */
static qn_status score_piece(quern_job *job)
{
    const qn_row *row = &job->row;
    size_t end = job->session->ids.size;
    qn_status status = QN_OK;
    if (!job->answer.scored)
        status =
            qn_answer_score(&job->answer, job->session, 0, job->all.data[0]);
    for (size_t i = row->count; i > 0 && !status; i--)
        if (end - i + 1 < job->all.size)
            status = qn_answer_score(&job->answer, job->session, i - 1,
                                     job->all.data[end - i + 1]);
    return status;
}

static qn_status job_step(qn_row *row, bool *more)
{
    quern_job *job = (quern_job *)row;
    bool whole = row->done == row->count;
    if (job->late) {
        qn_error_restore(&job->late_error);
        return job->late;
    }
    qn_status status = tell_start(job);
    bool piece = scores(job);
    if (!status && piece && whole)
        status = score_piece(job);
    if (!job->prompted) {
        size_t left = (size_t)(job->all.data + job->all.size - row->ids) -
                      row->done; /* of the prompt */
        if (!status)
            status = tell_progress(job, QUERN_EVENT_PROMPT,
                                   job->prompt - (int64_t)left);
        whole = whole && !left;
        job->prompted = whole;
        job->prompt_end = qn_now();
        keep_checkpoints(job);
        qn_share_give(job);
    }
    if (!status && piece && !whole && row->done == row->count)
        compute_from(job, job->session->ids.size);
    if (status || !whole)
        return status;
    if (piece)
        row->wanted = 1; /* the last one */
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
    job->given = false;
    job->answer.scored = job->prompted ? job->answer.scored : 0;
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
    qn_share_leave(job);
    if (job->store)
        qn_prefixes_keep(job->store, job->session, job->space, job->choice);
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
