/* buffer.h: storage of arrays, the pool it comes from, and its counters.
 *
 * A buffer is a reference-counted block of memory.  Pool buffers return to a
 * cache by size when the last reference goes; a later request is served from
 * it when a block of at least its size and at most twice that is there.
 * External buffers belong to somebody else, whose destructor runs when the
 * last reference goes (never while a lock of the library is held). */
#ifndef QN_CORE_BUFFER_H
#define QN_CORE_BUFFER_H

#include "base/status.h"

#include <stdatomic.h>
#include <stddef.h>

typedef struct qn_buffer {
    atomic_uint refs;
    void *data;
    size_t capacity; /* bytes that may be touched */
    void (*dtor)(void *payload); /* external buffers; NULL: from the pool */
    void *payload;
    struct qn_buffer *next; /* in the pool's cache or the deferred list */
} qn_buffer;

/* Memory aligned to 64 bytes (pages from 1 MiB on), uninitialised.  Over the
 * memory limit the cache is emptied first; then QN_E_NOMEM. */
qn_status qn_buffer_new(qn_buffer **out, size_t size);
/* Takes `data` over: `dtor(payload)` runs once, also when this call fails.
 * A NULL dtor borrows memory that outlives every array. */
qn_status qn_buffer_new_external(qn_buffer **out, void *data, size_t size,
                                 void *payload, void (*dtor)(void *));
qn_buffer *qn_buffer_ref(qn_buffer *buffer);
void qn_buffer_unref(qn_buffer *buffer);
static inline bool qn_buffer_unique(const qn_buffer *buffer)
{
    return atomic_load_explicit(&buffer->refs, memory_order_acquire) == 1;
}

/* Counters and limits, bytes.  "Active" is what live pool buffers hold,
 * "cache" what the pool keeps for reuse. */
size_t qn_memory_active(void);
size_t qn_memory_peak(void);
size_t qn_memory_cached(void);
void qn_memory_reset_peak(void);
void qn_memory_clear_cache(void);
/* Set a limit, return the one before. */
size_t qn_memory_set_limit(size_t bytes);
size_t qn_memory_get_limit(void);
size_t qn_memory_set_cache_limit(size_t bytes);

#endif
