/* The memory of the arrays: what is in use, what is kept for reuse, and limits.
 * All figures are bytes. */
#ifndef MLX_C_MEMORY_H
#define MLX_C_MEMORY_H

#include <stddef.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* Storage that arrays hold now, and the most they have held since the start or
 * the last reset. */
int mlx_get_active_memory(size_t *res);
int mlx_get_peak_memory(size_t *res);

/* Starts the peak anew. */
int mlx_reset_peak_memory(void);

/* Freed storage that is kept for reuse. */
int mlx_get_cache_memory(size_t *res);

/* Gives the kept storage back to the system. */
int mlx_clear_cache(void);

/* The amount of memory in use at which the library begins to wait for work and
 * to give back what it keeps; allocation beyond it still succeeds where the
 * system allows it. */
int mlx_get_memory_limit(size_t *res);

/* Set a limit and store the former one in *res: of memory in use; of storage
 * kept for reuse (0 keeps nothing); of memory that a GPU keeps resident, which
 * has no effect elsewhere. */
int mlx_set_memory_limit(size_t *res, size_t limit);
int mlx_set_cache_limit(size_t *res, size_t limit);
int mlx_set_wired_limit(size_t *res, size_t limit);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
