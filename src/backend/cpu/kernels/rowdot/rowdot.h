/* rowdot.h: out[m][n] = sum over k of x[m][k] * w[n][k], the product behind
 * every linear layer: rows of x times rows of w, w dense or packed.
 *
 * Order of the sum, the same for one row of x or many, for any tile and any
 * thread count.  K falls into blocks of QN_ROWDOT_DEPTH.  A block is VF_LANES
 * partial sums, lane l over the k that the format's order puts there,
 * ascending, each step one (fused) multiply-add of float values; then vf_sum.
 * Blocks are added in ascending order.  A packed weight is code * scale +
 * bias, rounded once to float.  So a row's bits never depend on the rows
 * beside it.
 *
 * x comes prepared: float32, rows padded with zeros to a multiple of
 * QN_ROWDOT_PAD, in the order that the format's unpacking produces
 * (qn_rowdot_kernel.prepare). */
#ifndef QN_CPU_ROWDOT_H
#define QN_CPU_ROWDOT_H

#include "base/cpu.h"
#include "core/dtype.h"

#include <stddef.h>
#include <stdint.h>

enum { QN_ROWDOT_PAD = 32, QN_ROWDOT_DEPTH = 1024 };

/* How a row of w is stored. */
typedef enum qn_row_format {
    QN_ROW_F32,
    QN_ROW_F16,
    QN_ROW_BF16,
    QN_ROW_Q2, /* affine codes, a little-endian bit stream */
    QN_ROW_Q3,
    QN_ROW_Q4,
    QN_ROW_Q5,
    QN_ROW_Q6,
    QN_ROW_Q8,
    QN_ROW_E4M3 /* the small floats of mxfp8 */
} qn_row_format;

typedef struct qn_rowdot {
    size_t m, n, k;
    /* x: prepared rows, x_stride floats apart. */
    const float *x;
    size_t x_stride;
    /* w: n rows, w_stride bytes apart. */
    qn_row_format format;
    const uint8_t *w;
    size_t w_stride;
    /* Packed formats: a scale and a bias for each `group` (16, 32, 64, 128)
     * codes, rows scale_stride elements apart. */
    int group;
    qn_dtype scale_type, bias_type; /* float32, float16, bfloat16 */
    /* E4M3: scales are bytes e, 2^(e - 127), of type uint8; no biases. */
    const uint8_t *scales, *biases;
    size_t scale_stride, bias_stride;
    float *out;
    size_t out_stride;
} qn_rowdot;

typedef struct qn_rowdot_kernel {
    /* Writes one row of x (k floats) to dst (padded) in the order of
     * `format`. */
    void (*prepare)(float *dst, const float *src, size_t k,
                    qn_row_format format);
    /* True when prepare would only copy, but for the padding. */
    int (*natural)(qn_row_format format);
    /* Computes columns n0 .. n1 of all rows.  `scratch` has room for
     * qn_rowdot_scratch(k) floats. */
    void (*run)(const qn_rowdot *job, size_t n0, size_t n1, float *scratch);
    /* The values of a packed row in their natural order: k codes, a scale and
     * a bias for each group.  Product and sum are rounded each. */
    void (*unpack)(float *dst, const uint8_t *w, const float *scales,
                   const float *biases, size_t k, int group,
                   qn_row_format format);
    /* The same for the numbers of mxfp8 (bits 8) or mxfp4 and nvfp4 (4), with a
     * scale for each group of 16 or 32. */
    void (*unpack_small)(float *dst, const uint8_t *w, const float *scales,
                         size_t k, int group, int bits);
} qn_rowdot_kernel;

/* The best kernel that this processor has. */
const qn_rowdot_kernel *qn_rowdot_pick(void);
/* The kernel of one level, NULL when it is not built in or not supported:
 * for tests and benches. */
const qn_rowdot_kernel *qn_rowdot_at(qn_isa isa);

/* Ranges of columns begin at multiples of QN_ROWDOT_ROWS, one of the tile's
 * width.  Scales of so many rows are converted at a time, and so many rows of w
 * are unpacked at a time: a panel that stays in the second-level cache. */
enum { QN_ROWDOT_ROWS = 8, QN_ROWDOT_SCALE_ROWS = 16, QN_ROWDOT_PANEL = 64 };
static inline size_t qn_rowdot_padded(size_t k)
{
    return (k + QN_ROWDOT_PAD - 1) / QN_ROWDOT_PAD * QN_ROWDOT_PAD;
}
static inline size_t qn_rowdot_scratch(size_t k)
{
    size_t depth = k < QN_ROWDOT_DEPTH ? qn_rowdot_padded(k) : QN_ROWDOT_DEPTH;
    /* The rows of w, then scales and biases of groups of
     * 16 or more. */
    return QN_ROWDOT_PANEL * depth + 2 * QN_ROWDOT_SCALE_ROWS * (k / 16 + 1) +
           64;
}

#define QN_ROWDOT(isa, name) extern const qn_rowdot_kernel name;
#include "kernels.def"
#undef QN_ROWDOT

#endif
