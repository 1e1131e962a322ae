/* version.c: what the library says it is. */
#include "handles.h"

/* The interface, and the numerics where the two agree. */
#define MLX_VERSION "0.32.2"

int mlx_version(mlx_string *str_)
{
    return QN_STORE_STRING(str_, MLX_VERSION, sizeof MLX_VERSION - 1);
}
