/* Products with packed matrices chosen by indices, and with both sides packed:
 * against the unpacked matrices in double, rows against themselves alone,
 * refused arguments, gradients. */
#include "support/qn_grad.h"

#include "backend/cpu/cpu.h"
#include "backend/cpu/pool.h"

typedef struct format {
    const char *mode;
    int group, bits;
} format;

static const format formats[] = {
    {"affine", 32, 2}, {"affine", 64, 2}, {"affine", 128, 2},
    {"affine", 32, 3}, {"affine", 64, 3}, {"affine", 128, 3},
    {"affine", 32, 4}, {"affine", 64, 4}, {"affine", 128, 4},
    {"affine", 32, 5}, {"affine", 64, 5}, {"affine", 128, 5},
    {"affine", 32, 6}, {"affine", 64, 6}, {"affine", 128, 6},
    {"affine", 32, 8}, {"affine", 64, 8}, {"affine", 128, 8},
    {"mxfp4", 32, 4},  {"mxfp8", 32, 8},  {"nvfp4", 16, 4},
};
enum { FORMATS = sizeof formats / sizeof *formats };

static const qn_dtype types[] = {QN_FLOAT32, QN_FLOAT16, QN_BFLOAT16};

typedef struct packed {
    qn_array *w, *scales, *biases, *plain; /* biases NULL for most modes */
} packed;

/* Matrices of random numbers, packed, and what that stands for. */
static packed pack(const format *f, qn_dtype type, const int *shape, int ndim)
{
    static const qn_dtype wide = QN_FLOAT32;
    qn_array *x = keep(random_array(type, 1, 7, shape, ndim)), *out[3] = {0};
    size_t count = 0;
    check_status(
        qn_op_quantize(out, &count, x, &f->group, &f->bits, f->mode, NULL, S),
        QN_OK);
    packed p = {keep(out[0]), keep(out[1]), count == 3 ? keep(out[2]) : NULL,
                NULL};
    BUILD(plain, qn_op_dequantize(&plain, p.w, p.scales, p.biases, &f->group,
                                  &f->bits, f->mode, NULL, &wide, S));
    p.plain = plain;
    check_status(qn_eval(out, count), QN_OK);
    check_status(qn_eval(&plain, 1), QN_OK);
    return p;
}

static qn_array *gather(const format *f, qn_array *x, const packed *p,
                        qn_array *ix, qn_array *iw, bool transpose)
{
    BUILD(y, qn_op_gather_qmm(&y, x, p->w, p->scales, p->biases, ix, iw,
                              transpose, &f->group, &f->bits, f->mode, S));
    check_status(qn_eval(&y, 1), QN_OK);
    return y;
}

/* Element (i, j) of x's matrix a times p's matrix b, and the sum of the sizes
 * of what is added. */
static double element(double *size, const qn_array *x, size_t a, size_t i,
                      const packed *p, size_t b, size_t j, bool transpose)
{
    const qn_array *w = p->plain;
    size_t m = (size_t)x->shape[x->ndim - 2], k = (size_t)x->shape[x->ndim - 1];
    size_t rows = (size_t)w->shape[w->ndim - 2];
    size_t columns = (size_t)w->shape[w->ndim - 1];
    double sum = 0;
    *size = 0;
    for (size_t l = 0; l < k; l++) {
        size_t at = transpose ? j * columns + l : l * columns + j;
        double term =
            item(x, (a * m + i) * k + l) * item(w, b * rows * columns + at);
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

static double half_ulp(qn_dtype type)
{
    return type == QN_FLOAT16    ? 0x1p-11
           : type == QN_BFLOAT16 ? 0x1p-8
                                 : 0x1p-24;
}

static void chosen_matrices(bool fast)
{
    enum { ROWS = 3, CHOICES = 7 };
    static const double which_x[CHOICES] = {0, 4, 1, 1, -1, 3, 2};
    static const double which_w[CHOICES] = {2, 0, 2, 1, 2, -3, 0};
    qn_array *ix = keep(array_of(QN_INT32, which_x, SHAPE(CHOICES)));
    qn_array *iw = keep(array_of(QN_INT64, which_w, SHAPE(CHOICES)));
    for (int round = 0; round < 2 * FORMATS; round++) {
        const format *f = &formats[round / 2];
        bool transpose = round % 2;
        qn_dtype type = types[round / 2 % 3];
        /* Both directions, columns that are no multiple of a tile. */
        packed p = pack(f, type, SHAPE(3, transpose ? 21 : 50, 256));
        int k = transpose ? 256 : 50, n = transpose ? 21 : 256;
        qn_array *x = random_array(type, 1, 3, SHAPE(5, ROWS, k));
        x = keep(round % 3 ? x : strided(x));
        qn_array *y = gather(f, x, &p, ix, iw, transpose);
        check_type(y, type, CHOICES, ROWS, n);
        for (size_t i = 0; i < y->size; i++) {
            size_t c = i / (size_t)(ROWS * n), row = i / (size_t)n % ROWS;
            double size, found = item(y, i);
            double wanted =
                element(&size, x, (size_t)(which_x[c] < 0 ? 4 : which_x[c]),
                        row, &p, (size_t)(which_w[c] < 0 ? 0 : which_w[c]),
                        i % (size_t)n, transpose);
            double bound =
                size * 0x1p-20 + fabs(wanted) * half_ulp(type) * 1.01;
            if (fabs(found - wanted) > bound) {
                print_error("%s %d %d: element %zu: expected %.9g, found "
                            "%.9g\n",
                            f->mode, f->group, f->bits, i, wanted, found);
                fail();
            }
        }
        if (!fast)
            continue;
        for (int threads = 1; threads <= 3; threads++) {
            qn_pool_set_threads(threads);
            qn_array *again = gather(f, x, &p, ix, iw, transpose);
            assert_memory_equal(qn_array_data(again), qn_array_data(y),
                                qn_array_nbytes(y));
        }
        qn_pool_set_threads(0);
        /* A row has the bits of its own product with its matrix. */
        for (int c = 0; c < CHOICES; c++)
            for (int r = 0; r < ROWS; r++) {
                int a = which_x[c] < 0 ? 4 : (int)which_x[c];
                int b = which_w[c] < 0 ? 0 : (int)which_w[c];
                int lo[3] = {a, r, 0}, hi[3] = {a + 1, r + 1, k};
                BUILD(row, qn_op_slice(&row, x, lo, 3, hi, 3,
                                       (const int[]){1, 1, 1}, 3, S));
                qn_array *parts[3] = {p.w, p.scales, p.biases};
                for (int i = 0; i < 3; i++) {
                    if (!parts[i])
                        continue;
                    BUILD(part,
                          qn_op_slice_axis(&part, parts[i], 0, b, b + 1, S));
                    BUILD(matrix,
                          qn_op_squeeze(&matrix, part, (const int[]){0}, 1, S));
                    parts[i] = matrix;
                }
                BUILD(alone, qn_op_quantized_matmul(
                                 &alone, row, parts[0], parts[1], parts[2],
                                 transpose, &f->group, &f->bits, f->mode, S));
                check_status(qn_eval(&alone, 1), QN_OK);
                size_t bytes = (size_t)n * qn_array_itemsize(y);
                assert_memory_equal(qn_array_data(alone),
                                    (char *)qn_array_data(y) +
                                        (size_t)(c * ROWS + r) * bytes,
                                    bytes);
            }
        drop_all(NULL);
        ix = keep(array_of(QN_INT32, which_x, SHAPE(CHOICES)));
        iw = keep(array_of(QN_INT64, which_w, SHAPE(CHOICES)));
    }
}

static void test_chosen_matrices(void **state)
{
    (void)state;
    chosen_matrices(false);
}

static void test_chosen_matrices_on_the_cpu_backend(void **state)
{
    qn_backend_register(QN_DEVICE_CPU, qn_backend_cpu());
    chosen_matrices(true);
    use_reference(state);
}

/* Experts as a mixture uses them: many tokens, sorted or not, some experts
 * without any; more rows than are held at a time. */
static void test_many_rows(void **state)
{
    qn_backend_register(QN_DEVICE_CPU, qn_backend_cpu());
    format f = {"affine", 64, 4};
    enum { TOKENS = 900, EXPERTS = 6 };
    packed p = pack(&f, QN_FLOAT32, SHAPE(EXPERTS, 4096, 64));
    qn_array *x = keep(random_array(QN_FLOAT32, 1, 5, SHAPE(TOKENS, 1, 64)));
    double which[2 * TOKENS], tokens[2 * TOKENS];
    for (int i = 0; i < 2 * TOKENS; i++) {
        which[i] = i * 7 % 5 + (i * 7 % 5 > 2);
        tokens[i] = i / 2;
    }
    qn_array *iw = keep(array_of(QN_UINT32, which, SHAPE(2 * TOKENS)));
    qn_array *ix = keep(array_of(QN_UINT32, tokens, SHAPE(2 * TOKENS)));
    qn_array *y = gather(&f, x, &p, ix, iw, true);
    /* In another order the same rows. */
    BUILD(order, qn_op_sort(&order, QN_OP_ARGSORT, iw, 0, S));
    BUILD(sorted_w, qn_op_take_along_axis(&sorted_w, iw, order, 0, S));
    BUILD(sorted_x, qn_op_take_along_axis(&sorted_x, ix, order, 0, S));
    check_status(qn_eval(&order, 1), QN_OK);
    qn_array *z = gather(&f, x, &p, sorted_x, sorted_w, true);
    for (size_t i = 0; i < 2 * TOKENS; i++)
        assert_memory_equal((float *)qn_array_data(z) + i * 4096,
                            (float *)qn_array_data(y) +
                                (size_t)item(order, i) * 4096,
                            4096 * sizeof(float));
    double size,
        wanted = element(&size, x, 899, 0, &p, (size_t)which[1799], 4095, true);
    assert_true(fabs(item(y, y->size - 1) - wanted) < size * 0x1p-20);
    use_reference(state);
}

static void test_missing_indices_are_in_order(void **state)
{
    (void)state;
    format f = {"affine", 32, 4};
    packed p = pack(&f, QN_FLOAT32, SHAPE(3, 4, 32));
    qn_array *x = keep(random_array(QN_FLOAT32, 1, 3, SHAPE(3, 2, 32)));
    qn_array *order = LINE(QN_UINT32, 0, 1, 2);
    qn_array *given = gather(&f, x, &p, order, order, true);
    qn_array *lists[2] = {order, NULL};
    for (int i = 0; i < 3; i++) {
        qn_array *y = gather(&f, x, &p, i == 1 ? NULL : lists[i % 2],
                             i == 1 ? order : NULL, true);
        assert_memory_equal(qn_array_data(y), qn_array_data(given),
                            qn_array_nbytes(y));
    }
    /* Indices broadcast. */
    qn_array *all =
        gather(&f, x, &p, keep(array_of(QN_INT8, VALUES(0, 1, 2), SHAPE(3, 1))),
               order, true);
    check_type(all, QN_FLOAT32, 3, 3, 2, 4);
}

static void test_types_of_chosen_products(void **state)
{
    (void)state;
    format f = {"affine", 32, 4};
    packed p = pack(&f, QN_FLOAT16, SHAPE(2, 4, 32));
    static const qn_dtype pairs[][2] = {{QN_FLOAT16, QN_FLOAT16},
                                        {QN_BFLOAT16, QN_FLOAT32},
                                        {QN_INT8, QN_FLOAT16},
                                        {QN_FLOAT64, QN_FLOAT64}};
    for (int i = 0; i < 4; i++) {
        qn_array *x = counted(pairs[i][0], SHAPE(2, 1, 32));
        qn_array *y = gather(&f, x, &p, NULL, LINE(QN_UINT8, 1, 0), true);
        check_type(y, pairs[i][1], 2, 1, 4);
    }
}

static void test_indices_outside_are_an_error(void **state)
{
    for (int cpu = 0; cpu < 2; cpu++) {
        if (cpu)
            qn_backend_register(QN_DEVICE_CPU, qn_backend_cpu());
        format f = {"mxfp4", 32, 4};
        packed p = pack(&f, QN_FLOAT32, SHAPE(3, 4, 32));
        qn_array *x = counted(QN_FLOAT32, SHAPE(3, 1, 32)), *y;
        const double bad[] = {3, -4, 1e9, -1e9};
        for (int k = 0; k < 8; k++) {
            qn_array *index = LINE(QN_INT64, 0, bad[k / 2], 1);
            check_status(qn_op_gather_qmm(&y, x, p.w, p.scales, NULL,
                                          k % 2 ? index : NULL,
                                          k % 2 ? NULL : index, true, &f.group,
                                          &f.bits, f.mode, S),
                         QN_OK);
            check_error(qn_eval(&y, 1), QN_E_ARG, "[gather_qmm] Index");
            keep(y);
        }
    }
    use_reference(state);
}

static void test_wrong_operands_are_refused(void **state)
{
    (void)state;
    format f = {"affine", 32, 4};
    packed p = pack(&f, QN_FLOAT32, SHAPE(3, 4, 32));
    qn_array *x = counted(QN_FLOAT32, SHAPE(3, 2, 32));
    qn_array *index = LINE(QN_UINT32, 0, 1);
#define GATHER(x, biases, ix, iw, transpose, mode)                             \
    qn_op_gather_qmm(&refused, x, p.w, p.scales, biases, ix, iw, transpose,    \
                     &f.group, &f.bits, mode, S)
    REFUSE("[gather_qmm] Got indices with invalid dtype float32",
           GATHER(x, p.biases, LINE(QN_FLOAT32, 0), index, true, "affine"));
    REFUSE("Indices must be integral",
           GATHER(x, p.biases, index, LINE(QN_BOOL, 0), true, "affine"));
    REFUSE("[gather_qmm] Invalid quantization mode 'mxfp5'",
           GATHER(x, p.biases, index, index, true, "mxfp5"));
    REFUSE("[gather_qmm] Biases must be provided",
           GATHER(x, NULL, index, index, true, "affine"));
    REFUSE("[gather_qmm] Biases must be null",
           GATHER(x, p.biases, index, index, true, "mxfp4"));
    REFUSE("does not match the expanded quantized matrix",
           GATHER(x, p.biases, index, index, false, "affine"));
    REFUSE("at least two dimensions",
           GATHER(counted(QN_FLOAT32, SHAPE(32)), p.biases, index, index, true,
                  "affine"));
    REFUSE(
        "[gather_qmm] Shapes (2) and (3) cannot be broadcast",
        GATHER(x, p.biases, index, LINE(QN_UINT32, 0, 1, 2), true, "affine"));
    REFUSE("Only real floating types",
           GATHER(counted(QN_COMPLEX64, SHAPE(3, 2, 32)), p.biases, index,
                  index, true, "affine"));
#undef GATHER
}

/* The product is linear in x, and in scales and biases together. */
static void test_gradients_are_adjoint(void **state)
{
    (void)state;
    for (int round = 0; round < 8; round++) {
        format f =
            round < 4 ? (format){"affine", 32, 3} : (format){"mxfp8", 32, 8};
        bool transpose = round % 2, affine = round < 4;
        packed p = pack(&f, QN_FLOAT32, SHAPE(2, 5, 64));
        int k = transpose ? 64 : 5;
        qn_array *x = random_parts(QN_FLOAT32, 3, SHAPE(3, 2, k));
        qn_array *ix = LINE(QN_INT32, 2, 0, 0, -2);
        qn_array *iw = LINE(QN_INT32, 1, 1, 0, -1);
        BUILD(y, qn_op_gather_qmm(&y, x, p.w, p.scales, p.biases, ix, iw,
                                  transpose, &f.group, &f.bits, f.mode, S));
        qn_array *cot = random_parts(QN_FLOAT32, 9, y->shape, y->ndim);
        qn_array *grad[8];
        gradients(grad, &y, &cot);
        double value = inner(y, cot);
        assert_true(fabs(inner(grad[0], x) - value) < 1e-3);
        assert_null(grad[1]);
        if (affine)
            assert_true(fabs(inner(grad[2], p.scales) +
                             inner(grad[3], p.biases) - value) < 1e-3);
        else
            assert_null(grad[2]);
    }
}

static void test_batches_and_remakes(void **state)
{
    (void)state;
    for (int transpose = 0; transpose < 2; transpose++) {
        format f = {"mxfp4", 32, 4};
        packed p = pack(&f, QN_FLOAT32, SHAPE(2, 3, 32));
        qn_array *x =
            random_parts(QN_FLOAT32, 3, SHAPE(3, 2, transpose ? 32 : 3));
        BUILD(y,
              qn_op_gather_qmm(&y, x, p.w, p.scales, NULL,
                               LINE(QN_INT32, 2, 0, 1), LINE(QN_INT32, 1, 1, 0),
                               transpose, &f.group, &f.bits, f.mode, S));
        check_rules(&y);
    }
}

/* ---- both sides packed ---- */

static const format pairs[] = {
    {"mxfp4", 32, 4}, {"mxfp8", 32, 8}, {"nvfp4", 16, 4}};

/* x packed and unpacked. */
static qn_array *rounded(const format *f, qn_array *x, qn_array *global)
{
    static const qn_dtype wide = QN_FLOAT32;
    qn_array *out[3] = {0};
    size_t count = 0;
    check_status(
        qn_op_quantize(out, &count, x, &f->group, &f->bits, f->mode, global, S),
        QN_OK);
    keep(out[0]);
    keep(out[1]);
    BUILD(y, qn_op_dequantize(&y, out[0], out[1], NULL, &f->group, &f->bits,
                              f->mode, global, &wide, S));
    check_status(qn_eval(&y, 1), QN_OK);
    return y;
}

static void check_product(const qn_array *y, const qn_array *x,
                          const qn_array *w)
{
    size_t k = (size_t)x->shape[x->ndim - 1], n = (size_t)w->shape[0];
    for (size_t i = 0; i < y->size; i++) {
        double sum = 0, size = 0;
        for (size_t l = 0; l < k; l++) {
            double term = item(x, i / n * k + l) * item(w, i % n * k + l);
            sum += term;
            size += fabs(term);
        }
        assert_true(fabs(item(y, i) - sum) <=
                    size * 0x1p-20 + fabs(sum) * half_ulp(y->dtype) * 1.01);
    }
}

static void both_packed(void)
{
    for (int round = 0; round < 12; round++) {
        const format *f = &pairs[round % 3];
        qn_dtype type = types[round / 3 % 3];
        bool scaled = round % 3 == 2 && round > 5;
        qn_array *x = keep(random_array(type, 1, 3, SHAPE(4, 64)));
        qn_array *w = keep(random_array(QN_FLOAT32, 1, 4, SHAPE(9, 64)));
        qn_array *gx = scaled ? scalar_array(QN_FLOAT32, 0.75) : NULL;
        qn_array *gw = scaled ? LINE(QN_FLOAT32, 1.5) : NULL;
        qn_array *left = rounded(f, x, gx), *right = rounded(f, w, gw);
        BUILD(y, qn_op_qqmm(&y, x, w, NULL, &f->group, &f->bits, f->mode, gx,
                            gw, S));
        check_type(y, type, 4, 9);
        check_status(qn_eval(&y, 1), QN_OK);
        check_product(y, left, right);
        /* w packed before. */
        qn_array *out[3] = {0};
        size_t count = 0;
        check_status(qn_op_quantize(out, &count, w, NULL, NULL, f->mode, gw, S),
                     QN_OK);
        keep(out[0]);
        keep(out[1]);
        BUILD(z, qn_op_qqmm(&z, x, out[0], out[1], NULL, NULL, f->mode, gx, gw,
                            S));
        check_type(z, type, 4, 9);
        check_status(qn_eval(&z, 1), QN_OK);
        check_product(z, left, right);
        /* The same with chosen matrices, both ways. */
        for (int form = 0; form < 2; form++) {
            qn_array *ix = LINE(QN_INT32, 1, 0, 1), *xs, *ws, *ss = NULL, *g;
            check_status(qn_op_reshape(&xs, x, SHAPE(2, 2, 64), S), QN_OK);
            keep(xs);
            qn_array *one = form ? out[0] : w;
            check_status(qn_op_expand_dims(&ws, one, (const int[]){0}, 1, S),
                         QN_OK);
            keep(ws);
            if (form) {
                check_status(
                    qn_op_expand_dims(&ss, out[1], (const int[]){0}, 1, S),
                    QN_OK);
                keep(ss);
            }
            check_status(qn_op_gather_qqmm(&g, xs, ws, ss, ix,
                                           LINE(QN_INT32, 0, 0, 0), NULL, NULL,
                                           f->mode, gx, gw, S),
                         QN_OK);
            keep(g);
            check_type(g, type, 3, 2, 9);
            check_status(qn_eval(&g, 1), QN_OK);
            const qn_array *like = form ? z : y;
            for (size_t i = 0; i < g->size; i++) {
                size_t c = i / 18;
                assert_true(item(g, i) ==
                            item(like, (c == 1 ? 0 : 18) + i % 18));
            }
        }
    }
}

static void test_both_sides_packed(void **state)
{
    (void)state;
    both_packed();
}

static void test_both_sides_packed_on_the_cpu_backend(void **state)
{
    qn_backend_register(QN_DEVICE_CPU, qn_backend_cpu());
    both_packed();
    use_reference(state);
}

static void test_qqmm_refuses(void **state)
{
    (void)state;
    qn_array *x = counted(QN_FLOAT32, SHAPE(2, 64));
    qn_array *w = counted(QN_FLOAT32, SHAPE(3, 64));
    qn_array *one = scalar_array(QN_FLOAT32, 1);
    qn_array *codes = counted(QN_UINT32, SHAPE(3, 8));
    qn_array *scales = counted(QN_UINT8, SHAPE(3, 4));
#define QQMM(x, w, scales, mode, gx, gw)                                       \
    qn_op_qqmm(&refused, x, w, scales, NULL, NULL, mode, gx, gw, S)
    REFUSE("[qqmm] One of the modes", QQMM(x, w, NULL, "affine", NULL, NULL));
    REFUSE("first argument dtype == int32",
           QQMM(counted(QN_INT32, SHAPE(2, 64)), w, NULL, "nvfp4", NULL, NULL));
    REFUSE(
        "second argument dtype == float64",
        QQMM(x, counted(QN_FLOAT64, SHAPE(3, 64)), NULL, "nvfp4", NULL, NULL));
    REFUSE("Only 2D inputs", QQMM(x, counted(QN_FLOAT32, SHAPE(1, 3, 64)), NULL,
                                  "nvfp4", NULL, NULL));
    REFUSE("Only 2D inputs", QQMM(one, w, NULL, "nvfp4", NULL, NULL));
    REFUSE("Scales must be provided",
           QQMM(x, codes, NULL, "nvfp4", NULL, NULL));
    REFUSE("must match last dimension", QQMM(counted(QN_FLOAT32, SHAPE(2, 32)),
                                             w, NULL, "nvfp4", NULL, NULL));
    REFUSE("does not match the expanded",
           QQMM(counted(QN_FLOAT32, SHAPE(2, 32)), codes, scales, "nvfp4", NULL,
                NULL));
    REFUSE("only supported for 'nvfp4'", QQMM(x, w, NULL, "mxfp4", one, one));
    REFUSE("either both", QQMM(x, w, NULL, "nvfp4", one, NULL));
    REFUSE("must have dtype float32 but got float16",
           QQMM(x, w, NULL, "nvfp4", scalar_array(QN_FLOAT16, 1), one));
    REFUSE("must be a scalar but got shape (2)",
           QQMM(x, w, NULL, "nvfp4", one, LINE(QN_FLOAT32, 1, 2)));
    REFUSE("divisible by the group size",
           QQMM(counted(QN_FLOAT32, SHAPE(2, 40)),
                counted(QN_FLOAT32, SHAPE(3, 40)), NULL, "nvfp4", NULL, NULL));
#undef QQMM
    REFUSE("[gather_qqmm] Got indices",
           qn_op_gather_qqmm(&refused, x, w, NULL, LINE(QN_FLOAT32, 0), NULL,
                             NULL, NULL, "nvfp4", NULL, NULL, S));
    REFUSE("[gather_qqmm] Input must have",
           qn_op_gather_qqmm(&refused, x, one, NULL, NULL, NULL, NULL, NULL,
                             "nvfp4", NULL, NULL, S));
}

/* Rounding is bit for bit what packing and unpacking make of x. */
static void test_rounding_alone(void **state)
{
    for (int round = 0; round < 6; round++) {
        if (round == 3)
            qn_backend_register(QN_DEVICE_CPU, qn_backend_cpu());
        const format *f = &pairs[round % 3];
        qn_array *x = keep(random_array(QN_FLOAT32, 10, 3, SHAPE(3, 5, 64)));
        for (size_t i = 0; i < x->size; i += 5)
            ((float *)qn_array_data(x))[i] *= 1e-3F;
        BUILD(y, qn_op_qqmm(&y, x,
                            keep(random_array(QN_FLOAT32, 1, 1, SHAPE(2, 64))),
                            NULL, NULL, NULL, f->mode, NULL, NULL, S));
        qn_array *inside = y->node->inputs[0];
        while (inside->node && inside->node->op != QN_OP_REQUANTIZE)
            inside = inside->node->inputs[0];
        assert_non_null(inside->node);
        qn_array *cot = random_parts(QN_FLOAT32, 9, x->shape, x->ndim);
        qn_array *grad[8];
        gradients(grad, &inside, &cot);
        assert_ptr_equal(grad[0], cot);
        check_rules(&inside);
        keep(qn_array_ref(inside));
        check_status(qn_eval(&inside, 1), QN_OK);
        qn_array *wanted = rounded(f, x, NULL);
        assert_memory_equal(qn_array_data(inside), qn_array_data(wanted),
                            qn_array_nbytes(wanted));
    }
    use_reference(state);
}

/* ---- memory ---- */

static qn_array *parts[5];

static qn_status choose(void)
{
    int group = 32, bits = 4;
    qn_array *y = NULL, *z = NULL;
    qn_status status =
        qn_op_gather_qmm(&y, parts[0], parts[1], parts[2], parts[3], parts[4],
                         parts[4], true, &group, &bits, "affine", S);
    if (!status)
        status = qn_op_gather_qqmm(&z, y, y, NULL, parts[4], parts[4], NULL,
                                   NULL, "nvfp4", NULL, NULL, S);
    if (!status)
        status = qn_eval(&z, 1);
    qn_array_unref(y);
    qn_array_unref(z);
    return status;
}

static void test_each_allocation_may_fail(void **state)
{
    format f = {"affine", 32, 4};
    packed p = pack(&f, QN_FLOAT32, SHAPE(3, 16, 32));
    parts[0] = random_parts(QN_FLOAT16, 1, SHAPE(3, 2, 32));
    parts[1] = p.w;
    parts[2] = p.scales;
    parts[3] = p.biases;
    parts[4] = LINE(QN_UINT32, 2, 0, 2);
    each_alloc_may_fail(choose);
    qn_backend_register(QN_DEVICE_CPU, qn_backend_cpu());
    each_alloc_may_fail(choose);
    use_reference(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUILD_TEST(test_chosen_matrices),
        BUILD_TEST(test_chosen_matrices_on_the_cpu_backend),
        BUILD_TEST(test_many_rows),
        BUILD_TEST(test_missing_indices_are_in_order),
        BUILD_TEST(test_types_of_chosen_products),
        BUILD_TEST(test_indices_outside_are_an_error),
        BUILD_TEST(test_wrong_operands_are_refused),
        BUILD_TEST(test_gradients_are_adjoint),
        BUILD_TEST(test_batches_and_remakes),
        BUILD_TEST(test_both_sides_packed),
        BUILD_TEST(test_both_sides_packed_on_the_cpu_backend),
        BUILD_TEST(test_qqmm_refuses),
        BUILD_TEST(test_rounding_alone),
        BUILD_TEST(test_each_allocation_may_fail),
    };
    return run_build_tests(tests);
}
