/* npy files: every type and layout there and back, other writers' headers, and
 * what is refused. */
#include "memory.h"

#include "io/npy.h"

/* A file with this header (padded as the format says), then `size` bytes. */
static void make_file(memory *m, int version, const char *header,
                      const void *data, size_t size)
{
    qn_buf file = QN_BUF_INIT;
    qn_buf_add(&file, "\x93NUMPY", 6);
    qn_buf_add_char(&file, (char)version);
    qn_buf_add_char(&file, 0);
    size_t length = strlen(header) + 1;
    uint8_t le[4];
    qn_put_le32(le, (uint32_t)length);
    qn_buf_add(&file, le, version == 1 ? 2 : 4);
    qn_buf_add_text(&file, header);
    qn_buf_add_char(&file, '\n');
    qn_buf_add(&file, data, size);
    memory_set(m, file.data, file.size);
    qn_buf_free(&file);
}

static qn_status load(qn_array **out, memory *m)
{
    qn_io *io = memory_io(m);
    if (!io)
        return QN_E_NOMEM;
    qn_status status = qn_npy_load(out, io, test_stream());
    qn_io_unref(io);
    return status;
}

static void check_round_trip(qn_array *a)
{
    memory m = MEMORY_INIT;
    qn_io *io = memory_io(&m);
    qn_array *back;
    check_status(qn_npy_save(io, a), QN_OK);
    qn_io_unref(io);
    assert_int_equal((m.bytes.size - qn_array_nbytes(a)) % 64, 0);
    m.position = 0;
    check_status(load(&back, &m), QN_OK);
    check_same(back, a);
    qn_array_unref(back);
    assert_int_equal(m.frees, 2);
    qn_buf_free(&m.bytes);
}

static void test_every_type_and_layout_comes_back(void **state)
{
    (void)state;
    for (int type = 0; type < QN_DTYPE_COUNT; type++) {
        qn_dtype dtype = (qn_dtype)type;
        qn_array *row = patterned(dtype, SHAPE(3, 5));
        int64_t turned[] = {1, 5}, apart[] = {10, 2}, back[] = {-5, -1};
        qn_array *arrays[] = {
            row,
            view_of(row, SHAPE(5, 3), turned, 0),
            view_of(row, SHAPE(2, 2), apart, 1),
            view_of(row, SHAPE(3, 5), back, 14),
            strided(patterned(dtype, SHAPE(2, 3, 4))),
            patterned(dtype, SCALAR),
            patterned(dtype, SHAPE(0, 3)),
            patterned(dtype, SHAPE(1, 1, 1, 1, 1, 1, 2)),
        };
        for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
            check_round_trip(arrays[i]);
            qn_array_unref(arrays[i]);
        }
    }
}

static void test_pending_arrays_are_evaluated(void **state)
{
    (void)state;
    qn_array *pending, *wanted = array_of(QN_INT32, VALUES(5, 6, 7), SHAPE(3));
    check_status(qn_op_arange(&pending, 5, 8, 1, QN_INT32, test_stream()),
                 QN_OK);
    memory m = MEMORY_INIT;
    qn_io *io = memory_io(&m);
    check_status(qn_npy_save(io, pending), QN_OK);
    qn_io_unref(io);
    qn_array *back;
    m.position = 0;
    check_status(load(&back, &m), QN_OK);
    check_same(back, wanted);
    qn_array_unref(back);
    qn_array_unref(pending);
    qn_array_unref(wanted);
    qn_buf_free(&m.bytes);
}

static void test_the_header_is_what_numpy_writes(void **state)
{
    (void)state;
    memory m = MEMORY_INIT;
    qn_io *io = memory_io(&m);
    qn_array *a = array_of(QN_INT16, VALUES(1, 2, 3), SHAPE(3));
    check_status(qn_npy_save(io, a), QN_OK);
    static const char wanted[] =
        "\x93NUMPY\x01\x00\x76\x00"
        "{'descr': '<i2', 'fortran_order': False, 'shape': (3,), }";
    assert_int_equal(m.bytes.size, 128 + 6);
    assert_memory_equal(m.bytes.data, wanted, sizeof wanted - 1);
    for (size_t i = sizeof wanted - 1; i < 127; i++)
        assert_int_equal(m.bytes.data[i], ' ');
    assert_int_equal(m.bytes.data[127], '\n');
    qn_io_unref(io);
    qn_array_unref(a);
    qn_buf_free(&m.bytes);
}

static void test_other_writers_headers_are_read(void **state)
{
    (void)state;
    static const struct {
        int version;
        const char *header;
    } cases[] = {
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }   "},
        {2, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"},
        {3, "{'shape':(2),'fortran_order':False,'descr':'=f4'}"},
        {1, "{\"descr\": \"<f4\", \"fortran_order\": True, \"shape\": (2, )}"},
        {1, " { 'descr' : '|f4' ,\t'fortran_order':True,'shape':( 2L , ),} \n"},
    };
    qn_array *wanted = array_of(QN_FLOAT32, VALUES(1.5, -2), SHAPE(2));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memory m = MEMORY_INIT;
        qn_array *a;
        make_file(&m, cases[i].version, cases[i].header, qn_array_data(wanted),
                  8);
        check_status(load(&a, &m), QN_OK);
        check_same(a, wanted);
        /* Left at the elements, for whoever has several files in a row. */
        assert_int_equal(m.position, m.bytes.size - 8);
        qn_array_unref(a);
        qn_buf_free(&m.bytes);
    }
    qn_array_unref(wanted);
}

static void test_order_and_byte_order_are_undone(void **state)
{
    (void)state;
    memory m = MEMORY_INIT;
    qn_array *a,
        *wanted = array_of(QN_INT16, VALUES(1, 2, 3, 4, 5, 6), SHAPE(2, 3));
    make_file(&m, 1, "{'descr':'>i2','fortran_order':True,'shape':(2,3)}",
              "\0\1\0\4\0\2\0\5\0\3\0\6", 12);
    check_status(load(&a, &m), QN_OK);
    check_same(a, wanted);
    qn_array_unref(a);
    qn_array_unref(wanted);

    /* The two halves of a complex number are swapped each for itself. */
    make_file(&m, 1, "{'descr':'>c8','fortran_order':False,'shape':()}",
              "\x3f\x80\0\0\x40\0\0\0", 8);
    check_status(load(&a, &m), QN_OK);
    check_status(qn_eval(&a, 1), QN_OK);
    const float *parts = qn_array_data(a);
    assert_true(parts[0] == 1 && parts[1] == 2);
    qn_array_unref(a);
    qn_buf_free(&m.bytes);
}

static void test_files_may_follow_each_other(void **state)
{
    (void)state;
    memory m = MEMORY_INIT;
    qn_io *io = memory_io(&m);
    qn_array *first = patterned(QN_INT8, SHAPE(5)), *a, *b;
    qn_array *second = patterned(QN_FLOAT16, SHAPE(2, 2));
    check_status(qn_npy_save(io, first), QN_OK);
    size_t middle = m.bytes.size;
    check_status(qn_npy_save(io, second), QN_OK);
    m.position = 0;
    check_status(qn_npy_load(&a, io, test_stream()), QN_OK);
    m.position = middle;
    check_status(qn_npy_load(&b, io, test_stream()), QN_OK);
    check_same(b, second);
    check_same(a, first);
    qn_io_unref(io);
    qn_array_unref(a);
    qn_array_unref(b);
    qn_array_unref(first);
    qn_array_unref(second);
    qn_buf_free(&m.bytes);
}

static void test_bad_headers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header, *part;
        qn_status status;
    } cases[] = {
        {"", "'{'", QN_E_FORMAT},
        {"[]", "'{'", QN_E_FORMAT},
        {"{", "a key in quotes", QN_E_FORMAT},
        {"{'descr", "a key in quotes", QN_E_FORMAT},
        {"{'descr'", "':'", QN_E_FORMAT},
        {"{'descr':", "a type in quotes", QN_E_FORMAT},
        {"{'descr':'<f4'", "',' or '}'", QN_E_FORMAT},
        {"{'descr':'<f4' 'shape':()}", "',' or '}'", QN_E_FORMAT},
        {"{'descr':'<f4','descr':'<f4'}", "once, found 'descr'", QN_E_FORMAT},
        {"{'colour':'red'}", "found 'colour'", QN_E_FORMAT},
        {"{'descr':'<f4','fortran_order':False}", "no shape", QN_E_FORMAT},
        {"{'descr':'<f4','shape':()}", "no fortran_order", QN_E_FORMAT},
        {"{'shape':(),'fortran_order':False}", "no descr", QN_E_FORMAT},
        {"{'descr':'<f4','fortran_order':0,'shape':()}", "True or False",
         QN_E_FORMAT},
        {"{'descr':'<f4','fortran_order':False,'shape':3}", "a shape",
         QN_E_FORMAT},
        {"{'descr':'<f4','fortran_order':False,'shape':(-3)}", "a dimension",
         QN_E_FORMAT},
        {"{'descr':'<f4','fortran_order':False,'shape':(3 4)}", "',' or ')'",
         QN_E_FORMAT},
        {"{'descr':'<f4','fortran_order':False,'shape':(2147483648)}",
         "at most 2147483647", QN_E_FORMAT},
        {"{'descr':'<f4','fortran_order':False,'shape':"
         "(99999999999999999999999999)}",
         "at most 2147483647", QN_E_FORMAT},
        {"{'descr':'<f4','fortran_order':False,'shape':(1,1,1,1,1,1,1,1,1,1,1,"
         "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)}",
         "at most 32 dimensions", QN_E_FORMAT},
        {"{'descr':'<f4','fortran_order':False,'shape':(2147483647,2147483647,"
         "2147483647)}",
         "too many elements", QN_E_ARG},
        {"{'descr':'<f4','fortran_order':False,'shape':()} x", "white space",
         QN_E_FORMAT},
        {"{'descr':[('a','<f4')],'fortran_order':False,'shape':()}", "records",
         QN_E_UNSUPPORTED},
        {"{'descr':'<U4','fortran_order':False,'shape':()}", "'<U4'",
         QN_E_UNSUPPORTED},
        {"{'descr':'<c16','fortran_order':False,'shape':()}", "'<c16'",
         QN_E_UNSUPPORTED},
        {"{'descr':'<f3','fortran_order':False,'shape':()}", "'<f3'",
         QN_E_UNSUPPORTED},
        {"{'descr':'f4','fortran_order':False,'shape':()}", "'f4'",
         QN_E_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memory m = MEMORY_INIT;
        qn_array *a = NULL;
        make_file(&m, 1, cases[i].header, "", 0);
        qn_error_clear();
        check_error(load(&a, &m), cases[i].status, cases[i].part);
        if (cases[i].status != QN_E_ARG)
            assert_string_equal(qn_error_where(), "memory");
        assert_null(a);
        assert_int_equal(m.frees, 1);
        qn_buf_free(&m.bytes);
    }
}

static void test_what_is_no_npy_file_is_refused(void **state)
{
    (void)state;
    memory m = MEMORY_INIT;
    qn_array *a = NULL;
    memory_set(&m, "PK\3\4 some archive", 17);
    check_error(load(&a, &m), QN_E_FORMAT, "[load] Invalid header in file mem");
    memory_set(&m, "\x93NUMPY\4\0", 8);
    check_error(load(&a, &m), QN_E_UNSUPPORTED, "version in file memory");
    memory_set(&m, "\x93NUMPY\2\0\xff\xff\xff\xff", 12);
    check_error(load(&a, &m), QN_E_FORMAT, "a length of 4294967295");
    m.closed = true;
    check_error(load(&a, &m), QN_E_IO, "[load] Failed to open memory");
    qn_io *io = memory_io(&m);
    qn_array *value = patterned(QN_INT8, SCALAR);
    check_error(qn_npy_save(io, value), QN_E_IO, "[save] Failed to open");
    qn_array_unref(value);
    qn_io_unref(io);
    assert_null(a);
    qn_buf_free(&m.bytes);
}

/* Each prefix is refused, when it is loaded or when it is evaluated. */
static void test_truncated_files_are_refused(void **state)
{
    (void)state;
    memory m = MEMORY_INIT;
    make_file(&m, 1, "{'descr':'<f4','fortran_order':False,'shape':(2,)}",
              "01234567", 8);
    for (size_t size = 0; size < m.bytes.size; size++) {
        memory cut = MEMORY_INIT;
        qn_array *a = NULL;
        memory_set(&cut, m.bytes.data, size);
        qn_status status = load(&a, &cut);
        if (!status)
            status = qn_eval(&a, 1);
        check_error(status, QN_E_IO, "unable to read");
        qn_array_unref(a);
        assert_int_equal(cut.frees, 1);
        qn_buf_free(&cut.bytes);
    }
    qn_buf_free(&m.bytes);
}

static void test_a_short_write_is_an_error(void **state)
{
    (void)state;
    qn_array *a = patterned(QN_INT32, SHAPE(10));
    for (size_t limit = 0; limit < 128 + 40; limit += 7) {
        memory m = MEMORY_INIT;
        qn_io *io = memory_io(&m);
        m.limit = limit;
        check_error(qn_npy_save(io, a), QN_E_IO, "unable to write");
        assert_int_equal(m.bytes.size, limit);
        qn_io_unref(io);
        qn_buf_free(&m.bytes);
    }
    qn_array_unref(a);
}

static memory each_file, each_copy;

static qn_status load_and_save(void)
{
    qn_array *a = NULL;
    each_file.position = 0;
    qn_status status = load(&a, &each_file);
    qn_io *io = status ? NULL : memory_io(&each_copy);
    qn_buf_clear(&each_copy.bytes);
    if (!status)
        status = io ? qn_npy_save(io, a) : QN_E_NOMEM;
    qn_io_unref(io);
    qn_array_unref(a);
    return status;
}

static void test_each_allocation_may_fail(void **state)
{
    (void)state;
    test_stream();
    each_file = each_copy = MEMORY_INIT;
    make_file(&each_file, 1,
              "{'descr':'<i2','fortran_order':True,'shape':(2,2)}", "01234567",
              8);
    assert_true(qn_buf_reserve(&each_copy.bytes, 256));
    each_alloc_may_fail(load_and_save);
    assert_int_equal(each_copy.bytes.size, 128 + 8);
    assert_memory_equal(each_copy.bytes.data + 128, "01234567", 8);
    qn_buf_free(&each_file.bytes);
    qn_buf_free(&each_copy.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_and_layout_comes_back),
        cmocka_unit_test(test_pending_arrays_are_evaluated),
        cmocka_unit_test(test_the_header_is_what_numpy_writes),
        cmocka_unit_test(test_other_writers_headers_are_read),
        cmocka_unit_test(test_order_and_byte_order_are_undone),
        cmocka_unit_test(test_files_may_follow_each_other),
        cmocka_unit_test(test_bad_headers_are_refused),
        cmocka_unit_test(test_what_is_no_npy_file_is_refused),
        cmocka_unit_test(test_truncated_files_are_refused),
        cmocka_unit_test(test_a_short_write_is_an_error),
        cmocka_unit_test(test_each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, io_setup, NULL);
}
