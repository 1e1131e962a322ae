/* The MLX C API, compile.h. */
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

typedef enum mlx_compile_mode_ {
    MLX_COMPILE_MODE_DISABLED = 0,
    MLX_COMPILE_MODE_NO_SIMPLIFY = 1,
    MLX_COMPILE_MODE_NO_FUSE = 2,
    MLX_COMPILE_MODE_ENABLED = 3
} mlx_compile_mode;

mlx_compile_cache mlx_compile_cache_new(void);
int mlx_compile_cache_free(mlx_compile_cache cache);
int mlx_compile(mlx_closure *res, const mlx_closure fun, bool shapeless);
int mlx_detail_compile(mlx_closure *res, const mlx_closure fun,
                       uintptr_t fun_id, bool shapeless,
                       const uint64_t *constants, size_t constants_num);
int mlx_detail_compile_cache(mlx_compile_cache *res);
int mlx_detail_compile_clear_cache(mlx_compile_cache cache);
int mlx_detail_compile_erase(mlx_compile_cache cache, uintptr_t fun_id);
int mlx_disable_compile(void);
int mlx_enable_compile(void);
int mlx_set_compile_mode(mlx_compile_mode mode);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
