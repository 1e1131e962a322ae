/* Groups of processes that compute together. */
#ifndef MLX_C_DISTRIBUTED_GROUP_H
#define MLX_C_DISTRIBUTED_GROUP_H

#include "mlx/c/types.h"

#include <stdbool.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* A handle without a group (NULL ctx), ready to be a result. */
mlx_distributed_group mlx_distributed_group_new(void);

/* Frees the handle; the group lasts as long as the process. */
int mlx_distributed_group_free(mlx_distributed_group group);

/* Whether processes can be joined by the means called bk, such as "mpi" or
 * "ring"; NULL or "any": by some means. Says nothing of other processes. Never
 * an error. */
bool mlx_distributed_is_available(const char *bk);

/* Joins the processes by the means called bk ("any" or NULL: the first that
 * works) and stores the group of all of them in *res. Where there is none,
 * strict makes that an error; otherwise the group is this process alone. A name
 * that MLX does not know is always an error. */
int mlx_distributed_init(mlx_distributed_group *res, bool strict,
                         const char *bk);

/* The number of this process in the group, from 0, and the number of
 * processes; -1 and 0 for an empty handle, after an error. */
int mlx_distributed_group_rank(mlx_distributed_group group);
int mlx_distributed_group_size(mlx_distributed_group group);

/* Stores the part of group whose processes pass the same color, numbered in the
 * order of key; a negative key keeps the order. Every process of the group
 * calls it; a group that is one process alone can't be split. */
int mlx_distributed_group_split(mlx_distributed_group *res,
                                mlx_distributed_group group, int color,
                                int key);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
