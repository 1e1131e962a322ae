/* Heads of requests: framing, names, hosts, origins, queries. */
#include "server/head.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* HTTP/1.0, which needs no Host. */
static qn_head head_of(const char *target)
{
    qn_head head = {.method = QN_STR("POST"), .http10 = true};
    qn_head_target(&head, qn_str_of(target));
    return head;
}

static void add(qn_head *head, const char *name, const char *value)
{
    qn_head_add(head, qn_str_of(name), qn_str_of(value));
}

/* The code of the error, or QN_API_CODES when the head is fine. */
static qn_api_code check(const qn_head *head, qn_framing *framing)
{
    qn_api_error error;
    return qn_head_check(head, framing, &error) ? QN_API_CODES : error.code;
}

static qn_api_code check_one(const char *name, const char *value)
{
    qn_framing framing;
    qn_head head = head_of("/");
    add(&head, name, value);
    return check(&head, &framing);
}

static void test_length_and_chunks(void **state)
{
    (void)state;
    qn_framing f;
    qn_head head = head_of("/");
    assert_int_equal(check(&head, &f), QN_API_CODES);
    assert_false(f.chunked || f.has_length);
    add(&head, "content-LENGTH", "12");
    assert_int_equal(check(&head, &f), QN_API_CODES);
    assert_true(f.has_length);
    assert_int_equal(f.length, 12);
    add(&head, "Content-Length", "12");
    assert_int_equal(check(&head, &f), QN_API_CODES);
    add(&head, "Content-Length", "13");
    assert_int_equal(check(&head, &f), QN_API_BAD_REQUEST);
    assert_int_equal(check_one("Content-Length", "-1"), QN_API_BAD_REQUEST);
    assert_int_equal(check_one("Content-Length", "0x10"), QN_API_BAD_REQUEST);
    assert_int_equal(check_one("Content-Length", ""), QN_API_BAD_REQUEST);
    /* What does not fit 64 bits is too large, not malformed. */
    static const char *const large[] = {"18446744073709551615",
                                        "18446744073709551616",
                                        "99999999999999999999999"};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        head = head_of("/");
        add(&head, "Content-Length", large[i]);
        assert_int_equal(check(&head, &f), QN_API_CODES);
        assert_true(f.length == UINT64_MAX);
    }
    head = head_of("/");
    add(&head, "Content-Length", "18446744073709551614");
    assert_int_equal(check(&head, &f), QN_API_CODES);
    assert_true(f.length == UINT64_MAX - 1);
    assert_int_equal(check_one("Transfer-Encoding", "Chunked"), QN_API_CODES);
    assert_int_equal(check_one("Transfer-Encoding", "gzip, chunked"),
                     QN_API_NOT_SUPPORTED);
}

static void test_both_framings_are_refused(void **state)
{
    (void)state;
    qn_framing f;
    qn_head head = head_of("/");
    add(&head, "Transfer-Encoding", "chunked");
    add(&head, "Content-Length", "5");
    assert_int_equal(check(&head, &f), QN_API_BAD_REQUEST);
    qn_head twice = head_of("/");
    add(&twice, "Transfer-Encoding", "chunked");
    add(&twice, "Transfer-Encoding", "chunked");
    assert_int_equal(check(&twice, &f), QN_API_NOT_SUPPORTED);
}

static void test_bad_names_and_values(void **state)
{
    (void)state;
    qn_framing f;
    assert_int_equal(check_one("Name ", "x"), QN_API_BAD_REQUEST);
    assert_int_equal(check_one("", "x"), QN_API_BAD_REQUEST);
    assert_int_equal(check_one("a\xc3\xa9", "x"), QN_API_BAD_REQUEST);
    assert_int_equal(check_one("Name", "a\rb"), QN_API_BAD_REQUEST);
    assert_int_equal(check_one("Name", "a\tb \xc3\xa9"), QN_API_CODES);
    qn_head head = head_of("/");
    qn_head_add(&head, QN_STR("Name"), (qn_str){"a\0b", 3});
    assert_int_equal(check(&head, &f), QN_API_BAD_REQUEST);
}

static void test_target_and_host(void **state)
{
    (void)state;
    qn_framing f;
    static const char *const bad[] = {"/a b", " ", "/a?b c", "/a\x01",
                                      "/a?\x7f"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        qn_head head = head_of(bad[i]);
        assert_int_equal(check(&head, &f), QN_API_BAD_REQUEST);
    }
    qn_head head = head_of("/a?b=%20&\xc3\xa9");
    assert_int_equal(check(&head, &f), QN_API_CODES);
    head.http10 = false;
    assert_int_equal(check(&head, &f), QN_API_BAD_REQUEST);
    add(&head, "host", "localhost");
    assert_int_equal(check(&head, &f), QN_API_CODES);
    add(&head, "Host", "localhost");
    assert_int_equal(check(&head, &f), QN_API_BAD_REQUEST);
}

static void test_too_many_and_too_long(void **state)
{
    (void)state;
    static char big[QN_MAX_HEAD_BYTES + 1];
    qn_framing f;
    qn_head head = head_of("/");
    for (int i = 0; i < QN_MAX_HEADERS; i++)
        add(&head, "Name", "x");
    assert_int_equal(check(&head, &f), QN_API_CODES);
    add(&head, "Name", "x");
    assert_int_equal(check(&head, &f), QN_API_HEADERS_TOO_LARGE);
    memset(big, 'a', sizeof big - 1);
    assert_int_equal(check_one("Name", big), QN_API_HEADERS_TOO_LARGE);
}

static void test_hosts(void **state)
{
    (void)state;
    static const char *const hosts[] = {"box.lan", "10.0.0.5", NULL};
    static const char *const good[] = {
        "localhost",  "LOCALHOST:8080", "127.0.0.1:1", "127.9.8.7",
        "[::1]:8080", "Box.LAN:80",     "10.0.0.5"};
    static const char *const bad[] = {
        "evil.example",   "",           "localhost.evil.org",
        "127.0.0.1.evil", "1127.0.0.1", "127.0.0",
        "10.0.0.55",      "[::2]",      "127..0.1234"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(qn_host_allowed(qn_str_of(good[i]), hosts));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(qn_host_allowed(qn_str_of(bad[i]), hosts));
}

static void test_origins(void **state)
{
    (void)state;
    static const char *const some[] = {"http://app.example:3000", NULL};
    static const char *const any[] = {"*", NULL};
    qn_str host = QN_STR("localhost:8080");
    assert_true(
        qn_origin_allowed(QN_STR("http://app.example:3000"), host, some));
    assert_true(qn_origin_allowed(QN_STR("http://localhost:8080"), host, some));
    assert_false(
        qn_origin_allowed(QN_STR("http://localhost:8081"), host, some));
    assert_false(qn_origin_allowed(QN_STR("http://app.example"), host, some));
    assert_false(qn_origin_allowed(QN_STR("null"), host, some));
    assert_false(qn_origin_allowed(QN_STR(""), host, some));
    assert_true(qn_origin_allowed(QN_STR("http://x"), host, any));
}

static void test_query(void **state)
{
    (void)state;
    qn_buf value = QN_BUF_INIT;
    qn_head head = head_of("/v1/fit?context=4096&a=%41+b%2&flag&context=1");
    assert_true(qn_str_is(head.path, "/v1/fit"));
    assert_true(qn_query_get(head.query, "context", &value));
    assert_string_equal(value.data, "4096");
    assert_true(qn_query_get(head.query, "a", &value));
    assert_string_equal(value.data, "A b%2");
    assert_true(qn_query_get(head.query, "flag", &value));
    assert_int_equal(value.size, 0);
    assert_false(qn_query_get(head.query, "fla", &value));
    head = head_of("/v1/fit");
    assert_false(qn_query_get(head.query, "context", &value));
    qn_buf_free(&value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_length_and_chunks),
        cmocka_unit_test(test_both_framings_are_refused),
        cmocka_unit_test(test_bad_names_and_values),
        cmocka_unit_test(test_target_and_host),
        cmocka_unit_test(test_too_many_and_too_long),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_origins),
        cmocka_unit_test(test_query),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
