/* grad_product.c: gradients of matrix products, packed ones among them. */
#include "params.h"
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
    static const char *const modes[] = {
        [QN_QUANT_AFFINE] = "affine",
        [QN_QUANT_MXFP4] = "mxfp4",
        [QN_QUANT_MXFP8] = "mxfp8",
        [QN_QUANT_NVFP4] = "nvfp4",
    };
    bool affine = p->mode == QN_QUANT_AFFINE;
    qn_array *x = g->in[0], *w = g->in[1], *cot = g->cot[0], *made = NULL;
    /* Products with the same matrix, the other way round.  The builder that
     * keeps x's type also takes groups of 16. */
    if (g->wanted[0] && !c->status) {
        qn_array *biases = affine ? g->in[3] : NULL;
        qn_status status = qn_op_quantized_product(
            &made, cot, w, g->in[2], biases, !p->transpose, p->group_size,
            p->bits, modes[p->mode], true, c->stream);
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
