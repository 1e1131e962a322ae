/* One file on its way to the disk: what is continued, refused and deleted. */
#include "support/qn_test.h"

#include "hub/fetch.h"

static char partial[64], target[64];
static const char content[] = "0123456789";
/* SHA-256 of the ten digits, and git's SHA-1 of a file of them. */
static const char sha256[] =
    "84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882";
static const char git[] = "ad471007bd7f5983d273b9584e5629230150fd54";

static int set_up(void **state)
{
    (void)state;
    snprintf(partial, sizeof partial, "/tmp/quern-fetch-%d.part",
             (int)getpid());
    snprintf(target, sizeof target, "/tmp/quern-fetch-%d", (int)getpid());
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(partial);
    unlink(target);
    return 0;
}

static qn_fetch make(const char *name, uint64_t size, const char *hash)
{
    return (qn_fetch){.name = name,
                      .size = size,
                      .hash = hash,
                      .partial = partial,
                      .target = target,
                      .verify = true,
                      .fd = -1};
}

static void test_a_partial_file_is_continued(void **state)
{
    (void)state;
    const char *const hashes[] = {sha256, git};
    for (size_t i = 0; i < 2; i++) {
        qn_fetch f = make("x", 10, hashes[i]);
        check_status(qn_file_write_atomic(partial, content, 4), QN_OK);
        check_status(qn_fetch_open(&f), QN_OK);
        assert_int_equal(f.done, 4);
        check_status(qn_fetch_add(&f, content + 4, 6), QN_OK);
        assert_false(qn_path_exists(target));
        check_status(qn_fetch_finish(&f), QN_OK);
        assert_true(qn_fetch_is_there(&f, target));
        assert_false(qn_path_exists(partial));
        unlink(target);
    }
}

static void test_a_wrong_digest_deletes_it(void **state)
{
    (void)state;
    qn_fetch f = make("x", 10, sha256);
    check_status(qn_fetch_open(&f), QN_OK);
    check_status(qn_fetch_add(&f, "0123456780", 10), QN_OK);
    check_error(qn_fetch_finish(&f), QN_E_INTEGRITY, sha256);
    assert_false(qn_path_exists(partial));
    assert_false(qn_path_exists(target));
}

static void test_more_bytes_than_announced_delete_it(void **state)
{
    (void)state;
    qn_fetch f = make("x", 10, sha256);
    check_status(qn_fetch_open(&f), QN_OK);
    check_status(qn_fetch_add(&f, content, 8), QN_OK);
    check_error(qn_fetch_add(&f, content, 3), QN_E_INTEGRITY, "more come");
    assert_false(qn_path_exists(partial));
}

static void test_a_partial_file_that_is_too_long_is_emptied(void **state)
{
    (void)state;
    qn_fetch f = make("x", 10, sha256);
    check_status(qn_file_write_atomic(partial, "0123456789ab", 12), QN_OK);
    check_status(qn_fetch_open(&f), QN_OK);
    assert_int_equal(f.done, 0);
    check_status(qn_fetch_add(&f, content, 5), QN_OK);
    check_status(qn_fetch_restart(&f), QN_OK);
    check_status(qn_fetch_add(&f, content, 10), QN_OK);
    check_status(qn_fetch_finish(&f), QN_OK);
}

static void test_headers_are_checked_as_they_come(void **state)
{
    (void)state;
    static const char good[] = "\x02\0\0\0\0\0\0\0{}";
    static const char bad[] = "\x02\0\0\0\0\0\0\0[]";
    static const char long_head[] = "\xff\0\0\0\0\0\0\0{}";
    qn_fetch f = make("m.safetensors", 10, "");
    check_status(qn_fetch_open(&f), QN_OK);
    for (int i = 0; i < 10; i++)
        check_status(qn_fetch_add(&f, good + i, 1), QN_OK);
    check_status(qn_fetch_finish(&f), QN_OK);
    f = make("m.safetensors", 10, "");
    check_status(qn_fetch_open(&f), QN_OK);
    check_status(qn_fetch_add(&f, bad, 9), QN_OK);
    check_status(qn_fetch_add(&f, bad + 9, 1), QN_E_FORMAT);
    assert_false(qn_path_exists(partial));
    f = make("m.safetensors", 10, "");
    check_status(qn_file_write_atomic(partial, long_head, 9), QN_OK);
    check_status(qn_fetch_open(&f), QN_E_FORMAT);
    assert_false(qn_path_exists(partial));
    f = make("m.safetensors", 3, "");
    check_status(qn_fetch_open(&f), QN_OK);
    check_status(qn_fetch_add(&f, "\0\0\0", 3), QN_OK);
    check_error(qn_fetch_finish(&f), QN_E_FORMAT, "end of the file");
}

static qn_status fetch_it(void)
{
    static const char good[] = "\x02\0\0\0\0\0\0\0{}";
    qn_fetch f = make("m.safetensors", 10, "");
    qn_status status = qn_fetch_open(&f);
    if (!status)
        status = qn_fetch_add(&f, good, 10);
    if (!status)
        status = qn_fetch_finish(&f);
    qn_fetch_close(&f);
    unlink(partial);
    return status;
}

static void test_memory_may_run_out(void **state)
{
    (void)state;
    each_alloc_may_fail(fetch_it);
}

#define row(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        row(test_a_partial_file_is_continued),
        row(test_a_wrong_digest_deletes_it),
        row(test_more_bytes_than_announced_delete_it),
        row(test_a_partial_file_that_is_too_long_is_emptied),
        row(test_headers_are_checked_as_they_come),
        row(test_memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
