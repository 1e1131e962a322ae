/* ple.c: see ple.h. */
#include "ple.h"

#include "base/f16.h"

#include <math.h>

double ple_root(int n)
{
    return (double)qn_bf16_to_f32(qn_f32_to_bf16((float)sqrt(n)));
}

qn_status ple_check(const qn_config *c, const char *family, double cap,
                    int width)
{
    if (strcmp(c->activation, "gelu_pytorch_tanh") != 0)
        return qn_fail(QN_E_UNSUPPORTED,
                       "hidden_activation: expected gelu_pytorch_tanh, found "
                       "%s",
                       c->activation);
    if (c->attention_bias)
        return qn_fail(QN_E_UNSUPPORTED,
                       "attention_bias is not supported in %s", family);
    if (!(cap >= 0 && cap < 1e6))
        return qn_fail(QN_E_FORMAT,
                       "final_logit_softcapping: expected 0 or more, found %g",
                       cap);
    if ((int64_t)width * c->layers > QN_MAX_DIM)
        return qn_fail(QN_E_FORMAT, "%d layers with inputs of %d are too wide",
                       c->layers, width);
    return QN_OK;
}

qn_status ple_load(ple *p, qn_loader *l, int width, int vocab)
{
    const qn_config *c = l->config;
    *p = (ple){.width = width,
               .layers = c->layers,
               .vocab = vocab,
               .eps = c->norm_eps,
               .projection_scale = 1 / sqrt(c->hidden),
               .table_scale = ple_root(width)};
    if (!width)
        return QN_OK;
    int all = c->layers * width;
    qn_matrix_spec table = {.rows = vocab, .cols = all};
    qn_matrix_spec projection = {.rows = all, .cols = c->hidden};
    qn_status status =
        qn_load_matrix(l, &p->table, &table, "model.embed_tokens_per_layer");
    if (!status)
        status = qn_load_matrix(l, &p->projection, &projection,
                                "model.per_layer_model_projection");
    if (!status)
        status = qn_load_vector(l, &p->norm, width,
                                "model.per_layer_projection_norm.weight");
    return status;
}

void ple_clear(ple *p)
{
    qn_matrix_clear(&p->table);
    qn_matrix_clear(&p->projection);
    nn_drop(p->norm);
}

qn_status ple_layer_load(ple_layer *w, qn_loader *l, int width, int layer)
{
    int hidden = l->config->hidden;
    qn_matrix_spec gate = {.rows = width, .cols = hidden};
    qn_matrix_spec projection = {.rows = hidden, .cols = width};
    qn_status status = qn_load_matrix(
        l, &w->gate, &gate, "model.layers.%d.per_layer_input_gate", layer);
    if (!status)
        status = qn_load_matrix(l, &w->projection, &projection,
                                "model.layers.%d.per_layer_projection", layer);
    if (!status)
        status = qn_load_vector(
            l, &w->norm, hidden,
            "model.layers.%d.post_per_layer_input_norm.weight", layer);
    return status;
}

void ple_layer_clear(ple_layer *w)
{
    qn_matrix_clear(&w->gate);
    qn_matrix_clear(&w->projection);
    nn_drop(w->norm);
}

static mlx_array less(nn *c, mlx_array a, mlx_array b)
{
    NN_STEP(c, mlx_less(&res, a, b, c->stream));
}

/* Ids that the table does not have read its first row. */
static mlx_array known(nn *c, const ple *p, mlx_array ids)
{
    mlx_array is = less(c, ids, nn_number(c, p->vocab, MLX_INT32));
    return nn_mul(c, ids, nn_astype(c, is, MLX_INT32));
}

mlx_array ple_inputs(nn *c, const ple *p, mlx_array ids, mlx_array x)
{
    mlx_array rows = nn_embed(c, &p->table, known(c, p, ids), MLX_FLOAT32);
    mlx_array more = nn_linear(c, &p->projection, x);
    more = nn_scale(c, more, p->projection_scale);
    more = nn_head_norm(c, more, p->norm, p->width, p->eps);
    rows = nn_scale(c, rows, p->table_scale);
    return nn_scale(c, nn_add(c, more, rows), sqrt(0.5));
}

mlx_array ple_apply(nn *c, const ple *p, const ple_layer *w, int layer,
                    mlx_array x, mlx_array inputs, mlx_dtype dtype)
{
    mlx_array input =
        nn_slice_last(c, inputs, layer * p->width, (layer + 1) * p->width);
    mlx_array y =
        nn_gelu_tanh(c, nn_linear(c, &w->gate, nn_astype(c, x, dtype)));
    y = nn_mul(c, y, nn_astype(c, input, dtype));
    y = nn_astype(c, nn_linear(c, &w->projection, y), MLX_FLOAT32);
    return nn_rms_norm(c, y, w->norm, p->eps);
}
