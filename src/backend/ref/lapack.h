/* lapack.h: factorisations of one matrix, by the LAPACK that is installed.
 *
 * LAPACK is no part of the build: the library is looked for when the first
 * matrix is factored, and not finding it is an error of that evaluation.
 *
 * Matrices lie column by column, without gaps, and are double or double
 * complex: a float32 matrix is computed in double and rounded once.  Sizes
 * may be 0.  `op` begins the messages; a matrix that has no result (not
 * positive definite, singular) is QN_E_ARG. */
#ifndef QN_BACKEND_REF_LAPACK_H
#define QN_BACKEND_REF_LAPACK_H

#include "base/status.h"

typedef struct qn_lapack qn_lapack;

/* What factorisations of one node share.  `op` is borrowed. */
typedef struct qn_lapack_job {
    const char *op;
    const qn_lapack *lib;
    void *room; /* scratch memory that grows with what is asked for */
    size_t room_size;
} qn_lapack_job;

/* Finds the library: QN_E_UNSUPPORTED when there is none. */
qn_status qn_lapack_begin(qn_lapack_job *job, const char *op);
void qn_lapack_end(qn_lapack_job *job);

/* The functions of `library` (a name as dlopen takes it), which stays open; the
 * caller owns the table (qn_free).  NULL, with an error recorded, if the
 * library is not there or lacks one. */
qn_lapack *qn_lapack_load(const char *library);

/* a (n, n) becomes its triangular factor; the other triangle becomes 0. */
qn_status qn_lapack_cholesky(qn_lapack_job *job, double *a, int n, bool upper);

/* a (m, n) becomes R on and above the diagonal; the rest is undefined.  q has
 * room for (m, min(m, n)). */
qn_status qn_lapack_qr(qn_lapack_job *job, double *a, int m, int n, double *q);

/* a (m, n) becomes L, whose diagonal of ones is left out, and U; pivots has
 * room for min(m, n): in step i row i was exchanged with row pivots[i].  A
 * singular matrix has its factors too. */
qn_status qn_lapack_lu(qn_lapack_job *job, double *a, int m, int n,
                       int *pivots);

qn_status qn_lapack_inverse(qn_lapack_job *job, double *a, int n);
/* The other triangle is not read and becomes 0. */
qn_status qn_lapack_triangular_inverse(qn_lapack_job *job, double *a, int n,
                                       bool upper);

/* b (n, k) becomes the x with a x = b; a is overwritten. */
qn_status qn_lapack_solve(qn_lapack_job *job, double *a, double *b, int n,
                          int k);
qn_status qn_lapack_triangular_solve(qn_lapack_job *job, const double *a,
                                     double *b, int n, int k, bool upper);

/* What follows is found by iteration: NaN and infinities are refused.  `a` is
 * overwritten; where `cplx` is set, matrices (but no real result) are
 * double _Complex. */

/* s has room for min(m, n), u for (m, m), vt for (n, n); both NULL: singular
 * values alone. */
qn_status qn_lapack_svd(qn_lapack_job *job, bool cplx, void *a, int m, int n,
                        double *s, void *u, void *vt);

/* Eigenvalues of a symmetric or Hermitian matrix, of which one triangle is
 * read, in ascending order; with `vectors` a becomes the eigenvectors. */
qn_status qn_lapack_eigh(qn_lapack_job *job, bool cplx, void *a, int n,
                         bool upper, bool vectors, double *values);

/* values has room for n complex numbers, vectors (NULL: not wanted) for
 * (n, n). */
qn_status qn_lapack_eig(qn_lapack_job *job, bool cplx, void *a, int n,
                        double *values, double *vectors);

#endif
