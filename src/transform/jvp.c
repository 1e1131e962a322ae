/* jvp.c: forward mode: from the beginning of a recording to its end.
 *
 * An operation has one rule, which carries cotangents back.  Where each element
 * depends on its own elements alone, the same factors carry tangents forward.
 * Elsewhere the rule is turned around: it is linear in the cotangents, so it is
 * recorded once for zeros, and the recording, walked back from the inputs'
 * tangents to those zeros, gives the outputs' tangents.  The zeros themselves
 * are never computed with. */
#include "grad.h"

#include "ops/custom.h"
#include "ops/params.h"
#include "ops/rules.h"
#include "slots.h"

#include "base/alloc.h"

#include <string.h>

typedef struct forward {
    qn_slots slots;
    qn_arrays tangents; /* by slot; NULL: none yet */
    size_t nslots;
    bool *needed; /* by entry: some output comes from it */
} forward;

/* The entry at work, copied: the recording may move. */
typedef struct work {
    const qn_node *node;
    qn_array **in, **out, **from, **to; /* arrays; tangents, borrowed */
} work;

static qn_array *tangent_of(const forward *f, const qn_array *array)
{
    size_t slot = qn_slots_find(&f->slots, array);
    return slot == QN_NO_SLOT ? NULL : f->tangents.data[slot];
}

static qn_status set_tangent(forward *f, const qn_array *array, qn_array *x)
{
    qn_status status = qn_slots_put(&f->slots, array, f->nslots);
    if (!status)
        f->tangents.data[f->nslots++] = qn_array_ref(x);
    return status;
}

/* Marks the entries that the outputs come from. */
static qn_status find_needed(forward *f, const qn_walk_of *w)
{
    qn_slots wanted = {0};
    qn_status status = QN_OK;
    for (size_t i = 0; i < w->noutputs && !status; i++)
        status = qn_slots_put(&wanted, w->outputs[i], 0);
    for (size_t i = w->end; i > w->first && !status; i--) {
        qn_record_entry e = qn_record_at(i - 1);
        bool *needed = &f->needed[i - 1 - w->first];
        for (int k = 0; k < e.node->noutputs; k++)
            *needed |= qn_slots_find(&wanted, e.outputs[k]) != QN_NO_SLOT;
        int ninputs = *needed ? e.node->ninputs : 0;
        /* A rule of its own makes the function's graph unimportant. */
        if (ninputs && e.node->op == QN_OP_CUSTOM) {
            const qn_custom_params *p = e.node->params;
            ninputs = p->custom->jvp ? p->nprimals : ninputs;
        }
        for (int k = 0; k < ninputs && !status; k++)
            status = qn_slots_put(&wanted, e.inputs[k], 0);
    }
    qn_slots_free(&wanted);
    return status;
}

/* ---- one node ---- */

/* Whether the factors of cotangents are those of tangents: for complex numbers
 * they are conjugated. */
static bool by_factors(const work *k)
{
    bool real = k->out[0]->dtype != QN_COMPLEX64;
    for (int i = 0; i < k->node->ninputs; i++)
        real &= k->in[i]->dtype != QN_COMPLEX64;
    return real && qn_rules_of(k->node->op)->elementwise;
}

static void forward_factors(qn_scope *c, const work *k)
{
    const qn_node *node = k->node;
    for (int i = 0; i < node->ninputs && !c->status; i++) {
        if (!k->from[i])
            continue;
        bool wanted[3] = {false};
        qn_array *grad[3] = {NULL};
        wanted[i] = true;
        qn_grad g = {.c = c,
                     .node = node,
                     .in = k->in,
                     .out = k->out,
                     .cot = &k->from[i],
                     .wanted = wanted,
                     .grad = grad};
        qn_rules_of(node->op)->grad(&g);
        if (grad[i] && !c->status)
            k->to[0] = k->to[0] ? add(c, k->to[0], grad[i]) : grad[i];
    }
}

/* What the rule for zeros has recorded, walked back. */
static qn_status turn_around(qn_scope *c, const work *k,
                             const qn_record *record, qn_array **zeros,
                             qn_array **grads, qn_array **seeds)
{
    const qn_node *node = k->node;
    for (int i = 0; i < node->ninputs; i++) {
        seeds[i] = NULL;
        if (grads[i] && k->from[i])
            seeds[i] = cast(c, k->from[i], grads[i]->dtype);
    }
    if (c->status)
        return c->status;
    /* Only inputs with a gradient take part. */
    size_t n = 0;
    for (int i = 0; i < node->ninputs; i++)
        if (seeds[i]) {
            seeds[n] = seeds[i];
            grads[n++] = grads[i];
        }
    qn_walk_of walk = {.first = record->first,
                       .end = record->end,
                       .seeds = zeros,
                       .nseeds = (size_t)node->noutputs,
                       .outputs = grads,
                       .noutputs = n};
    qn_arrays results;
    qn_status status = qn_arrays_new(&results, walk.nseeds);
    if (status)
        return status;
    status = qn_walk_back(&walk, seeds, results.data);
    for (int i = 0; i < node->noutputs && !status; i++)
        if (results.data[i]) {
            k->to[i] = qn_scope_hold(c, QN_OK, &results.data[i]);
            results.data[i] = NULL;
            status = c->status;
        }
    qn_arrays_free(&results);
    return status;
}

static qn_status forward_turned(qn_scope *c, const work *k)
{
    const qn_node *node = k->node;
    size_t ninputs = (size_t)node->ninputs, noutputs = (size_t)node->noutputs;
    qn_array **room = qn_calloc(2 * ninputs + noutputs, sizeof *room);
    bool *wanted = qn_calloc(ninputs, sizeof *wanted);
    if (!room || !wanted) {
        qn_free(room);
        qn_free(wanted);
        return QN_E_NOMEM;
    }
    qn_array **zeros = room, **grads = zeros + noutputs,
             **seeds = grads + ninputs;
    for (size_t i = 0; i < noutputs; i++)
        zeros[i] = qn_zeros_like(c, k->out[i]);
    for (size_t i = 0; i < ninputs; i++)
        wanted[i] = k->from[i] != NULL;
    qn_grad g = {.c = c,
                 .node = node,
                 .in = k->in,
                 .out = k->out,
                 .cot = zeros,
                 .wanted = wanted,
                 .grad = grads};
    qn_record record;
    qn_record_begin(&record, false);
    if (!c->status)
        qn_rules_of(node->op)->grad(&g);
    qn_record_stop(&record);
    qn_status status =
        c->status ? c->status : turn_around(c, k, &record, zeros, grads, seeds);
    qn_record_end(&record);
    qn_free(room);
    qn_free(wanted);
    return status;
}

static qn_status forward_custom(qn_scope *c, const work *k)
{
    const qn_node *node = k->node;
    const qn_custom_params *p = node->params;
    if (!p->custom->jvp) {
        for (int i = 0; i < node->noutputs; i++)
            k->to[i] = k->from[p->nprimals + i];
        return QN_OK;
    }
    int nargs = 0;
    int *argnums = qn_calloc((size_t)p->nprimals, sizeof *argnums);
    qn_array **tangents = qn_calloc((size_t)p->nprimals, sizeof *tangents);
    qn_array **results = qn_calloc((size_t)node->noutputs, sizeof *results);
    qn_status status = QN_E_NOMEM;
    if (argnums && tangents && results) {
        for (int i = 0; i < p->nprimals; i++)
            if (k->from[i]) {
                tangents[nargs] = k->from[i];
                argnums[nargs++] = i;
            }
        status = QN_OK;
        if (nargs)
            status = p->custom->jvp(p->custom, results, k->in, p->nprimals,
                                    tangents, argnums, nargs, node->noutputs);
        for (int i = 0; i < node->noutputs && !status && nargs; i++)
            k->to[i] = qn_scope_hold(c, QN_OK, &results[i]);
    }
    qn_free(argnums);
    qn_free(tangents);
    qn_free(results);
    return status ? status : c->status;
}

/* Between processes: each sends its tangent the way it has sent the input, so
 * that they all take part, as they do in the operation itself. */
static qn_status forward_talk(qn_scope *c, const work *k)
{
    qn_array *made[1] = {NULL};
    qn_array *tangent = cast(c, k->from[0], k->in[0]->dtype);
    if (c->status)
        return c->status;
    qn_status status = qn_node_again(made, k->node, &tangent, k->out);
    k->to[0] = qn_scope_hold(c, status, made);
    return c->status;
}

static qn_status step(forward *f, qn_record_entry e, qn_array **room)
{
    const qn_node *node = e.node;
    size_t ninputs = (size_t)node->ninputs, noutputs = (size_t)node->noutputs;
    work k = {.node = node,
              .in = room,
              .out = room + ninputs,
              .from = room + ninputs + noutputs,
              .to = room + 2 * ninputs + noutputs};
    memcpy(k.in, e.inputs, ninputs * sizeof *room);
    memcpy(k.out, e.outputs, noutputs * sizeof *room);
    memset(k.to, 0, noutputs * sizeof *room);
    bool any = false;
    for (size_t i = 0; i < ninputs; i++) {
        k.from[i] = tangent_of(f, k.in[i]);
        any |= k.from[i] != NULL;
    }
    if (!any)
        return QN_OK;
    qn_scope c;
    qn_scope_begin(&c, node->stream);
    qn_status status = QN_OK;
    if (node->op == QN_OP_CUSTOM)
        status = forward_custom(&c, &k);
    else if (node->op == QN_OP_ALL_REDUCE || node->op == QN_OP_ALL_GATHER)
        status = forward_talk(&c, &k);
    else if (by_factors(&k))
        forward_factors(&c, &k);
    else
        status = forward_turned(&c, &k);
    qn_scope_fail(&c, status);
    for (size_t i = 0; i < noutputs && !c.status; i++)
        if (k.to[i]) {
            qn_array *tangent = cast(&c, k.to[i], k.out[i]->dtype);
            if (!c.status)
                qn_scope_fail(&c, set_tangent(f, k.out[i], tangent));
        }
    return qn_scope_end_many(&c, NULL, NULL, 0);
}

/* Upper bounds of what the walk will need: slots, and arrays of one entry. */
static void measure(const qn_walk_of *w, size_t *slots, size_t *arrays)
{
    *slots = w->nseeds;
    *arrays = 0;
    for (size_t i = w->first; i < w->end; i++) {
        const qn_node *node = qn_record_at(i).node;
        size_t all = (size_t)node->ninputs + (size_t)node->noutputs;
        *slots += (size_t)node->noutputs;
        *arrays = all > *arrays ? all : *arrays;
    }
}

qn_status qn_walk_forward(const qn_walk_of *w, qn_array *const *tangents,
                          qn_array **results)
{
    forward f = {0};
    size_t slots, arrays;
    measure(w, &slots, &arrays);
    qn_array **room = qn_calloc(2 * arrays, sizeof *room);
    f.needed = qn_calloc(w->end - w->first, sizeof *f.needed);
    qn_status status = room && f.needed ? QN_OK : QN_E_NOMEM;
    if (!status)
        status = qn_arrays_new(&f.tangents, slots);
    if (!status)
        status = find_needed(&f, w);
    for (size_t i = 0; i < w->nseeds && !status; i++)
        if (tangents[i])
            status = set_tangent(&f, w->seeds[i], tangents[i]);
    for (size_t i = w->first; i < w->end && !status; i++)
        if (f.needed[i - w->first])
            status = step(&f, qn_record_at(i), room);
    for (size_t i = 0; i < w->noutputs; i++) {
        qn_array *tangent = tangent_of(&f, w->outputs[i]);
        results[i] = tangent && !status ? qn_array_ref(tangent) : NULL;
    }
    qn_slots_free(&f.slots);
    qn_arrays_free(&f.tangents);
    qn_free(f.needed);
    qn_free(room);
    return status;
}

/* ---- the transformation ---- */

static qn_status check_tangents(qn_array *const *primals, size_t nprimals,
                                qn_array *const *tangents, size_t ntangents)
{
    if (nprimals != ntangents)
        return qn_fail(QN_E_ARG,
                       "[jvp] Number of inputs (%zu) does not match number of "
                       "tangents (%zu).",
                       nprimals, ntangents);
    for (size_t i = 0; i < nprimals; i++)
        if (!qn_same_shape(primals[i], tangents[i]))
            return qn_fail(QN_E_ARG,
                           "[jvp] Input shape %s does not match shape %s of "
                           "tangent.",
                           qn_array_shape_text(primals[i]).text,
                           qn_array_shape_text(tangents[i]).text);
    return QN_OK;
}

/* The walk over a trace; zeros for outputs that nothing reaches. */
static qn_status tangents_of(qn_arrays *results, const qn_trace *trace,
                             qn_array *const *tangents)
{
    qn_arrays made, typed;
    qn_stream *stream;
    size_t nin = trace->inputs.count, nout = trace->outputs.count;
    qn_status status = qn_arrays_new(&made, nout);
    if (status)
        return status;
    status = qn_arrays_new(&typed, nin);
    if (status) {
        qn_arrays_free(&made);
        return status;
    }
    qn_walk_of walk = {.first = trace->record.first,
                       .end = trace->record.end,
                       .seeds = trace->inputs.data,
                       .nseeds = nin,
                       .outputs = trace->outputs.data,
                       .noutputs = nout};
    status = qn_stream_default(&stream, qn_device_default());
    for (size_t i = 0; i < nin && !status; i++)
        status = qn_op_astype(&typed.data[i], tangents[i],
                              trace->inputs.data[i]->dtype, stream);
    if (!status)
        status = qn_walk_forward(&walk, typed.data, made.data);
    for (size_t i = 0; i < nout && !status; i++)
        if (!made.data[i])
            status =
                qn_op_zeros_like(&made.data[i], trace->outputs.data[i], stream);
    qn_arrays_free(&typed);
    if (status)
        qn_arrays_free(&made);
    else
        *results = made;
    return status;
}

qn_status qn_jvp(qn_arrays *outputs, qn_arrays *results, const qn_function *fun,
                 qn_array *const *primals, size_t nprimals,
                 qn_array *const *tangents, size_t ntangents)
{
    qn_trace trace;
    qn_status status = check_tangents(primals, nprimals, tangents, ntangents);
    if (!status)
        status = qn_trace_values(&trace, fun, primals, nprimals);
    if (status)
        return status;
    status = tangents_of(results, &trace, tangents);
    if (!status) {
        *outputs = trace.outputs;
        trace.outputs = (qn_arrays){0};
    }
    qn_trace_end(&trace);
    return status;
}
