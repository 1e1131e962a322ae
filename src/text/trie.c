/* trie.c: building the tree.
 *
 * All edges stand in one hash table, so a step is one look-up whatever the
 * number of children, and a node is four bytes.  The keys come from files,
 * hence the seed. */
#include "trie.h"

#include "base/alloc.h"
#include "base/map.h"

enum { FIRST_SLOTS = 1024, FIRST_NODES = 512 };

void qn_trie_free(qn_trie *trie)
{
    qn_free(trie->slots);
    qn_free(trie->values);
    *trie = (qn_trie){0};
}

static qn_status add_node(qn_trie *trie)
{
    if (trie->node_count == QN_TRIE_NODES_MAX)
        return qn_fail(QN_E_UNSUPPORTED,
                       "a vocabulary with more than %d different beginnings "
                       "of tokens is not supported",
                       QN_TRIE_NODES_MAX);
    if (trie->node_count == trie->node_capacity) {
        size_t capacity =
            trie->node_capacity ? 2 * trie->node_capacity : FIRST_NODES;
        int32_t *values =
            qn_reallocarray(trie->values, capacity, sizeof *values);
        if (!values)
            return QN_E_NOMEM;
        trie->values = values;
        trie->node_capacity = capacity;
    }
    trie->values[trie->node_count++] = -1;
    return QN_OK;
}

qn_status qn_trie_init(qn_trie *trie)
{
    trie->seed = qn_hash("trie", 4);
    trie->slots = qn_calloc(FIRST_SLOTS, sizeof *trie->slots);
    if (!trie->slots)
        return QN_E_NOMEM;
    trie->slot_count = FIRST_SLOTS;
    return add_node(trie);
}

/* Puts an edge where qn_trie_step finds it. */
static void put_edge(qn_trie *trie, uint64_t edge)
{
    size_t mask = trie->slot_count - 1;
    uint64_t hash = ((edge >> 32) ^ trie->seed) * UINT64_C(0x9e3779b97f4a7c15);
    size_t i = (size_t)(hash >> 32) & mask;
    while (trie->slots[i])
        i = (i + 1) & mask;
    trie->slots[i] = edge;
}

/* Makes room for one more edge: at most half of the slots are used. */
static qn_status grow_slots(qn_trie *trie)
{
    if (trie->node_count < trie->slot_count / 2)
        return QN_OK;
    size_t old_count = trie->slot_count;
    uint64_t *old = trie->slots;
    uint64_t *slots = qn_calloc(2 * old_count, sizeof *slots);
    if (!slots)
        return QN_E_NOMEM;
    trie->slots = slots;
    trie->slot_count = 2 * old_count;
    for (size_t i = 0; i < old_count; i++) {
        if (old[i])
            put_edge(trie, old[i]);
    }
    qn_free(old);
    return QN_OK;
}

qn_status qn_trie_add(qn_trie *trie, qn_str key, int32_t value)
{
    if (key.size > QN_TRIE_KEY_MAX)
        return qn_fail(QN_E_UNSUPPORTED,
                       "a token of %zu bytes: expected at most %d", key.size,
                       QN_TRIE_KEY_MAX);
    uint32_t node = QN_TRIE_ROOT;
    for (size_t i = 0; i < key.size; i++) {
        uint8_t byte = (uint8_t)key.data[i];
        uint32_t child = qn_trie_step(trie, node, byte);
        if (child == QN_TRIE_ROOT) {
            qn_status status = grow_slots(trie);
            if (!status)
                status = add_node(trie);
            if (status)
                return status;
            child = (uint32_t)trie->node_count - 1;
            put_edge(trie, (uint64_t)(node << 8 | byte) << 32 | child);
        }
        node = child;
    }
    trie->values[node] = value;
    return QN_OK;
}
