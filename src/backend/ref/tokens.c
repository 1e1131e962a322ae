/* tokens.c: masks of tokens and the choice of one. */
#include "loops.h"
#include "stage.h"

#include "base/f16.h"

#include <math.h>
#include <string.h>

/* What float32 becomes in the type, as float32. */
static float rounded(float x, qn_dtype type)
{
    if (type == QN_FLOAT16)
        return qn_f16_to_f32(qn_f32_to_f16(x));
    return type == QN_BFLOAT16 ? qn_bf16_to_f32(qn_f32_to_bf16(x)) : x;
}

/* Number of the mask of a row: one for all, for each, or for the rows of each
 * entry of the first axis. */
static size_t mask_of(size_t row, size_t rows, size_t masks)
{
    return masks == 1 ? 0 : row / (rows / masks);
}

static bool allowed(const qn_node *node, size_t mask, size_t token)
{
    const qn_array *words = node->inputs[1];
    if (node->ninputs > 2 &&
        *(const uint8_t *)qn_element(
            node->inputs[2], (int64_t)mask * node->inputs[2]->strides[0]))
        return true;
    uint32_t word = 0;
    if (token / 32 < (size_t)words->shape[1])
        memcpy(&word,
               qn_element(words, (int64_t)mask * words->strides[0] +
                                     (int64_t)(token / 32) * words->strides[1]),
               sizeof word);
    return word >> token % 32 & 1;
}

qn_status qn_ref_token_bitmask(qn_node *node)
{
    const qn_array *in = node->inputs[0];
    qn_array *out = node->outputs[0];
    qn_status status = qn_array_alloc(out);
    if (status)
        return status;
    size_t n = (size_t)in->shape[in->ndim - 1], row = 0;
    size_t masks = (size_t)node->inputs[1]->shape[0];
    qn_lines lines;
    qn_walk walk;
    qn_lines_make(&lines, in->shape, in->ndim, in->ndim - 1,
                  (const int64_t *[]){in->strides}, 1);
    for (qn_walk_start(&walk, &lines.outer, 0, lines.outer.nruns); walk.left;
         qn_walk_next(&walk), row++) {
        size_t mask = mask_of(row, lines.outer.nruns, masks);
        for (size_t i = 0; i < n; i++) {
            int64_t at = walk.offsets[0] + (int64_t)i * lines.step[0];
            float x;
            qn_floats_load(&x, in->dtype, qn_element(in, at), 1, 1);
            x += allowed(node, mask, i) ? 0.0f : -INFINITY;
            qn_floats_store(qn_element(out, (int64_t)(row * n + i)), out->dtype,
                            1, &x, 1);
        }
    }
    return QN_OK;
}

qn_status qn_ref_normalized_argmax(qn_node *node)
{
    const qn_array *in = node->inputs[0], *lse = node->inputs[1];
    qn_array *out = node->outputs[0];
    qn_status status = qn_array_alloc(out);
    if (status)
        return status;
    size_t n = (size_t)in->shape[in->ndim - 1];
    uint32_t *to = qn_array_data(out);
    qn_lines lines;
    qn_walk walk;
    qn_lines_make(&lines, in->shape, in->ndim, in->ndim - 1,
                  (const int64_t *[]){in->strides, lse->strides}, 2);
    for (qn_walk_start(&walk, &lines.outer, 0, lines.outer.nruns); walk.left;
         qn_walk_next(&walk), to++) {
        float shift, best = -INFINITY;
        qn_floats_load(&shift, lse->dtype, qn_element(lse, walk.offsets[1]), 1,
                       1);
        *to = 0;
        for (size_t i = 0; i < n; i++) {
            int64_t at = walk.offsets[0] + (int64_t)i * lines.step[0];
            float x;
            qn_floats_load(&x, in->dtype, qn_element(in, at), 1, 1);
            float score = rounded(x - shift, in->dtype);
            if (score > best) {
                best = score;
                *to = (uint32_t)i;
            }
        }
    }
    return QN_OK;
}
