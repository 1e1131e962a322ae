/* Convolutions: against the definition in double over random settings,
 * transposed ones, types, edges, refused arguments, gradients, batches. */
#include "support/qn_grad.h"

#include "backend/cpu/cpu.h"

#include <limits.h>

/* ---- the definition ---- */

typedef struct setting {
    int ndim, groups;
    bool flip;
    int stride[3], low[3], high[3], dilation[3], in_dilation[3];
} setting;

static qn_conv_settings settings_of(const setting *s)
{
    size_t n = (size_t)s->ndim;
    return (qn_conv_settings){.stride = {s->stride, n},
                              .low = {s->low, n},
                              .high = {s->high, n},
                              .dilation = {s->dilation, n},
                              .in_dilation = {s->in_dilation, n},
                              .groups = s->groups,
                              .flip = s->flip};
}

/* Element of x at image, a place in the spread and bordered input, channel. */
static double input_at(const setting *s, const qn_array *x, int image,
                       const int *place, int channel)
{
    size_t at = (size_t)image;
    for (int i = 0; i < s->ndim; i++) {
        int p = place[i];
        if (p < 0 || p % s->in_dilation[i] ||
            p / s->in_dilation[i] >= x->shape[i + 1])
            return 0;
        at = at * (size_t)x->shape[i + 1] + (size_t)(p / s->in_dilation[i]);
    }
    return item(x, at * (size_t)x->shape[x->ndim - 1] + (size_t)channel);
}

/* Splits a number into an index over `shape`. */
static void index_of(int *index, size_t number, const int *shape, int ndim)
{
    for (int i = ndim - 1; i >= 0; i--) {
        index[i] = (int)(number % (size_t)shape[i]);
        number /= (size_t)shape[i];
    }
}

/* Output element number i, and the size of its terms. */
static double slow_element(const setting *s, const qn_array *x,
                           const qn_array *w, const qn_array *y, size_t i,
                           double *size)
{
    int at[5], out = w->shape[0], per_group = w->shape[w->ndim - 1];
    size_t taps = 1;
    double sum = 0;
    index_of(at, i, y->shape, y->ndim);
    int channel = at[y->ndim - 1];
    int first = channel / (out / s->groups) * per_group;
    for (int k = 0; k < s->ndim; k++)
        taps *= (size_t)w->shape[k + 1];
    *size = 0;
    for (size_t t = 0; t < taps; t++) {
        int tap[3], place[3];
        index_of(tap, t, w->shape + 1, s->ndim);
        size_t from = (size_t)channel;
        for (int k = 0; k < s->ndim; k++) {
            place[k] =
                at[k + 1] * s->stride[k] + tap[k] * s->dilation[k] - s->low[k];
            from = from * (size_t)w->shape[k + 1] +
                   (size_t)(s->flip ? w->shape[k + 1] - 1 - tap[k] : tap[k]);
        }
        for (int c = 0; c < per_group; c++) {
            double term = input_at(s, x, at[0], place, first + c) *
                          item(w, from * (size_t)per_group + (size_t)c);
            sum += term;
            *size += fabs(term);
        }
    }
    return sum;
}

static double eps_of(qn_dtype dtype)
{
    return dtype == QN_FLOAT64   ? 0x1p-50
           : dtype == QN_FLOAT32 ? 0x1p-22
           : dtype == QN_FLOAT16 ? 0x1p-10
                                 : 0x1p-7;
}

static void check_conv(const setting *s, const qn_array *x, const qn_array *w,
                       qn_array *y)
{
    check_status(qn_eval(&y, 1), QN_OK);
    for (size_t i = 0; i < y->size; i++) {
        double size, wanted = slow_element(s, x, w, y, i, &size);
        double within = eps_of(y->dtype) * fabs(wanted) +
                        (y->dtype == QN_FLOAT64 ? 0x1p-48 : 0x1p-21) * size;
        if (fabs(item(y, i) - wanted) <= within)
            continue;
        print_error("element %zu: expected %.9g, found %.9g\n", i, wanted,
                    item(y, i));
        fail();
    }
}

static int pick(uint64_t *seed, int low, int high)
{
    double share = (test_random(seed) + 1) / 2;
    return low + (int)(share * (high - low + 1));
}

/* A setting, operands, and whether the kernel fits. */
static bool random_setting(setting *s, uint64_t *seed, int *x, int *w)
{
    bool fits = true;
    s->ndim = pick(seed, 1, 3);
    s->groups = pick(seed, 1, 3);
    s->flip = pick(seed, 0, 1);
    x[0] = pick(seed, 1, 2);
    for (int i = 0; i < s->ndim; i++) {
        x[i + 1] = pick(seed, 1, 6);
        w[i + 1] = pick(seed, 1, 3);
        s->stride[i] = pick(seed, 1, 3);
        s->dilation[i] = pick(seed, 1, 2);
        s->in_dilation[i] = pick(seed, 1, 2);
        s->low[i] = pick(seed, -1, 3);
        s->high[i] = pick(seed, -1, 3);
        int covers = (w[i + 1] - 1) * s->dilation[i] + 1;
        int length = (x[i + 1] - 1) * s->in_dilation[i] + 1;
        fits = fits && length + s->low[i] + s->high[i] >= covers;
    }
    int channels = pick(seed, 1, 4);
    x[s->ndim + 1] = channels * s->groups;
    w[s->ndim + 1] = channels;
    w[0] = s->groups * pick(seed, 1, 3);
    return fits;
}

static const qn_dtype types[] = {QN_FLOAT32, QN_FLOAT64, QN_FLOAT16,
                                 QN_BFLOAT16};

/* 300 settings; every second input and third weight lies in other order. */
static void random_settings(void)
{
    uint64_t seed = 1;
    for (int round = 0; round < 300; round++) {
        setting s;
        int xs[5], ws[5];
        bool fits = random_setting(&s, &seed, xs, ws);
        qn_dtype type = types[round % 4];
        qn_array *x = random_array(type, 1, seed, xs, s.ndim + 2);
        qn_array *w = random_array(type, 1, seed + 1, ws, s.ndim + 2);
        x = keep(round % 2 ? strided(x) : x);
        w = keep(round % 3 ? w : strided(w));
        qn_conv_settings settings = settings_of(&s);
        qn_array *y = NULL;
        qn_status status = qn_op_conv(&y, x, w, &settings, S);
        check_status(status, fits ? QN_OK : QN_E_ARG);
        if (!fits)
            continue;
        keep(y);
        assert_int_equal(y->dtype, type);
        for (int i = 0; i < s.ndim; i++)
            assert_int_equal(y->shape[i + 1],
                             ((xs[i + 1] - 1) * s.in_dilation[i] + 1 +
                              s.low[i] + s.high[i] -
                              (ws[i + 1] - 1) * s.dilation[i] - 1) /
                                     s.stride[i] +
                                 1);
        check_conv(&s, x, w, y);
    }
}

static void test_random_settings(void **state)
{
    (void)state;
    random_settings();
}

/* Larger ones, as layers have them. */
static void layers(void)
{
    static const struct {
        int x[4], w[4], stride, padding, groups;
    } cases[] = {
        {{2, 14, 15, 16}, {32, 3, 3, 16}, 1, 1, 1},
        {{1, 9, 9, 64}, {16, 1, 1, 64}, 1, 0, 1},
        {{1, 9, 9, 8}, {16, 1, 1, 8}, 2, 0, 1},
        {{3, 16, 16, 3}, {8, 7, 7, 3}, 2, 3, 1},
        {{1, 12, 12, 32}, {32, 3, 3, 1}, 1, 1, 32},
        {{1, 12, 12, 32}, {64, 3, 3, 1}, 1, 1, 32},
        {{2, 8, 8, 24}, {12, 3, 3, 8}, 1, 0, 3},
        {{1, 40, 1, 20}, {20, 4, 1, 1}, 1, 3, 20},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int t = 0; t < 4; t++) {
            setting s = {.ndim = 2, .groups = cases[i].groups};
            for (int k = 0; k < 2; k++) {
                s.stride[k] = cases[i].stride;
                s.low[k] = s.high[k] = cases[i].padding;
                s.dilation[k] = s.in_dilation[k] = 1;
            }
            qn_array *x = keep(random_array(types[t], 1, i, cases[i].x, 4));
            qn_array *w = keep(random_array(types[t], 1, i + 9, cases[i].w, 4));
            qn_conv_settings settings = settings_of(&s);
            BUILD(y, qn_op_conv(&y, x, w, &settings, S));
            check_conv(&s, x, w, y);
        }
}

static void test_layers(void **state)
{
    (void)state;
    layers();
}

/* The CPU backend's ways. */
static void test_on_the_cpu_backend(void **state)
{
    qn_backend_register(QN_DEVICE_CPU, qn_backend_cpu());
    random_settings();
    layers();
    use_reference(state);
}

/* A transposed convolution is the gradient of a plain one by its input:
 * <conv(x), c> is <x, transposed(c)>, with the weight's channels exchanged. */
static void test_transposed(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int round = 0; round < 60; round++) {
        int stride = pick(&seed, 1, 3), padding = pick(&seed, 0, 3);
        int dilation = pick(&seed, 1, 2), taps = pick(&seed, 1, 4);
        int length = pick(&seed, 1, 9), covers = (taps - 1) * dilation + 1;
        if (length + 2 * padding < covers)
            continue;
        int out = (length + 2 * padding - covers) / stride + 1;
        int more = length + 2 * padding - covers - (out - 1) * stride;
        qn_conv_settings s = {.stride = {&stride, 1},
                              .low = {&padding, 1},
                              .high = {&padding, 1},
                              .dilation = {&dilation, 1},
                              .groups = 1};
        qn_array *x = random_parts(QN_FLOAT64, seed, SHAPE(2, length, 3));
        qn_array *w = random_parts(QN_FLOAT64, seed + 1, SHAPE(4, taps, 3));
        qn_array *c = random_parts(QN_FLOAT64, seed + 2, SHAPE(2, out, 4));
        BUILD(y, qn_op_conv(&y, x, w, &s, S));
        BUILD(turned, qn_op_swapaxes(&turned, w, 0, 2, S));
        BUILD(z, qn_op_conv_transpose(&z, c, turned, &s,
                                      (qn_conv_list){&more, 1}, S));
        check_type(z, QN_FLOAT64, 2, length, 3);
        assert_true(fabs(inner(y, c) - inner(z, x)) < 1e-10);
    }
}

static void test_transposed_by_hand(void **state)
{
    (void)state;
    qn_array *x = keep(array_of(QN_FLOAT32, VALUES(1, 2, 3), SHAPE(1, 3, 1)));
    qn_array *w = keep(array_of(QN_FLOAT32, VALUES(1, 10), SHAPE(1, 2, 1)));
    int two = 2, one = 1, five = 5;
    qn_conv_settings s = {.stride = {&two, 1}, .groups = 1};
    qn_conv_list none = {NULL, 0};
    BUILD(y, qn_op_conv_transpose(&y, x, w, &s, none, S));
    check_values(y, 1, 10, 2, 20, 3, 30);
    s.low = (qn_conv_list){&one, 1};
    BUILD(cut, qn_op_conv_transpose(&cut, x, w, &s, none, S));
    check_values(cut, 10, 2, 20, 3);
    BUILD(more,
          qn_op_conv_transpose(&more, x, w, &s, (qn_conv_list){&one, 1}, S));
    check_values(more, 10, 2, 20, 3, 30);
    s.low = (qn_conv_list){&five, 1};
    REFUSE("[conv]", qn_op_conv_transpose(&refused, x, w, &s, none, S));
    /* Padding beyond the kernel takes the result's ends away. */
    s.low = (qn_conv_list){&two, 1};
    BUILD(short_one, qn_op_conv_transpose(&short_one, x, w, &s, none, S));
    check_values(short_one, 2, 20);
}

static void test_types_meet(void **state)
{
    (void)state;
    qn_array *x = counted(QN_FLOAT16, SHAPE(1, 3, 1));
    qn_array *w = counted(QN_BFLOAT16, SHAPE(1, 2, 1));
    qn_array *whole = counted(QN_INT8, SHAPE(1, 2, 1));
    qn_conv_settings s = {.groups = 1};
    BUILD(y, qn_op_conv(&y, x, w, &s, S));
    check_type(y, QN_FLOAT32, 1, 2, 1);
    check_values(y, 1, 2);
    BUILD(z, qn_op_conv(&z, x, whole, &s, S));
    check_type(z, QN_FLOAT16, 1, 2, 1);
    REFUSE("Floating", qn_op_conv(&refused, whole, whole, &s, S));
    REFUSE("Floating", qn_op_conv(&refused, whole, w, &s, S));
    REFUSE(
        "Floating",
        qn_op_conv(&refused, counted(QN_COMPLEX64, SHAPE(1, 2, 1)), w, &s, S));
}

static void test_nothing(void **state)
{
    (void)state;
    int one = 1;
    qn_conv_settings s = {.low = {&one, 1}, .high = {&one, 1}, .groups = 1};
    qn_array *w = counted(QN_FLOAT32, SHAPE(2, 2, 3));
    BUILD(none,
          qn_op_conv(&none, counted(QN_FLOAT32, SHAPE(0, 4, 3)), w, &s, S));
    check_type(none, QN_FLOAT32, 0, 5, 2);
    check_status(qn_eval(&none, 1), QN_OK);
    BUILD(border,
          qn_op_conv(&border, counted(QN_FLOAT32, SHAPE(1, 0, 3)), w, &s, S));
    check_values(border, 0, 0);
    BUILD(blind, qn_op_conv(&blind, counted(QN_FLOAT32, SHAPE(1, 1, 0)),
                            counted(QN_FLOAT32, SHAPE(1, 3, 0)), &s, S));
    check_values(blind, 0);
    BUILD(mute, qn_op_conv(&mute, counted(QN_FLOAT32, SHAPE(1, 4, 3)),
                           counted(QN_FLOAT32, SHAPE(0, 2, 3)), &s, S));
    check_type(mute, QN_FLOAT32, 1, 5, 0);
    check_status(qn_eval(&mute, 1), QN_OK);
}

static void test_refusals(void **state)
{
    (void)state;
    qn_array *x = counted(QN_FLOAT32, SHAPE(1, 5, 4));
    qn_array *w = counted(QN_FLOAT32, SHAPE(2, 2, 4)), *bad;
    int zero = 0, minus = -1, largest = INT_MAX, many[] = {1, 1};
    qn_conv_settings plain = {.groups = 1}, s = plain;
#define TRY(field, ...)                                                        \
    s = plain;                                                                 \
    s.field = __VA_ARGS__;                                                     \
    REFUSE("[conv]", qn_op_conv(&refused, x, w, &s, S))
    TRY(groups, 0);
    TRY(groups, -1);
    TRY(groups, 3);
    TRY(groups, 2);
    TRY(stride, (qn_conv_list){&zero, 1});
    TRY(stride, (qn_conv_list){many, 2});
    TRY(stride, (qn_conv_list){many, SIZE_MAX});
    TRY(dilation, (qn_conv_list){&minus, 1});
    TRY(dilation, (qn_conv_list){&largest, 1});
    TRY(in_dilation, (qn_conv_list){&zero, 1});
    TRY(in_dilation, (qn_conv_list){&largest, 1});
    TRY(low, (qn_conv_list){&(int){INT_MIN}, 1});
    TRY(low, (qn_conv_list){&(int){-5}, 1});
#undef TRY
    s = plain;
    s.low = s.high = (qn_conv_list){&largest, 1};
    REFUSE("[conv]", qn_op_conv(&refused, x, w, &s, S));
    bad = counted(QN_FLOAT32, SHAPE(2, 2, 3));
    REFUSE("channels", qn_op_conv(&refused, x, bad, &plain, S));
    bad = counted(QN_FLOAT32, SHAPE(2, 2, 2, 4));
    REFUSE("[conv]", qn_op_conv(&refused, x, bad, &plain, S));
    bad = counted(QN_FLOAT32, SHAPE(2, 6, 4));
    REFUSE("fewer", qn_op_conv(&refused, x, bad, &plain, S));
    bad = counted(QN_FLOAT32, SHAPE(2, 0, 4));
    REFUSE("kernel", qn_op_conv(&refused, x, bad, &plain, S));
    bad = counted(QN_FLOAT32, SHAPE(5, 4));
    REFUSE("[conv]", qn_op_conv(&refused, bad, bad, &plain, S));
    REFUSE("[conv]", qn_op_conv(&refused, scalar_array(QN_FLOAT32, 1),
                                scalar_array(QN_FLOAT32, 1), &plain, S));
    qn_conv_list none = {NULL, 0}, most = {&largest, 1};
    s = plain;
    s.low = (qn_conv_list){&(int){-INT_MAX}, 1};
    REFUSE("[conv]", qn_op_conv_transpose(&refused, x, w, &s, most, S));
    s = plain;
    s.stride = (qn_conv_list){&zero, 1};
    REFUSE("[conv]", qn_op_conv_transpose(&refused, x, w, &s, none, S));
}

/* Convolutions are linear in either operand. */
static void test_gradients_are_adjoint(void **state)
{
    (void)state;
    uint64_t seed = 7;
    for (int round = 0; round < 150; round++) {
        setting s;
        int xs[5], ws[5];
        if (!random_setting(&s, &seed, xs, ws))
            continue;
        qn_array *x = random_parts(QN_FLOAT64, seed, xs, s.ndim + 2);
        qn_array *w = random_parts(QN_FLOAT64, seed + 1, ws, s.ndim + 2);
        qn_conv_settings settings = settings_of(&s);
        BUILD(y, qn_op_conv(&y, x, w, &settings, S));
        qn_array *cot = random_parts(QN_FLOAT64, seed + 2, y->shape, y->ndim);
        qn_array *grad[4];
        gradients(grad, &y, &cot);
        double sum = inner(y, cot);
        assert_true(fabs(inner(grad[0], x) - sum) < 1e-9);
        assert_true(fabs(inner(grad[1], w) - sum) < 1e-9);
    }
}

static void test_batches_and_remakes(void **state)
{
    (void)state;
    uint64_t seed = 17;
    for (int round = 0; round < 40; round++) {
        setting s;
        int xs[5], ws[5];
        if (!random_setting(&s, &seed, xs, ws))
            continue;
        qn_array *x = random_parts(QN_FLOAT32, seed, xs, s.ndim + 2);
        qn_array *w = random_parts(QN_FLOAT32, seed + 1, ws, s.ndim + 2);
        qn_conv_settings settings = settings_of(&s);
        BUILD(y, qn_op_conv(&y, x, w, &settings, S));
        check_rules(&y);
    }
}

static qn_array *image, *kernel;
static int groups;

static qn_status convolve(void)
{
    int one = 1;
    qn_conv_settings s = {
        .low = {&one, 1}, .high = {&one, 1}, .groups = groups};
    qn_array *y = NULL;
    qn_status status = qn_op_conv(&y, image, kernel, &s, S);
    if (!status)
        status = qn_eval(&y, 1);
    qn_array_unref(y);
    return status;
}

static void test_each_allocation_may_fail(void **state)
{
    image = random_parts(QN_FLOAT16, 1, SHAPE(1, 6, 7, 4));
    for (int cpu = 0; cpu < 2; cpu++) {
        if (cpu)
            qn_backend_register(QN_DEVICE_CPU, qn_backend_cpu());
        for (groups = 1; groups <= 4; groups *= 4) {
            kernel = random_parts(QN_FLOAT16, 2, SHAPE(8, 3, 3, 4 / groups));
            each_alloc_may_fail(convolve);
        }
    }
    use_reference(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUILD_TEST(test_random_settings),
        BUILD_TEST(test_layers),
        BUILD_TEST(test_on_the_cpu_backend),
        BUILD_TEST(test_transposed),
        BUILD_TEST(test_transposed_by_hand),
        BUILD_TEST(test_types_meet),
        BUILD_TEST(test_nothing),
        BUILD_TEST(test_refusals),
        BUILD_TEST(test_gradients_are_adjoint),
        BUILD_TEST(test_batches_and_remakes),
        BUILD_TEST(test_each_allocation_may_fail),
    };
    return run_build_tests(tests);
}
