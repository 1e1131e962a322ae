/* Conversions between types, and arrays made from a value or a rule. */
#include "support/qn_ref_test.h"

static qn_array *convert(qn_array *a, qn_dtype dtype)
{
    return apply(QN_OP_ASTYPE, NULL, 0, dtype, a->shape, a->ndim, INPUTS(a));
}

/* Gives `a` up. */
#define check_conversion(a, dtype, ...)                                        \
    do {                                                                       \
        qn_array *from = (a);                                                  \
        check_items(convert(from, dtype), __VA_ARGS__);                        \
        qn_array_unref(from);                                                  \
    } while (0)

static void test_floats_truncate_and_saturate(void **state)
{
    (void)state;
    check_conversion(array_of(QN_FLOAT32, VALUES(1.9, -1.9, NAN), SHAPE(3)),
                     QN_INT32, 1, -1, 0);
    check_conversion(array_of(QN_FLOAT32, VALUES(-1, 256, 300.7), SHAPE(3)),
                     QN_UINT8, 255, 0, 44);
    check_conversion(
        array_of(QN_FLOAT64, VALUES(1e30, -1e30, INFINITY), SHAPE(3)), QN_INT64,
        0x1p63, -0x1p63, 0x1p63);
    check_conversion(array_of(QN_FLOAT64, VALUES(0x1p63, 1e30, -1), SHAPE(3)),
                     QN_UINT64, 0x1p63, 0x1p64, 0x1p64);
    check_conversion(
        array_of(QN_FLOAT16, VALUES(0, 0.001, NAN, -0.0), SHAPE(4)), QN_BOOL, 0,
        1, 1, 0);
}

static void test_floats_round_to_even_halves(void **state)
{
    (void)state;
    check_conversion(array_of(QN_FLOAT32,
                              VALUES(65504, 65519, 65520, 6e-8, 2.9e-8,
                                     1.0004883, 1.001, NAN),
                              SHAPE(8)),
                     QN_FLOAT16, 65504, 65504, INFINITY, 0x1p-24, 0, 1,
                     1.0009765625, NAN);
    check_conversion(
        array_of(QN_FLOAT32, VALUES(3.3895e38, 3.4e38, 1.0004883), SHAPE(3)),
        QN_BFLOAT16, 0x1.fep127, INFINITY, 1);
}

/* Through float these would round twice, to the wrong side. */
static void test_doubles_round_once(void **state)
{
    (void)state;
    double above = 1 + 0x1p-11 + 0x1p-40; /* just above a middle of float16 */
    check_conversion(array_of(QN_FLOAT64, VALUES(above, -above), SHAPE(2)),
                     QN_FLOAT16, 1 + 0x1p-10, -1 - 0x1p-10);
    double below = 1 + 3 * 0x1p-8 - 0x1p-40; /* below one of bfloat16 */
    check_conversion(array_of(QN_FLOAT64, VALUES(below, 1e300), SHAPE(2)),
                     QN_BFLOAT16, 1 + 0x1p-7, INFINITY);
    qn_array *a = array_of(QN_INT64, NULL, SHAPE(2));
    int64_t *ints = qn_array_data(a);
    ints[0] = ((int64_t)257 << 40) + 1; /* just above a middle of bfloat16 */
    ints[1] = INT64_MIN;
    check_conversion(a, QN_BFLOAT16, 0x1p40 * 258, -0x1p63);
}

static void test_integers_wrap_into_narrower_ones(void **state)
{
    (void)state;
    check_conversion(array_of(QN_INT32, VALUES(-1, 256, 70000), SHAPE(3)),
                     QN_UINT16, 65535, 256, 4464);
    check_conversion(array_of(QN_UINT64, VALUES(0x1p63), SHAPE(1)), QN_INT64,
                     -0x1p63);
    check_conversion(array_of(QN_UINT64, VALUES(0x1p63, 3), SHAPE(2)),
                     QN_FLOAT16, INFINITY, 3);
}

static void test_complex_conversions(void **state)
{
    (void)state;
    const float parts[] = {1.5f, 2, 0, 3, 0, 0};
    qn_array *a;
    check_status(qn_array_from_data(&a, parts, SHAPE(3), QN_COMPLEX64), QN_OK);
    check_items(convert(a, QN_INT32), 1, 0, 0);
    check_items(convert(a, QN_BOOL), 1, 1, 0);
    check_items(convert(a, QN_BFLOAT16), 1.5, 0, 0);
    qn_array_unref(a);
    check_conversion(array_of(QN_UINT8, VALUES(7), SHAPE(1)), QN_COMPLEX64, 7);
}

static void test_long_strided_conversion(void **state)
{
    (void)state;
    qn_array *a = random_array(QN_FLOAT32, 100, 3, SHAPE(3, 601));
    qn_array *t = view_of(a, SHAPE(601, 3), (const int64_t[]){1, 601}, 0);
    qn_array *out = convert(t, QN_BFLOAT16);
    for (size_t i = 0; i < out->size; i++) {
        uint16_t expected = qn_f32_to_bf16((float)item(t, i));
        assert_int_equal(*(uint16_t *)place_of(out, i), expected);
    }
    qn_array_unref(out);
    qn_array_unref(t);
    qn_array_unref(a);
}

/* ---- creation ---- */

static void test_full_broadcasts(void **state)
{
    (void)state;
    qn_array *row = array_of(QN_FLOAT16, VALUES(1, 2, 3), SHAPE(3));
    check_items(
        apply(QN_OP_FULL, NULL, 0, QN_FLOAT16, SHAPE(2, 3), INPUTS(row)), 1, 2,
        3, 1, 2, 3);
    qn_array_unref(row);
    qn_array *one = array_of(QN_COMPLEX64, VALUES(4), SCALAR);
    qn_array *out =
        apply(QN_OP_FULL, NULL, 0, QN_COMPLEX64, SHAPE(2, 2), INPUTS(one));
    assert_true(out->row_contiguous);
    check_items(out, 4, 4, 4, 4);
    qn_array_unref(one);
}

static qn_status full_scenario(void)
{
    qn_array *zero, *out;
    const float value = 0;
    qn_status status = qn_array_from_scalar(&zero, &value, QN_FLOAT32);
    if (status)
        return status;
    status = apply_status(&out, QN_OP_FULL, NULL, 0, QN_FLOAT32, SHAPE(99, 99),
                          INPUTS(zero));
    if (!status)
        qn_array_unref(out);
    qn_array_unref(zero);
    return status;
}

static void test_full_without_memory_is_an_error(void **state)
{
    (void)state;
    test_stream();
    qn_memory_clear_cache();
    each_alloc_may_fail(full_scenario);
}

static qn_array *arange(qn_dtype dtype, double start, double step,
                        int64_t istart, int64_t istep, int n)
{
    qn_arange_params p = {start, step, istart, istep};
    return apply(QN_OP_ARANGE, &p, sizeof p, dtype, SHAPE(n), 0, NULL);
}

static void test_ranges(void **state)
{
    (void)state;
    check_items(arange(QN_FLOAT32, 0.5, 0.25, 0, 0, 3), 0.5, 0.75, 1);
    check_items(arange(QN_INT8, 0.3, 0.3, 126, 1, 3), 126, 127, -128);
    check_items(arange(QN_UINT64, 0, 0, 5, -2, 3), 5, 3, 1);
    qn_array *longer = arange(QN_FLOAT32, 0, 0.1, 0, 0, 1000);
    assert_true(item(longer, 999) == (double)(float)(999 * 0.1));
    qn_array_unref(longer);
    qn_array *none = arange(QN_INT32, 0, 0, 0, 1, 0);
    assert_int_equal(none->size, 0);
    qn_array_unref(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_floats_truncate_and_saturate),
        cmocka_unit_test(test_floats_round_to_even_halves),
        cmocka_unit_test(test_doubles_round_once),
        cmocka_unit_test(test_integers_wrap_into_narrower_ones),
        cmocka_unit_test(test_complex_conversions),
        cmocka_unit_test(test_long_strided_conversion),
        cmocka_unit_test(test_full_broadcasts),
        cmocka_unit_test(test_full_without_memory_is_an_error),
        cmocka_unit_test(test_ranges),
    };
    return run_ref_tests(tests);
}
