/* feed.c: tokens in, logits out: rows of the scheduler's that end when their
 * tokens are computed. */
#include "runtime.h"

#include "base/alloc.h"

/* The items of one call. */
typedef struct group {
    pthread_mutex_t lock;
    pthread_cond_t finished;
    size_t left;
    qn_status status; /* the first failure of a computation */
    qn_error error;
} group;

typedef struct part {
    qn_row row; /* first: a row is its part */
    quern_feed *item;
    group *group;
} part;

/* ---- on the model's thread ---- */

static bool part_ready(qn_row *row)
{
    (void)row;
    return true;
}

static qn_status part_step(qn_row *row, bool *more)
{
    *more = row->done < row->count;
    return QN_OK;
}

static void part_end(qn_row *row, qn_status status)
{
    part *p = (part *)row;
    group *g = p->group;
    p->item->status = (quern_status)status;
    pthread_mutex_lock(&g->lock);
    if (status && status != QN_E_CANCELLED && !g->status) {
        g->status = status;
        qn_error_save(&g->error);
    }
    if (!--g->left)
        pthread_cond_signal(&g->finished);
    pthread_mutex_unlock(&g->lock);
}

static const qn_row_calls part_calls = {
    .ready = part_ready,
    .step = part_step,
    .end = part_end,
};

/* ---- the call ---- */

static qn_status check_items(const quern_feed *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const quern_session *s = items[i].session;
        if (s->model != items->session->model)
            return qn_fail(QN_E_ARG, "sequence %zu is of another model", i);
        for (size_t j = 0; j < i; j++)
            if (items[j].session == s)
                return qn_fail(QN_E_ARG, "sequences %zu and %zu are the same",
                               j, i);
    }
    return QN_OK;
}

/* What depends on the sessions' own state, which a job of another thread may
 * be changing until they are taken. */
static qn_status check_tokens(const quern_feed *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        qn_status status =
            qn_session_check(items[i].session, items[i].ids, items[i].count);
        if (status)
            return count > 1 ? qn_fail_where(status, "sequence %zu", i)
                             : status;
    }
    return QN_OK;
}

/* Takes all sessions, or none. */
static qn_status take_sessions(const quern_feed *items, size_t count)
{
    size_t taken = 0;
    qn_status status = QN_OK;
    while (taken < count && !(status = qn_session_take(items[taken].session)))
        taken++;
    if (!status)
        status = check_tokens(items, count);
    while (status && taken)
        qn_session_give_back(items[--taken].session);
    return status;
}

/* Rows of the items that have tokens, linked; how many. */
static size_t make_rows(part *parts, quern_feed *items, size_t count,
                        int wanted, group *g)
{
    size_t made = 0;
    for (size_t i = 0; i < count; i++) {
        quern_session *s = items[i].session;
        items[i].status = QUERN_OK;
        if (!items[i].count)
            continue;
        if (!s->ids.size)
            qn_session_aim(s, items[i].count);
        qn_kv_cache_expect(s->cache, (int)(s->ids.size + items[i].count));
        parts[made] = (part){.row = {.calls = &part_calls,
                                     .session = s,
                                     .ids = items[i].ids,
                                     .count = items[i].count,
                                     .wanted = wanted},
                             .item = &items[i],
                             .group = g};
        if (made)
            parts[made - 1].row.next = &parts[made].row;
        made++;
    }
    return made;
}

/* With the logits of `wanted` tokens at the end of each. */
static qn_status run(quern_feed *items, size_t count, int wanted)
{
    part *parts = qn_calloc(count, sizeof *parts);
    if (!parts)
        return QN_E_NOMEM;
    qn_status status = take_sessions(items, count);
    if (status) {
        qn_free(parts);
        return status;
    }
    group g = {.status = QN_OK};
    pthread_mutex_init(&g.lock, NULL);
    pthread_cond_init(&g.finished, NULL);
    g.left = make_rows(parts, items, count, wanted, &g);
    if (g.left)
        status = qn_scheduler_run(&items->session->model->scheduler,
                                  &parts->row, &g.lock, &g.left);
    pthread_mutex_lock(&g.lock);
    while (!status && g.left)
        pthread_cond_wait(&g.finished, &g.lock);
    pthread_mutex_unlock(&g.lock);
    if (!status && g.status) {
        status = g.status;
        qn_error_restore(&g.error);
    }
    pthread_cond_destroy(&g.finished);
    pthread_mutex_destroy(&g.lock);
    for (size_t i = 0; i < count; i++)
        qn_session_give_back(items[i].session);
    qn_free(parts);
    return status;
}

quern_status quern_sessions_feed(quern_feed *items, size_t count,
                                 quern_error *error)
{
    if (!count)
        return qn_give(error, QN_OK);
    qn_status status = check_items(items, count);
    return qn_give(error, status ? status : run(items, count, 1));
}

quern_status quern_session_feed(quern_session *s, const int32_t *ids,
                                size_t count, quern_error *error)
{
    quern_feed item = {.session = s, .ids = ids, .count = count};
    qn_status status = check_items(&item, 1);
    if (!status)
        status = run(&item, 1, 1);
    if (!status && item.status == QUERN_E_CANCELLED)
        status = qn_fail(QN_E_CANCELLED, "cancelled");
    return qn_give(error, status);
}

/* ---- scoring ---- */

static qn_status score_piece(quern_session *s, const int32_t *ids, size_t count,
                             size_t first, quern_score_fn score, void *data)
{
    quern_feed item = {.session = s, .ids = ids, .count = count};
    qn_status status = run(&item, 1, (int)count);
    if (!status && item.status == QUERN_E_CANCELLED)
        status = qn_fail(QN_E_CANCELLED, "cancelled");
    for (size_t i = 0; i < count && !status; i++) {
        const float *logits;
        status = qn_session_last(s, count - 1 - i, &logits);
        if (!status && !score(data, first + i, logits))
            status = qn_fail(QN_E_CANCELLED, "cancelled");
    }
    return status;
}

quern_status quern_session_score(quern_session *s, const int32_t *ids,
                                 size_t count, quern_score_fn score, void *data,
                                 quern_error *error)
{
    enum { PIECE = 32 };
    quern_feed whole = {.session = s, .ids = ids, .count = count};
    /* All of them fit, or nothing is computed. */
    qn_status status = take_sessions(&whole, 1);
    if (!status)
        qn_session_give_back(s);
    for (size_t i = 0; i < count && !status;) {
        size_t n = count - i < PIECE ? count - i : PIECE;
        size_t room = qn_session_room(s);
        n = room && room < n ? room : n;
        status = score_piece(s, ids + i, n, i, score, data);
        i += n;
    }
    return qn_give(error, status);
}
