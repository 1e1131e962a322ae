/* The MLX C API, error.h. */
#ifndef MLX_C_ERROR_H
#define MLX_C_ERROR_H

#include "mlx/c/types.h"

#if defined(__GNUC__)
#define MLX_C_PRINTF(fmt_arg, first_arg)                                       \
    __attribute__((format(printf, fmt_arg, first_arg)))
#else
#define MLX_C_PRINTF(fmt_arg, first_arg)
#endif

#define mlx_error(...) _mlx_error(__FILE__, __LINE__, __VA_ARGS__)

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

typedef void (*mlx_error_handler_func)(const char *msg, void *data);

void mlx_set_error_handler(mlx_error_handler_func handler, void *data,
                           void (*dtor)(void *));
void _mlx_error(const char *file, const int line, const char *fmt, ...)
    MLX_C_PRINTF(3, 4);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
