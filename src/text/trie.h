/* trie.h: a tree of byte strings, to find the entries that a text begins
 * with.  Filled once, immutable afterwards. */
#ifndef QN_TEXT_TRIE_H
#define QN_TEXT_TRIE_H

#include "base/bytes.h"
#include "base/status.h"

/* Zero-initialise. */
typedef struct qn_trie {
    uint64_t *slots;   /* (node, byte, child), open-addressed; 0 = free */
    size_t slot_count; /* 0 or a power of two */
    int32_t *values;   /* by node; -1: no key ends there */
    size_t node_count, node_capacity;
    uint64_t seed;
} qn_trie;

enum {
    QN_TRIE_ROOT = 0,
    QN_TRIE_NODES_MAX = 1 << 24,
    /* Longest key, so that a search from each byte of a text is bounded. */
    QN_TRIE_KEY_MAX = 1024
};

void qn_trie_free(qn_trie *trie);
/* An empty trie.  Call before the others. */
qn_status qn_trie_init(qn_trie *trie);
/* `value` >= 0; a key that is there already gets the new one.  A longer key
 * than QN_TRIE_KEY_MAX, or too many nodes: QN_E_UNSUPPORTED. */
qn_status qn_trie_add(qn_trie *trie, qn_str key, int32_t value);

/* The child of `node` by `byte`; QN_TRIE_ROOT when there is none. */
static inline uint32_t qn_trie_step(const qn_trie *trie, uint32_t node,
                                    uint8_t byte)
{
    uint32_t key = node << 8 | byte;
    size_t mask = trie->slot_count - 1;
    uint64_t hash = (key ^ trie->seed) * UINT64_C(0x9e3779b97f4a7c15);
    for (size_t i = (size_t)(hash >> 32) & mask;; i = (i + 1) & mask) {
        uint64_t slot = trie->slots[i];
        if (!slot)
            return QN_TRIE_ROOT;
        if (slot >> 32 == key)
            return (uint32_t)slot;
    }
}

/* The value of the key that ends at `node`, or -1. */
static inline int32_t qn_trie_value(const qn_trie *trie, uint32_t node)
{
    return trie->values[node];
}

#endif
