/* Handles. */
#ifndef MLX_C_TYPES_H
#define MLX_C_TYPES_H

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

typedef struct mlx_array_ {
    void *ctx;
} mlx_array;

typedef struct mlx_string_ {
    void *ctx;
} mlx_string;

typedef struct mlx_device_ {
    void *ctx;
} mlx_device;

typedef struct mlx_device_info_ {
    void *ctx;
} mlx_device_info;

typedef struct mlx_stream_ {
    void *ctx;
} mlx_stream;

typedef struct mlx_stream_thread_local_ {
    void *ctx;
} mlx_stream_thread_local;

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

typedef struct mlx_map_string_to_array_ {
    void *ctx;
} mlx_map_string_to_array;

typedef struct mlx_map_string_to_string_ {
    void *ctx;
} mlx_map_string_to_string;

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

typedef struct mlx_compile_cache_ {
    void *ctx;
} mlx_compile_cache;

typedef struct mlx_io_reader_ {
    void *ctx;
} mlx_io_reader;

typedef struct mlx_io_writer_ {
    void *ctx;
} mlx_io_writer;

typedef struct mlx_io_gguf_ {
    void *ctx;
} mlx_io_gguf;

typedef struct mlx_distributed_group_ {
    void *ctx;
} mlx_distributed_group;

typedef struct mlx_function_exporter_ {
    void *ctx;
} mlx_function_exporter;

typedef struct mlx_imported_function_ {
    void *ctx;
} mlx_imported_function;

typedef struct mlx_node_namer_ {
    void *ctx;
} mlx_node_namer;

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

typedef struct mlx_map_string_to_array_iterator_ {
    void *ctx;
    void *map_ctx;
} mlx_map_string_to_array_iterator;

typedef struct mlx_map_string_to_string_iterator_ {
    void *ctx;
    void *map_ctx;
} mlx_map_string_to_string_iterator;

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
