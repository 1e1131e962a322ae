/* decoder.c: the forward pass of a decoder.  See decoder.h. */
#include "decoder.h"

#include <math.h>

static mlx_array norm(const decoder *m, nn *c, const decoder_norm *w,
                      mlx_array x)
{
    if (!w->weight.ctx)
        return x;
    return m->form.layer_norms ? nn_layer_norm(c, x, w->weight, w->bias, m->eps)
                               : nn_rms_norm(c, x, w->weight, m->eps);
}

/* The norm as a step of the products that follow; where it can't be one, *x is
 * normed here. */
static nn_norm norm_before(const decoder *m, nn *c, const decoder_norm *w,
                           mlx_array *x)
{
    nn_norm step = {.eps = m->eps, .dtype = m->dtype};
    if (m->form.layer_norms)
        *x = norm(m, c, w, *x);
    else
        step.weight = w->weight;
    return step;
}

/* x + a * after(y w^T) */
static mlx_array join(const decoder *m, nn *c, mlx_array x, const qn_matrix *w,
                      mlx_array y, const decoder_norm *after)
{
    if (!after->weight.ctx && !m->form.branch_scale)
        return nn_linear_add(c, w, y, x);
    y = nn_astype(c, nn_linear(c, w, y), MLX_FLOAT32);
    y = norm(m, c, after, y);
    if (m->form.branch_scale)
        y = nn_scale(c, y, m->form.branch_scale);
    return nn_add(c, x, y);
}

static mlx_array norm_heads(const decoder *m, nn *c, mlx_array x,
                            mlx_array weight)
{
    if (m->form.qk_norm == DECODER_QK_PLAIN)
        return x;
    if (m->form.qk_norm == DECODER_QK_WHOLE)
        return nn_astype(c, nn_rms_norm(c, x, weight, m->eps),
                         mlx_array_dtype(x));
    return nn_head_norm(c, x, weight, m->head_dim, m->eps);
}

static mlx_array attend(const decoder *m, nn *c, int i, mlx_array x,
                        nn_rows rows)
{
    const decoder_layer *w = &m->layer[i];
    mlx_array qkv[3], in = x;
    nn_norm before = norm_before(m, c, &w->before_attention, &in);
    nn_linears(c, qkv, &w->qkv, in, before);
    qkv[0] = norm_heads(m, c, qkv[0], w->q_norm);
    qkv[1] = norm_heads(m, c, qkv[1], w->k_norm);
    double scale = m->form.score_scale;
    qn_attention how = {.heads = m->heads,
                        .scale = (float)(scale ? scale : 1 / sqrt(m->head_dim)),
                        .window = w->window,
                        .sinks = w->sinks};
    mlx_array out =
        nn_attend(c, rows, i, qkv[0], qkv[1], qkv[2], w->rope, &how);
    return join(m, c, x, &w->o, out, &w->after_attention);
}

/* What the MLP's last matrix takes. */
static mlx_array widen(const decoder *m, nn *c, const decoder_layer *w,
                       mlx_array x)
{
    if (!m->form.plain_mlp) {
        nn_norm before = norm_before(m, c, &w->before_mlp, &x);
        return nn_gated(c, &w->mlp.in, x, before, NN_SILU);
    }
    x = nn_astype(c, norm(m, c, &w->before_mlp, x), m->dtype);
    return nn_gelu_tanh(c, nn_linear(c, &w->mlp.up, x));
}

static mlx_array experts(const decoder *m, nn *c, const decoder_layer *w,
                         mlx_array x)
{
    mlx_array y = nn_moe_apply(c, w->moe, norm(m, c, &w->before_mlp, x));
    y = norm(m, c, &w->after_mlp, y);
    if (m->form.branch_scale)
        y = nn_scale(c, y, m->form.branch_scale);
    return nn_add(c, x, y);
}

static mlx_array feed_forward(const decoder *m, nn *c, int i, mlx_array x)
{
    const decoder_layer *w = &m->layer[i];
    if (w->moe)
        return experts(m, c, w, x);
    return join(m, c, x, &w->mlp.down, widen(m, c, w, x), &w->after_mlp);
}

static mlx_array run_layers(const decoder *m, nn *c, mlx_array ids,
                            nn_rows rows)
{
    mlx_array x = nn_embed(c, &m->embed, ids, MLX_FLOAT32);
    if (m->form.embed_scale)
        x = nn_scale(c, x, m->form.embed_scale);
    for (int i = 0; i < m->layers; i++)
        x = feed_forward(m, c, i, attend(m, c, i, x, rows));
    return x;
}

mlx_array decoder_hidden(const void *state, nn *c, mlx_array ids, nn_rows rows)
{
    const decoder *m = state;
    return norm(m, c, &m->norm, run_layers(m, c, ids, rows));
}

mlx_array decoder_forward(const void *state, nn *c, mlx_array ids, nn_rows rows,
                          bool last_only)
{
    const decoder *m = state;
    mlx_array x = run_layers(m, c, ids, rows);
    if (last_only)
        x = nn_last(c, x, rows);
    x = norm(m, c, &m->norm, x);
    if (m->form.logit_divisor && !(m->tied && m->form.tied_undivided))
        x = nn_scale(c, x, 1 / m->form.logit_divisor);
    return nn_linear(c, m->tied ? &m->embed : &m->head, x);
}
