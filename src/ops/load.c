/* load.c: arrays that come from outside the graph when they are evaluated. */
#include "ops.h"
#include "params.h"

#include <assert.h>

static void free_source(void *params)
{
    const qn_load_params *p = params;
    p->free(p->source);
}

qn_status qn_op_load(qn_array **out, const qn_load_output *outputs, int count,
                     const qn_load_params *params, qn_stream *s)
{
    assert(count > 0 && count <= QN_LOAD_OUTPUTS);
    qn_array *made[QN_LOAD_OUTPUTS] = {NULL};
    int n = 0;
    qn_status status = QN_OK;
    for (; n < count && !status; n += !status)
        status = qn_array_new(&made[n], outputs[n].dtype, outputs[n].shape,
                              outputs[n].ndim);
    const qn_node_spec spec = {.op = QN_OP_LOAD,
                               .stream = s,
                               .params = params,
                               .params_size = sizeof *params,
                               .params_free = free_source};
    if (!status)
        status = qn_node_attach(&spec, made, count);
    for (int i = 0; i < n; i++) {
        if (status)
            qn_array_delete(made[i]);
        else
            out[i] = made[i];
    }
    return status;
}
