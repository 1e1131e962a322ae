/* Rows times rows: each kernel against double arithmetic for every format,
 * group, scale type and odd shape; rows and column ranges change no bit. */
#include "support/qn_cpu_test.h"

#include "backend/cpu/kernels/rowdot/rowdot.h"

static const qn_row_format packed_formats[] = {QN_ROW_Q2, QN_ROW_Q3, QN_ROW_Q4,
                                               QN_ROW_Q5, QN_ROW_Q6, QN_ROW_Q8};
static const int packed_bits[] = {2, 3, 4, 5, 6, 8};
static const qn_row_format dense_formats[] = {QN_ROW_F32, QN_ROW_F16,
                                              QN_ROW_BF16};

typedef struct matrix {
    qn_rowdot dot;
    float *x;                  /* as given, m rows of k */
    double *values;            /* of w, n rows of k */
    void *w, *scales, *biases; /* exact_copy'd: a byte too far is seen */
    float *prepared, *out, *scratch;
} matrix;

static float noise(uint64_t *seed)
{
    return (float)test_random(seed);
}

static void *room(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    assert_non_null(p);
    return p;
}

static void fill_dense(matrix *m, uint64_t *seed)
{
    qn_dtype type = m->dot.format == QN_ROW_F32   ? QN_FLOAT32
                    : m->dot.format == QN_ROW_F16 ? QN_FLOAT16
                                                  : QN_BFLOAT16;
    size_t size = qn_dtype_size(type), count = m->dot.n * m->dot.k;
    m->w = room(count * size);
    for (size_t i = 0; i < count; i++) {
        char *at = (char *)m->w + i * size;
        element_put(at, type, test_random(seed));
        m->values[i] = element_get(at, type);
    }
    m->dot.w_stride = m->dot.k * size;
}

static void fill_packed(matrix *m, int bits, qn_dtype scale_type,
                        uint64_t *seed)
{
    size_t n = m->dot.n, k = m->dot.k, group = (size_t)m->dot.group;
    size_t row = k * (size_t)bits / 8, groups = k / group;
    size_t size = qn_dtype_size(scale_type);
    uint8_t *w = room(n * row);
    for (size_t i = 0; i < n * row; i++)
        w[i] = (uint8_t)(int)(noise(seed) * 1000);
    m->w = w;
    m->scales = room(n * groups * size);
    m->biases = room(n * groups * size);
    for (size_t i = 0; i < n * groups; i++) {
        element_put((char *)m->scales + i * size, scale_type,
                    0.1 * test_random(seed));
        element_put((char *)m->biases + i * size, scale_type,
                    test_random(seed));
    }
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < k; i++) {
            unsigned code = 0;
            for (int b = 0; b < bits; b++) {
                size_t bit = i * (size_t)bits + (size_t)b;
                code |= (w[r * row + bit / 8] >> (bit % 8) & 1u) << b;
            }
            size_t g = r * groups + i / group;
            double s = element_get((char *)m->scales + g * size, scale_type);
            double z = element_get((char *)m->biases + g * size, scale_type);
            m->values[r * k + i] = code * s + z;
        }
    m->dot.w_stride = row;
    m->dot.scale_stride = m->dot.bias_stride = groups;
    m->dot.scale_type = m->dot.bias_type = scale_type;
    m->dot.scales = m->scales;
    m->dot.biases = m->biases;
}

static matrix matrix_make(qn_row_format format, int bits, int group,
                          qn_dtype scale_type, size_t m, size_t n, size_t k,
                          uint64_t seed)
{
    matrix a;
    memset(&a, 0, sizeof a);
    a.dot.format = format;
    a.dot.m = m;
    a.dot.n = n;
    a.dot.k = k;
    a.dot.group = group;
    a.values = room(n * k * sizeof *a.values);
    a.x = room(m * k * sizeof *a.x);
    a.out = room(m * n * sizeof *a.out);
    a.prepared = room(m * qn_rowdot_padded(k) * sizeof *a.prepared);
    a.scratch = room(qn_rowdot_scratch(k) * sizeof *a.scratch);
    for (size_t i = 0; i < m * k; i++)
        a.x[i] = noise(&seed);
    if (bits)
        fill_packed(&a, bits, scale_type, &seed);
    else
        fill_dense(&a, &seed);
    a.dot.w = a.w;
    return a;
}

static void matrix_free(matrix *a)
{
    free(a->values);
    free(a->x);
    free(a->out);
    free(a->prepared);
    free(a->scratch);
    free(a->w);
    free(a->scales);
    free(a->biases);
}

static void matrix_prepare(const qn_rowdot_kernel *kernel, matrix *a)
{
    size_t padded = qn_rowdot_padded(a->dot.k);
    for (size_t m = 0; m < a->dot.m; m++)
        kernel->prepare(a->prepared + m * padded, a->x + m * a->dot.k, a->dot.k,
                        a->dot.format);
    a->dot.x = a->prepared;
    a->dot.x_stride = padded;
    a->dot.out = a->out;
    a->dot.out_stride = a->dot.n;
}

/* |error| <= 2^-17 * sum |x w|, the contract for products in float. */
static void check_values(const matrix *a)
{
    for (size_t m = 0; m < a->dot.m; m++)
        for (size_t n = 0; n < a->dot.n; n++) {
            double sum = 0, size = 0;
            for (size_t k = 0; k < a->dot.k; k++) {
                double product = (double)a->x[m * a->dot.k + k] *
                                 a->values[n * a->dot.k + k];
                sum += product;
                size += fabs(product);
            }
            double found = (double)a->out[m * a->dot.n + n];
            if (!(fabs(found - sum) <= 0x1p-17 * size)) {
                print_error("format %d, %zu x %zu x %zu: [%zu, %zu] is %.9g, "
                            "expected %.9g\n",
                            (int)a->dot.format, a->dot.m, a->dot.n, a->dot.k, m,
                            n, found, sum);
                fail();
            }
        }
}

/* Each row alone, and the columns in two parts. */
static void check_alone(const qn_rowdot_kernel *kernel, const matrix *a)
{
    float *row = room(a->dot.n * sizeof *row);
    for (size_t m = 0; m < a->dot.m; m++) {
        qn_rowdot one = a->dot;
        one.m = 1;
        one.x = a->prepared + m * a->dot.x_stride;
        one.out = row;
        size_t split = a->dot.n / 3 / 8 * 8;
        kernel->run(&one, split, a->dot.n, a->scratch);
        kernel->run(&one, 0, split, a->scratch);
        assert_memory_equal(row, a->out + m * a->dot.n, a->dot.n * sizeof *row);
    }
    free(row);
}

static void check_matrix(const qn_rowdot_kernel *kernel, matrix a)
{
    matrix_prepare(kernel, &a);
    kernel->run(&a.dot, 0, a.dot.n, a.scratch);
    check_values(&a);
    check_alone(kernel, &a);
    matrix_free(&a);
}

static const size_t heights[] = {1, 2, 3, 4, 5, 7, 8, 9, 13, 31};
enum { HEIGHTS = sizeof heights / sizeof *heights };

static void check_packed(const qn_rowdot_kernel *kernel)
{
    static const int groups[] = {16, 32, 64, 128};
    for (int f = 0; f < 6; f++)
        for (int g = 0; g < 4; g++)
            for (int t = 0; t < FLOAT_TYPES; t++) {
                int round = (f * 4 + g) * 3 + t;
                size_t k = (size_t)groups[g] * (size_t)(1 + round % 5);
                /* Rows of whole words, as MLX packs them. */
                while (k * (size_t)packed_bits[f] % 32)
                    k += (size_t)groups[g];
                for (int h = 0; h < 3; h++)
                    check_matrix(kernel,
                                 matrix_make(packed_formats[f], packed_bits[f],
                                             groups[g], float_types[t],
                                             heights[(round + h * 4) % HEIGHTS],
                                             1 + (size_t)(round * 7 + h) % 40,
                                             k, (uint64_t)round));
            }
}

static void check_dense(const qn_rowdot_kernel *kernel)
{
    static const size_t depths[] = {1, 3, 16, 17, 31, 32, 33, 64, 100, 576};
    for (int f = 0; f < 3; f++)
        for (int d = 0; d < 10; d++)
            for (int h = 0; h < HEIGHTS; h += 3)
                check_matrix(kernel,
                             matrix_make(dense_formats[f], 0, 0, QN_FLOAT32,
                                         heights[(h + d) % HEIGHTS],
                                         1 + (size_t)(d * 5 + h) % 27,
                                         depths[d], (uint64_t)(f * 10 + d)));
}

/* Rows longer than one block of K. */
static void check_long(const qn_rowdot_kernel *kernel)
{
    for (int h = 0; h < HEIGHTS; h += 3) {
        check_matrix(kernel, matrix_make(QN_ROW_F32, 0, 0, QN_FLOAT32,
                                         heights[h], 9, 4099, 1));
        check_matrix(kernel, matrix_make(QN_ROW_Q4, 4, 32, QN_FLOAT16,
                                         heights[h], 9, 2048 + 32, 2));
        check_matrix(kernel, matrix_make(QN_ROW_Q6, 6, 128, QN_BFLOAT16,
                                         heights[h], 11, 4096 + 128, 3));
    }
}

static void each_kernel(void (*check)(const qn_rowdot_kernel *kernel))
{
    int tested = 0;
    bool picked = false;
    for (int isa = QN_ISA_NONE; isa < QN_ISA_COUNT; isa++) {
        const qn_rowdot_kernel *kernel = qn_rowdot_at((qn_isa)isa);
        if (kernel)
            check(kernel);
        tested += kernel != NULL;
        picked |= kernel == qn_rowdot_pick();
    }
    assert_true(tested >= 1);
    /* The one in use is among them. */
    assert_true(picked);
}

static void test_packed_rows(void **state)
{
    (void)state;
    each_kernel(check_packed);
}

static void test_dense_rows(void **state)
{
    (void)state;
    each_kernel(check_dense);
}

static void test_long_rows(void **state)
{
    (void)state;
    each_kernel(check_long);
}

/* Natural order, code * scale + bias. */
static void check_unpacking(const qn_rowdot_kernel *kernel)
{
    for (int f = 0; f < 6; f++)
        for (int group = 16; group <= 128; group *= 2) {
            size_t k = (size_t)group * 8;
            matrix a = matrix_make(packed_formats[f], packed_bits[f], group,
                                   QN_FLOAT32, 1, 1, k, (uint64_t)group);
            kernel->unpack(a.x, a.w, a.scales, a.biases, k, group,
                           packed_formats[f]);
            for (size_t i = 0; i < k; i++)
                assert_true(fabs((double)a.x[i] - a.values[i]) <=
                            0x1p-22 * (1 + fabs(a.values[i])) * 4);
            matrix_free(&a);
        }
}

static void test_unpacking(void **state)
{
    (void)state;
    each_kernel(check_unpacking);
}

/* A NaN or an infinity in one row of x stays there. */
static void check_specials(const qn_rowdot_kernel *kernel)
{
    matrix a = matrix_make(QN_ROW_Q4, 4, 32, QN_FLOAT16, 10, 6, 64, 5);
    a.x[3 * 64 + 9] = NAN;
    a.x[7 * 64 + 9] = INFINITY;
    matrix_prepare(kernel, &a);
    kernel->run(&a.dot, 0, a.dot.n, a.scratch);
    for (size_t i = 0; i < 10 * 6; i++)
        assert_int_equal(isfinite(a.out[i]) ? 0 : 1,
                         i / 6 == 3 || (i / 6 == 7 && !isfinite(a.out[i])));
    assert_true(isnan(a.out[3 * 6]));
    matrix_free(&a);
}

static void test_specials_stay_in_their_row(void **state)
{
    (void)state;
    each_kernel(check_specials);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packed_rows),
        cmocka_unit_test(test_dense_rows),
        cmocka_unit_test(test_long_rows),
        cmocka_unit_test(test_unpacking),
        cmocka_unit_test(test_specials_stay_in_their_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
