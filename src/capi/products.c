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
