/* vjp.c: reverse mode: from the end of a recording to its beginning.
 *
 * Arrays on the way from the seeds to the outputs get slots; each slot sums up
 * the cotangents of its array, which are complete when the walk comes to the
 * node that made it. */
#include "grad.h"

#include "ops/custom.h"
#include "ops/params.h"
#include "ops/rules.h"
#include "slots.h"

#include "base/alloc.h"

#include <string.h>

typedef struct back {
    qn_slots slots;
    qn_array **cot; /* by slot, owned */
    size_t nslots, cot_capacity;
    size_t *traced; /* entries, in order */
    size_t ntraced, traced_capacity;
    /* Of the entry at work: its arrays, and what the rule gets. */
    qn_array **room;
    bool *wanted;
    size_t room_capacity;
} back;

static bool reserve(void **data, size_t *capacity, size_t needed, size_t item)
{
    if (needed <= *capacity)
        return true;
    size_t more = needed < 32 ? 64 : 2 * needed;
    void *grown = qn_reallocarray(*data, more, item);
    if (!grown)
        return false;
    *data = grown;
    *capacity = more;
    return true;
}

static qn_status add_slot(back *b, const qn_array *array)
{
    if (qn_slots_find(&b->slots, array) != QN_NO_SLOT)
        return QN_OK;
    if (!reserve((void **)&b->cot, &b->cot_capacity, b->nslots + 1,
                 sizeof(qn_array *)))
        return QN_E_NOMEM;
    b->cot[b->nslots] = NULL;
    return qn_slots_put(&b->slots, array, b->nslots++);
}

/* Inputs whose cotangents the node can give. */
static int differentiable_inputs(const qn_node *node)
{
    if (node->op != QN_OP_CUSTOM)
        return node->ninputs;
    const qn_custom_params *p = node->params;
    return p->custom->vjp ? p->nprimals : node->ninputs;
}

/* Gives slots to all that depends on the seeds. */
static qn_status trace(back *b, const qn_walk_of *w)
{
    qn_status status = QN_OK;
    for (size_t i = 0; i < w->nseeds && !status; i++)
        status = add_slot(b, w->seeds[i]);
    for (size_t i = w->first; i < w->end && !status; i++) {
        qn_record_entry e = qn_record_at(i);
        int n = differentiable_inputs(e.node), k = 0;
        while (k < n && qn_slots_find(&b->slots, e.inputs[k]) == QN_NO_SLOT)
            k++;
        if (k == n)
            continue;
        if (!reserve((void **)&b->traced, &b->traced_capacity, b->ntraced + 1,
                     sizeof *b->traced))
            return QN_E_NOMEM;
        b->traced[b->ntraced++] = i;
        for (int j = 0; j < e.node->noutputs && !status; j++)
            status = add_slot(b, e.outputs[j]);
    }
    return status;
}

/* Adds a cotangent of `array` to those of its slot. */
static void accumulate(back *b, qn_scope *c, qn_array *array, qn_array *cot)
{
    size_t slot = qn_slots_find(&b->slots, array);
    if (slot == QN_NO_SLOT || c->status)
        return;
    cot = cast(c, cot, array->dtype);
    if (!c->status && !qn_same_shape(cot, array)) {
        qn_scope_fail(c, qn_fail(QN_E_INTERNAL,
                                 "[vjp] A gradient of shape %s for an array of "
                                 "shape %s.",
                                 qn_array_shape_text(cot).text,
                                 qn_array_shape_text(array).text));
        return;
    }
    if (b->cot[slot])
        cot = add(c, b->cot[slot], cot);
    if (c->status)
        return;
    qn_array *before = b->cot[slot];
    b->cot[slot] = qn_array_ref(cot);
    qn_array_unref(before);
}

/* Takes the cotangents of the outputs out of their slots; false when none has
 * any.  Outputs without one get zeros. */
static bool take_cotangents(back *b, qn_scope *c, int n, qn_array **outputs,
                            qn_array **cot)
{
    bool any = false;
    for (int i = 0; i < n; i++) {
        size_t slot = qn_slots_find(&b->slots, outputs[i]);
        cot[i] = b->cot[slot];
        b->cot[slot] = NULL;
        any |= cot[i] != NULL;
    }
    if (!any)
        return false;
    for (int i = 0; i < n; i++)
        cot[i] = cot[i] ? qn_scope_hold(c, QN_OK, &cot[i])
                        : qn_zeros_like(c, outputs[i]);
    return true;
}

static qn_status step(back *b, size_t index)
{
    qn_record_entry e = qn_record_at(index);
    const qn_node *node = e.node;
    size_t ninputs = (size_t)node->ninputs, noutputs = (size_t)node->noutputs;
    size_t all = ninputs + noutputs;
    if (!reserve((void **)&b->room, &b->room_capacity, 2 * all,
                 sizeof *b->room))
        return QN_E_NOMEM;
    qn_array **in = b->room, **out = in + ninputs, **cot = out + noutputs,
             **grad = cot + noutputs;
    /* The recording may move while rules add to it. */
    memcpy(in, e.inputs, ninputs * sizeof *in);
    memcpy(out, e.outputs, noutputs * sizeof *out);
    memset(grad, 0, ninputs * sizeof *grad);

    qn_scope c;
    qn_scope_begin(&c, node->stream);
    bool few[16], *wanted = few;
    if (ninputs > sizeof few / sizeof *few) {
        wanted = qn_calloc(ninputs, sizeof *wanted);
        if (!wanted)
            return QN_E_NOMEM;
    }
    int n = differentiable_inputs(node);
    for (int i = 0; i < node->ninputs; i++)
        wanted[i] = i < n && qn_slots_find(&b->slots, in[i]) != QN_NO_SLOT;
    if (take_cotangents(b, &c, node->noutputs, out, cot) && !c.status) {
        qn_grad g = {.c = &c,
                     .node = node,
                     .in = in,
                     .out = out,
                     .cot = cot,
                     .wanted = wanted,
                     .grad = grad};
        qn_rules_of(node->op)->grad(&g);
        for (size_t i = 0; i < ninputs && !c.status; i++)
            if (wanted[i] && grad[i])
                accumulate(b, &c, in[i], grad[i]);
    }
    if (wanted != few)
        qn_free(wanted);
    return qn_scope_end_many(&c, NULL, NULL, 0);
}

qn_status qn_walk_back(const qn_walk_of *w, qn_array *const *cotangents,
                       qn_array **grads)
{
    back b = {0};
    qn_scope c;
    qn_status status = trace(&b, w);
    if (!status) {
        qn_stream *stream;
        status = qn_stream_default(&stream, qn_device_default());
        if (!status) {
            qn_scope_begin(&c, stream);
            for (size_t i = 0; i < w->noutputs; i++)
                if (cotangents[i])
                    accumulate(&b, &c, w->outputs[i], cotangents[i]);
            status = qn_scope_end_many(&c, NULL, NULL, 0);
        }
    }
    while (b.ntraced && !status)
        status = step(&b, b.traced[--b.ntraced]);
    for (size_t i = 0; i < w->nseeds; i++) {
        size_t slot = qn_slots_find(&b.slots, w->seeds[i]);
        grads[i] = NULL;
        if (!status && b.cot[slot])
            grads[i] = qn_array_ref(b.cot[slot]);
    }
    for (size_t i = 0; i < b.nslots; i++)
        qn_array_unref(b.cot[i]);
    qn_slots_free(&b.slots);
    qn_free(b.cot);
    qn_free(b.traced);
    qn_free(b.room);
    return status;
}

/* ---- transformations ---- */

static qn_status check_cotangents(const qn_arrays *outputs,
                                  qn_array *const *cotangents, size_t count)
{
    if (outputs->count != count)
        return qn_fail(QN_E_ARG,
                       "[vjp] Number of outputs to compute gradients for (%zu) "
                       "does not match number of cotangents (%zu).",
                       outputs->count, count);
    for (size_t i = 0; i < count; i++)
        if (!qn_same_shape(outputs->data[i], cotangents[i]))
            return qn_fail(QN_E_ARG,
                           "[vjp] Output shape %s does not match cotangent "
                           "shape %s.",
                           qn_array_shape_text(outputs->data[i]).text,
                           qn_array_shape_text(cotangents[i]).text);
    return QN_OK;
}

/* Zeros for what nothing reaches. */
static qn_status fill_zeros(qn_arrays *grads, qn_array *const *like)
{
    qn_stream *stream;
    qn_status status = qn_stream_default(&stream, qn_device_default());
    for (size_t i = 0; i < grads->count && !status; i++)
        if (!grads->data[i])
            status = qn_op_zeros_like(&grads->data[i], like[i], stream);
    return status;
}

/* Gradients of a trace's outputs with respect to some of its inputs. */
static qn_status gradients(qn_arrays *grads, const qn_trace *trace,
                           qn_array *const *cotangents, qn_array *const *seeds,
                           size_t nseeds)
{
    qn_arrays made;
    qn_status status = qn_arrays_new(&made, nseeds);
    if (status)
        return status;
    qn_walk_of walk = {.first = trace->record.first,
                       .end = trace->record.end,
                       .seeds = seeds,
                       .nseeds = nseeds,
                       .outputs = trace->outputs.data,
                       .noutputs = trace->outputs.count};
    status = qn_walk_back(&walk, cotangents, made.data);
    if (!status)
        status = fill_zeros(&made, seeds);
    if (status)
        qn_arrays_free(&made);
    else
        *grads = made;
    return status;
}

/* Hands a trace's outputs on and ends it. */
static void finish(qn_arrays *outputs, qn_trace *trace, qn_status status)
{
    if (!status) {
        *outputs = trace->outputs;
        trace->outputs = (qn_arrays){0};
    }
    qn_trace_end(trace);
}

qn_status qn_vjp(qn_arrays *outputs, qn_arrays *grads, const qn_function *fun,
                 qn_array *const *primals, size_t nprimals,
                 qn_array *const *cotangents, size_t ncotangents)
{
    qn_trace trace;
    qn_status status = qn_trace_values(&trace, fun, primals, nprimals);
    if (status)
        return status;
    status = check_cotangents(&trace.outputs, cotangents, ncotangents);
    if (!status)
        status = gradients(grads, &trace, cotangents, trace.inputs.data,
                           trace.inputs.count);
    finish(outputs, &trace, status);
    return status;
}

/* The places that argnums name. */
static qn_status check_argnums(size_t *places, const int *argnums, size_t count,
                               size_t ninputs)
{
    for (size_t i = 0; i < count; i++) {
        int64_t at = argnums[i];
        at += at < 0 ? (int64_t)ninputs : 0;
        if (at < 0 || (uint64_t)at >= ninputs)
            return qn_fail(QN_E_ARG,
                           "[value_and_grad] Invalid argument number %d for "
                           "a function of %zu arrays.",
                           argnums[i], ninputs);
        for (size_t k = 0; k < i; k++)
            if (places[k] == (size_t)at)
                return qn_fail(QN_E_ARG,
                               "[value_and_grad] Repeat argument number %d not "
                               "allowed in value_and_grad.",
                               argnums[i]);
        places[i] = (size_t)at;
    }
    return QN_OK;
}

static qn_status check_value(const qn_arrays *outputs)
{
    if (!outputs->count)
        return qn_fail(QN_E_ARG,
                       "[value_and_grad] The function returned no array.");
    if (outputs->data[0]->ndim)
        return qn_fail(QN_E_ARG,
                       "[value_and_grad] Output shape %s does not match "
                       "cotangent shape (): the function must return a scalar "
                       "first.",
                       qn_array_shape_text(outputs->data[0]).text);
    return QN_OK;
}

/* The walk of a value whose cotangent is 1. */
static qn_status value_gradients(qn_arrays *grads, const qn_trace *trace,
                                 qn_array *const *seeds, size_t nseeds)
{
    qn_arrays cotangents = {0};
    qn_status status = check_value(&trace->outputs);
    if (!status)
        status = qn_arrays_new(&cotangents, trace->outputs.count);
    if (!status)
        status =
            qn_op_scalar(&cotangents.data[0], 1, trace->outputs.data[0]->dtype);
    if (!status)
        status = gradients(grads, trace, cotangents.data, seeds, nseeds);
    qn_arrays_free(&cotangents);
    return status;
}

qn_status qn_value_and_grad(qn_arrays *outputs, qn_arrays *grads,
                            const qn_function *fun, const int *argnums,
                            size_t nargnums, qn_array *const *inputs,
                            size_t ninputs)
{
    qn_trace trace;
    qn_array **seeds = qn_calloc(nargnums, sizeof *seeds);
    size_t *places = qn_calloc(nargnums, sizeof *places);
    qn_status status = seeds && places ? QN_OK : QN_E_NOMEM;
    if (!status)
        status = check_argnums(places, argnums, nargnums, ninputs);
    if (!status)
        status = qn_trace_values(&trace, fun, inputs, ninputs);
    if (!status) {
        for (size_t i = 0; i < nargnums; i++)
            seeds[i] = trace.inputs.data[places[i]];
        status = value_gradients(grads, &trace, seeds, nargnums);
        finish(outputs, &trace, status);
    }
    qn_free(seeds);
    qn_free(places);
    return status;
}
