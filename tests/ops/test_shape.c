/* Views: shapes inferred, axes counted from either end, bounds. */
#include "support/qn_build.h"

#include <limits.h>

static void test_reshape_infers_one_dimension(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(2, 3));
    BUILD(y, qn_op_reshape(&y, x, SHAPE(3, -1), S));
    check_type(y, QN_INT32, 3, 2);
    check_values(y, 0, 1, 2, 3, 4, 5);
    BUILD(same, qn_op_reshape(&same, x, SHAPE(2, -1), S));
    assert_ptr_equal(same, x);
    BUILD(one, qn_op_reshape(&one, scalar_array(QN_INT8, 4), SHAPE(1, 1), S));
    check_type(one, QN_INT8, 1, 1);
    BUILD(none, qn_op_reshape(&none, one, NULL, 0, S));
    check_no_shape(none, QN_INT8);
    check_values(none, 4);
}

static void test_reshape_refuses_what_does_not_fit(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(2, 3));
    qn_array *empty = counted(QN_INT32, SHAPE(1, 0, 4));
    REFUSE("[reshape] Cannot reshape array of size 6 into shape (4,2).",
           qn_op_reshape(&refused, x, SHAPE(4, 2), S));
    REFUSE("[reshape]", qn_op_reshape(&refused, x, SHAPE(-1, -1), S));
    REFUSE("[reshape]", qn_op_reshape(&refused, x, SHAPE(-2, 3), S));
    REFUSE("[reshape]", qn_op_reshape(&refused, x, SHAPE(4, -1), S));
    REFUSE("[reshape]", qn_op_reshape(&refused, x, SHAPE(0, -1), S));
    REFUSE("[reshape] Cannot infer",
           qn_op_reshape(&refused, empty, SHAPE(1, 0, -1), S));
    REFUSE("[reshape]", qn_op_reshape(&refused, x, NULL, 33, S));
    REFUSE("[reshape]",
           qn_op_reshape(&refused, x, SHAPE(INT_MAX, INT_MAX, INT_MAX), S));
}

static void test_flatten_takes_axes_outside_as_the_nearest(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(2, 3, 4));
    BUILD(all, qn_op_flatten(&all, x, 0, -1, S));
    check_type(all, QN_INT32, 24);
    BUILD(tail, qn_op_flatten(&tail, x, 1, 9, S));
    check_type(tail, QN_INT32, 2, 12);
    BUILD(head, qn_op_flatten(&head, x, -7, 1, S));
    check_type(head, QN_INT32, 6, 4);
    BUILD(point, qn_op_flatten(&point, scalar_array(QN_INT8, 1), 0, -1, S));
    check_type(point, QN_INT8, 1);
    REFUSE("[flatten]", qn_op_flatten(&refused, x, 2, 1, S));
}

static void test_unflatten_splits_one_axis(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(2, 6));
    BUILD(y, qn_op_unflatten(&y, x, -1, SHAPE(3, -1), S));
    check_type(y, QN_INT32, 2, 3, 2);
    REFUSE("[unflatten]", qn_op_unflatten(&refused, x, 1, SHAPE(4, -1), S));
    REFUSE("[unflatten]", qn_op_unflatten(&refused, x, 1, SHAPE(2, 2), S));
    REFUSE("[unflatten]", qn_op_unflatten(&refused, x, 1, NULL, 0, S));
    REFUSE("[unflatten] Axis 2 is out of bounds",
           qn_op_unflatten(&refused, x, 2, SHAPE(1), S));
}

static void test_squeeze_and_expand_are_inverse(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(2, 3));
    BUILD(wide, qn_op_expand_dims(&wide, x, (int[]){0, -1}, 2, S));
    check_type(wide, QN_INT32, 1, 2, 3, 1);
    BUILD(back, qn_op_squeeze(&back, wide, NULL, QN_ALL_AXES, S));
    check_type(back, QN_INT32, 2, 3);
    BUILD(one, qn_op_squeeze(&one, wide, (int[]){-1}, 1, S));
    check_type(one, QN_INT32, 1, 2, 3);
    BUILD(kept, qn_op_squeeze(&kept, wide, NULL, 0, S));
    assert_ptr_equal(kept, wide);
    REFUSE("[squeeze] Cannot squeeze axis 1 with size 2",
           qn_op_squeeze(&refused, wide, (int[]){1}, 1, S));
    REFUSE("[squeeze]", qn_op_squeeze(&refused, wide, (int[]){0, 0}, 2, S));
    REFUSE("[expand_dims] Axis 5 is out of bounds for array with 3 dimensions.",
           qn_op_expand_dims(&refused, x, (int[]){5}, 1, S));
    REFUSE("[expand_dims] Axis -3 is out of bounds",
           qn_op_expand_dims(&refused, scalar_array(QN_INT8, 1),
                             (int[]){-3, -2}, 2, S));
    REFUSE("[expand_dims]",
           qn_op_expand_dims(&refused, x, (int[]){0, 0}, 2, S));
}

static void test_transpose_permutes(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(2, 3));
    BUILD(t, qn_op_transpose(&t, x, NULL, QN_ALL_AXES, S));
    check_type(t, QN_INT32, 3, 2);
    check_values(t, 0, 3, 1, 4, 2, 5);
    BUILD(same, qn_op_transpose(&same, x, (int[]){-2, 1}, 2, S));
    assert_ptr_equal(same, x);
    qn_array *box = counted(QN_INT32, SHAPE(2, 3, 4));
    BUILD(moved, qn_op_moveaxis(&moved, box, 0, -1, S));
    check_type(moved, QN_INT32, 3, 4, 2);
    BUILD(swapped, qn_op_swapaxes(&swapped, box, 0, -1, S));
    check_type(swapped, QN_INT32, 4, 3, 2);
    REFUSE("[transpose] Received 1 axes for array with 2 dimensions",
           qn_op_transpose(&refused, x, (int[]){0}, 1, S));
    REFUSE("[transpose]", qn_op_transpose(&refused, x, (int[]){0, 0}, 2, S));
    REFUSE("[transpose]", qn_op_transpose(&refused, x, (int[]){0, 2}, 2, S));
    REFUSE("[moveaxis]", qn_op_moveaxis(&refused, x, 0, 2, S));
    REFUSE("[swapaxes]", qn_op_swapaxes(&refused, x, -3, 0, S));
}

static void test_broadcast_stretches_ones(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(2, 1));
    BUILD(y, qn_op_broadcast_to(&y, x, SHAPE(2, 2, 2), S));
    check_values(y, 0, 0, 1, 1, 0, 0, 1, 1);
    BUILD(none, qn_op_broadcast_to(&none, x, SHAPE(2, 0), S));
    check_empty(none);
    REFUSE("[broadcast_to]", qn_op_broadcast_to(&refused, x, SHAPE(3, 2), S));
    REFUSE("[broadcast_to]", qn_op_broadcast_to(&refused, x, SHAPE(2), S));
    REFUSE("[broadcast_to]", qn_op_broadcast_to(&refused, x, SHAPE(2, -1), S));
    qn_array *out[3];
    qn_array *in[3] = {x, counted(QN_INT8, SHAPE(3)), scalar_array(QN_BOOL, 1)};
    check_status(qn_op_broadcast_arrays(out, in, 3, S), QN_OK);
    for (int i = 0; i < 3; i++)
        check_type(keep(out[i]), in[i]->dtype, 2, 3);
}

static void test_as_strided_stays_inside(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(6));
    BUILD(y, qn_op_as_strided(&y, x, SHAPE(2, 3), (int64_t[]){1, 2}, 2, 0, S));
    check_values(y, 0, 2, 4, 1, 3, 5);
    BUILD(back, qn_op_as_strided(&back, x, SHAPE(6), (int64_t[]){-1}, 1, 5, S));
    check_values(back, 5, 4, 3, 2, 1, 0);
    BUILD(none, qn_op_as_strided(&none, x, SHAPE(0, 9), (int64_t[]){99, 99}, 2,
                                 99, S));
    check_empty(none);
    REFUSE("[as_strided]", qn_op_as_strided(&refused, x, SHAPE(2, 3),
                                            (int64_t[]){1, 2}, 2, 1, S));
    REFUSE("[as_strided]",
           qn_op_as_strided(&refused, x, SHAPE(2), (int64_t[]){-1}, 1, 0, S));
    REFUSE("[as_strided]", qn_op_as_strided(&refused, x, SHAPE(3),
                                            (int64_t[]){INT64_MAX}, 1, 0, S));
    REFUSE("[as_strided]", qn_op_as_strided(&refused, x, SHAPE(3),
                                            (int64_t[]){INT64_MIN}, 1, 5, S));
    REFUSE("[as_strided]",
           qn_op_as_strided(&refused, x, SHAPE(2), (int64_t[]){1, 1}, 2, 0, S));
}

static void test_view_changes_the_last_dimension(void **state)
{
    (void)state;
    qn_array *x = counted(QN_UINT8, SHAPE(2, 4));
    BUILD(wide, qn_op_view(&wide, x, QN_UINT16, S));
    check_type(wide, QN_UINT16, 2, 2);
    check_values(wide, 256, 770, 1284, 1798);
    BUILD(narrow, qn_op_view(&narrow, wide, QN_INT8, S));
    check_type(narrow, QN_INT8, 2, 4);
    REFUSE("[view]", qn_op_view(&refused, x, QN_FLOAT64, S));
    REFUSE("[view]",
           qn_op_view(&refused, scalar_array(QN_UINT8, 1), QN_INT16, S));
}

static void test_atleast_adds_dimensions(void **state)
{
    (void)state;
    qn_array *line = counted(QN_INT8, SHAPE(3));
    BUILD(one, qn_op_atleast_1d(&one, scalar_array(QN_INT8, 1), S));
    check_type(one, QN_INT8, 1);
    BUILD(two, qn_op_atleast_2d(&two, line, S));
    check_type(two, QN_INT8, 1, 3);
    BUILD(three, qn_op_atleast_3d(&three, line, S));
    check_type(three, QN_INT8, 1, 3, 1);
}

static void test_number_of_elements_multiplies(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT8, SHAPE(2, 3, 4));
    BUILD(n, qn_op_number_of_elements(&n, x, (int[]){0, -1}, 2, false, QN_INT32,
                                      S));
    check_values(n, 8);
    BUILD(inverse, qn_op_number_of_elements(&inverse, x, (int[]){0, -1}, 2,
                                            true, QN_FLOAT32, S));
    check_values(inverse, 0.125);
}

static void test_depends_keeps_values(void **state)
{
    (void)state;
    qn_array *in[2] = {counted(QN_INT8, SHAPE(2)), counted(QN_INT32, SHAPE(3))};
    qn_array *more = counted(QN_INT8, SHAPE(1)), *out[2];
    check_status(qn_op_depends(out, in, 2, &more, 1, S), QN_OK);
    check_values(keep(out[0]), 0, 1);
    check_values(keep(out[1]), 0, 1, 2);
    check_status(qn_op_depends(out, NULL, 0, NULL, 0, S), QN_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUILD_TEST(test_reshape_infers_one_dimension),
        BUILD_TEST(test_reshape_refuses_what_does_not_fit),
        BUILD_TEST(test_flatten_takes_axes_outside_as_the_nearest),
        BUILD_TEST(test_unflatten_splits_one_axis),
        BUILD_TEST(test_squeeze_and_expand_are_inverse),
        BUILD_TEST(test_transpose_permutes),
        BUILD_TEST(test_broadcast_stretches_ones),
        BUILD_TEST(test_as_strided_stays_inside),
        BUILD_TEST(test_view_changes_the_last_dimension),
        BUILD_TEST(test_atleast_adds_dimensions),
        BUILD_TEST(test_number_of_elements_multiplies),
        BUILD_TEST(test_depends_keeps_values),
    };
    return run_build_tests(tests);
}
