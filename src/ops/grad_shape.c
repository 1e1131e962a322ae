/* grad_shape.c: gradients of operations that place elements: an element's
 * cotangent goes back to where the element came from. */
#include "params.h"
#include "rules.h"

#include "base/alloc.h"

qn_array *qn_zeros_like(qn_scope *c, qn_array *x)
{
    qn_array *made = NULL;
    return c->status
               ? NULL
               : qn_scope_hold(c, qn_op_zeros_like(&made, x, c->stream), &made);
}

qn_array *qn_broadcast_like(qn_scope *c, qn_array *value, qn_array *x)
{
    qn_array *made = NULL;
    return c->status
               ? NULL
               : qn_scope_hold(c,
                               qn_op_broadcast_like(&made, value, x, c->stream),
                               &made);
}

qn_array *qn_sum_to(qn_scope *c, qn_array *x, const int *shape, int ndim)
{
    if (c->status)
        return NULL;
    int axes[QN_MAX_NDIM], naxes = 0, missing = x->ndim - ndim;
    qn_dims dims = {.ndim = ndim};
    for (int i = 0; i < x->ndim; i++) {
        int to = i < missing ? 1 : shape[i - missing];
        if (i >= missing)
            dims.dim[i - missing] = to;
        if (i < missing || to != x->shape[i])
            axes[naxes++] = i;
    }
    if (naxes)
        x = reduce(c, QN_OP_SUM, x, axes, (size_t)naxes, true);
    return reshape(c, x, &dims);
}

/* ---- views ---- */

void qn_grad_broadcast(qn_grad *g)
{
    g->grad[0] = qn_sum_to(g->c, g->cot[0], g->in[0]->shape, g->in[0]->ndim);
}

void qn_grad_reshape(qn_grad *g)
{
    qn_dims dims = qn_dims_of(g->in[0]);
    g->grad[0] = reshape(g->c, g->cot[0], &dims);
}

void qn_grad_transpose(qn_grad *g)
{
    const qn_transpose_params *p = g->node->params;
    int back[QN_MAX_NDIM];
    for (int i = 0; i < g->in[0]->ndim; i++)
        back[p->axes[i]] = i;
    g->grad[0] = transpose(g->c, g->cot[0], back);
}

/* Each element of the view adds to its place in the row-major input. */
void qn_grad_as_strided(qn_grad *g)
{
    qn_scope *c = g->c;
    const qn_as_strided_params *p = g->node->params;
    const qn_array *y = g->out[0];
    if (!y->size)
        return;
    qn_array *place = scalar(c, (double)p->offset, QN_INT64);
    for (int i = 0; i < y->ndim; i++) {
        qn_dims line = {.ndim = y->ndim};
        for (int j = 0; j < y->ndim; j++)
            line.dim[j] = j == i ? y->shape[i] : 1;
        qn_array *step = scalar(c, (double)p->strides[i], QN_INT64);
        qn_array *count = arange(c, 0, y->shape[i], 1, QN_INT64);
        place = add(c, place, mul(c, reshape(c, count, &line), step));
    }
    qn_dims flat = {.ndim = 1};
    qn_status status =
        qn_dim_fit(&flat.dim[0], "as_strided", (int64_t)g->in[0]->size);
    if (status)
        qn_scope_fail(c, status);
    qn_array *zeros = full(c, &flat, 0, g->in[0]->dtype), *made = NULL;
    if (c->status)
        return;
    qn_scope_hold(c,
                  qn_op_scatter_axis(&made, zeros, flatten(c, place),
                                     flatten(c, g->cot[0]), 0, QN_COMBINE_SUM,
                                     c->stream),
                  &made);
    qn_dims dims = qn_dims_of(g->in[0]);
    g->grad[0] = reshape(c, made, &dims);
}

/* ---- slices ---- */

/* Where a slice of this shape ends, as the builders want it. */
static void stops(int *stop, const int *start, const int *strides,
                  const qn_array *part)
{
    for (int i = 0; i < part->ndim; i++) {
        int64_t after = start[i] + (int64_t)(part->shape[i] - 1) * strides[i];
        after += strides[i] > 0 ? 1 : -1;
        /* Before the first element: the end beyond all that can be counted
         * from the other end. */
        stop[i] = part->shape[i] == 0 ? start[i]
                  : after < 0         ? INT32_MIN
                                      : (int)after;
    }
}

static qn_array *slice(qn_scope *c, qn_array *x, const int *start,
                       const int *strides, const qn_array *part)
{
    int stop[QN_MAX_NDIM];
    stops(stop, start, strides, part);
    size_t n = (size_t)part->ndim;
    qn_array *made = NULL;
    return c->status ? NULL
                     : qn_scope_hold(c,
                                     qn_op_slice(&made, x, start, n, stop, n,
                                                 strides, n, c->stream),
                                     &made);
}

static qn_array *slice_update(qn_scope *c, qn_array *x, qn_array *update,
                              const int *start, const int *strides,
                              const qn_array *part, qn_combine combine)
{
    int stop[QN_MAX_NDIM];
    stops(stop, start, strides, part);
    size_t n = (size_t)part->ndim;
    qn_array *made = NULL;
    return c->status ? NULL
                     : qn_scope_hold(c,
                                     qn_op_slice_update(&made, x, update, start,
                                                        n, stop, n, strides, n,
                                                        combine, c->stream),
                                     &made);
}

void qn_grad_slice(qn_grad *g)
{
    const qn_slice_params *p = g->node->params;
    qn_array *zeros = qn_zeros_like(g->c, g->in[0]);
    g->grad[0] = slice_update(g->c, zeros, g->cot[0], p->start, p->strides,
                              g->out[0], QN_COMBINE_SET);
}

void qn_grad_slice_update(qn_grad *g)
{
    qn_scope *c = g->c;
    const qn_slice_update_params *p = g->node->params;
    qn_array *x = g->in[0], *update = g->in[1], *cot = g->cot[0];
    qn_array *part = slice(c, cot, p->start, p->strides, update);
    qn_array *to_x = cot, *to_update = part;
    qn_array *was = NULL, *kept = NULL, *zero = scalar_of(c, 0, x);
    if (p->combine != QN_COMBINE_SET && p->combine != QN_COMBINE_SUM)
        was = slice(c, x, p->start, p->strides, update);
    switch (p->combine) {
    case QN_COMBINE_SET:
        to_x = slice_update(c, cot, zero, p->start, p->strides, update,
                            QN_COMBINE_SET);
        break;
    case QN_COMBINE_SUM:
        break;
    case QN_COMBINE_PROD:
        to_x = slice_update(c, cot, unary(c, QN_OP_CONJUGATE, update), p->start,
                            p->strides, update, QN_COMBINE_PROD);
        to_update = mul(c, part, unary(c, QN_OP_CONJUGATE, was));
        break;
    case QN_COMBINE_MAX:
    case QN_COMBINE_MIN:
        kept = binary(c,
                      p->combine == QN_COMBINE_MAX ? QN_OP_GREATER_EQUAL
                                                   : QN_OP_LESS_EQUAL,
                      was, update);
        to_x = slice_update(c, cot, where(c, kept, part, zero), p->start,
                            p->strides, update, QN_COMBINE_SET);
        to_update = where(c, kept, zero, part);
        break;
    }
    g->grad[0] = to_x;
    g->grad[1] = to_update;
}

void qn_grad_slice_dynamic(qn_grad *g)
{
    qn_scope *c = g->c;
    const qn_slice_dynamic_params *p = g->node->params;
    qn_array *zeros = qn_zeros_like(c, g->in[0]), *made = NULL;
    if (!c->status)
        g->grad[0] = qn_scope_hold(
            c,
            qn_op_slice_update_dynamic(&made, zeros, g->cot[0], g->in[1],
                                       p->axes, (size_t)p->naxes, c->stream),
            &made);
}

void qn_grad_slice_update_dynamic(qn_grad *g)
{
    qn_scope *c = g->c;
    const qn_slice_dynamic_params *p = g->node->params;
    qn_array *update = g->in[1], *made = NULL;
    if (g->wanted[0]) {
        qn_array *zeros = qn_zeros_like(c, update);
        if (!c->status)
            g->grad[0] =
                qn_scope_hold(c,
                              qn_op_slice_update_dynamic(
                                  &made, g->cot[0], zeros, g->in[2], p->axes,
                                  (size_t)p->naxes, c->stream),
                              &made);
    }
    if (g->wanted[1] && !c->status)
        g->grad[1] = qn_scope_hold(
            c,
            qn_op_slice_dynamic(&made, g->cot[0], g->in[2], p->axes,
                                (size_t)p->naxes, update->shape,
                                (size_t)update->ndim, c->stream),
            &made);
}

/* ---- joining and borders ---- */

void qn_grad_concatenate(qn_grad *g)
{
    int axis = ((const qn_axis_params *)g->node->params)->axis, at = 0;
    for (int i = 0; i < g->node->ninputs; i++) {
        int end = at + g->in[i]->shape[axis];
        if (g->wanted[i])
            g->grad[i] = slice_axis(g->c, g->cot[0], axis, at, end);
        at = end;
    }
}

void qn_grad_pad(qn_grad *g)
{
    qn_scope *c = g->c;
    const qn_pad_params *p = g->node->params;
    int ones[QN_MAX_NDIM];
    for (int i = 0; i < QN_MAX_NDIM; i++)
        ones[i] = 1;
    qn_array *cot = g->cot[0];
    g->grad[0] = slice(c, cot, p->low, ones, g->in[0]);
    if (!g->wanted[1])
        return;
    qn_array *border = slice_update(c, cot, scalar_of(c, 0, cot), p->low, ones,
                                    g->in[0], QN_COMBINE_SET);
    border = reduce(c, QN_OP_SUM, border, NULL, QN_ALL_AXES, false);
    qn_dims dims = qn_dims_of(g->in[1]);
    g->grad[1] = reshape(c, border, &dims);
}
