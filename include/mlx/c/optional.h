/* Values that may be absent, passed by value.
 *
 * With has_value false, value is not looked at. Each fits in one register: the
 * value in the low 32 bits, the flag in bit 32. */
#ifndef MLX_C_OPTIONAL_H
#define MLX_C_OPTIONAL_H

#include "mlx/c/array.h"

#include <stdbool.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

typedef struct mlx_optional_int_ {
    int value;
    bool has_value;
} mlx_optional_int;

typedef struct mlx_optional_float_ {
    float value;
    bool has_value;
} mlx_optional_float;

typedef struct mlx_optional_dtype_ {
    mlx_dtype value;
    bool has_value;
} mlx_optional_dtype;

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
