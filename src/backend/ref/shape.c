/* shape.c: views (backend/common decides) and the copies behind them. */
#include "loops.h"
#include "stage.h"

#include "backend/common/output.h"
#include "backend/common/view.h"

#include <string.h>

void qn_ref_copy_run(void *to, int64_t to_step, const void *from,
                     int64_t from_step, size_t n, size_t size)
{
    if (to == from && to_step == from_step)
        return; /* over a donated input; memcpy may not overlap */
    if (to_step == 1 && from_step == 1) {
        memcpy(to, from, n * size);
        return;
    }
    char *target = to;
    const char *source = from;
    int64_t to_bytes = to_step * (int64_t)size;
    int64_t from_bytes = from_step * (int64_t)size;
    /* Sizes spelled out become plain loads and stores. */
    switch (size) {
    case 1:
        for (; n; n--, target += to_bytes, source += from_bytes)
            memcpy(target, source, 1);
        break;
    case 2:
        for (; n; n--, target += to_bytes, source += from_bytes)
            memcpy(target, source, 2);
        break;
    case 4:
        for (; n; n--, target += to_bytes, source += from_bytes)
            memcpy(target, source, 4);
        break;
    default:
        for (; n; n--, target += to_bytes, source += from_bytes)
            memcpy(target, source, size);
        break;
    }
}

void qn_ref_combine_run(qn_combine combine, qn_dtype dtype, size_t n,
                        qn_ref_run_operand to, qn_ref_run_operand from)
{
    static const qn_op ops[] = {[QN_COMBINE_SUM] = QN_OP_ADD,
                                [QN_COMBINE_PROD] = QN_OP_MULTIPLY,
                                [QN_COMBINE_MAX] = QN_OP_MAXIMUM,
                                [QN_COMBINE_MIN] = QN_OP_MINIMUM};
    if (combine == QN_COMBINE_SET)
        qn_ref_copy_run(to.at, to.step, from.at, from.step, n,
                        qn_dtype_size(dtype));
    else
        qn_ref_map_run(qn_ref_binary_kernel(ops[combine], dtype), dtype, n, to,
                       to, from);
}

void qn_ref_combine_window(qn_combine combine, qn_dtype dtype, qn_ref_window to,
                           qn_ref_window from, const int *shape, int ndim)
{
    qn_plan plan;
    qn_walk walk;
    int64_t size = (int64_t)qn_dtype_size(dtype);
    qn_plan_make(&plan, shape, ndim,
                 (const int64_t *[]){to.strides, from.strides}, 2);
    for (qn_walk_start(&walk, &plan, 0, plan.nruns); walk.left;
         qn_walk_next(&walk)) {
        qn_ref_run_operand target = {(char *)to.at + walk.offsets[0] * size,
                                     plan.step[0]};
        qn_ref_run_operand source = {(char *)from.at + walk.offsets[1] * size,
                                     plan.step[1]};
        qn_ref_combine_run(combine, dtype, plan.run, target, source);
    }
}

qn_status qn_ref_copy_to(qn_array *target, const qn_array *source)
{
    /* Over the source's shape; the target is row-major, so its own shape
     * does not matter. */
    int64_t strides[QN_MAX_NDIM];
    qn_row_strides(strides, source->shape, source->ndim);
    qn_ref_combine_window(
        QN_COMBINE_SET, source->dtype,
        (qn_ref_window){qn_array_data(target), strides},
        (qn_ref_window){qn_array_data(source), source->strides}, source->shape,
        source->ndim);
    return QN_OK;
}

qn_status qn_ref_start_from(qn_array *out, qn_array *source)
{
    if (qn_output_donate(out, source))
        return QN_OK;
    qn_status status = qn_array_alloc(out);
    return status ? status : qn_ref_copy_to(out, source);
}

static qn_status run_view(qn_node *node)
{
    return qn_view_run(node, qn_ref_copy_to);
}

qn_status qn_ref_as_strided(qn_node *node)
{
    return run_view(node);
}
qn_status qn_ref_broadcast_to(qn_node *node)
{
    return run_view(node);
}
qn_status qn_ref_contiguous(qn_node *node)
{
    return run_view(node);
}
qn_status qn_ref_copy(qn_node *node)
{
    return run_view(node);
}
qn_status qn_ref_materialize(qn_node *node)
{
    return run_view(node);
}
qn_status qn_ref_reshape(qn_node *node)
{
    return run_view(node);
}
qn_status qn_ref_transpose(qn_node *node)
{
    return run_view(node);
}
qn_status qn_ref_depends(qn_node *node)
{
    return run_view(node);
}
qn_status qn_ref_slice(qn_node *node)
{
    return run_view(node);
}
qn_status qn_ref_view(qn_node *node)
{
    return run_view(node);
}
