/* Reductions and scans: wrapping, accuracy, NaN, empty shapes, layouts. */
#include "support/qn_ref_test.h"

static qn_array *reduce(qn_op op, qn_array *a, qn_dtype dtype, const int *shape,
                        int ndim, const int *axes, int naxes)
{
    qn_reduce_params p = {.naxes = naxes};
    for (int i = 0; i < naxes; i++)
        p.axes[i] = axes[i];
    return apply(op, &p, sizeof p, dtype, shape, ndim, INPUTS(a));
}

static qn_array *reduce_all(qn_op op, qn_array *a, qn_dtype dtype)
{
    int axes[QN_MAX_NDIM];
    for (int i = 0; i < a->ndim; i++)
        axes[i] = i;
    return reduce(op, a, dtype, SCALAR, axes, a->ndim);
}

static void test_axes_in_every_layout(void **state)
{
    (void)state;
    for (int layout = 0; layout < 2; layout++) {
        qn_array *a =
            array_of(QN_INT32, VALUES(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12),
                     SHAPE(2, 3, 2));
        if (layout)
            a = strided(a);
        check_items(reduce(QN_OP_SUM, a, QN_INT32, SHAPE(3, 2), (int[]){0}, 1),
                    8, 10, 12, 14, 16, 18);
        check_items(
            reduce(QN_OP_SUM, a, QN_INT32, SHAPE(2, 1, 2), (int[]){1}, 1), 9,
            12, 27, 30);
        check_items(reduce(QN_OP_SUM, a, QN_INT32, SHAPE(2, 3), (int[]){2}, 1),
                    3, 7, 11, 15, 19, 23);
        check_items(reduce(QN_OP_MAX, a, QN_INT32, SHAPE(3), (int[]){0, 2}, 2),
                    8, 10, 12);
        check_items(reduce_all(QN_OP_MIN, a, QN_INT32), 1);
        qn_array_unref(a);
    }
}

static void test_small_integers_widen_and_wrap(void **state)
{
    (void)state;
    qn_array *bytes = array_of(QN_UINT8, NULL, SHAPE(300));
    memset(qn_array_data(bytes), 200, 300);
    check_items(reduce_all(QN_OP_SUM, bytes, QN_UINT32), 60000);
    qn_array_unref(bytes);
    qn_array *ints = array_of(QN_INT32, VALUES(INT32_MAX, 1), SHAPE(2));
    check_items(reduce_all(QN_OP_SUM, ints, QN_INT32), INT32_MIN);
    check_items(reduce_all(QN_OP_PROD, ints, QN_INT32), INT32_MAX);
    qn_array_unref(ints);
    qn_array *flags = array_of(QN_BOOL, VALUES(1, 1, 0, 1), SHAPE(4));
    check_items(reduce_all(QN_OP_SUM, flags, QN_INT32), 3);
    check_items(reduce_all(QN_OP_ALL, flags, QN_BOOL), 0);
    check_items(reduce_all(QN_OP_ANY, flags, QN_BOOL), 1);
    qn_array_unref(flags);
}

static void test_long_half_sums_are_accurate(void **state)
{
    (void)state;
    enum { N = 5000 };
    qn_array *a = array_of(QN_BFLOAT16, NULL, SHAPE(N));
    for (size_t i = 0; i < N; i++)
        element_put(place_of(a, i), QN_BFLOAT16, 0.5);
    check_items(reduce_all(QN_OP_SUM, a, QN_BFLOAT16), 2496); /* of 2500 */
    qn_array_unref(a);
    a = array_of(QN_FLOAT16, NULL, SHAPE(64));
    for (size_t i = 0; i < 64; i++)
        element_put(place_of(a, i), QN_FLOAT16, i % 2 ? 60000 : -60000);
    check_items(reduce_all(QN_OP_SUM, a, QN_FLOAT16), 0);
    qn_array_unref(a);
}

static void test_long_float_sums_are_accurate(void **state)
{
    (void)state;
    /* 0.1f a million times: naive float summation is off by a percent. */
    enum { N = 1 << 20 };
    qn_array *a = array_of(QN_FLOAT32, NULL, SHAPE(N));
    for (size_t i = 0; i < N; i++)
        ((float *)qn_array_data(a))[i] = 0.1f;
    double exact = (double)0.1f * N;
    check_items(reduce_all(QN_OP_SUM, a, QN_FLOAT32), (double)(float)exact);
    qn_array_unref(a);
}

static void test_nan_wins(void **state)
{
    (void)state;
    for (size_t at = 0; at < 20; at++) {
        qn_array *a = array_of(QN_FLOAT32, NULL, SHAPE(20));
        element_put(place_of(a, at), QN_FLOAT32, NAN);
        check_items(reduce_all(QN_OP_MAX, a, QN_FLOAT32), NAN);
        check_items(reduce_all(QN_OP_MIN, a, QN_FLOAT32), NAN);
        qn_array_unref(a);
    }
}

static void test_reductions_of_nothing(void **state)
{
    (void)state;
    qn_array *a = array_of(QN_FLOAT32, NULL, SHAPE(2, 0));
    check_items(reduce(QN_OP_SUM, a, QN_FLOAT32, SHAPE(2), (int[]){1}, 1), 0,
                0);
    check_items(reduce(QN_OP_PROD, a, QN_FLOAT32, SHAPE(2), (int[]){1}, 1), 1,
                1);
    qn_array *none = reduce(QN_OP_SUM, a, QN_FLOAT32, SHAPE(0), (int[]){0}, 1);
    assert_int_equal(none->size, 0);
    qn_array_unref(none);
    qn_array_unref(a);
    a = array_of(QN_BOOL, NULL, SHAPE(0));
    check_items(reduce_all(QN_OP_ALL, a, QN_BOOL), 1);
    check_items(reduce_all(QN_OP_ANY, a, QN_BOOL), 0);
    qn_array_unref(a);
}

static void test_complex_sums(void **state)
{
    (void)state;
    const float parts[] = {1, 2, 3, -4};
    qn_array *a;
    check_status(qn_array_from_data(&a, parts, SHAPE(2), QN_COMPLEX64), QN_OK);
    qn_array *sum = reduce_all(QN_OP_SUM, a, QN_COMPLEX64);
    const float *found = qn_array_data(sum);
    assert_true(found[0] == 4 && found[1] == -2);
    qn_array *product = reduce_all(QN_OP_PROD, a, QN_COMPLEX64);
    found = qn_array_data(product);
    assert_true(found[0] == 11 && found[1] == 2);
    qn_array *max = reduce_all(QN_OP_MAX, a, QN_COMPLEX64);
    found = qn_array_data(max);
    assert_true(found[0] == 3 && found[1] == -4);
    qn_array_unref(sum);
    qn_array_unref(product);
    qn_array_unref(max);
    qn_array_unref(a);
}

/* Random values over all sets of axes against plain loops. */
static void test_every_set_of_axes(void **state)
{
    (void)state;
    int shape[] = {3, 4, 5, 2};
    qn_array *a = array_of(QN_FLOAT64, NULL, shape, 4);
    for (size_t i = 0; i < a->size; i++)
        element_put(place_of(a, i), QN_FLOAT64, (double)(i * i % 101));
    qn_array *views[] = {
        qn_array_ref(a),
        view_of(a, SHAPE(2, 5, 4, 3), (const int64_t[]){1, 2, 10, 40}, 0),
        view_of(a, SHAPE(3, 4, 5, 2), (const int64_t[]){-40, 10, 0, -1}, 81)};
    for (int v = 0; v < 3; v++)
        for (int set = 0; set < 16; set++) {
            int axes[4], naxes = 0, kept[4];
            for (int axis = 0; axis < 4; axis++) {
                kept[axis] = set >> axis & 1 ? 1 : views[v]->shape[axis];
                if (set >> axis & 1)
                    axes[naxes++] = axis;
            }
            double expected[120] = {0};
            for (size_t i = 0; i < 120; i++) {
                size_t rest = i, at = 0, step = 1;
                for (int axis = 3; axis >= 0; axis--) {
                    size_t n = (size_t)views[v]->shape[axis], x = rest % n;
                    rest /= n;
                    if (set >> axis & 1)
                        continue;
                    at += x * step;
                    step *= n;
                }
                expected[at] += item(views[v], i);
            }
            qn_array *sum =
                reduce(QN_OP_SUM, views[v], QN_FLOAT64, kept, 4, axes, naxes);
            for (size_t i = 0; i < sum->size; i++)
                assert_true(item(sum, i) == expected[i]);
            qn_array_unref(sum);
        }
    for (int v = 0; v < 3; v++)
        qn_array_unref(views[v]);
    qn_array_unref(a);
}

/* ---- scans ---- */

static qn_array *scan(qn_op op, qn_array *a, int axis, bool reverse,
                      bool inclusive)
{
    qn_scan_params p = {axis, reverse, inclusive};
    return apply(op, &p, sizeof p, a->dtype, a->shape, a->ndim, INPUTS(a));
}

static void test_scans_in_every_direction(void **state)
{
    (void)state;
    qn_array *a = array_of(QN_INT32, VALUES(1, 2, 3, 4, 5, 6), SHAPE(2, 3));
    check_items(scan(QN_OP_CUMSUM, a, 1, false, true), 1, 3, 6, 4, 9, 15);
    check_items(scan(QN_OP_CUMSUM, a, 1, true, true), 6, 5, 3, 15, 11, 6);
    check_items(scan(QN_OP_CUMSUM, a, 1, false, false), 0, 1, 3, 0, 4, 9);
    check_items(scan(QN_OP_CUMSUM, a, 0, true, false), 4, 5, 6, 0, 0, 0);
    check_items(scan(QN_OP_CUMPROD, a, 1, false, true), 1, 2, 6, 4, 20, 120);
    check_items(scan(QN_OP_CUMMAX, a, 1, false, false), INT32_MIN, 1, 2,
                INT32_MIN, 4, 5);
    qn_array_unref(a);
}

static void test_scans_round_and_wrap_at_each_step(void **state)
{
    (void)state;
    qn_array *half =
        strided(array_of(QN_BFLOAT16, VALUES(256, 1, 1, 1), SHAPE(1, 4)));
    check_items(scan(QN_OP_CUMSUM, half, 1, false, true), 256, 256, 256, 256);
    qn_array_unref(half);
    qn_array *bytes = array_of(QN_INT8, VALUES(100, 100, 100), SHAPE(3));
    check_items(scan(QN_OP_CUMSUM, bytes, 0, false, true), 100, -56, 44);
    qn_array_unref(bytes);
}

static void test_running_maximum(void **state)
{
    (void)state;
    qn_array *zeros = array_of(QN_FLOAT32, VALUES(0.0, -0.0, 0.0), SHAPE(3));
    check_items(scan(QN_OP_CUMMAX, zeros, 0, false, true), 0.0, -0.0, 0.0);
    qn_array_unref(zeros);
    qn_array *nan = array_of(QN_FLOAT16, VALUES(1, NAN, 3, 2), SHAPE(4));
    check_items(scan(QN_OP_CUMMAX, nan, 0, false, true), 1, NAN, NAN, NAN);
    check_items(scan(QN_OP_CUMMIN, nan, 0, true, true), NAN, NAN, 2, 2);
    check_items(scan(QN_OP_CUMMAX, nan, 0, true, false), NAN, 3, 2, -INFINITY);
    qn_array_unref(nan);
}

/* Complex numbers are ordered by both parts, so is what precedes them all. */
static void test_exclusive_maximum_of_complex_numbers(void **state)
{
    (void)state;
    qn_array *z = array_of(QN_COMPLEX64, VALUES(1, 2), SHAPE(2));
    static const qn_op ops[] = {QN_OP_CUMMAX, QN_OP_CUMMIN};
    for (int i = 0; i < 2; i++) {
        qn_array *y = scan(ops[i], z, 0, false, false);
        const float *parts = qn_array_data(y);
        float first = i ? INFINITY : -INFINITY;
        assert_true(parts[0] == first && parts[1] == first);
        assert_true(parts[2] == 1 && parts[3] == 0);
        qn_array_unref(y);
    }
    qn_array_unref(z);
}

static void test_running_logsumexp(void **state)
{
    (void)state;
    qn_array *a = array_of(QN_FLOAT64, VALUES(-INFINITY, 0, 0, 1e4), SHAPE(4));
    qn_array *out = scan(QN_OP_LOGCUMSUMEXP, a, 0, false, true);
    assert_true(item(out, 0) == -INFINITY && item(out, 1) == 0);
    assert_true(fabs(item(out, 2) - log(2)) < 1e-15 && item(out, 3) == 1e4);
    qn_array_unref(out);
    qn_array_unref(a);
}

static void test_scan_of_nothing(void **state)
{
    (void)state;
    qn_array *a = array_of(QN_FLOAT32, NULL, SHAPE(3, 0));
    for (int axis = 0; axis < 2; axis++) {
        qn_array *out = scan(QN_OP_CUMSUM, a, axis, false, true);
        assert_int_equal(out->size, 0);
        qn_array_unref(out);
    }
    qn_array_unref(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_axes_in_every_layout),
        cmocka_unit_test(test_small_integers_widen_and_wrap),
        cmocka_unit_test(test_long_half_sums_are_accurate),
        cmocka_unit_test(test_long_float_sums_are_accurate),
        cmocka_unit_test(test_nan_wins),
        cmocka_unit_test(test_reductions_of_nothing),
        cmocka_unit_test(test_complex_sums),
        cmocka_unit_test(test_every_set_of_axes),
        cmocka_unit_test(test_scans_in_every_direction),
        cmocka_unit_test(test_scans_round_and_wrap_at_each_step),
        cmocka_unit_test(test_running_maximum),
        cmocka_unit_test(test_exclusive_maximum_of_complex_numbers),
        cmocka_unit_test(test_running_logsumexp),
        cmocka_unit_test(test_scan_of_nothing),
    };
    return run_ref_tests(tests);
}
