/* Softmax, log-sum-exp, norms and rotary embedding. */
#include "support/qn_ref_test.h"

static qn_array *same_shape(int op, const void *params, size_t size,
                            qn_array *const *inputs, int ninputs)
{
    return apply(op, params, size, inputs[0]->dtype, inputs[0]->shape,
                 inputs[0]->ndim, ninputs, inputs);
}

static void test_softmax_of_masked_rows(void **state)
{
    (void)state;
    qn_array *a = array_of(QN_FLOAT32,
                           VALUES(-INFINITY, 0, 1, -INFINITY, -INFINITY,
                                  -INFINITY, INFINITY, 0, 1, NAN, 0, 0),
                           SHAPE(4, 3));
    qn_array *out = same_shape(QN_OP_SOFTMAX, NULL, 0, &a, 1);
    assert_true(item(out, 0) == 0);
    assert_true(fabs(item(out, 1) - 0.26894142137) < 2e-8);
    assert_true(fabs(item(out, 2) - 0.73105857863) < 1e-7);
    for (size_t i = 3; i < 12; i++)
        assert_true(isnan(item(out, i)));
    qn_array_unref(out);
    qn_array_unref(a);
}

static void test_softmax_of_many_equal_halves(void **state)
{
    (void)state;
    qn_array *a = strided(array_of(QN_BFLOAT16, NULL, SHAPE(2, 512)));
    qn_array *out = same_shape(QN_OP_SOFTMAX, NULL, 0, &a, 1);
    for (size_t i = 0; i < 1024; i++)
        assert_true(item(out, i) == 1.0 / 512);
    qn_array_unref(out);
    qn_array_unref(a);
}

static void test_logsumexp(void **state)
{
    (void)state;
    qn_array *a = array_of(
        QN_FLOAT64, VALUES(1e4, 1e4, -INFINITY, -INFINITY, INFINITY, 0, NAN, 1),
        SHAPE(4, 2));
    qn_array *out =
        apply(QN_OP_LOGSUMEXP, NULL, 0, QN_FLOAT64, SHAPE(4, 1), INPUTS(a));
    assert_true(fabs(item(out, 0) - 1e4 - log(2)) < 1e-11);
    assert_true(item(out, 1) == -INFINITY && item(out, 2) == INFINITY);
    assert_true(isnan(item(out, 3)));
    qn_array_unref(out);
    qn_array_unref(a);
}

static void test_rms_norm_does_not_overflow_half(void **state)
{
    (void)state;
    qn_array *x = array_of(QN_FLOAT16, VALUES(300, 300, -300, 300), SHAPE(4));
    qn_array *w = array_of(QN_FLOAT16, VALUES(1, 2, 3, 4), SHAPE(4));
    qn_norm_params p = {.eps = 1e-5f, .has_weight = true};
    check_items(
        same_shape(QN_OP_RMS_NORM, &p, sizeof p, (qn_array *[]){x, w}, 2), 1, 2,
        -3, 4);
    p.has_weight = false;
    check_items(same_shape(QN_OP_RMS_NORM, &p, sizeof p, &x, 1), 1, 1, -1, 1);
    qn_array_unref(x);
    qn_array_unref(w);
}

static void test_layer_norm_against_double(void **state)
{
    (void)state;
    qn_array *x = random_array(QN_FLOAT32, 5, 21, SHAPE(3, 100));
    qn_array *w = random_array(QN_FLOAT32, 1, 22, SHAPE(100));
    qn_array *b = random_array(QN_FLOAT32, 1, 23, SHAPE(100));
    qn_norm_params p = {.eps = 1e-3f, .has_weight = true, .has_bias = true};
    qn_array *out =
        same_shape(QN_OP_LAYER_NORM, &p, sizeof p, (qn_array *[]){x, w, b}, 3);
    for (size_t row = 0; row < 3; row++) {
        double mean = 0, var = 0;
        for (size_t i = 0; i < 100; i++)
            mean += item(x, row * 100 + i) / 100;
        for (size_t i = 0; i < 100; i++)
            var += pow(item(x, row * 100 + i) - mean, 2) / 100;
        for (size_t i = 0; i < 100; i++) {
            double y =
                (item(x, row * 100 + i) - mean) / sqrt(var + (double)1e-3f);
            y = y * item(w, i) + item(b, i);
            assert_true(fabs(item(out, row * 100 + i) - y) <= 2e-7 * fabs(y));
        }
    }
    qn_array_unref(out);
    qn_array_unref(x);
    qn_array_unref(w);
    qn_array_unref(b);
}

/* ---- rope ---- */

static qn_array *rope(qn_array *x, qn_rope_params p, qn_array *offset,
                      qn_array *freqs)
{
    qn_array *inputs[3] = {x};
    int n = 1;
    p.has_offset_array = offset != NULL;
    p.has_freqs = freqs != NULL;
    if (offset)
        inputs[n++] = offset;
    if (freqs)
        inputs[n++] = freqs;
    return same_shape(QN_OP_ROPE, &p, sizeof p, inputs, n);
}

static const qn_rope_params plain = {.dims = 8, .base = 10000, .scale = 1};

static void check_same(qn_array *a, qn_array *b)
{
    assert_int_equal(a->size, b->size);
    for (size_t i = 0; i < a->size; i++)
        assert_memory_equal(place_of(a, i), place_of(b, i),
                            qn_array_itemsize(a));
}

static void test_rope_against_double(void **state)
{
    (void)state;
    qn_array *x = random_array(QN_FLOAT32, 1, 31, SHAPE(2, 3, 4, 10));
    for (int traditional = 0; traditional < 2; traditional++) {
        qn_rope_params p = plain;
        p.traditional = traditional;
        p.offset = 37;
        p.scale = 0.5f;
        qn_array *out = rope(x, p, NULL, NULL);
        for (size_t row = 0; row < 24; row++) {
            double position = (37 + (double)(row % 4)) * 0.5;
            for (size_t i = 0; i < 4; i++) {
                size_t a = row * 10 + (traditional ? 2 * i : i);
                size_t b = row * 10 + (traditional ? 2 * i + 1 : i + 4);
                double angle = position * pow(10000, -(double)i / 4);
                double c = cos(angle), s = sin(angle);
                double y1 = item(x, a) * c - item(x, b) * s;
                double y2 = item(x, a) * s + item(x, b) * c;
                assert_true(fabs(item(out, a) - y1) < 6e-6);
                assert_true(fabs(item(out, b) - y2) < 6e-6);
            }
            for (size_t i = 8; i < 10; i++) /* the tail passes through */
                assert_true(item(out, row * 10 + i) == item(x, row * 10 + i));
        }
        qn_array_unref(out);
    }
    qn_array_unref(x);
}

static void test_rope_offsets_agree(void **state)
{
    (void)state;
    const qn_dtype dtypes[] = {QN_FLOAT32, QN_FLOAT16, QN_BFLOAT16, QN_FLOAT64};
    const int offsets[] = {0, 37, -5, 100000};
    for (int t = 0; t < 4; t++)
        for (int o = 0; o < 4; o++) {
            qn_array *x = random_array(dtypes[t], 1, 32, SHAPE(2, 3, 4, 8));
            qn_rope_params p = plain;
            p.offset = offsets[o];
            qn_array *constant = rope(x, p, NULL, NULL);
            qn_array *one = array_of(QN_INT32, VALUES(offsets[o]), SCALAR);
            qn_array *each =
                array_of(QN_INT32, VALUES(offsets[o], offsets[o]), SHAPE(2));
            qn_array *a = rope(x, plain, one, NULL);
            qn_array *b = rope(x, plain, each, NULL);
            check_same(constant, a);
            check_same(constant, b);
            qn_array_unref(a);
            qn_array_unref(b);
            qn_array_unref(one);
            qn_array_unref(each);
            qn_array_unref(constant);
            qn_array_unref(x);
        }
}

/* Row t of four is the only row at offset t; batch row b the only one at its
 * own offset. */
static void test_rope_rows_depend_on_their_position_alone(void **state)
{
    (void)state;
    qn_array *x = random_array(QN_BFLOAT16, 1, 33, SHAPE(2, 4, 8));
    qn_array *offset = array_of(QN_INT32, VALUES(5, 900), SHAPE(2));
    qn_array *all = rope(x, plain, offset, NULL);
    for (int b = 0; b < 2; b++)
        for (int t = 0; t < 4; t++) {
            size_t at = (size_t)(b * 4 + t) * 8;
            qn_array *one =
                view_of(x, SHAPE(1, 1, 8), (int64_t[]){8, 8, 1}, at);
            qn_rope_params p = plain;
            p.offset = (b ? 900 : 5) + t;
            qn_array *alone = rope(one, p, NULL, NULL);
            assert_memory_equal(qn_array_data(alone), place_of(all, at), 16);
            qn_array_unref(alone);
            qn_array_unref(one);
        }
    qn_array_unref(all);
    qn_array_unref(offset);
    qn_array_unref(x);
}

static void test_rope_periods(void **state)
{
    (void)state;
    qn_array *x = random_array(QN_FLOAT32, 1, 34, SHAPE(1, 2, 3, 8));
    qn_array *freqs = array_of(QN_FLOAT32, VALUES(1, 10, 100, 1000), SHAPE(4));
    qn_array *a = rope(x, plain, NULL, NULL);
    qn_array *b = rope(x, plain, NULL, freqs);
    for (size_t i = 0; i < a->size; i++)
        assert_true(fabs(item(a, i) - item(b, i)) < 2e-6);
    qn_array_unref(a);
    qn_array_unref(b);
    qn_array_unref(freqs);
    qn_array_unref(x);
}

static void test_rope_of_views_and_nothing(void **state)
{
    (void)state;
    qn_array *x = random_array(QN_FLOAT32, 1, 35, SHAPE(2, 3, 4, 8));
    qn_array *copy = random_array(QN_FLOAT32, 1, 35, SHAPE(2, 3, 4, 8));
    qn_array *view = strided(copy);
    qn_array *a = rope(x, plain, NULL, NULL),
             *b = rope(view, plain, NULL, NULL);
    check_same(a, b);
    qn_array *none = array_of(QN_FLOAT32, NULL, SHAPE(2, 0, 8));
    qn_array *out = rope(none, plain, NULL, NULL);
    assert_int_equal(out->size, 0);
    qn_array_unref(out);
    qn_array_unref(none);
    qn_array_unref(a);
    qn_array_unref(b);
    qn_array_unref(view);
    qn_array_unref(x);
}

static void test_rope_over_a_dying_input(void **state)
{
    (void)state;
    qn_array *x = random_array(QN_FLOAT32, 1, 36, SHAPE(1, 2, 3, 12)), *out;
    qn_rope_params p = plain;
    p.offset = 3;
    qn_array *expected = rope(x, p, NULL, NULL);
    const void *data = qn_array_data(x);
    qn_node_spec spec = {.op = QN_OP_ROPE,
                         .stream = test_stream(),
                         .inputs = &x,
                         .ninputs = 1,
                         .params = &p,
                         .params_size = sizeof p};
    check_status(qn_node_new(&out, &spec, QN_FLOAT32, x->shape, x->ndim),
                 QN_OK);
    qn_array_unref(x);
    check_status(qn_eval(&out, 1), QN_OK);
    assert_ptr_equal(qn_array_data(out), data);
    check_same(out, expected);
    qn_array_unref(out);
    qn_array_unref(expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax_of_masked_rows),
        cmocka_unit_test(test_softmax_of_many_equal_halves),
        cmocka_unit_test(test_logsumexp),
        cmocka_unit_test(test_rms_norm_does_not_overflow_half),
        cmocka_unit_test(test_layer_norm_against_double),
        cmocka_unit_test(test_rope_against_double),
        cmocka_unit_test(test_rope_offsets_agree),
        cmocka_unit_test(test_rope_rows_depend_on_their_position_alone),
        cmocka_unit_test(test_rope_periods),
        cmocka_unit_test(test_rope_of_views_and_nothing),
        cmocka_unit_test(test_rope_over_a_dying_input),
    };
    return run_ref_tests(tests);
}
