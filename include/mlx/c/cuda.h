/* CUDA. */
#ifndef MLX_C_CUDA_H
#define MLX_C_CUDA_H

#include <stdbool.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* Whether the library can run work on a CUDA device. Never an error. */
int mlx_cuda_is_available(bool *res);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
