/* fast.c: C entries of norms, rotary embedding and attention. */
#include "handles.h"
#include "ops_entry.h"

int mlx_fast_rms_norm(mlx_array *res, const mlx_array x, const mlx_array weight,
                      float eps, const mlx_stream s)
{
    QN_GET_ARRAY(input, x);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(
        res, qn_op_rms_norm(&out, input, qn_handle_array(weight), eps, stream));
}

int mlx_fast_layer_norm(mlx_array *res, const mlx_array x,
                        const mlx_array weight, const mlx_array bias, float eps,
                        const mlx_stream s)
{
    QN_GET_ARRAY(input, x);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_layer_norm(&out, input, qn_handle_array(weight),
                                       qn_handle_array(bias), eps, stream));
}

int mlx_fast_rope(mlx_array *res, const mlx_array x, int dims, bool traditional,
                  mlx_optional_float base, float scale, int offset,
                  const mlx_array freqs, const mlx_stream s)
{
    QN_GET_ARRAY(input, x);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_rope(&out, input, dims, traditional,
                                 QN_OPTIONAL(base), scale, offset, NULL,
                                 qn_handle_array(freqs), stream));
}

int mlx_fast_rope_dynamic(mlx_array *res, const mlx_array x, int dims,
                          bool traditional, mlx_optional_float base,
                          float scale, const mlx_array offset,
                          const mlx_array freqs, const mlx_stream s)
{
    QN_GET_ARRAY(input, x);
    QN_GET_ARRAY(offsets, offset);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res,
                 qn_op_rope(&out, input, dims, traditional, QN_OPTIONAL(base),
                            scale, 0, offsets, qn_handle_array(freqs), stream));
}

/* Attention is fused on every device there is, so force_fused asks for
 * nothing more. */
int mlx_fast_scaled_dot_product_attention(
    mlx_array *res, const mlx_array queries, const mlx_array keys,
    const mlx_array values, float scale, const char *mask_mode,
    const mlx_array mask_arr, const mlx_array sinks, bool force_fused,
    const mlx_stream s)
{
    (void)force_fused;
    QN_GET_ARRAY(q, queries);
    QN_GET_ARRAY(k, keys);
    QN_GET_ARRAY(v, values);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_sdpa(&out, q, k, v, scale, qn_capi_text(mask_mode),
                                 qn_handle_array(mask_arr),
                                 qn_handle_array(sinks), stream));
}

int mlx_fast_cross_entropy(mlx_array *res, const mlx_array logits,
                           const mlx_array targets, const mlx_stream s)
{
    QN_GET_ARRAY(x, logits);
    QN_GET_ARRAY(classes, targets);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_cross_entropy(&out, x, classes, stream));
}
