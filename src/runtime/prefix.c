/* prefix.c: see prefix.h. */
#include "prefix.h"

#include "base/alloc.h"
#include "kv/engine.h"
#include "prefix_disk.h"
#include "runtime.h"

#include <string.h>

struct qn_prefix {
    qn_prefix *next;
    char *space;
    int choice;
    qn_kv_cache *cache;
    qn_ids ids;
    uint64_t bytes;
    double pinned_until; /* by qn_now; 0: not pinned */
    uint64_t pin;        /* its number among the pins */
    bool written;        /* to the disk, or not to be */
};

void qn_prefixes_init(qn_prefixes *p, uint64_t limit)
{
    *p = (qn_prefixes){.limit = limit, .stats = {.limit = limit}};
    pthread_mutex_init(&p->lock, NULL);
}

static void free_entry(qn_prefix *e)
{
    qn_kv_cache_free(e->cache);
    qn_ids_free(&e->ids);
    qn_free(e->space);
    qn_free(e);
}

void qn_prefixes_clear(qn_prefixes *p)
{
    qn_prefixes_flush(p, NULL, NULL);
    qn_prefix_disk_close(p->disk);
    p->disk = NULL;
    pthread_mutex_destroy(&p->lock);
}

void qn_prefixes_stats(qn_prefixes *p, quern_prefix_stats *out)
{
    pthread_mutex_lock(&p->lock);
    *out = p->stats;
    pthread_mutex_unlock(&p->lock);
}

/* ---- what is there ---- */

static bool is_pinned(const qn_prefix *e, double now)
{
    return e->pinned_until > now;
}

/* Counts entries and bytes anew; `hit` and so on are added. */
static void count(qn_prefixes *p, quern_prefix_stats add)
{
    double now = qn_now();
    add.limit = p->limit;
    for (const qn_prefix *e = p->first; e; e = e->next) {
        add.entries++;
        add.bytes += e->bytes;
        add.pinned_bytes += is_pinned(e, now) ? e->bytes : 0;
    }
    if (p->disk)
        qn_prefix_disk_stats(p->disk, &add);
    pthread_mutex_lock(&p->lock);
    add.hits += p->stats.hits;
    add.misses += p->stats.misses;
    add.hit_tokens += p->stats.hit_tokens;
    add.evictions += p->stats.evictions;
    p->stats = add;
    pthread_mutex_unlock(&p->lock);
}

/* Takes the entry at *at out of the list. */
static qn_prefix *unlink_at(qn_prefix **at)
{
    qn_prefix *e = *at;
    *at = e->next;
    e->next = NULL;
    return e;
}

static void to_front(qn_prefixes *p, qn_prefix *e)
{
    qn_prefix **at = &p->first;
    while (*at && *at != e)
        at = &(*at)->next;
    if (*at)
        unlink_at(at);
    e->next = p->first;
    p->first = e;
}

static size_t common(const int32_t *a, size_t m, const int32_t *b, size_t n)
{
    size_t i = 0, most = m < n ? m : n;
    while (i < most && a[i] == b[i])
        i++;
    return i;
}

/* How many of the ids the entry can give: what is common, if its cache can go
 * back so far. */
static size_t usable(const qn_prefix *e, const char *space, int choice,
                     const int32_t *ids, size_t n)
{
    if (e->choice != choice || strcmp(e->space, space) != 0)
        return 0;
    size_t same = common(e->ids.data, e->ids.size, ids, n);
    bool can = same == e->ids.size || qn_kv_cache_can_trim(e->cache, (int)same);
    return can ? same : 0;
}

static qn_prefix *longest(const qn_prefixes *p, const char *space, int choice,
                          const int32_t *ids, size_t n, size_t *length)
{
    qn_prefix *best = NULL;
    *length = 0;
    for (qn_prefix *e = p->first; e; e = e->next) {
        size_t found = usable(e, space, choice, ids, n);
        if (found <= *length)
            continue;
        *length = found;
        best = e;
    }
    return best;
}

size_t qn_prefixes_common(const qn_prefixes *p, const char *space, int choice,
                          const int32_t *ids, size_t n)
{
    size_t most = 0;
    for (const qn_prefix *e = p->first; e; e = e->next) {
        if (e->choice != choice || strcmp(e->space, space) != 0)
            continue;
        size_t same = common(e->ids.data, e->ids.size, ids, n);
        most = same > most ? same : most;
    }
    return most;
}

size_t qn_prefixes_longest(const qn_prefixes *p, const char *space, int choice,
                           const int32_t *ids, size_t n)
{
    size_t length;
    longest(p, space, choice, ids, n, &length);
    return length;
}

/* ---- hits ---- */

/* A cache of its own with the first `length` tokens of `from`; NULL when that
 * can't be. */
static qn_kv_cache *cut_clone(const qn_kv_cache *from, size_t length)
{
    qn_kv_cache *clone;
    if (qn_kv_cache_clone(&clone, from))
        return NULL;
    if ((size_t)qn_kv_cache_length(clone) == length ||
        qn_kv_cache_trim(clone, (int)length))
        return clone;
    qn_kv_cache_free(clone);
    return NULL;
}

bool qn_session_share(quern_session *s, const qn_kv_cache *from,
                      const int32_t *ids, size_t length)
{
    quern_session_reset(s);
    for (size_t i = 0; i < length; i++)
        if (qn_ids_add(&s->ids, ids[i])) {
            s->ids.size = 0;
            return false;
        }
    qn_kv_cache *clone = cut_clone(from, length);
    if (!clone) {
        s->ids.size = 0;
        return false;
    }
    qn_kv_cache_free(s->cache);
    s->cache = clone;
    return true;
}

static qn_prefix *add(qn_prefixes *p, qn_kv_cache *cache, qn_ids *ids,
                      const char *space, int choice);
static uint64_t evict(qn_prefixes *p);

/* Makes what the disk has of the ids, and memory has not, an entry. */
static void fetch(qn_prefixes *p, const char *space, int choice,
                  const int32_t *ids, size_t n)
{
    size_t have;
    qn_kv_cache *cache;
    qn_ids tokens;
    longest(p, space, choice, ids, n, &have);
    if (!qn_prefix_disk_take(p->disk, space, choice, ids, n, have, &cache,
                             &tokens))
        return;
    qn_prefix *e = add(p, cache, &tokens, space, choice);
    if (e)
        e->written = true;
    count(p, (quern_prefix_stats){.evictions = evict(p)});
}

void qn_prefixes_take(qn_prefixes *p, quern_session *s, const char *space,
                      int choice, const int32_t *ids, size_t n)
{
    size_t length;
    if (p->disk)
        fetch(p, space, choice, ids, n);
    qn_prefix *e = longest(p, space, choice, ids, n, &length);
    if (!e || !qn_session_share(s, e->cache, ids, length)) {
        count(p, (quern_prefix_stats){.misses = 1});
        return;
    }
    to_front(p, e);
    count(p, (quern_prefix_stats){.hits = 1, .hit_tokens = length});
}

/* ---- keeping ---- */

/* Bytes of the arrays that hold the state, room ahead included. */
static qn_status bytes_of(const qn_kv_cache *cache, uint64_t *bytes)
{
    mlx_vector_array list = mlx_vector_array_new();
    qn_status status = qn_engine_made(list.ctx);
    if (!status)
        status = qn_kv_cache_arrays(cache, list);
    *bytes = 0;
    for (size_t i = 0; !status && i < mlx_vector_array_size(list); i++) {
        mlx_array a = mlx_array_new();
        status = qn_engine(mlx_vector_array_get(&a, list, i));
        if (!status)
            *bytes += mlx_array_nbytes(a);
        mlx_array_free(a);
    }
    if (list.ctx)
        mlx_vector_array_free(list);
    return status;
}

/* Pins have at most half of the limit. */
static void unpin_oldest(qn_prefixes *p)
{
    double now = qn_now();
    for (;;) {
        uint64_t bytes = 0;
        qn_prefix *oldest = NULL;
        for (qn_prefix *e = p->first; e; e = e->next) {
            if (!is_pinned(e, now))
                continue;
            bytes += e->bytes;
            if (!oldest || e->pin < oldest->pin)
                oldest = e;
        }
        if (bytes <= p->limit / 2)
            return;
        oldest->pinned_until = 0;
    }
}

static uint64_t bytes_of_all(const qn_prefixes *p)
{
    uint64_t bytes = 0;
    for (const qn_prefix *e = p->first; e; e = e->next)
        bytes += e->bytes;
    return bytes;
}

/* Entries go until the limit is held; how many did. */
static uint64_t evict(qn_prefixes *p)
{
    uint64_t gone = 0;
    double now = qn_now();
    unpin_oldest(p);
    while (bytes_of_all(p) > p->limit) {
        qn_prefix **last = NULL;
        for (qn_prefix **at = &p->first; *at; at = &(*at)->next)
            if (!is_pinned(*at, now))
                last = at;
        if (!last)
            break; /* pins alone hold the limit */
        free_entry(unlink_at(last));
        gone++;
    }
    return gone;
}

/* An entry that says no more than what comes now is not needed beside it. */
static void drop_covered(qn_prefixes *p, const qn_prefix *by)
{
    double now = qn_now();
    for (qn_prefix **at = &p->first; *at;) {
        qn_prefix *e = *at;
        if (!is_pinned(e, now) && usable(by, e->space, e->choice, e->ids.data,
                                         e->ids.size) == e->ids.size)
            free_entry(unlink_at(at));
        else
            at = &e->next;
    }
}

/* Takes `cache` and *ids over, in any case.  NULL: it is not kept. */
static qn_prefix *add(qn_prefixes *p, qn_kv_cache *cache, qn_ids *ids,
                      const char *space, int choice)
{
    qn_prefix *e = qn_calloc(1, sizeof *e);
    if (!e) {
        qn_kv_cache_free(cache);
        qn_ids_free(ids);
        return NULL;
    }
    *e = (qn_prefix){.space = qn_strdup(space),
                     .choice = choice,
                     .cache = cache,
                     .ids = *ids};
    *ids = (qn_ids){0};
    if (!e->space || bytes_of(cache, &e->bytes) || e->bytes > p->limit) {
        free_entry(e);
        return NULL;
    }
    to_front(p, e);
    return e;
}

void qn_prefixes_keep(qn_prefixes *p, quern_session *s, const char *space,
                      int choice)
{
    size_t length;
    if (s->ids.size < QN_PREFIX_LEAST)
        return;
    qn_prefix *has =
        longest(p, space, choice, s->ids.data, s->ids.size, &length);
    if (has && length == s->ids.size) {
        to_front(p, has);
        return;
    }
    qn_kv_cache *fresh, *cache = s->cache;
    if (qn_kv_cache_new(&fresh, &s->model->kv))
        return;
    s->cache = fresh;
    qn_prefix *e = add(p, cache, &s->ids, space, choice);
    quern_session_reset(s);
    if (!e)
        return;
    qn_prefix *rest = e->next;
    p->first = rest;
    drop_covered(p, e);
    to_front(p, e);
    count(p, (quern_prefix_stats){.evictions = evict(p)});
}

/* The entry with exactly these tokens. */
static qn_prefix *exact(const qn_prefixes *p, const char *space, int choice,
                        const int32_t *ids, size_t n)
{
    for (qn_prefix *e = p->first; e; e = e->next)
        if (e->ids.size == n && usable(e, space, choice, ids, n) == n)
            return e;
    return NULL;
}

void qn_prefixes_mark(qn_prefixes *p, quern_session *s, const char *space,
                      int choice, size_t length, int64_t seconds)
{
    if (length < QN_PREFIX_LEAST)
        return;
    qn_prefix *e = exact(p, space, choice, s->ids.data, length);
    if (!e) {
        qn_ids ids = {0};
        qn_status status = QN_OK;
        for (size_t i = 0; i < length && !status; i++)
            status = qn_ids_add(&ids, s->ids.data[i]);
        qn_kv_cache *clone = status ? NULL : cut_clone(s->cache, length);
        if (!clone) {
            qn_ids_free(&ids);
            return;
        }
        e = add(p, clone, &ids, space, choice);
        if (!e)
            return;
    }
    to_front(p, e);
    if (seconds) {
        e->pinned_until = qn_now() + (double)seconds;
        e->pin = ++p->pins;
    }
    count(p, (quern_prefix_stats){.evictions = evict(p)});
}

void qn_prefixes_use_disk(qn_prefixes *p, struct qn_prefix_disk *disk)
{
    p->disk = disk;
    count(p, (quern_prefix_stats){0});
}

qn_prefix_progress qn_prefixes_write(qn_prefixes *p)
{
    if (!p->disk)
        return QN_PREFIX_DONE;
    qn_prefix_progress progress = qn_prefix_disk_go_on(p->disk);
    if (progress) {
        count(p, (quern_prefix_stats){0});
        return progress;
    }
    qn_prefix *e = p->first;
    while (e && e->written)
        e = e->next;
    if (!e)
        return QN_PREFIX_DONE;
    e->written = true;
    qn_prefix_disk_put(p->disk, e->space, e->choice, e->cache, &e->ids);
    return QN_PREFIX_MORE;
}

void qn_prefixes_write_all(qn_prefixes *p)
{
    qn_prefix_progress progress;
    while ((progress = qn_prefixes_write(p)))
        if (progress == QN_PREFIX_WAITS)
            qn_prefix_disk_finish(p->disk);
}

void qn_prefixes_flush_disk(qn_prefixes *p, size_t *entries, uint64_t *bytes)
{
    *entries = 0;
    *bytes = 0;
    if (p->disk)
        qn_prefix_disk_flush(p->disk, entries, bytes);
    count(p, (quern_prefix_stats){0});
}

void qn_prefixes_flush(qn_prefixes *p, size_t *entries, uint64_t *bytes)
{
    size_t n = 0;
    uint64_t sum = bytes_of_all(p);
    while (p->first) {
        free_entry(unlink_at(&p->first));
        n++;
    }
    if (entries)
        *entries = n;
    if (bytes)
        *bytes = sum;
    count(p, (quern_prefix_stats){0});
}
