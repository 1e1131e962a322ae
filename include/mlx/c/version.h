/* The version of the interface and of its numerics. */
#ifndef MLX_C_VERSION_H
#define MLX_C_VERSION_H

#include "mlx/c/types.h"

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* Stores the version of MLX that the library implements, such as "0.32.2", in
 * *str_. */
int mlx_version(mlx_string *str_);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
