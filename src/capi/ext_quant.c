/* ext_quant.c: products with packed matrices beyond the MLX C API. */
#include "handles.h"
#include "ops_entry.h"

#include "quern/ext.h"

enum { MOST = 3 };

static qn_status check_counts(const qn_list *w, const qn_list *scales,
                              const qn_list *biases)
{
    size_t nbiases = biases ? biases->size : 0;
    if (w->size < 1 || w->size > MOST)
        return qn_fail(QN_E_ARG,
                       "[quantized_matmul] Expected 1 to %d matrices, found "
                       "%zu.",
                       MOST, w->size);
    if (scales->size != w->size || (nbiases && nbiases != w->size))
        return qn_fail(QN_E_ARG,
                       "[quantized_matmul] Expected scales and biases for each "
                       "of %zu matrices, found %zu and %zu.",
                       w->size, scales->size, nbiases);
    return QN_OK;
}

int quern_quantized_matmul(mlx_vector_array *res, const mlx_array x,
                           const mlx_vector_array w,
                           const mlx_vector_array scales,
                           const mlx_vector_array biases, int group_size,
                           int bits, const char *mode, const mlx_stream s)
{
    QN_GET_ARRAY(left, x);
    QN_GET_ARRAYS(matrices, w);
    QN_GET_ARRAYS(factors, scales);
    QN_GET_STREAM(stream, s);
    const qn_list *shifts = qn_handle_arrays(biases);
    QN_CALL(check_counts(matrices, factors, shifts));
    qn_array *made[MOST];
    for (size_t i = 0; i < matrices->size; i++) {
        qn_status status = qn_op_quantized_matmul_keep(
            &made[i], left, matrices->data[i], factors->data[i],
            shifts && shifts->size ? shifts->data[i] : NULL, group_size, bits,
            qn_capi_text(mode), stream);
        if (status) {
            while (i)
                qn_array_unref(made[--i]);
            return QN_REPORT();
        }
    }
    return QN_STORE_ARRAYS(res, made, matrices->size);
}
