/* Handles and results: who shares what, what a failing call leaves. */
#include "capi.h"

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

static void test_freeing_an_empty_handle_does_nothing(void **state)
{
    (void)state;
    check_ok(mlx_array_free(mlx_array_new()));
    check_ok(mlx_array_free(mlx_array_empty));
    check_ok(mlx_string_free(mlx_string_new()));
    check_ok(mlx_device_free(mlx_device_new()));
    check_ok(mlx_device_info_free(mlx_device_info_new()));
    check_ok(mlx_stream_free(mlx_stream_new()));
    check_ok(mlx_closure_free(mlx_closure_new()));
    check_ok(mlx_vector_array_free((mlx_vector_array){NULL}));
    check_ok(mlx_map_string_to_array_free((mlx_map_string_to_array){NULL}));
}

static void
test_a_result_makes_a_new_object_or_replaces_one_in_place(void **state)
{
    (void)state;
    mlx_array a = ints(2, (int[]){1, 2}), res = mlx_array_new();
    check_ok(mlx_add(&res, a, a, cpu));
    void *ctx = res.ctx;
    assert_non_null(ctx);
    mlx_array copy = res; /* shares the box */
    check_ok(mlx_multiply(&res, a, res, cpu));
    assert_ptr_equal(res.ctx, ctx);
    check_ints(copy, 2, (int[]){2, 8});
    mlx_array_free(res);
    mlx_array_free(a);
}

static void test_a_result_may_be_an_input(void **state)
{
    (void)state;
    mlx_array x = ints(2, (int[]){1, 2}), one = mlx_array_new_int(1);
    for (int i = 0; i < 10; i++)
        check_ok(mlx_add(&x, x, one, cpu));
    check_ints(x, 2, (int[]){11, 12});
    check_ok(mlx_add(&x, x, x, cpu));
    check_ints(x, 2, (int[]){22, 24});
    check_ok(mlx_array_set(&x, x));
    check_ints(x, 2, (int[]){22, 24});
    mlx_array_free(x);
    mlx_array_free(one);
}

static void test_a_failing_call_leaves_its_result(void **state)
{
    (void)state;
    mlx_array a = ints(2, (int[]){1, 2}), b = ints(3, (int[]){1, 2, 3});
    mlx_array res = mlx_array_new();
    check_fails(mlx_add(&res, a, b, cpu), "cannot be broadcast");
    assert_null(res.ctx);
    check_ok(mlx_array_set(&res, a));
    void *ctx = res.ctx;
    check_fails(mlx_add(&res, a, b, cpu), "cannot be broadcast");
    assert_ptr_equal(res.ctx, ctx);
    check_ints(res, 2, (int[]){1, 2});
    mlx_array_free(a);
    mlx_array_free(b);
    mlx_array_free(res);
}

static void test_an_empty_handle_is_named(void **state)
{
    (void)state;
    mlx_array a = mlx_array_new_int(1), res = mlx_array_new();
    check_fails(mlx_add(&res, a, mlx_array_empty, cpu),
                "expected a non-empty mlx_array at ");
    check_fails(mlx_add(&res, a, a, mlx_stream_new()),
                "expected a non-empty mlx_stream at ");
    check_fails(mlx_array_eval(res), "expected a non-empty mlx_array");
    check_fails(mlx_eval((mlx_vector_array){NULL}),
                "expected a non-empty mlx_vector_array");
    check_fails(mlx_array_set(&a, res), "expected a non-empty mlx_array");
    check_reports(mlx_array_size(res), 0, "expected a non-empty mlx_array");
    check_reports((intptr_t)mlx_array_shape(res), 0, "mlx_array");
    check_reports((intptr_t)mlx_array_data_float32(res), 0, "mlx_array");
    check_reports(mlx_array_dtype(res), 0, "mlx_array");
    check_reports((intptr_t)mlx_string_data(mlx_string_new()), 0,
                  "expected a non-empty mlx_string");
    assert_null(res.ctx);
    mlx_array_free(a);
}

static void test_objects_outlive_the_handles_they_were_made_from(void **state)
{
    (void)state;
    mlx_array a = ints(2, (int[]){1, 2}), sum = mlx_array_new();
    check_ok(mlx_add(&sum, a, a, cpu));
    mlx_vector_array vec = mlx_vector_array_new_value(sum);
    mlx_array_free(a);
    mlx_array_free(sum);
    mlx_array got = mlx_array_new();
    check_ok(mlx_vector_array_get(&got, vec, 0));
    mlx_vector_array_free(vec);
    check_ints(got, 2, (int[]){2, 4});
    mlx_array_free(got);
}

static void test_strings_are_copied(void **state)
{
    (void)state;
    char text[] = "one";
    mlx_string a = mlx_string_new_data(text), b = mlx_string_new();
    text[0] = 'x';
    assert_string_equal(mlx_string_data(a), "one");
    check_ok(mlx_string_set(&b, a));
    void *ctx = b.ctx;
    mlx_string_free(a);
    assert_string_equal(mlx_string_data(b), "one");
    a = mlx_string_new_data("another, which is longer");
    check_ok(mlx_string_set(&b, a));
    assert_ptr_equal(b.ctx, ctx);
    check_ok(mlx_string_set(&b, b));
    assert_string_equal(mlx_string_data(b), "another, which is longer");
    check_fails(mlx_string_set(&b, mlx_string_new()), "mlx_string");
    mlx_string_free(a);
    mlx_string_free(b);
}

static void test_the_version_is_that_of_the_interface(void **state)
{
    (void)state;
    mlx_string version = mlx_string_new();
    check_ok(mlx_version(&version));
    assert_string_equal(mlx_string_data(version), "0.32.2");
    mlx_string_free(version);
}

static void test_metal_and_cuda_are_not_there(void **state)
{
    (void)state;
    bool there = true;
    check_ok(mlx_metal_is_available(&there));
    assert_false(there);
    there = true;
    check_ok(mlx_cuda_is_available(&there));
    assert_false(there);
    check_ok(mlx_metal_start_capture("/nonexistent/trace"));
    check_ok(mlx_metal_stop_capture());
    mlx_string path = mlx_string_new();
    check_fails(mlx_metal_get_metallib_path(&path), "Metal");
    assert_null(path.ctx);
}

static void test_memory_is_counted(void **state)
{
    (void)state;
    size_t before, after, peak, limit, old;
    check_ok(mlx_clear_cache());
    check_ok(mlx_get_active_memory(&before));
    check_ok(mlx_reset_peak_memory());
    mlx_array big = mlx_array_new();
    const int shape[] = {1 << 20};
    check_ok(mlx_zeros(&big, shape, 1, MLX_FLOAT32, cpu));
    check_ok(mlx_array_eval(big));
    check_ok(mlx_get_active_memory(&after));
    assert_true(after - before >= (size_t)4 << 20);
    mlx_array_free(big);
    check_ok(mlx_get_active_memory(&after));
    assert_int_equal(after, before);
    check_ok(mlx_get_peak_memory(&peak));
    assert_true(peak >= (size_t)4 << 20);
    check_ok(mlx_get_cache_memory(&after));
    assert_true(after >= (size_t)4 << 20);
    check_ok(mlx_set_cache_limit(&limit, 0));
    check_ok(mlx_get_cache_memory(&after));
    assert_int_equal(after, 0);
    check_ok(mlx_set_cache_limit(&old, limit));
    assert_int_equal(old, 0);
    check_ok(mlx_get_memory_limit(&limit));
    check_ok(mlx_set_memory_limit(&old, 1 << 30));
    assert_int_equal(old, limit);
    check_ok(mlx_set_memory_limit(&old, limit));
    assert_int_equal(old, 1 << 30);
    check_ok(mlx_set_wired_limit(&old, 123));
    check_ok(mlx_set_wired_limit(&old, 0));
    assert_int_equal(old, 123);
}

/* ---- failing allocations ---- */

/* The status of a call, by what the handler heard. */
static qn_status status_of(bool failed)
{
    return failed ? strstr(heard.text, "out of memory") ? QN_E_NOMEM
                                                        : QN_E_INTERNAL
                  : QN_OK;
}

static qn_status program(void)
{
    static const int values[] = {1, 2, 3, 4};
    mlx_array a = mlx_array_new_data(values, (int[]){2, 2}, 2, MLX_INT32);
    mlx_array b = mlx_array_new(), item = mlx_array_new();
    mlx_vector_array vec = mlx_vector_array_new();
    mlx_map_string_to_array map = mlx_map_string_to_array_new();
    mlx_string text = mlx_string_new();
    mlx_clear_cache();
    bool failed = !a.ctx || !vec.ctx || !map.ctx || mlx_add(&b, a, a, cpu) ||
                  mlx_multiply(&b, b, a, cpu) ||
                  mlx_vector_array_append_value(vec, b) ||
                  mlx_vector_array_append_value(vec, a) || mlx_eval(vec) ||
                  mlx_map_string_to_array_insert(map, "b", b) ||
                  mlx_map_string_to_array_get(&item, map, "b") ||
                  mlx_array_tostring(&text, item);
    if (!failed)
        assert_string_equal(mlx_string_data(text), "array([[2, 8],\n"
                                                   "       [18, 32]], "
                                                   "dtype=int32)");
    mlx_array_free(a);
    mlx_array_free(b);
    mlx_array_free(item);
    mlx_vector_array_free(vec);
    mlx_map_string_to_array_free(map);
    mlx_string_free(text);
    return status_of(failed);
}

static void test_a_program_survives_failing_allocations(void **state)
{
    (void)state;
    size_t before, after;
    check_ok(mlx_get_active_memory(&before));
    each_alloc_may_fail(program);
    check_ok(mlx_get_active_memory(&after));
    assert_int_equal(after, before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_freeing_an_empty_handle_does_nothing),
        cmocka_unit_test(
            test_a_result_makes_a_new_object_or_replaces_one_in_place),
        cmocka_unit_test(test_a_result_may_be_an_input),
        cmocka_unit_test(test_a_failing_call_leaves_its_result),
        cmocka_unit_test(test_an_empty_handle_is_named),
        cmocka_unit_test(test_objects_outlive_the_handles_they_were_made_from),
        cmocka_unit_test(test_strings_are_copied),
        cmocka_unit_test(test_the_version_is_that_of_the_interface),
        cmocka_unit_test(test_metal_and_cuda_are_not_there),
        cmocka_unit_test(test_memory_is_counted),
        cmocka_unit_test(test_a_program_survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
