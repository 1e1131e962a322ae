/* metrics.c: see metrics.h. */
#include "metrics.h"

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
static void count(qn_map *map, const char *labels)
{
    qn_map_value *value = qn_map_put(map, qn_str_of(labels), NULL);
    if (value)
        value->u64++;
}

void qn_metrics_request(qn_metrics *m, const char *route, int status,
                        const char *outcome)
{
    char labels[128];
    snprintf(labels, sizeof labels, "route=\"%s\",status=\"%d\",outcome=\"%s\"",
             route, status, outcome);
    count(m->requests, labels);
}

void qn_metrics_rejected(qn_metrics *m, const char *reason)
{
    char labels[64];
    snprintf(labels, sizeof labels, "reason=\"%s\"", reason);
    count(m->rejected, labels);
}

void qn_metrics_time(qn_metrics *m, qn_timing timing, double seconds)
{
    qn_histogram *h = &m->timings[timing];
    int i = 0;
    while (i < QN_BUCKETS && seconds > bounds[i])
        i++;
    h->buckets[i]++;
    h->count++;
    h->sum += seconds;
}

/* ---- the text ---- */

static void add_head(qn_buf *out, const char *name, const char *type,
                     const char *help)
{
    qn_buf_printf(out, "# HELP quern_%s %s\n# TYPE quern_%s %s\n", name, help,
                  name, type);
}

static void add_map(qn_buf *out, const char *name, const char *help,
                    const qn_map *map)
{
    add_head(out, name, "counter", help);
    for (size_t i = 0; i < qn_map_size(map); i++) {
        qn_str labels = qn_map_key_at(map, i);
        qn_buf_printf(out, "quern_%s{%.*s} %llu\n", name, (int)labels.size,
                      labels.data,
                      (unsigned long long)qn_map_value_at(map, i)->u64);
    }
}

static void add_number(qn_buf *out, const char *name, const char *type,
                       const char *help, uint64_t value)
{
    add_head(out, name, type, help);
    qn_buf_printf(out, "quern_%s %llu\n", name, (unsigned long long)value);
}

static void add_counters(qn_buf *out, const qn_metrics *m)
{
    static const struct {
        const char *name, *help;
    } rows[] = {
#define X(id, name, help) {name "_total", help},
        QN_COUNTERS(X)
#undef X
    };
    for (int i = 0; i < QN_COUNTER_COUNT; i++)
        add_number(out, rows[i].name, "counter", rows[i].help, m->counters[i]);
}

static void add_histogram(qn_buf *out, const char *name, const char *help,
                          const qn_histogram *h)
{
    add_head(out, name, "histogram", help);
    uint64_t sum = 0;
    for (int i = 0; i < QN_BUCKETS; i++) {
        sum += h->buckets[i];
        qn_buf_printf(out, "quern_%s_bucket{le=\"%g\"} %llu\n", name, bounds[i],
                      (unsigned long long)sum);
    }
    qn_buf_printf(out,
                  "quern_%s_bucket{le=\"+Inf\"} %llu\nquern_%s_sum %.6f\n"
                  "quern_%s_count %llu\n",
                  name, (unsigned long long)h->count, name, h->sum, name,
                  (unsigned long long)h->count);
}

static void add_histograms(qn_buf *out, const qn_metrics *m)
{
    static const struct {
        const char *name, *help;
    } rows[] = {
#define X(id, name, help) {name "_seconds", help},
        QN_HISTOGRAMS(X)
#undef X
    };
    for (int i = 0; i < QN_TIMING_COUNT; i++)
        add_histogram(out, rows[i].name, rows[i].help, &m->timings[i]);
}

/* Of steps with pieces of prompts, and of the others. */
static void add_steps(qn_buf *out, const quern_steps *s)
{
    static const char *const phases[] = {"prefill", "decode"};
    const double *limits = quern_step_bounds();
    add_head(out, "step_seconds", "histogram", "A step of the model.");
    for (int p = 0; p < 2; p++) {
        uint64_t sum = 0;
        for (int i = 0; i < QUERN_STEP_BUCKETS - 1; i++) {
            sum += s->buckets[p][i];
            qn_buf_printf(out,
                          "quern_step_seconds_bucket{phase=\"%s\",le=\"%g\"} "
                          "%llu\n",
                          phases[p], limits[i], (unsigned long long)sum);
        }
        qn_buf_printf(out,
                      "quern_step_seconds_bucket{phase=\"%s\",le=\"+Inf\"} "
                      "%llu\nquern_step_seconds_sum{phase=\"%s\"} %.6f\n"
                      "quern_step_seconds_count{phase=\"%s\"} %llu\n",
                      phases[p], (unsigned long long)s->count[p], phases[p],
                      s->seconds[p], phases[p],
                      (unsigned long long)s->count[p]);
    }
}

static void add_rows(qn_buf *out, const quern_steps *s)
{
    uint64_t sum = 0, all = s->count[0] + s->count[1];
    add_head(out, "batch_rows", "histogram", "Sequences of a step.");
    for (int i = 0; i < QUERN_ROW_BUCKETS - 1; i++) {
        sum += s->row_buckets[i];
        qn_buf_printf(out, "quern_batch_rows_bucket{le=\"%d\"} %llu\n", 1 << i,
                      (unsigned long long)sum);
    }
    qn_buf_printf(out,
                  "quern_batch_rows_bucket{le=\"+Inf\"} %llu\n"
                  "quern_batch_rows_sum %llu\nquern_batch_rows_count %llu\n",
                  (unsigned long long)all, (unsigned long long)s->rows,
                  (unsigned long long)all);
}

static void add_tier(qn_buf *out, const char *name, const char *type,
                     const char *help, uint64_t memory, uint64_t disk)
{
    add_head(out, name, type, help);
    qn_buf_printf(out,
                  "quern_%s{tier=\"memory\"} %llu\n"
                  "quern_%s{tier=\"disk\"} %llu\n",
                  name, (unsigned long long)memory, name,
                  (unsigned long long)disk);
}

static void add_gauges(qn_buf *out, const qn_gauges *g)
{
    const struct {
        const char *name, *help;
        uint64_t value;
    } rows[] = {
        {"requests_running", "Requests that are computed.", g->running},
        {"requests_waiting", "Requests that wait for a turn.", g->waiting},
        {"kv_bytes_used", "KV cache that is reserved.", g->kv_used},
        {"kv_bytes_limit", "KV cache that may be reserved.", g->kv_limit},
        {"model_bytes", "Weights as they are held.", g->model_bytes},
        {"model_loaded", "Whether the model is loaded.", g->loaded},
        {"resident_bytes", "Memory of this process.", g->resident},
        {"connections", "Open connections.", g->connections},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        add_number(out, rows[i].name, "gauge", rows[i].help, rows[i].value);
    add_tier(out, "prefix_bytes", "gauge", "Prompts that are kept.",
             g->kept.bytes, g->kept.disk_bytes);
    add_tier(out, "prefix_entries", "gauge", "Prompts that are kept.",
             g->kept.entries, g->kept.disk_entries);
    add_tier(out, "prefix_evictions_total", "counter",
             "Prompts that had to go for others.", g->kept.evictions,
             g->kept.disk_evictions);
    add_number(out, "prefix_hits_total", "counter",
               "Prompts of which something was kept.", g->kept.hits);
    add_number(out, "prefix_misses_total", "counter",
               "Prompts of which nothing was kept.", g->kept.misses);
    add_number(
        out, "prefix_refused_total", "counter",
        "Files of prompts that were computed in another way, or damaged.",
        g->kept.disk_refused);
    add_head(out, "build_info", "gauge", "What is running.");
    qn_buf_printf(out, "quern_build_info{version=\"%s\",backend=\"%s\"} 1\n",
                  g->release, g->backend);
}

void qn_metrics_write(qn_buf *out, const qn_metrics *m, const qn_gauges *g)
{
    add_map(out, "requests_total", "Requests, once their reply is over.",
            m->requests);
    add_map(out, "rejected_total", "Requests that were not taken.",
            m->rejected);
    add_counters(out, m);
    add_gauges(out, g);
    add_histograms(out, m);
    add_steps(out, &g->steps);
    add_rows(out, &g->steps);
}
