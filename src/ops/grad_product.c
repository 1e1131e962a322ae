/* grad_product.c: gradients of matrix products, packed ones among them. */
#include "quant.h"
#include "rules.h"

/* The last two axes exchanged, conjugated. */
static qn_array *adjoint(qn_scope *c, qn_array *x)
{
    qn_array *made = NULL;
    if (c->status)
        return NULL;
    qn_scope_hold(c, qn_op_swapaxes(&made, x, -1, -2, c->stream), &made);
    return unary(c, QN_OP_CONJUGATE, made);
}

/* x seen as one matrix: all axes but the last are rows. */
static qn_array *as_rows(qn_scope *c, qn_array *x)
{
    qn_array *made = NULL;
    return c->status || x->ndim == 2
               ? x
               : qn_scope_hold(c, qn_op_flatten(&made, x, 0, -2, c->stream),
                               &made);
}

void qn_grad_matmul(qn_grad *g)
{
    qn_scope *c = g->c;
    qn_array *a = g->in[0], *b = g->in[1], *cot = g->cot[0];
    if (g->wanted[0])
        g->grad[0] = matmul(c, cot, adjoint(c, b));
    if (!g->wanted[1])
        return;
    /* A single matrix on the right meets the rows of every product. */
    if (b->ndim == 2 && a->ndim > 2) {
        a = as_rows(c, a);
        cot = as_rows(c, cot);
    }
    g->grad[1] = matmul(c, adjoint(c, a), cot);
}

/* ---- packed matrices ---- */

/* Something of the unpacked matrix's shape, [..., rows, columns], summed over
 * the groups of its columns. */
static qn_array *sum_groups(qn_scope *c, qn_array *x, const qn_array *groups)
{
    if (c->status)
        return NULL;
    qn_dims dims = qn_dims_of(groups);
    int last = dims.ndim;
    qn_status status =
        qn_dims_insert(&dims, "dequantize", last,
                       x->shape[last - 1] / groups->shape[last - 1]);
    if (status) {
        qn_scope_fail(c, status);
        return NULL;
    }
    return reduce(c, QN_OP_SUM, reshape(c, x, &dims), &last, 1, false);
}

/* The codes of an affine matrix as numbers. */
static qn_array *codes(qn_scope *c, const qn_quant_params *p, qn_array *w,
                       const qn_array *scales)
{
    qn_dims dims = qn_dims_of(scales);
    qn_dtype wide = QN_FLOAT32;
    qn_array *one = full(c, &dims, 1, wide), *none = full(c, &dims, 0, wide);
    qn_array *made = NULL;
    return c->status
               ? NULL
               : qn_scope_hold(c,
                               qn_op_dequantize(
                                   &made, w, one, none, &p->group_size,
                                   &p->bits, "affine", NULL, &wide, c->stream),
                               &made);
}

/* From the gradient of the unpacked matrix, a code times scale plus bias, to
 * those of scales and biases at inputs i and i + 1. */
static void through_groups(qn_grad *g, const qn_quant_params *p, int i,
                           qn_array *matrix)
{
    qn_scope *c = g->c;
    matrix = cast(c, matrix, QN_FLOAT32);
    if (g->wanted[i])
        g->grad[i] = sum_groups(
            c, mul(c, matrix, codes(c, p, g->in[i - 1], g->in[i])), g->in[i]);
    if (g->wanted[i + 1])
        g->grad[i + 1] = sum_groups(c, matrix, g->in[i]);
}

/* Packed numbers, and the scales of other modes, are codes: they have no
 * gradient. */
static bool only_affine(const qn_quant_params *p)
{
    return p->mode == QN_QUANT_AFFINE;
}

void qn_grad_dequantize(qn_grad *g)
{
    const qn_quant_params *p = g->node->params;
    if (only_affine(p))
        through_groups(g, p, 1, g->cot[0]);
}

void qn_grad_quantized_matmul(qn_grad *g)
{
    qn_scope *c = g->c;
    const qn_quant_params *p = g->node->params;
    bool affine = p->mode == QN_QUANT_AFFINE;
    qn_array *x = g->in[0], *w = g->in[1], *cot = g->cot[0], *made = NULL;
    /* Products with the same matrix, the other way round.  The builder that
     * keeps x's type also takes groups of 16. */
    if (g->wanted[0] && !c->status) {
        qn_array *biases = affine ? g->in[3] : NULL;
        qn_status status = qn_op_quantized_product(
            &made, cot, w, g->in[2], biases, !p->transpose, p->group_size,
            p->bits, qn_packed_mode_name(p->mode), true, c->stream);
        g->grad[0] = qn_scope_hold(c, status, &made);
    }
    bool rest = g->wanted[2] || (affine && g->wanted[3]);
    if (!rest || !only_affine(p))
        return;
    qn_array *left = p->transpose ? cot : x, *right = p->transpose ? x : cot;
    if (w->ndim == 2) {
        left = as_rows(c, left);
        right = as_rows(c, right);
    }
    qn_array *matrix = matmul(c, adjoint(c, cast(c, left, QN_FLOAT32)),
                              cast(c, right, QN_FLOAT32));
    through_groups(g, p, 2, matrix);
}

/* The gradient of the chosen matrices, unpacked, in float32. */
static qn_array *chosen_matrices(qn_grad *g, const qn_quant_params *p,
                                 qn_array *ix, qn_array *iw)
{
    qn_scope *c = g->c;
    qn_array *x = cast(c, g->in[0], QN_FLOAT32), *made = NULL;
    qn_array *cot = cast(c, g->cot[0], QN_FLOAT32);
    qn_status status = c->status;
    qn_array *left = adjoint(c, p->transpose ? cot : x);
    if (!c->status)
        status = p->transpose
                     ? qn_op_gather_mm(&made, left, x, NULL, ix, c->stream)
                     : qn_op_gather_mm(&made, left, cot, ix, NULL, c->stream);
    qn_array *y = qn_scope_hold(c, status, &made);
    qn_dims dims = qn_dims_of(g->in[1]);
    if (c->status)
        return NULL;
    dims.dim[dims.ndim - 1] = y->shape[y->ndim - 1];
    return qn_sum_chosen(c, y, iw, &dims);
}

void qn_grad_gather_qmm(qn_grad *g)
{
    qn_scope *c = g->c;
    const qn_quant_params *p = g->node->params;
    bool affine = p->mode == QN_QUANT_AFFINE;
    qn_array *ix = g->in[3 + affine], *iw = g->in[4 + affine], *made = NULL;
    if (g->wanted[0] && !c->status) {
        qn_quant_params back = *p;
        back.transpose = !p->transpose;
        qn_status status = qn_op_gather_quantized(
            &made, g->cot[0], g->in[1], g->in[2], affine ? g->in[3] : NULL,
            NULL, iw, &back, true, c->stream);
        qn_dims dims = qn_dims_of(g->in[0]);
        g->grad[0] =
            qn_sum_chosen(c, qn_scope_hold(c, status, &made), ix, &dims);
    }
    if (affine && (g->wanted[2] || g->wanted[3]))
        through_groups(g, p, 2, chosen_matrices(g, p, ix, iw));
}
