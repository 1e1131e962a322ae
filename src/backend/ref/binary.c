/* binary.c: the loops of QN_BINARY rows, one per row and type. */
#include "loops.h"
#include "stage.h"

#include "ops/scalar.h"

#define LOOP(dtype, S, T, P, id, result, element)                              \
    static void binary_##id##_##dtype(size_t n, void *out,                     \
                                      const void *const *in)                   \
    {                                                                          \
        QN_STORED_##result(S, P) *to = out;                                    \
        const S *left = in[0], *right = in[1];                                 \
        for (size_t i = 0; i < n; i++) {                                       \
            T a = (T)left[i], b = (T)right[i];                                 \
            to[i] = element;                                                   \
        }                                                                      \
    }

#define QN_BINARY(id, name, types, result, gradient, element, doc)             \
    QN_EACH_##types(LOOP, id, result, element)
#include "ops/ops.def"

#define ENTRY(dtype, S, T, P, id)                                              \
    [QN_BINARY_##id][QN_##dtype] = binary_##id##_##dtype,
#define QN_BINARY(id, name, types, result, gradient, element, doc)             \
    QN_EACH_##types(ENTRY, id)
static const qn_ref_kernel kernels[QN_BINARY_COUNT][QN_DTYPE_COUNT] = {
#include "ops/ops.def"
};

qn_ref_kernel qn_ref_binary_kernel(qn_op op, qn_dtype dtype)
{
    const qn_op_info *info = qn_op_info_of(op);
    return info->family == QN_FAMILY_BINARY
               ? kernels[info->place][qn_value_dtype(dtype)]
               : NULL;
}

qn_status qn_ref_binary(qn_node *node)
{
    qn_dtype dtype = node->inputs[0]->dtype;
    qn_ref_kernel kernel = qn_ref_binary_kernel(node->op, dtype);
    return kernel ? qn_ref_map(node, kernel, 2)
                  : qn_ref_unsupported(node, dtype);
}
