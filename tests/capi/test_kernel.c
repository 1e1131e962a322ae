/* Custom kernels through the C API: both forms, the registry, launches by value
 * and by callback, in compiled functions. */
#include "capi.h"

#include "quern/ext.h"

#include <math.h>
#include <stdatomic.h>

static mlx_stream stream;

/* ---- functions that the tests register ---- */

static atomic_int calls;

/* out = x * K, by tiles of `group` elements on all threads. */
typedef struct tiles {
    const quern_kernel_args *args;
    int factor;
    atomic_int misaligned;
} tiles;

static void scale_tile(void *arg, size_t i, void *scratch)
{
    tiles *t = arg;
    const quern_kernel_args *a = t->args;
    const float *x = a->in[0].data;
    float *y = a->out[0].data;
    int first = (int)i * a->group[0], end = first + a->group[0];
    if ((uintptr_t)scratch % 64)
        atomic_fetch_add(&t->misaligned, 1);
    memset(scratch, (int)i, 100);
    for (int k = first; k < end && k < a->grid[0]; k++)
        y[k] = (float)t->factor * x[k];
}

static int scale(const quern_kernel_args *args)
{
    tiles t = {.args = args, .factor = 2};
    atomic_fetch_add(&calls, 1);
    args->template_int(args->templates, "K", &t.factor);
    size_t n = ((size_t)args->grid[0] + (size_t)args->group[0] - 1) /
               (size_t)args->group[0];
    args->parallel(args->ctx, n, scale_tile, &t);
    if (atomic_load(&t.misaligned) || (uintptr_t)args->scratch % 64) {
        snprintf(args->error, args->error_cap, "scratch is misaligned");
        return 1;
    }
    return 0;
}

/* bfloat16 as its upper half. */
static float widened(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static int add_bf16(const quern_kernel_args *args)
{
    mlx_dtype type = MLX_BOOL;
    int flag = -1, none;
    if (args->n_in != 2 || args->n_out != 1 ||
        args->template_dtype(args->templates, "T", &type) ||
        type != MLX_BFLOAT16 || args->in[0].dtype != MLX_BFLOAT16 ||
        args->template_int(args->templates, "FLAG", &flag) || flag != 1 ||
        !args->template_int(args->templates, "T", &none) ||
        !args->template_int(args->templates, "absent", &none)) {
        snprintf(args->error, args->error_cap, "unexpected arguments");
        return 1;
    }
    const uint16_t *a = args->in[0].data, *b = args->in[1].data;
    uint16_t *y = args->out[0].data;
    for (int i = 0; i < args->out[0].shape[0]; i++) {
        float sum = widened(a[i]) + widened(b[i]);
        uint32_t bits;
        memcpy(&bits, &sum, sizeof bits);
        y[i] = (uint16_t)(bits >> 16); /* exact for the test's numbers */
    }
    return 0;
}

/* The strides that arrive. */
static int show_strides(const quern_kernel_args *args)
{
    int32_t *y = args->out[0].data;
    for (int i = 0; i < args->in[0].ndim; i++)
        y[i] = (int32_t)args->in[0].strides[i];
    return 0;
}

static int write_nothing(const quern_kernel_args *args)
{
    (void)args;
    return 0;
}

static int fail_loudly(const quern_kernel_args *args)
{
    memset(args->error, 'x', args->error_cap);
    return 5;
}

static int show_launch(const quern_kernel_args *args)
{
    int32_t *y = args->out[0].data;
    memcpy(y, args->grid, 3 * sizeof *y);
    memcpy(y + 3, args->group, 3 * sizeof *y);
    return 0;
}

/* ---- helpers ---- */

static mlx_vector_string names(const char *const *texts, size_t n)
{
    mlx_vector_string list = mlx_vector_string_new();
    for (size_t i = 0; i < n; i++)
        check_ok(mlx_vector_string_append_value(list, texts[i]));
    return list;
}

static mlx_fast_metal_kernel metal(const char *name, size_t nin, bool rows)
{
    static const char *const in[] = {"a", "b"}, *const out[] = {"y"};
    mlx_vector_string inputs = names(in, nin), outputs = names(out, 1);
    mlx_fast_metal_kernel kernel =
        mlx_fast_metal_kernel_new(name, inputs, outputs, "", "", rows, false);
    assert_non_null(kernel.ctx);
    mlx_vector_string_free(inputs);
    mlx_vector_string_free(outputs);
    return kernel;
}

static mlx_fast_metal_kernel_config config_of(mlx_dtype type, int n, int grid,
                                              int group)
{
    mlx_fast_metal_kernel_config c = mlx_fast_metal_kernel_config_new();
    check_ok(mlx_fast_metal_kernel_config_add_output_arg(c, &n, 1, type));
    check_ok(mlx_fast_metal_kernel_config_set_grid(c, grid, 1, 1));
    check_ok(mlx_fast_metal_kernel_config_set_thread_group(c, group, 1, 1));
    return c;
}

/* Applies and frees kernel, config and list before anything is evaluated. */
static mlx_array apply(mlx_fast_metal_kernel kernel,
                       mlx_fast_metal_kernel_config config,
                       const mlx_array *inputs, size_t n)
{
    mlx_vector_array in = mlx_vector_array_new_data(inputs, n);
    mlx_vector_array out = mlx_vector_array_new();
    check_ok(mlx_fast_metal_kernel_apply(&out, kernel, in, config, stream));
    assert_int_equal(mlx_vector_array_size(out), 1);
    mlx_array y = mlx_array_new();
    check_ok(mlx_vector_array_get(&y, out, 0));
    mlx_vector_array_free(out);
    mlx_vector_array_free(in);
    mlx_fast_metal_kernel_free(kernel);
    mlx_fast_metal_kernel_config_free(config);
    return y;
}

static mlx_array floats(int n)
{
    float *values = malloc((size_t)n * sizeof *values);
    for (int i = 0; i < n; i++)
        values[i] = (float)(i % 100) - 50;
    mlx_array x = mlx_array_new_data(values, &n, 1, MLX_FLOAT32);
    free(values);
    return x;
}

static void check_scaled(mlx_array y, mlx_array x, float factor)
{
    check_ok(mlx_array_eval(y));
    assert_int_equal(mlx_array_size(y), mlx_array_size(x));
    const float *found = mlx_array_data_float32(y);
    const float *from = mlx_array_data_float32(x);
    for (size_t i = 0; i < mlx_array_size(x); i++)
        assert_true(found[i] == factor * from[i]);
}

/* ---- tests ---- */

static void test_a_function_by_name(void **state)
{
    (void)state;
    enum { N = 5000 };
    check_ok(quern_kernel_register("test_capi_scale", scale));
    check_ok(quern_kernel_register("test_capi_scale", scale));
    check_fails(quern_kernel_register("test_capi_scale", write_nothing),
                "'test_capi_scale' is taken");
    check_fails(quern_kernel_register("mlx_bun_token_bitmask", write_nothing),
                "is taken");
    check_fails(quern_kernel_register(NULL, scale), "[kernel_register]");
    check_fails(quern_kernel_register("test_null", NULL), "[kernel_register]");
    mlx_array x = floats(N);
    for (int threads = 1; threads < 5; threads++) {
        assert_int_equal(quern_set_threads(threads), 0);
        mlx_array y = apply(metal("test_capi_scale", 1, true),
                            config_of(MLX_FLOAT32, N, N, 64), &x, 1);
        check_scaled(y, x, 2);
        mlx_array_free(y);
    }
    quern_set_threads(0);
    mlx_array_free(x);
}

static void test_the_cuda_form_is_served_too(void **state)
{
    (void)state;
    static const char *const in[] = {"a"}, *const out[] = {"y"};
    mlx_vector_string inputs = names(in, 1), outputs = names(out, 1);
    int n = 300;
    mlx_array x = floats(n);
    mlx_vector_array list = mlx_vector_array_new_data(&x, 1);
    mlx_vector_array made = mlx_vector_array_new();
    mlx_fast_cuda_kernel_config c = mlx_fast_cuda_kernel_config_new();
    check_ok(mlx_fast_cuda_kernel_config_add_output_arg(c, &n, 1, MLX_FLOAT32));
    check_ok(mlx_fast_cuda_kernel_config_set_grid(c, n, 1, 1));
    check_ok(mlx_fast_cuda_kernel_config_set_thread_group(c, 7, 1, 1));
    check_ok(mlx_fast_cuda_kernel_config_add_template_arg_int(c, "K", 5));
    check_ok(mlx_fast_cuda_kernel_config_add_template_arg_bool(c, "B", true));
    check_ok(mlx_fast_cuda_kernel_config_set_verbose(c, false));
    mlx_fast_cuda_kernel kernel = mlx_fast_cuda_kernel_new(
        "test_capi_scale", inputs, outputs, "", "", true, 4096);
    check_ok(mlx_fast_cuda_kernel_apply(&made, kernel, list, c, stream));
    mlx_fast_cuda_kernel_free(kernel);
    mlx_array y = mlx_array_new();
    check_ok(mlx_vector_array_get(&y, made, 0));
    check_scaled(y, x, 5);
    /* Without a function: which kernel, and that there is no compiler. */
    kernel = mlx_fast_cuda_kernel_new("test_absent", inputs, outputs, "", "",
                                      true, 0);
    check_fails(mlx_fast_cuda_kernel_apply(&made, kernel, list, c, stream),
                "'test_absent' is not registered on the cpu backend: No CUDA "
                "back-end");
    mlx_fast_cuda_kernel_free(kernel);
    mlx_fast_cuda_kernel_config_free(c);
    mlx_fast_metal_kernel absent = metal("test_absent", 1, true);
    mlx_fast_metal_kernel_config plain = config_of(MLX_FLOAT32, n, 1, 1);
    check_fails(mlx_fast_metal_kernel_apply(&made, absent, list, plain, stream),
                "'test_absent' is not registered on the cpu backend: No Metal "
                "back-end");
    mlx_fast_metal_kernel_free(absent);
    absent = mlx_fast_metal_kernel_new("test_capi_scale", inputs, outputs, "",
                                       "", true, true);
    check_fails(mlx_fast_metal_kernel_apply(&made, absent, list, plain, stream),
                "atomic outputs");
    mlx_fast_metal_kernel_free(absent);
    mlx_fast_metal_kernel_config_free(plain);
    mlx_vector_string_free(inputs);
    mlx_vector_string_free(outputs);
    mlx_vector_array_free(list);
    mlx_vector_array_free(made);
    mlx_array_free(x);
    mlx_array_free(y);
}

static void test_template_arguments(void **state)
{
    (void)state;
    check_ok(quern_kernel_register("test_capi_add", add_bf16));
    mlx_array x = floats(16);
    check_ok(mlx_astype(&x, x, MLX_BFLOAT16, stream));
    mlx_fast_metal_kernel_config c = config_of(MLX_BFLOAT16, 16, 16, 4);
    check_ok(mlx_fast_metal_kernel_config_add_template_arg_dtype(c, "T",
                                                                 MLX_BFLOAT16));
    check_ok(
        mlx_fast_metal_kernel_config_add_template_arg_bool(c, "FLAG", true));
    mlx_array y =
        apply(metal("test_capi_add", 2, true), c, (mlx_array[]){x, x}, 2);
    check_ok(mlx_astype(&y, y, MLX_FLOAT32, stream));
    check_ok(mlx_array_eval(y));
    for (int i = 0; i < 16; i++)
        assert_true(mlx_array_data_float32(y)[i] == 2 * (float)(i - 50));
    /* Kernels of one name with other arguments are other launches. */
    mlx_array z = floats(10), parts[2];
    for (int k = 0; k < 2; k++) {
        c = config_of(MLX_FLOAT32, 10, 10, 3);
        check_ok(
            mlx_fast_metal_kernel_config_add_template_arg_int(c, "K", 7 + k));
        parts[k] = apply(metal("test_capi_scale", 1, true), c, &z, 1);
    }
    check_scaled(parts[0], z, 7);
    check_scaled(parts[1], z, 8);
    mlx_array_free(parts[0]);
    mlx_array_free(parts[1]);
    mlx_array_free(x);
    mlx_array_free(y);
    mlx_array_free(z);
    c = mlx_fast_metal_kernel_config_new();
    check_fails(mlx_fast_metal_kernel_config_add_template_arg_dtype(
                    c, "T", (mlx_dtype)99),
                "99");
    check_fails(
        mlx_fast_metal_kernel_config_add_output_arg(c, NULL, 0, (mlx_dtype)99),
        "99");
    mlx_fast_metal_kernel_config_free(c);
    check_fails(mlx_fast_metal_kernel_config_set_grid(
                    (mlx_fast_metal_kernel_config){NULL}, 1, 1, 1),
                "mlx_fast_metal_kernel_config");
}

static void test_strides_are_seen_or_made_plain(void **state)
{
    (void)state;
    check_ok(quern_kernel_register("test_capi_strides", show_strides));
    mlx_array x = floats(12), turned = mlx_array_new();
    check_ok(mlx_reshape(&x, x, (int[]){3, 4}, 2, stream));
    check_ok(mlx_transpose(&turned, x, stream));
    mlx_array plain = apply(metal("test_capi_strides", 1, true),
                            config_of(MLX_INT32, 2, 1, 1), &turned, 1);
    check_ints(plain, 2, (int[]){3, 1});
    mlx_array seen = apply(metal("test_capi_strides", 1, false),
                           config_of(MLX_INT32, 2, 1, 1), &turned, 1);
    check_ints(seen, 2, (int[]){1, 4});
    mlx_array_free(plain);
    mlx_array_free(seen);
    mlx_array_free(turned);
    mlx_array_free(x);
}

static void test_first_values(void **state)
{
    (void)state;
    check_ok(quern_kernel_register("test_capi_nothing", write_nothing));
    static const mlx_dtype types[] = {MLX_FLOAT32, MLX_BFLOAT16, MLX_INT8,
                                      MLX_COMPLEX64, MLX_FLOAT64};
    mlx_array x = floats(1);
    for (int t = 0; t < 5; t++) {
        mlx_fast_metal_kernel_config c = config_of(types[t], 700, 1, 1);
        check_ok(mlx_fast_metal_kernel_config_set_init_value(c, -3.5F));
        mlx_array y = apply(metal("test_capi_nothing", 1, true), c, &x, 1);
        assert_int_equal(mlx_array_dtype(y), types[t]);
        check_ok(mlx_astype(&y, y, MLX_FLOAT32, stream));
        check_ok(mlx_array_eval(y));
        for (int i = 0; i < 700; i++)
            assert_true(mlx_array_data_float32(y)[i] ==
                        (types[t] == MLX_INT8 ? -3.0F : -3.5F));
        mlx_array_free(y);
    }
    mlx_array_free(x);
}

static void test_failures_tell_the_kernel(void **state)
{
    (void)state;
    check_ok(quern_kernel_register("test_capi_fails", fail_loudly));
    mlx_array x = floats(1);
    mlx_array y = apply(metal("test_capi_fails", 1, true),
                        config_of(MLX_FLOAT32, 1, 1, 1), &x, 1);
    check_fails(mlx_array_eval(y), "test_capi_fails: xxx");
    mlx_array_free(y);
    mlx_vector_array list = mlx_vector_array_new_data(&x, 1);
    mlx_vector_array out = mlx_vector_array_new();
    mlx_fast_metal_kernel kernel = metal("test_capi_fails", 2, true);
    mlx_fast_metal_kernel_config c = config_of(MLX_FLOAT32, 1, 1, 1);
    check_fails(mlx_fast_metal_kernel_apply(&out, kernel, list, c, stream),
                "expected 2 inputs, found 1");
    assert_int_equal(mlx_vector_array_size(out), 0);
    mlx_fast_metal_kernel_free(kernel);
    kernel = metal("test_capi_fails", 1, true);
    check_ok(mlx_fast_metal_kernel_config_set_grid(c, 0, 1, 1));
    check_fails(mlx_fast_metal_kernel_apply(&out, kernel, list, c, stream),
                "must be positive");
    mlx_fast_metal_kernel_free(kernel);
    mlx_fast_metal_kernel_config_free(c);
    mlx_vector_array_free(list);
    mlx_vector_array_free(out);
    mlx_array_free(x);
}

/* ---- launches by callback ---- */

typedef struct finder {
    int outputs, grids, code;
    int shape[2];
    quern_kernel_output output;
} finder;

static int find_outputs(void *data, const mlx_vector_array inputs,
                        const quern_kernel_output **outputs, size_t *n)
{
    finder *f = data;
    mlx_array x = mlx_array_new();
    f->outputs++;
    if (f->code)
        return f->code;
    mlx_vector_array_get(&x, inputs, 0);
    f->shape[0] = mlx_array_dim(x, 0);
    mlx_array_free(x);
    f->output = (quern_kernel_output){f->shape, 1, MLX_FLOAT32};
    *outputs = &f->output;
    *n = 1;
    return 0;
}

static int find_grid(void *data, const mlx_vector_array inputs, int grid[3],
                     int group[3])
{
    finder *f = data;
    (void)inputs;
    f->grids++;
    grid[0] = f->shape[0];
    grid[1] = grid[2] = 1;
    group[0] = 16;
    group[1] = group[2] = 1;
    return 0;
}

static const quern_kernel_template factor_9 = {"K", QUERN_TEMPLATE_INT, 9};

static int launch_found(mlx_vector_array *res, const mlx_vector_array in,
                        void *payload)
{
    finder *f = payload;
    static const int wrong[] = {1, 2, 3};
    quern_kernel_output unread = {wrong, 3, MLX_INT8};
    quern_kernel_launch l = {.outputs = &unread,
                             .n_outputs = 1,
                             .find_outputs = find_outputs,
                             .grid = {-1, -1, -1},
                             .group = {-1, -1, -1},
                             .find_grid = find_grid,
                             .data = f,
                             .templates = &factor_9,
                             .n_templates = 1};
    mlx_fast_metal_kernel kernel = metal("test_capi_scale", 1, true);
    int code = quern_kernel_apply(res, kernel, in, &l, stream);
    mlx_fast_metal_kernel_free(kernel);
    return code;
}

static void test_callbacks_win_and_run_once_a_node(void **state)
{
    (void)state;
    finder f = {0};
    mlx_array x = floats(1000), y = mlx_array_new();
    mlx_vector_array in = mlx_vector_array_new_data(&x, 1);
    mlx_vector_array out = mlx_vector_array_new();
    check_ok(launch_found(&out, in, &f));
    check_ok(mlx_vector_array_get(&y, out, 0));
    check_scaled(y, x, 9);
    check_scaled(y, x, 9);
    assert_int_equal(f.outputs, 1);
    assert_int_equal(f.grids, 1);
    /* Compiled: once for the recording, not for its replays. */
    mlx_closure fun = mlx_closure_new_func_payload(launch_found, &f, NULL);
    mlx_closure compiled = mlx_closure_new();
    check_ok(mlx_compile(&compiled, fun, false));
    int before = atomic_load(&calls);
    for (int i = 0; i < 4; i++) {
        check_ok(mlx_closure_apply(&out, compiled, in));
        check_ok(mlx_vector_array_get(&y, out, 0));
        check_scaled(y, x, 9);
    }
    assert_int_equal(f.outputs, 2);
    assert_int_equal(f.grids, 2);
    assert_int_equal(atomic_load(&calls), before + 4);
    mlx_closure_free(compiled);
    /* Shapeless: refused by name. */
    compiled = mlx_closure_new();
    check_ok(mlx_compile(&compiled, fun, true));
    check_fails(mlx_closure_apply(&out, compiled, in), "test_capi_scale");
    mlx_closure_free(compiled);
    mlx_closure_free(fun);
    f.code = 1;
    check_fails(launch_found(&out, in, &f), "[kernel_apply]");
    mlx_vector_array_free(in);
    mlx_vector_array_free(out);
    mlx_array_free(x);
    mlx_array_free(y);
}

static void test_launches_by_value(void **state)
{
    (void)state;
    check_ok(quern_kernel_register("test_capi_launch", show_launch));
    static const int shape[] = {2, 3};
    quern_kernel_output output = {shape, 2, MLX_INT32};
    quern_kernel_template all[] = {{"T", QUERN_TEMPLATE_DTYPE, MLX_INT8},
                                   {"B", QUERN_TEMPLATE_BOOL, 1},
                                   {"K", QUERN_TEMPLATE_INT, 4}};
    quern_kernel_launch l = {.outputs = &output,
                             .n_outputs = 1,
                             .grid = {1000, 3, 7},
                             .group = {128, 4, 7},
                             .has_init = true,
                             .init = 1,
                             .templates = all,
                             .n_templates = 3};
    mlx_array x = floats(1), y = mlx_array_new();
    mlx_vector_array in = mlx_vector_array_new_data(&x, 1);
    mlx_vector_array out = mlx_vector_array_new();
    mlx_fast_metal_kernel kernel = metal("test_capi_launch", 1, true);
    check_ok(quern_kernel_apply(&out, kernel, in, &l, stream));
    mlx_fast_metal_kernel_free(kernel);
    check_ok(mlx_vector_array_get(&y, out, 0));
    /* The group is clipped to the grid. */
    check_ints(y, 6, (int[]){1000, 3, 7, 128, 3, 7});
    mlx_vector_array_free(in);
    mlx_vector_array_free(out);
    mlx_array_free(x);
    mlx_array_free(y);
}

/* a * a - b. */
static int square_less(const quern_kernel_args *args)
{
    const float *a = args->in[0].data, *b = args->in[1].data;
    float *y = args->out[0].data;
    for (int i = 0; i < args->out[0].shape[0]; i++)
        y[i] = a[i] * a[i] - b[i];
    return 0;
}

/* A product rounds before it is added to: with one rounding 2^-24 were left. */
static void test_products_are_not_fused(void **state)
{
    (void)state;
    const int n = 1;
    const float a = 1 + 0x1p-12F, b = 1 + 0x1p-11F;
    check_ok(quern_kernel_register("test_capi_square_less", square_less));
    mlx_array in[] = {mlx_array_new_data(&a, &n, 1, MLX_FLOAT32),
                      mlx_array_new_data(&b, &n, 1, MLX_FLOAT32)};
    mlx_array y = apply(metal("test_capi_square_less", 2, true),
                        config_of(MLX_FLOAT32, 1, 1, 1), in, 2);
    check_ok(mlx_array_eval(y));
    assert_true(mlx_array_data_float32(y)[0] == 0);
    mlx_array_free(y);
    mlx_array_free(in[0]);
    mlx_array_free(in[1]);
}

/* Kernels of one name, whatever their sources, keep to their own launches. */
static void test_launches_of_one_name_stay_apart(void **state)
{
    (void)state;
    static const char *const sources[] = {"y = 3 * a;", "y = 7 * a;"};
    static const char *const in[] = {"a"}, *const out[] = {"y"};
    static const int factors[] = {3, 7}, n = 8;
    check_ok(quern_kernel_register("test_capi_scale", scale));
    mlx_array x = floats(n), y[2];
    mlx_vector_array list = mlx_vector_array_new_data(&x, 1);
    mlx_vector_array made = mlx_vector_array_new();
    mlx_vector_string ins = names(in, 1), outs = names(out, 1);
    for (int i = 0; i < 2; i++) {
        mlx_fast_cuda_kernel_config c = mlx_fast_cuda_kernel_config_new();
        mlx_fast_cuda_kernel kernel = mlx_fast_cuda_kernel_new(
            "test_capi_scale", ins, outs, sources[i], "", true, 4096);
        check_ok(
            mlx_fast_cuda_kernel_config_add_output_arg(c, &n, 1, MLX_FLOAT32));
        check_ok(mlx_fast_cuda_kernel_config_set_grid(c, n, 1, 1));
        check_ok(mlx_fast_cuda_kernel_config_set_thread_group(c, 3, 1, 1));
        check_ok(mlx_fast_cuda_kernel_config_add_template_arg_int(c, "K",
                                                                  factors[i]));
        check_ok(mlx_fast_cuda_kernel_apply(&made, kernel, list, c, stream));
        y[i] = mlx_array_new();
        check_ok(mlx_vector_array_get(&y[i], made, 0));
        mlx_fast_cuda_kernel_free(kernel);
        mlx_fast_cuda_kernel_config_free(c);
    }
    for (int i = 1; i >= 0; i--) {
        check_scaled(y[i], x, (float)factors[i]);
        mlx_array_free(y[i]);
    }
    mlx_vector_string_free(ins);
    mlx_vector_string_free(outs);
    mlx_vector_array_free(list);
    mlx_vector_array_free(made);
    mlx_array_free(x);
}

static int setup(void **state)
{
    stream = mlx_default_cpu_stream_new();
    return capi_setup(state);
}

static int teardown(void **state)
{
    (void)state;
    mlx_stream_free(stream);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_function_by_name),
        cmocka_unit_test(test_the_cuda_form_is_served_too),
        cmocka_unit_test(test_template_arguments),
        cmocka_unit_test(test_strides_are_seen_or_made_plain),
        cmocka_unit_test(test_first_values),
        cmocka_unit_test(test_failures_tell_the_kernel),
        cmocka_unit_test(test_callbacks_win_and_run_once_a_node),
        cmocka_unit_test(test_launches_by_value),
        cmocka_unit_test(test_products_are_not_fused),
        cmocka_unit_test(test_launches_of_one_name_stay_apart),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
