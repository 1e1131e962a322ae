/* Nodes: who holds whom, ghosts, and graphs of any depth. */
#include "fake.h"

static void test_a_node_holds_its_inputs(void **state)
{
    (void)state;
    qn_array *x = fake_leaf(1);
    qn_array *y = fake_op(FAKE_ADD, x, x);
    assert_int_equal(atomic_load(&x->refs), 3);
    assert_ptr_equal(y->node->inputs[1], x);
    assert_ptr_equal(y->node->outputs[0], y);
    assert_int_equal(y->node->op, FAKE_ADD);
    qn_array_unref(y);
    assert_int_equal(atomic_load(&x->refs), 1);
    qn_array_unref(x);
}

static void *freed;

static void params_free(void *params)
{
    freed = *(void **)params;
}

static void test_params_are_copied_aligned_and_freed(void **state)
{
    (void)state;
    qn_array *x = fake_leaf(1), *y;
    struct {
        void *text;
        char rest[17];
    } params = {.text = &freed};
    qn_node_spec spec = fake_spec(FAKE_INC, &x, 1);
    spec.params = &params;
    spec.params_size = sizeof params;
    spec.params_free = params_free;
    check_status(qn_node_new(&y, &spec, QN_INT64, fake_shape, 1), QN_OK);
    assert_ptr_not_equal(y->node->params, &params);
    assert_int_equal((uintptr_t)y->node->params % _Alignof(max_align_t), 0);
    freed = NULL;
    qn_array_unref(y);
    assert_ptr_equal(freed, &freed);
    qn_array_unref(x);
}

static void test_an_unwanted_output_stays_until_its_sibling_goes(void **state)
{
    (void)state;
    qn_array *x = fake_leaf(1), *out[2];
    fake_split(out, x);
    qn_array_unref(out[0]);
    /* The operation can still ask for its shape. */
    assert_int_equal(out[1]->node->outputs[0]->shape[0], 4);
    check_value(out[1], 2);
    qn_array_unref(out[1]);

    fake_split(out, x);
    qn_array_unref(out[1]);
    qn_array_unref(out[0]);
    assert_int_equal(atomic_load(&x->refs), 1);
    qn_array_unref(x);
}

static void test_a_deep_graph_is_taken_apart_without_recursion(void **state)
{
    (void)state;
    enum { DEEP = 1000000 };
    qn_array *x = fake_leaf(0);
    for (int i = 0; i < DEEP; i++)
        x = fake_then(x, FAKE_INC);
    qn_array_unref(x);
    assert_int_equal(qn_memory_active(), 0);
}

static void test_a_graph_of_shared_nodes_is_freed_once(void **state)
{
    (void)state;
    /* 2^60 paths, 60 nodes. */
    qn_array *x = fake_leaf(1);
    for (int i = 0; i < 60; i++) {
        qn_array *sum = fake_op(FAKE_ADD, x, x);
        qn_array_unref(x);
        x = sum;
    }
    qn_array_unref(x);
    assert_int_equal(qn_memory_active(), 0);
}

static qn_array *leaf;

static qn_status build(void)
{
    qn_array *out[2] = {NULL, NULL}, *next = NULL;
    qn_node_spec spec = fake_spec(FAKE_SPLIT, &leaf, 1);
    qn_status status = qn_array_new(&out[0], QN_INT64, fake_shape, 1);
    if (!status)
        status = qn_array_new(&out[1], QN_INT64, fake_shape, 1);
    if (!status)
        status = qn_node_attach(&spec, out, 2);
    if (!status) {
        spec = fake_spec(FAKE_INC, &out[1], 1);
        status = qn_node_new(&next, &spec, QN_INT64, fake_shape, 1);
    }
    qn_array_unref(out[0]);
    qn_array_unref(out[1]);
    qn_array_unref(next);
    return status;
}

static void test_survives_failing_allocations(void **state)
{
    (void)state;
    leaf = fake_leaf(1);
    each_alloc_may_fail(build);
    assert_int_equal(atomic_load(&leaf->refs), 1);
    qn_array_unref(leaf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_node_holds_its_inputs),
        cmocka_unit_test(test_params_are_copied_aligned_and_freed),
        cmocka_unit_test(test_an_unwanted_output_stays_until_its_sibling_goes),
        cmocka_unit_test(test_a_deep_graph_is_taken_apart_without_recursion),
        cmocka_unit_test(test_a_graph_of_shared_nodes_is_freed_once),
        cmocka_unit_test(test_survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, fake_setup, NULL);
}
