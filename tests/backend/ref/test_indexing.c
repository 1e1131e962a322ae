/* Gathers and scatters: what they do, and that no index reaches outside. */
#include "support/qn_ref_test.h"

static qn_array *table(void)
{
    return array_of(QN_FLOAT32, VALUES(1, 2, 3, 4, 5, 6), SHAPE(3, 2));
}

/* Whole rows of the table. */
static qn_array *take_rows(qn_array *a, qn_array *indices, const int *shape,
                           int ndim)
{
    qn_gather_params p = {.naxes = 1, .axes = {0}, .slice_sizes = {1, 2}};
    return apply(QN_OP_GATHER, &p, sizeof p, a->dtype, shape, ndim,
                 INPUTS(a, indices));
}

static void test_gather_rows(void **state)
{
    (void)state;
    const qn_dtype dtypes[] = {QN_INT8, QN_INT32, QN_INT64};
    for (int layout = 0; layout < 2; layout++)
        for (int t = 0; t < 3; t++) {
            qn_array *a = layout ? strided(table()) : table();
            qn_array *i =
                array_of(dtypes[t], VALUES(2, 0, -1, -3), SHAPE(2, 2));
            check_items(take_rows(a, i, SHAPE(2, 2, 1, 2)), 5, 6, 1, 2, 5, 6, 1,
                        2);
            qn_array_unref(a);
            qn_array_unref(i);
        }
}

static void test_indices_outside_are_clamped(void **state)
{
    (void)state;
    qn_array *a = table();
    qn_array *i = array_of(QN_INT32, VALUES(3, 1000, -4, INT32_MIN), SHAPE(4));
    check_items(take_rows(a, i, SHAPE(4, 1, 2)), 5, 6, 5, 6, 1, 2, 1, 2);
    qn_array_unref(i);
    i = array_of(QN_UINT64, NULL, SHAPE(1));
    *(uint64_t *)qn_array_data(i) = UINT64_MAX;
    check_items(take_rows(a, i, SHAPE(1, 1, 2)), 5, 6);
    qn_array_unref(i);
    i = array_of(QN_INT64, NULL, SHAPE(1));
    *(int64_t *)qn_array_data(i) = INT64_MIN;
    check_items(take_rows(a, i, SHAPE(1, 1, 2)), 1, 2);
    qn_array_unref(i);
    qn_array_unref(a);
}

static void test_gather_over_two_axes(void **state)
{
    (void)state;
    qn_array *a = table();
    qn_array *i = array_of(QN_UINT32, VALUES(2, 0), SHAPE(2));
    qn_array *k = array_of(QN_INT32, VALUES(0, -1), SHAPE(2));
    qn_gather_params p = {.naxes = 2, .axes = {0, 1}, .slice_sizes = {1, 1}};
    check_items(apply(QN_OP_GATHER, &p, sizeof p, QN_FLOAT32, SHAPE(2, 1, 1),
                      INPUTS(a, i, k)),
                5, 2);
    /* A slice of two rows fits at 0 and 1 only. */
    qn_gather_params two = {.naxes = 1, .axes = {0}, .slice_sizes = {2, 2}};
    check_items(apply(QN_OP_GATHER, &two, sizeof two, QN_FLOAT32,
                      SHAPE(2, 2, 2), INPUTS(a, i)),
                3, 4, 5, 6, 1, 2, 3, 4);
    qn_array_unref(i);
    qn_array_unref(k);
    qn_array_unref(a);
}

static void test_gather_from_nothing(void **state)
{
    (void)state;
    qn_array *none = array_of(QN_FLOAT32, NULL, SHAPE(0, 2)), *out;
    qn_array *i = array_of(QN_INT32, VALUES(0), SHAPE(1));
    qn_array *no = array_of(QN_INT32, NULL, SHAPE(0));
    qn_gather_params p = {.naxes = 1, .axes = {0}, .slice_sizes = {1, 2}};
    check_error(apply_status(&out, QN_OP_GATHER, &p, sizeof p, QN_FLOAT32,
                             SHAPE(1, 1, 2), INPUTS(none, i)),
                QN_E_ARG, "empty");
    out = take_rows(none, no, SHAPE(0, 1, 2));
    assert_int_equal(out->size, 0);
    qn_array_unref(out);
    qn_axis_params axis = {0};
    qn_array *column = array_of(QN_INT32, VALUES(0, 0), SHAPE(1, 2));
    check_error(apply_status(&out, QN_OP_GATHER_AXIS, &axis, sizeof axis,
                             QN_FLOAT32, SHAPE(1, 2), INPUTS(none, column)),
                QN_E_ARG, "empty");
    qn_array_unref(column);
    qn_array_unref(none);
    qn_array_unref(i);
    qn_array_unref(no);
}

static qn_array *scatter(qn_array *a, qn_array *i, qn_array *by,
                         qn_combine combine)
{
    qn_scatter_params p = {.naxes = 1, .axes = {0}, .combine = combine};
    return apply(QN_OP_SCATTER, &p, sizeof p, a->dtype, a->shape, a->ndim,
                 INPUTS(a, i, by));
}

static void test_scatter_combines_in_order(void **state)
{
    (void)state;
    const qn_dtype dtypes[] = {QN_INT64, QN_BFLOAT16, QN_FLOAT32};
    for (int t = 0; t < 3; t++) {
        qn_array *a = array_of(dtypes[t], VALUES(5, 5, 5, 5), SHAPE(4));
        qn_array *i = array_of(QN_INT32, VALUES(1, -1, 1), SHAPE(3));
        qn_array *by = array_of(dtypes[t], VALUES(2, 9, 7), SHAPE(3, 1));
        check_items(scatter(a, i, by, QN_COMBINE_SET), 5, 7, 5, 9);
        check_items(scatter(a, i, by, QN_COMBINE_SUM), 5, 14, 5, 14);
        check_items(scatter(a, i, by, QN_COMBINE_PROD), 5, 70, 5, 45);
        check_items(scatter(a, i, by, QN_COMBINE_MAX), 5, 7, 5, 9);
        check_items(scatter(a, i, by, QN_COMBINE_MIN), 5, 2, 5, 5);
        check_items(a, 5, 5, 5, 5);
        qn_array_unref(i);
        qn_array_unref(by);
    }
}

static void test_updates_outside_are_dropped(void **state)
{
    (void)state;
    qn_array *a = table();
    qn_array *i = array_of(QN_INT32, VALUES(3, -4, 1, INT32_MIN), SHAPE(4));
    qn_array *by =
        array_of(QN_FLOAT32, VALUES(7, 7, 7, 7, 8, 9, 7, 7), SHAPE(4, 1, 2));
    check_items(scatter(a, i, by, QN_COMBINE_SET), 1, 2, 8, 9, 5, 6);
    qn_array_unref(i);
    qn_array_unref(by);
    /* Rows 2 and 3 do not both exist: nothing of the slice is written. */
    i = array_of(QN_INT32, VALUES(2), SHAPE(1));
    by = array_of(QN_FLOAT32, VALUES(7, 7, 7, 7), SHAPE(1, 2, 2));
    check_items(scatter(a, i, by, QN_COMBINE_SET), 1, 2, 3, 4, 5, 6);
    qn_array_unref(i);
    qn_array_unref(by);
    qn_array_unref(a);
}

static void test_scatter_into_a_dying_source(void **state)
{
    (void)state;
    qn_array *a = table(), *out;
    qn_array *i = array_of(QN_INT32, VALUES(0), SHAPE(1));
    qn_array *by = array_of(QN_FLOAT32, VALUES(8, 9), SHAPE(1, 1, 2));
    const void *data = qn_array_data(a);
    qn_scatter_params p = {.naxes = 1, .axes = {0}};
    qn_node_spec spec = {.op = QN_OP_SCATTER,
                         .stream = test_stream(),
                         .inputs = (qn_array *[]){a, i, by},
                         .ninputs = 3,
                         .params = &p,
                         .params_size = sizeof p};
    check_status(qn_node_new(&out, &spec, QN_FLOAT32, SHAPE(3, 2)), QN_OK);
    qn_array_unref(a);
    check_status(qn_eval(&out, 1), QN_OK);
    assert_ptr_equal(qn_array_data(out), data);
    check_items(out, 8, 9, 3, 4, 5, 6);
    qn_array_unref(i);
    qn_array_unref(by);
}

static void test_along_an_axis(void **state)
{
    (void)state;
    qn_array *a = table();
    qn_axis_params axis = {0};
    qn_array *i = array_of(QN_INT32, VALUES(-1, 0, 9, -9), SHAPE(2, 2));
    check_items(apply(QN_OP_GATHER_AXIS, &axis, sizeof axis, QN_FLOAT32,
                      SHAPE(2, 2), INPUTS(a, i)),
                5, 2, 5, 2);
    qn_array *by = array_of(QN_FLOAT32, VALUES(10, 20, 30, 40), SHAPE(2, 2));
    qn_scatter_axis_params set = {.axis = 0, .combine = QN_COMBINE_SET};
    qn_scatter_axis_params sum = {.axis = 0, .combine = QN_COMBINE_SUM};
    check_items(apply(QN_OP_SCATTER_AXIS, &set, sizeof set, QN_FLOAT32,
                      SHAPE(3, 2), INPUTS(a, i, by)),
                1, 20, 3, 4, 10, 6);
    qn_array *twice = array_of(QN_UINT8, VALUES(1, 1, 1, 0), SHAPE(2, 2));
    check_items(apply(QN_OP_SCATTER_AXIS, &sum, sizeof sum, QN_FLOAT32,
                      SHAPE(3, 2), INPUTS(a, twice, by)),
                1, 42, 43, 24, 5, 6);
    qn_array_unref(twice);
    qn_array_unref(by);
    qn_array_unref(i);
    qn_array_unref(a);
}

static qn_status gather_scenario(void)
{
    qn_array *a = NULL, *i = NULL, *out = NULL;
    qn_gather_params p = {.naxes = 1, .axes = {0}, .slice_sizes = {1, 2}};
    const float values[] = {1, 2, 3, 4};
    const int index = 1;
    qn_status status = qn_array_from_data(&a, values, SHAPE(2, 2), QN_FLOAT32);
    if (!status)
        status = qn_array_from_data(&i, &index, SHAPE(1), QN_INT32);
    if (!status)
        status = apply_status(&out, QN_OP_GATHER, &p, sizeof p, QN_FLOAT32,
                              SHAPE(1, 1, 2), INPUTS(a, i));
    if (!status)
        qn_array_unref(out);
    qn_array_unref(a);
    qn_array_unref(i);
    return status;
}

static void test_gather_without_memory(void **state)
{
    (void)state;
    test_stream();
    each_alloc_may_fail(gather_scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gather_rows),
        cmocka_unit_test(test_indices_outside_are_clamped),
        cmocka_unit_test(test_gather_over_two_axes),
        cmocka_unit_test(test_gather_from_nothing),
        cmocka_unit_test(test_scatter_combines_in_order),
        cmocka_unit_test(test_updates_outside_are_dropped),
        cmocka_unit_test(test_scatter_into_a_dying_source),
        cmocka_unit_test(test_along_an_axis),
        cmocka_unit_test(test_gather_without_memory),
    };
    return run_ref_tests(tests);
}
