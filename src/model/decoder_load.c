/* decoder_load.c: the weights of a decoder.  See decoder.h. */
#include "decoder.h"

#include "base/alloc.h"

#include <stdio.h>

const char *const decoder_ignored[] = {"rotary_emb.inv_freq", NULL};

const char *const decoder_modules[] = {
    "input_layernorm",  "post_attention_layernorm",
    "self_attn.q_proj", "self_attn.k_proj",
    "self_attn.v_proj", "self_attn.o_proj",
    "mlp.gate_proj",    "mlp.up_proj",
    "mlp.down_proj",    NULL,
};

decoder_form decoder_usual(const qn_config *c)
{
    return (decoder_form){.before_attention = "input_layernorm",
                          .before_mlp = "post_attention_layernorm",
                          .qkv_bias = c->attention_bias,
                          .out_bias = c->attention_bias,
                          .mlp_bias = c->mlp_bias};
}

qn_status decoder_check_activation(const qn_config *c, const char *name)
{
    if (!strcmp(c->activation, name))
        return QN_OK;
    return qn_fail(QN_E_UNSUPPORTED, "hidden_act: expected %s, found %s", name,
                   c->activation);
}

static void drop_norm(decoder_norm *n)
{
    nn_drop(n->weight);
    nn_drop(n->bias);
}

static void clear_layer(decoder_layer *w)
{
    drop_norm(&w->before_attention);
    drop_norm(&w->after_attention);
    drop_norm(&w->before_mlp);
    drop_norm(&w->after_mlp);
    nn_drop(w->q_norm);
    nn_drop(w->k_norm);
    nn_drop(w->sinks);
    nn_group_clear(&w->qkv);
    nn_group_clear(&w->mlp.in);
    qn_matrix_clear(&w->q);
    qn_matrix_clear(&w->k);
    qn_matrix_clear(&w->v);
    qn_matrix_clear(&w->o);
    qn_matrix_clear(&w->mlp.gate);
    qn_matrix_clear(&w->mlp.up);
    qn_matrix_clear(&w->mlp.down);
    nn_moe_free(w->moe);
}

void decoder_free(void *state)
{
    decoder *m = state;
    if (!m)
        return;
    for (int i = 0; m->layer && i < m->layers; i++)
        clear_layer(&m->layer[i]);
    drop_norm(&m->norm);
    qn_matrix_clear(&m->embed);
    qn_matrix_clear(&m->head);
    qn_rope_clear(&m->rope);
    qn_rope_clear(&m->local_rope);
    qn_free(m->layer);
    qn_free(m);
}

bool decoder_tied(const void *state)
{
    return ((const decoder *)state)->tied;
}

/* GGUF metadata does not tell about biases; their presence does. */
static bool has_bias(const qn_loader *l, bool stated, const char *fmt, int i)
{
    char name[128];
    snprintf(name, sizeof name, fmt, i);
    return l->config->gguf ? qn_loader_has(l, name) : stated;
}

static qn_status load_norm(qn_loader *l, const decoder *m, decoder_norm *out,
                           const char *name, int i)
{
    int hidden = l->config->hidden;
    if (!name)
        return QN_OK;
    qn_status status = qn_load_vector(l, &out->weight, hidden,
                                      "model.layers.%d.%s.weight", i, name);
    if (!status && m->form.layer_norms)
        status = qn_load_vector(l, &out->bias, hidden,
                                "model.layers.%d.%s.bias", i, name);
    return status;
}

static qn_status load_norms(qn_loader *l, const decoder *m, decoder_layer *w,
                            int i)
{
    const decoder_form *f = &m->form;
    qn_status status =
        load_norm(l, m, &w->before_attention, f->before_attention, i);
    if (!status)
        status = load_norm(l, m, &w->after_attention, f->after_attention, i);
    if (!status)
        status = load_norm(l, m, &w->before_mlp, f->before_mlp, i);
    return status ? status : load_norm(l, m, &w->after_mlp, f->after_mlp, i);
}

static qn_status load_qk_norms(qn_loader *l, const decoder *m, decoder_layer *w,
                               int i)
{
    bool whole = m->form.qk_norm == DECODER_QK_WHOLE;
    if (m->form.qk_norm == DECODER_QK_PLAIN)
        return QN_OK;
    qn_status status =
        qn_load_vector(l, &w->q_norm, m->head_dim * (whole ? m->heads : 1),
                       "model.layers.%d.self_attn.q_norm.weight", i);
    if (status)
        return status;
    return qn_load_vector(l, &w->k_norm,
                          m->head_dim * (whole ? m->kv_heads : 1),
                          "model.layers.%d.self_attn.k_norm.weight", i);
}

static qn_status load_qkv(qn_loader *l, const decoder *m, decoder_layer *w,
                          int i)
{
    const decoder_form *f = &m->form;
    const qn_config *c = l->config;
    int wide = c->heads * c->head_dim, narrow = c->kv_heads * c->head_dim;
    const char *first = f->fused_qkv ? "model.layers.%d.self_attn.qkv_proj.bias"
                                     : "model.layers.%d.self_attn.q_proj.bias";
    bool bias = has_bias(l, f->qkv_bias, first, i);
    qn_matrix_spec q = {.rows = wide,
                        .cols = c->hidden,
                        .bias = bias,
                        .paired_heads = f->paired ? c->heads : 0,
                        .grouped = true};
    qn_matrix_spec k = q, v = q;
    k.rows = v.rows = narrow;
    k.paired_heads = f->paired ? c->kv_heads : 0;
    v.paired_heads = 0;
    if (f->fused_qkv) {
        q.of_rows = k.of_rows = v.of_rows = wide + 2 * narrow;
        k.first_row = wide;
        v.first_row = wide + narrow;
    }
    struct {
        qn_matrix *out;
        const qn_matrix_spec *spec;
        const char *name;
    } parts[] = {{&w->q, &q, "q"}, {&w->k, &k, "k"}, {&w->v, &v, "v"}};
    qn_status status = QN_OK;
    for (int p = 0; p < 3 && !status; p++)
        status = qn_load_matrix(l, parts[p].out, parts[p].spec,
                                "model.layers.%d.self_attn.%s_proj", i,
                                f->fused_qkv ? "qkv" : parts[p].name);
    if (status || l->missing_count)
        return status;
    return nn_group_make(l, &w->qkv, (qn_matrix *[]){&w->q, &w->k, &w->v}, 3);
}

static qn_status load_attention(qn_loader *l, const decoder *m,
                                decoder_layer *w, int i)
{
    const qn_config *c = l->config;
    qn_matrix_spec o = {.rows = c->hidden, .cols = c->heads * c->head_dim};
    o.bias = has_bias(l, m->form.out_bias,
                      "model.layers.%d.self_attn.o_proj.bias", i);
    qn_status status = load_qkv(l, m, w, i);
    if (!status)
        status = load_qk_norms(l, m, w, i);
    if (!status)
        status =
            qn_load_matrix(l, &w->o, &o, "model.layers.%d.self_attn.o_proj", i);
    if (!status && m->form.sinks)
        status =
            qn_load_vector(l, &w->sinks, c->heads,
                           c->gguf ? "model.layers.%d.self_attn.sinks.weight"
                                   : "model.layers.%d.self_attn.sinks",
                           i);
    return status;
}

static qn_status load_plain_mlp(qn_loader *l, const decoder *m, decoder_mlp *w,
                                int i)
{
    int width = l->config->layer[i].intermediate, hidden = l->config->hidden;
    qn_matrix_spec in = {.rows = width, .cols = hidden};
    qn_matrix_spec out = {.rows = hidden, .cols = width};
    in.bias = has_bias(l, m->form.mlp_bias, "model.layers.%d.mlp.c_fc.bias", i);
    out.bias =
        has_bias(l, m->form.mlp_bias, "model.layers.%d.mlp.c_proj.bias", i);
    qn_status status =
        qn_load_matrix(l, &w->up, &in, "model.layers.%d.mlp.c_fc", i);
    return status ? status
                  : qn_load_matrix(l, &w->down, &out,
                                   "model.layers.%d.mlp.c_proj", i);
}

static qn_status load_mlp(qn_loader *l, const decoder *m, decoder_mlp *w, int i)
{
    bool fused = m->form.fused_gate;
    int width = l->config->layer[i].intermediate, hidden = l->config->hidden;
    bool bias =
        has_bias(l, m->form.mlp_bias, "model.layers.%d.mlp.down_proj.bias", i);
    qn_matrix_spec gate = {
        .rows = width, .cols = hidden, .bias = bias, .grouped = true};
    qn_matrix_spec up = gate;
    qn_matrix_spec down = {.rows = hidden, .cols = width, .bias = bias};
    if (fused) {
        gate.of_rows = up.of_rows = 2 * width;
        up.first_row = width;
    }
    const char *both = "gate_up_proj";
    qn_status status =
        qn_load_matrix(l, &w->gate, &gate, "model.layers.%d.mlp.%s", i,
                       fused ? both : "gate_proj");
    if (!status)
        status = qn_load_matrix(l, &w->up, &up, "model.layers.%d.mlp.%s", i,
                                fused ? both : "up_proj");
    if (!status)
        status = qn_load_matrix(l, &w->down, &down,
                                "model.layers.%d.mlp.down_proj", i);
    if (status || l->missing_count)
        return status;
    return nn_group_make(l, &w->in, (qn_matrix *[]){&w->gate, &w->up}, 2);
}

static qn_status load_layer(qn_loader *l, const decoder *m, int i)
{
    decoder_layer *w = &m->layer[i];
    const qn_layer_config *c = &l->config->layer[i];
    w->window = c->window;
    w->rope = c->rope == QN_LAYER_NO_ROPE      ? &m->no_rope
              : c->rope == QN_LAYER_LOCAL_ROPE ? &m->local_rope
                                               : &m->rope;
    qn_status status = load_norms(l, m, w, i);
    if (!status)
        status = load_attention(l, m, w, i);
    if (status)
        return status;
    if (c->sparse)
        return nn_moe_load(&w->moe, l, m->form.moe, i);
    return m->form.plain_mlp ? load_plain_mlp(l, m, &w->mlp, i)
                             : load_mlp(l, m, &w->mlp, i);
}

/* The embedding, and the head where it has weights of its own. */
static qn_status load_ends(decoder *m, qn_loader *l)
{
    const qn_config *c = l->config;
    qn_matrix_spec spec = {.rows = c->vocab_size, .cols = c->hidden};
    m->tied =
        c->tied == 1 || (c->tied < 0 && !qn_loader_has(l, "lm_head.weight"));
    qn_status status =
        qn_load_matrix(l, &m->embed, &spec, "model.embed_tokens");
    if (!status)
        status =
            qn_load_vector(l, &m->norm.weight, c->hidden, "model.norm.weight");
    if (!status && m->form.layer_norms)
        status = qn_load_vector(l, &m->norm.bias, c->hidden, "model.norm.bias");
    if (status || !m->tied)
        return status ? status : qn_load_matrix(l, &m->head, &spec, "lm_head");
    qn_loader_ignore(l, "lm_head.weight");
    qn_loader_ignore(l, "lm_head.scales");
    qn_loader_ignore(l, "lm_head.biases");
    return QN_OK;
}

qn_status decoder_load(void **out, qn_loader *l, const decoder_form *form)
{
    const qn_config *c = l->config;
    decoder *m = qn_calloc(1, sizeof *m);
    if (!m)
        return QN_E_NOMEM;
    m->form = *form;
    m->layers = c->layers;
    m->heads = c->heads;
    m->kv_heads = c->kv_heads;
    m->head_dim = c->head_dim;
    m->eps = c->norm_eps;
    m->dtype = l->dtype;
    m->layer = qn_calloc((size_t)c->layers, sizeof *m->layer);
    qn_status status = m->layer ? QN_OK : QN_E_NOMEM;
    if (!status)
        status = qn_rope_load(&m->rope, &m->local_rope, l);
    if (!status)
        status = load_ends(m, l);
    for (int i = 0; i < c->layers && !status; i++)
        status = load_layer(l, m, i);
    if (status)
        decoder_free(m);
    else
        *out = m;
    return status;
}
