/* grad_index.c: gradients of picking and replacing at indices, and of order:
 * what was picked gives its cotangent back, what was replaced has none. */
#include "params.h"
#include "rules.h"

#include "base/alloc.h"

/* ---- single elements ---- */

static qn_array *put_along(qn_scope *c, qn_array *x, qn_array *index,
                           qn_array *values, int axis, qn_combine combine)
{
    qn_array *made = NULL;
    return c->status
               ? NULL
               : qn_scope_hold(c,
                               qn_op_scatter_axis(&made, x, index, values, axis,
                                                  combine, c->stream),
                               &made);
}

static qn_array *take_along(qn_scope *c, qn_array *x, qn_array *index, int axis)
{
    qn_array *made = NULL;
    return c->status
               ? NULL
               : qn_scope_hold(
                     c, qn_op_take_along_axis(&made, x, index, axis, c->stream),
                     &made);
}

void qn_grad_gather_axis(qn_grad *g)
{
    int axis = ((const qn_axis_params *)g->node->params)->axis;
    g->grad[0] = put_along(g->c, qn_zeros_like(g->c, g->in[0]), g->in[1],
                           g->cot[0], axis, QN_COMBINE_SUM);
}

/* Numbers 0, 1, ... in the shape of x. */
static qn_array *numbered(qn_scope *c, const qn_array *x)
{
    qn_dims dims = qn_dims_of(x);
    return reshape(c, arange(c, 0, (double)x->size, 1, QN_INT64), &dims);
}

void qn_grad_scatter_axis(qn_grad *g)
{
    qn_scope *c = g->c;
    const qn_scatter_axis_params *p = g->node->params;
    qn_array *index = g->in[1], *values = g->in[2], *cot = g->cot[0];
    qn_array *picked = take_along(c, cot, index, p->axis);
    g->grad[0] = cot;
    g->grad[2] = picked;
    if (p->combine == QN_COMBINE_SUM)
        return;
    g->grad[0] =
        put_along(c, cot, index, scalar_of(c, 0, cot), p->axis, QN_COMBINE_SET);
    if (!g->wanted[2])
        return;
    /* Of several values for one place only the last is there. */
    qn_array *ids = numbered(c, values);
    qn_array *none = qn_zeros_like(c, g->in[0]);
    qn_array *last = put_along(c, cast(c, none, QN_INT64), index, ids, p->axis,
                               QN_COMBINE_SET);
    last = take_along(c, last, index, p->axis);
    g->grad[2] = where(c, binary(c, QN_OP_EQUAL, last, ids), picked,
                       scalar_of(c, 0, cot));
}

/* ---- slices ---- */

static qn_array *scatter(const qn_grad *g, qn_array *x, int nindices,
                         const int *axes, qn_array *updates, qn_combine combine)
{
    qn_array *made = NULL;
    size_t n = (size_t)nindices;
    return g->c->status
               ? NULL
               : qn_scope_hold(g->c,
                               qn_op_scatter(&made, x, g->in + 1, n, updates,
                                             axes, n, combine, g->c->stream),
                               &made);
}

static qn_array *gather(const qn_grad *g, qn_array *x, const qn_array *updates)
{
    const qn_scatter_params *p = g->node->params;
    qn_array *made = NULL;
    size_t n = (size_t)p->naxes;
    if (g->c->status)
        return NULL;
    /* Updates have the indices' shape, then a slice's. */
    const int *sizes = updates->shape + (updates->ndim - x->ndim);
    return qn_scope_hold(g->c,
                         qn_op_gather(&made, x, g->in + 1, n, p->axes, n, sizes,
                                      (size_t)x->ndim, g->c->stream),
                         &made);
}

void qn_grad_gather(qn_grad *g)
{
    const qn_gather_params *p = g->node->params;
    g->grad[0] = scatter(g, qn_zeros_like(g->c, g->in[0]), p->naxes, p->axes,
                         g->cot[0], QN_COMBINE_SUM);
}

static qn_array *scatter_like(const qn_grad *g, qn_array *x, qn_array *updates,
                              qn_combine combine)
{
    const qn_scatter_params *p = g->node->params;
    return scatter(g, x, p->naxes, p->axes, updates, combine);
}

void qn_grad_scatter(qn_grad *g)
{
    qn_scope *c = g->c;
    const qn_scatter_params *p = g->node->params;
    int at = 1 + p->naxes;
    qn_array *x = g->in[0], *updates = g->in[at], *y = g->out[0],
             *cot = g->cot[0];
    qn_array *zero = scalar_of(c, 0, cot), *picked = NULL;
    if (g->wanted[at])
        picked = gather(g, cot, updates);
    switch (p->combine) {
    case QN_COMBINE_SUM:
        g->grad[0] = cot;
        g->grad[at] = picked;
        break;
    case QN_COMBINE_SET:
        g->grad[0] =
            scatter_like(g, cot, qn_zeros_like(c, updates), QN_COMBINE_SET);
        if (!g->wanted[at])
            break;
        {
            /* Of several updates of one place only the last is there. */
            qn_array *ids = numbered(c, updates);
            qn_array *none = cast(c, qn_zeros_like(c, x), QN_INT64);
            qn_array *last = scatter_like(g, none, ids, QN_COMBINE_SET);
            last = gather(g, last, updates);
            g->grad[at] =
                where(c, binary(c, QN_OP_EQUAL, last, ids), picked, zero);
        }
        break;
    case QN_COMBINE_PROD:
        g->grad[0] = scatter_like(g, cot, unary(c, QN_OP_CONJUGATE, updates),
                                  QN_COMBINE_PROD);
        if (!g->wanted[at])
            break;
        {
            /* The product without this factor; where the factor is 0 it is
             * taken to be the only one of its place. */
            qn_array *whole = gather(g, y, updates);
            qn_array *flat = binary(c, QN_OP_EQUAL, updates, zero);
            qn_array *divisor = where(c, flat, scalar_of(c, 1, cot), updates);
            qn_array *others = where(c, flat, gather(g, x, updates),
                                     divide(c, whole, divisor));
            g->grad[at] = mul(c, picked, unary(c, QN_OP_CONJUGATE, others));
        }
        break;
    case QN_COMBINE_MAX:
    case QN_COMBINE_MIN:
        g->grad[0] = where(c, binary(c, QN_OP_EQUAL, x, y), cot, zero);
        if (g->wanted[at])
            g->grad[at] =
                where(c, binary(c, QN_OP_EQUAL, updates, gather(g, y, updates)),
                      picked, zero);
        break;
    }
}

/* ---- order ---- */

static void reordered(qn_grad *g, qn_status status, qn_array *const *order,
                      int axis)
{
    qn_array *index = qn_scope_hold(g->c, status, order);
    /* Each place is there once; a sum is easier to turn around than a set. */
    g->grad[0] = put_along(g->c, qn_zeros_like(g->c, g->in[0]), index,
                           g->cot[0], axis, QN_COMBINE_SUM);
}

void qn_grad_sort(qn_grad *g)
{
    int axis = ((const qn_axis_params *)g->node->params)->axis;
    qn_array *order = NULL;
    if (!g->c->status)
        reordered(
            g, qn_op_sort(&order, QN_OP_ARGSORT, g->in[0], axis, g->c->stream),
            &order, axis);
}

/* The same order as the partition's: backends make both of one. */
void qn_grad_partition(qn_grad *g)
{
    const qn_partition_params *p = g->node->params;
    qn_array *order = NULL;
    if (!g->c->status)
        reordered(g,
                  qn_op_partition(&order, QN_OP_ARGPARTITION, g->in[0], p->kth,
                                  p->axis, g->c->stream),
                  &order, p->axis);
}

/* ---- where a mask is true ---- */

void qn_grad_masked_scatter(qn_grad *g)
{
    qn_scope *c = g->c;
    qn_array *mask = g->in[1], *cot = g->cot[0], *made = NULL;
    qn_array *none = scalar_of(c, 0, cot);
    if (g->wanted[0])
        g->grad[0] = where(c, mask, none, cot);
    if (!g->wanted[2] || !g->in[2]->size)
        return;
    /* Element i of the values is where the mask has been true i times before;
     * elsewhere a zero is added to the first. */
    int axis = 0;
    qn_array *line = flatten(c, mask), *taken = flatten(c, cot);
    if (c->status)
        return;
    qn_array *count = cast(c, line, QN_INT64);
    if (!c->status)
        qn_scope_hold(
            c,
            qn_op_scan(&made, QN_OP_CUMSUM, count, 0, false, true, c->stream),
            &made);
    qn_array *place = c->status ? NULL : sub(c, made, scalar(c, 1, QN_INT64));
    place = where(c, line, place, scalar(c, 0, QN_INT64));
    taken = expand(c, where(c, line, taken, none), 1);
    qn_array *zeros = qn_zeros_like(c, g->in[2]);
    if (!c->status)
        g->grad[2] =
            qn_scope_hold(c,
                          qn_op_scatter(&made, zeros, &place, 1, taken, &axis,
                                        1, QN_COMBINE_SUM, c->stream),
                          &made);
}
