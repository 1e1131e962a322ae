/* buffer.c: the pool.
 *
 * Blocks that nobody holds wait in bins: four for each power of two.  Sizes up
 * to EXACT are rounded up to the smallest of the next bin, so that all blocks
 * of a bin fit all requests for it; larger ones are rounded to pages only, and
 * the bin is searched for one that is large enough.  Besides, cached blocks
 * form one list by age, from whose old end they are given back.
 *
 * Memory is allocated and freed outside of the lock: both can take the kernel
 * long. */
#include "buffer.h"

#include "base/alloc.h"
#include "base/cpu.h"
#include "lock.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#endif
#endif
#ifndef ASAN_POISON_MEMORY_REGION
#define ASAN_POISON_MEMORY_REGION(data, size) ((void)(data), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(data, size) ((void)(data), (void)(size))
#endif

enum {
    LINE = 64,
    PAGE = 4096,
    LARGE = 1 << 20,  /* from here on: page-aligned, header apart */
    HUGE = 2 << 20,   /* from here on: on large pages where there are any */
    EXACT = 64 << 10, /* up to here: rounded to the bin */
    SLAB = 32 << 20,  /* of lasting memory at a time; pages come when touched */
    BINS = 4 * 64,
    TRIES = 32 /* blocks looked at in a bin of mixed sizes */
};

/* The header of a small block is the line in front of its data. */
_Static_assert(sizeof(qn_buffer) <= LINE, "the header outgrew its line");

static struct {
    qn_buffer *bins[BINS];
    qn_buffer *newest, *oldest;
    size_t active, peak, cached;
    size_t limit, cache_limit;
    struct qn_slab *slab; /* that lasting buffers are cut from, or NULL */
} pool;

/* Memory that lasting buffers share. */
struct qn_slab {
    size_t refs; /* buffers in it, and the pool while it cuts from it */
    char *data;
    size_t size, used;
};

/* ---- sizes ---- */

static int bin_of(size_t size)
{
    int log = 63 - __builtin_clzll(size);
    return 4 * log + (int)(size >> (log - 2) & 3);
}

/* What a request is rounded up to; false when that wraps. */
static bool capacity_for(size_t *out, size_t size)
{
    size_t step = LINE;
    if (size > EXACT)
        step = PAGE;
    else if (size > 4 * LINE) /* a quarter of the power of two below it */
        step = (size_t)1 << (61 - __builtin_clzll(size - 1));
    size_t padded;
    if (!qn_add_size(&padded, size ? size : 1, step - 1))
        return false;
    *out = padded & ~(step - 1);
    return true;
}

static void set_default_limits(void)
{
    size_t memory = qn_memory_limit();
    pool.limit = memory;
    pool.cache_limit = memory / 4;
}

/* Reads the machine's limits before the first use, outside of the lock. */
static void need_limits(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_default_limits);
}

/* ---- the cache; under QN_LOCK_POOL ---- */

static void cache_put(qn_buffer *b)
{
    qn_buffer **bin = &pool.bins[bin_of(b->capacity)];
    b->as.cached.prev = NULL;
    b->as.cached.next = *bin;
    if (*bin)
        (*bin)->as.cached.prev = b;
    *bin = b;

    b->as.cached.newer = NULL;
    b->as.cached.older = pool.newest;
    if (pool.newest)
        pool.newest->as.cached.newer = b;
    else
        pool.oldest = b;
    pool.newest = b;

    pool.cached += b->capacity;
    ASAN_POISON_MEMORY_REGION(b->data, b->capacity);
}

static void cache_remove(qn_buffer *b)
{
    ASAN_UNPOISON_MEMORY_REGION(b->data, b->capacity);
    pool.cached -= b->capacity;

    if (b->as.cached.prev)
        b->as.cached.prev->as.cached.next = b->as.cached.next;
    else
        pool.bins[bin_of(b->capacity)] = b->as.cached.next;
    if (b->as.cached.next)
        b->as.cached.next->as.cached.prev = b->as.cached.prev;

    if (b->as.cached.newer)
        b->as.cached.newer->as.cached.older = b->as.cached.older;
    else
        pool.newest = b->as.cached.older;
    if (b->as.cached.older)
        b->as.cached.older->as.cached.newer = b->as.cached.newer;
    else
        pool.oldest = b->as.cached.newer;
}

/* Takes a block of `capacity` to `most` bytes; NULL: none. */
static qn_buffer *cache_take(size_t capacity, size_t most)
{
    int last = bin_of(most);
    for (int bin = bin_of(capacity); bin <= last; bin++) {
        int tries = TRIES;
        for (qn_buffer *b = pool.bins[bin]; b && tries--; b = b->as.cached.next)
            if (b->capacity >= capacity && b->capacity <= most) {
                cache_remove(b);
                return b;
            }
    }
    return NULL;
}

/* Takes the oldest blocks out until at most `keep` bytes are cached; returns
 * them, linked by `next`, for free_blocks. */
static qn_buffer *cache_shrink(size_t keep)
{
    qn_buffer *out = NULL;
    while (pool.cached > keep) {
        qn_buffer *b = pool.oldest;
        cache_remove(b);
        b->as.cached.next = out;
        out = b;
    }
    return out;
}

static void count_active(size_t bytes)
{
    pool.active += bytes;
    if (pool.active > pool.peak)
        pool.peak = pool.active;
}

/* ---- memory; without the lock ---- */

/* One fault for 2 MiB instead of 512, and as many fewer translations. */
static void ask_for_large_pages(void *data, size_t capacity)
{
#ifdef MADV_HUGEPAGE
    if (capacity >= HUGE)
        madvise(data, capacity, MADV_HUGEPAGE);
#else
    (void)data;
    (void)capacity;
#endif
}

static qn_buffer *block_new(size_t capacity)
{
    qn_buffer *b;
    if (capacity < LARGE) {
        b = qn_alloc_aligned(LINE, LINE + capacity);
        if (!b)
            return NULL;
        b->data = (char *)b + LINE;
    } else {
        b = qn_alloc(sizeof *b);
        if (!b)
            return NULL;
        b->data = qn_alloc_aligned(capacity < HUGE ? PAGE : HUGE, capacity);
        if (!b->data) {
            qn_free(b);
            return NULL;
        }
        ask_for_large_pages(b->data, capacity);
    }
    b->external = b->lasting = false;
    b->capacity = capacity;
    return b;
}

static void free_blocks(qn_buffer *list)
{
    while (list) {
        qn_buffer *next = list->as.cached.next;
        if (list->capacity >= LARGE)
            qn_free(list->data);
        qn_free(list);
        list = next;
    }
}

/* ---- buffers ---- */

/* Takes as much out of the cache as `capacity` more bytes leave no room for. */
static void make_room(size_t capacity)
{
    need_limits();
    qn_lock(QN_LOCK_POOL);
    size_t used;
    if (!qn_add_size(&used, pool.active, capacity))
        used = SIZE_MAX;
    qn_buffer *out = cache_shrink(pool.limit > used ? pool.limit - used : 0);
    qn_unlock(QN_LOCK_POOL);
    free_blocks(out);
}

/* A fresh block, for which the cache makes room. */
static qn_buffer *block_fresh(size_t capacity)
{
    make_room(capacity);
    qn_buffer *b = block_new(capacity);
    if (!b) {
        qn_memory_clear_cache();
        b = block_new(capacity);
    }
    if (b) {
        qn_lock(QN_LOCK_POOL);
        count_active(capacity);
        qn_unlock(QN_LOCK_POOL);
    }
    return b;
}

/* A block for `size` bytes, from the cache if one of at most `times` as much
 * is there. */
static qn_status pool_buffer(qn_buffer **out, size_t size, size_t times)
{
    size_t capacity, most;
    if (!capacity_for(&capacity, size))
        return qn_fail(QN_E_NOMEM,
                       "out of memory: could not allocate %zu bytes", size);
    most = size > SIZE_MAX / times ? SIZE_MAX : times * size;
    qn_lock(QN_LOCK_POOL);
    qn_buffer *b = cache_take(capacity, most > capacity ? most : capacity);
    if (b)
        count_active(b->capacity);
    qn_unlock(QN_LOCK_POOL);
    if (!b)
        b = block_fresh(capacity);
    if (!b)
        return QN_E_NOMEM;
    atomic_init(&b->refs, 1);
    *out = b;
    return QN_OK;
}

qn_status qn_buffer_new(qn_buffer **out, size_t size)
{
    return pool_buffer(out, size, 2);
}

qn_status qn_buffer_new_exact(qn_buffer **out, size_t size)
{
    return pool_buffer(out, size, 1);
}

bool qn_buffer_exact(const qn_buffer *buffer, size_t size)
{
    size_t capacity;
    return capacity_for(&capacity, size) && buffer->capacity == capacity;
}

/* ---- lasting buffers ---- */

static struct qn_slab *slab_new(size_t capacity)
{
    struct qn_slab *slab = qn_alloc(sizeof *slab);
    size_t size = capacity < SLAB / 2 ? SLAB : capacity;
    if (!slab)
        return NULL;
    *slab = (struct qn_slab){.refs = 1, .size = size};
    slab->data = qn_alloc_aligned(HUGE, size);
    if (!slab->data) {
        qn_free(slab);
        return NULL;
    }
    ask_for_large_pages(slab->data, size);
    return slab;
}

/* One reference less; under the lock.  Returns the slab if it was the last. */
static struct qn_slab *slab_drop(struct qn_slab *slab)
{
    return slab && !--slab->refs ? slab : NULL;
}

static void slab_free(struct qn_slab *slab)
{
    if (slab)
        qn_free(slab->data);
    qn_free(slab);
}

/* Cuts `capacity` bytes off the pool's slab; false when it has no room.  Under
 * the lock. */
static bool slab_cut(qn_buffer *b, size_t capacity)
{
    struct qn_slab *slab = pool.slab;
    if (!slab || slab->size - slab->used < capacity)
        return false;
    b->as.slab = slab;
    b->data = slab->data + slab->used;
    slab->used += capacity;
    slab->refs++;
    count_active(capacity);
    return true;
}

qn_status qn_buffer_new_lasting(qn_buffer **out, size_t size)
{
    size_t capacity;
    if (!qn_add_size(&capacity, size ? size : 1, LINE - 1))
        return qn_fail(QN_E_NOMEM,
                       "out of memory: could not allocate %zu bytes", size);
    capacity &= ~(size_t)(LINE - 1);
    qn_buffer *b = qn_alloc(sizeof *b);
    if (!b)
        return QN_E_NOMEM;
    *b = (qn_buffer){.lasting = true, .capacity = capacity};
    atomic_init(&b->refs, 1);
    make_room(capacity);
    qn_lock(QN_LOCK_POOL);
    bool cut = slab_cut(b, capacity);
    qn_unlock(QN_LOCK_POOL);
    if (!cut) {
        struct qn_slab *fresh = slab_new(capacity);
        if (!fresh) {
            qn_memory_clear_cache();
            fresh = slab_new(capacity);
        }
        if (!fresh) {
            qn_free(b);
            return QN_E_NOMEM;
        }
        qn_lock(QN_LOCK_POOL);
        struct qn_slab *old = slab_drop(pool.slab);
        pool.slab = fresh;
        slab_cut(b, capacity);
        qn_unlock(QN_LOCK_POOL);
        slab_free(old);
    }
    *out = b;
    return QN_OK;
}

static void lasting_free(qn_buffer *b)
{
    qn_lock(QN_LOCK_POOL);
    pool.active -= b->capacity;
    struct qn_slab *slab = b->as.slab, *gone = slab_drop(slab);
    if (slab == pool.slab && slab->refs == 1) {
        /* Only the pool is left. */
        pool.slab = NULL;
        gone = slab;
    }
    qn_unlock(QN_LOCK_POOL);
    slab_free(gone);
    qn_free(b);
}

/* ---- buffers of others ---- */

static void run_dtor(qn_deferred *item)
{
    qn_buffer *b =
        (qn_buffer *)((char *)item - offsetof(qn_buffer, as.owner.deferred));
    void (*dtor)(void *) = b->as.owner.dtor;
    void *payload = b->as.owner.payload;
    qn_free(b);
    dtor(payload);
}

qn_status qn_buffer_new_external(qn_buffer **out, void *data, size_t size,
                                 void *payload, void (*dtor)(void *))
{
    qn_buffer *b = qn_alloc(sizeof *b);
    if (!b) {
        if (dtor) {
            qn_error error;
            qn_error_save(&error);
            dtor(payload);
            qn_error_restore(&error);
        }
        return QN_E_NOMEM;
    }
    atomic_init(&b->refs, 1);
    b->external = true;
    b->lasting = false;
    b->data = data;
    b->capacity = size;
    b->as.owner.deferred.run = run_dtor;
    b->as.owner.dtor = dtor;
    b->as.owner.payload = payload;
    *out = b;
    return QN_OK;
}

qn_buffer *qn_buffer_ref(qn_buffer *buffer)
{
    atomic_fetch_add_explicit(&buffer->refs, 1, memory_order_relaxed);
    return buffer;
}

void qn_buffer_unref(qn_buffer *buffer)
{
    if (!buffer ||
        atomic_fetch_sub_explicit(&buffer->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (buffer->external) {
        if (buffer->as.owner.dtor)
            qn_defer(&buffer->as.owner.deferred);
        else
            qn_free(buffer);
        return;
    }
    if (buffer->lasting) {
        lasting_free(buffer);
        return;
    }
    qn_lock(QN_LOCK_POOL);
    pool.active -= buffer->capacity;
    cache_put(buffer);
    qn_buffer *out = NULL;
    if (pool.cached > pool.cache_limit)
        out = cache_shrink(pool.cache_limit);
    qn_unlock(QN_LOCK_POOL);
    free_blocks(out);
}

/* ---- counters and limits ---- */

static size_t read_locked(const size_t *value)
{
    qn_lock(QN_LOCK_POOL);
    size_t now = *value;
    qn_unlock(QN_LOCK_POOL);
    return now;
}

size_t qn_memory_active(void)
{
    return read_locked(&pool.active);
}

size_t qn_memory_peak(void)
{
    return read_locked(&pool.peak);
}

size_t qn_memory_cached(void)
{
    return read_locked(&pool.cached);
}

void qn_memory_reset_peak(void)
{
    qn_lock(QN_LOCK_POOL);
    pool.peak = 0;
    qn_unlock(QN_LOCK_POOL);
}

void qn_memory_clear_cache(void)
{
    qn_lock(QN_LOCK_POOL);
    qn_buffer *out = cache_shrink(0);
    qn_unlock(QN_LOCK_POOL);
    free_blocks(out);
}

/* Shrinks the cache to what both limits leave. */
static size_t set_limit(size_t *limit, size_t bytes)
{
    need_limits();
    qn_lock(QN_LOCK_POOL);
    size_t before = *limit;
    *limit = bytes;
    size_t keep = pool.limit > pool.active ? pool.limit - pool.active : 0;
    if (keep > pool.cache_limit)
        keep = pool.cache_limit;
    qn_buffer *out = cache_shrink(keep);
    qn_unlock(QN_LOCK_POOL);
    free_blocks(out);
    return before;
}

size_t qn_memory_set_limit(size_t bytes)
{
    return set_limit(&pool.limit, bytes);
}

size_t qn_memory_get_limit(void)
{
    need_limits();
    return read_locked(&pool.limit);
}

size_t qn_memory_set_cache_limit(size_t bytes)
{
    return set_limit(&pool.cache_limit, bytes);
}
