/* Matrix products: nodes of every layout and type against the reference and
 * against double sums; rows and threads change no bit. */
#include "support/qn_cpu_test.h"

#include "backend/cpu/kernels/gemm/gemm.h"

static qn_array *matmul(qn_array *a, qn_array *b)
{
    int shape[QN_MAX_NDIM];
    memcpy(shape, a->shape, (size_t)a->ndim * sizeof *shape);
    shape[a->ndim - 1] = b->shape[b->ndim - 1];
    return apply(QN_OP_MATMUL, NULL, 0, a->dtype, shape, a->ndim, INPUTS(a, b));
}

/* The two layouts that have kernels, and one that has none: along K, along
 * N, neither; also rows further apart than they are long. */
enum { ALONG_K, ALONG_N, NEITHER, APART, LAYOUTS };

/* The same elements in another layout; gives `a` up.  Two axes. */
static qn_array *laid_out(qn_array *a, int layout)
{
    int rows = a->shape[0], columns = a->shape[1];
    const int64_t steps[LAYOUTS][2] = {
        {1, rows}, {columns, 1}, {3, 3 * (int64_t)rows + 1}, {columns + 5, 1}};
    qn_array *room =
        array_of(a->dtype, NULL, SHAPE((rows + 6) * (columns + 6) * 3));
    qn_array *view = view_of(room, a->shape, 2, steps[layout], 0);
    for (size_t i = 0; i < a->size; i++)
        memcpy(place_of(view, i), place_of(a, i), qn_array_itemsize(a));
    qn_array_unref(room);
    qn_array_unref(a);
    return view;
}

static void check_product(qn_array *a, qn_array *b)
{
    int m = a->shape[0], n = b->shape[1], k = a->shape[1];
    qn_array *out = matmul(a, b);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0, size = 0;
            for (int p = 0; p < k; p++) {
                double product =
                    item(a, (size_t)(i * k + p)) * item(b, (size_t)(p * n + j));
                sum += product;
                size += fabs(product);
            }
            double found = item(out, (size_t)(i * n + j));
            double bound = 0x1p-17 * size + 2 * half_ulp(a->dtype) * fabs(sum);
            if (!(fabs(found - sum) <= bound)) {
                print_error("%d x %d x %d: [%d, %d] is %.9g, expected %.9g\n",
                            m, n, k, i, j, found, sum);
                fail();
            }
        }
    /* A row alone, and any number of threads. */
    for (int i = 0; i < m; i += 5) {
        qn_array *row = view_of(a, SHAPE(1, k), a->strides,
                                (size_t)((int64_t)i * a->strides[0]));
        qn_array *alone = matmul(row, b);
        for (int j = 0; j < n; j++)
            assert_memory_equal(place_of(alone, (size_t)j),
                                place_of(out, (size_t)(i * n + j)),
                                qn_array_itemsize(out));
        qn_array_unref(alone);
        qn_array_unref(row);
    }
    qn_array_unref(out);
}

static void test_layouts_and_types(void **state)
{
    (void)state;
    static const int sizes[][3] = {{1, 1, 1},     {1, 64, 64},  {3, 17, 5},
                                   {7, 33, 100},  {13, 80, 31}, {31, 5, 257},
                                   {2, 129, 300}, {20, 70, 64}};
    use_fast();
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int t = 0; t < FLOAT_TYPES; t++)
            for (int layouts = 0; layouts < LAYOUTS * LAYOUTS; layouts++) {
                int m = sizes[s][0], n = sizes[s][1], k = sizes[s][2];
                qn_array *a = laid_out(
                    random_array(float_types[t], 1, s + 1, SHAPE(m, k)),
                    layouts / LAYOUTS);
                qn_array *b = laid_out(
                    random_array(float_types[t], 1, s + 2, SHAPE(k, n)),
                    layouts % LAYOUTS);
                check_product(a, b);
                qn_array_unref(a);
                qn_array_unref(b);
            }
}

static void test_threads_change_no_bit(void **state)
{
    (void)state;
    use_fast();
    for (int m = 1; m <= 64; m += 9)
        for (int layout = 0; layout < 2; layout++) {
            qn_array *a = random_array(QN_FLOAT32, 1, 3, SHAPE(m, 300));
            qn_array *b = laid_out(
                random_array(QN_BFLOAT16, 1, 4, SHAPE(300, 700)), layout);
            qn_array *first = NULL;
            for (int t = 0; t < THREAD_COUNTS; t++) {
                qn_pool_set_threads(thread_counts[t]);
                qn_array *out = matmul(a, b);
                if (!first)
                    first = qn_array_ref(out);
                assert_true(same_bits(first, out));
                qn_array_unref(out);
            }
            qn_pool_set_threads(0);
            qn_array_unref(first);
            qn_array_unref(a);
            qn_array_unref(b);
        }
}

/* Few columns and many rows: rows are shared instead. */
static void test_tall_products(void **state)
{
    (void)state;
    use_fast();
    for (int t = 0; t < THREAD_COUNTS; t++) {
        qn_pool_set_threads(thread_counts[t]);
        for (int layout = 0; layout < 2; layout++) {
            qn_array *a = random_array(QN_FLOAT32, 1, 3, SHAPE(150, 40));
            qn_array *b =
                laid_out(random_array(QN_FLOAT32, 1, 4, SHAPE(40, 24)), layout);
            check_product(a, b);
            qn_array_unref(a);
            qn_array_unref(b);
        }
    }
    qn_pool_set_threads(0);
}

static void test_batches(void **state)
{
    (void)state;
    qn_array *a = random_array(QN_FLOAT32, 1, 3, SHAPE(2, 3, 5, 40));
    qn_array *b = random_array(QN_FLOAT32, 1, 4, SHAPE(2, 3, 40, 22));
    /* One matrix for all: with stride 0, and the batch of a turned around. */
    int64_t still[] = {0, 0, 22, 1}, turned[] = {200, 400, 40, 1};
    qn_array *one = view_of(b, b->shape, 4, still, 7);
    qn_array *other = view_of(a, SHAPE(3, 2, 5, 40), turned, 0);
    qn_array *lefts[] = {a, a, other}, *rights[] = {b, one, NULL};
    rights[2] =
        view_of(b, SHAPE(3, 2, 40, 22), (const int64_t[]){880, 2640, 22, 1}, 0);
    for (int i = 0; i < 3; i++) {
        use_reference();
        qn_array *expected = matmul(lefts[i], rights[i]);
        use_fast();
        qn_array *found = matmul(lefts[i], rights[i]);
        assert_true(largest_difference(found, expected) <= 1e-5);
        qn_array_unref(found);
        qn_array_unref(expected);
    }
    qn_array_unref(a);
    qn_array_unref(b);
    qn_array_unref(one);
    qn_array_unref(other);
    qn_array_unref(rights[2]);
}

/* Nothing to add up gives zeros; nothing at all gives nothing. */
static void test_empty_products(void **state)
{
    (void)state;
    use_cpu();
    qn_array *a = array_of(QN_FLOAT32, NULL, SHAPE(2, 0));
    qn_array *b = array_of(QN_FLOAT32, NULL, SHAPE(0, 3));
    check_items(matmul(a, b), 0, 0, 0, 0, 0, 0);
    qn_array *none = array_of(QN_FLOAT32, NULL, SHAPE(0, 2));
    qn_array *out = matmul(none, a);
    assert_int_equal(out->size, 0);
    qn_array_unref(out);
    qn_array_unref(none);
    qn_array_unref(a);
    qn_array_unref(b);
}

/* ---- packed ---- */

typedef struct packed {
    qn_quant_params p;
    qn_array *w, *scales, *biases;
} packed;

static packed packed_make(int bits, int group, int n, int k, qn_dtype type,
                          bool transpose)
{
    packed q;
    memset(&q, 0, sizeof q);
    q.p.bits = bits;
    q.p.group_size = group;
    q.p.transpose = transpose;
    uint64_t seed = (uint64_t)(bits * 1000 + group);
    int columns = k * bits / 32;
    q.w = array_of(QN_UINT32, NULL, SHAPE(n, columns));
    for (size_t i = 0; i < q.w->size; i++)
        element_put(place_of(q.w, i), QN_UINT32,
                    floor((test_random(&seed) + 1) * 0x1p31));
    q.scales = random_array(type, 0.1, seed, SHAPE(n, k / group));
    q.biases = random_array(type, 1, seed + 1, SHAPE(n, k / group));
    return q;
}

static void packed_free(packed *q)
{
    qn_array_unref(q->w);
    qn_array_unref(q->scales);
    qn_array_unref(q->biases);
}

static qn_array *quantized(const packed *q, qn_array *x, int n)
{
    int shape[QN_MAX_NDIM];
    memcpy(shape, x->shape, (size_t)x->ndim * sizeof *shape);
    shape[x->ndim - 1] = n;
    return apply(QN_OP_QUANTIZED_MATMUL, &q->p, sizeof q->p, x->dtype, shape,
                 x->ndim, INPUTS(x, q->w, q->scales, q->biases));
}

static const int widths[] = {2, 3, 4, 5, 6, 8};
static const int groups[] = {16, 32, 64, 128};

static void test_packed_products(void **state)
{
    (void)state;
    for (int round = 0; round < 6 * 4 * FLOAT_TYPES; round++) {
        int bits = widths[round % 6], group = groups[round / 6 % 4];
        qn_dtype type = float_types[round / 24];
        int n = 5 + round % 30, k = 128 * (1 + round % 3);
        packed q = packed_make(bits, group, n, k, type, true);
        qn_array *x = random_array(float_types[(round + 1) % 3], 1, 8,
                                   SHAPE(3, 1 + round % 7, k));
        use_reference();
        qn_array *expected = quantized(&q, x, n);
        use_fast();
        qn_array *found = quantized(&q, x, n);
        double size = 0;
        for (size_t i = 0; i < expected->size; i++)
            size = fmax(size, fabs(item(expected, i)));
        assert_true(largest_difference(found, expected) <=
                    size * 2 * half_ulp(x->dtype) +
                        0x1p-17 * (k + 26.0 * k / 4));
        for (int t = 0; t < THREAD_COUNTS; t++) {
            qn_pool_set_threads(thread_counts[t]);
            qn_array *again = quantized(&q, x, n);
            assert_true(same_bits(again, found));
            qn_array_unref(again);
        }
        qn_pool_set_threads(0);
        /* A row alone. */
        size_t rows = x->size / (size_t)k;
        for (size_t r = 0; r < rows; r += 2) {
            qn_array *row =
                view_of(x, SHAPE(1, k), (const int64_t[]){k, 1}, r * (size_t)k);
            qn_array *alone = quantized(&q, row, n);
            for (int j = 0; j < n; j++)
                assert_memory_equal(place_of(alone, (size_t)j),
                                    place_of(found, r * (size_t)n + (size_t)j),
                                    qn_array_itemsize(found));
            qn_array_unref(alone);
            qn_array_unref(row);
        }
        qn_array_unref(found);
        qn_array_unref(expected);
        qn_array_unref(x);
        packed_free(&q);
    }
}

/* x w without transposing: rows have the bits that they have alone. */
static void test_untransposed_packed_products(void **state)
{
    (void)state;
    for (int round = 0; round < 6 * 4 * FLOAT_TYPES; round++) {
        int bits = widths[round % 6], group = groups[round / 6 % 4];
        int k = 3 + 40 * (round % 9), n = 128 * (1 + round % 3);
        packed q =
            packed_make(bits, group, k, n, float_types[round / 24], false);
        qn_array *x = random_array(float_types[(round + 1) % 3], 1, 8,
                                   SHAPE(1 + round % 9, k));
        use_fast();
        qn_array *found = quantized(&q, x, n);
        use_reference();
        qn_array *expected = quantized(&q, x, n);
        double size = 0;
        for (size_t i = 0; i < expected->size; i++)
            size = fmax(size, fabs(item(expected, i)));
        assert_true(largest_difference(found, expected) <=
                    size * 2 * half_ulp(x->dtype) + 0x1p-17 * (8.0 * k));
        use_fast();
        qn_array *row = view_of(x, SHAPE(1, k), (const int64_t[]){k, 1},
                                (size_t)(x->shape[0] - 1) * (size_t)k);
        qn_array *alone = quantized(&q, row, n);
        size_t bytes = alone->size * qn_array_itemsize(alone);
        assert_memory_equal(qn_array_data(alone),
                            (char *)qn_array_data(found) +
                                (size_t)(x->shape[0] - 1) * bytes,
                            bytes);
        qn_array_unref(alone);
        qn_array_unref(row);
        qn_array_unref(found);
        qn_array_unref(expected);
        qn_array_unref(x);
        packed_free(&q);
    }
}

/* Every code and every scale of the modes with tables. */
static void test_float_codes_unpack_as_the_reference(void **state)
{
    (void)state;
    static const struct {
        qn_quant_mode mode;
        int group, bits;
    } modes[] = {{QN_QUANT_MXFP4, 32, 4},
                 {QN_QUANT_MXFP8, 32, 8},
                 {QN_QUANT_NVFP4, 16, 4}};
    for (int m = 0; m < 3; m++) {
        int words = 256 * modes[m].bits / 32;
        qn_quant_params p = {.mode = modes[m].mode,
                             .group_size = modes[m].group,
                             .bits = modes[m].bits};
        qn_array *w = array_of(QN_UINT32, NULL, SHAPE(256, words));
        qn_array *scales =
            array_of(QN_UINT8, NULL, SHAPE(256, 256 / modes[m].group));
        for (size_t i = 0; i < w->size * 4; i++)
            ((uint8_t *)qn_array_data(w))[i] = (uint8_t)(i * 37);
        for (size_t i = 0; i < scales->size; i++)
            ((uint8_t *)qn_array_data(scales))[i] = (uint8_t)i;
        use_fast();
        qn_array *found = apply(QN_OP_DEQUANTIZE, &p, sizeof p, QN_FLOAT32,
                                SHAPE(256, 256), INPUTS(w, scales));
        use_reference();
        qn_array *expected = apply(QN_OP_DEQUANTIZE, &p, sizeof p, QN_FLOAT32,
                                   SHAPE(256, 256), INPUTS(w, scales));
        for (size_t i = 0; i < found->size; i++)
            assert_true(same_value(item(found, i), item(expected, i)));
        qn_array_unref(found);
        qn_array_unref(expected);
        qn_array_unref(w);
        qn_array_unref(scales);
    }
}

static qn_array *dequantize(const packed *q, qn_array *const *parts, int ndim,
                            qn_dtype type)
{
    int shape[QN_MAX_NDIM];
    memcpy(shape, parts[0]->shape, (size_t)ndim * sizeof *shape);
    shape[ndim - 1] = shape[ndim - 1] * 32 / q->p.bits;
    return apply(QN_OP_DEQUANTIZE, &q->p, sizeof q->p, type, shape, ndim, 3,
                 parts);
}

static void test_unpacking(void **state)
{
    (void)state;
    for (int round = 0; round < 6 * 4 * FLOAT_TYPES; round++) {
        int bits = widths[round % 6], group = groups[round / 6 % 4];
        qn_dtype type = float_types[round / 24];
        packed q = packed_make(bits, group, 100, 256, type, true);
        qn_array *parts[] = {q.w, q.scales, q.biases};
        use_reference();
        qn_array *expected = dequantize(&q, parts, 2, type);
        use_fast();
        qn_array *found = dequantize(&q, parts, 2, type);
        assert_true(same_bits(found, expected));
        qn_array_unref(found);
        qn_array_unref(expected);
        packed_free(&q);
    }
}

/* ---- each kernel of gemm ---- */

static void check_gemm(const qn_gemm_kernel *kernel)
{
    static const size_t ns[] = {1, 15, 16, 64, 65, 100}, ks[] = {1, 40, 600};
    for (int t = 0; t < FLOAT_TYPES; t++)
        for (size_t m = 1; m < 30; m += 4)
            for (int i = 0; i < 6 * 3; i++) {
                size_t n = ns[i % 6], k = ks[i / 6];
                qn_array *a =
                    random_array(QN_FLOAT32, 1, m, SHAPE((int)m, (int)k));
                qn_array *b = random_array(float_types[t], 1, m + 1,
                                           SHAPE((int)k, (int)n));
                qn_array *out =
                    array_of(QN_FLOAT32, NULL, SHAPE((int)m, (int)n));
                float *scratch = malloc(QN_GEMM_SCRATCH * sizeof *scratch);
                assert_non_null(scratch);
                qn_gemm job = {.m = m,
                               .n = n,
                               .k = k,
                               .a = qn_array_data(a),
                               .a_stride = k,
                               .b = qn_array_data(b),
                               .b_stride = n,
                               .b_type = b->dtype,
                               .out = qn_array_data(out),
                               .out_stride = n};
                kernel->run(&job, 0, m, 0, n, scratch);
                for (size_t row = 0; row < m; row++)
                    for (size_t column = 0; column < n; column++) {
                        double sum = 0, size = 0;
                        for (size_t p = 0; p < k; p++) {
                            double product =
                                item(a, row * k + p) * item(b, p * n + column);
                            sum += product;
                            size += fabs(product);
                        }
                        assert_true(fabs(item(out, row * n + column) - sum) <=
                                    0x1p-17 * size);
                    }
                free(scratch);
                qn_array_unref(a);
                qn_array_unref(b);
                qn_array_unref(out);
            }
}

static void test_every_gemm_kernel(void **state)
{
    (void)state;
    int tested = 0;
    bool picked = false;
    for (int isa = QN_ISA_NONE; isa < QN_ISA_COUNT; isa++) {
        const qn_gemm_kernel *kernel = qn_gemm_at((qn_isa)isa);
        if (kernel)
            check_gemm(kernel);
        tested += kernel != NULL;
        picked |= kernel == qn_gemm_pick();
    }
    assert_true(tested >= 1);
    /* The one in use is among them. */
    assert_true(picked);
}

static qn_array *starved[2];

static qn_status multiply_starved(void)
{
    qn_array *out;
    qn_memory_clear_cache();
    qn_status status =
        apply_status(&out, QN_OP_MATMUL, NULL, 0, QN_BFLOAT16, SHAPE(30, 20),
                     INPUTS(starved[0], starved[1]));
    if (!status)
        qn_array_unref(out);
    return status;
}

static void test_allocations_may_fail(void **state)
{
    (void)state;
    use_fast();
    for (int layout = 0; layout < 3; layout++) {
        starved[0] = random_array(QN_BFLOAT16, 1, 1, SHAPE(30, 70));
        starved[1] =
            laid_out(random_array(QN_BFLOAT16, 1, 2, SHAPE(70, 20)), layout);
        each_alloc_may_fail(multiply_starved);
        qn_array_unref(starved[0]);
        qn_array_unref(starved[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts_and_types),
        cmocka_unit_test(test_threads_change_no_bit),
        cmocka_unit_test(test_tall_products),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_empty_products),
        cmocka_unit_test(test_packed_products),
        cmocka_unit_test(test_untransposed_packed_products),
        cmocka_unit_test(test_float_codes_unpack_as_the_reference),
        cmocka_unit_test(test_unpacking),
        cmocka_unit_test(test_every_gemm_kernel),
        cmocka_unit_test(test_allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
