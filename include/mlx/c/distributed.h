/* Operations across the processes of a group.
 *
 * group may have a NULL ctx: the group of all processes. In a group of one, the
 * collective operations give x back. Every process of the group must make the
 * same calls in the same order. */
#ifndef MLX_C_DISTRIBUTED_H
#define MLX_C_DISTRIBUTED_H

#include "mlx/c/array.h"
#include "mlx/c/types.h"

#include <stddef.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* --- Collective ----------------------------------------------------------- */

/* The arrays x of all processes, one after the other along the first axis. */
int mlx_distributed_all_gather(mlx_array *res, const mlx_array x,
                               const mlx_distributed_group group,
                               const mlx_stream S);

/* The element-wise sum, largest and smallest of the arrays x, whose shapes and
 * dtypes must agree, given to every process. */
int mlx_distributed_all_sum(mlx_array *res, const mlx_array x,
                            const mlx_distributed_group group,
                            const mlx_stream s);
int mlx_distributed_all_max(mlx_array *res, const mlx_array x,
                            const mlx_distributed_group group,
                            const mlx_stream s);
int mlx_distributed_all_min(mlx_array *res, const mlx_array x,
                            const mlx_distributed_group group,
                            const mlx_stream s);

/* The sum of the arrays x, cut along the first axis into equal parts, one for
 * each process. */
int mlx_distributed_sum_scatter(mlx_array *res, const mlx_array x,
                                const mlx_distributed_group group,
                                const mlx_stream s);

/* --- From one process to another ------------------------------------------ */

/* Sends x to process dst. Evaluating the result, which is x, sends it.
 * An error in a group of one, as is recv. */
int mlx_distributed_send(mlx_array *res, const mlx_array x, int dst,
                         const mlx_distributed_group group, const mlx_stream s);

/* An array of that shape and dtype from process src; or, in the _like form, of
 * those of x. */
int mlx_distributed_recv(mlx_array *res, const int *shape, size_t shape_num,
                         mlx_dtype dtype, int src,
                         const mlx_distributed_group group, const mlx_stream s);
int mlx_distributed_recv_like(mlx_array *res, const mlx_array x, int src,
                              const mlx_distributed_group group,
                              const mlx_stream s);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
