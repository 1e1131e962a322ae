/* ops_math.c: C entries of arithmetic with further arguments: elementwise,
 * statistics, products, packed matrices. */
#include "handles.h"
#include "ops_entry.h"

/* ---- elementwise ---- */

int mlx_astype(mlx_array *res, const mlx_array a, mlx_dtype dtype,
               const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_DTYPE(type, dtype);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_astype(&out, x, type, stream));
}

int mlx_view(mlx_array *res, const mlx_array a, mlx_dtype dtype,
             const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_DTYPE(type, dtype);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_view(&out, x, type, stream));
}

int mlx_from_fp8(mlx_array *res, const mlx_array x, mlx_dtype dtype,
                 const mlx_stream s)
{
    QN_GET_ARRAY(codes, x);
    QN_GET_DTYPE(type, dtype);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_from_fp8(&out, codes, type, stream));
}

int mlx_round(mlx_array *res, const mlx_array a, int decimals,
              const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_round(&out, x, decimals, stream));
}

int mlx_nan_to_num(mlx_array *res, const mlx_array a, float nan,
                   mlx_optional_float posinf, mlx_optional_float neginf,
                   const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_nan_to_num(&out, x, nan, QN_OPTIONAL(posinf),
                                       QN_OPTIONAL(neginf), stream));
}

int mlx_where(mlx_array *res, const mlx_array condition, const mlx_array x,
              const mlx_array y, const mlx_stream s)
{
    QN_GET_ARRAY(which, condition);
    QN_GET_ARRAY(yes, x);
    QN_GET_ARRAY(no, y);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_where(&out, which, yes, no, stream));
}

int mlx_clip(mlx_array *res, const mlx_array a, const mlx_array a_min,
             const mlx_array a_max, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_clip(&out, x, qn_handle_array(a_min),
                                 qn_handle_array(a_max), stream));
}

int mlx_isclose(mlx_array *res, const mlx_array a, const mlx_array b,
                double rtol, double atol, bool equal_nan, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(y, b);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_isclose(&out, x, y, rtol, atol, equal_nan, stream));
}

int mlx_allclose(mlx_array *res, const mlx_array a, const mlx_array b,
                 double rtol, double atol, bool equal_nan, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(y, b);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res,
                 qn_op_allclose(&out, x, y, rtol, atol, equal_nan, stream));
}

int mlx_array_equal(mlx_array *res, const mlx_array a, const mlx_array b,
                    bool equal_nan, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(y, b);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_array_equal(&out, x, y, equal_nan, stream));
}

int mlx_divmod(mlx_vector_array *res, const mlx_array a, const mlx_array b,
               const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(y, b);
    QN_GET_STREAM(stream, s);
    qn_array *both[2];
    QN_CALL(qn_op_divmod(both, x, y, stream));
    return QN_STORE_ARRAYS(res, both, 2);
}

/* ---- statistics ---- */

typedef qn_status spread_builder(qn_array **out, qn_array *x, const int *axes,
                                 size_t naxes, bool keepdims, int ddof,
                                 qn_stream *s);

static int spread(mlx_array *res, mlx_array a, const int *axes, size_t naxes,
                  bool keepdims, int ddof, mlx_stream s, spread_builder *build)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, build(&out, x, axes, naxes, keepdims, ddof, stream));
}

int mlx_var(mlx_array *res, const mlx_array a, bool keepdims, int ddof,
            const mlx_stream s)
{
    return spread(res, a, NULL, QN_ALL_AXES, keepdims, ddof, s, qn_op_var);
}

int mlx_var_axis(mlx_array *res, const mlx_array a, int axis, bool keepdims,
                 int ddof, const mlx_stream s)
{
    return spread(res, a, &axis, 1, keepdims, ddof, s, qn_op_var);
}

int mlx_var_axes(mlx_array *res, const mlx_array a, const int *axes,
                 size_t axes_num, bool keepdims, int ddof, const mlx_stream s)
{
    return spread(res, a, axes, axes_num, keepdims, ddof, s, qn_op_var);
}

int mlx_std(mlx_array *res, const mlx_array a, bool keepdims, int ddof,
            const mlx_stream s)
{
    return spread(res, a, NULL, QN_ALL_AXES, keepdims, ddof, s, qn_op_std);
}

int mlx_std_axis(mlx_array *res, const mlx_array a, int axis, bool keepdims,
                 int ddof, const mlx_stream s)
{
    return spread(res, a, &axis, 1, keepdims, ddof, s, qn_op_std);
}

int mlx_std_axes(mlx_array *res, const mlx_array a, const int *axes,
                 size_t axes_num, bool keepdims, int ddof, const mlx_stream s)
{
    return spread(res, a, axes, axes_num, keepdims, ddof, s, qn_op_std);
}

static int softmax(mlx_array *res, mlx_array a, const int *axes, size_t naxes,
                   bool precise, mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_softmax(&out, x, axes, naxes, precise, stream));
}

int mlx_softmax(mlx_array *res, const mlx_array a, bool precise,
                const mlx_stream s)
{
    return softmax(res, a, NULL, QN_ALL_AXES, precise, s);
}

int mlx_softmax_axis(mlx_array *res, const mlx_array a, int axis, bool precise,
                     const mlx_stream s)
{
    return softmax(res, a, &axis, 1, precise, s);
}

int mlx_softmax_axes(mlx_array *res, const mlx_array a, const int *axes,
                     size_t axes_num, bool precise, const mlx_stream s)
{
    return softmax(res, a, axes, axes_num, precise, s);
}

static int logsumexp(mlx_array *res, mlx_array a, const int *axes, size_t naxes,
                     bool keepdims, mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_logsumexp(&out, x, axes, naxes, keepdims, stream));
}

int mlx_logsumexp(mlx_array *res, const mlx_array a, bool keepdims,
                  const mlx_stream s)
{
    return logsumexp(res, a, NULL, QN_ALL_AXES, keepdims, s);
}

int mlx_logsumexp_axis(mlx_array *res, const mlx_array a, int axis,
                       bool keepdims, const mlx_stream s)
{
    return logsumexp(res, a, &axis, 1, keepdims, s);
}

int mlx_logsumexp_axes(mlx_array *res, const mlx_array a, const int *axes,
                       size_t axes_num, bool keepdims, const mlx_stream s)
{
    return logsumexp(res, a, axes, axes_num, keepdims, s);
}

/* ---- products ---- */

int mlx_matmul(mlx_array *res, const mlx_array a, const mlx_array b,
               const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(y, b);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_matmul(&out, x, y, stream));
}

int mlx_addmm(mlx_array *res, const mlx_array c, const mlx_array a,
              const mlx_array b, float alpha, float beta, const mlx_stream s)
{
    QN_GET_ARRAY(more, c);
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(y, b);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_addmm(&out, more, x, y, alpha, beta, stream));
}

int mlx_tensordot(mlx_array *res, const mlx_array a, const mlx_array b,
                  const int *axes_a, size_t axes_a_num, const int *axes_b,
                  size_t axes_b_num, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(y, b);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_tensordot(&out, x, y, axes_a, axes_a_num, axes_b,
                                      axes_b_num, stream));
}

int mlx_tensordot_axis(mlx_array *res, const mlx_array a, const mlx_array b,
                       int axis, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(y, b);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_tensordot_axis(&out, x, y, axis, stream));
}

int mlx_vecdot(mlx_array *res, const mlx_array a, const mlx_array b, int axis,
               const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(y, b);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_vecdot(&out, x, y, axis, stream));
}

/* ---- packed matrices ---- */

int mlx_quantize(mlx_vector_array *res, const mlx_array w,
                 mlx_optional_int group_size, mlx_optional_int bits,
                 const char *mode, const mlx_array global_scale,
                 const mlx_stream s)
{
    QN_GET_ARRAY(matrix, w);
    QN_GET_STREAM(stream, s);
    qn_array *parts[3];
    size_t count;
    QN_CALL(qn_op_quantize(parts, &count, matrix, QN_OPTIONAL(group_size),
                           QN_OPTIONAL(bits), qn_capi_text(mode),
                           qn_handle_array(global_scale), stream));
    return QN_STORE_ARRAYS(res, parts, count);
}

int mlx_dequantize(mlx_array *res, const mlx_array w, const mlx_array scales,
                   const mlx_array biases, mlx_optional_int group_size,
                   mlx_optional_int bits, const char *mode,
                   const mlx_array global_scale, mlx_optional_dtype dtype,
                   const mlx_stream s)
{
    QN_GET_ARRAY(packed, w);
    QN_GET_ARRAY(factors, scales);
    QN_GET_STREAM(stream, s);
    qn_dtype type = QN_FLOAT32;
    if (dtype.has_value)
        QN_CALL(qn_capi_dtype(&type, dtype.value));
    QN_RETURN_OP(
        res, qn_op_dequantize(&out, packed, factors, qn_handle_array(biases),
                              QN_OPTIONAL(group_size), QN_OPTIONAL(bits),
                              qn_capi_text(mode), qn_handle_array(global_scale),
                              dtype.has_value ? &type : NULL, stream));
}

int mlx_quantized_matmul(mlx_array *res, const mlx_array x, const mlx_array w,
                         const mlx_array scales, const mlx_array biases,
                         bool transpose, mlx_optional_int group_size,
                         mlx_optional_int bits, const char *mode,
                         const mlx_stream s)
{
    QN_GET_ARRAY(left, x);
    QN_GET_ARRAY(packed, w);
    QN_GET_ARRAY(factors, scales);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_quantized_matmul(
                          &out, left, packed, factors, qn_handle_array(biases),
                          transpose, QN_OPTIONAL(group_size), QN_OPTIONAL(bits),
                          qn_capi_text(mode), stream));
}
