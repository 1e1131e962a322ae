/* Numbers as Prometheus reads them. */
#include "server/metrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_text(void **state)
{
    (void)state;
    qn_metrics m;
    qn_buf out = QN_BUF_INIT;
    assert_int_equal(qn_metrics_init(&m), QN_OK);
    qn_metrics_request(&m, "chat", 200, "ok");
    qn_metrics_request(&m, "chat", 200, "ok");
    qn_metrics_request(&m, "other", 404, "error");
    qn_metrics_rejected(&m, "server_overloaded");
    qn_metrics_time(&m, QN_TIMING_TTFT, 0.002);
    qn_metrics_time(&m, QN_TIMING_TTFT, 0.3);
    qn_metrics_time(&m, QN_TIMING_TTFT, 100);
    m.counters[QN_COUNTER_PROMPT_TOKENS] = 7;
    qn_gauges g = {.running = 2, .release = "1.2.3", .backend = "cpu"};
    g.steps.count[0] = 3;
    g.steps.buckets[0][1] = 3;
    qn_metrics_write(&out, &m, &g);
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
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char line[160];
        snprintf(line, sizeof line, "\n%s\n", lines[i]);
        if (!strstr(out.data, line))
            fail_msg("no line %s", lines[i]);
    }
    qn_buf_free(&out);
    qn_metrics_clear(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
