/* types.c: conversions, and the choice between two arrays. */
#include "loops.h"
#include "stage.h"

#include "backend/common/output.h"

static bool is_float_value(qn_dtype dtype)
{
    return qn_value_dtype(dtype) == QN_FLOAT32;
}

qn_status qn_ref_astype(qn_node *node)
{
    const qn_array *in = node->inputs[0];
    qn_array *out = node->outputs[0];
    /* A block is read before it is written, and of one item size. */
    qn_status status = qn_output_reuse(out, node->inputs, 1);
    if (status)
        return status;
    bool floats = is_float_value(in->dtype) && is_float_value(out->dtype);
    qn_wide wide = qn_wide_of(in->dtype);
    qn_plan plan;
    qn_walk walk;
    qn_block block;
    qn_plan_elementwise(&plan, (const qn_array *[]){out, in}, 2);
    for (qn_walk_start(&walk, &plan, 0, plan.nruns); walk.left;
         qn_walk_next(&walk)) {
        for (size_t first = 0; first < plan.run; first += QN_BLOCK) {
            size_t left = plan.run - first;
            size_t n = left < QN_BLOCK ? left : QN_BLOCK;
            int64_t at = (int64_t)first;
            void *to = qn_element(out, walk.offsets[0] + at * plan.step[0]);
            void *from = qn_element(in, walk.offsets[1] + at * plan.step[1]);
            if (floats) {
                qn_values_load(&block, in->dtype, from, plan.step[1], n);
                qn_values_store(to, out->dtype, plan.step[0], &block, n);
            } else {
                qn_wide_load(&block, in->dtype, from, plan.step[1], n);
                qn_wide_store(to, out->dtype, plan.step[0], &block, wide, n);
            }
        }
    }
    return QN_OK;
}

/* One loop per item size; complex numbers are chosen as eight bytes. */
#define SELECT(T)                                                              \
    static void select_##T(size_t n, void *out, const void *const *in)         \
    {                                                                          \
        const uint8_t *condition = in[0];                                      \
        const T *x = in[1], *y = in[2];                                        \
        T *to = out;                                                           \
        for (size_t i = 0; i < n; i++)                                         \
            to[i] = condition[i] ? x[i] : y[i];                                \
    }
typedef struct eight_bytes {
    uint32_t parts[2];
} eight_bytes;
/* clang-format off */
SELECT(uint8_t)
SELECT(uint16_t)
SELECT(uint32_t)
SELECT(float)
SELECT(eight_bytes)
/* clang-format on */

qn_ref_kernel qn_ref_where_kernel(qn_dtype dtype)
{
    dtype = qn_value_dtype(dtype);
    if (dtype == QN_FLOAT32)
        return select_float;
    switch (qn_dtype_size(dtype)) {
    case 1:
        return select_uint8_t;
    case 2:
        return select_uint16_t;
    case 4:
        return select_uint32_t;
    default:
        return select_eight_bytes;
    }
}

qn_status qn_ref_where(qn_node *node)
{
    return qn_ref_map(node, qn_ref_where_kernel(node->outputs[0]->dtype), 3);
}
