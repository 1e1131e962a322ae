/* Scans, dynamic slices and packed products whose answers are fixed to the
 * byte (vectors/backend/helpers_*.json).  Arrays there are a dtype, a shape and
 * the bytes in hexadecimal. */
#include "support/qn_ref_test.h"

#include "base/json.h"

static qn_json_doc *open_golden(const char *name, const qn_json **cases)
{
    qn_json_doc *doc;
    char path[512], *text;
    size_t size;
    snprintf(path, sizeof path, QN_TEST_VECTORS "/backend/%s", name);
    check_status(qn_file_read(&text, &size, path, 1 << 20), QN_OK);
    check_status(qn_json_parse(&doc, (qn_str){text, size}, 0), QN_OK);
    qn_free(text);
    *cases = qn_json_get(qn_json_root(doc), "cases");
    assert_non_null(*cases);
    return doc;
}

static int number(const qn_json *object, const char *key)
{
    int64_t value = 0;
    assert_true(qn_json_as_int(qn_json_get(object, key), &value));
    return (int)value;
}

static bool truth(const qn_json *object, const char *key)
{
    bool value = false;
    assert_true(qn_json_as_bool(qn_json_get(object, key), &value));
    return value;
}

static int numbers(const qn_json *array, int *out)
{
    for (uint32_t i = 0; i < array->count; i++) {
        int64_t value = 0;
        assert_true(qn_json_as_int(&array->items[i], &value));
        out[i] = (int)value;
    }
    return (int)array->count;
}

static qn_dtype dtype_named(qn_str name)
{
    int dtype = 0;
    while (dtype < QN_DTYPE_COUNT &&
           !qn_str_is(name, qn_dtype_name((qn_dtype)dtype)))
        dtype++;
    assert_true(dtype < QN_DTYPE_COUNT);
    return (qn_dtype)dtype;
}

static qn_array *golden_array(const qn_json *c, const char *key)
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
static void check_equal(qn_array *found, qn_array *expected)
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

static void test_scans(void **state)
{
    (void)state;
    const qn_json *cases;
    qn_json_doc *doc = open_golden("helpers_scan.json", &cases);
    assert_true(cases->count > 100);
    for (uint32_t i = 0; i < cases->count; i++) {
        const qn_json *c = &cases->items[i];
        qn_array *a = golden_array(c, "in"), *out = golden_array(c, "out");
        if (a->dtype != out->dtype) { /* the builder converts first */
            qn_array *from = a;
            a = apply(QN_OP_ASTYPE, NULL, 0, out->dtype, a->shape, a->ndim,
                      INPUTS(from));
            qn_array_unref(from);
        }
        qn_str op;
        assert_true(qn_json_as_str(qn_json_get(c, "op"), &op));
        qn_scan_params p = {number(c, "axis"), truth(c, "reverse"),
                            truth(c, "inclusive")};
        p.axis += p.axis < 0 ? a->ndim : 0;
        int id = qn_str_is(op, "cumsum") ? QN_OP_CUMSUM : QN_OP_CUMMAX;
        qn_array *found =
            apply(id, &p, sizeof p, a->dtype, a->shape, a->ndim, INPUTS(a));
        /* A copy with another layout gives the same bytes. */
        a = strided(a);
        qn_array *again =
            apply(id, &p, sizeof p, a->dtype, a->shape, a->ndim, INPUTS(a));
        check_equal(found, qn_array_ref(out));
        check_equal(again, out);
        qn_array_unref(a);
    }
    qn_json_doc_free(doc);
}

static void test_dynamic_slices(void **state)
{
    (void)state;
    const qn_json *cases;
    qn_json_doc *doc = open_golden("helpers_slice.json", &cases);
    int done = 0;
    for (uint32_t i = 0; i < cases->count; i++) {
        const qn_json *c = &cases->items[i];
        const qn_json *by = qn_json_get(c, "update");
        if (qn_json_get(c, "error") ||
            (by && qn_json_get(by, "shape")->count != 3))
            continue; /* refused or reshaped before there is a node */
        qn_array *a = golden_array(c, "in");
        int places[QN_MAX_NDIM];
        qn_slice_dynamic_params p;
        p.naxes = numbers(qn_json_get(c, "axes"), p.axes);
        for (int k = 0; k < p.naxes; k++)
            p.axes[k] += p.axes[k] < 0 ? a->ndim : 0;
        qn_array *start = array_of(QN_INT32, NULL, SHAPE(p.naxes));
        numbers(qn_json_get(c, "start"), places);
        memcpy(qn_array_data(start), places, qn_array_nbytes(start));
        qn_array *out = golden_array(c, "out"), *found;
        if (by) {
            qn_array *update = golden_array(c, "update");
            found = apply(QN_OP_SLICE_UPDATE_DYNAMIC, &p, sizeof p, a->dtype,
                          a->shape, a->ndim, INPUTS(a, update, start));
            qn_array_unref(update);
        } else {
            found = apply(QN_OP_SLICE_DYNAMIC, &p, sizeof p, a->dtype,
                          out->shape, out->ndim, INPUTS(a, start));
        }
        check_equal(found, out);
        qn_array_unref(start);
        qn_array_unref(a);
        done++;
    }
    assert_int_equal(done, 8);
    qn_json_doc_free(doc);
}

static void test_packed_rows(void **state)
{
    (void)state;
    const qn_json *cases;
    qn_json_doc *doc = open_golden("helpers_qmm_rows.json", &cases);
    assert_int_equal(cases->count, 18);
    for (uint32_t i = 0; i < cases->count; i++) {
        const qn_json *c = &cases->items[i];
        qn_quant_params p = {.bits = number(c, "bits"),
                             .group_size = number(c, "group"),
                             .transpose = true};
        qn_array *x = golden_array(c, "x"), *w = golden_array(c, "packed");
        qn_array *scales = golden_array(c, "scales");
        qn_array *biases = golden_array(c, "biases");
        qn_array *out = golden_array(c, "out");
        check_equal(apply(QN_OP_QUANTIZED_MATMUL, &p, sizeof p, out->dtype,
                          out->shape, out->ndim, INPUTS(x, w, scales, biases)),
                    out);
        qn_array_unref(x);
        qn_array_unref(w);
        qn_array_unref(scales);
        qn_array_unref(biases);
    }
    qn_json_doc_free(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scans),
        cmocka_unit_test(test_dynamic_slices),
        cmocka_unit_test(test_packed_rows),
    };
    return run_ref_tests(tests);
}
