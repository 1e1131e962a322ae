/* heap.h: the queue of pairs that merge, a min-heap of numbers.
 *
 * An entry is rank << 32 | position: the lowest rank first, then leftmost.  A
 * pair that has changed since leaves its entry behind; its reader recognizes
 * it by its rank. */
#ifndef QN_TEXT_HEAP_H
#define QN_TEXT_HEAP_H

#include <stddef.h>
#include <stdint.h>

/* There is room for one more. */
static inline void qn_heap_push(uint64_t *heap, size_t *size, uint64_t entry)
{
    size_t i = (*size)++;
    while (i > 0 && heap[(i - 1) / 2] > entry) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = entry;
}

/* Takes the lowest entry out; *size > 0. */
static inline uint64_t qn_heap_pop(uint64_t *heap, size_t *size)
{
    uint64_t top = heap[0], last = heap[--*size];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= *size)
            break;
        if (child + 1 < *size && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= last)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

#endif
