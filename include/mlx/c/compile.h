/* Compilation: a function's graph is recorded once and then run again on new
 * inputs without calling the function.
 *
 * Each thread has its own cache of recorded graphs. */
#ifndef MLX_C_COMPILE_H
#define MLX_C_COMPILE_H

#include "mlx/c/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* How much compilation does: nothing, the function is called every time; record
 * the graph but keep duplicates and what is not needed; simplify the graph but
 * join no operations; all of it. Results do not depend on it. */
typedef enum mlx_compile_mode_ {
    MLX_COMPILE_MODE_DISABLED = 0,
    MLX_COMPILE_MODE_NO_SIMPLIFY = 1,
    MLX_COMPILE_MODE_NO_FUSE = 2,
    MLX_COMPILE_MODE_ENABLED = 3
} mlx_compile_mode;

/* --- Compiled functions --------------------------------------------------- */

/* Stores a closure in *res that computes what fun does. fun is called the first
 * time that the number, dtypes, ranks and shapes of the inputs are new
 * (shapeless: not for new shapes alone) with placeholders that it must not
 * evaluate. Arrays that it captures and host values that it reads stay as they
 * were then. A shapeless graph works out shapes anew in each run; an operation
 * that cannot makes the call fail. */
int mlx_compile(mlx_closure *res, const mlx_closure fun, bool shapeless);

/* Chooses the mode for the process. */
int mlx_set_compile_mode(mlx_compile_mode mode);

/* Turn compilation off and on for the process. */
int mlx_disable_compile(void);
int mlx_enable_compile(void);

/* --- Caches --------------------------------------------------------------- */

/* As mlx_compile, with a key of the caller's choosing: fun_id names the
 * function in the thread's cache, and graphs recorded under other constants are
 * not used. */
int mlx_detail_compile(mlx_closure *res, const mlx_closure fun,
                       uintptr_t fun_id, bool shapeless,
                       const uint64_t *constants, size_t constants_num);

/* A handle without a cache (NULL ctx), ready to be a result. */
mlx_compile_cache mlx_compile_cache_new(void);

/* Stores the calling thread's cache in *res. The handle does not keep the cache
 * alive: it may be used from any thread, and after its thread has ended the
 * calls below do nothing. */
int mlx_detail_compile_cache(mlx_compile_cache *res);

/* Drops all recorded graphs, or those of the function named fun_id. */
int mlx_detail_compile_clear_cache(mlx_compile_cache cache);
int mlx_detail_compile_erase(mlx_compile_cache cache, uintptr_t fun_id);

/* Frees the handle, not the cache. */
int mlx_compile_cache_free(mlx_compile_cache cache);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
