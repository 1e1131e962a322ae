/* The growing buffer: contents, growth and its sticky failure. */
#include "support/qn_test.h"

static void test_an_empty_buffer_is_usable(void **state)
{
    (void)state;
    qn_buf buf = QN_BUF_INIT;
    check_str(qn_buf_str(&buf), "");
    qn_buf_add(&buf, NULL, 0);
    qn_buf_clear(&buf);
    qn_buf_truncate(&buf, 0);
    check_status(qn_buf_status(&buf), QN_OK);
    char *text = qn_buf_take(&buf);
    assert_non_null(text);
    assert_string_equal(text, "");
    qn_free(text);
    qn_buf_free(&buf);
}

static void test_contents_end_with_nul_after_each_step(void **state)
{
    (void)state;
    qn_buf buf = QN_BUF_INIT;
    for (size_t i = 1; i <= 1000; i++) {
        qn_buf_add_char(&buf, (char)('a' + i % 26));
        assert_int_equal(buf.size, i);
        assert_int_equal(buf.data[i], '\0');
    }
    qn_buf_truncate(&buf, 3);
    assert_string_equal(buf.data, "bcd");
    qn_buf_clear(&buf);
    assert_string_equal(buf.data, "");
    qn_buf_add_text(&buf, "one ");
    qn_buf_add_str(&buf, QN_STR("two "));
    qn_buf_add_code(&buf, 0x20ac);
    assert_string_equal(buf.data, "one two \xe2\x82\xac");
    qn_buf_free(&buf);
}

static void test_printf_of_any_length(void **state)
{
    (void)state;
    for (int width = 0; width < 400; width++) {
        qn_buf buf = QN_BUF_INIT;
        qn_buf_add_char(&buf, '<');
        qn_buf_printf(&buf, "%*d|%s", width, 7, "end");
        size_t number = width > 1 ? (size_t)width : 1;
        assert_int_equal(buf.size, 1 + number + 4);
        assert_int_equal(strlen(buf.data), buf.size);
        assert_string_equal(buf.data + number, "7|end");
        qn_buf_free(&buf);
    }
}

static void test_a_failed_buffer_stays_failed_until_cleared(void **state)
{
    (void)state;
    qn_buf buf = QN_BUF_INIT;
    qn_buf_add_text(&buf, "kept");
    qn_test_fail_alloc(0);
    qn_buf_printf(&buf, "%200s", "");
    check_status(qn_buf_status(&buf), QN_E_NOMEM);
    qn_buf_add_text(&buf, "more");
    assert_string_equal(buf.data, "kept");
    assert_false(qn_buf_reserve(&buf, 1));
    qn_buf_clear(&buf);
    qn_buf_add_text(&buf, "again");
    check_status(qn_buf_status(&buf), QN_OK);
    assert_string_equal(buf.data, "again");
    qn_buf_free(&buf);
}

static void test_take_of_a_failed_buffer_is_null(void **state)
{
    (void)state;
    qn_buf buf = QN_BUF_INIT;
    qn_buf_add_text(&buf, "text");
    assert_false(qn_buf_reserve(&buf, SIZE_MAX - 2));
    assert_null(qn_buf_take(&buf));
    assert_null(buf.data);
    qn_test_fail_alloc(0);
    assert_null(qn_buf_take(&buf));
}

static qn_status fill_and_take(void)
{
    qn_buf buf = QN_BUF_INIT;
    for (int i = 0; i < 100; i++)
        qn_buf_printf(&buf, "line %d\n", i);
    qn_status status = qn_buf_status(&buf);
    char *text = qn_buf_take(&buf);
    if (!status && !text)
        status = QN_E_NOMEM;
    qn_free(text);
    return status;
}

static void test_each_allocation_may_fail(void **state)
{
    (void)state;
    each_alloc_may_fail(fill_and_take);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_empty_buffer_is_usable),
        cmocka_unit_test(test_contents_end_with_nul_after_each_step),
        cmocka_unit_test(test_printf_of_any_length),
        cmocka_unit_test(test_a_failed_buffer_stays_failed_until_cleared),
        cmocka_unit_test(test_take_of_a_failed_buffer_is_null),
        cmocka_unit_test(test_each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
