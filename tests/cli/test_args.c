/* test_args.c: the parser of command lines, value by value. */
#include "support/qn_test.h"

#include "base/alloc.h"
#include "cli/args.h"

#include <string.h>

static void test_counts_have_powers_of_1024(void **state)
{
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {
        {"0", 0},
        {"512", 512},
        {"4k", 4096},
        {"4K", 4096},
        {"3m", 3 << 20},
        {"2G", INT64_C(2) << 30},
        {"-1", -1},
        {"-2k", -2048},
        {"007", 7},
        {"9223372036854775807", INT64_MAX},
        {"9007199254740991k", INT64_C(9007199254740991) * 1024},
    };
    static const char *const bad[] = {
        "",
        " 1",
        "1 ",
        "+1",
        "1.5",
        "0x1",
        "k",
        "1kk",
        "1t",
        "1kb",
        "--1",
        "-",
        "\t1",
        "1e3",
        "9223372036854775808",
        "9007199254740992k",
        "8589934592g",
    };
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int64_t value = 42;
        assert_true(qn_args_count(good[i].text, &value));
        assert_int_equal(value, good[i].value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t value;
        if (qn_args_count(bad[i], &value))
            fail_msg("'%s' was taken as %lld", bad[i], (long long)value);
    }
}

static void test_percentages(void **state)
{
    double value;
    (void)state;
    assert_true(qn_args_percent("5%", &value) && value == 5);
    assert_true(qn_args_percent("2.5", &value) && value == 2.5);
    assert_true(qn_args_percent("100%", &value) && value == 100);
    static const char *const bad[] = {"",     "%",   "5%%", "-1",  "101%",
                                      "nan%", "inf", " 5%", "5 %", "0x5"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(qn_args_percent(bad[i], &value));
    assert_false(
        qn_args_percent("00000000000000000000000000000000000005%", &value));
}

static void test_lists_of_counts(void **state)
{
    int64_t *list = NULL;
    size_t count = 0;
    (void)state;
    check_status(qn_args_counts("x", "1,4k,0", 0, 4096, &list, &count), QN_OK);
    assert_int_equal(count, 3);
    assert_int_equal(list[1], 4096);
    qn_free(list);
    static const char *const bad[] = {
        "",   ",",    "1,",
        ",1", "1,,2", "4097",
        "-1", "1;2",  "00000000000000000000000000000000000000001"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        list = NULL;
        check_status(qn_args_counts("x", bad[i], 0, 4096, &list, &count),
                     QN_E_ARG);
        assert_null(list);
    }
}

static void test_nearest_name_is_two_edits_away_at_most(void **state)
{
    static const char *const names[] = {"temperature", "top-p", "seed", NULL};
    (void)state;
    assert_string_equal(qn_nearest("temprature", names), "temperature");
    assert_string_equal(qn_nearest("tpo-p", names), "top-p");
    assert_string_equal(qn_nearest("sed", names), "seed");
    assert_null(qn_nearest("tempure", names));
    char longer[200];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_null(qn_nearest(longer, names));
}

/* Parses the words up to a NULL for `quern run`. */
static qn_status parse(qn_args *args, const char *const *words)
{
    int count = 0;
    while (words[count])
        count++;
    return qn_args_parse(args, QN_CMD_RUN, count, (char *const *)words, 1, 2,
                         "MODEL");
}

static void test_words_and_flags_in_any_order(void **state)
{
    static const char *const words[] = {"--stop", "a",        "model",
                                        "-vv",    "--stop=b", "--seed=7",
                                        "--",     "--prompt", NULL};
    qn_args args;
    (void)state;
    check_status(parse(&args, words), QN_OK);
    assert_int_equal(args.word_count, 2);
    assert_string_equal(args.words[0], "model");
    assert_string_equal(args.words[1], "--prompt");
    assert_int_equal(args.flag[QN_FLAG_STOP].list_count, 2);
    assert_string_equal(args.flag[QN_FLAG_STOP].list[1], "b");
    assert_int_equal(args.flag[QN_FLAG_VERBOSE].times, 2);
    assert_int_equal(args.flag[QN_FLAG_SEED].whole, 7);
    assert_false(args.flag[QN_FLAG_TEMPERATURE].given);
    qn_args_free(&args);
}

static void test_json_is_known_of_a_line_that_is_wrong(void **state)
{
    static const char *const behind[] = {"--bogus", "m", "--json", NULL};
    static const char *const text[] = {"--bogus", "--", "--json", NULL};
    qn_args args;
    (void)state;
    check_status(parse(&args, behind), QN_E_ARG);
    assert_true(args.flag[QN_FLAG_JSON].on);
    qn_args_free(&args);
    check_status(parse(&args, text), QN_E_ARG);
    assert_false(args.flag[QN_FLAG_JSON].on);
    qn_args_free(&args);
}

static void test_presets_yield_to_flags(void **state)
{
    static const char *const words[] = {"model", "--threads", "3", NULL};
    qn_args args;
    (void)state;
    check_status(parse(&args, words), QN_OK);
    check_status(qn_args_preset(&args, QN_CMD_RUN, QN_FLAG_THREADS, "5"),
                 QN_OK);
    assert_int_equal(args.flag[QN_FLAG_THREADS].whole, 3);
    check_status(qn_args_preset(&args, QN_CMD_RUN, QN_FLAG_THREADS, "0"),
                 QN_E_ARG);
    check_status(qn_args_preset(&args, QN_CMD_RUN, QN_FLAG_BACKEND, "cpu"),
                 QN_OK);
    assert_string_equal(args.flag[QN_FLAG_BACKEND].text, "cpu");
    /* Checked, but not kept for a command without the flag. */
    check_status(qn_args_preset(&args, QN_CMD_SHOW, QN_FLAG_CTX, "x"),
                 QN_E_ARG);
    check_status(qn_args_preset(&args, QN_CMD_SHOW, QN_FLAG_CTX, "9"), QN_OK);
    assert_false(args.flag[QN_FLAG_CTX].given);
    qn_args_free(&args);
}

static qn_status parse_much(void)
{
    static const char *const words[] = {"model", "--stop", "a", "--stop",
                                        "b",     "prompt", NULL};
    qn_args args;
    qn_status status = parse(&args, words);
    qn_args_free(&args);
    return status;
}

static void test_each_allocation_may_fail(void **state)
{
    (void)state;
    each_alloc_may_fail(parse_much);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_have_powers_of_1024),
        cmocka_unit_test(test_percentages),
        cmocka_unit_test(test_lists_of_counts),
        cmocka_unit_test(test_nearest_name_is_two_edits_away_at_most),
        cmocka_unit_test(test_words_and_flags_in_any_order),
        cmocka_unit_test(test_json_is_known_of_a_line_that_is_wrong),
        cmocka_unit_test(test_presets_yield_to_flags),
        cmocka_unit_test(test_each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
