/* feed.c: several sequences side by side.
 *
 * A step reads the weights once for all sequences, so decoding eight of them
 * takes little longer than one.  Each step takes the next token of those that
 * decode and, as far as a chunk has room, pieces of prompts; who is done leaves
 * and the others go on. */
#include "runtime.h"

#include "base/alloc.h"

/* What is still to be computed of an item. */
typedef struct part {
    quern_feed *item;
    size_t done;
} part;

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
        qn_status status = qn_session_check(s, items[i].ids, items[i].count);
        if (status)
            return qn_fail_where(status, "sequence %zu", i);
    }
    return QN_OK;
}

/* Takes those out that are done or cancelled; returns how many are left. */
static size_t sort_out(part *parts, size_t count)
{
    size_t left = 0;
    for (size_t i = 0; i < count; i++) {
        quern_feed *item = parts[i].item;
        if (parts[i].done == item->count)
            continue;
        if (qn_session_take_cancel(item->session))
            item->status = QUERN_E_CANCELLED;
        else
            parts[left++] = parts[i];
    }
    return left;
}

/* The next step: a token of each, then more as far as `chunk` allows. */
static size_t plan_step(qn_feed *feeds, const part *parts, size_t count,
                        size_t chunk)
{
    size_t spare = chunk > count ? chunk - count : 0;
    for (size_t i = 0; i < count; i++) {
        const quern_feed *item = parts[i].item;
        size_t left = item->count - parts[i].done;
        size_t room = qn_session_room(item->session);
        size_t most = left < room ? left : room;
        size_t more = most - 1 < spare ? most - 1 : spare;
        spare -= more;
        feeds[i] = (qn_feed){.session = item->session,
                             .ids = item->ids + parts[i].done,
                             .count = (int)(1 + more),
                             .last = 1 + more == left};
    }
    return count;
}

static qn_status run_steps(part *parts, qn_feed *feeds, size_t count)
{
    size_t chunk = (size_t)parts->item->session->model->prefill_chunk;
    qn_status status = QN_OK;
    while (!status && (count = sort_out(parts, count))) {
        plan_step(feeds, parts, count, chunk);
        status = qn_sessions_compute(feeds, count);
        for (size_t i = 0; i < count; i++) {
            parts[i].done += (size_t)feeds[i].count;
            if (status)
                parts[i].item->status = (quern_status)status;
        }
    }
    return status;
}

quern_status quern_sessions_feed(quern_feed *items, size_t count,
                                 quern_error *error)
{
    if (!count)
        return qn_give(error, QN_OK);
    qn_status status = check_items(items, count);
    if (status)
        return qn_give(error, status);
    part *parts = qn_calloc(count, sizeof *parts);
    qn_feed *feeds = qn_calloc(count, sizeof *feeds);
    if (parts && feeds) {
        for (size_t i = 0; i < count; i++) {
            items[i].status = QUERN_OK;
            parts[i].item = &items[i];
            qn_kv_cache_expect(
                items[i].session->cache,
                (int)(items[i].session->ids.size + items[i].count));
        }
        status = run_steps(parts, feeds, count);
    } else {
        status = QN_E_NOMEM;
    }
    qn_free(parts);
    qn_free(feeds);
    return qn_give(error, status);
}
