/* Slices as Python takes them, updates, joins and borders. */
#include "support/qn_build.h"

#include <limits.h>

/* What range(n)[start:stop:step] gives, element by element. */
static int python_slice(int *out, int n, int start, int stop, int step)
{
    int low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1, count = 0;
    start = start < 0 ? start + n : start;
    stop = stop < 0 ? stop + n : stop;
    start = start < low ? low : start > high ? high : start;
    stop = stop < low ? low : stop > high ? high : stop;
    for (int i = start; step > 0 ? i < stop : i > stop; i += step)
        out[count++] = i;
    return count;
}

static void test_slices_match_python(void **state)
{
    for (int n = 0; n <= 5; n++) {
        qn_array *x = array_of(QN_INT32, VALUES(0, 1, 2, 3, 4), SHAPE(n));
        for (int start = -7; start <= 7; start++)
            for (int stop = -7; stop <= 7; stop++)
                for (int step = -3; step <= 3; step++) {
                    int wanted[8];
                    if (!step)
                        continue;
                    int count = python_slice(wanted, n, start, stop, step);
                    qn_array *y;
                    check_status(
                        qn_op_slice(&y, x, &start, 1, &stop, 1, &step, 1, S),
                        QN_OK);
                    check_status(qn_eval(&y, 1), QN_OK);
                    assert_int_equal(y->shape[0], count);
                    for (int i = 0; i < count; i++)
                        assert_int_equal((int)item(y, (size_t)i), wanted[i]);
                    qn_array_unref(y);
                }
        qn_array_unref(x);
    }
    (void)state;
}

static void test_slice_of_everything_is_the_input(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(2, 3));
    BUILD(y, qn_op_slice(&y, x, SHAPE(0, 0), SHAPE(9, 3), SHAPE(1, 1), S));
    assert_ptr_equal(y, x);
    REFUSE("[slice] The stride of axis 1 must not be 0",
           qn_op_slice(&refused, x, SHAPE(0, 0), SHAPE(2, 3), SHAPE(1, 0), S));
    REFUSE("[slice]",
           qn_op_slice(&refused, x, SHAPE(0), SHAPE(2, 3), SHAPE(1, 1), S));
    BUILD(far, qn_op_slice(&far, x, SHAPE(INT_MIN, INT_MAX),
                           SHAPE(INT_MAX, INT_MIN), SHAPE(1, INT_MIN), S));
    check_type(far, QN_INT32, 2, 1);
    check_values(far, 2, 5);
}

static void test_update_replaces_or_combines(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(5));
    qn_array *two = LINE(QN_FLOAT32, 10.9, -3);
    static const double sums[] = {0, 11, 2, 0, 4};
    BUILD(set, qn_op_slice_update(&set, x, two, SHAPE(1), SHAPE(5), SHAPE(2),
                                  QN_COMBINE_SET, S));
    check_type(set, QN_INT32, 5);
    check_values(set, 0, 10, 2, -3, 4);
    BUILD(sum, qn_op_slice_update(&sum, x, two, SHAPE(1), SHAPE(5), SHAPE(2),
                                  QN_COMBINE_SUM, S));
    check_values(sum, sums[0], sums[1], sums[2], sums[3], sums[4]);
    BUILD(back,
          qn_op_slice_update(&back, x, scalar_array(QN_INT32, 7), SHAPE(4),
                             SHAPE(-9), SHAPE(-2), QN_COMBINE_MAX, S));
    check_values(back, 7, 1, 7, 3, 7);
    BUILD(nothing,
          qn_op_slice_update(&nothing, x, scalar_array(QN_INT32, 7), SHAPE(3),
                             SHAPE(3), SHAPE(1), QN_COMBINE_SET, S));
    assert_ptr_equal(nothing, x);
    REFUSE("[broadcast_to]",
           qn_op_slice_update(&refused, x, LINE(QN_INT32, 1, 2, 3), SHAPE(0),
                              SHAPE(2), SHAPE(1), QN_COMBINE_SET, S));
}

static void test_dynamic_slices_start_at_an_array(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(3, 4));
    qn_array *corner = LINE(QN_INT32, 1, 2), *one = LINE(QN_UINT8, 1);
    BUILD(y, qn_op_slice_dynamic(&y, x, corner, (int[]){0, -1}, 2, SHAPE(2, 2),
                                 S));
    check_values(y, 6, 7, 10, 11);
    BUILD(up, qn_op_slice_update_dynamic(&up, x, LINE(QN_INT32, 9, 8), corner,
                                         (int[]){0, 1}, 2, S));
    check_values(up, 0, 1, 2, 3, 4, 5, 9, 8, 8, 9, 10, 11);
    BUILD(row, qn_op_slice_update_dynamic(&row, x, scalar_array(QN_INT32, -1),
                                          one, (int[]){0}, 1, S));
    check_values(row, 0, 1, 2, 3, -1, -1, -1, -1, 8, 9, 10, 11);
    REFUSE("[slice_dynamic] Start indices must be integers",
           qn_op_slice_dynamic(&refused, x, LINE(QN_FLOAT32, 1), (int[]){0}, 1,
                               SHAPE(1, 4), S));
    REFUSE(
        "[slice_dynamic] Invalid slice size (4,4)",
        qn_op_slice_dynamic(&refused, x, one, (int[]){0}, 1, SHAPE(4, 4), S));
    REFUSE("[slice_dynamic]", qn_op_slice_dynamic(&refused, x, one, (int[]){0},
                                                  1, SHAPE(-1, 4), S));
    REFUSE("[slice_dynamic]",
           qn_op_slice_dynamic(&refused, x, corner, (int[]){0}, 1, SHAPE(1, 4),
                               S));
    REFUSE("[slice_update_dynamic]",
           qn_op_slice_update_dynamic(&refused, x,
                                      counted(QN_INT32, SHAPE(1, 1, 1)), one,
                                      (int[]){0}, 1, S));
}

static void test_concatenate_promotes_and_checks(void **state)
{
    (void)state;
    qn_array *a = counted(QN_INT32, SHAPE(2, 2)),
             *b = counted(QN_FLOAT16, SHAPE(2, 1));
    qn_array *both[2] = {a, b};
    BUILD(y, qn_op_concatenate(&y, both, 2, -1, S));
    check_type(y, QN_FLOAT16, 2, 3);
    check_values(y, 0, 1, 0, 2, 3, 1);
    BUILD(one, qn_op_concatenate(&one, both, 1, 5, S));
    assert_ptr_equal(one, a);
    REFUSE("[concatenate] No arrays",
           qn_op_concatenate(&refused, NULL, 0, 0, S));
    REFUSE("[concatenate] All the input array dimensions must match exactly "
           "except for the concatenation axis 0, found shapes (2,2) and (2,1)",
           qn_op_concatenate(&refused, both, 2, 0, S));
    REFUSE("[concatenate] Axis 2 is out of bounds",
           qn_op_concatenate(&refused, both, 2, 2, S));
    qn_array *uneven[2] = {a, counted(QN_INT32, SHAPE(2))};
    REFUSE("[concatenate]", qn_op_concatenate(&refused, uneven, 2, 0, S));
}

static void test_pad_modes(void **state)
{
    (void)state;
    qn_array *x = LINE(QN_INT32, 1, 2, 3), *zero = scalar_array(QN_INT32, 0);
    int axis = 0, two = 2, four = 4, one = 1;
    BUILD(c, qn_op_pad(&c, x, &axis, 1, &one, 1, &two, 1,
                       scalar_array(QN_FLOAT32, 7.5), "constant", S));
    check_type(c, QN_INT32, 6);
    check_values(c, 7, 1, 2, 3, 7, 7);
    BUILD(e, qn_op_pad(&e, x, &axis, 1, &two, 1, &one, 1, zero, "edge", S));
    check_values(e, 1, 1, 1, 2, 3, 3);
    BUILD(r, qn_op_pad(&r, x, &axis, 1, &four, 1, &two, 1, zero, "reflect", S));
    check_values(r, 1, 2, 3, 2, 1, 2, 3, 2, 1);
    BUILD(s,
          qn_op_pad(&s, x, &axis, 1, &four, 1, &one, 1, zero, "symmetric", S));
    check_values(s, 3, 3, 2, 1, 1, 2, 3, 3);
    int minus = -1;
    REFUSE("[pad] Sizes must not be negative",
           qn_op_pad(&refused, x, &axis, 1, &minus, 1, &one, 1, zero,
                     "constant", S));
    REFUSE("[pad] The mode must be",
           qn_op_pad(&refused, x, &axis, 1, &one, 1, &one, 1, zero, "wrap", S));
    REFUSE("[pad]", qn_op_pad(&refused, x, &axis, 1, NULL, 0, &one, 1, zero,
                              "constant", S));
    REFUSE(
        "[pad] The padding value must be one element",
        qn_op_pad(&refused, x, &axis, 1, &one, 1, &one, 1, x, "constant", S));
    REFUSE("[pad]", qn_op_pad(&refused, counted(QN_INT8, SHAPE(0)), &axis, 1,
                              &one, 1, &one, 1, zero, "edge", S));
    int most = INT_MAX;
    REFUSE("[pad]", qn_op_pad(&refused, x, &axis, 1, &most, 1, &most, 1, zero,
                              "constant", S));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUILD_TEST(test_slices_match_python),
        BUILD_TEST(test_slice_of_everything_is_the_input),
        BUILD_TEST(test_update_replaces_or_combines),
        BUILD_TEST(test_dynamic_slices_start_at_an_array),
        BUILD_TEST(test_concatenate_promotes_and_checks),
        BUILD_TEST(test_pad_modes),
    };
    return run_build_tests(tests);
}
