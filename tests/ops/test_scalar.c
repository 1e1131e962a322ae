/* Element functions where C itself would leave the answer open or lose it. */
#include "support/qn_nodes.h"

#include "ops/scalar.h"

static void test_integers_wrap(void **state)
{
    (void)state;
    int8_t low = INT8_MIN, one = 1, high = INT8_MAX;
    assert_int_equal(qn_add(high, one), INT8_MIN);
    assert_int_equal(qn_sub(low, one), INT8_MAX);
    assert_int_equal(qn_neg(low), INT8_MIN);
    assert_int_equal(qn_abs(low), INT8_MIN);
    uint16_t most = UINT16_MAX;
    assert_int_equal(qn_mul(most, most), 1);
    int32_t wide = INT32_MAX;
    assert_int_equal(qn_mul(wide, wide), 1);
    int64_t widest = INT64_MIN;
    assert_true(qn_mul(widest, (int64_t)-1) == INT64_MIN);
    assert_true(qn_abs(widest) == INT64_MIN);
}

static void test_integer_division(void **state)
{
    (void)state;
    const int32_t cases[][4] = {
        /* a, b, floor_divide (truncates), remainder (sign of b) */
        {-8, 7, -1, 6},  {1, -8, 0, -7}, {8, 7, 1, 1},
        {-8, -7, 1, -1}, {5, 0, 0, 0},   {-5, 0, 0, 0},
        {6, -3, -2, 0},  {0, 5, 0, 0},   {INT32_MIN, -1, INT32_MIN, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(qn_floor_div(cases[i][0], cases[i][1]), cases[i][2]);
        assert_int_equal(qn_rem(cases[i][0], cases[i][1]), cases[i][3]);
    }
    int64_t low = INT64_MIN;
    assert_true(qn_floor_div(low, (int64_t)-1) == INT64_MIN);
    int8_t tiny = INT8_MIN;
    assert_int_equal(qn_floor_div(tiny, (int8_t)-1), INT8_MIN);
    uint64_t most = UINT64_MAX;
    assert_true(qn_floor_div(most, (uint64_t)0) == 0);
    assert_true(qn_rem(most, (uint64_t)10) == 5);
}

static void test_shifts_beyond_the_width(void **state)
{
    (void)state;
    int32_t x = -5;
    assert_int_equal(qn_shl(x, (int32_t)1), -10);
    assert_int_equal(qn_shl(x, (int32_t)32), 0);
    assert_int_equal(qn_shl(x, (int32_t)-1), 0);
    assert_int_equal(qn_shr(x, (int32_t)1), -3);
    assert_int_equal(qn_shr(x, (int32_t)40), -1);
    assert_int_equal(qn_shr((int32_t)5, (int32_t)-1), 0);
    uint8_t u = 0x81;
    assert_int_equal(qn_shl(u, (uint8_t)1), 2);
    assert_int_equal(qn_shr(u, (uint8_t)8), 0);
    assert_true(qn_shl((uint64_t)1, (uint64_t)63) == (uint64_t)1 << 63);
    assert_true(qn_shl((uint64_t)1, (uint64_t)64) == 0);
}

static void test_integer_powers(void **state)
{
    (void)state;
    assert_int_equal(qn_pow((int8_t)3, (int8_t)3), 27);
    assert_int_equal(qn_pow((int8_t)2, (int8_t)7), INT8_MIN);
    assert_int_equal(qn_pow((int32_t)0, (int32_t)0), 1);
    assert_int_equal(qn_pow((int32_t)2, (int32_t)-1), 0);
    assert_int_equal(qn_pow((int32_t)-1, (int32_t)-3), -1);
    assert_int_equal(qn_pow((int32_t)-1, (int32_t)INT32_MIN), 1);
    assert_int_equal(qn_pow((int32_t)0, (int32_t)-1), 0);
    assert_true(qn_pow((uint64_t)3, UINT64_MAX) == 12297829382473034411u);
}

static void test_float_remainder_and_floor(void **state)
{
    (void)state;
    assert_true(qn_rem(-1.5f, 1.0f) == 0.5f);
    assert_true(qn_rem(1.5f, -1.0f) == -0.5f);
    assert_true(qn_rem(-1.0f, INFINITY) == INFINITY);
    assert_true(isnan(qn_rem(1.0f, 0.0f)));
    assert_true(qn_floor_div(-1.5f, 1.0f) == -2);
    assert_true(qn_round(2.5f) == 2 && qn_round(-3.5f) == -4);
}

static void test_order_with_nan(void **state)
{
    (void)state;
    assert_true(isnan(qn_max(NAN, 1.0)) && isnan(qn_max(1.0, NAN)));
    assert_true(isnan(qn_min(NAN, 1.0f)) && isnan(qn_min(1.0f, NAN)));
    /* Of equal operands the second. */
    assert_true(signbit(qn_max(0.0f, -0.0f)));
    assert_true(!signbit(qn_max(-0.0f, 0.0f)));
    assert_true(qn_sign((float)NAN) == 0);
    qn_complex64 a = qn_complex64_of(1, 2), b = qn_complex64_of(1, 3);
    assert_true(qn_max(a, b) == b && qn_min(a, b) == a);
    assert_true(qn_isnan_c64(qn_max(a, qn_complex64_of(0, NAN))));
    assert_true(qn_less(a, b) && qn_greater_equal(b, b));
    assert_false(qn_less_equal(a, qn_complex64_of(NAN, 0)));
}

static void test_sigmoid_at_the_ends(void **state)
{
    (void)state;
    assert_true(qn_sigmoid(0.0f) == 0.5f);
    assert_true(qn_sigmoid(200.0f) == 1);
    assert_true(qn_sigmoid(-INFINITY) == 0);
    assert_true(isnan(qn_sigmoid((float)NAN)));
    /* Far out only the exponential is left. */
    assert_true(fabs(qn_sigmoid(-30.0) / exp(-30.0) - 1) < 1e-12);
    assert_true(fabs((double)qn_sigmoid(-30.0f) / exp(-30.0) - 1) < 1e-6);
}

static void test_logaddexp_with_infinities(void **state)
{
    (void)state;
    assert_true(qn_logaddexp(-INFINITY, -INFINITY) == -INFINITY);
    assert_true(qn_logaddexp(INFINITY, -INFINITY) == INFINITY);
    assert_true(isnan(qn_logaddexp(INFINITY, (float)NAN)));
    assert_true(isnan(qn_logaddexp((float)NAN, INFINITY)));
    assert_true(fabs(qn_logaddexp(1000.0, 1000.0) - 1000 - log(2)) < 1e-12);
    assert_true(qn_logaddexp(-1.0f, -INFINITY) == -1);
    qn_complex64 z = qn_logaddexp(qn_complex64_of(0, 1), qn_complex64_of(1, 0));
    double _Complex exact = clog(cexp(qn_complex_of(0, 1)) + cexp(1));
    assert_true(cabs(z - exact) < 1e-6);
    /* Of equal real parts the larger imaginary one is outside. */
    qn_complex64 low = qn_complex64_of(3, -5), high = qn_complex64_of(3, 6);
    assert_true(cimagf(qn_logaddexp(low, high)) > 3.15F);
    assert_true(qn_logaddexp(low, high) == qn_logaddexp(high, low));
}

/* erf(erfinv(x)) is x: to what the condition of erf lets through. */
static void test_erfinv_inverts_erf(void **state)
{
    (void)state;
    for (int i = -1000; i <= 1000; i++) {
        double x = i / 1001.0, y = qn_erfinv(x);
        assert_true(fabs(erf(y) - x) <= 4e-16);
    }
    for (double tail = 0.1; tail > 1e-16; tail /= 3) {
        double x = 1 - tail, y = qn_erfinv(x);
        assert_true(fabs(erfc(y) / (1 - x) - 1) < 4e-14);
        assert_true(qn_erfinv(-x) == -y);
    }
    for (double x = 0.09; x > 1e-300; x /= 1e9)
        assert_true(fabs(erf(qn_erfinv(x)) / x - 1) < 4e-16);
    assert_true(qn_erfinv(1.0f) == INFINITY && qn_erfinv(-1.0) == -INFINITY);
    assert_true(isnan(qn_erfinv(1.5)) && isnan(qn_erfinv((float)NAN)));
    assert_true(signbit(qn_erfinv(-0.0)));
}

static void test_double_functions_are_double(void **state)
{
    (void)state;
    assert_true(qn_exp(1.0) == exp(1.0));
    assert_true(qn_sin(0.1) == sin(0.1));
    assert_true(fabs(qn_sigmoid(1.0) - 1 / (1 + exp(-1.0))) < 1e-16);
}

static void test_complex_functions(void **state)
{
    (void)state;
    qn_complex64 z = qn_complex64_of(3, -4);
    assert_true(qn_abs(z) == 5);
    assert_true(cabsf(qn_sign(z) - qn_complex64_of(0.6f, -0.8f)) < 1e-7f);
    assert_true(qn_sign(qn_complex64_of(0, 0)) == 0);
    assert_true(qn_pow(qn_complex64_of(0, 0), qn_complex64_of(2, 0)) == 0);
    assert_true(qn_pow(qn_complex64_of(0, 0), qn_complex64_of(0, 0)) == 1);
    assert_true(qn_div(z, z) == 1);
    assert_true(qn_real(z) == 3 && qn_imag(z) == -4 && qn_imag(7.0f) == 0);
    qn_complex64 tiny = qn_complex64_of(1e-6f, 1e-6f);
    assert_true(cabsf(qn_log1p(tiny) - tiny) < 2e-12f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers_wrap),
        cmocka_unit_test(test_integer_division),
        cmocka_unit_test(test_shifts_beyond_the_width),
        cmocka_unit_test(test_integer_powers),
        cmocka_unit_test(test_float_remainder_and_floor),
        cmocka_unit_test(test_order_with_nan),
        cmocka_unit_test(test_sigmoid_at_the_ends),
        cmocka_unit_test(test_logaddexp_with_infinities),
        cmocka_unit_test(test_erfinv_inverts_erf),
        cmocka_unit_test(test_double_functions_are_double),
        cmocka_unit_test(test_complex_functions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
