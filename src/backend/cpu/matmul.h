/* matmul.h: what the files of matrix products share: the left side as float
 * rows, the result, and the product with rows along K. */
#ifndef QN_BACKEND_CPU_MATMUL_H
#define QN_BACKEND_CPU_MATMUL_H

#include "cpu.h"

#include "backend/common/plan.h"
#include "backend/cpu/kernels/rowdot/rowdot.h"

/* The rows of `a` that meet one matrix, from element `offset` on. */
qn_cpu_rows qn_cpu_rows_of(const qn_array *a, const qn_matmul_plan *plan,
                           int64_t offset);

/* Row number `row` as floats, in the order that `kernel` wants for `format`
 * (NULL: as they are), with zeros up to `padded`. */
void qn_cpu_prepare_row(float *dst, size_t padded, const qn_cpu_rows *a,
                        size_t row, const qn_rowdot_kernel *kernel,
                        qn_row_format format);
/* All rows: where they lie if that will do, else in *held (NULL before). */
qn_status qn_cpu_prepare(const float **x, size_t *stride, qn_buffer **held,
                         const qn_cpu_rows *a, const qn_rowdot_kernel *kernel,
                         qn_row_format format);

/* Row-major [m, n] of any floating type; kernels write floats. */
typedef struct qn_cpu_result {
    char *data;
    qn_dtype type;
    size_t size;
} qn_cpu_result;

qn_cpu_result qn_cpu_result_of(const qn_array *out, const qn_matmul_plan *plan,
                               int64_t offset);
/* Where to write floats: the result itself, or *held (NULL before), which
 * qn_cpu_result_finish then brings there. */
qn_status qn_cpu_result_floats(float **out, qn_buffer **held,
                               const qn_cpu_result *r);
void qn_cpu_result_finish(const qn_cpu_result *r, const float *from);

/* A product with rows along K: `dot` has k, n and everything about w. */
qn_status qn_cpu_rowdot(qn_rowdot dot, const qn_cpu_rows *a,
                        const qn_cpu_result *r);

#endif
