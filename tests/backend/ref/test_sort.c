/* Orders: stable, NaN last, -0 equal to 0, every type, any length. */
#include "support/qn_ref_test.h"

static qn_array *along(qn_op op, qn_array *a, int axis)
{
    qn_axis_params p = {axis};
    bool indices = op == QN_OP_ARGSORT;
    return apply(op, &p, sizeof p, indices ? QN_UINT32 : a->dtype, a->shape,
                 a->ndim, INPUTS(a));
}

static void test_nan_comes_last(void **state)
{
    (void)state;
    const qn_dtype dtypes[] = {QN_FLOAT16, QN_BFLOAT16, QN_FLOAT32, QN_FLOAT64};
    for (int t = 0; t < 4; t++) {
        qn_array *a =
            array_of(dtypes[t], VALUES(1, NAN, 2, -INFINITY, NAN, -3, INFINITY),
                     SHAPE(7));
        check_items(along(QN_OP_SORT, a, 0), -INFINITY, -3, 1, 2, INFINITY, NAN,
                    NAN);
        check_items(along(QN_OP_ARGSORT, a, 0), 3, 5, 0, 2, 6, 1, 4);
        qn_array_unref(a);
    }
}

static void test_equal_elements_keep_their_order(void **state)
{
    (void)state;
    qn_array *a =
        array_of(QN_FLOAT32, VALUES(0.0, -0.0, 1, 0.0, -0.0), SHAPE(5));
    check_items(along(QN_OP_SORT, a, 0), 0.0, -0.0, 0.0, -0.0, 1);
    check_items(along(QN_OP_ARGSORT, a, 0), 0, 1, 3, 4, 2);
    qn_array_unref(a);
}

/* Lines on both sides of where the method changes, with many equal keys. */
static void test_long_lines_are_stable(void **state)
{
    (void)state;
    const int lengths[] = {1, 2, 47, 48, 49, 300, 70000};
    uint64_t seed = 11;
    for (int round = 0; round < 7; round++) {
        qn_array *a = array_of(QN_INT32, NULL, SHAPE(lengths[round]));
        for (size_t i = 0; i < a->size; i++)
            element_put(place_of(a, i), QN_INT32,
                        floor(test_random(&seed) * 500));
        qn_array *order = along(QN_OP_ARGSORT, a, 0);
        qn_array *sorted = along(QN_OP_SORT, a, 0);
        bool *seen = calloc(a->size, 1);
        const uint32_t *index = qn_array_data(order);
        for (size_t i = 0; i < a->size; i++) {
            double x = item(a, index[i]);
            assert_true(x == item(sorted, i));
            assert_false(seen[index[i]]);
            seen[index[i]] = true;
            if (!i)
                continue;
            double before = item(a, index[i - 1]);
            assert_true(before < x || (before == x && index[i - 1] < index[i]));
        }
        free(seen);
        qn_array_unref(order);
        qn_array_unref(sorted);
        qn_array_unref(a);
    }
}

static void test_every_type_sorts(void **state)
{
    (void)state;
    for (int dtype = QN_UINT8; dtype < QN_DTYPE_COUNT; dtype++) {
        qn_array *a = strided(
            array_of((qn_dtype)dtype, VALUES(3, 1, 2, 9, 7, 8), SHAPE(2, 3)));
        check_items(along(QN_OP_SORT, a, 1), 1, 2, 3, 7, 8, 9);
        check_items(along(QN_OP_ARGSORT, a, 0), 0, 0, 0, 1, 1, 1);
        qn_array_unref(a);
    }
    qn_array *signs = array_of(QN_INT64, VALUES(5, -1, 0, -7), SHAPE(4));
    check_items(along(QN_OP_SORT, signs, 0), -7, -1, 0, 5);
    qn_array_unref(signs);
    qn_array *flags = array_of(QN_BOOL, VALUES(1, 0, 1), SHAPE(3));
    check_items(along(QN_OP_ARGSORT, flags, 0), 1, 0, 2);
    qn_array_unref(flags);
}

static void test_complex_order(void **state)
{
    (void)state;
    const float parts[] = {1, NAN, 1, 1, 2, 0, 1, -1};
    qn_array *a;
    check_status(qn_array_from_data(&a, parts, SHAPE(4), QN_COMPLEX64), QN_OK);
    check_items(along(QN_OP_ARGSORT, a, 0), 3, 1, 2, 0);
    qn_array_unref(a);
}

static void test_sort_of_nothing(void **state)
{
    (void)state;
    qn_array *a = array_of(QN_FLOAT32, NULL, SHAPE(3, 0));
    for (int axis = 0; axis < 2; axis++) {
        qn_array *out = along(QN_OP_ARGSORT, a, axis);
        assert_int_equal(out->size, 0);
        qn_array_unref(out);
    }
    qn_array_unref(a);
}

static void test_partition_puts_kth_in_place(void **state)
{
    (void)state;
    qn_array *a =
        array_of(QN_FLOAT32, VALUES(0.5, NAN, 2, 9, -1, 7, NAN, 3), SHAPE(8));
    qn_partition_params p = {0, 4};
    qn_array *order =
        apply(QN_OP_ARGPARTITION, &p, sizeof p, QN_UINT32, SHAPE(8), INPUTS(a));
    qn_array *values =
        apply(QN_OP_PARTITION, &p, sizeof p, QN_FLOAT32, SHAPE(8), INPUTS(a));
    assert_true(item(values, 4) == 7);
    assert_true(item(a, ((uint32_t *)qn_array_data(order))[4]) == 7);
    for (size_t i = 0; i < 4; i++)
        assert_true(item(values, i) <= 7);
    qn_array_unref(values);
    check_items(along(QN_OP_SORT, order, 0), 0, 1, 2, 3, 4, 5, 6, 7);
    qn_array_unref(order);
    qn_array_unref(a);
}

/* ---- the best place ---- */

static qn_array *best(qn_array *a, int axis, bool max, const int *shape,
                      int ndim)
{
    qn_arg_reduce_params p = {axis, max};
    return apply(QN_OP_ARG_REDUCE, &p, sizeof p, QN_UINT32, shape, ndim,
                 INPUTS(a));
}

static void test_first_of_equals_wins(void **state)
{
    (void)state;
    qn_array *a = array_of(QN_INT8, VALUES(1, 5, 5, -3, -3, 0), SHAPE(2, 3));
    check_items(best(a, 1, true, SHAPE(2)), 1, 2);
    check_items(best(a, 1, false, SHAPE(2, 1)), 0, 0);
    check_items(best(a, 0, false, SHAPE(3)), 1, 1, 1);
    qn_array_unref(a);
    a = array_of(QN_FLOAT32, VALUES(-0.0, 0.0), SHAPE(2));
    check_items(best(a, 0, true, SCALAR), 0);
    check_items(best(a, 0, false, SCALAR), 0);
    qn_array_unref(a);
    a = array_of(QN_FLOAT32, VALUES(-INFINITY, -INFINITY), SHAPE(2));
    check_items(best(a, 0, true, SCALAR), 0);
    qn_array_unref(a);
}

static void test_first_nan_wins(void **state)
{
    (void)state;
    for (size_t at = 0; at < 600; at += 37) {
        qn_array *a = array_of(QN_FLOAT32, NULL, SHAPE(600));
        for (size_t i = 0; i < 600; i++)
            element_put(place_of(a, i), QN_FLOAT32,
                        i == at || i == 599 ? NAN : (double)(i % 50));
        check_items(best(a, 0, true, SCALAR), (double)at);
        check_items(best(a, 0, false, SCALAR), (double)at);
        qn_array_unref(a);
    }
}

static void test_extreme_integers(void **state)
{
    (void)state;
    qn_array *a = array_of(QN_UINT64, NULL, SHAPE(3));
    uint64_t *data = qn_array_data(a);
    data[0] = 1;
    data[1] = UINT64_MAX;
    data[2] = 0;
    check_items(best(a, 0, true, SCALAR), 1);
    check_items(best(a, 0, false, SCALAR), 2);
    qn_array_unref(a);
}

static void test_search(void **state)
{
    (void)state;
    qn_array *a = array_of(QN_FLOAT32, VALUES(-1, 0, 0, 2, NAN), SHAPE(5));
    qn_array *v = array_of(QN_FLOAT32, VALUES(-0.0, 5, -9, NAN), SHAPE(2, 2));
    qn_searchsorted_params left = {false}, right = {true};
    check_items(apply(QN_OP_SEARCHSORTED, &left, sizeof left, QN_UINT32,
                      SHAPE(2, 2), INPUTS(a, v)),
                1, 4, 0, 4);
    check_items(apply(QN_OP_SEARCHSORTED, &right, sizeof right, QN_UINT32,
                      SHAPE(2, 2), INPUTS(a, v)),
                3, 4, 0, 5);
    qn_array *none = array_of(QN_FLOAT32, NULL, SHAPE(0));
    check_items(apply(QN_OP_SEARCHSORTED, &right, sizeof right, QN_UINT32,
                      SHAPE(2, 2), INPUTS(none, v)),
                0, 0, 0, 0);
    qn_array_unref(none);
    qn_array_unref(v);
    qn_array_unref(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nan_comes_last),
        cmocka_unit_test(test_equal_elements_keep_their_order),
        cmocka_unit_test(test_long_lines_are_stable),
        cmocka_unit_test(test_every_type_sorts),
        cmocka_unit_test(test_complex_order),
        cmocka_unit_test(test_sort_of_nothing),
        cmocka_unit_test(test_partition_puts_kth_in_place),
        cmocka_unit_test(test_first_of_equals_wins),
        cmocka_unit_test(test_first_nan_wins),
        cmocka_unit_test(test_extreme_integers),
        cmocka_unit_test(test_search),
    };
    return run_ref_tests(tests);
}
