/* Packed matrices: formats, shapes, types, values by unpacking. */
#include "support/qn_build.h"

typedef struct packed {
    qn_array *w, *scales, *biases;
} packed;

/* An affine matrix of rows x columns, numbers in [-1, 1). */
static packed pack(int rows, int columns, int group, int bits, qn_dtype dtype)
{
    qn_array *x = keep(random_array(dtype, 1, 7, SHAPE(rows, columns)));
    qn_array *out[3] = {NULL, NULL, NULL};
    size_t count = 0;
    check_status(
        qn_op_quantize(out, &count, x, &group, &bits, "affine", NULL, S),
        QN_OK);
    assert_int_equal(count, 3);
    return (packed){keep(out[0]), keep(out[1]), keep(out[2])};
}

static void test_shapes_of_packed_rows(void **state)
{
    (void)state;
    static const int widths[] = {2, 3, 4, 5, 6, 8};
    for (int i = 0; i < 6; i++) {
        packed p = pack(3, 128, 64, widths[i], QN_BFLOAT16);
        check_type(p.w, QN_UINT32, 3, 128 * widths[i] / 32);
        check_type(p.scales, QN_BFLOAT16, 3, 2);
        check_type(p.biases, QN_BFLOAT16, 3, 2);
        int group = 64;
        BUILD(back, qn_op_dequantize(&back, p.w, p.scales, p.biases, &group,
                                     &widths[i], "affine", NULL, NULL, S));
        check_type(back, QN_BFLOAT16, 3, 128);
        qn_dtype wanted = QN_FLOAT32;
        BUILD(wide, qn_op_dequantize(&wide, p.w, p.scales, p.biases, &group,
                                     &widths[i], "affine", NULL, &wanted, S));
        check_type(wide, QN_FLOAT32, 3, 128);
        BUILD(biases, qn_op_astype(&biases, p.biases, QN_FLOAT32, S));
        BUILD(both, qn_op_dequantize(&both, p.w, p.scales, biases, &group,
                                     &widths[i], "affine", NULL, NULL, S));
        check_type(both, QN_FLOAT32, 3, 128);
    }
}

static void test_product_is_that_of_the_unpacked_matrix(void **state)
{
    (void)state;
    int group = 32, bits = 5;
    packed p = pack(6, 64, group, bits, QN_FLOAT32);
    qn_array *x = keep(random_array(QN_FLOAT32, 1, 3, SHAPE(2, 3, 64)));
    BUILD(y, qn_op_quantized_matmul(&y, x, p.w, p.scales, p.biases, true,
                                    &group, &bits, "affine", S));
    check_type(y, QN_FLOAT32, 2, 3, 6);
    /* The plain case makes one node over the operands themselves. */
    assert_ptr_equal(y->node->inputs[0], x);
    assert_ptr_equal(y->node->inputs[1], p.w);
    BUILD(w, qn_op_dequantize(&w, p.w, p.scales, p.biases, &group, &bits,
                              "affine", NULL, NULL, S));
    BUILD(turned, qn_op_transpose(&turned, w, NULL, QN_ALL_AXES, S));
    BUILD(z, qn_op_matmul(&z, x, turned, S));
    BUILD(close, qn_op_allclose(&close, y, z, 1e-5, 1e-5, false, S));
    check_values(close, 1);
    qn_array *rows = keep(random_array(QN_FLOAT32, 1, 5, SHAPE(2, 6)));
    BUILD(plain, qn_op_quantized_matmul(&plain, rows, p.w, p.scales, p.biases,
                                        false, &group, &bits, "affine", S));
    check_type(plain, QN_FLOAT32, 2, 64);
    BUILD(other, qn_op_matmul(&other, rows, w, S));
    BUILD(same, qn_op_allclose(&same, plain, other, 1e-5, 1e-5, false, S));
    check_values(same, 1);
}

static void test_types_of_products(void **state)
{
    (void)state;
    int group = 32, bits = 4;
    packed p = pack(4, 32, group, bits, QN_FLOAT16);
    static const qn_dtype types[][2] = {{QN_FLOAT16, QN_FLOAT16},
                                        {QN_BFLOAT16, QN_FLOAT32},
                                        {QN_FLOAT32, QN_FLOAT32},
                                        {QN_INT8, QN_FLOAT16}};
    for (int i = 0; i < 4; i++) {
        qn_array *x = counted(types[i][0], SHAPE(2, 32));
        BUILD(y, qn_op_quantized_matmul(&y, x, p.w, p.scales, p.biases, true,
                                        &group, &bits, "affine", S));
        check_type(y, types[i][1], 2, 4);
        check_status(qn_eval(&y, 1), QN_OK);
        if (!qn_dtype_is_float(types[i][0]))
            continue;
        BUILD(kept,
              qn_op_quantized_matmul_keep(&kept, x, p.w, p.scales, p.biases,
                                          group, bits, "affine", S));
        check_type(kept, types[i][0], 2, 4);
        check_status(qn_eval(&kept, 1), QN_OK);
    }
    BUILD(line, qn_op_quantized_matmul(&line, counted(QN_FLOAT32, SHAPE(32)),
                                       p.w, p.scales, p.biases, true, &group,
                                       &bits, "affine", S));
    check_type(line, QN_FLOAT32, 4);
}

static void test_groups_of_16_are_an_extension(void **state)
{
    (void)state;
    int group = 16, bits = 4;
    qn_array *x = counted(QN_FLOAT32, SHAPE(1, 32));
    qn_array *w = keep(array_of(
        QN_UINT32, VALUES(0x11111111, 0x11111111, 0x22222222, 0x22222222),
        SHAPE(1, 4)));
    qn_array *scales = keep(array_of(QN_FLOAT32, VALUES(1, 10), SHAPE(1, 2)));
    qn_array *biases = keep(array_of(QN_FLOAT32, VALUES(0, 1), SHAPE(1, 2)));
    REFUSE("[quantized_matmul] The requested group size 16 is not supported",
           qn_op_quantized_matmul(&refused, x, w, scales, biases, true, &group,
                                  &bits, "affine", S));
    BUILD(y, qn_op_quantized_matmul_keep(&y, x, w, scales, biases, 16, 4,
                                         "affine", S));
    /* 0 + .. + 15 once, 16 + .. + 31 with 2 * 10 + 1 */
    check_values(y, 120 + 376 * 21);
}

static void test_batches_broadcast(void **state)
{
    (void)state;
    int group = 32, bits = 8;
    packed p = pack(6, 32, group, bits, QN_FLOAT32);
    BUILD(w, qn_op_reshape(&w, p.w, SHAPE(2, 1, 3, 8), S));
    BUILD(scales, qn_op_reshape(&scales, p.scales, SHAPE(2, 1, 3, 1), S));
    BUILD(biases, qn_op_reshape(&biases, p.biases, SHAPE(2, 1, 3, 1), S));
    qn_array *x = counted(QN_FLOAT32, SHAPE(2, 5, 1, 32));
    BUILD(y, qn_op_quantized_matmul(&y, x, w, scales, biases, true, &group,
                                    &bits, "affine", S));
    check_type(y, QN_FLOAT32, 2, 5, 1, 3);
    check_status(qn_eval(&y, 1), QN_OK);
    REFUSE("[quantized_matmul] Shapes (3,5) and (2,1) cannot be broadcast",
           qn_op_quantized_matmul(
               &refused, counted(QN_FLOAT32, SHAPE(3, 5, 1, 32)), w, scales,
               biases, true, &group, &bits, "affine", S));
}

static void test_wrong_operands_are_refused(void **state)
{
    (void)state;
    int group = 32, bits = 4, seven = 7, odd = 48;
    packed p = pack(4, 64, group, bits, QN_FLOAT32);
    qn_array *x = counted(QN_FLOAT32, SHAPE(2, 64));
    qn_array *u8 = counted(QN_UINT8, SHAPE(4, 2));
#define PRODUCT(x, w, s, b, g, n, mode)                                        \
    qn_op_quantized_matmul(&refused, x, w, s, b, true, g, n, mode, S)
    REFUSE("[quantized_matmul] The packed matrix should be uint32",
           PRODUCT(x, x, p.scales, p.biases, &group, &bits, "affine"));
    REFUSE("[quantized_matmul] Biases must be provided",
           PRODUCT(x, p.w, p.scales, NULL, &group, &bits, "affine"));
    REFUSE("[quantized_matmul] Scale type must be uint8",
           PRODUCT(x, p.w, p.scales, NULL, NULL, NULL, "mxfp4"));
    REFUSE("[quantized_matmul] Biases must be null",
           PRODUCT(x, p.w, u8, p.biases, NULL, NULL, "mxfp4"));
    REFUSE("[quantized_matmul] Invalid quantization mode 'foo'",
           PRODUCT(x, p.w, p.scales, p.biases, &group, &bits, "foo"));
    REFUSE("[quantized_matmul] mxfp8 quantization requires group size 32 and 8",
           PRODUCT(x, p.w, u8, NULL, NULL, &bits, "mxfp8"));
    REFUSE("do not match with group_size=64 and bits=4",
           PRODUCT(x, p.w, p.scales, p.biases, NULL, NULL, "affine"));
    REFUSE("The requested number of bits 7 is not supported",
           PRODUCT(x, p.w, p.scales, p.biases, &group, &seven, "affine"));
    REFUSE("The requested group size 48",
           PRODUCT(x, p.w, p.scales, p.biases, &odd, &bits, "affine"));
    REFUSE("The last dimension of the first input with shape (2,60)",
           PRODUCT(counted(QN_FLOAT32, SHAPE(2, 60)), p.w, p.scales, p.biases,
                   &group, &bits, "affine"));
    REFUSE("Only real floating types",
           PRODUCT(counted(QN_COMPLEX64, SHAPE(2, 64)), p.w, p.scales, p.biases,
                   &group, &bits, "affine"));
#undef PRODUCT
    qn_array *out[3];
    size_t count;
    check_error(qn_op_quantize(out, &count, counted(QN_INT8, SHAPE(2, 64)),
                               NULL, NULL, "affine", NULL, S),
                QN_E_ARG, "[quantize] Only real floating types");
    check_error(qn_op_quantize(out, &count, counted(QN_FLOAT32, SHAPE(64)),
                               NULL, NULL, "affine", NULL, S),
                QN_E_ARG, "[quantize] The matrix to be quantized must have");
    check_error(qn_op_quantize(out, &count, counted(QN_FLOAT32, SHAPE(2, 60)),
                               NULL, NULL, "affine", NULL, S),
                QN_E_ARG, "divisible by the group size 64");
    qn_dtype type = QN_INT32;
    REFUSE("[dequantize] Only real floating types",
           qn_op_dequantize(&refused, p.w, p.scales, p.biases, &group, &bits,
                            "affine", NULL, &type, S));
}

static void test_float_modes(void **state)
{
    (void)state;
    static const struct {
        const char *mode;
        int bits, group;
    } cases[] = {{"mxfp4", 4, 32}, {"mxfp8", 8, 32}, {"nvfp4", 4, 16}};
    qn_array *x = keep(random_array(QN_FLOAT32, 1, 9, SHAPE(2, 64)));
    for (int i = 0; i < 3; i++) {
        qn_array *out[3];
        size_t count;
        check_status(
            qn_op_quantize(out, &count, x, NULL, NULL, cases[i].mode, NULL, S),
            QN_OK);
        assert_int_equal(count, 2);
        keep(out[0]);
        keep(out[1]);
        check_type(out[0], QN_UINT32, 2, 2 * cases[i].bits);
        check_type(out[1], QN_UINT8, 2, 64 / cases[i].group);
        BUILD(back, qn_op_dequantize(&back, out[0], out[1], NULL, NULL, NULL,
                                     cases[i].mode, NULL, NULL, S));
        check_type(back, QN_BFLOAT16, 2, 64);
        BUILD(y, qn_op_quantized_matmul(&y, x, out[0], out[1], NULL, true, NULL,
                                        NULL, cases[i].mode, S));
        check_type(y, QN_FLOAT32, 2, 2);
        check_status(qn_eval(&y, 1), QN_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUILD_TEST(test_shapes_of_packed_rows),
        BUILD_TEST(test_product_is_that_of_the_unpacked_matrix),
        BUILD_TEST(test_types_of_products),
        BUILD_TEST(test_groups_of_16_are_an_extension),
        BUILD_TEST(test_batches_broadcast),
        BUILD_TEST(test_wrong_operands_are_refused),
        BUILD_TEST(test_float_modes),
    };
    return run_build_tests(tests);
}
