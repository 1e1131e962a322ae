/* What random programs (fuzz/fuzz_abi.c) have found, each as a test. */
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

/* Its copies filled a block of the stack that was too small for them. */
static void test_one_condition_for_many_elements(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    for (int on = 0; on < 2; on++) {
        mlx_array condition = mlx_array_new_bool(on);
        mlx_array x = {NULL}, y = {NULL}, res = {NULL};
        check_ok(mlx_arange(&x, 0, COUNT, 1, MLX_FLOAT32, cpu));
        check_ok(mlx_negative(&y, x, cpu));
        check_ok(mlx_where(&res, condition, x, y, cpu));
        check_ok(mlx_array_eval(res));
        const float *data = mlx_array_data_float32(res);
        for (int i = 0; i < COUNT; i++)
            assert_true(data[i] == (float)(on ? i : -i));
        mlx_array_free(condition);
        mlx_array_free(x);
        mlx_array_free(y);
        mlx_array_free(res);
    }
}

/* Views bring other bytes than 0 and 1 under the type bool. */
static void test_any_byte_but_0_is_true(void **state)
{
    (void)state;
    int count = 3, value = -1;
    uint8_t bytes[] = {80, 0, 255};
    bool flag = false;
    mlx_string text = mlx_string_new();
    mlx_array a = mlx_array_new_data(bytes, &count, 1, MLX_UINT8), last = {0};
    check_ok(mlx_view(&a, a, MLX_BOOL, cpu));
    check_ok(mlx_array_tostring(&text, a));
    assert_string_equal(mlx_string_data(text),
                        "array([true, false, true], dtype=bool)");
    check_ok(
        mlx_slice(&last, a, (int[]){2}, 1, (int[]){3}, 1, (int[]){1}, 1, cpu));
    check_ok(mlx_array_item_bool(&flag, last));
    assert_true(flag);
    check_ok(mlx_array_item_int32(&value, last));
    assert_int_equal(value, 1);
    check_ok(mlx_astype(&last, last, MLX_INT32, cpu));
    check_ok(mlx_array_item_int32(&value, last));
    assert_int_equal(value, 1);
    mlx_string_free(text);
    mlx_array_free(a);
    mlx_array_free(last);
}

/* Loops computed with the step of an axis that has one place. */
static void test_steps_that_nobody_takes_may_be_any(void **state)
{
    (void)state;
    mlx_optional_dtype same = {MLX_FLOAT32, false};
    mlx_array x = {NULL}, view = {NULL}, res = {NULL};
    check_ok(mlx_arange(&x, 0, 4, 1, MLX_FLOAT32, cpu));
    int shape[] = {1, 2};
    int64_t strides[] = {INT64_MIN, 1}, more[] = {INT64_MAX / 2, 1};
    for (int i = 0; i < 2; i++) {
        check_ok(
            mlx_as_strided(&view, x, shape, 2, i ? more : strides, 2, 2, cpu));
        check_ok(mlx_cumsum_axis(&res, view, 0, false, true, same, cpu));
        check_ok(mlx_array_eval(res));
        assert_true(mlx_array_data_float32(res)[1] == 3);
        check_ok(mlx_sum(&res, view, false, cpu));
        check_ok(mlx_array_eval(res));
        assert_true(mlx_array_data_float32(res)[0] == 5);
    }
    mlx_array_free(x);
    mlx_array_free(view);
    mlx_array_free(res);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_condition_for_many_elements),
        cmocka_unit_test(test_any_byte_but_0_is_true),
        cmocka_unit_test(test_steps_that_nobody_takes_may_be_any),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
