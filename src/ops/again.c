/* again.c: operations made once more by their builders.
 *
 * The builders check what they are given, so a node that comes from a file is
 * as safe as one that a program asks for.  For inputs of other shapes than the
 * first time (shapeless), a size that was taken from an input follows that
 * input; an operation whose constants can't be told apart that way refuses. */
#include "quant.h"
#include "rules.h"

#include "base/alloc.h"

#include <limits.h>
#include <string.h>

static const char *name_of(const qn_again *a)
{
    return qn_op_info_of(a->node->op)->name;
}

void qn_again_none(qn_again *a)
{
    qn_scope_fail(a->c, qn_fail(QN_E_UNSUPPORTED,
                                "[%s] This operation can't be made again on "
                                "other inputs.",
                                name_of(a)));
}

/* True where the constants are sizes of the first inputs, and the inputs may
 * be others now. */
static bool refuse_shapeless(qn_again *a)
{
    if (a->shapeless)
        qn_scope_fail(a->c, qn_fail(QN_E_UNSUPPORTED,
                                    "[%s] This operation can't infer its "
                                    "output's shape in a shapeless function.",
                                    name_of(a)));
    return a->shapeless;
}

/* In rules: one output from a call that stores into `made`. */
#define MAKE(call)                                                             \
    do {                                                                       \
        qn_array *made = NULL;                                                 \
        if (!a->c->status)                                                     \
            a->out[0] = qn_scope_hold(a->c, call, &made);                      \
    } while (0)
#define STREAM a->c->stream

/* ---- regular families ---- */

void qn_again_unary(qn_again *a)
{
    MAKE(qn_op_unary(&made, (qn_op)a->node->op, a->in[0], STREAM));
}

void qn_again_binary(qn_again *a)
{
    MAKE(qn_op_binary(&made, (qn_op)a->node->op, a->in[0], a->in[1], STREAM));
}

void qn_again_reduce(qn_again *a)
{
    const qn_reduce_params *p = a->node->params;
    bool keepdims = a->was_out[0]->ndim == a->was_in[0]->ndim;
    MAKE(qn_op_reduce(&made, (qn_op)a->node->op, a->in[0], p->axes,
                      (size_t)p->naxes, keepdims, STREAM));
}

void qn_again_scan(qn_again *a)
{
    const qn_scan_params *p = a->node->params;
    MAKE(qn_op_scan(&made, (qn_op)a->node->op, a->in[0], p->axis, p->reverse,
                    p->inclusive, STREAM));
}

/* ---- creation ---- */

void qn_again_full(qn_again *a)
{
    const qn_array *y = a->was_out[0];
    MAKE(qn_op_full(&made, y->shape, (size_t)y->ndim, a->in[0], y->dtype,
                    STREAM));
}

void qn_again_arange(qn_again *a)
{
    const qn_array *y = a->was_out[0];
    MAKE(qn_make(&made, QN_OP_ARANGE, STREAM, NULL, 0, a->node->params,
                 sizeof(qn_arange_params), y->dtype, y->shape, y->ndim));
}

void qn_again_random_bits(qn_again *a)
{
    const qn_random_bits_params *p = a->node->params;
    const qn_array *y = a->was_out[0];
    MAKE(qn_op_random_bits(&made, y->shape, (size_t)y->ndim, p->width, a->in[0],
                           STREAM));
}

void qn_again_number_of_elements(qn_again *a)
{
    const qn_number_of_elements_params *p = a->node->params;
    MAKE(qn_op_number_of_elements(&made, a->in[0], p->axes, (size_t)p->naxes,
                                  p->inverted, a->was_out[0]->dtype, STREAM));
}

/* ---- types ---- */

void qn_again_astype(qn_again *a)
{
    MAKE(qn_op_astype(&made, a->in[0], a->was_out[0]->dtype, STREAM));
}

void qn_again_view(qn_again *a)
{
    MAKE(qn_op_view(&made, a->in[0], a->was_out[0]->dtype, STREAM));
}

void qn_again_where(qn_again *a)
{
    MAKE(qn_op_where(&made, a->in[0], a->in[1], a->in[2], STREAM));
}

/* ---- shape ---- */

void qn_again_as_strided(qn_again *a)
{
    const qn_as_strided_params *p = a->node->params;
    const qn_array *y = a->was_out[0];
    size_t n = (size_t)y->ndim;
    if (!refuse_shapeless(a))
        MAKE(qn_op_as_strided(&made, a->in[0], y->shape, n, p->strides, n,
                              p->offset, STREAM));
}

/* A shape that a builder derived follows the input along axes that were not
 * stretched; one that a program gave is what it is. */
void qn_again_broadcast(qn_again *a)
{
    const qn_broadcast_params *p = a->node->params;
    const qn_array *x = a->was_in[0];
    qn_dims dims = qn_dims_of(a->was_out[0]);
    int missing = dims.ndim - x->ndim;
    if (a->shapeless && p && p->derived)
        for (int i = 0; i < x->ndim; i++)
            if (x->shape[i] == dims.dim[missing + i])
                dims.dim[missing + i] = a->in[0]->shape[i];
    MAKE(qn_op_broadcast_to(&made, a->in[0], dims.dim, (size_t)dims.ndim,
                            STREAM));
}

void qn_again_contiguous(qn_again *a)
{
    const qn_contiguous_params *p = a->node->params;
    MAKE(qn_op_contiguous(&made, a->in[0], p->allow_col_major, STREAM));
}

void qn_again_materialize(qn_again *a)
{
    MAKE(qn_op_materialize(&made, a->in[0], STREAM));
}

void qn_again_copy(qn_again *a)
{
    MAKE(qn_op_copy(&made, a->in[0], STREAM));
}

/* Finds the target shape for the input's present one.  Both shapes are cut
 * into groups of equal products: an axis kept, several made one, one made
 * several.  In the last kind, and in longer groups, nothing may have changed.
 * Axes of length 1 that were dropped or put in belong to no group. */
static bool regroup(qn_dims *to, const qn_array *was, const qn_array *now)
{
    int i = 0, j = 0;
    while (i < was->ndim || j < to->ndim) {
        /* Lone axes of length 1 have no partner, unless both have one. */
        bool one_in = i < was->ndim && was->shape[i] == 1;
        bool one_out = j < to->ndim && to->dim[j] == 1;
        if (one_in && one_out) {
            to->dim[j++] = now->shape[i++];
            continue;
        }
        if (one_in || i == was->ndim) {
            if (one_in && now->shape[i] != 1)
                return false;
            i += one_in;
            j += !one_in;
            continue;
        }
        if (one_out || j == to->ndim) {
            j++;
            continue;
        }
        int first_in = i, first_out = j;
        int64_t in = was->shape[i++], out = to->dim[j++];
        while (in != out) {
            if (in < out && i < was->ndim)
                in *= was->shape[i++];
            else if (out < in && j < to->ndim)
                out *= to->dim[j++];
            else
                return false;
        }
        if (j - first_out == 1) {
            int64_t length = 1;
            for (int k = first_in; k < i; k++)
                if (__builtin_mul_overflow(length, (int64_t)now->shape[k],
                                           &length))
                    return false;
            if (length > INT_MAX)
                return false;
            to->dim[first_out] = (int)length;
            continue;
        }
        for (int k = first_in; k < i; k++)
            if (now->shape[k] != was->shape[k])
                return false;
    }
    return true;
}

void qn_again_reshape(qn_again *a)
{
    const qn_reshape_params *p = a->node->params;
    qn_dims dims = qn_dims_of(a->was_out[0]);
    if (a->shapeless && p && p->given) {
        if (p->open >= 0)
            dims.dim[p->open] = -1;
    } else if (a->shapeless && !regroup(&dims, a->was_in[0], a->in[0])) {
        refuse_shapeless(a);
    }
    MAKE(qn_op_reshape(&made, a->in[0], dims.dim, (size_t)dims.ndim, STREAM));
}

void qn_again_transpose(qn_again *a)
{
    const qn_transpose_params *p = a->node->params;
    MAKE(qn_op_transpose(&made, a->in[0], p->axes, (size_t)a->was_in[0]->ndim,
                         STREAM));
}

void qn_again_depends(qn_again *a)
{
    size_t n = (size_t)a->node->noutputs;
    size_t rest = (size_t)a->node->ninputs - n;
    qn_array **made = qn_calloc(n, sizeof *made);
    qn_status status = QN_E_NOMEM;
    if (made && !a->c->status)
        status = qn_op_depends(made, a->in, n, a->in + n, rest, STREAM);
    if (status)
        qn_scope_fail(a->c, status);
    else
        for (size_t i = 0; i < n; i++)
            a->out[i] = qn_scope_hold(a->c, QN_OK, &made[i]);
    qn_free(made);
}

void qn_again_stop_gradient(qn_again *a)
{
    MAKE(qn_op_stop_gradient(&made, a->in[0], STREAM));
}

/* ---- slices ---- */

/* Ends for the builders, which take them as Python does. */
static bool slice_ends(qn_again *a, int *stop, const int *start,
                       const int *strides, const qn_array *part)
{
    for (int i = 0; i < part->ndim; i++) {
        int64_t after = start[i] + (int64_t)(part->shape[i] - 1) * strides[i];
        after += strides[i] > 0 ? 1 : -1;
        bool fits = start[i] >= 0 && after >= -1 && after <= INT_MAX;
        if (part->shape[i] && !fits) {
            qn_scope_fail(a->c, qn_fail(QN_E_ARG,
                                        "[%s] The slice reaches outside of "
                                        "the array.",
                                        name_of(a)));
            return false;
        }
        stop[i] = !part->shape[i] ? start[i] : after < 0 ? INT_MIN : (int)after;
    }
    return true;
}

void qn_again_slice(qn_again *a)
{
    const qn_slice_params *p = a->node->params;
    int stop[QN_MAX_NDIM];
    size_t n = (size_t)a->was_out[0]->ndim;
    if (!refuse_shapeless(a) &&
        slice_ends(a, stop, p->start, p->strides, a->was_out[0]))
        MAKE(qn_op_slice(&made, a->in[0], p->start, n, stop, n, p->strides, n,
                         STREAM));
}

void qn_again_slice_update(qn_again *a)
{
    const qn_slice_update_params *p = a->node->params;
    int stop[QN_MAX_NDIM];
    size_t n = (size_t)a->was_in[1]->ndim;
    if (!refuse_shapeless(a) &&
        slice_ends(a, stop, p->start, p->strides, a->was_in[1]))
        MAKE(qn_op_slice_update(&made, a->in[0], a->in[1], p->start, n, stop, n,
                                p->strides, n, p->combine, STREAM));
}

/* Sizes along axes without a start follow the source if they were whole. */
void qn_again_slice_dynamic(qn_again *a)
{
    const qn_slice_dynamic_params *p = a->node->params;
    const qn_array *was = a->was_in[0];
    qn_dims size = qn_dims_of(a->was_out[0]);
    if (a->shapeless)
        for (int i = 0; i < was->ndim; i++) {
            bool placed = false;
            for (int k = 0; k < p->naxes; k++)
                placed |= p->axes[k] == i;
            if (!placed && size.dim[i] == was->shape[i])
                size.dim[i] = a->in[0]->shape[i];
        }
    MAKE(qn_op_slice_dynamic(&made, a->in[0], a->in[1], p->axes,
                             (size_t)p->naxes, size.dim, (size_t)size.ndim,
                             STREAM));
}

void qn_again_slice_update_dynamic(qn_again *a)
{
    const qn_slice_dynamic_params *p = a->node->params;
    MAKE(qn_op_slice_update_dynamic(&made, a->in[0], a->in[1], a->in[2],
                                    p->axes, (size_t)p->naxes, STREAM));
}

void qn_again_concatenate(qn_again *a)
{
    const qn_axis_params *p = a->node->params;
    MAKE(qn_op_concatenate(&made, a->in, (size_t)a->node->ninputs, p->axis,
                           STREAM));
}

void qn_again_pad(qn_again *a)
{
    const qn_pad_params *p = a->node->params;
    int axes[QN_MAX_NDIM], high[QN_MAX_NDIM], ndim = a->was_in[0]->ndim;
    for (int i = 0; i < ndim; i++) {
        axes[i] = i;
        int64_t rest = (int64_t)a->was_out[0]->shape[i] - p->low[i] -
                       a->was_in[0]->shape[i];
        high[i] = rest < INT_MIN || rest > INT_MAX ? -1 : (int)rest;
    }
    size_t n = (size_t)ndim;
    MAKE(qn_op_pad(&made, a->in[0], axes, n, p->low, n, high, n, a->in[1],
                   "constant", STREAM));
}

/* ---- indices ---- */

void qn_again_gather(qn_again *a)
{
    const qn_gather_params *p = a->node->params;
    const qn_array *was = a->was_in[0];
    int sizes[QN_MAX_NDIM];
    memcpy(sizes, p->slice_sizes, sizeof sizes);
    if (a->shapeless)
        for (int i = 0; i < was->ndim; i++) {
            bool indexed = false;
            for (int k = 0; k < p->naxes; k++)
                indexed |= p->axes[k] == i;
            if (!indexed && sizes[i] == was->shape[i])
                sizes[i] = a->in[0]->shape[i];
        }
    size_t n = (size_t)p->naxes;
    MAKE(qn_op_gather(&made, a->in[0], a->in + 1, n, p->axes, n, sizes,
                      (size_t)was->ndim, STREAM));
}

void qn_again_gather_axis(qn_again *a)
{
    const qn_axis_params *p = a->node->params;
    MAKE(qn_op_take_along_axis(&made, a->in[0], a->in[1], p->axis, STREAM));
}

void qn_again_scatter(qn_again *a)
{
    const qn_scatter_params *p = a->node->params;
    size_t n = (size_t)p->naxes;
    MAKE(qn_op_scatter(&made, a->in[0], a->in + 1, n, a->in[1 + n], p->axes, n,
                       p->combine, STREAM));
}

void qn_again_scatter_axis(qn_again *a)
{
    const qn_scatter_axis_params *p = a->node->params;
    MAKE(qn_op_scatter_axis(&made, a->in[0], a->in[1], a->in[2], p->axis,
                            p->combine, STREAM));
}

void qn_again_masked_scatter(qn_again *a)
{
    MAKE(qn_op_masked_scatter(&made, a->in[0], a->in[1], a->in[2], STREAM));
}

/* ---- order ---- */

void qn_again_arg_reduce(qn_again *a)
{
    const qn_arg_reduce_params *p = a->node->params;
    bool keepdims = a->was_out[0]->ndim == a->was_in[0]->ndim;
    MAKE(qn_op_arg_reduce(&made, a->in[0], p->max, p->axis, keepdims, STREAM));
}

void qn_again_sort(qn_again *a)
{
    const qn_axis_params *p = a->node->params;
    MAKE(qn_op_sort(&made, (qn_op)a->node->op, a->in[0], p->axis, STREAM));
}

void qn_again_partition(qn_again *a)
{
    const qn_partition_params *p = a->node->params;
    MAKE(qn_op_partition(&made, (qn_op)a->node->op, a->in[0], p->kth, p->axis,
                         STREAM));
}

void qn_again_searchsorted(qn_again *a)
{
    const qn_searchsorted_params *p = a->node->params;
    MAKE(qn_op_searchsorted(&made, a->in[0], a->in[1],
                            p->right ? "right" : "left", STREAM));
}

/* ---- products ---- */

void qn_again_matmul(qn_again *a)
{
    MAKE(qn_op_matmul(&made, a->in[0], a->in[1], STREAM));
}

void qn_again_quantized_matmul(qn_again *a)
{
    const qn_quant_params *p = a->node->params;
    qn_array *biases = p->mode == QN_QUANT_AFFINE ? a->in[3] : NULL;
    bool keep = a->was_out[0]->dtype == a->was_in[0]->dtype;
    MAKE(qn_op_quantized_product(&made, a->in[0], a->in[1], a->in[2], biases,
                                 p->transpose, p->group_size, p->bits,
                                 qn_packed_mode_name(p->mode), keep, STREAM));
}

void qn_again_quantize(qn_again *a)
{
    const qn_quant_params *p = a->node->params;
    qn_array *made[3];
    size_t count = 0;
    if (a->c->status)
        return;
    qn_status status =
        qn_op_quantize(made, &count, a->in[0], &p->group_size, &p->bits,
                       qn_packed_mode_name(p->mode),
                       p->has_global_scale ? a->in[1] : NULL, STREAM);
    if (status)
        qn_scope_fail(a->c, status);
    for (size_t i = 0; i < count; i++)
        a->out[i] = qn_scope_hold(a->c, QN_OK, &made[i]);
}

void qn_again_dequantize(qn_again *a)
{
    const qn_quant_params *p = a->node->params;
    bool affine = p->mode == QN_QUANT_AFFINE;
    qn_array *global = p->has_global_scale ? a->in[2 + affine] : NULL;
    MAKE(qn_op_dequantize(&made, a->in[0], a->in[1], affine ? a->in[2] : NULL,
                          &p->group_size, &p->bits,
                          qn_packed_mode_name(p->mode), global,
                          &a->was_out[0]->dtype, STREAM));
}

/* ---- the last axis ---- */

static const int last = -1;

void qn_again_softmax(qn_again *a)
{
    MAKE(qn_op_softmax(&made, a->in[0], &last, 1, true, STREAM));
}

void qn_again_logsumexp(qn_again *a)
{
    MAKE(qn_op_logsumexp(&made, a->in[0], &last, 1, true, STREAM));
}

void qn_again_rms_norm(qn_again *a)
{
    const qn_norm_params *p = a->node->params;
    MAKE(qn_op_rms_norm(&made, a->in[0], p->has_weight ? a->in[1] : NULL,
                        p->eps, STREAM));
}

void qn_again_layer_norm(qn_again *a)
{
    const qn_norm_params *p = a->node->params;
    MAKE(qn_op_layer_norm(&made, a->in[0], p->has_weight ? a->in[1] : NULL,
                          p->has_bias ? a->in[1 + p->has_weight] : NULL, p->eps,
                          STREAM));
}

void qn_again_rope(qn_again *a)
{
    const qn_rope_params *p = a->node->params;
    MAKE(qn_op_rope(&made, a->in[0], p->dims, p->traditional,
                    p->has_freqs ? NULL : &p->base, p->scale, p->offset,
                    p->has_offset_array ? a->in[1] : NULL,
                    p->has_freqs ? a->in[1 + p->has_offset_array] : NULL,
                    STREAM));
}

void qn_again_sdpa(qn_again *a)
{
    const qn_sdpa_params *p = a->node->params;
    MAKE(qn_op_sdpa(&made, a->in[0], a->in[1], a->in[2], p->scale,
                    p->causal     ? "causal"
                    : p->has_mask ? "array"
                                  : "",
                    p->has_mask ? a->in[3] : NULL,
                    p->has_sinks ? a->in[3 + p->has_mask] : NULL, STREAM));
}
