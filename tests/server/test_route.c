/* Which function answers a path. */
#include "server/route.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *name_of(const char *method, const char *path,
                           const char **allowed)
{
    static char text[128];
    qn_buf allow = QN_BUF_INIT;
    qn_str id;
    const qn_route *route =
        qn_route_find(qn_str_of(method), qn_str_of(path), &id, &allow);
    snprintf(text, sizeof text, "%s", allow.size ? allow.data : "");
    *allowed = text;
    qn_buf_free(&allow);
    return route ? route->name : "";
}

static void test_paths(void **state)
{
    (void)state;
    const char *allow;
    assert_string_equal(name_of("GET", "/health", &allow), "health");
    assert_string_equal(name_of("HEAD", "/v1/health", &allow), "health");
    assert_string_equal(name_of("HEAD", "/", &allow), "page");
    assert_string_equal(name_of("POST", "/", &allow), "");
    assert_string_equal(allow, "GET, HEAD");
    assert_string_equal(name_of("POST", "/v1/chat/completions", &allow),
                        "chat");
    assert_string_equal(name_of("POST", "/v1/models/load", &allow), "load");
    assert_string_equal(name_of("GET", "/v1/models/a", &allow), "models");
    assert_string_equal(name_of("GET", "/v1/nothing", &allow), "");
    assert_string_equal(allow, "");
    assert_string_equal(name_of("GET", "/health/", &allow), "");
    assert_string_equal(allow, "");
    assert_string_equal(name_of("GET", "/v1/models/a/b", &allow), "");
    assert_string_equal(name_of("GET", "/v1/models/", &allow), "");
}

static void test_other_methods_are_told_which_ones_there_are(void **state)
{
    (void)state;
    const char *allow;
    assert_string_equal(name_of("GET", "/v1/chat/completions", &allow), "");
    assert_string_equal(allow, "POST");
    assert_string_equal(name_of("DELETE", "/v1/models", &allow), "");
    assert_string_equal(allow, "GET, HEAD");
    assert_string_equal(name_of("GET", "/v1/models/load", &allow), "");
    assert_string_equal(allow, "POST");
}

static void test_errors_are_spelled_as_the_paths_clients_know_them(void **state)
{
    (void)state;
    static const char *const anthropic[] = {
        "/v1/messages", "/v1/messages/count_tokens", "/v1/messages/batches",
        "/v1/messages/"};
    static const char *const openai[] = {"",
                                         "/",
                                         "/v1/messagesx",
                                         "/v1/message",
                                         "/v1/chat/completions",
                                         "/v1/models/v1/messages/a"};
    for (size_t i = 0; i < sizeof anthropic / sizeof *anthropic; i++)
        assert_int_equal(qn_route_style(qn_str_of(anthropic[i])),
                         QN_API_ANTHROPIC);
    for (size_t i = 0; i < sizeof openai / sizeof *openai; i++)
        assert_int_equal(qn_route_style(qn_str_of(openai[i])), QN_API_OPENAI);
}

static void test_id_is_what_stands_in_the_path(void **state)
{
    (void)state;
    qn_buf allow = QN_BUF_INIT;
    qn_str id;
    assert_non_null(
        qn_route_find(QN_STR("GET"), QN_STR("/v1/models/a%2Fb"), &id, &allow));
    assert_true(qn_str_is(id, "a%2Fb"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_other_methods_are_told_which_ones_there_are),
        cmocka_unit_test(
            test_errors_are_spelled_as_the_paths_clients_know_them),
        cmocka_unit_test(test_id_is_what_stands_in_the_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
