/* metrics.c: see metrics.h. */
#include "metrics.h"

#include "base/alloc.h"

#include <stdio.h>

static const double bounds[QN_BUCKETS] = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60};

qn_status qn_metrics_init(qn_metrics *m)
{
    *m = (qn_metrics){0};
    m->requests = qn_map_new(0);
    m->rejected = qn_map_new(0);
    if (m->requests && m->rejected)
        return QN_OK;
    qn_metrics_clear(m);
    return QN_E_NOMEM;
}

void qn_metrics_clear(qn_metrics *m)
{
    if (m->requests)
        qn_map_free(m->requests, NULL);
    if (m->rejected)
        qn_map_free(m->rejected, NULL);
    m->requests = m->rejected = NULL;
}

/* A number that can't be kept for want of memory is lost. */
static void count(qn_map *map, const qn_buf *labels)
{
    qn_map_value *value =
        labels->failed ? NULL : qn_map_put(map, qn_buf_str(labels), NULL);
    if (value)
        value->u64++;
}

/* Names of models may hold what ends a label. */
static void add_model(qn_buf *out, const char *model)
{
    qn_buf_add_text(out, "model=\"");
    for (const char *c = model; *c; c++) {
        if (*c == '"' || *c == '\\')
            qn_buf_add_char(out, '\\');
        qn_buf_add_char(out, *c);
    }
    qn_buf_add_char(out, '"');
}

void qn_metrics_request(qn_metrics *m, const char *route, int status,
                        const char *outcome, const char *model)
{
    qn_buf labels = QN_BUF_INIT;
    qn_buf_printf(&labels, "route=\"%s\",status=\"%d\",outcome=\"%s\"", route,
                  status, outcome);
    if (model) {
        qn_buf_add_char(&labels, ',');
        add_model(&labels, model);
    }
    count(m->requests, &labels);
    qn_buf_free(&labels);
}

void qn_metrics_rejected(qn_metrics *m, const char *reason)
{
    qn_buf labels = QN_BUF_INIT;
    qn_buf_printf(&labels, "reason=\"%s\"", reason);
    count(m->rejected, &labels);
    qn_buf_free(&labels);
}

void qn_histogram_add(qn_histogram *h, double seconds)
{
    int i = 0;
    while (i < QN_BUCKETS && seconds > bounds[i])
        i++;
    h->buckets[i]++;
    h->count++;
    h->sum += seconds;
}

void qn_metrics_time(qn_model_metrics *m, qn_timing timing, double seconds)
{
    qn_histogram_add(&m->timings[timing], seconds);
}

static void add_kept(quern_prefix_stats *sum, const quern_prefix_stats *more)
{
    sum->hits += more->hits;
    sum->misses += more->misses;
    sum->evictions += more->evictions;
    sum->disk_evictions += more->disk_evictions;
    sum->disk_refused += more->disk_refused;
}

static void add_steps(quern_steps *sum, const quern_steps *more)
{
    for (int p = 0; p < 2; p++) {
        sum->count[p] += more->count[p];
        sum->seconds[p] += more->seconds[p];
        for (int i = 0; i < QUERN_STEP_BUCKETS; i++)
            sum->buckets[p][i] += more->buckets[p][i];
    }
    sum->rows += more->rows;
    for (int i = 0; i < QUERN_ROW_BUCKETS; i++)
        sum->row_buckets[i] += more->row_buckets[i];
}

void qn_model_metrics_keep(qn_model_metrics *m, const quern_prefix_stats *kept,
                           const quern_steps *steps)
{
    add_kept(&m->kept, kept);
    add_steps(&m->steps, steps);
}

/* ---- the text ---- */

static void write_head(qn_buf *out, const char *name, const char *type,
                       const char *help)
{
    qn_buf_printf(out, "# HELP quern_%s %s\n# TYPE quern_%s %s\n", name, help,
                  name, type);
}

/* The name of a number with its labels; `more` is one or "". */
static void write_name(qn_buf *out, const char *name, const char *suffix,
                       const char *model, const char *more)
{
    qn_buf_printf(out, "quern_%s%s", name, suffix);
    if (model || *more) {
        qn_buf_add_char(out, '{');
        if (model)
            add_model(out, model);
        if (model && *more)
            qn_buf_add_char(out, ',');
        qn_buf_printf(out, "%s}", more);
    }
    qn_buf_add_char(out, ' ');
}

static void write_count(qn_buf *out, const char *name, const char *suffix,
                        const char *model, const char *more, uint64_t value)
{
    write_name(out, name, suffix, model, more);
    qn_buf_printf(out, "%llu\n", (unsigned long long)value);
}

static void write_map(qn_buf *out, const char *name, const char *help,
                      const qn_map *map)
{
    write_head(out, name, "counter", help);
    for (size_t i = 0; i < qn_map_size(map); i++) {
        qn_str labels = qn_map_key_at(map, i);
        qn_buf_printf(out, "quern_%s{%.*s} %llu\n", name, (int)labels.size,
                      labels.data,
                      (unsigned long long)qn_map_value_at(map, i)->u64);
    }
}

static void write_counters(qn_buf *out, const qn_model_gauges *models,
                           size_t count)
{
    static const struct {
        const char *name, *help;
    } rows[] = {
#define X(id, name, help) {name "_total", help},
        QN_COUNTERS(X)
#undef X
    };
    for (int i = 0; i < QN_COUNTER_COUNT; i++) {
        write_head(out, rows[i].name, "counter", rows[i].help);
        for (size_t k = 0; k < count; k++)
            write_count(out, rows[i].name, "", models[k].model, "",
                        models[k].metrics->counters[i]);
    }
}

/* A histogram: its buckets, each by itself, have `limits` and one without.
 * `more` is a label besides, or "". */
static void write_buckets(qn_buf *out, const char *name, const char *model,
                          const char *more, const double *limits, int limited,
                          const uint64_t *buckets, uint64_t all, double sum)
{
    uint64_t below = 0;
    char labels[64];
    const char *comma = *more ? "," : "";
    for (int i = 0; i < limited; i++) {
        below += buckets[i];
        snprintf(labels, sizeof labels, "%s%sle=\"%g\"", more, comma,
                 limits[i]);
        write_count(out, name, "_bucket", model, labels, below);
    }
    snprintf(labels, sizeof labels, "%s%sle=\"+Inf\"", more, comma);
    write_count(out, name, "_bucket", model, labels, all);
    write_name(out, name, "_sum", model, more);
    qn_buf_printf(out, "%.6f\n", sum);
    write_count(out, name, "_count", model, more, all);
}

static void write_histogram(qn_buf *out, const char *name, const char *model,
                            const qn_histogram *h)
{
    write_buckets(out, name, model, "", bounds, QN_BUCKETS, h->buckets,
                  h->count, h->sum);
}

static void write_histograms(qn_buf *out, const qn_metrics *m,
                             const qn_model_gauges *models, size_t count)
{
    static const struct {
        const char *name, *help;
    } rows[] = {
#define X(id, name, help) {name "_seconds", help},
        QN_HISTOGRAMS(X)
#undef X
    };
    write_head(out, "request_seconds", "histogram",
               "From the request to the end of the reply.");
    write_histogram(out, "request_seconds", NULL, &m->request);
    for (int i = 0; i < QN_TIMING_COUNT; i++) {
        write_head(out, rows[i].name, "histogram", rows[i].help);
        for (size_t k = 0; k < count; k++)
            write_histogram(out, rows[i].name, models[k].model,
                            &models[k].metrics->timings[i]);
    }
}

/* Of steps with pieces of prompts, and of the others; and how many sequences
 * they had. */
static void write_steps(qn_buf *out, const quern_steps *steps,
                        const qn_model_gauges *models, size_t count)
{
    static const char *const phases[] = {"phase=\"prefill\"",
                                         "phase=\"decode\""};
    double rows[QUERN_ROW_BUCKETS];
    for (int i = 0; i < QUERN_ROW_BUCKETS; i++)
        rows[i] = 1 << i;
    write_head(out, "step_seconds", "histogram", "A step of the model.");
    for (size_t k = 0; k < count; k++)
        for (int p = 0; p < 2; p++)
            write_buckets(out, "step_seconds", models[k].model, phases[p],
                          quern_step_bounds(), QUERN_STEP_BUCKETS - 1,
                          steps[k].buckets[p], steps[k].count[p],
                          steps[k].seconds[p]);
    write_head(out, "batch_rows", "histogram", "Sequences of a step.");
    for (size_t k = 0; k < count; k++)
        write_buckets(out, "batch_rows", models[k].model, "", rows,
                      QUERN_ROW_BUCKETS - 1, steps[k].row_buckets,
                      steps[k].count[0] + steps[k].count[1],
                      (double)steps[k].rows);
}

/* ---- numbers of models ---- */

/* Where a number stands, in a structure of 64-bit numbers and sizes. */
typedef struct place {
    size_t at;
    bool size; /* size_t */
} place;

static uint64_t read_place(const void *base, place p)
{
    const char *at = (const char *)base + p.at;
    return p.size ? *(const size_t *)(const void *)at
                  : *(const uint64_t *)(const void *)at;
}

#define GAUGE(member, is_size)                                                 \
    {                                                                          \
        offsetof(qn_model_gauges, member), is_size                             \
    }
#define KEPT(member, is_size)                                                  \
    {                                                                          \
        offsetof(quern_prefix_stats, member), is_size                          \
    }

static void write_gauges(qn_buf *out, const qn_model_gauges *models,
                         size_t count)
{
    static const struct {
        const char *name, *help;
        place value;
    } rows[] = {
        {"requests_running", "Requests that are computed.",
         GAUGE(running, true)},
        {"requests_waiting", "Requests that wait for a turn.",
         GAUGE(waiting, true)},
        {"kv_bytes_used", "KV cache that is reserved.", GAUGE(kv_used, false)},
        {"kv_bytes_limit", "KV cache that may be reserved.",
         GAUGE(kv_limit, false)},
        {"model_bytes", "Weights as they are held.", GAUGE(model_bytes, false)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_head(out, rows[i].name, "gauge", rows[i].help);
        for (size_t k = 0; k < count; k++)
            write_count(out, rows[i].name, "", models[k].model, "",
                        read_place(&models[k], rows[i].value));
    }
    write_head(out, "model_loaded", "gauge", "Whether the model is loaded.");
    for (size_t k = 0; k < count; k++)
        write_count(out, "model_loaded", "", models[k].model, "",
                    models[k].loaded);
}

static void write_kept(qn_buf *out, const quern_prefix_stats *kept,
                       const qn_model_gauges *models, size_t count)
{
    static const struct {
        const char *name, *type, *help, *label;
        place value;
        bool same; /* as in the row before */
    } rows[] = {
        {"prefix_bytes", "gauge", "Prompts that are kept.", "tier=\"memory\"",
         KEPT(bytes, false), false},
        {"prefix_bytes", "", "", "tier=\"disk\"", KEPT(disk_bytes, false),
         true},
        {"prefix_entries", "gauge", "Prompts that are kept.", "tier=\"memory\"",
         KEPT(entries, true), false},
        {"prefix_entries", "", "", "tier=\"disk\"", KEPT(disk_entries, true),
         true},
        {"prefix_evictions_total", "counter",
         "Prompts that had to go for others.", "tier=\"memory\"",
         KEPT(evictions, false), false},
        {"prefix_evictions_total", "", "", "tier=\"disk\"",
         KEPT(disk_evictions, false), true},
        {"prefix_hits_total", "counter", "Prompts of which something was kept.",
         "", KEPT(hits, false), false},
        {"prefix_misses_total", "counter", "Prompts of which nothing was kept.",
         "", KEPT(misses, false), false},
        {"prefix_refused_total", "counter",
         "Files of prompts that were computed in another way, or damaged.", "",
         KEPT(disk_refused, false), false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].same)
            write_head(out, rows[i].name, rows[i].type, rows[i].help);
        for (size_t k = 0; k < count; k++)
            write_count(out, rows[i].name, "", models[k].model, rows[i].label,
                        read_place(&kept[k], rows[i].value));
    }
}

static void write_process(qn_buf *out, const qn_gauges *g)
{
    write_head(out, "resident_bytes", "gauge", "Memory of this process.");
    write_count(out, "resident_bytes", "", NULL, "", g->resident);
    write_head(out, "connections", "gauge", "Open connections.");
    write_count(out, "connections", "", NULL, "", g->connections);
    write_head(out, "build_info", "gauge", "What is running.");
    qn_buf_printf(out, "quern_build_info{version=\"%s\",backend=\"%s\"} 1\n",
                  g->release, g->backend);
}

/* What earlier loads counted belongs to the numbers. */
static void write_loads(qn_buf *out, const qn_model_gauges *models,
                        size_t count)
{
    quern_prefix_stats *kept = qn_calloc(count + 1, sizeof *kept);
    quern_steps *steps = qn_calloc(count + 1, sizeof *steps);
    for (size_t k = 0; kept && steps && k < count; k++) {
        kept[k] = models[k].kept;
        add_kept(&kept[k], &models[k].metrics->kept);
        steps[k] = models[k].steps;
        add_steps(&steps[k], &models[k].metrics->steps);
    }
    if (kept && steps) {
        write_kept(out, kept, models, count);
        write_steps(out, steps, models, count);
    }
    out->failed |= !kept || !steps;
    qn_free(kept);
    qn_free(steps);
}

void qn_metrics_write(qn_buf *out, const qn_metrics *m, const qn_gauges *g,
                      const qn_model_gauges *models, size_t count)
{
    write_map(out, "requests_total", "Requests, once their reply is over.",
              m->requests);
    write_map(out, "rejected_total", "Requests that were not taken.",
              m->rejected);
    write_counters(out, models, count);
    write_gauges(out, models, count);
    write_process(out, g);
    write_histograms(out, m, models, count);
    write_loads(out, models, count);
}
