/* Fourier transforms: against sums in long double for every kind of length,
 * several axes, norms, frequencies, refused arguments, gradients. */
#include "support/qn_grad.h"

#include "backend/cpu/cpu.h"
#include "backend/cpu/pool.h"

typedef struct number {
    long double re, im;
} number;

static number number_at(const qn_array *a, size_t i)
{
    const float *at = place_of(a, i);
    return (number){(long double)at[0],
                    a->dtype == QN_COMPLEX64 ? (long double)at[1] : 0};
}

/* sum over j of x[j] exp(sign 2 pi i j k / n), x having n entries. */
static number sum_of(const number *x, size_t n, size_t k, int sign)
{
    number sum = {0, 0};
    for (size_t j = 0; j < n; j++) {
        long double angle = sign * 2 * 3.14159265358979323846264338L *
                            (long double)(j * k % n) / (long double)n;
        long double c = cosl(angle), s = sinl(angle);
        sum.re += x[j].re * c - x[j].im * s;
        sum.im += x[j].re * s + x[j].im * c;
    }
    return sum;
}

static double size_of(const number *x, size_t n)
{
    long double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i].re * x[i].re + x[i].im * x[i].im;
    return (double)sqrtl(sum);
}

/* The CPU backend computes in float. */
static bool in_float;

/* Within a rounding of the line's size, and one of the number itself. */
static void check_number(const qn_array *y, size_t i, number wanted,
                         double scale, double size)
{
    number found = number_at(y, i);
    double within = (in_float ? 2e-6 : 1e-13) * size * fabs(scale);
    long double re = wanted.re * (long double)scale;
    long double im = wanted.im * (long double)scale;
    if (fabsl(found.re - re) <= 0x1p-23L * fabsl(re) + (long double)within &&
        fabsl(found.im - im) <= 0x1p-23L * fabsl(im) + (long double)within)
        return;
    print_error("entry %zu: expected %.9Lg%+.9Lgi, found %.9Lg%+.9Lgi\n", i, re,
                im, found.re, found.im);
    fail();
}

static double scale_of(qn_fft_kind kind, qn_fft_norm norm, size_t n)
{
    bool inverse = kind == QN_FFT_KIND_IFFT || kind == QN_FFT_KIND_IRFFT;
    return norm == QN_FFT_NORM_ORTHO                   ? 1 / sqrt((double)n)
           : inverse == (norm == QN_FFT_NORM_BACKWARD) ? 1 / (double)n
                                                       : 1;
}

/* Lines of `count` along the last axis of two, or the first. */
static void check_length(int n, int count, qn_fft_kind kind, qn_fft_norm norm,
                         bool first)
{
    bool from_half = kind == QN_FFT_KIND_IRFFT, real = kind == QN_FFT_KIND_RFFT;
    int have = from_half ? n / 2 + 1 : n;
    int shape[2] = {first ? have : count, first ? count : have};
    int axis = first ? 0 : -1;
    qn_array *x =
        random_parts(real ? QN_FLOAT32 : QN_COMPLEX64, (uint64_t)n, shape, 2);
    BUILD(y, qn_op_fft(&y, kind, x, &n, 1, &axis, 1, norm, S));
    check_status(qn_eval(&y, 1), QN_OK);
    assert_int_equal(y->dtype, from_half ? QN_FLOAT32 : QN_COMPLEX64);
    size_t size = (size_t)n, out = real ? size / 2 + 1 : size;
    assert_int_equal(y->shape[first ? 0 : 1], out);
    number *line = calloc(size, sizeof *line);
    assert_non_null(line);
    double scale = scale_of(kind, norm, size);
    bool inverse = kind == QN_FFT_KIND_IFFT || from_half;
    for (size_t l = 0; l < (size_t)count; l++) {
        for (size_t j = 0; j < (size_t)have; j++)
            line[j] = number_at(x, first ? j * (size_t)count + l
                                         : l * (size_t)have + j);
        if (from_half) {
            line[0].im = 0;
            if (n % 2 == 0)
                line[size / 2].im = 0;
            for (size_t j = 1; 2 * j < size; j++)
                line[size - j] = (number){line[j].re, -line[j].im};
        }
        double whole = size_of(line, size);
        /* Every entry of short lines, some of long ones. */
        for (size_t k = 0; k < out; k += 1 + size / 64) {
            number wanted = sum_of(line, size, k, inverse ? 1 : -1);
            if (from_half)
                wanted.im = 0;
            check_number(y, first ? k * (size_t)count + l : l * out + k, wanted,
                         scale, whole);
        }
    }
    free(line);
}

static void every_kind_of_length(void)
{
    /* All short ones; then powers, mixed factors, primes, squares of primes
     * and multiples of primes that need Bluestein's way. */
    static const int longer[] = {64,   81,   97,   121,  125,  128, 169,
                                 243,  289,  343,  499,  512,  720, 1001,
                                 1024, 1031, 1155, 2048, 2310, 4099};
    for (int kind = QN_FFT_KIND_FFT; kind <= QN_FFT_KIND_IRFFT; kind++) {
        for (int n = 1; n <= 40; n++)
            check_length(n, 3, (qn_fft_kind)kind, (qn_fft_norm)(n % 3), n % 2);
        for (size_t i = 0; i < sizeof longer / sizeof *longer; i++)
            check_length(longer[i], 2, (qn_fft_kind)kind, (qn_fft_norm)(i % 3),
                         i % 2);
    }
}

static void test_every_kind_of_length(void **state)
{
    (void)state;
    every_kind_of_length();
}

static void many_lines(void)
{
    static const int counts[] = {1, 2, 7, 8, 9, 17, 40};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int first = 0; first < 2; first++) {
            check_length(12, counts[i], QN_FFT_KIND_FFT, QN_FFT_NORM_ORTHO,
                         first);
            check_length(34, counts[i], QN_FFT_KIND_RFFT, QN_FFT_NORM_ORTHO,
                         first);
        }
}

static void test_many_lines(void **state)
{
    (void)state;
    many_lines();
}

static void use_cpu(void)
{
    qn_backend_register(QN_DEVICE_CPU, qn_backend_cpu());
    in_float = true;
}

static void use_loops(void **state)
{
    use_reference(state);
    in_float = false;
    qn_pool_set_threads(0);
}

static void test_on_the_cpu_backend(void **state)
{
    use_cpu();
    for (int threads = 1; threads < 4; threads += 2) {
        qn_pool_set_threads(threads);
        every_kind_of_length();
        many_lines();
        /* Long enough for threads to share a line, as a matrix whose sides
         * are no multiples of anything, and by Bluestein's way. */
        static const int lengths[] = {32768, 35937, 45045, 16411};
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
            for (int kind = QN_FFT_KIND_FFT; kind <= QN_FFT_KIND_IRFFT; kind++)
                check_length(lengths[i], 1, (qn_fft_kind)kind,
                             QN_FFT_NORM_ORTHO, false);
    }
    use_loops(state);
}

/* Lines in each order that memory can have, against the reference. */
static void test_layouts_on_the_cpu_backend(void **state)
{
    int n = 20;
    for (int axis = 0; axis < 3; axis++)
        for (int layout = 0; layout < 4; layout++)
            for (int kind = QN_FFT_KIND_FFT; kind <= QN_FFT_KIND_IRFFT;
                 kind++) {
                int shape[3] = {9, 3, 11};
                shape[axis] = kind == QN_FFT_KIND_IRFFT ? 11 : 20;
                qn_array *x = random_parts(
                    kind == QN_FFT_KIND_RFFT ? QN_FLOAT32 : QN_COMPLEX64, 9,
                    shape, 3);
                if (layout & 1)
                    x = keep(strided(qn_array_ref(x)));
                if (layout & 2) {
                    BUILD(turned, qn_op_flip(&turned, x, &axis, 1, S));
                    check_status(qn_eval(&turned, 1), QN_OK);
                    x = turned;
                }
                BUILD(y, qn_op_fft(&y, (qn_fft_kind)kind, x, &n, 1, &axis, 1,
                                   QN_FFT_NORM_ORTHO, S));
                check_status(qn_eval(&y, 1), QN_OK);
                use_cpu();
                BUILD(z, qn_op_fft(&z, (qn_fft_kind)kind, x, &n, 1, &axis, 1,
                                   QN_FFT_NORM_ORTHO, S));
                check_status(qn_eval(&z, 1), QN_OK);
                use_loops(state);
                for (size_t i = 0; i < y->size; i++) {
                    number a = number_at(y, i), b = number_at(z, i);
                    assert_true(fabsl(a.re - b.re) < 4e-6L);
                    assert_true(fabsl(a.im - b.im) < 4e-6L);
                }
            }
}

/* A line has the bits that it would have alone. */
static void lines_do_not_depend_on_each_other(void)
{
    int n = 60, axis = 1;
    qn_array *x = random_parts(QN_COMPLEX64, 1, SHAPE(9, 60));
    BUILD(all, qn_op_fft(&all, QN_FFT_KIND_FFT, x, &n, 1, &axis, 1,
                         QN_FFT_NORM_BACKWARD, S));
    check_status(qn_eval(&all, 1), QN_OK);
    for (int l = 0; l < 9; l++) {
        BUILD(line, qn_op_slice_axis(&line, x, 0, l, l + 1, S));
        BUILD(one, qn_op_fft(&one, QN_FFT_KIND_FFT, line, &n, 1, &axis, 1,
                             QN_FFT_NORM_BACKWARD, S));
        check_status(qn_eval(&one, 1), QN_OK);
        for (size_t i = 0; i < 60; i++)
            assert_memory_equal(place_of(one, i),
                                place_of(all, (size_t)l * 60 + i), 8);
    }
}

static void test_lines_do_not_depend_on_each_other(void **state)
{
    lines_do_not_depend_on_each_other();
    use_cpu();
    lines_do_not_depend_on_each_other();
    use_loops(state);
}

static void test_several_axes(void **state)
{
    (void)state;
    int n[] = {5, 3}, axes[] = {2, 0};
    qn_array *x = random_parts(QN_COMPLEX64, 2, SHAPE(4, 2, 3));
    BUILD(y, qn_op_fft(&y, QN_FFT_KIND_FFT, x, n, 2, axes, 2,
                       QN_FFT_NORM_BACKWARD, S));
    check_type(y, QN_COMPLEX64, 3, 2, 5);
    check_status(qn_eval(&y, 1), QN_OK);
    /* The first axis is cut to 3, the last filled up to 5. */
    for (size_t a = 0; a < 3; a++)
        for (size_t b = 0; b < 2; b++)
            for (size_t c = 0; c < 5; c++) {
                number columns[3];
                for (size_t i = 0; i < 3; i++) {
                    number row[5] = {{0, 0}};
                    for (size_t j = 0; j < 3; j++)
                        row[j] = number_at(x, (i * 2 + b) * 3 + j);
                    columns[i] = sum_of(row, 5, c, -1);
                }
                number wanted = sum_of(columns, 3, a, -1);
                number found = number_at(y, (a * 2 + b) * 5 + c);
                assert_true(fabsl(found.re - wanted.re) < 3e-6L);
                assert_true(fabsl(found.im - wanted.im) < 3e-6L);
            }
}

static void test_real_transforms_halve_the_last_axis_of_the_list(void **state)
{
    (void)state;
    int n[] = {6, 4}, axes[] = {1, 0};
    qn_array *x = random_parts(QN_FLOAT32, 3, SHAPE(4, 6));
    BUILD(y, qn_op_fft(&y, QN_FFT_KIND_RFFT, x, n, 2, axes, 2,
                       QN_FFT_NORM_ORTHO, S));
    check_type(y, QN_COMPLEX64, 3, 6);
    BUILD(back, qn_op_fft(&back, QN_FFT_KIND_IRFFT, y, n, 2, axes, 2,
                          QN_FFT_NORM_ORTHO, S));
    check_type(back, QN_FLOAT32, 4, 6);
    check_status(qn_eval(&back, 1), QN_OK);
    for (size_t i = 0; i < x->size; i++)
        assert_true(fabs(item(back, i) - item(x, i)) < 1e-6);
}

static void test_types(void **state)
{
    (void)state;
    static const qn_dtype types[] = {QN_BOOL,    QN_INT8,    QN_UINT64,
                                     QN_FLOAT16, QN_FLOAT64, QN_COMPLEX64};
    int n = 2, axis = 0;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        qn_array *x = LINE(types[t], 1, 1);
        BUILD(y, qn_op_fft(&y, QN_FFT_KIND_FFT, x, &n, 1, &axis, 1,
                           QN_FFT_NORM_BACKWARD, S));
        check_type(y, QN_COMPLEX64, 2);
        check_values(y, 2, 0);
        BUILD(half, qn_op_fft(&half, QN_FFT_KIND_RFFT, x, &n, 1, &axis, 1,
                              QN_FFT_NORM_BACKWARD, S));
        check_type(half, QN_COMPLEX64, 2);
        BUILD(real, qn_op_fft(&real, QN_FFT_KIND_IRFFT, x, &n, 1, &axis, 1,
                              QN_FFT_NORM_FORWARD, S));
        check_type(real, QN_FLOAT32, 2);
        check_values(real, 2, 0);
    }
}

static void test_nothing_to_transform(void **state)
{
    (void)state;
    qn_array *x = counted(QN_INT32, SHAPE(2, 3));
    BUILD(same, qn_op_fft(&same, QN_FFT_KIND_RFFT, x, NULL, 0, NULL, 0,
                          QN_FFT_NORM_ORTHO, S));
    assert_ptr_equal(same, x);
    int n = 3, axis = 1;
    BUILD(none,
          qn_op_fft(&none, QN_FFT_KIND_FFT, counted(QN_INT32, SHAPE(0, 4)), &n,
                    1, &axis, 1, QN_FFT_NORM_ORTHO, S));
    check_type(none, QN_COMPLEX64, 0, 3);
    check_status(qn_eval(&none, 1), QN_OK);
    BUILD(zeros,
          qn_op_fft(&zeros, QN_FFT_KIND_FFT, counted(QN_INT32, SHAPE(1, 0)), &n,
                    1, &axis, 1, QN_FFT_NORM_ORTHO, S));
    check_values(zeros, 0, 0, 0);
}

static void test_refusals(void **state)
{
    (void)state;
    qn_array *x = counted(QN_FLOAT32, SHAPE(2, 3));
    int n[] = {3, 0, -1, 2}, axes[] = {1, 0, 2, -3};
#define TRY(kind, nn, naxes, norm, first_n, first_axis)                        \
    qn_op_fft(&refused, kind, x, n + (first_n), nn, axes + (first_axis),       \
              naxes, (qn_fft_norm)(norm), S)
    REFUSE("[fftn]", TRY(QN_FFT_KIND_FFT, 1, 1, 0, 1, 0));
    REFUSE("[ifftn]", TRY(QN_FFT_KIND_IFFT, 1, 1, 0, 2, 0));
    REFUSE("[rfftn]", TRY(QN_FFT_KIND_RFFT, 1, 1, 0, 0, 2));
    REFUSE("[irfftn]", TRY(QN_FFT_KIND_IRFFT, 1, 1, 0, 0, 3));
    REFUSE("One length per axis", TRY(QN_FFT_KIND_FFT, 1, 2, 0, 0, 0));
    REFUSE("One length per axis", TRY(QN_FFT_KIND_FFT, SIZE_MAX, 2, 0, 0, 0));
    REFUSE("normalisation", TRY(QN_FFT_KIND_FFT, 1, 1, 3, 0, 0));
    REFUSE("normalisation", TRY(QN_FFT_KIND_FFT, 1, 1, -1, 0, 0));
#undef TRY
    int twice[] = {1, -1}, both[] = {2, 2};
    REFUSE("[fftn]", qn_op_fft(&refused, QN_FFT_KIND_FFT, x, both, 2, twice, 2,
                               QN_FFT_NORM_ORTHO, S));
    REFUSE("[fftn]",
           qn_op_fft(&refused, QN_FFT_KIND_FFT, scalar_array(QN_FLOAT32, 1),
                     both, 1, twice, 1, QN_FFT_NORM_ORTHO, S));
    REFUSE("[fft]", qn_op_fft_axis(&refused, x, 1, QN_FFT_REAL, 1, 4, S));
    REFUSE("[fft]", qn_op_fft_axis(&refused, x, 1, QN_FFT_FORWARD, 1, 3, S));
    REFUSE("[fft]", qn_op_fft_axis(&refused, x, 2, QN_FFT_REAL, 1, 3, S));
}

static void test_frequencies(void **state)
{
    (void)state;
    BUILD(odd, qn_op_fftfreq(&odd, 5, 0.1, S));
    check_type(odd, QN_FLOAT32, 5);
    check_near(odd, 1e-6, 0, 2, 4, -4, -2);
    BUILD(even, qn_op_fftfreq(&even, 4, 1, S));
    check_values(even, 0, 0.25, -0.5, -0.25);
    BUILD(one, qn_op_fftfreq(&one, 1, 1, S));
    check_values(one, 0);
    BUILD(half, qn_op_rfftfreq(&half, 4, 0.5, S));
    check_values(half, 0, 0.5, 1);
    REFUSE("[fftfreq]", qn_op_fftfreq(&refused, 0, 1, S));
    REFUSE("[fftfreq]", qn_op_fftfreq(&refused, 3, 0, S));
    REFUSE("[rfftfreq]", qn_op_rfftfreq(&refused, -2, 1, S));
}

static void test_shifts(void **state)
{
    (void)state;
    int axes[] = {-1, 0};
    qn_array *x = counted(QN_INT32, SHAPE(2, 3));
    BUILD(y, qn_op_fftshift(&y, x, axes, 2, false, S));
    check_values(y, 5, 3, 4, 2, 0, 1);
    BUILD(back, qn_op_fftshift(&back, y, axes, 2, true, S));
    check_values(back, 0, 1, 2, 3, 4, 5);
    BUILD(same, qn_op_fftshift(&same, x, NULL, 0, false, S));
    check_values(same, 0, 1, 2, 3, 4, 5);
    REFUSE("[fftshift]", qn_op_fftshift(&refused, x, (int[]){2}, 1, false, S));
}

/* Transforms are linear: <y(x), c> is <x, gradient(c)>. */
static void test_gradients_are_adjoint(void **state)
{
    (void)state;
    for (int form = QN_FFT_FORWARD; form <= QN_FFT_TO_REAL; form++)
        for (int n = 1; n < 13; n++)
            for (int axis = 0; axis < 2; axis++) {
                int have = form == QN_FFT_TO_REAL ? n / 2 + 1 : n;
                int shape[] = {axis ? 2 : have, axis ? have : 2};
                qn_dtype in = form == QN_FFT_REAL ? QN_FLOAT32 : QN_COMPLEX64;
                qn_array *x = random_parts(in, 5, shape, 2), *grad[4];
                BUILD(y, qn_op_fft_axis(&y, x, axis, form, 0.7, n, S));
                qn_array *cot = random_parts(y->dtype, 6, y->shape, y->ndim);
                gradients(grad, &y, &cot);
                double left = inner(y, cot), right = inner(grad[0], x);
                assert_true(fabs(left - right) < 1e-5 * (1 + fabs(left)));
            }
}

static void test_batches_and_remakes(void **state)
{
    (void)state;
    for (int form = QN_FFT_FORWARD; form <= QN_FFT_TO_REAL; form++)
        for (int n = 5; n < 7; n++)
            for (int axis = 0; axis < 2; axis++) {
                int have = form == QN_FFT_TO_REAL ? n / 2 + 1 : n;
                int shape[] = {axis ? 2 : have, axis ? have : 2};
                qn_dtype in = form == QN_FFT_REAL ? QN_FLOAT32 : QN_COMPLEX64;
                qn_array *x = random_parts(in, 5, shape, 2);
                BUILD(y, qn_op_fft_axis(&y, x, axis, form, 0.7, n, S));
                check_rules(&y);
            }
}

static qn_array *spare;

static qn_status transform_and_back(void)
{
    int n = spare->shape[0], axis = 0;
    qn_array *y = NULL, *z = NULL;
    qn_status status = qn_op_fft(&y, QN_FFT_KIND_RFFT, spare, &n, 1, &axis, 1,
                                 QN_FFT_NORM_ORTHO, S);
    if (!status)
        status = qn_op_fft(&z, QN_FFT_KIND_IRFFT, y, &n, 1, &axis, 1,
                           QN_FFT_NORM_ORTHO, S);
    if (!status)
        status = qn_eval(&z, 1);
    qn_array_unref(y);
    qn_array_unref(z);
    return status;
}

static void test_each_allocation_may_fail(void **state)
{
    (void)state;
    spare = random_parts(QN_FLOAT32, 7, SHAPE(34));
    each_alloc_may_fail(transform_and_back);
    /* Of lengths that no plan is kept for yet. */
    spare = random_parts(QN_FLOAT32, 7, SHAPE(74));
    use_cpu();
    each_alloc_may_fail(transform_and_back);
    use_loops(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUILD_TEST(test_every_kind_of_length),
        BUILD_TEST(test_many_lines),
        BUILD_TEST(test_on_the_cpu_backend),
        BUILD_TEST(test_layouts_on_the_cpu_backend),
        BUILD_TEST(test_lines_do_not_depend_on_each_other),
        BUILD_TEST(test_several_axes),
        BUILD_TEST(test_real_transforms_halve_the_last_axis_of_the_list),
        BUILD_TEST(test_types),
        BUILD_TEST(test_nothing_to_transform),
        BUILD_TEST(test_refusals),
        BUILD_TEST(test_frequencies),
        BUILD_TEST(test_shifts),
        BUILD_TEST(test_gradients_are_adjoint),
        BUILD_TEST(test_batches_and_remakes),
        BUILD_TEST(test_each_allocation_may_fail),
    };
    return run_build_tests(tests);
}
