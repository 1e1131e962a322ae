/* scheduler.h: the thread of a model.
 *
 * It alone computes with the model, its streams and the caches of sessions.
 * Other threads hand it rows: sequences with tokens to compute.  In each step
 * it takes the next token of every row that decodes and, as far as a chunk has
 * room, pieces of prompts, and reads the weights once for all of them.  A row
 * has the bits that it has alone, so who is computed beside whom shows nowhere.
 *
 * The thread is started by the first row and ended with the model. */
#ifndef QN_RUNTIME_SCHEDULER_H
#define QN_RUNTIME_SCHEDULER_H

#include "base/status.h"

#include <quern/quern.h>

#include <pthread.h>
#include <stdatomic.h>

typedef struct qn_row qn_row;

/* Called on the model's thread. */
typedef struct qn_row_calls {
    /* The row's turn has come; a status other than QN_OK ends it. */
    qn_status (*begin)(qn_row *row);
    /* Whether it may be part of the next step.  A row that has computed all of
     * its ids gets its step without a computation. */
    bool (*ready)(qn_row *row);
    /* After a step, with row->done moved on.  When all was computed the wanted
     * logits are in the session, and the row says what comes next.  *more
     * false, or a failure, ends the row. */
    qn_status (*step)(qn_row *row, bool *more);
    /* A step with other rows failed, and the session is empty: the row starts
     * anew with everything it has computed so far.  NULL: it fails. */
    bool (*rebuild)(qn_row *row);
    /* The row is no longer the scheduler's, whatever the reason; the error slot
     * has the words.  The last use of `row`. */
    void (*end)(qn_row *row, qn_status status);
} qn_row_calls;

/* A sequence with tokens to compute; embedded in what knows why. */
struct qn_row {
    const qn_row_calls *calls;
    quern_session *session;
    const int32_t *ids; /* what is to be computed */
    size_t count, done;
    /* Logits that are wanted at the end of it, at least 1; where more than one,
     * all tokens come in one step, so they must be few. */
    int wanted;
    struct qn_pick *picks;  /* for as many, or NULL */
    int64_t answered;       /* as in qn_kv_rows, for the last of them */
    size_t stop;            /* no step goes past it; 0: none */
    struct qn_draft *draft; /* adds guesses to `ids`; or NULL */
    bool limited;           /* counts among quern_options.parallel */
    bool alone;             /* not beside others until its ids are done */
    atomic_bool cancelled;
    qn_row *next;
};

typedef struct qn_call qn_call;

typedef struct qn_scheduler {
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_t thread;
    bool started, ending;
    quern_steps steps; /* so far; with the lock */
    /* When there was nothing to do for a moment: does a piece of what can wait
     * and says after how many milliseconds it wants to go on; -1: there is no
     * more.  Or NULL. */
    int (*idle)(void *data);
    void *idle_data;
    int rest_ms;   /* until it is called */
    bool borrowed; /* a caller computes instead of the thread */
    bool waits;    /* the thread has nothing to do */
    qn_row *first_waiting, **last_waiting; /* first come, first served */
    size_t waiting, limited;               /* jobs that wait, that run */
    qn_call *calls;
    size_t parallel;
    size_t draft_rows;   /* with more there are no guesses */
    double step_seconds; /* a step with prompts is to take no longer; 0: any */
    /* The thread's own; or those of the caller that has borrowed its place. */
    qn_row *rows;
    size_t count;         /* of rows */
    bool stalled;         /* no row could be part of the last step */
    double token_seconds; /* of prompts, lately; 0: not known */
    struct qn_feed *feeds;
    qn_row **who; /* of each feed */
    size_t capacity;
} qn_scheduler;

void qn_scheduler_init(qn_scheduler *scheduler, size_t parallel);
/* Ends the thread.  Rows must be gone. */
void qn_scheduler_clear(qn_scheduler *scheduler);

/* Hands rows over that are linked by `next`; they are the scheduler's until
 * `end`.  On failure none is. */
qn_status qn_scheduler_add(qn_scheduler *scheduler, qn_row *rows);
/* The same, and computes them here while the thread has nothing to do: a caller
 * that waits for them anyway saves two changes of threads for each step.  *left
 * is 0 when all have ended; it is read and changed with *lock. */
qn_status qn_scheduler_run(qn_scheduler *scheduler, qn_row *rows,
                           pthread_mutex_t *lock, const size_t *left);
/* Makes it look at rows again that were not ready or are cancelled now. */
void qn_scheduler_wake(qn_scheduler *scheduler);
/* Runs `work` on the model's thread, between two steps, and waits for it: for
 * what computes and is no sequence.  Returns its status, with its error. */
qn_status qn_scheduler_call(qn_scheduler *scheduler,
                            qn_status (*work)(void *data), void *data);
/* What its steps took. */
extern const double qn_step_bounds[QUERN_STEP_BUCKETS - 1];
void qn_scheduler_steps(qn_scheduler *scheduler, quern_steps *out);
/* Jobs that run and that wait. */
void qn_scheduler_load(qn_scheduler *scheduler, size_t *running,
                       size_t *waiting);

#endif
