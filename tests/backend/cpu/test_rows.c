/* Operations along the last axis: each kernel against double arithmetic, and
 * nodes against the reference over types, shapes and layouts. */
#include "support/qn_cpu_test.h"

#include "backend/cpu/kernels/rows/rows.h"
#include "base/f16.h"

enum { LONGEST = 300 };

static void fill(float *x, size_t n, double scale, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(scale * test_random(&seed));
}

static void each_kernel(void (*check)(const qn_rows_kernel *kernel))
{
    int tested = 0;
    bool picked = false;
    for (int isa = QN_ISA_NONE; isa < QN_ISA_COUNT; isa++) {
        const qn_rows_kernel *kernel = qn_rows_at((qn_isa)isa);
        if (kernel)
            check(kernel);
        tested += kernel != NULL;
        picked |= kernel == qn_rows_pick();
    }
    assert_true(tested >= 1);
    /* The one in use is among them. */
    assert_true(picked);
}

static void check_close(const float *found, const double *expected, size_t n,
                        double bound)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)found[i] - expected[i]) <= bound)) {
            print_error("%zu of %zu: expected %.9g, found %.9g\n", i, n,
                        expected[i], (double)found[i]);
            fail();
        }
}

static void check_norms(const qn_rows_kernel *kernel)
{
    float x[LONGEST], weight[LONGEST], bias[LONGEST], y[LONGEST];
    double expected[LONGEST];
    for (size_t n = 1; n <= LONGEST; n += 1 + n / 4)
        for (int has = 0; has < 4; has++) {
            fill(x, n, 3, n);
            fill(weight, n, 2, n + 1);
            fill(bias, n, 1, n + 2);
            double square = 0, mean = 0, spread = 0;
            for (size_t i = 0; i < n; i++) {
                square += (double)x[i] * (double)x[i] / (double)n;
                mean += (double)x[i] / (double)n;
            }
            for (size_t i = 0; i < n; i++)
                spread +=
                    ((double)x[i] - mean) * ((double)x[i] - mean) / (double)n;
            for (size_t i = 0; i < n; i++)
                expected[i] = (double)x[i] / sqrt(square + 1e-5) *
                              (has & 1 ? (double)weight[i] : 1);
            kernel->rms_norm(y, x, n, 1e-5f, has & 1 ? weight : NULL);
            check_close(y, expected, n, 8e-6);
            for (size_t i = 0; i < n; i++)
                expected[i] = ((double)x[i] - mean) / sqrt(spread + 1e-5) *
                                  (has & 1 ? (double)weight[i] : 1) +
                              (has & 2 ? (double)bias[i] : 0);
            kernel->layer_norm(y, x, n, 1e-5f, has & 1 ? weight : NULL,
                               has & 2 ? bias : NULL);
            /* One element: the spread is 0 and only rounding is scaled. */
            check_close(y, expected, n, n == 1 ? 1e-3 : 2e-5);
            /* In place. */
            float again[LONGEST];
            memcpy(again, x, sizeof again);
            kernel->layer_norm(again, again, n, 1e-5f, has & 1 ? weight : NULL,
                               has & 2 ? bias : NULL);
            assert_memory_equal(again, y, n * sizeof *y);
        }
}

static void test_norms_are_exact(void **state)
{
    (void)state;
    each_kernel(check_norms);
}

static void check_softmax(const qn_rows_kernel *kernel)
{
    float x[LONGEST], y[LONGEST];
    double expected[LONGEST];
    for (size_t n = 1; n <= LONGEST; n += 1 + n / 4) {
        fill(x, n, 20, n);
        double top = -INFINITY, sum = 0;
        for (size_t i = 0; i < n; i++)
            top = fmax(top, (double)x[i]);
        for (size_t i = 0; i < n; i++)
            sum += expected[i] = exp((double)x[i] - top);
        assert_true(fabs((double)kernel->exp_sum(x, n, (float)top) - sum) <=
                    1e-6 * sum);
        for (size_t i = 0; i < n; i++)
            expected[i] /= sum;
        kernel->softmax(y, x, n);
        check_close(y, expected, n, 1e-6);
    }
    float row[3] = {-INFINITY, 1, -INFINITY};
    kernel->softmax(row, row, 3);
    assert_true(row[0] == 0 && row[1] == 1 && row[2] == 0);
    float hidden[2] = {-INFINITY, -INFINITY};
    kernel->softmax(hidden, hidden, 2);
    assert_true(isnan(hidden[0]) && isnan(hidden[1]));
}

static void test_softmax_is_exact(void **state)
{
    (void)state;
    each_kernel(check_softmax);
}

/* The extreme element at every place, and a NaN at every place. */
static void check_extremes(const qn_rows_kernel *kernel)
{
    float x[LONGEST];
    for (size_t n = 1; n <= LONGEST; n += 1 + n / 3)
        for (size_t at = 0; at < n; at++) {
            fill(x, n, 1, n);
            x[at] = 2;
            assert_true(kernel->extreme(x, n, true) == 2);
            assert_int_equal(kernel->find(x, n, 2), at);
            x[at] = -2;
            assert_true(kernel->extreme(x, n, false) == -2);
            assert_int_equal(kernel->find(x, n, -2), at);
            assert_int_equal(kernel->find(x, n, 5), n);
            x[at] = NAN;
            x[n - 1 - at] = at % 2 ? INFINITY : NAN;
            if (isnan(x[at])) {
                assert_true(isnan(kernel->extreme(x, n, true)));
                assert_true(isnan(kernel->extreme(x, n, false)));
                assert_true(isnan(x[kernel->find(x, n, NAN)]));
            }
        }
    float hidden[5] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY};
    assert_true(kernel->extreme(hidden, 5, true) == -INFINITY);
    assert_int_equal(kernel->find(hidden, 5, -INFINITY), 0);
}

static void test_extremes_and_their_places(void **state)
{
    (void)state;
    each_kernel(check_extremes);
}

static void check_angles(const qn_rows_kernel *kernel)
{
    enum { HALF = 37 };
    float turn[HALF], c[HALF], s[HALF];
    static const float positions[] = {0,    1,      -5,      37,    4096,
                                      1e5f, 131072, 1000003, -1e6f, 3e10f};
    for (int i = 0; i < HALF; i++)
        turn[i] = expf(-(float)i * 0.25f);
    for (size_t p = 0; p < sizeof positions / sizeof *positions; p++) {
        kernel->angles(c, s, positions[p], turn, HALF);
        for (int i = 0; i < HALF; i++) {
            double angle = (double)(positions[p] * turn[i]);
            assert_true(fabs((double)c[i] - cos(angle)) <= 1.2e-7);
            assert_true(fabs((double)s[i] - sin(angle)) <= 1.2e-7);
        }
    }
    /* Every quarter of the circle and its borders. */
    for (int i = -2000; i < 2000; i++) {
        float position = (float)i * 0.0078539f, one = 1;
        kernel->angles(c, s, position, &one, 1);
        assert_true(fabs((double)*c - cos((double)position)) <= 1.2e-7);
        assert_true(fabs((double)*s - sin((double)position)) <= 1.2e-7);
    }
    kernel->angles(c, s, INFINITY, turn, 1);
    assert_true(isnan(*c) && isnan(*s));
}

static void test_angles_are_exact(void **state)
{
    (void)state;
    each_kernel(check_angles);
}

static void check_rotation(const qn_rows_kernel *kernel)
{
    enum { MOST = 40 };
    float x[2 * MOST], y[2 * MOST], c[MOST], s[MOST];
    for (size_t half = 1; half <= MOST; half += 3)
        for (int neighbours = 0; neighbours < 2; neighbours++) {
            fill(x, 2 * half, 2, half);
            fill(c, half, 1, half + 1);
            fill(s, half, 1, half + 2);
            kernel->rotate(y, x, c, s, half, neighbours);
            for (size_t i = 0; i < half; i++) {
                size_t first = neighbours ? 2 * i : i;
                size_t second = neighbours ? 2 * i + 1 : i + half;
                assert_true(y[first] == x[first] * c[i] - x[second] * s[i]);
                assert_true(y[second] == x[first] * s[i] + x[second] * c[i]);
            }
            kernel->rotate(x, x, c, s, half, neighbours);
            assert_memory_equal(x, y, 2 * half * sizeof *x);
        }
}

static void test_rotation(void **state)
{
    (void)state;
    each_kernel(check_rotation);
}

/* ---- nodes ---- */

static qn_array *softmax_node(qn_array *x)
{
    return apply(QN_OP_SOFTMAX, NULL, 0, x->dtype, x->shape, x->ndim,
                 INPUTS(x));
}

static qn_array *logsumexp_node(qn_array *x)
{
    int shape[QN_MAX_NDIM];
    memcpy(shape, x->shape, (size_t)x->ndim * sizeof *shape);
    shape[x->ndim - 1] = 1;
    return apply(QN_OP_LOGSUMEXP, NULL, 0, x->dtype, shape, x->ndim, INPUTS(x));
}

static qn_array *argmax_node(qn_array *x, bool max)
{
    qn_arg_reduce_params p;
    memset(&p, 0, sizeof p);
    p.axis = x->ndim - 1;
    p.max = max;
    return apply(QN_OP_ARG_REDUCE, &p, sizeof p, QN_UINT32, x->shape,
                 x->ndim - 1, INPUTS(x));
}

static qn_array *norm_node(qn_array *x, qn_array *weight, qn_array *bias,
                           bool rms)
{
    qn_norm_params p;
    memset(&p, 0, sizeof p);
    p.eps = 1e-5f;
    p.has_weight = weight != NULL;
    p.has_bias = bias != NULL;
    qn_array *inputs[3] = {x};
    int n = 1;
    if (weight)
        inputs[n++] = weight;
    if (bias)
        inputs[n++] = bias;
    return apply(rms ? QN_OP_RMS_NORM : QN_OP_LAYER_NORM, &p, sizeof p,
                 x->dtype, x->shape, x->ndim, n, inputs);
}

/* Rows of x that lie apart, and in another order of the axes. */
static qn_array *rows_apart(const qn_array *x)
{
    int last = x->shape[x->ndim - 1];
    qn_array *room =
        array_of(x->dtype, NULL, SHAPE(x->shape[0] * x->shape[1] * (last + 3)));
    int64_t strides[3] = {last + 3, (int64_t)x->shape[0] * (last + 3), 1};
    qn_array *view = view_of(room, x->shape, 3, strides, 0);
    for (size_t i = 0; i < x->size; i++)
        memcpy(place_of(view, i), place_of(x, i), qn_array_itemsize(x));
    qn_array_unref(room);
    return view;
}

typedef qn_array *(*node_fn)(qn_array *x, qn_array *vectors[2]);

static qn_array *do_softmax(qn_array *x, qn_array *v[2])
{
    (void)v;
    return softmax_node(x);
}
static qn_array *do_logsumexp(qn_array *x, qn_array *v[2])
{
    (void)v;
    return logsumexp_node(x);
}
static qn_array *do_argmax(qn_array *x, qn_array *v[2])
{
    (void)v;
    return argmax_node(x, true);
}
static qn_array *do_argmin(qn_array *x, qn_array *v[2])
{
    (void)v;
    return argmax_node(x, false);
}
static qn_array *do_rms(qn_array *x, qn_array *v[2])
{
    return norm_node(x, v[0], NULL, true);
}
static qn_array *do_plain_rms(qn_array *x, qn_array *v[2])
{
    (void)v;
    return norm_node(x, NULL, NULL, true);
}
static qn_array *do_layer_norm(qn_array *x, qn_array *v[2])
{
    return norm_node(x, v[0], v[1], false);
}

static const node_fn node_fns[] = {do_softmax,   do_logsumexp, do_argmax,
                                   do_argmin,    do_rms,       do_plain_rms,
                                   do_layer_norm};
enum { NODE_FNS = sizeof node_fns / sizeof *node_fns };

/* Against the reference; and rows that lie elsewhere, rows alone and other
 * numbers of threads give the same bits. */
static void check_node(node_fn node, qn_array *x, qn_array *vectors[2])
{
    use_reference();
    qn_array *expected = node(x, vectors);
    use_fast();
    qn_array *found = node(x, vectors);
    bool exact = x->dtype == QN_FLOAT32;
    double bound = exact ? 2e-5 : 8 * 2 * half_ulp(x->dtype);
    if (expected->dtype == QN_UINT32)
        bound = 0;
    assert_true(largest_difference(found, expected) <= bound);
    qn_array *apart = rows_apart(x), *elsewhere = node(apart, vectors);
    assert_true(same_bits(found, elsewhere));
    qn_array_unref(apart);
    qn_array_unref(elsewhere);
    int last = x->shape[2];
    for (int i = 0; i < x->shape[0] * x->shape[1]; i += 2) {
        qn_array *row =
            view_of(x, SHAPE(1, 1, last), x->strides, (size_t)i * (size_t)last);
        qn_array *alone = node(row, vectors);
        size_t item_size = qn_array_itemsize(alone);
        for (size_t k = 0; k < alone->size; k++)
            assert_memory_equal(place_of(alone, k),
                                place_of(found, (size_t)i * alone->size + k),
                                item_size);
        qn_array_unref(row);
        qn_array_unref(alone);
    }
    for (int t = 0; t < THREAD_COUNTS; t++) {
        qn_pool_set_threads(thread_counts[t]);
        qn_array *again = node(x, vectors);
        assert_true(same_bits(again, found));
        qn_array_unref(again);
    }
    qn_pool_set_threads(0);
    qn_array_unref(found);
    qn_array_unref(expected);
}

static void test_nodes(void **state)
{
    (void)state;
    static const int shapes[][3] = {{1, 1, 1},    {2, 3, 64},    {3, 1, 576},
                                    {2, 2, 4097}, {1, 2, 50001}, {40, 5, 100}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int t = 0; t < FLOAT_TYPES; t++) {
            qn_array *x = random_array(float_types[t], 3, s, shapes[s], 3);
            qn_array *vectors[2];
            for (int i = 0; i < 2; i++)
                vectors[i] = random_array(float_types[t], 1, 50 + s,
                                          SHAPE(shapes[s][2]));
            for (int f = 0; f < NODE_FNS; f++)
                check_node(node_fns[f], x, vectors);
            qn_array_unref(x);
            qn_array_unref(vectors[0]);
            qn_array_unref(vectors[1]);
        }
}

/* Ties, NaN and infinities, also at the borders of blocks. */
static void test_special_rows(void **state)
{
    (void)state;
    static const double specials[] = {NAN, INFINITY, -INFINITY, 7, -7, -0.0};
    static const size_t places[] = {0, 1, 63, 4095, 4096, 8191, 9000};
    for (size_t a = 0; a < 7; a++)
        for (size_t b = 0; b < 7; b++)
            for (size_t v = 0; v < 36; v++) {
                qn_array *x = array_of(QN_FLOAT32, NULL, SHAPE(1, 9001));
                element_put(place_of(x, places[a]), QN_FLOAT32,
                            specials[v / 6]);
                element_put(place_of(x, places[b]), QN_FLOAT32,
                            specials[v % 6]);
                for (int f = 1; f < 4; f++) { /* logsumexp, argmax, argmin */
                    use_reference();
                    qn_array *expected = node_fns[f](x, NULL);
                    use_fast();
                    qn_array *found = node_fns[f](x, NULL);
                    assert_true(largest_difference(found, expected) <=
                                (f == 1 ? 1e-5 : 0));
                    qn_array_unref(found);
                    qn_array_unref(expected);
                }
                qn_array_unref(x);
            }
    qn_array *x = array_of(QN_FLOAT32, NULL, SHAPE(2, 5000));
    for (size_t i = 0; i < x->size; i++)
        element_put(place_of(x, i), QN_FLOAT32, -INFINITY);
    use_fast();
    check_items(logsumexp_node(x), -INFINITY, -INFINITY);
    check_items(argmax_node(x, true), 0, 0);
    qn_array_unref(x);
}

/* ---- rotary embedding ---- */

typedef struct rope {
    qn_rope_params p;
    qn_array *offsets, *freqs;
} rope;

static qn_array *rope_node(const rope *r, qn_array *x)
{
    qn_array *inputs[3] = {x};
    int n = 1;
    if (r->offsets)
        inputs[n++] = r->offsets;
    if (r->freqs)
        inputs[n++] = r->freqs;
    return apply(QN_OP_ROPE, &r->p, sizeof r->p, x->dtype, x->shape, x->ndim, n,
                 inputs);
}

static rope rope_of(int dims, int offset)
{
    rope r;
    memset(&r, 0, sizeof r);
    r.p.dims = dims;
    r.p.base = 10000;
    r.p.scale = 1;
    r.p.offset = offset;
    return r;
}

static void test_rope_agrees_with_the_reference(void **state)
{
    (void)state;
    static const int offsets[] = {0, 37, -5, 4096, 100000};
    for (int variant = 0; variant < 5 * 2 * 2 * 2 * FLOAT_TYPES; variant++) {
        int v = variant;
        rope r = rope_of(variant % 3 ? 32 : 20, offsets[v % 5]);
        v /= 5;
        r.p.traditional = v % 2;
        v /= 2;
        if (v % 2)
            r.freqs = random_array(QN_FLOAT32, 100, 3, SHAPE(r.p.dims / 2));
        r.p.has_freqs = r.freqs != NULL;
        v /= 2;
        bool apart = v % 2;
        qn_dtype type = float_types[v / 2];
        int shape[] = {2, 3, 5, 32};
        qn_array *x = random_array(type, 1, (uint64_t)variant, shape, 4);
        if (apart) { /* [B, T, H, D] seen as [B, H, T, D] */
            int64_t strides[] = {3 * 5 * 32, 32, 3 * 32, 1};
            qn_array *view = view_of(x, shape, 4, strides, 0);
            qn_array_unref(x);
            x = view;
        }
        use_reference();
        qn_array *expected = rope_node(&r, x);
        use_fast();
        qn_array *found = rope_node(&r, x);
        assert_true(largest_difference(found, expected) <=
                    (type == QN_FLOAT32 ? 5e-7 : 4 * half_ulp(type)));
        /* What is beyond dims keeps its bits. */
        for (size_t i = 0; i < x->size; i++)
            if ((int)(i % 32) >= r.p.dims)
                assert_memory_equal(place_of(found, i), place_of(x, i),
                                    qn_array_itemsize(x));
        qn_array_unref(found);
        qn_array_unref(expected);
        qn_array_unref(x);
        qn_array_unref(r.freqs);
    }
}

/* One call with many positions is many calls with one; offsets given as an
 * array are the same kernel. */
static void test_a_position_turns_alike_everywhere(void **state)
{
    (void)state;
    use_fast();
    enum { TIMES = 70, HEADS = 3, WIDTH = 64, BATCH = 2 };
    qn_array *x =
        random_array(QN_FLOAT32, 1, 5, SHAPE(BATCH, HEADS, TIMES, WIDTH));
    rope r = rope_of(WIDTH, 1000);
    qn_array *all = rope_node(&r, x);
    for (int t = 0; t < THREAD_COUNTS; t++) {
        qn_pool_set_threads(thread_counts[t]);
        qn_array *again = rope_node(&r, x);
        assert_true(same_bits(again, all));
        qn_array_unref(again);
    }
    qn_pool_set_threads(0);
    for (int t = 0; t < TIMES; t += 9) {
        qn_array *one = view_of(x, SHAPE(BATCH, HEADS, 1, WIDTH), x->strides,
                                (size_t)t * WIDTH);
        rope at = rope_of(WIDTH, 1000 + t);
        qn_array *alone = rope_node(&at, one);
        qn_array *part = view_of(all, SHAPE(BATCH, HEADS, 1, WIDTH),
                                 all->strides, (size_t)t * WIDTH);
        assert_true(same_bits(alone, part));
        at.p.has_offset_array = true;
        at.p.offset = 0;
        at.offsets = array_of(QN_INT32, VALUES(1000 + t), SCALAR);
        qn_array *by_array = rope_node(&at, one);
        assert_true(same_bits(by_array, alone));
        qn_array_unref(at.offsets);
        qn_array_unref(by_array);
        at.offsets = array_of(QN_INT32, VALUES(1000 + t, 7), SHAPE(BATCH));
        qn_array *by_row = rope_node(&at, one);
        assert_memory_equal(qn_array_data(by_row), qn_array_data(alone),
                            HEADS * WIDTH * sizeof(float));
        assert_false(same_bits(by_row, alone));
        qn_array_unref(at.offsets);
        qn_array_unref(by_row);
        qn_array_unref(part);
        qn_array_unref(alone);
        qn_array_unref(one);
    }
    qn_array_unref(all);
    qn_array_unref(x);
}

/* Every pattern of 16 bits with its bit set and not, as the sum of floats
 * rounded again; then every length up to 100. */
static void check_half_masks(const qn_rows_kernel *kernel, qn_dtype type)
{
    enum { ALL = 65536 };
    static uint16_t x[ALL], y[ALL];
    static uint32_t words[ALL / 32];
    bool f16 = type == QN_FLOAT16;
    for (int i = 0; i < ALL; i++)
        x[i] = (uint16_t)i;
    for (int way = 0; way < 2; way++) {
        for (int w = 0; w < ALL / 32; w++)
            words[w] = way ? 0x5a5a5a5a : ~UINT32_C(0x5a5a5a5a);
        kernel->mask(y, x, ALL, words, type);
        for (int i = 0; i < ALL; i++) {
            float wide = f16 ? qn_f16_to_f32(x[i]) : qn_bf16_to_f32(x[i]);
            float sum = wide + (words[0] >> i % 32 & 1 ? 0.0f : -INFINITY);
            if (isnan(sum))
                assert_true(f16 ? (y[i] & 0x7fff) > 0x7c00 : y[i] == 0x7fc0);
            else
                assert_int_equal(y[i], f16 ? qn_f32_to_f16(sum)
                                           : qn_f32_to_bf16(sum));
        }
    }
    for (size_t n = 0; n <= 100; n++) {
        uint16_t once[101];
        memset(once, 0x11, sizeof once);
        kernel->mask(once, x, n, words, type);
        assert_memory_equal(once, y, n * sizeof *once);
        for (size_t i = n; i < 101; i++)
            assert_int_equal(once[i], 0x1111);
    }
}

static void check_masks(const qn_rows_kernel *kernel)
{
    enum { N = 200 };
    static const float special[] = {0.0f, -0.0f,     1.5f,
                                    NAN,  -INFINITY, INFINITY};
    float x[N], y[N + 1];
    uint32_t words[N / 32 + 1];
    check_half_masks(kernel, QN_FLOAT16);
    check_half_masks(kernel, QN_BFLOAT16);
    for (int i = 0; i < N; i++)
        x[i] = special[i % 6];
    for (int w = 0; w <= N / 32; w++)
        words[w] = (uint32_t)(w + 1) * 0x9e3779b9u;
    for (size_t n = 0; n <= N; n++) {
        y[n] = 77;
        kernel->mask(y, x, n, words, QN_FLOAT32);
        assert_true(y[n] == 77);
        for (size_t i = 0; i < n; i++) {
            bool allowed = words[i / 32] >> i % 32 & 1;
            float sum = x[i] + (allowed ? 0.0f : -INFINITY);
            assert_true(isnan(sum) ? isnan(y[i])
                                   : !memcmp(&sum, &y[i], sizeof sum));
        }
    }
}

static void test_masks(void **state)
{
    (void)state;
    each_kernel(check_masks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norms_are_exact),
        cmocka_unit_test(test_softmax_is_exact),
        cmocka_unit_test(test_extremes_and_their_places),
        cmocka_unit_test(test_angles_are_exact),
        cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_special_rows),
        cmocka_unit_test(test_rope_agrees_with_the_reference),
        cmocka_unit_test(test_a_position_turns_alike_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
