/* distributed.c: operations between the processes of a group, and their rules.
 *
 * A process builds its own graph and can't know what the others do, so only
 * what this process asks is checked.  Gradients follow MLX: each process
 * differentiates its own copy of one loss, so the cotangent of a reduction is
 * every process's own, and no gradient needs a message. */
#include "core/group.h"
#include "params.h"
#include "rules.h"

#include <string.h>

static qn_status make(qn_array **out, qn_op op, qn_array *x,
                      const qn_group_params *params, qn_dtype dtype,
                      const qn_dims *dims, qn_stream *s)
{
    return qn_make(out, op, s, &x, x != NULL, params, sizeof *params, dtype,
                   dims->dim, dims->ndim);
}

/* Zero padding included: equal params have equal bytes. */
static qn_group_params params_of(qn_group *group)
{
    qn_group_params p;
    memset(&p, 0, sizeof p);
    p.group = group;
    return p;
}

qn_status qn_op_all_reduce(qn_array **out, qn_array *x, int reduce,
                           qn_group *group, qn_stream *s)
{
    if (group->size == 1)
        return qn_same(out, x);
    qn_group_params p = params_of(group);
    p.reduce = reduce;
    qn_dims dims = qn_dims_of(x);
    return make(out, QN_OP_ALL_REDUCE, x, &p, x->dtype, &dims, s);
}

qn_status qn_op_all_gather(qn_array **out, qn_array *x, qn_group *group,
                           qn_stream *s)
{
    if (group->size == 1)
        return qn_same(out, x);
    qn_group_params p = params_of(group);
    qn_dims dims = qn_dims_of(x);
    if (!dims.ndim)
        dims = (qn_dims){.ndim = 1, .dim = {1}};
    qn_status status = qn_dim_fit(&dims.dim[0], "all_gather",
                                  (int64_t)dims.dim[0] * group->size);
    return status ? status
                  : make(out, QN_OP_ALL_GATHER, x, &p, x->dtype, &dims, s);
}

qn_status qn_op_sum_scatter(qn_array **out, qn_array *x, qn_group *group,
                            qn_stream *s)
{
    if (group->size == 1)
        return qn_same(out, x);
    qn_group_params p = params_of(group);
    qn_dims dims = qn_dims_of(x);
    if (!dims.ndim || dims.dim[0] % group->size)
        return qn_fail(QN_E_ARG,
                       "[sum_scatter] Invalid shape=%s for a group of size %d. "
                       "The first dimension (axis 0) must be divisible by the "
                       "group size and input must have at least one.",
                       qn_array_shape_text(x).text, group->size);
    dims.dim[0] /= group->size;
    return make(out, QN_OP_SUM_SCATTER, x, &p, x->dtype, &dims, s);
}

/* `verb` "send to", `name` "destination". */
static qn_status check_peer(const qn_group *group, int peer, const char *verb,
                            const char *name)
{
    if (group->size == 1)
        return qn_fail(QN_E_ARG, "Cannot %s a singleton group", verb);
    if (peer < 0 || peer >= group->size)
        return qn_fail(QN_E_ARG, "Invalid %s=%d for a group of size %d", name,
                       peer, group->size);
    return QN_OK;
}

qn_status qn_op_send(qn_array **out, qn_array *x, int dst, qn_group *group,
                     qn_stream *s)
{
    qn_status status = check_peer(group, dst, "send to", "destination");
    if (status)
        return status;
    qn_group_params p = params_of(group);
    p.peer = dst;
    qn_dims dims = qn_dims_of(x);
    return make(out, QN_OP_SEND, x, &p, x->dtype, &dims, s);
}

qn_status qn_op_recv(qn_array **out, const int *shape, size_t ndim,
                     qn_dtype dtype, int src, qn_group *group, qn_stream *s)
{
    qn_dims dims;
    qn_status status = check_peer(group, src, "recv from", "source");
    if (!status)
        status = qn_dims_given(&dims, "recv", shape, ndim);
    if (status)
        return status;
    qn_group_params p = params_of(group);
    p.peer = src;
    return make(out, QN_OP_RECV, NULL, &p, dtype, &dims, s);
}

/* ---- gradients ---- */

void qn_grad_all_reduce(qn_grad *g)
{
    g->grad[0] = g->cot[0];
}

/* The part that this process has put in. */
void qn_grad_all_gather(qn_grad *g)
{
    const qn_group_params *p = g->node->params;
    qn_dims dims = qn_dims_of(g->in[0]);
    int rows = dims.ndim ? dims.dim[0] : 1;
    qn_array *part = g->c->status
                         ? NULL
                         : slice_axis(g->c, g->cot[0], 0, p->group->rank * rows,
                                      (p->group->rank + 1) * rows);
    g->grad[0] = dims.ndim ? part : reshape(g->c, part, &dims);
}

/* ---- batches ---- */

/* Entries are gathered along an axis of their own, so that comes first. */
void qn_vmap_all_gather(qn_batch *b)
{
    qn_scope *c = b->c;
    const qn_group_params *p = b->node->params;
    qn_array *x = b->in[0], *made = NULL;
    x = x->ndim == 1 ? expand(c, x, 0) : moveaxis(c, x, 0, 1);
    if (!c->status)
        x = qn_scope_hold(c, qn_op_all_gather(&made, x, p->group, c->stream),
                          &made);
    b->out[0] = c->status ? NULL : moveaxis(c, x, 1, 0);
}

/* ---- once more ---- */

#define MAKE(call)                                                             \
    do {                                                                       \
        const qn_group_params *p = a->node->params;                            \
        qn_array *made = NULL;                                                 \
        if (!a->c->status)                                                     \
            a->out[0] = qn_scope_hold(a->c, call, &made);                      \
    } while (0)

void qn_again_all_reduce(qn_again *a)
{
    MAKE(qn_op_all_reduce(&made, a->in[0], p->reduce, p->group, a->c->stream));
}

void qn_again_all_gather(qn_again *a)
{
    MAKE(qn_op_all_gather(&made, a->in[0], p->group, a->c->stream));
}

void qn_again_sum_scatter(qn_again *a)
{
    MAKE(qn_op_sum_scatter(&made, a->in[0], p->group, a->c->stream));
}

void qn_again_send(qn_again *a)
{
    MAKE(qn_op_send(&made, a->in[0], p->peer, p->group, a->c->stream));
}

void qn_again_recv(qn_again *a)
{
    const qn_array *y = a->was_out[0];
    MAKE(qn_op_recv(&made, y->shape, (size_t)y->ndim, y->dtype, p->peer,
                    p->group, a->c->stream));
}
