/* arena.h: many small allocations that are freed together.
 *
 * A zeroed qn_arena is empty and ready. */
#ifndef QN_BASE_ARENA_H
#define QN_BASE_ARENA_H

#include "bytes.h"

typedef struct qn_arena {
    struct qn_arena_block *blocks;
} qn_arena;

void qn_arena_free(qn_arena *arena);
/* `size` bytes aligned for any type, uninitialized; NULL when memory is
 * out. */
void *qn_arena_alloc(qn_arena *arena, size_t size);
/* Points *out at a copy of `text`; false when memory is out. */
bool qn_arena_copy(qn_arena *arena, qn_str *out, qn_str text);

#endif
