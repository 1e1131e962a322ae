/* plan.c: merges axes, and walks over what is left of them. */
#include "plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Appends an axis, or lengthens the innermost one when every operand goes
 * from its end to the next place with the same stride. */
static void plan_add_axis(qn_plan *plan, int64_t length, const int64_t *strides)
{
    int last = plan->ndim - 1;
    bool merge = last >= 0;
    for (int i = 0; merge && i < plan->noperands; i++)
        merge = plan->strides[i][last] == length * strides[i];
    if (!merge) {
        last = plan->ndim++;
        plan->shape[last] = 1;
    }
    plan->shape[last] *= length;
    for (int i = 0; i < plan->noperands; i++)
        plan->strides[i][last] = strides[i];
}

/* Names the kind once the axes are known. */
static void plan_finish(qn_plan *plan)
{
    if (plan->ndim == 0) {
        int64_t strides[QN_PLAN_OPERANDS];
        for (int i = 0; i < QN_PLAN_OPERANDS; i++)
            strides[i] = 1;
        plan_add_axis(plan, 1, strides);
    }
    int last = plan->ndim - 1;
    plan->outer = last;
    plan->run = (size_t)plan->shape[last];
    plan->size = plan->run;
    for (int axis = 0; axis < last; axis++)
        plan->size *= (size_t)plan->shape[axis];
    plan->nruns = plan->size / plan->run;
    plan->kind = plan->nruns == 1 ? QN_PLAN_FLAT : QN_PLAN_RUNS;
    for (int i = 0; i < plan->noperands; i++) {
        plan->step[i] = plan->strides[i][last];
        if (plan->step[i] != 0 && plan->step[i] != 1)
            plan->kind = QN_PLAN_STRIDED;
    }
}

/* The axes in the given order; NULL: as they come. */
static void plan_make_ordered(qn_plan *plan, const int *shape, int ndim,
                              const int64_t *const *strides, int noperands,
                              const int *order)
{
    assert(noperands <= QN_PLAN_OPERANDS);
    memset(plan, 0, sizeof *plan);
    plan->noperands = noperands;
    for (int axis = 0; axis < ndim; axis++)
        if (shape[axis] == 0)
            return; /* all zero is the plan of nothing */
    for (int i = 0; i < ndim; i++) {
        int axis = order ? order[i] : i;
        if (shape[axis] == 1)
            continue;
        int64_t steps[QN_PLAN_OPERANDS] = {0};
        for (int k = 0; k < noperands; k++)
            steps[k] = strides[k][axis];
        plan_add_axis(plan, shape[axis], steps);
    }
    plan_finish(plan);
}

void qn_plan_make(qn_plan *plan, const int *shape, int ndim,
                  const int64_t *const *strides, int noperands)
{
    plan_make_ordered(plan, shape, ndim, strides, noperands, NULL);
}

void qn_plan_elementwise(qn_plan *plan, const qn_array *const *arrays, int n)
{
    const qn_array *out = arrays[0];
    const int64_t *strides[QN_PLAN_OPERANDS] = {NULL};
    for (int i = 0; i < n; i++)
        strides[i] = arrays[i]->strides;
    qn_plan_elementwise_strides(plan, out->shape, out->ndim, strides, n);
}

void qn_plan_elementwise_strides(qn_plan *plan, const int *shape, int ndim,
                                 const int64_t *const *strides, int n)
{
    const int64_t *out = strides[0];
    int order[QN_MAX_NDIM];
    for (int i = 0; i < ndim; i++) {
        int at = i;
        while (at > 0 && llabs(out[order[at - 1]]) < llabs(out[i])) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
    plan_make_ordered(plan, shape, ndim, strides, n, order);
}

void qn_plan_points(qn_plan *plan)
{
    if (plan->kind == QN_PLAN_EMPTY)
        return;
    plan->outer = plan->ndim;
    plan->run = 1;
    plan->nruns = plan->size;
}

void qn_plan_offsets(const qn_plan *plan, size_t run, int64_t *offsets)
{
    for (int i = 0; i < plan->noperands; i++)
        offsets[i] = 0;
    for (int axis = plan->outer - 1; axis >= 0; axis--) {
        int64_t at = (int64_t)(run % (size_t)plan->shape[axis]);
        run /= (size_t)plan->shape[axis];
        for (int i = 0; i < plan->noperands; i++)
            offsets[i] += at * plan->strides[i][axis];
    }
}

void qn_walk_start(qn_walk *walk, const qn_plan *plan, size_t first,
                   size_t count)
{
    assert(first + count <= plan->nruns);
    walk->plan = plan;
    walk->left = count;
    if (!count)
        return;
    qn_plan_offsets(plan, first, walk->offsets);
    for (int axis = plan->outer - 1; axis >= 0; axis--) {
        walk->index[axis] = (int64_t)(first % (size_t)plan->shape[axis]);
        first /= (size_t)plan->shape[axis];
    }
}

void qn_walk_next(qn_walk *walk)
{
    const qn_plan *plan = walk->plan;
    walk->left--;
    for (int axis = plan->outer - 1; axis >= 0; axis--) {
        bool carry = ++walk->index[axis] == plan->shape[axis];
        int64_t steps = carry ? 1 - plan->shape[axis] : 1;
        for (int i = 0; i < plan->noperands; i++)
            walk->offsets[i] += steps * plan->strides[i][axis];
        if (!carry)
            return;
        walk->index[axis] = 0;
    }
}

void qn_lines_make(qn_lines *lines, const int *shape, int ndim, int axis,
                   const int64_t *const *strides, int noperands)
{
    int others[QN_MAX_NDIM];
    int64_t steps[QN_PLAN_OPERANDS][QN_MAX_NDIM];
    const int64_t *rows[QN_PLAN_OPERANDS] = {NULL};
    int n = 0;
    for (int i = 0; i < ndim; i++) {
        if (i == axis)
            continue;
        others[n] = shape[i];
        for (int k = 0; k < noperands; k++)
            steps[k][n] = strides[k][i];
        n++;
    }
    for (int k = 0; k < noperands; k++) {
        rows[k] = steps[k];
        lines->step[k] = strides[k][axis];
    }
    qn_plan_make(&lines->outer, others, n, rows, noperands);
    qn_plan_points(&lines->outer);
}

void qn_reduce_plan_make(qn_reduce_plan *plan, const qn_array *out,
                         const qn_array *in, const int *axes, int naxes)
{
    int kept[QN_MAX_NDIM] = {0}, reduced[QN_MAX_NDIM] = {0};
    int nkept = 0, nreduced = 0;
    int64_t from[QN_MAX_NDIM], over[QN_MAX_NDIM], to[QN_MAX_NDIM];
    for (int axis = 0; axis < in->ndim; axis++) {
        if (nreduced < naxes && axes[nreduced] == axis) {
            over[nreduced] = in->strides[axis];
            reduced[nreduced++] = in->shape[axis];
        } else {
            from[nkept] = in->strides[axis];
            kept[nkept++] = in->shape[axis];
        }
    }
    (void)out; /* row-major: its strides follow from the kept axes */
    qn_row_strides(to, kept, nkept);
    qn_plan_make(&plan->kept, kept, nkept, (const int64_t *[]){to, from}, 2);
    qn_plan_make(&plan->reduced, reduced, nreduced, (const int64_t *[]){over},
                 1);
    bool neighbours = plan->kept.run > 1 && plan->kept.step[1] == 1;
    bool together = plan->reduced.size > 1 && plan->reduced.step[0] == 1;
    if (neighbours && !together) {
        plan->kind = QN_REDUCE_COLUMNS;
        qn_plan_points(&plan->reduced);
        return;
    }
    plan->kind =
        plan->reduced.step[0] == 1 ? QN_REDUCE_ROWS : QN_REDUCE_STRIDED;
    qn_plan_points(&plan->kept);
}

void qn_matmul_plan_make(qn_matmul_plan *plan, const qn_array *const *arrays,
                         int n)
{
    const qn_array *out = arrays[0];
    int lead = out->ndim - 1; /* batch axes and rows */
    int64_t steps[QN_PLAN_OPERANDS][QN_MAX_NDIM] = {{0}};
    const int64_t *rows[QN_PLAN_OPERANDS] = {NULL};
    for (int k = 0; k < n; k++) {
        /* Aligned with out's axes from the right.  The axes of b and of what
         * follows are batch axes; over the rows these stand still. */
        const qn_array *array = arrays[k];
        int first = k < 2 ? lead - 1 : lead - 2;
        int axis = k < 2 ? array->ndim - 2 : array->ndim - 3;
        for (; first >= 0 && axis >= 0; first--, axis--)
            if (array->shape[axis] > 1)
                steps[k][first] = array->strides[axis];
        rows[k] = steps[k];
    }
    qn_plan_make(&plan->outer, out->shape, lead, rows, n);
    bool shared = true;
    for (int k = 2; k < n; k++)
        shared = shared && (plan->outer.step[k] == 0 || plan->outer.run == 1);
    if (!shared)
        qn_plan_points(&plan->outer);
    plan->m = plan->outer.run;
    plan->a_row = plan->outer.step[1];
}
