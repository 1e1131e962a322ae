/* Products of bfloat16: each kernel against double sums, for both layouts and
 * odd shapes; rows alone, column ranges and row ranges change no bit; what
 * stands between rows is not read as numbers. */
#include "support/qn_cpu_test.h"

#include "backend/cpu/kernels/bfdot/bfdot.h"
#include "base/f16.h"

typedef struct problem {
    qn_bfdot dot;
    uint16_t *x, *w;
    float *out, *scratch;
} problem;

static void *room(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    assert_non_null(p);
    return p;
}

/* `rows` of `length` random numbers, `gap` NaNs between rows. */
static uint16_t *rows_of(size_t rows, size_t length, size_t gap, double scale,
                         uint64_t *seed)
{
    size_t stride = length + gap;
    uint16_t *p = room((rows * stride - gap) * sizeof *p);
    for (size_t i = 0; i < rows * stride - gap; i++)
        p[i] = i % stride < length
                   ? qn_f32_to_bf16((float)(scale * test_random(seed)))
                   : 0x7fc0;
    return p;
}

static problem problem_make(const qn_bfdot_kernel *kernel, size_t m, size_t n,
                            size_t k, bool along_k, double scale, uint64_t seed)
{
    size_t gap = seed % 3;
    problem p = {.dot = {.m = m, .n = n, .k = k, .along_k = along_k}};
    p.x = rows_of(m, k, gap, scale, &seed);
    p.w = along_k ? rows_of(n, k, gap, scale, &seed)
                  : rows_of(k, n, gap, scale, &seed);
    p.out = room(m * n * sizeof *p.out);
    p.scratch = aligned_alloc(64, (kernel->scratch + 15) / 16 * 64);
    assert_non_null(p.scratch);
    p.dot.x = p.x;
    p.dot.w = p.w;
    p.dot.x_stride = k + gap;
    p.dot.w_stride = (along_k ? k : n) + gap;
    p.dot.out = p.out;
    p.dot.out_stride = n;
    return p;
}

static void problem_free(problem *p)
{
    free(p->x);
    free(p->w);
    free(p->out);
    free(p->scratch);
}

static double value(uint16_t bits)
{
    return (double)qn_bf16_to_f32(bits);
}

static double weight(const qn_bfdot *dot, size_t n, size_t k)
{
    return value(
        dot->w[dot->along_k ? n * dot->w_stride + k : k * dot->w_stride + n]);
}

/* The contract of bfdot.h. */
static void check_values(const problem *p)
{
    const qn_bfdot *dot = &p->dot;
    for (size_t m = 0; m < dot->m; m++)
        for (size_t n = 0; n < dot->n; n++) {
            double sum = 0, size = 0, lost = 0;
            for (size_t k = 0; k < dot->k; k++) {
                double x = value(dot->x[m * dot->x_stride + k]);
                double w = weight(dot, n, k);
                sum += x * w;
                size += fabs(x * w);
                lost += 0x1p-126 * (1 + fabs(x) + fabs(w));
            }
            double found = (double)p->out[m * dot->n + n];
            if (!(fabs(found - sum) <= 0x1p-17 * size + lost)) {
                print_error("%zu x %zu x %zu, along %s: [%zu, %zu] is %.9g, "
                            "expected %.9g\n",
                            dot->m, dot->n, dot->k, dot->along_k ? "K" : "N", m,
                            n, found, sum);
                fail();
            }
        }
}

/* Each row alone, columns and rows in parts. */
static void check_parts(const qn_bfdot_kernel *kernel, problem *p)
{
    size_t m = p->dot.m, n = p->dot.n, bytes = m * n * sizeof(float);
    float *all = p->out, *parts = room(bytes);
    p->dot.out = parts;
    for (size_t i = 0; i < m; i++)
        kernel->run(&p->dot, i, i + 1, 0, n, p->scratch);
    assert_memory_equal(all, parts, bytes);
    memset(parts, 0, bytes);
    size_t column = QN_BFDOT_COLUMNS < n ? QN_BFDOT_COLUMNS : 0;
    size_t row = m / 2;
    kernel->run(&p->dot, 0, m, column, n, p->scratch);
    kernel->run(&p->dot, row, m, 0, column, p->scratch);
    if (row)
        kernel->run(&p->dot, 0, row, 0, column, p->scratch);
    assert_memory_equal(all, parts, bytes);
    free(parts);
    p->dot.out = all;
}

static void check_shape(const qn_bfdot_kernel *kernel, size_t m, size_t n,
                        size_t k, double scale, uint64_t seed)
{
    for (int along_k = 0; along_k < 2; along_k++) {
        problem p = problem_make(kernel, m, n, k, along_k, scale, seed);
        kernel->run(&p.dot, 0, m, 0, n, p.scratch);
        check_values(&p);
        check_parts(kernel, &p);
        problem_free(&p);
    }
}

static void each_kernel(void (*check)(const qn_bfdot_kernel *kernel))
{
    bool picked = !qn_bfdot_pick();
    for (int isa = 0; isa < QN_ISA_COUNT; isa++) {
        const qn_bfdot_kernel *kernel = qn_bfdot_at((qn_isa)isa);
        if (!kernel)
            continue;
        print_message("%s\n", qn_isa_name((qn_isa)isa));
        check(kernel);
        picked |= kernel == qn_bfdot_pick();
    }
    assert_true(picked);
}

static void check_shapes(const qn_bfdot_kernel *kernel)
{
    static const size_t ms[] = {1, 2, 5, 6, 8, 9, 13, 16, 17, 31, 33, 50};
    static const size_t ns[] = {1, 3, 4, 15, 16, 17, 32, 63, 64, 65, 100, 130};
    static const size_t ks[] = {1, 2, 3, 7, 8, 16, 31, 32, 33, 64, 100, 257};
    for (size_t i = 0; i < 12; i++)
        for (size_t j = 0; j < 12; j += 1 + i % 2)
            check_shape(kernel, ms[i], ns[j], ks[(i + 5 * j) % 12], 1, i + j);
}

static void test_shapes(void **state)
{
    (void)state;
    each_kernel(check_shapes);
}

/* More than a block of K, and more columns than a strip or a panel has. */
static void check_large(const qn_bfdot_kernel *kernel)
{
    check_shape(kernel, 1, 9, 2 * QN_BFDOT_DEPTH + 37, 1, 1);
    check_shape(kernel, 10, 5, QN_BFDOT_DEPTH + 1, 1, 2);
    check_shape(kernel, 3, 1500, 2 * QN_BFDOT_COLUMN_DEPTH + 5, 1, 3);
    check_shape(kernel, 20, 300, QN_BFDOT_COLUMN_DEPTH + 2, 1, 4);
}

static void test_large(void **state)
{
    (void)state;
    each_kernel(check_large);
}

/* Products and factors that are subnormal, and sums near the largest float. */
static void check_sizes(const qn_bfdot_kernel *kernel)
{
    check_shape(kernel, 9, 20, 70, 0x1p-63, 1);
    check_shape(kernel, 9, 20, 70, 0x1p-125, 2);
    check_shape(kernel, 9, 20, 70, 0x1p59, 3);
}

static void test_sizes(void **state)
{
    (void)state;
    each_kernel(check_sizes);
}

/* A NaN or an infinity in one row of x stays there. */
static void check_specials(const qn_bfdot_kernel *kernel)
{
    for (int along_k = 0; along_k < 2; along_k++) {
        problem p = problem_make(kernel, 10, 6, 65, along_k, 1, 3);
        p.x[3 * p.dot.x_stride + 64] = 0x7fc0;
        p.x[7 * p.dot.x_stride + 9] = 0x7f80;
        kernel->run(&p.dot, 0, 10, 0, 6, p.scratch);
        for (size_t i = 0; i < 60; i++)
            assert_int_equal(!isfinite(p.out[i]), i / 6 == 3 || i / 6 == 7);
        assert_true(isnan(p.out[3 * 6]));
        check_parts(kernel, &p);
        problem_free(&p);
    }
}

static void test_specials_stay_in_their_row(void **state)
{
    (void)state;
    each_kernel(check_specials);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_specials_stay_in_their_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
