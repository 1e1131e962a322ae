/* conv.c: C entries of convolutions. */
#include "handles.h"
#include "ops_entry.h"

static int convolve(mlx_array *res, mlx_array input, mlx_array weight,
                    const qn_conv_settings *settings, mlx_stream s)
{
    QN_GET_ARRAY(x, input);
    QN_GET_ARRAY(w, weight);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_conv(&out, x, w, settings, stream));
}

/* An array of `ndim` spatial axes: the fixed forms refuse others. */
static int convolve_axes(mlx_array *res, mlx_array input, mlx_array weight,
                         int ndim, const int *stride, const int *padding,
                         const int *dilation, const int *more, int groups,
                         mlx_stream s)
{
    QN_GET_ARRAY(x, input);
    QN_GET_ARRAY(w, weight);
    QN_GET_STREAM(stream, s);
    if (x->ndim != ndim + 2) {
        qn_fail(QN_E_ARG,
                "[conv] An input of %d dimensions is expected (N, %d spatial, "
                "C), found %d.",
                ndim + 2, ndim, x->ndim);
        return QN_REPORT();
    }
    size_t n = (size_t)ndim;
    qn_conv_settings settings = {.stride = {stride, n},
                                 .low = {padding, n},
                                 .high = {padding, n},
                                 .dilation = {dilation, n},
                                 .groups = groups};
    if (more)
        QN_RETURN_OP(res,
                     qn_op_conv_transpose(&out, x, w, &settings,
                                          (qn_conv_list){more, n}, stream));
    QN_RETURN_OP(res, qn_op_conv(&out, x, w, &settings, stream));
}

int mlx_conv1d(mlx_array *res, const mlx_array input, const mlx_array weight,
               int stride, int padding, int dilation, int groups,
               const mlx_stream s)
{
    return convolve_axes(res, input, weight, 1, &stride, &padding, &dilation,
                         NULL, groups, s);
}

int mlx_conv2d(mlx_array *res, const mlx_array input, const mlx_array weight,
               int stride_0, int stride_1, int padding_0, int padding_1,
               int dilation_0, int dilation_1, int groups, const mlx_stream s)
{
    return convolve_axes(res, input, weight, 2, (int[]){stride_0, stride_1},
                         (int[]){padding_0, padding_1},
                         (int[]){dilation_0, dilation_1}, NULL, groups, s);
}

int mlx_conv3d(mlx_array *res, const mlx_array input, const mlx_array weight,
               int stride_0, int stride_1, int stride_2, int padding_0,
               int padding_1, int padding_2, int dilation_0, int dilation_1,
               int dilation_2, int groups, const mlx_stream s)
{
    return convolve_axes(
        res, input, weight, 3, (int[]){stride_0, stride_1, stride_2},
        (int[]){padding_0, padding_1, padding_2},
        (int[]){dilation_0, dilation_1, dilation_2}, NULL, groups, s);
}

int mlx_conv_transpose1d(mlx_array *res, const mlx_array input,
                         const mlx_array weight, int stride, int padding,
                         int dilation, int output_padding, int groups,
                         const mlx_stream s)
{
    return convolve_axes(res, input, weight, 1, &stride, &padding, &dilation,
                         &output_padding, groups, s);
}

int mlx_conv_transpose2d(mlx_array *res, const mlx_array input,
                         const mlx_array weight, int stride_0, int stride_1,
                         int padding_0, int padding_1, int dilation_0,
                         int dilation_1, int output_padding_0,
                         int output_padding_1, int groups, const mlx_stream s)
{
    return convolve_axes(
        res, input, weight, 2, (int[]){stride_0, stride_1},
        (int[]){padding_0, padding_1}, (int[]){dilation_0, dilation_1},
        (int[]){output_padding_0, output_padding_1}, groups, s);
}

int mlx_conv_transpose3d(mlx_array *res, const mlx_array input,
                         const mlx_array weight, int stride_0, int stride_1,
                         int stride_2, int padding_0, int padding_1,
                         int padding_2, int dilation_0, int dilation_1,
                         int dilation_2, int output_padding_0,
                         int output_padding_1, int output_padding_2, int groups,
                         const mlx_stream s)
{
    return convolve_axes(
        res, input, weight, 3, (int[]){stride_0, stride_1, stride_2},
        (int[]){padding_0, padding_1, padding_2},
        (int[]){dilation_0, dilation_1, dilation_2},
        (int[]){output_padding_0, output_padding_1, output_padding_2}, groups,
        s);
}

int mlx_conv_general(mlx_array *res, const mlx_array input,
                     const mlx_array weight, const int *stride,
                     size_t stride_num, const int *padding_lo,
                     size_t padding_lo_num, const int *padding_hi,
                     size_t padding_hi_num, const int *kernel_dilation,
                     size_t kernel_dilation_num, const int *input_dilation,
                     size_t input_dilation_num, int groups, bool flip,
                     const mlx_stream s)
{
    qn_conv_settings settings = {
        .stride = {stride, stride_num},
        .low = {padding_lo, padding_lo_num},
        .high = {padding_hi, padding_hi_num},
        .dilation = {kernel_dilation, kernel_dilation_num},
        .in_dilation = {input_dilation, input_dilation_num},
        .groups = groups,
        .flip = flip};
    return convolve(res, input, weight, &settings, s);
}
