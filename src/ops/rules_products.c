/* rules_products.c: gradients of products with a choice, and their operations
 * made again. */
#include "quant.h"
#include "rules.h"

static qn_array *swapped(qn_scope *c, qn_array *x)
{
    qn_array *made = NULL;
    return c->status
               ? NULL
               : qn_scope_hold(c, qn_op_swapaxes(&made, x, -1, -2, c->stream),
                               &made);
}

qn_array *qn_sum_chosen(qn_scope *c, qn_array *y, qn_array *to,
                        const qn_dims *shape)
{
    qn_array *made = NULL;
    int axis = 0, n = shape->ndim;
    if (c->status)
        return NULL;
    qn_dims dims = {.ndim = 3,
                    .dim = {1, shape->dim[n - 2], shape->dim[n - 1]}};
    for (int i = 0; i < n - 2; i++)
        dims.dim[0] *= shape->dim[i];
    qn_array *none = full(c, &dims, 0, y->dtype);
    qn_array *update = expand(c, y, -3);
    if (c->status)
        return NULL;
    y = qn_scope_hold(c,
                      qn_op_scatter(&made, none, &to, 1, update, &axis, 1,
                                    QN_COMBINE_SUM, c->stream),
                      &made);
    return reshape(c, y, shape);
}

/* The products of a[ia] and b[ib], added up for each index of `to`, in the
 * shape of x. */
static qn_array *gathered(qn_scope *c, qn_array *a, qn_array *ia, qn_array *b,
                          qn_array *ib, qn_array *to, const qn_array *x)
{
    qn_array *made = NULL;
    if (c->status)
        return NULL;
    qn_array *y = qn_scope_hold(
        c, qn_op_gather_mm(&made, a, b, ia, ib, c->stream), &made);
    qn_dims dims = qn_dims_of(x);
    return qn_sum_chosen(c, y, to, &dims);
}

static qn_array *conjugate(qn_scope *c, qn_array *x)
{
    return unary(c, QN_OP_CONJUGATE, x);
}

void qn_grad_gather_mm(qn_grad *g)
{
    qn_scope *c = g->c;
    qn_array *a = g->in[0], *b = g->in[1], *ia = g->in[2], *ib = g->in[3];
    /* The cotangent's matrices are in the order of the indices. */
    if (g->wanted[0])
        g->grad[0] = gathered(c, g->cot[0], NULL, swapped(c, conjugate(c, b)),
                              ib, ia, a);
    if (g->wanted[1])
        g->grad[1] = gathered(c, swapped(c, conjugate(c, a)), ia, g->cot[0],
                              NULL, ib, b);
}

void qn_grad_hadamard(qn_grad *g)
{
    qn_hadamard_params p = *(const qn_hadamard_params *)g->node->params;
    qn_scope *c = g->c;
    qn_array *cot = g->cot[0], *made = NULL;
    p.turned = !p.turned;
    if (!c->status)
        g->grad[0] =
            qn_scope_hold(c,
                          qn_make(&made, QN_OP_HADAMARD, c->stream, &cot, 1, &p,
                                  sizeof p, cot->dtype, cot->shape, cot->ndim),
                          &made);
}

/* ---- again ---- */

#define MAKE(call)                                                             \
    do {                                                                       \
        qn_array *made = NULL;                                                 \
        if (!a->c->status)                                                     \
            a->out[0] = qn_scope_hold(a->c, call, &made);                      \
    } while (0)

void qn_again_gather_mm(qn_again *a)
{
    MAKE(qn_op_gather_mm(&made, a->in[0], a->in[1], a->in[2], a->in[3],
                         a->c->stream));
}

void qn_again_gather_qmm(qn_again *a)
{
    const qn_quant_params *p = a->node->params;
    bool affine = p->mode == QN_QUANT_AFFINE;
    bool keep = a->was_out[0]->dtype == a->was_in[0]->dtype;
    MAKE(qn_op_gather_quantized(&made, a->in[0], a->in[1], a->in[2],
                                affine ? a->in[3] : NULL, a->in[3 + affine],
                                a->in[4 + affine], p, keep, a->c->stream));
}

void qn_again_requantize(qn_again *a)
{
    const qn_quant_params *p = a->node->params;
    MAKE(qn_op_requantize(&made, a->in[0], p,
                          p->has_global_scale ? a->in[1] : NULL, a->c->stream));
}

void qn_again_segmented_mm(qn_again *a)
{
    MAKE(qn_op_segmented_mm(&made, a->in[0], a->in[1], a->in[2], a->c->stream));
}

void qn_again_hadamard(qn_again *a)
{
    const qn_hadamard_params *p = a->node->params;
    qn_array *x = a->in[0];
    if (p->turned) {
        qn_hadamard_params same = *p;
        /* The builder checks the length; its node is not used. */
        MAKE(qn_op_hadamard_transform(&made, x, &p->scale, a->c->stream));
        MAKE(qn_make(&made, QN_OP_HADAMARD, a->c->stream, &x, 1, &same,
                     sizeof same, a->out[0]->dtype, x->shape, x->ndim));
        return;
    }
    MAKE(qn_op_hadamard_transform(&made, x, &p->scale, a->c->stream));
}
