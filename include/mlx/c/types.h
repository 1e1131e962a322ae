/* Handles of the MLX C API, and the rules that hold for all of it.
 *
 * Every object is reached through a handle: a struct with one pointer, passed
 * and returned by value. What the pointer means is the library's business; a
 * NULL ctx means that there is no object.
 *
 * Ownership. Whoever holds a handle frees it with the matching _free, once;
 * freeing a handle whose ctx is NULL does nothing. Handles share: an array
 * stays usable after the vector, map or closure that it came from is freed, and
 * the other way round.
 *
 * Results. An output parameter (res, res_0, ...) points at a handle that was
 * set up before the call. If its ctx is NULL, a new object is made and stored
 * there. If it refers to an object, that object is replaced by the result while
 * ctx stays the same, so one handle serves a whole loop; it may also be an
 * input of the same call. A call that fails leaves it as it was.
 *
 * Errors. A function that returns int gives 0 for success and 1 for failure,
 * after calling the error handler (error.h); a few look-ups give other values
 * without calling it, and say so. A function that returns a handle, a pointer
 * or a size reports likewise and then returns a NULL ctx, NULL or 0. A handle
 * with a NULL ctx is an error unless the function calls that argument optional.
 *
 * Evaluation. Operations check shapes and dtypes at once but compute nothing:
 * they extend a graph, which mlx_eval, mlx_async_eval, mlx_array_eval, the
 * mlx_array_item_* functions, printing and saving evaluate. Errors that depend
 * on values appear only then.
 *
 * Borrowed pointers. A pointer into an object (data, shape, text, keys) stays
 * valid while that object lives and is not changed.
 *
 * The _new functions without arguments return a NULL ctx, except those of the
 * vectors, the maps, mlx_io_gguf and mlx_node_namer, which make a live empty
 * object. A _new function with arguments returns a NULL ctx only on failure.
 *
 * X_set(&dst, src) makes dst refer to the value of src, by the rule for
 * results. */
#ifndef MLX_C_TYPES_H
#define MLX_C_TYPES_H

#if defined(__GNUC__)
#define MLX_C_MAYBE_UNUSED __attribute__((unused))
#else
#define MLX_C_MAYBE_UNUSED
#endif

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* An n-dimensional array, evaluated or not. See array.h. */
typedef struct mlx_array_ {
    void *ctx;
} mlx_array;

/* A text. See string.h. */
typedef struct mlx_string_ {
    void *ctx;
} mlx_string;

/* A kind of processor and an index, and what is known of one. See device.h. */
typedef struct mlx_device_ {
    void *ctx;
} mlx_device;
typedef struct mlx_device_info_ {
    void *ctx;
} mlx_device_info;

/* A queue of work on a device, and one that each thread has of its own. See
 * stream.h. */
typedef struct mlx_stream_ {
    void *ctx;
} mlx_stream;
typedef struct mlx_stream_thread_local_ {
    void *ctx;
} mlx_stream_thread_local;

/* Growing lists. See vector.h. */
typedef struct mlx_vector_array_ {
    void *ctx;
} mlx_vector_array;
typedef struct mlx_vector_vector_array_ {
    void *ctx;
} mlx_vector_vector_array;
typedef struct mlx_vector_int_ {
    void *ctx;
} mlx_vector_int;
typedef struct mlx_vector_string_ {
    void *ctx;
} mlx_vector_string;
typedef struct mlx_vector_stream_ {
    void *ctx;
} mlx_vector_stream;

/* Maps from text, and positions in them. See map.h. */
typedef struct mlx_map_string_to_array_ {
    void *ctx;
} mlx_map_string_to_array;
typedef struct mlx_map_string_to_string_ {
    void *ctx;
} mlx_map_string_to_string;
typedef struct mlx_map_string_to_array_iterator_ {
    void *ctx;
    void *map_ctx;
} mlx_map_string_to_array_iterator;
typedef struct mlx_map_string_to_string_iterator_ {
    void *ctx;
    void *map_ctx;
} mlx_map_string_to_string_iterator;

/* Functions of arrays, one type for each signature. See closure.h. */
typedef struct mlx_closure_ {
    void *ctx;
} mlx_closure;
typedef struct mlx_closure_kwargs_ {
    void *ctx;
} mlx_closure_kwargs;
typedef struct mlx_closure_value_and_grad_ {
    void *ctx;
} mlx_closure_value_and_grad;
typedef struct mlx_closure_custom_ {
    void *ctx;
} mlx_closure_custom;
typedef struct mlx_closure_custom_jvp_ {
    void *ctx;
} mlx_closure_custom_jvp;
typedef struct mlx_closure_custom_vmap_ {
    void *ctx;
} mlx_closure_custom_vmap;

/* The compiled graphs of one thread. See compile.h. */
typedef struct mlx_compile_cache_ {
    void *ctx;
} mlx_compile_cache;

/* Streams of bytes that the caller supplies, and the contents of a GGUF file.
 * See io_types.h. */
typedef struct mlx_io_reader_ {
    void *ctx;
} mlx_io_reader;
typedef struct mlx_io_writer_ {
    void *ctx;
} mlx_io_writer;
typedef struct mlx_io_gguf_ {
    void *ctx;
} mlx_io_gguf;

/* Processes that work together. See distributed_group.h. */
typedef struct mlx_distributed_group_ {
    void *ctx;
} mlx_distributed_group;

/* Functions on their way to and from a file. See export.h. */
typedef struct mlx_function_exporter_ {
    void *ctx;
} mlx_function_exporter;
typedef struct mlx_imported_function_ {
    void *ctx;
} mlx_imported_function;

/* Names for the arrays of a printed graph. See graph_utils.h. */
typedef struct mlx_node_namer_ {
    void *ctx;
} mlx_node_namer;

/* Kernels that the caller writes, and how to launch them. See fast.h. */
typedef struct mlx_fast_metal_kernel_ {
    void *ctx;
} mlx_fast_metal_kernel;
typedef struct mlx_fast_metal_kernel_config_ {
    void *ctx;
} mlx_fast_metal_kernel_config;
typedef struct mlx_fast_cuda_kernel_ {
    void *ctx;
} mlx_fast_cuda_kernel;
typedef struct mlx_fast_cuda_kernel_config_ {
    void *ctx;
} mlx_fast_cuda_kernel_config;

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
