/* slots.h: numbers for arrays and nodes, by identity.
 *
 * A hash table from pointers to indices, which a walk uses to keep what it
 * knows of an array in arrays of its own.  It holds nothing: the walk sees to
 * it that what is in the table stays alive. */
#ifndef QN_TRANSFORM_SLOTS_H
#define QN_TRANSFORM_SLOTS_H

#include "base/status.h"

#include <stddef.h>

typedef struct qn_slot {
    const void *key; /* NULL: free */
    size_t index;
} qn_slot;

typedef struct qn_slots {
    qn_slot *table;
    size_t capacity; /* 0 or a power of two */
    size_t count;
} qn_slots;

#define QN_NO_SLOT SIZE_MAX

/* QN_NO_SLOT when it is not there. */
size_t qn_slots_find(const qn_slots *slots, const void *key);
/* Gives `key`, which is not NULL, the index; one given before is replaced. */
qn_status qn_slots_put(qn_slots *slots, const void *key, size_t index);
void qn_slots_free(qn_slots *slots);

#endif
