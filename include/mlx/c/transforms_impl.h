/* The two halves of mapping a function over an axis of its inputs: record the
 * function for one entry, then rewrite the graph for all entries at once.
 *
 * In an array of axes, entry i belongs to array i; -1 means that the array is
 * used whole (an input) or has no mapped axis (an output). */
#ifndef MLX_C_TRANSFORMS_IMPL_H
#define MLX_C_TRANSFORMS_IMPL_H

#include "mlx/c/types.h"

#include <stddef.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* Records fun for inputs without the axes in in_axes. res_0 gets the
 * placeholders that stood for the inputs, res_1 the outputs made from them. */
int mlx_detail_vmap_trace(mlx_vector_array *res_0, mlx_vector_array *res_1,
                          const mlx_closure fun, const mlx_vector_array inputs,
                          const int *in_axes, size_t in_axes_num);

/* Rewrites the graph that leads from s_inputs to s_outputs, the results of
 * mlx_detail_vmap_trace, for the whole inputs. res gets one array for each
 * output, with the mapped axis at its place in out_axes. */
int mlx_detail_vmap_replace(mlx_vector_array *res,
                            const mlx_vector_array inputs,
                            const mlx_vector_array s_inputs,
                            const mlx_vector_array s_outputs,
                            const int *in_axes, size_t in_axes_num,
                            const int *out_axes, size_t out_axes_num);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
