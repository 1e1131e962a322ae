/* What /v1/responses keeps: for whom, how long, how much. */
#include "support/qn_test.h"

#include "server/responses_store.h"

static qn_responses *make(size_t limit)
{
    qn_responses *s = NULL;
    assert_int_equal(qn_responses_new(&s, limit, 100), QN_OK);
    return s;
}

static void put(qn_responses *s, const char *space, const char *id,
                const char *body, int64_t now)
{
    assert_int_equal(
        qn_responses_put(s, space, id, qn_str_of(body), QN_STR("m"), now),
        QN_OK);
}

static bool has(qn_responses *s, const char *space, const char *id, int64_t now)
{
    return qn_responses_get(s, space, id, now, NULL, NULL);
}

static void test_a_response_belongs_to_one_key(void **state)
{
    (void)state;
    qn_responses *s = make(1 << 20);
    qn_buf body = QN_BUF_INIT, messages = QN_BUF_INIT;
    put(s, "ann", "resp_1", "body", 0);
    assert_true(qn_responses_get(s, "ann", "resp_1", 1, &body, &messages));
    assert_string_equal(body.data, "body");
    assert_string_equal(messages.data, "m");
    assert_false(has(s, "bob", "resp_1", 1));
    assert_false(has(s, "", "resp_1", 1));
    assert_false(has(s, "ann", "resp_2", 1));
    assert_false(qn_responses_drop(s, "bob", "resp_1", 1));
    assert_true(qn_responses_drop(s, "ann", "resp_1", 1));
    assert_false(qn_responses_drop(s, "ann", "resp_1", 1));
    qn_buf_free(&body);
    qn_buf_free(&messages);
    qn_responses_free(s);
}

static void test_its_time_ends(void **state)
{
    (void)state;
    qn_responses *s = make(1 << 20);
    put(s, "", "a", "body", 1000);
    assert_true(has(s, "", "a", 1099));
    assert_false(has(s, "", "a", 1100));
    assert_false(has(s, "", "a", 1000)); /* it is gone for good */
    qn_responses_free(s);
}

static void test_what_was_not_used_for_longest_goes_first(void **state)
{
    (void)state;
    static char large[1001];
    memset(large, 'x', 1000);
    qn_responses *s = make(4096);
    put(s, "", "a", large, 0);
    put(s, "", "b", large, 0);
    assert_true(has(s, "", "a", 1));
    put(s, "", "c", large, 0);
    put(s, "", "d", large, 0);
    assert_false(has(s, "", "b", 1));
    assert_true(has(s, "", "d", 1));
    /* What alone is too much is not kept, and drives nothing out. */
    qn_buf huge = QN_BUF_INIT;
    for (int i = 0; i < 5; i++)
        qn_buf_add_text(&huge, large);
    put(s, "", "e", huge.data, 0);
    assert_false(has(s, "", "e", 1));
    assert_true(has(s, "", "d", 1));
    qn_buf_free(&huge);
    qn_responses_free(s);
    qn_responses_free(NULL);
}

static void test_any_allocation_may_fail(void **state)
{
    (void)state;
    qn_status status = QN_E_NOMEM;
    for (long n = 0; status == QN_E_NOMEM; n++) {
        qn_responses *s = make(1 << 20);
        qn_test_fail_alloc(n);
        status = qn_responses_put(s, "ann", "a", QN_STR("b"), QN_STR("c"), 0);
        qn_test_fail_alloc(-1);
        assert_true(has(s, "ann", "a", 1) == !status);
        qn_responses_free(s);
    }
    assert_int_equal(status, QN_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_response_belongs_to_one_key),
        cmocka_unit_test(test_its_time_ends),
        cmocka_unit_test(test_what_was_not_used_for_longest_goes_first),
        cmocka_unit_test(test_any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
