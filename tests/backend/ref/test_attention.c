/* Attention against an evaluation in double, and its corner cases. */
#include "support/qn_ref_test.h"

typedef struct shape {
    int batch, heads, kv_heads, queries, keys, width, value_width;
} shape;

typedef struct options {
    qn_sdpa_params p;
    qn_array *mask, *sinks;
} options;

static qn_array *attend(qn_array *q, qn_array *k, qn_array *v, qn_dtype dtype,
                        options o)
{
    qn_array *inputs[5] = {q, k, v};
    int n = 3;
    o.p.has_mask = o.mask != NULL;
    o.p.has_sinks = o.sinks != NULL;
    if (o.mask)
        inputs[n++] = o.mask;
    if (o.sinks)
        inputs[n++] = o.sinks;
    return apply(QN_OP_SDPA, &o.p, sizeof o.p, dtype,
                 SHAPE(q->shape[0], q->shape[1], q->shape[2], v->shape[3]), n,
                 inputs);
}

/* Element [b, h, i, j] of a mask of up to four dimensions. */
static size_t mask_place(const qn_array *mask, int b, int h, int i, int j)
{
    const int index[] = {b, h, i, j};
    size_t at = 0;
    for (int axis = 0; axis < mask->ndim; axis++) {
        int x = index[4 - mask->ndim + axis], n = mask->shape[axis];
        at = at * (size_t)n + (size_t)(n == 1 ? 0 : x);
    }
    return at;
}

/* The value of element d of one row, by the definition, in double. */
static double expected(qn_array *q, qn_array *k, qn_array *v, options o, int b,
                       int h, int i, int d)
{
    int keys = k->shape[2], group = q->shape[1] / k->shape[1];
    size_t width = (size_t)q->shape[3], value = (size_t)v->shape[3];
    size_t row =
        ((size_t)(b * q->shape[1] + h) * (size_t)q->shape[2] + (size_t)i) *
        width;
    size_t head = (size_t)(b * k->shape[1] + h / group) * (size_t)keys;
    double max = o.sinks ? item(o.sinks, (size_t)h) : -INFINITY;
    double sum = 0, mix = 0, scores[64];
    for (int j = 0; j < keys; j++) {
        double s = 0;
        for (size_t x = 0; x < width; x++)
            s += item(q, row + x) * item(k, (head + (size_t)j) * width + x);
        s *= (double)o.p.scale;
        bool keep = !o.p.causal || j <= i + keys - q->shape[2];
        if (o.mask) {
            double m = item(o.mask, mask_place(o.mask, b, h, i, j));
            if (o.mask->dtype == QN_BOOL)
                keep = keep && m != 0;
            else
                s += m;
        }
        scores[j] = keep ? s : -1e38;
        max = fmax(max, scores[j]);
    }
    for (int j = 0; j < keys; j++) {
        double e = exp(scores[j] - max);
        sum += e;
        mix += e * item(v, (head + (size_t)j) * value + (size_t)d);
    }
    if (o.sinks)
        sum += exp(item(o.sinks, (size_t)h) - max);
    return mix / sum;
}

static void check_attention(shape s, const qn_dtype *dtypes, qn_dtype result,
                            double eps, options o)
{
    qn_array *q = random_array(dtypes[0], 2, 41,
                               SHAPE(s.batch, s.heads, s.queries, s.width));
    qn_array *k = random_array(dtypes[1], 2, 42,
                               SHAPE(s.batch, s.kv_heads, s.keys, s.width));
    qn_array *v = random_array(
        dtypes[2], 1, 43, SHAPE(s.batch, s.kv_heads, s.keys, s.value_width));
    qn_array *out = attend(q, k, v, result, o);
    size_t at = 0;
    for (int b = 0; b < s.batch; b++)
        for (int h = 0; h < s.heads; h++)
            for (int i = 0; i < s.queries; i++)
                for (int d = 0; d < s.value_width; d++, at++) {
                    double x = expected(q, k, v, o, b, h, i, d);
                    assert_true(fabs(item(out, at) - x) <=
                                2e-6 + eps * fabs(x));
                }
    qn_array_unref(out);
    qn_array_unref(q);
    qn_array_unref(k);
    qn_array_unref(v);
}

static const qn_dtype all_f32[] = {QN_FLOAT32, QN_FLOAT32, QN_FLOAT32};

static void test_grouped_heads_and_causality(void **state)
{
    (void)state;
    const shape shapes[] = {{2, 4, 2, 3, 9, 16, 8},
                            {1, 3, 1, 1, 40, 20, 20},
                            {1, 2, 2, 5, 5, 64, 64},
                            {1, 1, 1, 6, 2, 4, 4}};
    for (int i = 0; i < 4; i++)
        for (int causal = 0; causal < 2; causal++)
            check_attention(shapes[i], all_f32, QN_FLOAT32, 1e-6,
                            (options){.p = {.scale = 0.25f, .causal = causal}});
}

static void test_masks_of_every_shape(void **state)
{
    (void)state;
    const shape s = {2, 4, 2, 3, 7, 8, 8};
    const int shapes[][4] = {
        {2, 4, 3, 7}, {2, 1, 3, 7}, {1, 4, 1, 7}, {1, 1, 3, 1}};
    for (int kind = 0; kind < 2; kind++)
        for (int i = 0; i < 4; i++)
            for (int ndim = i == 3 ? 2 : 4; ndim <= 4; ndim += 2) {
                const int *dims = shapes[i] + (4 - ndim);
                qn_array *mask =
                    kind ? array_of(QN_BOOL, NULL, dims, ndim)
                         : random_array(QN_FLOAT32, 3, 44, dims, ndim);
                for (size_t x = 0; kind && x < mask->size; x++)
                    element_put(place_of(mask, x), QN_BOOL, x % 3 != 0);
                check_attention(s, all_f32, QN_FLOAT32, 1e-6,
                                (options){.p = {.scale = 0.5f}, .mask = mask});
                qn_array_unref(mask);
            }
}

static void test_sinks_take_their_share(void **state)
{
    (void)state;
    qn_array *sinks = array_of(QN_FLOAT16, VALUES(0, 1, -2, 100), SHAPE(4));
    check_attention((shape){2, 4, 4, 2, 6, 8, 8}, all_f32, QN_FLOAT32, 1e-6,
                    (options){.p = {.scale = 0.5f}, .sinks = sinks});
    qn_array_unref(sinks);
    /* Three equal scores and a sink of the same weigh a quarter each. */
    qn_array *q = array_of(QN_FLOAT32, NULL, SHAPE(1, 2, 1, 4));
    qn_array *k = array_of(QN_FLOAT32, NULL, SHAPE(1, 1, 3, 4));
    qn_array *v = array_of(QN_FLOAT32, VALUES(4, 4, 4), SHAPE(1, 1, 3, 1));
    sinks = array_of(QN_FLOAT32, VALUES(0, 100), SHAPE(2));
    qn_array *out = attend(q, k, v, QN_FLOAT32,
                           (options){.p = {.scale = 1}, .sinks = sinks});
    assert_true(fabs(item(out, 0) - 3) < 1e-6);
    assert_true(item(out, 1) < 1e-40);
    qn_array_unref(out);
    qn_array_unref(q);
    qn_array_unref(k);
    qn_array_unref(v);
    qn_array_unref(sinks);
}

static void test_mixed_types(void **state)
{
    (void)state;
    const shape s = {1, 4, 2, 3, 11, 16, 16};
    const options o = {.p = {.scale = 0.25f, .causal = true}};
    const qn_dtype half_cache[] = {QN_FLOAT32, QN_FLOAT16, QN_BFLOAT16};
    check_attention(s, half_cache, QN_FLOAT32, 1e-6, o);
    const qn_dtype halves[] = {QN_BFLOAT16, QN_BFLOAT16, QN_BFLOAT16};
    check_attention(s, halves, QN_BFLOAT16, 0x1p-8, o);
    const qn_dtype doubles[] = {QN_FLOAT64, QN_FLOAT64, QN_FLOAT64};
    check_attention(s, doubles, QN_FLOAT64, 1e-15, o);
}

static void test_rows_that_keep_nothing(void **state)
{
    (void)state;
    qn_array *q = random_array(QN_FLOAT32, 1, 45, SHAPE(1, 1, 2, 4));
    qn_array *k = random_array(QN_FLOAT32, 1, 46, SHAPE(1, 1, 4, 4));
    qn_array *v = array_of(QN_FLOAT32, VALUES(1, 2, 3, 6), SHAPE(1, 1, 4, 1));
    qn_array *none = array_of(QN_BOOL, NULL, SHAPE(2, 4));
    check_items(
        attend(q, k, v, QN_FLOAT32, (options){.p = {.scale = 1}, .mask = none}),
        3, 3);
    qn_array *inf = array_of(QN_FLOAT32, NULL, SHAPE(2, 4));
    for (size_t i = 0; i < 4; i++)
        element_put(place_of(inf, i), QN_FLOAT32, -INFINITY);
    qn_array *out =
        attend(q, k, v, QN_FLOAT32, (options){.p = {.scale = 1}, .mask = inf});
    assert_true(isnan(item(out, 0)));
    assert_true(item(out, 1) >= 1 && item(out, 1) <= 6);
    qn_array_unref(out);
    qn_array_unref(inf);
    qn_array_unref(none);
    /* Causal with more queries than keys: the first rows see nothing. */
    qn_array *many = random_array(QN_FLOAT32, 1, 47, SHAPE(1, 1, 6, 4));
    out = attend(many, k, v, QN_FLOAT32,
                 (options){.p = {.scale = 1, .causal = true}});
    assert_true(item(out, 0) == 3 && item(out, 1) == 3);
    assert_true(item(out, 2) == 1);
    qn_array_unref(out);
    qn_array_unref(many);
    qn_array_unref(q);
    qn_array_unref(k);
    qn_array_unref(v);
}

static void test_no_keys_and_no_queries(void **state)
{
    (void)state;
    qn_array *q = random_array(QN_FLOAT32, 1, 48, SHAPE(1, 2, 2, 4));
    qn_array *k = array_of(QN_FLOAT32, NULL, SHAPE(1, 2, 0, 4));
    qn_array *v = array_of(QN_FLOAT32, NULL, SHAPE(1, 2, 0, 2));
    check_items(attend(q, k, v, QN_FLOAT32, (options){.p = {.scale = 1}}), 0, 0,
                0, 0, 0, 0, 0, 0);
    qn_array *out = attend(k, q, q, QN_FLOAT32, (options){.p = {.scale = 1}});
    assert_int_equal(out->size, 0);
    qn_array_unref(out);
    qn_array_unref(q);
    qn_array_unref(k);
    qn_array_unref(v);
}

/* A causal prompt in one piece equals its rows one by one, each with the keys
 * that it may see. */
static void test_rows_have_the_bits_they_have_alone(void **state)
{
    (void)state;
    enum { T = 300, D = 24 };
    qn_array *q = random_array(QN_FLOAT32, 2, 51, SHAPE(1, 2, T, D));
    qn_array *k = random_array(QN_FLOAT32, 2, 52, SHAPE(1, 1, T, D));
    qn_array *v = random_array(QN_FLOAT32, 2, 53, SHAPE(1, 1, T, D));
    const options o = {.p = {.scale = 0.2f, .causal = true}};
    qn_array *all = attend(q, k, v, QN_FLOAT32, o);
    for (int t = 0; t < T; t += 23) {
        int64_t heads[] = {2 * T * D, T * D, D, 1};
        int64_t rows[] = {T * D, T * D, D, 1};
        qn_array *one = view_of(q, SHAPE(1, 2, 1, D), heads, (size_t)(t * D));
        qn_array *keys = view_of(k, SHAPE(1, 1, t + 1, D), rows, 0);
        qn_array *values = view_of(v, SHAPE(1, 1, t + 1, D), rows, 0);
        qn_array *alone = attend(one, keys, values, QN_FLOAT32, o);
        for (int h = 0; h < 2; h++)
            assert_memory_equal(place_of(alone, (size_t)(h * D)),
                                place_of(all, (size_t)((h * T + t) * D)),
                                D * sizeof(float));
        qn_array_unref(alone);
        qn_array_unref(one);
        qn_array_unref(keys);
        qn_array_unref(values);
    }
    qn_array_unref(all);
    qn_array_unref(q);
    qn_array_unref(k);
    qn_array_unref(v);
}

static void test_storage_order_does_not_matter(void **state)
{
    (void)state;
    qn_array *q = random_array(QN_FLOAT16, 1, 54, SHAPE(2, 2, 3, 8));
    qn_array *k = random_array(QN_FLOAT16, 1, 55, SHAPE(2, 1, 5, 8));
    const options o = {.p = {.scale = 0.5f}};
    qn_array *a = attend(q, k, k, QN_FLOAT16, o);
    q = strided(q);
    k = strided(k);
    qn_array *b = attend(q, k, k, QN_FLOAT16, o);
    for (size_t i = 0; i < a->size; i++)
        assert_true(item(a, i) == item(b, i));
    qn_array_unref(a);
    qn_array_unref(b);
    qn_array_unref(q);
    qn_array_unref(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grouped_heads_and_causality),
        cmocka_unit_test(test_masks_of_every_shape),
        cmocka_unit_test(test_sinks_take_their_share),
        cmocka_unit_test(test_mixed_types),
        cmocka_unit_test(test_rows_that_keep_nothing),
        cmocka_unit_test(test_no_keys_and_no_queries),
        cmocka_unit_test(test_rows_have_the_bits_they_have_alone),
        cmocka_unit_test(test_storage_order_does_not_matter),
    };
    return run_ref_tests(tests);
}
