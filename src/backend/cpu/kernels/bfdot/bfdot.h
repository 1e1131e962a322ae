/* bfdot.h: out[m][n] = sum over k of x[m][k] * w, both bfloat16, on processors
 * that multiply pairs of them and add to float32 (AVX512-BF16, AMX-BF16, the
 * BF16 of Arm).  w is n rows along K (a linear layer's weight) or k rows along
 * N.
 *
 * Numbers.  Products are exact and sums float32; a step adds the products of
 * two neighbouring k to a sum in the order of the instruction.  Those of x86
 * round to nearest and take subnormal numbers, in and out, as zeros; those of
 * Arm round to odd inside a pair.  Against exact arithmetic the error is at
 * most 2^-17 * sum |x w|, plus for each k at most 2^-126 * (1 + |x| + |w|) for
 * what was subnormal.
 *
 * Order of the sum, for each level its own and the same for one row of x or
 * many, any tile and any thread count.  K falls into blocks, QN_BFDOT_DEPTH
 * where w lies along K, QN_BFDOT_COLUMN_DEPTH where it lies along N,
 * QN_BFDOT_TILE_DEPTH in tiles; blocks are added in ascending order.  A block
 * is, along K, as many partial sums as there are float lanes, lane l over the
 * pairs l, l + lanes ..., and then one fixed tree; along N, and in tiles (AMX),
 * one chain over ascending pairs. */
#ifndef QN_CPU_BFDOT_H
#define QN_CPU_BFDOT_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    QN_BFDOT_DEPTH = 2048,
    QN_BFDOT_COLUMN_DEPTH = 512,
    QN_BFDOT_TILE_DEPTH = 1024,
    /* Ranges of columns and of rows begin at multiples of these. */
    QN_BFDOT_COLUMNS = 64,
    QN_BFDOT_ROWS = 32
};

/* Strides count elements; k is at least 1. */
typedef struct qn_bfdot {
    size_t m, n, k;
    const uint16_t *x;
    size_t x_stride;
    const uint16_t *w; /* n rows along K, or k rows along N */
    size_t w_stride;
    bool along_k;
    float *out;
    size_t out_stride;
} qn_bfdot;

typedef struct qn_bfdot_kernel {
    /* Rows m0 .. m1 and columns n0 .. n1, with `scratch` floats of memory, on
     * cache lines of its own. */
    void (*run)(const qn_bfdot *job, size_t m0, size_t m1, size_t n0, size_t n1,
                float *scratch);
    size_t scratch;
} qn_bfdot_kernel;

/* The best kernel that this processor has; NULL: multiply floats. */
const qn_bfdot_kernel *qn_bfdot_pick(void);
/* The kernel of one level, NULL when it is not built in or not supported. */
const qn_bfdot_kernel *qn_bfdot_at(qn_isa isa);

#define QN_BFDOT(isa, name) extern const qn_bfdot_kernel name;
#include "kernels.def"
#undef QN_BFDOT

#endif
