/* The MLX C API, fft.h. */
#ifndef MLX_C_FFT_H
#define MLX_C_FFT_H

#include "mlx/c/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

typedef enum mlx_fft_norm_ {
    MLX_FFT_NORM_BACKWARD = 0,
    MLX_FFT_NORM_ORTHO = 1,
    MLX_FFT_NORM_FORWARD = 2
} mlx_fft_norm;

int mlx_fft_fft(mlx_array *res, const mlx_array a, int n, int axis,
                mlx_fft_norm norm, const mlx_stream s);
int mlx_fft_fft2(mlx_array *res, const mlx_array a, const int *n, size_t n_num,
                 const int *axes, size_t axes_num, mlx_fft_norm norm,
                 const mlx_stream s);
int mlx_fft_fftfreq(mlx_array *res, int n, double d, const mlx_stream s);
int mlx_fft_fftn(mlx_array *res, const mlx_array a, const int *n, size_t n_num,
                 const int *axes, size_t axes_num, mlx_fft_norm norm,
                 const mlx_stream s);
int mlx_fft_fftshift(mlx_array *res, const mlx_array a, const int *axes,
                     size_t axes_num, const mlx_stream s);
int mlx_fft_ifft(mlx_array *res, const mlx_array a, int n, int axis,
                 mlx_fft_norm norm, const mlx_stream s);
int mlx_fft_ifft2(mlx_array *res, const mlx_array a, const int *n, size_t n_num,
                  const int *axes, size_t axes_num, mlx_fft_norm norm,
                  const mlx_stream s);
int mlx_fft_ifftn(mlx_array *res, const mlx_array a, const int *n, size_t n_num,
                  const int *axes, size_t axes_num, mlx_fft_norm norm,
                  const mlx_stream s);
int mlx_fft_ifftshift(mlx_array *res, const mlx_array a, const int *axes,
                      size_t axes_num, const mlx_stream s);
int mlx_fft_irfft(mlx_array *res, const mlx_array a, int n, int axis,
                  mlx_fft_norm norm, const mlx_stream s);
int mlx_fft_irfft2(mlx_array *res, const mlx_array a, const int *n,
                   size_t n_num, const int *axes, size_t axes_num,
                   mlx_fft_norm norm, const mlx_stream s);
int mlx_fft_irfftn(mlx_array *res, const mlx_array a, const int *n,
                   size_t n_num, const int *axes, size_t axes_num,
                   mlx_fft_norm norm, const mlx_stream s);
int mlx_fft_rfft(mlx_array *res, const mlx_array a, int n, int axis,
                 mlx_fft_norm norm, const mlx_stream s);
int mlx_fft_rfft2(mlx_array *res, const mlx_array a, const int *n, size_t n_num,
                  const int *axes, size_t axes_num, mlx_fft_norm norm,
                  const mlx_stream s);
int mlx_fft_rfftfreq(mlx_array *res, int n, double d, const mlx_stream s);
int mlx_fft_rfftn(mlx_array *res, const mlx_array a, const int *n, size_t n_num,
                  const int *axes, size_t axes_num, mlx_fft_norm norm,
                  const mlx_stream s);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
