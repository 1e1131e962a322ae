/* The MLX C API, metal.h. */
#ifndef MLX_C_METAL_H
#define MLX_C_METAL_H

#include "mlx/c/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

int mlx_metal_get_metallib_path(mlx_string *res);
int mlx_metal_is_available(bool *res);
int mlx_metal_set_metallib_path(const char *path);
int mlx_metal_start_capture(const char *path);
int mlx_metal_stop_capture(void);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
