/* async.c: the queue of evaluations and the thread that works it off.
 *
 * A task is taken off the queue only under the evaluation's lock.  So while a
 * thread evaluates, what others handed over is either still in the queue, where
 * that thread can do it itself, or was begun by that thread further up its
 * stack: a callback never has to wait for the worker. */
#include "async.h"

#include "base/alloc.h"
#include "eval.h"
#include "lock.h"

#include <pthread.h>
#include <signal.h>

typedef struct task {
    struct task *next;
    uint64_t ticket;
    size_t count;
    qn_array *arrays[];
} task;

/* One that has begun, on the stack of the thread that does it. */
typedef struct running {
    struct running *next;
    uint64_t ticket;
} running;

typedef enum worker_state {
    WORKER_NONE,
    WORKER_THERE,
    /* Running destructors that are not ours, which may wait for anything. */
    WORKER_AWAY
} worker_state;

/* Under QN_LOCK_QUEUE. */
static struct {
    task *first, **last;
    running *running;
    uint64_t tickets; /* given out so far */
    worker_state worker;
    pthread_cond_t pushed, done;
} queue = {.last = &queue.first,
           .pushed = PTHREAD_COND_INITIALIZER,
           .done = PTHREAD_COND_INITIALIZER};

static task *pop(running *mark)
{
    qn_lock(QN_LOCK_QUEUE);
    task *t = queue.first;
    if (t) {
        queue.first = t->next;
        if (!queue.first)
            queue.last = &queue.first;
        *mark = (running){queue.running, t->ticket};
        queue.running = mark;
    }
    qn_unlock(QN_LOCK_QUEUE);
    return t;
}

/* Does the oldest task, if one is left.  `worker`: on the worker's thread. */
static void do_one(bool worker)
{
    running mark;
    qn_eval_begin();
    task *t = pop(&mark);
    if (!t) {
        qn_eval_end();
        return;
    }
    qn_eval_keep_error(t->arrays, t->count);
    for (size_t i = 0; i < t->count; i++)
        qn_array_unref(t->arrays[i]);
    qn_free(t);

    bool away = worker && qn_defer_pending();
    qn_lock(QN_LOCK_QUEUE);
    queue.running = mark.next;
    if (away)
        queue.worker = WORKER_AWAY;
    pthread_cond_broadcast(&queue.done);
    qn_unlock(QN_LOCK_QUEUE);
    qn_eval_end();
    if (away) {
        qn_lock(QN_LOCK_QUEUE);
        queue.worker = WORKER_THERE;
        qn_unlock(QN_LOCK_QUEUE);
    }
}

static void *work(void *unused)
{
    (void)unused;
    for (;;) {
        qn_lock(QN_LOCK_QUEUE);
        while (!queue.first)
            qn_lock_wait(QN_LOCK_QUEUE, &queue.pushed);
        qn_unlock(QN_LOCK_QUEUE);
        do_one(true);
    }
    return NULL;
}

/* Signals are for the program's own threads. */
static bool start_worker(void)
{
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = !pthread_create(&thread, NULL, work, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started)
        pthread_detach(thread);
    return started;
}

qn_status qn_async_push(qn_array *const *arrays, size_t count)
{
    size_t bytes;
    task *t = NULL;
    if (qn_mul_size(&bytes, count, sizeof *arrays) &&
        qn_add_size(&bytes, bytes, sizeof *t))
        t = qn_alloc(bytes);
    if (!t)
        return QN_E_NOMEM;
    t->next = NULL;
    t->count = count;
    for (size_t i = 0; i < count; i++)
        t->arrays[i] = qn_array_ref(arrays[i]);

    qn_lock(QN_LOCK_QUEUE);
    t->ticket = ++queue.tickets;
    *queue.last = t;
    queue.last = &t->next;
    bool start = queue.worker == WORKER_NONE;
    if (start)
        queue.worker = WORKER_THERE;
    else
        pthread_cond_signal(&queue.pushed);
    qn_unlock(QN_LOCK_QUEUE);

    if (start && !start_worker()) {
        qn_lock(QN_LOCK_QUEUE);
        queue.worker = WORKER_NONE;
        qn_unlock(QN_LOCK_QUEUE);
        qn_async_wait();
    }
    return QN_OK;
}

/* Under QN_LOCK_QUEUE: all tasks up to `ticket` are over. */
static bool over(uint64_t ticket)
{
    if (queue.first && queue.first->ticket <= ticket)
        return false;
    for (const running *r = queue.running; r; r = r->next)
        if (r->ticket <= ticket)
            return false;
    return true;
}

static bool all_ready(qn_array *const *arrays, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!qn_array_ready(arrays[i]))
            return false;
    return true;
}

/* Comes back when all tasks so far are over, or, with arrays given, when these
 * are READY. */
static void wait_until(qn_array *const *arrays, size_t count)
{
    bool active = qn_eval_active();
    qn_lock(QN_LOCK_QUEUE);
    uint64_t ticket = queue.tickets;
    while (!over(ticket) && !(arrays && all_ready(arrays, count))) {
        if (active && !queue.first)
            break;
        if (active || (queue.first && queue.worker != WORKER_THERE)) {
            qn_unlock(QN_LOCK_QUEUE);
            do_one(false);
            qn_lock(QN_LOCK_QUEUE);
        } else {
            qn_lock_wait(QN_LOCK_QUEUE, &queue.done);
        }
    }
    qn_unlock(QN_LOCK_QUEUE);
}

void qn_async_wait(void)
{
    wait_until(NULL, 0);
}

void qn_async_wait_for(qn_array *const *arrays, size_t count)
{
    /* Whoever evaluates already does what it needs itself. */
    if (!qn_eval_active())
        wait_until(arrays, count);
}

void qn_async_forget_worker(void)
{
    queue.worker = WORKER_NONE;
    pthread_cond_init(&queue.pushed, NULL);
    pthread_cond_init(&queue.done, NULL);
}
