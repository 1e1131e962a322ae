/* Reductions: nodes against the reference over operations, types, axes,
 * shapes and layouts; the same bits for any number of threads; NaN and
 * infinities; each kernel on what the nodes do not reach. */
#include "support/qn_cpu_test.h"

#include "backend/cpu/kernels/reduce/reduce.h"

static const qn_op ops[] = {QN_OP_SUM, QN_OP_PROD, QN_OP_MAX,
                            QN_OP_MIN, QN_OP_ALL,  QN_OP_ANY};
enum { OPS = 6, LAYOUTS = 6 };

static qn_dtype result_type(qn_op op, qn_dtype d)
{
    if (op != QN_OP_SUM && op != QN_OP_PROD)
        return d;
    if (d == QN_BOOL || d == QN_INT8 || d == QN_INT16)
        return QN_INT32;
    return d == QN_UINT8 || d == QN_UINT16 ? QN_UINT32 : d;
}

static bool takes(qn_op op, qn_dtype d)
{
    if (op == QN_OP_ALL || op == QN_OP_ANY)
        return d == QN_BOOL;
    return d != QN_COMPLEX64 || op == QN_OP_SUM;
}

/* The axes whose bits are set in `mask`. */
static qn_array *reduce(qn_op op, qn_array *x, unsigned mask)
{
    qn_reduce_params p;
    int shape[QN_MAX_NDIM], ndim = 0;
    memset(&p, 0, sizeof p);
    for (int axis = 0; axis < x->ndim; axis++)
        if (mask >> axis & 1)
            p.axes[p.naxes++] = axis;
        else
            shape[ndim++] = x->shape[axis];
    return apply(op, &p, sizeof p, result_type(op, x->dtype), shape, ndim,
                 INPUTS(x));
}

/* The values of x: as they are, in another order of the axes, with gaps,
 * backwards, the first element of each line repeated, rows backwards. */
static qn_array *laid_out(qn_array *x, int layout)
{
    if (layout == 0)
        return qn_array_ref(x);
    if (layout == 1)
        return strided(qn_array_ref(x));
    int64_t strides[QN_MAX_NDIM], step = 1, first = 0;
    for (int axis = x->ndim - 1; axis >= 0; axis--) {
        bool gap = layout == 2 && axis < x->ndim - 1;
        strides[axis] = step;
        step = step * x->shape[axis] + gap;
    }
    if (layout == 2) {
        qn_array *room = array_of(x->dtype, NULL, SHAPE((int)step));
        qn_array *view = view_of(room, x->shape, x->ndim, strides, 0);
        for (size_t i = 0; i < x->size; i++)
            memcpy(place_of(view, i), place_of(x, i), qn_array_itemsize(x));
        qn_array_unref(room);
        return view;
    }
    if (layout == 3)
        for (int axis = 0; axis < x->ndim; axis++) {
            first += (x->shape[axis] - 1) * strides[axis];
            strides[axis] = -strides[axis];
        }
    else if (layout == 4)
        strides[x->ndim - 1] = 0;
    else { /* rows from the last to the first */
        first = (x->shape[0] - 1) * strides[0];
        strides[0] = -strides[0];
    }
    return view_of(x, x->shape, x->ndim, strides, (size_t)first);
}

/* One rounding of what differs by the order of sums in double. */
static double bound(const qn_array *expected)
{
    double largest = 0;
    qn_kind kind = qn_dtype_kind(expected->dtype);
    if (kind != QN_KIND_FLOAT && kind != QN_KIND_COMPLEX)
        return 0;
    for (size_t i = 0; i < expected->size; i++)
        largest = fmax(largest, fabs(item(expected, i)));
    return expected->dtype == QN_FLOAT64
               ? 1e-12 * (1 + largest)
               : 2 * half_ulp(expected->dtype) * largest + 1e-12;
}

static void check_reduction(qn_op op, qn_array *x, unsigned mask)
{
    use_reference();
    qn_array *expected = reduce(op, x, mask);
    use_fast();
    qn_array *found = reduce(op, x, mask);
    double difference = largest_difference(found, expected);
    if (!(difference <= bound(expected))) {
        print_error("%s of %s, axes %#x: off by %g\n", qn_op_info_of(op)->name,
                    qn_dtype_name(x->dtype), mask, difference);
        fail();
    }
    for (int t = 0; t < THREAD_COUNTS; t++) {
        qn_pool_set_threads(thread_counts[t]);
        qn_array *again = reduce(op, x, mask);
        assert_true(same_bits(again, found));
        qn_array_unref(again);
    }
    qn_pool_set_threads(0);
    qn_array_unref(found);
    qn_array_unref(expected);
}

/* Values around 1, whose products stay in range; integers of all sizes. */
static qn_array *values_of(qn_dtype dtype, qn_op op, uint64_t seed,
                           const int *shape, int ndim)
{
    bool real = qn_dtype_is_float(dtype) || dtype == QN_COMPLEX64;
    qn_array *x = random_array(dtype, real ? 3 : 0, seed, shape, ndim);
    for (size_t i = 0; i < x->size; i++) {
        double r = test_random(&seed);
        if (real && op == QN_OP_PROD)
            element_put(place_of(x, i), dtype, 1 + r * 0x1p-8);
        if (!real && dtype != QN_BOOL)
            memcpy(place_of(x, i), &seed, qn_dtype_size(dtype));
        if (dtype == QN_BOOL) /* any byte but 0 is true */
            *(uint8_t *)place_of(x, i) = r > 0.9 ? 0 : r > 0 ? 2 : 1;
        if (dtype == QN_COMPLEX64)
            ((float *)place_of(x, i))[1] = (float)r;
    }
    return x;
}

static void check_shape(const int *shape, int ndim, uint64_t seed)
{
    for (int d = 0; d < QN_DTYPE_COUNT; d++)
        for (int o = 0; o < OPS; o++) {
            if (!takes(ops[o], (qn_dtype)d))
                continue;
            qn_array *x = values_of((qn_dtype)d, ops[o], seed, shape, ndim);
            for (int layout = 0; layout < LAYOUTS; layout++) {
                qn_array *y = laid_out(x, layout);
                for (unsigned mask = 1; mask < 1u << ndim; mask++)
                    check_reduction(ops[o], y, mask);
                qn_array_unref(y);
            }
            qn_array_unref(x);
        }
}

static void test_small_shapes(void **state)
{
    (void)state;
    check_shape(SHAPE(1), 1);
    check_shape(SHAPE(7), 2);
    check_shape(SHAPE(3, 5), 3);
    check_shape(SHAPE(2, 3, 67), 4);
    check_shape(SHAPE(3, 70, 5), 5);
    check_shape(SHAPE(2, 3, 4, 33), 6);
}

/* Past the borders of pieces, blocks and batches. */
static void test_large_shapes(void **state)
{
    (void)state;
    static const qn_dtype types[] = {QN_FLOAT32, QN_BFLOAT16, QN_FLOAT64,
                                     QN_INT16};
    static const struct {
        int shape[3], ndim;
    } cases[] = {{{200001}, 1},      {{3, 70001}, 2},   {{70001, 3}, 2},
                 {{130, 1100}, 2},   {{70, 2, 300}, 3}, {{3, 30000, 2}, 3},
                 {{2, 1030, 65}, 3}, {{2, 90, 800}, 3}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int t = 0; t < 4; t++)
            for (int o = 0; o < 3; o += 2) {
                qn_array *x = values_of(types[t], ops[o], c, cases[c].shape,
                                        cases[c].ndim);
                for (int layout = 0; layout < 3; layout++) {
                    qn_array *y = laid_out(x, layout);
                    for (unsigned mask = 1; mask < 1u << cases[c].ndim; mask++)
                        check_reduction(ops[o], y, mask);
                    qn_array_unref(y);
                }
                qn_array_unref(x);
            }
}

static void test_nan_and_infinities(void **state)
{
    (void)state;
    static const double specials[] = {NAN, INFINITY, -INFINITY};
    static const qn_dtype types[] = {QN_FLOAT32, QN_FLOAT16, QN_BFLOAT16,
                                     QN_FLOAT64};
    for (int t = 0; t < 4; t++)
        for (int at = 0; at < 150; at += 7)
            for (int v = 0; v < 9; v++) {
                qn_array *x = random_array(types[t], 1, 5, SHAPE(3, 150));
                element_put(place_of(x, 150 + (size_t)at), types[t],
                            specials[v / 3]);
                element_put(place_of(x, 299 - (size_t)at), types[t],
                            specials[v % 3]);
                for (int o = 0; o < 4; o++)
                    for (unsigned mask = 1; mask < 4; mask++)
                        check_reduction(ops[o], x, mask);
                qn_array_unref(x);
            }
}

/* A sum is the true one, rounded: it beats any order of sums in float. */
static void test_sums_are_rounded_once(void **state)
{
    (void)state;
    enum { N = 300000 };
    use_fast();
    qn_array *x = random_array(QN_FLOAT32, 1000, 9, SHAPE(N));
    double exact = 0;
    for (size_t i = 0; i < N; i++)
        exact += item(x, i);
    qn_array *sum = reduce(QN_OP_SUM, x, 1);
    assert_true(fabs(item(sum, 0) - exact) <= 0x1p-24 * fabs(exact));
    qn_array_unref(sum);
    qn_array_unref(x);
}

/* Every kernel, every length: rows and columns give the same. */
static void test_every_kernel(void **state)
{
    (void)state;
    enum { MOST = 140, ROWS = 9 };
    int tested = 0;
    bool picked = false;
    for (int isa = QN_ISA_NONE; isa < QN_ISA_COUNT; isa++) {
        const qn_reduce_kernel *kernel = qn_reduce_at((qn_isa)isa);
        tested += kernel != NULL;
        picked |= kernel == qn_reduce_pick();
        for (size_t n = 1; kernel && n <= MOST; n++) {
            const qn_reduce_loop *sum =
                &kernel->loops[QN_REDUCE_SUM][QN_FLOAT32];
            const qn_reduce_loop *max =
                &kernel->loops[QN_REDUCE_MAX][QN_BFLOAT16];
            float x[ROWS][MOST], tops[MOST];
            uint16_t halves[ROWS][MOST];
            double rows[ROWS], columns[MOST];
            uint64_t seed = n;
            for (int r = 0; r < ROWS; r++)
                for (size_t i = 0; i < n; i++) {
                    x[r][i] = (float)(int)(100 * test_random(&seed));
                    halves[r][i] = qn_f32_to_bf16(x[r][i]);
                }
            sum->start(rows, ROWS);
            sum->rows(rows, x, n, ROWS, MOST);
            sum->start(columns, n);
            sum->columns(columns, x, n, ROWS, MOST);
            max->start(tops, n);
            max->columns(tops, halves, n, ROWS, MOST);
            for (int r = 0; r < ROWS; r++) {
                double expected = 0;
                for (size_t i = 0; i < n; i++)
                    expected += (double)x[r][i];
                assert_true(rows[r] == expected);
            }
            for (size_t i = 0; i < n; i++) {
                double expected = 0, top = -INFINITY;
                for (int r = 0; r < ROWS; r++) {
                    expected += (double)x[r][i];
                    top = fmax(top, (double)x[r][i]);
                }
                assert_true(columns[i] == expected);
                assert_true((double)tops[i] == top);
            }
        }
    }
    assert_true(tested >= 1);
    /* The one in use is among them. */
    assert_true(picked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kernel),
        cmocka_unit_test(test_small_shapes),
        cmocka_unit_test(test_large_shapes),
        cmocka_unit_test(test_nan_and_infinities),
        cmocka_unit_test(test_sums_are_rounded_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
