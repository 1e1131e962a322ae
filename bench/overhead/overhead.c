/* overhead.c: what an operation costs beside its arithmetic.
 *
 *   quern-bench-overhead [PEER.so] [--rounds N] [--max-ratio X]
 *
 * Additions of arrays of eight floats are built and evaluated, as a chain and
 * independently of each other, through the C API.  With the shared object that
 * overhead.sh makes of MLX, the two take turns; the ratio of each round is
 * taken before the median, since neighbours in time see the same machine.
 *
 * Exit codes: 0; 1 something failed; 2 usage; 9 a median ratio is above X. */
#include "overhead.h"

#include "mlx/c/mlx.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHAIN = 10000, INDEPENDENT = 1000, MOST_ROUNDS = 1000 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- quern ---- */

static mlx_array eight(float value)
{
    float data[8];
    for (int i = 0; i < 8; i++)
        data[i] = value;
    return mlx_array_new_data(data, (int[]){8}, 1, MLX_FLOAT32);
}

static double chain(int count, float *check)
{
    mlx_stream s = mlx_default_cpu_stream_new();
    mlx_array x = eight(1), y = eight(2);
    int failed = 0;
    double began = now();
    for (int i = 0; i < count; i++)
        failed |= mlx_add(&x, x, y, s);
    failed |= mlx_array_eval(x);
    double took = now() - began;
    *check = failed ? 0 : mlx_array_data_float32(x)[7];
    mlx_array_free(x);
    mlx_array_free(y);
    mlx_stream_free(s);
    return failed ? -1 : took;
}

static double independent(int count, float *check)
{
    mlx_stream s = mlx_default_cpu_stream_new();
    mlx_array x = eight(1), y = eight(2), last = mlx_array_new();
    int failed = 0;
    double began = now();
    mlx_vector_array sums = mlx_vector_array_new();
    for (int i = 0; i < count; i++) {
        mlx_array sum = mlx_array_new();
        failed |= mlx_add(&sum, x, y, s);
        failed |= mlx_vector_array_append_value(sums, sum);
        mlx_array_free(sum);
    }
    failed |= mlx_eval(sums);
    failed |= mlx_vector_array_get(&last, sums, (size_t)count - 1);
    mlx_vector_array_free(sums);
    double took = now() - began;
    *check = failed ? 0 : mlx_array_data_float32(last)[7];
    mlx_array_free(last);
    mlx_array_free(x);
    mlx_array_free(y);
    mlx_stream_free(s);
    return failed ? -1 : took;
}

static const overhead_peer quern = {"quern", chain, independent};

/* ---- rounds ---- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, int n)
{
    double sorted[MOST_ROUNDS];
    memcpy(sorted, values, (size_t)n * sizeof *values);
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    return sorted[n / 2];
}

typedef struct form {
    const char *name;
    int count;
    float expected;
} form;

static const form forms[] = {
    {"chain", CHAIN, 1 + 2 * CHAIN},
    {"independent", INDEPENDENT, 3},
};

/* Seconds per operation. */
static double once(const overhead_peer *peer, const form *f)
{
    float check = 0;
    double took =
        (f == &forms[0] ? peer->chain : peer->independent)(f->count, &check);
    if (took < 0 || check != f->expected) {
        fprintf(stderr, "overhead: %s: expected %g, found %g\n", peer->name,
                (double)f->expected, (double)check);
        exit(1);
    }
    return took / f->count;
}

/* Prints a line; true when the ratio is met. */
static int measure(const form *f, const overhead_peer *peer, int rounds,
                   double max_ratio)
{
    double ours[MOST_ROUNDS], theirs[MOST_ROUNDS], ratios[MOST_ROUNDS];
    for (int i = -2; i < rounds; i++) { /* two of them warm up */
        double a = once(&quern, f), b = peer ? once(peer, f) : a;
        if (i < 0)
            continue;
        ours[i] = a;
        theirs[i] = b;
        ratios[i] = a / b;
    }
    printf("%-12s %6d adds   quern %7.0f ns/op", f->name, f->count,
           median(ours, rounds) * 1e9);
    double ratio = median(ratios, rounds);
    int met = !peer || ratio <= max_ratio;
    if (peer)
        printf("   %s %7.0f ns/op   ratio %.3f (at most %.3f)   %s", peer->name,
               median(theirs, rounds) * 1e9, ratio, max_ratio,
               met ? "met" : "NOT MET");
    printf("\n");
    return met;
}

static const overhead_peer *load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const overhead_peer *peer =
        library ? dlsym(library, OVERHEAD_PEER_NAME) : NULL;
    if (!peer) {
        fprintf(stderr, "overhead: %s\n", dlerror());
        exit(1);
    }
    return peer;
}

int main(int argc, char **argv)
{
    const overhead_peer *peer = NULL;
    int rounds = 51, met = 1;
    double max_ratio = 0.2;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--rounds") && i + 1 < argc) {
            rounds = atoi(argv[++i]);
        } else if (!strcmp(argv[i], "--max-ratio") && i + 1 < argc) {
            max_ratio = atof(argv[++i]);
        } else if (argv[i][0] != '-') {
            peer = load(argv[i]);
        } else {
            rounds = 0;
        }
    }
    if (rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: quern-bench-overhead [PEER.so] [--rounds N] "
                        "[--max-ratio X]\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        met &= measure(&forms[i], peer, rounds, max_ratio);
    return met ? 0 : 9;
}
