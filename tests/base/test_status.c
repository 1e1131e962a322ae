/* Errors as values: the slot of the calling thread. */
#include "support/qn_test.h"

#include <pthread.h>

static void test_fail_records_the_sentence_and_returns_the_code(void **state)
{
    (void)state;
    assert_int_equal(qn_fail(QN_E_ARG, "expected %d, found %s", 7, "x"),
                     QN_E_ARG);
    assert_string_equal(qn_error_text(), "expected 7, found x");
    assert_string_equal(qn_error_where(), "");
    qn_error_clear();
    assert_string_equal(qn_error_text(), "");
}

static void test_the_inner_place_wins(void **state)
{
    (void)state;
    qn_fail(QN_E_FORMAT, "bad");
    assert_int_equal(qn_fail_where(QN_E_FORMAT, "%s", "inner"), QN_E_FORMAT);
    qn_fail_where(QN_E_FORMAT, "outer");
    assert_string_equal(qn_error_where(), "inner");
    /* A new error is at a new place. */
    qn_fail(QN_E_IO, "worse");
    assert_string_equal(qn_error_where(), "");
}

static void test_an_error_may_quote_the_one_before(void **state)
{
    (void)state;
    qn_fail(QN_E_IO, "disk on fire");
    qn_fail(QN_E_IO, "cannot load: %s", qn_error_text());
    assert_string_equal(qn_error_text(), "cannot load: disk on fire");
}

static void test_a_long_sentence_is_cut_between_characters(void **state)
{
    (void)state;
    for (size_t lead = 0; lead < 4; lead++) {
        char text[4096];
        memset(text, 'a', lead);
        for (size_t i = lead; i + 3 < sizeof text; i += 3)
            memcpy(text + i, "\xe2\x82\xac", 4);
        qn_fail(QN_E_ARG, "%s", text);
        size_t size = strlen(qn_error_text());
        assert_true(size > QN_ERROR_SIZE - 5 && size < QN_ERROR_SIZE);
        assert_int_equal((size - lead) % 3, 0);
        assert_memory_equal(qn_error_text(), text, size);
    }
}

static void test_save_and_restore_keep_the_slot(void **state)
{
    (void)state;
    qn_error before;
    qn_fail(QN_E_FORMAT, "first");
    qn_fail_where(QN_E_FORMAT, "here");
    qn_error_save(&before);
    qn_fail(QN_E_IO, "clean-up");
    qn_error_restore(&before);
    assert_string_equal(qn_error_text(), "first");
    assert_string_equal(qn_error_where(), "here");
}

static void *fail_elsewhere(void *seen_before)
{
    *(bool *)seen_before = qn_error_text()[0] != '\0';
    qn_fail(QN_E_NOMEM, "other thread");
    return NULL;
}

static void test_threads_have_their_own_slot(void **state)
{
    (void)state;
    pthread_t thread;
    bool seen = true;
    qn_fail(QN_E_ARG, "mine");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &seen), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(seen);
    assert_string_equal(qn_error_text(), "mine");
}

static void test_statuses_have_names(void **state)
{
    (void)state;
    assert_string_equal(qn_status_name(QN_OK), "ok");
    assert_string_equal(qn_status_name(QN_E_NOMEM), "out_of_memory");
    assert_string_equal(qn_status_name((qn_status)99), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fail_records_the_sentence_and_returns_the_code),
        cmocka_unit_test(test_the_inner_place_wins),
        cmocka_unit_test(test_an_error_may_quote_the_one_before),
        cmocka_unit_test(test_a_long_sentence_is_cut_between_characters),
        cmocka_unit_test(test_save_and_restore_keep_the_slot),
        cmocka_unit_test(test_threads_have_their_own_slot),
        cmocka_unit_test(test_statuses_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
