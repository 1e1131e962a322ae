/* output.c: donation of inputs. */
#include "output.h"

bool qn_output_donate(qn_array *out, const qn_array *input)
{
    if (input->size == 0 || input->ndim != out->ndim ||
        qn_array_itemsize(input) != qn_array_itemsize(out))
        return false;
    for (int axis = 0; axis < out->ndim; axis++)
        if (input->shape[axis] != out->shape[axis])
            return false;
    if (!input->contiguous || !qn_array_donatable(input))
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
