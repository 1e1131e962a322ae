/* slice.c: blocks read from, written to and joined into arrays.  A window is
 * a block of an array: its first element and its own strides. */
#include "loops.h"
#include "stage.h"

static qn_ref_window window_of(const qn_array *array)
{
    return (qn_ref_window){qn_array_data(array), array->strides};
}

/* The starts of a dynamic slice, one per axis of `source`, each checked: a
 * window of `shape` that leaves the source fails the evaluation. */
static qn_status read_starts(int64_t *starts, const qn_node *node,
                             const qn_array *source, const qn_array *start,
                             const int *shape)
{
    const qn_slice_dynamic_params *p = node->params;
    for (int axis = 0; axis < source->ndim; axis++)
        starts[axis] = 0;
    for (int i = 0; i < p->naxes; i++) {
        int axis = p->axes[i];
        int64_t step = start->ndim ? start->strides[0] : 0;
        int64_t at = qn_integer_at(start->dtype, qn_element(start, i * step));
        if (at < 0 || at > source->shape[axis] - shape[axis])
            return qn_fail(QN_E_ARG,
                           "[%s] start %lld with size %d is outside of axis "
                           "%d of length %d",
                           qn_op_info_of(node->op)->name, (long long)at,
                           shape[axis], axis, source->shape[axis]);
        starts[axis] = at;
    }
    return QN_OK;
}

static int64_t offset_of(const qn_array *array, const int64_t *index)
{
    int64_t offset = 0;
    for (int axis = 0; axis < array->ndim; axis++)
        offset += index[axis] * array->strides[axis];
    return offset;
}

qn_status qn_ref_slice_dynamic(qn_node *node)
{
    const qn_array *source = node->inputs[0], *start = node->inputs[1];
    qn_array *out = node->outputs[0];
    int64_t starts[QN_MAX_NDIM];
    qn_status status = read_starts(starts, node, source, start, out->shape);
    if (!status)
        status = qn_array_alloc(out);
    if (status || !out->size)
        return status;
    qn_ref_combine_window(
        QN_COMBINE_SET, out->dtype, window_of(out),
        (qn_ref_window){qn_element(source, offset_of(source, starts)),
                        source->strides},
        out->shape, out->ndim);
    return QN_OK;
}

/* Writes `update` over a block of `out`, which holds the source.  The update
 * never shares storage with `out`: a source that is seen through any other
 * array is not donated but copied. */
static void update_block(qn_array *out, const qn_array *update,
                         const int64_t *starts, const int64_t *strides,
                         qn_combine combine)
{
    if (!update->size)
        return;
    qn_ref_combine_window(
        combine, out->dtype,
        (qn_ref_window){qn_element(out, offset_of(out, starts)), strides},
        window_of(update), update->shape, update->ndim);
}

qn_status qn_ref_slice_update(qn_node *node)
{
    const qn_slice_update_params *p = node->params;
    qn_array *out = node->outputs[0];
    qn_status status = qn_ref_start_from(out, node->inputs[0]);
    if (status)
        return status;
    int64_t starts[QN_MAX_NDIM], strides[QN_MAX_NDIM];
    for (int axis = 0; axis < out->ndim; axis++) {
        starts[axis] = p->start[axis];
        strides[axis] = out->strides[axis] * p->strides[axis];
    }
    update_block(out, node->inputs[1], starts, strides, p->combine);
    return QN_OK;
}

qn_status qn_ref_slice_update_dynamic(qn_node *node)
{
    qn_array *out = node->outputs[0], *source = node->inputs[0];
    const qn_array *update = node->inputs[1], *start = node->inputs[2];
    int64_t starts[QN_MAX_NDIM];
    qn_status status = read_starts(starts, node, source, start, update->shape);
    if (!status)
        status = qn_ref_start_from(out, source);
    if (!status)
        update_block(out, update, starts, out->strides, QN_COMBINE_SET);
    return status;
}

qn_status qn_ref_concatenate(qn_node *node)
{
    const qn_axis_params *p = node->params;
    qn_array *out = node->outputs[0];
    qn_status status = qn_array_alloc(out);
    if (status)
        return status;
    int64_t at = 0;
    for (int i = 0; i < node->ninputs; i++) {
        const qn_array *in = node->inputs[i];
        qn_ref_combine_window(
            QN_COMBINE_SET, out->dtype,
            (qn_ref_window){qn_element(out, at * out->strides[p->axis]),
                            out->strides},
            window_of(in), in->shape, in->ndim);
        at += in->shape[p->axis];
    }
    return QN_OK;
}

qn_status qn_ref_pad(qn_node *node)
{
    const qn_pad_params *p = node->params;
    const qn_array *in = node->inputs[0], *value = node->inputs[1];
    qn_array *out = node->outputs[0];
    const int64_t stand[QN_MAX_NDIM] = {0};
    qn_status status = qn_array_alloc(out);
    if (status)
        return status;
    qn_ref_combine_window(QN_COMBINE_SET, out->dtype, window_of(out),
                          (qn_ref_window){qn_array_data(value), stand},
                          out->shape, out->ndim);
    int64_t low[QN_MAX_NDIM];
    for (int axis = 0; axis < out->ndim; axis++)
        low[axis] = p->low[axis];
    update_block(out, in, low, out->strides, QN_COMBINE_SET);
    return QN_OK;
}
