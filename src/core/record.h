/* record.h: what a thread builds while a transformation listens.
 *
 * A recording lists the nodes that the calling thread makes between begin and
 * stop, in the order of their making, so inputs come before outputs.  It
 * holds each node's inputs and outputs: a function may evaluate what it has
 * built, and the way from its inputs to its results is still known.
 *
 * Recordings nest, and share one list: an outer one also hears what is built
 * for an inner one.  Begin, stop and end pair up like brackets on one thread.
 * Between stop and end the entries stay, while what is built is only heard by
 * outer recordings. */
#ifndef QN_CORE_RECORD_H
#define QN_CORE_RECORD_H

#include "node.h"

typedef struct qn_record_entry {
    qn_node *node;
    /* The node's own lists may have lost READY outputs; these have not. */
    qn_array **inputs, **outputs;
} qn_record_entry;

typedef struct qn_record {
    size_t first, end; /* its entries, once it has stopped */
    bool shapeless;
} qn_record;

/* `shapeless`: the recorded nodes will be made again for other shapes. */
void qn_record_begin(qn_record *record, bool shapeless);
void qn_record_stop(qn_record *record);
void qn_record_end(qn_record *record);

/* Entry number i, first <= i < end; valid until the thread's next node. */
qn_record_entry qn_record_at(size_t i);

/* Whether the calling thread's next node will be listed. */
bool qn_record_listening(void);
/* Whether some recording in progress is shapeless. */
bool qn_record_shapeless(void);

/* ---- for node.c ---- */

/* Makes room for a node of this many inputs and outputs... */
qn_status qn_record_reserve(int narrays);
/* ...and lists it. */
void qn_record_note(qn_node *node);

#endif
