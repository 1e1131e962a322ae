/* Stack, split, repeat, roll, diagonals and others. */
#include "support/qn_build.h"

#include <limits.h>

static void test_stack_makes_a_new_axis(void **state)
{
    (void)state;
    qn_array *pair[2] = {LINE(QN_INT32, 1, 2), LINE(QN_FLOAT32, 3.5, 4)};
    BUILD(rows, qn_op_stack(&rows, pair, 2, 0, S));
    check_type(rows, QN_FLOAT32, 2, 2);
    check_values(rows, 1, 2, 3.5, 4);
    BUILD(columns, qn_op_stack(&columns, pair, 2, -1, S));
    check_values(columns, 1, 3.5, 2, 4);
    REFUSE("[stack] No arrays", qn_op_stack(&refused, NULL, 0, 0, S));
    REFUSE("[stack] Axis 2 is out of bounds",
           qn_op_stack(&refused, pair, 2, 2, S));
    qn_array *uneven[2] = {pair[0], LINE(QN_INT32, 1)};
    REFUSE("[stack] All arrays must have the same shape, found (2) and (1)",
           qn_op_stack(&refused, uneven, 2, 0, S));
}

static qn_array **parts;
static size_t count;

static void drop_parts(void)
{
    for (size_t i = 0; i < count; i++)
        keep(parts[i]);
    qn_free(parts);
}

static void test_split_into_equal_parts(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(2, 4));
    check_status(qn_op_split(&parts, &count, x, 2, -1, S), QN_OK);
    assert_int_equal(count, 2);
    check_values(parts[1], 2, 3, 6, 7);
    drop_parts();
    check_error(qn_op_split(&parts, &count, x, 3, 1, S), QN_E_ARG, "[split]");
    check_error(qn_op_split(&parts, &count, x, 0, 1, S), QN_E_ARG, "[split]");
    check_error(qn_op_split(&parts, &count, x, 2, 2, S), QN_E_ARG, "[split]");
}

static void test_split_at_places(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(5));
    check_status(qn_op_split_at(&parts, &count, x, SHAPE(1, -1), 0, S), QN_OK);
    assert_int_equal(count, 3);
    check_values(parts[0], 0);
    check_values(parts[1], 1, 2, 3);
    check_values(parts[2], 4);
    drop_parts();
    /* Places out of order enclose nothing, places outside are the ends. */
    check_status(qn_op_split_at(&parts, &count, x, SHAPE(4, 2, 99), 0, S),
                 QN_OK);
    assert_int_equal(count, 4);
    check_empty(parts[1]);
    check_values(parts[2], 2, 3, 4);
    check_empty(parts[3]);
    drop_parts();
    check_status(qn_op_split_at(&parts, &count, x, NULL, 0, 0, S), QN_OK);
    assert_int_equal(count, 1);
    assert_ptr_equal(parts[0], x);
    drop_parts();
}

static void test_unstack_drops_the_axis(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(2, 3));
    check_status(qn_op_unstack(&parts, &count, x, 1, S), QN_OK);
    assert_int_equal(count, 3);
    check_type(parts[2], QN_INT32, 2);
    check_values(parts[2], 2, 5);
    drop_parts();
    qn_array *empty = counted(QN_INT32, SHAPE(0, 3));
    check_status(qn_op_unstack(&parts, &count, empty, 0, S), QN_OK);
    assert_int_equal(count, 0);
    drop_parts();
}

static void test_repeat_and_tile(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(2, 2));
    BUILD(r, qn_op_repeat(&r, x, 2, 1, S));
    check_values(r, 0, 0, 1, 1, 2, 2, 3, 3);
    BUILD(none, qn_op_repeat(&none, x, 0, 0, S));
    check_type(none, QN_INT32, 0, 2);
    REFUSE("[repeat]", qn_op_repeat(&refused, x, -1, 0, S));
    REFUSE("[repeat] A dimension of 4294967294 is out of range",
           qn_op_repeat(&refused, x, INT_MAX, 0, S));
    BUILD(t, qn_op_tile(&t, x, SHAPE(2, 1, 2), S));
    check_type(t, QN_INT32, 2, 2, 4);
    check_values(t, 0, 1, 0, 1, 2, 3, 2, 3, 0, 1, 0, 1, 2, 3, 2, 3);
    BUILD(same, qn_op_tile(&same, x, NULL, 0, S));
    assert_ptr_equal(same, x);
    REFUSE("[tile]", qn_op_tile(&refused, x, SHAPE(-1), S));
}

static void test_roll_goes_around(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(2, 3));
    BUILD(flat, qn_op_roll(&flat, x, SHAPE(1, 1), NULL, QN_ALL_AXES, S));
    check_values(flat, 4, 5, 0, 1, 2, 3);
    BUILD(rows, qn_op_roll(&rows, x, SHAPE(-1), (int[]){1}, 1, S));
    check_values(rows, 1, 2, 0, 4, 5, 3);
    BUILD(both, qn_op_roll(&both, x, SHAPE(1, 7), (int[]){0, -1}, 2, S));
    check_values(both, 5, 3, 4, 2, 0, 1);
    BUILD(same, qn_op_roll(&same, x, SHAPE(3), (int[]){1}, 1, S));
    assert_ptr_equal(same, x);
    REFUSE("[roll]", qn_op_roll(&refused, x, SHAPE(1), (int[]){0, 1}, 2, S));
    REFUSE("[roll]", qn_op_roll(&refused, x, SHAPE(1), (int[]){2}, 1, S));
    BUILD(empty, qn_op_roll(&empty, counted(QN_INT8, SHAPE(0)), SHAPE(1),
                            (int[]){0}, 1, S));
    check_empty(empty);
}

static void test_flip_and_diff(void **state)
{
    (void)state;
    qn_array *x = LINE(QN_INT32, 1, 4, 9, 16);
    BUILD(f, qn_op_flip(&f, x, NULL, QN_ALL_AXES, S));
    check_values(f, 16, 9, 4, 1);
    BUILD(d, qn_op_diff(&d, x, 2, 0, S));
    check_values(d, 2, 2);
    BUILD(none, qn_op_diff(&none, x, 7, 0, S));
    check_type(none, QN_INT32, 0);
    BUILD(same, qn_op_diff(&same, x, 0, 0, S));
    assert_ptr_equal(same, x);
    BUILD(bools, qn_op_diff(&bools, LINE(QN_BOOL, 1, 0, 0), 1, 0, S));
    check_type(bools, QN_BOOL, 2);
    check_values(bools, 1, 0);
    REFUSE("[diff]", qn_op_diff(&refused, x, -1, 0, S));
}

static void test_diagonals(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(2, 3));
    BUILD(d, qn_op_diagonal(&d, x, 1, 0, 1, S));
    check_values(d, 1, 5);
    BUILD(below, qn_op_diagonal(&below, x, -1, 0, 1, S));
    check_values(below, 3);
    BUILD(far, qn_op_diagonal(&far, x, INT_MIN, 0, 1, S));
    check_empty(far);
    qn_array *box = counted(QN_INT32, SHAPE(2, 2, 3));
    BUILD(deep, qn_op_diagonal(&deep, box, 0, 2, 0, S));
    check_type(deep, QN_INT32, 2, 2);
    check_values(deep, 0, 7, 3, 10);
    REFUSE("[diagonal]", qn_op_diagonal(&refused, x, 0, 1, -1, S));
    REFUSE("[diagonal]",
           qn_op_diagonal(&refused, LINE(QN_INT32, 1), 0, 0, 1, S));

    BUILD(up, qn_op_diag(&up, LINE(QN_INT32, 7, 8), 1, S));
    check_type(up, QN_INT32, 3, 3);
    check_values(up, 0, 7, 0, 0, 0, 8, 0, 0, 0);
    BUILD(down, qn_op_diag(&down, LINE(QN_INT32, 7, 8), -1, S));
    check_values(down, 0, 0, 0, 7, 0, 0, 0, 8, 0);
    REFUSE("[diag]", qn_op_diag(&refused, box, 0, S));
    REFUSE("[diag]", qn_op_diag(&refused, LINE(QN_INT32, 1), INT_MAX, S));

    BUILD(t,
          qn_op_trace(&t, counted(QN_INT8, SHAPE(2, 2)), 0, 0, 1, QN_INT8, S));
    check_no_shape(t, QN_INT32);
    check_values(t, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUILD_TEST(test_stack_makes_a_new_axis),
        BUILD_TEST(test_split_into_equal_parts),
        BUILD_TEST(test_split_at_places),
        BUILD_TEST(test_unstack_drops_the_axis),
        BUILD_TEST(test_repeat_and_tile),
        BUILD_TEST(test_roll_goes_around),
        BUILD_TEST(test_flip_and_diff),
        BUILD_TEST(test_diagonals),
    };
    return run_build_tests(tests);
}
