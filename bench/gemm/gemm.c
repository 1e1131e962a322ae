/* gemm.c: dense matrix products of every type beside OpenBLAS's sgemm and
 * beside our own float32, in one process, taking turns.
 *
 *   quern-bench-gemm [--blas FILE] [--threads N] [--quick] [FILTER...]
 *
 * FILE is a shared library of OpenBLAS: Debian's, or the one in NumPy's
 * package, whose names are scipy_cblas_sgemm64_ and so on.  bench/gemm/gemm.sh
 * finds it.  A FILTER is a part of a row's name, such as "M512" or "xw^T".
 *
 * One row is one shape and one layout of the right side.  Each engine runs for
 * a moment, then the next, several times round; the fastest call of each
 * counts, for whatever else runs can only slow calls down.  OpenBLAS's worker
 * threads spin for some time after a call; a pause before each turn keeps them
 * out of the other's. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/pool.h"
#include "base/cpu.h"
#include "base/f16.h"
#include "core/eval.h"
#include "ops/ops.h"
#include "peak/peak.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OURS_F32, OURS_BF16, OURS_F16, BLAS, ENGINES };
static const char *const names[] = {"f32", "bf16", "f16", "blas"};

/* cblas_sgemm with 32 and with 64-bit integers. */
typedef void (*sgemm32)(int, int, int, int, int, int, float, const float *, int,
                        const float *, int, float, float *, int);
typedef void (*sgemm64)(int, int, int, int64_t, int64_t, int64_t, float,
                        const float *, int64_t, const float *, int64_t, float,
                        float *, int64_t);
enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };

static struct {
    sgemm32 narrow;
    sgemm64 wide;
} blas;

typedef struct shape {
    int m, n, k;
    bool transposed; /* b is stored as n rows of k */
} shape;

typedef struct problem {
    shape s;
    qn_array *a[BLAS], *b[BLAS];
    float *out; /* OpenBLAS's */
} problem;

static double flops_limit, read_limit;

/* With one thread, the time that it runs: then other work on the machine takes
 * turns with it and does not count. */
static double seconds(void)
{
    struct timespec t;
    clock_gettime(
        qn_pool_threads() > 1 ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){0, ms * 1000000}, NULL);
}

static void die(const char *what)
{
    fprintf(stderr, "quern-bench-gemm: %s\n", what);
    exit(1);
}

static void check(qn_status status)
{
    if (status)
        die(qn_error_text());
}

/* ---- the limits of this machine ---- */

typedef struct limit_job {
    const peak *p;
    const float *x;
    size_t each;
} limit_job;

enum { FMA_ROUNDS = 200000, READ_FLOATS = 32 << 20 };

static const peak *best_peak(void)
{
#if defined(__x86_64__)
    if (qn_cpu_isa() >= QN_ISA_AVX512)
        return &peak_avx512;
    if (qn_cpu_isa() >= QN_ISA_AVX2)
        return &peak_avx2;
#elif defined(__aarch64__)
    return &peak_neon;
#endif
    return &peak_none;
}

static void fma_task(void *ctx, size_t index, int worker)
{
    (void)index;
    (void)worker;
    float out[2] = {0.5f, 0.25f};
    ((const limit_job *)ctx)->p->fma(FMA_ROUNDS, out);
}

static void read_task(void *ctx, size_t index, int worker)
{
    (void)worker;
    const limit_job *job = ctx;
    volatile float sink = job->p->read(job->x + index * job->each, job->each);
    (void)sink;
}

static double best_of(qn_pool_task task, limit_job *job, size_t parts)
{
    double best = 1e9;
    for (int i = 0; i < 7; i++) {
        double start = seconds();
        qn_pool_run(task, job, parts);
        double took = seconds() - start;
        if (took < best)
            best = took;
    }
    return best;
}

static void measure_limits(size_t threads)
{
    float *x = calloc(READ_FLOATS, sizeof *x), probe[2] = {0.5f, 0.25f};
    if (!x)
        die("out of memory");
    for (size_t i = 0; i < READ_FLOATS; i += 512)
        x[i] = 1;
    limit_job job = {.p = best_peak(), .x = x};
    double each = job.p->fma(FMA_ROUNDS, probe);
    flops_limit = each * (double)threads / best_of(fma_task, &job, threads);
    size_t parts = threads * 8;
    job.each = READ_FLOATS / parts / 64 * 64;
    read_limit =
        (double)(job.each * parts) * 4 / best_of(read_task, &job, parts);
    free(x);
}

/* ---- one problem ---- */

static qn_array *matrix(qn_dtype type, int rows, int columns)
{
    static uint64_t seed = 1;
    qn_array *a;
    check(qn_array_new(&a, type, (int[]){rows, columns}, 2));
    check(qn_array_alloc(a));
    char *data = qn_array_data(a);
    for (size_t i = 0; i < a->size; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        float x = (float)(int32_t)(seed >> 32) * 0x1p-31f;
        qn_cpu_narrow(data + i * qn_array_itemsize(a), &x, 1, type);
    }
    qn_array_set_ready(a);
    return a;
}

static problem problem_make(shape s)
{
    static const qn_dtype types[] = {QN_FLOAT32, QN_BFLOAT16, QN_FLOAT16};
    problem p = {.s = s};
    for (int e = 0; e < BLAS; e++) {
        p.a[e] = matrix(types[e], s.m, s.k);
        if (!s.transposed) {
            p.b[e] = matrix(types[e], s.k, s.n);
            continue;
        }
        qn_array *w = matrix(types[e], s.n, s.k);
        check(qn_array_new(&p.b[e], types[e], (int[]){s.k, s.n}, 2));
        qn_array_set_view(p.b[e], w, (const int64_t[]){1, s.k}, 0);
        qn_array_set_ready(p.b[e]);
        qn_array_unref(w);
    }
    p.out = malloc((size_t)s.m * (size_t)s.n * sizeof *p.out);
    if (!p.out)
        die("out of memory");
    return p;
}

static void problem_free(problem *p)
{
    for (int e = 0; e < BLAS; e++) {
        qn_array_unref(p->a[e]);
        qn_array_unref(p->b[e]);
    }
    free(p->out);
}

static void multiply_ours(const problem *p, int engine)
{
    qn_stream *stream;
    qn_array *out;
    check(qn_stream_default(&stream, (qn_device){QN_DEVICE_CPU, 0}));
    qn_node_spec spec = {.op = QN_OP_MATMUL,
                         .inputs = (qn_array *[]){p->a[engine], p->b[engine]},
                         .ninputs = 2,
                         .stream = stream};
    check(qn_node_new(&out, &spec, p->a[engine]->dtype, (int[]){p->s.m, p->s.n},
                      2));
    check(qn_eval(&out, 1));
    qn_array_unref(out);
}

static void multiply_blas(const problem *p)
{
    const shape *s = &p->s;
    const float *a = qn_array_data(p->a[OURS_F32]);
    const float *b = qn_array_data(p->b[OURS_F32]);
    int b_order = s->transposed ? TRANSPOSED : PLAIN;
    int b_stride = s->transposed ? s->k : s->n;
    if (blas.wide)
        blas.wide(ROW_MAJOR, PLAIN, b_order, s->m, s->n, s->k, 1, a, s->k, b,
                  b_stride, 0, p->out, s->n);
    else
        blas.narrow(ROW_MAJOR, PLAIN, b_order, s->m, s->n, s->k, 1, a, s->k, b,
                    b_stride, 0, p->out, s->n);
}

/* The fastest call within `budget` seconds, at least two after a first. */
static double turn(const problem *p, int engine, double budget)
{
    double best = 1e9, begin = seconds();
    for (int i = 0; i < 3 || seconds() - begin < budget; i++) {
        double start = seconds();
        if (engine == BLAS)
            multiply_blas(p);
        else
            multiply_ours(p, engine);
        double took = seconds() - start;
        if (i && took < best)
            best = took;
    }
    return best;
}

static void report(const shape *s, const char *name, const double *best)
{
    double flops = 2.0 * s->m * s->n * s->k;
    /* What must come from memory: all three matrices, at these types. */
    double items =
        (double)s->n * s->k + (double)s->m * s->k + (double)s->m * s->n;
    printf("%-26s", name);
    for (int e = 0; e < ENGINES; e++) {
        if (best[e] > 1e8)
            continue;
        int size = e == OURS_F32 || e == BLAS ? 4 : 2;
        if (s->m == 1)
            printf("  %-4s %6.1f GB/s %3.0f %%", names[e],
                   items * size / best[e] * 1e-9,
                   100 * items * size / best[e] / read_limit);
        else
            printf("  %-4s %6.1f GF %3.0f %%", names[e], flops / best[e] * 1e-9,
                   100 * flops / best[e] / flops_limit);
    }
    if (best[BLAS] < 1e8)
        printf("  f32/blas %.2f", best[BLAS] / best[OURS_F32]);
    printf("  bf16/f32 %.2f  f16/f32 %.2f\n", best[OURS_F32] / best[OURS_BF16],
           best[OURS_F32] / best[OURS_F16]);
    fflush(stdout);
}

static void run_shape(shape s, int rounds, double budget, int filters,
                      char **filter)
{
    char name[64];
    snprintf(name, sizeof name, "%s M%d N%d K%d", s.transposed ? "xw^T" : "xw",
             s.m, s.n, s.k);
    bool wanted = !filters;
    for (int i = 0; i < filters; i++)
        wanted |= strstr(name, filter[i]) != NULL;
    if (!wanted)
        return;
    problem p = problem_make(s);
    double best[ENGINES] = {1e9, 1e9, 1e9, 1e9};
    for (int round = 0; round < rounds; round++)
        for (int e = 0; e < ENGINES; e++) {
            if (e == BLAS && !blas.narrow && !blas.wide)
                continue;
            pause_ms(qn_pool_threads() > 1 ? 40 : 1);
            double took = turn(&p, e, budget);
            if (took < best[e])
                best[e] = took;
        }
    report(&s, name, best);
    problem_free(&p);
}

/* ---- OpenBLAS ---- */

typedef void (*any_fn)(void);

static any_fn find(void *library, const char *name)
{
    any_fn f = NULL;
    void *p = dlsym(library, name);
    memcpy(&f, &p, sizeof f);
    return f;
}

/* Tries NAME, then scipy_NAME64_. */
static any_fn find_either(void *library, const char *name, bool *wide)
{
    char other[64];
    any_fn f = find(library, name);
    *wide = !f;
    snprintf(other, sizeof other, "scipy_%s64_", name);
    return f ? f : find(library, other);
}

static void open_blas(const char *file, int threads)
{
    bool wide;
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        die(dlerror());
    any_fn gemm = find_either(library, "cblas_sgemm", &wide);
    any_fn set = find_either(library, "openblas_set_num_threads", &wide);
    any_fn config = find_either(library, "openblas_get_config", &wide);
    any_fn core = find_either(library, "openblas_get_corename", &wide);
    if (!gemm || !set || !config || !core)
        die("--blas: not a library of OpenBLAS");
    if (wide)
        blas.wide = (sgemm64)gemm;
    else
        blas.narrow = (sgemm32)gemm;
    ((void (*)(int))set)(threads);
    printf("%s, kernels for %s\n", ((char *(*)(void))config)(),
           ((char *(*)(void))core)());
}

int main(int argc, char **argv)
{
    const char *file = NULL;
    int threads = 0, rounds = 5, filters = 0;
    double budget = 0.06;
    char **filter = argv;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--blas") && i + 1 < argc)
            file = argv[++i];
        else if (!strcmp(argv[i], "--threads") && i + 1 < argc)
            threads = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--quick"))
            rounds = 2, budget = 0.03;
        else
            filter[filters++] = argv[i];
    }
    qn_pool_set_threads(threads);
    threads = qn_pool_threads();
    qn_backend_register(QN_DEVICE_CPU, qn_backend_cpu());
    measure_limits((size_t)threads);
    printf("%s, %s, %d thread%s: %.1f GFLOP/s of float32 multiply-adds, "
           "%.1f GB/s read\n",
           qn_cpu_name(), qn_isa_name(qn_cpu_isa()), threads,
           threads > 1 ? "s" : "", flops_limit * 1e-9, read_limit * 1e-9);
    if (file)
        open_blas(file, threads);
    static const int squares[] = {256, 384, 512, 768, 1024, 1536, 2048};
    static const int ms[] = {1, 8, 32, 512};
    static const int sides[][2] = {{576, 576},   {1536, 576},  {576, 1536},
                                   {2048, 2048}, {8192, 2048}, {2048, 8192}};
    for (int i = 0; i < 7; i++)
        for (int t = 0; t < 2; t++)
            run_shape((shape){squares[i], squares[i], squares[i], t}, rounds,
                      budget, filters, filter);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 6; j++)
            for (int t = 0; t < 2; t++)
                run_shape((shape){ms[i], sides[j][0], sides[j][1], t}, rounds,
                          budget, filters, filter);
    return 0;
}
