/* Safetensors headers: what is read, and every way in which one can lie. */
#include "support/qn_test.h"

#include "base/safetensors.h"

/* A file: the header, its length before it, `data_size` bytes counting up. */
static void make_file(qn_buf *out, const char *header, size_t data_size)
{
    uint8_t length[8];
    qn_put_le64(length, strlen(header));
    qn_buf_add(out, length, sizeof length);
    qn_buf_add_text(out, header);
    for (size_t i = 0; i < data_size; i++)
        qn_buf_add_char(out, (char)i);
}

/* Parses a copy that ends where the file ends and gives both. */
static qn_status parse(qn_st **out, uint8_t **copy, const void *data,
                       size_t size)
{
    *copy = exact_copy(data, size);
    return qn_st_parse(out, (qn_bytes){*copy, size});
}

typedef struct opened {
    qn_st *st;
    uint8_t *bytes;
} opened;

static opened open_ok(const char *header, size_t data_size)
{
    qn_buf file = QN_BUF_INIT;
    opened o = {0};
    make_file(&file, header, data_size);
    check_status(parse(&o.st, &o.bytes, file.data, file.size), QN_OK);
    qn_buf_free(&file);
    return o;
}

static void done(opened o)
{
    qn_st_free(o.st);
    free(o.bytes);
}

static void check_refused(const char *header, size_t data_size, qn_status code,
                          const char *part)
{
    qn_buf file = QN_BUF_INIT;
    qn_st *st = NULL;
    uint8_t *bytes;
    make_file(&file, header, data_size);
    qn_error_clear();
    check_error(parse(&st, &bytes, file.data, file.size), code, part);
    assert_null(st);
    free(bytes);
    qn_buf_free(&file);
}

/* ---- what is read ---- */

static const char sample[] =
    "{\"__metadata__\":{\"format\":\"pt\",\"name\":\"\\u6a21 \\ud83d\\ude00\"},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]},"
    "\"e\":{\"dtype\":\"BF16\",\"shape\":[0,4],\"data_offsets\":[8,8]},"
    "\"b.c\":{\"data_offsets\":[8,11],\"shape\":[3],\"dtype\":\"U8\"},"
    "\"s\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[11,19]}}  ";
enum { SAMPLE_DATA = 19 };

static void test_tensors_and_metadata_are_read(void **state)
{
    (void)state;
    opened o = open_ok(sample, SAMPLE_DATA);
    const uint8_t *data = o.bytes + 8 + strlen(sample);
    assert_int_equal(qn_st_count(o.st), 4);
    const qn_st_tensor *a = qn_st_at(o.st, 0), *e = qn_st_at(o.st, 1);
    check_str(a->name, "a");
    assert_int_equal(a->dtype, QN_ST_F32);
    assert_int_equal(a->ndim, 2);
    assert_true(a->shape[0] == 2 && a->shape[1] == 1);
    assert_ptr_equal(a->data.data, data);
    assert_int_equal(a->data.size, 8);
    assert_int_equal(e->ndim, 2);
    assert_int_equal(e->data.size, 0);
    const qn_st_tensor *b = qn_st_find(o.st, QN_STR("b.c"));
    assert_ptr_equal(b, qn_st_at(o.st, 2));
    assert_ptr_equal(b->data.data, data + 8);
    assert_ptr_equal(b->data.data, o.bytes + b->offset);
    const qn_st_tensor *s = qn_st_find(o.st, QN_STR("s"));
    assert_int_equal(s->ndim, 0);
    assert_int_equal(s->data.size, 8);
    assert_null(qn_st_find(o.st, QN_STR("b")));
    assert_null(qn_st_find(o.st, QN_STR("__metadata__")));

    qn_str key, value;
    assert_int_equal(qn_st_metadata_count(o.st), 2);
    qn_st_metadata_at(o.st, 0, &key, &value);
    check_str(key, "format");
    check_str(value, "pt");
    qn_st_metadata_at(o.st, 1, &key, &value);
    check_str(key, "name");
    check_str(value, "\xe6\xa8\xa1 \xf0\x9f\x98\x80");
    done(o);
}

static void test_the_front_is_enough(void **state)
{
    (void)state;
    qn_buf file = QN_BUF_INIT;
    make_file(&file, sample, 0);
    const uint8_t *front = (const uint8_t *)file.data;
    size_t size = 0, whole = file.size + SAMPLE_DATA;
    check_status(qn_st_front_size(&size, front, whole), QN_OK);
    assert_int_equal(size, file.size);
    qn_st *st;
    check_status(qn_st_parse_front(&st, (qn_bytes){front, size}, whole), QN_OK);
    const qn_st_tensor *s = qn_st_find(st, QN_STR("s"));
    assert_int_equal(s->offset, size + 11);
    assert_int_equal(s->data.size, 8);
    assert_null(s->data.data);
    qn_st_free(st);

    st = NULL;
    check_error(qn_st_parse_front(&st, (qn_bytes){front, size}, whole - 1),
                QN_E_FORMAT, "data_offsets");
    check_error(qn_st_parse_front(&st, (qn_bytes){front, size - 1}, whole),
                QN_E_FORMAT, "front");
    check_error(qn_st_front_size(&size, NULL, 7), QN_E_FORMAT, "found 7");
    check_error(qn_st_front_size(&size, front, size - 1), QN_E_FORMAT,
                "in the file");
    assert_null(st);
    qn_buf_free(&file);
}

static void test_files_without_tensors_are_fine(void **state)
{
    (void)state;
    const char *headers[] = {"{}", "{\"__metadata__\":{}}",
                             "{\"__metadata__\":null}", "{ } \n\t\r"};
    for (size_t i = 0; i < 3; i++) {
        opened o = open_ok(headers[i], 0);
        assert_int_equal(qn_st_count(o.st), 0);
        assert_int_equal(qn_st_metadata_count(o.st), 0);
        done(o);
    }
    qn_st_free(NULL);
}

static void test_every_dtype_has_its_size(void **state)
{
    (void)state;
    const struct {
        const char *name;
        qn_st_dtype dtype;
        size_t size;
    } all[] = {
        {"BOOL", QN_ST_BOOL, 1},       {"U8", QN_ST_U8, 1},
        {"I8", QN_ST_I8, 1},           {"U16", QN_ST_U16, 2},
        {"I16", QN_ST_I16, 2},         {"F16", QN_ST_F16, 2},
        {"BF16", QN_ST_BF16, 2},       {"U32", QN_ST_U32, 4},
        {"I32", QN_ST_I32, 4},         {"F32", QN_ST_F32, 4},
        {"U64", QN_ST_U64, 8},         {"I64", QN_ST_I64, 8},
        {"F64", QN_ST_F64, 8},         {"F8_E4M3", QN_ST_F8_E4M3, 1},
        {"F8_E5M2", QN_ST_F8_E5M2, 1}, {"F8_E8M0", QN_ST_F8_E8M0, 1},
        {"C64", QN_ST_C64, 8},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char header[128];
        snprintf(header, sizeof header,
                 "{\"t\":{\"dtype\":\"%s\",\"shape\":[3],"
                 "\"data_offsets\":[0,%zu]}}",
                 all[i].name, 3 * all[i].size);
        opened o = open_ok(header, 3 * all[i].size);
        assert_int_equal(qn_st_at(o.st, 0)->dtype, all[i].dtype);
        done(o);
        assert_string_equal(qn_st_dtype_name(all[i].dtype), all[i].name);
        assert_int_equal(qn_st_dtype_size(all[i].dtype), all[i].size);
    }
}

/* The order of the header is not the order of the data. */
static void test_data_may_lie_in_any_order(void **state)
{
    (void)state;
    opened o = open_ok(
        "{\"z\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[4,6]},"
        "\"y\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[6,6]},"
        "\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
        6);
    check_str(qn_st_at(o.st, 0)->name, "z");
    assert_int_equal(qn_st_at(o.st, 0)->data.data[0], 4);
    done(o);
}

static void test_thousands_of_tensors_are_found(void **state)
{
    (void)state;
    enum { N = 5000 };
    qn_buf header = QN_BUF_INIT;
    for (int i = 0; i < N; i++)
        qn_buf_printf(&header,
                      "%c\"t%d\":{\"dtype\":\"U8\",\"shape\":[1],"
                      "\"data_offsets\":[%d,%d]}",
                      i ? ',' : '{', i, N - 1 - i, N - i);
    qn_buf_add_char(&header, '}');
    opened o = open_ok(header.data, N);
    assert_int_equal(qn_st_count(o.st), N);
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        const qn_st_tensor *t = qn_st_find(o.st, qn_str_of(name));
        assert_non_null(t);
        assert_int_equal(t->data.data[0], (N - 1 - i) & 0xff);
    }
    done(o);
    qn_buf_free(&header);
}

/* ---- what is refused ---- */

static void test_the_length_is_checked_before_the_header(void **state)
{
    (void)state;
    const struct {
        uint64_t length;
        size_t follow; /* bytes of header that are there */
        const char *part;
    } cases[] = {
        {0, 0, "2 to 100000000 bytes"},
        {1, 1, "2 to 100000000 bytes"},
        {100000001, 2, "2 to 100000000 bytes"},
        {UINT64_MAX, 8, "2 to 100000000 bytes"},
        {UINT64_MAX - 7, 8, "2 to 100000000 bytes"},
        {(uint64_t)1 << 63, 8, "2 to 100000000 bytes"},
        {100000000, 2, "found only 2 in the file"},
        {3, 2, "found only 2 in the file"},
        {16, 0, "found only 0 in the file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t bytes[16] = {[8] = '{', '}', ' ', ' ', ' ', ' ', ' ', ' '};
        qn_st *st = NULL;
        uint8_t *copy;
        qn_put_le64(bytes, cases[i].length);
        check_error(parse(&st, &copy, bytes, 8 + cases[i].follow), QN_E_FORMAT,
                    cases[i].part);
        assert_null(st);
        free(copy);
    }
}

#define TENSOR(dtype, shape, offsets)                                          \
    "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape                             \
    ",\"data_offsets\":" offsets "}}"

static void test_lies_about_one_tensor_are_refused(void **state)
{
    (void)state;
    const struct {
        const char *header;
        size_t data;
        const char *part; /* of the message */
    } cases[] = {
        {TENSOR("\"F32\"", "[4]", "[0,16]"), 8, "end <= 8, found [0, 16]"},
        {TENSOR("\"U8\"", "[9]", "[0,9]"), 8, "end <= 8, found [0, 9]"},
        {TENSOR("\"F32\"", "[2]", "[-8,0]"), 8, "found -8"},
        {TENSOR("\"F32\"", "[-2]", "[0,8]"), 8, "found -2"},
        {TENSOR("\"F32\"", "[2]", "[8,0]"), 8, "begin <= end"},
        {TENSOR("\"F32\"", "[2]", "[0,8.0]"), 8, "found 8.0"},
        {TENSOR("\"F32\"", "[2e0]", "[0,8]"), 8, "found 2e0"},
        {TENSOR("\"F32\"", "[2]", "[0]"), 8, "two data_offsets, found 1"},
        {TENSOR("\"F32\"", "[2]", "[0,8,8]"), 8, "found 3"},
        {TENSOR("\"F32\"", "[2]", "[]"), 8, "found 0"},
        {TENSOR("\"F32\"", "[2]", "[0,\"8\"]"), 8, "found a string"},
        {TENSOR("\"F32\"", "[2]", "[[0],8]"), 8, "found an array"},
        {TENSOR("\"F32\"", "[2]", "{}"), 8, "found an object"},
        {TENSOR("\"F32\"", "[2]", "[0,18446744073709551616]"), 8, "found 1844"},
        {TENSOR("\"F32\"", "[2]", "[0,9223372036854775807]"), 8, "end <= 8"},
        {TENSOR("\"F32\"", "[9223372036854775808]", "[0,8]"), 8, "found 9223"},
        {TENSOR("\"F32\"", "[8589934592,8589934592]", "[0,8]"), 8, "2^63"},
        {TENSOR("\"F32\"", "[4611686018427387906]", "[0,8]"), 8, "2^63"},
        {TENSOR("\"U8\"", "[4294967296,4294967296]", "[0,0]"), 0, "2^63"},
        {TENSOR("\"U8\"", "[0,4294967296,4294967296]", "[0,0]"), 0, "2^63"},
        {TENSOR("\"U8\"", "[4294967296,4294967296,0]", "[0,0]"), 0, "2^63"},
        {TENSOR("\"F32\"", "[3]", "[0,8]"), 8, "12 bytes by shape"},
        {TENSOR("\"F32\"", "[1]", "[0,8]"), 8, "4 bytes by shape"},
        {TENSOR("\"F32\"", "[0]", "[0,8]"), 8, "0 bytes by shape"},
        {TENSOR("\"F32\"", "[]", "[0,0]"), 0, "4 bytes by shape"},
        {TENSOR("\"F32\"", "2", "[0,8]"), 8, "found a number"},
        {TENSOR("\"F32\"", "null", "[0,8]"), 8, "found null"},
        {TENSOR("4", "[2]", "[0,8]"), 8, "found a number"},
        {"{\"t\":[]}", 0, "found an array"},
        {"{\"t\":true}", 0, "found a boolean"},
        {"{\"t\":{}}", 0, "no dtype"},
        {"{\"t\":{\"dtype\":\"F32\"}}", 0, "no shape"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[0]}}", 0, "no data_offsets"},
        {"{\"t\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[0],"
         "\"data_offsets\":[0,0]}}",
         0, "second one"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[0],\"shape\":[0],"
         "\"data_offsets\":[0,0]}}",
         0, "second one"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[0],\"x\":1,"
         "\"data_offsets\":[0,0]}}",
         0, "found \"x\""},
        {"{\"t\\u0000\":{\"dtype\":\"F32\",\"shape\":[0],"
         "\"data_offsets\":[0,0]}}",
         0, "NUL"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_refused(cases[i].header, cases[i].data, QN_E_FORMAT,
                      cases[i].part);
    check_refused(TENSOR("\"F4\"", "[2]", "[0,1]"), 1, QN_E_UNSUPPORTED,
                  "tensor \"t\": expected a known dtype, found \"F4\"");
    check_refused(TENSOR("\"f32\"", "[2]", "[0,8]"), 8, QN_E_UNSUPPORTED,
                  "found \"f32\"");
}

#define U8(name, begin, end, size)                                             \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[" #size                         \
    "],\"data_offsets\":[" #begin "," #end "]}"

static void test_tensors_must_cover_the_data_exactly_once(void **state)
{
    (void)state;
    const struct {
        const char *header;
        size_t data;
        const char *part;
    } cases[] = {
        {"{" U8("t", 0, 8, 8) "," U8("u", 0, 8, 8) "}", 8, "overlap"},
        {"{" U8("t", 0, 8, 8) "," U8("u", 4, 8, 4) "}", 8, "overlap"},
        {"{" U8("t", 0, 8, 8) "," U8("u", 4, 4, 0) "}", 8, "overlap"},
        {"{" U8("t", 0, 4, 4) "," U8("u", 5, 8, 3) "}", 8, "a hole"},
        {"{" U8("t", 1, 8, 7) "}", 8, "a hole"},
        {"{" U8("t", 0, 7, 7) "}", 8, "its end at 7"},
        {"{}", 1, "its end at 0"},
        {"{" U8("t", 0, 4, 4) "," U8("t", 4, 8, 4) "}", 8, "distinct names"},
        {"{" U8("t", 0, 4, 4) "," U8("\\u0074", 4, 8, 4) "}", 8,
         "distinct names"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_refused(cases[i].header, cases[i].data, QN_E_FORMAT,
                      cases[i].part);
}

static void test_bad_headers_are_refused(void **state)
{
    (void)state;
    const struct {
        const char *header;
        const char *part;
    } cases[] = {
        {" {}", "expected '{' at byte 8"},
        {"[]", "expected '{' at byte 8"},
        {"{}x", "JSON byte 2"},
        {"{},", "JSON byte 2"},
        {"{\"a\"}", "JSON byte 4"},
        {"{\"__metadata__\":null,\"__metadata__\":{}}", "one __metadata__"},
        {"{\"__metadata__\":[]}", "found an array"},
        {"{\"__metadata__\":{\"a\":1}}", "found a number"},
        {"{\"__metadata__\":{\"a\":{}}}", "found an object"},
        {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", "distinct keys"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", "second one"},
        {"{\"__metadata__\":{\"a\":\"\\ud800\"}}", "surrogate"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_refused(cases[i].header, 0, QN_E_FORMAT, cases[i].part);
}

static void
test_a_message_names_the_tensor_but_not_all_of_a_long_name(void **state)
{
    (void)state;
    qn_buf header = QN_BUF_INIT;
    qn_buf_add_text(&header, "{\"");
    for (int i = 0; i < 100; i++)
        qn_buf_add_text(&header, "\xe2\x82\xac");
    qn_buf_add_text(&header, "\":{}}");
    check_refused(header.data, 0, QN_E_FORMAT, "\xe2\x82\xac\": expected");
    assert_true(strlen(qn_error_text()) < 250);
    qn_buf_free(&header);
}

static void test_every_prefix_of_a_file_is_refused(void **state)
{
    (void)state;
    qn_buf file = QN_BUF_INIT;
    make_file(&file, sample, SAMPLE_DATA);
    for (size_t size = 0; size < file.size; size++) {
        qn_st *st = NULL;
        uint8_t *copy;
        check_status(parse(&st, &copy, file.data, size), QN_E_FORMAT);
        assert_null(st);
        free(copy);
    }
    qn_buf_free(&file);
}

static volatile unsigned sum;

/* Touches everything that was read. */
static void walk(const qn_st *st)
{
    for (size_t i = 0; i < qn_st_count(st); i++) {
        const qn_st_tensor *t = qn_st_at(st, i);
        assert_ptr_equal(qn_st_find(st, t->name), t);
        for (size_t k = 0; k < t->data.size; k++)
            sum += t->data.data[k];
        for (int k = 0; k < t->ndim; k++)
            sum += (unsigned)t->shape[k];
    }
    for (size_t i = 0; i < qn_st_metadata_count(st); i++) {
        qn_str key, value;
        qn_st_metadata_at(st, i, &key, &value);
        for (size_t k = 0; k < value.size; k++)
            sum += (unsigned char)value.data[k];
    }
}

static void test_flipped_bytes_are_read_or_refused(void **state)
{
    (void)state;
    qn_buf file = QN_BUF_INIT;
    make_file(&file, sample, SAMPLE_DATA);
    size_t header_end = 8 + strlen(sample);
    for (size_t i = 0; i < header_end; i++) {
        char before = file.data[i];
        for (int byte = 0; byte < 256; byte++) {
            qn_st *st = NULL;
            uint8_t *copy;
            file.data[i] = (char)byte;
            qn_status status = parse(&st, &copy, file.data, file.size);
            if (!status)
                walk(st);
            else if (status != QN_E_UNSUPPORTED)
                check_status(status, QN_E_FORMAT);
            qn_st_free(st);
            free(copy);
        }
        file.data[i] = before;
    }
    qn_buf_free(&file);
}

static qn_status parse_sample(void)
{
    qn_buf file = QN_BUF_INIT;
    qn_st *st = NULL;
    make_file(&file, sample, SAMPLE_DATA);
    qn_status status = qn_buf_status(&file);
    if (!status)
        status =
            qn_st_parse(&st, (qn_bytes){(const uint8_t *)file.data, file.size});
    qn_st_free(st);
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
        cmocka_unit_test(test_tensors_and_metadata_are_read),
        cmocka_unit_test(test_the_front_is_enough),
        cmocka_unit_test(test_files_without_tensors_are_fine),
        cmocka_unit_test(test_every_dtype_has_its_size),
        cmocka_unit_test(test_data_may_lie_in_any_order),
        cmocka_unit_test(test_thousands_of_tensors_are_found),
        cmocka_unit_test(test_the_length_is_checked_before_the_header),
        cmocka_unit_test(test_lies_about_one_tensor_are_refused),
        cmocka_unit_test(test_tensors_must_cover_the_data_exactly_once),
        cmocka_unit_test(test_bad_headers_are_refused),
        cmocka_unit_test(
            test_a_message_names_the_tensor_but_not_all_of_a_long_name),
        cmocka_unit_test(test_every_prefix_of_a_file_is_refused),
        cmocka_unit_test(test_flipped_bytes_are_read_or_refused),
        cmocka_unit_test(test_each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
