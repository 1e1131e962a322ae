/* radix.h: stable sorts of items by some bits of their keys.
 *
 * Three kinds of item: a key of 32 bits; a key of 64 bits, or one of 32 above
 * an index; a key of 64 bits with an index.  Each function exists once for
 * each (radix.inc).  Runs on the calling thread. */
#ifndef QN_CPU_RADIX_H
#define QN_CPU_RADIX_H

#include <stddef.h>
#include <stdint.h>

enum { QN_RADIX_BITS = 11, QN_RADIX_BUCKETS = 1 << QN_RADIX_BITS };

/* Orders a[0 .. n - 1] by bits low .. high - 1 of the keys, which differ in no
 * bit above them, stably.  spare: n items; counts: QN_RADIX_BUCKETS of them. */
#define QN_RADIX(name, item)                                                   \
    void qn_sort_##name(item *a, item *spare, size_t n, int low, int high,     \
                        uint32_t *counts);                                     \
    /* Into counts: how many keys have each value of bits shift .. shift +     \
     * QN_RADIX_BITS - 1. */                                                   \
    void qn_count_##name(uint32_t *counts, const item *a, size_t n,            \
                         int shift);                                           \
    /* Moves a[i] to to[places[its value of those bits]++]. */                 \
    void qn_scatter_##name(item *to, const item *a, size_t n, int shift,       \
                           uint32_t *places);

typedef struct qn_wide_item {
    uint64_t key, index;
} qn_wide_item;

QN_RADIX(u32, uint32_t)
QN_RADIX(u64, uint64_t)
QN_RADIX(wide, qn_wide_item)

#endif
