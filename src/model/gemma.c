/* gemma.c: Gemma 1, 2 and 3 (its text part).
 *
 * Gemma 1 is a llama with another gate.  The others have a norm after each
 * sublayer, too: h = x + post(attention(norm(x))); y = h + post(mlp(norm(h))).
 * Gemma 2 caps the scores of attention and the logits, Gemma 3 norms queries
 * and keys head by head and turns them otherwise in layers with a window.
 *
 * Norms multiply by 1 + weight.  GGUF files have the sum.  Sums that run
 * through the layers are float32, as in llama.c; so they are never as large as
 * the type of activations allows. */
#include "family.h"

#include "base/alloc.h"
#include "base/f16.h"
#include "kv/engine.h"

#include <math.h>
#include <stdio.h>

typedef struct gemma_config {
    int version;
    double scalar; /* scores are q k / sqrt(scalar) */
    double attention_cap, final_cap;
    bool two_way; /* tokens see those behind them, too */
    nn_gate gate;
} gemma_config;

/* Norms that a version does not have are no arrays. */
typedef struct layer_weights {
    mlx_array attention_norm, attention_post, mlp_norm, mlp_post;
    mlx_array q_norm, k_norm;
    qn_matrix q, k, v, o, gate, up, down;
    nn_group qkv, in; /* in: gate and up */
} layer_weights;

typedef struct gemma {
    int layers, heads;
    double eps, embed_scale, score_scale, attention_cap, final_cap;
    mlx_dtype dtype;
    nn_gate gate;
    qn_rope rope, local_rope;
    qn_matrix embed, head; /* head is empty when tied */
    bool tied;
    mlx_array norm;
    layer_weights *layer;
    qn_layer_config *settings;
} gemma;

/* ---- configuration ---- */

static int version_of(const char *family)
{
    return !strcmp(family, "gemma") ? 1 : !strcmp(family, "gemma2") ? 2 : 3;
}

/* What the configurations of published models leave out. */
static void gemma_prepare(qn_config *c)
{
    int version = version_of(c->family);
    c->norm_eps = 1e-6;
    snprintf(c->activation, sizeof c->activation, "gelu_pytorch_tanh");
    if (c->gguf)
        return;
    c->head_dim = 256;
    if (version == 1)
        return;
    c->sliding_window = 4096;
    if (version == 2)
        return;
    c->heads = 8;
    c->kv_heads = 4;
    c->hidden = 2304;
    c->intermediate = 9216;
    c->layers = 26;
    c->vocab_size = 262208;
    c->max_positions = 131072;
    c->rope.base = 1e6;
}

/* A cap; null means none where the default is one. */
static void read_cap(qn_source *s, double *cap, const char *json,
                     const char *gguf)
{
    const qn_json *value = qn_json_get(s->text, json);
    if (!value)
        value = qn_json_get(s->root, json);
    if (value && value->type == QN_JSON_T_NULL)
        *cap = 0;
    qn_read_real(s, cap, json, gguf);
    if (!s->status && !(*cap >= 0 && *cap < 1e6))
        qn_source_fail(
            s, qn_fail(QN_E_FORMAT, "expected 0 or more, found %g", *cap), json,
            gguf);
}

/* GGUF files don't say what is under the root: it is the width of a head but
 * in the largest model of each version. */
static double usual_scalar(const qn_config *c, int version)
{
    int largest = version == 2 ? 46 : 62;
    if (!c->gguf)
        return version == 1 ? c->head_dim : 256;
    return version > 1 && c->layers == largest ? c->hidden / c->heads
                                               : c->head_dim;
}

static void set_windows(qn_config *c, qn_source *s, int version)
{
    int pattern = version == 2 ? 2 : 6;
    qn_read_int(s, &pattern, "sliding_window_pattern",
                "attention.sliding_window_pattern", 1, QN_MAX_LAYERS);
    bool given = qn_source_has(s, "layer_types", NULL);
    for (int i = 0; i < c->layers; i++) {
        qn_layer_config *layer = &c->layer[i];
        if (!given)
            layer->window = (i + 1) % pattern ? c->sliding_window : 0;
        if (version == 3 && layer->window)
            layer->rope = QN_LAYER_LOCAL_ROPE;
    }
}

static void gemma_configure(qn_config *c, qn_source *s)
{
    gemma_config *g = c->extra = qn_calloc(1, sizeof *g);
    if (!g) {
        s->status = QN_E_NOMEM;
        return;
    }
    int version = g->version = version_of(c->family);
    g->scalar = usual_scalar(c, version);
    g->gate = NN_GELU;
    if (version == 1)
        return;
    qn_read_real(s, &g->scalar, "query_pre_attn_scalar", NULL);
    g->attention_cap = version == 2 ? 50 : 0;
    g->final_cap = version == 2 ? 30 : 0;
    if (version == 2)
        read_cap(s, &g->attention_cap, "attn_logit_softcapping",
                 "attn_logit_softcapping");
    read_cap(s, &g->final_cap, "final_logit_softcapping",
             "final_logit_softcapping");
    if (version == 3)
        qn_read_real(s, &c->local_rope.base, NULL, "rope.freq_base_swa");
    qn_read_bool(s, &g->two_way, "use_bidirectional_attention", NULL);
    set_windows(c, s, version);
}

/* mlx-lm takes the name gelu by its word in Gemma 1, and has no windows in
 * Gemma 2. */
static void gemma_as_mlx_lm(qn_config *c)
{
    gemma_config *g = c->extra;
    if (g->version == 1)
        g->gate = NN_GELU_EXACT;
    for (int i = 0; i < c->layers && g->version == 2; i++)
        c->layer[i].window = 0;
}

static qn_status gemma_check(const qn_config *c)
{
    const gemma_config *g = c->extra;
    /* Gemma 1 says gelu where the approximation is meant. */
    bool fits = !strcmp(c->activation, "gelu_pytorch_tanh") ||
                !strcmp(c->activation, "gelu_new") ||
                (g->version == 1 && !strcmp(c->activation, "gelu"));
    if (!fits)
        return qn_fail(QN_E_UNSUPPORTED,
                       "hidden_activation: expected gelu_pytorch_tanh, found "
                       "%s",
                       c->activation);
    if (!(g->scalar > 0))
        return qn_fail(QN_E_FORMAT,
                       "query_pre_attn_scalar: expected a positive number, "
                       "found %g",
                       g->scalar);
    if (g->two_way)
        return qn_fail(QN_E_UNSUPPORTED,
                       "use_bidirectional_attention is not supported");
    if (c->attention_bias)
        return qn_fail(QN_E_UNSUPPORTED,
                       "attention_bias is not supported in "
                       "%s",
                       c->family);
    return QN_OK;
}

/* ---- weights ---- */

static void free_layer(layer_weights *w)
{
    mlx_array norms[] = {w->attention_norm, w->attention_post, w->mlp_norm,
                         w->mlp_post,       w->q_norm,         w->k_norm};
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        nn_drop(norms[i]);
    nn_group_clear(&w->qkv);
    nn_group_clear(&w->in);
    qn_matrix *all[] = {&w->q, &w->k, &w->v, &w->o, &w->gate, &w->up, &w->down};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        qn_matrix_clear(all[i]);
}

static void gemma_free(void *state)
{
    gemma *m = state;
    if (!m)
        return;
    for (int i = 0; m->layer && i < m->layers; i++)
        free_layer(&m->layer[i]);
    nn_drop(m->norm);
    qn_matrix_clear(&m->embed);
    qn_matrix_clear(&m->head);
    qn_rope_clear(&m->rope);
    qn_rope_clear(&m->local_rope);
    qn_free(m->layer);
    qn_free(m->settings);
    qn_free(m);
}

static qn_status load_norm(qn_loader *l, mlx_array *out, int size, int layer,
                           const char *module)
{
    float more = l->config->gguf ? 0 : 1;
    return layer < 0
               ? qn_load_shifted(l, out, size, more, "%s.weight", module)
               : qn_load_shifted(l, out, size, more,
                                 "model.layers.%d.%s.weight", layer, module);
}

static qn_status load_norms(qn_loader *l, layer_weights *w, int i)
{
    int version = ((const gemma_config *)l->config->extra)->version;
    int hidden = l->config->hidden, dim = l->config->head_dim;
    const struct {
        mlx_array *to;
        int from, size;
        const char *name;
    } norms[] = {
        {&w->attention_norm, 1, hidden, "input_layernorm"},
        {version == 1 ? &w->mlp_norm : &w->attention_post, 1, hidden,
         "post_attention_layernorm"},
        {&w->mlp_norm, 2, hidden, "pre_feedforward_layernorm"},
        {&w->mlp_post, 2, hidden, "post_feedforward_layernorm"},
        {&w->q_norm, 3, dim, "self_attn.q_norm"},
        {&w->k_norm, 3, dim, "self_attn.k_norm"},
    };
    qn_status status = QN_OK;
    for (size_t n = 0; n < sizeof norms / sizeof *norms && !status; n++)
        if (version >= norms[n].from)
            status = load_norm(l, norms[n].to, norms[n].size, i, norms[n].name);
    return status;
}

static qn_status load_matrices(qn_loader *l, layer_weights *w, int i)
{
    const qn_config *c = l->config;
    int width = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    int inner = c->layer[i].intermediate;
    const struct {
        qn_matrix *to;
        qn_matrix_spec spec;
        const char *name;
    } all[] = {
        {&w->q,
         {.rows = width, .cols = c->hidden, .grouped = true},
         "self_attn.q_proj"},
        {&w->k,
         {.rows = kv, .cols = c->hidden, .grouped = true},
         "self_attn.k_proj"},
        {&w->v,
         {.rows = kv, .cols = c->hidden, .grouped = true},
         "self_attn.v_proj"},
        {&w->o, {.rows = c->hidden, .cols = width}, "self_attn.o_proj"},
        {&w->gate,
         {.rows = inner, .cols = c->hidden, .grouped = true},
         "mlp.gate_proj"},
        {&w->up,
         {.rows = inner, .cols = c->hidden, .grouped = true},
         "mlp.up_proj"},
        {&w->down, {.rows = c->hidden, .cols = inner}, "mlp.down_proj"},
    };
    qn_status status = QN_OK;
    for (size_t n = 0; n < sizeof all / sizeof *all && !status; n++)
        status = qn_load_matrix(l, all[n].to, &all[n].spec,
                                "model.layers.%d.%s", i, all[n].name);
    if (status || l->missing_count)
        return status;
    status = nn_group_make(l, &w->qkv, (qn_matrix *[]){&w->q, &w->k, &w->v}, 3);
    if (!status)
        status = nn_group_make(l, &w->in, (qn_matrix *[]){&w->gate, &w->up}, 2);
    return status;
}

/* The embedding, and the head where it has weights of its own. */
static qn_status load_ends(gemma *m, qn_loader *l)
{
    const qn_config *c = l->config;
    qn_matrix_spec spec = {.rows = c->vocab_size, .cols = c->hidden};
    m->tied =
        c->tied == 1 || (c->tied < 0 && !qn_loader_has(l, "lm_head.weight"));
    qn_status status =
        qn_load_matrix(l, &m->embed, &spec, "model.embed_tokens");
    if (!status)
        status = load_norm(l, &m->norm, c->hidden, -1, "model.norm");
    if (status || !m->tied)
        return status ? status : qn_load_matrix(l, &m->head, &spec, "lm_head");
    qn_loader_ignore(l, "lm_head.weight");
    qn_loader_ignore(l, "lm_head.scales");
    qn_loader_ignore(l, "lm_head.biases");
    return QN_OK;
}

static qn_status load_ropes(gemma *m, qn_loader *l)
{
    const qn_config *c = l->config;
    qn_status status = qn_rope_make(&m->rope, &c->rope, NULL, c->head_dim,
                                    m->dtype, l->stream);
    if (!status)
        status = qn_rope_make(&m->local_rope, &c->local_rope, NULL, c->head_dim,
                              m->dtype, l->stream);
    return status;
}

static void set_numbers(gemma *m, const qn_loader *l)
{
    const qn_config *c = l->config;
    const gemma_config *g = c->extra;
    m->heads = c->heads;
    m->eps = c->norm_eps;
    m->dtype = l->dtype;
    m->embed_scale = sqrt(c->hidden);
    /* The authors' program has the number in the type of its weights. */
    if (g->version == 3)
        m->embed_scale =
            (double)qn_bf16_to_f32(qn_f32_to_bf16((float)m->embed_scale));
    m->score_scale = 1 / sqrt(g->scalar);
    m->attention_cap = g->attention_cap;
    m->final_cap = g->final_cap;
    m->gate = g->gate;
}

static qn_status gemma_load(void **out, qn_loader *l)
{
    const qn_config *c = l->config;
    gemma *m = qn_calloc(1, sizeof *m);
    if (!m)
        return QN_E_NOMEM;
    m->layers = c->layers;
    set_numbers(m, l);
    m->layer = qn_calloc((size_t)c->layers, sizeof *m->layer);
    m->settings = qn_calloc((size_t)c->layers, sizeof *m->settings);
    qn_status status = m->layer && m->settings ? QN_OK : QN_E_NOMEM;
    if (!status)
        status = load_ropes(m, l);
    if (!status)
        status = load_ends(m, l);
    for (int i = 0; i < c->layers && !status; i++) {
        m->settings[i] = c->layer[i];
        status = load_norms(l, &m->layer[i], i);
        if (!status)
            status = load_matrices(l, &m->layer[i], i);
    }
    if (status)
        gemma_free(m);
    else
        *out = m;
    return status;
}

/* ---- forward ---- */

/* x + norm(w y), without the norm where there is none. */
static mlx_array join(const gemma *m, nn *c, mlx_array x, const qn_matrix *w,
                      mlx_array y, mlx_array norm)
{
    if (!norm.ctx)
        return nn_linear_add(c, w, y, x);
    y = nn_astype(c, nn_linear(c, w, y), MLX_FLOAT32);
    return nn_add(c, x, nn_rms_norm(c, y, norm, m->eps));
}

static mlx_array attend(const gemma *m, nn *c, int i, mlx_array x, nn_rows rows)
{
    const layer_weights *w = &m->layer[i];
    const qn_layer_config *settings = &m->settings[i];
    mlx_array qkv[3];
    nn_linears(c, qkv, &w->qkv, x,
               (nn_norm){w->attention_norm, m->eps, m->dtype});
    if (w->q_norm.ctx) {
        qkv[0] = nn_head_norm(c, qkv[0], w->q_norm, settings->head_dim, m->eps);
        qkv[1] = nn_head_norm(c, qkv[1], w->k_norm, settings->head_dim, m->eps);
    }
    bool local = settings->rope == QN_LAYER_LOCAL_ROPE;
    qn_attention how = {.heads = m->heads,
                        .scale = (float)m->score_scale,
                        .cap = (float)m->attention_cap,
                        .window = settings->window};
    mlx_array out = nn_attend(c, rows, i, qkv[0], qkv[1], qkv[2],
                              local ? &m->local_rope : &m->rope, &how);
    return join(m, c, x, &w->o, out, w->attention_post);
}

static mlx_array feed_forward(const gemma *m, nn *c, int i, mlx_array x)
{
    const layer_weights *w = &m->layer[i];
    mlx_array h = nn_gated(c, &w->in, x,
                           (nn_norm){w->mlp_norm, m->eps, m->dtype}, m->gate);
    return join(m, c, x, &w->down, h, w->mlp_post);
}

static mlx_array run_layers(const gemma *m, nn *c, mlx_array ids, nn_rows rows)
{
    mlx_array x =
        nn_scale(c, nn_embed(c, &m->embed, ids, MLX_FLOAT32), m->embed_scale);
    for (int i = 0; i < m->layers; i++)
        x = feed_forward(m, c, i, attend(m, c, i, x, rows));
    return x;
}

static mlx_array gemma_hidden(const void *state, nn *c, mlx_array ids,
                              nn_rows rows)
{
    const gemma *m = state;
    return nn_rms_norm(c, run_layers(m, c, ids, rows), m->norm, m->eps);
}

static mlx_array gemma_forward(const void *state, nn *c, mlx_array ids,
                               nn_rows rows, bool last_only)
{
    const gemma *m = state;
    mlx_array x = run_layers(m, c, ids, rows);
    if (last_only)
        x = nn_last(c, x, rows);
    x = nn_rms_norm(c, x, m->norm, m->eps);
    x = nn_linear(c, m->tied ? &m->embed : &m->head, x);
    return nn_cap(c, x, m->final_cap);
}

static bool gemma_tied(const void *state)
{
    return ((const gemma *)state)->tied;
}

static const char *const ignored[] = {"rotary_emb.inv_freq", NULL};

static const qn_tensor_name names[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    {NULL, NULL},
};

#define MATRICES                                                               \
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",                \
        "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"

static const char *const modules[] = {
    "input_layernorm",
    "post_attention_layernorm",
    MATRICES,
    NULL,
};
static const char *const modules2[] = {
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
    MATRICES,
    NULL,
};
static const char *const modules3[] = {
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
    "self_attn.q_norm",
    "self_attn.k_norm",
    MATRICES,
    NULL,
};

#define GEMMA(number, its_names, its_modules)                                  \
    const qn_family qn_family_gemma##number = {                                \
        .prepare = gemma_prepare,                                              \
        .configure = gemma_configure,                                          \
        .check = gemma_check,                                                  \
        .as_mlx_lm = gemma_as_mlx_lm,                                          \
        .gguf_names = its_names,                                               \
        .load = gemma_load,                                                    \
        .free = gemma_free,                                                    \
        .forward = gemma_forward,                                              \
        .hidden = gemma_hidden,                                                \
        .tied = gemma_tied,                                                    \
        .ignored = ignored,                                                    \
        .modules = its_modules,                                                \
    }

GEMMA(, NULL, modules);
GEMMA(2, names, modules2);
GEMMA(3, names, modules3);
