/* Linear algebra.
 *
 * A matrix is the last two axes of an array; axes before them count matrices,
 * each treated on its own. Inputs are of a floating dtype, float32 or float64
 * where matrices are factored. Rows come before columns: (m, n) has m rows. */
#ifndef MLX_C_LINALG_H
#define MLX_C_LINALG_H

#include "mlx/c/types.h"

#include <stdbool.h>
#include <stddef.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* --- Norms and products --------------------------------------------------- */

/* The norm of order ord. axis names one axis (norms of vectors) or two (norms
 * of matrices); NULL with axis_num 0 takes all axes of an array with one or
 * two. Order p of a vector: (sum |x|^p)^(1/p), the count of nonzero entries for
 * 0, and the largest or smallest |x| for inf or -inf. Of a matrix: 1 and -1,
 * the largest and smallest sum of a column; inf and -inf, of a row; 2 and -2,
 * the largest and smallest singular value. keepdims leaves the axes in with
 * size 1. */
int mlx_linalg_norm(mlx_array *res, const mlx_array a, double ord,
                    const int *axis, size_t axis_num, bool keepdims,
                    const mlx_stream s);

/* A norm of matrices by name: "fro" (or "f"), the root of the sum of squares;
 * "nuc", the sum of the singular values. axis as above, two axes. */
int mlx_linalg_norm_matrix(mlx_array *res, const mlx_array a, const char *ord,
                           const int *axis, size_t axis_num, bool keepdims,
                           const mlx_stream s);

/* The root of the sum of squares over the axes in axis; over all elements if it
 * is NULL. */
int mlx_linalg_norm_l2(mlx_array *res, const mlx_array a, const int *axis,
                       size_t axis_num, bool keepdims, const mlx_stream s);

/* The cross product of the vectors along axis, whose size is 3, or 2 with a
 * third entry of 0. */
int mlx_linalg_cross(mlx_array *res, const mlx_array a, const mlx_array b,
                     int axis, const mlx_stream s);

/* --- Factorisations ------------------------------------------------------- */

/* The triangular factor of a symmetric positive definite matrix: a = L L^T, or
 * a = U^T U if upper. */
int mlx_linalg_cholesky(mlx_array *res, const mlx_array a, bool upper,
                        const mlx_stream s);

/* a = Q R for a matrix (m, n) and k = min(m, n): Q (m, k), with orthonormal
 * columns, in res_0 and R (k, n), upper triangular, in res_1. */
int mlx_linalg_qr(mlx_array *res_0, mlx_array *res_1, const mlx_array a,
                  const mlx_stream s);

/* a = U diag(S) Vt. The list has U (m, m), S (the min(m, n) singular values,
 * the largest first) and Vt (n, n); only S if compute_uv is false. */
int mlx_linalg_svd(mlx_vector_array *res, const mlx_array a, bool compute_uv,
                   const mlx_stream s);

/* The list has P, L and U: L lower triangular with ones on the diagonal, U
 * upper triangular, and P, uint32, the row of L U that each row of a is. */
int mlx_linalg_lu(mlx_vector_array *res, const mlx_array a, const mlx_stream s);

/* The same in one matrix, L below the diagonal and U on and above it, in res_0;
 * res_1 has the row exchanged with row i in step i, uint32. */
int mlx_linalg_lu_factor(mlx_array *res_0, mlx_array *res_1, const mlx_array a,
                         const mlx_stream s);

/* --- Eigenvalues ---------------------------------------------------------- */

/* The eigenvalues of a square matrix, complex64, in no order. */
int mlx_linalg_eigvals(mlx_array *res, const mlx_array a, const mlx_stream s);

/* Eigenvalues in res_0 and, in the columns of res_1, eigenvectors. */
int mlx_linalg_eig(mlx_array *res_0, mlx_array *res_1, const mlx_array a,
                   const mlx_stream s);

/* The eigenvalues of a symmetric (or Hermitian) matrix, the smallest first.
 * UPLO is "L" or "U": the triangle that is read. */
int mlx_linalg_eigvalsh(mlx_array *res, const mlx_array a, const char *UPLO,
                        const mlx_stream s);

/* Eigenvalues in res_0 and, in the columns of res_1, orthonormal
 * eigenvectors. */
int mlx_linalg_eigh(mlx_array *res_0, mlx_array *res_1, const mlx_array a,
                    const char *UPLO, const mlx_stream s);

/* --- Inverses, solutions, determinants ------------------------------------ */

/* The inverse of a square matrix; an error at evaluation if it has none. */
int mlx_linalg_inv(mlx_array *res, const mlx_array a, const mlx_stream s);

/* The inverse of a triangular matrix: lower, or upper if upper. */
int mlx_linalg_tri_inv(mlx_array *res, const mlx_array a, bool upper,
                       const mlx_stream s);

/* The inverse of the matrix whose Cholesky factor is a: L, or U if upper. */
int mlx_linalg_cholesky_inv(mlx_array *res, const mlx_array a, bool upper,
                            const mlx_stream s);

/* The pseudo-inverse of Moore and Penrose, through the singular values. */
int mlx_linalg_pinv(mlx_array *res, const mlx_array a, const mlx_stream s);

/* The x with a x = b, for square a; b is a vector or a matrix. */
int mlx_linalg_solve(mlx_array *res, const mlx_array a, const mlx_array b,
                     const mlx_stream s);

/* The same for a triangular a: lower, or upper if upper. */
int mlx_linalg_solve_triangular(mlx_array *res, const mlx_array a,
                                const mlx_array b, bool upper,
                                const mlx_stream s);

/* The determinant of a square matrix. */
int mlx_linalg_det(mlx_array *res, const mlx_array a, const mlx_stream s);

/* The determinant as its sign in res_0 and the logarithm of its magnitude in
 * res_1, which does not overflow. 0 and -inf for a singular matrix. */
int mlx_linalg_slogdet(mlx_array *res_0, mlx_array *res_1, const mlx_array a,
                       const mlx_stream s);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
