/* Lines of the log, and what stays out of them. */
#include "server/access.h"

#include "base/json.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static qn_access_line line(void)
{
    return (qn_access_line){.time = 86400.25,
                            .request_id = "req_1",
                            .route = "chat",
                            .peer = "127.0.0.1",
                            .status = 200,
                            .prompt_tokens = 12,
                            .cached_tokens = 0,
                            .completion_tokens = 5,
                            .queue_ms = 0.25,
                            .ttft_ms = -1,
                            .total_ms = 12.5,
                            .finish = "stop",
                            .accept_rate = -1};
}

static void test_text(void **state)
{
    (void)state;
    qn_buf out = QN_BUF_INIT;
    qn_access_line l = line();
    qn_access_format(&out, &l, false);
    assert_string_equal(
        out.data, "1970-01-02T00:00:00.250Z id=req_1 peer=127.0.0.1 route=chat "
                  "status=200 prompt=12 cached=0 completion=5 queue_ms=0.2 "
                  "total_ms=12.5 finish=stop\n");
    qn_buf_free(&out);
}

/* Nobody reads the pipe for a while. */
static void test_a_full_pipe_loses_lines_and_holds_nobody_up(void **state)
{
    (void)state;
    static char text[1 << 17];
    int ends[2];
    qn_access_line l = line();
    assert_int_equal(pipe(ends), 0);
    qn_access_log log = {.level = QUERN_LOG_INFO, .fd = ends[1]};
    for (int i = 0; i < 2000; i++)
        qn_access_write(&log, &l);
    unsigned lost = log.lost;
    assert_in_range(lost, 1, 1999);
    ssize_t n = read(ends[0], text, sizeof text - 1);
    assert_true(n > 0);
    qn_access_write(&log, &l);
    assert_int_equal(log.lost, 0);
    n = read(ends[0], text, sizeof text - 1);
    assert_true(n > 0);
    text[n] = 0;
    char expected[32];
    snprintf(expected, sizeof expected, "lost=%u\n1970-", lost);
    assert_memory_equal(text, expected, strlen(expected));
    close(ends[0]);
    close(ends[1]);
}

/* What was asked and answered goes to its file or nowhere. */
static void test_secrets_do_not_go_to_stderr(void **state)
{
    (void)state;
    qn_access_log log = {.path = "/nowhere/log", .secret = true, .fd = -1};
    assert_int_equal(qn_access_open(&log), QN_E_IO);
    assert_int_equal(log.fd, -1);
    log.secret = false;
    assert_int_equal(qn_access_open(&log), QN_E_IO);
    assert_int_equal(log.fd, STDERR_FILENO);
}

/* Others write to stderr, before and after. */
static void test_a_file_that_cannot_be_had_leaves_stderr_open(void **state)
{
    (void)state;
    for (int secret = 0; secret < 2; secret++) {
        qn_access_log log = {
            .path = "/nowhere/log", .secret = secret, .fd = -1};
        for (int i = 0; i < 2; i++) {
            assert_int_equal(qn_access_open(&log), QN_E_IO);
            qn_access_close(&log);
        }
        assert_int_not_equal(fcntl(STDERR_FILENO, F_GETFD), -1);
    }
}

static void test_client_text_cannot_forge_lines(void **state)
{
    (void)state;
    qn_buf out = QN_BUF_INIT;
    qn_access_line l = line();
    l.request_id = "a\nb status=500\x1b[2J\xff";
    qn_access_format(&out, &l, false);
    assert_non_null(
        strstr(out.data, "id=a\\x0ab\\x20status=500\\x1b[2J\\xff peer="));
    assert_ptr_equal(strchr(out.data, '\n'), out.data + out.size - 1);
    qn_buf_free(&out);
}

static void test_json_is_one_object_a_line(void **state)
{
    (void)state;
    qn_buf out = QN_BUF_INIT;
    qn_json_doc *doc;
    int64_t number;
    qn_access_line l = line();
    l.key = "a\"b\n";
    l.left = true;
    qn_access_format(&out, &l, true);
    assert_int_equal(qn_json_parse(&doc, qn_buf_str(&out), 0), QN_OK);
    const qn_json *root = qn_json_root(doc);
    assert_true(qn_str_is(qn_json_get(root, "key")->text, "a\"b\n"));
    assert_true(qn_json_as_int(qn_json_get(root, "prompt"), &number));
    assert_int_equal(number, 12);
    assert_null(qn_json_get(root, "ttft_ms"));
    assert_non_null(qn_json_get(root, "left"));
    qn_json_doc_free(doc);
    qn_buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_a_full_pipe_loses_lines_and_holds_nobody_up),
        cmocka_unit_test(test_secrets_do_not_go_to_stderr),
        cmocka_unit_test(test_a_file_that_cannot_be_had_leaves_stderr_open),
        cmocka_unit_test(test_client_text_cannot_forge_lines),
        cmocka_unit_test(test_json_is_one_object_a_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
