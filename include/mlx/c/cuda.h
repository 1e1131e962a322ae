/* The MLX C API, cuda.h. */
#ifndef MLX_C_CUDA_H
#define MLX_C_CUDA_H

#include "mlx/c/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

int mlx_cuda_is_available(bool *res);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
