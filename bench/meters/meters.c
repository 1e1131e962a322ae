/* meters.c: threads that start together, timed until the last is done. */
#include "meters.h"

#include "peak/peak.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum {
    FLOATS = 16 << 20, /* in each array */
    GAP = 1088,        /* between them, so that they don't share cache sets */
    MOST_THREADS = 256,
    FMA_ROUNDS = 400000,
    DOT8_ROUNDS = 200000
};
#define HUGE ((size_t)2 << 20) /* bytes in a large page */

typedef struct worker {
    pthread_barrier_t *start;
    void (*work)(struct worker *w);
    int kind;
    float *to;
    const float *from, *with;
    size_t n;
    double done; /* what `work` counts; its result keeps the work alive */
    float sink;
} worker;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Four floats past the caches, where the processor has a word for it. */
#if defined(__x86_64__)
typedef __m128 four;
#define LOAD(p) _mm_load_ps(p)
#define SUM(a, b) _mm_add_ps(a, b)
#define STREAM(p, v) _mm_stream_ps(p, v)
#define FENCE() _mm_sfence()
#else
typedef float four __attribute__((vector_size(16)));
#define LOAD(p) (*(const four *)(const void *)(p))
#define SUM(a, b) ((a) + (b))
#define STREAM(p, v) (*(four *)(void *)(p) = (v))
#define FENCE() ((void)0)
#endif

static void memory_work(worker *w)
{
    four zero = {0};
    switch (w->kind) {
    case METER_READ:
        w->sink = peak_best()->read(w->from, w->n);
        break;
    case METER_WRITE:
        for (size_t i = 0; i < w->n; i += 4)
            STREAM(w->to + i, zero);
        break;
    case METER_COPY:
        for (size_t i = 0; i < w->n; i += 4)
            STREAM(w->to + i, LOAD(w->from + i));
        break;
    default:
        for (size_t i = 0; i < w->n; i += 4)
            STREAM(w->to + i, SUM(LOAD(w->from + i), LOAD(w->with + i)));
        break;
    }
    FENCE();
}

static void fma_work(worker *w)
{
    float out[2] = {0.5f, 0.25f};
    w->done = peak_best()->fma(FMA_ROUNDS, out);
    w->sink = out[0];
}

static void dot8_work(worker *w)
{
    int out[2] = {3, 5};
    w->done = peak_best()->dot8(DOT8_ROUNDS, out);
    w->sink = (float)out[0];
}

static void *thread_main(void *arg)
{
    worker *w = arg;
    pthread_barrier_wait(w->start);
    w->work(w);
    return NULL;
}

/* Seconds of one pass; 0 when not every thread could be started. */
static double pass(worker *workers, int threads)
{
    pthread_t ids[MOST_THREADS];
    pthread_barrier_t start;
    if (pthread_barrier_init(&start, NULL, (unsigned)threads))
        return 0;
    int started = 1;
    for (; started < threads; started++) {
        workers[started].start = &start;
        if (pthread_create(&ids[started], NULL, thread_main, &workers[started]))
            abort(); /* the others wait for it: there is no way on */
    }
    pthread_barrier_wait(&start);
    double began = now();
    workers[0].work(&workers[0]);
    for (int i = 1; i < threads; i++)
        pthread_join(ids[i], NULL);
    double took = now() - began;
    pthread_barrier_destroy(&start);
    return took;
}

static double fastest(worker *workers, int threads, int passes)
{
    double best = 0;
    for (int i = 0; i < passes; i++) {
        double took = pass(workers, threads);
        if (took > 0 && (best == 0 || took < best))
            best = took;
    }
    return best;
}

/* Three arrays, touched, on large pages where there are any. */
static float *arrays(void)
{
    static float *made;
    size_t size = (size_t)3 * (FLOATS + GAP) * sizeof(float);
    size = (size + HUGE - 1) / HUGE * HUGE;
    if (made)
        return made;
    float *p = aligned_alloc(HUGE, size);
    if (!p)
        return NULL;
#ifdef MADV_HUGEPAGE
    madvise(p, size, MADV_HUGEPAGE);
#endif
    memset(p, 1, size);
    return made = p;
}

double meter_bandwidth(int kind, int threads, int passes)
{
    static const int touched[METER_KINDS] = {1, 1, 2, 3};
    worker workers[MOST_THREADS];
    float *data = arrays();
    if (!data || threads < 1 || threads > MOST_THREADS || kind < 0 ||
        kind >= METER_KINDS)
        return 0;
    size_t part = (size_t)FLOATS / (size_t)threads / 64 * 64;
    for (int i = 0; i < threads; i++) {
        float *mine = data + (size_t)i * part;
        workers[i] = (worker){.work = memory_work,
                              .kind = kind,
                              .from = mine,
                              .with = mine + FLOATS + GAP,
                              .to = mine + 2 * (size_t)(FLOATS + GAP),
                              .n = part};
    }
    double took = fastest(workers, threads, passes);
    double bytes = (double)part * threads * 4 * touched[kind];
    return took > 0 ? bytes / took : 0;
}

/* What `work` counts on every thread, per second. */
static double counted(void (*work)(worker *w), int threads, int passes)
{
    worker workers[MOST_THREADS];
    if (threads < 1 || threads > MOST_THREADS)
        return 0;
    for (int i = 0; i < threads; i++)
        workers[i] = (worker){.work = work};
    double took = fastest(workers, threads, passes);
    return took > 0 ? workers[0].done * threads / took : 0;
}

double meter_flops(int threads, int passes)
{
    return counted(fma_work, threads, passes);
}

double meter_dot8(int threads, int passes)
{
    return peak_best()->dot8 ? counted(dot8_work, threads, passes) : 0;
}
