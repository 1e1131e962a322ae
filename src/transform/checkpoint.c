/* checkpoint.c: one CUSTOM node around a call, whose gradient rule calls again.
 *
 * The node's primals are the inputs and whatever else the recorded call took
 * from outside: the rule finds the same arrays again when it calls, because
 * a function captures arrays, not values. */
#include "checkpoint.h"

#include "grad.h"
#include "ops/custom.h"
#include "ops/rules.h"
#include "slots.h"

#include "base/alloc.h"

typedef struct checkpoint {
    qn_custom custom;
    qn_shared_function *fun;
    int ninputs; /* of the primals; the others were captured */
} checkpoint;

static void destroy(qn_custom *custom)
{
    checkpoint *c = (checkpoint *)custom;
    c->fun->release(c->fun);
    qn_free(c);
}

/* ---- the way back ---- */

static qn_status walk(const qn_trace *trace, qn_array **grads,
                      qn_array *const *seeds, size_t nseeds,
                      qn_array *const *cotangents, qn_array *const *primals)
{
    qn_stream *stream;
    qn_walk_of w = {.first = trace->record.first,
                    .end = trace->record.end,
                    .seeds = seeds,
                    .nseeds = nseeds,
                    .outputs = trace->outputs.data,
                    .noutputs = trace->outputs.count};
    qn_status status = qn_walk_back(&w, cotangents, grads);
    if (!status)
        status = qn_stream_default(&stream, qn_device_default());
    for (size_t i = 0; i < nseeds && !status; i++)
        if (!grads[i])
            status = qn_op_zeros_like(&grads[i], primals[i], stream);
    for (size_t i = 0; i < nseeds && status; i++) {
        qn_array_unref(grads[i]);
        grads[i] = NULL;
    }
    return status;
}

static qn_status again(qn_custom *self, qn_array **grads,
                       qn_array *const *primals, int nprimals,
                       qn_array *const *cotangents, qn_array *const *outputs,
                       int noutputs)
{
    const checkpoint *c = (const checkpoint *)self;
    size_t ninputs = (size_t)c->ninputs, nseeds = (size_t)nprimals;
    qn_stream *stream;
    qn_arrays seeds;
    qn_trace trace;
    qn_status status = qn_arrays_new(&seeds, nseeds);
    if (status)
        return status;
    status = qn_stream_default(&stream, qn_device_default());
    /* After the outputs, or nothing would be saved. */
    if (!status)
        status = qn_op_depends(seeds.data, primals, ninputs, outputs,
                               (size_t)noutputs, stream);
    if (!status)
        status = qn_trace_given(&trace, &c->fun->function, seeds.data, ninputs,
                                false);
    if (!status) {
        for (size_t i = ninputs; i < nseeds; i++)
            seeds.data[i] = qn_array_ref(primals[i]);
        if (trace.outputs.count != (size_t)noutputs)
            status = qn_fail(QN_E_ARG,
                             "[checkpoint] The function returned %zu arrays "
                             "the second time, %d the first time.",
                             trace.outputs.count, noutputs);
        else
            status =
                walk(&trace, grads, seeds.data, nseeds, cotangents, primals);
        qn_trace_end(&trace);
    }
    qn_arrays_free(&seeds);
    return status;
}

/* ---- the call ---- */

/* Lists the inputs, then what the recorded nodes took from elsewhere; once
 * each. */
static qn_status find_primals(qn_arrays *out, const qn_trace *trace)
{
    qn_slots known = {0};
    size_t ninputs = trace->inputs.count, count = ninputs;
    for (size_t i = trace->record.first; i < trace->record.end; i++)
        count += (size_t)qn_record_at(i).node->ninputs;
    qn_arrays list;
    qn_status status = qn_arrays_new(&list, count);
    if (status)
        return status;
    size_t n = 0;
    for (; n < ninputs && !status; n++) {
        list.data[n] = qn_array_ref(trace->inputs.data[n]);
        status = qn_slots_put(&known, list.data[n], 0);
    }
    for (size_t i = trace->record.first; i < trace->record.end; i++) {
        qn_record_entry e = qn_record_at(i);
        for (int k = 0; k < e.node->ninputs && !status; k++) {
            if (qn_slots_find(&known, e.inputs[k]) != QN_NO_SLOT)
                continue;
            list.data[n++] = qn_array_ref(e.inputs[k]);
            status = qn_slots_put(&known, e.inputs[k], 0);
        }
        for (int k = 0; k < e.node->noutputs && !status; k++)
            status = qn_slots_put(&known, e.outputs[k], 0);
    }
    qn_slots_free(&known);
    list.count = n;
    if (status)
        qn_arrays_free(&list);
    else
        *out = list;
    return status;
}

static qn_status make_custom(qn_custom **out, const qn_shared_function *fun,
                             size_t ninputs)
{
    checkpoint *c = qn_alloc(sizeof *c);
    if (!c)
        return QN_E_NOMEM;
    *c = (checkpoint){.custom = {.vjp = again, .free = destroy},
                      .fun = fun->share(fun),
                      .ninputs = (int)ninputs};
    if (!c->fun) {
        qn_free(c);
        return QN_E_NOMEM;
    }
    atomic_init(&c->custom.refs, 1);
    *out = &c->custom;
    return QN_OK;
}

/* The node around a recorded call. */
static qn_status wrap(qn_arrays *outputs, const qn_trace *trace,
                      const qn_shared_function *fun)
{
    qn_stream *stream;
    qn_custom *custom = NULL;
    qn_arrays primals = {0}, made = {0};
    size_t n = trace->outputs.count;
    if (!n)
        return qn_fail(QN_E_ARG,
                       "[checkpoint] The function returned no array.");
    qn_status status = find_primals(&primals, trace);
    if (!status)
        status = make_custom(&custom, fun, trace->inputs.count);
    if (!status)
        status = qn_arrays_new(&made, n);
    if (!status)
        status = qn_stream_default(&stream, qn_device_default());
    if (!status)
        status =
            qn_op_custom(made.data, custom, primals.data, (int)primals.count,
                         trace->outputs.data, (int)n, stream);
    qn_custom_unref(custom);
    qn_arrays_free(&primals);
    if (status)
        qn_arrays_free(&made);
    else
        *outputs = made;
    return status;
}

qn_status qn_checkpoint(qn_arrays *outputs, const qn_shared_function *fun,
                        qn_array *const *inputs, size_t ninputs)
{
    if (!qn_record_listening())
        return fun->function.call(&fun->function, outputs, inputs, ninputs);
    qn_trace trace;
    qn_status status =
        qn_trace_given(&trace, &fun->function, inputs, ninputs, false);
    if (status)
        return status;
    status = wrap(outputs, &trace, fun);
    qn_trace_end(&trace);
    return status;
}

/* ---- checks ---- */

qn_status qn_check_gradients(qn_array *const *primals, size_t nprimals,
                             qn_array *const *grads, size_t ngrads)
{
    if (ngrads != nprimals)
        return qn_fail(QN_E_ARG,
                       "[custom_vjp] Expected %zu gradients, one for each "
                       "primal, found %zu.",
                       nprimals, ngrads);
    for (size_t i = 0; i < nprimals; i++) {
        const qn_array *x = primals[i], *g = grads[i];
        if (!qn_same_shape(x, g) || x->dtype != g->dtype)
            return qn_fail(QN_E_ARG,
                           "[custom_vjp] Gradient %zu must be like its primal, "
                           "%s of shape %s, found %s of shape %s.",
                           i, qn_dtype_name(x->dtype),
                           qn_array_shape_text(x).text, qn_dtype_name(g->dtype),
                           qn_array_shape_text(g).text);
    }
    return QN_OK;
}

qn_status qn_check_results(const char *rule, size_t nresults, size_t noutputs)
{
    if (nresults != noutputs)
        return qn_fail(QN_E_ARG,
                       "[%s] Expected %zu arrays, one for each output, found "
                       "%zu.",
                       rule, noutputs, nresults);
    return QN_OK;
}
