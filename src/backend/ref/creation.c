/* creation.c: arrays from nothing but a value or a rule. */
#include "loops.h"
#include "stage.h"

#include "backend/common/view.h"

qn_status qn_ref_full(qn_node *node)
{
    const qn_array *value = node->inputs[0];
    qn_array *out = node->outputs[0];
    qn_status status = qn_array_alloc(out);
    if (status)
        return status;
    int64_t strides[QN_MAX_NDIM];
    qn_view_broadcast(strides, value, out->shape, out->ndim);
    qn_ref_combine_window(QN_COMBINE_SET, out->dtype,
                          (qn_ref_window){qn_array_data(out), out->strides},
                          (qn_ref_window){qn_array_data(value), strides},
                          out->shape, out->ndim);
    return QN_OK;
}

void qn_ref_fill_range(qn_array *out, const qn_arange_params *p)
{
    qn_wide wide = qn_wide_of(out->dtype);
    for (size_t first = 0; first < out->size; first += QN_BLOCK) {
        size_t left = out->size - first, n = left < QN_BLOCK ? left : QN_BLOCK;
        double floats[QN_BLOCK];
        uint64_t ints[QN_BLOCK]; /* wraps */
        for (size_t i = 0; i < n; i++) {
            floats[i] = p->start + (double)(first + i) * p->step;
            ints[i] = (uint64_t)p->istart + (first + i) * (uint64_t)p->istep;
        }
        void *to = qn_element(out, (int64_t)first);
        if (wide == QN_WIDE_FLOAT || wide == QN_WIDE_COMPLEX)
            qn_wide_store(to, out->dtype, 1, floats, QN_WIDE_FLOAT, n);
        else
            qn_wide_store(to, out->dtype, 1, ints, QN_WIDE_UINT, n);
    }
}

qn_status qn_ref_arange(qn_node *node)
{
    qn_array *out = node->outputs[0];
    qn_status status = qn_array_alloc(out);
    if (!status)
        qn_ref_fill_range(out, node->params);
    return status;
}
