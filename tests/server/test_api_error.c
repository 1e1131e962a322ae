/* Errors as clients see them. */
#include "server/protocol.h"

#include "support/qn_test.h"

static void check_body(const qn_api_error *error, qn_api_style style,
                       const char *expected)
{
    qn_buf out = QN_BUF_INIT;
    qn_api_error_write(&out, error, style, "req_1");
    assert_string_equal(out.data, expected);
    qn_buf_free(&out);
}

static void test_each_family_has_its_own_body(void **state)
{
    (void)state;
    qn_api_error error;
    assert_false(qn_api_fail(&error, QN_API_OUT_OF_RANGE, "top_p",
                             "expected %s", "\"0..1\""));
    check_body(&error, QN_API_OPENAI,
               "{\"error\":{\"message\":\"expected \\\"0..1\\\"\","
               "\"type\":\"invalid_request_error\",\"param\":\"top_p\","
               "\"code\":\"out_of_range\"}}");
    check_body(&error, QN_API_ANTHROPIC,
               "{\"type\":\"error\",\"error\":{\"type\":"
               "\"invalid_request_error\",\"message\":\"top_p: expected "
               "\\\"0..1\\\"\"},\"request_id\":\"req_1\"}");
}

static void test_an_error_of_no_field_has_a_null_param(void **state)
{
    (void)state;
    qn_api_error error;
    qn_api_fail(&error, QN_API_SERVER_OVERLOADED, NULL, "full");
    check_body(&error, QN_API_OPENAI,
               "{\"error\":{\"message\":\"full\",\"type\":\"server_error\","
               "\"param\":null,\"code\":\"server_overloaded\"}}");
    assert_int_equal(qn_api_code_status(error.code, QN_API_OPENAI), 503);
    assert_int_equal(qn_api_code_status(error.code, QN_API_ANTHROPIC), 529);
}

static void test_a_long_message_is_cut_between_characters(void **state)
{
    (void)state;
    char text[2 * QN_API_MESSAGE_SIZE];
    for (size_t shift = 0; shift < 3; shift++) {
        memset(text, 'x', shift);
        for (size_t i = shift; i + 3 <= sizeof text; i += 3)
            memcpy(text + i, "\xe2\x82\xac", 3);
        text[sizeof text - 1] = 0;
        qn_api_error error;
        qn_api_fail(&error, QN_API_INTERNAL, text, "%s", text);
        size_t size = strlen(error.message);
        assert_in_range(size, QN_API_MESSAGE_SIZE - 3, QN_API_MESSAGE_SIZE - 1);
        assert_int_equal((size - shift) % 3, 0);
        assert_int_equal((strlen(error.param) - shift) % 3, 0);
    }
}

static void test_faults_of_the_runtime_have_codes(void **state)
{
    (void)state;
    const struct {
        quern_status status;
        qn_api_code code;
    } rows[] = {
        {QUERN_E_NOMEM, QN_API_INSUFFICIENT_MEMORY},
        {QUERN_E_CANCELLED, QN_API_SHUTTING_DOWN},
        {QUERN_E_ARG, QN_API_OUT_OF_RANGE},
        {QUERN_E_UNSUPPORTED, QN_API_UNSUPPORTED_VALUE},
        {QUERN_E_INTERNAL, QN_API_INTERNAL},
        {QUERN_E_FORMAT, QN_API_INTERNAL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        quern_error cause = {.status = rows[i].status, .message = "why"};
        qn_api_error error;
        assert_false(qn_api_fail_runtime(&error, &cause));
        assert_int_equal(error.code, rows[i].code);
    }
}

/* Every code has a status that HTTP knows, and a name. */
static void test_the_table_is_complete(void **state)
{
    (void)state;
    for (int code = 0; code < QN_API_CODES; code++) {
        assert_true(qn_api_code_name((qn_api_code)code)[0]);
        int status = qn_api_code_status((qn_api_code)code, QN_API_OPENAI);
        assert_in_range(status, 400, 505);
        status = qn_api_code_status((qn_api_code)code, QN_API_ANTHROPIC);
        assert_in_range(status, 400, 529);
    }
}

static void test_ids_are_24_digits_and_differ(void **state)
{
    (void)state;
    qn_api_head head = {.random = {1, 2}}, other = {.random = {1, 3}};
    char a[QN_API_ID_SIZE], b[QN_API_ID_SIZE];
    qn_api_id(a, &head, "chatcmpl-", 0);
    assert_int_equal(strlen(a), 9 + 24);
    assert_memory_equal(a, "chatcmpl-", 9);
    assert_int_equal(strspn(a + 9, "0123456789abcdef"), 24);
    qn_api_id(b, &head, "chatcmpl-", 0);
    assert_string_equal(a, b);
    qn_api_id(b, &head, "chatcmpl-", 1);
    assert_string_not_equal(a, b);
    qn_api_id(b, &other, "chatcmpl-", 0);
    assert_string_not_equal(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_family_has_its_own_body),
        cmocka_unit_test(test_an_error_of_no_field_has_a_null_param),
        cmocka_unit_test(test_a_long_message_is_cut_between_characters),
        cmocka_unit_test(test_faults_of_the_runtime_have_codes),
        cmocka_unit_test(test_the_table_is_complete),
        cmocka_unit_test(test_ids_are_24_digits_and_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
