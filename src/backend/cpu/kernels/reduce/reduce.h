/* reduce.h: sums, products, extremes and truth of many elements.
 *
 * Every loop folds elements into accumulators:
 *
 *   SUM, PROD   float64 for floats of any type (complex64: a pair of them, SUM
 *               alone), rounded once by the caller; integers modulo 2^32, or
 *               2^64 for the types of that size
 *   MAX, MIN    the element's type, float32 for half types; a NaN stays
 *   ALL, ANY    a byte
 *
 * Order of the sum of a row: element i goes to lane i modulo 4 * VF_LANES while
 * whole strides of that are left, then to lane i modulo VF_LANES, and what is
 * shorter than a vector is added up one by one; the lanes are added in a fixed
 * tree, the rest last.  Of half types the four elements of a stride that share
 * a lane modulo VF_LANES are first added in float, which has at least 13 bits
 * more than they.  Columns are added row by row, those of half types eight
 * rows at a time in float.  So the bits depend on the length of a call and on
 * the instruction set, not on what is beside it. */
#ifndef QN_CPU_REDUCE_H
#define QN_CPU_REDUCE_H

#include "base/cpu.h"
#include "core/dtype.h"
#include "ops/ops.h"

#include <stddef.h>
#include <stdint.h>

typedef struct qn_reduce_loop {
    size_t size; /* bytes of an accumulator; 0: there is no such loop */
    /* The identity into n accumulators. */
    void (*start)(void *acc, size_t n);
    /* acc[r] takes in the fold of row r: n neighbouring elements, `step`
     * elements behind those of the row before. */
    void (*rows)(void *acc, const void *x, size_t n, size_t rows, int64_t step);
    /* acc[i] takes in element i of each row. */
    void (*columns)(void *acc, const void *x, size_t n, size_t rows,
                    int64_t step);
    /* acc[i] takes in other[i], which stands for later elements. */
    void (*join)(void *acc, const void *other, size_t n);
} qn_reduce_loop;

/* Places of extremes: of the first of equals, or of the first NaN.  Values have
 * the type that MAX and MIN accumulate in. */
enum { QN_PLACE_COLUMNS = 256 };
typedef struct qn_place_loop {
    /* best[i] and place[i] become those of element i of n columns, at most
     * QN_PLACE_COLUMNS, in `rows` rows (at least 1) that are `step` apart.
     * NULL: there is no such loop. */
    void (*columns)(void *best, uint32_t *place, const void *x, size_t n,
                    size_t rows, int64_t step);
    /* The first of n neighbouring elements that equals *value; n: none. */
    size_t (*find)(const void *x, size_t n, const void *value);
} qn_place_loop;

typedef struct qn_reduce_kernel {
    qn_place_loop largest[QN_DTYPE_COUNT], smallest[QN_DTYPE_COUNT];
    qn_reduce_loop loops[QN_REDUCE_COUNT][QN_DTYPE_COUNT];
} qn_reduce_kernel;

/* The best kernel that this processor has. */
const qn_reduce_kernel *qn_reduce_pick(void);
/* The kernel of one level, NULL when it is not built in or not supported. */
const qn_reduce_kernel *qn_reduce_at(qn_isa isa);

#define QN_REDUCE_KERNEL(isa, name) extern const qn_reduce_kernel name;
#include "kernels.def"
#undef QN_REDUCE_KERNEL

#endif
