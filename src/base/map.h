/* map.h: a hash map from byte strings to 64-bit values or pointers.
 *
 * Open addressing, insertion order kept for iteration (entries live in one
 * array).  Keys are copied into the map's own storage.  Hashing is seeded
 * per process, so hostile keys can't be chosen to collide. */
#ifndef QN_BASE_MAP_H
#define QN_BASE_MAP_H

#include "bytes.h"
#include "status.h"

typedef union qn_map_value {
    uint64_t u64;
    void *ptr;
} qn_map_value;

typedef struct qn_map qn_map;

/* NULL on allocation failure.  `expected` reserves room. */
qn_map *qn_map_new(size_t expected);
/* `free_value` (may be NULL) is called with each pointer value. */
void qn_map_free(qn_map *map, void (*free_value)(void *));
size_t qn_map_size(const qn_map *map);
/* The value's slot, valid until the next insertion; NULL when absent. */
qn_map_value *qn_map_get(const qn_map *map, qn_str key);
/* Finds or inserts; a new slot is zero.  *added (may be NULL) says which.
 * NULL on allocation failure. */
qn_map_value *qn_map_put(qn_map *map, qn_str key, bool *added);
/* Entry i (0 .. size-1) in insertion order. */
qn_str qn_map_key_at(const qn_map *map, size_t i);
qn_map_value *qn_map_value_at(const qn_map *map, size_t i);

/* The seeded hash itself, for special-purpose tables. */
uint64_t qn_hash(const void *data, size_t size);

#endif
