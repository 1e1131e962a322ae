/* Numbers as Prometheus reads them. */
#include "server/metrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void check_lines(const qn_buf *out, const char *const *lines,
                        size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char line[160];
        snprintf(line, sizeof line, "\n%s\n", lines[i]);
        if (!strstr(out->data, line))
            fail_msg("no line %s in\n%s", lines[i], out->data);
    }
}

static void test_text(void **state)
{
    (void)state;
    qn_metrics m;
    qn_model_metrics of = {.counters = {0}};
    qn_buf out = QN_BUF_INIT;
    assert_int_equal(qn_metrics_init(&m), QN_OK);
    qn_metrics_request(&m, "chat", 200, "ok", NULL);
    qn_metrics_request(&m, "chat", 200, "ok", NULL);
    qn_metrics_request(&m, "other", 404, "error", NULL);
    qn_metrics_rejected(&m, "server_overloaded");
    qn_metrics_time(&of, QN_TIMING_TTFT, 0.002);
    qn_metrics_time(&of, QN_TIMING_TTFT, 0.3);
    qn_metrics_time(&of, QN_TIMING_TTFT, 100);
    qn_histogram_add(&m.request, 0.2);
    of.counters[QN_COUNTER_PROMPT_TOKENS] = 7;
    const qn_gauges g = {
        .connections = 3, .release = "1.2.3", .backend = "cpu"};
    qn_model_gauges one = {.metrics = &of, .running = 2};
    one.steps.count[0] = 3;
    one.steps.buckets[0][1] = 3;
    qn_metrics_write(&out, &m, &g, &one, 1);
    static const char *const lines[] = {
        "# TYPE quern_requests_total counter",
        "quern_requests_total{route=\"chat\",status=\"200\",outcome=\"ok\"} 2",
        "quern_requests_total{route=\"other\",status=\"404\",outcome=\"error\"}"
        " "
        "1",
        "quern_rejected_total{reason=\"server_overloaded\"} 1",
        "quern_prompt_tokens_total 7",
        "quern_requests_running 2",
        "quern_ttft_seconds_bucket{le=\"0.001\"} 0",
        "quern_ttft_seconds_bucket{le=\"0.0025\"} 1",
        "quern_ttft_seconds_bucket{le=\"0.5\"} 2",
        "quern_ttft_seconds_bucket{le=\"60\"} 2",
        "quern_ttft_seconds_bucket{le=\"+Inf\"} 3",
        "quern_ttft_seconds_count 3",
        "quern_step_seconds_bucket{phase=\"prefill\",le=\"0.001\"} 0",
        "quern_step_seconds_bucket{phase=\"prefill\",le=\"0.0025\"} 3",
        "quern_step_seconds_count{phase=\"decode\"} 0",
        "quern_build_info{version=\"1.2.3\",backend=\"cpu\"} 1",
    };
    check_lines(&out, lines, sizeof lines / sizeof *lines);
    qn_buf_free(&out);
    qn_metrics_clear(&m);
}

/* Each line of a model has its name, and what a load counted is not lost when
 * the model goes. */
static void test_models(void **state)
{
    (void)state;
    qn_metrics m;
    qn_model_metrics of[2] = {{.counters = {0}}, {.counters = {0}}};
    qn_buf out = QN_BUF_INIT;
    assert_int_equal(qn_metrics_init(&m), QN_OK);
    qn_metrics_request(&m, "chat", 200, "ok", "a\"\\");
    qn_metrics_request(&m, "health", 200, "ok", NULL);
    of[1].counters[QN_COUNTER_PROMPT_TOKENS] = 7;
    qn_metrics_time(&of[1], QN_TIMING_QUEUE, 0.002);
    const quern_prefix_stats before = {.hits = 5, .entries = 9, .bytes = 99};
    quern_steps steps = {.count = {2, 1}, .rows = 4};
    qn_model_metrics_keep(&of[0], &before, &steps);
    const qn_gauges g = {.release = "1.2.3", .backend = "cpu"};
    qn_model_gauges models[] = {
        {.model = "a\"\\", .metrics = &of[0], .kept = {.hits = 1}},
        {.model = "b", .metrics = &of[1], .waiting = 3, .loaded = true},
    };
    models[0].steps.count[0] = 1;
    qn_metrics_write(&out, &m, &g, models, 2);
    static const char *const lines[] = {
        "quern_requests_total{route=\"chat\",status=\"200\",outcome=\"ok\","
        "model=\"a\\\"\\\\\"} 1",
        "quern_requests_total{route=\"health\",status=\"200\",outcome=\"ok\"}"
        " 1",
        "quern_prompt_tokens_total{model=\"a\\\"\\\\\"} 0",
        "quern_prompt_tokens_total{model=\"b\"} 7",
        "quern_requests_waiting{model=\"b\"} 3",
        "quern_model_loaded{model=\"a\\\"\\\\\"} 0",
        "quern_model_loaded{model=\"b\"} 1",
        "quern_queue_seconds_bucket{model=\"b\",le=\"0.0025\"} 1",
        "quern_queue_seconds_count{model=\"b\"} 1",
        "quern_prefix_hits_total{model=\"a\\\"\\\\\"} 6",
        "quern_prefix_entries{model=\"a\\\"\\\\\",tier=\"memory\"} 0",
        "quern_step_seconds_count{model=\"a\\\"\\\\\",phase=\"prefill\"} 3",
        "quern_batch_rows_sum{model=\"a\\\"\\\\\"} 4.000000",
        "quern_connections 0",
    };
    check_lines(&out, lines, sizeof lines / sizeof *lines);
    /* One head for all models. */
    const char *head = strstr(out.data, "# TYPE quern_requests_running gauge");
    assert_non_null(head);
    assert_null(strstr(head + 1, "# TYPE quern_requests_running gauge"));
    qn_buf_free(&out);
    qn_metrics_clear(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
