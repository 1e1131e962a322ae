/* slots.c: open addressing with linear steps, at most half full. */
#include "slots.h"

#include "base/alloc.h"

#include <stdint.h>

static size_t place_of(const qn_slots *slots, const void *key)
{
    /* Addresses differ in their middle bits: those go to the top. */
    uint64_t hash = (uint64_t)(uintptr_t)key * UINT64_C(0x9e3779b97f4a7c15);
    size_t mask = slots->capacity - 1, at = (size_t)(hash >> 32) & mask;
    while (slots->table[at].key && slots->table[at].key != key)
        at = (at + 1) & mask;
    return at;
}

size_t qn_slots_find(const qn_slots *slots, const void *key)
{
    if (!slots->capacity)
        return QN_NO_SLOT;
    const qn_slot *slot = &slots->table[place_of(slots, key)];
    return slot->key ? slot->index : QN_NO_SLOT;
}

static qn_status grow(qn_slots *slots)
{
    size_t capacity;
    if (!qn_mul_size(&capacity, slots->capacity ? slots->capacity : 32, 2))
        return QN_E_NOMEM;
    qn_slots more = {.table = qn_calloc(capacity, sizeof(qn_slot)),
                     .capacity = capacity,
                     .count = slots->count};
    if (!more.table)
        return QN_E_NOMEM;
    for (size_t i = 0; i < slots->capacity; i++)
        if (slots->table[i].key)
            more.table[place_of(&more, slots->table[i].key)] = slots->table[i];
    qn_free(slots->table);
    *slots = more;
    return QN_OK;
}

qn_status qn_slots_put(qn_slots *slots, const void *key, size_t index)
{
    if (2 * (slots->count + 1) > slots->capacity) {
        qn_status status = grow(slots);
        if (status)
            return status;
    }
    qn_slot *slot = &slots->table[place_of(slots, key)];
    slots->count += !slot->key;
    *slot = (qn_slot){key, index};
    return QN_OK;
}

void qn_slots_free(qn_slots *slots)
{
    qn_free(slots->table);
    *slots = (qn_slots){0};
}
