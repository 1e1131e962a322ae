/* distributed.c: storage for what goes between processes, and what a sum, a
 * maximum and a minimum of two elements are. */
#include "loops.h"

#include "core/group.h"

/* Each pair is combined as `add`, `maximum`, `minimum` would: half types are
 * rounded after every step, NaN stays, bool is added by "or". */
static void combine(qn_group_reduce op, qn_dtype dtype, size_t n, void *to,
                    const void *from)
{
    static const qn_combine as[] = {
        [QN_GROUP_SUM] = QN_COMBINE_SUM,
        [QN_GROUP_MAX] = QN_COMBINE_MAX,
        [QN_GROUP_MIN] = QN_COMBINE_MIN,
    };
    /* It reads `from` only. */
    qn_ref_combine_run(as[op], dtype, n, (qn_ref_run_operand){to, 1},
                       (qn_ref_run_operand){(void *)(uintptr_t)from, 1});
}

/* A reference to x, or to a copy without gaps. */
static qn_status dense(qn_array **out, qn_array *x)
{
    if (x->row_contiguous) {
        *out = qn_array_ref(x);
        return QN_OK;
    }
    qn_array *copy;
    qn_status status = qn_array_new(&copy, x->dtype, x->shape, x->ndim);
    if (status)
        return status;
    status = qn_array_alloc(copy);
    if (!status)
        status = qn_ref_copy_to(copy, x);
    if (status) {
        qn_array_delete(copy);
        return status;
    }
    qn_array_set_ready(copy);
    *out = copy;
    return QN_OK;
}

qn_status qn_ref_all_reduce(qn_node *node)
{
    const qn_group_params *p = node->params;
    qn_array *out = node->outputs[0], *x = node->inputs[0];
    const qn_array *in = x;
    qn_status status = QN_OK;
    /* A failure must leave the input as it was, so it is not donated. */
    status = qn_array_alloc(out);
    if (!status && !x->row_contiguous) {
        status = qn_ref_copy_to(out, x);
        in = out;
    }
    if (status || !out->size)
        return status;
    return p->group->means->all_reduce(p->group, (qn_group_reduce)p->reduce,
                                       combine, out, in, node->stream);
}

qn_status qn_ref_all_gather(qn_node *node)
{
    const qn_group_params *p = node->params;
    qn_array *out = node->outputs[0], *in;
    qn_status status = qn_array_alloc(out);
    if (status || !out->size)
        return status;
    status = dense(&in, node->inputs[0]);
    if (status)
        return status;
    status = p->group->means->all_gather(p->group, out, in, node->stream);
    qn_array_unref(in);
    return status;
}

qn_status qn_ref_sum_scatter(qn_node *node)
{
    const qn_group_params *p = node->params;
    qn_array *out = node->outputs[0], *in;
    qn_status status = qn_array_alloc(out);
    if (status || !out->size)
        return status;
    status = dense(&in, node->inputs[0]);
    if (status)
        return status;
    status =
        p->group->means->sum_scatter(p->group, combine, out, in, node->stream);
    qn_array_unref(in);
    return status;
}

qn_status qn_ref_send(qn_node *node)
{
    const qn_group_params *p = node->params;
    qn_array *x = node->inputs[0], *in;
    qn_status status = QN_OK;
    if (x->size) {
        status = dense(&in, x);
        if (status)
            return status;
        status = p->group->means->send(p->group, in, p->peer, node->stream);
        qn_array_unref(in);
    }
    if (!status)
        qn_array_share(node->outputs[0], x);
    return status;
}

qn_status qn_ref_recv(qn_node *node)
{
    const qn_group_params *p = node->params;
    qn_array *out = node->outputs[0];
    qn_status status = qn_array_alloc(out);
    if (status || !out->size)
        return status;
    return p->group->means->recv(p->group, out, p->peer, node->stream);
}
