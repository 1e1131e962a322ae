/* The MLX C API, string.h. */
#ifndef MLX_C_STRING_H
#define MLX_C_STRING_H

#include "mlx/c/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

mlx_string mlx_string_new(void);
mlx_string mlx_string_new_data(const char *str);
int mlx_string_set(mlx_string *str, const mlx_string src);
const char *mlx_string_data(mlx_string str);
int mlx_string_free(mlx_string str);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
