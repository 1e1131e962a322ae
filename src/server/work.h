/* work.h: threads for what takes longer than the loop may stand still: reading
 * large bodies, tokenizing, loading. */
#ifndef QN_SERVER_WORK_H
#define QN_SERVER_WORK_H

#include "base/status.h"

typedef struct qn_workers qn_workers;

/* Something to do; embedded in what it is about. */
typedef struct qn_work {
    struct qn_work *next;
    void (*run)(struct qn_work *work);
} qn_work;

/* Threads start as they are needed, `count` at most. */
qn_status qn_workers_new(qn_workers **out, int count);
/* Waits for all that was handed over. */
void qn_workers_free(qn_workers *workers);
/* First come, first served.  Fails only while there is no thread at all. */
qn_status qn_workers_add(qn_workers *workers, qn_work *work);

#endif
