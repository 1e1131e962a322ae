/* The custom kernels that quern has itself: answers fixed to the byte, lines of
 * any length and layout, and what they refuse. */
#include "support/qn_cpu_test.h"
#include "support/qn_goldens.h"

#include "ops/kernel.h"

/* A launch of one of them. */
typedef struct call {
    qn_kernel kernel;
    qn_launch *launch;
    char *inputs[2], *outputs[2];
} call;

static void call_begin(call *c, char *name, char *in0, char *in1, char *out0,
                       char *out1)
{
    memset(c, 0, sizeof *c);
    c->inputs[0] = in0;
    c->inputs[1] = in1;
    c->outputs[0] = out0;
    c->outputs[1] = out1;
    c->kernel = (qn_kernel){.form = "metal_kernel",
                            .absent = "No Metal back-end",
                            .name = name,
                            .inputs = {c->inputs, 2},
                            .outputs = {c->outputs, out1 ? 2 : 1}};
    check_status(qn_launch_new(&c->launch), QN_OK);
    for (int i = 0; i < 3; i++)
        c->launch->grid[i] = c->launch->group[i] = 1;
}

static void number_arg(call *c, const char *name, int value)
{
    check_status(
        qn_launch_add_template(c->launch, name, QN_TEMPLATE_INT, value), QN_OK);
}

static void type_arg(call *c, qn_dtype type)
{
    check_status(
        qn_launch_add_template(c->launch, "T", QN_TEMPLATE_DTYPE, (int)type),
        QN_OK);
}

static void output(call *c, qn_dtype type, const int *shape, int ndim)
{
    check_status(qn_launch_add_output(c->launch, shape, (size_t)ndim, type),
                 QN_OK);
}

/* Builds, evaluates, and frees the launch before the evaluation. */
static qn_status call_end(qn_array **out, call *c, qn_array *a, qn_array *b)
{
    qn_status status = qn_op_kernel(out, &c->kernel, c->launch,
                                    (qn_array *[]){a, b}, 2, test_stream());
    size_t n = c->launch->noutputs;
    qn_launch_free(c->launch);
    if (status)
        return status;
    status = qn_eval(out, n);
    for (size_t i = 0; i < n && status; i++)
        qn_array_unref(out[i]);
    return status;
}

static char logits_name[] = "logits", bits_name[] = "bits", lse_name[] = "lse";
static char out_name[] = "out", values_name[] = "values";
static char indices_name[] = "indices";
static char mask_kernel[] = "mlx_bun_token_bitmask";
static char partial_kernel[] = "normalized_argmax_partial";
static char finish_kernel[] = "normalized_argmax_finish";

static int last_of(const qn_array *a)
{
    return a->shape[a->ndim - 1];
}

static qn_array *masked(qn_array *logits, qn_array *bits)
{
    call c;
    qn_array *out;
    call_begin(&c, mask_kernel, logits_name, bits_name, out_name, NULL);
    type_arg(&c, logits->dtype);
    number_arg(&c, "V", last_of(logits));
    number_arg(&c, "SIZE", (int)logits->size);
    output(&c, logits->dtype, logits->shape, logits->ndim);
    check_status(call_end(&out, &c, logits, bits), QN_OK);
    return out;
}

static qn_array *argmax(qn_array *logits, qn_array *lse)
{
    call c;
    qn_array *pairs[2], *out;
    int v = last_of(logits), tiles = (v + 1023) / 1024;
    int rows = (int)(logits->size / (size_t)v);
    call_begin(&c, partial_kernel, logits_name, lse_name, values_name,
               indices_name);
    type_arg(&c, logits->dtype);
    number_arg(&c, "V", v);
    number_arg(&c, "P", tiles);
    output(&c, QN_FLOAT32, SHAPE(rows, tiles));
    output(&c, QN_UINT32, SHAPE(rows, tiles));
    check_status(call_end(pairs, &c, logits, lse), QN_OK);
    call_begin(&c, finish_kernel, values_name, indices_name, out_name, NULL);
    number_arg(&c, "P", tiles);
    output(&c, QN_UINT32, SHAPE(rows));
    check_status(call_end(&out, &c, pairs[0], pairs[1]), QN_OK);
    qn_array_unref(pairs[0]);
    qn_array_unref(pairs[1]);
    return out;
}

static void each_backend(void (*check)(void))
{
    use_reference();
    check();
    use_fast();
    for (int threads = 1; threads < 4; threads++) {
        qn_pool_set_threads(threads);
        check();
    }
    qn_pool_set_threads(0);
}

static void bitmask_goldens(void)
{
    const qn_json *cases;
    qn_json_doc *doc = open_golden("helpers_bitmask.json", "cases", &cases);
    assert_true(cases->count > 50);
    for (uint32_t i = 0; i < cases->count; i++) {
        const qn_json *c = &cases->items[i];
        const qn_json *words = qn_json_get(c, "words");
        qn_array *logits = golden_array(c, "logits");
        int n = (int)words->count;
        qn_array *bits = array_of(QN_INT32, NULL, SHAPE(n));
        numbers(words, qn_array_data(bits));
        check_equal(masked(logits, bits), golden_array(c, "out"));
        if (logits->size > 1) {
            logits = strided(logits);
            check_equal(masked(logits, bits), golden_array(c, "out"));
        }
        qn_array_unref(logits);
        qn_array_unref(bits);
    }
    qn_json_doc_free(doc);
}

static void test_bitmask_goldens(void **state)
{
    (void)state;
    each_backend(bitmask_goldens);
}

static void argmax_goldens(void)
{
    const qn_json *cases;
    qn_json_doc *doc = open_golden("helpers_argmax.json", "cases", &cases);
    assert_true(cases->count > 20);
    for (uint32_t i = 0; i < cases->count; i++) {
        const qn_json *c = &cases->items[i];
        qn_array *logits = golden_array(c, "logits");
        qn_array *lse = golden_array(c, "lse");
        check_equal(argmax(logits, lse), golden_array(c, "out"));
        logits = strided(logits);
        check_equal(argmax(logits, lse), golden_array(c, "out"));
        qn_array_unref(logits);
        qn_array_unref(lse);
    }
    qn_json_doc_free(doc);
}

static void test_argmax_goldens(void **state)
{
    (void)state;
    each_backend(argmax_goldens);
}

/* Against the rule written out, at lengths around tiles. */
static void lengths(void)
{
    static const int sizes[] = {1, 31, 32, 33, 1023, 1024, 1025, 4100};
    for (int s = 0; s < 8; s++)
        for (int t = 0; t < FLOAT_TYPES; t++) {
            int v = sizes[s];
            qn_array *x = random_array(float_types[t], 3, 5, SHAPE(2, 2, v));
            qn_array *lse =
                array_of(float_types[t], VALUES(1, 2, 3, 4), SHAPE(2, 2, 1));
            qn_array *bits = array_of(QN_INT32, NULL, SHAPE((v + 40) / 32));
            uint64_t seed = 9;
            for (size_t i = 0; i < bits->size; i++)
                ((int32_t *)qn_array_data(bits))[i] =
                    (int32_t)(test_random(&seed) * 0x1p31);
            const uint32_t *words = qn_array_data(bits);
            qn_array *out = masked(x, bits), *best = argmax(x, lse);
            for (size_t i = 0; i < x->size; i++) {
                size_t token = i % (size_t)v;
                bool allowed = words[token / 32] >> token % 32 & 1;
                assert_true(item(out, i) == (allowed ? item(x, i) : -INFINITY));
            }
            for (size_t row = 0; row < 4; row++) {
                float top = -INFINITY;
                uint32_t at = 0;
                for (int i = 0; i < v; i++) {
                    size_t place = row * (size_t)v + (size_t)i;
                    float score = (float)item(x, place) - (float)item(lse, row);
                    char stored[4];
                    qn_cpu_narrow(stored, &score, 1, float_types[t]);
                    qn_cpu_widen(&score, stored, 1, float_types[t]);
                    if (score > top) {
                        top = score;
                        at = (uint32_t)i;
                    }
                }
                assert_true(item(best, row) == at);
            }
            qn_array_unref(x);
            qn_array_unref(lse);
            qn_array_unref(bits);
            qn_array_unref(out);
            qn_array_unref(best);
        }
}

static void test_lengths_around_tiles(void **state)
{
    (void)state;
    each_backend(lengths);
}

/* What does not fit is refused before it is read. */
static void test_misfits_are_refused(void **state)
{
    (void)state;
    use_fast();
    qn_array *x = random_array(QN_FLOAT32, 1, 3, SHAPE(2, 40));
    qn_array *ints = random_array(QN_INT32, 9, 3, SHAPE(2, 40));
    qn_array *bits = array_of(QN_INT32, VALUES(1, 2), SHAPE(2));
    qn_array *square = array_of(QN_INT32, VALUES(1, 2), SHAPE(2, 1));
    qn_array *wide = array_of(QN_INT64, VALUES(1, 2), SHAPE(2));
    qn_array *lse = array_of(QN_FLOAT32, VALUES(1, 2, 3), SHAPE(3));
    qn_array *out[2];
    static const struct {
        int v, size, columns;
        qn_dtype type;
        int which; /* of the operands */
        const char *part;
    } bad[] = {
        {41, 80, 40, QN_FLOAT32, 0, "V must be"},
        {-1, 80, 40, QN_FLOAT32, 0, "V must be"},
        {40, 81, 40, QN_FLOAT32, 0, "SIZE must be"},
        {40, 80, 41, QN_FLOAT32, 0, "out must have"},
        {40, 80, 40, QN_FLOAT16, 0, "T of the same type"},
        {40, 80, 40, QN_FLOAT32, 1, "bits of one axis"},
        {40, 80, 40, QN_FLOAT32, 2, "bits of one axis"},
        {40, 80, 40, QN_INT32, 3, "found int32"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        call c;
        call_begin(&c, mask_kernel, logits_name, bits_name, out_name, NULL);
        type_arg(&c, bad[i].type);
        number_arg(&c, "V", bad[i].v);
        number_arg(&c, "SIZE", bad[i].size);
        output(&c, QN_FLOAT32, SHAPE(2, bad[i].columns));
        qn_array *second = bad[i].which == 1   ? square
                           : bad[i].which == 2 ? wide
                                               : bits;
        check_error(call_end(out, &c, bad[i].which == 3 ? ints : x, second),
                    QN_E_ARG, bad[i].part);
    }
    for (int i = 0; i < 4; i++) {
        call c;
        call_begin(&c, partial_kernel, logits_name, lse_name, values_name,
                   indices_name);
        type_arg(&c, QN_FLOAT32);
        number_arg(&c, "V", 40);
        number_arg(&c, "P", i == 0 ? 2 : 1);
        output(&c, i == 1 ? QN_FLOAT16 : QN_FLOAT32, SHAPE(2, 1));
        output(&c, QN_UINT32, SHAPE(2, i == 2 ? 2 : 1));
        static const char *const parts[] = {
            "P must be the number of tiles of 1024 tokens, 1", "lse must have",
            "lse must have", "lse must have"};
        check_error(call_end(out, &c, x, lse), QN_E_ARG, parts[i]);
    }
    for (int i = 0; i < 3; i++) {
        call c;
        call_begin(&c, finish_kernel, values_name, indices_name, out_name,
                   NULL);
        number_arg(&c, "P", i == 0 ? 39 : 40);
        output(&c, QN_UINT32, SHAPE(i == 2 ? 3 : 2));
        check_error(call_end(out, &c, x, i == 1 ? x : ints), QN_E_ARG,
                    "expected");
    }
    /* Names are part of the contract. */
    call c;
    call_begin(&c, mask_kernel, logits_name, lse_name, out_name, NULL);
    output(&c, QN_FLOAT32, SHAPE(2, 40));
    check_error(call_end(out, &c, x, bits), QN_E_ARG,
                "calls its input 1 'bits', found 'lse'");
    call_begin(&c, mask_kernel, logits_name, bits_name, out_name, NULL);
    type_arg(&c, QN_FLOAT32);
    number_arg(&c, "V", 40);
    output(&c, QN_FLOAT32, SHAPE(2, 40));
    check_error(call_end(out, &c, x, bits), QN_E_ARG,
                "needs the template argument 'SIZE'");
    call_begin(&c, finish_kernel, values_name, indices_name, out_name, NULL);
    number_arg(&c, "P", 40);
    number_arg(&c, "Q", 40);
    output(&c, QN_UINT32, SHAPE(2));
    check_error(call_end(out, &c, x, bits), QN_E_ARG,
                "has no template argument 'Q'");
    qn_array *all[] = {x, ints, bits, square, wide, lse};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        qn_array_unref(all[i]);
}

static int setup(void **state)
{
    (void)state;
    qn_cpu_register_kernels();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bitmask_goldens),
        cmocka_unit_test(test_argmax_goldens),
        cmocka_unit_test(test_lengths_around_tiles),
        cmocka_unit_test(test_misfits_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
