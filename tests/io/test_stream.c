/* Streams: what a caller's functions answer becomes bytes or an error, and
 * its descriptor is freed once. */
#include "memory.h"

#include "core/defer.h"

static void test_bytes_come_and_go(void **state)
{
    (void)state;
    memory m = MEMORY_INIT;
    qn_io *io = memory_io(&m);
    char text[8] = {0};
    check_status(qn_io_write(io, "abc", 3), QN_OK);
    check_status(qn_io_write(io, "defg", 4), QN_OK);
    check_status(qn_io_read_at(io, text, 3, 2), QN_OK);
    assert_string_equal(text, "cde");
    m.position = 1;
    check_status(qn_io_read(io, text, 4), QN_OK);
    assert_string_equal(text, "bcde");
    size_t at = 0, end = 0;
    check_status(qn_io_tell(&at, io), QN_OK);
    check_status(qn_io_end(&end, io), QN_OK);
    assert_true(at == 5 && end == 7 && m.position == 5);
    assert_ptr_equal(qn_io_descriptor(io), &m);
    assert_string_equal(qn_io_label(io), "memory");
    assert_true(qn_io_known_size(io) == SIZE_MAX);
    check_status(qn_io_check(io, "load"), QN_OK);
    qn_io_unref(io);
    qn_buf_free(&m.bytes);
}

static void test_another_count_than_asked_for_is_an_error(void **state)
{
    (void)state;
    memory m = MEMORY_INIT;
    qn_io *io = memory_io(&m);
    char data[16];
    memory_set(&m, "abcd", 4);
    check_error(qn_io_read(io, data, 10), QN_E_IO,
                "[mlx_io_reader] unable to read 10 bytes (read 4 instead) in "
                "memory");
    check_error(qn_io_read_at(io, data, 3, 2), QN_E_IO,
                "unable to read 3 bytes (read 2 instead) in memory");
    check_error(qn_io_read_at(io, data, 3, SIZE_MAX), QN_E_IO,
                "(read 0 instead)");
    m.limit = 1;
    check_error(qn_io_write(io, "xyz", 3), QN_E_IO,
                "unable to write 3 bytes (wrote 1 instead) in memory");
    /* Nothing is always there. */
    int reads = m.reads;
    check_status(qn_io_read(io, data, 0), QN_OK);
    check_status(qn_io_read_at(io, data, 0, 99), QN_OK);
    check_status(qn_io_write(io, data, 0), QN_OK);
    assert_int_equal(m.reads, reads);
    qn_io_unref(io);
    qn_buf_free(&m.bytes);
}

static void test_streams_say_that_they_are_no_use(void **state)
{
    (void)state;
    memory m = MEMORY_INIT;
    qn_io *io = memory_io(&m);
    size_t end = 1;
    m.stuck = true;
    check_error(qn_io_end(&end, io), QN_E_IO, "unable to seek in memory");
    m.position = SIZE_MAX;
    check_error(qn_io_tell(&end, io), QN_E_IO, "unable to tell");
    assert_int_equal(end, 1);
    m.closed = true;
    check_error(qn_io_check(io, "load"), QN_E_IO,
                "[load] Failed to open memory");
    m.closed = false;
    m.bad = true;
    check_error(qn_io_check(io, "save"), QN_E_IO,
                "[save] Failed to open memory");
    qn_io_unref(io);
}

static void test_missing_functions_count_as_failing(void **state)
{
    (void)state;
    const qn_io_calls none = {0};
    qn_io *io;
    char c = 'c';
    size_t end;
    check_status(qn_io_new(&io, "reader", NULL, &none, SIZE_MAX), QN_OK);
    check_error(qn_io_check(io, "load"), QN_E_IO, "without a name");
    check_error(qn_io_read(io, &c, 1), QN_E_IO, "read 0 instead");
    check_error(qn_io_read_at(io, &c, 1, 0), QN_E_IO, "read 0 instead");
    check_error(qn_io_write(io, &c, 1), QN_E_IO, "wrote 0 instead");
    check_error(qn_io_tell(&end, io), QN_E_IO, "position");
    check_error(qn_io_end(&end, io), QN_E_IO, "position");
    qn_io_unref(io);
    qn_io_unref(NULL);
}

static void test_the_descriptor_is_freed_once_and_under_no_lock(void **state)
{
    (void)state;
    memory m = MEMORY_INIT;
    qn_io *io = memory_io(&m);
    qn_io_unref(qn_io_ref(io));
    assert_int_equal(m.frees, 0);
    qn_defer_begin();
    qn_io_unref(io);
    assert_int_equal(m.frees, 0);
    qn_defer_end();
    assert_int_equal(m.frees, 1);
}

static void test_the_descriptor_is_freed_when_memory_is_out(void **state)
{
    (void)state;
    memory m = MEMORY_INIT;
    qn_io *io = NULL;
    qn_test_fail_alloc(0);
    qn_status status = qn_io_new(&io, "reader", &m, &memory_calls, 0);
    qn_test_fail_alloc(-1);
    check_status(status, QN_E_NOMEM);
    assert_null(io);
    assert_int_equal(m.frees, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_come_and_go),
        cmocka_unit_test(test_another_count_than_asked_for_is_an_error),
        cmocka_unit_test(test_streams_say_that_they_are_no_use),
        cmocka_unit_test(test_missing_functions_count_as_failing),
        cmocka_unit_test(test_the_descriptor_is_freed_once_and_under_no_lock),
        cmocka_unit_test(test_the_descriptor_is_freed_when_memory_is_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
