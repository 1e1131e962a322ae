/* fft.c: C entries of Fourier transforms. */
#include "handles.h"
#include "ops_entry.h"

static int transform(mlx_array *res, qn_fft_kind kind, mlx_array a,
                     const int *n, size_t n_num, const int *axes,
                     size_t axes_num, mlx_fft_norm norm, mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    /* The numbers of norms are the same; others are refused. */
    QN_RETURN_OP(res, qn_op_fft(&out, kind, x, n, n_num, axes, axes_num,
                                (qn_fft_norm)norm, stream));
}

/* clang-format off */
#define QN_ENTRY_ONE(name, kind)                                               \
    int mlx_fft_##name(mlx_array *res, const mlx_array a, int n, int axis,     \
                       mlx_fft_norm norm, const mlx_stream s)                  \
    {                                                                          \
        return transform(res, QN_FFT_KIND_##kind, a, &n, 1, &axis, 1, norm,    \
                         s);                                                   \
    }
#define QN_ENTRY_SEVERAL(name, kind)                                           \
    int mlx_fft_##name(mlx_array *res, const mlx_array a, const int *n,        \
                       size_t n_num, const int *axes, size_t axes_num,         \
                       mlx_fft_norm norm, const mlx_stream s)                  \
    {                                                                          \
        return transform(res, QN_FFT_KIND_##kind, a, n, n_num, axes,           \
                         axes_num, norm, s);                                   \
    }

QN_ENTRY_ONE(fft, FFT)
QN_ENTRY_SEVERAL(fft2, FFT)
QN_ENTRY_SEVERAL(fftn, FFT)
QN_ENTRY_ONE(ifft, IFFT)
QN_ENTRY_SEVERAL(ifft2, IFFT)
QN_ENTRY_SEVERAL(ifftn, IFFT)
QN_ENTRY_ONE(rfft, RFFT)
QN_ENTRY_SEVERAL(rfft2, RFFT)
QN_ENTRY_SEVERAL(rfftn, RFFT)
QN_ENTRY_ONE(irfft, IRFFT)
QN_ENTRY_SEVERAL(irfft2, IRFFT)
QN_ENTRY_SEVERAL(irfftn, IRFFT)
/* clang-format on */

int mlx_fft_fftfreq(mlx_array *res, int n, double d, const mlx_stream s)
{
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_fftfreq(&out, n, d, stream));
}

int mlx_fft_rfftfreq(mlx_array *res, int n, double d, const mlx_stream s)
{
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_rfftfreq(&out, n, d, stream));
}

static int shift(mlx_array *res, mlx_array a, const int *axes, size_t axes_num,
                 bool inverse, mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_fftshift(&out, x, axes, axes_num, inverse, stream));
}

int mlx_fft_fftshift(mlx_array *res, const mlx_array a, const int *axes,
                     size_t axes_num, const mlx_stream s)
{
    return shift(res, a, axes, axes_num, false, s);
}

int mlx_fft_ifftshift(mlx_array *res, const mlx_array a, const int *axes,
                      size_t axes_num, const mlx_stream s)
{
    return shift(res, a, axes, axes_num, true, s);
}
