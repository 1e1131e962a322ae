/* transform.c: nodes that transformations leave in a graph. */
#include "loops.h"
#include "stage.h"

#include "backend/common/view.h"

qn_status qn_ref_stop_gradient(qn_node *node)
{
    return qn_view_run(node, qn_ref_copy_to);
}

/* The last inputs are the outputs. */
qn_status qn_ref_custom(qn_node *node)
{
    const qn_custom_params *p = node->params;
    for (int i = 0; i < node->noutputs; i++)
        qn_array_share(node->outputs[i], node->inputs[p->nprimals + i]);
    return QN_OK;
}

qn_status qn_ref_number_of_elements(qn_node *node)
{
    const qn_number_of_elements_params *p = node->params;
    qn_array *out = node->outputs[0];
    qn_status status = qn_array_alloc(out);
    if (status)
        return status;
    double count = 1;
    for (int i = 0; i < p->naxes; i++)
        count *= node->inputs[0]->shape[p->axes[i]];
    if (p->inverted)
        count = 1 / count;
    qn_wide_store(qn_array_data(out), out->dtype, 1, &count, QN_WIDE_FLOAT, 1);
    return QN_OK;
}
