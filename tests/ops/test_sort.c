/* Order: types, axes, extrema, medians, places in a sequence. */
#include "support/qn_build.h"

static void test_sort_keeps_or_numbers(void **state)
{
    (void)state;
    qn_array *x =
        keep(array_of(QN_FLOAT32, VALUES(3, NAN, 1, 2, 2, 0), SHAPE(2, 3)));
    BUILD(s, qn_op_sort(&s, QN_OP_SORT, x, -1, S));
    check_type(s, QN_FLOAT32, 2, 3);
    check_values(s, 1, 3, NAN, 0, 2, 2);
    BUILD(i, qn_op_sort(&i, QN_OP_ARGSORT, x, 1, S));
    check_type(i, QN_UINT32, 2, 3);
    check_values(i, 2, 0, 1, 2, 0, 1);
    REFUSE("[argsort] Axis 2 is out of bounds",
           qn_op_sort(&refused, QN_OP_ARGSORT, x, 2, S));
    REFUSE("[sort]",
           qn_op_sort(&refused, QN_OP_SORT, scalar_array(QN_INT8, 1), -1, S));
}

static void test_partition_places_one_element(void **state)
{
    (void)state;
    qn_array *x = LINE(QN_INT32, 5, 1, 4, 2, 3);
    for (int kth = -5; kth < 5; kth++) {
        BUILD(p, qn_op_partition(&p, QN_OP_PARTITION, x, kth, 0, S));
        check_status(qn_eval(&p, 1), QN_OK);
        int place = kth < 0 ? kth + 5 : kth;
        for (int i = 0; i < 5; i++)
            assert_true(i < place    ? item(p, (size_t)i) <= place
                        : i == place ? item(p, (size_t)i) == place + 1
                                     : item(p, (size_t)i) > place + 1);
    }
    REFUSE("[partition] Received invalid kth 5",
           qn_op_partition(&refused, QN_OP_PARTITION, x, 5, 0, S));
    REFUSE("[argpartition]",
           qn_op_partition(&refused, QN_OP_ARGPARTITION, x, -6, 0, S));
}

static void test_topk_holds_the_largest(void **state)
{
    (void)state;
    qn_array *x = LINE(QN_INT32, 5, 1, 4, 2, 3);
    BUILD(top, qn_op_topk(&top, x, 2, 0, S));
    check_type(top, QN_INT32, 2);
    BUILD(sorted, qn_op_sort(&sorted, QN_OP_SORT, top, 0, S));
    check_values(sorted, 4, 5);
    BUILD(all, qn_op_topk(&all, x, 5, 0, S));
    assert_ptr_equal(all, x);
    BUILD(none, qn_op_topk(&none, x, 0, 0, S));
    check_type(none, QN_INT32, 0);
    REFUSE("[topk] Received invalid k=6", qn_op_topk(&refused, x, 6, 0, S));
    REFUSE("[topk]", qn_op_topk(&refused, x, -1, 0, S));
}

static void test_arg_reduce(void **state)
{
    (void)state;
    qn_array *x =
        keep(array_of(QN_INT32, VALUES(3, 9, 9, 0, 5, 0), SHAPE(2, 3)));
    BUILD(high, qn_op_arg_reduce(&high, x, true, 1, false, S));
    check_type(high, QN_UINT32, 2);
    check_values(high, 1, 1);
    BUILD(low, qn_op_arg_reduce(&low, x, false, -1, true, S));
    check_type(low, QN_UINT32, 2, 1);
    check_values(low, 0, 0);
    BUILD(all, qn_op_arg_reduce_all(&all, x, false, true, S));
    check_type(all, QN_UINT32, 1, 1);
    check_values(all, 3);
    BUILD(point, qn_op_arg_reduce_all(&point, scalar_array(QN_INT8, 4), true,
                                      false, S));
    check_no_shape(point, QN_UINT32);
    REFUSE("[argmin] Cannot argmin reduce zero size array",
           qn_op_arg_reduce(&refused, counted(QN_INT8, SHAPE(0)), false, 0,
                            false, S));
}

static void test_median(void **state)
{
    (void)state;
    qn_array *x =
        keep(array_of(QN_INT32, VALUES(3, 1, 2, 9, 8, 4), SHAPE(2, 3)));
    BUILD(all, qn_op_median(&all, x, NULL, QN_ALL_AXES, false, S));
    check_no_shape(all, QN_FLOAT32);
    check_values(all, 3.5);
    BUILD(rows, qn_op_median(&rows, x, (int[]){-1}, 1, true, S));
    check_type(rows, QN_FLOAT32, 2, 1);
    check_values(rows, 2, 8);
    BUILD(nan, qn_op_median(&nan, LINE(QN_FLOAT32, 1, NAN, 3), NULL,
                            QN_ALL_AXES, false, S));
    check_values(nan, NAN);
    REFUSE("[median] Cannot take the median along an empty axis",
           qn_op_median(&refused, counted(QN_INT8, SHAPE(0)), NULL, QN_ALL_AXES,
                        false, S));
}

static void test_searchsorted(void **state)
{
    (void)state;
    qn_array *line = LINE(QN_INT32, 1, 2, 2, 4);
    qn_array *values =
        keep(array_of(QN_FLOAT32, VALUES(0, 2, 2.5, 9), SHAPE(2, 2)));
    BUILD(left, qn_op_searchsorted(&left, line, values, "left", S));
    check_type(left, QN_UINT32, 2, 2);
    check_values(left, 0, 1, 3, 4);
    BUILD(right, qn_op_searchsorted(&right, line, values, "right", S));
    check_values(right, 0, 3, 3, 4);
    REFUSE("[searchsorted] The side must be",
           qn_op_searchsorted(&refused, line, values, "middle", S));
    REFUSE("[searchsorted] The sorted sequence must be 1-D",
           qn_op_searchsorted(&refused, values, line, "left", S));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUILD_TEST(test_sort_keeps_or_numbers),
        BUILD_TEST(test_partition_places_one_element),
        BUILD_TEST(test_topk_holds_the_largest),
        BUILD_TEST(test_arg_reduce),
        BUILD_TEST(test_median),
        BUILD_TEST(test_searchsorted),
    };
    return run_build_tests(tests);
}
