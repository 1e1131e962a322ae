/* output.c: donation of inputs. */
#include "output.h"

bool qn_layout_dense(const qn_array *array)
{
    /* Places the axes from the innermost outwards: each must step by exactly
     * what the ones inside it fill.  At most 32 axes, so the search may be
     * plain. */
    int64_t filled = 1;
    uint32_t placed = 0;
    if (array->row_contiguous)
        return true;
    for (int n = 0; n < array->ndim; n++) {
        int found = -1;
        for (int axis = 0; axis < array->ndim && found < 0; axis++)
            if (!(placed >> axis & 1) &&
                (array->shape[axis] == 1 || array->strides[axis] == filled))
                found = axis;
        if (found < 0)
            return false;
        placed |= 1u << found;
        filled *= array->shape[found];
    }
    return true;
}

bool qn_output_donate(qn_array *out, const qn_array *input)
{
    if (input->size == 0 || input->ndim != out->ndim ||
        qn_array_itemsize(input) != qn_array_itemsize(out))
        return false;
    for (int axis = 0; axis < out->ndim; axis++)
        if (input->shape[axis] != out->shape[axis])
            return false;
    if (!qn_array_donatable(input) || !qn_layout_dense(input))
        return false;
    qn_array_share(out, input);
    return true;
}

qn_status qn_output_reuse(qn_array *out, qn_array *const *inputs, int ninputs)
{
    for (int i = 0; i < ninputs; i++)
        if (qn_output_donate(out, inputs[i]))
            return QN_OK;
    return qn_array_alloc(out);
}
