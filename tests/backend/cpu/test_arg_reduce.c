/* Places of extremes: nodes against the reference over types, axes and
 * layouts; equals, NaN and infinities; any number of threads. */
#include "support/qn_cpu_test.h"

static qn_array *place(qn_array *x, int axis, bool max)
{
    qn_arg_reduce_params p;
    int shape[QN_MAX_NDIM];
    memset(&p, 0, sizeof p);
    p.axis = axis;
    p.max = max;
    memcpy(shape, x->shape, (size_t)x->ndim * sizeof *shape);
    shape[axis] = 1;
    return apply(QN_OP_ARG_REDUCE, &p, sizeof p, QN_UINT32, shape, x->ndim,
                 INPUTS(x));
}

static void check_place(qn_array *x, int axis)
{
    for (int max = 0; max < 2; max++) {
        use_reference();
        qn_array *expected = place(x, axis, max);
        use_cpu();
        for (int t = 0; t < 2; t++) {
            qn_pool_set_threads(t ? 3 : 1);
            qn_array *found = place(x, axis, max);
            if (!same_bits(found, expected)) {
                print_error("%s of %s, axis %d of %d\n",
                            max ? "argmax" : "argmin", qn_dtype_name(x->dtype),
                            axis, x->shape[axis]);
                fail();
            }
            qn_array_unref(found);
        }
        qn_pool_set_threads(0);
        qn_array_unref(expected);
    }
}

/* Few values, so that there are equals; some that are no numbers. */
static qn_array *values_of(qn_dtype dtype, bool nan, const int *shape, int ndim)
{
    qn_array *x = array_of(dtype, NULL, shape, ndim);
    uint64_t seed = 6;
    for (size_t i = 0; i < x->size; i++) {
        double r = test_random(&seed);
        element_put(place_of(x, i), dtype, (double)(int)(40 * fabs(r)));
        if (!qn_dtype_is_float(dtype))
            continue;
        if (i % 3 == 0)
            element_put(place_of(x, i), dtype, r < 0 ? -0.0 : 39.5);
        if (nan && fabs(r) > 0.98)
            element_put(place_of(x, i), dtype, r < 0 ? NAN : -INFINITY);
    }
    return x;
}

static void test_every_type(void **state)
{
    (void)state;
    static const int shapes[][3] = {
        {1, 1, 1}, {3, 40, 7}, {40, 5, 33}, {2, 70, 300}, {2, 3, 9001}};
    for (int d = 0; d < QN_DTYPE_COUNT; d++)
        for (int nan = 0; nan < 2; nan++)
            for (int s = 0; s < 5; s++) {
                qn_array *x = values_of((qn_dtype)d, nan, shapes[s], 3);
                qn_array *y = strided(qn_array_ref(x));
                for (int axis = 0; axis < 3; axis++) {
                    check_place(x, axis);
                    check_place(y, axis);
                }
                qn_array_unref(x);
                qn_array_unref(y);
            }
}

/* Not by the reference's loop. */
static void test_kernels_take_rows_and_columns(void **state)
{
    (void)state;
    use_fast();
    static const qn_dtype types[] = {QN_FLOAT32, QN_BFLOAT16, QN_FLOAT16,
                                     QN_FLOAT64, QN_INT32,    QN_UINT8};
    for (int t = 0; t < 6; t++) {
        qn_array *x = values_of(types[t], false, SHAPE(30, 20));
        for (int axis = 0; axis < 2; axis++)
            qn_array_unref(place(x, axis, true));
        qn_array_unref(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type),
        cmocka_unit_test(test_kernels_take_rows_and_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
