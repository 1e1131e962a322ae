/* mlxfn_names.c: what MLX calls operations in drawings of graphs. */
#include "mlxfn_write.h"

#include "ops/params.h"

static const char *combined(const char *const *names, qn_combine combine)
{
    return names[qn_mlxfn_combine(combine)];
}

const char *qn_mlxfn_node_name(const qn_node *node)
{
    static const char *const scatters[] = {
        "Scatter Max", "Scatter Min", "Scatter Sum", "Scatter Prod", "Scatter"};
    static const char *const updates[] = {"SliceUpdate Max", "SliceUpdate Min",
                                          "SliceUpdate Sum", "SliceUpdate Prod",
                                          "SliceUpdate"};
    static const char *const views[] = {
#define QN_X(id, name, bytes, kind) [QN_##id] = "View " name,
        QN_DTYPES(QN_X)
#undef QN_X
    };
    static const char *const names[QN_OP_COUNT] = {
        [QN_OP_LOG] = "Log",
        [QN_OP_LOG2] = "Log2",
        [QN_OP_LOG10] = "Log10",
        [QN_OP_SQRT] = "Sqrt",
        [QN_OP_RSQRT] = "Rsqrt",
        [QN_OP_TRUNC] = "Trunc",
        [QN_OP_BITWISE_INVERT] = "BitwiseInvert",
        [QN_OP_BITWISE_AND] = "BitwiseAnd",
        [QN_OP_BITWISE_OR] = "BitwiseOr",
        [QN_OP_BITWISE_XOR] = "BitwiseXor",
        [QN_OP_LEFT_SHIFT] = "LeftShift",
        [QN_OP_RIGHT_SHIFT] = "RightShift",
        [QN_OP_DIVIDE] = "Divide",
        [QN_OP_FLOOR_DIVIDE] = "FloorDivide",
        [QN_OP_LOGICAL_XOR] = "LogicalXor",
        [QN_OP_EQUAL] = "Equal",
        [QN_OP_ALL] = "And",
        [QN_OP_ANY] = "Or",
        [QN_OP_MAX] = "Max",
        [QN_OP_MIN] = "Min",
        [QN_OP_PROD] = "Prod",
        [QN_OP_SUM] = "Sum",
        [QN_OP_CUMMAX] = "CumMax",
        [QN_OP_CUMMIN] = "CumMin",
        [QN_OP_CUMPROD] = "CumProd",
        [QN_OP_CUMSUM] = "CumSum",
        [QN_OP_LOGCUMSUMEXP] = "CumLogAddExp",
        [QN_OP_COPY] = "Copy",
        [QN_OP_MATERIALIZE] = "Copy",
        [QN_OP_CONTIGUOUS] = "Contiguous",
        [QN_OP_FULL] = "Full",
        [QN_OP_LOAD] = "Load",
        [QN_OP_CUSTOM] = "CustomTransforms",
        [QN_OP_FUSED] = "Compiled",
        [QN_OP_KERNEL] = "CustomKernel",
        [QN_OP_BROADCAST] = "Broadcast",
        [QN_OP_RESHAPE] = "Reshape",
        [QN_OP_SLICE] = "Slice",
        [QN_OP_MATMUL] = "Matmul",
        [QN_OP_DEQUANTIZE] = "Quantize",
        [QN_OP_HADAMARD] = "Hadamard",
    };
    const void *p = node->params;
    switch (node->op) {
    case QN_OP_VIEW:
        return node->outputs[0] ? views[node->outputs[0]->dtype] : "View";
    case QN_OP_SCATTER:
        return combined(scatters, ((const qn_scatter_params *)p)->combine);
    case QN_OP_SLICE_UPDATE:
        return combined(updates, ((const qn_slice_update_params *)p)->combine);
    case QN_OP_SCATTER_AXIS:
        return ((const qn_scatter_axis_params *)p)->combine == QN_COMBINE_SUM
                   ? "ScatterAxis Sum"
                   : "ScatterAxis";
    default:
        break;
    }
    if (names[node->op])
        return names[node->op];
    for (int i = 0; i < QN_MLXFN_COUNT; i++) {
        const qn_mlxfn_info *info = qn_mlxfn_info_of((qn_mlxfn_prim)i);
        if (info->op == node->op)
            return info->name;
    }
    return qn_op_info_of(node->op)->id;
}
