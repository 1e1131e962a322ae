/* Custom kernels: the registry, launches, the node and its rules. */
#include "support/qn_goldens.h"
#include "support/qn_grad.h"

#include "ops/kernel.h"

/* ---- how a grid becomes groups ---- */

static void test_groups_of_a_grid(void **state)
{
    (void)state;
    const qn_json *rows;
    qn_json_doc *doc = open_golden("helpers_launch.json", "rows", &rows);
    assert_true(rows->count > 4);
    for (uint32_t i = 0; i < rows->count; i++) {
        int in[4][3], blocks[3], block[3];
        for (int k = 0; k < 4; k++)
            assert_int_equal(numbers(&rows->items[i].items[k], in[k]), 3);
        qn_kernel_blocks(blocks, block, in[0], in[1]);
        assert_memory_equal(blocks, in[2], sizeof blocks);
        assert_memory_equal(block, in[3], sizeof block);
    }
    qn_json_doc_free(doc);
    int blocks[3], block[3];
    qn_kernel_blocks(blocks, block, (const int[]){INT32_MAX, 1, 5},
                     (const int[]){2, INT32_MAX, 5});
    assert_int_equal(blocks[0], 1 << 30);
    assert_int_equal(block[1], 1);
}

/* ---- the registry ---- */

/* out = in * K + sum of the bytes of scratch set by it. */
static int scale(const qn_kernel_args *args, const void *user)
{
    const int *expected_user = user;
    int k = 0;
    assert_int_equal(*expected_user, 77);
    if (!qn_template_int(args->templates, "K", &k)) {
        snprintf(args->error, args->error_cap, "K is missing");
        return 3;
    }
    const float *x = args->in[0].data;
    float *y = args->out[0].data;
    for (int i = 0; i < args->out[0].shape[0]; i++)
        y[i] = (float)k * x[i * args->in[0].strides[0]];
    return 0;
}

static int other(const qn_kernel_args *args, const void *user)
{
    (void)args;
    (void)user;
    return 1;
}

static const int user = 77;
static const qn_kernel_entry scale_entry = {.fn = scale, .user = &user};
static char scale_name[] = "test_scale", x_name[] = "x", y_name[] = "y";
static char *in_names[] = {x_name}, *out_names[] = {y_name};

static qn_kernel scaling(void)
{
    return (qn_kernel){.form = "metal_kernel",
                       .absent = "No Metal back-end",
                       .name = scale_name,
                       .inputs = {in_names, 1},
                       .outputs = {out_names, 1},
                       .row_contiguous = true};
}

static void test_a_name_has_one_function(void **state)
{
    (void)state;
    qn_kernel_entry changed = {.fn = other, .user = &user};
    check_status(qn_kernel_register(scale_name, &scale_entry), QN_OK);
    check_status(qn_kernel_register(scale_name, &scale_entry), QN_OK);
    check_error(qn_kernel_register(scale_name, &changed), QN_E_ARG,
                "The name 'test_scale' is taken");
    check_error(qn_kernel_register("", &changed), QN_E_ARG,
                "[kernel_register]");
    check_error(qn_kernel_register(NULL, &changed), QN_E_ARG,
                "[kernel_register]");
    changed.fn = NULL;
    check_error(qn_kernel_register("test_none", &changed), QN_E_ARG,
                "[kernel_register]");
}

/* A launch on an array with two elements. */
static qn_status launch(qn_array **out, const qn_kernel *kernel, qn_array *x,
                        int factor)
{
    qn_launch *l;
    qn_status status = qn_launch_new(&l);
    if (status)
        return status;
    for (int i = 0; i < 3; i++)
        l->grid[i] = l->group[i] = 1;
    status = qn_launch_add_output(l, (const int[]){2}, 1, QN_FLOAT32);
    if (!status)
        status = qn_launch_add_template(l, "K", QN_TEMPLATE_INT, factor);
    if (!status)
        status = qn_op_kernel(out, kernel, l, &x, 1, S);
    qn_launch_free(l);
    return status;
}

static void test_the_node_keeps_what_it_needs(void **state)
{
    (void)state;
    qn_kernel like = scaling(), *kernel;
    check_status(qn_kernel_new(&kernel, &like), QN_OK);
    qn_array *x = LINE(QN_FLOAT32, 1, 2);
    BUILD(y, launch(&y, kernel, x, 3));
    BUILD(z, launch(&z, kernel, x, 4));
    qn_kernel_free(kernel);
    check_type(y, QN_FLOAT32, 2);
    check_values(y, 3, 6);
    check_values(z, 4, 8);
}

static void test_what_does_not_fit_is_named(void **state)
{
    (void)state;
    qn_kernel kernel = scaling();
    qn_array *x = LINE(QN_FLOAT32, 1, 2), *refused = NULL;
    qn_launch *l;
    check_status(qn_launch_new(&l), QN_OK);
    qn_array *two[] = {x, x};
#define LAUNCH(n) qn_op_kernel(&refused, &kernel, l, two, n, S)
    check_error(LAUNCH(2), QN_E_ARG,
                "'test_scale': expected 1 inputs, found 2");
    check_error(LAUNCH(1), QN_E_ARG,
                "'test_scale': expected 1 outputs, found shapes and dtypes of "
                "0");
    check_status(qn_launch_add_output(l, (const int[]){2}, 1, QN_FLOAT32),
                 QN_OK);
    check_error(LAUNCH(1), QN_E_ARG, "grid (0, 0, 0) and thread group");
    for (int i = 0; i < 3; i++)
        l->grid[i] = l->group[i] = 1;
    l->group[2] = -1;
    check_error(LAUNCH(1), QN_E_ARG,
                "thread group (1, 1, -1) must be positive");
    l->group[2] = 1;
    kernel.atomic_outputs = true;
    check_error(LAUNCH(1), QN_E_ARG, "atomic outputs");
    kernel.atomic_outputs = false;
    kernel.outputs.size = 0;
    check_error(LAUNCH(1), QN_E_ARG, "'test_scale' has no outputs");
    kernel.outputs.size = 1;
    char absent[] = "test_absent";
    kernel.name = absent;
    check_error(LAUNCH(1), QN_E_UNSUPPORTED,
                "'test_absent' is not registered on the cpu backend: No Metal "
                "back-end");
    kernel.name = scale_name;
    l->outputs[0] =
        (qn_kernel_output){QN_FLOAT32, 3, {INT32_MAX, INT32_MAX, INT32_MAX}};
    check_error(LAUNCH(1), QN_E_ARG, "");
    l->outputs[0] = (qn_kernel_output){QN_FLOAT32, 1, {2}};
    check_error(qn_launch_add_output(l, NULL, QN_MAX_NDIM + 1, QN_FLOAT32),
                QN_E_ARG, "at most 32 dimensions");
    /* The function's own words come with its name, at the evaluation. */
    check_status(LAUNCH(1), QN_OK);
    check_error(qn_eval(&refused, 1), QN_E_ARG,
                "[custom_kernel] test_scale: K is missing");
    qn_array_unref(refused);
    qn_launch_free(l);
#undef LAUNCH
}

static void test_rules(void **state)
{
    (void)state;
    qn_kernel kernel = scaling();
    qn_array *x = LINE(QN_FLOAT32, 1, 2), *made = NULL;
    BUILD(y, launch(&y, &kernel, x, 3));
    check_rules(&y);
    /* For other shapes it can't be made again, nor has it a gradient. */
    qn_scope c;
    qn_scope_begin(&c, S);
    qn_again a = {.c = &c,
                  .node = y->node,
                  .was_in = y->node->inputs,
                  .was_out = &y,
                  .in = y->node->inputs,
                  .shapeless = true,
                  .out = &made};
    qn_rules_of(QN_OP_KERNEL)->again(&a);
    check_error(qn_scope_end(&c, &made, NULL), QN_E_UNSUPPORTED,
                "'test_scale'");
    assert_true(qn_rules_of(QN_OP_KERNEL)->grad == qn_grad_none);
}

/* ---- memory ---- */

static qn_array *input;

static qn_status scenario(void)
{
    qn_kernel like = scaling(), *kernel;
    qn_array *out = NULL;
    qn_status status = qn_kernel_new(&kernel, &like);
    if (status)
        return status;
    status = launch(&out, kernel, input, 2);
    qn_kernel_free(kernel);
    if (status)
        return status;
    status = qn_eval(&out, 1);
    qn_array_unref(out);
    return status;
}

static qn_status registration(void)
{
    static int turn;
    static const qn_kernel_entry entry = {.fn = other};
    char name[32];
    snprintf(name, sizeof name, "test_memory_%d", turn);
    qn_status status = qn_kernel_register(name, &entry);
    turn += !status;
    return status ? status : scenario();
}

static void test_each_allocation_may_fail(void **state)
{
    (void)state;
    input = keep(strided(array_of(QN_FLOAT32, VALUES(1, 2), SHAPE(2))));
    each_alloc_may_fail(registration);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUILD_TEST(test_groups_of_a_grid),
        BUILD_TEST(test_a_name_has_one_function),
        BUILD_TEST(test_the_node_keeps_what_it_needs),
        BUILD_TEST(test_what_does_not_fit_is_named),
        BUILD_TEST(test_rules),
        BUILD_TEST(test_each_allocation_may_fail),
    };
    return run_build_tests(tests);
}
