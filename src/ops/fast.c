/* fast.c: normalisation, rotary embedding, attention, and the softmax family.
 *
 * The primitives work along the last axis.  Other axes are brought there by
 * views first and back afterwards. */
#include "params.h"
#include "scope.h"

#include <limits.h>
#include <string.h>

/* ---- softmax and logsumexp ---- */

/* How to see chosen axes as one last axis. */
typedef struct gathered {
    int naxes;
    int axes[QN_MAX_NDIM];  /* ascending */
    int order[QN_MAX_NDIM]; /* the others, then the chosen ones */
    bool last;              /* they are the last ones already */
    qn_dims flat;           /* the others, then their product */
} gathered;

static qn_status gather_axes(gathered *g, const char *op, const qn_array *x,
                             const int *axes, size_t naxes)
{
    int list[QN_MAX_NDIM];
    bool chosen[QN_MAX_NDIM] = {false};
    memset(g, 0, sizeof *g);
    if (naxes == QN_ALL_AXES) {
        for (int i = 0; i < x->ndim; i++)
            chosen[i] = true;
    } else {
        qn_status status = qn_axes_of(list, op, axes, naxes, x->ndim);
        if (status)
            return status;
        for (size_t i = 0; i < naxes; i++)
            chosen[list[i]] = true;
    }
    int64_t length = 1;
    int others = 0;
    for (int i = 0; i < x->ndim; i++) {
        if (chosen[i]) {
            g->axes[g->naxes++] = i;
            length =
                length > INT_MAX && x->shape[i] ? length : length * x->shape[i];
        } else {
            g->order[others] = i;
            g->flat.dim[others++] = x->shape[i];
        }
    }
    memcpy(g->order + others, g->axes, (size_t)g->naxes * sizeof *g->axes);
    g->last = !g->naxes || g->axes[0] == others;
    g->flat.ndim = others;
    int dim;
    qn_status status = qn_dim_fit(&dim, op, length);
    return status ? status : qn_dims_insert(&g->flat, op, others, dim);
}

/* x seen with the chosen axes as one, last; from there back. */
static qn_array *to_last(qn_scope *c, const gathered *g, qn_array *x)
{
    if (!g->last)
        x = c->status ? NULL : transpose(c, x, g->order);
    return reshape(c, x, &g->flat);
}

static qn_array *from_last(qn_scope *c, const gathered *g, qn_array *y,
                           const qn_dims *dims)
{
    if (g->last)
        return reshape(c, y, dims);
    qn_dims moved = {.ndim = dims->ndim};
    int back[QN_MAX_NDIM];
    for (int i = 0; i < dims->ndim; i++) {
        moved.dim[i] = dims->dim[g->order[i]];
        back[g->order[i]] = i;
    }
    y = reshape(c, y, &moved);
    return c->status ? NULL : transpose(c, y, back);
}

static qn_array *exp_from_max(qn_scope *c, qn_array *x, int axis,
                              qn_array **top)
{
    *top = reduce(c, QN_OP_MAX, x, &axis, 1, true);
    return unary(c, QN_OP_EXP, sub(c, x, *top));
}

qn_status qn_op_softmax(qn_array **out, qn_array *x, const int *axes,
                        size_t naxes, bool precise, qn_stream *s)
{
    /* Sums are formed in float32 in any case. */
    (void)precise;
    qn_dtype type = qn_promote_float(x->dtype);
    int last = x->ndim - 1;
    if (naxes == 1 && x->ndim && (*axes == -1 || *axes == last) &&
        x->dtype == type && type != QN_COMPLEX64 && x->size)
        return qn_make(out, QN_OP_SOFTMAX, s, &x, 1, NULL, 0, type, x->shape,
                       x->ndim);
    gathered g;
    qn_status status = gather_axes(&g, "softmax", x, axes, naxes);
    if (status)
        return status;
    if (!x->size)
        return qn_same(out, x);
    /* Over no axis every element is a whole; integers stay integers. */
    if (!g.naxes && x->dtype != type)
        return qn_op_ones_like(out, x, s);
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_dims dims = qn_dims_of(x);
    qn_array *y = to_last(&c, &g, cast(&c, x, type));
    if (type == QN_COMPLEX64) {
        int axis = g.flat.ndim - 1;
        qn_array *top;
        y = exp_from_max(&c, y, axis, &top);
        y = divide(&c, y, reduce(&c, QN_OP_SUM, y, &axis, 1, true));
    } else if (!c.status) {
        qn_array *made = NULL;
        qn_scope_hold(&c,
                      qn_make(&made, QN_OP_SOFTMAX, s, &y, 1, NULL, 0, type,
                              g.flat.dim, g.flat.ndim),
                      &made);
        y = made;
    }
    return qn_scope_end(&c, out, from_last(&c, &g, y, &dims));
}

qn_status qn_op_logsumexp(qn_array **out, qn_array *x, const int *axes,
                          size_t naxes, bool keepdims, qn_stream *s)
{
    gathered g;
    qn_status status = gather_axes(&g, "logsumexp", x, axes, naxes);
    if (status)
        return status;
    qn_dtype type = qn_promote_float(x->dtype);
    qn_dims result = qn_dims_of(x);
    if (!x->size)
        return qn_fail(QN_E_ARG,
                       "[logsumexp] Received an empty array of shape %s.",
                       qn_array_shape_text(x).text);
    for (int i = g.naxes - 1; i >= 0; i--) {
        result.dim[g.axes[i]] = 1;
        if (!keepdims)
            qn_dims_remove(&result, g.axes[i]);
    }
    if (!g.naxes)
        return qn_op_astype(out, x, type, s);
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *y = to_last(&c, &g, cast(&c, x, type));
    int axis = g.flat.ndim - 1;
    if (type == QN_COMPLEX64) {
        qn_array *top;
        y = exp_from_max(&c, y, axis, &top);
        y = unary(&c, QN_OP_LOG, reduce(&c, QN_OP_SUM, y, &axis, 1, true));
        y = add(&c, y, top);
    } else if (!c.status) {
        qn_dims one = g.flat;
        one.dim[axis] = 1;
        qn_array *made = NULL;
        qn_scope_hold(&c,
                      qn_make(&made, QN_OP_LOGSUMEXP, s, &y, 1, NULL, 0, type,
                              one.dim, one.ndim),
                      &made);
        y = made;
    }
    return qn_scope_end(&c, out, reshape(&c, y, &result));
}

qn_status qn_op_cross_entropy(qn_array **out, qn_array *logits,
                              qn_array *targets, qn_stream *s)
{
    if (!qn_dtype_is_float(logits->dtype))
        return qn_fail(QN_E_ARG,
                       "[cross_entropy] Received unsupported logits type %s.",
                       qn_dtype_name(logits->dtype));
    if (!qn_dtype_is_integer(targets->dtype))
        return qn_fail(QN_E_ARG,
                       "[cross_entropy] targets must be integer class indices "
                       "but got %s.",
                       qn_dtype_name(targets->dtype));
    qn_dims rows = qn_dims_of(logits);
    rows.ndim -= rows.ndim > 0;
    if (!logits->ndim || !qn_has_dims(targets, &rows))
        return qn_fail(QN_E_ARG,
                       "[cross_entropy] targets shape %s does not match logits "
                       "shape %s with the last axis removed.",
                       qn_array_shape_text(targets).text,
                       qn_array_shape_text(logits).text);
    int axis = -1;
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_dtype wide = logits->dtype == QN_FLOAT64 ? QN_FLOAT64 : QN_FLOAT32;
    qn_array *x = cast(&c, logits, wide), *total = NULL, *chosen = NULL;
    qn_array *index = expand(&c, targets, -1);
    if (!c.status)
        qn_scope_hold(&c, qn_op_logsumexp(&total, x, &axis, 1, false, s),
                      &total);
    if (!c.status)
        qn_scope_hold(&c, qn_op_take_along_axis(&chosen, x, index, axis, s),
                      &chosen);
    qn_array *y = sub(&c, total, squeeze(&c, chosen, axis));
    return qn_scope_end(&c, out, cast(&c, y, QN_FLOAT32));
}

/* ---- norms ---- */

static qn_status check_norm_operand(const char *op, const char *name,
                                    const qn_array *x, const qn_array *operand)
{
    int length = x->shape[x->ndim - 1];
    if (operand && (operand->ndim != 1 || operand->shape[0] != length))
        return qn_fail(QN_E_ARG,
                       "[%s] %s must have one dimension of the size of the "
                       "last dimension of x, %d, but has shape %s.",
                       op, name, length, qn_array_shape_text(operand).text);
    return QN_OK;
}

static qn_status norm(qn_array **out, qn_op op, qn_array *x, qn_array *weight,
                      qn_array *bias, float eps, qn_stream *s)
{
    const char *name = qn_op_info_of(op)->name;
    qn_norm_params p;
    memset(&p, 0, sizeof p);
    p.eps = eps;
    p.has_weight = weight != NULL;
    p.has_bias = bias != NULL;
    if (!x->ndim)
        return qn_fail(QN_E_ARG,
                       "[%s] Input must have at least 1 dimension but got "
                       "input with 0 dimensions.",
                       name);
    qn_status status = check_norm_operand(name, "weight", x, weight);
    if (!status)
        status = check_norm_operand(name, "bias", x, bias);
    if (status)
        return status;
    qn_dtype type = x->dtype;
    /* As in MLX, a bias without a weight takes the input's type. */
    if (weight)
        type = qn_promote(type, weight->dtype);
    if (weight && bias)
        type = qn_promote(type, bias->dtype);
    if (!qn_dtype_is_float(type))
        return qn_fail(QN_E_ARG, "[%s] Received unsupported type %s.", name,
                       qn_dtype_name(type));
    qn_array *inputs[3] = {x};
    int n = 1;
    bool typed = x->dtype == type;
    if (weight)
        inputs[n++] = weight;
    if (bias)
        inputs[n++] = bias;
    for (int i = 1; i < n; i++)
        typed &= inputs[i]->dtype == type;
    if (typed)
        return qn_make(out, op, s, inputs, n, &p, sizeof p, type, x->shape,
                       x->ndim);
    qn_scope c;
    qn_scope_begin(&c, s);
    for (int i = 0; i < n; i++)
        inputs[i] = cast(&c, inputs[i], type);
    qn_array *made = NULL;
    if (!c.status)
        qn_scope_hold(&c,
                      qn_make(&made, op, s, inputs, n, &p, sizeof p, type,
                              x->shape, x->ndim),
                      &made);
    return qn_scope_end(&c, out, made);
}

qn_status qn_op_rms_norm(qn_array **out, qn_array *x, qn_array *weight,
                         float eps, qn_stream *s)
{
    return norm(out, QN_OP_RMS_NORM, x, weight, NULL, eps, s);
}

qn_status qn_op_layer_norm(qn_array **out, qn_array *x, qn_array *weight,
                           qn_array *bias, float eps, qn_stream *s)
{
    return norm(out, QN_OP_LAYER_NORM, x, weight, bias, eps, s);
}

/* ---- rotary embedding ---- */

static qn_status check_rope(const qn_array *x, int dims, bool has_base,
                            const qn_array *offset, const qn_array *freqs)
{
    if (x->ndim < 3)
        return qn_fail(QN_E_ARG,
                       "[rope] Input must have at least 3 dimensions but got "
                       "input with %d dimensions.",
                       x->ndim);
    if (!qn_dtype_is_float(x->dtype))
        return qn_fail(QN_E_ARG,
                       "[rope] Input must be a floating type but got %s.",
                       qn_dtype_name(x->dtype));
    if (dims <= 0 || dims % 2 || dims > x->shape[x->ndim - 1])
        return qn_fail(QN_E_ARG,
                       "[rope] dims must be positive, even and at most the "
                       "input's last dimension (%d) but got %d.",
                       x->shape[x->ndim - 1], dims);
    if (has_base == (freqs != NULL))
        return qn_fail(QN_E_ARG,
                       "[rope] Exactly one of base and freqs must have a "
                       "value, found %s.",
                       has_base ? "both" : "neither");
    if (freqs && (freqs->ndim != 1 || freqs->shape[0] != dims / 2))
        return qn_fail(QN_E_ARG,
                       "[rope] freqs must be one dimensional with size %d but "
                       "got shape %s.",
                       dims / 2, qn_array_shape_text(freqs).text);
    if (!offset)
        return QN_OK;
    if (!qn_dtype_is_integer(offset->dtype))
        return qn_fail(QN_E_ARG,
                       "[rope] offset must be an integer but got type %s.",
                       qn_dtype_name(offset->dtype));
    if (offset->ndim > 1 ||
        (offset->size != 1 && offset->shape[0] != x->shape[0]))
        return qn_fail(QN_E_ARG,
                       "[rope] offset must be a scalar or a vector with %d "
                       "elements but has shape %s.",
                       x->shape[0], qn_array_shape_text(offset).text);
    return QN_OK;
}

qn_status qn_op_rope(qn_array **out, qn_array *x, int dims, bool traditional,
                     const float *base, float scale, int offset,
                     qn_array *offset_array, qn_array *freqs, qn_stream *s)
{
    qn_rope_params p;
    memset(&p, 0, sizeof p);
    p.dims = dims;
    p.traditional = traditional;
    p.base = base ? *base : 0;
    p.scale = scale;
    p.offset = offset;
    p.has_offset_array = offset_array != NULL;
    p.has_freqs = freqs != NULL;
    qn_status status = check_rope(x, dims, base != NULL, offset_array, freqs);
    if (status)
        return status;
    if (!offset_array && !freqs)
        return qn_make(out, QN_OP_ROPE, s, &x, 1, &p, sizeof p, x->dtype,
                       x->shape, x->ndim);
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *inputs[3] = {x}, *made = NULL;
    int n = 1;
    if (offset_array)
        inputs[n++] = cast(&c, offset_array, QN_INT32);
    if (freqs)
        inputs[n++] = cast(&c, freqs, QN_FLOAT32);
    if (!c.status)
        qn_scope_hold(&c,
                      qn_make(&made, QN_OP_ROPE, s, inputs, n, &p, sizeof p,
                              x->dtype, x->shape, x->ndim),
                      &made);
    return qn_scope_end(&c, out, made);
}

/* ---- attention ---- */

static const char sdpa_name[] = "scaled_dot_product_attention";

static qn_status check_sdpa(const qn_array *q, const qn_array *k,
                            const qn_array *v)
{
    const qn_array *const all[3] = {q, k, v};
    for (int i = 0; i < 3; i++) {
        if (all[i]->ndim != 4)
            return qn_fail(QN_E_ARG,
                           "[%s] input with shape %s expected to be rank 4",
                           sdpa_name, qn_array_shape_text(all[i]).text);
        if (all[i]->shape[0] != q->shape[0])
            return qn_fail(QN_E_ARG,
                           "[%s] mismatching batch dimension for input with "
                           "shape %s, expected %d.",
                           sdpa_name, qn_array_shape_text(all[i]).text,
                           q->shape[0]);
    }
    if (q->shape[3] != k->shape[3])
        return qn_fail(QN_E_ARG,
                       "[%s] query, keys expected to have matching last "
                       "dimension; found query shape %s for keys shape %s.",
                       sdpa_name, qn_array_shape_text(q).text,
                       qn_array_shape_text(k).text);
    if (k->shape[1] != v->shape[1])
        return qn_fail(
            QN_E_ARG,
            "[%s] keys, values expected to have matching n_kv_heads; "
            "found keys with n_heads %d for values with n_heads %d.",
            sdpa_name, k->shape[1], v->shape[1]);
    if (k->shape[2] != v->shape[2])
        return qn_fail(QN_E_ARG,
                       "[%s] keys, values expected to have matching lengths; "
                       "found keys shape %s for values shape %s.",
                       sdpa_name, qn_array_shape_text(k).text,
                       qn_array_shape_text(v).text);
    if (!k->shape[1] || q->shape[1] % k->shape[1])
        return qn_fail(QN_E_ARG,
                       "[%s] n_heads must be a multiple of n_kv_heads, found "
                       "n_heads %d for n_kv_heads %d.",
                       sdpa_name, q->shape[1], k->shape[1]);
    return QN_OK;
}

qn_status qn_op_sdpa(qn_array **out, qn_array *q, qn_array *k, qn_array *v,
                     float scale, const char *mask_mode, qn_array *mask,
                     qn_array *sinks, qn_stream *s)
{
    qn_sdpa_params p;
    memset(&p, 0, sizeof p);
    p.scale = scale;
    p.causal = !strcmp(mask_mode, "causal");
    if (!p.causal && *mask_mode && strcmp(mask_mode, "array"))
        return qn_fail(QN_E_ARG,
                       "[%s] Invalid mask_mode %s. mask_mode must be 'causal', "
                       "'array' or ''.",
                       sdpa_name, mask_mode);
    if (p.causal && mask)
        return qn_fail(QN_E_ARG, "[%s] mask_mode 'causal' takes no mask array.",
                       sdpa_name);
    qn_status status = check_sdpa(q, k, v);
    if (status)
        return status;
    qn_dtype type = qn_promote(q->dtype, qn_promote(k->dtype, v->dtype));
    if (!qn_dtype_is_float(type))
        return qn_fail(QN_E_ARG, "[%s] Received unsupported type %s.",
                       sdpa_name, qn_dtype_name(type));
    qn_dims dims = {
        .ndim = 4, .dim = {q->shape[0], q->shape[1], q->shape[2], v->shape[3]}};
    qn_array *inputs[5] = {q, k, v};
    int n = 3;
    bool floats = qn_dtype_is_float(q->dtype) && qn_dtype_is_float(k->dtype) &&
                  qn_dtype_is_float(v->dtype);
    if (floats && !mask && !sinks)
        return qn_make(out, QN_OP_SDPA, s, inputs, n, &p, sizeof p, type,
                       dims.dim, dims.ndim);

    qn_scope c;
    qn_scope_begin(&c, s);
    for (int i = 0; i < 3; i++)
        if (!qn_dtype_is_float(inputs[i]->dtype)) {
            inputs[i] = cast(&c, inputs[i], type);
            if (c.status)
                return qn_scope_end(&c, out, NULL);
        }
    if (mask) {
        if (mask->ndim > 4)
            qn_scope_fail(&c,
                          qn_fail(QN_E_ARG,
                                  "[%s] the mask with shape %s expected to "
                                  "have at most rank 4.",
                                  sdpa_name, qn_array_shape_text(mask).text));
        else if (qn_promote(mask->dtype, type) != type)
            qn_scope_fail(&c, qn_fail(QN_E_ARG,
                                      "[%s] Mask type must promote to output "
                                      "type %s, found %s.",
                                      sdpa_name, qn_dtype_name(type),
                                      qn_dtype_name(mask->dtype)));
        qn_dims scores = {
            .ndim = 4,
            .dim = {q->shape[0], q->shape[1], q->shape[2], k->shape[2]}};
        qn_array *m = mask;
        if (mask->dtype != QN_BOOL)
            m = cast(&c, m, type);
        inputs[n++] = broadcast(&c, m, &scores);
        p.has_mask = true;
    }
    if (sinks) {
        if (sinks->ndim != 1 || sinks->shape[0] != q->shape[1])
            qn_scope_fail(&c,
                          qn_fail(QN_E_ARG,
                                  "[%s] Received invalid shape for sinks "
                                  "%s, expected one value for each of %d "
                                  "heads.",
                                  sdpa_name, qn_array_shape_text(sinks).text,
                                  q->shape[1]));
        else if (qn_promote(sinks->dtype, type) != type)
            qn_scope_fail(&c, qn_fail(QN_E_ARG,
                                      "[%s] Type of sinks must promote to "
                                      "output type %s, found %s.",
                                      sdpa_name, qn_dtype_name(type),
                                      qn_dtype_name(sinks->dtype)));
        inputs[n++] = cast(&c, sinks, type);
        p.has_sinks = true;
    }
    qn_array *made = NULL;
    if (!c.status)
        qn_scope_hold(&c,
                      qn_make(&made, QN_OP_SDPA, s, inputs, n, &p, sizeof p,
                              type, dims.dim, dims.ndim),
                      &made);
    return qn_scope_end(&c, out, made);
}
