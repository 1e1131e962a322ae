/* UTF-8: every code point, every bad form, repair and streaming. */
#include "support/qn_test.h"

#include "base/utf8.h"

static void test_every_code_point_comes_back(void **state)
{
    (void)state;
    for (uint32_t code = 0; code <= 0x10ffff; code++) {
        char bytes[4];
        int size = qn_utf8_encode(code, bytes);
        uint32_t back = 0;
        if (qn_utf8_decode(bytes, bytes + size, &back) != size)
            fail_msg("U+%04X: not decoded", (unsigned)code);
        uint32_t wanted = code >= 0xd800 && code <= 0xdfff ? 0xfffd : code;
        if (back != wanted)
            fail_msg("U+%04X: decoded as U+%04X", (unsigned)code,
                     (unsigned)back);
        /* A shorter piece of it is no character, but may become one. */
        for (int cut = 1; cut < size; cut++) {
            if (qn_utf8_decode(bytes, bytes + cut, &back) ||
                qn_utf8_incomplete_tail((qn_str){bytes, (size_t)cut}) !=
                    (size_t)cut ||
                qn_utf8_bad_length(bytes, bytes + cut) != cut)
                fail_msg("U+%04X cut to %d", (unsigned)code, cut);
        }
    }
}

static void test_codes_out_of_range_become_the_replacement(void **state)
{
    (void)state;
    char bytes[4];
    assert_int_equal(qn_utf8_encode(0x110000, bytes), 3);
    assert_memory_equal(bytes, "\xef\xbf\xbd", 3);
    assert_int_equal(qn_utf8_encode(0xdfff, bytes), 3);
    assert_memory_equal(bytes, "\xef\xbf\xbd", 3);
}

static void test_ill_formed_text_is_found_where_it_is(void **state)
{
    (void)state;
    const struct {
        const char *text;
        size_t bad;
        int length; /* of the piece that one U+FFFD replaces */
    } cases[] = {
        {"\x80", 0, 1},                             /* continuation alone */
        {"abc\xff", 3, 1},                          /* never a first byte */
        {"\xc0\xaf", 0, 1},                         /* overlong */
        {"\xc1\xbf", 0, 1},                         /* overlong */
        {"\xe0\x80\xaf", 0, 1},                     /* overlong */
        {"\xe0\x9f\xbf", 0, 1},                     /* overlong */
        {"\xf0\x8f\xbf\xbf", 0, 1},                 /* overlong */
        {"\xed\xa0\x80", 0, 1},                     /* surrogate */
        {"\xed\xbf\xbf", 0, 1},                     /* surrogate */
        {"\xf4\x90\x80\x80", 0, 1},                 /* above U+10FFFF */
        {"\xf5\x80\x80\x80", 0, 1},                 /* above U+10FFFF */
        {"0123456789\xe2\x82", 10, 2},              /* cut */
        {"\xf0\x9f\x98z", 0, 3},                    /* cut by a letter */
        {"\xe2\x82\xac\xe2\x82\xe2\x82\xac", 3, 2}, /* cut by a character */
        {"\xc3(", 0, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qn_str text = qn_str_of(cases[i].text);
        size_t bad = 99;
        uint32_t code;
        assert_false(qn_utf8_valid(text, &bad));
        assert_false(qn_utf8_valid(text, NULL));
        assert_int_equal(bad, cases[i].bad);
        const char *p = text.data + bad, *end = text.data + text.size;
        assert_int_equal(qn_utf8_decode(p, end, &code), 0);
        assert_int_equal(qn_utf8_bad_length(p, end), cases[i].length);
    }
}

static void test_valid_looks_at_every_alignment(void **state)
{
    (void)state;
    char text[64];
    for (size_t at = 0; at < 60; at++) {
        size_t bad = 0;
        memset(text, 'a', sizeof text);
        memcpy(text + at, "\xe2\x82\xac", 3);
        assert_true(qn_utf8_valid((qn_str){text, sizeof text}, NULL));
        text[at + 2] = 'a';
        assert_false(qn_utf8_valid((qn_str){text, sizeof text}, &bad));
        assert_int_equal(bad, at);
    }
    assert_true(qn_utf8_valid((qn_str){NULL, 0}, NULL));
}

static void test_a_tail_that_cannot_become_a_character_is_complete(void **state)
{
    (void)state;
    assert_int_equal(qn_utf8_incomplete_tail(QN_STR("")), 0);
    assert_int_equal(qn_utf8_incomplete_tail(QN_STR("abc")), 0);
    assert_int_equal(qn_utf8_incomplete_tail(QN_STR("\xe2\x82\xac")), 0);
    assert_int_equal(qn_utf8_incomplete_tail(QN_STR("a\xe2\x82")), 2);
    assert_int_equal(qn_utf8_incomplete_tail(QN_STR("a\xf0\x9f\x98")), 3);
    assert_int_equal(qn_utf8_incomplete_tail(QN_STR("a\xc3")), 1);
    assert_int_equal(qn_utf8_incomplete_tail(QN_STR("\x80")), 0);
    assert_int_equal(qn_utf8_incomplete_tail(QN_STR("\x80\x80\x80\x80")), 0);
    assert_int_equal(qn_utf8_incomplete_tail(QN_STR("\xed\xa0")), 0);
    assert_int_equal(qn_utf8_incomplete_tail(QN_STR("\xff")), 0);
    assert_int_equal(qn_utf8_incomplete_tail(QN_STR("\xc3\xa9\xa9")), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_point_comes_back),
        cmocka_unit_test(test_codes_out_of_range_become_the_replacement),
        cmocka_unit_test(test_ill_formed_text_is_found_where_it_is),
        cmocka_unit_test(test_valid_looks_at_every_alignment),
        cmocka_unit_test(
            test_a_tail_that_cannot_become_a_character_is_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
