/* Half and bfloat16: every value, every boundary between two of them. */
#include "support/qn_test.h"

#include "base/f16.h"

#include <math.h>

static double half_value(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 1023;
    double value =
        exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return h & 0x8000 ? -value : value;
}

static void test_every_half_has_its_value_and_comes_back(void **state)
{
    (void)state;
    for (uint32_t h = 0; h <= 0xffff; h++) {
        float f = qn_f16_to_f32((uint16_t)h);
        uint16_t back = qn_f32_to_f16(f);
        if ((h & 0x7fff) > 0x7c00) {
            assert_true(isnan(f));
            assert_true((back & 0x7fff) > 0x7c00);
            assert_int_equal(back & 0x8000, h & 0x8000);
        } else {
            if ((h & 0x7fff) == 0x7c00)
                assert_true(isinf(f));
            else
                assert_true((double)f == half_value((uint16_t)h));
            assert_int_equal(signbit(f) != 0, h >> 15);
            assert_int_equal(back, h);
        }
    }
}

/* Between two neighbours: below the middle down, above it up, and the middle
 * itself to the even one. */
static void test_half_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        double low = half_value((uint16_t)h);
        double high = h == 0x7bff ? 65536.0 : half_value((uint16_t)(h + 1));
        float middle = (float)((low + high) / 2);
        assert_true((double)middle == (low + high) / 2);
        uint32_t even = h & 1 ? h + 1 : h;
        assert_int_equal(qn_f32_to_f16(middle), even);
        assert_int_equal(qn_f32_to_f16(-middle), even | 0x8000);
        assert_int_equal(qn_f32_to_f16(nextafterf(middle, 0)), h);
        assert_int_equal(qn_f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
    }
    assert_int_equal(qn_f32_to_f16(3e38f), 0x7c00);
    assert_int_equal(qn_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(qn_f32_to_f16(1e-45f), 0);
}

static void test_bfloat_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7f80; h++) {
        assert_int_equal(qn_f32_to_bf16(qn_bf16_to_f32((uint16_t)h)), h);
        uint32_t middle = h << 16 | 0x8000, even = h & 1 ? h + 1 : h;
        assert_int_equal(qn_f32_to_bf16(qn_bits_float(middle)), even);
        assert_int_equal(qn_f32_to_bf16(qn_bits_float(middle - 1)), h);
        assert_int_equal(qn_f32_to_bf16(qn_bits_float(middle + 1)), h + 1);
        assert_int_equal(qn_f32_to_bf16(-qn_bits_float(middle + 1)),
                         (h + 1) | 0x8000);
    }
    assert_int_equal(qn_f32_to_bf16(INFINITY), 0x7f80);
    assert_int_equal(qn_f32_to_bf16(-INFINITY), 0xff80);
    /* Any NaN, the one whose bits would round to infinity or zero as well. */
    assert_int_equal(qn_f32_to_bf16(qn_bits_float(0x7f800001)), 0x7fc0);
    assert_int_equal(qn_f32_to_bf16(qn_bits_float(0xffffffff)), 0x7fc0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_half_has_its_value_and_comes_back),
        cmocka_unit_test(test_half_rounds_to_nearest_even),
        cmocka_unit_test(test_bfloat_rounds_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
