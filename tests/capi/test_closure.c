/* Closures: six signatures, payloads and their destructors, failing functions.
 */
#include "capi.h"

#include "capi/closure.h"

static mlx_stream cpu;

static int setup(void **state)
{
    capi_setup(state);
    cpu = mlx_default_cpu_stream_new();
    return cpu.ctx == NULL;
}

static int teardown(void **state)
{
    (void)state;
    return mlx_stream_free(cpu);
}

typedef struct payload {
    int calls, destroyed;
    int rc;           /* what the function returns */
    bool leave_empty; /* and whether it fills no result */
} payload;

static void destroy(void *data)
{
    ((payload *)data)->destroyed++;
}

/* Doubles each array. */
static int doubled(mlx_vector_array *res, const mlx_vector_array in)
{
    mlx_array x = mlx_array_new();
    mlx_vector_array out = mlx_vector_array_new();
    for (size_t i = 0; i < mlx_vector_array_size(in); i++) {
        mlx_vector_array_get(&x, in, i);
        mlx_add(&x, x, x, cpu);
        mlx_vector_array_append_value(out, x);
    }
    int rc = mlx_vector_array_set(res, out);
    mlx_vector_array_free(out);
    mlx_array_free(x);
    return rc;
}

static int doubled_payload(mlx_vector_array *res, const mlx_vector_array in,
                           void *data)
{
    payload *p = data;
    p->calls++;
    assert_null(res->ctx);
    if (!p->leave_empty)
        doubled(res, in);
    return p->rc;
}

static int negated(mlx_array *res, const mlx_array in)
{
    return mlx_negative(res, in, cpu);
}

static void check_list(mlx_vector_array list, int count, const int *values)
{
    mlx_array x = mlx_array_new();
    assert_int_equal(mlx_vector_array_size(list), count);
    for (int i = 0; i < count; i++) {
        check_ok(mlx_vector_array_get(&x, list, (size_t)i));
        check_ints(x, 1, &values[i]);
    }
    mlx_array_free(x);
}

/* A list of scalars. */
static mlx_vector_array list_of(int count, const int *values)
{
    mlx_vector_array list = mlx_vector_array_new();
    for (int i = 0; i < count; i++) {
        mlx_array x = mlx_array_new_int(values[i]);
        check_ok(mlx_vector_array_append_value(list, x));
        mlx_array_free(x);
    }
    return list;
}

static void test_a_function_is_called_with_the_inputs(void **state)
{
    (void)state;
    mlx_closure cls = mlx_closure_new_func(doubled);
    mlx_vector_array in = list_of(2, (int[]){3, 4}), res = {NULL};
    check_ok(mlx_closure_apply(&res, cls, in));
    check_list(res, 2, (int[]){6, 8});
    void *ctx = res.ctx;
    check_ok(mlx_closure_apply(&res, cls, res));
    assert_ptr_equal(res.ctx, ctx);
    check_list(res, 2, (int[]){12, 16});
    check_list(in, 2, (int[]){3, 4});
    mlx_vector_array_free(res);
    mlx_vector_array_free(in);
    mlx_closure_free(cls);
}

static void test_a_unary_function_takes_one_array(void **state)
{
    (void)state;
    mlx_closure cls = mlx_closure_new_unary(negated);
    mlx_vector_array one = list_of(1, (int[]){3}), res = {NULL};
    mlx_vector_array two = list_of(2, (int[]){3, 4});
    check_ok(mlx_closure_apply(&res, cls, one));
    check_list(res, 1, (int[]){-3});
    check_fails(mlx_closure_apply(&res, cls, two), "found 2");
    check_list(res, 1, (int[]){-3});
    mlx_vector_array_free(one);
    mlx_vector_array_free(two);
    mlx_vector_array_free(res);
    mlx_closure_free(cls);
}

static void test_the_payload_lives_until_the_last_holder_goes(void **state)
{
    (void)state;
    payload p = {0};
    mlx_closure a = mlx_closure_new_func_payload(doubled_payload, &p, destroy);
    mlx_closure b = mlx_closure_new();
    check_ok(mlx_closure_set(&b, a));
    mlx_closure_free(a);
    assert_int_equal(p.destroyed, 0);
    mlx_vector_array in = list_of(1, (int[]){5}), res = {NULL};
    check_ok(mlx_closure_apply(&res, b, in));
    check_list(res, 1, (int[]){10});
    assert_int_equal(p.calls, 1);
    /* Another closure in its place. */
    a = mlx_closure_new_func(doubled);
    void *ctx = b.ctx;
    check_ok(mlx_closure_set(&b, a));
    assert_ptr_equal(b.ctx, ctx);
    assert_int_equal(p.destroyed, 1);
    mlx_closure_free(a);
    mlx_closure_free(b);
    assert_int_equal(p.destroyed, 1);
    mlx_vector_array_free(in);
    mlx_vector_array_free(res);
}

static void test_a_failing_function_fails_the_call(void **state)
{
    (void)state;
    payload p = {.rc = 1};
    mlx_closure cls =
        mlx_closure_new_func_payload(doubled_payload, &p, destroy);
    mlx_vector_array in = list_of(1, (int[]){5}), res = {NULL};
    check_fails(mlx_closure_apply(&res, cls, in),
                "mlx_closure returned a non-zero value");
    assert_null(res.ctx);
    p = (payload){.leave_empty = true};
    check_fails(mlx_closure_apply(&res, cls, in),
                "expected a non-empty mlx_vector_array");
    assert_null(res.ctx);
    p = (payload){.leave_empty = true, .rc = 7};
    check_fails(mlx_closure_apply(&res, cls, in),
                "mlx_closure returned a non-zero value");
    check_fails(mlx_closure_apply(&res, mlx_closure_new(), in),
                "expected a non-empty mlx_closure");
    check_fails(mlx_closure_apply(&res, cls, (mlx_vector_array){NULL}),
                "expected a non-empty mlx_vector_array");
    mlx_vector_array_free(in);
    mlx_closure_free(cls);
    assert_int_equal(p.destroyed, 1);
}

static mlx_closure own;

static int free_itself(mlx_vector_array *res, const mlx_vector_array in,
                       void *data)
{
    payload *p = data;
    mlx_closure_free(own);
    assert_int_equal(p->destroyed, 0);
    /* Its inputs are copies: adding to them harms nobody. */
    mlx_array x = mlx_array_new_int(0);
    mlx_vector_array_append_value(in, x);
    mlx_array_free(x);
    return mlx_vector_array_set(res, in);
}

static void
test_a_function_may_free_its_handle_and_change_its_input(void **state)
{
    (void)state;
    payload p = {0};
    own = mlx_closure_new_func_payload(free_itself, &p, destroy);
    mlx_vector_array in = list_of(1, (int[]){5}), res = {NULL};
    check_ok(mlx_closure_apply(&res, own, in));
    check_list(res, 2, (int[]){5, 0});
    check_list(in, 1, (int[]){5});
    assert_int_equal(p.destroyed, 1);
    mlx_vector_array_free(in);
    mlx_vector_array_free(res);
}

/* ---- the other signatures ---- */

static int with_kwargs(mlx_vector_array *res, const mlx_vector_array in,
                       const mlx_map_string_to_array kwargs)
{
    mlx_array x = mlx_array_new();
    mlx_vector_array out = mlx_vector_array_new();
    int rc = mlx_vector_array_set(&out, in);
    rc = rc || mlx_map_string_to_array_get(&x, kwargs, "more");
    rc = rc || mlx_vector_array_append_value(out, x);
    rc = rc || mlx_vector_array_set(res, out);
    mlx_vector_array_free(out);
    mlx_array_free(x);
    return rc;
}

static void test_a_function_may_take_arrays_by_name(void **state)
{
    (void)state;
    mlx_closure_kwargs cls = mlx_closure_kwargs_new_func(with_kwargs);
    mlx_vector_array in = list_of(1, (int[]){1}), res = {NULL};
    mlx_map_string_to_array map = mlx_map_string_to_array_new();
    check_fails(mlx_closure_kwargs_apply(&res, cls, in, map),
                "mlx_closure_kwargs returned a non-zero value");
    check_fails(mlx_closure_kwargs_apply(&res, cls, in,
                                         (mlx_map_string_to_array){NULL}),
                "expected a non-empty mlx_map_string_to_array");
    mlx_array x = mlx_array_new_int(2);
    check_ok(mlx_map_string_to_array_insert(map, "more", x));
    check_ok(mlx_closure_kwargs_apply(&res, cls, in, map));
    check_list(res, 2, (int[]){1, 2});
    mlx_array_free(x);
    mlx_map_string_to_array_free(map);
    mlx_vector_array_free(in);
    mlx_vector_array_free(res);
    mlx_closure_kwargs_free(cls);
}

static int value_and_grad(mlx_vector_array *values, mlx_vector_array *grads,
                          const mlx_vector_array in, void *data)
{
    payload *p = data;
    int rc = mlx_vector_array_set(values, in);
    return rc || (!p->leave_empty && doubled(grads, in)) || p->rc;
}

static void test_values_and_gradients_come_together_or_not_at_all(void **state)
{
    (void)state;
    payload p = {0};
    mlx_closure_value_and_grad cls =
        mlx_closure_value_and_grad_new_func_payload(value_and_grad, &p,
                                                    destroy);
    mlx_vector_array in = list_of(1, (int[]){1});
    mlx_vector_array values = {NULL}, grads = {NULL};
    p.leave_empty = true;
    check_fails(mlx_closure_value_and_grad_apply(&values, &grads, cls, in),
                "expected a non-empty mlx_vector_array");
    assert_true(!values.ctx && !grads.ctx);
    p = (payload){.rc = 1};
    check_fails(mlx_closure_value_and_grad_apply(&values, &grads, cls, in),
                "mlx_closure_value_and_grad returned a non-zero value");
    assert_true(!values.ctx && !grads.ctx);
    p.rc = 0;
    check_ok(mlx_closure_value_and_grad_apply(&values, &grads, cls, in));
    check_list(values, 1, (int[]){1});
    check_list(grads, 1, (int[]){2});
    mlx_vector_array_free(in);
    mlx_vector_array_free(values);
    mlx_vector_array_free(grads);
    mlx_closure_value_and_grad_free(cls);
    assert_int_equal(p.destroyed, 1);
}

static int pick_cotangents(mlx_vector_array *res,
                           const mlx_vector_array primals,
                           const mlx_vector_array cotangents,
                           const mlx_vector_array outputs)
{
    return mlx_vector_array_size(primals) != 1 ||
           mlx_vector_array_size(outputs) != 3 ||
           mlx_vector_array_set(res, cotangents);
}

static int pick_tangents(mlx_vector_array *res, const mlx_vector_array primals,
                         const mlx_vector_array tangents, const int *argnums,
                         size_t count)
{
    return mlx_vector_array_size(primals) != 1 || count != 2 ||
           argnums[0] != 4 || argnums[1] != 2 ||
           mlx_vector_array_set(res, tangents);
}

static int move_axes(mlx_vector_array *res, mlx_vector_int *out_axes,
                     const mlx_vector_array in, const int *axes, size_t count)
{
    mlx_vector_int copy = mlx_vector_int_new();
    for (size_t i = 0; i < count; i++)
        mlx_vector_int_append_value(copy, axes[i] + 1);
    int rc = mlx_vector_int_set(out_axes, copy);
    mlx_vector_int_free(copy);
    return rc || mlx_vector_array_set(res, in);
}

static void test_rules_get_all_their_arguments(void **state)
{
    (void)state;
    mlx_vector_array one = list_of(1, (int[]){1});
    mlx_vector_array two = list_of(2, (int[]){1, 2});
    mlx_vector_array three = list_of(3, (int[]){1, 2, 3}), res = {NULL};
    mlx_closure_custom vjp = mlx_closure_custom_new_func(pick_cotangents);
    check_ok(mlx_closure_custom_apply(&res, vjp, one, two, three));
    check_list(res, 2, (int[]){1, 2});
    check_fails(mlx_closure_custom_apply(&res, vjp, one, two, two),
                "mlx_closure_custom returned a non-zero value");

    mlx_closure_custom_jvp jvp = mlx_closure_custom_jvp_new_func(pick_tangents);
    check_ok(
        mlx_closure_custom_jvp_apply(&res, jvp, one, three, (int[]){4, 2}, 2));
    check_list(res, 3, (int[]){1, 2, 3});

    mlx_closure_custom_vmap vmap = mlx_closure_custom_vmap_new_func(move_axes);
    mlx_vector_int axes = {NULL};
    check_ok(mlx_closure_custom_vmap_apply(&res, &axes, vmap, two,
                                           (int[]){-1, 0}, 2));
    check_list(res, 2, (int[]){1, 2});
    int axis = 9;
    check_ok(mlx_vector_int_get(&axis, axes, 1));
    assert_int_equal(axis, 1);
    mlx_vector_int_free(axes);
    mlx_closure_custom_free(vjp);
    mlx_closure_custom_jvp_free(jvp);
    mlx_closure_custom_vmap_free(vmap);
    mlx_vector_array_free(res);
    mlx_vector_array_free(one);
    mlx_vector_array_free(two);
    mlx_vector_array_free(three);
}

/* ---- failing allocations ---- */

static int echo(mlx_vector_array *res, const mlx_vector_array in)
{
    return mlx_vector_array_set(res, in);
}

static qn_status program(void)
{
    payload p = {0};
    mlx_closure cls =
        mlx_closure_new_func_payload(doubled_payload, &p, destroy);
    p.leave_empty = true;
    mlx_closure plain = mlx_closure_new_func(echo), copy = mlx_closure_new();
    mlx_vector_array in = mlx_vector_array_new(), res = {NULL};
    qn_status status = QN_OK;
    heard.count = 0;
    if (!cls.ctx || !plain.ctx || !in.ctx || mlx_closure_set(&copy, cls) ||
        mlx_closure_apply(&res, plain, in))
        status = QN_E_NOMEM;
    mlx_closure_free(cls);
    mlx_closure_free(copy);
    mlx_closure_free(plain);
    mlx_vector_array_free(in);
    mlx_vector_array_free(res);
    assert_int_equal(p.destroyed, 1);
    return status;
}

static void test_closures_survive_failing_allocations(void **state)
{
    (void)state;
    each_alloc_may_fail(program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_function_is_called_with_the_inputs),
        cmocka_unit_test(test_a_unary_function_takes_one_array),
        cmocka_unit_test(test_the_payload_lives_until_the_last_holder_goes),
        cmocka_unit_test(test_a_failing_function_fails_the_call),
        cmocka_unit_test(
            test_a_function_may_free_its_handle_and_change_its_input),
        cmocka_unit_test(test_a_function_may_take_arrays_by_name),
        cmocka_unit_test(test_values_and_gradients_come_together_or_not_at_all),
        cmocka_unit_test(test_rules_get_all_their_arguments),
        cmocka_unit_test(test_closures_survive_failing_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
