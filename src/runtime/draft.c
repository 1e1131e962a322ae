/* draft.c: see draft.h. */
#include "draft.h"

#include <string.h>

/* ---- setting up ---- */

static qn_status mismatch(const char *what, long long expected, long long found)
{
    qn_status status =
        qn_fail(QN_E_MISMATCH, "draft model: expected %s %lld, found %lld",
                what, expected, found);
    return qn_fail_where(status, "draft");
}

qn_status qn_draft_check(const quern_model *model, const quern_model *draft)
{
    int32_t count = qn_tokenizer_count(model->tokenizer);
    int32_t other = qn_tokenizer_count(draft->tokenizer);
    if (count != other)
        return mismatch("a vocabulary of", count, other);
    for (int i = 0; i < QN_DRAFT_SAMPLES; i++) {
        int32_t id = (int32_t)((int64_t)count * i / QN_DRAFT_SAMPLES);
        qn_str a = qn_tokenizer_token_text(model->tokenizer, id);
        qn_str b = qn_tokenizer_token_text(draft->tokenizer, id);
        if (a.size == b.size && !memcmp(a.data, b.data, a.size))
            continue;
        qn_status status = qn_fail(
            QN_E_MISMATCH,
            "draft model: expected token %ld to be '%.*s', found '%.*s'",
            (long)id, (int)(a.size < 40 ? a.size : 40), a.data,
            (int)(b.size < 40 ? b.size : 40), b.data);
        return qn_fail_where(status, "draft");
    }
    return QN_OK;
}

qn_status qn_draft_init(qn_draft *d, const quern_model *model,
                        const qn_ids *all, int most)
{
    d->all = all;
    d->most = most < 0 ? model->num_draft : most;
    d->on = model->num_draft && d->most;
    if (!d->on || !model->draft)
        return QN_OK;
    quern_error error;
    qn_status status =
        (qn_status)quern_session_new(&d->session, model->draft, &error);
    d->on = !status;
    return status;
}

void qn_draft_clear(qn_draft *d)
{
    quern_session_free(d->session);
    qn_kv_cache_free(d->snapshot);
    d->session = NULL;
    d->snapshot = NULL;
}

/* ---- caches that can't go back ---- */

/* A step of guesses begins: the cache as it is now, if it can't forget. */
static bool take_snapshot(qn_draft *d, const quern_session *s)
{
    int length = qn_kv_cache_length(s->cache);
    qn_kv_cache_free(d->snapshot);
    d->snapshot = NULL;
    d->snapshot_length = (size_t)length;
    return (length > 1 && qn_kv_cache_can_trim(s->cache, length - 1)) ||
           !qn_kv_cache_clone(&d->snapshot, s->cache);
}

bool qn_draft_restore(qn_draft *d, quern_session *s)
{
    if (!d->snapshot)
        return false;
    qn_kv_cache_free(s->cache);
    s->cache = d->snapshot;
    s->ids.size = d->snapshot_length;
    d->snapshot = NULL;
    return true;
}

/* ---- n-grams ---- */

/* The last place before the end where the last `size` tokens stand, and what
 * follows them; 0: nowhere. */
static size_t find_earlier(const qn_ids *all, size_t size)
{
    const int32_t *tail = all->data + all->size - size;
    for (size_t end = all->size - 1; end >= size; end--)
        if (all->data[end - 1] == tail[size - 1] &&
            !memcmp(all->data + end - size, tail, size * sizeof *tail))
            return end;
    return 0;
}

static void guess_ngram(qn_draft *d, int most)
{
    for (size_t size = QN_NGRAM; size >= 1; size--) {
        size_t at = size < d->all->size ? find_earlier(d->all, size) : 0;
        if (!at)
            continue;
        for (; at < d->all->size && d->count < most; at++)
            d->tokens[1 + d->count++] = d->all->data[at];
        return;
    }
}

/* ---- a small model ---- */

static void stop(qn_draft *d)
{
    d->on = false;
    d->stopped = true;
    d->count = 0;
    quern_session_reset(d->session);
}

/* How many guesses a row may have now. */
static int most_of(const qn_row *row)
{
    const qn_draft *d = row->draft;
    int64_t most = d->most;
    /* A right guess gives its own token and one behind it. */
    if (most > d->left - 1)
        most = d->left - 1;
    int64_t room = row->session->model->ctx - (int64_t)d->all->size;
    if (most > room)
        most = room;
    size_t step = qn_session_room(row->session);
    if (step <= (size_t)QN_MAX_DRAFT && most > (int64_t)step - 1)
        most = (int64_t)step - 1;
    return most > 0 ? (int)most : 0;
}

static bool wants_guesses(qn_row *row)
{
    return row->draft && row->draft->on && row->count == 1 && !row->done &&
           row->ids == row->draft->tokens && row->calls->ready(row) &&
           most_of(row) > 0;
}

/* Makes the small model's sequence a beginning of the answer's and sets *feed
 * to what is next of it: a chunk, with a pick at the end of the last one. */
static qn_status follow(qn_draft *d, qn_feed *feed, qn_pick *pick)
{
    quern_session *s = d->session;
    const qn_ids *all = d->all;
    size_t same = 0,
           most = s->ids.size < all->size - 1 ? s->ids.size : all->size - 1;
    while (same < most && s->ids.data[same] == all->data[same])
        same++;
    qn_status status = qn_session_keep(s, same);
    if (status == QN_E_UNSUPPORTED) {
        quern_session_reset(s);
        same = 0;
        status = QN_OK;
    }
    size_t chunk = (size_t)s->model->prefill_chunk, left = all->size - same;
    size_t room = qn_session_room(s);
    chunk = chunk < room ? chunk : room;
    bool whole = left <= chunk;
    if (!s->ids.size)
        qn_session_aim(s, (int64_t)all->size);
    qn_kv_cache_expect(s->cache, (int)all->size);
    *feed = (qn_feed){.session = s,
                      .ids = all->data + same,
                      .count = (int)(whole ? left : chunk),
                      .wanted = whole,
                      .picks = whole ? pick : NULL};
    return status;
}

/* The rows that guesses are made for at once. */
typedef struct round {
    qn_row *rows[QN_DRAFT_MAX_ROWS];
    qn_feed feeds[QN_DRAFT_MAX_ROWS];
    qn_pick picks[QN_DRAFT_MAX_ROWS];
    size_t count;
} round;

static void fail(round *r)
{
    for (size_t i = 0; i < r->count; i++)
        stop(r->rows[i]->draft);
    r->count = 0;
}

/* Takes the guesses of a computation over; rows with enough of them leave. */
static void take_guesses(round *r)
{
    size_t left = 0;
    for (size_t i = 0; i < r->count; i++) {
        qn_row *row = r->rows[i];
        qn_draft *d = row->draft;
        int32_t id = r->picks[i].id;
        bool more = r->feeds[i].wanted && id < row->session->model->token_count;
        if (more)
            d->tokens[1 + d->count++] = id;
        if (!more || d->count >= most_of(row) || !qn_session_room(d->session) ||
            (int64_t)d->session->ids.size >= d->session->model->ctx)
            continue;
        r->rows[left] = row;
        r->feeds[left] = (qn_feed){.session = d->session,
                                   .ids = &d->tokens[d->count],
                                   .count = 1,
                                   .wanted = 1,
                                   .picks = &r->picks[left]};
        left++;
    }
    r->count = left;
}

static void add_to_round(round *r, qn_row *row)
{
    qn_draft *d = row->draft;
    size_t i = r->count;
    if ((int64_t)d->all->size > d->session->model->ctx ||
        follow(d, &r->feeds[i], &r->picks[i])) {
        stop(d);
        return;
    }
    r->rows[i] = row;
    r->count++;
}

static void guess_by_model(round *r)
{
    while (r->count) {
        if (qn_sessions_compute(r->feeds, r->count))
            fail(r);
        else
            take_guesses(r);
    }
}

/* ---- rows ---- */

static void put_in(qn_row *row)
{
    qn_draft *d = row->draft;
    row->count = (size_t)(1 + d->count);
    row->wanted = 1 + d->count;
    row->answered += d->count;
    d->drafted += d->count;
}

void qn_drafts_propose(qn_row *rows, size_t count)
{
    if (count > QN_DRAFT_MAX_ROWS)
        return;
    round r = {.count = 0};
    bool any = false;
    for (qn_row *row = rows; row; row = row->next) {
        if (!wants_guesses(row))
            continue;
        any = true;
        row->draft->count = 0;
        if (row->draft->session)
            add_to_round(&r, row);
        else
            guess_ngram(row->draft, most_of(row));
    }
    if (!any)
        return;
    guess_by_model(&r);
    for (qn_row *row = rows; row; row = row->next)
        if (wants_guesses(row) && row->draft->count &&
            take_snapshot(row->draft, row->session))
            put_in(row);
}
