/* The log: only what the program asks for reaches its sink. */
#include "support/qn_test.h"

#include "base/log.h"

typedef struct record {
    int calls;
    qn_log_level level;
    char text[2048];
} record;

static void keep(void *data, qn_log_level level, const char *text)
{
    record *r = data;
    r->calls++;
    r->level = level;
    snprintf(r->text, sizeof r->text, "%s", text);
}

static void test_messages_up_to_the_level_reach_the_sink(void **state)
{
    (void)state;
    record r = {0};
    qn_log_set_sink(keep, &r, QN_LOG_WARN);
    qn_log(QN_LOG_WARN, "layer %d", 3);
    assert_int_equal(r.calls, 1);
    assert_int_equal(r.level, QN_LOG_WARN);
    assert_string_equal(r.text, "layer 3");
    qn_log(QN_LOG_INFO, "not asked for");
    assert_int_equal(r.calls, 1);
    qn_log_set_sink(NULL, NULL, QN_LOG_DEBUG);
    qn_log(QN_LOG_ERROR, "nobody listens");
    assert_int_equal(r.calls, 1);
}

static void test_a_long_message_is_cut(void **state)
{
    (void)state;
    record r = {0};
    qn_log_set_sink(keep, &r, QN_LOG_DEBUG);
    qn_log(QN_LOG_DEBUG, "%5000d", 1);
    assert_int_equal(strlen(r.text), 1023);
    /* Not in the middle of a character. */
    qn_log(QN_LOG_DEBUG, "%*s\xe2\x82\xac", 1021, "x");
    qn_log_set_sink(NULL, NULL, QN_LOG_DEBUG);
    assert_int_equal(strlen(r.text), 1021);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_up_to_the_level_reach_the_sink),
        cmocka_unit_test(test_a_long_message_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
