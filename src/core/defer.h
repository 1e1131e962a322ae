/* defer.h: other people's destructors, run when no lock of ours is held.
 *
 * A destructor may call the library or wait for another thread that does.  So
 * what a thread lets go of during an evaluation is destroyed right after it,
 * on the same thread. */
#ifndef QN_CORE_DEFER_H
#define QN_CORE_DEFER_H

#include <stdbool.h>

/* Part of the object that is to be destroyed: deferring allocates nothing. */
typedef struct qn_deferred {
    struct qn_deferred *next;
    void (*run)(struct qn_deferred *self);
} qn_deferred;

/* Calls item->run(item): at once, or when the calling thread leaves its
 * outermost qn_defer_begin, or after the destructor it is just running (so a
 * chain of objects that free each other does not recurse).  The thread's
 * recorded error (base/status.h) is then what it was before. */
void qn_defer(qn_deferred *item);

/* Around code that holds a lock; they nest.  End comes after the unlock. */
void qn_defer_begin(void);
void qn_defer_end(void);
/* Whether anything waits for the outermost end on this thread. */
bool qn_defer_pending(void);

#endif
