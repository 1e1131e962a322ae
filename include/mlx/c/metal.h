/* Metal. Without it, starting and stopping a capture succeeds and does nothing,
 * and there is no metallib to ask for. */
#ifndef MLX_C_METAL_H
#define MLX_C_METAL_H

#include "mlx/c/types.h"

#include <stdbool.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* Whether the library can run work through Metal. Never an error. */
int mlx_metal_is_available(bool *res);

/* Stores the path of the library of compiled Metal kernels in *res; fails
 * without Metal. */
int mlx_metal_get_metallib_path(mlx_string *res);

/* Chooses the library of compiled Metal kernels; call it before the first use
 * of the GPU. */
int mlx_metal_set_metallib_path(const char *path);

/* Record the GPU's work into a trace at path, until stopped. */
int mlx_metal_start_capture(const char *path);
int mlx_metal_stop_capture(void);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
