/* qwen3_next_load.c: the weights of Qwen3-Next and Qwen3.5, in the forms that
 * files have them (qwen3_next.c says which these are). */
#include "qwen3_next.h"

#include "base/alloc.h"
#include "kv/engine.h"

#include <stdio.h>

static void clear_layer(layer_weights *w)
{
    net_weights *n = &w->net;
    attention_weights *a = &w->attention;
    mlx_array arrays[] = {w->before,  w->after, n->filter, n->a_log,
                          n->dt_bias, n->norm,  a->q_norm, a->k_norm};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        nn_drop(arrays[i]);
    nn_group_clear(&n->wide);
    nn_group_clear(&n->narrow);
    nn_group_clear(&a->qkv);
    nn_group_clear(&w->mlp);
    for (int i = 0; i < 4; i++)
        qn_matrix_clear(&n->in[i]);
    qn_matrix *all[] = {&n->out, &a->q,    &a->k,  &a->v,
                        &a->o,   &w->gate, &w->up, &w->down};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        qn_matrix_clear(all[i]);
    nn_moe_free(w->moe);
}

void hybrid_free(void *state)
{
    hybrid *m = state;
    if (!m)
        return;
    for (int i = 0; m->layer && i < m->layers; i++)
        clear_layer(&m->layer[i]);
    nn_drop(m->norm);
    qn_matrix_clear(&m->embed);
    qn_matrix_clear(&m->head);
    qn_rope_clear(&m->rope);
    qn_rope_clear(&m->local_rope);
    qn_free(m->layer);
    qn_free(m);
}

/* What has to be added to the weights of norms. */
static float norm_shift(const qn_loader *l)
{
    if (l->config->gguf)
        return 0;
    for (int i = 0; i < l->config->layers; i++) {
        char name[96];
        snprintf(name, sizeof name, "model.layers.%d.linear_attn.conv1d.weight",
                 i);
        const qn_weight *w = qn_weights_find(l->weights, name);
        if (w)
            return w->ndim == 3 && w->shape[2] != 1;
    }
    return 0;
}

/* Where the file has entry i: those before `first` in their places, then heads
 * of values of `width`.  NULL: in order, or (*status) no memory. */
static uint32_t *tiled_order(const net_config *n, int first, int width,
                             qn_status *status)
{
    if (!n->tiled || n->key_heads == n->value_heads)
        return NULL;
    int each = n->value_heads / n->key_heads;
    size_t count = (size_t)first + (size_t)n->value_heads * (size_t)width;
    uint32_t *order = qn_calloc(count, sizeof *order);
    if (!order) {
        *status = QN_E_NOMEM;
        return NULL;
    }
    for (int i = 0; i < first; i++)
        order[i] = (uint32_t)i;
    for (int head = 0; head < n->value_heads; head++) {
        int at = head % each * n->key_heads + head / each;
        for (int i = 0; i < width; i++)
            order[first + head * width + i] =
                (uint32_t)(first + at * width + i);
    }
    return order;
}

static mlx_array take_order(nn *c, mlx_array x, const uint32_t *order,
                            int count)
{
    if (!order || c->status)
        return x;
    mlx_array ids =
        nn_adopt(c, mlx_array_new_data(order, (int[]){count}, 1, MLX_UINT32));
    NN_STEP(c, mlx_take_axis(&res, x, ids, 0, c->stream));
}

static mlx_array log_of_negative(nn *c, mlx_array x)
{
    NN_STEP(c, mlx_log(&res, nn_scale(c, x, -1), c->stream));
}

/* A vector of heads of values in their order; `logs`: of what GGUF files have
 * as -exp(it). */
static qn_status load_heads(qn_loader *l, mlx_array *out, const net_config *n,
                            bool logs, int i, const char *ours,
                            const char *gguf)
{
    qn_status status =
        qn_load_vector(l, out, n->value_heads, "model.layers.%d.linear_attn.%s",
                       i, l->config->gguf ? gguf : ours);
    if (status || !l->config->gguf || !out->ctx)
        return status;
    uint32_t *order = tiled_order(n, 0, 1, &status);
    if (status)
        return status;
    nn c;
    nn_begin(&c, l->stream);
    mlx_array x = nn_adopt(&c, *out);
    x = take_order(&c, x, order, n->value_heads);
    *out = nn_keep(&c, logs ? log_of_negative(&c, x) : x);
    if (!c.status)
        c.status = qn_engine(mlx_array_eval(*out));
    qn_free(order);
    return nn_end(&c);
}

/* The filter as [taps, channels], float32. */
static qn_status load_filter(qn_loader *l, net_weights *w, const net_config *n,
                             int i)
{
    mlx_array raw = {NULL};
    int channels = channels_of(n);
    qn_status status =
        qn_load_raw(l, &raw, "model.layers.%d.linear_attn.conv1d.weight", i);
    if (status || !raw.ctx)
        return status;
    if (mlx_array_size(raw) != (size_t)channels * (size_t)n->taps ||
        mlx_array_dim(raw, 0) != channels) {
        mlx_array_free(raw);
        return qn_fail(QN_E_MISMATCH,
                       "model.layers.%d.linear_attn.conv1d.weight: expected %d "
                       "channels and %d taps",
                       i, channels, n->taps);
    }
    nn c;
    nn_begin(&c, l->stream);
    mlx_array x = nn_astype(&c, nn_adopt(&c, raw), MLX_FLOAT32);
    x = nn_reshape(&c, x, (int[]){channels, n->taps}, 2);
    uint32_t *order =
        tiled_order(n, 2 * n->key_heads * n->key_dim, n->value_dim, &c.status);
    x = take_order(&c, x, order, channels);
    w->filter = nn_keep(&c, nn_rows_first(&c, x));
    if (!c.status)
        c.status = qn_engine(mlx_array_eval(w->filter));
    qn_free(order);
    return nn_end(&c);
}

/* One of the matrices of an input: its name, its rows, and, of heads of values
 * in it, how many rows stand before them and how wide they are. */
typedef struct input_part {
    const char *name;
    int rows, before, width;
} input_part;

static qn_status load_input(qn_loader *l, qn_matrix *out, const net_config *n,
                            const input_part *part, bool grouped, int i)
{
    qn_status status = QN_OK;
    uint32_t *order =
        part->width ? tiled_order(n, part->before, part->width, &status) : NULL;
    qn_matrix_spec spec = {.rows = part->rows,
                           .cols = l->config->hidden,
                           .source_row = order,
                           .grouped = grouped};
    if (!status)
        status = qn_load_matrix(l, out, &spec,
                                "model.layers.%d.linear_attn.in_proj_%s", i,
                                part->name);
    qn_free(order);
    return status;
}

static qn_status load_net_inputs(qn_loader *l, const hybrid *m, net_weights *w,
                                 int i)
{
    const net_config *n = &m->net;
    int wide = channels_of(n), d = n->value_dim, heads = n->value_heads;
    int values = heads * d;
    const input_part by_head[] = {{"qkvz", wide + values, 0, 0},
                                  {"ba", 2 * heads, 0, 0}};
    const input_part plain[] = {{"qkv", wide, wide - values, d},
                                {"z", values, 0, d},
                                {"b", heads, 0, 1},
                                {"a", heads, 0, 1}};
    qn_status status = QN_OK;
    for (int p = 0; p < 2 && !status; p++)
        status = load_input(l, &w->in[p], n, &(m->by_head ? by_head : plain)[p],
                            !m->by_head, i);
    if (m->by_head || status)
        return status;
    if (m->narrow_by_head)
        status = load_input(l, &w->in[2], n, &by_head[1], false, i);
    for (int p = 2; p < 4 && !status && !m->narrow_by_head; p++)
        status = load_input(l, &w->in[p], n, &plain[p], true, i);
    if (status || l->missing_count)
        return status;
    status =
        nn_group_make(l, &w->wide, (qn_matrix *[]){&w->in[0], &w->in[1]}, 2);
    return status || m->narrow_by_head
               ? status
               : nn_group_make(l, &w->narrow,
                               (qn_matrix *[]){&w->in[2], &w->in[3]}, 2);
}

static qn_status load_net(qn_loader *l, const hybrid *m, net_weights *w, int i)
{
    const net_config *n = &m->net;
    const char *stem = "model.layers.%d.linear_attn.%s";
    qn_matrix_spec out = {.rows = l->config->hidden,
                          .cols = n->value_heads * n->value_dim};
    qn_status status = load_net_inputs(l, m, w, i);
    if (!status)
        status = load_filter(l, w, n, i);
    if (!status)
        status = load_heads(l, &w->a_log, n, true, i, "A_log", "A_log");
    if (!status)
        status =
            load_heads(l, &w->dt_bias, n, false, i, "dt_bias", "dt_proj.bias");
    if (!status)
        status =
            qn_load_vector(l, &w->norm, n->value_dim, stem, i, "norm.weight");
    return status ? status
                  : qn_load_matrix(l, &w->out, &out, stem, i, "out_proj");
}

static qn_status load_attention(qn_loader *l, attention_weights *w, float shift,
                                int i)
{
    const qn_config *c = l->config;
    const char *stem = "model.layers.%d.self_attn.%s";
    int width = c->heads * c->head_dim, narrow = c->kv_heads * c->head_dim;
    qn_matrix_spec q = {.rows = 2 * width,
                        .cols = c->hidden,
                        .bias = c->attention_bias,
                        .grouped = true};
    qn_matrix_spec kv = q;
    qn_matrix_spec o = {
        .rows = c->hidden, .cols = width, .bias = c->attention_bias};
    kv.rows = narrow;
    qn_status status = qn_load_matrix(l, &w->q, &q, stem, i, "q_proj");
    if (!status)
        status = qn_load_matrix(l, &w->k, &kv, stem, i, "k_proj");
    if (!status)
        status = qn_load_matrix(l, &w->v, &kv, stem, i, "v_proj");
    if (!status)
        status = qn_load_matrix(l, &w->o, &o, stem, i, "o_proj");
    if (!status)
        status = qn_load_shifted(l, &w->q_norm, c->head_dim, shift, stem, i,
                                 "q_norm.weight");
    if (!status)
        status = qn_load_shifted(l, &w->k_norm, c->head_dim, shift, stem, i,
                                 "k_norm.weight");
    if (status || l->missing_count)
        return status;
    return nn_group_make(l, &w->qkv, (qn_matrix *[]){&w->q, &w->k, &w->v}, 3);
}

static const moe_form hybrid_moe = {.block = "mlp",
                                    .gate = "gate_proj",
                                    .up = "up_proj",
                                    .down = "down_proj",
                                    .shared_gate = true};

static qn_status load_mlp(qn_loader *l, layer_weights *w, int i)
{
    const qn_config *c = l->config;
    const char *stem = "model.layers.%d.mlp.%s";
    if (c->layer[i].sparse)
        return nn_moe_load(&w->moe, l, &hybrid_moe, i);
    int width = c->layer[i].intermediate;
    qn_matrix_spec in = {.rows = width, .cols = c->hidden, .grouped = true};
    qn_matrix_spec out = {.rows = c->hidden, .cols = width};
    qn_status status = qn_load_matrix(l, &w->gate, &in, stem, i, "gate_proj");
    if (!status)
        status = qn_load_matrix(l, &w->up, &in, stem, i, "up_proj");
    if (!status)
        status = qn_load_matrix(l, &w->down, &out, stem, i, "down_proj");
    if (status || l->missing_count)
        return status;
    return nn_group_make(l, &w->mlp, (qn_matrix *[]){&w->gate, &w->up}, 2);
}

static qn_status load_layer(qn_loader *l, hybrid *m, float shift, int i)
{
    layer_weights *w = &m->layer[i];
    int hidden = l->config->hidden;
    w->has_state = l->config->layer[i].kind == QN_LAYER_RECURRENT;
    qn_status status =
        qn_load_shifted(l, &w->before, hidden, shift,
                        "model.layers.%d.input_layernorm.weight", i);
    if (!status)
        status = qn_load_shifted(
            l, &w->after, hidden, shift,
            "model.layers.%d.post_attention_layernorm.weight", i);
    if (!status)
        status = w->has_state ? load_net(l, m, &w->net, i)
                              : load_attention(l, &w->attention, shift, i);
    return status ? status : load_mlp(l, w, i);
}

static qn_status load_ends(hybrid *m, qn_loader *l, float shift)
{
    const qn_config *c = l->config;
    qn_matrix_spec spec = {.rows = c->vocab_size, .cols = c->hidden};
    m->tied =
        c->tied == 1 || (c->tied < 0 && !qn_loader_has(l, "lm_head.weight"));
    qn_status status =
        qn_load_matrix(l, &m->embed, &spec, "model.embed_tokens");
    if (!status)
        status =
            qn_load_shifted(l, &m->norm, c->hidden, shift, "model.norm.weight");
    if (status || !m->tied)
        return status ? status : qn_load_matrix(l, &m->head, &spec, "lm_head");
    qn_loader_ignore(l, "lm_head.weight");
    qn_loader_ignore(l, "lm_head.scales");
    qn_loader_ignore(l, "lm_head.biases");
    return QN_OK;
}

/* Whether a GGUF file of Qwen3-Next has rows as the authors have them. */
static bool has_joined_rows(const qn_loader *l)
{
    return qn_loader_has(l, "model.layers.0.linear_attn.in_proj_qkvz.weight");
}

/* Layers that guess further tokens stand behind the others. */
static void ignore_guesses(qn_loader *l)
{
    for (size_t i = 0; i < qn_weights_count(l->weights); i++) {
        qn_weight *w = qn_weights_at(l->weights, i);
        int layer = -1;
        if (sscanf(w->name, "model.layers.%d.", &layer) == 1 &&
            layer >= l->config->layers)
            w->used = true;
    }
}

qn_status hybrid_load(void **out, qn_loader *l, bool by_head)
{
    const qn_config *c = l->config;
    hybrid *m = qn_calloc(1, sizeof *m);
    if (!m)
        return QN_E_NOMEM;
    m->net = *(const net_config *)c->extra;
    m->layers = c->layers;
    m->heads = c->heads;
    m->kv_heads = c->kv_heads;
    m->head_dim = c->head_dim;
    m->eps = c->norm_eps;
    m->dtype = l->dtype;
    m->by_head = by_head && (!c->gguf || has_joined_rows(l));
    m->narrow_by_head = by_head;
    m->layer = qn_calloc((size_t)c->layers, sizeof *m->layer);
    float shift = norm_shift(l);
    if (c->gguf)
        ignore_guesses(l);
    qn_status status = m->layer ? QN_OK : QN_E_NOMEM;
    if (!status)
        status = qn_rope_load(&m->rope, &m->local_rope, l);
    if (!status)
        status = load_ends(m, l, shift);
    for (int i = 0; i < c->layers && !status; i++)
        status = load_layer(l, m, shift, i);
    if (status)
        hybrid_free(m);
    else
        *out = m;
    return status;
}
