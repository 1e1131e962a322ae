/* Arrays of numbers: lengths, types, constants, windows, grids; special
 * values and conversions. */
#include "support/qn_build.h"

#include <float.h>
#include <limits.h>

static void test_arange_takes_length_from_reals(void **state)
{
    (void)state;
    BUILD(f, qn_op_arange(&f, 0, 1, 0.3, QN_FLOAT32, S));
    check_near(f, 1e-7, 0, 0.3, 0.6, 0.9);
    BUILD(i, qn_op_arange(&i, 0, 1, 0.3, QN_INT32, S));
    check_values(i, 0, 0, 0, 0);
    BUILD(down, qn_op_arange(&down, -1.5, -4, -1, QN_INT8, S));
    check_values(down, -1, -2, -3);
    BUILD(u, qn_op_arange(&u, 300, 303, 1, QN_UINT8, S));
    check_values(u, 44, 45, 46);
    BUILD(none, qn_op_arange(&none, 5, 0, 1, QN_INT32, S));
    check_type(none, QN_INT32, 0);
    BUILD(one, qn_op_arange(&one, 2, 10, INFINITY, QN_FLOAT32, S));
    check_values(one, 2);
    BUILD(z, qn_op_arange(&z, 0, 2, 1, QN_COMPLEX64, S));
    check_values(z, 0, 1);
}

static void test_arange_refuses_lengths_it_cannot_have(void **state)
{
    (void)state;
    REFUSE("[arange] Cannot compute the length",
           qn_op_arange(&refused, NAN, 5, 1, QN_FLOAT32, S));
    REFUSE("[arange]", qn_op_arange(&refused, 0, INFINITY, 1, QN_FLOAT32, S));
    REFUSE("[arange]", qn_op_arange(&refused, 0, 5, NAN, QN_FLOAT32, S));
    REFUSE("[arange] step must not be zero",
           qn_op_arange(&refused, 0, 5, 0, QN_FLOAT32, S));
    REFUSE("[arange] The length 1000000000000 is above the maximum",
           qn_op_arange(&refused, 0, 1e12, 1, QN_INT64, S));
    REFUSE("[arange] bool", qn_op_arange(&refused, 0, 2, 1, QN_BOOL, S));
}

static void test_linspace_reaches_both_ends(void **state)
{
    (void)state;
    BUILD(f, qn_op_linspace(&f, -3, 3, 7, true, QN_FLOAT32, S));
    check_values(f, -3, -2, -1, 0, 1, 2, 3);
    BUILD(open, qn_op_linspace(&open, 0, 1, 4, false, QN_FLOAT64, S));
    check_values(open, 0, 0.25, 0.5, 0.75);
    BUILD(i, qn_op_linspace(&i, 0, 3, 11, true, QN_INT32, S));
    check_values(i, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3);
    BUILD(one, qn_op_linspace(&one, 5, 9, 1, true, QN_FLOAT32, S));
    check_values(one, 5);
    REFUSE("[linspace]",
           qn_op_linspace(&refused, 0, 1, -1, true, QN_FLOAT32, S));
}

static void test_full_broadcasts_and_converts(void **state)
{
    (void)state;
    BUILD(f,
          qn_op_full(&f, SHAPE(2, 2), LINE(QN_FLOAT32, 1.9, -2.9), QN_INT8, S));
    check_type(f, QN_INT8, 2, 2);
    check_values(f, 1, -2, 1, -2);
    BUILD(none, qn_op_full_value(&none, NULL, 0, 3, QN_BFLOAT16, S));
    check_no_shape(none, QN_BFLOAT16);
    REFUSE("[full] Shapes (3) and (2,2) cannot be broadcast",
           qn_op_full(&refused, SHAPE(2, 2), counted(QN_INT8, SHAPE(3)),
                      QN_INT8, S));
    REFUSE("[full] A value of shape (2,1)",
           qn_op_full(&refused, SHAPE(2), counted(QN_INT8, SHAPE(2, 1)),
                      QN_INT8, S));
    REFUSE("[full] Negative dimensions are not allowed, found shape (2,-1)",
           qn_op_full_value(&refused, SHAPE(2, -1), 0, QN_INT8, S));
    /* Too large to name its bytes; merely too large fails when evaluated. */
    REFUSE("", qn_op_full_value(&refused, SHAPE(INT_MAX, INT_MAX, INT_MAX), 0,
                                QN_INT8, S));
}

static void test_scalars_of_every_type(void **state)
{
    (void)state;
    for (int d = 0; d < QN_DTYPE_COUNT; d++) {
        BUILD(one, qn_op_scalar(&one, 1, (qn_dtype)d));
        check_no_shape(one, (qn_dtype)d);
        check_values(one, 1);
    }
    BUILD(minus, qn_op_scalar(&minus, -1, QN_INT64));
    check_values(minus, -1);
    BUILD(wrapped, qn_op_scalar(&wrapped, -1, QN_UINT8));
    check_values(wrapped, 255);
    BUILD(nan, qn_op_scalar(&nan, NAN, QN_INT32));
    check_values(nan, 0);
}

static void test_triangles_and_diagonals(void **state)
{
    (void)state;
    BUILD(e, qn_op_eye(&e, 2, 3, 1, QN_BOOL, S));
    check_type(e, QN_BOOL, 2, 3);
    check_values(e, 0, 1, 0, 0, 0, 1);
    BUILD(t, qn_op_tri(&t, 2, 3, -1, QN_BFLOAT16, S));
    check_type(t, QN_BFLOAT16, 2, 3);
    check_values(t, 0, 0, 0, 1, 0, 0);
    qn_array *x = counted(QN_INT32, SHAPE(2, 2, 2));
    BUILD(low, qn_op_tril(&low, x, 0, S));
    check_values(low, 0, 0, 2, 3, 4, 0, 6, 7);
    BUILD(high, qn_op_triu(&high, x, 1, S));
    check_values(high, 0, 1, 0, 0, 0, 5, 0, 0);
    BUILD(far, qn_op_eye(&far, 2, 2, INT_MIN, QN_INT8, S));
    check_values(far, 0, 0, 0, 0);
    REFUSE("[eye]", qn_op_eye(&refused, -1, 2, 0, QN_INT8, S));
    REFUSE("[tril]", qn_op_tril(&refused, LINE(QN_INT8, 1), 0, S));
}

static void test_windows(void **state)
{
    (void)state;
    BUILD(hann, qn_op_window(&hann, QN_WINDOW_HANNING, 5, S));
    check_near(hann, 1e-7, 0, 0.5, 1, 0.5, 0);
    BUILD(hamm, qn_op_window(&hamm, QN_WINDOW_HAMMING, 3, S));
    check_near(hamm, 1e-7, 0.08, 1, 0.08);
    BUILD(black, qn_op_window(&black, QN_WINDOW_BLACKMAN, 5, S));
    check_near(black, 1e-7, 0, 0.34, 1, 0.34, 0);
    BUILD(bart, qn_op_window(&bart, QN_WINDOW_BARTLETT, 4, S));
    check_near(bart, 1e-7, 0, 2.0 / 3, 2.0 / 3, 0);
    BUILD(one, qn_op_window(&one, QN_WINDOW_HANNING, 1, S));
    check_values(one, 1);
    BUILD(none, qn_op_window(&none, QN_WINDOW_HANNING, -3, S));
    check_type(none, QN_FLOAT32, 0);
}

static void test_meshgrid(void **state)
{
    (void)state;
    qn_array *in[2] = {LINE(QN_INT32, 1, 2), LINE(QN_FLOAT32, 3, 4, 5)},
             *out[2];
    check_status(qn_op_meshgrid(out, in, 2, false, "xy", S), QN_OK);
    check_values(keep(out[0]), 1, 2, 1, 2, 1, 2);
    check_values(keep(out[1]), 3, 3, 4, 4, 5, 5);
    check_status(qn_op_meshgrid(out, in, 2, true, "ij", S), QN_OK);
    check_type(keep(out[0]), QN_INT32, 2, 1);
    check_type(keep(out[1]), QN_FLOAT32, 1, 3);
    check_error(qn_op_meshgrid(out, in, 2, false, "yx", S), QN_E_ARG,
                "[meshgrid]");
}

static void test_special_values(void **state)
{
    (void)state;
    static const qn_dtype types[] = {QN_FLOAT16, QN_BFLOAT16, QN_FLOAT32,
                                     QN_FLOAT64};
    for (int i = 0; i < 4; i++) {
        qn_array *x = LINE(types[i], 1, INFINITY, -INFINITY, NAN);
        BUILD(nan, qn_op_isnan(&nan, x, S));
        check_values(nan, 0, 0, 0, 1);
        BUILD(inf, qn_op_isinf(&inf, x, S));
        check_values(inf, 0, 1, 1, 0);
        BUILD(up, qn_op_isposinf(&up, x, S));
        check_values(up, 0, 1, 0, 0);
        BUILD(down, qn_op_isneginf(&down, x, S));
        check_values(down, 0, 0, 1, 0);
        BUILD(fine, qn_op_isfinite(&fine, x, S));
        check_values(fine, 1, 0, 0, 0);
    }
    BUILD(whole, qn_op_isfinite(&whole, LINE(QN_INT8, 1, 2), S));
    check_values(whole, 1, 1);
    BUILD(number, qn_op_nan_to_num(&number, LINE(QN_FLOAT32, NAN, INFINITY, 1),
                                   7, NULL, NULL, S));
    check_values(number, 7, FLT_MAX, 1);
    float limit = -2;
    BUILD(limited,
          qn_op_nan_to_num(&limited, LINE(QN_FLOAT16, -INFINITY, INFINITY), 0,
                           NULL, &limit, S));
    check_values(limited, -2, 65504);
}

static void test_round_to_decimals(void **state)
{
    (void)state;
    BUILD(tens, qn_op_round(&tens, LINE(QN_INT32, 1, 25, 35, -25), -1, S));
    check_type(tens, QN_INT32, 4);
    check_values(tens, 0, 20, 40, -20);
    qn_array *whole = LINE(QN_INT32, 1);
    BUILD(same, qn_op_round(&same, whole, 2, S));
    assert_ptr_equal(same, whole);
    BUILD(cents,
          qn_op_round(&cents, LINE(QN_FLOAT64, 1.005, 2.675, 0.125), 2, S));
    check_near(cents, 1e-12, 1, 2.68, 0.12);
    BUILD(even, qn_op_round(&even, LINE(QN_FLOAT32, 0.5, 1.5, -2.5), 0, S));
    check_values(even, 0, 2, -2);
}

static void test_clip_and_where(void **state)
{
    (void)state;
    qn_array *x = LINE(QN_INT32, 1, 5, 9);
    BUILD(c, qn_op_clip(&c, x, scalar_array(QN_FLOAT32, 2.5), NULL, S));
    check_type(c, QN_FLOAT32, 3);
    check_values(c, 2.5, 5, 9);
    BUILD(both, qn_op_clip(&both, x, scalar_array(QN_INT8, 3),
                           scalar_array(QN_INT8, 6), S));
    check_values(both, 3, 5, 6);
    REFUSE("[clip]", qn_op_clip(&refused, x, NULL, NULL, S));
    qn_array *which = keep(array_of(QN_INT8, VALUES(0, 3), SHAPE(2, 1)));
    BUILD(w, qn_op_where(&w, which, x, scalar_array(QN_FLOAT16, 0.5), S));
    check_type(w, QN_FLOAT16, 2, 3);
    check_values(w, 0.5, 0.5, 0.5, 1, 5, 9);
    REFUSE("[where] Shapes (2,1) and (3,3) cannot be broadcast",
           qn_op_where(&refused, which, counted(QN_INT8, SHAPE(3, 3)), x, S));
}

static void test_closeness(void **state)
{
    (void)state;
    /* Operands meet in their common type before they are compared. */
    BUILD(met,
          qn_op_isclose(&met, LINE(QN_INT16, -10099, -10099),
                        LINE(QN_BFLOAT16, -10112, -10048), 0, 0, false, S));
    check_values(met, 1, 0);
    qn_array *a = LINE(QN_FLOAT32, 1, INFINITY, NAN, 100);
    qn_array *b = LINE(QN_FLOAT32, 1.000001, INFINITY, NAN, 101);
    BUILD(c, qn_op_isclose(&c, a, b, 1e-5, 1e-8, false, S));
    check_values(c, 1, 1, 0, 0);
    BUILD(n, qn_op_isclose(&n, a, b, 1e-2, 0, true, S));
    check_values(n, 1, 1, 1, 1);
    BUILD(all, qn_op_allclose(&all, a, b, 1e-2, 0, true, S));
    check_values(all, 1);
    /* Unsigned differences must not wrap. */
    BUILD(u, qn_op_isclose(&u, LINE(QN_UINT8, 1), LINE(QN_UINT8, 2), 0, 0.5,
                           false, S));
    check_values(u, 0);
    BUILD(same, qn_op_array_equal(&same, LINE(QN_INT8, 1, 2),
                                  LINE(QN_FLOAT32, 1, 2), false, S));
    check_values(same, 1);
    BUILD(shape, qn_op_array_equal(&shape, LINE(QN_INT8, 1, 2),
                                   LINE(QN_INT8, 1), false, S));
    check_values(shape, 0);
    BUILD(nan, qn_op_array_equal(&nan, a, a, true, S));
    check_values(nan, 1);
}

/* The quotient is the floor: q * b + rest is a. */
static void test_quotient_with_rest(void **state)
{
    (void)state;
    qn_array *a = LINE(QN_INT8, 7, -7, 7, -7, 6, -128, 127, 0);
    qn_array *b = LINE(QN_INT8, 2, 2, -2, -2, -3, 127, -128, -5);
    qn_array *parts[2];
    check_status(qn_op_divmod(parts, a, b, S), QN_OK);
    keep(parts[0]);
    keep(parts[1]);
    check_type(parts[0], QN_INT8, 8);
    check_values(parts[0], 3, -4, -4, 3, -2, -2, -1, 0);
    check_values(parts[1], 1, 1, -1, -1, 0, 126, -1, 0);
    check_status(
        qn_op_divmod(parts, LINE(QN_FLOAT32, -7.5), LINE(QN_FLOAT32, 2), S),
        QN_OK);
    keep(parts[0]);
    keep(parts[1]);
    check_values(parts[0], -4);
    check_values(parts[1], 0.5);
}

static void test_complex_special_values_need_limits(void **state)
{
    (void)state;
    qn_array *z = LINE(QN_COMPLEX64, INFINITY, NAN, 2);
    float high = 100, low = -7;
    REFUSE("[nan_to_num]", qn_op_nan_to_num(&refused, z, 0, NULL, &low, S));
    BUILD(y, qn_op_nan_to_num(&y, z, 2.5F, &high, &low, S));
    check_type(y, QN_COMPLEX64, 3);
    BUILD(real, qn_op_unary(&real, QN_OP_REAL, y, S));
    check_values(real, 100, 2.5, 2);
}

static void test_eight_bit_floats(void **state)
{
    (void)state;
    qn_array *x = LINE(QN_FLOAT32, 0, -0.0, 1, -1, 448, 464, 1e9, 0.001,
                       0.0009765625, 1.0625, 1.1875, -INFINITY);
    BUILD(codes, qn_op_to_fp8(&codes, x, S));
    check_type(codes, QN_UINT8, 12);
    check_values(codes, 0, 128, 56, 184, 126, 126, 126, 1, 0, 56, 58, 254);
    BUILD(back, qn_op_from_fp8(&back, LINE(QN_UINT8, 0, 127, 255, 128, 1, 7, 8),
                               QN_FLOAT32, S));
    check_values(back, 0, 480, -480, -0.0, 0.001953125, 0.013671875, 0.015625);
    REFUSE("[to_fp8]", qn_op_to_fp8(&refused, LINE(QN_INT8, 1), S));
    REFUSE("[from_fp8]", qn_op_from_fp8(&refused, x, QN_FLOAT32, S));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUILD_TEST(test_arange_takes_length_from_reals),
        BUILD_TEST(test_arange_refuses_lengths_it_cannot_have),
        BUILD_TEST(test_linspace_reaches_both_ends),
        BUILD_TEST(test_full_broadcasts_and_converts),
        BUILD_TEST(test_scalars_of_every_type),
        BUILD_TEST(test_triangles_and_diagonals),
        BUILD_TEST(test_windows),
        BUILD_TEST(test_meshgrid),
        BUILD_TEST(test_quotient_with_rest),
        BUILD_TEST(test_complex_special_values_need_limits),
        BUILD_TEST(test_special_values),
        BUILD_TEST(test_round_to_decimals),
        BUILD_TEST(test_clip_and_where),
        BUILD_TEST(test_closeness),
        BUILD_TEST(test_eight_bit_floats),
    };
    return run_build_tests(tests);
}
