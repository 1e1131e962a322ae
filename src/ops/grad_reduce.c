/* grad_reduce.c: gradients of reductions, scans and the softmax family. */
#include "params.h"
#include "rules.h"

/* ---- reductions ---- */

/* Something in the shape of the output, seen with the input's axes. */
static qn_array *spread(const qn_grad *g, qn_array *y)
{
    const qn_reduce_params *p = g->node->params;
    qn_dims ones = qn_dims_of(g->in[0]);
    for (int i = 0; i < p->naxes; i++)
        ones.dim[p->axes[i]] = 1;
    return reshape(g->c, y, &ones);
}

void qn_grad_sum(qn_grad *g)
{
    g->grad[0] = qn_broadcast_like(g->c, spread(g, g->cot[0]), g->in[0]);
}

/* Equals share the cotangent. */
void qn_grad_extremum(qn_grad *g)
{
    qn_scope *c = g->c;
    const qn_reduce_params *p = g->node->params;
    qn_array *x = g->in[0];
    qn_array *hits = binary(c, QN_OP_EQUAL, x, spread(g, g->out[0]));
    hits = cast(c, hits, x->dtype);
    qn_array *count =
        reduce(c, QN_OP_SUM, hits, p->axes, (size_t)p->naxes, true);
    qn_array *part = divide(c, spread(g, g->cot[0]), count);
    g->grad[0] = mul(c, hits, part);
}

/* The product of the others, from both sides: right where one is 0. */
void qn_grad_prod(qn_grad *g)
{
    qn_scope *c = g->c;
    const qn_reduce_params *p = g->node->params;
    qn_array *x = g->in[0];
    int order[QN_MAX_NDIM], back[QN_MAX_NDIM], kept = 0, next = 0;
    for (int i = 0; i < x->ndim; i++)
        if (next < p->naxes && p->axes[next] == i)
            next++;
        else
            order[kept++] = i;
    for (int i = 0; i < p->naxes; i++)
        order[kept + i] = p->axes[i];
    qn_dims moved = {.ndim = x->ndim}, flat = {.ndim = kept + 1};
    int64_t length = 1;
    for (int i = 0; i < x->ndim; i++) {
        back[order[i]] = i;
        moved.dim[i] = x->shape[order[i]];
        if (i < kept)
            flat.dim[i] = moved.dim[i];
        else
            length *= moved.dim[i]; /* of an array that exists: fits */
    }
    qn_status status = qn_dim_fit(&flat.dim[kept], "prod", length);
    if (status) {
        qn_scope_fail(c, status);
        return;
    }
    qn_array *line = reshape(c, transpose(c, x, order), &flat);
    qn_array *before = NULL, *after = NULL;
    if (!c->status)
        qn_scope_hold(c,
                      qn_op_scan(&before, QN_OP_CUMPROD, line, kept, false,
                                 false, c->stream),
                      &before);
    if (!c->status)
        qn_scope_hold(c,
                      qn_op_scan(&after, QN_OP_CUMPROD, line, kept, true, false,
                                 c->stream),
                      &after);
    qn_array *others = reshape(c, mul(c, before, after), &moved);
    others = c->status ? NULL : transpose(c, others, back);
    others = unary(c, QN_OP_CONJUGATE, others);
    g->grad[0] = mul(c, others, spread(g, g->cot[0]));
}

/* ---- scans ---- */

static qn_array *scan(qn_scope *c, qn_op op, qn_array *x, int axis,
                      bool reverse, bool inclusive)
{
    qn_array *made = NULL;
    return c->status ? NULL
                     : qn_scope_hold(c,
                                     qn_op_scan(&made, op, x, axis, reverse,
                                                inclusive, c->stream),
                                     &made);
}

void qn_grad_cumsum(qn_grad *g)
{
    const qn_scan_params *p = g->node->params;
    g->grad[0] =
        scan(g->c, QN_OP_CUMSUM, g->cot[0], p->axis, !p->reverse, p->inclusive);
}

/* An element's factor in each product is that product without it.  Up to the
 * first 0 of a line that is y / x.  For the first 0 itself the products are
 * formed with 1 in its place; all later ones are 0 whatever comes. */
void qn_grad_cumprod(qn_grad *g)
{
    qn_scope *c = g->c;
    const qn_scan_params *p = g->node->params;
    qn_array *x = g->in[0], *y = g->out[0], *cot = g->cot[0];
    qn_array *one = scalar_of(c, 1, x), *zero = scalar_of(c, 0, x);
    qn_array *is_zero = binary(c, QN_OP_EQUAL, x, zero);
    qn_array *zeros = scan(c, QN_OP_CUMSUM, cast(c, is_zero, QN_INT32), p->axis,
                           p->reverse, true);
    qn_array *before = binary(c, QN_OP_EQUAL, zeros, scalar(c, 0, QN_INT32));
    qn_array *first =
        binary(c, QN_OP_LOGICAL_AND, is_zero,
               binary(c, QN_OP_EQUAL, zeros, scalar(c, 1, QN_INT32)));
    qn_array *filled = where(c, first, one, x);
    qn_array *without =
        scan(c, QN_OP_CUMPROD, filled, p->axis, p->reverse, p->inclusive);
    qn_array *weighed = mul(c, cot, unary(c, QN_OP_CONJUGATE, y));
    qn_array *at_zero = mul(c, cot, unary(c, QN_OP_CONJUGATE, without));
    weighed =
        scan(c, QN_OP_CUMSUM, weighed, p->axis, !p->reverse, p->inclusive);
    at_zero =
        scan(c, QN_OP_CUMSUM, at_zero, p->axis, !p->reverse, p->inclusive);
    qn_array *divisor = unary(c, QN_OP_CONJUGATE, where(c, is_zero, one, x));
    g->grad[0] = where(c, before, divide(c, weighed, divisor),
                       where(c, first, at_zero, zero));
}

/* Each cotangent goes to where the running extremum was found: the last of
 * equals, whose place is the running maximum of such places. */
void qn_grad_cumextremum(qn_grad *g)
{
    qn_scope *c = g->c;
    const qn_scan_params *p = g->node->params;
    qn_array *x = g->in[0], *cot = g->cot[0];
    int n = x->shape[p->axis];
    if (!x->size)
        return;
    qn_array *best = scan(c, (qn_op)g->node->op, x, p->axis, p->reverse, true);
    qn_dims line = {.ndim = x->ndim};
    for (int i = 0; i < x->ndim; i++)
        line.dim[i] = i == p->axis ? n : 1;
    qn_array *place = reshape(c, arange(c, 0, n, 1, QN_INT32), &line);
    qn_array *none = scalar(c, p->reverse ? n - 1 : 0, QN_INT32);
    qn_array *index = where(c, binary(c, QN_OP_EQUAL, x, best), place, none);
    index = scan(c, p->reverse ? QN_OP_CUMMIN : QN_OP_CUMMAX, index, p->axis,
                 p->reverse, true);
    if (!p->inclusive) {
        /* Results lag by one; the first is no element's. */
        int lag = p->reverse ? 0 : 1;
        if (c->status)
            return;
        cot = slice_axis(c, cot, p->axis, lag, n - 1 + lag);
        index = slice_axis(c, index, p->axis, 1 - lag, n - lag);
    }
    qn_array *made = NULL;
    qn_array *zeros = qn_zeros_like(c, x);
    if (!c->status)
        qn_scope_hold(c,
                      qn_op_scatter_axis(&made, zeros, index, cot, p->axis,
                                         QN_COMBINE_SUM, c->stream),
                      &made);
    g->grad[0] = made;
}

/* y[j] = log of the sum of exp(x[i]) over i up to j: x[i] has the share
 * exp(x[i] - y[j]) in it.  All pairs are written out, for the shares are
 * in range while exp of either alone may not be. */
void qn_grad_logcumsumexp(qn_grad *g)
{
    qn_scope *c = g->c;
    const qn_scan_params *p = g->node->params;
    qn_array *x = g->in[0];
    int n = x->shape[p->axis], last = x->ndim;
    if (!x->size)
        return;
    /* Axes: the others, i at the end of x, j at the end of y and cot. */
    qn_array *xs = expand(c, moveaxis(c, x, p->axis, -1), last);
    qn_array *ys = expand(c, moveaxis(c, g->out[0], p->axis, -1), last - 1);
    qn_array *cots = expand(c, moveaxis(c, g->cot[0], p->axis, -1), last - 1);
    qn_array *i = expand(c, arange(c, 0, n, 1, QN_INT32), 1);
    qn_array *j = arange(c, 0, n, 1, QN_INT32);
    qn_op before = p->reverse
                       ? (p->inclusive ? QN_OP_GREATER_EQUAL : QN_OP_GREATER)
                       : (p->inclusive ? QN_OP_LESS_EQUAL : QN_OP_LESS);
    qn_array *counts = binary(c, before, i, j);
    qn_array *zero = scalar_of(c, 0, x);
    /* exp of what does not count may overflow and must not be seen. */
    qn_array *share =
        unary(c, QN_OP_EXP, where(c, counts, sub(c, xs, ys), zero));
    share = unary(c, QN_OP_CONJUGATE, share);
    qn_array *parts = where(c, counts, mul(c, cots, share), zero);
    qn_array *sums = reduce(c, QN_OP_SUM, parts, &last, 1, false);
    g->grad[0] = c->status ? NULL : moveaxis(c, sums, -1, p->axis);
}

/* ---- the softmax family ---- */

void qn_grad_softmax(qn_grad *g)
{
    qn_scope *c = g->c;
    int last = -1;
    qn_array *part = mul(c, g->cot[0], g->out[0]);
    qn_array *sum = reduce(c, QN_OP_SUM, part, &last, 1, true);
    g->grad[0] = sub(c, part, mul(c, g->out[0], sum));
}

void qn_grad_logsumexp(qn_grad *g)
{
    qn_scope *c = g->c;
    int last = -1;
    qn_array *shares = NULL;
    if (!c->status)
        qn_scope_hold(
            c, qn_op_softmax(&shares, g->in[0], &last, 1, true, c->stream),
            &shares);
    g->grad[0] = mul(c, g->cot[0], shares);
}
