/* Files as streams: what is opened, what replaces what, what an error says. */
#include "memory.h"

#include "io/file.h"

#include <fcntl.h>

static char *dir;

static int setup(void **state)
{
    (void)state;
    dir = temp_dir_new();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    temp_dir_remove(dir);
    return 0;
}

static char *path_of(const char *name)
{
    char *path = qn_path_join(dir, name);
    assert_non_null(path);
    return path;
}

static void check_contents(const char *path, const char *wanted)
{
    char *text;
    check_status(qn_file_read(&text, NULL, path, 1000), QN_OK);
    assert_string_equal(text, wanted);
    qn_free(text);
}

static void test_files_are_read_anywhere(void **state)
{
    (void)state;
    temp_write_text(dir, "f", "0123456789");
    char *path = path_of("f"), text[16] = {0};
    qn_io *io;
    size_t end;
    check_status(qn_io_open(&io, "load", path), QN_OK);
    check_status(qn_io_check(io, "load"), QN_OK);
    check_status(qn_io_read(io, text, 3), QN_OK);
    check_status(qn_io_read_at(io, text + 3, 2, 8), QN_OK);
    check_status(qn_io_read(io, text + 5, 2), QN_OK);
    assert_string_equal(text, "0128934");
    check_status(qn_io_end(&end, io), QN_OK);
    assert_true(end == 10 && qn_io_known_size(io) == 10);
    check_error(qn_io_read(io, text, 6), QN_E_IO, "(read 5 instead)");
    assert_non_null(strstr(qn_error_text(), path));
    check_error(qn_io_read_at(io, text, 1, SIZE_MAX), QN_E_IO,
                "(read 0 instead)");

    qn_bytes map;
    check_status(qn_io_map(&map, io), QN_OK);
    assert_int_equal(map.size, 10);
    assert_memory_equal(map.data, "0123456789", 10);
    qn_io_unmap(map);
    qn_io_unref(io);
    qn_free(path);
}

static void test_an_empty_file_has_an_empty_map(void **state)
{
    (void)state;
    temp_write_text(dir, "empty", "");
    char *path = path_of("empty");
    qn_io *io;
    qn_bytes map;
    check_status(qn_io_open(&io, "load", path), QN_OK);
    check_status(qn_io_map(&map, io), QN_OK);
    assert_int_equal(map.size, 0);
    qn_io_unmap(map);
    qn_io_unref(io);
    qn_free(path);
}

static void test_what_cannot_be_read_is_named(void **state)
{
    (void)state;
    char *missing = path_of("100%s.npy"), *pipe = path_of("pipe");
    qn_io *io = NULL;
    check_error(qn_io_open(&io, "load", missing), QN_E_NOTFOUND,
                "[load] Failed to open file ");
    assert_non_null(strstr(qn_error_text(), "/100%s.npy: No such file"));
    check_error(qn_io_open(&io, "load", dir), QN_E_IO, "a directory");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    check_error(qn_io_open(&io, "load", pipe), QN_E_IO, "something else");
    check_error(qn_io_open(&io, "load", ""), QN_E_NOTFOUND, "Failed to open");
    assert_null(io);
    qn_free(missing);
    qn_free(pipe);
}

static void test_a_file_appears_whole_or_not_at_all(void **state)
{
    (void)state;
    temp_write_text(dir, "new", "before");
    char *path = path_of("new");
    qn_io *io;
    for (int fails = 1; fails >= 0; fails--) {
        check_status(qn_io_create(&io, "save", path), QN_OK);
        check_status(qn_io_check(io, "save"), QN_OK);
        check_status(qn_io_write(io, "af", 2), QN_OK);
        check_status(qn_io_write(io, "ter", 3), QN_OK);
        check_contents(path, "before");
        qn_status status = fails ? QN_E_MISMATCH : QN_OK;
        check_status(qn_io_commit(io, status), status);
        check_contents(path, fails ? "before" : "after");
    }
    /* A file that is being read stays what it was. */
    char text[6] = {0};
    qn_io *old;
    check_status(qn_io_open(&old, "load", path), QN_OK);
    check_status(qn_io_create(&io, "save", path), QN_OK);
    check_status(qn_io_commit(io, QN_OK), QN_OK);
    check_contents(path, "");
    check_status(qn_io_read_at(old, text, 5, 0), QN_OK);
    assert_string_equal(text, "after");
    qn_io_unref(old);
    qn_free(path);
}

static void test_links_are_followed_and_modes_kept(void **state)
{
    (void)state;
    temp_write_text(dir, "deep/target", "old");
    char *target = path_of("deep/target"), *link = path_of("link");
    assert_int_equal(chmod(target, 0640), 0);
    assert_int_equal(symlink("deep/target", link), 0);
    qn_io *io;
    check_status(qn_io_create(&io, "save", link), QN_OK);
    check_status(qn_io_write(io, "new", 3), QN_OK);
    check_status(qn_io_commit(io, QN_OK), QN_OK);
    struct stat info;
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(lstat(target, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    check_contents(target, "new");
    qn_free(target);
    qn_free(link);
}

static void test_what_is_no_file_is_written_to_directly(void **state)
{
    (void)state;
    char *pipe = path_of("out.npy"), text[8] = {0};
    assert_int_equal(mkfifo(pipe, 0600), 0);
    int fd = open(pipe, O_RDONLY | O_NONBLOCK);
    assert_true(fd >= 0);
    qn_io *io;
    check_status(qn_io_create(&io, "save", pipe), QN_OK);
    check_status(qn_io_write(io, "bytes", 5), QN_OK);
    check_status(qn_io_commit(io, QN_OK), QN_OK);
    assert_int_equal(read(fd, text, sizeof text), 5);
    assert_string_equal(text, "bytes");
    close(fd);
    struct stat info;
    assert_int_equal(stat(pipe, &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
    qn_free(pipe);
}

static void test_a_failing_write_says_why(void **state)
{
    (void)state;
    struct stat info;
    if (stat("/dev/full", &info))
        skip();
    qn_io *io;
    check_status(qn_io_create(&io, "save", "/dev/full"), QN_OK);
    qn_status status = qn_io_write(io, "x", 1);
    check_error(status, QN_E_IO, "unable to write 1 bytes (wrote 0 instead)");
    check_error(qn_io_commit(io, status), QN_E_IO, "No space left");
    io = NULL;
    char *nowhere = path_of("no/such/place.npy");
    check_error(qn_io_create(&io, "save", nowhere), QN_E_NOTFOUND,
                "[save] Failed to open file ");
    assert_null(io);
    qn_free(nowhere);
}

static qn_status use_files(void)
{
    char path[512];
    snprintf(path, sizeof path, "%s/each", dir);
    qn_io *io = NULL;
    qn_status status = qn_io_create(&io, "save", path);
    if (status)
        return status;
    status = qn_io_commit(io, qn_io_write(io, "x", 1));
    io = NULL;
    if (!status)
        status = qn_io_open(&io, "load", path);
    qn_io_unref(io);
    return status;
}

static void test_each_allocation_may_fail(void **state)
{
    (void)state;
    each_alloc_may_fail(use_files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_are_read_anywhere),
        cmocka_unit_test(test_an_empty_file_has_an_empty_map),
        cmocka_unit_test(test_what_cannot_be_read_is_named),
        cmocka_unit_test(test_a_file_appears_whole_or_not_at_all),
        cmocka_unit_test(test_links_are_followed_and_modes_kept),
        cmocka_unit_test(test_what_is_no_file_is_written_to_directly),
        cmocka_unit_test(test_a_failing_write_says_why),
        cmocka_unit_test(test_each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
