/* Texts that end an answer, whatever the cut into pieces. */
#include "support/qn_test.h"

#include "runtime/stops.h"

/* Feeds `text` in pieces of `size` bytes; checks what comes out in all. */
static void check_cut(const char *const *texts, size_t count, const char *text,
                      size_t size, const char *expected, int matched)
{
    qn_stops stops;
    qn_buf out = QN_BUF_INIT;
    check_status(qn_stops_init(&stops, texts, count), QN_OK);
    size_t length = strlen(text);
    for (size_t at = 0; at < length; at += size) {
        size_t left = length - at;
        qn_str piece = {text + at, size < left ? size : left};
        check_status(qn_stops_add(&stops, &out, piece, false), QN_OK);
        /* Nothing comes out that would have to be taken back. */
        assert_true(out.size <= strlen(expected));
        assert_memory_equal(out.data ? out.data : "", expected, out.size);
    }
    check_status(qn_stops_finish(&stops, &out), QN_OK);
    check_str(qn_buf_str(&out), expected);
    assert_int_equal(stops.matched, matched);
    qn_buf_free(&out);
    qn_stops_clear(&stops);
}

static void test_cut_does_not_depend_on_pieces(void **state)
{
    (void)state;
    static const struct {
        const char *texts[3];
        size_t count;
        const char *text, *expected;
        int matched;
    } rows[] = {
        {{"END"}, 1, "some text", "some text", -1},
        {{"END"}, 1, "some END text", "some ", 0},
        {{"END"}, 1, "ENEND", "EN", 0},
        {{"END"}, 1, "trailing EN", "trailing EN", -1},
        {{"aab"}, 1, "aaab", "a", 0},
        {{"abab"}, 1, "abaabab!", "aba", 0},
        /* The one that is complete first wins. */
        {{"abcd", "bc"}, 2, "xabcd", "xa", 1},
        {{"bc", "abc"}, 2, "xabc", "x", 1},
        {{"\n\n", "User:", "\xe2\x82\xac"},
         3,
         "one \xe2\x82\xac two",
         "one ",
         2},
        {{"\n\nUser"}, 1, "a\n\nUse\n\nUser", "a\n\nUse", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t size = 1; size <= 20; size++)
            check_cut(rows[i].texts, rows[i].count, rows[i].text, size,
                      rows[i].expected, rows[i].matched);
}

static void test_nothing_is_held_without_need(void **state)
{
    (void)state;
    static const char *const texts[] = {"STOP"};
    qn_stops stops;
    qn_buf out = QN_BUF_INIT;
    check_status(qn_stops_init(&stops, texts, 1), QN_OK);
    check_status(qn_stops_add(&stops, &out, QN_STR("hello S"), false), QN_OK);
    check_str(qn_buf_str(&out), "hello ");
    check_status(qn_stops_add(&stops, &out, QN_STR("TO"), false), QN_OK);
    check_str(qn_buf_str(&out), "hello ");
    check_status(qn_stops_add(&stops, &out, QN_STR("NE"), false), QN_OK);
    check_str(qn_buf_str(&out), "hello STONE");
    qn_buf_free(&out);
    qn_stops_clear(&stops);
}

static void test_hidden_text_matches_but_never_shows(void **state)
{
    (void)state;
    static const char *const texts[] = {"<|end|>", "a<|x|>b"};
    qn_stops stops;
    qn_buf out = QN_BUF_INIT;
    check_status(qn_stops_init(&stops, texts, 2), QN_OK);
    check_status(qn_stops_add(&stops, &out, QN_STR("a"), false), QN_OK);
    check_status(qn_stops_add(&stops, &out, QN_STR("<|x|>"), true), QN_OK);
    check_status(qn_stops_add(&stops, &out, QN_STR("c"), false), QN_OK);
    check_str(qn_buf_str(&out), "ac");
    check_status(qn_stops_add(&stops, &out, QN_STR("<|end|>"), true), QN_OK);
    assert_int_equal(stops.matched, 0);
    check_status(qn_stops_add(&stops, &out, QN_STR("more"), false), QN_OK);
    check_status(qn_stops_finish(&stops, &out), QN_OK);
    check_str(qn_buf_str(&out), "ac");
    qn_buf_free(&out);
    qn_stops_clear(&stops);
}

static void test_bad_stops_are_refused(void **state)
{
    (void)state;
    qn_stops stops;
    char long_text[258];
    memset(long_text, 'x', 257);
    long_text[257] = '\0';
    const char *texts[17];
    for (int i = 0; i < 17; i++)
        texts[i] = "s";
    check_error(qn_stops_init(&stops, texts, 17), QN_E_ARG, "at most 16");
    texts[1] = "";
    check_error(qn_stops_init(&stops, texts, 2), QN_E_ARG, "stop 1");
    texts[1] = long_text;
    check_error(qn_stops_init(&stops, texts, 2), QN_E_ARG, "257");
    long_text[256] = '\0';
    check_status(qn_stops_init(&stops, texts, 2), QN_OK);
}

static qn_status hold_scenario(void)
{
    static const char *const texts[] = {"long stop text"};
    qn_stops stops;
    qn_buf out = QN_BUF_INIT;
    qn_status status = qn_stops_init(&stops, texts, 1);
    if (!status)
        status = qn_stops_add(&stops, &out, QN_STR("some long st"), false);
    if (!status)
        status = qn_stops_finish(&stops, &out);
    qn_buf_free(&out);
    qn_stops_clear(&stops);
    return status;
}

static void test_memory_may_run_out(void **state)
{
    (void)state;
    each_alloc_may_fail(hold_scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_does_not_depend_on_pieces),
        cmocka_unit_test(test_nothing_is_held_without_need),
        cmocka_unit_test(test_hidden_text_matches_but_never_shows),
        cmocka_unit_test(test_bad_stops_are_refused),
        cmocka_unit_test(test_memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
