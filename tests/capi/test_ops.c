/* The C entries of operations: results in old and new handles, optional and
 * missing arguments, errors that leave results alone, every regular row. */
#include "capi.h"

#include <math.h>

static mlx_stream stream;

static int set_up(void **state)
{
    capi_setup(state);
    stream = mlx_default_cpu_stream_new();
    assert_non_null(stream.ctx);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return mlx_stream_free(stream);
}

static mlx_array floats(int rows, int columns, const float *values)
{
    int shape[2] = {rows, columns};
    mlx_array a = mlx_array_new_data(values, shape, 2, MLX_FLOAT32);
    assert_non_null(a.ctx);
    return a;
}

static void test_result_may_be_an_input(void **state)
{
    (void)state;
    mlx_array x = ints(3, (int[]){1, 2, 3});
    void *box = x.ctx;
    check_ok(mlx_add(&x, x, x, stream));
    assert_ptr_equal(x.ctx, box);
    check_ints(x, 3, (int[]){2, 4, 6});
    mlx_array_free(x);
}

static void test_failure_leaves_the_result(void **state)
{
    (void)state;
    mlx_array x = ints(3, (int[]){1, 2, 3}), y = ints(2, (int[]){1, 2});
    mlx_array none = mlx_array_new();
    check_fails(mlx_add(&x, x, y, stream),
                "[add] Shapes (3) and (2) cannot be");
    check_ints(x, 3, (int[]){1, 2, 3});
    check_fails(mlx_add(&none, x, y, stream), " at ");
    assert_null(none.ctx);
    check_fails(mlx_add(&none, x, none, stream),
                "expected a non-empty mlx_array");
    check_fails(mlx_add(&none, x, x, (mlx_stream){NULL}),
                "expected a non-empty mlx_stream");
    check_fails(mlx_astype(&none, x, (mlx_dtype)99, stream), "dtype");
    mlx_array_free(x);
    mlx_array_free(y);
}

static void test_counts_of_zero_read_nothing(void **state)
{
    (void)state;
    mlx_array one = ints(1, (int[]){7}), r = mlx_array_new();
    check_ok(mlx_reshape(&r, one, NULL, 0, stream));
    assert_int_equal(mlx_array_ndim(r), 0);
    check_ok(mlx_transpose_axes(&r, r, NULL, 0, stream));
    check_ok(mlx_slice(&r, r, NULL, 0, NULL, 0, NULL, 0, stream));
    check_ok(mlx_zeros(&r, NULL, 0, MLX_INT32, stream));
    check_ok(mlx_sum_axes(&r, r, NULL, 0, false, stream));
    check_ok(mlx_broadcast_to(&r, r, NULL, 0, stream));
    check_ints(r, 1, (int[]){0});
    mlx_vector_array none = mlx_vector_array_new();
    check_fails(mlx_concatenate(&r, none, stream), "[concatenate] No arrays");
    mlx_vector_array_free(none);
    mlx_array_free(one);
    mlx_array_free(r);
}

static void test_optional_arguments(void **state)
{
    (void)state;
    mlx_array x = floats(1, 4, (float[]){3, 3, 3, 3}), r = mlx_array_new();
    check_ok(mlx_fast_rms_norm(&r, x, mlx_array_empty, 0, stream));
    check_ok(mlx_array_eval(r));
    assert_float_equal(mlx_array_data_float32(r)[2], 1, 1e-6);
    check_ok(mlx_fast_layer_norm(&r, x, mlx_array_empty, mlx_array_empty, 1,
                                 stream));
    check_ok(mlx_random_seed(5));
    check_ok(mlx_random_categorical(&r, x, -1, mlx_array_empty, stream));
    check_ok(mlx_array_eval(r));
    mlx_optional_dtype none = {MLX_FLOAT32, false}, wide = {MLX_INT64, true};
    mlx_array small = ints(2, (int[]){1, 2});
    check_ok(mlx_cumsum(&r, small, false, true, none, stream));
    assert_int_equal(mlx_array_dtype(r), MLX_INT32);
    check_ok(mlx_cumsum_axis(&r, small, 0, false, true, wide, stream));
    assert_int_equal(mlx_array_dtype(r), MLX_INT64);
    check_fails(mlx_clip(&r, x, mlx_array_empty, mlx_array_empty, stream),
                "[clip]");
    check_fails(mlx_pad(&r, x, NULL, 0, NULL, 0, NULL, 0, x, NULL, stream),
                "[pad]");
    mlx_array_free(small);
    mlx_array_free(x);
    mlx_array_free(r);
}

static void test_several_results(void **state)
{
    (void)state;
    mlx_array x = ints(4, (int[]){1, 2, 3, 4}), r = mlx_array_new();
    mlx_vector_array parts = mlx_vector_array_new();
    check_ok(mlx_split(&parts, x, 2, 0, stream));
    assert_int_equal(mlx_vector_array_size(parts), 2);
    check_ok(mlx_vector_array_get(&r, parts, 1));
    check_ints(r, 2, (int[]){3, 4});
    check_ok(mlx_split_sections(&parts, x, (int[]){1}, 1, 0, stream));
    check_ok(mlx_vector_array_get(&r, parts, 0));
    check_ints(r, 1, (int[]){1});
    check_fails(mlx_split(&parts, x, 3, 0, stream), "[split]");
    assert_int_equal(mlx_vector_array_size(parts), 2);
    mlx_array key = mlx_array_new(), a = mlx_array_new(), b = mlx_array_new();
    check_ok(mlx_random_key(&key, 42));
    check_ok(mlx_random_split(&a, &b, key, stream));
    check_ok(mlx_array_eval(b));
    assert_int_equal(mlx_array_data_uint32(b)[0], 255383827);
    mlx_vector_array_free(parts);
    mlx_array_free(key);
    mlx_array_free(a);
    mlx_array_free(b);
    mlx_array_free(x);
    mlx_array_free(r);
}

/* Each regular entry takes a small operand and gives something. */
static void test_every_regular_entry_answers(void **state)
{
    (void)state;
    static const float values[] = {0.25F, 0.5F, 0.75F, 0.125F};
    mlx_array f = floats(2, 2, values), i = ints(2, (int[]){1, 2});
    mlx_array r = mlx_array_new();
    mlx_optional_dtype none = {MLX_FLOAT32, false};
#define TRY(call)                                                              \
    check_ok(call);                                                            \
    check_ok(mlx_array_eval(r));                                               \
    assert_true(mlx_array_size(r) > 0);
/* Bits want integers, everything else takes floats. */
#define OPERAND_NUM f
#define OPERAND_ORD f
#define OPERAND_REAL f
#define OPERAND_FLOAT f
#define OPERAND_RFLOAT f
#define OPERAND_BOOL f
#define OPERAND_ANY f
#define OPERAND_BITS i
#define OPERAND_INT i
#define QN_UNARY(id, name, types, ...)                                         \
    TRY(mlx_##name(&r, OPERAND_##types, stream))
#define QN_UNARY_HAND(...)
#define QN_BINARY(id, name, types, ...)                                        \
    TRY(mlx_##name(&r, OPERAND_##types, OPERAND_##types, stream))
#define QN_REDUCE(id, name, ...)                                               \
    TRY(mlx_##name(&r, f, true, stream))                                       \
    TRY(mlx_##name##_axis(&r, f, -1, false, stream))                           \
    TRY(mlx_##name##_axes(&r, f, (int[]){0, 1}, 2, false, stream))
#define QN_SCAN(id, name, ...)                                                 \
    TRY(mlx_##name(&r, f, true, true, stream))                                 \
    TRY(mlx_##name##_axis(&r, f, -1, false, false, stream))
#define QN_SCAN_TYPED(id, name, ...)                                           \
    TRY(mlx_##name(&r, f, true, true, none, stream))                           \
    TRY(mlx_##name##_axis(&r, f, -1, false, false, none, stream))
#define TRY_UNARY(name) TRY(mlx_##name(&r, f, stream))
#define TRY_BINARY(name) TRY(mlx_##name(&r, f, f, stream))
#define TRY_AXES(name) QN_REDUCE(, name, )
#define TRY_HAND(name)
#define QN_COMPOSITE(name, form, file, doc) TRY_##form(name)
#include "ops/ops.def"
    mlx_array_free(f);
    mlx_array_free(i);
    mlx_array_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_result_may_be_an_input),
        cmocka_unit_test(test_failure_leaves_the_result),
        cmocka_unit_test(test_counts_of_zero_read_nothing),
        cmocka_unit_test(test_optional_arguments),
        cmocka_unit_test(test_several_results),
        cmocka_unit_test(test_every_regular_entry_answers),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
