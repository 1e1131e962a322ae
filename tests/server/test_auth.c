/* API keys: who is who, and which files of keys are taken. */
#include "server/auth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/qn-keys-XXXXXX";

static int set_up(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(path);
}

static void write_file(const char *text, mode_t mode)
{
    assert_int_equal(chmod(path, 0600), 0);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(chmod(path, mode), 0);
}

static void test_presented_key_is_found_by_its_digest(void **state)
{
    (void)state;
    qn_keys keys = {0};
    assert_int_equal(qn_keys_add(&keys, QN_STR("one")), QN_OK);
    assert_int_equal(qn_keys_add(&keys, QN_STR("two")), QN_OK);
    assert_int_equal(qn_keys_find(&keys, QN_STR("two")), 1);
    assert_int_equal(qn_keys_find(&keys, QN_STR("one")), 0);
    assert_int_equal(qn_keys_find(&keys, QN_STR("on")), -1);
    assert_int_equal(qn_keys_find(&keys, QN_STR("")), -1);
    assert_string_equal(keys.items[1].name, "key2");
    assert_null(memmem(keys.items, 2 * sizeof *keys.items, "two", 3));
    qn_keys_free(&keys);
}

static void test_file_gives_names_and_rights(void **state)
{
    (void)state;
    qn_keys keys = {0};
    write_file("plain\n\nalice:k1\r\nroot:k2:admin", 0600);
    assert_int_equal(qn_keys_read(&keys, path), QN_OK);
    assert_int_equal(keys.count, 3);
    assert_string_equal(keys.items[1].name, "alice");
    assert_false(keys.items[1].admin);
    assert_int_equal(qn_keys_find(&keys, QN_STR("k1")), 1);
    assert_int_equal(qn_keys_find(&keys, QN_STR("k2")), 2);
    assert_true(keys.items[2].admin);
    qn_keys_free(&keys);
}

static void test_file_that_others_may_read_is_refused(void **state)
{
    (void)state;
    qn_keys keys = {0};
    write_file("plain\n", 0640);
    assert_int_equal(qn_keys_read(&keys, path), QN_E_ARG);
    assert_non_null(strstr(qn_error_text(), "0600"));
    qn_keys_free(&keys);
}

/* What a service manager hands over is root's, or the service's. */
static void test_credential_may_be_readable_for_its_group(void **state)
{
    (void)state;
    static const struct {
        mode_t mode;
        qn_status status;
    } rows[] = {{0400, QN_OK},    {0440, QN_OK},    {0600, QN_OK},
                {0444, QN_E_ARG}, {0460, QN_E_ARG}, {0404, QN_E_ARG}};
    char folder[512], other[600];
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    snprintf(other, sizeof other, "%s/elsewhere", folder);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        qn_keys keys = {0};
        write_file("name:key:admin\n", rows[i].mode);
        setenv("CREDENTIALS_DIRECTORY", folder, 1);
        assert_int_equal(qn_keys_read(&keys, path), rows[i].status);
        qn_keys_free(&keys);
        /* Elsewhere that says nothing. */
        setenv("CREDENTIALS_DIRECTORY", other, 1);
        assert_int_equal(qn_keys_read(&keys, path),
                         rows[i].mode & 077 ? QN_E_ARG : QN_OK);
        qn_keys_free(&keys);
        unsetenv("CREDENTIALS_DIRECTORY");
    }
}

static void test_file_without_keys_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "\n\r\n"};
    for (int i = 0; i < 2; i++) {
        qn_keys keys = {0};
        assert_int_equal(qn_keys_add(&keys, QN_STR("other")), QN_OK);
        write_file(texts[i], 0600);
        assert_int_equal(qn_keys_read(&keys, path), QN_E_ARG);
        assert_non_null(strstr(qn_error_text(), "none"));
        qn_keys_free(&keys);
    }
}

static void test_bad_lines_are_named(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "ok\na b:k", "ok\nname:",      "ok\n:key", "ok\nname:key:root",
        "ok\nok",    "ok\nk\xc3\xa9y", "a:1\na:2"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        qn_keys keys = {0};
        write_file(bad[i], 0600);
        assert_int_equal(qn_keys_read(&keys, path), QN_E_ARG);
        assert_string_equal(qn_error_where(), "line 2");
        qn_keys_free(&keys);
    }
    qn_keys keys = {0};
    assert_int_equal(qn_keys_add(&keys, QN_STR("")), QN_E_ARG);
    qn_keys_free(&keys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_presented_key_is_found_by_its_digest),
        cmocka_unit_test(test_file_gives_names_and_rights),
        cmocka_unit_test(test_file_that_others_may_read_is_refused),
        cmocka_unit_test(test_credential_may_be_readable_for_its_group),
        cmocka_unit_test(test_file_without_keys_is_refused),
        cmocka_unit_test(test_bad_lines_are_named),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
