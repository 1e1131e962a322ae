/* stops.h: texts that end an answer (runtime specification 10).
 *
 * Text goes in as it is decoded and comes out when it is certain that no stop
 * begins in it; a stop and what follows never comes out.  A hidden piece (the
 * spelling of a special token) takes part in matching but does not come out. */
#ifndef QN_RUNTIME_STOPS_H
#define QN_RUNTIME_STOPS_H

#include "base/buf.h"

enum { QN_MAX_STOPS = 16, QN_MAX_STOP_BYTES = 256 };

typedef struct qn_stops {
    const char *const *texts; /* borrowed */
    size_t count;
    qn_buf held;   /* what may begin a stop */
    qn_buf hidden; /* one byte for each of `held`: 1 where it is hidden */
    int matched;   /* the stop that was found, or -1 */
} qn_stops;

/* QN_E_ARG for too many, an empty one, or a long one. */
qn_status qn_stops_init(qn_stops *stops, const char *const *texts,
                        size_t count);
void qn_stops_clear(qn_stops *stops);
/* Adds `text` and appends to `out` what is certain.  After a match nothing
 * more comes out. */
qn_status qn_stops_add(qn_stops *stops, qn_buf *out, qn_str text, bool hidden);
/* The rest, at the end of the answer. */
qn_status qn_stops_finish(qn_stops *stops, qn_buf *out);

#endif
