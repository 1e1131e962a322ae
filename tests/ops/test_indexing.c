/* Indices: shapes of what is picked, refusals, values of each form. */
#include "support/qn_grad.h"

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

/* ---- where a mask is true ---- */

#define BOOLS(...) keep(array_of(QN_BOOL, VALUES(__VA_ARGS__), SHAPE(3, 4)))

static void test_masked_elements_are_replaced_in_order(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(3, 4));
    qn_array *mask = BOOLS(1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0);
    qn_array *values = LINE(QN_FLOAT32, 100.5, 101.5, 102.5, 103.5, 104);
    BUILD(y, qn_op_masked_scatter(&y, x, mask, values, S));
    check_type(y, QN_INT32, 3, 4);
    check_values(y, 100, 1, 2, 101, 4, 5, 102, 7, 8, 103, 10, 11);
    /* Strided operands; what is replaced may be one number. */
    qn_array *wide = keep(strided(
        array_of(QN_BFLOAT16, VALUES(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11),
                 SHAPE(3, 4))));
    qn_array *some = keep(strided(array_of(
        QN_BOOL, VALUES(1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0), SHAPE(3, 4))));
    qn_array *line = keep(
        strided(array_of(QN_BFLOAT16, VALUES(100, 101, 102, 103), SHAPE(4))));
    BUILD(z, qn_op_masked_scatter(&z, wide, some, line, S));
    check_values(z, 100, 1, 2, 101, 4, 5, 102, 7, 8, 103, 10, 11);
    BUILD(one,
          qn_op_masked_scatter(&one, x, mask, scalar_array(QN_INT32, 7), S));
    check_values(one, 7, 1, 2, 7, 4, 5, 7, 7, 8, 7, 10, 11);
    /* A mask of the first axes: rows. */
    qn_array *rows = LINE(QN_BOOL, 1, 0, 1);
    BUILD(two, qn_op_masked_scatter(&two, x, rows,
                                    counted(QN_INT32, SHAPE(5, 4)), S));
    check_values(two, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7);
    BUILD(column, qn_op_masked_scatter(&column, x, rows,
                                       counted(QN_INT32, SHAPE(2, 1)), S));
    check_values(column, 0, 0, 0, 0, 4, 5, 6, 7, 1, 1, 1, 1);
    BUILD(same,
          qn_op_masked_scatter(&same, x, rows, counted(QN_INT32, SHAPE(4)), S));
    check_values(same, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3);
    /* A single truth value decides about all. */
    BUILD(all, qn_op_masked_scatter(&all, x, scalar_array(QN_BOOL, 1),
                                    counted(QN_INT32, SHAPE(1, 3, 4)), S));
    check_type(all, QN_INT32, 3, 4);
    check_values(all, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
    BUILD(lone, qn_op_masked_scatter(&lone, scalar_array(QN_INT32, 5),
                                     scalar_array(QN_BOOL, 1),
                                     LINE(QN_INT32, 9, 8), S));
    check_no_shape(lone, QN_INT32);
    check_values(lone, 9);
    /* Nothing to replace with, nothing to replace. */
    BUILD(kept, qn_op_masked_scatter(&kept, x,
                                     BOOLS(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
                                     counted(QN_INT32, SHAPE(0)), S));
    check_values(kept, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
}

static void test_masked_scatter_refuses(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(3, 4));
    qn_array *mask = BOOLS(1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0);
    qn_array *three = LINE(QN_INT32, 1, 2, 3);
    REFUSE("[masked_scatter] The mask has to be boolean, found int32",
           qn_op_masked_scatter(&refused, x, x, three, S));
    REFUSE("The mask cannot have more dimensions",
           qn_op_masked_scatter(&refused, three, mask, three, S));
    REFUSE("the mask has shape (2) and the array has shape (3,4)",
           qn_op_masked_scatter(&refused, x, LINE(QN_BOOL, 1, 0), three, S));
    REFUSE("broadcastable with the last 0 dimensions",
           qn_op_masked_scatter(&refused, x, mask,
                                counted(QN_INT32, SHAPE(1, 4)), S));
    REFUSE("cannot be broadcast",
           qn_op_masked_scatter(&refused, x, LINE(QN_BOOL, 1, 0, 1), three, S));
    for (int n = 0; n < 4; n++) {
        qn_array *y;
        check_status(
            qn_op_masked_scatter(&y, x, mask, counted(QN_INT32, SHAPE(n)), S),
            QN_OK);
        keep(y);
        check_error(qn_eval(&y, 1), QN_E_ARG,
                    "[masked_scatter] Source does not have enough elements");
    }
}

static void test_masked_scatter_rules(void **state)
{
    (void)state;
    qn_array *x = counted(QN_FLOAT32, SHAPE(3, 4));
    qn_array *mask = BOOLS(1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0);
    qn_array *values = LINE(QN_FLOAT32, 100, 101, 102, 103, 104);
    BUILD(y, qn_op_masked_scatter(&y, x, mask, values, S));
    qn_array *cot = counted(QN_FLOAT32, SHAPE(3, 4)), *grad[MOST_PARTS];
    gradients(grad, &y, &cot);
    check_values(grad[0], 0, 1, 2, 0, 4, 5, 0, 7, 8, 0, 10, 11);
    check_values(grad[2], 0, 3, 6, 9, 0);
    /* A batch of masks would double them; of the others: entry by entry. */
    qn_array *in[3], *made[1] = {NULL}, *out;
    bool batched[3] = {true, false, true};
    in[0] = doubled(y->node->inputs[0], true);
    in[1] = y->node->inputs[1];
    in[2] = doubled(y->node->inputs[2], true);
    qn_scope c;
    qn_scope_begin(&c, S);
    qn_batch b = {.c = &c,
                  .node = y->node,
                  .like = &y,
                  .in = in,
                  .batched = batched,
                  .size = 2,
                  .out = made};
    qn_rules_of(y->node->op)->vmap(&b);
    check_status(qn_scope_end_many(&c, &out, made, 1), QN_OK);
    keep(out);
    check_type(out, QN_FLOAT32, 2, 3, 4);
    check_values(out, 100, 1, 2, 101, 4, 5, 102, 7, 8, 103, 10, 11, /**/
                 200, 2, 4, 202, 8, 10, 204, 14, 16, 206, 20, 22);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUILD_TEST(test_take_puts_the_indices_in_place_of_the_axis),
        BUILD_TEST(test_take_refuses_other_indices),
        BUILD_TEST(test_gather_slices),
        BUILD_TEST(test_along_an_axis),
        BUILD_TEST(test_scatter_combines),
        BUILD_TEST(test_masked_elements_are_replaced_in_order),
        BUILD_TEST(test_masked_scatter_refuses),
        BUILD_TEST(test_masked_scatter_rules),
    };
    return run_build_tests(tests);
}
