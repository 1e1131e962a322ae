/* bench.c: `quern bench`: tokens per second of prompts and of decoding.
 *
 * A prompt test (pp) computes p tokens that nothing is known of; a decode
 * test (tg) computes n tokens one at a time behind d tokens in the cache.
 * Token ids come from a fixed generator, end tokens are like any other, and
 * the logits of each step are read, as sampling would read them.  Runs before
 * the counted ones warm the machine up; the median and the spread are shown. */
#include "cli.h"

#include "base/alloc.h"
#include "base/bandwidth.h"
#include "base/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

typedef struct bench {
    const qn_cli *cli;
    quern_model *model;
    quern_session *session;
    quern_info info;
    float *logits;
    int32_t *ids;    /* enough for the longest test */
    double *seconds; /* of the counted runs */
    int runs, warmup;
    double bandwidth; /* bytes/s, 0: not measured */
} bench;

typedef struct cell {
    const char *kind; /* "pp", "tg" */
    int64_t tokens, depth;
    double median, spread; /* seconds; half the range over the median */
    size_t peak;
} cell;

/* ---- the machine ---- */

/* Resets the high-water mark of resident memory, where the kernel can. */
static void reset_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (!file)
        return;
    fputs("5", file);
    fclose(file);
}

static size_t resident_peak(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    size_t kib = 0;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %zu", &kib) == 1)
            break;
    if (file)
        fclose(file);
    if (!kib) {
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        kib = (size_t)usage.ru_maxrss;
    }
    return kib * 1024;
}

/* ---- one run ---- */

static quern_status step(bench *b, const int32_t *ids, size_t count,
                         quern_error *error)
{
    quern_status status = quern_session_feed(b->session, ids, count, error);
    return status ? status : quern_session_logits(b->session, b->logits, error);
}

static quern_status run_once(bench *b, const cell *c, double *seconds,
                             quern_error *error)
{
    quern_status status = QUERN_OK;
    quern_session_reset(b->session);
    if (c->depth)
        status = step(b, b->ids, (size_t)c->depth, error);
    double began = qn_cli_now();
    if (!status && c->kind[0] == 'p')
        status = step(b, b->ids + c->depth, (size_t)c->tokens, error);
    for (int64_t i = 0; !status && c->kind[0] == 't' && i < c->tokens; i++)
        status = step(b, b->ids + c->depth + i, 1, error);
    *seconds = qn_cli_now() - began;
    return status;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static quern_status run_cell(bench *b, cell *c, quern_error *error)
{
    double ignored;
    quern_status status = QUERN_OK;
    for (int i = 0; !status && i < b->warmup; i++)
        status = run_once(b, c, &ignored, error);
    reset_peak();
    for (int i = 0; !status && i < b->runs; i++)
        status = run_once(b, c, &b->seconds[i], error);
    if (status)
        return status;
    c->peak = resident_peak();
    qsort(b->seconds, (size_t)b->runs, sizeof *b->seconds, by_size);
    int half = b->runs / 2;
    c->median = b->runs % 2 ? b->seconds[half]
                            : (b->seconds[half - 1] + b->seconds[half]) / 2;
    c->spread = (b->seconds[b->runs - 1] - b->seconds[0]) / 2 / c->median;
    return QUERN_OK;
}

/* ---- results ---- */

static void name_of(char *out, size_t size, const cell *c)
{
    int n = snprintf(out, size, "%s%lld", c->kind, (long long)c->tokens);
    if (c->depth)
        snprintf(out + n, size - (size_t)n, " @ d%lld", (long long)c->depth);
}

/* Bytes of weights per second that decoding reads. */
static double weight_rate(const bench *b, const cell *c)
{
    return (double)b->info.weight_bytes * (double)c->tokens / c->median;
}

static int print_json(const bench *b, const cell *c)
{
    char name[64];
    double rate = (double)c->tokens / c->median;
    qn_buf line = QN_BUF_INIT;
    qn_json_writer w;
    name_of(name, sizeof name, &(cell){.kind = c->kind, .tokens = c->tokens});
    qn_json_write_begin(&w, &line);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "schema");
    qn_json_write_text(&w, "quern.bench/1");
    qn_json_write_key(&w, "test");
    qn_json_write_text(&w, name);
    qn_json_write_key(&w, "depth");
    qn_json_write_int(&w, c->depth);
    qn_json_write_key(&w, "batch");
    qn_json_write_int(&w, 1);
    qn_json_write_key(&w, "tokens_per_s");
    qn_json_write_double(&w, rate);
    qn_json_write_key(&w, "ms_per_token");
    qn_json_write_double(&w, 1e3 / rate);
    qn_json_write_key(&w, "spread_percent");
    qn_json_write_double(&w, c->spread * 100);
    if (c->kind[0] == 'p') {
        qn_json_write_key(&w, "ttft_s");
        qn_json_write_double(&w, c->median);
    } else {
        qn_json_write_key(&w, "weight_gb_per_s");
        qn_json_write_double(&w, weight_rate(b, c) * 1e-9);
        qn_json_write_key(&w, "bandwidth_gb_per_s");
        qn_json_write_double(&w, b->bandwidth * 1e-9);
    }
    qn_json_write_key(&w, "peak_bytes");
    qn_json_write_uint(&w, c->peak);
    qn_json_write_key(&w, "runs");
    qn_json_write_int(&w, b->runs);
    qn_json_write_key(&w, "model");
    qn_json_write_text(&w, b->info.path);
    qn_json_write_key(&w, "backend");
    qn_json_write_text(&w, "cpu");
    qn_json_write_key(&w, "isa");
    qn_json_write_text(&w, qn_isa_name(qn_cpu_isa()));
    qn_json_write_key(&w, "threads");
    qn_json_write_int(&w, b->cli->threads);
    qn_json_write_key(&w, "dtype");
    qn_json_write_text(&w, b->info.dtype);
    qn_json_write_key(&w, "kv");
    qn_json_write_text(&w, b->info.kv);
    qn_json_write_key(&w, "cpu");
    qn_json_write_text(&w, qn_cpu_name());
    qn_json_write_object_end(&w);
    return qn_out_line(b->cli, &line);
}

static int print_row(const bench *b, const cell *c)
{
    char name[64];
    double rate = (double)c->tokens / c->median;
    qn_buf line = QN_BUF_INIT;
    name_of(name, sizeof name, c);
    qn_buf_printf(&line, "%-14s %10.1f +- %4.1f%% %10.3f %8.0f MiB", name, rate,
                  c->spread * 100, 1e3 / rate, (double)c->peak / (1 << 20));
    if (c->kind[0] == 't' && b->bandwidth > 0)
        qn_buf_printf(&line, "   %.0f%% of bandwidth",
                      weight_rate(b, c) / b->bandwidth * 100);
    return qn_out_line(b->cli, &line);
}

static int print_head(const bench *b)
{
    qn_buf line = QN_BUF_INIT;
    qn_buf_printf(&line,
                  "backend cpu (%s, %d thread%s)   memory bandwidth %.1f "
                  "GB/s\n%-14s %19s %10s %12s",
                  qn_isa_name(qn_cpu_isa()), b->cli->threads,
                  b->cli->threads == 1 ? "" : "s", b->bandwidth * 1e-9, "test",
                  "tokens/s", "ms/token", "peak");
    return qn_out_line(b->cli, &line);
}

/* ---- the grid ---- */

typedef struct counts {
    int64_t *at;
    size_t size;
} counts;

typedef struct grid {
    counts prompts, decodes, depths;
} grid;

static qn_status read_counts(const qn_args *args, qn_flag flag,
                             const char *name, const char *fallback,
                             counts *out)
{
    const qn_arg *arg = &args->flag[flag];
    return qn_args_counts(name, arg->given ? arg->text : fallback, 0, 1 << 30,
                          &out->at, &out->size);
}

static qn_status read_grid(const qn_args *args, grid *g)
{
    qn_status status =
        read_counts(args, QN_FLAG_PROMPT_SIZES, "prompt", "512", &g->prompts);
    if (!status)
        status = read_counts(args, QN_FLAG_DECODE_SIZES, "decode", "128",
                             &g->decodes);
    if (!status)
        status = read_counts(args, QN_FLAG_DEPTHS, "depth", "0", &g->depths);
    return status;
}

static int64_t largest(const counts *c)
{
    int64_t most = 0;
    for (size_t i = 0; i < c->size; i++)
        if (c->at[i] > most)
            most = c->at[i];
    return most;
}

static int run_tests(bench *b, const char *kind, const counts *sizes,
                     const counts *depths)
{
    for (size_t d = 0; d < depths->size; d++)
        for (size_t i = 0; i < sizes->size; i++) {
            quern_error error;
            cell c = {
                .kind = kind, .tokens = sizes->at[i], .depth = depths->at[d]};
            if (!c.tokens)
                continue;
            if (run_cell(b, &c, &error))
                return qn_cli_fail_error(b->cli, &error);
            int code = b->cli->json ? print_json(b, &c) : print_row(b, &c);
            if (code)
                return code;
        }
    return QN_EXIT_OK;
}

static qn_status prepare(bench *b, const grid *g)
{
    int64_t most = largest(&g->prompts);
    if (largest(&g->decodes) > most)
        most = largest(&g->decodes);
    int64_t need = most + largest(&g->depths);
    if (need > b->info.ctx)
        return qn_fail(QN_E_ARG,
                       "depth and tokens together are %lld, the context is "
                       "%lld",
                       (long long)need, (long long)b->info.ctx);
    b->ids = qn_calloc((size_t)need + 1, sizeof *b->ids);
    b->logits = qn_calloc((size_t)b->info.vocab_size, sizeof *b->logits);
    b->seconds = qn_calloc((size_t)b->runs, sizeof *b->seconds);
    if (!b->ids || !b->logits || !b->seconds)
        return QN_E_NOMEM;
    /* A linear congruential generator; its high bits are good enough to make
     * token ids that no cache of repeated rows can favour. */
    uint64_t state = 42;
    for (int64_t i = 0; i <= need; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        b->ids[i] = (int32_t)((state >> 33) % (uint64_t)b->info.vocab_size);
    }
    return QN_OK;
}

int qn_cli_bench(qn_cli *cli)
{
    const qn_arg *flag = cli->args.flag;
    bench b = {
        .cli = cli,
        .runs =
            flag[QN_FLAG_REPEAT].given ? (int)flag[QN_FLAG_REPEAT].whole : 5,
        .warmup =
            flag[QN_FLAG_WARMUP].given ? (int)flag[QN_FLAG_WARMUP].whole : 1};
    grid g = {{0}, {0}, {0}};
    quern_error error;
    int code;
    qn_status status = read_grid(&cli->args, &g);
    if (status) {
        code = qn_cli_fail_status(cli, status, NULL);
        goto done;
    }
    code = qn_cli_load(cli, &b.model);
    if (code)
        goto done;
    quern_model_info(b.model, &b.info);
    status = prepare(&b, &g);
    if (status) {
        code = qn_cli_fail_status(cli, status, NULL);
        goto done;
    }
    if (quern_session_new(&b.session, b.model, &error)) {
        code = qn_cli_fail_error(cli, &error);
        goto done;
    }
    qn_cli_watch(b.session);
    b.bandwidth = qn_memory_bandwidth(cli->threads, 0.3);
    if (!cli->json)
        code = print_head(&b);
    if (!code)
        code = run_tests(&b, "pp", &g.prompts, &g.depths);
    if (!code)
        code = run_tests(&b, "tg", &g.decodes, &g.depths);
    qn_cli_watch(NULL);
done:
    quern_session_free(b.session);
    quern_model_free(b.model);
    qn_free(b.ids);
    qn_free(b.logits);
    qn_free(b.seconds);
    qn_free(g.prompts.at);
    qn_free(g.decodes.at);
    qn_free(g.depths.at);
    return code;
}
