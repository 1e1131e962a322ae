/* run.c: the door of the CPU backend: kernel or reference loop. */
#include "cpu.h"

#include "backend/ref/ref.h"
#include "base/alloc.h"
#include "ops/ops.h"

static const qn_cpu_run table[QN_OP_COUNT] = {
/* clang-format off */
#define QN_UNARY(id, ...) [QN_OP_##id] = qn_cpu_unary,
#define QN_BINARY(id, ...) [QN_OP_##id] = qn_cpu_binary,
#define QN_REDUCE(id, ...) [QN_OP_##id] = qn_cpu_reduce,
#define QN_SCAN(id, ...) [QN_OP_##id] = qn_cpu_scan,
#include "ops/ops.def"
    /* clang-format on */
    [QN_OP_MATMUL] = qn_cpu_matmul,
    [QN_OP_QUANTIZED_MATMUL] = qn_cpu_quantized_matmul,
    [QN_OP_DEQUANTIZE] = qn_cpu_dequantize,
    [QN_OP_PANEL_PACK] = qn_cpu_panel_pack,
    [QN_OP_PANEL_BLOCKS] = qn_cpu_panel_blocks,
    [QN_OP_PANEL_MATMUL] = qn_cpu_panel_matmul,
    [QN_OP_PANEL_ROWS] = qn_cpu_panel_rows,
    [QN_OP_SDPA] = qn_cpu_attention,
    [QN_OP_KV_ATTENTION] = qn_cpu_kv_attention,
    [QN_OP_FUSED] = qn_cpu_fused,
    [QN_OP_SELECT] = qn_cpu_where,
    [QN_OP_ASTYPE] = qn_cpu_astype,
    [QN_OP_AS_STRIDED] = qn_cpu_view,
    [QN_OP_BROADCAST] = qn_cpu_view,
    [QN_OP_CONTIGUOUS] = qn_cpu_view,
    [QN_OP_COPY] = qn_cpu_view,
    [QN_OP_MATERIALIZE] = qn_cpu_view,
    [QN_OP_RESHAPE] = qn_cpu_view,
    [QN_OP_TRANSPOSE] = qn_cpu_view,
    [QN_OP_DEPENDS] = qn_cpu_view,
    [QN_OP_SLICE] = qn_cpu_view,
    [QN_OP_VIEW] = qn_cpu_view,
    [QN_OP_FULL] = qn_cpu_full,
    [QN_OP_SLICE_UPDATE] = qn_cpu_slice_update,
    [QN_OP_CONCATENATE] = qn_cpu_concatenate,
    [QN_OP_GATHER] = qn_cpu_gather,
    [QN_OP_GATHER_AXIS] = qn_cpu_take_along_axis,
    [QN_OP_SOFTMAX] = qn_cpu_softmax,
    [QN_OP_RMS_NORM] = qn_cpu_norm,
    [QN_OP_LAYER_NORM] = qn_cpu_norm,
    [QN_OP_LOGSUMEXP] = qn_cpu_logsumexp,
    [QN_OP_ARG_REDUCE] = qn_cpu_arg_reduce,
    [QN_OP_SORT] = qn_cpu_sort,
    [QN_OP_ARGSORT] = qn_cpu_sort,
    [QN_OP_PARTITION] = qn_cpu_partition,
    [QN_OP_ARGPARTITION] = qn_cpu_partition,
    [QN_OP_ROPE] = qn_cpu_rope,
    [QN_OP_TOKEN_BITMASK] = qn_cpu_token_bitmask,
    [QN_OP_NORMALIZED_ARGMAX] = qn_cpu_normalized_argmax,
    [QN_OP_CONV] = qn_cpu_conv,
    [QN_OP_FFT] = qn_cpu_fft,
    [QN_OP_GATHER_MM] = qn_cpu_gather_mm,
    [QN_OP_GATHER_QMM] = qn_cpu_gather_qmm,
    [QN_OP_REQUANTIZE] = qn_cpu_requantize,
    [QN_OP_KERNEL] = qn_cpu_kernel,
    [QN_OP_SEGMENTED_MM] = qn_cpu_segmented_mm,
    [QN_OP_HADAMARD] = qn_cpu_hadamard,
};

qn_status qn_cpu_try(qn_node *node, bool *done)
{
    qn_cpu_run fast = table[node->op];
    return fast ? fast(node, done) : QN_OK;
}

static qn_status run(qn_node *node)
{
    bool done = false;
    qn_status status = qn_cpu_try(node, &done);
    return status || done ? status : qn_ref_run(node);
}

const qn_backend *qn_backend_cpu(void)
{
    static const qn_backend backend = {.name = "cpu", .run = run};
    return &backend;
}

qn_status qn_cpu_scratch(qn_buffer **out, size_t count, size_t size,
                         size_t *stride)
{
    size_t step, total;
    if (!qn_add_size(&step, size, 127) ||
        !qn_mul_size(&total, step / 128 * 128, count))
        return qn_fail(QN_E_NOMEM, "cpu: scratch memory of %zu x %zu bytes",
                       count, size);
    *stride = step / 128 * 128;
    return qn_buffer_new(out, total);
}
