/* pool.h: the threads that compute inside one node.
 *
 * A parallel region costs microseconds: workers spin for a short while after
 * a region and only then sleep, so that the regions of a decode step, which
 * follow one another within tens of microseconds, find them awake.  The calling
 * thread works too.  Each thread begins with its own share of the tasks, those
 * with neighbouring numbers; which takes which must not change results. */
#ifndef QN_CPU_POOL_H
#define QN_CPU_POOL_H

#include <stddef.h>

/* Task `index` of a region; `worker` is 0 .. qn_pool_threads()-1 and no two
 * tasks run with the same one at a time (scratch memory may hang on it). */
typedef void (*qn_pool_task)(void *ctx, size_t index, int worker);

/* Threads a region may use, the caller included; at least 1.  By default as
 * many as qn_cpu_allowed_cores(), or what qn_pool_set_threads said. */
int qn_pool_threads(void);
/* 1 .. 512; 0: the default.  Takes effect with the next region. */
void qn_pool_set_threads(int threads);
/* Runs all tasks and returns when they are done.  Not reentrant: a task must
 * not start a region.  Regions are started by one thread at a time (the one
 * that evaluates). */
void qn_pool_run(qn_pool_task task, void *ctx, size_t count);

/* Says what the next region will read, each thread a stretch of it in turn: so
 * many bytes in one or two places (0: none).  Workers that wait fetch the
 * beginning of their part from memory.  Advice: it may be wrong, and memory
 * that is gone by then is not touched. */
enum { QN_POOL_STRETCHES = 2 };
void qn_pool_next(const void *const from[QN_POOL_STRETCHES],
                  const size_t bytes[QN_POOL_STRETCHES]);

/* Splits [0, total) into at most `threads * 64` equal ranges of about `grain`
 * items or more, multiples of `align` (but the last), and calls `range` for
 * each in parallel; in the calling thread when one range is enough. */
typedef void (*qn_pool_range)(void *ctx, size_t begin, size_t end, int worker);
void qn_pool_split(qn_pool_range range, void *ctx, size_t total, size_t grain,
                   size_t align);

#endif
