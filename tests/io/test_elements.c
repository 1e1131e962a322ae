/* Elements of arrays in streams: when they are read, and that what failed can
 * be tried again. */
#include "memory.h"

#include "io/elements.h"

#include <limits.h>

static void test_elements_are_read_at_evaluation_once(void **state)
{
    (void)state;
    memory m = MEMORY_INIT;
    qn_io *io = memory_io(&m);
    qn_array *wanted = patterned(QN_INT32, SHAPE(2, 3)), *a;
    memory_set(&m, "xyz", 3);
    qn_buf_add(&m.bytes, qn_array_data(wanted), 24);
    int shape[] = {2, 3};
    const qn_elements e = {
        .offset = 3, .dtype = QN_INT32, .shape = shape, .ndim = 2};
    check_status(qn_elements_load(&a, io, &e, test_stream()), QN_OK);
    qn_io_unref(io);
    assert_int_equal(m.reads, 0);
    assert_int_equal(m.frees, 0);
    assert_false(qn_array_ready(a));
    check_same(a, wanted);
    assert_int_equal(m.reads, 1);
    assert_int_equal(m.frees, 1);
    check_same(a, wanted);
    assert_int_equal(m.reads, 1);
    qn_array_unref(a);
    qn_array_unref(wanted);
    qn_buf_free(&m.bytes);
}

static void test_an_array_let_go_unread_frees_the_stream(void **state)
{
    (void)state;
    memory m = MEMORY_INIT;
    qn_io *io = memory_io(&m);
    qn_array *a;
    int shape[] = {4};
    const qn_elements e = {.dtype = QN_UINT8, .shape = shape, .ndim = 1};
    check_status(qn_elements_load(&a, io, &e, test_stream()), QN_OK);
    qn_io_unref(io);
    qn_array_unref(a);
    assert_int_equal(m.reads, 0);
    assert_int_equal(m.frees, 1);
}

static void test_a_failed_read_can_be_tried_again(void **state)
{
    (void)state;
    memory m = MEMORY_INIT;
    qn_io *io = memory_io(&m);
    qn_array *a, *wanted = patterned(QN_FLOAT32, SHAPE(4));
    memory_set(&m, qn_array_data(wanted), 16);
    int shape[] = {4};
    const qn_elements e = {.dtype = QN_FLOAT32, .shape = shape, .ndim = 1};
    check_status(qn_elements_load(&a, io, &e, test_stream()), QN_OK);
    m.limit = 5;
    check_error(qn_eval(&a, 1), QN_E_IO,
                "unable to read 16 bytes (read 5 instead) in memory");
    assert_false(qn_array_ready(a));
    m.limit = SIZE_MAX;
    check_same(a, wanted);
    qn_io_unref(io);
    qn_array_unref(a);
    qn_array_unref(wanted);
    qn_buf_free(&m.bytes);
}

static void test_any_byte_other_than_zero_is_true(void **state)
{
    (void)state;
    memory m = MEMORY_INIT;
    qn_io *io = memory_io(&m);
    qn_array *a;
    memory_set(&m, "\0\1\2\xff", 4);
    int shape[] = {4};
    const qn_elements e = {.dtype = QN_BOOL, .shape = shape, .ndim = 1};
    check_status(qn_elements_load(&a, io, &e, test_stream()), QN_OK);
    check_status(qn_eval(&a, 1), QN_OK);
    assert_memory_equal(qn_array_data(a), "\0\1\1\1", 4);
    qn_io_unref(io);
    qn_array_unref(a);
    qn_buf_free(&m.bytes);
}

static void test_bytes_are_swapped_in_each_number(void **state)
{
    (void)state;
    static const struct {
        qn_dtype dtype;
        const char *wanted;
    } cases[] = {
        {QN_INT16, "10325476"},   {QN_FLOAT32, "32107654"},
        {QN_FLOAT64, "76543210"}, {QN_COMPLEX64, "32107654"},
        {QN_UINT8, "01234567"},
    };
    memory m = MEMORY_INIT;
    qn_io *io = memory_io(&m);
    memory_set(&m, "01234567", 8);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qn_array *a;
        int shape[] = {(int)(8 / qn_dtype_size(cases[i].dtype))};
        const qn_elements e = {.dtype = cases[i].dtype,
                               .shape = shape,
                               .ndim = 1,
                               .swapped = true};
        check_status(qn_elements_load(&a, io, &e, test_stream()), QN_OK);
        check_status(qn_eval(&a, 1), QN_OK);
        assert_memory_equal(qn_array_data(a), cases[i].wanted, 8);
        qn_array_unref(a);
    }
    qn_io_unref(io);
    qn_buf_free(&m.bytes);
}

static void test_dimensions_are_ints(void **state)
{
    (void)state;
    int dim = -1;
    check_status(qn_elements_dim(&dim, INT_MAX, QN_STR("x")), QN_OK);
    assert_int_equal(dim, INT_MAX);
    check_error(qn_elements_dim(&dim, (uint64_t)INT_MAX + 1, QN_STR("x")),
                QN_E_FORMAT, "x: expected dimensions of at most");
    check_error(qn_elements_dim(&dim, UINT64_MAX, QN_STR("x")), QN_E_FORMAT,
                "18446744073709551615");
    assert_int_equal(dim, INT_MAX);
}

static void test_settling_copies_only_what_has_gaps(void **state)
{
    (void)state;
    qn_array *row = patterned(QN_INT16, SHAPE(3, 4)), *settled;
    check_status(qn_elements_settle(&settled, row, false), QN_OK);
    assert_ptr_equal(settled, row);
    qn_array_unref(settled);

    int64_t strides[] = {1, 4};
    qn_array *col = view_of(row, SHAPE(4, 3), strides, 0);
    check_status(qn_elements_settle(&settled, col, true), QN_OK);
    assert_ptr_equal(settled, col);
    qn_array_unref(settled);
    check_status(qn_elements_settle(&settled, col, false), QN_OK);
    assert_true(settled->row_contiguous);
    check_same(settled, col);
    qn_array_unref(settled);

    int64_t apart[] = {4, 2}, back[] = {-4, -1}, same[] = {0, 1};
    qn_array *views[] = {view_of(row, SHAPE(3, 2), apart, 1),
                         view_of(row, SHAPE(3, 4), back, 11),
                         view_of(row, SHAPE(5, 4), same, 4)};
    for (int i = 0; i < 3; i++) {
        memory m = MEMORY_INIT;
        qn_io *io = memory_io(&m);
        check_status(qn_elements_save(io, views[i]), QN_OK);
        assert_int_equal(m.bytes.size, qn_array_nbytes(views[i]));
        for (size_t j = 0; j < views[i]->size; j++)
            assert_memory_equal(m.bytes.data + 2 * j, place_of(views[i], j), 2);
        qn_io_unref(io);
        qn_buf_free(&m.bytes);
        qn_array_unref(views[i]);
    }
    qn_array_unref(col);
    qn_array_unref(row);
}

static void test_a_name_is_given_once(void **state)
{
    (void)state;
    qn_map *map = qn_map_new(0);
    qn_array *a = patterned(QN_INT8, SHAPE(1));
    check_status(qn_named_add(map, QN_STR("x"), ".y", qn_array_ref(a)), QN_OK);
    check_status(qn_named_add(map, QN_STR("x"), "", qn_array_ref(a)), QN_OK);
    check_error(qn_named_add(map, QN_STR("x."), "y", qn_array_ref(a)),
                QN_E_FORMAT, "named \"x.y\"");
    assert_ptr_equal(qn_map_get(map, qn_named_key("x.y"))->ptr, a);
    check_str(qn_named_text(qn_map_key_at(map, 0)), "x.y");
    check_status(qn_named_eval(map), QN_OK);
    assert_int_equal(atomic_load(&a->refs), 3);
    qn_named_free(map);
    assert_int_equal(atomic_load(&a->refs), 1);
    qn_array_unref(a);
}

static memory each_memory;

static qn_status load_and_save(void)
{
    qn_io *io = memory_io(&each_memory);
    if (!io)
        return QN_E_NOMEM;
    int shape[] = {2, 2};
    const qn_elements e = {
        .dtype = QN_INT32, .shape = shape, .ndim = 2, .col_major = true};
    qn_array *a = NULL;
    qn_map *map = NULL;
    qn_status status = qn_elements_load(&a, io, &e, test_stream());
    if (!status) {
        map = qn_map_new(0);
        status = map ? qn_named_add(map, QN_STR("a"), "", qn_array_ref(a))
                     : QN_E_NOMEM;
    }
    if (!status)
        status = qn_named_eval(map);
    qn_buf_truncate(&each_memory.bytes, 16);
    if (!status)
        status = qn_elements_save(io, a);
    qn_named_free(map);
    qn_array_unref(a);
    qn_io_unref(io);
    /* The memory's own failure counts as a short write. */
    return each_memory.bytes.failed ? QN_E_NOMEM : status;
}

static void test_each_allocation_may_fail(void **state)
{
    (void)state;
    test_stream();
    each_memory = MEMORY_INIT;
    memory_set(&each_memory, "0123456789abcdef", 16);
    assert_true(qn_buf_reserve(&each_memory.bytes, 64));
    each_alloc_may_fail(load_and_save);
    assert_memory_equal(each_memory.bytes.data + 16, "012389ab4567cdef", 16);
    qn_buf_free(&each_memory.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elements_are_read_at_evaluation_once),
        cmocka_unit_test(test_an_array_let_go_unread_frees_the_stream),
        cmocka_unit_test(test_a_failed_read_can_be_tried_again),
        cmocka_unit_test(test_any_byte_other_than_zero_is_true),
        cmocka_unit_test(test_bytes_are_swapped_in_each_number),
        cmocka_unit_test(test_dimensions_are_ints),
        cmocka_unit_test(test_settling_copies_only_what_has_gaps),
        cmocka_unit_test(test_a_name_is_given_once),
        cmocka_unit_test(test_each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, io_setup, NULL);
}
