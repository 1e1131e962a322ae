/* The MLX C API, transforms_impl.h. */
#ifndef MLX_C_TRANSFORMS_IMPL_H
#define MLX_C_TRANSFORMS_IMPL_H

#include "mlx/c/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

int mlx_detail_vmap_replace(mlx_vector_array *res,
                            const mlx_vector_array inputs,
                            const mlx_vector_array s_inputs,
                            const mlx_vector_array s_outputs,
                            const int *in_axes, size_t in_axes_num,
                            const int *out_axes, size_t out_axes_num);
int mlx_detail_vmap_trace(mlx_vector_array *res_0, mlx_vector_array *res_1,
                          const mlx_closure fun, const mlx_vector_array inputs,
                          const int *in_axes, size_t in_axes_num);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
