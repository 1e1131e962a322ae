/* Blocks written into arrays: donation, aliases, dynamic starts. */
#include "support/qn_ref_test.h"

static qn_array *ten(qn_dtype dtype)
{
    return array_of(dtype, VALUES(0, 1, 2, 3, 4, 5, 6, 7, 8, 9), SHAPE(10));
}

static qn_array *update(qn_array *source, qn_array *by, int start, int stride,
                        qn_combine combine)
{
    qn_slice_update_params p = {
        .start = {start}, .strides = {stride}, .combine = combine};
    return apply(QN_OP_SLICE_UPDATE, &p, sizeof p, source->dtype, source->shape,
                 source->ndim, INPUTS(source, by));
}

static void test_update_sets_and_combines(void **state)
{
    (void)state;
    const qn_dtype dtypes[] = {QN_INT8, QN_FLOAT16, QN_FLOAT64, QN_COMPLEX64};
    for (int t = 0; t < 4; t++) {
        qn_array *a = ten(dtypes[t]);
        qn_array *by = array_of(dtypes[t], VALUES(20, 1), SHAPE(2));
        check_items(update(a, by, 1, 3, QN_COMBINE_SET), 0, 20, 2, 3, 1, 5, 6,
                    7, 8, 9);
        check_items(update(a, by, 8, -4, QN_COMBINE_SUM), 0, 1, 2, 3, 5, 5, 6,
                    7, 28, 9);
        check_items(update(a, by, 2, 1, QN_COMBINE_PROD), 0, 1, 40, 3, 4, 5, 6,
                    7, 8, 9);
        check_items(update(a, by, 2, 1, QN_COMBINE_MAX), 0, 1, 20, 3, 4, 5, 6,
                    7, 8, 9);
        check_items(update(a, by, 2, 1, QN_COMBINE_MIN), 0, 1, 2, 1, 4, 5, 6, 7,
                    8, 9);
        check_items(a, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9);
        qn_array_unref(by);
    }
}

static qn_array *pending_update(qn_array *source, qn_array *by, int start)
{
    qn_slice_update_params p = {.start = {start}, .strides = {1, 1}};
    qn_node_spec spec = {.op = QN_OP_SLICE_UPDATE,
                         .stream = test_stream(),
                         .inputs = (qn_array *[]){source, by},
                         .ninputs = 2,
                         .params = &p,
                         .params_size = sizeof p};
    qn_array *out;
    check_status(
        qn_node_new(&out, &spec, source->dtype, source->shape, source->ndim),
        QN_OK);
    return out;
}

static void test_dying_source_is_written_in_place(void **state)
{
    (void)state;
    qn_array *a = ten(QN_FLOAT32);
    qn_array *by = array_of(QN_FLOAT32, VALUES(-1, -2), SHAPE(2));
    const void *data = qn_array_data(a);
    qn_array *out = pending_update(a, by, 4);
    qn_array_unref(a);
    check_status(qn_eval(&out, 1), QN_OK);
    assert_ptr_equal(qn_array_data(out), data);
    check_items(out, 0, 1, 2, 3, -1, -2, 6, 7, 8, 9);
    qn_array_unref(by);
}

static void test_held_source_is_copied(void **state)
{
    (void)state;
    qn_array *a = ten(QN_FLOAT32);
    qn_array *by = array_of(QN_FLOAT32, VALUES(-1, -2), SHAPE(2));
    qn_array *view = view_of(a, SHAPE(2), (const int64_t[]){1}, 4);
    qn_array *out = pending_update(a, by, 4);
    qn_array_unref(a); /* the view still sees the storage */
    check_status(qn_eval(&out, 1), QN_OK);
    check_items(out, 0, 1, 2, 3, -1, -2, 6, 7, 8, 9);
    check_items(view, 4, 5);
    qn_array_unref(by);
}

/* a[1:] = a[:-1] shifts; overwriting in place would repeat the first. */
static void test_update_that_aliases_its_source(void **state)
{
    (void)state;
    qn_array *a = ten(QN_INT32);
    qn_array *head = view_of(a, SHAPE(9), (const int64_t[]){1}, 0);
    qn_array *out = pending_update(a, head, 1);
    qn_array_unref(a);
    qn_array_unref(head);
    check_status(qn_eval(&out, 1), QN_OK);
    check_items(out, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8);

    qn_array *b = ten(QN_INT32); /* itself as its own update */
    out = pending_update(b, b, 0);
    qn_array_unref(b);
    check_status(qn_eval(&out, 1), QN_OK);
    check_items(out, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9);
}

static void test_donated_layout_may_be_permuted(void **state)
{
    (void)state;
    qn_array *room = array_of(QN_INT32, VALUES(1, 2, 3, 4, 5, 6), SHAPE(3, 2));
    qn_array *t = view_of(room, SHAPE(2, 3), (const int64_t[]){1, 2}, 0);
    qn_array *by = array_of(QN_INT32, VALUES(8, 9), SHAPE(1, 2));
    qn_array_unref(room);
    qn_array *out = pending_update(t, by, 1); /* rows 1.., columns 0.. */
    qn_array_unref(t);
    qn_array_unref(by);
    check_status(qn_eval(&out, 1), QN_OK);
    check_items(out, 1, 3, 5, 8, 9, 6);
}

/* ---- starts that are arrays ---- */

static qn_status slice_dynamic(qn_array **out, qn_array *a, qn_array *start,
                               int size)
{
    qn_slice_dynamic_params p = {.naxes = 1, .axes = {0}};
    return apply_status(out, QN_OP_SLICE_DYNAMIC, &p, sizeof p, a->dtype,
                        SHAPE(size), INPUTS(a, start));
}

static void test_dynamic_slice_at_every_start(void **state)
{
    (void)state;
    const qn_dtype dtypes[] = {QN_INT32, QN_UINT8, QN_INT64, QN_UINT64};
    qn_array *a = ten(QN_BFLOAT16), *out;
    for (int t = 0; t < 4; t++)
        for (int at = 0; at <= 7; at++) {
            qn_array *start = array_of(dtypes[t], VALUES(at), SCALAR);
            check_status(slice_dynamic(&out, a, start, 3), QN_OK);
            assert_true(out->row_contiguous && out->buffer != a->buffer);
            check_items(out, at, at + 1, at + 2);
            qn_array_unref(start);
        }
    qn_array *ones = array_of(QN_INT32, VALUES(10), SHAPE(1));
    check_status(slice_dynamic(&out, a, ones, 0), QN_OK);
    assert_int_equal(out->size, 0);
    qn_array_unref(out);
    qn_array_unref(ones);
    qn_array_unref(a);
}

static void test_dynamic_start_outside_fails(void **state)
{
    (void)state;
    qn_array *a = ten(QN_INT32), *out;
    const double starts[] = {-1, 8, 100, 0x1p62};
    for (int i = 0; i < 4; i++) {
        qn_array *start = array_of(QN_INT64, &starts[i], SHAPE(1));
        check_error(slice_dynamic(&out, a, start, 3), QN_E_ARG, "size 3");
        qn_array_unref(start);
    }
    qn_array *most = array_of(QN_UINT64, VALUES(0x1p63), SHAPE(1));
    check_error(slice_dynamic(&out, a, most, 3), QN_E_ARG, "slice_dynamic");
    qn_array_unref(most);
    qn_array_unref(a);
}

static void test_dynamic_update(void **state)
{
    (void)state;
    qn_array *a = array_of(QN_FLOAT16, VALUES(0, 1, 2, 3, 4, 5), SHAPE(2, 3));
    qn_array *by = array_of(QN_FLOAT16, VALUES(8, 9), SHAPE(2, 1)), *out;
    qn_array *start = array_of(QN_INT32, VALUES(2), SHAPE(1));
    qn_array *far = array_of(QN_INT32, VALUES(3), SHAPE(1));
    qn_slice_dynamic_params p = {.naxes = 1, .axes = {1}};
    check_items(apply(QN_OP_SLICE_UPDATE_DYNAMIC, &p, sizeof p, QN_FLOAT16,
                      SHAPE(2, 3), INPUTS(a, by, start)),
                0, 1, 8, 3, 4, 9);
    check_error(apply_status(&out, QN_OP_SLICE_UPDATE_DYNAMIC, &p, sizeof p,
                             QN_FLOAT16, SHAPE(2, 3), INPUTS(a, by, far)),
                QN_E_ARG, "start 3");
    check_items(a, 0, 1, 2, 3, 4, 5);
    qn_array_unref(by);
    qn_array_unref(start);
    qn_array_unref(far);
}

/* ---- joining ---- */

static void test_concatenate_and_pad(void **state)
{
    (void)state;
    qn_array *a = array_of(QN_UINT16, VALUES(1, 2, 3, 4), SHAPE(2, 2));
    qn_array *t = view_of(a, SHAPE(2, 2), (const int64_t[]){1, 2}, 0);
    qn_array *none = array_of(QN_UINT16, NULL, SHAPE(2, 0));
    qn_axis_params p = {1};
    check_items(apply(QN_OP_CONCATENATE, &p, sizeof p, QN_UINT16, SHAPE(2, 4),
                      INPUTS(a, none, t)),
                1, 2, 1, 3, 3, 4, 2, 4);
    qn_pad_params pad = {{1, 0}};
    qn_array *value = array_of(QN_UINT16, VALUES(7), SCALAR);
    check_items(apply(QN_OP_PAD, &pad, sizeof pad, QN_UINT16, SHAPE(3, 3),
                      INPUTS(t, value)),
                7, 7, 7, 1, 3, 7, 2, 4, 7);
    qn_array_unref(value);
    qn_array_unref(none);
    qn_array_unref(t);
    qn_array_unref(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_update_sets_and_combines),
        cmocka_unit_test(test_dying_source_is_written_in_place),
        cmocka_unit_test(test_held_source_is_copied),
        cmocka_unit_test(test_update_that_aliases_its_source),
        cmocka_unit_test(test_donated_layout_may_be_permuted),
        cmocka_unit_test(test_dynamic_slice_at_every_start),
        cmocka_unit_test(test_dynamic_start_outside_fails),
        cmocka_unit_test(test_dynamic_update),
        cmocka_unit_test(test_concatenate_and_pad),
    };
    return run_ref_tests(tests);
}
