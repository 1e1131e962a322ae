/* The page that is a part of the program, and the policy it is sent with. */
#include "web/page.h"

#include "base/base64.h"
#include "base/digest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The page as a text that ends; the caller frees it. */
static char *text_of(void)
{
    char *text = malloc(qn_web_page.size + 1);
    assert_non_null(text);
    memcpy(text, qn_web_page.data, qn_web_page.size);
    text[qn_web_page.size] = '\0';
    assert_int_equal(strlen(text), qn_web_page.size);
    return text;
}

/* "'sha256-...'" of each element with the tag, all of which the policy must
 * name; how many there are. */
static int check_elements(const char *text, const char *open, const char *close)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, open)); count++) {
        at += strlen(open);
        const char *end = strstr(at, close);
        assert_non_null(end);
        qn_digest digest;
        char hex[QN_DIGEST_SIZE];
        uint8_t bytes[32];
        qn_digest_begin(&digest, QN_SHA256);
        qn_digest_add(&digest, at, (size_t)(end - at));
        qn_digest_end(&digest, hex);
        for (int i = 0; i < 32; i++) {
            const char pair[3] = {hex[2 * i], hex[2 * i + 1], 0};
            bytes[i] = (uint8_t)strtoul(pair, NULL, 16);
        }
        qn_buf source = QN_BUF_INIT;
        qn_buf_add_text(&source, "'sha256-");
        qn_base64_encode(&source, bytes, sizeof bytes);
        qn_buf_add_text(&source, "'");
        assert_non_null(strstr(qn_web_page.policy, source.data));
        qn_buf_free(&source);
    }
    return count;
}

static void test_policy_names_what_runs(void **state)
{
    (void)state;
    char *text = text_of();
    assert_int_equal(check_elements(text, "<script>", "</script>"), 1);
    assert_int_equal(check_elements(text, "<style>", "</style>"), 1);
    assert_non_null(strstr(qn_web_page.policy, "default-src 'none'"));
    assert_non_null(strstr(qn_web_page.policy, "frame-ancestors 'none'"));
    assert_null(strstr(qn_web_page.policy, "unsafe"));
    free(text);
}

/* What the policy would refuse, or what would make text of a model's HTML. */
static void test_page_stands_alone(void **state)
{
    (void)state;
    static const char *const never[] = {"http:",
                                        "https:",
                                        "<script ",
                                        "<style ",
                                        " style=",
                                        " onclick=",
                                        "innerHTML",
                                        "outerHTML",
                                        "eval(",
                                        "@import",
                                        "url(",
                                        "document.write",
                                        "localStorage",
                                        "<iframe",
                                        "<img",
                                        "import(",
                                        "insertAdjacentHTML"};
    char *text = text_of();
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (strstr(text, never[i]))
            fail_msg("the page has '%s'", never[i]);
    free(text);
}

static void test_page_is_small(void **state)
{
    (void)state;
    assert_in_range(qn_web_page.size, 1000, 20 << 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policy_names_what_runs),
        cmocka_unit_test(test_page_stands_alone),
        cmocka_unit_test(test_page_is_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
