/* Arrays through the C API: creation, properties, elements, layout, text. */
#include "capi.h"

#include <complex.h>
#include <locale.h>
#include <math.h>

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

static void test_scalars_have_the_dtype_of_their_name(void **state)
{
    (void)state;
    struct {
        mlx_array array;
        mlx_dtype dtype;
    } made[] = {
        {mlx_array_new_bool(true), MLX_BOOL},
        {mlx_array_new_int(-7), MLX_INT32},
        {mlx_array_new_float32(1.5f), MLX_FLOAT32},
        {mlx_array_new_float(1.5f), MLX_FLOAT32},
        {mlx_array_new_float64(0.1), MLX_FLOAT64},
        {mlx_array_new_double(0.1), MLX_FLOAT64},
        {mlx_array_new_complex(1, -2), MLX_COMPLEX64},
    };
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
        assert_int_equal(mlx_array_dtype(made[i].array), made[i].dtype);
        assert_int_equal(mlx_array_ndim(made[i].array), 0);
        assert_int_equal(mlx_array_size(made[i].array), 1);
    }
    bool b;
    int32_t n;
    double d;
    mlx_complex64_t z;
    check_ok(mlx_array_item_bool(&b, made[0].array));
    check_ok(mlx_array_item_int32(&n, made[1].array));
    check_ok(mlx_array_item_float64(&d, made[4].array));
    check_ok(mlx_array_item_complex64(&z, made[6].array));
    assert_true(b);
    assert_int_equal(n, -7);
    assert_true(d == 0.1);
    assert_true(crealf(z) == 1 && cimagf(z) == -2);
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++)
        mlx_array_free(made[i].array);
}

static void test_setters_replace_in_place(void **state)
{
    (void)state;
    mlx_array a = mlx_array_new();
    check_ok(mlx_array_set_int(&a, 3));
    void *ctx = a.ctx;
    check_ok(mlx_array_set_bool(&a, true));
    check_ok(mlx_array_set_float(&a, 1));
    check_ok(mlx_array_set_float32(&a, 1));
    check_ok(mlx_array_set_double(&a, 1));
    check_ok(mlx_array_set_float64(&a, 1));
    check_ok(mlx_array_set_complex(&a, 1, 2));
    const int values[] = {1, 2, 3};
    check_ok(mlx_array_set_data(&a, values, (int[]){3}, 1, MLX_INT32));
    assert_ptr_equal(a.ctx, ctx);
    check_ints(a, 3, values);
    check_fails(mlx_array_set_data(&a, values, (int[]){-3}, 1, MLX_INT32),
                "negative");
    check_ints(a, 3, values);
    mlx_array_free(a);
}

static void test_properties_need_no_evaluation(void **state)
{
    (void)state;
    const float data[6] = {0};
    mlx_array a = mlx_array_new_data(data, (int[]){2, 3}, 2, MLX_FLOAT32);
    mlx_array b = mlx_array_new();
    check_ok(mlx_transpose(&b, a, cpu));
    assert_int_equal(mlx_array_itemsize(b), 4);
    assert_int_equal(mlx_array_nbytes(b), 24);
    assert_int_equal(mlx_array_size(b), 6);
    assert_int_equal(mlx_array_ndim(b), 2);
    assert_int_equal(mlx_array_shape(b)[0], 3);
    assert_int_equal(mlx_array_dim(b, 1), 2);
    assert_int_equal(mlx_array_dim(b, -2), 3);
    assert_int_equal(mlx_array_dtype(b), MLX_FLOAT32);
    check_reports(mlx_array_dim(b, 2), 0, "2 dimensions");
    check_reports(mlx_array_dim(b, -3), 0, "2 dimensions");
    bool available = true;
    check_ok(_mlx_array_is_available(&available, b));
    assert_false(available);
    assert_null(mlx_array_data_float32(b));
    check_ok(_mlx_array_wait(b));
    check_ok(_mlx_array_is_available(&available, b));
    assert_true(available);
    assert_int_equal(mlx_array_strides(b)[0], 1);
    assert_int_equal(mlx_array_strides(b)[1], 3);
    mlx_array_free(a);
    mlx_array_free(b);
}

static void test_bad_dtypes_and_shapes_are_refused(void **state)
{
    (void)state;
    heard.count = 0;
    assert_null(mlx_array_new_data("", (int[]){1}, 1, (mlx_dtype)14).ctx);
    check_heard("14");
    heard.count = 0;
    assert_null(mlx_array_new_data("", (int[]){-1}, 1, MLX_BOOL).ctx);
    check_heard("negative");
    heard.count = 0;
    assert_null(mlx_array_new_data("", (int[]){1}, -1, MLX_BOOL).ctx);
    check_heard("dimensions");
    check_reports(mlx_dtype_size((mlx_dtype)-1), 0, "-1");
    assert_int_equal(mlx_dtype_size(MLX_COMPLEX64), 8);
    /* A pointer whose count is 0 is not read. */
    mlx_array a = mlx_array_new_data("\1", NULL, 0, MLX_BOOL);
    assert_int_equal(mlx_array_size(a), 1);
    mlx_array_free(a);
    a = mlx_array_new_data(NULL, (int[]){0}, 1, MLX_BOOL);
    assert_int_equal(mlx_array_size(a), 0);
    mlx_array_free(a);
}

static int destroyed;

static void destroy(void *payload)
{
    assert_ptr_equal(payload, &destroyed);
    destroyed++;
    /* A destructor may call the library, also a call that fails. */
    mlx_array a = mlx_array_new_int(1);
    mlx_array_free(a);
    mlx_array_eval(mlx_array_empty);
}

static void test_managed_data_is_destroyed_once(void **state)
{
    (void)state;
    static float data[2] = {1, 2};
    destroyed = 0;
    mlx_array a = mlx_array_new_data_managed_payload(
        data, (int[]){2}, 1, MLX_FLOAT32, &destroyed, destroy);
    mlx_array b = mlx_array_new();
    check_ok(mlx_add(&b, a, a, cpu));
    mlx_array_free(a);
    assert_int_equal(destroyed, 0);
    heard.count = 0;
    assert_int_equal(mlx_array_eval(b), 0);
    assert_int_equal(heard.count, 1); /* the destructor's own */
    assert_int_equal(destroyed, 1);
    assert_true(mlx_array_data_float32(b)[1] == 4);
    assert_true(data[1] == 2); /* never overwritten */
    mlx_array_free(b);

    /* Also when the array can't be made; that error is the one reported. */
    heard.count = 0;
    a = mlx_array_new_data_managed_payload(data, (int[]){2}, 1, (mlx_dtype)99,
                                           &destroyed, destroy);
    assert_null(a.ctx);
    assert_int_equal(destroyed, 2);
    assert_non_null(strstr(heard.text, "99"));
    a = mlx_array_new_data_managed_payload(data, (int[]){-2}, 1, MLX_FLOAT32,
                                           &destroyed, destroy);
    assert_null(a.ctx);
    assert_int_equal(destroyed, 3);
    assert_non_null(strstr(heard.text, "negative"));
}

static void test_items_need_one_element_and_a_fitting_dtype(void **state)
{
    (void)state;
    const int shape[] = {1, 1, 1};
    const uint8_t byte = 200;
    mlx_array a = mlx_array_new_data(&byte, shape, 3, MLX_UINT8);
    uint8_t u8;
    int8_t i8;
    int64_t i64;
    bool b;
    float f = 1;
    check_ok(mlx_array_item_uint8(&u8, a));
    check_ok(mlx_array_item_int8(&i8, a));
    check_ok(mlx_array_item_int64(&i64, a));
    check_ok(mlx_array_item_bool(&b, a));
    assert_int_equal(u8, 200);
    assert_int_equal(i8, -56);
    assert_int_equal(i64, 200);
    assert_true(b);
    check_fails(mlx_array_item_float32(&f, a), "uint8");
    assert_true(f == 1);
    mlx_array_free(a);
    a = mlx_array_new_float(2.5f);
    check_fails(mlx_array_item_int32(&(int32_t){0}, a), "float32");
    check_ok(mlx_array_item_float32(&f, a));
    assert_true(f == 2.5f);
    mlx_array_free(a);
    a = ints(2, (int[]){1, 2});
    check_fails(mlx_array_item_int32(&(int32_t){0}, a), "size 1");
    mlx_array_free(a);
}

static void test_half_accessors_give_the_bits(void **state)
{
    (void)state;
    const uint16_t bits = 0x3fc0;
    mlx_array a = mlx_array_new_data(&bits, NULL, 0, MLX_BFLOAT16);
    mlx_array b = mlx_array_new_data(&bits, NULL, 0, MLX_FLOAT16);
    mlx_bfloat16_t x;
    mlx_float16_t y;
    check_ok(mlx_array_item_bfloat16(&x, a));
    check_ok(mlx_array_item_float16(&y, b));
    assert_memory_equal(&x, &bits, 2);
    assert_memory_equal(&y, &bits, 2);
    assert_memory_equal(mlx_array_data_bfloat16(a), &bits, 2);
    assert_memory_equal(mlx_array_data_float16(b), &bits, 2);
    check_fails(mlx_array_item_float16(&y, a), "bfloat16");
    mlx_array_free(a);
    mlx_array_free(b);
}

static void check_layout(mlx_array a, bool any, bool row, bool col)
{
    bool found;
    check_ok(mlx_array_eval(a));
    check_ok(_mlx_array_is_contiguous(&found, a));
    assert_int_equal(found, any);
    check_ok(_mlx_array_is_row_contiguous(&found, a));
    assert_int_equal(found, row);
    check_ok(_mlx_array_is_col_contiguous(&found, a));
    assert_int_equal(found, col);
}

static void test_layout_queries(void **state)
{
    (void)state;
    const float data[12] = {0};
    bool found;
    mlx_array a = mlx_array_new_data(data, (int[]){3, 4}, 2, MLX_FLOAT32);
    mlx_array b = mlx_array_new();
    check_layout(a, true, true, false);
    check_ok(mlx_transpose(&b, a, cpu));
    check_fails(_mlx_array_is_contiguous(&found, b), "not evaluated");
    check_layout(b, true, false, true);
    check_ok(mlx_slice(&b, a, (int[]){0, 0}, 2, (int[]){3, 4}, 2, (int[]){2, 2},
                       2, cpu));
    check_layout(b, false, false, false);
    /* Repeated, but without a gap. */
    check_ok(mlx_broadcast_to(&b, a, (int[]){2, 3, 4}, 3, cpu));
    check_layout(b, true, false, false);
    mlx_array_free(a);
    mlx_array_free(b);
}

/* ---- text ---- */

static void check_text(mlx_array a, const char *expected)
{
    mlx_string text = mlx_string_new();
    check_ok(mlx_array_tostring(&text, a));
    assert_string_equal(mlx_string_data(text), expected);
    mlx_string_free(text);
    mlx_array_free(a);
}

#define ARRAY(dtype, type, count, ...)                                         \
    mlx_array_new_data((const type[]){__VA_ARGS__}, (int[]){count}, 1, dtype)

static void test_numbers_as_text(void **state)
{
    (void)state;
    check_text(mlx_array_new_int(-3), "array(-3, dtype=int32)");
    check_text(ARRAY(MLX_FLOAT32, float, 4, 0, -0.0f, 1e-10f, 1e10f),
               "array([0, -0, 1e-10, 1e+10], dtype=float32)");
    check_text(ARRAY(MLX_FLOAT32, float, 4, 1e6f, 1e20f, 1e-5f, 1e-4f),
               "array([1e+06, 1e+20, 1e-05, 0.0001], dtype=float32)");
    check_text(ARRAY(MLX_FLOAT64, double, 4, 1.0 / 3, -INFINITY, INFINITY, NAN),
               "array([0.333333, -inf, inf, nan], dtype=float64)");
    check_text(ARRAY(MLX_FLOAT32, float, 2, -NAN, 3.5f),
               "array([nan, 3.5], dtype=float32)");
    check_text(ARRAY(MLX_BFLOAT16, uint16_t, 2, 0x3fc0, 0xff80),
               "array([1.5, -inf], dtype=bfloat16)");
    check_text(ARRAY(MLX_FLOAT16, uint16_t, 2, 0x3e00, 0x0001),
               "array([1.5, 5.96046e-08], dtype=float16)");
    check_text(ARRAY(MLX_BOOL, bool, 2, true, false),
               "array([true, false], dtype=bool)");
    check_text(ARRAY(MLX_INT8, int8_t, 2, 65, -128),
               "array([65, -128], dtype=int8)");
    check_text(ARRAY(MLX_UINT8, uint8_t, 1, 255), "array([255], dtype=uint8)");
    check_text(ARRAY(MLX_INT16, int16_t, 1, -32768),
               "array([-32768], dtype=int16)");
    check_text(ARRAY(MLX_UINT16, uint16_t, 1, 65535),
               "array([65535], dtype=uint16)");
    check_text(ARRAY(MLX_UINT32, uint32_t, 1, UINT32_MAX),
               "array([4294967295], dtype=uint32)");
    check_text(ARRAY(MLX_INT64, int64_t, 1, INT64_MIN),
               "array([-9223372036854775808], dtype=int64)");
    check_text(ARRAY(MLX_UINT64, uint64_t, 1, UINT64_MAX),
               "array([18446744073709551615], dtype=uint64)");
    const float complexes[] = {1, 2, -1, -2, 0, 0, NAN, 1, 0.5f, -0.25f};
    check_text(mlx_array_new_data(complexes, (int[]){5}, 1, MLX_COMPLEX64),
               "array([1+2j, -1-2j, 0+0j, nan+1j, 0.5-0.25j], "
               "dtype=complex64)");
}

static void test_rows_as_text(void **state)
{
    (void)state;
    int values[30 * 8];
    for (int i = 0; i < 30 * 8; i++)
        values[i] = i;
    check_text(mlx_array_new_data(values, (int[]){2, 2}, 2, MLX_INT32),
               "array([[0, 1],\n"
               "       [2, 3]], dtype=int32)");
    check_text(mlx_array_new_data(values, (int[]){2, 2, 2}, 3, MLX_INT32),
               "array([[[0, 1],\n"
               "        [2, 3]],\n"
               "       [[4, 5],\n"
               "        [6, 7]]], dtype=int32)");
    check_text(mlx_array_new_data(values, (int[]){6}, 1, MLX_INT32),
               "array([0, 1, 2, 3, 4, 5], dtype=int32)");
    check_text(mlx_array_new_data(values, (int[]){30}, 1, MLX_INT32),
               "array([0, 1, 2, ..., 27, 28, 29], dtype=int32)");
    check_text(mlx_array_new_data(values, (int[]){30, 8}, 2, MLX_INT32),
               "array([[0, 1, 2, ..., 5, 6, 7],\n"
               "       [8, 9, 10, ..., 13, 14, 15],\n"
               "       [16, 17, 18, ..., 21, 22, 23],\n"
               "       ...,\n"
               "       [216, 217, 218, ..., 221, 222, 223],\n"
               "       [224, 225, 226, ..., 229, 230, 231],\n"
               "       [232, 233, 234, ..., 237, 238, 239]], dtype=int32)");
    check_text(mlx_array_new_data(NULL, (int[]){3, 0}, 2, MLX_FLOAT32),
               "array([[],\n"
               "       [],\n"
               "       []], dtype=float32)");
    check_text(mlx_array_new_data(NULL, (int[]){0, 3}, 2, MLX_FLOAT32),
               "array([], dtype=float32)");
}

static void test_text_follows_strides_and_evaluates(void **state)
{
    (void)state;
    mlx_array a = mlx_array_new_data((const int[]){1, 2, 3, 4}, (int[]){2, 2},
                                     2, MLX_INT32);
    mlx_array b = mlx_array_new();
    check_ok(mlx_transpose(&b, a, cpu));
    mlx_array_free(a);
    check_text(b, "array([[1, 3],\n"
                  "       [2, 4]], dtype=int32)");
}

static void test_text_does_not_depend_on_the_locale(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "de_DE",
                                        "fr_FR.UTF-8", "fr_FR.utf8", "fr_FR"};
    bool commas = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !commas; i++)
        commas = setlocale(LC_ALL, names[i]);
    if (!commas)
        skip(); /* this system knows no such locale */
    check_text(ARRAY(MLX_FLOAT32, float, 2, 0.5f, -1.5e-7f),
               "array([0.5, -1.5e-07], dtype=float32)");
    setlocale(LC_ALL, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars_have_the_dtype_of_their_name),
        cmocka_unit_test(test_setters_replace_in_place),
        cmocka_unit_test(test_properties_need_no_evaluation),
        cmocka_unit_test(test_bad_dtypes_and_shapes_are_refused),
        cmocka_unit_test(test_managed_data_is_destroyed_once),
        cmocka_unit_test(test_items_need_one_element_and_a_fitting_dtype),
        cmocka_unit_test(test_half_accessors_give_the_bits),
        cmocka_unit_test(test_layout_queries),
        cmocka_unit_test(test_numbers_as_text),
        cmocka_unit_test(test_rows_as_text),
        cmocka_unit_test(test_text_follows_strides_and_evaluates),
        cmocka_unit_test(test_text_does_not_depend_on_the_locale),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
