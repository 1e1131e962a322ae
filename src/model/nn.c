/* nn.c: see nn.h. */
#include "nn.h"

#include "base/alloc.h"
#include "kv/engine.h"

#include <quern/ext.h>

static const mlx_array none = {NULL};

void nn_begin(nn *c, mlx_stream stream)
{
    *c = (nn){.stream = stream};
}

qn_status nn_end(nn *c)
{
    for (size_t i = 0; i < c->count; i++)
        mlx_array_free(c->owned[i]);
    qn_free(c->owned);
    qn_status status = c->status;
    *c = (nn){.stream = c->stream, .status = status};
    return status;
}

mlx_array nn_own(nn *c, mlx_array x, int rc)
{
    if (rc && !c->status)
        c->status = qn_engine(rc);
    if (x.ctx && c->count == c->capacity) {
        size_t capacity = c->capacity ? 2 * c->capacity : 256;
        mlx_array *grown = qn_reallocarray(c->owned, capacity, sizeof *grown);
        if (!grown) {
            mlx_array_free(x);
            if (!c->status)
                c->status = QN_E_NOMEM;
            return none;
        }
        c->owned = grown;
        c->capacity = capacity;
    }
    if (x.ctx)
        c->owned[c->count++] = x;
    return c->status ? none : x;
}

mlx_array nn_adopt(nn *c, mlx_array x)
{
    return nn_own(c, x, x.ctx ? 0 : 1);
}

#define STEP(call) NN_STEP(c, call)

mlx_array nn_keep(nn *c, mlx_array x)
{
    mlx_array kept = {NULL};
    if (!c->status)
        c->status = qn_engine(mlx_array_set(&kept, x));
    return kept;
}

void nn_drop(mlx_array x)
{
    if (x.ctx)
        mlx_array_free(x);
}

mlx_array nn_add(nn *c, mlx_array a, mlx_array b)
{
    STEP(mlx_add(&res, a, b, c->stream));
}

mlx_array nn_mul(nn *c, mlx_array a, mlx_array b)
{
    STEP(mlx_multiply(&res, a, b, c->stream));
}

mlx_array nn_sigmoid(nn *c, mlx_array x)
{
    STEP(mlx_sigmoid(&res, x, c->stream));
}

mlx_array nn_silu(nn *c, mlx_array x)
{
    return nn_mul(c, x, nn_sigmoid(c, x));
}

mlx_array nn_number(nn *c, double value, mlx_dtype dtype)
{
    if (c->status)
        return none;
    mlx_array x = mlx_array_new_float((float)value);
    return nn_astype(c, nn_own(c, x, x.ctx ? 0 : 1), dtype);
}

mlx_array nn_scale(nn *c, mlx_array x, double factor)
{
    if (c->status)
        return none;
    return nn_mul(c, x, nn_number(c, factor, mlx_array_dtype(x)));
}

mlx_array nn_tanh(nn *c, mlx_array x)
{
    STEP(mlx_tanh(&res, x, c->stream));
}

/* (1 + tanh(u)) / 2 is sigmoid(2 u), which loses nothing where u is far below
 * zero. */
mlx_array nn_gelu_tanh(nn *c, mlx_array x)
{
    mlx_array cubic = nn_scale(c, nn_mul(c, x, x), 0.071354816272600248);
    if (c->status)
        return none;
    mlx_array slope = nn_number(c, 1.5957691216057308, mlx_array_dtype(x));
    return nn_mul(c, x, nn_sigmoid(c, nn_mul(c, x, nn_add(c, cubic, slope))));
}

static mlx_array error_function(nn *c, mlx_array x)
{
    STEP(mlx_erf(&res, x, c->stream));
}

mlx_array nn_gelu(nn *c, mlx_array x)
{
    mlx_array half = nn_scale(c, x, 0.5);
    mlx_array part = error_function(c, nn_scale(c, x, 0.70710678118654752));
    return nn_add(c, half, nn_mul(c, half, part));
}

mlx_array nn_cap(nn *c, mlx_array x, double cap)
{
    return cap > 0 ? nn_scale(c, nn_tanh(c, nn_scale(c, x, 1 / cap)), cap) : x;
}

mlx_array nn_astype(nn *c, mlx_array x, mlx_dtype dtype)
{
    if (c->status || mlx_array_dtype(x) == dtype)
        return x;
    STEP(mlx_astype(&res, x, dtype, c->stream));
}

mlx_array nn_rms_norm(nn *c, mlx_array x, mlx_array weight, double eps)
{
    STEP(mlx_fast_rms_norm(&res, x, weight, (float)eps, c->stream));
}

mlx_array nn_layer_norm(nn *c, mlx_array x, mlx_array weight, mlx_array bias,
                        double eps)
{
    STEP(mlx_fast_layer_norm(&res, x, weight, bias, (float)eps, c->stream));
}

mlx_array nn_softmax(nn *c, mlx_array x)
{
    STEP(mlx_softmax_axis(&res, x, -1, true, c->stream));
}

static mlx_optional_int some(int value)
{
    return (mlx_optional_int){value, true};
}

static mlx_array element(nn *c, mlx_vector_array list, size_t i)
{
    STEP(mlx_vector_array_get(&res, list, i));
}

/* The extension has groups of 16, and takes lists. */
static mlx_array small_groups(nn *c, const qn_matrix *w, mlx_array x)
{
    if (c->status)
        return none;
    mlx_array parts[] = {w->weight, w->scales, w->biases};
    mlx_vector_array lists[3], made = {NULL};
    for (int i = 0; i < 3; i++)
        lists[i] = mlx_vector_array_new_value(parts[i]);
    c->status = qn_engine(quern_quantized_matmul(
        &made, x, lists[0], lists[1], lists[2], w->quant.group, w->quant.bits,
        qn_quant_mode_name(w->quant.mode), c->stream));
    mlx_array y = element(c, made, 0);
    for (int i = 0; i < 3; i++)
        if (lists[i].ctx)
            mlx_vector_array_free(lists[i]);
    if (made.ctx)
        mlx_vector_array_free(made);
    return y;
}

static mlx_array packed_linear(nn *c, const qn_matrix *w, mlx_array x)
{
    if (w->quant.group < 32 && w->quant.mode == QN_MODE_AFFINE)
        return small_groups(c, w, x);
    STEP(mlx_quantized_matmul(&res, x, w->weight, w->scales, w->biases, true,
                              some(w->quant.group), some(w->quant.bits),
                              qn_quant_mode_name(w->quant.mode), c->stream));
}

static mlx_array dense_linear(nn *c, const qn_matrix *w, mlx_array x)
{
    /* The other way round the matrix would be converted in each step. */
    if (!c->status)
        x = nn_astype(c, x, mlx_array_dtype(w->turned));
    STEP(mlx_matmul(&res, x, w->turned, c->stream));
}

/* out[i]: products with all of `panels`, `count` of them, after and before the
 * given steps. */
static void panel_products(nn *c, mlx_array *out, int count,
                           const qn_panels *panels, mlx_array x,
                           const quern_panel_steps *steps)
{
    mlx_vector_array list = {NULL};
    if (!c->status)
        c->status = qn_engine(quern_panel_matmul(
            &list, x, panels->data, &panels->form, steps, c->stream));
    for (int i = 0; i < count; i++)
        out[i] = element(c, list, (size_t)i);
    if (list.ctx)
        mlx_vector_array_free(list);
}

static mlx_array panel_linear(nn *c, const qn_matrix *w, mlx_array x,
                              mlx_array residual)
{
    mlx_array y;
    panel_products(c, &y, 1, &w->panels, x,
                   &(quern_panel_steps){.residual = residual});
    return y;
}

static mlx_array plain_linear(nn *c, const qn_matrix *w, mlx_array x)
{
    mlx_array y = w->packed ? packed_linear(c, w, x) : dense_linear(c, w, x);
    /* Scales of a wider type promote the product, a matrix of a narrower one
     * has made it narrow. */
    if (!c->status)
        y = nn_astype(c, y, mlx_array_dtype(x));
    return y;
}

static mlx_array sum_rows(nn *c, mlx_array x)
{
    STEP(mlx_sum_axis(&res, x, 0, false, c->stream));
}

/* Adds the squares of x [..., cols] to what was noted. */
static void note(nn *c, qn_watch *watch, mlx_array x)
{
    if (c->status)
        return;
    int cols = mlx_array_dim(x, -1);
    int rows = (int)(mlx_array_size(x) / (size_t)(cols ? cols : 1));
    x = nn_astype(c, nn_reshape(c, x, (int[]){rows, cols}, 2), MLX_FLOAT32);
    mlx_array sum = sum_rows(c, nn_mul(c, x, x));
    if (watch->squares.ctx)
        sum = nn_add(c, sum, watch->squares);
    mlx_array kept = nn_keep(c, sum);
    if (!kept.ctx)
        return;
    if (watch->squares.ctx)
        mlx_array_free(watch->squares);
    watch->squares = kept;
    watch->rows += (uint64_t)rows;
}

static mlx_array trial_linear(nn *c, const qn_matrix *w, mlx_array x);

mlx_array nn_linear(nn *c, const qn_matrix *w, mlx_array x)
{
    if (w->watch && w->watch->trial) {
        mlx_array y = trial_linear(c, w, x);
        return w->bias.ctx ? nn_add(c, y, w->bias) : y;
    }
    if (w->watch && w->watch->notes)
        note(c, w->watch, x);
    mlx_array y = w->panels.data.ctx ? panel_linear(c, w, x, none)
                                     : plain_linear(c, w, x);
    return w->bias.ctx ? nn_add(c, y, w->bias) : y;
}

mlx_array nn_linear_add(nn *c, const qn_matrix *w, mlx_array x,
                        mlx_array residual)
{
    if (w->panels.data.ctx && !w->bias.ctx && !c->status &&
        mlx_array_dtype(x) == mlx_array_dtype(residual))
        return panel_linear(c, w, x, residual);
    return nn_add(c, residual, nn_linear(c, w, x));
}

/* ---- weights that share their input ---- */

static bool packed_alike(qn_matrix *const *w, int count)
{
    const qn_quant *q = &w[0]->quant;
    for (int i = 0; i < count; i++)
        if (!w[i]->packed || w[i]->quant.mode != q->mode ||
            w[i]->quant.bits != q->bits || w[i]->quant.group != q->group)
            return false;
    return count > 1;
}

static qn_status append(mlx_vector_array list, mlx_array x)
{
    return qn_engine(mlx_vector_array_append_value(list, x));
}

static qn_status list_parts(nn_group *g)
{
    g->words = mlx_vector_array_new();
    g->scales = mlx_vector_array_new();
    g->biases = mlx_vector_array_new();
    qn_status status = qn_engine_made(g->words.ctx);
    if (!status)
        status = qn_engine_made(g->scales.ctx);
    if (!status)
        status = qn_engine_made(g->biases.ctx);
    for (int i = 0; i < g->count && !status; i++) {
        const qn_matrix *w = g->w[i];
        status = append(g->words, w->weight);
        if (!status)
            status = append(g->scales, w->scales);
        if (!status && w->biases.ctx)
            status = append(g->biases, w->biases);
    }
    return status;
}

qn_status nn_group_make(qn_loader *loader, nn_group *out, qn_matrix *const *w,
                        int count)
{
    nn_group g = {.count = count};
    for (int i = 0; i < count; i++)
        g.w[i] = w[i];
    qn_status status = qn_lay_out(loader, &g.panels, w, count);
    if (!status && !g.panels.data.ctx) {
        /* Matrices of different forms may still have panels of their own. */
        for (int i = 0; i < count && !status; i++)
            status = qn_lay_out(loader, &w[i]->panels, &w[i], 1);
        g.fused = !w[0]->panels.data.ctx && packed_alike(w, count);
        if (!status && g.fused)
            status = list_parts(&g);
    }
    if (status)
        nn_group_clear(&g);
    else
        *out = g;
    return status;
}

void nn_group_clear(nn_group *g)
{
    qn_panels_clear(&g->panels);
    if (g->words.ctx)
        mlx_vector_array_free(g->words);
    if (g->scales.ctx)
        mlx_vector_array_free(g->scales);
    if (g->biases.ctx)
        mlx_vector_array_free(g->biases);
    *g = (nn_group){.count = 0};
}

static void fused_linears(nn *c, mlx_array *out, const nn_group *g, mlx_array x)
{
    const qn_quant *q = &g->w[0]->quant;
    mlx_vector_array list = {NULL};
    c->status = qn_engine(quern_quantized_matmul(
        &list, x, g->words, g->scales, g->biases, q->group, q->bits,
        qn_quant_mode_name(q->mode), c->stream));
    for (int i = 0; i < g->count; i++)
        out[i] = element(c, list, (size_t)i);
    if (list.ctx)
        mlx_vector_array_free(list);
}

static quern_panel_steps steps_of(nn_norm norm)
{
    return (quern_panel_steps){.norm = norm.weight, .eps = (float)norm.eps};
}

static bool has_bias(const nn_group *g)
{
    for (int i = 0; i < g->count; i++)
        if (g->w[i]->bias.ctx)
            return true;
    return false;
}

void nn_linears(nn *c, mlx_array *out, const nn_group *g, mlx_array x,
                nn_norm norm)
{
    for (int i = 0; i < g->count; i++)
        out[i] = none;
    if (c->status)
        return;
    if (g->panels.data.ctx) {
        quern_panel_steps steps = steps_of(norm);
        panel_products(c, out, g->count, &g->panels, x, &steps);
        for (int i = 0; i < g->count; i++)
            out[i] = nn_astype(c, out[i], norm.dtype);
    } else {
        if (norm.weight.ctx)
            x = nn_rms_norm(c, x, norm.weight, norm.eps);
        x = nn_astype(c, x, norm.dtype);
        if (c->status)
            return;
        if (!g->fused || g->w[0]->watch) {
            for (int i = 0; i < g->count; i++)
                out[i] = nn_linear(c, g->w[i], x);
            return; /* with their biases */
        }
        fused_linears(c, out, g, x);
    }
    for (int i = 0; i < g->count; i++)
        if (g->w[i]->bias.ctx)
            out[i] = nn_add(c, out[i], g->w[i]->bias);
}

static mlx_array gated(nn *c, mlx_array x, nn_gate gate)
{
    switch (gate) {
    case NN_GELU:
        return nn_gelu_tanh(c, x);
    case NN_GELU_EXACT:
        return nn_gelu(c, x);
    case NN_SILU:
        break;
    }
    return nn_silu(c, x);
}

mlx_array nn_gated(nn *c, const nn_group *g, mlx_array x, nn_norm norm,
                   nn_gate gate)
{
    mlx_array out[NN_GROUP];
    if (g->panels.data.ctx && !has_bias(g) && gate != NN_GELU_EXACT) {
        quern_panel_steps steps = steps_of(norm);
        steps.gate = gate == NN_GELU ? QUERN_GATE_GELU : QUERN_GATE_SILU;
        panel_products(c, out, 1, &g->panels, x, &steps);
        return nn_astype(c, out[0], norm.dtype);
    }
    nn_linears(c, out, g, x, norm);
    return nn_mul(c, gated(c, out[0], gate), out[1]);
}

static mlx_array take_rows(nn *c, mlx_array x, mlx_array ids)
{
    STEP(mlx_take_axis(&res, x, ids, 0, c->stream));
}

static mlx_array dequantize(nn *c, const qn_matrix *w, mlx_array words,
                            mlx_array scales, mlx_array biases, mlx_dtype dtype)
{
    STEP(mlx_dequantize(&res, words, scales, biases, some(w->quant.group),
                        some(w->quant.bits), qn_quant_mode_name(w->quant.mode),
                        none, (mlx_optional_dtype){dtype, true}, c->stream));
}

static mlx_array panel_rows(nn *c, const qn_panels *panels, mlx_array ids,
                            mlx_dtype dtype)
{
    STEP(quern_panel_rows(&res, panels->data, &panels->form, ids, dtype,
                          c->stream));
}

static mlx_array turned(nn *c, mlx_array x)
{
    STEP(mlx_transpose(&res, x, c->stream));
}

/* A matrix as floats. */
static mlx_array dense_values(nn *c, const qn_matrix *w)
{
    return w->packed
               ? dequantize(c, w, w->weight, w->scales, w->biases, MLX_FLOAT32)
               : w->weight;
}

mlx_array nn_rounded(nn *c, mlx_array x, const qn_quant *q)
{
    mlx_array part[3] = {none, none, none}, res = none;
    const char *mode = qn_quant_mode_name(q->mode);
    if (c->status)
        return none;
    mlx_vector_array parts = mlx_vector_array_new();
    int rc = mlx_quantize(&parts, x, some(q->group), some(q->bits), mode, none,
                          c->stream);
    size_t count = q->mode == QN_MODE_AFFINE ? 3 : 2;
    for (size_t i = 0; i < count && !rc; i++)
        rc = mlx_vector_array_get(&part[i], parts, i);
    if (!rc)
        rc = mlx_dequantize(&res, part[0], part[1], part[2], some(q->group),
                            some(q->bits), mode, none,
                            (mlx_optional_dtype){MLX_FLOAT32, true}, c->stream);
    for (size_t i = 0; i < count; i++)
        if (part[i].ctx)
            mlx_array_free(part[i]);
    if (parts.ctx)
        mlx_vector_array_free(parts);
    return nn_astype(c, nn_own(c, res, rc), MLX_FLOAT32);
}

static mlx_array times(nn *c, mlx_array a, mlx_array b)
{
    STEP(mlx_matmul(&res, a, b, c->stream));
}

static mlx_array trial_linear(nn *c, const qn_matrix *w, mlx_array x)
{
    if (c->status)
        return none;
    mlx_dtype dtype = mlx_array_dtype(x);
    mlx_array values = nn_rounded(c, dense_values(c, w), w->watch->trial);
    return times(c, x, turned(c, nn_astype(c, values, dtype)));
}

mlx_array nn_embed(nn *c, const qn_matrix *w, mlx_array ids, mlx_dtype dtype)
{
    if (w->watch && w->watch->trial) {
        mlx_array values = nn_rounded(c, dense_values(c, w), w->watch->trial);
        return nn_astype(c, take_rows(c, values, ids), dtype);
    }
    if (w->panels.data.ctx)
        return panel_rows(c, &w->panels, ids, dtype);
    if (!w->packed)
        return nn_astype(c, take_rows(c, w->weight, ids), dtype);
    mlx_array words = take_rows(c, w->weight, ids);
    mlx_array scales = take_rows(c, w->scales, ids);
    mlx_array biases = w->biases.ctx ? take_rows(c, w->biases, ids) : none;
    /* Float scales give the exact values of the weights. */
    bool affine = w->quant.mode == QN_MODE_AFFINE;
    if (affine) {
        scales = nn_astype(c, scales, dtype);
        biases = nn_astype(c, biases, dtype);
    }
    return nn_astype(c, dequantize(c, w, words, scales, biases, dtype), dtype);
}

mlx_array nn_reshape(nn *c, mlx_array x, const int *shape, size_t ndim)
{
    STEP(mlx_reshape(&res, x, shape, ndim, c->stream));
}

static mlx_array slice_rows(nn *c, mlx_array x, int first, int count)
{
    int width = mlx_array_dim(x, 2);
    STEP(mlx_slice(&res, x, (int[]){0, first, 0}, 3,
                   (int[]){1, first + count, width}, 3, (int[]){1, 1, 1}, 3,
                   c->stream));
}

/* [1, a, b, dim] -> [1, b, a, dim] */
static mlx_array turn_heads(nn *c, mlx_array x)
{
    STEP(mlx_swapaxes(&res, x, 1, 2, c->stream));
}

mlx_array nn_head_norm(nn *c, mlx_array x, mlx_array weight, int dim,
                       double eps)
{
    if (c->status)
        return none;
    int rows = mlx_array_dim(x, 1), width = mlx_array_dim(x, 2);
    mlx_array y = nn_reshape(c, x, (int[]){1, rows, width / dim, dim}, 4);
    y = nn_reshape(c, nn_rms_norm(c, y, weight, eps), (int[]){1, rows, width},
                   3);
    return c->status ? none : nn_astype(c, y, mlx_array_dtype(x));
}

mlx_array nn_join_last(nn *c, const mlx_array *parts, size_t count)
{
    if (c->status)
        return none;
    mlx_vector_array list = mlx_vector_array_new_data(parts, count);
    mlx_array res = none;
    int rc = list.ctx ? mlx_concatenate_axis(&res, list, -1, c->stream) : 1;
    if (list.ctx)
        mlx_vector_array_free(list);
    return nn_own(c, res, rc);
}

mlx_array nn_rows_first(nn *c, mlx_array x)
{
    x = turned(c, x);
    STEP(mlx_contiguous(&res, x, false, c->stream));
}

mlx_array nn_slice_last(nn *c, mlx_array x, int from, int to)
{
    if (c->status)
        return none;
    int start[8] = {0}, stop[8], step[8];
    size_t ndim = mlx_array_ndim(x);
    for (size_t i = 0; i < ndim; i++) {
        stop[i] = mlx_array_dim(x, (int)i);
        step[i] = 1;
    }
    start[ndim - 1] = from;
    stop[ndim - 1] = to;
    STEP(mlx_slice(&res, x, start, ndim, stop, ndim, step, ndim, c->stream));
}

/* Each head times rope->stretch, which belongs to a scaled rotary embedding
 * and can come before it: all that turns together is stretched alike. */
static mlx_array stretch(nn *c, const qn_rope *rope, mlx_array x)
{
    if (c->status || !rope->stretch.ctx)
        return x;
    int rows = mlx_array_dim(x, 1), width = mlx_array_dim(x, 2);
    int dim = mlx_array_dim(rope->stretch, 0);
    x = nn_reshape(c, x, (int[]){1, rows, width / dim, dim}, 4);
    return nn_reshape(c, nn_mul(c, x, rope->stretch), (int[]){1, rows, width},
                      3);
}

/* Rows that turn alike. */
static mlx_array attend_alike(nn *c, nn_rows rows, int layer, mlx_array q,
                              mlx_array k, mlx_array v, const qn_rope *rope,
                              const qn_attention *how)
{
    if (c->status)
        return none;
    qn_attention turned = *how;
    turned.rope = qn_rope_for(rope, qn_kv_cache_budget(rows.rows[0].cache));
    mlx_array out = {NULL};
    c->status = qn_kv_attend(rows.rows, rows.count, &out, layer, q, k, v,
                             &turned, c->stream);
    return nn_own(c, out, 0);
}

static bool turns_alike(const qn_rope *rope, const qn_kv_rows *a,
                        const qn_kv_rows *b)
{
    qn_kv_rope x = qn_rope_for(rope, qn_kv_cache_budget(a->cache));
    qn_kv_rope y = qn_rope_for(rope, qn_kv_cache_budget(b->cache));
    return x.base == y.base && x.freqs.ctx == y.freqs.ctx;
}

static mlx_array row_range(nn *c, mlx_array x, int from, int to)
{
    if (c->status || !x.ctx)
        return none;
    STEP(mlx_slice(&res, x, (int[]){0, from, 0}, 3,
                   (int[]){1, to, mlx_array_dim(x, 2)}, 3, (int[]){1, 1, 1}, 3,
                   c->stream));
}

static mlx_array join_rows(nn *c, mlx_vector_array parts)
{
    STEP(mlx_concatenate_axis(&res, parts, 1, c->stream));
}

mlx_array nn_attend(nn *c, nn_rows rows, int layer, mlx_array q, mlx_array k,
                    mlx_array v, const qn_rope *rope, const qn_attention *how)
{
    q = stretch(c, rope, q);
    k = k.ctx ? stretch(c, rope, k) : k;
    size_t same = 1;
    while (same < rows.count &&
           turns_alike(rope, &rows.rows[0], &rows.rows[same]))
        same++;
    if (same == rows.count)
        return attend_alike(c, rows, layer, q, k, v, rope, how);
    mlx_vector_array parts = mlx_vector_array_new();
    if (!c->status)
        c->status = qn_engine_made(parts.ctx);
    int at = 0;
    for (size_t i = 0; i < rows.count; i++) {
        int end = at + rows.rows[i].count;
        mlx_array part = attend_alike(
            c, (nn_rows){&rows.rows[i], 1}, layer, row_range(c, q, at, end),
            row_range(c, k, at, end), row_range(c, v, at, end), rope, how);
        if (!c->status)
            c->status = qn_engine(mlx_vector_array_append_value(parts, part));
        at = end;
    }
    mlx_array out = join_rows(c, parts);
    if (parts.ctx)
        mlx_vector_array_free(parts);
    return out;
}

static int wanted_of(const qn_kv_rows *rows)
{
    return rows->wanted ? rows->wanted : 1;
}

static int wanted_total(nn_rows rows)
{
    int total = 0;
    for (size_t i = 0; i < rows.count; i++)
        total += wanted_of(&rows.rows[i]);
    return total;
}

/* Rows first .. first + count of x [1, T, heads * dim] as [1, heads, count,
 * dim]. */
static mlx_array heads_of(nn *c, mlx_array x, int first, int count, int dim)
{
    if (c->status)
        return none;
    int width = mlx_array_dim(x, 2);
    x = slice_rows(c, x, first, count);
    return turn_heads(c,
                      nn_reshape(c, x, (int[]){1, count, width / dim, dim}, 4));
}

static mlx_array attend_whole(nn *c, mlx_array q, mlx_array k, mlx_array v,
                              double scale)
{
    STEP(mlx_fast_scaled_dot_product_attention(&res, q, k, v, (float)scale, "",
                                               none, none, false, c->stream));
}

static mlx_array join_sequences(nn *c, const mlx_array *parts, size_t count)
{
    if (c->status)
        return none;
    mlx_vector_array list = mlx_vector_array_new_data(parts, count);
    mlx_array res = {NULL};
    c->status = qn_engine_made(list.ctx);
    int rc = c->status ? 0 : mlx_concatenate_axis(&res, list, 1, c->stream);
    if (list.ctx)
        mlx_vector_array_free(list);
    return nn_own(c, res, rc);
}

mlx_array nn_attend_all(nn *c, nn_rows rows, mlx_array q, mlx_array k,
                        mlx_array v, int dim, double scale)
{
    if (c->status)
        return none;
    int width = mlx_array_dim(q, 2), first = 0;
    mlx_array *parts = qn_calloc(rows.count, sizeof *parts), all;
    if (!parts) {
        c->status = QN_E_NOMEM;
        return none;
    }
    for (size_t i = 0; i < rows.count; i++) {
        int n = rows.rows[i].count;
        mlx_array y = attend_whole(c, heads_of(c, q, first, n, dim),
                                   heads_of(c, k, first, n, dim),
                                   heads_of(c, v, first, n, dim), scale);
        parts[i] = nn_reshape(c, turn_heads(c, y), (int[]){1, n, width}, 3);
        first += n;
    }
    all = rows.count == 1 ? parts[0] : join_sequences(c, parts, rows.count);
    qn_free(parts);
    return all;
}

mlx_array nn_positions(nn *c, nn_rows rows, int first)
{
    int total = qn_kv_rows_total(rows.rows, rows.count), at = 0;
    int *places = c->status ? NULL : qn_calloc((size_t)total, sizeof *places);
    if (!places) {
        c->status = c->status ? c->status : QN_E_NOMEM;
        return none;
    }
    for (size_t i = 0; i < rows.count; i++)
        for (int t = 0; t < rows.rows[i].count; t++)
            places[at++] = first + t;
    mlx_array ids = mlx_array_new_data(places, (int[]){1, total}, 2, MLX_INT32);
    qn_free(places);
    return nn_own(c, ids, ids.ctx ? 0 : 1);
}

static mlx_array last_of_one(nn *c, mlx_array x, int wanted)
{
    int count = mlx_array_dim(x, 1), width = mlx_array_dim(x, 2);
    STEP(mlx_slice(&res, x, (int[]){0, count - wanted, 0}, 3,
                   (int[]){1, count, width}, 3, (int[]){1, 1, 1}, 3,
                   c->stream));
}

static mlx_array last_places(nn *c, nn_rows rows)
{
    int count = wanted_total(rows), at = 0, end = 0;
    int *places = qn_calloc((size_t)count, sizeof *places);
    if (!places) {
        c->status = QN_E_NOMEM;
        return none;
    }
    for (size_t i = 0; i < rows.count; i++) {
        end += rows.rows[i].count;
        for (int left = wanted_of(&rows.rows[i]); left > 0; left--)
            places[at++] = end - left;
    }
    mlx_array ids = mlx_array_new_data(places, &count, 1, MLX_INT32);
    qn_free(places);
    return nn_own(c, ids, ids.ctx ? 0 : 1);
}

static mlx_array take_positions(nn *c, mlx_array x, mlx_array places)
{
    STEP(mlx_take_axis(&res, x, places, 1, c->stream));
}

mlx_array nn_last(nn *c, mlx_array x, nn_rows rows)
{
    /* Nobody wants more positions than it has. */
    if (c->status || mlx_array_dim(x, 1) == wanted_total(rows))
        return x;
    if (rows.count == 1)
        return last_of_one(c, x, wanted_of(rows.rows));
    return take_positions(c, x, last_places(c, rows));
}
