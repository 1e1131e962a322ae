/* sort_keys.h: elements as items to be sorted (radix.h), and back.
 *
 * Keys are unsigned numbers in the order of the elements; a NaN is the largest.
 * Sorting values, a key says which element it was, but for two kinds: a NaN
 * loses its bits, and -0 comes before 0, to which it is equal.  `restore` then
 * puts those in their places again, in their order in the input.  Sorting
 * indices, -0 has the key of 0, and the item holds the index. */
#ifndef QN_CPU_SORT_KEYS_H
#define QN_CPU_SORT_KEYS_H

#include "core/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of the keys that were loaded. */
typedef struct qn_key_facts {
    uint64_t any, all; /* bits that some have, that all have */
    size_t nans, minus_zeros;
} qn_key_facts;

/* Steps count elements. */
typedef struct qn_sort_keys {
    size_t item; /* bytes: 4, 8, 16 */
    int shift;   /* the key's lowest bit in an item */
    /* Items of n elements, the first one being element `first` of its line. */
    void (*load)(void *items, const void *from, int64_t step, size_t first,
                 size_t n, qn_key_facts *facts);
    /* What n items stand for: elements, or uint32 indices.  `line` is where
     * the input's line begins. */
    void (*store)(void *to, int64_t to_step, const void *items, size_t n,
                  const void *line, int64_t step);
    /* NULL where there is nothing to restore.  `to` and `from`: lines of n. */
    void (*restore)(void *to, int64_t to_step, const void *from, int64_t step,
                    size_t n, size_t nans);
} qn_sort_keys;

qn_sort_keys qn_sort_keys_of(qn_dtype dtype, bool indices);

#endif
