/* record.c: a list of nodes per thread, and the arrays that it holds.
 *
 * An entry is a node; its inputs and outputs lie in a second list, one after
 * the other, beginning where the entry says. */
#include "record.h"

#include "base/alloc.h"

#include <assert.h>

typedef struct entry {
    qn_node *node;
    size_t arrays; /* index of the first input */
} entry;

typedef struct recorder {
    unsigned open, listening, shapeless; /* recordings */
    entry *entries;
    size_t count, capacity;
    qn_array **arrays;
    size_t narrays, arrays_capacity;
} recorder;

static _Thread_local recorder here;

static void forget_from(size_t first)
{
    recorder *r = &here;
    size_t arrays = first < r->count ? r->entries[first].arrays : r->narrays;
    /* Destructors may build and record: what is forgotten is off the list
     * before it is given up. */
    while (r->count > first) {
        qn_node *node = r->entries[--r->count].node;
        qn_node_unref(node, 1);
    }
    while (r->narrays > arrays)
        qn_array_unref(r->arrays[--r->narrays]);
    if (!r->open) {
        qn_free(r->entries);
        qn_free(r->arrays);
        *r = (recorder){0};
    }
}

void qn_record_begin(qn_record *record, bool shapeless)
{
    here.open++;
    here.listening++;
    here.shapeless += shapeless;
    *record = (qn_record){.first = here.count, .shapeless = shapeless};
}

void qn_record_stop(qn_record *record)
{
    here.listening--;
    here.shapeless -= record->shapeless;
    record->end = here.count;
}

void qn_record_end(qn_record *record)
{
    here.open--;
    /* Nobody who still listens needs them: they are the inner one's own. */
    if (!here.listening)
        forget_from(here.open ? record->first : 0);
}

qn_record_entry qn_record_at(size_t i)
{
    const entry *e = &here.entries[i];
    qn_array **arrays = here.arrays + e->arrays;
    return (qn_record_entry){e->node, arrays, arrays + e->node->ninputs};
}

bool qn_record_listening(void)
{
    return here.listening > 0;
}

bool qn_record_shapeless(void)
{
    return here.shapeless > 0;
}

static bool grow(void **data, size_t *capacity, size_t needed, size_t item)
{
    if (needed <= *capacity)
        return true;
    size_t more = *capacity ? *capacity : 64;
    while (more < needed)
        if (!qn_mul_size(&more, more, 2))
            return false;
    void *grown = qn_reallocarray(*data, more, item);
    if (!grown)
        return false;
    *data = grown;
    *capacity = more;
    return true;
}

qn_status qn_record_reserve(int narrays)
{
    recorder *r = &here;
    if (!r->listening)
        return QN_OK;
    if (!grow((void **)&r->entries, &r->capacity, r->count + 1,
              sizeof *r->entries) ||
        !grow((void **)&r->arrays, &r->arrays_capacity,
              r->narrays + (size_t)narrays, sizeof(qn_array *)))
        return QN_E_NOMEM;
    return QN_OK;
}

void qn_record_note(qn_node *node)
{
    recorder *r = &here;
    if (!r->listening)
        return;
    r->entries[r->count++] = (entry){qn_node_ref(node), r->narrays};
    for (int i = 0; i < node->ninputs; i++)
        r->arrays[r->narrays++] = qn_array_ref(node->inputs[i]);
    for (int i = 0; i < node->noutputs; i++)
        r->arrays[r->narrays++] = qn_array_ref(node->outputs[i]);
}
