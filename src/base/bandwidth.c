/* bandwidth.c: threads that add up a large array, timed.
 *
 * Each thread reads a part of its own; the best pass counts, since what
 * disturbs a pass only makes it slower. */
#include "bandwidth.h"

#include "alloc.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

enum { TOTAL = 256 << 20, MOST_THREADS = 512 };

typedef struct reader {
    const uint64_t *data;
    size_t count;
    uint64_t sum;
} reader;

static void *read_part(void *arg)
{
    reader *r = arg;
    /* Eight sums, so that additions do not wait for one another. */
    uint64_t sums[8] = {0};
    for (size_t i = 0; i + 8 <= r->count; i += 8)
        for (size_t j = 0; j < 8; j++)
            sums[j] += r->data[i + j];
    r->sum = 0;
    for (size_t j = 0; j < 8; j++)
        r->sum += sums[j];
    return NULL;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Signals are for the program's own threads. */
static bool start(pthread_t *id, reader *r)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = !pthread_create(id, NULL, read_part, r);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

/* Seconds of one pass; 0 when not every thread could be started. */
static double pass(reader *readers, int threads)
{
    pthread_t ids[MOST_THREADS];
    int started = 0;
    double began = now();
    while (started < threads - 1 && start(&ids[started], &readers[started]))
        started++;
    read_part(&readers[threads - 1]);
    for (int i = 0; i < started; i++)
        pthread_join(ids[i], NULL);
    return started == threads - 1 ? now() - began : 0;
}

double qn_memory_bandwidth(int threads, double seconds)
{
    reader readers[MOST_THREADS];
    if (threads < 1 || threads > MOST_THREADS)
        return 0;
    uint64_t *data = qn_alloc_aligned(4096, TOTAL);
    if (!data)
        return 0;
    /* Untouched pages would all be the same page of zeros. */
    memset(data, 1, TOTAL);
    size_t part = TOTAL / sizeof *data / (size_t)threads / 8 * 8;
    for (int i = 0; i < threads; i++)
        readers[i] = (reader){.data = data + (size_t)i * part, .count = part};
    double best = 0, began = now();
    do {
        double spent = pass(readers, threads);
        if (spent <= 0)
            break;
        double rate = (double)(part * sizeof *data) * threads / spent;
        if (rate > best)
            best = rate;
    } while (now() - began < seconds);
    qn_free(data);
    return best;
}
