/* GGUF headers: what is read, and every way in which one can lie. */
#include "support/qn_test.h"

#include "base/gguf.h"

#include <math.h>

/* ---- writing files by hand ---- */

static void put32(qn_buf *out, uint32_t value)
{
    uint8_t bytes[4];
    qn_put_le32(bytes, value);
    qn_buf_add(out, bytes, sizeof bytes);
}

static void put64(qn_buf *out, uint64_t value)
{
    uint8_t bytes[8];
    qn_put_le64(bytes, value);
    qn_buf_add(out, bytes, sizeof bytes);
}

static void put_str(qn_buf *out, qn_str text)
{
    put64(out, text.size);
    qn_buf_add_str(out, text);
}

static void put_text(qn_buf *out, const char *text)
{
    put_str(out, qn_str_of(text));
}

static void put_head(qn_buf *out, uint64_t tensors, uint64_t keys)
{
    qn_buf_add_text(out, "GGUF");
    put32(out, 3);
    put64(out, tensors);
    put64(out, keys);
}

static void put_key(qn_buf *out, const char *key, qn_gguf_value_type type)
{
    put_text(out, key);
    put32(out, type);
}

static void put_array(qn_buf *out, const char *key, qn_gguf_value_type item,
                      uint64_t count)
{
    put_key(out, key, QN_GGUF_ARRAY);
    put32(out, item);
    put64(out, count);
}

static void put_tensor(qn_buf *out, const char *name, uint32_t ndim,
                       const uint64_t *dims, uint32_t type, uint64_t offset)
{
    put_text(out, name);
    put32(out, ndim);
    for (uint32_t i = 0; i < ndim; i++)
        put64(out, dims[i]);
    put32(out, type);
    put64(out, offset);
}

static void put_padding(qn_buf *out, size_t alignment)
{
    while (!out->failed && out->size % alignment)
        qn_buf_add_char(out, 0);
}

/* Every kind of value, and three tensors. */
static void put_sample(qn_buf *out)
{
    put_head(out, 3, 12);
    put_key(out, "u8", QN_GGUF_U8);
    qn_buf_add_char(out, (char)200);
    put_key(out, "i8", QN_GGUF_I8);
    qn_buf_add_char(out, (char)-2);
    put_key(out, "i32", QN_GGUF_I32);
    put32(out, (uint32_t)-5);
    put_key(out, "f32", QN_GGUF_F32);
    put32(out, 0x3fc00000); /* 1.5 */
    put_key(out, "f64", QN_GGUF_F64);
    put64(out, 0xc000000000000000); /* -2 */
    put_key(out, "yes", QN_GGUF_BOOL);
    qn_buf_add_char(out, 1);
    put_key(out, "u64", QN_GGUF_U64);
    put64(out, UINT64_MAX);
    put_key(out, "name", QN_GGUF_STRING);
    put_text(out, "llama");
    put_key(out, "general.alignment", QN_GGUF_U32);
    put32(out, 16);
    put_array(out, "tokens", QN_GGUF_STRING, 3);
    put_text(out, "a");
    put_text(out, "");
    put_text(out, "\xff\xfe");
    put_array(out, "types", QN_GGUF_I16, 2);
    qn_buf_add(out, "\x01\x00\xff\xff", 4);
    put_array(out, "flags", QN_GGUF_BOOL, 2);
    qn_buf_add(out, "\x00\x01", 2);
    put_tensor(out, "w", 2, (uint64_t[]){3, 2}, QN_GGUF_F32_T, 0);
    put_tensor(out, "q", 1, (uint64_t[]){32}, QN_GGUF_Q8_0_T, 32);
    put_tensor(out, "s", 0, NULL, QN_GGUF_F32_T, 80);
    put_padding(out, 16);
    for (int i = 0; i < 84; i++)
        qn_buf_add_char(out, (char)i);
}

/* ---- reading them ---- */

typedef struct opened {
    qn_gguf *gguf;
    uint8_t *bytes;
} opened;

/* Parses a copy that ends where the file ends; frees the buffer. */
static qn_status open_file(opened *out, qn_buf *file)
{
    check_status(qn_buf_status(file), QN_OK);
    out->gguf = NULL;
    out->bytes = exact_copy(file->data, file->size);
    qn_status status =
        qn_gguf_parse(&out->gguf, (qn_bytes){out->bytes, file->size});
    qn_buf_free(file);
    return status;
}

static void done(opened o)
{
    qn_gguf_free(o.gguf);
    free(o.bytes);
}

static void check_refused(qn_buf *file, qn_status code, const char *part)
{
    opened o;
    qn_error_clear();
    check_error(open_file(&o, file), code, part);
    assert_null(o.gguf);
    done(o);
}

static void test_keys_of_every_type_are_read(void **state)
{
    (void)state;
    qn_buf file = QN_BUF_INIT;
    opened o;
    put_sample(&file);
    check_status(open_file(&o, &file), QN_OK);
    const qn_gguf *g = o.gguf;
    assert_int_equal(qn_gguf_version(g), 3);
    assert_int_equal(qn_gguf_key_count(g), 12);
    check_str(qn_gguf_key_at(g, 0), "u8");
    assert_ptr_equal(qn_gguf_value_at(g, 0), qn_gguf_get(g, "u8"));
    int64_t i;
    double f;
    bool b;
    qn_str s;
    check_status(qn_gguf_get_int(g, "u8", &i), QN_OK);
    assert_true(i == 200);
    check_status(qn_gguf_get_int(g, "i8", &i), QN_OK);
    assert_true(i == -2);
    check_status(qn_gguf_get_int(g, "i32", &i), QN_OK);
    assert_true(i == -5);
    check_status(qn_gguf_get_float(g, "f32", &f), QN_OK);
    assert_true(f == 1.5);
    check_status(qn_gguf_get_float(g, "f64", &f), QN_OK);
    assert_true(f == -2);
    check_status(qn_gguf_get_float(g, "i32", &f), QN_OK);
    assert_true(f == -5);
    check_status(qn_gguf_get_bool(g, "yes", &b), QN_OK);
    assert_true(b);
    check_status(qn_gguf_get_str(g, "name", &s), QN_OK);
    check_str(s, "llama");
    done(o);
    qn_gguf_free(NULL);
}

static void test_typed_reads_say_what_they_found(void **state)
{
    (void)state;
    qn_buf file = QN_BUF_INIT;
    opened o;
    put_sample(&file);
    check_status(open_file(&o, &file), QN_OK);
    const qn_gguf *g = o.gguf;
    int64_t i = 7;
    double f = 7;
    bool b = true;
    qn_str s = QN_STR("kept");
    check_error(qn_gguf_get_int(g, "nope", &i), QN_E_NOTFOUND, "nope");
    check_error(qn_gguf_get_int(g, "f32", &i), QN_E_FORMAT,
                "key \"f32\": expected an integer, found float32");
    check_error(qn_gguf_get_int(g, "yes", &i), QN_E_FORMAT, "found bool");
    check_error(qn_gguf_get_int(g, "u64", &i), QN_E_FORMAT, "below 2^63");
    check_error(qn_gguf_get_float(g, "name", &f), QN_E_FORMAT, "found string");
    check_error(qn_gguf_get_bool(g, "u8", &b), QN_E_FORMAT, "found uint8");
    check_error(qn_gguf_get_str(g, "tokens", &s), QN_E_FORMAT, "found array");
    check_status(qn_gguf_get_bool(g, "nope", &b), QN_E_NOTFOUND);
    check_status(qn_gguf_get_float(g, "nope", &f), QN_E_NOTFOUND);
    check_status(qn_gguf_get_str(g, "nope", &s), QN_E_NOTFOUND);
    assert_true(i == 7 && f == 7 && b);
    check_str(s, "kept");
    assert_null(qn_gguf_get(g, "nope"));
    done(o);
}

static void test_arrays_are_read_in_place(void **state)
{
    (void)state;
    qn_buf file = QN_BUF_INIT;
    opened o;
    put_sample(&file);
    check_status(open_file(&o, &file), QN_OK);
    const qn_gguf_value *tokens = qn_gguf_get(o.gguf, "tokens");
    const qn_gguf_value *types = qn_gguf_get(o.gguf, "types");
    const qn_gguf_value *flags = qn_gguf_get(o.gguf, "flags");
    assert_int_equal(tokens->type, QN_GGUF_ARRAY);
    assert_int_equal(tokens->as.array.item, QN_GGUF_STRING);
    assert_int_equal(tokens->as.array.count, 3);
    check_str(qn_gguf_array_str(tokens, 0), "a");
    check_str(qn_gguf_array_str(tokens, 1), "");
    check_str(qn_gguf_array_str(tokens, 2), "\xff\xfe");
    assert_true(qn_gguf_array_int(types, 0) == 1);
    assert_true(qn_gguf_array_int(types, 1) == -1);
    assert_true(qn_gguf_array_float(types, 1) == -1);
    assert_true(qn_gguf_array_int(flags, 0) == 0);
    assert_true(qn_gguf_array_int(flags, 1) == 1);
    done(o);
}

static void test_arrays_of_every_number_type_are_read(void **state)
{
    (void)state;
    const struct {
        qn_gguf_value_type item;
        const char *bytes; /* two items */
        size_t size;
        double values[2];
    } cases[] = {
        {QN_GGUF_U8, "\x01\xff", 2, {1, 255}},
        {QN_GGUF_I8, "\x01\xff", 2, {1, -1}},
        {QN_GGUF_U16, "\x00\x01\xff\xff", 4, {256, 65535}},
        {QN_GGUF_I16, "\x00\x01\xff\xff", 4, {256, -1}},
        {QN_GGUF_U32,
         "\x00\x00\x01\x00\xff\xff\xff\xff",
         8,
         {65536, 4294967295}},
        {QN_GGUF_I32, "\x00\x00\x01\x00\xff\xff\xff\xff", 8, {65536, -1}},
        {QN_GGUF_U64,
         "\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80",
         16,
         {4294967296, 9223372036854775808.0}},
        {QN_GGUF_I64,
         "\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80",
         16,
         {4294967296, -9223372036854775808.0}},
        {QN_GGUF_F32, "\x00\x00\xc0\x3f\x00\x00\x80\xff", 8, {1.5, -INFINITY}},
        {QN_GGUF_F64,
         "\x00\x00\x00\x00\x00\x00\xf8\x3f\x00\x00\x00\x00\x00\x00\xf0\xff",
         16,
         {1.5, -INFINITY}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qn_buf file = QN_BUF_INIT;
        opened o;
        put_head(&file, 0, 1);
        put_array(&file, "a", cases[i].item, 2);
        qn_buf_add(&file, cases[i].bytes, cases[i].size);
        check_status(open_file(&o, &file), QN_OK);
        const qn_gguf_value *array = qn_gguf_get(o.gguf, "a");
        for (size_t k = 0; k < 2; k++) {
            assert_true(qn_gguf_array_float(array, k) == cases[i].values[k]);
            if (cases[i].item != QN_GGUF_F32 && cases[i].item != QN_GGUF_F64 &&
                cases[i].item != QN_GGUF_U64)
                assert_true((double)qn_gguf_array_int(array, k) ==
                            cases[i].values[k]);
        }
        done(o);
    }
}

static void test_tensors_are_placed(void **state)
{
    (void)state;
    qn_buf file = QN_BUF_INIT;
    opened o;
    put_sample(&file);
    size_t size = file.size;
    check_status(open_file(&o, &file), QN_OK);
    const uint8_t *data = o.bytes + size - 84;
    assert_int_equal(qn_gguf_tensor_count(o.gguf), 3);
    const qn_gguf_tensor *w = qn_gguf_find(o.gguf, QN_STR("w"));
    assert_ptr_equal(w, qn_gguf_tensor_at(o.gguf, 0));
    assert_int_equal(w->ndim, 2);
    assert_true(w->dims[0] == 3 && w->dims[1] == 2 && w->dims[2] == 1 &&
                w->dims[3] == 1);
    assert_true(w->elements == 6);
    assert_ptr_equal(w->data.data, data);
    assert_int_equal(w->data.size, 24);
    const qn_gguf_tensor *q = qn_gguf_find(o.gguf, QN_STR("q"));
    assert_int_equal(q->type, QN_GGUF_Q8_0_T);
    assert_ptr_equal(q->data.data, data + 32);
    assert_int_equal(q->data.size, 34);
    const qn_gguf_tensor *s = qn_gguf_find(o.gguf, QN_STR("s"));
    assert_int_equal(s->ndim, 0);
    assert_int_equal(s->data.size, 4);
    assert_null(qn_gguf_find(o.gguf, QN_STR("ww")));
    done(o);
}

/* A name of each length puts the end of the records at each place. */
static void test_the_data_begins_at_the_next_multiple(void **state)
{
    (void)state;
    for (int length = 1; length <= 64; length++) {
        qn_buf file = QN_BUF_INIT;
        char name[65];
        opened o;
        memset(name, 'n', sizeof name);
        name[length] = '\0';
        put_head(&file, 1, 0);
        put_tensor(&file, name, 1, (uint64_t[]){4}, QN_GGUF_I8_T, 0);
        put_padding(&file, 32);
        put32(&file, 0x04030201);
        check_status(open_file(&o, &file), QN_OK);
        assert_memory_equal(qn_gguf_tensor_at(o.gguf, 0)->data.data,
                            "\x01\x02\x03\x04", 4);
        done(o);
    }
}

static void test_both_versions_and_empty_files_are_read(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        qn_buf file = QN_BUF_INIT;
        opened o;
        put_head(&file, 0, 0);
        file.data[4] = (char)version;
        check_status(open_file(&o, &file), QN_OK);
        assert_int_equal(qn_gguf_version(o.gguf), version);
        assert_int_equal(qn_gguf_key_count(o.gguf), 0);
        assert_int_equal(qn_gguf_tensor_count(o.gguf), 0);
        done(o);
    }
}

static void test_type_names_and_blocks(void **state)
{
    (void)state;
    size_t bytes, elements;
    assert_string_equal(qn_gguf_type_name(3), "Q4_1");
    assert_string_equal(qn_gguf_type_name(39), "MXFP4");
    assert_null(qn_gguf_type_name(4));
    assert_null(qn_gguf_type_name(-1));
    assert_true(qn_gguf_type_block(14, &bytes, &elements));
    assert_int_equal(bytes, 210);
    assert_int_equal(elements, 256);
    assert_false(qn_gguf_type_block(5, &bytes, &elements));
}

/* ---- what is refused ---- */

static void test_bad_fronts_are_refused(void **state)
{
    (void)state;
    qn_buf file = QN_BUF_INIT;
    put_head(&file, 0, 0);
    file.data[0] = 'X';
    check_refused(&file, QN_E_FORMAT, "expected \"GGUF\" at byte 0");
    const uint32_t versions[] = {0, 1, 4, 0xffffffff};
    for (size_t i = 0; i < 4; i++) {
        put_head(&file, 0, 0);
        qn_put_le32((uint8_t *)file.data + 4, versions[i]);
        check_refused(&file, QN_E_UNSUPPORTED, "expected version 2 or 3");
    }
    put_head(&file, 0, 0);
    qn_put_le32((uint8_t *)file.data + 4, 3u << 24);
    check_refused(&file, QN_E_UNSUPPORTED, "big-endian");
}

static void test_counts_beyond_the_limit_or_the_file_are_refused(void **state)
{
    (void)state;
    const uint64_t counts[] = {1000001, (uint64_t)1 << 32, UINT64_MAX};
    for (size_t i = 0; i < 3; i++) {
        qn_buf file = QN_BUF_INIT;
        put_head(&file, counts[i], 0);
        check_refused(&file, QN_E_FORMAT, "tensor count of at most 1000000");
        put_head(&file, 0, counts[i]);
        check_refused(&file, QN_E_FORMAT, "key count of at most 1000000");
    }
    /* Within the limit, but a small file must not cost a large table. */
    qn_buf file = QN_BUF_INIT;
    put_head(&file, 1000000, 0);
    check_refused(&file, QN_E_FORMAT, "expected 1000000 tensors, found only 0");
    put_head(&file, 0, 1000000);
    check_refused(&file, QN_E_FORMAT, "expected 1000000 keys, found only 0");
}

static void test_strings_beyond_the_limit_or_the_file_are_refused(void **state)
{
    (void)state;
    const uint64_t sizes[] = {(64 << 20) + 1, (uint64_t)1 << 63, UINT64_MAX,
                              UINT64_MAX - 7};
    for (size_t i = 0; i < 4; i++) {
        qn_buf file = QN_BUF_INIT;
        put_head(&file, 0, 1);
        put_key(&file, "name", QN_GGUF_STRING);
        put64(&file, sizes[i]);
        qn_buf_add_text(&file, "hi");
        check_refused(&file, QN_E_FORMAT, "at most 67108864 bytes");
        put_head(&file, 0, 1);
        put64(&file, sizes[i]);
        qn_buf_add_text(&file, "hi there, key");
        check_refused(&file, QN_E_FORMAT, "a key of at most");
    }
    qn_buf file = QN_BUF_INIT;
    put_head(&file, 0, 1);
    put_key(&file, "name", QN_GGUF_STRING);
    put64(&file, 4 << 20);
    qn_buf_add_text(&file, "hi");
    check_refused(&file, QN_E_FORMAT, "found 2 to the end of the file");
}

static void test_bad_values_are_refused(void **state)
{
    (void)state;
    qn_buf file = QN_BUF_INIT;
    put_head(&file, 0, 1);
    put_key(&file, "x", (qn_gguf_value_type)13);
    put64(&file, 0);
    check_refused(&file, QN_E_FORMAT, "value type from 0 to 12, found 13");
    put_head(&file, 0, 1);
    put_key(&file, "x", QN_GGUF_BOOL);
    qn_buf_add_char(&file, 2);
    check_refused(&file, QN_E_FORMAT, "boolean 0 or 1, found 2");
    put_head(&file, 0, 1);
    put_array(&file, "x", QN_GGUF_BOOL, 3);
    qn_buf_add(&file, "\x00\x01\x09", 3);
    check_refused(&file, QN_E_FORMAT, "boolean 0 or 1, found 9");
    put_head(&file, 0, 2);
    for (int i = 0; i < 2; i++) {
        put_key(&file, "twice", QN_GGUF_U8);
        qn_buf_add_char(&file, 0);
    }
    check_refused(&file, QN_E_FORMAT, "key \"twice\": expected distinct");
    put_head(&file, 0, 1);
    put_str(&file, QN_STR("a\0b"));
    put32(&file, QN_GGUF_U8);
    qn_buf_add_char(&file, 0);
    check_refused(&file, QN_E_FORMAT, "NUL");
}

static void test_arrays_beyond_the_file_are_refused(void **state)
{
    (void)state;
    for (int item = 0; item <= QN_GGUF_F64; item++) {
        if (item == QN_GGUF_ARRAY)
            continue;
        /* One item too many (of one byte, or of what a string takes at
         * least), and counts whose bytes wrap. */
        bool small = item <= QN_GGUF_I8 || item == QN_GGUF_BOOL;
        const uint64_t counts[] = {small ? 17 : 9, (uint64_t)1 << 61,
                                   ((uint64_t)1 << 61) + 1, (uint64_t)1 << 63,
                                   UINT64_MAX};
        for (size_t i = 0; i < 5; i++) {
            qn_buf file = QN_BUF_INIT;
            put_head(&file, 0, 1);
            put_array(&file, "x", (qn_gguf_value_type)item, counts[i]);
            put64(&file, 0);
            put64(&file, 0);
            check_refused(&file, QN_E_FORMAT, "found only 16 bytes");
        }
    }
}

static void test_nested_arrays_are_refused_at_once(void **state)
{
    (void)state;
    qn_buf file = QN_BUF_INIT;
    put_head(&file, 0, 1);
    put_array(&file, "a", QN_GGUF_ARRAY, 1);
    for (int i = 0; i < 5000; i++) {
        put32(&file, QN_GGUF_ARRAY);
        put64(&file, 1);
    }
    check_refused(&file, QN_E_UNSUPPORTED, "array of arrays");
}

static void test_alignment_is_a_power_of_two_from_8(void **state)
{
    (void)state;
    const struct {
        qn_gguf_value_type type;
        uint32_t value;
        bool good;
    } cases[] = {
        {QN_GGUF_U32, 8, true},         {QN_GGUF_U32, 4096, true},
        {QN_GGUF_U32, 0, false},        {QN_GGUF_U32, 1, false},
        {QN_GGUF_U32, 4, false},        {QN_GGUF_U32, 24, false},
        {QN_GGUF_U32, 1u << 31, false}, {QN_GGUF_I32, 0x80000000, false},
        {QN_GGUF_I32, 64, true},        {QN_GGUF_F32, 0x42000000, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qn_buf file = QN_BUF_INIT;
        put_head(&file, 1, 1);
        put_key(&file, "general.alignment", cases[i].type);
        put32(&file, cases[i].value);
        put_tensor(&file, "t", 1, (uint64_t[]){4}, QN_GGUF_I8_T, 0);
        if (!cases[i].good) {
            put64(&file, 0);
            check_refused(&file, QN_E_FORMAT, "general.alignment");
            continue;
        }
        put_padding(&file, cases[i].value);
        put32(&file, 0x04030201);
        opened o;
        check_status(open_file(&o, &file), QN_OK);
        assert_memory_equal(qn_gguf_tensor_at(o.gguf, 0)->data.data,
                            "\x01\x02\x03\x04", 4);
        done(o);
    }
}

/* One tensor, then `data` bytes of data. */
static void put_one(qn_buf *out, uint32_t ndim, const uint64_t *dims,
                    uint32_t type, uint64_t offset, size_t data)
{
    put_head(out, 1, 0);
    put_tensor(out, "w", ndim, dims, type, offset);
    put_padding(out, 32);
    for (size_t i = 0; i < data; i++)
        qn_buf_add_char(out, 0);
}

static void test_lies_about_tensors_are_refused(void **state)
{
    (void)state;
    const uint64_t big = (uint64_t)1 << 32, dim31 = (uint64_t)1 << 31;
    const struct {
        uint32_t ndim;
        uint64_t dims[5];
        uint32_t type;
        uint64_t offset;
        size_t data;
        qn_status code;
        const char *part;
    } cases[] = {
        {1, {8}, QN_GGUF_F32_T, 0, 31, QN_E_FORMAT, "expected 32 bytes"},
        {1, {8}, QN_GGUF_F32_T, 32, 32, QN_E_FORMAT, "offset 32"},
        {1, {8}, QN_GGUF_F32_T, 64, 32, QN_E_FORMAT, "offset 64"},
        {1, {8}, QN_GGUF_F32_T, 16, 64, QN_E_FORMAT, "multiple of 32"},
        {1, {8}, QN_GGUF_F32_T, UINT64_MAX - 31, 64, QN_E_FORMAT, "offset"},
        {2, {32, 134217728}, QN_GGUF_Q4_1_T, 0, 64, QN_E_FORMAT, "expected"},
        {2, {big, big}, QN_GGUF_I8_T, 0, 64, QN_E_FORMAT, "2^63 elements"},
        {4,
         {65536, 65536, 65536, 65536},
         QN_GGUF_I8_T,
         0,
         64,
         QN_E_FORMAT,
         "2^63 elements"},
        {3, {big, big, 0}, QN_GGUF_I8_T, 0, 64, QN_E_FORMAT, "2^63 elements"},
        {1, {UINT64_MAX}, QN_GGUF_I8_T, 0, 64, QN_E_FORMAT, "2^63 elements"},
        {2, {dim31, dim31}, QN_GGUF_F64_T, 0, 64, QN_E_FORMAT, "2^64 bytes"},
        {2, {dim31, dim31}, QN_GGUF_F32_T, 0, 64, QN_E_FORMAT, "2^64 bytes"},
        {1, {33}, QN_GGUF_Q8_0_T, 0, 64, QN_E_FORMAT, "a multiple of 32"},
        {2, {16, 2}, QN_GGUF_Q8_0_T, 0, 64, QN_E_FORMAT, "a multiple of 32"},
        {0, {0}, QN_GGUF_Q8_0_T, 0, 64, QN_E_FORMAT, "a multiple of 32"},
        {1, {128}, QN_GGUF_Q6_K_T, 0, 640, QN_E_FORMAT, "a multiple of 256"},
        {5, {1, 1, 1, 1, 1}, QN_GGUF_I8_T, 0, 64, QN_E_FORMAT, "at most 4"},
        {1, {32}, 4, 0, 64, QN_E_UNSUPPORTED, "tensor \"w\": expected a known"},
        {1, {32}, 40, 0, 64, QN_E_UNSUPPORTED, "found 40"},
        {1, {32}, 0xffffffff, 0, 64, QN_E_UNSUPPORTED, "known tensor type"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qn_buf file = QN_BUF_INIT;
        put_one(&file, cases[i].ndim, cases[i].dims, cases[i].type,
                cases[i].offset, cases[i].data);
        check_refused(&file, cases[i].code, cases[i].part);
    }
    qn_buf file = QN_BUF_INIT;
    put_head(&file, 1, 0);
    put_tensor(&file, "w", 0xffffffff & 4, (uint64_t[4]){1, 1, 1, 1},
               QN_GGUF_I8_T, 0);
    qn_put_le32((uint8_t *)file.data + 24 + 9, 0xffffffff);
    check_refused(&file, QN_E_FORMAT, "at most 4 dimensions");
    put_head(&file, 2, 0);
    put_tensor(&file, "w", 1, (uint64_t[]){1}, QN_GGUF_I8_T, 0);
    put_tensor(&file, "w", 1, (uint64_t[]){1}, QN_GGUF_I8_T, 32);
    put_padding(&file, 32);
    put64(&file, 0);
    check_refused(&file, QN_E_FORMAT, "expected distinct names");
}

static void test_a_zero_dimension_is_an_empty_tensor(void **state)
{
    (void)state;
    qn_buf file = QN_BUF_INIT;
    opened o;
    put_one(&file, 2, (uint64_t[]){0, 7}, QN_GGUF_F32_T, 0, 0);
    check_status(open_file(&o, &file), QN_OK);
    assert_true(qn_gguf_tensor_at(o.gguf, 0)->elements == 0);
    assert_int_equal(qn_gguf_tensor_at(o.gguf, 0)->data.size, 0);
    done(o);
}

static void test_every_prefix_of_a_file_is_refused(void **state)
{
    (void)state;
    qn_buf whole = QN_BUF_INIT;
    put_sample(&whole);
    for (size_t size = 0; size < whole.size; size++) {
        qn_buf file = QN_BUF_INIT;
        opened o;
        qn_buf_reserve(&file, 0);
        qn_buf_add(&file, whole.data, size);
        check_status(open_file(&o, &file), QN_E_FORMAT);
        assert_null(o.gguf);
        done(o);
    }
    qn_buf_free(&whole);
}

static volatile double sum;

/* Touches everything that was read. */
static void walk(const qn_gguf *g)
{
    for (size_t i = 0; i < qn_gguf_key_count(g); i++) {
        const qn_gguf_value *v = qn_gguf_value_at(g, i);
        for (size_t k = 0; v->type == QN_GGUF_ARRAY && k < v->as.array.count;
             k++) {
            if (v->as.array.item == QN_GGUF_STRING) {
                qn_str s = qn_gguf_array_str(v, k);
                for (size_t c = 0; c < s.size; c++)
                    sum += s.data[c];
            } else {
                sum += qn_gguf_array_float(v, k);
            }
        }
        for (size_t k = 0; v->type == QN_GGUF_STRING && k < v->as.str.size; k++)
            sum += v->as.str.data[k];
    }
    for (size_t i = 0; i < qn_gguf_tensor_count(g); i++) {
        const qn_gguf_tensor *t = qn_gguf_tensor_at(g, i);
        assert_ptr_equal(qn_gguf_find(g, t->name), t);
        for (size_t k = 0; k < t->data.size; k++)
            sum += t->data.data[k];
    }
}

static void test_flipped_bytes_are_read_or_refused(void **state)
{
    (void)state;
    qn_buf whole = QN_BUF_INIT;
    put_sample(&whole);
    for (size_t i = 0; i < whole.size - 84; i++) {
        for (int byte = 0; byte < 256; byte++) {
            qn_buf file = QN_BUF_INIT;
            opened o;
            qn_buf_add(&file, whole.data, whole.size);
            file.data[i] = (char)byte;
            qn_status status = open_file(&o, &file);
            if (!status)
                walk(o.gguf);
            else if (status != QN_E_UNSUPPORTED)
                check_status(status, QN_E_FORMAT);
            done(o);
        }
    }
    qn_buf_free(&whole);
}

static qn_status parse_sample(void)
{
    qn_buf file = QN_BUF_INIT;
    qn_gguf *gguf = NULL;
    put_sample(&file);
    qn_status status = qn_buf_status(&file);
    if (!status)
        status = qn_gguf_parse(
            &gguf, (qn_bytes){(const uint8_t *)file.data, file.size});
    qn_gguf_free(gguf);
    qn_buf_free(&file);
    return status;
}

static void test_each_allocation_may_fail(void **state)
{
    (void)state;
    each_alloc_may_fail(parse_sample);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_of_every_type_are_read),
        cmocka_unit_test(test_typed_reads_say_what_they_found),
        cmocka_unit_test(test_arrays_are_read_in_place),
        cmocka_unit_test(test_arrays_of_every_number_type_are_read),
        cmocka_unit_test(test_tensors_are_placed),
        cmocka_unit_test(test_the_data_begins_at_the_next_multiple),
        cmocka_unit_test(test_both_versions_and_empty_files_are_read),
        cmocka_unit_test(test_type_names_and_blocks),
        cmocka_unit_test(test_bad_fronts_are_refused),
        cmocka_unit_test(test_counts_beyond_the_limit_or_the_file_are_refused),
        cmocka_unit_test(test_strings_beyond_the_limit_or_the_file_are_refused),
        cmocka_unit_test(test_bad_values_are_refused),
        cmocka_unit_test(test_arrays_beyond_the_file_are_refused),
        cmocka_unit_test(test_nested_arrays_are_refused_at_once),
        cmocka_unit_test(test_alignment_is_a_power_of_two_from_8),
        cmocka_unit_test(test_lies_about_tensors_are_refused),
        cmocka_unit_test(test_a_zero_dimension_is_an_empty_tensor),
        cmocka_unit_test(test_every_prefix_of_a_file_is_refused),
        cmocka_unit_test(test_flipped_bytes_are_read_or_refused),
        cmocka_unit_test(test_each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
