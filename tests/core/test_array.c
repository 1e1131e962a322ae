/* Arrays: shapes that are refused, storage, layout flags, donation. */
#include "fake.h"

static void test_shapes_that_can_not_be_are_refused(void **state)
{
    (void)state;
    qn_array *a = NULL;
    int many[QN_MAX_NDIM + 1];
    for (int i = 0; i <= QN_MAX_NDIM; i++)
        many[i] = 1;
    check_error(qn_array_new(&a, QN_BOOL, many, QN_MAX_NDIM + 1), QN_E_ARG,
                "dimensions");
    check_error(qn_array_new(&a, QN_BOOL, many, -1), QN_E_ARG, "dimensions");
    check_error(qn_array_new(&a, QN_BOOL, (int[]){2, -1}, 2), QN_E_ARG,
                "negative");
    /* Beside a zero too. */
    check_error(qn_array_new(&a, QN_BOOL, (int[]){0, -1}, 2), QN_E_ARG,
                "negative");
    check_error(
        qn_array_new(&a, QN_BOOL, (int[]){INT32_MAX, INT32_MAX, INT32_MAX}, 3),
        QN_E_ARG, "too many");
    /* 2^62 elements would fit, 2^63 bytes do not. */
    check_error(qn_array_new(&a, QN_INT16, (int[]){1 << 30, 1 << 30, 4}, 3),
                QN_E_ARG, "too many");
    assert_null(a);
}

static void test_an_empty_shape_may_have_any_other_dimensions(void **state)
{
    (void)state;
    const int shape[] = {INT32_MAX, INT32_MAX, 0, INT32_MAX, INT32_MAX};
    qn_array *a;
    check_status(qn_array_from_data(&a, NULL, shape, 5, QN_FLOAT64), QN_OK);
    assert_int_equal(a->size, 0);
    assert_int_equal(qn_array_nbytes(a), 0);
    assert_true(a->row_contiguous && a->col_contiguous && a->contiguous);
    assert_non_null(qn_array_data(a));
    qn_array_unref(a);
}

static void test_data_is_copied(void **state)
{
    (void)state;
    int64_t data[4] = {1, 2, 3, 4};
    qn_array *a;
    check_status(qn_array_from_data(&a, data, (int[]){2, 2}, 2, QN_INT64),
                 QN_OK);
    data[3] = 0;
    assert_true(qn_array_ready(a));
    assert_int_equal(fake_data(a)[3], 4);
    assert_int_equal(a->strides[0], 2);
    assert_int_equal(a->strides[1], 1);
    qn_array_unref(a);
}

static void test_data_that_is_not_there_is_refused(void **state)
{
    (void)state;
    qn_array *a = NULL;
    check_error(qn_array_from_data(&a, NULL, (int[]){2}, 1, QN_INT8), QN_E_ARG,
                "NULL");
    check_error(
        qn_array_from_managed(&a, NULL, (int[]){2}, 1, QN_INT8, NULL, NULL),
        QN_E_ARG, "NULL");
    assert_null(a);
}

static int destroyed;

static void destroy(void *payload)
{
    assert_ptr_equal(payload, &destroyed);
    destroyed++;
}

static void test_managed_data_is_used_in_place(void **state)
{
    (void)state;
    int64_t data[4] = {1, 2, 3, 4};
    qn_array *a;
    destroyed = 0;
    check_status(qn_array_from_managed(&a, data, fake_shape, 1, QN_INT64,
                                       &destroyed, destroy),
                 QN_OK);
    assert_ptr_equal(qn_array_data(a), data);
    qn_array_unref(a);
    assert_int_equal(destroyed, 1);
}

static void test_misaligned_managed_data_is_copied_and_given_back(void **state)
{
    (void)state;
    _Alignas(8) char data[20] = {0, 0, 0, 0, 7};
    qn_array *a;
    destroyed = 0;
    check_status(qn_array_from_managed(&a, data + 4, (int[]){2}, 1, QN_INT64,
                                       &destroyed, destroy),
                 QN_OK);
    assert_int_equal(destroyed, 1);
    assert_int_equal(fake_data(a)[0], 7);
    qn_array_unref(a);
}

static void test_managed_data_is_given_back_when_the_call_fails(void **state)
{
    (void)state;
    int64_t data[4] = {0};
    qn_array *a = NULL;
    destroyed = 0;
    check_error(qn_array_from_managed(&a, data, (int[]){-1}, 1, QN_INT64,
                                      &destroyed, destroy),
                QN_E_ARG, "negative");
    assert_int_equal(destroyed, 1);
    for (long n = 0; n < 2; n++) {
        qn_test_fail_alloc(n);
        qn_status status = qn_array_from_managed(&a, data, fake_shape, 1,
                                                 QN_INT64, &destroyed, destroy);
        qn_test_fail_alloc(-1);
        check_status(status, QN_E_NOMEM);
        assert_int_equal(destroyed, 2 + n);
    }
    assert_null(a);
}

/* One view of a [2, 3, 4] array and the flags that it has to get. */
typedef struct layout {
    int shape[3];
    int64_t strides[3];
    bool contiguous, row, col;
} layout;

static void test_flags_say_how_elements_lie(void **state)
{
    (void)state;
    static const layout layouts[] = {
        {{2, 3, 4}, {12, 4, 1}, true, true, false},
        {{4, 3, 2}, {1, 4, 12}, true, false, true},
        {{3, 2, 4}, {4, 12, 1}, true, false, false},
        {{2, 3, 2}, {12, 4, 2}, false, false, false},
        {{2, 3, 4}, {12, 4, -1}, false, false, false},
        {{2, 3, 4}, {0, 4, 1}, false, false, false},
        {{1, 3, 1}, {99, 1, 0}, true, true, true},
        {{1, 1, 1}, {5, 6, 7}, true, true, true},
        {{2, 0, 4}, {9, 9, 9}, true, true, true},
        /* Rows and columns of one length: strides decide. */
        {{2, 1, 2}, {1, 0, 2}, true, false, true},
        {{2, 1, 2}, {2, 0, 1}, true, true, false},
        {{2, 1, 2}, {1, 0, 1}, false, false, false},
    };
    int64_t data[24] = {0};
    qn_array *source;
    check_status(
        qn_array_from_data(&source, data, (int[]){2, 3, 4}, 3, QN_INT64),
        QN_OK);
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        const layout *l = &layouts[i];
        qn_array *view;
        check_status(qn_array_new(&view, QN_INT64, l->shape, 3), QN_OK);
        qn_array_set_view(view, source, l->strides, 0);
        assert_int_equal(view->contiguous, l->contiguous);
        assert_int_equal(view->row_contiguous, l->row);
        assert_int_equal(view->col_contiguous, l->col);
        qn_array_unref(view);
    }
    assert_true(qn_buffer_unique(source->buffer));
    qn_array_unref(source);
}

static void test_only_what_nobody_else_sees_is_donatable(void **state)
{
    (void)state;
    qn_array *a = fake_leaf(1), *view;
    assert_true(qn_array_donatable(a));
    qn_array_ref(a);
    assert_false(qn_array_donatable(a));
    qn_array_unref(a);

    check_status(qn_array_new(&view, QN_INT64, fake_shape, 1), QN_OK);
    assert_false(qn_array_donatable(view)); /* not READY */
    qn_array_share(view, a);
    qn_array_set_ready(view);
    assert_false(qn_array_donatable(a));
    assert_false(qn_array_donatable(view));
    qn_array_unref(a);
    assert_true(qn_array_donatable(view));
    qn_array_unref(view);

    static int64_t data[4];
    check_status(
        qn_array_from_managed(&a, data, fake_shape, 1, QN_INT64, NULL, NULL),
        QN_OK);
    assert_false(qn_array_donatable(a));
    qn_array_unref(a);
}

static qn_status make_a_scalar(void)
{
    qn_array *a;
    qn_memory_clear_cache();
    qn_status status = qn_array_from_scalar(&a, &(float){1}, QN_FLOAT32);
    if (!status)
        qn_array_unref(a);
    return status;
}

static void test_survives_failing_allocations(void **state)
{
    (void)state;
    each_alloc_may_fail(make_a_scalar);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes_that_can_not_be_are_refused),
        cmocka_unit_test(test_an_empty_shape_may_have_any_other_dimensions),
        cmocka_unit_test(test_data_is_copied),
        cmocka_unit_test(test_data_that_is_not_there_is_refused),
        cmocka_unit_test(test_managed_data_is_used_in_place),
        cmocka_unit_test(test_misaligned_managed_data_is_copied_and_given_back),
        cmocka_unit_test(test_managed_data_is_given_back_when_the_call_fails),
        cmocka_unit_test(test_flags_say_how_elements_lie),
        cmocka_unit_test(test_only_what_nobody_else_sees_is_donatable),
        cmocka_unit_test(test_survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, fake_setup, NULL);
}
