/* vmap.c: placeholders, the way back to them, and the graph built again.
 *
 * What depends on a placeholder can't be evaluated, so its nodes stay as they
 * are while they are walked; everything else is a constant of the batch. */
#include "vmap.h"

#include "core/eval.h"
#include "ops/rules.h"
#include "slots.h"

#include "base/alloc.h"

#include <string.h>

/* ---- tracing ---- */

static qn_status check_axes(qn_array *const *inputs, size_t ninputs,
                            const int *axes, size_t naxes, int *size)
{
    if (naxes != ninputs)
        return qn_fail(QN_E_ARG,
                       "[vmap] The number of in axes (%zu) must match the "
                       "number of inputs (%zu).",
                       naxes, ninputs);
    *size = -1;
    for (size_t i = 0; i < ninputs; i++) {
        if (axes[i] < 0)
            continue;
        if (axes[i] >= inputs[i]->ndim)
            return qn_fail(QN_E_ARG,
                           "[vmap] Invalid vectorization axis %d for array "
                           "with shape %s.",
                           axes[i], qn_array_shape_text(inputs[i]).text);
        int length = inputs[i]->shape[axes[i]];
        if (*size >= 0 && length != *size)
            return qn_fail(QN_E_ARG,
                           "[vmap] Inconsistent axis sizes: %d and %d.", *size,
                           length);
        *size = length;
    }
    if (*size < 0)
        return qn_fail(QN_E_ARG,
                       "[vmap] At least one of the inputs must have a batch "
                       "axis.");
    return QN_OK;
}

qn_status qn_vmap_trace(qn_arrays *placeholders, qn_arrays *results,
                        const qn_function *fun, qn_array *const *inputs,
                        size_t ninputs, const int *in_axes, size_t naxes)
{
    int size;
    qn_arrays given;
    qn_trace trace;
    qn_status status = check_axes(inputs, ninputs, in_axes, naxes, &size);
    if (status)
        return status;
    status = qn_arrays_new(&given, ninputs);
    if (status)
        return status;
    for (size_t i = 0; i < ninputs && !status; i++) {
        const qn_array *x = inputs[i];
        if (in_axes[i] < 0) {
            given.data[i] = qn_array_ref(inputs[i]);
            continue;
        }
        qn_dims dims = qn_dims_of(x);
        qn_dims_remove(&dims, in_axes[i]);
        status = qn_array_new(&given.data[i], x->dtype, dims.dim, dims.ndim);
    }
    if (!status)
        status = qn_trace_given(&trace, fun, given.data, ninputs, false);
    if (status) {
        qn_arrays_free(&given);
        return status;
    }
    *placeholders = given;
    *results = trace.outputs;
    trace.outputs = (qn_arrays){0};
    qn_trace_end(&trace);
    return QN_OK;
}

/* ---- finding what varies ---- */

typedef struct visit {
    qn_node *node;
    int next;    /* input to look at */
    bool varies; /* one of those before does */
} visit;

typedef struct way {
    qn_slots seen;   /* nodes: 1 if they vary, else 0 */
    qn_node **nodes; /* those that do, inputs first; held */
    size_t count, capacity;
    visit *stack;
    size_t depth, stack_capacity;
} way;

static bool grow(void **data, size_t *capacity, size_t used, size_t item)
{
    if (used < *capacity)
        return true;
    size_t more = *capacity ? 2 * *capacity : 64;
    void *grown = qn_reallocarray(*data, more, item);
    if (!grown)
        return false;
    *data = grown;
    *capacity = more;
    return true;
}

static qn_status enter(way *w, qn_node *node)
{
    if (!grow((void **)&w->stack, &w->stack_capacity, w->depth,
              sizeof *w->stack))
        return QN_E_NOMEM;
    w->stack[w->depth++] = (visit){node, 0, false};
    return qn_slots_put(&w->seen, node, 0);
}

/* Ends the visit on top of the stack; the one below learns whether it varies.
 */
static qn_status leave(way *w)
{
    visit v = w->stack[--w->depth];
    if (!v.varies)
        return QN_OK;
    if (w->depth)
        w->stack[w->depth - 1].varies = true;
    if (!grow((void **)&w->nodes, &w->capacity, w->count, sizeof *w->nodes))
        return QN_E_NOMEM;
    w->nodes[w->count++] = qn_node_ref(v.node);
    return qn_slots_put(&w->seen, v.node, 1);
}

/* Under qn_eval_begin. */
static qn_status follow(way *w, const qn_slots *placeholders,
                        qn_array *const *results, size_t nresults)
{
    qn_status status = QN_OK;
    for (size_t i = 0; i < nresults && !status; i++) {
        const qn_array *y = results[i];
        if (qn_array_ready(y) || !y->node ||
            qn_slots_find(&w->seen, y->node) != QN_NO_SLOT)
            continue;
        status = enter(w, y->node);
        while (w->depth && !status) {
            visit *top = &w->stack[w->depth - 1];
            if (top->next == top->node->ninputs) {
                status = leave(w);
                continue;
            }
            const qn_array *x = top->node->inputs[top->next++];
            if (qn_slots_find(placeholders, x) != QN_NO_SLOT) {
                top->varies = true;
            } else if (!qn_array_ready(x) && x->node) {
                size_t seen = qn_slots_find(&w->seen, x->node);
                if (seen == QN_NO_SLOT)
                    status = enter(w, x->node);
                else
                    top->varies |= seen == 1;
            }
        }
    }
    return status;
}

/* ---- building it again ---- */

typedef struct batch {
    qn_slots slots; /* arrays that vary: place in `arrays` */
    qn_arrays arrays;
    size_t capacity;
    int size;
} batch;

/* `made` with the batch axis in front takes the place of `array`. */
static qn_status replace(batch *b, const qn_array *array, qn_array *made)
{
    if (!grow((void **)&b->arrays.data, &b->capacity, b->arrays.count,
              sizeof(qn_array *)))
        return QN_E_NOMEM;
    b->arrays.data[b->arrays.count] = qn_array_ref(made);
    return qn_slots_put(&b->slots, array, b->arrays.count++);
}

static qn_status rebuild(batch *b, const qn_node *node)
{
    size_t ninputs = (size_t)node->ninputs, noutputs = (size_t)node->noutputs;
    qn_array **room = qn_calloc(ninputs + noutputs, sizeof *room);
    bool *batched = qn_calloc(ninputs, sizeof *batched);
    qn_scope c;
    qn_scope_begin(&c, node->stream);
    if (!room || !batched) {
        qn_scope_fail(&c, QN_E_NOMEM);
    } else {
        for (size_t i = 0; i < ninputs; i++) {
            size_t slot = qn_slots_find(&b->slots, node->inputs[i]);
            batched[i] = slot != QN_NO_SLOT;
            room[i] = batched[i] ? b->arrays.data[slot] : node->inputs[i];
        }
        qn_batch step = {.c = &c,
                         .node = node,
                         .like = node->outputs,
                         .in = room,
                         .batched = batched,
                         .size = b->size,
                         .out = room + ninputs};
        qn_rules_of(node->op)->vmap(&step);
    }
    for (size_t i = 0; i < noutputs && !c.status; i++)
        qn_scope_fail(&c, replace(b, node->outputs[i], room[ninputs + i]));
    qn_free(room);
    qn_free(batched);
    return qn_scope_end_many(&c, NULL, NULL, 0);
}

/* One result, where the caller wants the batch axis. */
static qn_status place(qn_array **out, const batch *b, qn_array *result,
                       int axis, qn_stream *s)
{
    size_t slot = qn_slots_find(&b->slots, result);
    qn_array *x = slot == QN_NO_SLOT ? NULL : b->arrays.data[slot];
    if (axis < 0) {
        if (x)
            return qn_fail(QN_E_ARG,
                           "[vmap] A result that varies over the batch needs "
                           "an out axis.");
        *out = qn_array_ref(result);
        return QN_OK;
    }
    if (axis > result->ndim)
        return qn_fail(QN_E_ARG,
                       "[vmap] Axis %d is out of bounds for a result of shape "
                       "%s.",
                       axis, qn_array_shape_text(result).text);
    if (x)
        return qn_op_moveaxis(out, x, 0, axis, s);
    qn_array *one = NULL;
    qn_dims dims = qn_dims_of(result);
    qn_status status = qn_dims_insert(&dims, "vmap", axis, b->size);
    if (!status)
        status = qn_op_expand_dims(&one, result, &axis, 1, s);
    if (!status)
        status = qn_op_broadcast_to(out, one, dims.dim, (size_t)dims.ndim, s);
    qn_array_unref(one);
    return status;
}

static qn_status build(qn_arrays *out, batch *b, const way *w,
                       qn_array *const *results, size_t nresults,
                       const int *out_axes)
{
    qn_stream *stream;
    qn_arrays made;
    qn_status status = QN_OK;
    for (size_t i = 0; i < w->count && !status; i++)
        status = rebuild(b, w->nodes[i]);
    if (!status)
        status = qn_stream_default(&stream, qn_device_default());
    if (!status)
        status = qn_arrays_new(&made, nresults);
    if (status)
        return status;
    for (size_t i = 0; i < nresults && !status; i++)
        status = place(&made.data[i], b, results[i], out_axes[i], stream);
    if (status)
        qn_arrays_free(&made);
    else
        *out = made;
    return status;
}

/* The inputs with the axis take the placeholders' places. */
static qn_status start(batch *b, qn_array *const *inputs, size_t ninputs,
                       qn_array *const *placeholders, const int *in_axes)
{
    qn_stream *stream;
    qn_status status = qn_stream_default(&stream, qn_device_default());
    for (size_t i = 0; i < ninputs && !status; i++) {
        qn_array *front = NULL;
        if (in_axes[i] < 0)
            continue;
        status = qn_op_moveaxis(&front, inputs[i], in_axes[i], 0, stream);
        if (!status)
            status = replace(b, placeholders[i], front);
        qn_array_unref(front);
    }
    return status;
}

qn_status qn_vmap_replace(qn_arrays *out, qn_array *const *inputs,
                          size_t ninputs, qn_array *const *placeholders,
                          size_t nplaceholders, qn_array *const *results,
                          size_t nresults, const int *in_axes, size_t nin_axes,
                          const int *out_axes, size_t nout_axes)
{
    if (nplaceholders != ninputs || nout_axes != nresults)
        return qn_fail(QN_E_ARG,
                       "[vmap] Expected as many traced inputs as inputs and "
                       "one out axis for each result, found %zu for %zu and "
                       "%zu for %zu.",
                       nplaceholders, ninputs, nout_axes, nresults);
    batch b = {0};
    way w = {0};
    qn_status status = check_axes(inputs, ninputs, in_axes, nin_axes, &b.size);
    if (!status)
        status = start(&b, inputs, ninputs, placeholders, in_axes);
    if (!status) {
        qn_eval_begin();
        status = follow(&w, &b.slots, results, nresults);
        qn_eval_end();
    }
    if (!status)
        status = build(out, &b, &w, results, nresults, out_axes);
    for (size_t i = 0; i < w.count; i++)
        qn_node_unref(w.nodes[i], 1);
    qn_free(w.nodes);
    qn_free(w.stack);
    qn_slots_free(&w.seen);
    qn_slots_free(&b.slots);
    qn_arrays_free(&b.arrays);
    return status;
}
