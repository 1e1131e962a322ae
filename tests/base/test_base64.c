/* Reading base64. */
#include "support/qn_test.h"

#include "base/base64.h"

static void check_decoded(const char *text, const char *expected)
{
    qn_buf out = QN_BUF_INIT;
    qn_buf_add_char(&out, '>');
    check_status(qn_base64_decode(&out, qn_str_of(text)), QN_OK);
    assert_int_equal(out.data[0], '>');
    qn_str decoded = {out.data + 1, out.size - 1};
    check_str(decoded, expected);
    qn_buf_free(&out);
}

static void test_bytes_with_and_without_padding(void **state)
{
    (void)state;
    check_decoded("", "");
    check_decoded("Zg==", "f");
    check_decoded("Zg", "f");
    check_decoded("Zm8=", "fo");
    check_decoded("Zm8", "fo");
    check_decoded("Zm9v", "foo");
    check_decoded("Zm9vYmFy", "foobar");
    check_decoded("+/+/", "\xfb\xff\xbf");
}

static void test_other_characters_are_refused_with_their_offset(void **state)
{
    (void)state;
    const struct {
        const char *text, *message;
    } rows[] = {
        {"Zm9v Zg==", "byte 4"}, {"Zg=a", "byte 2"},     {"-_", "byte 0"},
        {"====", "byte 0"},      {"Zm9vY", "found one"}, {"Zm9vY===", "byte 5"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        qn_buf out = QN_BUF_INIT;
        check_error(qn_base64_decode(&out, qn_str_of(rows[i].text)),
                    QN_E_FORMAT, rows[i].message);
        assert_int_equal(out.size, 0);
        qn_buf_free(&out);
    }
}

static void test_bytes_are_written_with_padding(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"", ""},
        {"f", "Zg=="},
        {"fo", "Zm8="},
        {"foo", "Zm9v"},
        {"foob", "Zm9vYg=="},
        {"foobar", "Zm9vYmFy"},
        {"\xfb\xff\xbf", "+/+/"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        qn_buf out = QN_BUF_INIT;
        qn_base64_encode(&out, rows[i][0], strlen(rows[i][0]));
        assert_true(qn_str_is(qn_buf_str(&out), rows[i][1]));
        qn_buf_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_with_and_without_padding),
        cmocka_unit_test(test_bytes_are_written_with_padding),
        cmocka_unit_test(test_other_characters_are_refused_with_their_offset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
