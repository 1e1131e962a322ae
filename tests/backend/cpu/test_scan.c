/* Running combinations: nodes against the reference, bit by bit, over
 * operations, types, directions, shapes, axes and layouts; over the input's
 * storage; for any number of threads; each kernel. */
#include "support/qn_cpu_test.h"

#include "backend/cpu/kernels/scan/scan.h"

static const qn_op ops[] = {QN_OP_CUMSUM, QN_OP_CUMPROD, QN_OP_CUMMAX,
                            QN_OP_CUMMIN, QN_OP_LOGCUMSUMEXP};
enum { OPS = 5 };

static qn_array *scan(qn_op op, qn_array *x, int axis, bool reverse,
                      bool inclusive)
{
    qn_scan_params p;
    memset(&p, 0, sizeof p);
    p.axis = axis;
    p.reverse = reverse;
    p.inclusive = inclusive;
    return apply(op, &p, sizeof p, x->dtype, x->shape, x->ndim, INPUTS(x));
}

static bool takes(qn_op op, qn_dtype d)
{
    return op != QN_OP_LOGCUMSUMEXP || qn_dtype_is_float(d) ||
           d == QN_COMPLEX64;
}

/* NaN may differ in the bits that say which. */
static bool same_items(const qn_array *a, const qn_array *b)
{
    if (a->dtype == QN_INT64 || a->dtype == QN_UINT64 ||
        a->dtype == QN_COMPLEX64)
        return same_bits(a, b);
    for (size_t i = 0; i < a->size; i++)
        if (!same_value(item(a, i), item(b, i)))
            return false;
    return a->size == b->size;
}

static void check_scan(qn_op op, qn_array *x, int axis)
{
    for (int way = 0; way < 4; way++) {
        use_reference();
        qn_array *expected = scan(op, x, axis, way & 1, way & 2);
        use_fast();
        for (int t = 0; t < 2; t++) {
            qn_pool_set_threads(t ? 3 : 1);
            qn_array *found = scan(op, x, axis, way & 1, way & 2);
            if (!same_items(found, expected)) {
                print_error("%s of %s, axis %d, way %d\n",
                            qn_op_info_of(op)->name, qn_dtype_name(x->dtype),
                            axis, way);
                fail();
            }
            qn_array_unref(found);
        }
        qn_pool_set_threads(0);
        qn_array_unref(expected);
    }
}

static qn_array *values_of(qn_dtype dtype, const int *shape, int ndim)
{
    qn_array *x = random_array(dtype, 2, 4, shape, ndim);
    uint64_t seed = 8;
    for (size_t i = 0; i < x->size; i++) {
        double r = test_random(&seed);
        if (qn_dtype_is_integer(dtype))
            memcpy(place_of(x, i), &seed, qn_dtype_size(dtype));
        else if (qn_dtype_is_float(dtype) && r > 0.9)
            element_put(place_of(x, i), dtype, r > 0.95 ? 0.0 : -0.0);
        else if (qn_dtype_is_float(dtype) && r < -0.999)
            element_put(place_of(x, i), dtype, r < -0.9995 ? NAN : INFINITY);
    }
    return x;
}

static void test_every_type(void **state)
{
    (void)state;
    static const int shapes[][3] = {
        {1, 1, 1}, {2, 37, 9}, {19, 5, 33}, {5, 18, 70}, {3, 2, 600}};
    for (int d = 0; d < QN_DTYPE_COUNT; d++)
        for (int o = 0; o < OPS; o++)
            for (int s = 0; s < 5 && takes(ops[o], (qn_dtype)d); s++) {
                qn_array *x = values_of((qn_dtype)d, shapes[s], 3);
                qn_array *y = strided(qn_array_ref(x));
                for (int axis = 0; axis < 3; axis++) {
                    check_scan(ops[o], x, axis);
                    check_scan(ops[o], y, axis);
                }
                qn_array_unref(x);
                qn_array_unref(y);
            }
}

/* The input's storage is taken over when nobody else holds it. */
static void test_in_place(void **state)
{
    (void)state;
    use_cpu();
    static const qn_dtype types[] = {QN_FLOAT32, QN_BFLOAT16, QN_INT32};
    for (int t = 0; t < 3; t++)
        for (int axis = 0; axis < 2; axis++) {
            qn_array *x = values_of(types[t], SHAPE(40, 50));
            qn_array *expected = scan(QN_OP_CUMSUM, x, axis, true, false);
            qn_scan_params p;
            memset(&p, 0, sizeof p);
            p.axis = axis;
            p.reverse = true;
            qn_node_spec copy = {.op = QN_OP_NEGATIVE,
                                 .stream = test_stream(),
                                 .inputs = &x,
                                 .ninputs = 1};
            qn_array *minus, *plus, *found;
            check_status(qn_node_new(&minus, &copy, types[t], x->shape, 2),
                         QN_OK);
            copy.inputs = &minus;
            check_status(qn_node_new(&plus, &copy, types[t], x->shape, 2),
                         QN_OK);
            qn_array_unref(minus);
            qn_node_spec sum = {.op = QN_OP_CUMSUM,
                                .stream = test_stream(),
                                .inputs = &plus,
                                .ninputs = 1,
                                .params = &p,
                                .params_size = sizeof p};
            check_status(qn_node_new(&found, &sum, types[t], x->shape, 2),
                         QN_OK);
            qn_array_unref(plus);
            check_status(qn_eval(&found, 1), QN_OK);
            assert_true(same_items(found, expected));
            qn_array_unref(found);
            qn_array_unref(expected);
            qn_array_unref(x);
        }
}

static void test_every_kernel(void **state)
{
    (void)state;
    enum { N = 45, LINES = 13 };
    int tested = 0;
    bool picked = false;
    for (int isa = QN_ISA_NONE; isa < QN_ISA_COUNT; isa++) {
        const qn_scan_kernel *kernel = qn_scan_at((qn_isa)isa);
        if (!kernel)
            continue;
        tested++;
        picked |= kernel == qn_scan_pick();
        const qn_scan_loop *sum = &kernel->loops[QN_SCAN_CUMSUM][QN_FLOAT32];
        float x[LINES][N], y[LINES][N], expected[LINES][N];
        float turned[N][LINES], down[N][LINES];
        void *out[LINES];
        const void *in[LINES];
        uint64_t seed = 2;
        for (int l = 0; l < LINES; l++) {
            in[l] = x[l];
            out[l] = y[l];
            float acc = 0;
            for (int i = 0; i < N; i++) {
                turned[i][l] = x[l][i] = (float)test_random(&seed);
                acc = i ? acc + x[l][i] : x[l][i];
                expected[l][i] = acc;
            }
        }
        sum->lines(out, in, LINES, N, false, true);
        sum->columns(down, LINES, turned, LINES, LINES, N, true);
        assert_memory_equal(y, expected, sizeof y);
        for (int l = 0; l < LINES; l++)
            for (int i = 0; i < N; i++)
                assert_true(down[i][l] == expected[l][i]);
    }
    assert_true(tested >= 1);
    /* The one in use is among them. */
    assert_true(picked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kernel),
        cmocka_unit_test(test_every_type),
        cmocka_unit_test(test_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
