/* defer.c: one list of pending destructors for each thread. */
#include "defer.h"

#include "base/status.h"

#include <stddef.h>

static _Thread_local struct {
    qn_deferred *first, **last; /* last: NULL while there is none */
    unsigned depth;
    bool draining;
} pending;

static void push(qn_deferred *item)
{
    item->next = NULL;
    if (!pending.first)
        pending.last = &pending.first;
    *pending.last = item;
    pending.last = &item->next;
}

/* The destructors' failures are not those of the work before them. */
static void drain(void)
{
    qn_error error;
    qn_error_save(&error);
    pending.draining = true;
    while (pending.first) {
        qn_deferred *item = pending.first;
        pending.first = item->next;
        item->run(item);
    }
    pending.draining = false;
    qn_error_restore(&error);
}

void qn_defer(qn_deferred *item)
{
    push(item);
    if (!pending.depth && !pending.draining)
        drain();
}

void qn_defer_begin(void)
{
    pending.depth++;
}

void qn_defer_end(void)
{
    if (!--pending.depth && pending.first && !pending.draining)
        drain();
}

bool qn_defer_pending(void)
{
    return pending.first;
}
