/* Products of chosen matrices, tiles and parts, Hadamard matrices, formulas:
 * against sums in double, refused arguments, gradients. */
#include "support/qn_grad.h"

#include "backend/cpu/cpu.h"

static const qn_dtype types[] = {QN_FLOAT32, QN_FLOAT64, QN_FLOAT16,
                                 QN_BFLOAT16};

static double eps_of(qn_dtype dtype)
{
    return dtype == QN_FLOAT64   ? 0x1p-50
           : dtype == QN_FLOAT32 ? 0x1p-20
           : dtype == QN_FLOAT16 ? 0x1p-10
                                 : 0x1p-7;
}

static void check_element(const qn_array *y, size_t i, double wanted)
{
    double found = item(y, i);
    if (fabs(found - wanted) <= eps_of(y->dtype) * (1 + fabs(wanted)))
        return;
    print_error("element %zu: expected %.9g, found %.9g\n", i, wanted, found);
    fail();
}

/* Element (i, j) of a's matrix number p times b's number q, over k from first
 * up to end. */
static double dot(const qn_array *a, size_t p, const qn_array *b, size_t q,
                  size_t i, size_t j, size_t first, size_t end)
{
    size_t m = (size_t)a->shape[a->ndim - 2], n = (size_t)b->shape[b->ndim - 1];
    size_t k = (size_t)a->shape[a->ndim - 1];
    double sum = 0;
    for (size_t l = first; l < end; l++)
        sum += item(a, (p * m + i) * k + l) * item(b, (q * k + l) * n + j);
    return sum;
}

/* ---- chosen matrices ---- */

static void chosen_matrices(void)
{
    for (int t = 0; t < 4; t++) {
        qn_array *a = random_array(types[t], 1, 1, SHAPE(2, 3, 4, 5));
        qn_array *b = random_array(types[t], 1, 2, SHAPE(4, 5, 3));
        a = keep(t % 2 ? strided(a) : a);
        b = keep(t % 2 ? b : strided(b));
        qn_array *ia = keep(array_of(QN_UINT32, VALUES(5, 0, 3), SHAPE(3)));
        qn_array *ib = keep(array_of(QN_UINT8, VALUES(3, 3), SHAPE(2, 1)));
        BUILD(y, qn_op_gather_mm(&y, a, b, ia, ib, S));
        check_type(y, types[t], 2, 3, 4, 3);
        check_status(qn_eval(&y, 1), QN_OK);
        for (size_t i = 0; i < y->size; i++)
            check_element(y, i,
                          dot(a, (size_t)item(ia, i / 12 % 3), b, 3, i / 3 % 4,
                              i % 3, 0, 5));
    }
}

/* So many rows that each product is done in place. */
static void chosen_large_matrices(void)
{
    for (int t = 0; t < 4; t++) {
        qn_array *a = random_array(types[t], 1, 1, SHAPE(2, 40, 7));
        qn_array *b = random_array(types[t], 1, 2, SHAPE(3, 7, 5));
        a = keep(t % 2 ? strided(a) : a);
        b = keep(t % 2 ? b : strided(b));
        BUILD(y, qn_op_gather_mm(&y, a, b, LINE(QN_UINT32, 1, 0, 1),
                                 LINE(QN_UINT32, 2, 2, 0), S));
        check_status(qn_eval(&y, 1), QN_OK);
        for (size_t i = 0; i < y->size; i++)
            check_element(y, i,
                          dot(a, i / 200 != 1, b, i < 400 ? 2 : 0, i / 5 % 40,
                              i % 5, 0, 7));
    }
}

static void test_chosen_matrices(void **state)
{
    (void)state;
    chosen_matrices();
    chosen_large_matrices();
}

static void test_chosen_matrices_on_the_cpu_backend(void **state)
{
    qn_backend_register(QN_DEVICE_CPU, qn_backend_cpu());
    chosen_matrices();
    chosen_large_matrices();
    use_reference(state);
}

static void test_missing_indices_are_in_order(void **state)
{
    (void)state;
    qn_array *a = keep(random_array(QN_FLOAT32, 1, 1, SHAPE(3, 2, 4)));
    qn_array *b = keep(random_array(QN_FLOAT32, 1, 2, SHAPE(3, 4, 2)));
    BUILD(y, qn_op_gather_mm(&y, a, b, NULL, NULL, S));
    BUILD(z, qn_op_matmul(&z, a, b, S));
    check_status(qn_eval(&y, 1), QN_OK);
    check_status(qn_eval(&z, 1), QN_OK);
    for (size_t i = 0; i < y->size; i++)
        check_element(y, i, item(z, i));
    /* A line is a row on the left; negative indices count from the end. */
    qn_array *line = keep(random_array(QN_FLOAT32, 1, 3, SHAPE(4)));
    qn_array *as_row = keep(random_array(QN_FLOAT32, 1, 3, SHAPE(1, 4)));
    BUILD(row, qn_op_gather_mm(&row, line, b, NULL, LINE(QN_INT64, -1, 0), S));
    check_type(row, QN_FLOAT32, 2, 2);
    check_status(qn_eval(&row, 1), QN_OK);
    for (size_t i = 0; i < 4; i++)
        check_element(row, i, dot(as_row, 0, b, i < 2 ? 2 : 0, 0, i % 2, 0, 4));
}

static void test_indices_outside_are_an_error(void **state)
{
    (void)state;
    qn_array *a = counted(QN_FLOAT32, SHAPE(3, 2, 2));
    const double bad[] = {3, -4, 1e9, -1e9};
    for (int k = 0; k < 4; k++) {
        qn_array *index = LINE(QN_INT64, 0, bad[k], 1), *y;
        check_status(qn_op_gather_mm(&y, a, a, index, NULL, S), QN_OK);
        keep(y);
        check_error(qn_eval(&y, 1), QN_E_ARG, "[gather_mm] Index");
        check_status(qn_op_gather_mm(&y, a, a, NULL, index, S), QN_OK);
        keep(y);
        check_error(qn_eval(&y, 1), QN_E_ARG, "[gather_mm] Index");
    }
    /* Nothing to choose from. */
    qn_array *none = counted(QN_FLOAT32, SHAPE(0, 2, 2));
    BUILD(y, qn_op_gather_mm(&y, none, a, LINE(QN_UINT32, 0),
                             LINE(QN_UINT32, 0), S));
    check_error(qn_eval(&y, 1), QN_E_ARG, "of the 0 matrices");
}

static void test_gather_mm_refuses(void **state)
{
    (void)state;
    qn_array *a = counted(QN_FLOAT32, SHAPE(3, 2, 2));
    qn_array *index = LINE(QN_UINT32, 0, 1);
    REFUSE("integer",
           qn_op_gather_mm(&refused, a, a, LINE(QN_FLOAT32, 0), index, S));
    REFUSE("integer",
           qn_op_gather_mm(&refused, a, a, index, LINE(QN_BOOL, 0), S));
    REFUSE("Floating",
           qn_op_gather_mm(&refused, counted(QN_INT8, SHAPE(2, 2)),
                           counted(QN_INT8, SHAPE(2, 2)), NULL, NULL, S));
    REFUSE("[gather_mm]",
           qn_op_gather_mm(&refused, a, counted(QN_FLOAT32, SHAPE(1, 3, 2)),
                           index, index, S));
    REFUSE("[gather_mm]",
           qn_op_gather_mm(&refused, a, a, index, LINE(QN_UINT32, 0, 1, 2), S));
    REFUSE("[gather_mm]", qn_op_gather_mm(&refused, scalar_array(QN_FLOAT32, 1),
                                          a, NULL, index, S));
}

/* ---- tiles ---- */

/* 2 where a tile of the mask says so. */
static double mask_at(const qn_array *mask, size_t row, size_t column,
                      size_t size)
{
    if (!mask)
        return 1;
    size_t along = (size_t)mask->shape[1];
    size_t down = mask->shape[0] == 1 ? 0 : row / size;
    return item(mask, down * along + (along == 1 ? 0 : column / size));
}

static void test_masked_tiles(void **state)
{
    (void)state;
    qn_array *a = keep(random_array(QN_FLOAT32, 1, 1, SHAPE(70, 40)));
    qn_array *b = keep(random_array(QN_FLOAT32, 1, 2, SHAPE(40, 33)));
    double entries[] = {1, 0, 0, 1, 2, 3};
    for (int size = 32; size <= 64; size += 32) {
        int m = 70 / size + 1, k = 40 / size + 1, n = 33 / size + 1;
        for (int which = 1; which < 8; which++)
            for (int type = 0; type < 3; type++) {
                static const qn_dtype dtypes[] = {QN_BOOL, QN_FLOAT32,
                                                  QN_UINT32};
                qn_dtype dtype = dtypes[type];
                qn_array *left = NULL, *right = NULL, *whole = NULL;
                if (which & 1)
                    left = keep(array_of(dtype, entries, SHAPE(m, k)));
                if (which & 2)
                    right = keep(array_of(dtype, entries, SHAPE(k, n)));
                if (which & 4)
                    whole = keep(array_of(dtype, entries, SHAPE(m, 1)));
                BUILD(y, qn_op_block_masked_mm(&y, a, b, size, whole, left,
                                               right, S));
                check_type(y, QN_FLOAT32, 70, 33);
                check_status(qn_eval(&y, 1), QN_OK);
                size_t tile = (size_t)size;
                for (size_t i = 0; i < y->size; i += 7) {
                    size_t row = i / 33, column = i % 33;
                    double sum = 0;
                    for (size_t l = 0; l < 40; l++)
                        sum += item(a, row * 40 + l) *
                               mask_at(left, row, l, tile) *
                               item(b, l * 33 + column) *
                               mask_at(right, l, column, tile);
                    check_element(y, i,
                                  sum * mask_at(whole, row, column, tile));
                }
            }
    }
}

/* What a false entry hides does not count, NaN neither; a factor 0 keeps it. */
static void test_a_false_tile_hides_nan(void **state)
{
    (void)state;
    qn_array *a = keep(array_of(QN_FLOAT32, NULL, SHAPE(32, 32)));
    for (size_t i = 0; i < a->size; i++)
        element_put(place_of(a, i), QN_FLOAT32, NAN);
    qn_array *no = keep(array_of(QN_BOOL, VALUES(0), SHAPE(1, 1)));
    qn_array *zero = keep(array_of(QN_FLOAT32, VALUES(0), SHAPE(1, 1)));
    BUILD(y, qn_op_block_masked_mm(&y, a, a, 32, NULL, no, no, S));
    BUILD(z, qn_op_block_masked_mm(&z, a, a, 32, NULL, zero, zero, S));
    check_status(qn_eval(&y, 1), QN_OK);
    check_status(qn_eval(&z, 1), QN_OK);
    assert_true(item(y, 0) == 0);
    assert_true(isnan(item(z, 0)));
}

static void test_masks_broadcast(void **state)
{
    (void)state;
    qn_array *a = counted(QN_FLOAT32, SHAPE(2, 1, 33, 4));
    qn_array *b = counted(QN_FLOAT32, SHAPE(3, 4, 2));
    qn_array *mask =
        keep(array_of(QN_BOOL, VALUES(0, 1, 1, 1, 0, 0), SHAPE(3, 2, 1)));
    BUILD(y, qn_op_block_masked_mm(&y, a, b, 32, mask, NULL, NULL, S));
    check_type(y, QN_FLOAT32, 2, 3, 33, 2);
    check_status(qn_eval(&y, 1), QN_OK);
    for (size_t i = 0; i < y->size; i++) {
        size_t row = i / 2 % 33, q = i / 66 % 3;
        check_element(y, i,
                      item(mask, q * 2 + row / 32)
                          ? dot(a, i / 198, b, q, row, i % 2, 0, 4)
                          : 0);
    }
    BUILD(vector,
          qn_op_block_masked_mm(
              &vector, LINE(QN_FLOAT32, 1, 2, 3, 4),
              counted(QN_FLOAT32, SHAPE(4, 2)), 64, NULL,
              keep(array_of(QN_FLOAT32, VALUES(2), SHAPE(1, 1))), NULL, S));
    check_values(vector, 80, 100);
}

static void test_block_masked_mm_refuses(void **state)
{
    (void)state;
    qn_array *a = counted(QN_FLOAT32, SHAPE(40, 40));
    qn_array *mask = counted(QN_FLOAT32, SHAPE(2, 2));
    REFUSE("Tiles of 32 or 64",
           qn_op_block_masked_mm(&refused, a, a, 16, mask, NULL, NULL, S));
    REFUSE("Tiles of 32 or 64",
           qn_op_block_masked_mm(&refused, a, a, 0, mask, NULL, NULL, S));
    REFUSE("[block_masked_mm]",
           qn_op_block_masked_mm(&refused, a, a, 64, mask, NULL, NULL, S));
    REFUSE("[block_masked_mm]",
           qn_op_block_masked_mm(&refused, a, a, 32,
                                 counted(QN_FLOAT32, SHAPE(2, 3)), NULL, NULL,
                                 S));
    REFUSE("[block_masked_mm]",
           qn_op_block_masked_mm(&refused, scalar_array(QN_FLOAT32, 1), a, 32,
                                 mask, NULL, NULL, S));
    REFUSE("[block_masked_mm]",
           qn_op_block_masked_mm(&refused, a, counted(QN_FLOAT32, SHAPE(3, 3)),
                                 32, mask, NULL, NULL, S));
    REFUSE("Floating",
           qn_op_block_masked_mm(&refused, counted(QN_INT8, SHAPE(2, 2)),
                                 counted(QN_INT8, SHAPE(2, 2)), 32, mask, NULL,
                                 NULL, S));
}

/* ---- parts ---- */

static void segments(void)
{
    for (int t = 0; t < 4; t++) {
        qn_array *a = keep(random_array(types[t], 1, 1, SHAPE(3, 10)));
        qn_array *b = keep(strided(random_array(types[t], 1, 2, SHAPE(10, 4))));
        qn_array *parts = keep(
            array_of(QN_UINT32, VALUES(0, 2, 2, 6, 3, 3, 5, 4, 10, 10, 0, 10),
                     SHAPE(2, 3, 2)));
        BUILD(y, qn_op_segmented_mm(&y, a, b, parts, S));
        check_type(y, types[t], 2, 3, 3, 4);
        check_status(qn_eval(&y, 1), QN_OK);
        for (size_t i = 0; i < y->size; i++) {
            size_t part = i / 12;
            check_element(y, i,
                          dot(a, 0, b, 0, i / 4 % 3, i % 4,
                              (size_t)item(parts, 2 * part),
                              (size_t)item(parts, 2 * part + 1)));
        }
    }
}

static void test_segments(void **state)
{
    segments();
    qn_backend_register(QN_DEVICE_CPU, qn_backend_cpu());
    segments();
    use_reference(state);
}

static void test_segments_outside_are_an_error(void **state)
{
    qn_array *a = counted(QN_FLOAT32, SHAPE(2, 3)), *y;
    qn_array *b = counted(QN_FLOAT32, SHAPE(3, 2));
    const double bad[][2] = {{0, 4}, {-1, 2}, {4, 1}, {1, 1e15}, {-5, -3}};
    for (int k = 0; k < 10; k++) {
        const double *pair = bad[k % 5];
        if (k == 5)
            qn_backend_register(QN_DEVICE_CPU, qn_backend_cpu());
        qn_array *parts = keep(
            array_of(QN_INT64, VALUES(0, 1, pair[0], pair[1]), SHAPE(2, 2)));
        check_status(qn_op_segmented_mm(&y, a, b, parts, S), QN_OK);
        keep(y);
        check_error(qn_eval(&y, 1), QN_E_ARG, "[segmented_mm] The segment");
    }
    use_reference(state);
    qn_array *three = counted(QN_INT32, SHAPE(2, 3));
    REFUSE("(..., 2)", qn_op_segmented_mm(&refused, a, b, three, S));
    REFUSE("(..., 2)",
           qn_op_segmented_mm(&refused, a, b, scalar_array(QN_INT32, 1), S));
    REFUSE("integer",
           qn_op_segmented_mm(&refused, a, b, LINE(QN_FLOAT32, 0, 1), S));
    REFUSE("[segmented_mm]",
           qn_op_segmented_mm(&refused, a, a, LINE(QN_INT32, 0, 1), S));
    REFUSE("Two matrices",
           qn_op_segmented_mm(&refused, counted(QN_FLOAT32, SHAPE(1, 2, 3)), b,
                              LINE(QN_INT32, 0, 1), S));
}

/* ---- Hadamard matrices ---- */

/* The rows of the matrix of size m: transforms of the unit vectors. */
static qn_array *hadamard(int m)
{
    float one = 1;
    BUILD(eye, qn_op_eye(&eye, m, m, 0, QN_FLOAT64, S));
    BUILD(y, qn_op_hadamard_transform(&y, eye, &one, S));
    check_status(qn_eval(&y, 1), QN_OK);
    return y;
}

static void hadamard_matrices_are_orthogonal(void)
{
    static const int sizes[] = {1, 2, 8, 12, 20, 28, 24, 56};
    for (int k = 0; k < 8; k++) {
        size_t n = (size_t)sizes[k];
        qn_array *h = hadamard(sizes[k]);
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < n; j++) {
                double sum = 0;
                for (size_t l = 0; l < n; l++)
                    sum += item(h, i * n + l) * item(h, j * n + l);
                assert_true(fabs(item(h, i * n + j)) == 1);
                assert_true(sum == (i == j ? (double)n : 0));
            }
    }
}

static void test_hadamard_matrices_are_orthogonal(void **state)
{
    hadamard_matrices_are_orthogonal();
    qn_backend_register(QN_DEVICE_CPU, qn_backend_cpu());
    hadamard_matrices_are_orthogonal();
    use_reference(state);
}

/* Sylvester's matrix; and the first rows of those of MLX. */
static void test_hadamard_elements(void **state)
{
    (void)state;
    qn_array *h = hadamard(16);
    for (size_t i = 0; i < 16; i++)
        for (size_t j = 0; j < 16; j++)
            assert_true(item(h, i * 16 + j) ==
                        (__builtin_popcountll(i & j) % 2 ? -1 : 1));
    static const struct {
        int size;
        const char *first; /* column of the matrix: transform of (1, 0, ...) */
    } rows[] = {{12, "+-++++++++++"},
                {20, "+-----++++--++--+--+"},
                {28, "+--------++++--+-++-+-++--++"}};
    for (int k = 0; k < 3; k++) {
        h = hadamard(rows[k].size);
        for (size_t i = 0; rows[k].first[i]; i++)
            assert_true(item(h, i) == (rows[k].first[i] == '+' ? 1 : -1));
    }
    /* Kronecker product of size 12 with size 2. */
    qn_array *small = hadamard(12), *large = hadamard(24);
    for (size_t i = 0; i < 24; i++)
        for (size_t j = 0; j < 24; j++)
            assert_true(item(large, i * 24 + j) ==
                        item(small, i / 2 * 12 + j / 2) *
                            (i % 2 && j % 2 ? -1 : 1));
}

static void test_hadamard_scale_and_types(void **state)
{
    (void)state;
    float half = 0.5F;
    BUILD(y,
          qn_op_hadamard_transform(&y, LINE(QN_FLOAT16, 1, 2, 3, 4), NULL, S));
    check_type(y, QN_FLOAT16, 4);
    check_values(y, 5, -1, -2, 0);
    BUILD(z, qn_op_hadamard_transform(&z, LINE(QN_INT8, 1, 3), &half, S));
    check_type(z, QN_FLOAT32, 2);
    check_values(z, 2, -1);
    BUILD(point, qn_op_hadamard_transform(&point, scalar_array(QN_FLOAT32, 3),
                                          NULL, S));
    check_no_shape(point, QN_FLOAT32);
    check_values(point, 3);
    BUILD(none, qn_op_hadamard_transform(
                    &none, counted(QN_FLOAT32, SHAPE(0, 4)), NULL, S));
    check_type(none, QN_FLOAT32, 0, 4);
    static const int bad[] = {0, 3, 6, 7, 36, 44};
    for (int k = 0; k < 6; k++)
        REFUSE("m * 2^k",
               qn_op_hadamard_transform(
                   &refused, counted(QN_FLOAT32, SHAPE(bad[k])), NULL, S));
    REFUSE("complex64",
           qn_op_hadamard_transform(&refused, counted(QN_COMPLEX64, SHAPE(2)),
                                    NULL, S));
}

/* ---- gradients ---- */

static void test_gradients_are_adjoint(void **state)
{
    (void)state;
    static const int sizes[] = {1, 4, 12, 20, 28, 40};
    qn_array *grad[4];
    for (int k = 0; k < 6; k++) {
        qn_array *x = random_parts(QN_FLOAT64, 1, SHAPE(2, sizes[k]));
        qn_array *cot = random_parts(QN_FLOAT64, 2, SHAPE(2, sizes[k]));
        BUILD(y, qn_op_hadamard_transform(&y, x, NULL, S));
        gradients(grad, &y, &cot);
        assert_true(fabs(inner(grad[0], x) - inner(y, cot)) < 1e-12);
    }
    qn_array *a = random_parts(QN_FLOAT64, 3, SHAPE(2, 2, 3, 4));
    qn_array *b = random_parts(QN_FLOAT64, 4, SHAPE(5, 4, 2));
    qn_array *ia = LINE(QN_UINT32, 3, 0, 3, 1),
             *ib = LINE(QN_INT32, 4, 4, -5, 2);
    BUILD(y, qn_op_gather_mm(&y, a, b, ia, ib, S));
    qn_array *cot = random_parts(QN_FLOAT64, 5, y->shape, y->ndim);
    gradients(grad, &y, &cot);
    double sum = inner(y, cot);
    assert_true(fabs(inner(grad[0], a) - sum) < 1e-12);
    assert_true(fabs(inner(grad[1], b) - sum) < 1e-12);
}

static void test_batches_and_remakes(void **state)
{
    (void)state;
    qn_array *x = random_parts(QN_FLOAT32, 1, SHAPE(3, 20));
    BUILD(h, qn_op_hadamard_transform(&h, x, NULL, S));
    check_rules(&h);
    qn_array *a = random_parts(QN_FLOAT32, 2, SHAPE(3, 2, 4));
    qn_array *b = random_parts(QN_FLOAT32, 3, SHAPE(2, 4, 5));
    BUILD(y, qn_op_gather_mm(&y, a, b, LINE(QN_UINT32, 2, 0),
                             LINE(QN_UINT32, 1, 1), S));
    check_rules(&y);
    qn_array *m = random_parts(QN_FLOAT32, 4, SHAPE(2, 5));
    qn_array *n = random_parts(QN_FLOAT32, 5, SHAPE(5, 3));
    qn_array *parts = keep(array_of(QN_INT32, VALUES(0, 3, 2, 5), SHAPE(2, 2)));
    BUILD(z, qn_op_segmented_mm(&z, m, n, parts, S));
    check_rules(&z);
}

/* ---- formulas ---- */

enum { LETTERS = 8 };

/* The sum by all values of all letters: each operand has letters of "abcdefgh"
 * with these lengths. */
static void check_formula(const char *formula, const int *lengths)
{
    const char *arrow = strstr(formula, "->");
    qn_array *operands[6];
    char letters[6][9], result[9];
    size_t count = 0, places = 0;
    for (const char *p = formula; p < arrow; p++) {
        if (*p == ',') {
            letters[count++][places] = 0;
            places = 0;
        } else {
            letters[count][places++] = *p;
        }
    }
    letters[count++][places] = 0;
    strcpy(result, arrow + 2);
    for (size_t i = 0; i < count; i++) {
        int shape[8], ndim = (int)strlen(letters[i]);
        for (int k = 0; k < ndim; k++)
            shape[k] = lengths[letters[i][k] - 'a'];
        operands[i] = random_parts(QN_FLOAT64, i + 1, shape, ndim);
    }
    BUILD(y, qn_op_einsum(&y, formula, operands, count, S));
    check_status(qn_eval(&y, 1), QN_OK);
    assert_int_equal(y->ndim, strlen(result));
    double *sums = calloc(y->size + 1, sizeof *sums);
    assert_non_null(sums);
    int index[LETTERS] = {0};
    for (;;) {
        double product = 1;
        for (size_t i = 0; i < count; i++) {
            size_t at = 0;
            for (const char *p = letters[i]; *p; p++)
                at = at * (size_t)lengths[*p - 'a'] + (size_t)index[*p - 'a'];
            product *= item(operands[i], at);
        }
        size_t at = 0;
        for (const char *p = result; *p; p++)
            at = at * (size_t)lengths[*p - 'a'] + (size_t)index[*p - 'a'];
        sums[at] += product;
        int k = LETTERS - 1;
        for (; k >= 0; k--) {
            bool used = memchr(formula, 'a' + k, (size_t)(arrow - formula));
            if (used && ++index[k] < lengths[k])
                break;
            index[k] = 0;
        }
        if (k < 0)
            break;
    }
    for (size_t i = 0; i < y->size; i++)
        if (fabs(item(y, i) - sums[i]) > 1e-10) {
            print_error("%s, element %zu: expected %.12g, found %.12g\n",
                        formula, i, sums[i], item(y, i));
            fail();
        }
    free(sums);
}

static void test_formulas(void **state)
{
    (void)state;
    static const int lengths[LETTERS] = {2, 3, 4, 2, 3, 2, 1, 5};
    static const char *const formulas[] = {
        "ab->ba",
        "ab->",
        "ab->b",
        "aa->a",
        "aa->",
        "aba->ab",
        "aaa->a",
        "abab->ba",
        "ab,bc->ac",
        "ab,bc->ca",
        "ab,ab->ab",
        "ab,ab->",
        "a,b->ab",
        "a,b->ba",
        "a,b->",
        "a,a,a->a",
        "ab,cd->",
        "ab,cd->dbca",
        "abc,bcd->ad",
        "abc,abd->acd",
        "abc,dcb->bad",
        "ab,bc,cd->ad",
        "ab,bc,cd,de->ae",
        "ab,ac,ad->bcd",
        "aab,b->a",
        "aab,bb->a",
        "abc,b->ac",
        "abc,d->",
        "a,ab,abc->c",
        "abcd,bd->ac",
        "ab,abc,abcd->abcd",
        "agb,bgc->ac",
        "g,g->g",
        "abc,cde,efh->abdfh",
        "ab,bc,ca->",
        "ah,bh,ch->abc",
    };
    for (size_t i = 0; i < sizeof formulas / sizeof *formulas; i++)
        check_formula(formulas[i], lengths);
}

static void test_ellipses(void **state)
{
    (void)state;
    qn_array *x = random_parts(QN_FLOAT64, 1, SHAPE(5, 1, 2, 3));
    qn_array *w = random_parts(QN_FLOAT64, 2, SHAPE(4, 3, 2)), *both[] = {x, w};
    BUILD(y, qn_op_einsum(&y, "...ij,...jk->...ik", both, 2, S));
    BUILD(z, qn_op_matmul(&z, x, w, S));
    check_type(y, QN_FLOAT64, 5, 4, 2, 2);
    check_status(qn_eval(&y, 1), QN_OK);
    check_status(qn_eval(&z, 1), QN_OK);
    for (size_t i = 0; i < y->size; i++)
        check_element(y, i, item(z, i));
    qn_array *m = counted(QN_FLOAT32, SHAPE(2, 3)), *pair[] = {m, m};
    BUILD(turned, qn_op_einsum(&turned, "a...->...a", &m, 1, S));
    check_type(turned, QN_FLOAT32, 3, 2);
    BUILD(sums, qn_op_einsum(&sums, "...a->", &m, 1, S));
    check_values(sums, 15);
    BUILD(implicit, qn_op_einsum(&implicit, " b a ", &m, 1, S));
    check_type(implicit, QN_FLOAT32, 3, 2);
    BUILD(mixed, qn_op_einsum(&mixed, "bA,bC", pair, 2, S));
    check_type(mixed, QN_FLOAT32, 3, 3);
    BUILD(dots, qn_op_einsum(&dots, "...a,...a", pair, 2, S));
    check_values(dots, 5, 50);
    /* A length of 1 stretches. */
    qn_array *thin = counted(QN_FLOAT32, SHAPE(1, 4)), *uneven[] = {m, thin};
    BUILD(wide, qn_op_einsum(&wide, "ij,jk->ik", uneven, 2, S));
    check_values(wide, 0, 3, 6, 9, 0, 12, 24, 36);
}

static void test_formulas_of_other_types(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(2, 3)), *pair[] = {x, x};
    BUILD(squares, qn_op_einsum(&squares, "ab,ab->ab", pair, 2, S));
    check_type(squares, QN_INT32, 2, 3);
    check_values(squares, 0, 1, 4, 9, 16, 25);
    BUILD(sums, qn_op_einsum(&sums, "ab->a", &x, 1, S));
    check_values(sums, 3, 12);
    REFUSE("[matmul]", qn_op_einsum(&refused, "ab,cb->ac", pair, 2, S));
    qn_array *empty = counted(QN_FLOAT32, SHAPE(0, 3));
    qn_array *two[] = {empty, empty};
    BUILD(zeros, qn_op_einsum(&zeros, "ab,ac->bc", two, 2, S));
    check_values(zeros, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    qn_array *point = scalar_array(QN_FLOAT32, 3), *points[] = {point, point};
    BUILD(product, qn_op_einsum(&product, ",->", points, 2, S));
    check_values(product, 9);
}

static void test_hostile_formulas(void **state)
{
    (void)state;
    qn_array *x = counted(QN_FLOAT32, SHAPE(2, 3)), *pair[] = {x, x};
    static const char *const bad[] = {
        "a",      "abc",      "ab,bc",
        "a-b",    "a1",       "a.b",
        "a..b",   "ab->aa",   "ab->c",
        "ab->a,", "ab->->a",  "ab->a->b",
        "......", "...ab..",  "ab->..",
        "ab>ba",  "\xc3\xa9", "",
        "ab-",    "->",       "abcdefghijklmnopqrstuvwxyzabcdefghijklmnop"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        REFUSE("[einsum]", qn_op_einsum(&refused, bad[i], &x, 1, S));
    REFUSE("[einsum]", qn_op_einsum(&refused, "ab", pair, 2, S));
    REFUSE("[einsum]", qn_op_einsum(&refused, "ab,bc->ac", pair, 2, S));
    REFUSE("[einsum]", qn_op_einsum(&refused, "ab", NULL, 0, S));
    /* Many operands: slow is allowed, endless is not. */
    enum { MANY = 300 };
    qn_array *many[MANY];
    char formula[2 * MANY + 4];
    for (int i = 0; i < MANY; i++) {
        many[i] = scalar_array(QN_FLOAT32, 1);
        formula[i] = ',';
    }
    memcpy(formula + MANY - 1, "->", 3);
    BUILD(y, qn_op_einsum(&y, formula, many, MANY, S));
    check_values(y, 1);
}

static qn_array *three[3];

static qn_status contract(void)
{
    qn_array *y = NULL;
    qn_status status = qn_op_einsum(&y, "aab,bc,dc->ad", three, 3, S);
    if (!status)
        status = qn_eval(&y, 1);
    qn_array_unref(y);
    return status;
}

static qn_status choose(void)
{
    qn_array *y = NULL, *z = NULL;
    qn_status status =
        qn_op_gather_mm(&y, three[0], three[1], three[2], three[2], S);
    if (!status)
        status = qn_op_hadamard_transform(&z, y, NULL, S);
    if (!status)
        status = qn_eval(&z, 1);
    qn_array_unref(y);
    qn_array_unref(z);
    return status;
}

static void test_each_allocation_may_fail(void **state)
{
    three[0] = random_parts(QN_FLOAT32, 1, SHAPE(2, 2, 3));
    three[1] = random_parts(QN_FLOAT32, 1, SHAPE(3, 4));
    three[2] = random_parts(QN_FLOAT32, 1, SHAPE(5, 4));
    each_alloc_may_fail(contract);
    three[0] = random_parts(QN_FLOAT16, 1, SHAPE(3, 2, 5));
    three[1] = random_parts(QN_FLOAT16, 2, SHAPE(3, 5, 4));
    three[2] = LINE(QN_UINT32, 2, 0, 2);
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
        BUILD_TEST(test_missing_indices_are_in_order),
        BUILD_TEST(test_indices_outside_are_an_error),
        BUILD_TEST(test_gather_mm_refuses),
        BUILD_TEST(test_masked_tiles),
        BUILD_TEST(test_a_false_tile_hides_nan),
        BUILD_TEST(test_masks_broadcast),
        BUILD_TEST(test_block_masked_mm_refuses),
        BUILD_TEST(test_segments),
        BUILD_TEST(test_segments_outside_are_an_error),
        BUILD_TEST(test_hadamard_matrices_are_orthogonal),
        BUILD_TEST(test_hadamard_elements),
        BUILD_TEST(test_hadamard_scale_and_types),
        BUILD_TEST(test_gradients_are_adjoint),
        BUILD_TEST(test_batches_and_remakes),
        BUILD_TEST(test_formulas),
        BUILD_TEST(test_ellipses),
        BUILD_TEST(test_formulas_of_other_types),
        BUILD_TEST(test_hostile_formulas),
        BUILD_TEST(test_each_allocation_may_fail),
    };
    return run_build_tests(tests);
}
