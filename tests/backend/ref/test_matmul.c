/* Products, dense and packed: values against double loops, rows that do not
 * depend on each other, strides, empty shapes. */
#include "support/qn_ref_test.h"

#include "backend/common/quant.h"

static qn_array *matmul(qn_array *a, qn_array *b, const int *shape, int ndim)
{
    return apply(QN_OP_MATMUL, NULL, 0, a->dtype, shape, ndim, INPUTS(a, b));
}

static void test_small_products_are_exact(void **state)
{
    (void)state;
    const qn_dtype dtypes[] = {QN_FLOAT16, QN_BFLOAT16, QN_FLOAT32, QN_FLOAT64,
                               QN_COMPLEX64};
    for (int layout = 0; layout < 2; layout++)
        for (int t = 0; t < 5; t++) {
            qn_array *a =
                array_of(dtypes[t], VALUES(1, 2, 3, 4, 5, 6), SHAPE(2, 3));
            qn_array *b =
                array_of(dtypes[t], VALUES(1, 0, 2, -1, 0, 3), SHAPE(3, 2));
            if (layout) {
                a = strided(a);
                b = strided(b);
            }
            check_items(matmul(a, b, SHAPE(2, 2)), 5, 7, 14, 13);
            qn_array_unref(a);
            qn_array_unref(b);
        }
}

/* Within what the type keeps of the true sum. */
static void check_product(qn_array *out, qn_array *a, qn_array *b, double eps)
{
    size_t m = (size_t)out->shape[0], n = (size_t)out->shape[1];
    size_t k = (size_t)a->shape[1];
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            double sum = 0, size = 0;
            for (size_t p = 0; p < k; p++) {
                double term = item(a, i * k + p) * item(b, p * n + j);
                sum += term;
                size += fabs(term);
            }
            double error = fabs(item(out, i * n + j) - sum);
            assert_true(error <= eps * fabs(sum) + 0x1p-20 * size);
        }
}

static void test_products_against_double(void **state)
{
    (void)state;
    const qn_dtype dtypes[] = {QN_FLOAT16, QN_BFLOAT16, QN_FLOAT32};
    const double eps[] = {0x1p-11, 0x1p-8, 0x1p-24};
    for (int t = 0; t < 3; t++) {
        qn_array *a = random_array(dtypes[t], 1, 1, SHAPE(3, 1000));
        qn_array *b = random_array(dtypes[t], 1, 2, SHAPE(1000, 37));
        qn_array *out = matmul(a, b, SHAPE(3, 37));
        check_product(out, a, b, eps[t]);
        qn_array_unref(out);
        qn_array_unref(a);
        qn_array_unref(b);
    }
}

static void test_batches_broadcast_by_strides(void **state)
{
    (void)state;
    qn_array *a = random_array(QN_FLOAT32, 1, 3, SHAPE(2, 3, 2, 4));
    qn_array *b = random_array(QN_FLOAT32, 1, 4, SHAPE(3, 4, 5));
    qn_array *wide =
        view_of(b, SHAPE(2, 3, 4, 5), (const int64_t[]){0, 20, 5, 1}, 0);
    qn_array *out = matmul(a, wide, SHAPE(2, 3, 2, 5));
    for (size_t batch = 0; batch < 6; batch++) {
        qn_array *one =
            view_of(a, SHAPE(2, 4), (const int64_t[]){4, 1}, batch * 8);
        qn_array *by =
            view_of(b, SHAPE(4, 5), (const int64_t[]){5, 1}, batch % 3 * 20);
        qn_array *part = matmul(one, by, SHAPE(2, 5));
        for (size_t i = 0; i < 10; i++)
            assert_true(item(part, i) == item(out, batch * 10 + i));
        qn_array_unref(part);
        qn_array_unref(one);
        qn_array_unref(by);
    }
    qn_array_unref(out);
    qn_array_unref(wide);
    qn_array_unref(a);
    qn_array_unref(b);
}

static void test_empty_products(void **state)
{
    (void)state;
    qn_array *a = array_of(QN_FLOAT32, NULL, SHAPE(2, 0));
    qn_array *b = array_of(QN_FLOAT32, NULL, SHAPE(0, 3));
    check_items(matmul(a, b, SHAPE(2, 3)), 0, 0, 0, 0, 0, 0);
    qn_array *c = array_of(QN_FLOAT32, NULL, SHAPE(3, 2));
    qn_array *none = matmul(b, c, SHAPE(0, 2));
    qn_array_unref(c);
    assert_int_equal(none->size, 0);
    qn_array_unref(none);
    qn_array_unref(a);
    qn_array_unref(b);
}

static void test_rows_have_the_bits_they_have_alone(void **state)
{
    (void)state;
    qn_array *a = random_array(QN_FLOAT32, 1, 5, SHAPE(7, 515));
    qn_array *b = random_array(QN_FLOAT32, 1, 6, SHAPE(515, 33));
    qn_array *all = matmul(a, b, SHAPE(7, 33));
    for (size_t row = 0; row < 7; row++) {
        qn_array *one =
            view_of(a, SHAPE(1, 515), (const int64_t[]){515, 1}, row * 515);
        qn_array *alone = matmul(one, b, SHAPE(1, 33));
        assert_memory_equal(qn_array_data(alone), place_of(all, row * 33),
                            33 * sizeof(float));
        qn_array_unref(alone);
        qn_array_unref(one);
    }
    qn_array_unref(all);
    qn_array_unref(a);
    qn_array_unref(b);
}

/* ---- packed ---- */

typedef struct packed {
    qn_quant_params p;
    qn_array *w, *scales, *biases;
} packed;

/* Random codes with random scales of a dtype (or mode), [rows, columns]. */
static packed packed_new(qn_quant_mode mode, int bits, int group,
                         qn_dtype dtype, int rows, int columns)
{
    packed m = {.p = {.mode = mode, .bits = bits, .group_size = group}};
    uint64_t seed = (uint64_t)(bits * 1000 + group);
    m.w = array_of(QN_UINT32, NULL, SHAPE(rows, columns * bits / 32));
    uint32_t *words = qn_array_data(m.w);
    for (size_t i = 0; i < m.w->size; i++)
        words[i] = (uint32_t)(int64_t)(test_random(&seed) * 0x1p31);
    int shape[] = {rows, columns / group};
    if (mode == QN_QUANT_AFFINE) {
        m.scales = random_array(dtype, 0.1, seed, shape, 2);
        m.biases = random_array(dtype, 1, seed + 1, shape, 2);
        return m;
    }
    m.scales = array_of(QN_UINT8, NULL, shape, 2);
    uint8_t *bytes = qn_array_data(m.scales);
    for (size_t i = 0; i < m.scales->size; i++)
        bytes[i] = (uint8_t)(mode == QN_QUANT_NVFP4 ? 30 + i * 7 % 60
                                                    : 122 + i * 3 % 8);
    return m;
}

static void packed_free(packed *m)
{
    qn_array_unref(m->w);
    qn_array_unref(m->scales);
    qn_array_unref(m->biases);
}

static qn_array *dequantize(packed *m, qn_dtype dtype, int rows, int columns)
{
    qn_array *inputs[] = {m->w, m->scales, m->biases};
    return apply(QN_OP_DEQUANTIZE, &m->p, sizeof m->p, dtype,
                 SHAPE(rows, columns), m->biases ? 3 : 2, inputs);
}

static qn_array *multiply(packed *m, qn_array *x, qn_dtype dtype,
                          const int *shape, int ndim)
{
    qn_array *inputs[] = {x, m->w, m->scales, m->biases};
    return apply(QN_OP_QUANTIZED_MATMUL, &m->p, sizeof m->p, dtype, shape, ndim,
                 m->biases ? 4 : 3, inputs);
}

/* Both directions against double sums over the dequantized matrix. */
static void check_packed(qn_quant_mode mode, int bits, int group, qn_dtype xs,
                         qn_dtype scales)
{
    enum { N = 6, K = 256, M = 3 };
    packed m = packed_new(mode, bits, group, scales, N, K);
    qn_array *w = dequantize(&m, QN_FLOAT32, N, K);
    qn_array *x = random_array(xs, 1, 77, SHAPE(M, K));
    m.p.transpose = true;
    qn_array *out = multiply(&m, x, QN_FLOAT32, SHAPE(M, N));
    for (size_t i = 0; i < M; i++)
        for (size_t j = 0; j < N; j++) {
            double sum = 0, size = 0;
            for (size_t k = 0; k < K; k++) {
                double term = item(x, i * K + k) * item(w, j * K + k);
                sum += term;
                size += fabs(term);
            }
            double error = fabs(item(out, i * N + j) - sum);
            assert_true(error <= 0x1p-24 * fabs(sum) + 0x1p-21 * size);
        }
    qn_array_unref(out);
    qn_array_unref(x);
    x = random_array(xs, 1, 78, SHAPE(M, N));
    m.p.transpose = false;
    out = multiply(&m, x, QN_FLOAT32, SHAPE(M, K));
    check_product(out, x, w, 0x1p-24);
    qn_array_unref(out);
    qn_array_unref(x);
    qn_array_unref(w);
    packed_free(&m);
}

static void test_packed_products_against_double(void **state)
{
    (void)state;
    const int widths[] = {2, 3, 4, 5, 6, 8}, groups[] = {16, 32, 64, 128};
    const qn_dtype dtypes[] = {QN_FLOAT16, QN_BFLOAT16, QN_FLOAT32};
    for (int w = 0; w < 6; w++)
        for (int g = 0; g < 4; g++)
            check_packed(QN_QUANT_AFFINE, widths[w], groups[g],
                         dtypes[(w + g) % 3], dtypes[(w + 2 * g) % 3]);
    check_packed(QN_QUANT_MXFP4, 4, 32, QN_BFLOAT16, QN_UINT8);
    check_packed(QN_QUANT_MXFP8, 8, 32, QN_FLOAT32, QN_UINT8);
    check_packed(QN_QUANT_NVFP4, 4, 16, QN_FLOAT16, QN_UINT8);
}

static void test_packed_values_by_definition(void **state)
{
    (void)state;
    packed m = packed_new(QN_QUANT_AFFINE, 5, 32, QN_FLOAT32, 2, 64);
    qn_array *w = dequantize(&m, QN_FLOAT32, 2, 64);
    for (size_t i = 0; i < 128; i++) {
        uint8_t code;
        qn_quant_unpack(&code, (uint32_t *)qn_array_data(m.w) + i / 64 * 10,
                        i % 64, 1, 5);
        float scale = ((float *)qn_array_data(m.scales))[i / 32];
        float bias = ((float *)qn_array_data(m.biases))[i / 32];
        assert_true(item(w, i) == (double)((float)code * scale + bias));
    }
    qn_array_unref(w);
    packed_free(&m);
    m = packed_new(QN_QUANT_NVFP4, 4, 16, QN_UINT8, 1, 32);
    w = dequantize(&m, QN_FLOAT32, 1, 32);
    for (size_t i = 0; i < 32; i++) {
        uint8_t code;
        qn_quant_unpack(&code, qn_array_data(m.w), i, 1, 4);
        float s = qn_e4m3_to_f32(((uint8_t *)qn_array_data(m.scales))[i / 16]);
        assert_true(item(w, i) == (double)(qn_e2m1_to_f32(code) * s));
    }
    qn_array_unref(w);
    packed_free(&m);
}

static void test_packed_rows_have_the_bits_they_have_alone(void **state)
{
    (void)state;
    for (int transpose = 0; transpose < 2; transpose++) {
        packed m = packed_new(QN_QUANT_AFFINE, 4, 64, QN_FLOAT16, 640, 640);
        m.p.transpose = transpose;
        qn_array *x = random_array(QN_FLOAT32, 1, 8, SHAPE(5, 640));
        qn_array *all = multiply(&m, x, QN_FLOAT32, SHAPE(5, 640));
        for (size_t row = 0; row < 5; row++) {
            qn_array *one =
                view_of(x, SHAPE(1, 640), (const int64_t[]){640, 1}, row * 640);
            qn_array *alone = multiply(&m, one, QN_FLOAT32, SHAPE(1, 640));
            assert_memory_equal(qn_array_data(alone), place_of(all, row * 640),
                                640 * sizeof(float));
            qn_array_unref(alone);
            qn_array_unref(one);
        }
        qn_array_unref(all);
        qn_array_unref(x);
        packed_free(&m);
    }
}

/* Heads that stand still over one packed matrix, and a matrix cut in rows. */
static void test_packed_batches_and_strides(void **state)
{
    (void)state;
    packed m = packed_new(QN_QUANT_AFFINE, 8, 32, QN_FLOAT32, 12, 32);
    m.p.transpose = true;
    qn_array *x = random_array(QN_FLOAT32, 1, 9, SHAPE(2, 3, 1, 32));
    packed heads = m; /* [2, 1, 6, .] as [2, 3, 6, .] */
    heads.w = view_of(m.w, SHAPE(2, 3, 6, 8), (int64_t[]){48, 0, 8, 1}, 0);
    heads.scales =
        view_of(m.scales, SHAPE(2, 3, 6, 1), (int64_t[]){6, 0, 1, 1}, 0);
    heads.biases =
        view_of(m.biases, SHAPE(2, 3, 6, 1), (int64_t[]){6, 0, 1, 1}, 0);
    qn_array *out = multiply(&heads, x, QN_FLOAT32, SHAPE(2, 3, 1, 6));
    for (size_t i = 0; i < 6; i++) {
        packed part = m;
        size_t head = i / 3;
        part.w = view_of(m.w, SHAPE(6, 8), (int64_t[]){8, 1}, head * 48);
        part.scales =
            view_of(m.scales, SHAPE(6, 1), (int64_t[]){1, 1}, head * 6);
        part.biases =
            view_of(m.biases, SHAPE(6, 1), (int64_t[]){1, 1}, head * 6);
        qn_array *one = view_of(x, SHAPE(1, 32), (int64_t[]){32, 1}, i * 32);
        qn_array *alone = multiply(&part, one, QN_FLOAT32, SHAPE(1, 6));
        for (size_t j = 0; j < 6; j++)
            assert_true(item(alone, j) == item(out, i * 6 + j));
        qn_array_unref(alone);
        qn_array_unref(one);
        packed_free(&part);
    }
    qn_array_unref(out);
    packed_free(&heads);
    packed_free(&m);
    qn_array_unref(x);
}

static void test_quantize_then_dequantize(void **state)
{
    (void)state;
    qn_array *w = random_array(QN_BFLOAT16, 2, 13, SHAPE(3, 128)), *out[3];
    qn_quant_params p = {.bits = 6, .group_size = 64};
    qn_node_spec spec = {.op = QN_OP_QUANTIZE,
                         .stream = test_stream(),
                         .inputs = &w,
                         .ninputs = 1,
                         .params = &p,
                         .params_size = sizeof p};
    check_status(qn_array_new(&out[0], QN_UINT32, SHAPE(3, 24)), QN_OK);
    check_status(qn_array_new(&out[1], QN_BFLOAT16, SHAPE(3, 2)), QN_OK);
    check_status(qn_array_new(&out[2], QN_BFLOAT16, SHAPE(3, 2)), QN_OK);
    check_status(qn_node_attach(&spec, out, 3), QN_OK);
    check_status(qn_eval(out, 3), QN_OK);
    packed m = {p, out[0], out[1], out[2]};
    qn_array *back = dequantize(&m, QN_FLOAT32, 3, 128);
    for (size_t i = 0; i < w->size; i++)
        assert_true(fabs(item(back, i) - item(w, i)) < 4.0 / 63 + 0.02);
    qn_array_unref(back);
    packed_free(&m);
    qn_array_unref(w);
}

static void test_global_scale_divides_out(void **state)
{
    (void)state;
    qn_array *w = random_array(QN_FLOAT32, 300, 14, SHAPE(1, 32));
    qn_array *g = array_of(QN_FLOAT32, VALUES(300), SCALAR), *out[2];
    qn_quant_params p = {.bits = 4,
                         .group_size = 16,
                         .mode = QN_QUANT_NVFP4,
                         .has_global_scale = true};
    qn_node_spec spec = {.op = QN_OP_QUANTIZE,
                         .stream = test_stream(),
                         .inputs = (qn_array *[]){w, g},
                         .ninputs = 2,
                         .params = &p,
                         .params_size = sizeof p};
    check_status(qn_array_new(&out[0], QN_UINT32, SHAPE(1, 4)), QN_OK);
    check_status(qn_array_new(&out[1], QN_UINT8, SHAPE(1, 2)), QN_OK);
    check_status(qn_node_attach(&spec, out, 2), QN_OK);
    check_status(qn_eval(out, 2), QN_OK);
    qn_array *back = apply(QN_OP_DEQUANTIZE, &p, sizeof p, QN_FLOAT32,
                           SHAPE(1, 32), INPUTS(out[0], out[1], g));
    double largest = 0, worst = 0;
    for (size_t i = 0; i < 32; i++) {
        largest = fmax(largest, fabs(item(w, i)));
        worst = fmax(worst, fabs(item(back, i) - item(w, i)));
    }
    /* Half of the widest gap of E2M1 (4 to 6), and the scale's own error. */
    assert_true(worst <= largest / 6 * 1.1);
    qn_array_unref(back);
    qn_array_unref(out[0]);
    qn_array_unref(out[1]);
    qn_array_unref(g);
    qn_array_unref(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_products_are_exact),
        cmocka_unit_test(test_products_against_double),
        cmocka_unit_test(test_batches_broadcast_by_strides),
        cmocka_unit_test(test_empty_products),
        cmocka_unit_test(test_rows_have_the_bits_they_have_alone),
        cmocka_unit_test(test_packed_products_against_double),
        cmocka_unit_test(test_packed_values_by_definition),
        cmocka_unit_test(test_packed_rows_have_the_bits_they_have_alone),
        cmocka_unit_test(test_packed_batches_and_strides),
        cmocka_unit_test(test_quantize_then_dequantize),
        cmocka_unit_test(test_global_scale_divides_out),
    };
    return run_ref_tests(tests);
}
