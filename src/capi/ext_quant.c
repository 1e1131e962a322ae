/* ext_quant.c: products with packed matrices beyond the MLX C API. */
#include "handles.h"
#include "ops_entry.h"

#include "backend/cpu/cpu.h"
#include "ops/quant.h"
#include "quern/ext.h"

#include <string.h>

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

static qn_status gather(qn_array **out, qn_array *x, qn_array *w,
                        qn_array *scales, qn_array *biases, qn_array *ids,
                        int group_size, int bits, const char *mode,
                        qn_stream *s)
{
    qn_quant_params p;
    qn_status status =
        qn_packed_format(&p, "gather_qmm", &group_size, &bits, mode, true);
    if (status)
        return status;
    p.transpose = true;
    return qn_op_gather_quantized(out, x, w, scales, biases, NULL, ids, &p,
                                  true, s);
}

int quern_gather_qmm(mlx_array *res, const mlx_array x, const mlx_array w,
                     const mlx_array scales, const mlx_array biases,
                     const mlx_array ids, int group_size, int bits,
                     const char *mode, const mlx_stream s)
{
    QN_GET_ARRAY(left, x);
    QN_GET_ARRAY(matrix, w);
    QN_GET_ARRAY(factors, scales);
    QN_GET_ARRAY(which, ids);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res,
                 gather(&out, left, matrix, factors, qn_handle_array(biases),
                        which, group_size, bits, qn_capi_text(mode), stream));
}

/* What several rows have beyond one product: matrices of two axes, biases. */
static qn_status check_rows(const qn_array *w, const qn_array *scales,
                            const qn_array *biases, const char *mode)
{
    static const char op[] = "quantized_matmul_rows";
    const struct {
        const char *name;
        const qn_array *array;
    } list[] = {{"w", w}, {"scales", scales}, {"biases", biases}};
    if (strcmp(mode, "affine"))
        return qn_fail(QN_E_ARG,
                       "[%s] Several rows are multiplied in mode affine only, "
                       "found %s.",
                       op, mode);
    for (int i = 0; i < 3; i++) {
        if (!list[i].array)
            return qn_fail(QN_E_ARG, "[%s] Mode affine needs %s.", op,
                           list[i].name);
        if (list[i].array->ndim != 2)
            return qn_fail(QN_E_ARG,
                           "[%s] Expected %s of rank 2, found rank %d.", op,
                           list[i].name, list[i].array->ndim);
    }
    return QN_OK;
}

/* The engine's product is row-independent: rows have the bits that each has
 * alone (tests/capi/test_ext_quant.c). */
static qn_status multiply_rows(qn_array **out, qn_array *x, qn_array *w,
                               qn_array *scales, qn_array *biases,
                               int group_size, int bits, const char *mode,
                               qn_stream *s)
{
    static const char op[] = "quantized_matmul_rows";
    if (!x->ndim)
        return qn_fail(QN_E_ARG, "[%s] Expected x with an axis, found rank 0.",
                       op);
    int k = x->shape[x->ndim - 1];
    if (x->size != (size_t)k) {
        qn_status bad = check_rows(w, scales, biases, mode);
        if (bad)
            return bad;
    }
    qn_quant_params p;
    qn_status status =
        qn_packed_format(&p, op, &group_size, &bits, mode, false);
    if (status)
        return status;
    if (w->ndim) {
        int64_t width = (int64_t)w->shape[w->ndim - 1] * 32 / p.bits;
        if (width != k)
            return qn_fail(QN_E_ARG,
                           "[%s] Rows of x have %d elements, those of w %lld.",
                           op, k, (long long)width);
    }
    return qn_op_quantized_matmul(out, x, w, scales, biases, true, &group_size,
                                  &bits, mode, s);
}

int quern_quantized_matmul_rows(mlx_array *res, const mlx_array x,
                                const mlx_array w, const mlx_array scales,
                                const mlx_array biases, int group_size,
                                int bits, const char *mode, const mlx_stream s)
{
    QN_GET_ARRAY(left, x);
    QN_GET_ARRAY(matrix, w);
    QN_GET_ARRAY(factors, scales);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, multiply_rows(&out, left, matrix, factors,
                                    qn_handle_array(biases), group_size, bits,
                                    qn_capi_text(mode), stream));
}

size_t quern_matmul_workspace(mlx_dtype dtype, int rows, int cols, int outs)
{
    qn_dtype type;
    if (qn_capi_dtype(&type, dtype) || rows < 1 || cols < 1 || outs < 1)
        return 0;
    return qn_cpu_product_room((size_t)rows, (size_t)cols, (size_t)outs, type);
}
