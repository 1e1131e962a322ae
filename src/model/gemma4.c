/* gemma4.c: the text part of Gemma 4.
 *
 * Norms before and after each sublayer, with plain weights.  Layers without a
 * window have wider heads, fewer of them for keys where values are the keys
 * (attention_k_eq_v), and positions that turn a part of a head.  Queries, keys
 * and values are normed head by head, values without a weight.  The last layers
 * have no keys and values of their own: they attend to those of the last layer
 * before them that is of their kind.  A layer may have experts beside its MLP,
 * and inputs of its own (ple.h); what it gives is scaled. */
#include "family.h"
#include "moe.h"
#include "ple.h"

#include "base/alloc.h"

#include <math.h>
#include <stdio.h>

typedef struct gemma4_config {
    int ple_width, ple_vocab;
    int shared; /* layers at the end without keys and values */
    bool same;  /* values are keys where there is no window */
    bool moe;
    double cap;
} gemma4_config;

typedef struct expert_weights {
    qn_matrix router, gate_up, gate, up, down; /* gate_up, or the two */
    mlx_array scale, each; /* of the router's input, of each expert */
    mlx_array before, after, after_mlp;
} expert_weights;

typedef struct layer_weights {
    mlx_array before_attention, after_attention, before_mlp, after_mlp;
    mlx_array q_norm, k_norm, scalar;
    qn_matrix q, k, v, o, gate, up, down;
    nn_group qkv, in;
    ple_layer ple;
    expert_weights moe;
} layer_weights;

typedef struct gemma4 {
    int layers, heads;
    double eps, embed_scale, cap;
    mlx_dtype dtype;
    qn_rope rope, local_rope;
    qn_matrix embed, head; /* head is empty when tied */
    bool tied;
    mlx_array norm;
    ple ple;
    qn_moe_config experts;
    layer_weights *layer;
    qn_layer_config *settings;
} gemma4;

/* ---- configuration ---- */

static void gemma4_prepare(qn_config *c)
{
    c->norm_eps = 1e-6;
    snprintf(c->activation, sizeof c->activation, "gelu_pytorch_tanh");
    if (c->gguf)
        return;
    c->hidden = 2304;
    c->intermediate = 9216;
    c->layers = 30;
    c->heads = 8;
    c->kv_heads = 4;
    c->head_dim = 256;
    c->vocab_size = 262144;
    c->max_positions = 131072;
    c->sliding_window = 512;
    c->rope.base = 1e6;
    c->rope.type = QN_ROPE_PROPORTIONAL;
    c->rope.partial = 0.25;
}

/* Layer `i` reads the keys of the last layer before `first` of its kind. */
static void share(qn_config *c, qn_source *s, int first, int i)
{
    int from = first - 1;
    bool local = c->layer[i].window != 0;
    while (from >= 0 && (c->layer[from].window != 0) != local)
        from--;
    if (from < 0)
        qn_source_fail(s,
                       qn_fail(QN_E_FORMAT,
                               "layer %d has no layer of its kind to share "
                               "keys with",
                               i),
                       "num_kv_shared_layers", "attention.shared_kv_layers");
    else
        c->layer[i].kv_from = from;
}

/* Newer configurations name the layers that differ, and how. */
static void set_each(qn_config *c, qn_source *s)
{
    const qn_json *each = qn_source_json(s, "per_layer_config");
    for (int i = 0; each && i < c->layers; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        const qn_json *own = qn_json_get(each, key);
        double dim = c->layer[i].head_dim, heads = c->layer[i].kv_heads;
        qn_read_member(s, &dim, own, "head_dim");
        qn_read_member(s, &heads, own, "num_key_value_heads");
        if (s->status)
            return;
        if (!(dim >= 1 && dim <= QN_MAX_DIM && heads >= 1 &&
              heads <= QN_MAX_DIM))
            qn_source_fail(
                s,
                qn_fail(QN_E_FORMAT, "layer %d: %g heads of %g", i, heads, dim),
                "per_layer_config", NULL);
        else
            c->layer[i].head_dim = (int)dim;
        if (!s->status)
            c->layer[i].kv_heads = (int)heads;
    }
}

/* Heads of the layers with a window, or of those without. */
static int widest(const qn_config *c, bool local)
{
    int most = 2;
    for (int i = 0; i < c->layers; i++)
        if ((c->layer[i].window != 0) == local && c->layer[i].head_dim > most)
            most = c->layer[i].head_dim;
    return most;
}

static void set_heads(qn_config *c, qn_source *s, const gemma4_config *g)
{
    int wide = c->gguf ? c->head_dim : 512, few = 0, narrow = c->head_dim;
    qn_read_int(s, &wide, "global_head_dim", NULL, 1, QN_MAX_DIM);
    qn_read_int(s, &narrow, NULL, "attention.key_length_swa", 1, QN_MAX_DIM);
    qn_read_int(s, &few, "num_global_key_value_heads", NULL, 1, QN_MAX_DIM);
    for (int i = 0; i < c->layers; i++) {
        qn_layer_config *l = &c->layer[i];
        l->head_dim = l->window ? narrow : wide;
        if (!l->window && g->same && few)
            l->kv_heads = few;
        if (l->window)
            l->rope = QN_LAYER_LOCAL_ROPE;
    }
    set_each(c, s);
    wide = widest(c, false);
    narrow = widest(c, true);
    c->rope.dims = wide;
    c->rope.turned = (int)(wide * c->rope.partial) / 2;
    c->local_rope.dims = narrow;
    c->local_rope.turned = narrow / 2;
    qn_read_real(s, &c->local_rope.base, NULL, "rope.freq_base_swa");
    c->head_dim = narrow;
}

static void set_kinds(qn_config *c, qn_source *s)
{
    int pattern = 6;
    qn_read_int(s, &pattern, "sliding_window_pattern", NULL, 1, QN_MAX_LAYERS);
    if (qn_source_has(s, "layer_types", NULL))
        return;
    int slides[QN_MAX_LAYERS];
    for (int i = 0; i < c->layers; i++)
        slides[i] = (i + 1) % pattern != 0 && i + 1 < c->layers;
    qn_read_ints(s, slides, c->layers, NULL, "attention.sliding_window_pattern",
                 0, 1);
    for (int i = 0; i < c->layers; i++)
        c->layer[i].window = slides[i] ? c->sliding_window : 0;
}

static void read_experts(qn_config *c, qn_source *s, gemma4_config *g)
{
    qn_read_bool(s, &g->moe, "enable_moe_block", NULL);
    g->moe = g->moe || (c->gguf && qn_source_has(s, NULL, "expert_count"));
    if (!g->moe)
        return;
    qn_need_int(s, &c->moe.count, "num_experts", "expert_count", 1, 4096);
    qn_need_int(s, &c->moe.used, "top_k_experts", "expert_used_count", 1,
                s->status ? 1 : c->moe.count);
    qn_need_int(s, &c->moe.intermediate, "moe_intermediate_size",
                "expert_feed_forward_length", 1, QN_MAX_DIM);
}

static void gemma4_configure(qn_config *c, qn_source *s)
{
    gemma4_config *g = c->extra = qn_calloc(1, sizeof *g);
    if (!g) {
        s->status = QN_E_NOMEM;
        return;
    }
    bool wide = false;
    g->ple_width = c->gguf ? 0 : 256;
    g->ple_vocab = c->vocab_size;
    qn_read_int(s, &g->ple_width, "hidden_size_per_layer_input",
                "embedding_length_per_layer_input", 0, QN_MAX_DIM);
    qn_read_int(s, &g->ple_vocab, "vocab_size_per_layer_input", NULL, 1,
                QN_MAX_DIM);
    qn_read_int(s, &g->shared, "num_kv_shared_layers",
                "attention.shared_kv_layers", 0, c->layers - 1);
    qn_read_bool(s, &g->same, "attention_k_eq_v", NULL);
    qn_read_bool(s, &wide, "use_double_wide_mlp", NULL);
    qn_read_real(s, &g->cap, "final_logit_softcapping",
                 "final_logit_softcapping");
    read_experts(c, s, g);
    set_kinds(c, s);
    set_heads(c, s, g);
    for (int i = c->layers - g->shared; i < c->layers && !s->status; i++) {
        share(c, s, c->layers - g->shared, i);
        if (wide)
            c->layer[i].intermediate *= 2;
    }
}

static qn_status gemma4_check(const qn_config *c)
{
    const gemma4_config *g = c->extra;
    return ple_check(c, "gemma4", g->cap, g->ple_width);
}

/* ---- weights ---- */

static void free_layer(layer_weights *w)
{
    mlx_array arrays[] = {
        w->before_attention, w->after_attention, w->before_mlp,
        w->after_mlp,        w->q_norm,          w->k_norm,
        w->scalar,           w->moe.scale,       w->moe.each,
        w->moe.before,       w->moe.after,       w->moe.after_mlp};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        nn_drop(arrays[i]);
    nn_group_clear(&w->qkv);
    nn_group_clear(&w->in);
    qn_matrix *all[] = {&w->q,        &w->k,          &w->v,
                        &w->o,        &w->gate,       &w->up,
                        &w->down,     &w->moe.router, &w->moe.gate_up,
                        &w->moe.gate, &w->moe.up,     &w->moe.down};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        qn_matrix_clear(all[i]);
    ple_layer_clear(&w->ple);
}

static void gemma4_free(void *state)
{
    gemma4 *m = state;
    if (!m)
        return;
    for (int i = 0; m->layer && i < m->layers; i++)
        free_layer(&m->layer[i]);
    nn_drop(m->norm);
    ple_clear(&m->ple);
    qn_matrix_clear(&m->embed);
    qn_matrix_clear(&m->head);
    qn_rope_clear(&m->rope);
    qn_rope_clear(&m->local_rope);
    qn_free(m->layer);
    qn_free(m->settings);
    qn_free(m);
}

/* GGUF files may leave it out. */
static bool has_scalar(const qn_loader *l, int i)
{
    char name[80];
    snprintf(name, sizeof name, "model.layers.%d.layer_scalar.weight", i);
    return !l->config->gguf || qn_loader_has(l, name);
}

/* Values are keys where the configuration says so, or, in GGUF files, where
 * there is no matrix for them. */
static bool has_values(const qn_loader *l, int i)
{
    const qn_config *c = l->config;
    char name[80];
    snprintf(name, sizeof name, "model.layers.%d.self_attn.v_proj.weight", i);
    return c->gguf
               ? qn_loader_has(l, name)
               : !((const gemma4_config *)c->extra)->same || c->layer[i].window;
}

static qn_status load_norms(qn_loader *l, layer_weights *w, int i)
{
    const qn_config *c = l->config;
    const qn_layer_config *s = &c->layer[i];
    bool own = s->kv_from == i;
    const struct {
        mlx_array *to;
        int size;
        const char *name;
    } all[] = {
        {&w->before_attention, c->hidden, "input_layernorm.weight"},
        {&w->after_attention, c->hidden, "post_attention_layernorm.weight"},
        {&w->before_mlp, c->hidden, "pre_feedforward_layernorm.weight"},
        {&w->after_mlp, c->hidden, "post_feedforward_layernorm.weight"},
        {&w->q_norm, s->head_dim, "self_attn.q_norm.weight"},
        {own ? &w->k_norm : NULL, s->head_dim, "self_attn.k_norm.weight"},
        {has_scalar(l, i) ? &w->scalar : NULL, 1,
         c->gguf ? "layer_scalar.weight" : "layer_scalar"},
    };
    qn_status status = QN_OK;
    for (size_t n = 0; n < sizeof all / sizeof *all && !status; n++)
        if (all[n].to)
            status = qn_load_vector(l, all[n].to, all[n].size,
                                    "model.layers.%d.%s", i, all[n].name);
    return status;
}

/* Layers that share keys may have such weights all the same. */
static void ignore_keys(qn_loader *l, int i)
{
    static const char *const parts[] = {
        "k_proj.weight", "k_proj.scales", "k_proj.biases", "v_proj.weight",
        "v_proj.scales", "v_proj.biases", "k_norm.weight"};
    for (size_t n = 0; n < sizeof parts / sizeof *parts; n++) {
        char name[96];
        snprintf(name, sizeof name, "model.layers.%d.self_attn.%s", i,
                 parts[n]);
        qn_loader_ignore(l, name);
    }
}

/* Queries, and keys and values where the layer has them. */
static qn_status group_attention(qn_loader *l, layer_weights *w)
{
    qn_matrix *all[3];
    int count = 0;
    all[count++] = &w->q;
    if (w->k.rows)
        all[count++] = &w->k;
    if (w->v.rows)
        all[count++] = &w->v;
    return nn_group_make(l, &w->qkv, all, count);
}

static qn_status load_matrices(qn_loader *l, layer_weights *w, int i)
{
    const qn_config *c = l->config;
    const qn_layer_config *s = &c->layer[i];
    bool own = s->kv_from == i, values = own && has_values(l, i);
    int h = c->hidden, width = c->heads * s->head_dim;
    int kv = s->kv_heads * s->head_dim, inner = s->intermediate;
    const struct {
        qn_matrix *to;
        int rows, cols;
        bool grouped;
        const char *name;
    } all[] = {
        {&w->q, width, h, true, "self_attn.q_proj"},
        {own ? &w->k : NULL, kv, h, true, "self_attn.k_proj"},
        {values ? &w->v : NULL, kv, h, true, "self_attn.v_proj"},
        {&w->o, h, width, false, "self_attn.o_proj"},
        {&w->gate, inner, h, true, "mlp.gate_proj"},
        {&w->up, inner, h, true, "mlp.up_proj"},
        {&w->down, h, inner, false, "mlp.down_proj"},
    };
    qn_status status = QN_OK;
    for (size_t n = 0; n < sizeof all / sizeof *all && !status; n++) {
        qn_matrix_spec spec = {.rows = all[n].rows,
                               .cols = all[n].cols,
                               .grouped = all[n].grouped};
        if (all[n].to)
            status = qn_load_matrix(l, all[n].to, &spec, "model.layers.%d.%s",
                                    i, all[n].name);
    }
    if (status || l->missing_count)
        return status;
    status = group_attention(l, w);
    if (!status)
        status = nn_group_make(l, &w->in, (qn_matrix *[]){&w->gate, &w->up}, 2);
    return status;
}

static qn_status load_expert(qn_loader *l, qn_matrix *out, int rows, int cols,
                             int layer, const char *name)
{
    char module[96];
    int count = l->config->moe.count;
    qn_matrix_spec spec = {.rows = count * rows, .cols = cols};
    snprintf(module, sizeof module, "model.layers.%d.%s", layer, name);
    return nn_load_experts(l, out, &spec, count, module, NULL);
}

static qn_status load_experts(qn_loader *l, expert_weights *w, int i)
{
    const qn_config *c = l->config;
    int inner = c->moe.intermediate, h = c->hidden;
    qn_matrix_spec router = {.rows = c->moe.count, .cols = h, .exact = true};
    const struct {
        mlx_array *to;
        int size;
        const char *name;
    } vectors[] = {
        {&w->scale, h, c->gguf ? "router.proj.scale" : "router.scale"},
        {&w->each, c->moe.count,
         c->gguf ? "experts.down_proj.scale" : "router.per_expert_scale"},
        {&w->before, h, "pre_feedforward_layernorm_2.weight"},
        {&w->after, h, "post_feedforward_layernorm_2.weight"},
        {&w->after_mlp, h, "post_feedforward_layernorm_1.weight"},
    };
    qn_status status = qn_load_matrix(l, &w->router, &router,
                                      "model.layers.%d.router.proj", i);
    for (size_t n = 0; n < sizeof vectors / sizeof *vectors && !status; n++)
        status = qn_load_vector(l, vectors[n].to, vectors[n].size,
                                "model.layers.%d.%s", i, vectors[n].name);
    char name[80];
    snprintf(name, sizeof name, "model.layers.%d.experts.gate_up_proj.weight",
             i);
    bool fused = qn_loader_has(l, name);
    const char *down =
        fused || c->gguf ? "experts.down_proj" : "experts.switch_glu.down_proj";
    if (!status && fused)
        status = load_expert(l, &w->gate_up, 2 * inner, h, i,
                             "experts.gate_up_proj");
    if (!status && !fused)
        status = load_expert(l, &w->gate, inner, h, i,
                             "experts.switch_glu.gate_proj");
    if (!status && !fused)
        status =
            load_expert(l, &w->up, inner, h, i, "experts.switch_glu.up_proj");
    return status ? status : load_expert(l, &w->down, h, inner, i, down);
}

static qn_status load_layer(qn_loader *l, layer_weights *w, int i)
{
    const gemma4_config *g = l->config->extra;
    if (l->config->layer[i].kv_from != i)
        ignore_keys(l, i);
    qn_status status = load_norms(l, w, i);
    if (!status)
        status = load_matrices(l, w, i);
    if (!status && g->moe)
        status = load_experts(l, &w->moe, i);
    if (!status && g->ple_width)
        status = ple_layer_load(&w->ple, l, g->ple_width, i);
    return status;
}

static qn_status load_ends(gemma4 *m, qn_loader *l)
{
    const qn_config *c = l->config;
    const gemma4_config *g = c->extra;
    qn_matrix_spec spec = {.rows = c->vocab_size, .cols = c->hidden};
    m->tied =
        c->tied == 1 || (c->tied < 0 && !qn_loader_has(l, "lm_head.weight"));
    qn_status status =
        qn_load_matrix(l, &m->embed, &spec, "model.embed_tokens");
    if (!status)
        status = qn_load_vector(l, &m->norm, c->hidden, "model.norm.weight");
    if (!status)
        status = ple_load(&m->ple, l, g->ple_width, g->ple_vocab);
    if (status || !m->tied)
        return status ? status : qn_load_matrix(l, &m->head, &spec, "lm_head");
    qn_loader_ignore(l, "lm_head.weight");
    qn_loader_ignore(l, "lm_head.scales");
    qn_loader_ignore(l, "lm_head.biases");
    return QN_OK;
}

static qn_status gemma4_load(void **out, qn_loader *l)
{
    const qn_config *c = l->config;
    gemma4 *m = qn_calloc(1, sizeof *m);
    if (!m)
        return QN_E_NOMEM;
    m->layers = c->layers;
    m->heads = c->heads;
    m->eps = c->norm_eps;
    m->dtype = l->dtype;
    m->embed_scale = ple_root(c->hidden);
    m->cap = ((const gemma4_config *)c->extra)->cap;
    m->experts = c->moe;
    m->layer = qn_calloc((size_t)c->layers, sizeof *m->layer);
    m->settings = qn_calloc((size_t)c->layers, sizeof *m->settings);
    qn_status status = m->layer && m->settings ? QN_OK : QN_E_NOMEM;
    if (!status)
        status = qn_rope_load(&m->rope, &m->local_rope, l);
    if (!status)
        status = load_ends(m, l);
    for (int i = 0; i < c->layers && !status; i++) {
        m->settings[i] = c->layer[i];
        status = load_layer(l, &m->layer[i], i);
    }
    if (status)
        gemma4_free(m);
    else
        *out = m;
    return status;
}

/* ---- forward ---- */

/* The layers' own inputs stay beside the sum. */
static void widths(const qn_config *c, int layer, qn_widths *out)
{
    (void)layer;
    const gemma4_config *g = c->extra;
    out->kept += (int64_t)c->layers * g->ple_width;
}

static mlx_array norm(const gemma4 *m, nn *c, mlx_array x, mlx_array weight)
{
    return nn_rms_norm(c, nn_astype(c, x, MLX_FLOAT32), weight, m->eps);
}

static mlx_array attend(const gemma4 *m, nn *c, int i, mlx_array x,
                        nn_rows rows)
{
    const layer_weights *w = &m->layer[i];
    const qn_layer_config *s = &m->settings[i];
    int dim = s->head_dim;
    mlx_array qkv[NN_GROUP], k = {NULL}, v = {NULL};
    nn_linears(c, qkv, &w->qkv, x,
               (nn_norm){w->before_attention, m->eps, m->dtype});
    mlx_array q = nn_head_norm(c, qkv[0], w->q_norm, dim, m->eps);
    if (s->kv_from == i) {
        v = qkv[w->v.rows ? 2 : 1];
        v = nn_head_norm(c, v, (mlx_array){NULL}, dim, m->eps);
        k = nn_head_norm(c, qkv[1], w->k_norm, dim, m->eps);
    }
    bool local = s->rope == QN_LAYER_LOCAL_ROPE;
    qn_attention how = {.heads = m->heads, .scale = 1, .window = s->window};
    mlx_array y = nn_attend(c, rows, s->kv_from, q, k, v,
                            local ? &m->local_rope : &m->rope, &how);
    y = norm(m, c, nn_linear(c, &w->o, y), w->after_attention);
    return nn_add(c, x, y);
}

static mlx_array take_flat(nn *c, mlx_array x, mlx_array ids)
{
    NN_STEP(c, mlx_take_axis(&res, x, ids, 0, c->stream));
}

static mlx_array sum_experts(nn *c, mlx_array x)
{
    NN_STEP(c, mlx_sum_axis(&res, x, 1, false, c->stream));
}

/* gelu(gate) * up of the experts `ids`: [T, used, 1, intermediate]. */
static mlx_array widen(const gemma4 *m, nn *c, const expert_weights *w,
                       mlx_array x, mlx_array ids)
{
    int inner = m->experts.intermediate;
    mlx_array gate, up;
    if (w->gate_up.rows) {
        mlx_array both = nn_experts(c, &w->gate_up, m->experts.count, x, ids);
        gate = nn_slice_last(c, both, 0, inner);
        up = nn_slice_last(c, both, inner, 2 * inner);
    } else {
        gate = nn_experts(c, &w->gate, m->experts.count, x, ids);
        up = nn_experts(c, &w->up, m->experts.count, x, ids);
    }
    return nn_mul(c, nn_gelu_tanh(c, gate), up);
}

static mlx_array apply_experts(const gemma4 *m, nn *c, const expert_weights *w,
                               mlx_array x)
{
    if (c->status)
        return x;
    int rows = mlx_array_dim(x, 1), hidden = mlx_array_dim(x, 2);
    int used = m->experts.used;
    mlx_array scores, ids, weights, y;
    scores = nn_scale(c, nn_rms_norm(c, x, w->scale, m->eps), 1 / sqrt(hidden));
    nn_choose(c, nn_linear(c, &w->router, scores), used, &ids, &weights);
    weights = nn_mul(c, nn_softmax(c, weights), take_flat(c, w->each, ids));
    weights = nn_reshape(c, weights, (int[]){rows, used, 1, 1}, 4);
    y = nn_astype(c, norm(m, c, x, w->before), m->dtype);
    y = nn_reshape(c, y, (int[]){rows, 1, 1, hidden}, 4);
    y = nn_experts(c, &w->down, m->experts.count, widen(m, c, w, y, ids), ids);
    y = nn_mul(c, nn_astype(c, y, MLX_FLOAT32), weights);
    y = nn_reshape(c, sum_experts(c, y), (int[]){1, rows, hidden}, 3);
    return norm(m, c, y, w->after);
}

static mlx_array feed_forward(const gemma4 *m, nn *c, int i, mlx_array x)
{
    const layer_weights *w = &m->layer[i];
    mlx_array y = nn_gated(c, &w->in, x,
                           (nn_norm){w->before_mlp, m->eps, m->dtype}, NN_GELU);
    y = nn_linear(c, &w->down, y);
    if (m->experts.count)
        y = nn_add(c, norm(m, c, y, w->moe.after_mlp),
                   apply_experts(m, c, &w->moe, x));
    return nn_add(c, x, norm(m, c, y, w->after_mlp));
}

static mlx_array run_layers(const gemma4 *m, nn *c, mlx_array ids, nn_rows rows)
{
    mlx_array x =
        nn_scale(c, nn_embed(c, &m->embed, ids, MLX_FLOAT32), m->embed_scale);
    mlx_array inputs = {NULL};
    if (m->ple.width)
        inputs = ple_inputs(c, &m->ple, ids, x);
    for (int i = 0; i < m->layers; i++) {
        x = feed_forward(m, c, i, attend(m, c, i, x, rows));
        if (m->ple.width)
            x = nn_add(c, x,
                       ple_apply(c, &m->ple, &m->layer[i].ple, i, x, inputs,
                                 m->dtype));
        if (m->layer[i].scalar.ctx)
            x = nn_mul(c, x, m->layer[i].scalar);
    }
    return x;
}

static mlx_array gemma4_hidden(const void *state, nn *c, mlx_array ids,
                               nn_rows rows)
{
    const gemma4 *m = state;
    return norm(m, c, run_layers(m, c, ids, rows), m->norm);
}

static mlx_array gemma4_forward(const void *state, nn *c, mlx_array ids,
                                nn_rows rows, bool last_only)
{
    const gemma4 *m = state;
    mlx_array x = run_layers(m, c, ids, rows);
    if (last_only)
        x = nn_last(c, x, rows);
    x = nn_linear(c, m->tied ? &m->embed : &m->head, norm(m, c, x, m->norm));
    return nn_cap(c, x, m->cap);
}

static bool gemma4_tied(const void *state)
{
    return ((const gemma4 *)state)->tied;
}

/* Keys of layers that share them may be there, too. */
static const char *const ignored[] = {"rotary_emb.", "self_attn.v_norm", NULL};

static const qn_tensor_name names[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
    {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
    {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
    {"inp_gate", "per_layer_input_gate"},
    {"proj", "per_layer_projection"},
    {"post_norm", "post_per_layer_input_norm"},
    {"layer_output_scale", "layer_scalar"},
    {"ffn_gate_inp", "router.proj"},
    {"ffn_gate_up_exps", "experts.gate_up_proj"},
    {"ffn_gate_exps", "experts.switch_glu.gate_proj"},
    {"ffn_up_exps", "experts.switch_glu.up_proj"},
    {"ffn_down_exps", "experts.down_proj"},
    {NULL, NULL},
};

static const char *const modules[] = {
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
    "self_attn.q_norm",
    "self_attn.q_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
    "per_layer_input_gate",
    NULL,
};

const qn_family qn_family_gemma4 = {
    .prepare = gemma4_prepare,
    .configure = gemma4_configure,
    .check = gemma4_check,
    .varied = true,
    .widths = widths,
    .gguf_names = names,
    .load = gemma4_load,
    .free = gemma4_free,
    .forward = gemma4_forward,
    .hidden = gemma4_hidden,
    .tied = gemma4_tied,
    .ignored = ignored,
    .modules = modules,
};
