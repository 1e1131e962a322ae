/* Building blocks of transformers in one operation each, and kernels that the
 * caller writes. */
#ifndef MLX_C_FAST_H
#define MLX_C_FAST_H

#include "mlx/c/array.h"
#include "mlx/c/optional.h"
#include "mlx/c/types.h"

#include <stdbool.h>
#include <stddef.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* --- Normalisation and loss ----------------------------------------------- */

/* x / sqrt(mean(x^2) + eps) * weight over the last axis, in the promoted dtype
 * of x and weight. weight has one value for each entry of the axis; without one
 * it counts as 1. */
int mlx_fast_rms_norm(mlx_array *res, const mlx_array x, const mlx_array weight,
                      float eps, const mlx_stream s);

/* (x - mean(x)) / sqrt(var(x) + eps) * weight + bias over the last axis, the
 * variance being the mean square. weight counts as 1 if absent, bias as 0. */
int mlx_fast_layer_norm(mlx_array *res, const mlx_array x,
                        const mlx_array weight, const mlx_array bias, float eps,
                        const mlx_stream s);

/* logsumexp(logits) - logits[target] over the last axis of logits. targets are
 * integers in the shape of logits without that axis; the result is float32 in
 * theirs. */
int mlx_fast_cross_entropy(mlx_array *res, const mlx_array logits,
                           const mlx_array targets, const mlx_stream s);

/* --- Attention ------------------------------------------------------------ */

/* Rotary position encoding of x (..., L, D), rank 3 or more: entries of the
 * first dims features are taken in pairs and turned by an angle; the rest pass
 * through. With h = dims / 2, pair k of position t turns by (t + offset) *
 * scale * w[k], where w[k] = base^(-k / h), or 1 / freqs[k] if freqs, with h
 * values, is given. Exactly one of base and freqs must be. A pair is (k, k +
 * h), or (2k, 2k + 1) if traditional; (a, b) becomes (a cos - b sin, a sin + b
 * cos). (Su and others, "RoFormer", 2021.) */
int mlx_fast_rope(mlx_array *res, const mlx_array x, int dims, bool traditional,
                  mlx_optional_float base, float scale, int offset,
                  const mlx_array freqs, const mlx_stream s);

/* The same with an integer array for the offset: one value, or one for each
 * entry of the first axis of x. */
int mlx_fast_rope_dynamic(mlx_array *res, const mlx_array x, int dims,
                          bool traditional, mlx_optional_float base,
                          float scale, const mlx_array offset,
                          const mlx_array freqs, const mlx_stream s);

/* softmax(scale * queries keys^T + mask) values.
 *
 * Shapes: queries (B, H, L, D), keys (B, G, S, D), values (B, G, S, E), with H
 * a multiple of G; query head h reads head h / (H / G). The result is (B, H, L,
 * E) in the promoted dtype, which must be floating.
 *
 * mask_mode is "causal" (query i sees keys up to i + S - L), "array" or "".
 * mask_arr, if given, is used in both of the latter and refused with "causal".
 * It is broadcast to (B, H, L, S): bool keeps where true, numbers are added and
 * must promote to the result's dtype. sinks, if given, has H values: one more
 * logit for each head, which takes part in the softmax but has no value.
 *
 * force_fused makes it an error that no fused kernel fits. */
int mlx_fast_scaled_dot_product_attention(
    mlx_array *res, const mlx_array queries, const mlx_array keys,
    const mlx_array values, float scale, const char *mask_mode,
    const mlx_array mask_arr, const mlx_array sinks, bool force_fused,
    const mlx_stream s);

/* --- Kernels in Metal's language: how to launch them ---------------------- */

/* The settings of one launch, empty. */
mlx_fast_metal_kernel_config mlx_fast_metal_kernel_config_new(void);

/* Frees the settings; launches made with them stay. */
void mlx_fast_metal_kernel_config_free(mlx_fast_metal_kernel_config cls);

/* Adds an output of that shape, with size dimensions, and dtype. */
int mlx_fast_metal_kernel_config_add_output_arg(
    mlx_fast_metal_kernel_config cls, const int *shape, size_t size,
    mlx_dtype dtype);

/* The number of threads in each direction, and how many of them form a
 * group. */
int mlx_fast_metal_kernel_config_set_grid(mlx_fast_metal_kernel_config cls,
                                          int grid1, int grid2, int grid3);
int mlx_fast_metal_kernel_config_set_thread_group(
    mlx_fast_metal_kernel_config cls, int thread1, int thread2, int thread3);

/* The value that outputs are filled with before the launch; without it they
 * start undefined. */
int mlx_fast_metal_kernel_config_set_init_value(
    mlx_fast_metal_kernel_config cls, float value);

/* Whether to print the source that is compiled. */
int mlx_fast_metal_kernel_config_set_verbose(mlx_fast_metal_kernel_config cls,
                                             bool verbose);

/* Give the template parameter called name a type or a value. */
int mlx_fast_metal_kernel_config_add_template_arg_dtype(
    mlx_fast_metal_kernel_config cls, const char *name, mlx_dtype dtype);
int mlx_fast_metal_kernel_config_add_template_arg_int(
    mlx_fast_metal_kernel_config cls, const char *name, int value);
int mlx_fast_metal_kernel_config_add_template_arg_bool(
    mlx_fast_metal_kernel_config cls, const char *name, bool value);

/* --- Kernels in Metal's language: the kernels ----------------------------- */

/* A kernel from the body of its function; header goes before the function. The
 * names become the parameters. ensure_row_contiguous has inputs copied to
 * row-major order where needed; otherwise the source reads their strides.
 * atomic_outputs makes the outputs atomic. Works without Metal; applying the
 * kernel then runs the function that was registered under its name
 * (quern/ext.h), and fails where there is none. */
mlx_fast_metal_kernel
mlx_fast_metal_kernel_new(const char *name, const mlx_vector_string input_names,
                          const mlx_vector_string output_names,
                          const char *source, const char *header,
                          bool ensure_row_contiguous, bool atomic_outputs);

/* Launches the kernel on stream and stores its outputs. Kernel, config and
 * inputs may be freed at once. */
int mlx_fast_metal_kernel_apply(mlx_vector_array *outputs,
                                mlx_fast_metal_kernel cls,
                                const mlx_vector_array inputs,
                                const mlx_fast_metal_kernel_config config,
                                const mlx_stream stream);

/* Gives up the kernel. */
void mlx_fast_metal_kernel_free(mlx_fast_metal_kernel cls);

/* --- Kernels in CUDA: how to launch them ---------------------------------- */

/* The settings of one launch, empty. */
mlx_fast_cuda_kernel_config mlx_fast_cuda_kernel_config_new(void);

/* Frees the settings; launches made with them stay. */
void mlx_fast_cuda_kernel_config_free(mlx_fast_cuda_kernel_config cls);

/* Adds an output of that shape, with size dimensions, and dtype. */
int mlx_fast_cuda_kernel_config_add_output_arg(mlx_fast_cuda_kernel_config cls,
                                               const int *shape, size_t size,
                                               mlx_dtype dtype);

/* The number of threads in each direction, and how many of them form a block.
 * The last blocks may reach past the grid. */
int mlx_fast_cuda_kernel_config_set_grid(mlx_fast_cuda_kernel_config cls,
                                         int grid1, int grid2, int grid3);
int mlx_fast_cuda_kernel_config_set_thread_group(
    mlx_fast_cuda_kernel_config cls, int thread1, int thread2, int thread3);

/* The value that outputs are filled with before the launch; without it they
 * start undefined. */
int mlx_fast_cuda_kernel_config_set_init_value(mlx_fast_cuda_kernel_config cls,
                                               float value);

/* Whether to print the source that is compiled. */
int mlx_fast_cuda_kernel_config_set_verbose(mlx_fast_cuda_kernel_config cls,
                                            bool verbose);

/* Give the template parameter called name a type or a value. */
int mlx_fast_cuda_kernel_config_add_template_arg_dtype(
    mlx_fast_cuda_kernel_config cls, const char *name, mlx_dtype dtype);
int mlx_fast_cuda_kernel_config_add_template_arg_int(
    mlx_fast_cuda_kernel_config cls, const char *name, int value);
int mlx_fast_cuda_kernel_config_add_template_arg_bool(
    mlx_fast_cuda_kernel_config cls, const char *name, bool value);

/* --- Kernels in CUDA: the kernels ----------------------------------------- */

/* A kernel from the body of its function, as for Metal, with shared_memory
 * bytes of dynamic shared memory for each block. Without CUDA it is applied as
 * one for Metal is without Metal. */
mlx_fast_cuda_kernel
mlx_fast_cuda_kernel_new(const char *name, const mlx_vector_string input_names,
                         const mlx_vector_string output_names,
                         const char *source, const char *header,
                         bool ensure_row_contiguous, int shared_memory);

/* Launches the kernel on stream and stores its outputs. Kernel, config and
 * inputs may be freed at once. */
int mlx_fast_cuda_kernel_apply(mlx_vector_array *outputs,
                               mlx_fast_cuda_kernel cls,
                               const mlx_vector_array inputs,
                               const mlx_fast_cuda_kernel_config config,
                               const mlx_stream stream);

/* Gives up the kernel. */
void mlx_fast_cuda_kernel_free(mlx_fast_cuda_kernel cls);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
