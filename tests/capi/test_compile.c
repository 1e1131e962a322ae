/* Compiled closures through the C API: counts of traces, caches by number,
 * modes, what a callback sees while it is recorded, ownership. */
#include "capi.h"

#include "quern/ext.h"

static mlx_stream cpu;

static int setup(void **state)
{
    capi_setup(state);
    cpu = mlx_default_cpu_stream_new();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    check_ok(mlx_set_compile_mode(MLX_COMPILE_MODE_ENABLED));
    mlx_stream_free(cpu);
    return 0;
}

static mlx_array line(int n)
{
    float values[32];
    for (int i = 0; i < 32; i++)
        values[i] = (float)i;
    return mlx_array_new_data(values, &n, 1, MLX_FLOAT32);
}

static mlx_vector_array list1(mlx_array a)
{
    mlx_vector_array list = mlx_vector_array_new();
    check_ok(mlx_vector_array_append_value(list, a));
    return list;
}

/* 2 x + 1, and what happened meanwhile. */
typedef struct record {
    int calls, destroyed;
    bool shapeless;  /* the trace was */
    bool look, fail; /* evaluate; refuse */
    mlx_closure inner;
    bool after_inner;
} record;

static int twice_plus_one(mlx_vector_array *res, const mlx_vector_array in,
                          void *payload)
{
    record *r = payload;
    mlx_array x = mlx_array_new(), two = mlx_array_new_float(2),
              one = mlx_array_new_float(1), y = mlx_array_new();
    r->calls++;
    r->shapeless = quern_in_shapeless_trace();
    int rc = mlx_vector_array_get(&x, in, 0);
    rc = rc || mlx_multiply(&y, x, two, cpu) || mlx_add(&y, y, one, cpu);
    if (!rc && r->inner.ctx) {
        /* Whatever becomes of the inner call, the flag is as before. */
        mlx_vector_array out = mlx_vector_array_new();
        int failed = mlx_closure_apply(&out, r->inner, in);
        r->after_inner = quern_in_shapeless_trace();
        rc = failed;
        mlx_vector_array_free(out);
    }
    if (r->look)
        rc = rc || mlx_array_eval(y);
    if (r->fail) {
        mlx_error("refused");
        rc = 1;
    }
    rc = rc || mlx_vector_array_set_value(res, y);
    mlx_array_free(x);
    mlx_array_free(two);
    mlx_array_free(one);
    mlx_array_free(y);
    return rc;
}

static void destroy(void *payload)
{
    ((record *)payload)->destroyed++;
}

static mlx_closure compiled(record *r, bool shapeless)
{
    mlx_closure fun = mlx_closure_new_func_payload(twice_plus_one, r, destroy);
    mlx_closure res = mlx_closure_new();
    check_ok(mlx_compile(&res, fun, shapeless));
    mlx_closure_free(fun);
    return res;
}

/* Applies to 0, 1 ... n-1 and checks the results. */
static void check_applied(mlx_closure cls, int n)
{
    mlx_array x = line(n), y = mlx_array_new();
    mlx_vector_array in = list1(x), out = mlx_vector_array_new();
    check_ok(mlx_closure_apply(&out, cls, in));
    check_ok(mlx_vector_array_get(&y, out, 0));
    check_ok(mlx_array_eval(y));
    assert_int_equal(mlx_array_size(y), n);
    for (int i = 0; i < n; i++)
        assert_true(mlx_array_data_float32(y)[i] == (float)(2 * i + 1));
    mlx_array_free(x);
    mlx_array_free(y);
    mlx_vector_array_free(in);
    mlx_vector_array_free(out);
}

static int fails(mlx_closure cls)
{
    mlx_array x = line(3);
    mlx_vector_array in = list1(x), out = mlx_vector_array_new();
    heard.count = 0;
    int rc = mlx_closure_apply(&out, cls, in);
    mlx_array_free(x);
    mlx_vector_array_free(in);
    mlx_vector_array_free(out);
    return rc;
}

static void test_shapeless_traces_once(void **state)
{
    (void)state;
    record r = {0};
    mlx_closure cls = compiled(&r, true);
    assert_int_equal(quern_closure_trace_count(cls), 0);
    check_applied(cls, 3);
    assert_true(r.shapeless);
    assert_false(quern_in_shapeless_trace());
    check_applied(cls, 3);
    check_applied(cls, 5);
    assert_int_equal(r.calls, 1);
    assert_int_equal(quern_closure_trace_count(cls), 1);
    mlx_closure_free(cls);
    assert_int_equal(r.destroyed, 1);
}

static void test_shapes_trace_anew(void **state)
{
    (void)state;
    record r = {0};
    mlx_closure cls = compiled(&r, false);
    check_applied(cls, 3);
    assert_false(r.shapeless);
    check_applied(cls, 5);
    check_applied(cls, 3);
    assert_int_equal(quern_closure_trace_count(cls), 2);
    assert_int_equal(r.calls, 2);
    mlx_closure plain = mlx_closure_new_func_payload(twice_plus_one, &r, NULL);
    assert_int_equal(quern_closure_trace_count(plain), 0);
    mlx_closure_free(plain);
    mlx_closure_free(cls);
}

static void test_a_failing_trace_leaves_nothing(void **state)
{
    (void)state;
    record r = {.fail = true};
    mlx_closure cls = compiled(&r, false);
    assert_int_equal(fails(cls), 1);
    assert_non_null(strstr(heard.text, "refused"));
    r.fail = false;
    check_applied(cls, 3);
    assert_int_equal(r.calls, 2);
    r = (record){.look = true};
    assert_int_equal(fails(cls), 0); /* recorded: the function is not asked */
    mlx_closure_free(cls);
    cls = compiled(&r, false);
    assert_int_equal(fails(cls), 1);
    assert_non_null(strstr(heard.text, "[eval]"));
    assert_non_null(strstr(heard.text, "transformation"));
    mlx_closure_free(cls);
}

static void test_nested_traces_restore_the_flag(void **state)
{
    (void)state;
    record inner = {0}, outer = {0};
    outer.inner = compiled(&inner, false);
    mlx_closure cls = compiled(&outer, true);
    check_applied(cls, 5);
    /* Also inside of a trace with shapes that is inside of one without. */
    assert_true(inner.shapeless);
    assert_true(outer.after_inner);
    check_applied(cls, 17);
    check_applied(cls, 5);
    assert_int_equal(quern_closure_trace_count(cls), 1);
    mlx_closure_free(cls);
    mlx_closure_free(outer.inner);

    inner = (record){.fail = true};
    outer = (record){0};
    outer.inner = compiled(&inner, true);
    cls = compiled(&outer, false);
    assert_int_equal(fails(cls), 1);
    assert_false(outer.after_inner);
    assert_false(quern_in_shapeless_trace());
    mlx_closure_free(cls);
    mlx_closure_free(outer.inner);
}

static void test_caches_by_number(void **state)
{
    (void)state;
    record r = {0};
    mlx_closure fun = mlx_closure_new_func_payload(twice_plus_one, &r, destroy);
    mlx_closure cls = mlx_closure_new(), other = mlx_closure_new();
    uint64_t constants[] = {1, 2};
    mlx_compile_cache cache = mlx_compile_cache_new();
    check_ok(mlx_detail_compile(&cls, fun, 4711, false, NULL, 0));
    check_ok(mlx_detail_compile(&other, fun, 4711, false, constants, 2));
    check_applied(cls, 3);
    check_applied(cls, 3);
    assert_int_equal(r.calls, 1);
    check_applied(other, 3);
    assert_int_equal(r.calls, 2);
    /* The number, not the closure, is the key. */
    check_ok(mlx_detail_compile(&other, fun, 4711, false, NULL, 0));
    check_applied(other, 3);
    assert_int_equal(r.calls, 2);
    check_ok(mlx_detail_compile_cache(&cache));
    check_ok(mlx_detail_compile_erase(cache, 4712));
    check_applied(cls, 3);
    assert_int_equal(r.calls, 2);
    check_ok(mlx_detail_compile_erase(cache, 4711));
    check_applied(cls, 3);
    assert_int_equal(r.calls, 3);
    check_ok(mlx_detail_compile_clear_cache(cache));
    check_applied(cls, 3);
    assert_int_equal(r.calls, 4);
    check_ok(mlx_detail_compile_clear_cache(cache));
    check_ok(mlx_compile_cache_free(cache));
    check_fails(mlx_detail_compile_clear_cache(mlx_compile_cache_new()),
                "expected a non-empty mlx_compile_cache");
    mlx_closure_free(fun);
    mlx_closure_free(cls);
    mlx_closure_free(other);
    assert_int_equal(r.destroyed, 1);
}

static void test_modes(void **state)
{
    (void)state;
    record r = {0};
    mlx_closure cls = compiled(&r, false);
    check_ok(mlx_disable_compile());
    check_applied(cls, 3);
    check_applied(cls, 3);
    assert_int_equal(r.calls, 2);
    assert_int_equal(quern_closure_trace_count(cls), 0);
    check_ok(mlx_enable_compile());
    check_applied(cls, 3);
    check_applied(cls, 3);
    assert_int_equal(r.calls, 3);
    check_ok(mlx_set_compile_mode(MLX_COMPILE_MODE_NO_FUSE));
    check_applied(cls, 3);
    check_ok(mlx_set_compile_mode(MLX_COMPILE_MODE_NO_SIMPLIFY));
    check_applied(cls, 3);
    assert_int_equal(r.calls, 3);
    check_fails(mlx_set_compile_mode((mlx_compile_mode)4), "no mode 4");
    mlx_closure_free(cls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_shapeless_traces_once, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_shapes_trace_anew, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_failing_trace_leaves_nothing,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_nested_traces_restore_the_flag,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_caches_by_number, setup, teardown),
        cmocka_unit_test_setup_teardown(test_modes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
