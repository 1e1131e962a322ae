/* ops_create.c: C entries of the operations that make arrays of numbers. */
#include "handles.h"
#include "ops_entry.h"

static int constant(mlx_array *res, const int *shape, size_t ndim, double value,
                    mlx_dtype dtype, mlx_stream s)
{
    QN_GET_DTYPE(type, dtype);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_full_value(&out, shape, ndim, value, type, stream));
}

int mlx_zeros(mlx_array *res, const int *shape, size_t shape_num,
              mlx_dtype dtype, const mlx_stream s)
{
    return constant(res, shape, shape_num, 0, dtype, s);
}

int mlx_ones(mlx_array *res, const int *shape, size_t shape_num,
             mlx_dtype dtype, const mlx_stream s)
{
    return constant(res, shape, shape_num, 1, dtype, s);
}

int mlx_zeros_like_dtype(mlx_array *res, const mlx_array a, mlx_dtype dtype,
                         const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    return constant(res, x->shape, (size_t)x->ndim, 0, dtype, s);
}

int mlx_ones_like_dtype(mlx_array *res, const mlx_array a, mlx_dtype dtype,
                        const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    return constant(res, x->shape, (size_t)x->ndim, 1, dtype, s);
}

int mlx_full(mlx_array *res, const int *shape, size_t shape_num,
             const mlx_array vals, mlx_dtype dtype, const mlx_stream s)
{
    QN_GET_ARRAY(value, vals);
    QN_GET_DTYPE(type, dtype);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_full(&out, shape, shape_num, value, type, stream));
}

int mlx_full_like(mlx_array *res, const mlx_array a, const mlx_array vals,
                  mlx_dtype dtype, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    return mlx_full(res, x->shape, (size_t)x->ndim, vals, dtype, s);
}

int mlx_arange(mlx_array *res, double start, double stop, double step,
               mlx_dtype dtype, const mlx_stream s)
{
    QN_GET_DTYPE(type, dtype);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_arange(&out, start, stop, step, type, stream));
}

int mlx_linspace_endpoint(mlx_array *res, double start, double stop, int num,
                          bool endpoint, mlx_dtype dtype, const mlx_stream s)
{
    QN_GET_DTYPE(type, dtype);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(
        res, qn_op_linspace(&out, start, stop, num, endpoint, type, stream));
}

int mlx_linspace(mlx_array *res, double start, double stop, int num,
                 mlx_dtype dtype, const mlx_stream s)
{
    return mlx_linspace_endpoint(res, start, stop, num, true, dtype, s);
}

int mlx_eye(mlx_array *res, int n, int m, int k, mlx_dtype dtype,
            const mlx_stream s)
{
    QN_GET_DTYPE(type, dtype);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_eye(&out, n, m, k, type, stream));
}

int mlx_identity(mlx_array *res, int n, mlx_dtype dtype, const mlx_stream s)
{
    return mlx_eye(res, n, n, 0, dtype, s);
}

int mlx_tri(mlx_array *res, int n, int m, int k, mlx_dtype type,
            const mlx_stream s)
{
    QN_GET_DTYPE(dtype, type);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_tri(&out, n, m, k, dtype, stream));
}

int mlx_tril(mlx_array *res, const mlx_array x, int k, const mlx_stream s)
{
    QN_GET_ARRAY(matrix, x);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_tril(&out, matrix, k, stream));
}

int mlx_triu(mlx_array *res, const mlx_array x, int k, const mlx_stream s)
{
    QN_GET_ARRAY(matrix, x);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_triu(&out, matrix, k, stream));
}

static int window(mlx_array *res, qn_window kind, int m, mlx_stream s)
{
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_window(&out, kind, m, stream));
}

int mlx_bartlett(mlx_array *res, int M, const mlx_stream s)
{
    return window(res, QN_WINDOW_BARTLETT, M, s);
}

int mlx_blackman(mlx_array *res, int M, const mlx_stream s)
{
    return window(res, QN_WINDOW_BLACKMAN, M, s);
}

int mlx_hamming(mlx_array *res, int M, const mlx_stream s)
{
    return window(res, QN_WINDOW_HAMMING, M, s);
}

int mlx_hanning(mlx_array *res, int M, const mlx_stream s)
{
    return window(res, QN_WINDOW_HANNING, M, s);
}

/* As many results as inputs. */
static qn_status meshgrid(qn_array ***list, size_t *count,
                          const qn_list *arrays, bool sparse,
                          const char *indexing, qn_stream *stream)
{
    qn_array **made = qn_calloc(arrays->size ? arrays->size : 1, sizeof *made);
    if (!made)
        return QN_E_NOMEM;
    qn_status status = qn_op_meshgrid(made, arrays->data, arrays->size, sparse,
                                      indexing, stream);
    if (status) {
        qn_free(made);
        return status;
    }
    *list = made;
    *count = arrays->size;
    return QN_OK;
}

int mlx_meshgrid(mlx_vector_array *res, const mlx_vector_array arrays,
                 bool sparse, const char *indexing, const mlx_stream s)
{
    QN_GET_ARRAYS(all, arrays);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OPS(res, meshgrid(&list, &count, all, sparse,
                                qn_capi_text(indexing), stream));
}
