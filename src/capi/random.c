/* random.c: C entries of random numbers.  An empty key handle stands for the
 * calling thread's own sequence. */
#include "handles.h"
#include "ops_entry.h"

int mlx_random_seed(uint64_t seed)
{
    qn_random_seed(seed);
    return 0;
}

int mlx_random_key(mlx_array *res, uint64_t seed)
{
    QN_RETURN_OP(res, qn_op_random_key(&out, seed));
}

/* Rows of a split key, one array each. */
static qn_status split_rows(qn_array **rows, qn_array *key, qn_stream *stream)
{
    qn_array *both = NULL, **parts = NULL;
    size_t count = 0;
    qn_status status = qn_op_random_split(&both, key, 2, stream);
    if (!status)
        status = qn_op_unstack(&parts, &count, both, 0, stream);
    qn_array_unref(both);
    if (status)
        return status;
    rows[0] = parts[0];
    rows[1] = parts[1];
    qn_free(parts);
    return QN_OK;
}

int mlx_random_split(mlx_array *res_0, mlx_array *res_1, const mlx_array key,
                     const mlx_stream s)
{
    QN_GET_ARRAY(whole, key);
    QN_GET_STREAM(stream, s);
    qn_array *rows[2];
    QN_CALL(split_rows(rows, whole, stream));
    return QN_STORE(qn_handle_set_each((mlx_array *[]){res_0, res_1}, rows, 2));
}

int mlx_random_split_num(mlx_array *res, const mlx_array key, int num,
                         const mlx_stream s)
{
    QN_GET_ARRAY(whole, key);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_random_split(&out, whole, num, stream));
}

int mlx_random_bits(mlx_array *res, const int *shape, size_t shape_num,
                    int width, const mlx_array key, const mlx_stream s)
{
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_random_bits(&out, shape, shape_num, width,
                                        qn_handle_array(key), stream));
}

int mlx_random_uniform(mlx_array *res, const mlx_array low,
                       const mlx_array high, const int *shape, size_t shape_num,
                       mlx_dtype dtype, const mlx_array key, const mlx_stream s)
{
    QN_GET_ARRAY(from, low);
    QN_GET_ARRAY(to, high);
    QN_GET_DTYPE(type, dtype);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_random_uniform(&out, from, to, shape, shape_num,
                                           type, qn_handle_array(key), stream));
}

int mlx_random_normal_broadcast(mlx_array *res, const int *shape,
                                size_t shape_num, mlx_dtype dtype,
                                const mlx_array loc, const mlx_array scale,
                                const mlx_array key, const mlx_stream s)
{
    QN_GET_DTYPE(type, dtype);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_random_normal(&out, shape, shape_num, type,
                                          qn_handle_array(loc),
                                          qn_handle_array(scale),
                                          qn_handle_array(key), stream));
}

/* 0 and 1 need no step of their own. */
static qn_status normal(qn_array **out, const int *shape, size_t ndim,
                        qn_dtype type, float loc, float scale, qn_array *key,
                        qn_stream *stream)
{
    qn_array *middle = NULL, *width = NULL;
    qn_status status = QN_OK;
    if (loc != 0)
        status = qn_op_scalar(&middle, loc, type);
    if (!status && scale != 1)
        status = qn_op_scalar(&width, scale, type);
    if (!status)
        status = qn_op_random_normal(out, shape, ndim, type, middle, width, key,
                                     stream);
    qn_array_unref(middle);
    qn_array_unref(width);
    return status;
}

int mlx_random_normal(mlx_array *res, const int *shape, size_t shape_num,
                      mlx_dtype dtype, float loc, float scale,
                      const mlx_array key, const mlx_stream s)
{
    QN_GET_DTYPE(type, dtype);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, normal(&out, shape, shape_num, type, loc, scale,
                             qn_handle_array(key), stream));
}

int mlx_random_multivariate_normal(mlx_array *res, const mlx_array mean,
                                   const mlx_array cov, const int *shape,
                                   size_t shape_num, mlx_dtype dtype,
                                   const mlx_array key, const mlx_stream s)
{
    QN_GET_ARRAY(middle, mean);
    QN_GET_ARRAY(spread, cov);
    QN_GET_DTYPE(type, dtype);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_random_multivariate_normal(
                          &out, middle, spread, shape, shape_num, type,
                          qn_handle_array(key), stream));
}

int mlx_random_truncated_normal(mlx_array *res, const mlx_array lower,
                                const mlx_array upper, const int *shape,
                                size_t shape_num, mlx_dtype dtype,
                                const mlx_array key, const mlx_stream s)
{
    QN_GET_ARRAY(from, lower);
    QN_GET_ARRAY(to, upper);
    QN_GET_DTYPE(type, dtype);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(
        res, qn_op_random_truncated_normal(&out, from, to, shape, shape_num,
                                           type, qn_handle_array(key), stream));
}

int mlx_random_gumbel(mlx_array *res, const int *shape, size_t shape_num,
                      mlx_dtype dtype, const mlx_array key, const mlx_stream s)
{
    QN_GET_DTYPE(type, dtype);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_random_gumbel(&out, shape, shape_num, type,
                                          qn_handle_array(key), stream));
}

int mlx_random_laplace(mlx_array *res, const int *shape, size_t shape_num,
                       mlx_dtype dtype, float loc, float scale,
                       const mlx_array key, const mlx_stream s)
{
    QN_GET_DTYPE(type, dtype);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res,
                 qn_op_random_laplace(&out, shape, shape_num, type, loc, scale,
                                      qn_handle_array(key), stream));
}

int mlx_random_bernoulli(mlx_array *res, const mlx_array p, const int *shape,
                         size_t shape_num, const mlx_array key,
                         const mlx_stream s)
{
    QN_GET_ARRAY(chance, p);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_random_bernoulli(&out, chance, shape, shape_num,
                                             qn_handle_array(key), stream));
}

int mlx_random_randint(mlx_array *res, const mlx_array low,
                       const mlx_array high, const int *shape, size_t shape_num,
                       mlx_dtype dtype, const mlx_array key, const mlx_stream s)
{
    QN_GET_ARRAY(from, low);
    QN_GET_ARRAY(to, high);
    QN_GET_DTYPE(type, dtype);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_random_randint(&out, from, to, shape, shape_num,
                                           type, qn_handle_array(key), stream));
}

int mlx_random_permutation(mlx_array *res, const mlx_array x, int axis,
                           const mlx_array key, const mlx_stream s)
{
    QN_GET_ARRAY(array, x);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_random_permutation(&out, array, axis,
                                               qn_handle_array(key), stream));
}

int mlx_random_permutation_arange(mlx_array *res, int x, const mlx_array key,
                                  const mlx_stream s)
{
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_random_permutation_arange(
                          &out, x, qn_handle_array(key), stream));
}

int mlx_random_categorical(mlx_array *res, const mlx_array logits, int axis,
                           const mlx_array key, const mlx_stream s)
{
    QN_GET_ARRAY(x, logits);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_random_categorical(&out, x, axis,
                                               qn_handle_array(key), stream));
}

int mlx_random_categorical_shape(mlx_array *res, const mlx_array logits,
                                 int axis, const int *shape, size_t shape_num,
                                 const mlx_array key, const mlx_stream s)
{
    QN_GET_ARRAY(x, logits);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res,
                 qn_op_random_categorical_shape(&out, x, axis, shape, shape_num,
                                                qn_handle_array(key), stream));
}

int mlx_random_categorical_num_samples(mlx_array *res, const mlx_array logits_,
                                       int axis, int num_samples,
                                       const mlx_array key, const mlx_stream s)
{
    QN_GET_ARRAY(x, logits_);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res,
                 qn_op_random_categorical_num(&out, x, axis, num_samples,
                                              qn_handle_array(key), stream));
}
