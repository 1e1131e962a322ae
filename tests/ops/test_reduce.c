/* Reductions: axes, widened types, means, refusals; scans. */
#include "support/qn_build.h"

static void test_small_integers_add_up_wider(void **state)
{
    (void)state;
    static const qn_dtype types[][2] = {
        {QN_BOOL, QN_INT32},     {QN_INT8, QN_INT32},    {QN_INT16, QN_INT32},
        {QN_UINT8, QN_UINT32},   {QN_UINT16, QN_UINT32}, {QN_INT64, QN_INT64},
        {QN_FLOAT16, QN_FLOAT16}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        qn_array *x = counted(types[i][0], SHAPE(2, 3));
        BUILD(sum,
              qn_op_reduce(&sum, QN_OP_SUM, x, NULL, QN_ALL_AXES, false, S));
        check_no_shape(sum, types[i][1]);
        BUILD(product, qn_op_reduce(&product, QN_OP_PROD, x, NULL, QN_ALL_AXES,
                                    true, S));
        check_type(product, types[i][1], 1, 1);
        BUILD(top,
              qn_op_reduce(&top, QN_OP_MAX, x, NULL, QN_ALL_AXES, false, S));
        check_no_shape(top, types[i][0]);
    }
}

static void test_no_axis_leaves_the_input(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT8, SHAPE(2, 3));
    BUILD(sum, qn_op_reduce(&sum, QN_OP_SUM, x, NULL, 0, false, S));
    assert_ptr_equal(sum, x);
    BUILD(any, qn_op_reduce(&any, QN_OP_ANY, x, NULL, 0, false, S));
    check_type(any, QN_BOOL, 2, 3);
    check_values(any, 0, 1, 1, 1, 1, 1);
    qn_array *point = scalar_array(QN_BOOL, 1);
    BUILD(all,
          qn_op_reduce(&all, QN_OP_SUM, point, NULL, QN_ALL_AXES, false, S));
    assert_ptr_equal(all, point);
}

static void test_axes_are_checked(void **state)
{
    (void)state;
    qn_array *x = counted(QN_FLOAT32, SHAPE(2, 0));
    REFUSE("[sum] Axis 2 is out of bounds for array with 2 dimensions.",
           qn_op_reduce(&refused, QN_OP_SUM, x, (int[]){2}, 1, false, S));
    REFUSE("[sum] Axis -2 is given twice",
           qn_op_reduce(&refused, QN_OP_SUM, x, (int[]){0, -2}, 2, false, S));
    REFUSE("[min] Cannot min reduce over axis 1 with size 0.",
           qn_op_reduce(&refused, QN_OP_MIN, x, (int[]){1}, 1, false, S));
    BUILD(none, qn_op_reduce(&none, QN_OP_MAX, x, (int[]){0}, 1, false, S));
    check_type(none, QN_FLOAT32, 0);
    BUILD(zero, qn_op_reduce(&zero, QN_OP_SUM, x, (int[]){1}, 1, false, S));
    check_values(zero, 0, 0);
}

static void test_mean_of_integers_is_exact_before_dividing(void **state)
{
    (void)state;
    qn_array *x = LINE(QN_INT32, 2147483647, 2147483647, 2);
    BUILD(mean, qn_op_mean(&mean, x, NULL, QN_ALL_AXES, false, S));
    check_no_shape(mean, QN_FLOAT32);
    check_near(mean, 128, 1431655765.33);
    BUILD(nothing, qn_op_mean(&nothing, counted(QN_FLOAT32, SHAPE(0)), NULL,
                              QN_ALL_AXES, false, S));
    check_values(nothing, NAN);
    BUILD(half, qn_op_mean(&half, LINE(QN_FLOAT16, 60000, 60000, 60000), NULL,
                           QN_ALL_AXES, false, S));
    check_no_shape(half, QN_FLOAT16);
    check_values(half, 60000);
}

static void test_variance(void **state)
{
    (void)state;
    qn_array *x = LINE(QN_INT32, 1, 2, 3, 4);
    BUILD(var, qn_op_var(&var, x, NULL, QN_ALL_AXES, false, 0, S));
    check_no_shape(var, QN_FLOAT32);
    check_values(var, 1.25);
    BUILD(std, qn_op_std(&std, x, NULL, QN_ALL_AXES, true, 1, S));
    check_type(std, QN_FLOAT32, 1);
    check_near(std, 1e-6, 1.29099444873581);
    BUILD(none, qn_op_var(&none, x, NULL, QN_ALL_AXES, false, 4, S));
    check_values(none, INFINITY);
    qn_array *z = counted(QN_COMPLEX64, SHAPE(3));
    BUILD(complex_var,
          qn_op_var(&complex_var, z, NULL, QN_ALL_AXES, false, 0, S));
    check_no_shape(complex_var, QN_FLOAT32);
    check_near(complex_var, 1e-6, 2.0 / 3);
}

static void test_count_nonzero(void **state)
{
    (void)state;
    qn_array *x =
        keep(array_of(QN_FLOAT32, VALUES(0, NAN, -0.0, 3), SHAPE(2, 2)));
    BUILD(n, qn_op_count_nonzero(&n, x, (int[]){1}, 1, false, S));
    check_type(n, QN_INT32, 2);
    /* A comparison, not a cast: a count has no slope. */
    const qn_array *sum = n;
    while (sum->node && sum->node->op != QN_OP_NOT_EQUAL)
        sum = sum->node->inputs[0];
    assert_non_null(sum->node);
    check_values(n, 1, 1);
}

static void test_scans_keep_their_type(void **state)
{
    (void)state;
    qn_array *x = LINE(QN_BOOL, 1, 0, 1);
    BUILD(sum, qn_op_scan(&sum, QN_OP_CUMSUM, x, 0, false, true, S));
    check_type(sum, QN_INT32, 3);
    check_values(sum, 1, 1, 2);
    BUILD(product, qn_op_scan(&product, QN_OP_CUMPROD, x, 0, true, false, S));
    check_type(product, QN_BOOL, 3);
    check_values(product, 0, 1, 1);
    BUILD(logs, qn_op_scan(&logs, QN_OP_LOGCUMSUMEXP, LINE(QN_INT8, 0, 0), 0,
                           false, true, S));
    check_type(logs, QN_FLOAT32, 2);
    check_near(logs, 1e-6, 0, 0.693147181);
    REFUSE("[cummax] Axis 1 is out of bounds",
           qn_op_scan(&refused, QN_OP_CUMMAX, x, 1, false, true, S));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUILD_TEST(test_small_integers_add_up_wider),
        BUILD_TEST(test_no_axis_leaves_the_input),
        BUILD_TEST(test_axes_are_checked),
        BUILD_TEST(test_mean_of_integers_is_exact_before_dividing),
        BUILD_TEST(test_variance),
        BUILD_TEST(test_count_nonzero),
        BUILD_TEST(test_scans_keep_their_type),
    };
    return run_build_tests(tests);
}
