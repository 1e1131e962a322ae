/* Scans, dynamic slices and packed products whose answers are fixed to the
 * byte. */
#include "support/qn_goldens.h"
#include "support/qn_ref_test.h"

static void test_scans(void **state)
{
    (void)state;
    const qn_json *cases;
    qn_json_doc *doc = open_golden("helpers_scan.json", "cases", &cases);
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
    qn_json_doc *doc = open_golden("helpers_slice.json", "cases", &cases);
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
    qn_json_doc *doc = open_golden("helpers_qmm_rows.json", "cases", &cases);
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
