/* gpt_oss.c: gpt-oss: sinks in attention, a window in every other layer,
 * experts with biases and a gate of their own.
 *
 * The authors' files have the rows of gate and up of all experts alternate in
 * one tensor: packed as mxfp4 ("gate_up_proj_blocks", whose bytes are the words
 * of that mode) or dense and turned around. */
#include "decoder.h"

#include "kv/engine.h"

#include <stdio.h>

static void gpt_oss_prepare(qn_config *c)
{
    c->attention_bias = true;
    c->rope.between_pairs = c->gguf;
}

static bool every_other(int layer)
{
    return layer % 2 == 0;
}

static void gpt_oss_configure(qn_config *c, qn_source *s)
{
    c->moe.intermediate = c->intermediate;
    c->moe.normalize = true;
    if (qn_source_has(s, "experts_per_token", NULL))
        qn_read_int(s, &c->moe.used, "experts_per_token", NULL, 1, 4096);
    qn_config_read_moe(c, s);
    double limit = 7;
    qn_read_real(s, &limit, "swiglu_limit", NULL);
    if (!s->status && limit != 7)
        qn_source_fail(s,
                       qn_fail(QN_E_UNSUPPORTED,
                               "expected experts clamped at 7, found %g",
                               limit),
                       "swiglu_limit", NULL);
    if (!c->sliding_window)
        c->sliding_window = 128;
    if (!qn_source_has(s, "layer_types", NULL))
        qn_config_set_windows(c, every_other);
    for (int i = 0; i < c->layers; i++)
        c->layer[i].sparse = true;
}

static qn_status gpt_oss_check(const qn_config *c)
{
    return decoder_check_activation(c, "silu");
}

/* ---- the authors' form of experts ---- */

static mlx_array view(nn *c, mlx_array x, mlx_dtype dtype)
{
    NN_STEP(c, mlx_view(&res, x, dtype, c->stream));
}

static mlx_array turn(nn *c, mlx_array x)
{
    NN_STEP(c, mlx_swapaxes(&res, x, -1, -2, c->stream));
}

static mlx_array contiguous(nn *c, mlx_array x)
{
    NN_STEP(c, mlx_contiguous(&res, x, false, c->stream));
}

/* Row `part` of each two of x [rows, n]. */
static mlx_array every_second(nn *c, mlx_array x, int part)
{
    if (c->status)
        return x;
    int stop[2] = {mlx_array_dim(x, 0), mlx_array_dim(x, 1)};
    NN_STEP(c, mlx_slice(&res, x, (int[]){part, 0}, 2, stop, 2, (int[]){2, 1},
                         2, c->stream));
}

/* A tensor of the experts of a layer as rows [.., n]; `turned`: the last two
 * axes are the other way round. */
static mlx_array rows_of(nn *c, qn_loader *l, int layer, const char *name,
                         int rows, bool turned)
{
    mlx_array x = {NULL};
    if (c->status)
        return x;
    c->status =
        qn_load_raw(l, &x, "model.layers.%d.mlp.experts.%s", layer, name);
    if (c->status || !x.ctx)
        return x;
    x = nn_adopt(c, x);
    if (mlx_array_dtype(x) == MLX_UINT8 && mlx_array_ndim(x) == 4)
        x = view(c, x, MLX_UINT32);
    if (turned)
        x = turn(c, x);
    size_t size = c->status ? 0 : mlx_array_size(x);
    if (!c->status && (!size || size % (size_t)rows))
        c->status = qn_fail(QN_E_MISMATCH,
                            "model.layers.%d.mlp.experts.%s: expected %d rows, "
                            "found %zu elements",
                            layer, name, rows, size);
    return nn_reshape(
        c, x, (int[]){rows, c->status ? 1 : (int)(size / (size_t)rows)}, 2);
}

/* Keeps what was picked of a tensor, computed now: the tensor can go. */
static void keep(nn *c, mlx_array *out, mlx_array x, mlx_dtype dtype)
{
    x = contiguous(c, dtype == MLX_BOOL ? x : nn_astype(c, x, dtype));
    *out = nn_keep(c, x);
    if (!c->status)
        c->status = qn_engine(mlx_array_eval(*out));
}

/* The array of `which` (NULL: all rows; else "gate", "up") of a tensor. */
typedef struct picked {
    qn_matrix *to;
    int part; /* of two; -1: all */
} picked;

static void pick(nn *c, qn_loader *l, int layer, const char *stem,
                 const picked *list, int count, int rows, int cols)
{
    char name[3][64];
    bool packed;
    snprintf(name[0], sizeof name[0], "%s_blocks", stem);
    snprintf(name[1], sizeof name[1], "%s_scales", stem);
    snprintf(name[2], sizeof name[2], "%s_bias", stem);
    char full[128];
    snprintf(full, sizeof full, "model.layers.%d.mlp.experts.%s", layer,
             name[0]);
    packed = qn_loader_has(l, full);
    mlx_array x[3] = {
        rows_of(c, l, layer, packed ? name[0] : stem, rows, !packed),
        packed ? rows_of(c, l, layer, name[1], rows, false) : (mlx_array){NULL},
        rows_of(c, l, layer, name[2], rows, false)};
    if (c->status || !x[0].ctx || !x[2].ctx || (packed && !x[1].ctx))
        return;
    int wide = packed ? cols / 8 : cols;
    if (mlx_array_dim(x[0], 1) != wide || mlx_array_dim(x[2], 1) != 1 ||
        (packed && (cols % 32 || mlx_array_dim(x[1], 1) != cols / 32 ||
                    mlx_array_dtype(x[0]) != MLX_UINT32 ||
                    mlx_array_dtype(x[1]) != MLX_UINT8))) {
        c->status =
            qn_fail(QN_E_MISMATCH, "%s: expected rows of %d elements, found %d",
                    full, cols, mlx_array_dim(x[0], 1) * (packed ? 8 : 1));
        return;
    }
    for (int i = 0; i < count; i++) {
        qn_matrix *m = list[i].to;
        mlx_array part[3];
        for (int k = 0; k < 3; k++)
            part[k] = x[k].ctx && list[i].part >= 0
                          ? every_second(c, x[k], list[i].part)
                          : x[k];
        m->rows = list[i].part < 0 ? rows : rows / 2;
        m->cols = cols;
        m->packed = packed;
        m->quant = (qn_quant){QN_MODE_MXFP4, 32, 4};
        m->zero = -1;
        keep(c, &m->weight, part[0], packed ? MLX_BOOL : l->dtype);
        if (packed)
            keep(c, &m->scales, part[1], MLX_BOOL);
        if (!c->status)
            part[2] = nn_reshape(c, part[2], (int[]){m->rows}, 1);
        keep(c, &m->bias, part[2], l->dtype);
        if (!c->status)
            qn_loader_count(l, m);
    }
}

static qn_status load_experts(qn_loader *l, int layer, bool *done,
                              qn_matrix *gate, qn_matrix *up, qn_matrix *down)
{
    const qn_moe_config *moe = &l->config->moe;
    char name[128];
    snprintf(name, sizeof name, "model.layers.%d.mlp.experts.gate_up_proj_bias",
             layer);
    *done = qn_loader_has(l, name);
    if (!*done)
        return QN_OK;
    nn c;
    nn_begin(&c, l->stream);
    pick(&c, l, layer, "gate_up_proj", (picked[]){{gate, 0}, {up, 1}}, 2,
         2 * moe->count * moe->intermediate, l->config->hidden);
    pick(&c, l, layer, "down_proj", &(picked){down, -1}, 1,
         moe->count * l->config->hidden, moe->intermediate);
    qn_status status = nn_end(&c);
    return status ? qn_fail_where(status, "%s: model.layers.%d.mlp.experts",
                                  qn_weights_path(l->weights), layer)
                  : QN_OK;
}

/* ---- the family ---- */

static const moe_form gpt_oss_moe = {.block = "mlp",
                                     .router = "router",
                                     .stacked = "experts",
                                     .biases = true,
                                     .clamped = true,
                                     .load = load_experts};

static const qn_tensor_name gpt_oss_names[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {NULL, NULL},
};

static const char *const gpt_oss_modules[] = {
    "input_layernorm",  "post_attention_layernorm",
    "self_attn.q_proj", "self_attn.o_proj",
    "mlp.router",       NULL,
};

static qn_status gpt_oss_load(void **out, qn_loader *l)
{
    decoder_form form = decoder_usual(l->config);
    form.sinks = true;
    form.moe = &gpt_oss_moe;
    return decoder_load(out, l, &form);
}

const qn_family qn_family_gpt_oss = {
    .prepare = gpt_oss_prepare,
    .configure = gpt_oss_configure,
    .check = gpt_oss_check,
    .gguf_names = gpt_oss_names,
    .load = gpt_oss_load,
    .free = decoder_free,
    .forward = decoder_forward,
    .tied = decoder_tied,
    .ignored = decoder_ignored,
    .modules = gpt_oss_modules,
};
