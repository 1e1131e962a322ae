/* gemm.h: out[m][n] = sum over k of a[m][k] * b[k][n], for a right side whose
 * rows run along n: what rowdot.h cannot take without transposing b.
 *
 * Order of the sum, the same for any tile, number of rows and threads: K falls
 * into blocks of QN_GEMM_DEPTH; a block is one chain of multiply-adds in
 * float over ascending k, and blocks are added in ascending order. */
#ifndef QN_CPU_GEMM_H
#define QN_CPU_GEMM_H

#include "base/cpu.h"
#include "core/dtype.h"

#include <stddef.h>

enum {
    QN_GEMM_DEPTH = 256,
    /* Column ranges begin at multiples of this, a multiple of every kernel's
     * panel; and row ranges at multiples of this. */
    QN_GEMM_COLUMNS = 64,
    QN_GEMM_ROWS = 6
};

/* Strides count elements. */
typedef struct qn_gemm {
    size_t m, n, k; /* k at least 1 */
    const float *a;
    size_t a_stride;
    const void *b; /* float32, float16, bfloat16 */
    size_t b_stride;
    qn_dtype b_type;
    float *out;
    size_t out_stride;
} qn_gemm;

typedef struct qn_gemm_kernel {
    /* Rows m0 .. m1 and columns n0 .. n1.  `scratch`: QN_GEMM_SCRATCH floats.
     */
    void (*run)(const qn_gemm *job, size_t m0, size_t m1, size_t n0, size_t n1,
                float *scratch);
} qn_gemm_kernel;

enum { QN_GEMM_SCRATCH = (QN_GEMM_DEPTH + QN_GEMM_ROWS) * QN_GEMM_COLUMNS };

/* The best kernel that this processor has. */
const qn_gemm_kernel *qn_gemm_pick(void);
/* The kernel of one level, NULL when it is not built in or not supported. */
const qn_gemm_kernel *qn_gemm_at(qn_isa isa);

#define QN_GEMM(isa, name) extern const qn_gemm_kernel name;
#include "kernels.def"
#undef QN_GEMM

#endif
