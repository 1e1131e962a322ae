/* async.h: evaluations handed over to the engine's worker thread.
 *
 * They run in the order in which they were handed over.  There is one worker
 * for all streams, because one evaluation runs at a time anyway.  It is made on
 * first use, and again in a forked child, which inherits the work but not the
 * thread. */
#ifndef QN_CORE_ASYNC_H
#define QN_CORE_ASYNC_H

#include "array.h"

/* Hands the arrays over; they are held until they are computed.  Where no
 * thread can be made, they are computed before the call returns. */
qn_status qn_async_push(qn_array *const *arrays, size_t count);

/* Waits until all that was handed over before this call is done.  Inside an
 * evaluation (a callback of it) the worker can't go on, so the calling thread
 * does what is still waiting, and what has begun is not waited for. */
void qn_async_wait(void);
/* The same, but comes back as soon as the arrays are READY. */
void qn_async_wait_for(qn_array *const *arrays, size_t count);

/* In a forked child: there is no worker any more. */
void qn_async_forget_worker(void);

#endif
