/* Files: mapping, reading with a limit, replacing atomically. */
#include "support/qn_test.h"

#include <dirent.h>
#include <sys/stat.h>

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

static void test_a_mapped_file_shows_its_bytes(void **state)
{
    (void)state;
    temp_write_text(dir, "a", "hello");
    char *path = path_of("a");
    qn_file *file = NULL;
    check_status(qn_file_map(&file, path), QN_OK);
    qn_bytes bytes = qn_file_bytes(file);
    assert_int_equal(bytes.size, 5);
    assert_memory_equal(bytes.data, "hello", 5);
    assert_string_equal(qn_file_path(file), path);
    /* It stays mapped while anyone refers to it, and without its name. */
    assert_ptr_equal(qn_file_ref(file), file);
    qn_file_unref(file);
    assert_int_equal(unlink(path), 0);
    assert_memory_equal(qn_file_bytes(file).data, "hello", 5);
    qn_file_unref(file);
    qn_file_unref(NULL);
    qn_free(path);
}

static void test_an_empty_file_maps_to_an_empty_range(void **state)
{
    (void)state;
    temp_write_text(dir, "empty", "");
    char *path = path_of("empty");
    qn_file *file = NULL;
    check_status(qn_file_map(&file, path), QN_OK);
    assert_int_equal(qn_file_bytes(file).size, 0);
    qn_file_will_need(file, 0, 10);
    qn_file_unref(file);
    qn_free(path);
}

static void test_what_cannot_be_mapped_is_named(void **state)
{
    (void)state;
    qn_file *file = NULL;
    char *missing = path_of("missing"), *below = path_of("plain/below");
    temp_write_text(dir, "plain", "x");
    check_error(qn_file_map(&file, missing), QN_E_NOTFOUND, "No such");
    assert_string_equal(qn_error_where(), missing);
    check_error(qn_file_map(&file, below), QN_E_NOTFOUND, "Not a directory");
    check_error(qn_file_map(&file, dir), QN_E_IO, "a directory");
    char *pipe_path = path_of("pipe");
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    check_status(qn_file_map(&file, pipe_path), QN_E_IO);
    assert_null(file);
    qn_free(missing);
    qn_free(below);
    qn_free(pipe_path);
}

static void test_advice_leaves_the_bytes_as_they_are(void **state)
{
    (void)state;
    size_t size = 5 * 4096 + 17;
    char *data = malloc(size);
    for (size_t i = 0; i < size; i++)
        data[i] = (char)(i % 251);
    temp_write(dir, "big", data, size);
    char *path = path_of("big");
    qn_file *file = NULL;
    check_status(qn_file_map(&file, path), QN_OK);
    const size_t points[] = {0, 1, 4095, 4096, 9000, size - 1, size, SIZE_MAX};
    for (size_t i = 0; i < 8; i++) {
        for (size_t k = 0; k < 8; k++) {
            qn_file_will_need(file, points[i], points[k]);
            qn_file_dont_need(file, points[i], points[k]);
        }
    }
    assert_memory_equal(qn_file_bytes(file).data, data, size);
    qn_file_unref(file);
    qn_free(path);
    free(data);
}

static void test_reading_keeps_to_the_limit(void **state)
{
    (void)state;
    temp_write_text(dir, "ten", "0123456789");
    char *path = path_of("ten"), *text = NULL;
    size_t size = 0;
    check_status(qn_file_read(&text, &size, path, 10), QN_OK);
    assert_int_equal(size, 10);
    assert_string_equal(text, "0123456789");
    qn_free(text);
    text = NULL;
    check_error(qn_file_read(&text, &size, path, 9), QN_E_FORMAT, "at most 9");
    check_status(qn_file_read(&text, NULL, dir, 9), QN_E_IO);
    assert_null(text);
    qn_free(path);
}

static void test_files_without_a_size_are_read_to_their_end(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    check_status(qn_file_read(&text, &size, "/proc/self/maps", 1 << 24), QN_OK);
    assert_true(size > 100);
    assert_int_equal(strlen(text), size);
    qn_free(text);
}

static void test_what_is_no_file_is_refused_at_once(void **state)
{
    (void)state;
    char *pipe = path_of("waits"), *text = NULL;
    assert_int_equal(mkfifo(pipe, 0600), 0);
    /* Nobody writes to it: a plain open would wait. */
    check_error(qn_file_read(&text, NULL, pipe, 9), QN_E_IO, "found a pipe");
    check_error(qn_file_check(pipe), QN_E_IO, "found a pipe");
    check_error(qn_file_try(pipe), QN_E_IO, "found a pipe");
    check_error(qn_file_read(&text, NULL, "/dev/null", 9), QN_E_IO,
                "found a device");
    check_error(qn_file_check(dir), QN_E_IO, "found a directory");
    check_error(qn_file_check("/nowhere/at/all"), QN_E_NOTFOUND, "no such");
    assert_string_equal(qn_error_where(), "/nowhere/at/all");
    check_status(qn_file_read_any(&text, NULL, "/dev/null", 9), QN_OK);
    assert_string_equal(text, "");
    qn_free(text);
    assert_int_equal(unlink(pipe), 0);
    qn_free(pipe);
}

static size_t entries(const char *path)
{
    DIR *d = opendir(path);
    assert_non_null(d);
    size_t n = 0;
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void test_a_try_leaves_everything_as_it_was(void **state)
{
    (void)state;
    temp_write_text(dir, "tried/conf", "old");
    char *path = path_of("tried/conf"), *sub = path_of("tried"), *text = NULL;
    char *other = path_of("tried/other"), *none = path_of("none/conf");
    check_status(qn_file_try(path), QN_OK);
    check_status(qn_file_try(other), QN_OK);
    check_status(qn_file_try(sub), QN_E_IO);
    check_status(qn_file_try(none), QN_E_NOTFOUND);
    assert_int_equal(entries(sub), 1);
    check_status(qn_file_read(&text, NULL, path, 100), QN_OK);
    assert_string_equal(text, "old");
    qn_free(text);
    qn_free(path);
    qn_free(sub);
    qn_free(other);
    qn_free(none);
}

static void test_replacing_leaves_only_the_new_contents(void **state)
{
    (void)state;
    temp_write_text(dir, "sub/conf", "old contents");
    char *path = path_of("sub/conf"), *sub = path_of("sub"), *text = NULL;
    check_status(qn_file_write_atomic(path, "new", 3), QN_OK);
    check_status(qn_file_read(&text, NULL, path, 100), QN_OK);
    assert_string_equal(text, "new");
    qn_free(text);
    check_status(qn_file_write_atomic(path, NULL, 0), QN_OK);
    assert_int_equal(entries(sub), 1);
    qn_free(path);
    qn_free(sub);
}

static unsigned mode_of(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return info.st_mode & 0777;
}

static void test_the_mode_is_the_old_file_s_or_follows_the_umask(void **state)
{
    (void)state;
    char *path = path_of("mode");
    mode_t mask = umask(027);
    check_status(qn_file_write_atomic(path, "a", 1), QN_OK);
    assert_int_equal(mode_of(path), 0640);
    assert_int_equal(chmod(path, 0606), 0);
    check_status(qn_file_write_atomic(path, "b", 1), QN_OK);
    assert_int_equal(mode_of(path), 0606);
    umask(mask);
    qn_free(path);
}

static void test_pieces_appear_at_once_or_never(void **state)
{
    (void)state;
    temp_write_text(dir, "pieces/f", "old");
    char *path = path_of("pieces/f"), *sub = path_of("pieces"), *text = NULL;
    for (int commit = 0; commit < 2; commit++) {
        qn_file_writer *writer;
        check_status(qn_file_begin(&writer, path), QN_OK);
        check_status(qn_file_append(writer, "one ", 4), QN_OK);
        check_status(qn_file_append(writer, "two", 3), QN_OK);
        check_status(qn_file_read(&text, NULL, path, 100), QN_OK);
        assert_string_equal(text, "old");
        qn_free(text);
        if (commit)
            check_status(qn_file_commit(writer), QN_OK);
        else
            qn_file_abort(writer);
        assert_int_equal(entries(sub), 1);
        check_status(qn_file_read(&text, NULL, path, 100), QN_OK);
        assert_string_equal(text, commit ? "one two" : "old");
        qn_free(text);
    }
    qn_file_abort(NULL);
    qn_free(path);
    qn_free(sub);
}

static void test_a_failed_replacement_leaves_nothing_behind(void **state)
{
    (void)state;
    char *missing = path_of("no/such/place"), *sub = path_of("sub2");
    check_status(qn_file_write_atomic(missing, "x", 1), QN_E_NOTFOUND);
    /* A directory can't be replaced by a file. */
    temp_write_text(dir, "sub2/target/inside", "x");
    char *target = path_of("sub2/target");
    check_status(qn_file_write_atomic(target, "x", 1), QN_E_IO);
    assert_true(qn_path_is_dir(target));
    assert_int_equal(entries(sub), 1);
    /* Nor a device or a pipe, neither by a link. */
    char *pipe = path_of("sub2/pipe"), *link = path_of("sub2/link");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(symlink("pipe", link), 0);
    check_status(qn_file_write_atomic(pipe, "x", 1), QN_E_IO);
    check_error(qn_file_write_atomic(link, "x", 1), QN_E_IO, "regular file");
    assert_int_equal(entries(sub), 3);
    qn_free(pipe);
    qn_free(link);
    qn_free(missing);
    qn_free(sub);
    qn_free(target);
}

static void test_paths_are_joined_with_one_slash(void **state)
{
    (void)state;
    const char *cases[][3] = {
        {"a", "b", "a/b"},
        {"a/", "b", "a/b"},
        {"", "b", "b"},
        {"/", "b", "/b"},
    };
    for (size_t i = 0; i < 4; i++) {
        char *path = qn_path_join(cases[i][0], cases[i][1]);
        assert_string_equal(path, cases[i][2]);
        qn_free(path);
    }
}

static void test_path_questions(void **state)
{
    (void)state;
    temp_write_text(dir, "f", "x");
    char *file = path_of("f"), *missing = path_of("g");
    assert_true(qn_path_exists(dir) && qn_path_exists(file));
    assert_false(qn_path_exists(missing));
    assert_true(qn_path_is_dir(dir));
    assert_false(qn_path_is_dir(file) || qn_path_is_dir(missing));
    qn_free(file);
    qn_free(missing);
}

static qn_status use_files(void)
{
    char *path = qn_path_join(dir, "each"), *text = NULL;
    qn_file *file = NULL;
    qn_status status = path ? QN_OK : QN_E_NOMEM;
    if (!status)
        status = qn_file_write_atomic(path, "text", 4);
    if (!status)
        status = qn_file_read(&text, NULL, path, 100);
    if (!status)
        status = qn_file_map(&file, path);
    qn_file_unref(file);
    qn_free(text);
    qn_free(path);
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
        cmocka_unit_test(test_a_mapped_file_shows_its_bytes),
        cmocka_unit_test(test_an_empty_file_maps_to_an_empty_range),
        cmocka_unit_test(test_what_cannot_be_mapped_is_named),
        cmocka_unit_test(test_advice_leaves_the_bytes_as_they_are),
        cmocka_unit_test(test_reading_keeps_to_the_limit),
        cmocka_unit_test(test_files_without_a_size_are_read_to_their_end),
        cmocka_unit_test(test_what_is_no_file_is_refused_at_once),
        cmocka_unit_test(test_a_try_leaves_everything_as_it_was),
        cmocka_unit_test(test_replacing_leaves_only_the_new_contents),
        cmocka_unit_test(test_the_mode_is_the_old_file_s_or_follows_the_umask),
        cmocka_unit_test(test_pieces_appear_at_once_or_never),
        cmocka_unit_test(test_a_failed_replacement_leaves_nothing_behind),
        cmocka_unit_test(test_paths_are_joined_with_one_slash),
        cmocka_unit_test(test_path_questions),
        cmocka_unit_test(test_each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
