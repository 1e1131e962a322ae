/* grad_fast.c: gradients of norms, rotary embedding and attention.
 *
 * Half types are worked on in float32, as in the operations themselves. */
#include "params.h"
#include "rules.h"

#include <float.h>

static qn_dtype work_type(qn_dtype d)
{
    return d == QN_FLOAT64 ? QN_FLOAT64 : QN_FLOAT32;
}

static qn_array *mean_last(qn_scope *c, qn_array *x)
{
    int last = -1;
    if (c->status)
        return NULL;
    int n = x->shape[x->ndim - 1];
    return divide(c, reduce(c, QN_OP_SUM, x, &last, 1, true),
                  scalar_of(c, n, x));
}

/* Sums everything but the last axis. */
static qn_array *sum_rows(qn_scope *c, qn_array *x)
{
    return c->status ? NULL : qn_sum_to(c, x, &x->shape[x->ndim - 1], 1);
}

/* ---- norms ---- */

void qn_grad_rms_norm(qn_grad *g)
{
    qn_scope *c = g->c;
    const qn_norm_params *p = g->node->params;
    qn_dtype type = work_type(g->in[0]->dtype);
    if (!g->in[0]->size)
        return;
    qn_array *x = cast(c, g->in[0], type), *cot = cast(c, g->cot[0], type);
    qn_array *spread = add(c, mean_last(c, unary(c, QN_OP_SQUARE, x)),
                           scalar(c, (double)p->eps, type));
    qn_array *unit = mul(c, x, unary(c, QN_OP_RSQRT, spread));
    qn_array *inner = cot;
    if (p->has_weight)
        inner = mul(c, cot, cast(c, g->in[1], type));
    if (g->wanted[0]) {
        /* What changes the length of x is taken out. */
        qn_array *along = mul(c, unit, mean_last(c, mul(c, inner, unit)));
        g->grad[0] =
            mul(c, sub(c, inner, along), unary(c, QN_OP_RSQRT, spread));
    }
    if (p->has_weight && g->wanted[1])
        g->grad[1] = sum_rows(c, mul(c, cot, unit));
}

void qn_grad_layer_norm(qn_grad *g)
{
    qn_scope *c = g->c;
    const qn_norm_params *p = g->node->params;
    int bias = 1 + p->has_weight;
    qn_dtype type = work_type(g->in[0]->dtype);
    if (!g->in[0]->size)
        return;
    qn_array *x = cast(c, g->in[0], type), *cot = cast(c, g->cot[0], type);
    qn_array *centred = sub(c, x, mean_last(c, x));
    qn_array *spread = add(c, mean_last(c, unary(c, QN_OP_SQUARE, centred)),
                           scalar(c, (double)p->eps, type));
    qn_array *scale = unary(c, QN_OP_RSQRT, spread);
    qn_array *unit = mul(c, centred, scale);
    qn_array *inner = cot;
    if (p->has_weight)
        inner = mul(c, cot, cast(c, g->in[1], type));
    if (g->wanted[0]) {
        /* What changes the mean or the length is taken out. */
        qn_array *along = mul(c, unit, mean_last(c, mul(c, inner, unit)));
        qn_array *across = sub(c, sub(c, inner, mean_last(c, inner)), along);
        g->grad[0] = mul(c, across, scale);
    }
    if (p->has_weight && g->wanted[1])
        g->grad[1] = sum_rows(c, mul(c, cot, unit));
    if (p->has_bias && g->wanted[bias])
        g->grad[bias] = sum_rows(c, cot);
}

/* ---- rotary embedding ---- */

/* One element of each pair that turns together. */
static qn_array *half_of(qn_scope *c, qn_array *x, const qn_rope_params *p,
                         int which)
{
    if (c->status)
        return NULL;
    int last = x->ndim - 1, n = p->dims / 2;
    if (!p->traditional)
        return slice_axis(c, x, last, which * n, (which + 1) * n);
    qn_array *pairs = slice_axis(c, x, last, 0, p->dims);
    qn_dims dims = qn_dims_of(x);
    dims.dim[last] = n;
    qn_status status = qn_dims_insert(&dims, "rope", last + 1, 2);
    if (status)
        qn_scope_fail(c, status);
    pairs = reshape(c, pairs, &dims);
    return squeeze(
        c, c->status ? NULL : slice_axis(c, pairs, last + 1, which, which + 1),
        -1);
}

/* Positions, over the axes of x with 1 for the last. */
static qn_array *positions(const qn_grad *g, const qn_rope_params *p)
{
    qn_scope *c = g->c;
    const qn_array *x = g->in[0];
    int rows = x->shape[x->ndim - 2];
    qn_array *t = expand(c, arange(c, 0, rows, 1, QN_FLOAT32), 1);
    if (!p->has_offset_array)
        return add(c, t, scalar(c, p->offset, QN_FLOAT32));
    qn_dims line = {.ndim = x->ndim};
    for (int i = 0; i < x->ndim; i++)
        line.dim[i] = i || g->in[1]->size == 1 ? 1 : x->shape[0];
    return add(c, t, reshape(c, cast(c, g->in[1], QN_FLOAT32), &line));
}

/* An angle is position * scale / frequency; what it turns moves across
 * itself. */
static qn_array *by_frequency(const qn_grad *g, const qn_rope_params *p,
                              qn_array *freqs)
{
    qn_scope *c = g->c;
    qn_array *y = g->out[0], *cot = g->cot[0];
    qn_array *turn = sub(c, mul(c, half_of(c, cot, p, 1), half_of(c, y, p, 0)),
                         mul(c, half_of(c, cot, p, 0), half_of(c, y, p, 1)));
    turn = mul(c, turn, positions(g, p));
    if (c->status)
        return NULL;
    turn = qn_sum_to(c, turn, freqs->shape, 1);
    qn_array *slope = divide(c, scalar(c, -(double)p->scale, QN_FLOAT32),
                             unary(c, QN_OP_SQUARE, freqs));
    return mul(c, turn, slope);
}

/* By x: the rotation back. */
void qn_grad_rope(qn_grad *g)
{
    qn_scope *c = g->c;
    const qn_rope_params *p = g->node->params;
    int freqs = 1 + p->has_offset_array;
    qn_array *made = NULL;
    if (p->has_freqs && g->wanted[freqs])
        g->grad[freqs] = by_frequency(g, p, g->in[freqs]);
    if (!c->status && g->wanted[0])
        g->grad[0] = qn_scope_hold(
            c,
            qn_op_rope(&made, g->cot[0], p->dims, p->traditional,
                       p->has_freqs ? NULL : &p->base, -p->scale, p->offset,
                       p->has_offset_array ? g->in[1] : NULL,
                       p->has_freqs ? g->in[freqs] : NULL, c->stream),
            &made);
}

/* ---- attention ---- */

/* Query heads that share keys become rows of one product: [B, Hkv, R Tq, .]. */
static qn_array *grouped(qn_scope *c, qn_array *x, const qn_array *k)
{
    if (c->status)
        return NULL;
    int repeat = x->shape[1] / k->shape[1];
    qn_dims dims = {.ndim = 4, .dim = {x->shape[0], k->shape[1]}};
    dims.dim[3] = x->shape[3];
    qn_status status = qn_dim_fit(&dims.dim[2], "scaled_dot_product_attention",
                                  (int64_t)repeat * x->shape[2]);
    if (status)
        qn_scope_fail(c, status);
    return reshape(c, x, &dims);
}

static qn_array *flip(qn_scope *c, qn_array *x)
{
    return c->status ? NULL : transpose(c, x, (const int[]){0, 1, 3, 2});
}

/* Where query i sees key j; NULL: everywhere. */
static qn_array *visible(qn_grad *g, const qn_sdpa_params *p)
{
    qn_scope *c = g->c;
    if (p->has_mask)
        return g->in[3]->dtype == QN_BOOL ? g->in[3] : NULL;
    if (!p->causal)
        return NULL;
    int queries = g->in[0]->shape[2], keys = g->in[1]->shape[2];
    qn_array *last = arange(c, keys - queries, keys, 1, QN_INT32);
    return binary(c, QN_OP_LESS_EQUAL, arange(c, 0, keys, 1, QN_INT32),
                  expand(c, last, 1));
}

static double lowest_of(qn_dtype dtype)
{
    return dtype == QN_FLOAT64    ? -DBL_MAX
           : dtype == QN_FLOAT16  ? -65504
           : dtype == QN_BFLOAT16 ? -0x1.fep127
                                  : -(double)FLT_MAX;
}

/* The weights [B, H, Tq, Tk] of the keys, and those of the sinks, [B, H, Tq,
 * 1], if there are any. */
static qn_array *weights(qn_grad *g, const qn_sdpa_params *p, qn_array *scores,
                         qn_array *seen, qn_array **sink_weights)
{
    qn_scope *c = g->c;
    int last = -1;
    qn_array *made = NULL, *total = NULL;
    if (seen)
        scores = where(c, seen, scores,
                       scalar_of(c, lowest_of(g->out[0]->dtype), scores));
    else if (p->has_mask && !c->status)
        scores = add(c, scores, cast(c, g->in[3], scores->dtype));
    if (c->status)
        return NULL;
    if (!p->has_sinks)
        return qn_scope_hold(
            c, qn_op_softmax(&made, scores, &last, 1, true, c->stream), &made);
    qn_scope_hold(c, qn_op_logsumexp(&total, scores, &last, 1, true, c->stream),
                  &total);
    qn_dims heads = {.ndim = 4, .dim = {1, scores->shape[1], 1, 1}};
    qn_array *sinks = cast(c, g->in[3 + p->has_mask], scores->dtype);
    sinks = reshape(c, sinks, &heads);
    total = binary(c, QN_OP_LOGADDEXP, total, sinks);
    *sink_weights = unary(c, QN_OP_EXP, sub(c, sinks, total));
    return unary(c, QN_OP_EXP, sub(c, scores, total));
}

void qn_grad_sdpa(qn_grad *g)
{
    qn_scope *c = g->c;
    const qn_sdpa_params *p = g->node->params;
    if (!g->in[1]->size || !g->out[0]->size)
        return;
    qn_dtype type = work_type(g->out[0]->dtype);
    qn_array *q = cast(c, g->in[0], type), *k = cast(c, g->in[1], type),
             *v = cast(c, g->in[2], type), *cot = cast(c, g->cot[0], type);
    qn_array *scale = scalar(c, (double)p->scale, type);
    if (c->status)
        return;
    qn_dims dims = {
        .ndim = 4, .dim = {q->shape[0], q->shape[1], q->shape[2], k->shape[2]}};
    qn_array *rows = grouped(c, q, k), *cots = grouped(c, cot, k);
    qn_array *scores =
        mul(c, reshape(c, matmul(c, rows, flip(c, k)), &dims), scale);
    qn_array *seen = visible(g, p), *sink_weights = NULL;
    qn_array *weight = weights(g, p, scores, seen, &sink_weights);
    if (g->wanted[2])
        g->grad[2] = matmul(c, flip(c, grouped(c, weight, k)), cots);

    qn_array *slope = reshape(c, matmul(c, cots, flip(c, v)), &dims);
    int last = -1;
    qn_array *level =
        reduce(c, QN_OP_SUM, mul(c, slope, weight), &last, 1, true);
    slope = mul(c, weight, sub(c, slope, level));
    if (seen && !c->status)
        slope = where(c, seen, slope, scalar(c, 0, type));
    if (p->has_mask && !seen)
        g->grad[3] = slope;
    if (p->has_sinks && g->wanted[3 + p->has_mask]) {
        qn_array *drop = unary(c, QN_OP_NEGATIVE, mul(c, sink_weights, level));
        g->grad[3 + p->has_mask] =
            reduce(c, QN_OP_SUM, drop, (const int[]){0, 2, 3}, 3, false);
    }
    slope = grouped(c, mul(c, slope, scale), k);
    qn_dims q_dims = qn_dims_of(g->in[0]);
    if (g->wanted[0])
        g->grad[0] = reshape(c, matmul(c, slope, k), &q_dims);
    if (g->wanted[1])
        g->grad[1] = matmul(c, flip(c, slope), rows);
}
