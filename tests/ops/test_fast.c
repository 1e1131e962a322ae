/* Softmax family, norms, rotary embedding, attention: types, shapes, refusals
 * and the nodes made. */
#include "support/qn_build.h"

static void test_softmax_over_any_axes(void **state)
{
    (void)state;
    qn_array *x = keep(random_array(QN_FLOAT32, 2, 3, SHAPE(2, 3, 4)));
    for (unsigned chosen = 1; chosen < 8; chosen++) {
        int axes[3], n = 0;
        for (int i = 0; i < 3; i++)
            if (chosen & 1u << i)
                axes[n++] = i - 3;
        BUILD(y, qn_op_softmax(&y, x, axes, (size_t)n, false, S));
        check_type(y, QN_FLOAT32, 2, 3, 4);
        /* exp(x - logsumexp(x)) over the same axes */
        BUILD(total, qn_op_logsumexp(&total, x, axes, (size_t)n, true, S));
        BUILD(rest, qn_op_binary(&rest, QN_OP_SUBTRACT, x, total, S));
        BUILD(wanted, qn_op_unary(&wanted, QN_OP_EXP, rest, S));
        BUILD(close, qn_op_allclose(&close, y, wanted, 1e-5, 1e-7, false, S));
        check_values(close, 1);
        BUILD(ones,
              qn_op_reduce(&ones, QN_OP_SUM, y, axes, (size_t)n, false, S));
        BUILD(one, qn_op_allclose(&one, ones, scalar_array(QN_FLOAT32, 1), 1e-6,
                                  0, false, S));
        check_values(one, 1);
    }
}

static void test_softmax_types_and_limits(void **state)
{
    (void)state;
    BUILD(y,
          qn_op_softmax(&y, LINE(QN_INT8, 0, 0), NULL, QN_ALL_AXES, true, S));
    check_type(y, QN_FLOAT32, 2);
    check_values(y, 0.5, 0.5);
    qn_array *rows = keep(array_of(
        QN_FLOAT32, VALUES(-INFINITY, 0, -INFINITY, -INFINITY), SHAPE(2, 2)));
    BUILD(masked, qn_op_softmax(&masked, rows, (int[]){-1}, 1, true, S));
    check_values(masked, 0, 1, NAN, NAN);
    BUILD(alone, qn_op_softmax(&alone, LINE(QN_INT8, 4), NULL, 0, false, S));
    check_type(alone, QN_INT8, 1);
    check_values(alone, 1);
    /* The plain case makes one node. */
    BUILD(plain, qn_op_softmax(&plain, rows, (int[]){-1}, 1, false, S));
    assert_ptr_equal(plain->node->inputs[0], rows);
    BUILD(sum, qn_op_logsumexp(&sum, LINE(QN_INT8, 0, 0), NULL, QN_ALL_AXES,
                               false, S));
    check_no_shape(sum, QN_FLOAT32);
    check_near(sum, 1e-6, 0.693147181);
    REFUSE("[softmax] Axis 3 is out of bounds",
           qn_op_softmax(&refused, rows, (int[]){3}, 1, false, S));
    REFUSE("[logsumexp] Received an empty array",
           qn_op_logsumexp(&refused, counted(QN_FLOAT32, SHAPE(0, 3)),
                           (int[]){1}, 1, false, S));
}

static void test_cross_entropy(void **state)
{
    (void)state;
    qn_array *logits =
        keep(array_of(QN_FLOAT16, VALUES(0, 1, 2, 3, 4, 5), SHAPE(2, 3)));
    BUILD(y, qn_op_cross_entropy(&y, logits, LINE(QN_UINT8, 0, 1), S));
    check_type(y, QN_FLOAT32, 2);
    check_near(y, 1e-5, 2.40760596, 1.40760596);
    REFUSE(
        "[cross_entropy] targets shape (3) does not match logits shape (2,3)",
        qn_op_cross_entropy(&refused, logits, LINE(QN_INT32, 0, 1, 2), S));
    REFUSE("[cross_entropy] targets must be integer",
           qn_op_cross_entropy(&refused, logits, LINE(QN_FLOAT32, 0, 1), S));
    REFUSE("[cross_entropy] Received unsupported logits type int8",
           qn_op_cross_entropy(&refused, counted(QN_INT8, SHAPE(2, 3)),
                               LINE(QN_INT32, 0, 1), S));
}

static void test_norms(void **state)
{
    (void)state;
    qn_array *x =
        keep(array_of(QN_FLOAT32, VALUES(0, 1, 2, 3, 4, 5), SHAPE(2, 3)));
    qn_array *w = LINE(QN_FLOAT32, 1, 1, 2);
    BUILD(y, qn_op_rms_norm(&y, x, w, 0, S));
    check_type(y, QN_FLOAT32, 2, 3);
    assert_ptr_equal(y->node->inputs[0], x);
    assert_ptr_equal(y->node->inputs[1], w);
    check_near(y, 1e-6, 0, 0.774596669, 3.09838668, 0.734846923, 0.979795897,
               2.44948974);
    BUILD(z, qn_op_layer_norm(&z, x, NULL, LINE(QN_FLOAT16, 0, 1, 2), 0, S));
    check_type(z, QN_FLOAT32, 2, 3);
    check_near(z, 1e-6, -1.22474487, 1, 3.22474487, -1.22474487, 1, 3.22474487);
    /* A bias alone does not decide the type, a weight does. */
    BUILD(kept, qn_op_layer_norm(&kept, counted(QN_FLOAT16, SHAPE(2, 3)), NULL,
                                 w, 0, S));
    check_type(kept, QN_FLOAT16, 2, 3);
    BUILD(both, qn_op_layer_norm(&both, counted(QN_FLOAT16, SHAPE(2, 3)),
                                 LINE(QN_FLOAT16, 1, 1, 1), w, 0, S));
    check_type(both, QN_FLOAT32, 2, 3);
    BUILD(half,
          qn_op_rms_norm(&half, counted(QN_BFLOAT16, SHAPE(2, 3)), NULL, 0, S));
    check_type(half, QN_BFLOAT16, 2, 3);
    BUILD(wide,
          qn_op_rms_norm(&wide, counted(QN_BFLOAT16, SHAPE(2, 3)), w, 0, S));
    check_type(wide, QN_FLOAT32, 2, 3);
    REFUSE("[rms_norm] Input must have at least 1 dimension",
           qn_op_rms_norm(&refused, scalar_array(QN_FLOAT32, 1), NULL, 0, S));
    REFUSE("[rms_norm] weight must have one dimension of the size of the last "
           "dimension of x, 3, but has shape (2)",
           qn_op_rms_norm(&refused, x, LINE(QN_FLOAT32, 1, 2), 0, S));
    REFUSE("[layer_norm] bias must have",
           qn_op_layer_norm(&refused, x, w, x, 0, S));
    REFUSE("[rms_norm] Received unsupported type int32",
           qn_op_rms_norm(&refused, counted(QN_INT32, SHAPE(3)), NULL, 0, S));
}

static void test_rope_operands(void **state)
{
    (void)state;
    float base = 10000;
    qn_array *x = counted(QN_FLOAT32, SHAPE(2, 3, 4, 8));
    BUILD(y, qn_op_rope(&y, x, 8, false, &base, 1, 0, NULL, NULL, S));
    check_type(y, QN_FLOAT32, 2, 3, 4, 8);
    assert_int_equal(y->node->ninputs, 1);
    /* An offset by number and by array are the same. */
    BUILD(by_number,
          qn_op_rope(&by_number, x, 4, true, &base, 1, 5, NULL, NULL, S));
    BUILD(by_array, qn_op_rope(&by_array, x, 4, true, &base, 1, 0,
                               scalar_array(QN_UINT8, 5), NULL, S));
    BUILD(same, qn_op_array_equal(&same, by_number, by_array, false, S));
    check_values(same, 1);
    /* Frequencies of base^(2i/dims) are what base stands for. */
    BUILD(by_freqs, qn_op_rope(&by_freqs, x, 4, true, NULL, 1, 5, NULL,
                               LINE(QN_FLOAT32, 1, 100), S));
    BUILD(close,
          qn_op_allclose(&close, by_number, by_freqs, 1e-5, 1e-3, false, S));
    check_values(close, 1);

    qn_array *flat = counted(QN_FLOAT32, SHAPE(4, 8));
    REFUSE("[rope] Input must have at least 3 dimensions",
           qn_op_rope(&refused, flat, 8, false, &base, 1, 0, NULL, NULL, S));
    REFUSE("[rope] Input must be a floating type",
           qn_op_rope(&refused, counted(QN_INT32, SHAPE(1, 2, 4)), 4, false,
                      &base, 1, 0, NULL, NULL, S));
    static const int wrong[] = {0, 7, 10, -2};
    for (int i = 0; i < 4; i++)
        REFUSE("[rope] dims must be positive, even and at most",
               qn_op_rope(&refused, x, wrong[i], false, &base, 1, 0, NULL, NULL,
                          S));
    REFUSE("[rope] Exactly one of base and freqs",
           qn_op_rope(&refused, x, 8, false, NULL, 1, 0, NULL, NULL, S));
    REFUSE("[rope] freqs must be one dimensional with size 4",
           qn_op_rope(&refused, x, 8, false, NULL, 1, 0, NULL,
                      LINE(QN_FLOAT32, 1, 2, 3), S));
    REFUSE("[rope] offset must be an integer but got type float32",
           qn_op_rope(&refused, x, 8, false, &base, 1, 0,
                      LINE(QN_FLOAT32, 5, 20), NULL, S));
    REFUSE("[rope] offset must be a scalar or a vector with 2 elements",
           qn_op_rope(&refused, x, 8, false, &base, 1, 0,
                      LINE(QN_INT32, 1, 2, 3), NULL, S));
}

/* q [1, 4, 3, 8], k [1, 2, 5, 8], v [1, 2, 5, 6] of given types. */
static qn_array *q_of(qn_dtype d)
{
    return counted(d, SHAPE(1, 4, 3, 8));
}
static qn_array *k_of(qn_dtype d)
{
    return counted(d, SHAPE(1, 2, 5, 8));
}
static qn_array *v_of(qn_dtype d)
{
    return counted(d, SHAPE(1, 2, 5, 6));
}

static void test_attention_keeps_operands(void **state)
{
    (void)state;
    qn_array *q = q_of(QN_FLOAT32), *k = k_of(QN_FLOAT16),
             *v = v_of(QN_BFLOAT16);
    BUILD(y, qn_op_sdpa(&y, q, k, v, 1, "causal", NULL, NULL, S));
    check_type(y, QN_FLOAT32, 1, 4, 3, 6);
    /* Keys and values go in as they are: no conversion of a cache. */
    assert_ptr_equal(y->node->inputs[0], q);
    assert_ptr_equal(y->node->inputs[1], k);
    assert_ptr_equal(y->node->inputs[2], v);
    check_status(qn_eval(&y, 1), QN_OK);
    BUILD(half, qn_op_sdpa(&half, q_of(QN_FLOAT16), k, v_of(QN_FLOAT16), 1, "",
                           NULL, NULL, S));
    check_type(half, QN_FLOAT16, 1, 4, 3, 6);
}

static void test_attention_masks(void **state)
{
    (void)state;
    qn_array *q = keep(random_array(QN_FLOAT32, 1, 1, SHAPE(1, 4, 3, 8)));
    qn_array *k = keep(random_array(QN_FLOAT32, 1, 2, SHAPE(1, 2, 5, 8)));
    qn_array *v = keep(random_array(QN_FLOAT32, 1, 3, SHAPE(1, 2, 5, 6)));
    /* Query i of 3 sees keys 0 .. i + 2 of 5. */
    qn_array *seen = keep(
        array_of(QN_BOOL, VALUES(1, 1, 1, 0, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1),
                 SHAPE(3, 5)));
    double added[15];
    for (int i = 0; i < 15; i++)
        added[i] = item(seen, (size_t)i) != 0 ? 0 : -INFINITY;
    qn_array *bias = keep(array_of(QN_FLOAT16, added, SHAPE(1, 1, 3, 5)));
    BUILD(causal, qn_op_sdpa(&causal, q, k, v, 0.5F, "causal", NULL, NULL, S));
    BUILD(masked, qn_op_sdpa(&masked, q, k, v, 0.5F, "array", seen, NULL, S));
    BUILD(biased, qn_op_sdpa(&biased, q, k, v, 0.5F, "", bias, NULL, S));
    BUILD(one, qn_op_allclose(&one, causal, masked, 1e-5, 1e-6, false, S));
    check_values(one, 1);
    BUILD(two, qn_op_allclose(&two, causal, biased, 1e-5, 1e-6, false, S));
    check_values(two, 1);
    /* A sink of -infinity takes nothing. */
    double least[] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    BUILD(sunk, qn_op_sdpa(&sunk, q, k, v, 0.5F, "causal", NULL,
                           keep(array_of(QN_FLOAT32, least, SHAPE(4))), S));
    BUILD(three, qn_op_allclose(&three, causal, sunk, 1e-5, 1e-6, false, S));
    check_values(three, 1);
}

static void test_attention_refuses(void **state)
{
    (void)state;
    qn_array *q = q_of(QN_FLOAT32), *k = k_of(QN_FLOAT32),
             *v = v_of(QN_FLOAT32);
#define SDPA(q, k, v, mode, mask, sinks)                                       \
    qn_op_sdpa(&refused, q, k, v, 1, mode, mask, sinks, S)
    REFUSE("input with shape (4,3,8) expected to be rank 4",
           SDPA(counted(QN_FLOAT32, SHAPE(4, 3, 8)), k, v, "", NULL, NULL));
    REFUSE("[scaled_dot_product_attention] Invalid mask_mode strange",
           SDPA(q, k, v, "strange", NULL, NULL));
    REFUSE("n_heads must be a multiple of n_kv_heads, found n_heads 4 for "
           "n_kv_heads 3",
           SDPA(q, counted(QN_FLOAT32, SHAPE(1, 3, 5, 8)),
                counted(QN_FLOAT32, SHAPE(1, 3, 5, 8)), "", NULL, NULL));
    REFUSE("mismatching batch dimension",
           SDPA(q, counted(QN_FLOAT32, SHAPE(2, 2, 5, 8)), v, "", NULL, NULL));
    REFUSE("found query shape (1,4,3,8) for keys shape (1,2,5,6)",
           SDPA(q, v, v, "", NULL, NULL));
    REFUSE("matching lengths",
           SDPA(q, k, counted(QN_FLOAT32, SHAPE(1, 2, 4, 8)), "", NULL, NULL));
    REFUSE("matching n_kv_heads",
           SDPA(q, k, counted(QN_FLOAT32, SHAPE(1, 1, 5, 8)), "", NULL, NULL));
    REFUSE("unsupported type int32", SDPA(q_of(QN_INT32), k_of(QN_INT32),
                                          v_of(QN_INT32), "", NULL, NULL));
    REFUSE("[broadcast_to]",
           SDPA(q, k, v, "array", counted(QN_FLOAT32, SHAPE(4, 5)), NULL));
    REFUSE("at most rank 4",
           SDPA(q, k, v, "", counted(QN_BOOL, SHAPE(1, 1, 1, 3, 5)), NULL));
    REFUSE("Mask type must promote to output type float16",
           SDPA(q_of(QN_FLOAT16), k_of(QN_FLOAT16), v_of(QN_FLOAT16), "array",
                counted(QN_FLOAT32, SHAPE(3, 5)), NULL));
    REFUSE("invalid shape for sinks (3)",
           SDPA(q, k, v, "", NULL, LINE(QN_FLOAT32, 1, 2, 3)));
    REFUSE("'causal' takes no mask",
           SDPA(q, k, v, "causal", counted(QN_BOOL, SHAPE(3, 5)), NULL));
#undef SDPA
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUILD_TEST(test_softmax_over_any_axes),
        BUILD_TEST(test_softmax_types_and_limits),
        BUILD_TEST(test_cross_entropy),
        BUILD_TEST(test_norms),
        BUILD_TEST(test_rope_operands),
        BUILD_TEST(test_attention_keeps_operands),
        BUILD_TEST(test_attention_masks),
        BUILD_TEST(test_attention_refuses),
    };
    return run_build_tests(tests);
}
