/* queue.h: whose turn it is.
 *
 * Calls wait in lanes, one for each key.  Within a lane the first one in is the
 * first one out; between lanes it is the turn of the one that was served the
 * fewest tokens.  A lane that was empty for a while does not get back what it
 * did not use. */
#ifndef QN_SERVER_QUEUE_H
#define QN_SERVER_QUEUE_H

#include "base/status.h"

#include <stdint.h>

typedef struct qn_place {
    struct qn_place *next;
    size_t lane;
} qn_place;

typedef struct qn_lane {
    qn_place *first, **last;
    uint64_t served;
    size_t running; /* calls that were taken and are not done */
} qn_lane;

/* A zeroed queue is empty and has no lanes. */
typedef struct qn_queue {
    qn_lane *lanes;
    size_t lane_count;
    size_t count; /* of calls that wait */
} qn_queue;

void qn_queue_free(qn_queue *queue);
/* Makes sure that there are `count` lanes. */
qn_status qn_queue_lanes(qn_queue *queue, size_t count);
/* Behind the others of place->lane, which must exist. */
void qn_queue_add(qn_queue *queue, qn_place *place);
/* Whose turn it is, among lanes with fewer than `most` running calls (0: any);
 * NULL: nobody's. */
qn_place *qn_queue_next(const qn_queue *queue, size_t most);
/* Takes a call out, wherever it stands; false: it does not wait. */
bool qn_queue_remove(qn_queue *queue, qn_place *place);
/* A taken call begins, is served, ends. */
void qn_queue_begin(qn_queue *queue, size_t lane);
void qn_queue_charge(qn_queue *queue, size_t lane, uint64_t tokens);
void qn_queue_end(qn_queue *queue, size_t lane);

#endif
