/* The MLX C API, version.h. */
#ifndef MLX_C_VERSION_H
#define MLX_C_VERSION_H

#include "mlx/c/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

int mlx_version(mlx_string *str_);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
