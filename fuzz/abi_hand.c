/* abi_hand.c: callers of the functions whose arguments depend on one another,
 * and handles made of nothing. */
#include "abi.h"

#include <limits.h>
#include <stdlib.h>

/* ---- arrays of the program's data ---- */

static void free_held(void *data)
{
    free(data);
    fz_held--;
}

typedef struct block {
    void *data;
    int shape[6];
    int rank;
    mlx_dtype dtype;
} block;

/* As many elements as the shape says; now and then a shape that is none, where
 * nothing may be read. */
static block new_block(fz *f)
{
    block b = {.dtype = fz_dtype(f, "dtype")};
    b.rank = fz_shape(f, b.shape, FZ_LARGEST);
    size_t n = 1, size = (int)b.dtype >= 0 && (int)b.dtype <= 13
                             ? mlx_dtype_size(b.dtype)
                             : 0;
    for (int i = 0; i < b.rank; i++)
        n *= (size_t)b.shape[i];
    if (fz_one_in(f, 30)) {
        if (b.rank && fz_one_in(f, 2))
            b.shape[b.rank - 1] = fz_one_in(f, 2) ? INT_MIN : -1;
        else
            b.rank = fz_one_in(f, 2) ? -1 : INT_MIN;
        n = 0;
    }
    b.data = malloc(n * size + (n * size == 0));
    FUZZ_CHECK(b.data);
    if (n && size)
        fz_fill(f, b.data, n, b.dtype, fz_one_in(f, 3));
    return b;
}

FZ_HAND(mlx_array_new_data)
{
    block b = new_block(f);
    fz_begin(f);
    fz_array_put(f, mlx_array_new_data(b.data, b.rank ? b.shape : NULL, b.rank,
                                       b.dtype));
    free(b.data);
    fz_end(f);
}

FZ_HAND(mlx_array_set_data)
{
    block b = new_block(f);
    mlx_array *res = fz_array_out(f);
    fz_begin(f);
    fz_status(f, mlx_array_set_data(res, b.data, b.rank ? b.shape : NULL,
                                    b.rank, b.dtype));
    free(b.data);
    fz_end(f);
}

FZ_HAND(mlx_array_new_data_managed)
{
    block b = new_block(f);
    fz_held++;
    fz_begin(f);
    fz_array_put(f, mlx_array_new_data_managed(b.data, b.rank ? b.shape : NULL,
                                               b.rank, b.dtype, free_held));
    fz_end(f);
}

FZ_HAND(mlx_array_new_data_managed_payload)
{
    block b = new_block(f);
    fz_held++;
    fz_begin(f);
    fz_array_put(f, mlx_array_new_data_managed_payload(
                        b.data, b.rank ? b.shape : NULL, b.rank, b.dtype,
                        b.data, free_held));
    fz_end(f);
}

FZ_HAND(mlx_array_shape)
{
    mlx_array a = fz_array_in(f, "a", false);
    const int *shape = mlx_array_shape(a);
    long long size = 1;
    for (size_t i = 0; shape && i < mlx_array_ndim(a); i++)
        size *= shape[i];
    if (shape)
        FUZZ_CHECK((size_t)size == mlx_array_size(a));
}

FZ_HAND(mlx_array_strides)
{
    mlx_array a = fz_array_in(f, "a", false);
    const size_t *strides = mlx_array_strides(a);
    size_t sum = 0;
    for (size_t i = 0; strides && i < mlx_array_ndim(a); i++)
        sum += strides[i];
    fz_number(f, (long long)sum);
}

FZ_HAND(mlx_vector_string_get)
{
    char *text = NULL;
    mlx_vector_string list = fz_vector_string_in(f, "vec", false);
    size_t index = fz_size(f, "idx");
    fz_begin(f);
    int status = mlx_vector_string_get(&text, list, index);
    fz_status(f, status);
    fz_read_text(f, text);
}

/* ---- closures ---- */

#define WITH_PAYLOAD(type, fun)                                                \
    {                                                                          \
        void *payload = fz_payload_new(f);                                     \
        fz_begin(f);                                                           \
        fz_##type##_put(                                                       \
            f, mlx_##type##_new_func_payload(fun, payload, fz_payload_free));  \
    }
FZ_HAND(mlx_closure_new_func_payload)
WITH_PAYLOAD(closure, fz_fun)
FZ_HAND(mlx_closure_kwargs_new_func_payload)
WITH_PAYLOAD(closure_kwargs, fz_fun_kwargs)
FZ_HAND(mlx_closure_value_and_grad_new_func_payload)
WITH_PAYLOAD(closure_value_and_grad, fz_fun_value_and_grad)
FZ_HAND(mlx_closure_custom_new_func_payload)
WITH_PAYLOAD(closure_custom, fz_fun_custom)
FZ_HAND(mlx_closure_custom_jvp_new_func_payload)
WITH_PAYLOAD(closure_custom_jvp, fz_fun_custom_jvp)
FZ_HAND(mlx_closure_custom_vmap_new_func_payload)
WITH_PAYLOAD(closure_custom_vmap, fz_fun_custom_vmap)

/* Without a payload, what they do is the same each time. */
#define PLAIN(type, parameters, call)                                          \
    static int plain_##type parameters                                         \
    {                                                                          \
        return call;                                                           \
    }
#define WITHOUT_PAYLOAD(type)                                                  \
    {                                                                          \
        fz_begin(f);                                                           \
        fz_##type##_put(f, mlx_##type##_new_func(plain_##type));               \
    }
PLAIN(closure, (mlx_vector_array * r, const mlx_vector_array a),
      fz_fun_plain(r, a))
PLAIN(closure_kwargs,
      (mlx_vector_array * r, const mlx_vector_array a,
       const mlx_map_string_to_array k),
      fz_fun_kwargs(r, a, k, NULL))
PLAIN(closure_value_and_grad,
      (mlx_vector_array * v, mlx_vector_array *g, const mlx_vector_array a),
      fz_fun_value_and_grad(v, g, a, NULL))
PLAIN(closure_custom,
      (mlx_vector_array * r, const mlx_vector_array a, const mlx_vector_array b,
       const mlx_vector_array c),
      fz_fun_custom(r, a, b, c, NULL))
PLAIN(closure_custom_jvp,
      (mlx_vector_array * r, const mlx_vector_array a, const mlx_vector_array t,
       const int *n, size_t count),
      fz_fun_custom_jvp(r, a, t, n, count, NULL))
PLAIN(closure_custom_vmap,
      (mlx_vector_array * r, mlx_vector_int *o, const mlx_vector_array a,
       const int *n, size_t count),
      fz_fun_custom_vmap(r, o, a, n, count, NULL))

FZ_HAND(mlx_closure_new_func)
WITHOUT_PAYLOAD(closure)
FZ_HAND(mlx_closure_kwargs_new_func)
WITHOUT_PAYLOAD(closure_kwargs)
FZ_HAND(mlx_closure_value_and_grad_new_func)
WITHOUT_PAYLOAD(closure_value_and_grad)
FZ_HAND(mlx_closure_custom_new_func)
WITHOUT_PAYLOAD(closure_custom)
FZ_HAND(mlx_closure_custom_jvp_new_func)
WITHOUT_PAYLOAD(closure_custom_jvp)
FZ_HAND(mlx_closure_custom_vmap_new_func)
WITHOUT_PAYLOAD(closure_custom_vmap)
FZ_HAND(mlx_closure_new_unary)
{
    fz_begin(f);
    fz_closure_put(f, mlx_closure_new_unary(fz_fun_unary));
}

/* ---- maps ---- */

/* An iterator lives no longer than its map stays as it is. */
static void walk_arrays(fz *f)
{
    mlx_map_string_to_array map = fz_map_string_to_array_in(f, "map", false);
    mlx_map_string_to_array_iterator it =
        mlx_map_string_to_array_iterator_new(map);
    mlx_array value = {NULL};
    for (uint32_t n = fz_below(f, 8); n; n--) {
        const char *key = NULL;
        fz_begin(f);
        int status = mlx_map_string_to_array_iterator_next(&key, &value, it);
        fz_status(f, status);
        fz_read_text(f, key);
    }
    mlx_array_free(value);
    mlx_map_string_to_array_iterator_free(it);
}

static void walk_texts(fz *f)
{
    mlx_map_string_to_string map = fz_map_string_to_string_in(f, "map", false);
    mlx_map_string_to_string_iterator it =
        mlx_map_string_to_string_iterator_new(map);
    for (uint32_t n = fz_below(f, 8); n; n--) {
        const char *key = NULL, *value = NULL;
        fz_begin(f);
        int status = mlx_map_string_to_string_iterator_next(&key, &value, it);
        fz_status(f, status);
        fz_read_text(f, key);
        fz_read_text(f, value);
    }
    mlx_map_string_to_string_iterator_free(it);
}

FZ_HAND(mlx_map_string_to_array_iterator_new)
{
    walk_arrays(f);
}
FZ_HAND(mlx_map_string_to_array_iterator_free)
{
    walk_arrays(f);
}
FZ_HAND(mlx_map_string_to_array_iterator_next)
{
    walk_arrays(f);
}
FZ_HAND(mlx_map_string_to_string_iterator_new)
{
    walk_texts(f);
}
FZ_HAND(mlx_map_string_to_string_iterator_free)
{
    walk_texts(f);
}
FZ_HAND(mlx_map_string_to_string_iterator_next)
{
    walk_texts(f);
}

/* ---- errors ---- */

static void count_report(const char *message, void *data)
{
    if (strlen(message))
        fz_reports++;
    FUZZ_CHECK(!data || *(int *)data == 7);
}

FZ_HAND(mlx_set_error_handler)
{
    (void)f;
    int *data = malloc(sizeof *data);
    FUZZ_CHECK(data);
    *data = 7;
    mlx_set_error_handler(count_report, data, free);
}

FZ_HAND(_mlx_error)
{
    (void)f;
    mlx_error("%s %d", "of the program's", 1);
}

/* ---- streams: they live as long as the process ---- */

static int streams_made;

static bool may_make_stream(fz *f)
{
    /* Drawn in any case: programs don't depend on those before them. */
    return fz_one_in(f, 10) && streams_made < 40 && ++streams_made;
}

FZ_HAND(mlx_stream_new_device)
{
    mlx_device device = fz_device_in(f, "dev", false);
    if (!device.ctx || may_make_stream(f))
        fz_stream_put(f, mlx_stream_new_device(device));
}

FZ_HAND(mlx_stream_new_thread_unsafe)
{
    mlx_device device = fz_device_in(f, "dev", false);
    if (!device.ctx || may_make_stream(f))
        fz_stream_put(f, mlx_stream_new_thread_unsafe(device));
}

FZ_HAND(mlx_stream_thread_local_new)
{
    mlx_device device = fz_device_in(f, "dev", false);
    if (!device.ctx || may_make_stream(f))
        fz_stream_thread_local_put(f, mlx_stream_thread_local_new(device));
}

FZ_HAND(mlx_clear_streams)
{
    if (may_make_stream(f)) {
        fz_begin(f);
        fz_status(f, mlx_clear_streams());
    }
}

/* ---- transforms ---- */

/* What a function gives decides what goes with it. */
static mlx_vector_array ones_like(fz *f, mlx_closure fun, mlx_vector_array in)
{
    mlx_vector_array outs = {NULL}, made = mlx_vector_array_new();
    mlx_stream s = mlx_default_cpu_stream_new();
    if (fun.ctx && in.ctx)
        (void)mlx_closure_apply(&outs, fun, in);
    for (size_t i = 0; outs.ctx && i < mlx_vector_array_size(outs); i++) {
        mlx_array a = {NULL}, one = {NULL};
        (void)mlx_vector_array_get(&a, outs, i);
        if (a.ctx && !fz_one_in(f, 20))
            (void)mlx_ones_like(&one, a, s);
        if (one.ctx)
            (void)mlx_vector_array_append_value(made, one);
        mlx_array_free(a);
        mlx_array_free(one);
    }
    mlx_vector_array_free(outs);
    mlx_stream_free(s);
    return made;
}

FZ_HAND(mlx_vjp)
{
    mlx_vector_array *values = fz_vector_array_out(f);
    mlx_vector_array *grads = fz_vector_array_out(f);
    mlx_closure fun = fz_closure_in(f, "fun", false);
    mlx_vector_array in = fz_vector_array_in(f, "primals", false);
    mlx_vector_array cot = ones_like(f, fun, in);
    fz_begin(f);
    fz_status(f, mlx_vjp(values, grads, fun, in, cot));
    mlx_vector_array_free(cot);
    fz_end(f);
}

FZ_HAND(mlx_jvp)
{
    mlx_vector_array *values = fz_vector_array_out(f);
    mlx_vector_array *tangents = fz_vector_array_out(f);
    mlx_closure fun = fz_closure_in(f, "fun", false);
    mlx_vector_array in = fz_vector_array_in(f, "primals", false);
    mlx_vector_array with =
        fz_one_in(f, 4) ? fz_vector_array_in(f, "tangents", false) : in;
    fz_begin(f);
    fz_status(f, mlx_jvp(values, tangents, fun, in, with));
    fz_end(f);
}

FZ_HAND(mlx_detail_vmap_replace)
{
    mlx_vector_array *res = fz_vector_array_out(f);
    mlx_vector_array in = fz_vector_array_in(f, "inputs", false);
    mlx_closure fun = fz_closure_in(f, "fun", false);
    mlx_vector_array from = {NULL}, to = {NULL};
    int axes[2 * FZ_LIST];
    size_t n = in.ctx ? mlx_vector_array_size(in) : 0, outs = 0;
    for (size_t i = 0; i < 2 * FZ_LIST; i++)
        axes[i] = fz_one_in(f, 6)   ? fz_int(f, "axis")
                  : fz_one_in(f, 3) ? -1
                                    : 0;
    if (n <= 2 * FZ_LIST)
        (void)mlx_detail_vmap_trace(&from, &to, fun, in, axes, n);
    if (to.ctx)
        outs = mlx_vector_array_size(to);
    if (n <= 2 * FZ_LIST && outs <= 2 * FZ_LIST) {
        fz_begin(f);
        fz_status(
            f, mlx_detail_vmap_replace(res, in, from, to, axes, n, axes, outs));
    }
    mlx_vector_array_free(from);
    mlx_vector_array_free(to);
    fz_end(f);
}

FZ_HAND(mlx_io_reader_new)
{
    fz_io_reader_put(f, fz_new_reader(f));
}
FZ_HAND(mlx_io_writer_new)
{
    fz_io_writer_put(f, fz_new_writer(f));
}

/* ---- packed matrices ---- */

typedef struct packed {
    mlx_array w, scales, biases, global;
    mlx_optional_int group, bits;
    const char *mode;
} packed;

/* Often parts that belong together, else anything. */
static packed packed_in(fz *f)
{
    packed p = {.group = fz_optional_int(f, "group_size"),
                .bits = fz_optional_int(f, "bits"),
                .mode = fz_text(f, "mode", false)};
    p.global = fz_array_in(f, "global_scale", true);
    mlx_vector_array parts = {NULL};
    if (!fz_one_in(f, 4)) {
        mlx_stream s = mlx_default_cpu_stream_new();
        mlx_array w = fz_array_in(f, "w", false);
        (void)mlx_quantize(&parts, w, p.group, p.bits, p.mode, p.global, s);
        mlx_stream_free(s);
    }
    mlx_array *part[] = {&p.w, &p.scales, &p.biases};
    static const char *const names[] = {"w", "scales", "biases"};
    for (size_t i = 0; i < 3; i++)
        if (parts.ctx && i < mlx_vector_array_size(parts))
            (void)mlx_vector_array_get(part[i], parts, i);
        else if (i < 2 || !parts.ctx)
            (void)mlx_array_set(part[i], fz_array_in(f, names[i], i == 2));
    mlx_vector_array_free(parts);
    return p;
}

static void packed_free(packed p)
{
    mlx_array_free(p.w);
    mlx_array_free(p.scales);
    mlx_array_free(p.biases);
}

FZ_HAND(mlx_dequantize)
{
    packed p = packed_in(f);
    mlx_array *res = fz_array_out(f);
    mlx_optional_dtype dtype = fz_optional_dtype(f, "dtype");
    mlx_stream s = fz_stream_in(f, "s", false);
    fz_begin(f);
    fz_status(f, mlx_dequantize(res, p.w, p.scales, p.biases, p.group, p.bits,
                                p.mode, p.global, dtype, s));
    packed_free(p);
    fz_end(f);
}

FZ_HAND(mlx_quantized_matmul)
{
    packed p = packed_in(f);
    mlx_array *res = fz_array_out(f);
    mlx_array x = fz_array_in(f, "x", false);
    bool transpose = fz_bool(f, "transpose");
    mlx_stream s = fz_stream_in(f, "s", false);
    fz_begin(f);
    fz_status(f, mlx_quantized_matmul(res, x, p.w, p.scales, p.biases,
                                      transpose, p.group, p.bits, p.mode, s));
    packed_free(p);
    fz_end(f);
}

FZ_HAND(mlx_qqmm)
{
    packed p = packed_in(f);
    mlx_array *res = fz_array_out(f);
    mlx_array x = fz_array_in(f, "x", false);
    mlx_array global = fz_array_in(f, "global_scale_x", true);
    mlx_stream s = fz_stream_in(f, "s", false);
    fz_begin(f);
    fz_status(f, mlx_qqmm(res, x, p.w, p.scales, p.group, p.bits, p.mode,
                          global, p.global, s));
    packed_free(p);
    fz_end(f);
}

FZ_HAND(mlx_gather_qmm)
{
    packed p = packed_in(f);
    mlx_array *res = fz_array_out(f);
    mlx_array x = fz_array_in(f, "x", false);
    mlx_array lhs = fz_array_in(f, "lhs_indices", true);
    mlx_array rhs = fz_array_in(f, "rhs_indices", true);
    bool transpose = fz_bool(f, "transpose"), sorted = fz_bool(f, "sorted");
    mlx_stream s = fz_stream_in(f, "s", false);
    fz_begin(f);
    fz_status(f, mlx_gather_qmm(res, x, p.w, p.scales, p.biases, lhs, rhs,
                                transpose, p.group, p.bits, p.mode, sorted, s));
    packed_free(p);
    fz_end(f);
}

FZ_HAND(mlx_gather_qqmm)
{
    packed p = packed_in(f);
    mlx_array *res = fz_array_out(f);
    mlx_array x = fz_array_in(f, "x", false);
    mlx_array lhs = fz_array_in(f, "lhs_indices", true);
    mlx_array rhs = fz_array_in(f, "rhs_indices", true);
    mlx_array global = fz_array_in(f, "global_scale_x", true);
    bool sorted = fz_bool(f, "sorted");
    mlx_stream s = fz_stream_in(f, "s", false);
    fz_begin(f);
    fz_status(f, mlx_gather_qqmm(res, x, p.w, p.scales, lhs, rhs, p.group,
                                 p.bits, p.mode, global, p.global, sorted, s));
    packed_free(p);
    fz_end(f);
}

/* ---- handles of nothing ---- */

void *fz_make(fz *f, fz_kind kind)
{
    switch (kind) {
    case FZ_string:
        return mlx_string_new_data(fz_text(f, "str", false)).ctx;
    case FZ_device:
        return mlx_device_new_type(fz_device_type(f, "type"), 0).ctx;
    case FZ_stream:
        return fz_one_in(f, 6) ? mlx_default_gpu_stream_new().ctx
                               : mlx_default_cpu_stream_new().ctx;
    case FZ_vector_array: {
        size_t n;
        mlx_array *list = fz_arrays(f, "a", &n);
        return mlx_vector_array_new_data(list, n).ctx;
    }
    case FZ_vector_string: {
        size_t n;
        const char **list = fz_texts(f, "a", &n);
        return mlx_vector_string_new_data(list, n).ctx;
    }
    case FZ_vector_int: {
        size_t n;
        int *list = fz_ints(f, "a", &n);
        return mlx_vector_int_new_data(list, n).ctx;
    }
    case FZ_vector_stream:
        return mlx_vector_stream_new().ctx;
    case FZ_vector_vector_array:
        return mlx_vector_vector_array_new().ctx;
    case FZ_map_string_to_array: {
        mlx_map_string_to_array map = mlx_map_string_to_array_new();
        for (uint32_t n = fz_below(f, 4); n; n--)
            (void)mlx_map_string_to_array_insert(map, fz_text(f, "key", false),
                                                 fz_array_in(f, "a", false));
        return map.ctx;
    }
    case FZ_map_string_to_string: {
        mlx_map_string_to_string map = mlx_map_string_to_string_new();
        for (uint32_t n = fz_below(f, 4); n; n--)
            (void)mlx_map_string_to_string_insert(map, fz_text(f, "key", false),
                                                  fz_text(f, "value", false));
        return map.ctx;
    }
    case FZ_closure:
        return mlx_closure_new_func_payload(fz_fun, fz_payload_new(f),
                                            fz_payload_free)
            .ctx;
    case FZ_closure_kwargs:
        return mlx_closure_kwargs_new_func_payload(
                   fz_fun_kwargs, fz_payload_new(f), fz_payload_free)
            .ctx;
    case FZ_closure_custom:
        return mlx_closure_custom_new_func_payload(
                   fz_fun_custom, fz_payload_new(f), fz_payload_free)
            .ctx;
    case FZ_closure_custom_jvp:
        return mlx_closure_custom_jvp_new_func_payload(
                   fz_fun_custom_jvp, fz_payload_new(f), fz_payload_free)
            .ctx;
    case FZ_closure_custom_vmap:
        return mlx_closure_custom_vmap_new_func_payload(
                   fz_fun_custom_vmap, fz_payload_new(f), fz_payload_free)
            .ctx;
    case FZ_io_reader:
        return fz_new_reader(f).ctx;
    case FZ_io_writer:
        return fz_new_writer(f).ctx;
    case FZ_io_gguf:
        return fz_new_gguf(f).ctx;
    case FZ_stream_thread_local: {
        /* One for all programs. */
        static mlx_stream_thread_local family;
        mlx_stream_thread_local copy = {NULL};
        mlx_device device = mlx_device_new_type(MLX_CPU, 0);
        if (!family.ctx)
            family = mlx_stream_thread_local_new(device);
        (void)mlx_stream_thread_local_set(&copy, family);
        mlx_device_free(device);
        return copy.ctx;
    }
    case FZ_node_namer:
        return mlx_node_namer_new().ctx;
    case FZ_function_exporter: {
        mlx_closure fun = {fz_make(f, FZ_closure)};
        mlx_function_exporter made = mlx_function_exporter_new(
            fz_text(f, "file", false), fun, fz_one_in(f, 2));
        mlx_closure_free(fun);
        return made.ctx;
    }
    case FZ_imported_function: {
        mlx_closure fun = {fz_make(f, FZ_closure)};
        mlx_vector_array in = {fz_make(f, FZ_vector_array)};
        const char *file = fz_text(f, "file", false);
        (void)mlx_export_function(file, fun, in, fz_one_in(f, 2));
        mlx_closure_free(fun);
        mlx_vector_array_free(in);
        if (fz_one_in(f, 3))
            fz_damage(f);
        return mlx_imported_function_new(file).ctx;
    }
    case FZ_device_info: {
        mlx_device device = mlx_device_new_type(MLX_CPU, 0);
        mlx_device_info info = mlx_device_info_new();
        (void)mlx_device_info_get(&info, device);
        mlx_device_free(device);
        return info.ctx;
    }
    case FZ_compile_cache: {
        mlx_compile_cache cache = mlx_compile_cache_new();
        (void)mlx_detail_compile_cache(&cache);
        return cache.ctx;
    }
    case FZ_closure_value_and_grad:
        return mlx_closure_value_and_grad_new_func_payload(
                   fz_fun_value_and_grad, fz_payload_new(f), fz_payload_free)
            .ctx;
    default:
        return NULL;
    }
}

void fz_reset_process(void)
{
    static size_t memory, cache;
    size_t before;
    if (!memory) {
        (void)mlx_get_memory_limit(&memory);
        (void)mlx_set_cache_limit(&cache, 0);
    }
    (void)mlx_set_memory_limit(&before, memory);
    (void)mlx_set_cache_limit(&before, cache);
    mlx_device cpu = mlx_device_new_type(MLX_CPU, 0);
    (void)mlx_set_default_device(cpu);
    mlx_device_free(cpu);
    (void)mlx_set_compile_mode(MLX_COMPILE_MODE_ENABLED);
    mlx_compile_cache graphs = mlx_compile_cache_new();
    if (!mlx_detail_compile_cache(&graphs))
        (void)mlx_detail_compile_clear_cache(graphs);
    mlx_compile_cache_free(graphs);
    (void)mlx_random_seed(0);
    /* A process that asks for others must not start an MPI. */
    setenv("MLX_MPI_LIBNAME", "none", 1);
    mlx_set_error_handler(count_report, NULL, NULL);
    fz_remove_files();
}
