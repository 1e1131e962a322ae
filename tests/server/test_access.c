/* Lines of the log, and what stays out of them. */
#include "server/access.h"

#include "base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

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
        cmocka_unit_test(test_client_text_cannot_forge_lines),
        cmocka_unit_test(test_json_is_one_object_a_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
