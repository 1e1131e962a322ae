/* kernels.c: how fast each kernel is, beside what the machine can do.
 *
 *   quern-bench-kernels [FAMILY...]
 *
 * Families: rowdot, attention, map, rows, panel (one core, each instruction
 * set) and nodes (whole operations and an empty region, all threads).  Prints
 * GFLOP/s with the share of the multiply-add peak, and GB/s with the share of
 * the memory rate; the best of several runs counts.  Rates above that of memory
 * come from caches. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kernels/attention/attention.h"
#include "backend/cpu/kernels/map/map.h"
#include "backend/cpu/kernels/panel/panel.h"
#include "backend/cpu/kernels/rowdot/rowdot.h"
#include "backend/cpu/kernels/rows/rows.h"
#include "backend/cpu/pool.h"
#include "base/cpu.h"
#include "base/f16.h"
#include "base/gguf.h"
#include "core/eval.h"
#include "ops/ops.h"
#include "ops/params.h"
#include "peak/peak.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The time of the fastest of many runs, at least 5 and 0.15 s of them. */
typedef void (*work_fn)(void *ctx);

static double best_time(work_fn work, void *ctx)
{
    double best = 1e9, begin = seconds();
    for (int i = 0; i < 5 || seconds() - begin < 0.15; i++) {
        double start = seconds();
        work(ctx);
        double took = seconds() - start;
        if (took < best)
            best = took;
    }
    return best;
}

static void *room(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!p) {
        fprintf(stderr, "bench: out of memory\n");
        exit(1);
    }
    memset(p, 0, bytes);
    return p;
}

static float noise(void)
{
    static uint64_t seed = 1;
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(seed >> 32) * 0x1p-31f;
}

static float *random_floats(size_t n)
{
    float *x = room(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = noise();
    return x;
}

/* ---- the limits ---- */

static struct {
    double flops[QN_ISA_COUNT]; /* one core */
    double bytes[QN_ISA_COUNT]; /* multiply-adds of bytes, 0: none */
    double all_flops;           /* all threads, best instruction set */
    double all_bytes;
    double read, all_read; /* bytes per second */
} limits;

enum { FMA_ROUNDS = 200000, DOT8_ROUNDS = 100000, READ_FLOATS = 64 << 20 };

typedef struct limit_job {
    const peak *p;
    const float *x;
    size_t parts;
    double flops;
} limit_job;

static void fma_work(void *ctx)
{
    limit_job *job = ctx;
    float out[2] = {0.5f, 0.25f};
    job->flops = job->p->fma(FMA_ROUNDS, out);
}

static void fma_task(void *ctx, size_t index, int worker)
{
    (void)index;
    (void)worker;
    float out[2] = {0.5f, 0.25f};
    ((limit_job *)ctx)->p->fma(FMA_ROUNDS, out);
}

static void all_fma_work(void *ctx)
{
    qn_pool_run(fma_task, ctx, (size_t)qn_pool_threads());
}

static void dot8_work(void *ctx)
{
    limit_job *job = ctx;
    int out[2] = {3, 5};
    job->flops = job->p->dot8(DOT8_ROUNDS, out);
}

static void dot8_task(void *ctx, size_t index, int worker)
{
    (void)index;
    (void)worker;
    int out[2] = {3, 5};
    ((limit_job *)ctx)->p->dot8(DOT8_ROUNDS, out);
}

static void all_dot8_work(void *ctx)
{
    qn_pool_run(dot8_task, ctx, (size_t)qn_pool_threads());
}

static void read_task(void *ctx, size_t index, int worker)
{
    (void)worker;
    limit_job *job = ctx;
    size_t n = READ_FLOATS / job->parts / 64 * 64;
    volatile float sink = job->p->read(job->x + index * n, n);
    (void)sink;
}

static void read_work(void *ctx)
{
    read_task(ctx, 0, 0);
}

static void all_read_work(void *ctx)
{
    qn_pool_run(read_task, ctx, ((limit_job *)ctx)->parts);
}

static void measure_limits(void)
{
    limit_job job = {.x = random_floats(READ_FLOATS)};
    for (int isa = 0; isa < QN_ISA_COUNT; isa++) {
        if (!qn_rowdot_at((qn_isa)isa))
            continue;
        job.p = peak_at((qn_isa)isa);
        double time = best_time(fma_work, &job);
        limits.flops[isa] = job.flops / time;
    }
    for (int isa = 0; isa < QN_ISA_COUNT; isa++) {
        job.p = peak_at((qn_isa)isa);
        if (!qn_isa_usable((qn_isa)isa) || !job.p->dot8)
            continue;
        double time = best_time(dot8_work, &job);
        limits.bytes[isa] = job.flops / time;
    }
    int threads = qn_pool_threads();
    job.p = peak_best();
    job.parts = 1;
    fma_work(&job);
    limits.all_flops = job.flops * threads / best_time(all_fma_work, &job);
    if (job.p->dot8) {
        dot8_work(&job);
        limits.all_bytes = job.flops * threads / best_time(all_dot8_work, &job);
    }
    limits.read = READ_FLOATS * 4.0 / best_time(read_work, &job);
    job.parts = (size_t)threads * 8;
    limits.all_read = READ_FLOATS * 4.0 / best_time(all_read_work, &job);
    printf("%s, %s, %d threads\n", qn_cpu_name(), qn_isa_name(qn_cpu_isa()),
           threads);
    for (int isa = 0; isa < QN_ISA_COUNT; isa++)
        if (limits.flops[isa] > 0)
            printf("multiply-adds, one core, %-11s %7.1f GFLOP/s\n",
                   qn_isa_name((qn_isa)isa), limits.flops[isa] * 1e-9);
    printf("multiply-adds, all threads           %7.1f GFLOP/s\n",
           limits.all_flops * 1e-9);
    for (int isa = 0; isa < QN_ISA_COUNT; isa++)
        if (limits.bytes[isa] > 0)
            printf("8-bit multiply-adds, one core, %-11s %7.1f G/s\n",
                   qn_isa_name((qn_isa)isa), limits.bytes[isa] * 1e-9);
    if (limits.all_bytes > 0)
        printf("8-bit multiply-adds, all threads           %7.1f G/s\n",
               limits.all_bytes * 1e-9);
    printf("reading memory: one core %.1f GB/s, all threads %.1f GB/s\n\n",
           limits.read * 1e-9, limits.all_read * 1e-9);
    free((void *)(uintptr_t)job.x);
}

/* One line.  flops or bytes may be 0: not what counts here. */
static void report(const char *family, const char *isa, const char *what,
                   double time, double flops, double bytes, double peak_flops,
                   double peak_read)
{
    printf("%-9s %-7s %-34s %9.2f us", family, isa, what, time * 1e6);
    if (flops > 0)
        printf("  %7.1f GFLOP/s %3.0f %%", flops / time * 1e-9,
               100 * flops / time / peak_flops);
    if (bytes > 0)
        printf("  %6.1f GB/s %3.0f %%", bytes / time * 1e-9,
               100 * bytes / time / peak_read);
    printf("\n");
}

static void report_kernel(const char *family, qn_isa isa, const char *what,
                          double time, double flops, double bytes)
{
    report(family, qn_isa_name(isa), what, time, flops, bytes,
           limits.flops[isa], limits.read);
}

/* ---- rows times rows ---- */

typedef struct format {
    qn_row_format format;
    const char *name;
    int bits;
} format;

static const format formats[] = {
    {QN_ROW_Q4, "q4 g32", 4}, {QN_ROW_Q8, "q8 g32", 8},
    {QN_ROW_Q2, "q2 g32", 2}, {QN_ROW_Q3, "q3 g32", 3},
    {QN_ROW_Q5, "q5 g32", 5}, {QN_ROW_Q6, "q6 g32", 6},
    {QN_ROW_F32, "f32", 32},  {QN_ROW_F16, "f16", 16},
    {QN_ROW_BF16, "bf16", 16}};

typedef struct rowdot_job {
    const qn_rowdot_kernel *kernel;
    qn_rowdot dot;
    float *scratch;
} rowdot_job;

static void rowdot_work(void *ctx)
{
    rowdot_job *job = ctx;
    job->kernel->run(&job->dot, 0, job->dot.n, job->scratch);
}

static void bench_rowdot(qn_isa isa)
{
    enum { K = 576, GROUP = 32 };
    static const size_t ms[] = {1, 8, 96};
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (int i = 0; i < 3; i++) {
            size_t m = ms[i], n = m == 1 ? 24576 : 1536;
            bool packed = formats[f].bits <= 8;
            size_t row = K * (size_t)formats[f].bits / 8, groups = K / GROUP;
            rowdot_job job = {.kernel = qn_rowdot_at(isa)};
            uint8_t *w = room(n * row);
            for (size_t b = 0; packed && b < n * row; b++)
                w[b] = (uint8_t)(noise() * 100);
            uint16_t *scales = room(n * groups * 2);
            memset(scales, 0x2e, n * groups * 2);
            float *x = random_floats(m * K);
            job.scratch = room(qn_rowdot_scratch(K) * sizeof(float));
            job.dot = (qn_rowdot){.m = m,
                                  .n = n,
                                  .k = K,
                                  .x = x,
                                  .x_stride = K,
                                  .format = formats[f].format,
                                  .w = w,
                                  .w_stride = row,
                                  .group = GROUP,
                                  .scale_type = QN_FLOAT16,
                                  .bias_type = QN_FLOAT16,
                                  .scales = (uint8_t *)scales,
                                  .biases = (uint8_t *)scales,
                                  .scale_stride = groups,
                                  .bias_stride = groups,
                                  .out = room(m * n * sizeof(float)),
                                  .out_stride = n};
            double bytes =
                (double)n * (double)(row + (packed ? groups * 4 : 0));
            char what[64];
            snprintf(what, sizeof what, "%s, M %zu, N %zu, K %d",
                     formats[f].name, m, n, K);
            report_kernel("rowdot", isa, what, best_time(rowdot_work, &job),
                          2.0 * (double)m * (double)n * K, m <= 8 ? bytes : 0);
            free(w);
            free(scales);
            free(x);
            free(job.scratch);
            free(job.dot.out);
        }
}

/* ---- attention ---- */

typedef struct attention_job {
    const qn_attention_kernel *kernel;
    qn_attention job;
    float *scratch;
} attention_job;

static void attention_work(void *ctx)
{
    attention_job *a = ctx;
    size_t rows = a->job.queries * a->job.group;
    size_t step = a->kernel->block(&a->job);
    for (size_t row = 0; row < rows; row += step)
        a->kernel->run(&a->job, row, row + step < rows ? row + step : rows,
                       a->scratch);
}

/* How keys and values lie: rows as in an array, or as caches hold them. */
typedef enum storage { ROWS, BLOCKS, AFFINE, TURBO } storage;

/* Keys or values as codes; the factors are all the same. */
static qn_kvcodes random_codes(bool affine, size_t keys, size_t d, int bits)
{
    size_t words = keys * d * (size_t)bits / 32;
    qn_kvcodes c = {.bits = bits,
                    .affine = affine,
                    .d = d,
                    .group = affine ? 64 : 32,
                    .type = QN_FLOAT16};
    uint32_t *to = room(words * sizeof *to);
    for (size_t i = 0; i < words; i++)
        to[i] = (uint32_t)(int32_t)(noise() * 2147483520.0f);
    c.words = to;
    size_t factors = keys * d / c.group;
    uint16_t *half = room(2 * factors * sizeof *half);
    for (size_t i = 0; i < factors; i++)
        half[i] = qn_f32_to_f16(0.01f);
    c.factors[0] = half;
    c.factors[1] = half + factors;
    return c;
}

static qn_attention attention_of(size_t q, size_t keys, size_t d, size_t group,
                                 storage how, qn_dtype type, int key_bits,
                                 int value_bits)
{
    size_t row = d * qn_dtype_size(type);
    bool packed = how >= AFFINE;
    qn_attention job = {.queries = q,
                        .group = group,
                        .keys = keys,
                        .d = d,
                        .dv = d,
                        .scale = 0.125f,
                        .causal = true,
                        .q_type = QN_FLOAT32,
                        .k_type = type,
                        .v_type = type,
                        .out_type = QN_FLOAT32,
                        .q = random_floats(q * group * d),
                        .q_query = (int64_t)(group * d),
                        .q_head = (int64_t)d,
                        .k = packed ? NULL : room(keys * row),
                        .k_row = (int64_t)d,
                        .v = packed ? NULL : room(keys * row),
                        .v_row = (int64_t)d,
                        .k_blocks = how == BLOCKS,
                        .out = room(q * group * d * sizeof(float)),
                        .out_query = (int64_t)(group * d),
                        .out_head = (int64_t)d};
    if (packed) {
        job.keys_packed = random_codes(how == AFFINE, keys, d, key_bits);
        job.values_packed = random_codes(how == AFFINE, keys, d, value_bits);
    }
    return job;
}

static void free_attention(qn_attention *job)
{
    free((void *)(uintptr_t)job->q);
    free((void *)(uintptr_t)job->k);
    free((void *)(uintptr_t)job->v);
    free((void *)(uintptr_t)job->keys_packed.words);
    free((void *)(uintptr_t)job->keys_packed.factors[0]);
    free((void *)(uintptr_t)job->values_packed.words);
    free((void *)(uintptr_t)job->values_packed.factors[0]);
    free(job->out);
}

static void bench_attention_case(qn_isa isa, const qn_attention *job,
                                 const char *stored, double bytes)
{
    attention_job a = {.kernel = qn_attention_at(isa), .job = *job};
    if (job->keys_packed.words)
        a.job.codes = isa == QN_ISA_NONE || isa == QN_ISA_AVX2
                          ? qn_kvcodes_at(isa)
                          : qn_kvcodes_pick();
    a.scratch = room(a.kernel->scratch(&a.job, a.kernel->block(&a.job)) *
                     sizeof(float));
    size_t q = job->queries, keys = job->keys;
    double pairs =
        (double)q * (double)(keys - q) + (double)q * (double)(q + 1) / 2;
    char what[64];
    snprintf(what, sizeof what, "%zu x %zu, D %zu, group %zu, %s", q, keys,
             job->d, job->group, stored);
    report_kernel("attention", isa, what, best_time(attention_work, &a),
                  4 * pairs * (double)(job->group * job->d), bytes);
    free(a.scratch);
}

static void bench_attention(qn_isa isa)
{
    static const struct {
        size_t queries, keys, d, group;
        storage how;
        qn_dtype type;
        int key_bits, value_bits;
        const char *name;
    } cases[] = {
        {1, 512, 64, 3, ROWS, QN_FLOAT16, 0, 0, "f16"},
        {1, 8192, 64, 3, ROWS, QN_FLOAT16, 0, 0, "f16"},
        {1, 8192, 128, 4, ROWS, QN_FLOAT16, 0, 0, "f16"},
        {1, 8192, 64, 3, ROWS, QN_FLOAT32, 0, 0, "f32"},
        {1, 8192, 64, 3, ROWS, QN_BFLOAT16, 0, 0, "bf16"},
        {512, 512, 64, 3, ROWS, QN_FLOAT16, 0, 0, "f16"},
        {512, 4096, 64, 3, ROWS, QN_FLOAT16, 0, 0, "f16"},
        {512, 4096, 128, 4, ROWS, QN_FLOAT32, 0, 0, "f32"},
        {512, 4096, 64, 3, BLOCKS, QN_FLOAT16, 0, 0, "f16 cache"},
        {512, 4096, 64, 3, AFFINE, QN_FLOAT16, 8, 8, "affine8 cache"},
        {512, 4096, 64, 3, TURBO, QN_FLOAT16, 8, 3, "k8v3 cache"},
        {1, 16384, 64, 3, BLOCKS, QN_FLOAT32, 0, 0, "f32 cache"},
        {1, 16384, 64, 3, BLOCKS, QN_FLOAT16, 0, 0, "f16 cache"},
        {1, 16384, 64, 3, BLOCKS, QN_BFLOAT16, 0, 0, "bf16 cache"},
        {1, 16384, 64, 3, AFFINE, QN_FLOAT16, 8, 8, "affine8 cache"},
        {1, 16384, 64, 3, AFFINE, QN_FLOAT16, 4, 4, "affine4 cache"},
        {1, 16384, 64, 3, TURBO, QN_FLOAT16, 8, 8, "k8v8 cache"},
        {1, 16384, 64, 3, TURBO, QN_FLOAT16, 8, 4, "k8v4 cache"},
        {1, 16384, 64, 3, TURBO, QN_FLOAT16, 8, 3, "k8v3 cache"},
        {1, 16384, 64, 3, TURBO, QN_FLOAT16, 5, 5, "k5v5 cache"},
        {1, 16384, 64, 3, TURBO, QN_FLOAT16, 2, 2, "k2v2 cache"},
        {1, 16384, 128, 4, BLOCKS, QN_FLOAT16, 0, 0, "f16 cache"},
        {1, 16384, 128, 4, AFFINE, QN_FLOAT16, 8, 8, "affine8 cache"},
        {1, 16384, 128, 4, AFFINE, QN_FLOAT16, 4, 4, "affine4 cache"},
        {1, 16384, 128, 4, TURBO, QN_FLOAT16, 8, 3, "k8v3 cache"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        size_t keys = cases[c].keys, d = cases[c].d;
        qn_attention job = attention_of(
            cases[c].queries, keys, d, cases[c].group, cases[c].how,
            cases[c].type, cases[c].key_bits, cases[c].value_bits);
        double codes = cases[c].key_bits + cases[c].value_bits;
        double pair = (double)d * codes / 8;
        if (cases[c].how == AFFINE)
            pair += 8 * (double)d / 64;
        else if (cases[c].how == TURBO)
            pair += 6 * (double)d / 32;
        else
            pair = 2 * (double)(d * qn_dtype_size(job.k_type));
        bench_attention_case(isa, &job, cases[c].name,
                             job.queries == 1 ? (double)keys * pair : 0);
        free_attention(&job);
    }
}

/* ---- element by element ---- */

typedef struct map_job {
    const qn_map_kernel *kernel;
    int op, from, to;
    float *x, *y;
    size_t n;
} map_job;

static void unary_work(void *ctx)
{
    map_job *job = ctx;
    job->kernel->unary[job->op](job->y, job->x, job->n);
}

static void binary_work(void *ctx)
{
    map_job *job = ctx;
    job->kernel->binary[job->op](job->y, job->x, job->y, job->n, 1, 1);
}

static void convert_work(void *ctx)
{
    map_job *job = ctx;
    job->kernel->convert[job->from][job->to](job->y, job->x, job->n);
}

static void bench_map(qn_isa isa)
{
    static const char *const types[] = {"f32", "f16", "bf16"};
    enum { N = 8192 };
    map_job job = {.kernel = qn_map_at(isa),
                   .x = random_floats(N),
                   .y = random_floats(N),
                   .n = N};
    char what[64];
    for (job.op = 0; job.op < QN_OP_COUNT; job.op++) {
        const char *name = qn_op_info_of(job.op)->name;
        snprintf(what, sizeof what, "%s, %d in cache", name, N);
        if (job.kernel->unary[job.op])
            report_kernel("map", isa, what, best_time(unary_work, &job), 0,
                          8.0 * N);
        if (job.kernel->binary[job.op])
            report_kernel("map", isa, what, best_time(binary_work, &job), 0,
                          12.0 * N);
    }
    for (job.from = 0; job.from < QN_MAP_TYPES; job.from++)
        for (job.to = 0; job.to < QN_MAP_TYPES; job.to++) {
            if (job.from == job.to)
                continue;
            snprintf(what, sizeof what, "%s to %s, %d in cache",
                     types[job.from], types[job.to], N);
            int bytes = (job.from ? 2 : 4) + (job.to ? 2 : 4);
            report_kernel("map", isa, what, best_time(convert_work, &job), 0,
                          (double)bytes * N);
        }
    free(job.x);
    free(job.y);
}

/* ---- rows ---- */

typedef struct rows_job {
    const qn_rows_kernel *kernel;
    float *x, *y, *w;
    size_t n;
} rows_job;

static void rms_work(void *ctx)
{
    rows_job *job = ctx;
    job->kernel->rms_norm(job->y, job->x, job->n, 1e-5f, job->w);
}
static void layer_norm_work(void *ctx)
{
    rows_job *job = ctx;
    job->kernel->layer_norm(job->y, job->x, job->n, 1e-5f, job->w, job->w);
}
static void softmax_work(void *ctx)
{
    rows_job *job = ctx;
    job->kernel->softmax(job->y, job->x, job->n);
}
static void extreme_work(void *ctx)
{
    rows_job *job = ctx;
    job->y[0] = job->kernel->extreme(job->x, job->n, true);
}
static void exp_sum_work(void *ctx)
{
    rows_job *job = ctx;
    job->y[0] = job->kernel->exp_sum(job->x, job->n, 1);
}
static void angles_work(void *ctx)
{
    rows_job *job = ctx;
    job->kernel->angles(job->y, job->y + 32, 100, job->x, 32);
}
static void rotate_work(void *ctx)
{
    rows_job *job = ctx;
    job->kernel->rotate(job->y, job->x, job->w, job->w + 32, 32, false);
}

static void bench_rows(qn_isa isa)
{
    static const struct {
        const char *what;
        work_fn work;
        size_t n;
        double bytes;
    } cases[] = {{"rms_norm, 576", rms_work, 576, 8.0 * 576},
                 {"rms_norm, 4096", rms_work, 4096, 8.0 * 4096},
                 {"layer_norm, 768", layer_norm_work, 768, 8.0 * 768},
                 {"softmax, 4096", softmax_work, 4096, 8.0 * 4096},
                 {"largest, 4096", extreme_work, 4096, 4.0 * 4096},
                 {"sum of exp, 4096", exp_sum_work, 4096, 4.0 * 4096},
                 {"angles, 32", angles_work, 32, 12.0 * 32},
                 {"rotate, 64", rotate_work, 64, 8.0 * 64}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        rows_job job = {.kernel = qn_rows_at(isa),
                        .x = random_floats(4096),
                        .y = random_floats(4096),
                        .w = random_floats(4096),
                        .n = cases[c].n};
        report_kernel("rows", isa, cases[c].what,
                      best_time(cases[c].work, &job), 0, cases[c].bytes);
        free(job.x);
        free(job.y);
        free(job.w);
    }
}

/* ---- whole operations, all threads ---- */

typedef struct node_job {
    int op;
    const void *params;
    size_t params_size;
    int ninputs;
    qn_array *inputs[5];
    int shape[4], ndim;
} node_job;

static void node_work(void *ctx)
{
    node_job *job = ctx;
    qn_stream *stream;
    qn_array *out;
    qn_node_spec spec = {.op = job->op,
                         .inputs = job->inputs,
                         .ninputs = job->ninputs,
                         .params = job->params,
                         .params_size = job->params_size};
    qn_status status =
        qn_stream_default(&stream, (qn_device){QN_DEVICE_CPU, 0});
    spec.stream = stream;
    if (!status)
        status = qn_node_new(&out, &spec, QN_FLOAT32, job->shape, job->ndim);
    if (!status) {
        status = qn_eval(&out, 1);
        qn_array_unref(out);
    }
    if (status) {
        fprintf(stderr, "bench: %s\n", qn_error_text());
        exit(1);
    }
}

static qn_array *zeros(qn_dtype dtype, const int *shape, int ndim)
{
    size_t size = qn_dtype_size(dtype);
    for (int i = 0; i < ndim; i++)
        size *= (size_t)shape[i];
    void *data = room(size);
    qn_array *a;
    if (qn_array_from_data(&a, data, shape, ndim, dtype)) {
        fprintf(stderr, "bench: %s\n", qn_error_text());
        exit(1);
    }
    free(data);
    return a;
}

static void run_node_case(node_job *job, const char *what, double flops,
                          double bytes)
{
    report("nodes", "all", what, best_time(node_work, job), flops, bytes,
           limits.all_flops, limits.all_read);
    for (int i = 0; i < job->ninputs; i++)
        qn_array_unref(job->inputs[i]);
}

static void bench_quantized(int m, int n, int k)
{
    qn_quant_params p;
    memset(&p, 0, sizeof p);
    p.group_size = 32;
    p.bits = 4;
    p.transpose = true;
    node_job job = {.op = QN_OP_QUANTIZED_MATMUL,
                    .params = &p,
                    .params_size = sizeof p,
                    .ninputs = 4,
                    .shape = {m, n},
                    .ndim = 2};
    job.inputs[0] = zeros(QN_FLOAT32, (int[]){m, k}, 2);
    job.inputs[1] = zeros(QN_UINT32, (int[]){n, k / 8}, 2);
    job.inputs[2] = zeros(QN_FLOAT16, (int[]){n, k / 32}, 2);
    job.inputs[3] = zeros(QN_FLOAT16, (int[]){n, k / 32}, 2);
    char what[64];
    snprintf(what, sizeof what, "q4 matmul, M %d, N %d, K %d", m, n, k);
    run_node_case(&job, what, 2.0 * m * n * k,
                  m <= 8 ? (double)n * k * 0.625 : 0);
}

/* Modes without biases: 4 or 8 bits, scales of a byte. */
static void bench_mode(qn_quant_mode mode, const char *name, int m, int n,
                       int k)
{
    qn_quant_params p;
    memset(&p, 0, sizeof p);
    p.mode = mode;
    p.group_size = mode == QN_QUANT_NVFP4 ? 16 : 32;
    p.bits = mode == QN_QUANT_MXFP8 ? 8 : 4;
    p.transpose = true;
    node_job job = {.op = QN_OP_QUANTIZED_MATMUL,
                    .params = &p,
                    .params_size = sizeof p,
                    .ninputs = 3,
                    .shape = {m, n},
                    .ndim = 2};
    job.inputs[0] = zeros(QN_FLOAT32, (int[]){m, k}, 2);
    job.inputs[1] = zeros(QN_UINT32, (int[]){n, k * p.bits / 32}, 2);
    job.inputs[2] = zeros(QN_UINT8, (int[]){n, k / p.group_size}, 2);
    /* Numbers like those of a model: the byte 0 is a rare, slow scale. */
    memset(qn_array_data(job.inputs[1]), 0x35, job.inputs[1]->size * 4);
    memset(qn_array_data(job.inputs[2]), 120, job.inputs[2]->size);
    char what[64];
    snprintf(what, sizeof what, "%s matmul, M %d, N %d, K %d", name, m, n, k);
    run_node_case(&job, what, 2.0 * m * n * k,
                  m <= 8 ? (double)n * k * (p.bits + 8.0 / p.group_size) / 8
                         : 0);
}

static void bench_dense(int m, int n, int k, bool transposed)
{
    node_job job = {
        .op = QN_OP_MATMUL, .ninputs = 2, .shape = {m, n}, .ndim = 2};
    job.inputs[0] = zeros(QN_FLOAT32, (int[]){m, k}, 2);
    job.inputs[1] = zeros(QN_FLOAT32, (int[]){k, n}, 2);
    if (transposed) {
        qn_array *view, *w = zeros(QN_FLOAT32, (int[]){n, k}, 2);
        qn_array_unref(job.inputs[1]);
        if (qn_array_new(&view, QN_FLOAT32, (int[]){k, n}, 2))
            exit(1);
        qn_array_set_view(view, w, (const int64_t[]){1, k}, 0);
        qn_array_set_ready(view);
        qn_array_unref(w);
        job.inputs[1] = view;
    }
    char what[64];
    snprintf(what, sizeof what, "f32 %s, M %d, N %d, K %d",
             transposed ? "x w^T" : "x w", m, n, k);
    run_node_case(&job, what, 2.0 * m * n * k, m <= 8 ? 4.0 * n * k : 0);
}

static void bench_sdpa(int q, int keys, int heads, int kv_heads, int d)
{
    qn_sdpa_params p;
    memset(&p, 0, sizeof p);
    p.scale = 0.125f;
    p.causal = true;
    node_job job = {.op = QN_OP_SDPA,
                    .params = &p,
                    .params_size = sizeof p,
                    .ninputs = 3,
                    .shape = {1, heads, q, d},
                    .ndim = 4};
    job.inputs[0] = zeros(QN_FLOAT32, (int[]){1, heads, q, d}, 4);
    job.inputs[1] = zeros(QN_FLOAT16, (int[]){1, kv_heads, keys, d}, 4);
    job.inputs[2] = zeros(QN_FLOAT16, (int[]){1, kv_heads, keys, d}, 4);
    double pairs = (double)q * (keys - q) + (double)q * (q + 1) / 2;
    char what[64];
    snprintf(what, sizeof what, "sdpa, %d x %d, %d/%d heads of %d", q, keys,
             heads, kv_heads, d);
    run_node_case(&job, what, 4 * pairs * heads * d,
                  q == 1 ? 4.0 * keys * kv_heads * d : 0);
}

static void no_task(void *ctx, size_t index, int worker)
{
    (void)ctx;
    (void)index;
    (void)worker;
}

/* ---- panels ---- */

enum { PANEL_K = 2048, PANEL_MEMORY = 128 << 20 };

typedef struct panel_bench {
    const qn_panel_kernel *kernel;
    qn_panel_form form;
    const uint8_t *panels;
    size_t count; /* of panels */
    void *tile;
    size_t rows;
} panel_bench;

static void panel_work(void *ctx)
{
    const panel_bench *job = ctx;
    float out[QN_PANEL_FULL * QN_PANEL_ROWS];
    size_t bytes = qn_panel_bytes(&job->form, PANEL_K);
    qn_panel_x x = qn_panel_x_at(job->tile, PANEL_K, job->rows);
    for (size_t i = 0; i < job->count; i++)
        job->kernel->run(out, &job->form, job->panels + i * bytes, &x, PANEL_K);
}

/* `rows` rows with panels from memory, as in decoding, beside its rate, or with
 * one from the cache, as in a prompt, beside the rate of 8-bit multiply-adds,
 * of which each product takes two. */
static void bench_panel_rows(panel_bench *job, qn_isa isa, const char *form,
                             bool memory)
{
    size_t bytes = qn_panel_bytes(&job->form, PANEL_K);
    float *x = random_floats(PANEL_K);
    job->tile = room(qn_panel_x_bytes(&job->form, PANEL_K, job->rows));
    for (size_t r = 0; r < job->rows; r++)
        job->kernel->quantize(job->tile, &job->form, x, PANEL_K, 0, PANEL_K, r,
                              job->rows);
    job->count = memory ? PANEL_MEMORY / bytes : 1;
    double time = best_time(panel_work, job), n = (double)job->count;
    double macs = 16.0 * PANEL_K * n * (double)job->rows;
    double rate = (double)bytes * n / time;
    printf("panel     %-11s %-7s M %zu %-6s %9.2f us %7.1f GMAC/s",
           qn_isa_name(isa), form, job->rows, memory ? "memory" : "cache",
           time * 1e6, macs / time * 1e-9);
    if (limits.bytes[isa] > 0)
        printf(" %3.0f %%", 200 * macs / time / limits.bytes[isa]);
    if (job->rows == 1)
        printf(" %6.1f GB/s %3.0f %%", rate * 1e-9, 100 * rate / limits.read);
    printf("\n");
    free(x);
    free(job->tile);
}

static void bench_panel_form(panel_bench *job, qn_isa isa, const char *form)
{
    job->rows = 1;
    if (isa != QN_ISA_NONE) /* which is far from waiting for memory */
        bench_panel_rows(job, isa, form, true);
    for (; job->rows <= job->kernel->tile; job->rows *= 2)
        bench_panel_rows(job, isa, form, false);
}

static void bench_panels(qn_isa isa)
{
    static const int types[] = {
        QN_GGUF_Q4_0_T, QN_GGUF_Q4_1_T,   QN_GGUF_Q5_1_T,   QN_GGUF_Q8_0_T,
        QN_GGUF_Q2_K_T, QN_GGUF_Q3_K_T,   QN_GGUF_Q4_K_T,   QN_GGUF_Q5_K_T,
        QN_GGUF_Q6_K_T, QN_GGUF_IQ4_NL_T, QN_GGUF_IQ4_XS_T, QN_GGUF_MXFP4_T};
    panel_bench job = {.kernel = qn_panel_at(isa)};
    if (!job.kernel)
        return;
    /* Bytes that are scales of a sensible size in any form. */
    uint8_t *panels = room(PANEL_MEMORY);
    for (size_t i = 0; i < PANEL_MEMORY; i++)
        panels[i] = (uint8_t)(48 + i * 37 % 16);
    job.panels = panels;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        qn_panel_form_of(&job.form, types[i]);
        bench_panel_form(&job, isa, qn_gguf_type_name(types[i]));
    }
    qn_panel_form_of(&job.form, QN_GGUF_MXFP4_T);
    job.form.group = 16;
    job.form.scaling = QN_PANEL_E4M3;
    bench_panel_form(&job, isa, "nvfp4");
    job.form = (qn_panel_form){
        .bits = 4, .group = 64, .biased = true, .scale_type = QN_BFLOAT16};
    bench_panel_form(&job, isa, "mlx4g64");
    free(panels);
}

static void regions_work(void *ctx)
{
    for (int i = 0; i < 1000; i++)
        qn_pool_run(no_task, ctx, (size_t)qn_pool_threads() * 4);
}

static void bench_nodes(void)
{
    printf("%-9s %-7s %-34s %9.2f us\n", "pool", "all",
           "a parallel region without work",
           best_time(regions_work, NULL) * 1e3);
    qn_backend_register(QN_DEVICE_CPU, qn_backend_cpu());
    static const int sizes[][2] = {
        {576, 576}, {1536, 576}, {576, 1536}, {49152, 576}, {8192, 2048}};
    static const int ms[] = {1, 2, 4, 8, 512};
    for (int i = 0; i < 5; i++)
        for (int s = 0; s < 5; s++)
            bench_quantized(ms[i], sizes[s][0], sizes[s][1]);
    for (int i = 0; i < 5; i++) {
        bench_dense(ms[i], 2048, 2048, true);
        bench_dense(ms[i], 2048, 2048, false);
    }
    bench_sdpa(1, 100, 9, 3, 64);
    bench_sdpa(1, 500, 9, 3, 64);
    bench_sdpa(1, 8192, 9, 3, 64);
    bench_sdpa(1, 8192, 32, 8, 64);
    bench_sdpa(512, 512, 9, 3, 64);
    bench_sdpa(512, 8192, 32, 8, 64);
}

/* What has no panels, or has them and is computed with floats. */
static void bench_modes(void)
{
    qn_backend_register(QN_DEVICE_CPU, qn_backend_cpu());
    for (int m = 1; m <= 8; m *= 2) {
        bench_mode(QN_QUANT_MXFP8, "mxfp8", m, 32768, 2048);
        bench_mode(QN_QUANT_MXFP4, "mxfp4", m, 32768, 2048);
    }
    bench_mode(QN_QUANT_MXFP8, "mxfp8", 512, 2048, 2048);
    bench_mode(QN_QUANT_MXFP4, "mxfp4", 512, 2048, 2048);
}

static bool is_wanted(int argc, char **argv, const char *name)
{
    bool wanted = argc < 2;
    for (int i = 1; i < argc; i++)
        wanted |= !strcmp(argv[i], name);
    return wanted;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(qn_isa isa);
    } families[] = {{"rowdot", bench_rowdot},
                    {"attention", bench_attention},
                    {"map", bench_map},
                    {"rows", bench_rows}};
    measure_limits();
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        bool wanted = is_wanted(argc, argv, families[f].name);
        for (int isa = QN_ISA_COUNT - 1; wanted && isa >= 0; isa--)
            if (limits.flops[isa] > 0)
                families[f].run((qn_isa)isa);
    }
    bool panels = is_wanted(argc, argv, "panel");
    for (int isa = QN_ISA_COUNT - 1; panels && isa >= 0; isa--)
        bench_panels((qn_isa)isa);
    if (is_wanted(argc, argv, "modes"))
        bench_modes();
    if (is_wanted(argc, argv, "nodes"))
        bench_nodes();
    return 0;
}
