/* buffer.h: storage of arrays, the pool it comes from, and its counters.
 *
 * A buffer is a reference-counted block of memory.  Pool buffers return to a
 * cache ordered by size when the last reference goes; a later request is served
 * from it when a block of at least its size and at most twice that is there.
 * External buffers belong to somebody else, whose destructor runs when the
 * last reference goes (defer.h says when exactly). */
#ifndef QN_CORE_BUFFER_H
#define QN_CORE_BUFFER_H

#include "base/status.h"
#include "defer.h"

#include <stdatomic.h>
#include <stddef.h>

typedef struct qn_buffer qn_buffer;
struct qn_buffer {
    atomic_uint refs;
    bool external;
    bool lasting;
    void *data;
    size_t capacity; /* bytes that may be touched */
    union {
        struct {
            qn_deferred deferred;
            void (*dtor)(void *payload); /* NULL: the memory is borrowed */
            void *payload;
        } owner; /* external */
        struct {
            qn_buffer *next, *prev;   /* of about the same size */
            qn_buffer *newer, *older; /* by the time it came back */
        } cached;                     /* the pool's, while nobody holds it */
        struct qn_slab *slab;         /* lasting: where it lies */
    } as;
};

/* Memory aligned to 64 bytes (pages from 1 MiB on), uninitialised.  Beyond the
 * memory limit, and when the system has no more, what the cache keeps is given
 * back first; QN_E_NOMEM when the system then still refuses. */
qn_status qn_buffer_new(qn_buffer **out, size_t size);
/* The same, with no more memory than rounding takes: 64 bytes, or a page, or a
 * quarter of what is small. */
qn_status qn_buffer_new_exact(qn_buffer **out, size_t size);
/* Whether such a buffer would be as large as this one. */
bool qn_buffer_exact(const qn_buffer *buffer, size_t size);
/* The same for what stays as long as a model does: such buffers lie next to one
 * another on large pages, also those that are smaller than a page, and go back
 * to the system together, with the last of their neighbours.  Never from the
 * cache and never into it. */
qn_status qn_buffer_new_lasting(qn_buffer **out, size_t size);
/* Takes `data` over: `dtor(payload)` runs once, also when this call fails.
 * A NULL dtor borrows memory that outlives every array. */
qn_status qn_buffer_new_external(qn_buffer **out, void *data, size_t size,
                                 void *payload, void (*dtor)(void *));
qn_buffer *qn_buffer_ref(qn_buffer *buffer);
/* NULL is fine. */
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
/* The peak of what comes after this call. */
void qn_memory_reset_peak(void);
void qn_memory_clear_cache(void);
/* Set a limit, return the one before.  The memory limit is for active and
 * cached together: it makes the pool give back, it does not refuse. It starts
 * as the memory that this process may use, the cache's as a quarter of that. */
size_t qn_memory_set_limit(size_t bytes);
size_t qn_memory_get_limit(void);
size_t qn_memory_set_cache_limit(size_t bytes);

#endif
