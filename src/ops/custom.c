/* custom.c: the CUSTOM node and its rules. */
#include "custom.h"

#include "params.h"
#include "rules.h"

#include "base/alloc.h"

#include <string.h>

qn_custom *qn_custom_ref(qn_custom *custom)
{
    atomic_fetch_add_explicit(&custom->refs, 1, memory_order_relaxed);
    return custom;
}

void qn_custom_unref(qn_custom *custom)
{
    if (custom &&
        atomic_fetch_sub_explicit(&custom->refs, 1, memory_order_acq_rel) == 1)
        custom->free(custom);
}

static void params_free(void *params)
{
    qn_custom_unref(((qn_custom_params *)params)->custom);
}

static void params_ref(void *params)
{
    qn_custom_ref(((qn_custom_params *)params)->custom);
}

/* inputs: primals, then results. */
static qn_status attach(qn_array **out, const qn_custom_params *params,
                        qn_array *const *inputs, int nresults, qn_stream *s)
{
    qn_node_spec spec = {.op = QN_OP_CUSTOM,
                         .stream = s,
                         .inputs = inputs,
                         .ninputs = params->nprimals + nresults,
                         .params = params,
                         .params_size = sizeof *params,
                         .params_free = params_free,
                         .params_ref = params_ref};
    qn_status status = QN_OK;
    int made = 0;
    for (; made < nresults && !status; made++) {
        const qn_array *x = inputs[params->nprimals + made];
        status = qn_array_new(&out[made], x->dtype, x->shape, x->ndim);
    }
    if (status)
        made--;
    else
        status = qn_node_attach(&spec, out, nresults);
    if (!status)
        qn_custom_ref(params->custom);
    else
        while (made) {
            qn_array_unref(out[--made]);
            out[made] = NULL; /* the caller frees the list as it is */
        }
    return status;
}

qn_status qn_op_custom(qn_array **out, qn_custom *custom,
                       qn_array *const *primals, int nprimals,
                       qn_array *const *results, int nresults, qn_stream *s)
{
    qn_custom_params params;
    memset(&params, 0, sizeof params);
    params.custom = custom;
    params.nprimals = nprimals;
    size_t total;
    if (!qn_add_size(&total, (size_t)nprimals, (size_t)nresults))
        return QN_E_NOMEM;
    qn_array **inputs = qn_calloc(total, sizeof *inputs);
    if (!inputs)
        return QN_E_NOMEM;
    for (int i = 0; i < nprimals; i++)
        inputs[i] = primals[i];
    for (int i = 0; i < nresults; i++)
        inputs[nprimals + i] = results[i];
    qn_status status = attach(out, &params, inputs, nresults, s);
    qn_free(inputs);
    return status;
}

/* ---- rules ---- */

void qn_grad_custom(qn_grad *g)
{
    const qn_custom_params *p = g->node->params;
    qn_custom *custom = p->custom;
    int noutputs = g->node->noutputs;
    if (!custom->vjp) {
        for (int i = 0; i < noutputs; i++)
            g->grad[p->nprimals + i] = g->cot[i];
        return;
    }
    qn_array **grads = qn_calloc((size_t)p->nprimals, sizeof *grads);
    qn_status status = QN_E_NOMEM;
    if (grads && !g->c->status)
        status = custom->vjp(custom, grads, g->in, p->nprimals, g->cot, g->out,
                             noutputs);
    if (status)
        qn_scope_fail(g->c, status);
    else
        for (int i = 0; i < p->nprimals; i++)
            g->grad[i] = qn_scope_hold(g->c, QN_OK, &grads[i]);
    qn_free(grads);
}

/* A result with its batch axis brought to the front. */
static qn_array *to_front(qn_batch *b, qn_array *x, int axis)
{
    if (axis >= 0)
        return moveaxis(b->c, x, axis, 0);
    qn_dims dims = qn_dims_of(x);
    qn_status status = qn_dims_insert(&dims, "vmap", 0, b->size);
    if (status)
        qn_scope_fail(b->c, status);
    return broadcast(b->c, x, &dims);
}

void qn_vmap_custom(qn_batch *b)
{
    const qn_custom_params *p = b->node->params;
    qn_custom *custom = p->custom;
    int noutputs = b->node->noutputs;
    if (!custom->vmap) {
        for (int i = 0; i < noutputs; i++) {
            int at = p->nprimals + i;
            b->out[i] = b->batched[at] ? b->in[at] : to_front(b, b->in[at], -1);
        }
        return;
    }
    int *axes = qn_calloc((size_t)p->nprimals + (size_t)noutputs, sizeof *axes);
    qn_array **results = qn_calloc((size_t)noutputs, sizeof *results);
    qn_status status = QN_E_NOMEM;
    if (axes && results && !b->c->status) {
        for (int i = 0; i < p->nprimals; i++)
            axes[i] = b->batched[i] ? 0 : -1;
        status = custom->vmap(custom, results, axes + p->nprimals, b->in, axes,
                              p->nprimals, noutputs);
    }
    if (status)
        qn_scope_fail(b->c, status);
    else
        for (int i = 0; i < noutputs; i++) {
            qn_array *x = qn_scope_hold(b->c, QN_OK, &results[i]);
            if (x)
                b->out[i] = to_front(b, x, axes[p->nprimals + i]);
        }
    qn_free(axes);
    qn_free(results);
}

void qn_again_custom(qn_again *a)
{
    const qn_custom_params *p = a->node->params;
    int noutputs = a->node->noutputs;
    qn_array **made = qn_calloc((size_t)noutputs, sizeof *made);
    qn_status status = QN_E_NOMEM;
    if (made && !a->c->status)
        status = attach(made, p, a->in, noutputs, a->c->stream);
    if (status)
        qn_scope_fail(a->c, status);
    else
        for (int i = 0; i < noutputs; i++)
            a->out[i] = qn_scope_hold(a->c, QN_OK, &made[i]);
    qn_free(made);
}
