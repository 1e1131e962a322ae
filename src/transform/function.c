/* function.c: lists of arrays, and calls under a recording. */
#include "function.h"

#include "ops/ops.h"

#include "base/alloc.h"

qn_status qn_arrays_new(qn_arrays *out, size_t count)
{
    qn_array **data = qn_calloc(count, sizeof *data);
    *out = (qn_arrays){data, data ? count : 0};
    return data ? QN_OK : QN_E_NOMEM;
}

qn_status qn_arrays_copy(qn_arrays *out, qn_array *const *arrays, size_t count)
{
    qn_status status = qn_arrays_new(out, count);
    for (size_t i = 0; i < count && !status; i++)
        out->data[i] = qn_array_ref(arrays[i]);
    return status;
}

void qn_arrays_free(qn_arrays *arrays)
{
    for (size_t i = 0; i < arrays->count; i++)
        qn_array_unref(arrays->data[i]);
    qn_free(arrays->data);
    *arrays = (qn_arrays){0};
}

static qn_status run(qn_trace *trace, const qn_function *fun, bool shapeless)
{
    qn_record_begin(&trace->record, shapeless);
    qn_status status = fun->call(fun, &trace->outputs, trace->inputs.data,
                                 trace->inputs.count);
    qn_record_stop(&trace->record);
    if (status)
        qn_trace_end(trace);
    return status;
}

/* The stream that an array was or will be computed on. */
static qn_status stream_of(qn_stream **out)
{
    return qn_stream_default(out, qn_device_default());
}

qn_status qn_trace_values(qn_trace *trace, const qn_function *fun,
                          qn_array *const *inputs, size_t ninputs)
{
    qn_stream *stream;
    *trace = (qn_trace){0};
    qn_status status = qn_arrays_new(&trace->inputs, ninputs);
    if (!status)
        status = stream_of(&stream);
    for (size_t i = 0; i < ninputs && !status; i++)
        status = qn_op_depends(&trace->inputs.data[i], &inputs[i], 1, NULL, 0,
                               stream);
    if (status) {
        qn_arrays_free(&trace->inputs);
        return status;
    }
    return run(trace, fun, false);
}

qn_status qn_trace_given(qn_trace *trace, const qn_function *fun,
                         qn_array *const *inputs, size_t ninputs,
                         bool shapeless)
{
    *trace = (qn_trace){0};
    qn_status status = qn_arrays_copy(&trace->inputs, inputs, ninputs);
    return status ? status : run(trace, fun, shapeless);
}

qn_status qn_trace_like(qn_trace *trace, const qn_function *fun,
                        qn_array *const *inputs, size_t ninputs, bool shapeless)
{
    *trace = (qn_trace){0};
    qn_status status = qn_arrays_new(&trace->inputs, ninputs);
    for (size_t i = 0; i < ninputs && !status; i++)
        status = qn_array_new(&trace->inputs.data[i], inputs[i]->dtype,
                              inputs[i]->shape, inputs[i]->ndim);
    if (status) {
        qn_arrays_free(&trace->inputs);
        return status;
    }
    return run(trace, fun, shapeless);
}

void qn_trace_end(qn_trace *trace)
{
    qn_record_end(&trace->record);
    qn_arrays_free(&trace->inputs);
    qn_arrays_free(&trace->outputs);
}
