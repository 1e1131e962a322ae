/* lock.c: a table of mutexes, and what happens to them in a fork.
 *
 * Each thread remembers which it holds.  That serves two ends: a wrong order
 * is caught where it happens, and a thread that forks from a callback inside an
 * evaluation does not wait for itself. */
#include "lock.h"

#include "async.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>

static pthread_mutex_t mutexes[QN_LOCK_COUNT] = {
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
};
static _Thread_local bool held[QN_LOCK_COUNT];
/* Those that the fork in progress took on top. */
static bool held_for_fork[QN_LOCK_COUNT];

/* Only asserted on. */
__attribute__((unused)) static bool holds_from(int id)
{
    for (int i = id; i < QN_LOCK_COUNT; i++)
        if (held[i])
            return true;
    return false;
}

void qn_lock(qn_lock_id id)
{
    assert(!holds_from(id));
    pthread_mutex_lock(&mutexes[id]);
    held[id] = true;
}

void qn_unlock(qn_lock_id id)
{
    assert(held[id]);
    held[id] = false;
    pthread_mutex_unlock(&mutexes[id]);
}

void qn_lock_wait(qn_lock_id id, void *cond)
{
    assert(held[id] && !holds_from(id + 1));
    pthread_cond_wait(cond, &mutexes[id]);
}

static void before_fork(void)
{
    bool taken[QN_LOCK_COUNT];
    for (int i = 0; i < QN_LOCK_COUNT; i++) {
        taken[i] = !held[i];
        if (taken[i])
            pthread_mutex_lock(&mutexes[i]);
    }
    /* All are held now, so no other fork is under way. */
    for (int i = 0; i < QN_LOCK_COUNT; i++)
        held_for_fork[i] = taken[i];
}

static void after_fork(void)
{
    bool taken[QN_LOCK_COUNT];
    for (int i = 0; i < QN_LOCK_COUNT; i++)
        taken[i] = held_for_fork[i];
    for (int i = QN_LOCK_COUNT - 1; i >= 0; i--)
        if (taken[i])
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
