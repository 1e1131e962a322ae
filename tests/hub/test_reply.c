/* Heads of HTTP answers: what is read, and what counts as not said. */
#include "support/qn_test.h"

#include "hub/reply.h"

static qn_reply read_head(const char *const *lines)
{
    qn_reply r = {0};
    for (; *lines; lines++)
        qn_reply_line(&r, *lines, strlen(*lines));
    return r;
}
#define HEAD(...) read_head((const char *const[]){__VA_ARGS__, NULL})

static void test_a_file_says_its_size_and_name(void **state)
{
    (void)state;
    qn_reply r = HEAD("HTTP/1.1 206 Partial Content\r\n",
                      "content-length: 100\r\n", "ETag: W/\"abc\"\r\n",
                      "Content-Range: bytes 100-199/300\r\n", "\r\n");
    assert_int_equal(r.code, 206);
    assert_true(r.has_length && r.has_range && r.has_total);
    assert_int_equal(r.length, 100);
    assert_int_equal(r.from, 100);
    assert_int_equal(r.total, 300);
    assert_string_equal(r.etag, "abc");
    r = HEAD("HTTP/1.1 206 Partial Content", "Content-Range: bytes 5-9/*");
    assert_true(r.has_range && !r.has_total);
    assert_int_equal(r.from, 5);
}

static void test_what_a_redirect_said_of_the_file_stays(void **state)
{
    (void)state;
    qn_reply r = HEAD("HTTP/2 302", "X-Linked-Size: 9", "X-Linked-ETag: \"f\"",
                      "Location: /there", "ETag: \"commit\"");
    assert_string_equal(r.location, "/there");
    qn_reply_line(&r, "HTTP/2 200", 10);
    assert_int_equal(r.code, 200);
    assert_string_equal(r.location, "");
    assert_string_equal(r.etag, "");
    assert_int_equal(r.linked_size, 9);
    assert_string_equal(r.linked_etag, "f");
}

static void test_the_next_page_is_found_among_links(void **state)
{
    (void)state;
    qn_reply r = HEAD("Link: <https://h/a>; rel=\"first\", "
                      "<https://h/b?c=1>; rel=\"next\"");
    assert_string_equal(r.next, "https://h/b?c=1");
    r = HEAD("Link: <https://h/b>; title=\">>\"; rel=\"next\"");
    assert_string_equal(r.next, "https://h/b");
}

static void test_what_cannot_be_read_is_not_said(void **state)
{
    (void)state;
    static const char *const codes[] = {
        "HTTP/1.1",      "HTTP/1.1 ",    "HTTP/1.1 20",
        "HTTP/1.1 2000", "HTTP/1.1 -20", "HTTP/1.1 99999999999999999999"};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        assert_int_equal(HEAD(codes[i]).code, 0);
    static const char *const lines[] = {
        "Content-Length: -1",
        "Content-Length: 99999999999999999999",
        "Content-Range: bytes 99999999999999999999-1/x",
        "Content-Range: bytes 1/2-3",
        "Content-Range: bytes",
        "Link: ><rel=\"next\"",
        "Link: rel=\"next\"",
        "no header",
        "",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        qn_reply r = HEAD(lines[i]);
        assert_false(r.has_length || r.has_range || r.has_total);
        assert_string_equal(r.next, "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_says_its_size_and_name),
        cmocka_unit_test(test_what_a_redirect_said_of_the_file_stays),
        cmocka_unit_test(test_the_next_page_is_found_among_links),
        cmocka_unit_test(test_what_cannot_be_read_is_not_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
