/* packed.h: products with one packed matrix, for rows that are prepared.
 *
 * Codes of the affine mode that lie along K go to the rowdot kernels as they
 * are.  All others are unpacked into floats some rows or columns at a time, by
 * the worker that needs them, and go to the kernels of dense matrices.  Either
 * way a result element is one sum in an order that depends on K, the format and
 * the direction alone. */
#ifndef QN_BACKEND_CPU_PACKED_H
#define QN_BACKEND_CPU_PACKED_H

#include "matmul.h"

#include "ops/params.h"

typedef struct qn_cpu_packed {
    const qn_quant_params *q;
    const qn_array *w, *scales, *biases; /* biases: NULL for most modes */
    const qn_rowdot_kernel *kernel;
    bool direct;          /* codes go to the kernel */
    qn_row_format format; /* of affine codes, or E4M3: where direct */
    size_t n, k;          /* columns of the result; what is summed over */
    size_t step;          /* column ranges begin at multiples of this */
} qn_cpu_packed;

/* Fills *p from w, scales (and biases) at packed[0 ..]; false for types or
 * strides that there is no kernel for, and for global scales.  n and k at least
 * 1. */
bool qn_cpu_packed_open(qn_cpu_packed *p, const qn_quant_params *q,
                        qn_array *const *packed, size_t n, size_t k);

/* What qn_cpu_prepare_row is to be told about the rows of x. */
static inline const qn_rowdot_kernel *
qn_cpu_packed_kernel(const qn_cpu_packed *p)
{
    return p->q->transpose ? p->kernel : NULL;
}
static inline qn_row_format qn_cpu_packed_format(const qn_cpu_packed *p)
{
    return p->direct ? p->format : QN_ROW_F32;
}

/* m rows that meet the matrix whose w, scales and biases begin at elements
 * at[0], at[1], at[2]. */
typedef struct qn_cpu_packed_rows {
    const float *x;
    size_t m, x_stride;
    int64_t at[3];
    float *out; /* [m, n] */
} qn_cpu_packed_rows;

/* Floats of scratch memory that a worker needs. */
size_t qn_cpu_packed_scratch(const qn_cpu_packed *p);
/* Columns n0 .. n1 of the result. */
void qn_cpu_packed_columns(const qn_cpu_packed *p,
                           const qn_cpu_packed_rows *rows, size_t n0, size_t n1,
                           float *scratch);
/* Columns worth a task of their own for that many rows, a multiple of step. */
size_t qn_cpu_packed_grain(const qn_cpu_packed *p, size_t m);

#endif
