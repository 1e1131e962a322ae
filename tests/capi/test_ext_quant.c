/* quern_quantized_matmul: several matrices, kept types, groups of 16; and its
 * fallback made of mlx_* calls gives the same.  The build compiles the
 * fallback into this test under the name fallback_quantized_matmul. */
#include "capi.h"

#include "quern/ext.h"

#include <math.h>

int fallback_quantized_matmul(mlx_vector_array *res, const mlx_array x,
                              const mlx_vector_array w,
                              const mlx_vector_array scales,
                              const mlx_vector_array biases, int group_size,
                              int bits, const char *mode, const mlx_stream s);

int fallback_kernel_register(const char *name, quern_kernel_fn fn);

typedef int product(mlx_vector_array *, mlx_array, mlx_vector_array,
                    mlx_vector_array, mlx_vector_array, int, int, const char *,
                    mlx_stream);

static mlx_stream stream;

enum { ROWS = 5, COLUMNS = 128, MOST = 3 };

/* Packed matrices of one format, all of the same numbers times 1, 2, 3. */
typedef struct weights {
    mlx_vector_array w, scales, biases;
} weights;

static mlx_array astype(mlx_array x, mlx_dtype dtype)
{
    check_ok(mlx_astype(&x, x, dtype, stream));
    return x;
}

static mlx_array random_words(int rows, int columns, uint32_t seed)
{
    static uint32_t words[ROWS * COLUMNS];
    for (int i = 0; i < rows * columns; i++)
        words[i] = seed = seed * 1664525u + 1013904223u;
    return mlx_array_new_data(words, (int[]){rows, columns}, 2, MLX_UINT32);
}

static mlx_array random_floats(int rows, int columns, uint32_t seed,
                               mlx_dtype dtype)
{
    static float values[ROWS * COLUMNS];
    for (int i = 0; i < rows * columns; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)(seed >> 8) / 16777216.0F - 0.5F;
    }
    return astype(
        mlx_array_new_data(values, (int[]){rows, columns}, 2, MLX_FLOAT32),
        dtype);
}

static weights make_weights(int count, int group, int bits, mlx_dtype scale)
{
    weights m = {mlx_vector_array_new(), mlx_vector_array_new(),
                 mlx_vector_array_new()};
    for (int i = 0; i < count; i++) {
        uint32_t seed = (uint32_t)(10 * i + bits);
        mlx_array w = random_words(ROWS, COLUMNS * bits / 32, seed);
        mlx_array s = random_floats(ROWS, COLUMNS / group, seed + 1, scale);
        mlx_array b = random_floats(ROWS, COLUMNS / group, seed + 2, scale);
        check_ok(mlx_vector_array_append_value(m.w, w));
        check_ok(mlx_vector_array_append_value(m.scales, s));
        check_ok(mlx_vector_array_append_value(m.biases, b));
        mlx_array_free(w);
        mlx_array_free(s);
        mlx_array_free(b);
    }
    return m;
}

static void free_weights(weights m)
{
    mlx_vector_array_free(m.w);
    mlx_vector_array_free(m.scales);
    mlx_vector_array_free(m.biases);
}

/* Both lists hold `count` results of a dtype and nearly the same numbers. */
static void check_same(mlx_vector_array a, mlx_vector_array b, int count,
                       mlx_dtype dtype, double distance)
{
    assert_int_equal(mlx_vector_array_size(a), count);
    assert_int_equal(mlx_vector_array_size(b), count);
    for (int i = 0; i < count; i++) {
        mlx_array x = mlx_array_new(), y = mlx_array_new(), r = mlx_array_new();
        check_ok(mlx_vector_array_get(&x, a, (size_t)i));
        check_ok(mlx_vector_array_get(&y, b, (size_t)i));
        assert_int_equal(mlx_array_dtype(x), dtype);
        assert_int_equal(mlx_array_dtype(y), dtype);
        assert_int_equal(mlx_array_dim(x, -1), ROWS);
        check_ok(mlx_allclose(&r, x, y, distance, distance, false, stream));
        bool close = false;
        check_ok(mlx_array_item_bool(&close, r));
        assert_true(close);
        mlx_array_free(x);
        mlx_array_free(y);
        mlx_array_free(r);
    }
}

static void test_fallback_agrees(void **state)
{
    (void)state;
    static const struct {
        int count, group, bits;
        mlx_dtype x, scale;
        double distance;
    } cases[] = {
        {3, 32, 4, MLX_FLOAT32, MLX_FLOAT16, 1e-4},
        {1, 64, 8, MLX_FLOAT16, MLX_FLOAT32, 4e-3},
        {2, 128, 3, MLX_BFLOAT16, MLX_BFLOAT16, 4e-2},
        {2, 16, 4, MLX_FLOAT32, MLX_FLOAT32, 1e-4},
        {1, 16, 6, MLX_BFLOAT16, MLX_FLOAT16, 4e-2},
        {1, 16, 5, MLX_FLOAT16, MLX_FLOAT32, 4e-3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weights m = make_weights(cases[i].count, cases[i].group, cases[i].bits,
                                 cases[i].scale);
        mlx_array x = random_floats(2, COLUMNS, 99, cases[i].x);
        mlx_vector_array a = mlx_vector_array_new(), b = mlx_vector_array_new();
        check_ok(quern_quantized_matmul(&a, x, m.w, m.scales, m.biases,
                                        cases[i].group, cases[i].bits, "affine",
                                        stream));
        check_ok(fallback_quantized_matmul(&b, x, m.w, m.scales, m.biases,
                                           cases[i].group, cases[i].bits,
                                           "affine", stream));
        check_same(a, b, cases[i].count, cases[i].x, cases[i].distance);
        mlx_vector_array_free(a);
        mlx_vector_array_free(b);
        mlx_array_free(x);
        free_weights(m);
    }
}

static void test_modes_without_biases(void **state)
{
    (void)state;
    mlx_array matrix = random_floats(ROWS, COLUMNS, 5, MLX_FLOAT32);
    mlx_array x = random_floats(2, COLUMNS, 6, MLX_FLOAT16);
    mlx_vector_array packed = mlx_vector_array_new();
    mlx_optional_int none = {0, false};
    check_ok(mlx_quantize(&packed, matrix, none, none, "mxfp4", mlx_array_empty,
                          stream));
    mlx_array part = mlx_array_new();
    check_ok(mlx_vector_array_get(&part, packed, 0));
    mlx_vector_array w = mlx_vector_array_new_value(part);
    check_ok(mlx_vector_array_get(&part, packed, 1));
    mlx_vector_array scales = mlx_vector_array_new_value(part);
    mlx_vector_array a = mlx_vector_array_new(), b = mlx_vector_array_new();
    mlx_vector_array nothing = {NULL};
    check_ok(quern_quantized_matmul(&a, x, w, scales, nothing, 32, 4, "mxfp4",
                                    stream));
    check_ok(fallback_quantized_matmul(&b, x, w, scales, nothing, 32, 4,
                                       "mxfp4", stream));
    check_same(a, b, 1, MLX_FLOAT16, 4e-3);
    mlx_vector_array_free(a);
    mlx_vector_array_free(b);
    mlx_vector_array_free(w);
    mlx_vector_array_free(scales);
    mlx_vector_array_free(packed);
    mlx_array_free(part);
    mlx_array_free(matrix);
    mlx_array_free(x);
}

static void test_wrong_lists_are_refused(void **state)
{
    (void)state;
    static product *const both[2] = {quern_quantized_matmul,
                                     fallback_quantized_matmul};
    weights m = make_weights(2, 32, 4, MLX_FLOAT32);
    mlx_array x = random_floats(2, COLUMNS, 6, MLX_FLOAT32);
    mlx_array short_x = random_floats(2, COLUMNS / 2, 6, MLX_FLOAT32);
    mlx_vector_array r = mlx_vector_array_new(), none = mlx_vector_array_new();
    for (int i = 0; i < 2; i++) {
        check_fails(both[i](&r, x, none, none, none, 32, 4, "affine", stream),
                    "[quantized_matmul]");
        check_fails(both[i](&r, x, m.w, none, none, 32, 4, "affine", stream),
                    "[quantized_matmul]");
        check_fails(both[i](&r, short_x, m.w, m.scales, m.biases, 32, 4,
                            "affine", stream),
                    "(2,64)");
        check_fails(
            both[i](&r, x, m.w, m.scales, m.biases, 32, 4, "strange", stream),
            "strange");
        assert_int_equal(mlx_vector_array_size(r), 0);
    }
    mlx_vector_array_free(r);
    mlx_vector_array_free(none);
    mlx_array_free(x);
    mlx_array_free(short_x);
    free_weights(m);
}

static int set_up(void **state)
{
    capi_setup(state);
    stream = mlx_default_cpu_stream_new();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return mlx_stream_free(stream);
}

/* Another library has no registry: the fallback says so. */
static void test_kernels_need_the_engine(void **state)
{
    (void)state;
    check_fails(fallback_kernel_register("some_kernel", NULL), "'some_kernel'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fallback_agrees),
        cmocka_unit_test(test_modes_without_biases),
        cmocka_unit_test(test_wrong_lists_are_refused),
        cmocka_unit_test(test_kernels_need_the_engine),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
