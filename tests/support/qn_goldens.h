/* qn_goldens.h: answers that are fixed to the byte (vectors/backend/helpers_*).
 * Arrays there are a dtype, a shape and the bytes in hexadecimal. */
#ifndef QN_TEST_SUPPORT_GOLDENS_H
#define QN_TEST_SUPPORT_GOLDENS_H

#include "qn_nodes.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"

static inline qn_json_doc *open_golden(const char *name, const char *list,
                                       const qn_json **cases)
{
    qn_json_doc *doc;
    char path[512], *text;
    size_t size;
    snprintf(path, sizeof path, QN_TEST_VECTORS "/backend/%s", name);
    check_status(qn_file_read(&text, &size, path, 1 << 20), QN_OK);
    check_status(qn_json_parse(&doc, (qn_str){text, size}, 0), QN_OK);
    qn_free(text);
    *cases = qn_json_get(qn_json_root(doc), list);
    assert_non_null(*cases);
    return doc;
}

static inline int number(const qn_json *object, const char *key)
{
    int64_t value = 0;
    assert_true(qn_json_as_int(qn_json_get(object, key), &value));
    return (int)value;
}

static inline bool truth(const qn_json *object, const char *key)
{
    bool value = false;
    assert_true(qn_json_as_bool(qn_json_get(object, key), &value));
    return value;
}

static inline int numbers(const qn_json *array, int *out)
{
    for (uint32_t i = 0; i < array->count; i++) {
        int64_t value = 0;
        assert_true(qn_json_as_int(&array->items[i], &value));
        out[i] = (int)value;
    }
    return (int)array->count;
}

static inline qn_dtype dtype_named(qn_str name)
{
    int dtype = 0;
    while (dtype < QN_DTYPE_COUNT &&
           !qn_str_is(name, qn_dtype_name((qn_dtype)dtype)))
        dtype++;
    assert_true(dtype < QN_DTYPE_COUNT);
    return (qn_dtype)dtype;
}

static inline qn_array *golden_array(const qn_json *c, const char *key)
{
    const qn_json *a = qn_json_get(c, key);
    qn_str name, hex;
    int shape[QN_MAX_NDIM];
    assert_true(qn_json_as_str(qn_json_get(a, "dtype"), &name));
    assert_true(qn_json_as_str(qn_json_get(a, "hex"), &hex));
    int ndim = numbers(qn_json_get(a, "shape"), shape);
    qn_array *out = array_of(dtype_named(name), NULL, shape, ndim);
    uint8_t *bytes = qn_array_data(out);
    assert_int_equal(hex.size, 2 * qn_array_nbytes(out));
    for (size_t i = 0; i < qn_array_nbytes(out); i++) {
        char pair[] = {hex.data[2 * i], hex.data[2 * i + 1], '\0'};
        bytes[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return out;
}

/* The same bytes, but any NaN for a NaN.  Gives both up. */
static inline void check_equal(qn_array *found, qn_array *expected)
{
    assert_int_equal(found->dtype, expected->dtype);
    assert_int_equal(found->size, expected->size);
    for (size_t i = 0; i < found->size; i++) {
        if (isnan(item(expected, i)))
            assert_true(isnan(item(found, i)));
        else
            assert_memory_equal(place_of(found, i), place_of(expected, i),
                                qn_array_itemsize(found));
    }
    qn_array_unref(found);
    qn_array_unref(expected);
}

#endif
