/* kv_time.h: what the parts of quern-bench-kv measure with. */
#ifndef QN_BENCH_KV_TIME_H
#define QN_BENCH_KV_TIME_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Ends the program when a call has failed. */
static inline void must(int failed, const char *what)
{
    if (!failed)
        return;
    fprintf(stderr, "kv: %s failed\n", what);
    exit(1);
}

static inline int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The values stay in their order: those of one round belong together. */
static inline double median(const double *values, int n)
{
    double *sorted = malloc((size_t)n * sizeof *sorted);
    must(!sorted, "memory");
    memcpy(sorted, values, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    double middle = sorted[n / 2];
    free(sorted);
    return middle;
}

#endif
