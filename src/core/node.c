/* node.c: making nodes, and taking graphs apart.
 *
 * A node is one block: the struct, its inputs, its outputs, its params.
 *
 * Letting go of the last array of a graph frees all of it.  Graphs get as deep
 * as programs run long, so that walks a list of nodes instead of recursing. */
#include "node.h"

#include "base/alloc.h"
#include "record.h"

#include <stdalign.h>
#include <string.h>

static qn_node *node_alloc(const qn_node_spec *spec, int noutputs)
{
    size_t pointers, bytes, align = alignof(max_align_t);
    if (!qn_add_size(&pointers, (size_t)spec->ninputs, (size_t)noutputs) ||
        !qn_mul_size(&bytes, pointers, sizeof(qn_array *)) ||
        !qn_add_size(&bytes, bytes, sizeof(qn_node) + align - 1))
        goto too_large;
    size_t params_at = bytes & ~(align - 1);
    if (!qn_add_size(&bytes, params_at, spec->params_size))
        goto too_large;
    qn_node *node = qn_alloc(bytes);
    if (!node)
        return NULL;
    node->inputs = (qn_array **)(node + 1);
    node->outputs = node->inputs + spec->ninputs;
    node->params = spec->params_size ? (char *)node + params_at : NULL;
    return node;
too_large:
    qn_fail(QN_E_NOMEM, "out of memory: an operation on %d arrays",
            spec->ninputs);
    return NULL;
}

qn_status qn_node_attach(const qn_node_spec *spec, qn_array *const *outputs,
                         int noutputs)
{
    qn_status status = qn_record_reserve(spec->ninputs + noutputs);
    if (status)
        return status;
    qn_node *node = node_alloc(spec, noutputs);
    if (!node)
        return QN_E_NOMEM;
    atomic_init(&node->refs, (unsigned)noutputs);
    node->op = spec->op;
    node->ninputs = spec->ninputs;
    node->noutputs = noutputs;
    node->state = QN_NODE_WAITING;
    node->stream = spec->stream;
    for (int i = 0; i < spec->ninputs; i++)
        node->inputs[i] = qn_array_ref(spec->inputs[i]);
    for (int i = 0; i < noutputs; i++) {
        node->outputs[i] = outputs[i];
        outputs[i]->node = node;
        outputs[i]->output = i;
    }
    if (spec->params_size)
        memcpy(node->params, spec->params, spec->params_size);
    node->params_size = spec->params_size;
    node->params_free = spec->params_free;
    node->params_ref = spec->params_ref;
    node->mark = 0;
    node->next = NULL;
    qn_record_note(node);
    return QN_OK;
}

qn_status qn_node_new(qn_array **out, const qn_node_spec *spec, qn_dtype dtype,
                      const int *shape, int ndim)
{
    qn_array *array;
    qn_status status = qn_array_new(&array, dtype, shape, ndim);
    if (status)
        return status;
    status = qn_node_attach(spec, &array, 1);
    if (status) {
        qn_array_delete(array);
        return status;
    }
    *out = array;
    return QN_OK;
}

qn_status qn_node_again(qn_array **out, const qn_node *node,
                        qn_array *const *inputs, qn_array *const *outputs)
{
    qn_node_spec spec = {.op = node->op,
                         .stream = node->stream,
                         .inputs = inputs,
                         .ninputs = node->ninputs,
                         .params = node->params,
                         .params_size = node->params_size,
                         .params_free = node->params_free,
                         .params_ref = node->params_ref};
    qn_status status = QN_OK;
    int made = 0;
    for (; made < node->noutputs && !status; made++)
        status = qn_array_new(&out[made], outputs[made]->dtype,
                              outputs[made]->shape, outputs[made]->ndim);
    if (status)
        made--;
    else
        status = qn_node_attach(&spec, out, node->noutputs);
    if (status) {
        while (made)
            qn_array_delete(out[--made]);
        return status;
    }
    if (node->params_ref)
        node->params_ref(out[0]->node->params);
    return QN_OK;
}

qn_node *qn_node_ref(qn_node *node)
{
    atomic_fetch_add_explicit(&node->refs, 1, memory_order_relaxed);
    return node;
}

static bool drop(qn_node *node, unsigned count)
{
    return atomic_fetch_sub_explicit(&node->refs, count,
                                     memory_order_acq_rel) == count;
}

void qn_node_unref(qn_node *node, unsigned count)
{
    if (!drop(node, count))
        return;
    qn_node *dead = node;
    dead->next = NULL;
    while (dead) {
        node = dead;
        dead = node->next;
        /* Those still listed are ghosts (eval.c takes out what is READY). */
        for (int i = 0; i < node->noutputs; i++)
            if (node->outputs[i])
                qn_array_delete(node->outputs[i]);
        for (int i = 0; i < node->ninputs; i++) {
            qn_node *source = qn_array_drop(node->inputs[i]);
            if (source && drop(source, 1)) {
                source->next = dead;
                dead = source;
            }
        }
        if (node->params_free)
            node->params_free(node->params);
        qn_free(node);
    }
}
