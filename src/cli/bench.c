/* bench.c: `quern bench`: tokens per second of prompts and of decoding.
 *
 * A prompt test (pp) computes p tokens that nothing is known of; a decode
 * test (tg) computes n tokens one at a time behind d tokens in the cache, of
 * each of b sequences side by side.
 * Token ids come from a fixed generator, end tokens are like any other, and
 * the logits of each step are read, as sampling would read them.  Where tokens
 * are guessed ahead there must be something to guess: a decode test then lets
 * the model go on by itself, always with the likeliest token.  Runs before
 * the counted ones warm the machine up; the median and the spread are shown. */
#include "cli.h"
#include "compare.h"
#include "load.h"
#include "runs.h"

#include "base/alloc.h"
#include "base/bandwidth.h"
#include "base/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SEQUENCES = 1024 };

typedef struct counts {
    int64_t *at;
    size_t size;
} counts;

/* What is measured of each model. */
typedef struct grid {
    counts prompts, decodes, depths, batches;
} grid;

typedef struct bench {
    const qn_cli *cli;
    grid grid;
    quern_model *model;
    quern_session **sessions; /* as many as the largest batch */
    quern_feed *feeds;
    quern_job **jobs;    /* with guesses */
    const char *guesses; /* "draft", "ngram", NULL: none */
    quern_info info;
    float *logits;
    int32_t *ids;    /* enough for the longest test */
    double *seconds; /* of the counted runs */
    int runs, warmup;
    double bandwidth; /* bytes/s, 0: not measured */
    qn_progress progress;
    int64_t done, total; /* runs, of one model */
    qn_earlier *earlier; /* results to compare with, or NULL */
    double limit;        /* how much slower, in per cent */
    bool slower;         /* some test is, by more than that */
    size_t compared;
} bench;

typedef struct cell {
    const char *kind; /* "pp", "tg" */
    int64_t tokens, depth, batch;
    double median, spread; /* seconds; half the range over the median */
    size_t peak;
    double earlier;            /* tokens/s to compare with, 0: none */
    bool throttled;            /* the clock fell while it ran */
    const char *guesses;       /* of a decode test; NULL: none */
    int64_t drafted, accepted; /* of the last run */
} cell;

/* ---- the machine ---- */

/* The clock of the fastest processor in MHz; 0 where the kernel does not say.
 * Virtual machines say what the processor is sold with, whatever it does. */
static double clock_now(void)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[1024];
    double most = 0, one;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "cpu MHz : %lf", &one) == 1 && one > most)
            most = one;
    if (file)
        fclose(file);
    if (most > 0)
        return most;
    file = fopen("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "r");
    if (file && fscanf(file, "%lf", &one) == 1)
        most = one / 1e3;
    if (file)
        fclose(file);
    return most;
}

/* ---- one run ---- */

/* The next `count` tokens of each sequence, from place `at` on. */
static quern_status step(bench *b, int64_t batch, int64_t at, int64_t count,
                         quern_error *error)
{
    for (int64_t i = 0; i < batch; i++)
        b->feeds[i] = (quern_feed){.session = b->sessions[i],
                                   .ids = b->ids + i + at,
                                   .count = (size_t)count};
    quern_status status = quern_sessions_feed(b->feeds, (size_t)batch, error);
    for (int64_t i = 0; !status && i < batch; i++) {
        status = b->feeds[i].status;
        if (!status)
            status = quern_session_logits(b->sessions[i], b->logits, error);
        else if (error)
            *error = (quern_error){.status = status, .message = "cancelled"};
    }
    return status;
}

/* The likeliest tokens behind `depth` tokens and one more. */
static quern_status begin_job(bench *b, const cell *c, int64_t i,
                              quern_error *error)
{
    quern_request request;
    quern_request_init(&request, b->model);
    request.ids = b->ids + i;
    request.id_count = (size_t)c->depth + 1;
    request.sampling = (quern_sampling){.top_p = 1, .typical_p = 1};
    request.max_tokens = c->tokens;
    request.ignore_eos = true;
    return quern_submit(&b->jobs[i], b->model, b->sessions[i], &request, error);
}

/* Waits for the end of a job; a signal stops it, and then those that follow. */
static quern_status end_job(cell *c, quern_job *job, quern_error *error)
{
    enum { WAIT_MS = 100 };
    quern_event event = {.type = QUERN_EVENT_START};
    quern_result result = {0};
    while (event.type != QUERN_EVENT_DONE) {
        quern_job_next(job, WAIT_MS, &event);
        if (qn_cli_signalled())
            quern_job_cancel(job);
    }
    quern_status status = quern_job_result(job, &result, error);
    c->drafted += result.drafted;
    c->accepted += result.accepted;
    quern_result_free(&result);
    return status;
}

static quern_status guess(bench *b, cell *c, quern_error *error)
{
    quern_status status = QUERN_OK;
    c->drafted = c->accepted = 0;
    for (int64_t i = 0; i < c->batch && !status; i++)
        status = begin_job(b, c, i, error);
    for (int64_t i = 0; i < c->batch && !status; i++)
        status = end_job(c, b->jobs[i], error);
    for (int64_t i = 0; i < c->batch; i++) {
        quern_job_free(b->jobs[i]);
        b->jobs[i] = NULL;
    }
    return status;
}

static quern_status run_once(bench *b, cell *c, double *seconds,
                             quern_error *error)
{
    quern_status status = QUERN_OK;
    for (int64_t i = 0; i < c->batch; i++)
        quern_session_reset(b->sessions[i]);
    if (c->depth)
        status = step(b, c->batch, 0, c->depth, error);
    double began = qn_cli_now();
    if (!status && c->kind[0] == 'p')
        status = step(b, c->batch, c->depth, c->tokens, error);
    if (!status && c->guesses)
        status = guess(b, c, error);
    bool steps = c->kind[0] == 't' && !c->guesses;
    for (int64_t i = 0; !status && steps && i < c->tokens; i++)
        status = step(b, c->batch, c->depth + i, 1, error);
    *seconds = qn_cli_now() - began;
    if (!status)
        qn_progress_set(&b->progress, ++b->done, b->total);
    return status;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void warn_throttled(const bench *b, const cell *c, double before,
                           double after)
{
    char text[128];
    snprintf(text, sizeof text,
             "%s%lld: the clock fell from %.0f to %.0f MHz; the results are of "
             "a slower machine",
             c->kind, (long long)c->tokens, before, after);
    qn_cli_log(b->cli, QUERN_LOG_WARN, text);
}

static quern_status run_cell(bench *b, cell *c, quern_error *error)
{
    double ignored, before = 0;
    quern_status status = QUERN_OK;
    for (int i = 0; !status && i < b->warmup; i++)
        status = run_once(b, c, &ignored, error);
    qn_peak_reset();
    for (int i = 0; !status && i < b->runs; i++) {
        status = run_once(b, c, &b->seconds[i], error);
        if (!i)
            before = clock_now();
    }
    qn_progress_end(&b->progress);
    if (status)
        return status;
    double after = clock_now();
    c->throttled = after < 0.9 * before;
    if (c->throttled)
        warn_throttled(b, c, before, after);
    c->peak = qn_peak_resident();
    qsort(b->seconds, (size_t)b->runs, sizeof *b->seconds, by_size);
    int half = b->runs / 2;
    c->median = b->runs % 2 ? b->seconds[half]
                            : (b->seconds[half - 1] + b->seconds[half]) / 2;
    c->spread = (b->seconds[b->runs - 1] - b->seconds[0]) / 2 / c->median;
    return QUERN_OK;
}

/* ---- comparing ---- */

static void test_name(const cell *c, char out[32])
{
    snprintf(out, 32, "%s%lld%s%s", c->kind, (long long)c->tokens,
             c->guesses ? "+" : "", c->guesses ? c->guesses : "");
}

static double rate_of(const cell *c)
{
    return (double)(c->tokens * c->batch) / c->median;
}

static double change_of(const cell *c)
{
    return (rate_of(c) / c->earlier - 1) * 100;
}

static void compare(bench *b, cell *c)
{
    char name[32], text[256];
    if (!b->earlier)
        return;
    test_name(c, name);
    c->earlier =
        qn_earlier_rate(b->earlier, &(qn_bench_key){.model = b->info.path,
                                                    .test = name,
                                                    .depth = c->depth,
                                                    .batch = c->batch});
    if (!(c->earlier > 0)) {
        snprintf(text, sizeof text, "%s: nothing to compare with", name);
        qn_cli_log(b->cli, QUERN_LOG_WARN, text);
        return;
    }
    b->compared++;
    if (change_of(c) >= -b->limit)
        return;
    b->slower = true;
    snprintf(text, sizeof text,
             "%s at depth %lld: %.1f tokens/s, %.1f%% slower than %.1f; at "
             "most %.4g%% is allowed",
             name, (long long)c->depth, rate_of(c), -change_of(c), c->earlier,
             b->limit);
    qn_cli_log(b->cli, QUERN_LOG_ERROR, text);
}

/* ---- results ---- */

/* Bytes of weights per second that decoding reads. */
static double weight_rate(const bench *b, const cell *c)
{
    return (double)b->info.weight_bytes * (double)c->tokens / c->median;
}

static void write_machine(qn_json_writer *w, const bench *b)
{
    qn_json_pair_text(w, "model", b->info.path);
    qn_json_pair_text(w, "backend", "cpu");
    qn_json_pair_text(w, "isa", qn_isa_name(qn_cpu_isa()));
    qn_json_pair_int(w, "threads", b->cli->threads);
    qn_json_pair_text(w, "dtype", b->info.dtype);
    qn_json_pair_text(w, "kv", b->info.kv);
    qn_json_pair_text(w, "cpu", qn_cpu_name());
    qn_json_pair_text(w, "machine", qn_cpu_machine());
    qn_json_pair_int(w, "processors", qn_cpu_allowed());
    qn_json_pair_int(w, "memory_bytes", (int64_t)qn_memory_limit());
    qn_json_pair_text(w, "version", quern_release());
    qn_json_pair_text(w, "commit", qn_cli_commit());
}

static void add_cell(qn_buf *line, const bench *b, const cell *c)
{
    char name[32];
    qn_json_writer w;
    test_name(c, name);
    qn_json_write_begin(&w, line);
    qn_json_write_object(&w);
    qn_json_pair_text(&w, "schema", "quern.bench/1");
    qn_json_pair_text(&w, "test", name);
    qn_json_pair_int(&w, "depth", c->depth);
    qn_json_pair_int(&w, "batch", c->batch);
    qn_json_pair_double(&w, "tokens_per_s", rate_of(c));
    qn_json_pair_double(&w, "ms_per_token", 1e3 / rate_of(c));
    qn_json_pair_double(&w, "spread_percent", c->spread * 100);
    if (c->kind[0] == 'p') {
        qn_json_pair_double(&w, "ttft_s", c->median);
    } else if (c->guesses) {
        qn_json_pair_int(&w, "drafted", c->drafted);
        qn_json_pair_int(&w, "accepted", c->accepted);
    } else {
        qn_json_pair_double(&w, "weight_gb_per_s", weight_rate(b, c) * 1e-9);
        qn_json_pair_double(&w, "bandwidth_gb_per_s", b->bandwidth * 1e-9);
        if (b->bandwidth > 0)
            qn_json_pair_double(&w, "bandwidth_percent",
                                weight_rate(b, c) / b->bandwidth * 100);
    }
    qn_json_pair_int(&w, "peak_bytes", (int64_t)c->peak);
    qn_json_pair_int(&w, "runs", b->runs);
    qn_json_write_key(&w, "throttled");
    qn_json_write_bool(&w, c->throttled);
    if (c->earlier > 0) {
        qn_json_pair_double(&w, "earlier_tokens_per_s", c->earlier);
        qn_json_pair_double(&w, "change_percent", change_of(c));
    }
    write_machine(&w, b);
    qn_json_write_object_end(&w);
}

static int print_json(const bench *b, const cell *c)
{
    qn_buf line = QN_BUF_INIT;
    add_cell(&line, b, c);
    return qn_out_json(b->cli, &line);
}

static void record(const bench *b, const cell *c)
{
    qn_buf line = QN_BUF_INIT;
    add_cell(&line, b, c);
    if (!qn_buf_status(&line))
        qn_runs_add(b->cli, qn_buf_str(&line));
    qn_buf_free(&line);
}

static int print_row(const bench *b, const cell *c)
{
    char name[32], title[64];
    qn_buf line = QN_BUF_INIT;
    test_name(c, name);
    if (c->kind[0] == 't' || c->depth)
        snprintf(title, sizeof title, "%s @ d%lld", name, (long long)c->depth);
    else
        snprintf(title, sizeof title, "%s", name);
    qn_buf_printf(&line, "%-16s %5lld %10.1f +- %4.1f%% %10.3f %8.0f MiB",
                  title, (long long)c->batch, rate_of(c), c->spread * 100,
                  1e3 / rate_of(c), (double)c->peak / (1 << 20));
    if (c->kind[0] == 'p')
        qn_buf_printf(&line, "   ttft %.3f s", c->median);
    else if (c->guesses)
        qn_buf_printf(&line, "   %lld of %lld guesses right",
                      (long long)c->accepted, (long long)c->drafted);
    else
        qn_buf_printf(&line, "   %.1f GB/s", weight_rate(b, c) * 1e-9);
    if (c->kind[0] == 't' && !c->guesses && b->bandwidth > 0)
        qn_buf_printf(&line, ", %.0f%% of bandwidth",
                      weight_rate(b, c) / b->bandwidth * 100);
    if (c->earlier > 0)
        qn_buf_printf(&line, "   %+.1f%%", change_of(c));
    qn_buf_add_char(&line, '\n');
    return qn_out_buffer(b->cli, &line);
}

static int print_head(const bench *b)
{
    qn_buf text = QN_BUF_INIT;
    if (b->cli->args.word_count > 1)
        qn_buf_printf(&text, "%s\n", b->info.path);
    qn_buf_printf(&text, "backend cpu (%s, %d thread%s)",
                  qn_isa_name(qn_cpu_isa()), b->cli->threads,
                  b->cli->threads == 1 ? "" : "s");
    if (b->bandwidth > 0)
        qn_buf_printf(&text, "   memory bandwidth %.1f GB/s",
                      b->bandwidth * 1e-9);
    qn_buf_printf(&text, "\n%-16s %5s %19s %10s %12s\n", "test", "batch",
                  "tokens/s", "ms/token", "peak");
    return qn_out_buffer(b->cli, &text);
}

/* ---- the grid ---- */

static qn_status read_counts(const qn_args *args, qn_flag flag,
                             const char *name, const char *fallback,
                             int64_t least, counts *out)
{
    const qn_arg *arg = &args->flag[flag];
    return qn_args_counts(name, arg->given ? arg->text : fallback, least,
                          1 << 30, &out->at, &out->size);
}

static int64_t largest(const counts *c)
{
    int64_t most = 0;
    for (size_t i = 0; i < c->size; i++)
        if (c->at[i] > most)
            most = c->at[i];
    return most;
}

static int64_t count_tests(const counts *sizes)
{
    int64_t tests = 0;
    for (size_t i = 0; i < sizes->size; i++)
        tests += sizes->at[i] > 0;
    return tests;
}

static qn_status read_grid(const qn_args *args, grid *g)
{
    qn_status status = read_counts(args, QN_FLAG_PROMPT_SIZES, "prompt", "512",
                                   0, &g->prompts);
    if (!status)
        status = read_counts(args, QN_FLAG_DECODE_SIZES, "decode", "128", 0,
                             &g->decodes);
    if (!status)
        status = read_counts(args, QN_FLAG_DEPTHS, "depth", "0", 0, &g->depths);
    if (!status)
        status =
            read_counts(args, QN_FLAG_BATCHES, "batch", "1", 1, &g->batches);
    if (!status && largest(&g->batches) > MOST_SEQUENCES)
        status = qn_fail(QN_E_ARG, "--batch: expected at most %d, found %lld",
                         MOST_SEQUENCES, (long long)largest(&g->batches));
    if (!status && !largest(&g->prompts) && !largest(&g->decodes))
        status = qn_fail(QN_E_ARG, "--prompt 0 --decode 0: nothing to measure");
    return status;
}

static int run_tests(bench *b, const char *kind, const counts *sizes,
                     int64_t depth, int64_t batch)
{
    for (size_t i = 0; i < sizes->size; i++) {
        quern_error error;
        cell c = {.kind = kind,
                  .tokens = sizes->at[i],
                  .depth = depth,
                  .batch = batch,
                  .guesses = kind[0] == 't' ? b->guesses : NULL};
        if (!c.tokens)
            continue;
        if (run_cell(b, &c, &error))
            return qn_cli_fail_error(b->cli, &error);
        compare(b, &c);
        record(b, &c);
        int code = b->cli->json ? print_json(b, &c) : print_row(b, &c);
        if (code)
            return code;
    }
    return QN_EXIT_OK;
}

static int run_grid(bench *b)
{
    const grid *g = &b->grid;
    int code = QN_EXIT_OK;
    b->done = 0;
    b->total = (count_tests(&g->prompts) + count_tests(&g->decodes)) *
               (int64_t)(g->depths.size * g->batches.size) *
               (b->runs + b->warmup);
    qn_progress_begin(&b->progress, b->cli, "bench", "runs");
    for (size_t k = 0; !code && k < g->batches.size; k++)
        for (size_t d = 0; !code && d < g->depths.size; d++)
            code = run_tests(b, "pp", &g->prompts, g->depths.at[d],
                             g->batches.at[k]);
    for (size_t k = 0; !code && k < g->batches.size; k++)
        for (size_t d = 0; !code && d < g->depths.size; d++)
            code = run_tests(b, "tg", &g->decodes, g->depths.at[d],
                             g->batches.at[k]);
    qn_progress_end(&b->progress);
    return code;
}

/* ---- one model ---- */

static qn_status prepare(bench *b)
{
    const grid *g = &b->grid;
    int64_t most = largest(&g->prompts);
    if (largest(&g->decodes) > most)
        most = largest(&g->decodes);
    /* Where the model goes on by itself, it goes on from a token. */
    int64_t need = most + largest(&g->depths) + (b->guesses != NULL);
    if (need > b->info.ctx)
        return qn_fail(QN_E_ARG,
                       "depth and tokens together are %lld, the context is "
                       "%lld",
                       (long long)need, (long long)b->info.ctx);
    /* Sequence i begins at token i. */
    int64_t batch = largest(&g->batches);
    need += batch;
    b->ids = qn_calloc((size_t)need + 1, sizeof *b->ids);
    b->logits = qn_calloc((size_t)b->info.vocab_size, sizeof *b->logits);
    b->sessions = qn_calloc((size_t)batch, sizeof(quern_session *));
    b->feeds = qn_calloc((size_t)batch, sizeof *b->feeds);
    b->jobs = qn_calloc((size_t)batch, sizeof(quern_job *));
    if (!b->ids || !b->logits || !b->sessions || !b->feeds || !b->jobs)
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

static void close_model(bench *b)
{
    for (int64_t i = 0; b->sessions && i < largest(&b->grid.batches); i++)
        quern_session_free(b->sessions[i]);
    quern_model_free(b->model);
    qn_free(b->sessions);
    qn_free(b->feeds);
    qn_free(b->jobs);
    qn_free(b->ids);
    qn_free(b->logits);
    b->sessions = NULL;
    b->feeds = NULL;
    b->jobs = NULL;
    b->model = NULL;
    b->ids = NULL;
    b->logits = NULL;
}

static int measure(bench *b, qn_cli *cli, const char *ref)
{
    const qn_arg *flag = cli->args.flag;
    quern_error error;
    int code = qn_cli_load(cli, ref, &b->model);
    if (code)
        return code;
    b->guesses =
        flag[QN_FLAG_NGRAM].on ? "ngram"
        : flag[QN_FLAG_DRAFT].given || qn_config_find_model(cli, ref).draft
            ? "draft"
            : NULL;
    quern_model_info(b->model, &b->info);
    qn_status status = prepare(b);
    if (status)
        return qn_cli_fail_status(cli, status, NULL);
    for (int64_t i = 0; i < largest(&b->grid.batches); i++)
        if (quern_session_new(&b->sessions[i], b->model, &error))
            return qn_cli_fail_error(cli, &error);
    if (!(b->bandwidth > 0) && largest(&b->grid.decodes))
        b->bandwidth = qn_memory_bandwidth(cli->threads, 0.3);
    qn_cli_watch(b->sessions[0]);
    if (!cli->json)
        code = print_head(b);
    if (!code)
        code = run_grid(b);
    qn_cli_watch(NULL);
    return code;
}

/* ---- the command ---- */

static qn_status read_limits(bench *b)
{
    const qn_arg *flag = b->cli->args.flag;
    if (flag[QN_FLAG_REPEAT].given)
        b->runs = (int)flag[QN_FLAG_REPEAT].whole;
    if (flag[QN_FLAG_WARMUP].given)
        b->warmup = (int)flag[QN_FLAG_WARMUP].whole;
    if (flag[QN_FLAG_REGRESSION].given &&
        !qn_args_percent(flag[QN_FLAG_REGRESSION].text, &b->limit))
        return qn_fail(QN_E_ARG,
                       "--max-regression %s: expected a percentage from 0 to "
                       "100",
                       flag[QN_FLAG_REGRESSION].text);
    qn_status status = read_grid(&b->cli->args, &b->grid);
    if (!status && flag[QN_FLAG_COMPARE].given)
        status = qn_earlier_read(&b->earlier, flag[QN_FLAG_COMPARE].text);
    if (status)
        return status;
    b->seconds = qn_calloc((size_t)b->runs, sizeof *b->seconds);
    return b->seconds ? QN_OK : QN_E_NOMEM;
}

static int conclude(const bench *b)
{
    if (b->earlier && !b->compared) {
        qn_status status =
            qn_fail(QN_E_ARG, "--compare %s: it has none of these tests",
                    b->cli->args.flag[QN_FLAG_COMPARE].text);
        return qn_cli_fail_status(b->cli, status, NULL);
    }
    return b->slower ? QN_EXIT_THRESHOLD : QN_EXIT_OK;
}

int qn_cli_bench(qn_cli *cli)
{
    if (cli->args.flag[QN_FLAG_RUNS_HISTORY].on)
        return qn_runs_show(cli);
    if (cli->args.flag[QN_FLAG_SERVER].given)
        return qn_load_run(cli);
    bench b = {.cli = cli, .runs = 5, .warmup = 1, .limit = 5};
    qn_status status = read_limits(&b);
    int code = status ? qn_cli_fail_status(cli, status, NULL) : QN_EXIT_OK;
    for (size_t i = 0; !code && i < cli->args.word_count; i++) {
        code = measure(&b, cli, cli->args.words[i]);
        close_model(&b);
    }
    if (!code)
        code = conclude(&b);
    qn_earlier_free(b.earlier);
    qn_free(b.seconds);
    qn_free(b.grid.prompts.at);
    qn_free(b.grid.decodes.at);
    qn_free(b.grid.depths.at);
    qn_free(b.grid.batches.at);
    return code;
}
