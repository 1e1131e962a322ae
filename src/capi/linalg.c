/* linalg.c: C entries of linear algebra. */
#include "handles.h"
#include "ops_entry.h"

/* ---- norms and products ---- */

/* A missing list stands for all axes; an empty one is an empty list. */
static size_t axes_count(const int *axis, size_t axis_num)
{
    return axis ? axis_num : QN_ALL_AXES;
}

int mlx_linalg_norm(mlx_array *res, const mlx_array a, double ord,
                    const int *axis, size_t axis_num, bool keepdims,
                    const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_norm(&out, x, ord, axis, axes_count(axis, axis_num),
                                 keepdims, stream));
}

int mlx_linalg_norm_matrix(mlx_array *res, const mlx_array a, const char *ord,
                           const int *axis, size_t axis_num, bool keepdims,
                           const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_norm_matrix(&out, x, qn_capi_text(ord), axis,
                                        axes_count(axis, axis_num), keepdims,
                                        stream));
}

int mlx_linalg_norm_l2(mlx_array *res, const mlx_array a, const int *axis,
                       size_t axis_num, bool keepdims, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_norm_l2(&out, x, axis, axes_count(axis, axis_num),
                                    keepdims, stream));
}

int mlx_linalg_cross(mlx_array *res, const mlx_array a, const mlx_array b,
                     int axis, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(y, b);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_cross(&out, x, y, axis, stream));
}

/* ---- one matrix to another ---- */

typedef qn_status matrix_builder(qn_array **out, qn_array *x, qn_stream *s);
typedef qn_status triangle_builder(qn_array **out, qn_array *x, bool upper,
                                   qn_stream *s);

static int matrix(mlx_array *res, mlx_array a, mlx_stream s,
                  matrix_builder *build)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, build(&out, x, stream));
}

static int triangle(mlx_array *res, mlx_array a, bool upper, mlx_stream s,
                    triangle_builder *build)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, build(&out, x, upper, stream));
}

int mlx_linalg_cholesky(mlx_array *res, const mlx_array a, bool upper,
                        const mlx_stream s)
{
    return triangle(res, a, upper, s, qn_op_cholesky);
}

int mlx_linalg_cholesky_inv(mlx_array *res, const mlx_array a, bool upper,
                            const mlx_stream s)
{
    return triangle(res, a, upper, s, qn_op_cholesky_inv);
}

int mlx_linalg_tri_inv(mlx_array *res, const mlx_array a, bool upper,
                       const mlx_stream s)
{
    return triangle(res, a, upper, s, qn_op_tri_inv);
}

int mlx_linalg_inv(mlx_array *res, const mlx_array a, const mlx_stream s)
{
    return matrix(res, a, s, qn_op_inv);
}

int mlx_linalg_pinv(mlx_array *res, const mlx_array a, const mlx_stream s)
{
    return matrix(res, a, s, qn_op_pinv);
}

int mlx_linalg_det(mlx_array *res, const mlx_array a, const mlx_stream s)
{
    return matrix(res, a, s, qn_op_det);
}

/* ---- several results ---- */

static int pair(mlx_array *res_0, mlx_array *res_1, mlx_array a, mlx_stream s,
                matrix_builder *build)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    qn_array *both[2];
    QN_CALL(build(both, x, stream));
    return QN_STORE(qn_handle_set_each((mlx_array *[]){res_0, res_1}, both, 2));
}

int mlx_linalg_qr(mlx_array *res_0, mlx_array *res_1, const mlx_array a,
                  const mlx_stream s)
{
    return pair(res_0, res_1, a, s, qn_op_qr);
}

int mlx_linalg_lu_factor(mlx_array *res_0, mlx_array *res_1, const mlx_array a,
                         const mlx_stream s)
{
    return pair(res_0, res_1, a, s, qn_op_lu_factor);
}

int mlx_linalg_slogdet(mlx_array *res_0, mlx_array *res_1, const mlx_array a,
                       const mlx_stream s)
{
    return pair(res_0, res_1, a, s, qn_op_slogdet);
}

int mlx_linalg_svd(mlx_vector_array *res, const mlx_array a, bool compute_uv,
                   const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    qn_array *parts[3];
    QN_CALL(qn_op_svd(parts, x, compute_uv, stream));
    return QN_STORE_ARRAYS(res, parts, compute_uv ? 3 : 1);
}

int mlx_linalg_lu(mlx_vector_array *res, const mlx_array a, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    qn_array *parts[3];
    QN_CALL(qn_op_lu(parts, x, stream));
    return QN_STORE_ARRAYS(res, parts, 3);
}

/* ---- eigenvalues ---- */

int mlx_linalg_eigvals(mlx_array *res, const mlx_array a, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_eig(&out, x, false, stream));
}

int mlx_linalg_eig(mlx_array *res_0, mlx_array *res_1, const mlx_array a,
                   const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    qn_array *both[2];
    QN_CALL(qn_op_eig(both, x, true, stream));
    return QN_STORE(qn_handle_set_each((mlx_array *[]){res_0, res_1}, both, 2));
}

int mlx_linalg_eigvalsh(mlx_array *res, const mlx_array a, const char *UPLO,
                        const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_eigh(&out, x, qn_capi_text(UPLO), false, stream));
}

int mlx_linalg_eigh(mlx_array *res_0, mlx_array *res_1, const mlx_array a,
                    const char *UPLO, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    qn_array *both[2];
    QN_CALL(qn_op_eigh(both, x, qn_capi_text(UPLO), true, stream));
    return QN_STORE(qn_handle_set_each((mlx_array *[]){res_0, res_1}, both, 2));
}

/* ---- solutions ---- */

int mlx_linalg_solve(mlx_array *res, const mlx_array a, const mlx_array b,
                     const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(y, b);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_solve(&out, x, y, stream));
}

int mlx_linalg_solve_triangular(mlx_array *res, const mlx_array a,
                                const mlx_array b, bool upper,
                                const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_ARRAY(y, b);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_solve_triangular(&out, x, y, upper, stream));
}
