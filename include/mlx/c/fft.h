/* Discrete Fourier transforms.
 *
 * Transforms work along one axis (n, axis) or several (n and axes, one size for
 * each axis). An input shorter than n along its axis is filled up with zeros, a
 * longer one is cut. Complex results are complex64, real ones float32. For a
 * transform length n, with w = exp(-2 pi i / n):
 *
 *   forward   X[k] = scale * sum over j of x[j] w^(j k)
 *   inverse   x[j] = scale * sum over k of X[k] w^(-j k) */
#ifndef MLX_C_FFT_H
#define MLX_C_FFT_H

#include "mlx/c/types.h"

#include <stddef.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* Where the factor 1 / n goes: to the inverse transform; its square root to
 * both; to the forward transform. */
typedef enum mlx_fft_norm_ {
    MLX_FFT_NORM_BACKWARD = 0,
    MLX_FFT_NORM_ORTHO = 1,
    MLX_FFT_NORM_FORWARD = 2
} mlx_fft_norm;

/* --- Complex to complex --------------------------------------------------- */

/* Forward transforms over one axis, two axes, any number of axes. */
int mlx_fft_fft(mlx_array *res, const mlx_array a, int n, int axis,
                mlx_fft_norm norm, const mlx_stream s);
int mlx_fft_fft2(mlx_array *res, const mlx_array a, const int *n, size_t n_num,
                 const int *axes, size_t axes_num, mlx_fft_norm norm,
                 const mlx_stream s);
int mlx_fft_fftn(mlx_array *res, const mlx_array a, const int *n, size_t n_num,
                 const int *axes, size_t axes_num, mlx_fft_norm norm,
                 const mlx_stream s);

/* Inverse transforms over one axis, two axes, any number of axes. */
int mlx_fft_ifft(mlx_array *res, const mlx_array a, int n, int axis,
                 mlx_fft_norm norm, const mlx_stream s);
int mlx_fft_ifft2(mlx_array *res, const mlx_array a, const int *n, size_t n_num,
                  const int *axes, size_t axes_num, mlx_fft_norm norm,
                  const mlx_stream s);
int mlx_fft_ifftn(mlx_array *res, const mlx_array a, const int *n, size_t n_num,
                  const int *axes, size_t axes_num, mlx_fft_norm norm,
                  const mlx_stream s);

/* --- Real and complex ----------------------------------------------------- */

/* Forward transforms of a real input. The second half of the spectrum, which
 * follows from the first, is left out: the last transformed axis has n / 2 + 1
 * entries. */
int mlx_fft_rfft(mlx_array *res, const mlx_array a, int n, int axis,
                 mlx_fft_norm norm, const mlx_stream s);
int mlx_fft_rfft2(mlx_array *res, const mlx_array a, const int *n, size_t n_num,
                  const int *axes, size_t axes_num, mlx_fft_norm norm,
                  const mlx_stream s);
int mlx_fft_rfftn(mlx_array *res, const mlx_array a, const int *n, size_t n_num,
                  const int *axes, size_t axes_num, mlx_fft_norm norm,
                  const mlx_stream s);

/* Inverse transforms to a real result from such a spectrum. n is the size of
 * the result; the spectrum is cut or filled up to n / 2 + 1 entries along the
 * last transformed axis. */
int mlx_fft_irfft(mlx_array *res, const mlx_array a, int n, int axis,
                  mlx_fft_norm norm, const mlx_stream s);
int mlx_fft_irfft2(mlx_array *res, const mlx_array a, const int *n,
                   size_t n_num, const int *axes, size_t axes_num,
                   mlx_fft_norm norm, const mlx_stream s);
int mlx_fft_irfftn(mlx_array *res, const mlx_array a, const int *n,
                   size_t n_num, const int *axes, size_t axes_num,
                   mlx_fft_norm norm, const mlx_stream s);

/* --- Frequencies ---------------------------------------------------------- */

/* The frequencies that the entries of a transform of length n stand for, with
 * samples d apart: k / (n d), the upper half negative. The rfft form gives the
 * n / 2 + 1 of a real input. */
int mlx_fft_fftfreq(mlx_array *res, int n, double d, const mlx_stream s);
int mlx_fft_rfftfreq(mlx_array *res, int n, double d, const mlx_stream s);

/* Roll the given axes so that frequency 0, which comes first, moves to the
 * middle, and back. */
int mlx_fft_fftshift(mlx_array *res, const mlx_array a, const int *axes,
                     size_t axes_num, const mlx_stream s);
int mlx_fft_ifftshift(mlx_array *res, const mlx_array a, const int *axes,
                      size_t axes_num, const mlx_stream s);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
