/* metrics.h: numbers of a running server, as Prometheus reads them.  They
 * belong to the loop's thread.  Label values come from fixed sets and the
 * models that are configured, so the number of lines is bounded. */
#ifndef QN_SERVER_METRICS_H
#define QN_SERVER_METRICS_H

#include "base/buf.h"
#include "base/map.h"

#include <quern/quern.h>

/* name, help */
#define QN_COUNTERS(X)                                                         \
    X(PROMPT_TOKENS, "prompt_tokens", "Tokens of prompts.")                    \
    X(CACHED_TOKENS, "cached_tokens", "Tokens of prompts, not computed.")      \
    X(COMPLETION_TOKENS, "completion_tokens", "Tokens of answers.")            \
    X(SPEC_DRAFTED, "spec_drafted", "Tokens guessed ahead.")                   \
    X(SPEC_ACCEPTED, "spec_accepted", "Tokens guessed right.")                 \
    X(TOOL_FAILURES, "tool_parse_failures",                                    \
      "Marks of tool calls with something else behind them.")

#define QN_HISTOGRAMS(X)                                                       \
    X(QUEUE, "queue", "Waiting for a turn.")                                   \
    X(TTFT, "ttft", "From the request to the first token.")                    \
    X(INTER_TOKEN, "inter_token", "Between two tokens of an answer.")          \
    X(GRAMMAR_MASK, "grammar_mask", "Finding the tokens that may come next.")

typedef enum qn_counter {
#define X(id, ...) QN_COUNTER_##id,
    QN_COUNTERS(X)
#undef X
        QN_COUNTER_COUNT
} qn_counter;

typedef enum qn_timing {
#define X(id, ...) QN_TIMING_##id,
    QN_HISTOGRAMS(X)
#undef X
        QN_TIMING_COUNT
} qn_timing;

enum { QN_BUCKETS = 14 };

typedef struct qn_histogram {
    uint64_t buckets[QN_BUCKETS + 1]; /* each by itself */
    uint64_t count;
    double sum;
} qn_histogram;

typedef struct qn_metrics {
    qn_map *requests, *rejected; /* by their labels */
    qn_histogram request;        /* from the request to the reply's end */
} qn_metrics;

/* Of one model. */
typedef struct qn_model_metrics {
    uint64_t counters[QN_COUNTER_COUNT];
    qn_histogram timings[QN_TIMING_COUNT];
    /* What loads that are over have counted. */
    quern_prefix_stats kept;
    quern_steps steps;
} qn_model_metrics;

/* What is true of the server at the moment. */
typedef struct qn_gauges {
    size_t connections;
    uint64_t resident;
    const char *release, *backend;
} qn_gauges;

/* And of a model. */
typedef struct qn_model_gauges {
    const char *model; /* the label; NULL: there is one model alone */
    const qn_model_metrics *metrics;
    size_t running, waiting;
    uint64_t kv_used, kv_limit, model_bytes;
    quern_prefix_stats kept; /* of this load; zeros: not loaded */
    quern_steps steps;
    bool loaded;
} qn_model_gauges;

qn_status qn_metrics_init(qn_metrics *m);
void qn_metrics_clear(qn_metrics *m);
/* A reply that is over: "ok", "error", "cancelled", "rejected"; `model` NULL:
 * it was about none, or there is one alone. */
void qn_metrics_request(qn_metrics *m, const char *route, int status,
                        const char *outcome, const char *model);
void qn_metrics_rejected(qn_metrics *m, const char *reason);
void qn_histogram_add(qn_histogram *h, double seconds);
void qn_metrics_time(qn_model_metrics *m, qn_timing timing, double seconds);
/* A load is over: what it counted is added to what comes. */
void qn_model_metrics_keep(qn_model_metrics *m, const quern_prefix_stats *kept,
                           const quern_steps *steps);
void qn_metrics_write(qn_buf *out, const qn_metrics *m, const qn_gauges *g,
                      const qn_model_gauges *models, size_t count);

#endif
