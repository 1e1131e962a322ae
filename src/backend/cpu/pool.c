/* pool.c: spin-then-sleep worker threads.
 *
 * A region is published by raising `epoch`.  Workers watch it: first in a
 * spin loop, then on a condition variable.  Each thread has a share of the
 * tasks and takes from others' when it is done; the region is over when no
 * worker is `inside` it and the tasks are used up.  A late worker that wakes
 * after the end leaves at once: it looks at the epoch when it has said that it
 * is inside, so the caller never frees a context that a worker still reads.
 * Each says so on a cache line of its own: with one counter for all a region of
 * 16 threads took 3.5 us more than its longest task, and now 1.7.
 *
 * A worker that the system has not woken yet delays nobody: the others take
 * its tasks.  Who waits longer than a moment gives up its processor, so that
 * more runnable threads than processors cost time slices, not standstill.
 *
 * After fork the child has no workers; the pool starts afresh there. */
#include "pool.h"

#include "base/alloc.h"
#include "base/cpu.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#if defined(__x86_64__)
#define QN_PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define QN_PAUSE() __asm__ volatile("yield")
#else
#define QN_PAUSE() ((void)0)
#endif

enum {
    MAX_THREADS = 512,
    /* Pauses between looks at the clock; one takes 10 to 150 cycles. */
    PAUSES = 64,
    /* A worker's spin: longer than the serial gaps between the nodes of a
     * decode step, short enough not to burn a core between tokens. */
    SPIN_NS = 60 * 1000,
    /* The caller's, before it yields. */
    WAIT_NS = 20 * 1000,
    /* At most.  The last task of a region is waited for: with 8 those of an
     * output matrix took 90 us. */
    TASKS_PER_THREAD = 64,
    /* Of what is read next, for each thread: a part of its own cache. */
    FETCH_BYTES = 256 * 1024,
    FETCH_LINES = 4 /* between looks at the epoch */
};

/* What different threads write lies on cache lines of its own: a worker that
 * watches `epoch` must not slow down those that claim tasks. */
#define OWN_LINE _Alignas(128)

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    atomic_int wanted; /* threads asked for, 0 = default */
    int started;       /* worker threads that run, without the caller */
    /* The region in progress. */
    OWN_LINE qn_pool_task task;
    void *ctx;
    int limit; /* workers with number < limit take part */
    OWN_LINE atomic_uint epoch;
    OWN_LINE atomic_int sleepers; /* workers on the condition variable */
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

/* A thread's tasks that nobody has taken: the first in the high half, the end
 * in the low half. */
static struct share {
    OWN_LINE atomic_uint_least64_t tasks;
    OWN_LINE atomic_bool inside; /* the thread is in the region */
} shares[MAX_THREADS];

/* What the next region will read (qn_pool_next).  Whoever reads half of an old
 * and half of a new one fetches something in vain, and no more. */
static struct {
    OWN_LINE atomic_uint number; /* goes up with each */
    atomic_int threads;
    atomic_uintptr_t from[QN_POOL_STRETCHES];
    atomic_size_t bytes[QN_POOL_STRETCHES];
} next;

static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void after_fork_in_child(void)
{
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.wake, NULL);
    for (int i = 0; i <= pool.started; i++)
        atomic_store(&shares[i].inside, false);
    pool.started = 0;
    atomic_store(&pool.sleepers, 0);
}

static void watch_fork(void)
{
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint_least64_t share_of(uint64_t first, uint64_t end)
{
    return first << 32 | end;
}

/* The first task of a share, or its last; false when it has none. */
static bool take(struct share *share, bool last, size_t *task)
{
    uint_least64_t have =
        atomic_load_explicit(&share->tasks, memory_order_relaxed);
    uint64_t first, end;
    do {
        first = have >> 32;
        end = have & UINT32_MAX;
        if (first >= end)
            return false;
        *task = last ? end - 1 : first;
    } while (!atomic_compare_exchange_weak_explicit(
        &share->tasks, &have,
        last ? share_of(first, end - 1) : share_of(first + 1, end),
        memory_order_relaxed, memory_order_relaxed));
    return true;
}

static void drain(int worker)
{
    size_t task;
    while (take(&shares[worker], false, &task))
        pool.task(pool.ctx, task, worker);
    for (int i = 1; i < pool.limit; i++) {
        struct share *other = &shares[(worker + i) % pool.limit];
        while (take(other, true, &task))
            pool.task(pool.ctx, task, worker);
    }
}

/* Equal shares for `threads` threads. */
static void share_out(size_t count, int threads)
{
    for (int i = 0; i < threads; i++) {
        uint64_t n = (uint64_t)threads, at = (uint64_t)i;
        atomic_store_explicit(&shares[i].tasks,
                              share_of(count * at / n, count * (at + 1) / n),
                              memory_order_relaxed);
    }
}

/* How far a thread is with what is read next. */
typedef struct fetch {
    unsigned number;
    int stretch;
    uintptr_t at, end;
} fetch;

/* The worker's share of stretch `f->stretch`. */
static void begin_stretch(fetch *f, int worker)
{
    const size_t most = FETCH_BYTES / QN_POOL_STRETCHES;
    int threads = atomic_load_explicit(&next.threads, memory_order_relaxed);
    size_t share =
        atomic_load_explicit(&next.bytes[f->stretch], memory_order_relaxed) /
        (size_t)threads;
    f->at = atomic_load_explicit(&next.from[f->stretch], memory_order_relaxed) +
            share * (size_t)worker;
    f->end = f->at + (worker >= threads ? 0 : share < most ? share : most);
}

/* Some lines of it; false when there is nothing to fetch. */
static bool fetch_some(fetch *f, int worker)
{
    unsigned number = atomic_load_explicit(&next.number, memory_order_acquire);
    if (number != f->number) {
        *f = (fetch){.number = number};
        begin_stretch(f, worker);
    }
    while (f->at >= f->end) {
        if (f->stretch + 1 >= QN_POOL_STRETCHES)
            return false;
        f->stretch++;
        begin_stretch(f, worker);
    }
    for (int i = 0; i < FETCH_LINES; i++, f->at += 64)
        __builtin_prefetch((const void *)f->at, 0, 2);
    return true;
}

static unsigned await_epoch(unsigned seen, int worker, fetch *ahead)
{
    for (int64_t end = now_ns() + SPIN_NS; now_ns() < end;) {
        for (int i = 0; i < PAUSES; i++) {
            unsigned now =
                atomic_load_explicit(&pool.epoch, memory_order_acquire);
            if (now != seen)
                return now;
            if (!fetch_some(ahead, worker))
                QN_PAUSE();
        }
        /* Who must run here, such as a server's thread with the last token,
         * does so in the gap, not in the next region, for which all wait. */
        sched_yield();
    }
    pthread_mutex_lock(&pool.lock);
    atomic_fetch_add(&pool.sleepers, 1);
    unsigned now;
    while ((now = atomic_load(&pool.epoch)) == seen)
        pthread_cond_wait(&pool.wake, &pool.lock);
    atomic_fetch_sub(&pool.sleepers, 1);
    pthread_mutex_unlock(&pool.lock);
    return now;
}

/* Until no worker is inside the region any more. */
static void await_workers(void)
{
    int64_t end = 0;
    int pauses = 0, worker = pool.started;
    while (worker) {
        if (!atomic_load(&shares[worker].inside)) {
            worker--;
            continue;
        }
        QN_PAUSE();
        if (pauses < PAUSES && ++pauses == PAUSES)
            end = now_ns() + WAIT_NS;
        if (pauses == PAUSES && now_ns() > end)
            sched_yield();
    }
}

static void *work(void *arg)
{
    int worker = (int)(intptr_t)arg;
    unsigned seen = 0;
    fetch ahead = {.stretch = QN_POOL_STRETCHES};
    for (;;) {
        seen = await_epoch(seen, worker, &ahead);
        /* An odd epoch is a region in progress.  Enter, then look again: the
         * caller leaves only after it has made the epoch even and seen nobody
         * inside. */
        atomic_store(&shares[worker].inside, true);
        unsigned now = atomic_load(&pool.epoch);
        if ((now & 1) && worker < pool.limit)
            drain(worker);
        atomic_store_explicit(&shares[worker].inside, false,
                              memory_order_release);
        seen = now;
    }
    return NULL;
}

/* Starts worker `number`.  Signals are for the program's own threads. */
static bool start_worker(int number)
{
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t id;
    if (pthread_attr_init(&attr))
        return false;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&id, &attr, work, (void *)(intptr_t)number);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return !error;
}

/* Starts workers until there are `threads - 1`; fewer when the system
 * refuses, which costs speed only. */
static void ensure_workers(int threads)
{
    pthread_once(&fork_once, watch_fork);
    while (pool.started < threads - 1 && start_worker(pool.started + 1))
        pool.started++;
}

int qn_pool_threads(void)
{
    static atomic_int allowed;
    int n = atomic_load_explicit(&pool.wanted, memory_order_relaxed);
    if (n)
        return n;
    n = atomic_load_explicit(&allowed, memory_order_relaxed);
    if (!n) {
        n = qn_cpu_allowed_cores();
        if (n > MAX_THREADS)
            n = MAX_THREADS;
        atomic_store_explicit(&allowed, n, memory_order_relaxed);
    }
    return n;
}

void qn_pool_set_threads(int threads)
{
    int n = threads < 0 ? 0 : threads > MAX_THREADS ? MAX_THREADS : threads;
    atomic_store_explicit(&pool.wanted, n, memory_order_relaxed);
}

void qn_pool_run(qn_pool_task task, void *ctx, size_t count)
{
    int threads = qn_pool_threads();
    if (threads > pool.started + 1 && count > 1)
        ensure_workers(threads);
    if (threads > pool.started + 1)
        threads = pool.started + 1;
    if (threads == 1 || count <= 1 || count > UINT32_MAX) {
        for (size_t i = 0; i < count; i++)
            task(ctx, i, 0);
        return;
    }
    pool.task = task;
    pool.ctx = ctx;
    pool.limit = threads;
    share_out(count, threads);
    atomic_fetch_add(&pool.epoch, 1); /* odd: open */
    if (atomic_load(&pool.sleepers)) {
        pthread_mutex_lock(&pool.lock);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.lock);
    }
    drain(0);
    atomic_fetch_add(&pool.epoch, 1); /* even: closed to newcomers */
    await_workers();
}

void qn_pool_next(const void *const from[QN_POOL_STRETCHES],
                  const size_t bytes[QN_POOL_STRETCHES])
{
    for (int i = 0; i < QN_POOL_STRETCHES; i++) {
        atomic_store_explicit(&next.from[i], (uintptr_t)from[i],
                              memory_order_relaxed);
        atomic_store_explicit(&next.bytes[i], bytes[i], memory_order_relaxed);
    }
    atomic_store_explicit(&next.threads, qn_pool_threads(),
                          memory_order_relaxed);
    atomic_fetch_add_explicit(&next.number, 1, memory_order_release);
}

typedef struct split_job {
    qn_pool_range range;
    void *ctx;
    size_t total, step;
} split_job;

static void run_split(void *ctx, size_t index, int worker)
{
    const split_job *job = ctx;
    size_t begin = index * job->step;
    size_t end = begin + job->step;
    job->range(job->ctx, begin, end < job->total ? end : job->total, worker);
}

void qn_pool_split(qn_pool_range range, void *ctx, size_t total, size_t grain,
                   size_t align)
{
    if (!total)
        return;
    size_t threads = (size_t)qn_pool_threads();
    size_t parts = grain ? total / grain : total;
    /* Equal parts, and as many for each thread: a rest of a part would leave
     * the others waiting. */
    if (parts > threads * TASKS_PER_THREAD)
        parts = threads * TASKS_PER_THREAD;
    else if (parts > threads)
        parts = parts / threads * threads;
    if (parts <= 1 || threads == 1) {
        range(ctx, 0, total, 0);
        return;
    }
    size_t step = (total + parts - 1) / parts;
    if (align > 1)
        step = (step + align - 1) / align * align;
    split_job job = {range, ctx, total, step};
    qn_pool_run(run_split, &job, (total + step - 1) / step);
}
