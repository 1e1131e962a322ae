/* llama.c: Llama 2 and 3, SmolLM2, Mistral 7B and their relatives.
 *
 * Per layer: h = x + attention(norm(x)); y = h + mlp(norm(h)), with rotary
 * positions, grouped key-value heads, windows where a layer has one, and
 * down(silu(gate) * up) as the MLP.
 *
 * x and h, the sums that run through all layers, are float32 whatever the dtype
 * of activations, and so are norms and logits: with sums rounded to 8 bits in
 * each layer, bfloat16 is a hundred times further from exact arithmetic
 * (docs/accuracy.md). */
#include "family.h"

#include "base/alloc.h"
#include "kv/engine.h"

#include <math.h>

typedef struct mlp_weights {
    qn_matrix gate, up, down;
    nn_group in; /* gate and up */
} mlp_weights;

typedef struct layer_weights {
    mlx_array attention_norm, mlp_norm;
    qn_matrix q, k, v, o;
    nn_group qkv;
    mlp_weights mlp;
} layer_weights;

typedef struct llama {
    int layers, heads, kv_heads, head_dim;
    double eps;
    mlx_dtype dtype;
    qn_rope rope;
    qn_matrix embed, head; /* head is empty when tied */
    bool tied;
    mlx_array norm;
    layer_weights *layer;
    int *window; /* of each layer, 0: none */
} llama;

static qn_status llama_check(const qn_config *c)
{
    if (strcmp(c->activation, "silu") != 0)
        return qn_fail(QN_E_UNSUPPORTED, "hidden_act: expected silu, found %s",
                       c->activation);
    if (c->head_dim % 2)
        return qn_fail(QN_E_FORMAT,
                       "head_dim: expected an even number, found %d",
                       c->head_dim);
    return QN_OK;
}

/* Files without layer_types: only mistral means its window. */
static void llama_configure(qn_config *c, qn_source *s)
{
    bool slides = !strcmp(c->family, "mistral");
    if (!s->gguf && slides && !qn_source_has(s, "layer_types", NULL))
        qn_config_set_windows(c, NULL);
}

static void drop(mlx_array x)
{
    if (x.ctx)
        mlx_array_free(x);
}

static void llama_free(void *state)
{
    llama *m = state;
    if (!m)
        return;
    for (int i = 0; m->layer && i < m->layers; i++) {
        layer_weights *w = &m->layer[i];
        drop(w->attention_norm);
        drop(w->mlp_norm);
        nn_group_clear(&w->qkv);
        nn_group_clear(&w->mlp.in);
        qn_matrix_clear(&w->q);
        qn_matrix_clear(&w->k);
        qn_matrix_clear(&w->v);
        qn_matrix_clear(&w->o);
        qn_matrix_clear(&w->mlp.gate);
        qn_matrix_clear(&w->mlp.up);
        qn_matrix_clear(&w->mlp.down);
    }
    drop(m->norm);
    qn_matrix_clear(&m->embed);
    qn_matrix_clear(&m->head);
    qn_rope_clear(&m->rope);
    qn_free(m->layer);
    qn_free(m->window);
    qn_free(m);
}

/* GGUF metadata does not tell about biases; their presence does. */
static bool has_bias(const qn_loader *l, bool stated, const char *name)
{
    return l->config->gguf ? qn_loader_has(l, name) : stated;
}

static qn_status load_attention(qn_loader *l, layer_weights *w, int i)
{
    const qn_config *c = l->config;
    int width = c->heads * c->head_dim, kv_width = c->kv_heads * c->head_dim;
    bool bias =
        has_bias(l, c->attention_bias, "model.layers.0.self_attn.q_proj.bias");
    bool out_bias =
        has_bias(l, c->attention_bias, "model.layers.0.self_attn.o_proj.bias");
    qn_matrix_spec q = {width, c->hidden, bias, c->heads, true};
    qn_matrix_spec k = {kv_width, c->hidden, bias, c->kv_heads, true};
    qn_matrix_spec v = {kv_width, c->hidden, bias, 0, true};
    qn_matrix_spec o = {c->hidden, width, out_bias, 0, false};
    qn_status status =
        qn_load_matrix(l, &w->q, &q, "model.layers.%d.self_attn.q_proj", i);
    if (!status)
        status =
            qn_load_matrix(l, &w->k, &k, "model.layers.%d.self_attn.k_proj", i);
    if (!status)
        status =
            qn_load_matrix(l, &w->v, &v, "model.layers.%d.self_attn.v_proj", i);
    if (!status)
        status =
            qn_load_matrix(l, &w->o, &o, "model.layers.%d.self_attn.o_proj", i);
    if (status || l->missing_count)
        return status;
    return nn_group_make(l, &w->qkv, (qn_matrix *[]){&w->q, &w->k, &w->v}, 3);
}

static qn_status load_mlp(qn_loader *l, mlp_weights *w, int i)
{
    const qn_config *c = l->config;
    int width = c->layer[i].intermediate;
    bool bias = has_bias(l, c->mlp_bias, "model.layers.0.mlp.down_proj.bias");
    qn_matrix_spec in = {width, c->hidden, bias, 0, true};
    qn_matrix_spec out = {c->hidden, width, bias, 0, false};
    qn_status status =
        qn_load_matrix(l, &w->gate, &in, "model.layers.%d.mlp.gate_proj", i);
    if (!status)
        status =
            qn_load_matrix(l, &w->up, &in, "model.layers.%d.mlp.up_proj", i);
    if (!status)
        status = qn_load_matrix(l, &w->down, &out,
                                "model.layers.%d.mlp.down_proj", i);
    if (status || l->missing_count)
        return status;
    return nn_group_make(l, &w->in, (qn_matrix *[]){&w->gate, &w->up}, 2);
}

static qn_status load_layer(qn_loader *l, layer_weights *w, int i)
{
    int hidden = l->config->hidden;
    qn_status status =
        qn_load_vector(l, &w->attention_norm, hidden,
                       "model.layers.%d.input_layernorm.weight", i);
    if (!status)
        status = qn_load_vector(
            l, &w->mlp_norm, hidden,
            "model.layers.%d.post_attention_layernorm.weight", i);
    if (!status)
        status = load_attention(l, w, i);
    return status ? status : load_mlp(l, &w->mlp, i);
}

static qn_status load_rope(llama *m, qn_loader *l)
{
    const qn_rope_config *c = &l->config->rope;
    float *factors = NULL;
    qn_status status =
        qn_load_floats(l, &factors, c->dims / 2, "rope_freqs.weight");
    if (!status)
        status = qn_rope_make(&m->rope, c, factors, m->head_dim, m->dtype,
                              l->stream);
    qn_free(factors);
    return status;
}

/* The embedding, and the head where it has weights of its own. */
static qn_status load_ends(llama *m, qn_loader *l)
{
    const qn_config *c = l->config;
    qn_matrix_spec spec = {c->vocab_size, c->hidden, false, 0, false};
    m->tied =
        c->tied == 1 || (c->tied < 0 && !qn_loader_has(l, "lm_head.weight"));
    qn_status status =
        qn_load_matrix(l, &m->embed, &spec, "model.embed_tokens");
    if (!status)
        status = qn_load_vector(l, &m->norm, c->hidden, "model.norm.weight");
    if (status || !m->tied)
        return status ? status : qn_load_matrix(l, &m->head, &spec, "lm_head");
    qn_loader_ignore(l, "lm_head.weight");
    qn_loader_ignore(l, "lm_head.scales");
    qn_loader_ignore(l, "lm_head.biases");
    return QN_OK;
}

static qn_status llama_load(void **out, qn_loader *l)
{
    const qn_config *c = l->config;
    llama *m = qn_calloc(1, sizeof *m);
    if (!m)
        return QN_E_NOMEM;
    m->layers = c->layers;
    m->heads = c->heads;
    m->kv_heads = c->kv_heads;
    m->head_dim = c->head_dim;
    m->eps = c->norm_eps;
    m->dtype = l->dtype;
    m->layer = qn_calloc((size_t)c->layers, sizeof *m->layer);
    m->window = qn_calloc((size_t)c->layers, sizeof *m->window);
    qn_status status = m->layer && m->window ? QN_OK : QN_E_NOMEM;
    if (!status)
        status = load_rope(m, l);
    if (!status)
        status = load_ends(m, l);
    for (int i = 0; i < c->layers && !status; i++) {
        m->window[i] = c->layer[i].window;
        status = load_layer(l, &m->layer[i], i);
    }
    if (status)
        llama_free(m);
    else
        *out = m;
    return status;
}

/* x + attention(norm(x)) */
static mlx_array attend(const llama *m, nn *c, int i, mlx_array x, nn_rows rows)
{
    const layer_weights *w = &m->layer[i];
    mlx_array qkv[3];
    nn_linears(c, qkv, &w->qkv, x,
               (nn_norm){w->attention_norm, m->eps, m->dtype});
    qn_attention how = {.heads = m->heads,
                        .scale = (float)(1 / sqrt(m->head_dim)),
                        .window = m->window[i]};
    mlx_array out =
        nn_attend(c, rows, i, qkv[0], qkv[1], qkv[2], &m->rope, &how);
    return nn_linear_add(c, &w->o, out, x);
}

/* x + mlp(norm(x)) */
static mlx_array feed_forward(const llama *m, nn *c, int i, mlx_array x)
{
    const layer_weights *w = &m->layer[i];
    mlx_array h = nn_gated(c, &w->mlp.in, x,
                           (nn_norm){w->mlp_norm, m->eps, m->dtype}, NN_SILU);
    return nn_linear_add(c, &w->mlp.down, h, x);
}

static mlx_array llama_forward(const void *state, nn *c, mlx_array ids,
                               nn_rows rows, bool last_only)
{
    const llama *m = state;
    mlx_array x = nn_embed(c, &m->embed, ids, MLX_FLOAT32);
    for (int i = 0; i < m->layers; i++)
        x = feed_forward(m, c, i, attend(m, c, i, x, rows));
    if (last_only)
        x = nn_last(c, x, rows);
    x = nn_rms_norm(c, x, m->norm, m->eps);
    return nn_linear(c, m->tied ? &m->embed : &m->head, x);
}

static bool llama_tied(const void *state)
{
    return ((const llama *)state)->tied;
}

static const char *const llama_ignored[] = {"rotary_emb.inv_freq", NULL};

static const char *const llama_modules[] = {
    "input_layernorm",  "post_attention_layernorm",
    "self_attn.q_proj", "self_attn.k_proj",
    "self_attn.v_proj", "self_attn.o_proj",
    "mlp.gate_proj",    "mlp.up_proj",
    "mlp.down_proj",    NULL,
};

const qn_family qn_family_llama = {
    .configure = llama_configure,
    .check = llama_check,
    .load = llama_load,
    .free = llama_free,
    .forward = llama_forward,
    .tied = llama_tied,
    .ignored = llama_ignored,
    .modules = llama_modules,
};
