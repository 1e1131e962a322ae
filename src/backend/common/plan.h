/* plan.h: how a loop walks over strided arrays.
 *
 * A plan takes the strides of some arrays over one shape, drops the axes of
 * length 1 and merges neighbouring axes that every operand crosses with one
 * stride.  What is left is a list of runs: the innermost axis is the run, a
 * loop of the caller's; the axes outside are walked here.
 *
 *   FLAT     one run, in which each operand steps by 1 or stands still (a
 *            scalar): the fast case, vector-vector and scalar-vector alike
 *   RUNS     several such runs
 *   STRIDED  runs in which some operand steps otherwise
 *
 * All strides and offsets count elements of the operand they belong to and
 * may be negative.  A plan points at nothing: it lives on the stack and any
 * number of threads may read it. */
#ifndef QN_BACKEND_COMMON_PLAN_H
#define QN_BACKEND_COMMON_PLAN_H

#include "core/array.h"

enum { QN_PLAN_OPERANDS = 8 };

typedef enum qn_plan_kind {
    QN_PLAN_EMPTY, /* no elements; nruns is 0 */
    QN_PLAN_FLAT,
    QN_PLAN_RUNS,
    QN_PLAN_STRIDED
} qn_plan_kind;

typedef struct qn_plan {
    qn_plan_kind kind;
    int noperands;
    int ndim;     /* merged axes, outermost first */
    int outer;    /* how many of them are walked: ndim - 1, or ndim */
    size_t size;  /* elements in all: nruns * run */
    size_t run;   /* elements in a run */
    size_t nruns; /* runs, numbered in row-major order */
    int64_t shape[QN_MAX_NDIM];
    int64_t strides[QN_PLAN_OPERANDS][QN_MAX_NDIM];
    int64_t step[QN_PLAN_OPERANDS]; /* stride inside a run */
} qn_plan;

/* Plans `noperands` operands over `shape`; strides[i] has ndim entries.  The
 * order of the elements is row-major. */
void qn_plan_make(qn_plan *plan, const int *shape, int ndim,
                  const int64_t *const *strides, int noperands);

/* For operations on each element by itself: arrays[0] is the output, already
 * with its storage, the others are inputs of the same shape.  The order of
 * the elements follows the output's layout, so that a permuted output walks
 * through memory in order. */
void qn_plan_elementwise(qn_plan *plan, const qn_array *const *arrays, int n);

/* The same with strides over the output's shape: strides[0] are the output's,
 * those of the inputs may stand still where it goes on. */
void qn_plan_elementwise_strides(qn_plan *plan, const int *shape, int ndim,
                                 const int64_t *const *strides, int n);

/* Turns the runs into single elements: run is 1, nruns is size.  For loops
 * whose body is a row or a line rather than an element. */
void qn_plan_points(qn_plan *plan);

/* Offsets of all operands at the beginning of run number `run`. */
void qn_plan_offsets(const qn_plan *plan, size_t run, int64_t *offsets);

/* Runs in order, without a division each:
 *
 *     qn_walk w;
 *     for (qn_walk_start(&w, &plan, first, count); w.left; qn_walk_next(&w))
 *         kernel(plan.run, out + w.offsets[0], in + w.offsets[1]); */
typedef struct qn_walk {
    const qn_plan *plan;
    size_t left; /* runs to come, the present one included */
    int64_t index[QN_MAX_NDIM];
    int64_t offsets[QN_PLAN_OPERANDS];
} qn_walk;

/* Starts at run `first` and covers `count` runs; first + count <= nruns. */
void qn_walk_start(qn_walk *walk, const qn_plan *plan, size_t first,
                   size_t count);
void qn_walk_next(qn_walk *walk);

/* Operations along one axis (scan, sort, arg_reduce, take_along_axis): the
 * other axes are points, one per line. */
typedef struct qn_lines {
    qn_plan outer;
    int64_t step[QN_PLAN_OPERANDS]; /* stride along the axis */
} qn_lines;

/* `shape` is that of any operand (the length along `axis` is not used);
 * strides[i] has ndim entries, the one of `axis` included. */
void qn_lines_make(qn_lines *lines, const int *shape, int ndim, int axis,
                   const int64_t *const *strides, int noperands);

/* Reductions.  `kept` has one point per output element with the operands
 * output and input; `reduced` has the one operand input and runs over the
 * elements that make one output element, counted from where `kept` points.
 *
 *   ROWS     reduced runs are contiguous in the input: reduce run by run
 *   COLUMNS  they are not, but neighbouring outputs have neighbouring
 *            inputs: `kept` has runs of such outputs; add up row by row
 *   STRIDED  neither; kept has points, reduced runs have step[0] */
typedef enum qn_reduce_kind {
    QN_REDUCE_ROWS,
    QN_REDUCE_COLUMNS,
    QN_REDUCE_STRIDED
} qn_reduce_kind;

typedef struct qn_reduce_plan {
    qn_reduce_kind kind;
    qn_plan kept;    /* operands 0 output, 1 input */
    qn_plan reduced; /* operand 0 input; points when kind is COLUMNS */
} qn_reduce_plan;

/* `out` has row-major storage and the shape of `in` with the `naxes` ascending
 * axes of length 1 or missing. */
void qn_reduce_plan_make(qn_reduce_plan *plan, const qn_array *out,
                         const qn_array *in, const int *axes, int naxes);

/* Matrix products: out [..., M, N] row-major, a [..., M, K], b [..., ., .]
 * and further operands with the batch axes of b or with just two axes.
 * Batch axes that b does not have (two axes, or stride 0) become rows where
 * a's rows go on evenly, so that one weight matrix is read once. */
typedef struct qn_matmul_plan {
    size_t m;      /* rows of each product after folding */
    int64_t a_row; /* from row to row of a */
    qn_plan outer; /* a point per product; operands out, a, b, further ones */
} qn_matmul_plan;

/* arrays: out, a, b, further ones, at most QN_PLAN_OPERANDS. */
void qn_matmul_plan_make(qn_matmul_plan *plan, const qn_array *const *arrays,
                         int n);

#endif
