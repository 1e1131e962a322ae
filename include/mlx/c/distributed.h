/* The MLX C API, distributed.h. */
#ifndef MLX_C_DISTRIBUTED_H
#define MLX_C_DISTRIBUTED_H

#include "mlx/c/array.h"
#include "mlx/c/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

int mlx_distributed_all_gather(mlx_array *res, const mlx_array x,
                               const mlx_distributed_group group,
                               const mlx_stream S);
int mlx_distributed_all_max(mlx_array *res, const mlx_array x,
                            const mlx_distributed_group group,
                            const mlx_stream s);
int mlx_distributed_all_min(mlx_array *res, const mlx_array x,
                            const mlx_distributed_group group,
                            const mlx_stream s);
int mlx_distributed_all_sum(mlx_array *res, const mlx_array x,
                            const mlx_distributed_group group,
                            const mlx_stream s);
int mlx_distributed_recv(mlx_array *res, const int *shape, size_t shape_num,
                         mlx_dtype dtype, int src,
                         const mlx_distributed_group group, const mlx_stream s);
int mlx_distributed_recv_like(mlx_array *res, const mlx_array x, int src,
                              const mlx_distributed_group group,
                              const mlx_stream s);
int mlx_distributed_send(mlx_array *res, const mlx_array x, int dst,
                         const mlx_distributed_group group, const mlx_stream s);
int mlx_distributed_sum_scatter(mlx_array *res, const mlx_array x,
                                const mlx_distributed_group group,
                                const mlx_stream s);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
