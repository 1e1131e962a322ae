/* load.c: asks the source of an array for its elements. */
#include "loops.h"

qn_status qn_ref_load(qn_node *node)
{
    const qn_load_params *p = node->params;
    void *data[QN_LOAD_OUTPUTS];
    for (int i = 0; i < node->noutputs; i++) {
        qn_array *out = node->outputs[i];
        qn_status status = qn_array_alloc(out);
        if (status)
            return status;
        data[i] = qn_array_data(out);
        if (!p->col_major)
            continue;
        uint64_t stride = 1;
        for (int axis = 0; axis < out->ndim; axis++) {
            out->strides[axis] = (int64_t)stride;
            stride *= (uint64_t)out->shape[axis];
        }
        qn_array_update_flags(out);
    }
    return p->fill(p->source, data);
}
