/* products.c: C entries of products with a choice, and of formulas. */
#include "handles.h"
#include "ops_entry.h"

int mlx_gather_mm(mlx_array *res, const mlx_array a, const mlx_array b,
                  const mlx_array lhs_indices, const mlx_array rhs_indices,
                  bool sorted_indices, const mlx_stream s)
{
    /* A hint: results do not depend on it. */
    (void)sorted_indices;
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(y, b);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_gather_mm(&out, x, y, qn_handle_array(lhs_indices),
                                      qn_handle_array(rhs_indices), stream));
}

int mlx_block_masked_mm(mlx_array *res, const mlx_array a, const mlx_array b,
                        int block_size, const mlx_array mask_out,
                        const mlx_array mask_lhs, const mlx_array mask_rhs,
                        const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(y, b);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_block_masked_mm(&out, x, y, block_size,
                                            qn_handle_array(mask_out),
                                            qn_handle_array(mask_lhs),
                                            qn_handle_array(mask_rhs), stream));
}

int mlx_segmented_mm(mlx_array *res, const mlx_array a, const mlx_array b,
                     const mlx_array segments, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(y, b);
    QN_GET_ARRAY(parts, segments);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_segmented_mm(&out, x, y, parts, stream));
}

int mlx_hadamard_transform(mlx_array *res, const mlx_array a,
                           mlx_optional_float scale, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res,
                 qn_op_hadamard_transform(&out, x, QN_OPTIONAL(scale), stream));
}

int mlx_einsum(mlx_array *res, const char *subscripts,
               const mlx_vector_array operands, const mlx_stream s)
{
    QN_GET_ARRAYS(list, operands);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_einsum(&out, qn_capi_text(subscripts), list->data,
                                   list->size, stream));
}

int mlx_gather_qmm(mlx_array *res, const mlx_array x, const mlx_array w,
                   const mlx_array scales, const mlx_array biases,
                   const mlx_array lhs_indices, const mlx_array rhs_indices,
                   bool transpose, mlx_optional_int group_size,
                   mlx_optional_int bits, const char *mode, bool sorted_indices,
                   const mlx_stream s)
{
    /* A hint: sorted or not, products with one matrix are done together. */
    (void)sorted_indices;
    QN_GET_ARRAY(left, x);
    QN_GET_ARRAY(packed, w);
    QN_GET_ARRAY(factors, scales);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res,
                 qn_op_gather_qmm(
                     &out, left, packed, factors, qn_handle_array(biases),
                     qn_handle_array(lhs_indices), qn_handle_array(rhs_indices),
                     transpose, QN_OPTIONAL(group_size), QN_OPTIONAL(bits),
                     qn_capi_text(mode), stream));
}

int mlx_qqmm(mlx_array *res, const mlx_array x, const mlx_array w,
             const mlx_array w_scales, mlx_optional_int group_size,
             mlx_optional_int bits, const char *mode,
             const mlx_array global_scale_x, const mlx_array global_scale_w,
             const mlx_stream s)
{
    QN_GET_ARRAY(left, x);
    QN_GET_ARRAY(right, w);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res,
                 qn_op_qqmm(&out, left, right, qn_handle_array(w_scales),
                            QN_OPTIONAL(group_size), QN_OPTIONAL(bits),
                            qn_capi_text(mode), qn_handle_array(global_scale_x),
                            qn_handle_array(global_scale_w), stream));
}

int mlx_gather_qqmm(mlx_array *res, const mlx_array x, const mlx_array w,
                    const mlx_array scales_w, const mlx_array lhs_indices,
                    const mlx_array rhs_indices, mlx_optional_int group_size,
                    mlx_optional_int bits, const char *mode,
                    const mlx_array global_scale_x,
                    const mlx_array global_scale_w, bool sorted_indices,
                    const mlx_stream s)
{
    (void)sorted_indices;
    QN_GET_ARRAY(left, x);
    QN_GET_ARRAY(right, w);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res,
                 qn_op_gather_qqmm(
                     &out, left, right, qn_handle_array(scales_w),
                     qn_handle_array(lhs_indices), qn_handle_array(rhs_indices),
                     QN_OPTIONAL(group_size), QN_OPTIONAL(bits),
                     qn_capi_text(mode), qn_handle_array(global_scale_x),
                     qn_handle_array(global_scale_w), stream));
}
