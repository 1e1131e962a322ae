/* lock.c: a table of mutexes, and what happens to them in a fork.
 *
 * Each thread remembers which it holds.  That serves two ends: a wrong order
 * is caught where it happens, and a thread that forks from a callback inside an
 * evaluation does not wait for itself. */
#include "lock.h"

#include "async.h"

#include <assert.h>
#include <pthread.h>

static pthread_mutex_t mutexes[QN_LOCK_COUNT] = {
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
    PTHREAD_MUTEX_INITIALIZER,
};
/* Bit i: this thread holds mutex i. */
static _Thread_local unsigned held;
/* Those that the fork in progress took on top. */
static unsigned held_for_fork;

void qn_lock(qn_lock_id id)
{
    assert(!(held >> id));
    pthread_mutex_lock(&mutexes[id]);
    held |= 1u << id;
}

void qn_unlock(qn_lock_id id)
{
    assert(held >> id & 1);
    held &= ~(1u << id);
    pthread_mutex_unlock(&mutexes[id]);
}

void qn_lock_wait(qn_lock_id id, void *cond)
{
    assert(held >> id == 1);
    pthread_cond_wait(cond, &mutexes[id]);
}

static void before_fork(void)
{
    unsigned taken = 0;
    for (int i = 0; i < QN_LOCK_COUNT; i++) {
        if (held >> i & 1)
            continue;
        pthread_mutex_lock(&mutexes[i]);
        taken |= 1u << i;
    }
    held_for_fork = taken;
}

static void after_fork(void)
{
    unsigned taken = held_for_fork;
    for (int i = QN_LOCK_COUNT - 1; i >= 0; i--)
        if (taken >> i & 1)
            pthread_mutex_unlock(&mutexes[i]);
}

static void after_fork_in_child(void)
{
    qn_async_forget_worker();
    after_fork();
}

/* The handlers must be there before the first fork, and a fork may come before
 * any call of the library that takes a lock. */
__attribute__((constructor)) static void handle_forks(void)
{
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}
