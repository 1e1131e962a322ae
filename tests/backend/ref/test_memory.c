/* Operations that need room of their own fail cleanly when there is none. */
#include "support/qn_ref_test.h"

/* The operation under test; its inputs are made while memory lasts. */
static struct {
    int op, ninputs, ndim;
    qn_array *inputs[4];
    const void *params;
    size_t params_size;
    qn_dtype dtype;
    const int *shape;
} job;

static qn_status scenario(void)
{
    qn_array *out;
    qn_status status =
        apply_status(&out, job.op, job.params, job.params_size, job.dtype,
                     job.shape, job.ndim, job.ninputs, job.inputs);
    if (!status)
        qn_array_unref(out);
    return status;
}

/* Takes the inputs over. */
static void check_without_memory(int op, const void *params, size_t size,
                                 qn_dtype dtype, const int *shape, int ndim,
                                 int ninputs, qn_array *const *inputs)
{
    job.op = op;
    job.params = params;
    job.params_size = size;
    job.dtype = dtype;
    job.shape = shape;
    job.ndim = ndim;
    job.ninputs = ninputs;
    for (int i = 0; i < ninputs; i++)
        job.inputs[i] = inputs[i];
    test_stream();
    qn_memory_clear_cache();
    each_alloc_may_fail(scenario);
    for (int i = 0; i < ninputs; i++)
        qn_array_unref(job.inputs[i]);
}

static qn_array *floats(const int *shape, int ndim)
{
    return random_array(QN_FLOAT16, 1, 61, shape, ndim);
}

static void test_products(void **state)
{
    (void)state;
    check_without_memory(QN_OP_MATMUL, NULL, 0, QN_FLOAT16, SHAPE(3, 4),
                         INPUTS(floats(SHAPE(3, 5)), floats(SHAPE(5, 4))));
    for (int transpose = 0; transpose < 2; transpose++) {
        qn_quant_params p = {
            .bits = 4, .group_size = 32, .transpose = transpose};
        qn_array *w = array_of(QN_UINT32, NULL, SHAPE(32, 4));
        check_without_memory(
            QN_OP_QUANTIZED_MATMUL, &p, sizeof p, QN_FLOAT16, SHAPE(2, 32),
            INPUTS(floats(SHAPE(2, 32)), w, floats(SHAPE(32, 1)),
                   floats(SHAPE(32, 1))));
    }
}

static void test_packing(void **state)
{
    (void)state;
    qn_quant_params p = {.bits = 4, .group_size = 32};
    qn_array *w = array_of(QN_UINT32, NULL, SHAPE(2, 8));
    check_without_memory(QN_OP_DEQUANTIZE, &p, sizeof p, QN_FLOAT16,
                         SHAPE(2, 64),
                         INPUTS(w, floats(SHAPE(2, 2)), floats(SHAPE(2, 2))));
    qn_quant_params mx = {.bits = 4, .group_size = 32, .mode = QN_QUANT_MXFP4};
    w = array_of(QN_UINT32, NULL, SHAPE(2, 8));
    qn_array *scales = array_of(QN_UINT8, NULL, SHAPE(2, 2));
    check_without_memory(QN_OP_DEQUANTIZE, &mx, sizeof mx, QN_FLOAT16,
                         SHAPE(2, 64), INPUTS(w, scales));
}

static void test_attention(void **state)
{
    (void)state;
    qn_sdpa_params p = {.scale = 1};
    check_without_memory(
        QN_OP_SDPA, &p, sizeof p, QN_FLOAT16, SHAPE(1, 2, 3, 4),
        INPUTS(floats(SHAPE(1, 2, 3, 4)), floats(SHAPE(1, 1, 5, 4)),
               floats(SHAPE(1, 1, 5, 4))));
}

static void test_rows(void **state)
{
    (void)state;
    qn_norm_params p = {.eps = 1e-5f, .has_weight = true, .has_bias = true};
    check_without_memory(
        QN_OP_LAYER_NORM, &p, sizeof p, QN_FLOAT16, SHAPE(2, 9),
        INPUTS(floats(SHAPE(2, 9)), floats(SHAPE(9)), floats(SHAPE(9))));
    check_without_memory(QN_OP_SOFTMAX, NULL, 0, QN_FLOAT16, SHAPE(2, 9),
                         INPUTS(floats(SHAPE(2, 9))));
    qn_rope_params rope = {.dims = 4, .base = 10, .scale = 1};
    check_without_memory(QN_OP_ROPE, &rope, sizeof rope, QN_FLOAT16,
                         SHAPE(1, 2, 4), INPUTS(floats(SHAPE(1, 2, 4))));
}

static void test_sorts(void **state)
{
    (void)state;
    qn_axis_params axis = {0};
    check_without_memory(QN_OP_ARGSORT, &axis, sizeof axis, QN_UINT32,
                         SHAPE(60), INPUTS(floats(SHAPE(60))));
    qn_searchsorted_params side = {false};
    check_without_memory(QN_OP_SEARCHSORTED, &side, sizeof side, QN_UINT32,
                         SHAPE(3), INPUTS(floats(SHAPE(5)), floats(SHAPE(3))));
}

static void test_copies_behind_views(void **state)
{
    (void)state;
    qn_as_strided_params p = {.strides = {1}};
    check_without_memory(QN_OP_AS_STRIDED, &p, sizeof p, QN_FLOAT16, SHAPE(4),
                         INPUTS(strided(floats(SHAPE(3, 4)))));
    check_without_memory(QN_OP_VIEW, NULL, 0, QN_UINT32, SHAPE(3, 2),
                         INPUTS(strided(floats(SHAPE(3, 4)))));
    qn_scatter_params scatter = {.naxes = 1, .axes = {0}};
    qn_array *i = array_of(QN_INT32, VALUES(1), SHAPE(1));
    check_without_memory(
        QN_OP_SCATTER, &scatter, sizeof scatter, QN_FLOAT16, SHAPE(3, 4),
        INPUTS(floats(SHAPE(3, 4)), i, floats(SHAPE(1, 1, 4))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_packing),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_sorts),
        cmocka_unit_test(test_copies_behind_views),
    };
    return run_ref_tests(tests);
}
