/* Indices: shapes of what is picked, refusals, values of each form. */
#include "support/qn_build.h"

static void test_take_puts_the_indices_in_place_of_the_axis(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(2, 3));
    qn_array *square =
        keep(array_of(QN_INT8, VALUES(0, -1, 1, 0), SHAPE(2, 2)));
    BUILD(y, qn_op_take(&y, x, square, 1, S));
    check_type(y, QN_INT32, 2, 2, 2);
    check_values(y, 0, 2, 1, 0, 3, 5, 4, 3);
    BUILD(row, qn_op_take(&row, x, scalar_array(QN_UINT32, 1), 0, S));
    check_type(row, QN_INT32, 3);
    check_values(row, 3, 4, 5);
    BUILD(none, qn_op_take(&none, x, counted(QN_INT32, SHAPE(0)), 1, S));
    check_type(none, QN_INT32, 2, 0);
}

static void test_take_refuses_other_indices(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(2, 3));
    REFUSE("[take] Indices must be integers, found type float32",
           qn_op_take(&refused, x, LINE(QN_FLOAT32, 0), 0, S));
    REFUSE("[take] Indices must be integers, found type bool",
           qn_op_take(&refused, x, LINE(QN_BOOL, 0), 0, S));
    REFUSE("[take] Axis 2 is out of bounds",
           qn_op_take(&refused, x, LINE(QN_INT32, 0), 2, S));
    qn_array *empty = counted(QN_INT32, SHAPE(0, 3));
    REFUSE("[take] Cannot do a non-empty take from an empty axis",
           qn_op_take(&refused, empty, LINE(QN_INT32, 0), 0, S));
    BUILD(nothing,
          qn_op_take(&nothing, empty, counted(QN_INT32, SHAPE(0)), 0, S));
    check_type(nothing, QN_INT32, 0, 3);
}

static void test_gather_slices(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(3, 4));
    qn_array *index[2] = {LINE(QN_INT32, 0, 2), LINE(QN_INT64, 1, 1)};
    BUILD(y, qn_op_gather(&y, x, index, 2, (int[]){0, 1}, 2, SHAPE(1, 2), S));
    check_type(y, QN_INT32, 2, 1, 2);
    check_values(y, 1, 2, 9, 10);
    REFUSE(
        "[gather] Slice sizes (1,5) do not fit an array of shape (3,4)",
        qn_op_gather(&refused, x, index, 2, (int[]){0, 1}, 2, SHAPE(1, 5), S));
    REFUSE("[gather]",
           qn_op_gather(&refused, x, index, 2, (int[]){0}, 1, SHAPE(1, 1), S));
    REFUSE("[gather]", qn_op_gather(&refused, x, index, 2, (int[]){1, 1}, 2,
                                    SHAPE(1, 1), S));
    qn_array *uneven[2] = {index[0], LINE(QN_INT32, 1, 2, 3)};
    REFUSE(
        "[gather] Shapes (2) and (3) cannot be broadcast",
        qn_op_gather(&refused, x, uneven, 2, (int[]){0, 1}, 2, SHAPE(1, 1), S));
}

static void test_along_an_axis(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(2, 3));
    qn_array *column = keep(array_of(QN_INT32, VALUES(-1, 0), SHAPE(2, 1)));
    BUILD(y, qn_op_take_along_axis(&y, x, column, 1, S));
    check_type(y, QN_INT32, 2, 1);
    check_values(y, 2, 3);
    BUILD(put, qn_op_scatter_axis(&put, x, column, scalar_array(QN_FLOAT32, 9),
                                  1, QN_COMBINE_SET, S));
    check_type(put, QN_INT32, 2, 3);
    check_values(put, 0, 1, 9, 9, 4, 5);
    qn_array *twice = keep(array_of(QN_INT32, VALUES(1, 1, 0, 2), SHAPE(2, 2)));
    BUILD(sum, qn_op_scatter_axis(&sum, x, twice, scalar_array(QN_INT32, 10), 1,
                                  QN_COMBINE_SUM, S));
    check_values(sum, 0, 21, 2, 13, 4, 15);
    REFUSE("[take_along_axis] Indices of dimension 1 do not match",
           qn_op_take_along_axis(&refused, x, LINE(QN_INT32, 1), 0, S));
    qn_array *tall = counted(QN_INT32, SHAPE(3, 1));
    REFUSE("[take_along_axis]", qn_op_take_along_axis(&refused, x, tall, 1, S));
    REFUSE("[put_along_axis]",
           qn_op_scatter_axis(&refused, x, tall, x, 1, QN_COMBINE_SET, S));
    REFUSE("[scatter_add_axis] Indices must be integers",
           qn_op_scatter_axis(&refused, x,
                              keep(array_of(QN_FLOAT32, NULL, SHAPE(2, 1))), x,
                              1, QN_COMBINE_SUM, S));
}

static void test_scatter_combines(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(3, 2));
    qn_array *rows = LINE(QN_INT32, 2, 0, 2);
    qn_array *updates = keep(
        array_of(QN_INT32, VALUES(10, 20, 30, 40, 50, 60), SHAPE(3, 1, 2)));
    int axis = 0;
    BUILD(set, qn_op_scatter(&set, x, &rows, 1, updates, &axis, 1,
                             QN_COMBINE_SET, S));
    check_values(set, 30, 40, 2, 3, 50, 60);
    BUILD(sum, qn_op_scatter(&sum, x, &rows, 1, updates, &axis, 1,
                             QN_COMBINE_SUM, S));
    check_values(sum, 30, 41, 2, 3, 64, 85);
    REFUSE("[scatter_max] Updates of shape (3,2) do not fit indices of shape "
           "(3) into an array of shape (3,2)",
           qn_op_scatter(&refused, x, &rows, 1, counted(QN_INT32, SHAPE(3, 2)),
                         &axis, 1, QN_COMBINE_MAX, S));
    REFUSE("[scatter]", qn_op_scatter(&refused, x, NULL, 0, updates, &axis, 1,
                                      QN_COMBINE_SET, S));
    qn_array *all =
        keep(array_of(QN_INT8, VALUES(7, 7, 7, 7, 7, 7), SHAPE(3, 2)));
    BUILD(whole,
          qn_op_scatter(&whole, x, NULL, 0, all, NULL, 0, QN_COMBINE_SET, S));
    check_values(whole, 7, 7, 7, 7, 7, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUILD_TEST(test_take_puts_the_indices_in_place_of_the_axis),
        BUILD_TEST(test_take_refuses_other_indices),
        BUILD_TEST(test_gather_slices),
        BUILD_TEST(test_along_an_axis),
        BUILD_TEST(test_scatter_combines),
    };
    return run_build_tests(tests);
}
