/* threadend.h: what is to happen when a thread ends. */
#ifndef QN_CORE_THREADEND_H
#define QN_CORE_THREADEND_H

#include "base/status.h"

/* Part of the object that is to be told. */
typedef struct qn_thread_end {
    struct qn_thread_end *next;
    void (*run)(struct qn_thread_end *self);
} qn_thread_end;

/* Calls item->run(item) on the calling thread when that ends, latest first.
 * Not when the process ends with the thread. */
qn_status qn_at_thread_end(qn_thread_end *item);

#endif
