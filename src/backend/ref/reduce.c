/* reduce.c: reductions over any set of axes.
 *
 * All accumulators are wide (stage.h).  Integers are summed and multiplied
 * modulo 2^64 and cut to the output's type, which is exact wrapping.  Floats
 * of every type accumulate in double and are rounded once: a sum of f16, bf16
 * or f32 is the true sum to well below its last place, however long it is.
 * A float64 sum adds up eight lanes, so its error grows with n / 8. */
#include "loops.h"
#include "stage.h"

#include "backend/common/output.h"
#include "ops/params.h"
#include "ops/scalar.h"

enum { LANES = 8 };

/* What a wide accumulator of each form starts from, and how it takes in x.
 * One row: operation, form, C type, identity, step. */
/* clang-format off */
#define EACH_REDUCTION(X)                                                      \
    X(ALL, INT, int64_t, 1, a && x)                                            \
    X(ANY, INT, int64_t, 0, a || x)                                            \
    X(MAX, INT, int64_t, INT64_MIN, qn_max_i64(a, x))                          \
    X(MAX, UINT, uint64_t, 0, qn_max_u64(a, x))                                \
    X(MAX, FLOAT, double, -INFINITY, qn_max_f64(a, x))                         \
    X(MAX, COMPLEX, double _Complex, qn_complex_of(-INFINITY, -INFINITY),      \
      qn_max_c64((qn_complex64)a, (qn_complex64)x))                            \
    X(MIN, INT, int64_t, INT64_MAX, qn_min_i64(a, x))                          \
    X(MIN, UINT, uint64_t, UINT64_MAX, qn_min_u64(a, x))                       \
    X(MIN, FLOAT, double, INFINITY, qn_min_f64(a, x))                          \
    X(MIN, COMPLEX, double _Complex, qn_complex_of(INFINITY, INFINITY),        \
      qn_min_c64((qn_complex64)a, (qn_complex64)x))                            \
    X(PROD, INT, int64_t, 1, qn_mul_i64(a, x))                                 \
    X(PROD, UINT, uint64_t, 1, a * x)                                          \
    X(PROD, FLOAT, double, 1, a * x)                                           \
    X(PROD, COMPLEX, double _Complex, 1, a * x)                                \
    X(SUM, INT, int64_t, 0, qn_add_i64(a, x))                                  \
    X(SUM, UINT, uint64_t, 0, a + x)                                           \
    X(SUM, FLOAT, double, 0, a + x)                                            \
    X(SUM, COMPLEX, double _Complex, 0, a + x)
/* clang-format on */

/* `state` is LANES accumulators.  ROWS folds a block into the lanes and
 * JOIN folds the lanes into the first; COLUMNS folds value i of a block into
 * accumulator i of as many as the block is long. */
typedef struct reduction {
    void (*start)(void *state, size_t n);
    void (*rows)(void *state, const void *block, size_t n);
    void (*columns)(void *state, const void *block, size_t n);
    void (*join)(void *state);
} reduction;

#define LOOPS(op, form, T, identity, take)                                     \
    static void op##_##form##_start(void *state, size_t n)                     \
    {                                                                          \
        T *acc = state;                                                        \
        for (size_t i = 0; i < n; i++)                                         \
            acc[i] = identity;                                                 \
    }                                                                          \
    static T op##_##form##_take(T a, T x)                                      \
    {                                                                          \
        return take;                                                           \
    }                                                                          \
    static void op##_##form##_rows(void *state, const void *block, size_t n)   \
    {                                                                          \
        T *acc = state;                                                        \
        const T *x = block;                                                    \
        for (; n >= LANES; n -= LANES, x += LANES)                             \
            for (int i = 0; i < LANES; i++)                                    \
                acc[i] = op##_##form##_take(acc[i], x[i]);                     \
        for (size_t i = 0; i < n; i++)                                         \
            acc[i] = op##_##form##_take(acc[i], x[i]);                         \
    }                                                                          \
    static void op##_##form##_columns(void *state, const void *block,          \
                                      size_t n)                                \
    {                                                                          \
        T *acc = state;                                                        \
        const T *x = block;                                                    \
        for (size_t i = 0; i < n; i++)                                         \
            acc[i] = op##_##form##_take(acc[i], x[i]);                         \
    }                                                                          \
    static void op##_##form##_join(void *state)                                \
    {                                                                          \
        T *acc = state;                                                        \
        for (int half = LANES / 2; half; half /= 2)                            \
            for (int i = 0; i < half; i++)                                     \
                acc[i] = op##_##form##_take(acc[i], acc[i + half]);            \
    }
EACH_REDUCTION(LOOPS)

#define ENTRY(op, form, T, identity, take)                                     \
    [QN_REDUCE_##                                                              \
        op][QN_WIDE_##form] = {op##_##form##_start, op##_##form##_rows,        \
                               op##_##form##_columns, op##_##form##_join},
static const reduction reductions[QN_REDUCE_COUNT][QN_WIDE_COMPLEX + 1] = {
    EACH_REDUCTION(ENTRY)};

typedef struct job {
    const reduction *loops;
    const qn_array *in;
    qn_array *out;
    qn_wide wide;
} job;

/* One output element after the other. */
static void reduce_rows(const job *j, const qn_reduce_plan *plan)
{
    qn_walk kept, reduced;
    qn_block block, state;
    const qn_plan *inner = &plan->reduced;
    for (qn_walk_start(&kept, &plan->kept, 0, plan->kept.nruns); kept.left;
         qn_walk_next(&kept)) {
        j->loops->start(&state, LANES);
        for (qn_walk_start(&reduced, inner, 0, inner->nruns); reduced.left;
             qn_walk_next(&reduced)) {
            int64_t at = kept.offsets[1] + reduced.offsets[0];
            for (size_t first = 0; first < inner->run; first += QN_BLOCK) {
                size_t left = inner->run - first;
                size_t n = left < QN_BLOCK ? left : QN_BLOCK;
                int64_t from = at + (int64_t)first * inner->step[0];
                qn_wide_load(&block, j->in->dtype, qn_element(j->in, from),
                             inner->step[0], n);
                j->loops->rows(&state, &block, n);
            }
        }
        j->loops->join(&state);
        qn_wide_store(qn_element(j->out, kept.offsets[0]), j->out->dtype, 1,
                      &state, j->wide, 1);
    }
}

/* A block of neighbouring outputs at a time, row upon row. */
static void reduce_columns(const job *j, const qn_reduce_plan *plan)
{
    qn_walk kept, reduced;
    qn_block block, state;
    const qn_plan *outer = &plan->kept, *inner = &plan->reduced;
    for (qn_walk_start(&kept, outer, 0, outer->nruns); kept.left;
         qn_walk_next(&kept)) {
        for (size_t first = 0; first < outer->run; first += QN_BLOCK) {
            size_t left = outer->run - first;
            size_t n = left < QN_BLOCK ? left : QN_BLOCK;
            int64_t at = kept.offsets[1] + (int64_t)first;
            j->loops->start(&state, n);
            for (qn_walk_start(&reduced, inner, 0, inner->nruns); reduced.left;
                 qn_walk_next(&reduced)) {
                qn_wide_load(&block, j->in->dtype,
                             qn_element(j->in, at + reduced.offsets[0]), 1, n);
                j->loops->columns(&state, &block, n);
            }
            qn_wide_store(qn_element(j->out, kept.offsets[0] + (int64_t)first),
                          j->out->dtype, 1, &state, j->wide, n);
        }
    }
}

qn_status qn_ref_reduce(qn_node *node)
{
    const qn_reduce_params *p = node->params;
    job j = {.in = node->inputs[0], .out = node->outputs[0]};
    j.wide = qn_wide_of(j.in->dtype);
    j.loops = &reductions[qn_op_info_of(node->op)->place][j.wide];
    if (!j.loops->start)
        return qn_ref_unsupported(node, j.in->dtype);
    qn_status status = qn_array_alloc(j.out);
    if (status)
        return status;
    qn_reduce_plan plan;
    qn_reduce_plan_make(&plan, j.out, j.in, p->axes, p->naxes);
    if (plan.kind == QN_REDUCE_COLUMNS)
        reduce_columns(&j, &plan);
    else
        reduce_rows(&j, &plan);
    return QN_OK;
}
