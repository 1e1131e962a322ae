/* scheduler.c: see scheduler.h. */
#include "scheduler.h"

#include "base/alloc.h"
#include "draft.h"
#include "runtime.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

/* A signal handler may cancel a session, and can't wake anyone: rows that wait
 * for their reader are looked at this often. */
enum { STALLED_MS = 20 };
/* After so long without work, what can wait is done. */
enum { REST_MS = 50 };

/* Work of another kind than rows. */
struct qn_call {
    qn_status (*work)(void *data);
    void *data;
    qn_status status;
    qn_error error;
    bool done;
    pthread_cond_t finished;
    qn_call *next;
};

void qn_scheduler_init(qn_scheduler *s, size_t parallel)
{
    *s = (qn_scheduler){
        .parallel = parallel, .draft_rows = QN_DRAFT_ROWS, .rest_ms = REST_MS};
    s->last_waiting = &s->first_waiting;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->work, &attr);
    pthread_condattr_destroy(&attr);
}

/* ---- rows come and go ---- */

static void leave(qn_scheduler *s, qn_row **at, qn_status status)
{
    qn_row *row = *at;
    *at = row->next;
    s->count--;
    if (row->limited) {
        pthread_mutex_lock(&s->lock);
        s->limited--;
        pthread_mutex_unlock(&s->lock);
    }
    row->calls->end(row, status);
}

static bool is_cancelled(qn_row *row)
{
    return atomic_load(&row->cancelled) || qn_session_take_cancel(row->session);
}

static qn_status cancelled(void)
{
    return qn_fail(QN_E_CANCELLED, "cancelled");
}

static void drop_cancelled(qn_scheduler *s)
{
    for (qn_row **at = &s->rows; *at;)
        if (is_cancelled(*at))
            leave(s, at, cancelled());
        else
            at = &(*at)->next;
}

/* Rows whose cache has no room for what they are to compute: they fail alone.
 */
static void drop_too_long(qn_scheduler *s)
{
    for (qn_row **at = &s->rows; *at;) {
        size_t left = (*at)->count - (*at)->done;
        qn_status status = qn_kv_cache_check((*at)->session->cache, (int)left);
        if (status)
            leave(s, at, status);
        else
            at = &(*at)->next;
    }
}

/* Moves rows whose turn it is from the queue to *out, and those that were
 * cancelled while they waited to *dropped.  With the lock. */
static void take_waiting(qn_scheduler *s, qn_row **out, qn_row **dropped)
{
    qn_row **end = out;
    for (qn_row **at = &s->first_waiting; *at;) {
        qn_row *row = *at;
        bool gone = is_cancelled(row);
        if (!gone && row->limited && s->limited >= s->parallel) {
            at = &row->next;
            continue;
        }
        *at = row->next;
        s->waiting -= row->limited;
        row->next = NULL;
        if (gone) {
            row->next = *dropped;
            *dropped = row;
            continue;
        }
        s->limited += row->limited;
        *end = row;
        end = &row->next;
    }
    s->last_waiting = &s->first_waiting;
    while (*s->last_waiting)
        s->last_waiting = &(*s->last_waiting)->next;
}

/* Rows that begin go behind those that run. */
static void begin_all(qn_scheduler *s, qn_row *rows)
{
    qn_row **end = &s->rows;
    while (*end)
        end = &(*end)->next;
    *end = rows;
    for (qn_row *row = rows; row; row = row->next)
        s->count++;
    while (*end) {
        qn_status status =
            (*end)->calls->begin ? (*end)->calls->begin(*end) : QN_OK;
        if (status)
            leave(s, end, status);
        else
            end = &(*end)->next;
    }
}

static void end_all(qn_row *dropped)
{
    while (dropped) {
        qn_row *row = dropped;
        dropped = row->next;
        row->calls->end(row, cancelled());
    }
}

/* One after the other, but no more than one while rows wait for their step. */
static void run_calls(qn_scheduler *s)
{
    for (bool more = true; s->calls && more; more = !s->count) {
        qn_call *call = s->calls;
        s->calls = call->next;
        pthread_mutex_unlock(&s->lock);
        call->status = call->work(call->data);
        if (call->status)
            qn_error_save(&call->error);
        pthread_mutex_lock(&s->lock);
        call->done = true;
        pthread_cond_signal(&call->finished);
    }
}

/* True: nobody has come. */
static bool wait_a_moment(qn_scheduler *s, int ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ms * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    return pthread_cond_timedwait(&s->work, &s->lock, &until) == ETIMEDOUT;
}

/* Waits for work, and does a piece of what can wait when none comes. */
static void rest(qn_scheduler *s)
{
    bool idle = false;
    s->waits = true;
    if (s->idle && s->rest_ms >= 0 && !s->ending)
        idle = !s->rest_ms || wait_a_moment(s, s->rest_ms);
    else
        pthread_cond_wait(&s->work, &s->lock);
    s->waits = false;
    if (!idle || s->borrowed)
        return;
    pthread_mutex_unlock(&s->lock);
    int later = s->idle(s->idle_data);
    pthread_mutex_lock(&s->lock);
    s->rest_ms = later;
}

/* Waits until there is something to do; false: the model goes. */
static bool take_work(qn_scheduler *s)
{
    qn_row *begin = NULL, *dropped = NULL;
    pthread_mutex_lock(&s->lock);
    if (s->stalled && !s->calls && !s->ending)
        wait_a_moment(s, STALLED_MS);
    s->stalled = false;
    for (;;) {
        if (!s->borrowed) {
            run_calls(s);
            take_waiting(s, &begin, &dropped);
            if (begin || dropped || s->count || s->ending)
                break;
        }
        rest(s);
    }
    s->rest_ms = REST_MS;
    bool ending = s->ending && !begin && !dropped && !s->count;
    pthread_mutex_unlock(&s->lock);
    end_all(dropped);
    begin_all(s, begin);
    return !ending;
}

/* ---- steps ---- */

static bool make_room(qn_scheduler *s)
{
    if (s->count <= s->capacity)
        return true;
    size_t capacity = 2 * s->count;
    struct qn_feed *feeds =
        qn_reallocarray(s->feeds, capacity, sizeof *s->feeds);
    if (feeds)
        s->feeds = feeds;
    qn_row **who = qn_reallocarray(s->who, capacity, sizeof(qn_row *));
    if (who)
        s->who = who;
    if (!feeds || !who)
        return false;
    s->capacity = capacity;
    return true;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* What of a row a step must have: one token, or all of the few that are wanted
 * together. */
static size_t need_of(const qn_row *row)
{
    size_t left = row->count - row->done;
    return row->wanted > 1 ? left : least(left, 1);
}

static qn_feed feed_of(qn_row *row, size_t count)
{
    bool last = row->done + count == row->count;
    return (qn_feed){.session = row->session,
                     .ids = row->ids + row->done,
                     .count = (int)count,
                     .wanted = last ? row->wanted : 0,
                     .picks = last ? row->picks : NULL,
                     .answered = row->answered};
}

/* Who is in the next step: all that are ready, or one that must be alone. */
static size_t choose(qn_scheduler *s)
{
    size_t count = 0;
    for (qn_row *row = s->rows; row; row = row->next) {
        if (row->done == row->count || !row->calls->ready(row))
            continue;
        if (row->alone) {
            s->who[0] = row;
            return 1;
        }
        s->who[count++] = row;
    }
    return count;
}

/* Tokens of prompts that a step may have. */
static size_t chunk_of(const qn_scheduler *s)
{
    enum { LEAST = 16, UNKNOWN = 32 };
    size_t chunk = (size_t)s->who[0]->session->model->prefill_chunk;
    if (s->step_seconds <= 0)
        return chunk;
    if (s->token_seconds <= 0)
        return least(chunk, UNKNOWN);
    double most = s->step_seconds / s->token_seconds;
    size_t cut = most < LEAST ? LEAST : most > 1e6 ? 1000000 : (size_t)most;
    return least(chunk, cut);
}

/* What a step with many tokens says of the time of one. */
static void note_time(qn_scheduler *s, size_t count, double seconds)
{
    enum { MANY = 16 };
    size_t tokens = 0;
    for (size_t i = 0; i < count; i++)
        tokens += (size_t)s->feeds[i].count;
    if (tokens < MANY)
        return;
    double one = seconds / (double)tokens, before = s->token_seconds;
    s->token_seconds = before > 0 ? 0.5 * (before + one) : one;
}

const double qn_step_bounds[QUERN_STEP_BUCKETS - 1] = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60};

/* A row with more tokens than it wants logits of has a piece of a prompt. */
static void count_step(qn_scheduler *s, size_t count, double seconds)
{
    int phase = 1, bucket = 0, rows = 0;
    for (size_t i = 0; i < count; i++)
        if ((int64_t)s->feeds[i].count > s->who[i]->wanted)
            phase = 0;
    while (bucket < QUERN_STEP_BUCKETS - 1 && seconds > qn_step_bounds[bucket])
        bucket++;
    while (rows < QUERN_ROW_BUCKETS - 1 && count > (size_t)1 << rows)
        rows++;
    pthread_mutex_lock(&s->lock);
    s->steps.count[phase]++;
    s->steps.seconds[phase] += seconds;
    s->steps.buckets[phase][bucket]++;
    s->steps.rows += count;
    s->steps.row_buckets[rows]++;
    pthread_mutex_unlock(&s->lock);
}

/* The next step: what each needs, then more of prompts as far as the chunk
 * allows, those that came first at first. */
static size_t plan(qn_scheduler *s)
{
    size_t count = choose(s), taken = 0;
    if (!count)
        return 0;
    size_t chunk = chunk_of(s);
    for (size_t i = 0; i < count; i++)
        taken += need_of(s->who[i]);
    size_t spare = chunk > taken ? chunk - taken : 0;
    for (size_t i = 0; i < count; i++) {
        qn_row *row = s->who[i];
        size_t need = need_of(row), left = row->count - row->done;
        size_t most = least(left, qn_session_room(row->session));
        if (row->stop > row->done)
            most = least(most, row->stop - row->done);
        size_t more = most > need ? least(most - need, spare) : 0;
        spare -= more;
        s->feeds[i] = feed_of(row, need + more);
    }
    return count;
}

/* A step of several failed, for a reason that may be one row's alone: each is
 * computed again by itself. */
static void rebuild_all(qn_scheduler *s, size_t count, qn_status status)
{
    qn_error error;
    qn_error_save(&error);
    for (size_t i = 0; i < count; i++) {
        qn_row *row = s->who[i], **at = &s->rows;
        row->alone = row->calls->rebuild && row->calls->rebuild(row);
        if (row->alone)
            continue;
        while (*at != row)
            at = &(*at)->next;
        qn_error_restore(&error);
        leave(s, at, status);
    }
}

static void move_on(qn_scheduler *s, qn_row *row, size_t count,
                    qn_status status)
{
    bool more = true;
    row->done += status ? 0 : count;
    if (!status && row->done == row->count)
        row->alone = false;
    if (!status)
        status = row->calls->step(row, &more);
    if (!status && more)
        return;
    qn_row **at = &s->rows;
    while (*at != row)
        at = &(*at)->next;
    leave(s, at, status);
}

static void fail_all(qn_scheduler *s)
{
    while (s->rows)
        leave(s, &s->rows, QN_E_NOMEM);
}

/* Rows that have everything already. */
static void pass_complete(qn_scheduler *s)
{
    for (qn_row *row = s->rows, *next; row; row = next) {
        next = row->next;
        if (row->done == row->count && row->calls->ready(row))
            move_on(s, row, 0, QN_OK);
    }
}

static void take_step(qn_scheduler *s)
{
    if (!make_room(s)) {
        fail_all(s);
        return;
    }
    pass_complete(s);
    if (s->count <= s->draft_rows)
        qn_drafts_propose(s->rows, s->count);
    drop_too_long(s);
    size_t count = plan(s);
    s->stalled = !count && s->count;
    if (!count)
        return;
    double begin = qn_now();
    qn_status status = qn_sessions_compute(s->feeds, count);
    double seconds = qn_now() - begin;
    if (s->step_seconds > 0 && !status)
        note_time(s, count, seconds);
    count_step(s, count, seconds);
    if (status && count > 1) {
        rebuild_all(s, count, status);
        return;
    }
    for (size_t i = 0; i < count; i++)
        move_on(s, s->who[i], (size_t)s->feeds[i].count, status);
}

/* Freed buffers are kept for the next step; after a long prompt there are many
 * that nobody has use for. */
static void trim_memory(void)
{
    enum { KEPT = 256 << 20 };
    size_t cached = 0;
    quern_memory(NULL, NULL, &cached);
    if (cached > KEPT)
        mlx_clear_cache();
}

static void *run(void *data)
{
    qn_scheduler *s = data;
    while (take_work(s)) {
        drop_cancelled(s);
        if (!s->count)
            continue;
        take_step(s);
        if (!s->count)
            trim_memory();
    }
    return NULL;
}

/* ---- from other threads ---- */

/* With the lock.  Signals are for the program's own threads. */
static qn_status start(qn_scheduler *s)
{
    if (s->started)
        return QN_OK;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&s->thread, NULL, run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return qn_fail(QN_E_NOMEM, "the system gives no further thread");
    s->started = true;
    return QN_OK;
}

/* With the lock. */
static void put_behind(qn_scheduler *s, qn_row *rows)
{
    *s->last_waiting = rows;
    for (qn_row *row = rows; row; row = row->next) {
        s->waiting += row->limited;
        s->last_waiting = &row->next;
    }
}

qn_status qn_scheduler_add(qn_scheduler *s, qn_row *rows)
{
    pthread_mutex_lock(&s->lock);
    qn_status status = start(s);
    if (!status) {
        put_behind(s, rows);
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* With the lock: the thread sleeps, or is not there yet, and nobody has come
 * before. */
static bool is_idle(const qn_scheduler *s)
{
    return !s->borrowed && !s->first_waiting && !s->calls && !s->count &&
           (s->waits || !s->started);
}

/* Takes the steps of the thread until *left is 0; rows of others that came
 * meanwhile are its own again then. */
static void compute_here(qn_scheduler *s, pthread_mutex_t *lock,
                         const size_t *left)
{
    for (;;) {
        pthread_mutex_lock(lock);
        bool done = !*left;
        pthread_mutex_unlock(lock);
        if (done)
            return;
        qn_row *begin = NULL, *dropped = NULL;
        pthread_mutex_lock(&s->lock);
        run_calls(s);
        take_waiting(s, &begin, &dropped);
        pthread_mutex_unlock(&s->lock);
        end_all(dropped);
        begin_all(s, begin);
        drop_cancelled(s);
        if (s->count)
            take_step(s);
    }
}

qn_status qn_scheduler_run(qn_scheduler *s, qn_row *rows, pthread_mutex_t *lock,
                           const size_t *left)
{
    pthread_mutex_lock(&s->lock);
    bool here = is_idle(s);
    qn_status status = here ? QN_OK : start(s);
    if (!status)
        put_behind(s, rows);
    s->borrowed |= here;
    if (!here && !status)
        pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    if (!here)
        return status;
    compute_here(s, lock, left);
    if (!s->count)
        trim_memory();
    pthread_mutex_lock(&s->lock);
    s->borrowed = false;
    /* Whoever came meanwhile has started the thread. */
    if (s->count || s->first_waiting || s->calls)
        pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    return QN_OK;
}

void qn_scheduler_wake(qn_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

qn_status qn_scheduler_call(qn_scheduler *s, qn_status (*work)(void *data),
                            void *data)
{
    qn_call call = {.work = work, .data = data};
    pthread_cond_init(&call.finished, NULL);
    pthread_mutex_lock(&s->lock);
    qn_status status = start(s);
    if (!status) {
        qn_call **end = &s->calls;
        while (*end)
            end = &(*end)->next;
        *end = &call;
        pthread_cond_signal(&s->work);
        while (!call.done)
            pthread_cond_wait(&call.finished, &s->lock);
        status = call.status;
    }
    pthread_mutex_unlock(&s->lock);
    pthread_cond_destroy(&call.finished);
    if (call.done && status)
        qn_error_restore(&call.error);
    return status;
}

void qn_scheduler_steps(qn_scheduler *s, quern_steps *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->steps;
    pthread_mutex_unlock(&s->lock);
}

void qn_scheduler_load(qn_scheduler *s, size_t *running, size_t *waiting)
{
    pthread_mutex_lock(&s->lock);
    *running = s->limited;
    *waiting = s->waiting;
    pthread_mutex_unlock(&s->lock);
}

void qn_scheduler_clear(qn_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    s->ending = true;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    if (s->started)
        pthread_join(s->thread, NULL);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->work);
    qn_free(s->feeds);
    qn_free(s->who);
}
