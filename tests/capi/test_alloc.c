/* Programs in which each allocation fails once, on whatever thread.
 *
 * A program reports the failure and leaves nothing: its handles can be freed,
 * the storage of arrays is as before, and the library goes on working.  (The
 * address sanitizer's run finds what else is left.)  A failure that the library
 * can do without (a cache that does not grow) may also go unnoticed. */
#include "capi.h"

#include "quern/ext.h"

/* What a program works with; freed after it. */
typedef struct scope {
    mlx_array a[12];
    mlx_vector_array v[5];
    mlx_vector_string texts;
    mlx_vector_int numbers;
    mlx_string text;
    mlx_map_string_to_array map;
    mlx_map_string_to_string words;
    mlx_closure fun, made;
    mlx_closure_kwargs kwargs;
    mlx_closure_custom rule;
    mlx_closure_value_and_grad grad;
    mlx_io_reader reader;
    mlx_io_writer writer;
    mlx_io_gguf gguf;
    mlx_device device;
    mlx_device_info info;
    mlx_stream stream;
    mlx_stream_thread_local family;
} scope;

static mlx_stream cpu;
static const mlx_array none;
static char *directory;
static char path[3][512];

/* Inputs that outlive the programs: x (6, 64), y (6, 64) pending, m (8, 8)
 * symmetric and positive, i (6) indices. */
static mlx_array x, y, m, idx, flags;
static int payloads; /* alive */

static void end_scope(scope *s)
{
    for (int i = 0; i < 12; i++)
        mlx_array_free(s->a[i]);
    for (int i = 0; i < 5; i++)
        mlx_vector_array_free(s->v[i]);
    mlx_vector_string_free(s->texts);
    mlx_vector_int_free(s->numbers);
    mlx_string_free(s->text);
    mlx_map_string_to_array_free(s->map);
    mlx_map_string_to_string_free(s->words);
    mlx_closure_free(s->made);
    mlx_closure_free(s->fun);
    mlx_closure_kwargs_free(s->kwargs);
    mlx_closure_custom_free(s->rule);
    mlx_closure_value_and_grad_free(s->grad);
    mlx_io_reader_free(s->reader);
    mlx_io_writer_free(s->writer);
    mlx_io_gguf_free(s->gguf);
    mlx_device_free(s->device);
    mlx_device_info_free(s->info);
    mlx_stream_free(s->stream);
    mlx_stream_thread_local_free(s->family);
}

static int eval_all(scope *s, int count)
{
    int rc = 0;
    s->v[4] = mlx_vector_array_new();
    for (int i = 0; i < count; i++)
        rc = rc || mlx_vector_array_append_value(s->v[4], s->a[i]);
    return rc || mlx_eval(s->v[4]);
}

/* ---- the programs: each returns 0, or 1 after a report ---- */

static int elementwise(scope *s)
{
    s->a[1] = mlx_array_new_float(2);
    return mlx_exp(&s->a[0], x, cpu) ||
           mlx_multiply(&s->a[0], s->a[0], s->a[1], cpu) ||
           mlx_logaddexp(&s->a[2], s->a[0], y, cpu) ||
           mlx_where(&s->a[3], flags, s->a[2], x, cpu) ||
           mlx_astype(&s->a[3], s->a[3], MLX_FLOAT16, cpu) ||
           mlx_clip(&s->a[4], x, s->a[1], none, cpu) || eval_all(s, 5);
}

static int reductions(scope *s)
{
    int axes[] = {0, 1};
    return mlx_sum_axis(&s->a[0], x, 1, true, cpu) ||
           mlx_mean_axes(&s->a[1], x, axes, 2, false, cpu) ||
           mlx_var_axis(&s->a[2], x, 0, false, 1, cpu) ||
           mlx_logsumexp_axis(&s->a[3], x, -1, false, cpu) ||
           mlx_argmax_axis(&s->a[4], x, 0, false, cpu) ||
           mlx_median(&s->a[5], x, false, cpu) ||
           mlx_all_axis(&s->a[6], flags, 0, false, cpu) || eval_all(s, 7);
}

static int sorting(scope *s)
{
    return mlx_sort_axis(&s->a[0], x, 1, cpu) ||
           mlx_argsort(&s->a[1], x, cpu) ||
           mlx_argsort_axis(&s->a[2], x, 0, cpu) ||
           mlx_topk_axis(&s->a[3], x, 3, 1, cpu) ||
           mlx_partition(&s->a[4], x, 10, cpu) || mlx_sort(&s->a[5], x, cpu) ||
           mlx_searchsorted(&s->a[6], s->a[5], y, "left", cpu) ||
           eval_all(s, 7);
}

static int scans(scope *s)
{
    mlx_optional_dtype same = {MLX_FLOAT32, false};
    return mlx_cumsum_axis(&s->a[0], x, 1, true, true, same, cpu) ||
           mlx_cumprod(&s->a[1], x, false, false, same, cpu) ||
           mlx_cummax_axis(&s->a[2], x, 0, false, true, cpu) ||
           mlx_logcumsumexp_axis(&s->a[3], x, 0, false, true, cpu) ||
           eval_all(s, 4);
}

static int gathering(scope *s)
{
    int axes[] = {0}, sizes[] = {1, 64};
    s->v[0] = mlx_vector_array_new_value(idx);
    return mlx_take_axis(&s->a[0], x, idx, 0, cpu) ||
           mlx_take(&s->a[1], x, idx, cpu) ||
           mlx_argsort_axis(&s->a[2], x, 1, cpu) ||
           mlx_take_along_axis(&s->a[3], x, s->a[2], 1, cpu) ||
           mlx_put_along_axis(&s->a[4], x, s->a[2], y, 1, cpu) ||
           mlx_gather(&s->a[5], x, s->v[0], axes, 1, sizes, 2, cpu) ||
           mlx_scatter_add(&s->a[6], x, s->v[0], s->a[5], axes, 1, cpu) ||
           eval_all(s, 7);
}

static int slicing(scope *s)
{
    int start[] = {1, 2}, stop[] = {5, 60}, steps[] = {2, 3}, axes[] = {0};
    int size[] = {2, 64};
    s->a[2] = mlx_array_new_int(1);
    return mlx_slice(&s->a[0], x, start, 2, stop, 2, steps, 2, cpu) ||
           mlx_slice_update(&s->a[1], x, s->a[0], start, 2, stop, 2, steps, 2,
                            cpu) ||
           mlx_slice_dynamic(&s->a[3], x, s->a[2], axes, 1, size, 2, cpu) ||
           mlx_split(&s->v[0], x, 4, 1, cpu) ||
           mlx_concatenate_axis(&s->a[4], s->v[0], 0, cpu) ||
           mlx_stack(&s->a[5], s->v[0], cpu) || mlx_unstack(&s->v[1], x, cpu) ||
           mlx_vector_array_get(&s->a[6], s->v[1], 3) || eval_all(s, 7);
}

static int shapes(scope *s)
{
    int shape[] = {8, -1}, axes[] = {1, 0}, pads[] = {1, 2}, reps[] = {2, 1};
    int wide[] = {2, 6, 64};
    s->a[9] = mlx_array_new_float(0);
    return mlx_reshape(&s->a[0], x, shape, 2, cpu) ||
           mlx_transpose_axes(&s->a[1], x, axes, 2, cpu) ||
           mlx_pad(&s->a[2], s->a[1], axes, 2, pads, 2, pads, 2, s->a[9],
                   "constant", cpu) ||
           mlx_tile(&s->a[3], s->a[1], reps, 2, cpu) ||
           mlx_roll_axis(&s->a[4], x, pads, 1, 0, cpu) ||
           mlx_repeat_axis(&s->a[5], x, 3, 0, cpu) ||
           mlx_broadcast_to(&s->a[6], x, wide, 3, cpu) ||
           mlx_flatten(&s->a[7], s->a[6], 0, -1, cpu) ||
           mlx_contiguous(&s->a[8], s->a[1], false, cpu) || eval_all(s, 9);
}

static int products(scope *s)
{
    return mlx_transpose(&s->a[0], y, cpu) ||
           mlx_matmul(&s->a[1], x, s->a[0], cpu) ||
           mlx_addmm(&s->a[2], s->a[1], x, s->a[0], 2, 3, cpu) ||
           mlx_astype(&s->a[3], x, MLX_BFLOAT16, cpu) ||
           mlx_transpose(&s->a[4], s->a[3], cpu) ||
           mlx_matmul(&s->a[5], s->a[3], s->a[4], cpu) ||
           mlx_outer(&s->a[6], x, y, cpu) || mlx_inner(&s->a[7], x, y, cpu) ||
           eval_all(s, 8);
}

static int einsums(scope *s)
{
    mlx_array pair[] = {x, y}, three[] = {m, m, m};
    int left[] = {1}, right[] = {1};
    s->v[0] = mlx_vector_array_new_data(pair, 2);
    s->v[1] = mlx_vector_array_new_data(three, 3);
    return mlx_einsum(&s->a[0], "ij,kj->ik", s->v[0], cpu) ||
           mlx_einsum(&s->a[1], "ab,bc,cd->ad", s->v[1], cpu) ||
           mlx_einsum(&s->a[2], "...i,...i->...", s->v[0], cpu) ||
           mlx_tensordot(&s->a[3], x, y, left, 1, right, 1, cpu) ||
           eval_all(s, 4);
}

static int grouped_products(scope *s)
{
    int shape[] = {6, 8, 8}, rows[] = {6, 1, 64}, parts[] = {2, 2};
    uint32_t ends[] = {0, 30, 30, 64};
    s->a[6] = mlx_array_new_data(ends, parts, 2, MLX_UINT32);
    return mlx_reshape(&s->a[0], x, shape, 3, cpu) ||
           mlx_gather_mm(&s->a[1], s->a[0], s->a[0], idx, idx, false, cpu) ||
           mlx_reshape(&s->a[2], x, rows, 3, cpu) ||
           mlx_transpose(&s->a[3], y, cpu) ||
           mlx_segmented_mm(&s->a[4], x, s->a[3], s->a[6], cpu) ||
           mlx_hadamard_transform(&s->a[5], x, (mlx_optional_float){0, false},
                                  cpu) ||
           eval_all(s, 6);
}

static int convolutions(scope *s)
{
    int image[] = {1, 6, 8, 8}, kernel[] = {4, 3, 3, 8}, one[] = {1, 6, 64};
    return mlx_reshape(&s->a[0], x, image, 4, cpu) ||
           mlx_transpose(&s->a[1], s->a[0], cpu) ||
           mlx_ones(&s->a[2], kernel, 4, MLX_FLOAT32, cpu) ||
           mlx_conv2d(&s->a[3], s->a[0], s->a[2], 1, 1, 1, 1, 1, 1, 1, cpu) ||
           mlx_conv_transpose2d(&s->a[4], s->a[0], s->a[2], 2, 2, 1, 1, 1, 1, 0,
                                0, 1, cpu) ||
           mlx_reshape(&s->a[5], x, one, 3, cpu) ||
           mlx_conv1d(&s->a[6], s->a[5], s->a[5], 1, 2, 1, 1, cpu) ||
           eval_all(s, 7);
}

static int packing(scope *s)
{
    mlx_optional_int group = {32, true}, bits = {4, true};
    mlx_optional_dtype same = {MLX_FLOAT32, false};
    return mlx_quantize(&s->v[0], x, group, bits, "affine", none, cpu) ||
           mlx_vector_array_get(&s->a[0], s->v[0], 0) ||
           mlx_vector_array_get(&s->a[1], s->v[0], 1) ||
           mlx_vector_array_get(&s->a[2], s->v[0], 2) ||
           mlx_quantized_matmul(&s->a[3], y, s->a[0], s->a[1], s->a[2], true,
                                group, bits, "affine", cpu) ||
           mlx_dequantize(&s->a[4], s->a[0], s->a[1], s->a[2], group, bits,
                          "affine", none, same, cpu) ||
           eval_all(s, 5);
}

static int packing_small_floats(scope *s)
{
    mlx_optional_int group = {32, true}, bits = {4, true};
    mlx_optional_dtype same = {MLX_FLOAT32, false};
    return mlx_quantize(&s->v[0], x, group, bits, "mxfp4", none, cpu) ||
           mlx_vector_array_get(&s->a[0], s->v[0], 0) ||
           mlx_vector_array_get(&s->a[1], s->v[0], 1) ||
           mlx_quantized_matmul(&s->a[2], y, s->a[0], s->a[1], none, true,
                                group, bits, "mxfp4", cpu) ||
           mlx_dequantize(&s->a[3], s->a[0], s->a[1], none, group, bits,
                          "mxfp4", none, same, cpu) ||
           mlx_to_fp8(&s->a[4], x, cpu) ||
           mlx_from_fp8(&s->a[5], s->a[4], MLX_FLOAT32, cpu) || eval_all(s, 6);
}

static int transforms_of_fourier(scope *s)
{
    int axes[] = {0, 1}, n[] = {6, 101};
    return mlx_fft_rfft(&s->a[0], x, 64, 1, MLX_FFT_NORM_BACKWARD, cpu) ||
           mlx_fft_irfft(&s->a[1], s->a[0], 60, 1, MLX_FFT_NORM_ORTHO, cpu) ||
           mlx_fft_fftn(&s->a[2], x, n, 2, axes, 2, MLX_FFT_NORM_BACKWARD,
                        cpu) ||
           mlx_fft_fftshift(&s->a[3], s->a[2], axes, 2, cpu) ||
           mlx_fft_fft(&s->a[4], x, 7, 0, MLX_FFT_NORM_BACKWARD, cpu) ||
           eval_all(s, 5);
}

static int decompositions(scope *s)
{
    return mlx_linalg_qr(&s->a[0], &s->a[1], m, cpu) ||
           mlx_linalg_svd(&s->v[0], m, true, cpu) ||
           mlx_linalg_eigh(&s->a[2], &s->a[3], m, "L", cpu) ||
           mlx_linalg_eig(&s->a[4], &s->a[5], m, cpu) ||
           mlx_linalg_cholesky(&s->a[6], m, false, cpu) ||
           mlx_linalg_lu(&s->v[1], m, cpu) || mlx_eval(s->v[0]) ||
           mlx_eval(s->v[1]) || eval_all(s, 7);
}

static int equations(scope *s)
{
    int axes[] = {0, 1};
    return mlx_linalg_inv(&s->a[0], m, cpu) ||
           mlx_linalg_solve(&s->a[1], m, m, cpu) ||
           mlx_linalg_solve_triangular(&s->a[2], m, m, true, cpu) ||
           mlx_linalg_slogdet(&s->a[3], &s->a[4], m, cpu) ||
           mlx_linalg_norm_matrix(&s->a[5], m, "nuc", axes, 2, false, cpu) ||
           mlx_linalg_pinv(&s->a[6], x, cpu) || eval_all(s, 7);
}

static int random_with_a_key(scope *s)
{
    int shape[] = {6, 64};
    s->a[8] = mlx_array_new_float(0);
    s->a[9] = mlx_array_new_float(1);
    return mlx_random_key(&s->a[0], 3) ||
           mlx_random_split(&s->a[1], &s->a[2], s->a[0], cpu) ||
           mlx_random_normal(&s->a[3], shape, 2, MLX_FLOAT16, 0, 1, s->a[1],
                             cpu) ||
           mlx_random_uniform(&s->a[4], s->a[8], s->a[9], shape, 2, MLX_FLOAT32,
                              s->a[2], cpu) ||
           mlx_random_categorical(&s->a[5], x, 1, s->a[0], cpu) ||
           mlx_random_permutation(&s->a[6], x, 0, s->a[0], cpu) ||
           mlx_sum_axis(&s->a[10], m, 0, false, cpu) ||
           mlx_random_multivariate_normal(&s->a[7], s->a[10], m, shape, 0,
                                          MLX_FLOAT32, s->a[0], cpu) ||
           eval_all(s, 8);
}

static int random_of_the_thread(scope *s)
{
    int shape[] = {20};
    s->a[4] = mlx_array_new_int(0);
    s->a[5] = mlx_array_new_int(9);
    return mlx_random_bits(&s->a[0], shape, 1, 4, none, cpu) ||
           mlx_random_randint(&s->a[1], s->a[4], s->a[5], shape, 1, MLX_INT32,
                              none, cpu) ||
           mlx_random_gumbel(&s->a[2], shape, 1, MLX_FLOAT32, none, cpu) ||
           mlx_random_truncated_normal(&s->a[3], s->a[4], s->a[5], shape, 1,
                                       MLX_FLOAT32, none, cpu) ||
           eval_all(s, 4);
}

static int layers_of_a_model(scope *s)
{
    int heads[] = {1, 2, 6, 32}, width[] = {64};
    mlx_optional_float base = {10000, true};
    return mlx_ones(&s->a[0], width, 1, MLX_FLOAT32, cpu) ||
           mlx_fast_rms_norm(&s->a[1], x, s->a[0], 1e-5f, cpu) ||
           mlx_fast_layer_norm(&s->a[2], x, s->a[0], s->a[0], 1e-5f, cpu) ||
           mlx_reshape(&s->a[3], s->a[1], heads, 4, cpu) ||
           mlx_fast_rope(&s->a[4], s->a[3], 32, false, base, 1, 2, none, cpu) ||
           mlx_fast_scaled_dot_product_attention(&s->a[5], s->a[4], s->a[4],
                                                 s->a[3], 0.2f, "causal", none,
                                                 none, false, cpu) ||
           mlx_softmax_axis(&s->a[6], x, 1, true, cpu) ||
           mlx_fast_cross_entropy(&s->a[7], x, idx, cpu) || eval_all(s, 8);
}

static int types_and_views(scope *s)
{
    return mlx_astype(&s->a[0], x, MLX_COMPLEX64, cpu) ||
           mlx_conjugate(&s->a[1], s->a[0], cpu) ||
           mlx_abs(&s->a[2], s->a[1], cpu) ||
           mlx_view(&s->a[3], x, MLX_UINT8, cpu) ||
           mlx_astype(&s->a[4], x, MLX_FLOAT64, cpu) ||
           mlx_erf(&s->a[5], s->a[4], cpu) ||
           mlx_divmod(&s->v[0], s->a[3], s->a[3], cpu) || mlx_eval(s->v[0]) ||
           eval_all(s, 6);
}

/* ---- functions ---- */

static void free_payload(void *data)
{
    free(data);
    payloads--;
}

/* sum(tanh(a) * a) */
static int curve(mlx_vector_array *res, const mlx_vector_array in, void *data)
{
    mlx_array a = {NULL}, b = {NULL};
    mlx_vector_array out = {NULL};
    (void)data;
    int rc = mlx_vector_array_get(&a, in, 0) || mlx_tanh(&b, a, cpu) ||
             mlx_multiply(&b, b, a, cpu) || mlx_sum(&b, b, false, cpu);
    if (!rc) {
        out = mlx_vector_array_new_value(b);
        rc = !out.ctx || mlx_vector_array_set(res, out);
    }
    mlx_vector_array_free(out);
    mlx_array_free(a);
    mlx_array_free(b);
    return rc;
}

static int by_name(mlx_vector_array *res, const mlx_vector_array in,
                   const mlx_map_string_to_array names, void *data)
{
    mlx_array a = {NULL};
    (void)data;
    (void)in;
    int rc = mlx_map_string_to_array_get(&a, names, "x");
    mlx_vector_array out =
        rc ? (mlx_vector_array){NULL} : mlx_vector_array_new_value(a);
    rc = rc || !out.ctx || mlx_vector_array_set(res, out);
    mlx_vector_array_free(out);
    mlx_array_free(a);
    return rc;
}

static int own_gradient(mlx_vector_array *res, const mlx_vector_array primals,
                        const mlx_vector_array cotangents,
                        const mlx_vector_array outputs, void *data)
{
    (void)cotangents;
    (void)outputs;
    (void)data;
    return mlx_vector_array_set(res, primals);
}

/* The failing of the test's own malloc is no subject. */
static void *payload_new(void)
{
    payloads++;
    void *data = malloc(8);
    assert_non_null(data);
    return data;
}

static mlx_closure curve_new(void)
{
    return mlx_closure_new_func_payload(curve, payload_new(), free_payload);
}

static int reverse_mode(scope *s)
{
    s->fun = curve_new();
    s->a[1] = mlx_array_new_float(1);
    s->v[0] = mlx_vector_array_new_value(x);
    s->v[1] = mlx_vector_array_new_value(s->a[1]);
    return !s->fun.ctx || !s->v[0].ctx || !s->v[1].ctx ||
           mlx_vjp(&s->v[2], &s->v[3], s->fun, s->v[0], s->v[1]) ||
           mlx_vector_array_get(&s->a[0], s->v[3], 0) || eval_all(s, 2);
}

static int forward_mode(scope *s)
{
    s->fun = curve_new();
    s->v[0] = mlx_vector_array_new_value(x);
    s->v[1] = mlx_vector_array_new_value(y);
    return mlx_jvp(&s->v[2], &s->v[3], s->fun, s->v[0], s->v[1]) ||
           mlx_vector_array_get(&s->a[0], s->v[3], 0) || eval_all(s, 1);
}

static int values_and_gradients(scope *s)
{
    int first[] = {0};
    s->fun = curve_new();
    s->v[0] = mlx_vector_array_new_value(x);
    return mlx_checkpoint(&s->made, s->fun) ||
           mlx_value_and_grad(&s->grad, s->made, first, 1) ||
           mlx_closure_value_and_grad_apply(&s->v[1], &s->v[2], s->grad,
                                            s->v[0]) ||
           mlx_eval(s->v[1]) || mlx_eval(s->v[2]);
}

static int rules_of_the_program(scope *s)
{
    s->fun = curve_new();
    s->rule = mlx_closure_custom_new_func_payload(own_gradient, payload_new(),
                                                  free_payload);
    s->a[1] = mlx_array_new_float(1);
    s->v[0] = mlx_vector_array_new_value(x);
    s->v[1] = mlx_vector_array_new_value(s->a[1]);
    return mlx_custom_vjp(&s->made, s->fun, s->rule) ||
           mlx_vjp(&s->v[2], &s->v[3], s->made, s->v[0], s->v[1]) ||
           mlx_eval(s->v[3]);
}

static int batches(scope *s)
{
    int axes[] = {0};
    s->fun = curve_new();
    s->v[0] = mlx_vector_array_new_value(x);
    return mlx_detail_vmap_trace(&s->v[1], &s->v[2], s->fun, s->v[0], axes,
                                 1) ||
           mlx_detail_vmap_replace(&s->v[3], s->v[0], s->v[1], s->v[2], axes, 1,
                                   axes, 1) ||
           mlx_eval(s->v[3]);
}

static int compiled(scope *s, bool shapeless)
{
    s->fun = curve_new();
    s->v[0] = mlx_vector_array_new_value(x);
    s->v[1] = mlx_vector_array_new_value(m);
    return mlx_compile(&s->made, s->fun, shapeless) ||
           mlx_closure_apply(&s->v[2], s->made, s->v[0]) ||
           mlx_closure_apply(&s->v[2], s->made, s->v[0]) ||
           mlx_closure_apply(&s->v[3], s->made, s->v[1]) || mlx_eval(s->v[2]) ||
           mlx_eval(s->v[3]);
}

static int compiling(scope *s)
{
    return compiled(s, false);
}

static int compiling_without_shapes(scope *s)
{
    return compiled(s, true);
}

static int closures(scope *s)
{
    s->fun = curve_new();
    s->kwargs = mlx_closure_kwargs_new_func_payload(by_name, payload_new(),
                                                    free_payload);
    s->map = mlx_map_string_to_array_new();
    s->v[0] = mlx_vector_array_new_value(x);
    return mlx_closure_set(&s->made, s->fun) ||
           mlx_closure_apply(&s->v[1], s->made, s->v[0]) ||
           mlx_map_string_to_array_insert(s->map, "x", y) ||
           mlx_closure_kwargs_apply(&s->v[2], s->kwargs, s->v[0], s->map) ||
           mlx_eval(s->v[1]) || mlx_eval(s->v[2]);
}

/* ---- files ---- */

typedef struct memory {
    char data[8192];
    size_t size, at;
} memory;

static memory saved;

static bool memory_fine(void *desc)
{
    (void)desc;
    return true;
}

static size_t memory_tell(void *desc)
{
    return ((memory *)desc)->at;
}

static int memory_seek(void *desc, int64_t off, int whence)
{
    memory *mem = desc;
    mem->at = (size_t)(off + (whence == 0   ? 0
                              : whence == 1 ? (int64_t)mem->at
                                            : (int64_t)mem->size));
    return 0;
}

static size_t memory_read_at(void *desc, char *data, size_t n, size_t off)
{
    memory *mem = desc;
    if (off > mem->size || n > mem->size - off)
        return 0;
    memcpy(data, mem->data + off, n);
    return n;
}

static size_t memory_read(void *desc, char *data, size_t n)
{
    n = memory_read_at(desc, data, n, ((memory *)desc)->at);
    ((memory *)desc)->at += n;
    return n;
}

static size_t memory_write(void *desc, const char *data, size_t n)
{
    memory *mem = desc;
    if (n > sizeof mem->data - mem->at)
        return 0;
    memcpy(mem->data + mem->at, data, n);
    mem->at += n;
    mem->size = mem->at > mem->size ? mem->at : mem->size;
    return n;
}

static const char *memory_label(void *desc)
{
    (void)desc;
    return "memory";
}

static void memory_free(void *desc)
{
    ((memory *)desc)->at = 0;
}

static const mlx_io_vtable memory_calls = {
    memory_fine,    memory_fine,  memory_tell,  memory_seek, memory_read,
    memory_read_at, memory_write, memory_label, memory_free};

static int through_streams(scope *s)
{
    saved.size = saved.at = 0;
    s->writer = mlx_io_writer_new(&saved, memory_calls);
    int rc = mlx_save_writer(s->writer, x);
    mlx_io_writer_free(s->writer);
    s->writer.ctx = NULL;
    saved.at = 0;
    s->reader = mlx_io_reader_new(&saved, memory_calls);
    return rc || mlx_io_reader_tostring(&s->text, s->reader) ||
           mlx_load_reader(&s->a[0], s->reader, cpu) || eval_all(s, 1);
}

static int through_files(scope *s)
{
    return mlx_save(path[0], y) || mlx_load(&s->a[0], path[0], cpu) ||
           mlx_add(&s->a[0], s->a[0], x, cpu) || mlx_save(path[0], s->a[0]);
}

static int through_safetensors(scope *s)
{
    s->map = mlx_map_string_to_array_new();
    s->words = mlx_map_string_to_string_new();
    int rc = mlx_map_string_to_array_insert(s->map, "x", x) ||
             mlx_map_string_to_array_insert(s->map, "m", m) ||
             mlx_map_string_to_string_insert(s->words, "format", "mlx") ||
             mlx_save_safetensors(path[1], s->map, s->words);
    mlx_map_string_to_array_free(s->map);
    mlx_map_string_to_string_free(s->words);
    s->map.ctx = s->words.ctx = NULL;
    return rc || mlx_load_safetensors(&s->map, &s->words, path[1], cpu) ||
           mlx_map_string_to_array_get(&s->a[0], s->map, "m") || eval_all(s, 1);
}

static int through_gguf(scope *s)
{
    s->gguf = mlx_io_gguf_new();
    s->texts = mlx_vector_string_new_value("one");
    int rc =
        mlx_vector_string_append_value(s->texts, "two") ||
        mlx_io_gguf_set_array(s->gguf, "x", x) ||
        mlx_io_gguf_set_metadata_string(s->gguf, "a.name", "value") ||
        mlx_io_gguf_set_metadata_vector_string(s->gguf, "a.list", s->texts) ||
        mlx_io_gguf_set_metadata_array(s->gguf, "a.numbers", idx) ||
        mlx_save_gguf(path[2], s->gguf);
    mlx_io_gguf_free(s->gguf);
    s->gguf.ctx = NULL;
    return rc || mlx_load_gguf(&s->gguf, path[2], cpu) ||
           mlx_io_gguf_get_keys(&s->texts, s->gguf) ||
           mlx_io_gguf_get_metadata_array(&s->a[1], s->gguf, "a.numbers") ||
           mlx_io_gguf_get_array(&s->a[0], s->gguf, "x") || eval_all(s, 2);
}

/* ---- texts, lists, the process ---- */

static int printing(scope *s)
{
    return mlx_array_tostring(&s->text, x) || mlx_array_tostring(&s->text, y) ||
           mlx_version(&s->text) || mlx_stream_tostring(&s->text, cpu);
}

static int lists_and_maps(scope *s)
{
    const char *words[] = {"a", "b", "c"}, *found = NULL;
    int numbers[] = {1, 2, 3};
    s->map = mlx_map_string_to_array_new();
    s->words = mlx_map_string_to_string_new();
    s->texts = mlx_vector_string_new_data(words, 3);
    s->numbers = mlx_vector_int_new_data(numbers, 3);
    s->text = mlx_string_new_data("text");
    s->v[0] = mlx_vector_array_new();
    int rc = !s->text.ctx || !s->texts.ctx || !s->numbers.ctx;
    for (int i = 0; i < 12 && !rc; i++) {
        char key[] = {(char)('a' + i), '\0'};
        rc = mlx_map_string_to_array_insert(s->map, key, x) ||
             mlx_map_string_to_string_insert(s->words, key, "value") ||
             mlx_vector_array_append_value(s->v[0], y) ||
             mlx_vector_string_append_value(s->texts, key) ||
             mlx_vector_int_append_value(s->numbers, i);
    }
    return rc || mlx_map_string_to_string_get(&found, s->words, "c") ||
           mlx_vector_array_set(&s->v[1], s->v[0]) ||
           mlx_map_string_to_array_get(&s->a[0], s->map, "l");
}

static int devices_and_streams(scope *s)
{
    s->device = mlx_device_new_type(MLX_CPU, 0);
    s->family = mlx_stream_thread_local_new(s->device);
    return mlx_device_tostring(&s->text, s->device) ||
           mlx_device_info_get(&s->info, s->device) ||
           mlx_device_info_get_keys(&s->texts, s->info) ||
           mlx_stream_from_thread_local(&s->stream, s->family) ||
           mlx_negative(&s->a[0], x, s->stream) || eval_all(s, 1) ||
           mlx_synchronize_thread_local(s->family);
}

static int work_for_later(scope *s)
{
    int rc = mlx_exp(&s->a[0], x, cpu) || mlx_sin(&s->a[1], s->a[0], cpu);
    s->v[0] = mlx_vector_array_new_value(s->a[1]);
    rc = rc || mlx_async_eval(s->v[0]);
    /* Whatever it met on its thread arrives here. */
    int late = mlx_synchronize(cpu);
    return rc || late || mlx_array_eval(s->a[1]);
}

/* ---- running them ---- */

static size_t active(void)
{
    size_t bytes = 0;
    mlx_synchronize(cpu);
    assert_int_equal(mlx_get_active_memory(&bytes), 0);
    return bytes;
}

static void check_it_works(void)
{
    mlx_array two = mlx_array_new_int(2), four = {NULL};
    int value = 0;
    check_ok(mlx_add(&four, two, two, cpu));
    check_ok(mlx_array_item_int32(&value, four));
    assert_int_equal(value, 4);
    mlx_array_free(two);
    mlx_array_free(four);
}

static void each_may_fail(void **state)
{
    int (*program)(scope *) = *(int (**)(scope *)) * state;
    scope warm = {0};
    /* What is made once and kept. */
    check_ok(program(&warm));
    end_scope(&warm);
    size_t before = active();
    long failed = 0, n = 0;
    for (bool met = true; met; n++) {
        scope s = {0};
        heard.count = 0;
        qn_test_fail_alloc_anywhere(n);
        int rc = program(&s);
        met = qn_test_fail_alloc_anywhere(-1) < 0;
        if (rc && (!heard.count || !met))
            print_error("allocation %ld: %d, %d reports: %s\n", n, rc,
                        heard.count, heard.text);
        assert_true(rc == 0 || (heard.count > 0 && met));
        failed += rc != 0;
        end_scope(&s);
        if (active() != before)
            print_error("allocation %ld: %zu bytes before, %zu after\n", n,
                        before, active());
        assert_int_equal(active(), before);
        assert_int_equal(payloads, 0);
        check_it_works();
    }
    /* Most are missed; a program without any proves nothing. */
    assert_true(n > 1 && failed > n / 2);
}

static int setup(void **state)
{
    capi_setup(state);
    cpu = mlx_default_cpu_stream_new();
    directory = temp_dir_new();
    static const char *const names[] = {"a.npy", "b.safetensors", "c.gguf"};
    for (int i = 0; i < 3; i++)
        snprintf(path[i], sizeof path[i], "%s/%s", directory, names[i]);
    int shape[] = {6, 64}, square[] = {8, 8}, n = 6;
    float values[6 * 64], matrix[64];
    bool on[6 * 64];
    for (int i = 0; i < 6 * 64; i++) {
        values[i] = (float)(i * 37 % 101) / 64 - 0.7f;
        on[i] = i % 3 == 0;
    }
    for (int i = 0; i < 64; i++)
        matrix[i] = i % 9 == 0 ? 9 : (float)((i / 8 + i % 8) % 5) / 8;
    x = mlx_array_new_data(values, shape, 2, MLX_FLOAT32);
    flags = mlx_array_new_data(on, shape, 2, MLX_BOOL);
    m = mlx_array_new_data(matrix, square, 2, MLX_FLOAT32);
    idx = mlx_array_new_data((uint32_t[]){5, 0, 3, 1, 1, 4}, &n, 1, MLX_UINT32);
    mlx_cos(&y, x, cpu);
    mlx_array_eval(y);
    return quern_set_threads(3);
}

static int teardown(void **state)
{
    (void)state;
    mlx_array_free(x);
    mlx_array_free(y);
    mlx_array_free(m);
    mlx_array_free(idx);
    mlx_array_free(flags);
    temp_dir_remove(directory);
    quern_set_threads(0);
    return mlx_stream_free(cpu);
}

#define PROGRAM(name)                                                          \
    {                                                                          \
#name, each_may_fail, NULL, NULL, &(struct { int (*run)(scope *); })   \
        {                                                                      \
            name                                                               \
        }                                                                      \
    }
int main(void)
{
    const struct CMUnitTest tests[] = {
        PROGRAM(elementwise),
        PROGRAM(reductions),
        PROGRAM(sorting),
        PROGRAM(scans),
        PROGRAM(gathering),
        PROGRAM(slicing),
        PROGRAM(shapes),
        PROGRAM(products),
        PROGRAM(einsums),
        PROGRAM(grouped_products),
        PROGRAM(convolutions),
        PROGRAM(packing),
        PROGRAM(packing_small_floats),
        PROGRAM(transforms_of_fourier),
        PROGRAM(decompositions),
        PROGRAM(equations),
        PROGRAM(random_with_a_key),
        PROGRAM(random_of_the_thread),
        PROGRAM(layers_of_a_model),
        PROGRAM(types_and_views),
        PROGRAM(reverse_mode),
        PROGRAM(forward_mode),
        PROGRAM(values_and_gradients),
        PROGRAM(rules_of_the_program),
        PROGRAM(batches),
        PROGRAM(compiling),
        PROGRAM(compiling_without_shapes),
        PROGRAM(closures),
        PROGRAM(through_streams),
        PROGRAM(through_files),
        PROGRAM(through_safetensors),
        PROGRAM(through_gguf),
        PROGRAM(printing),
        PROGRAM(lists_and_maps),
        PROGRAM(devices_and_streams),
        PROGRAM(work_for_later),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
