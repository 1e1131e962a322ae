/* lock.h: the mutexes of the engine, in the order in which they are taken.
 *
 * A thread that holds one takes only later ones, so they can't deadlock.
 * Nobody else's code (a destructor, a callback, an error handler) runs under
 * any of them but QN_LOCK_EVAL, which eval.h lets the same thread take again.
 *
 * A fork takes them all first, so a child starts with the engine's data whole
 * and every mutex free.  Other threads are not there in the child: whoever owns
 * one finds out in the child handler of lock.c. */
#ifndef QN_CORE_LOCK_H
#define QN_CORE_LOCK_H

typedef enum qn_lock_id {
    QN_LOCK_EVAL,    /* an evaluation (eval.c) */
    QN_LOCK_QUEUE,   /* work handed over by qn_eval_async (async.c) */
    QN_LOCK_STREAM,  /* the list of streams and their kept errors (stream.c) */
    QN_LOCK_HANDLER, /* the error handler (capi/error.c) */
    QN_LOCK_COMPILE, /* caches of recorded graphs (transform/compile.c) */
    QN_LOCK_KERNELS, /* the registry of custom kernels (ops/kernel.c) */
    QN_LOCK_RANGES,  /* the ranges that are kept (capi/ext_arange.c) */
    QN_LOCK_POOL,    /* cached buffers and the counters (buffer.c) */
    QN_LOCK_COUNT
} qn_lock_id;

void qn_lock(qn_lock_id id);
void qn_unlock(qn_lock_id id);

/* `cond` is a pthread_cond_t; `id` is the last lock that the thread took. */
void qn_lock_wait(qn_lock_id id, void *cond);

#endif
