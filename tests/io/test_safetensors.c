/* Safetensors files of arrays: there and back, what is refused, and saving over
 * what is still to be read. */
#include "memory.h"

#include "io/elements.h"
#include "io/file.h"
#include "io/safetensors.h"

static void make_file(memory *m, const char *header, const void *data,
                      size_t size)
{
    uint8_t length[8];
    qn_put_le64(length, strlen(header));
    qn_buf_clear(&m->bytes);
    qn_buf_add(&m->bytes, length, 8);
    qn_buf_add_text(&m->bytes, header);
    qn_buf_add(&m->bytes, data, size);
    assert_false(m->bytes.failed);
    m->position = 0;
}

typedef struct contents {
    qn_map *arrays, *metadata;
} contents;

static void clear(contents *c)
{
    qn_named_free(c->arrays);
    qn_map_free(c->metadata, qn_free);
    *c = (contents){0};
}

static qn_status load(contents *c, memory *m)
{
    qn_io *io = memory_io(m);
    if (!io)
        return QN_E_NOMEM;
    qn_status status =
        qn_safetensors_load(&c->arrays, &c->metadata, io, test_stream());
    qn_io_unref(io);
    return status;
}

static qn_status save(memory *m, const contents *c)
{
    qn_io *io = memory_io(m);
    if (!io)
        return QN_E_NOMEM;
    qn_status status = qn_safetensors_save(io, c->arrays, c->metadata);
    qn_io_unref(io);
    return status;
}

static contents new_contents(void)
{
    contents c = {qn_map_new(0), qn_map_new(0)};
    assert_true(c.arrays && c.metadata);
    return c;
}

static void put(contents *c, const char *name, qn_array *array)
{
    check_status(qn_named_add(c->arrays, qn_str_of(name), "", array), QN_OK);
}

static void put_text(contents *c, const char *key, const char *value)
{
    qn_map_put(c->metadata, qn_named_key(key), NULL)->ptr = qn_strdup(value);
}

static qn_array *get(const contents *c, const char *name)
{
    const qn_map_value *slot = qn_map_get(c->arrays, qn_named_key(name));
    assert_non_null(slot);
    return slot->ptr;
}

static void check_same_contents(const contents *found, const contents *wanted)
{
    assert_int_equal(qn_map_size(found->arrays), qn_map_size(wanted->arrays));
    for (size_t i = 0; i < qn_map_size(wanted->arrays); i++) {
        const char *name = qn_map_key_at(wanted->arrays, i).data;
        check_same(get(found, name), qn_map_value_at(wanted->arrays, i)->ptr);
    }
    assert_int_equal(qn_map_size(found->metadata),
                     qn_map_size(wanted->metadata));
    for (size_t i = 0; i < qn_map_size(wanted->metadata); i++) {
        const qn_map_value *slot =
            qn_map_get(found->metadata, qn_map_key_at(wanted->metadata, i));
        assert_non_null(slot);
        assert_string_equal(slot->ptr,
                            qn_map_value_at(wanted->metadata, i)->ptr);
    }
}

/* Every dtype, but float64. */
static contents sample(void)
{
    contents c = new_contents();
    for (int type = 0; type < QN_DTYPE_COUNT; type++) {
        qn_dtype dtype = (qn_dtype)type;
        if (dtype == QN_FLOAT64)
            continue;
        char name[64];
        const char *base = qn_dtype_name(dtype);
        put(&c, base, patterned(dtype, SHAPE(3, 5)));
        snprintf(name, sizeof name, "%s \"strided\"\n", base);
        put(&c, name, strided(patterned(dtype, SHAPE(3, 2, 4))));
        snprintf(name, sizeof name, "%s/\xe6\xa8\xa1", base);
        put(&c, name, patterned(dtype, SCALAR));
        snprintf(name, sizeof name, "%s.none", base);
        put(&c, name, patterned(dtype, SHAPE(0, 4)));
    }
    put_text(&c, "format", "pt");
    put_text(&c, "\xe6\xa8\xa1", "a \"quoted\" \\ line\n\xf0\x9f\x98\x80");
    return c;
}

static void test_everything_comes_back(void **state)
{
    (void)state;
    contents c = sample(), back;
    memory m = MEMORY_INIT;
    check_status(save(&m, &c), QN_OK);
    m.position = 0;
    check_status(load(&back, &m), QN_OK);
    check_same_contents(&back, &c);
    clear(&back);
    clear(&c);
    assert_int_equal(m.frees, 2);
    qn_buf_free(&m.bytes);
}

static void test_files_are_aligned_and_the_same_each_time(void **state)
{
    (void)state;
    contents c = new_contents();
    put(&c, "b", array_of(QN_UINT8, VALUES(9), SHAPE(1)));
    put(&c, "z", array_of(QN_INT32, VALUES(1), SHAPE(1)));
    put(&c, "a", array_of(QN_INT32, VALUES(2), SCALAR));
    memory m = MEMORY_INIT;
    check_status(save(&m, &c), QN_OK);
    static const char wanted[] =
        "{\"a\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[0,4]},"
        "\"z\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[4,8]},"
        "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[8,9]}}";
    size_t front = (8 + sizeof wanted - 1 + 7) / 8 * 8;
    assert_int_equal(m.bytes.size, front + 9);
    assert_int_equal(qn_le64((const uint8_t *)m.bytes.data), front - 8);
    assert_memory_equal(m.bytes.data + 8, wanted, sizeof wanted - 1);
    for (size_t i = 8 + sizeof wanted - 1; i < front; i++)
        assert_int_equal(m.bytes.data[i], ' ');
    assert_memory_equal(m.bytes.data + front, "\2\0\0\0\1\0\0\0\x09", 9);
    clear(&c);
    qn_buf_free(&m.bytes);
}

static void test_a_file_may_have_nothing_in_it(void **state)
{
    (void)state;
    contents c = new_contents(), back;
    memory m = MEMORY_INIT;
    check_status(save(&m, &c), QN_OK);
    assert_int_equal(m.bytes.size, 16);
    assert_memory_equal(m.bytes.data + 8, "{}      ", 8);
    m.position = 0;
    check_status(load(&back, &m), QN_OK);
    check_same_contents(&back, &c);
    clear(&back);
    clear(&c);
    qn_buf_free(&m.bytes);
}

static void test_a_file_may_begin_inside_the_stream(void **state)
{
    (void)state;
    contents c = new_contents(), back;
    put(&c, "x", patterned(QN_FLOAT32, SHAPE(3)));
    memory m = MEMORY_INIT;
    memory_set(&m, "prefix", 6);
    check_status(save(&m, &c), QN_OK);
    m.position = 6;
    check_status(load(&back, &m), QN_OK);
    check_same_contents(&back, &c);
    clear(&back);
    clear(&c);
    qn_buf_free(&m.bytes);
}

static void test_eight_bit_floats_come_as_their_bits(void **state)
{
    (void)state;
    contents c;
    memory m = MEMORY_INIT;
    make_file(&m,
              "{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[2],"
              "\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"F8_E8M0\","
              "\"shape\":[1],\"data_offsets\":[2,3]}}",
              "\x38\xc0\x7f", 3);
    check_status(load(&c, &m), QN_OK);
    qn_array *a = array_of(QN_UINT8, VALUES(0x38, 0xc0), SHAPE(2));
    check_same(get(&c, "a"), a);
    assert_int_equal(get(&c, "b")->dtype, QN_UINT8);
    qn_array_unref(a);
    clear(&c);
    qn_buf_free(&m.bytes);
}

static void test_bad_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header, *part;
        qn_status status;
    } cases[] = {
        {"{\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}}",
         "unsupported dtype F64 of tensor \"a\"", QN_E_UNSUPPORTED},
        {"{\"a\":{\"dtype\":\"F8_E5M2\",\"shape\":[8],"
         "\"data_offsets\":[0,8]}}",
         "F8_E5M2", QN_E_UNSUPPORTED},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[8],\"data_offsets\":[0,8]}}",
         "known dtype", QN_E_UNSUPPORTED},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0,4294967296],"
         "\"data_offsets\":[0,0]},\"b\":{\"dtype\":\"U8\",\"shape\":[8],"
         "\"data_offsets\":[0,8]}}",
         "a: expected dimensions of at most", QN_E_FORMAT},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
         "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,8]}}",
         "at most 32 dimensions, found 33", QN_E_UNSUPPORTED},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[9],\"data_offsets\":[0,9]}}",
         "data_offsets", QN_E_FORMAT},
        {"[]", "expected '{'", QN_E_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memory m = MEMORY_INIT;
        contents c = {0};
        make_file(&m, cases[i].header, "01234567", 8);
        qn_error_clear();
        check_error(load(&c, &m), cases[i].status, cases[i].part);
        assert_string_equal(qn_error_where(), "memory");
        assert_null(c.arrays);
        assert_int_equal(m.frees, 1);
        qn_buf_free(&m.bytes);
    }
}

static void test_truncated_files_are_refused(void **state)
{
    (void)state;
    contents c = new_contents();
    put(&c, "x", patterned(QN_INT16, SHAPE(3)));
    memory m = MEMORY_INIT;
    check_status(save(&m, &c), QN_OK);
    clear(&c);
    for (size_t size = 0; size < m.bytes.size; size++) {
        memory cut = MEMORY_INIT;
        memory_set(&cut, m.bytes.data, size);
        qn_status status = load(&c, &cut);
        assert_true(status == QN_E_FORMAT || status == QN_E_IO);
        assert_int_equal(cut.frees, 1);
        qn_buf_free(&cut.bytes);
    }
    qn_buf_free(&m.bytes);
}

static void test_streams_that_fail_are_named(void **state)
{
    (void)state;
    contents c = new_contents();
    put(&c, "x", patterned(QN_INT16, SHAPE(3)));
    memory m = MEMORY_INIT;
    check_status(save(&m, &c), QN_OK);
    contents back = {0};
    m.position = 0;
    m.stuck = true;
    check_error(load(&back, &m), QN_E_IO,
                "[mlx_io_reader] unable to seek in memory");
    m.stuck = false;
    m.limit = 20;
    check_error(load(&back, &m), QN_E_IO, "(read 12 instead) in memory");
    m.limit = SIZE_MAX;
    m.bad = true;
    check_error(load(&back, &m), QN_E_IO, "[load_safetensors] Failed to open");
    check_error(save(&m, &c), QN_E_IO, "[save_safetensors] Failed to open");
    m.bad = false;
    for (size_t limit = 0; limit < m.bytes.size; limit += 9) {
        memory to = MEMORY_INIT;
        to.limit = limit;
        check_error(save(&to, &c), QN_E_IO, "unable to write");
        qn_buf_free(&to.bytes);
    }
    assert_null(back.arrays);
    clear(&c);
    qn_buf_free(&m.bytes);
}

static void test_what_the_format_cannot_hold_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *key, *value, *part;
    } cases[] = {
        {"__metadata__", NULL, NULL, "can't be called __metadata__"},
        {"\xff", NULL, NULL, "the name of an array in UTF-8"},
        {"x", "k", "\xc3", "metadata in UTF-8"},
        {"x", "\x80", "v", "metadata in UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        contents c = new_contents();
        memory m = MEMORY_INIT;
        put(&c, cases[i].name, patterned(QN_INT8, SHAPE(2)));
        if (cases[i].key)
            put_text(&c, cases[i].key, cases[i].value);
        check_error(save(&m, &c), QN_E_ARG, cases[i].part);
        assert_int_equal(m.bytes.size, 0);
        clear(&c);
    }
    contents c = new_contents();
    memory m = MEMORY_INIT;
    put(&c, "w", patterned(QN_FLOAT64, SHAPE(2)));
    check_error(save(&m, &c), QN_E_ARG,
                "received invalid dtype float64 of array \"w\"");
    assert_int_equal(m.bytes.size, 0);
    clear(&c);
}

/* Arrays that are yet to be read, written over what they come from. */
static void test_a_file_is_saved_over_itself(void **state)
{
    (void)state;
    char *dir = temp_dir_new(), *path = qn_path_join(dir, "x.safetensors");
    contents wanted = sample(), c, again;
    qn_io *io;
    check_status(qn_io_create(&io, "save", path), QN_OK);
    check_status(qn_io_commit(io, qn_safetensors_save(io, wanted.arrays,
                                                      wanted.metadata)),
                 QN_OK);
    for (int round = 0; round < 2; round++) {
        check_status(qn_io_open(&io, "load", path), QN_OK);
        check_status(
            qn_safetensors_load(&c.arrays, &c.metadata, io, test_stream()),
            QN_OK);
        if (round) { /* and some that are not saved, but still wanted */
            check_status(qn_safetensors_load(&again.arrays, &again.metadata, io,
                                             test_stream()),
                         QN_E_FORMAT); /* the position is behind the header */
            qn_io_unref(io);
            check_status(qn_io_open(&io, "load", path), QN_OK);
            check_status(qn_safetensors_load(&again.arrays, &again.metadata, io,
                                             test_stream()),
                         QN_OK);
        }
        qn_io_unref(io);
        check_status(qn_io_create(&io, "save", path), QN_OK);
        check_status(
            qn_io_commit(io, qn_safetensors_save(io, c.arrays, c.metadata)),
            QN_OK);
        check_same_contents(&c, &wanted);
        clear(&c);
    }
    check_same_contents(&again, &wanted);
    clear(&again);
    clear(&wanted);
    temp_dir_remove(dir);
    qn_free(path);
}

/* A caller's stream may overwrite what the arrays come from. */
static void test_all_is_read_before_the_first_byte_is_written(void **state)
{
    (void)state;
    contents wanted = sample(), c;
    memory m = MEMORY_INIT;
    check_status(save(&m, &wanted), QN_OK);
    m.position = 0;
    check_status(load(&c, &m), QN_OK);
    /* After a writer that fails at the first byte, nothing is left to read. */
    memory to = MEMORY_INIT;
    to.limit = 0;
    check_error(save(&to, &c), QN_E_IO, "wrote 0 instead");
    qn_buf_clear(&m.bytes);
    check_same_contents(&c, &wanted);
    clear(&c);
    clear(&wanted);
    qn_buf_free(&m.bytes);
}

static memory each_file, each_copy;

static qn_status load_and_save(void)
{
    contents c = {0};
    each_file.position = 0;
    qn_buf_clear(&each_copy.bytes);
    qn_status status = load(&c, &each_file);
    if (!status)
        status = save(&each_copy, &c);
    clear(&c);
    return status;
}

static void test_each_allocation_may_fail(void **state)
{
    (void)state;
    test_stream();
    each_file = each_copy = MEMORY_INIT;
    contents c = new_contents();
    put(&c, "x", strided(patterned(QN_INT16, SHAPE(3, 4))));
    put(&c, "y", patterned(QN_COMPLEX64, SHAPE(2)));
    put_text(&c, "key", "value");
    check_status(save(&each_file, &c), QN_OK);
    clear(&c);
    assert_true(qn_buf_reserve(&each_copy.bytes, 1024));
    each_alloc_may_fail(load_and_save);
    assert_int_equal(each_copy.bytes.size, each_file.bytes.size);
    assert_memory_equal(each_copy.bytes.data, each_file.bytes.data,
                        each_file.bytes.size);
    qn_buf_free(&each_file.bytes);
    qn_buf_free(&each_copy.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_comes_back),
        cmocka_unit_test(test_files_are_aligned_and_the_same_each_time),
        cmocka_unit_test(test_a_file_may_have_nothing_in_it),
        cmocka_unit_test(test_a_file_may_begin_inside_the_stream),
        cmocka_unit_test(test_eight_bit_floats_come_as_their_bits),
        cmocka_unit_test(test_bad_files_are_refused),
        cmocka_unit_test(test_truncated_files_are_refused),
        cmocka_unit_test(test_streams_that_fail_are_named),
        cmocka_unit_test(test_what_the_format_cannot_hold_is_refused),
        cmocka_unit_test(test_a_file_is_saved_over_itself),
        cmocka_unit_test(test_all_is_read_before_the_first_byte_is_written),
        cmocka_unit_test(test_each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, io_setup, NULL);
}
