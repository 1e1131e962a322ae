/* qwen3_next.c: Qwen3-Next and Qwen3.5, in which every fourth layer attends and
 * the others have a state (quern_gated_delta).
 *
 * Attention has a gate for each element of its result, from the same matrix as
 * the queries, and turns a quarter of each head.  Layers with a state make q,
 * k, v, the gate z, and the numbers a and b of their input; Qwen3-Next has the
 * rows of these by head of keys, Qwen3.5 in matrices of their own.
 *
 * Norms are (1 + weight) in the authors' files and weight in those of mlx-lm,
 * which are told by the shape of the convolution: [C, 1, K] or [C, K, 1].
 *
 * GGUF files have the sum in norms, -exp(A_log), and the rows of q, k, v and z
 * in one order for both (those of b and a stay as they are in Qwen3-Next).
 * Heads of values that share one of keys stand apart in files of Qwen3.5: rows
 * and vectors are put in order as they are loaded, and what the last matrix
 * takes is put in the order of its columns, which blocks don't let move. */
#include "qwen3_next.h"

#include "base/alloc.h"
#include "kv/engine.h"

#include <quern/ext.h>

#include <math.h>

/* ---- configuration ---- */

static void hybrid_prepare(qn_config *c)
{
    c->rope.partial = 0.25;
}

static void check_heads(qn_source *s, const net_config *n)
{
    if (!s->status && n->value_heads % n->key_heads)
        qn_source_fail(s,
                       qn_fail(QN_E_FORMAT,
                               "%d heads of values can't share %d of keys",
                               n->value_heads, n->key_heads),
                       "linear_num_value_heads", "ssm.time_step_rank");
}

static void read_net_gguf(const qn_config *c, qn_source *s, net_config *n)
{
    int inner = 0;
    qn_need_int(s, &n->key_heads, NULL, "ssm.group_count", 1, 1 << 16);
    qn_need_int(s, &n->value_heads, NULL, "ssm.time_step_rank", 1, 1 << 16);
    qn_need_int(s, &n->key_dim, NULL, "ssm.state_size", 1, 1 << 12);
    qn_need_int(s, &inner, NULL, "ssm.inner_size", 1, QN_MAX_DIM);
    qn_read_int(s, &n->taps, NULL, "ssm.conv_kernel", 2, 64);
    check_heads(s, n);
    if (!s->status && inner % n->value_heads)
        qn_source_fail(s,
                       qn_fail(QN_E_FORMAT,
                               "%d elements are not %d heads of values", inner,
                               n->value_heads),
                       NULL, "ssm.inner_size");
    if (s->status)
        return;
    n->value_dim = inner / n->value_heads;
    n->tiled = strncmp(c->family, "qwen35", 6) == 0;
}

static void read_net(qn_config *c, qn_source *s)
{
    net_config *n = qn_calloc(1, sizeof *n);
    if (!n) {
        s->status = QN_E_NOMEM;
        return;
    }
    c->extra = n;
    n->taps = 4;
    if (s->gguf) {
        read_net_gguf(c, s, n);
        return;
    }
    qn_need_int(s, &n->key_heads, "linear_num_key_heads", NULL, 1, 1 << 16);
    qn_need_int(s, &n->value_heads, "linear_num_value_heads", NULL, 1, 1 << 16);
    qn_need_int(s, &n->key_dim, "linear_key_head_dim", NULL, 1, 1 << 12);
    qn_need_int(s, &n->value_dim, "linear_value_head_dim", NULL, 1, 1 << 12);
    qn_read_int(s, &n->taps, "linear_conv_kernel_dim", NULL, 2, 64);
    check_heads(s, n);
}

static void read_moe(qn_config *c, qn_source *s)
{
    int step = 1, count = 0, dense[QN_MAX_LAYERS], experts = 0;
    qn_read_int(s, &experts, "num_experts", "expert_count", 0, 4096);
    if (!experts || s->status)
        return;
    c->moe.normalize = true;
    qn_config_read_moe(c, s);
    qn_read_bool(s, &c->moe.normalize, "norm_topk_prob", NULL);
    qn_need_int(s, &c->moe.shared_intermediate,
                "shared_expert_intermediate_size",
                "expert_shared_feed_forward_length", 1, QN_MAX_DIM);
    qn_read_int(s, &step, "decoder_sparse_step", NULL, 1, 1 << 20);
    qn_read_list(s, dense, QN_MAX_LAYERS, &count, "mlp_only_layers", NULL, 0,
                 1 << 20);
    for (int i = 0; i < c->layers; i++)
        c->layer[i].sparse = (i + 1) % step == 0;
    for (int i = 0; i < count; i++)
        if (dense[i] < c->layers)
            c->layer[dense[i]].sparse = false;
}

static void hybrid_configure(qn_config *c, qn_source *s)
{
    int interval = 4, guesses = 0;
    qn_read_int(s, &guesses, NULL, "nextn_predict_layers", 0, c->layers - 1);
    c->layers -= guesses;
    qn_read_int(s, &interval, "full_attention_interval",
                "full_attention_interval", 1, 1 << 20);
    if (!qn_source_has(s, "layer_types", NULL))
        for (int i = 0; i < c->layers; i++)
            if ((i + 1) % interval)
                c->layer[i].kind = QN_LAYER_RECURRENT;
    read_net(c, s);
    read_moe(c, s);
}

static qn_status hybrid_check(const qn_config *c)
{
    if (!strcmp(c->activation, "silu"))
        return QN_OK;
    return qn_fail(QN_E_UNSUPPORTED, "hidden_act: expected silu, found %s",
                   c->activation);
}

static void hybrid_cache(const qn_config *c, int layer, qn_kv_layer *out)
{
    const net_config *n = c->extra;
    if (c->layer[layer].kind == QN_LAYER_RECURRENT)
        out->recurrence = (qn_kv_recurrence){.taps = n->taps - 1,
                                             .channels = channels_of(n),
                                             .heads = n->value_heads,
                                             .key_dim = n->key_dim,
                                             .value_dim = n->value_dim};
}

static qn_status next_load(void **out, qn_loader *l)
{
    return hybrid_load(out, l, true);
}

static qn_status qwen3_5_load(void **out, qn_loader *l)
{
    return hybrid_load(out, l, false);
}

/* Queries come with gates as wide as they are, and stay beside them. What a
 * recurrence takes is cut out of one product and joined. */
static void widths(const qn_config *c, int layer, qn_widths *out)
{
    const net_config *n = c->extra;
    int64_t q = (int64_t)c->heads * c->layer[layer].head_dim;
    int64_t values = (int64_t)n->value_heads * n->value_dim;
    int64_t keys = 2 * (int64_t)n->key_heads * n->key_dim;
    if (c->layer[layer].kind == QN_LAYER_ATTENTION) {
        out->projected += q;
        out->widest = 2 * q;
        out->attending += 2 * q;
        return;
    }
    out->projected = out->widest = keys + 2 * values;
    out->attending = 2 * (keys + values) + 3 * values;
}

/* ---- layers with a state ---- */

/* What the recurrence takes: qkv [1, T, C], z, a, b. */
typedef struct inputs {
    mlx_array qkv, z, a, b;
} inputs;

/* Elements from .. from + n of each of the heads' parts of x [1, T, heads * w],
 * all of a row together. */
static mlx_array of_heads(nn *c, mlx_array x, int heads, int from, int n)
{
    if (c->status)
        return x;
    int rows = mlx_array_dim(x, 1), w = mlx_array_dim(x, 2) / heads;
    x = nn_reshape(c, x, (int[]){1, rows, heads, w}, 4);
    x = nn_slice_last(c, x, from, from + n);
    return nn_reshape(c, x, (int[]){1, rows, heads * n}, 3);
}

/* Rows of the matrices by head of keys: q, k, and v and z of the heads of
 * values that it serves; b and a of these. */
static inputs inputs_by_head(const hybrid *m, nn *c, const net_weights *w,
                             mlx_array x)
{
    const net_config *n = &m->net;
    int k = n->key_heads, shared = n->value_heads / k;
    int d = n->key_dim, v = shared * n->value_dim;
    mlx_array all = nn_linear(c, &w->in[0], x), ba = nn_linear(c, &w->in[1], x);
    mlx_array q = of_heads(c, all, k, 0, d), key = of_heads(c, all, k, d, d);
    mlx_array value = of_heads(c, all, k, 2 * d, v);
    return (inputs){.qkv = nn_join_last(c, (mlx_array[]){q, key, value}, 3),
                    .z = of_heads(c, all, k, 2 * d + v, v),
                    .b = of_heads(c, ba, k, 0, shared),
                    .a = of_heads(c, ba, k, shared, shared)};
}

static inputs inputs_of(const hybrid *m, nn *c, const net_weights *w,
                        mlx_array x)
{
    if (m->by_head)
        return inputs_by_head(m, c, w, x);
    mlx_array wide[2], narrow[2];
    nn_norm plain = {.dtype = m->dtype};
    nn_linears(c, wide, &w->wide, x, plain);
    if (m->narrow_by_head) {
        int k = m->net.key_heads, shared = m->net.value_heads / k;
        mlx_array ba = nn_linear(c, &w->in[2], x);
        return (inputs){wide[0], wide[1], of_heads(c, ba, k, shared, shared),
                        of_heads(c, ba, k, 0, shared)};
    }
    nn_linears(c, narrow, &w->narrow, x, plain);
    return (inputs){wide[0], wide[1], narrow[1], narrow[0]};
}

static mlx_array swap_heads(nn *c, mlx_array x)
{
    NN_STEP(c, mlx_swapaxes(&res, x, 1, 2, c->stream));
}

/* Rows first .. first + count of x [1, T, n], float32, as [count, n]. */
static mlx_array rows_of(nn *c, mlx_array x, int first, int count)
{
    if (c->status)
        return x;
    int n = mlx_array_dim(x, 2), rows = mlx_array_dim(x, 1);
    x = nn_reshape(c, nn_astype(c, x, MLX_FLOAT32), (int[]){rows, n}, 2);
    if (count == rows)
        return x;
    NN_STEP(c,
            mlx_slice(&res, x, (int[]){first, 0}, 2, (int[]){first + count, n},
                      2, (int[]){1, 1}, 2, c->stream));
}

/* One sequence: [count, H Dv]. */
static mlx_array run_net(const hybrid *m, nn *c, const net_weights *w,
                         const inputs *in, int layer, int first,
                         const qn_kv_rows *rows)
{
    mlx_array x = rows_of(c, in->qkv, first, rows->count);
    mlx_array a = rows_of(c, in->a, first, rows->count);
    mlx_array b = rows_of(c, in->b, first, rows->count);
    mlx_array tail = {NULL}, state = {NULL}, y = {NULL};
    if (!c->status)
        c->status =
            qn_kv_state_get(rows->cache, layer, &tail, &state, c->stream);
    if (c->status)
        return y;
    tail = nn_adopt(c, tail);
    state = nn_adopt(c, state);
    mlx_array tail_out = {NULL}, state_out = {NULL};
    if (c->status)
        return y;
    c->status = qn_engine(quern_gated_delta(
        &y, &tail_out, &state_out, x, a, b, w->filter, w->a_log, w->dt_bias,
        tail, state, m->net.key_heads, c->stream));
    if (c->status)
        return y;
    y = nn_adopt(c, y);
    tail_out = nn_adopt(c, tail_out);
    state_out = nn_adopt(c, state_out);
    if (!c->status)
        c->status = qn_kv_state_set(rows->cache, layer, tail_out, state_out);
    return y;
}

static mlx_array join_rows(nn *c, const mlx_array *parts, size_t count)
{
    mlx_vector_array list = mlx_vector_array_new_data(parts, count);
    mlx_array res = {NULL};
    int rc = list.ctx ? mlx_concatenate_axis(&res, list, 0, c->stream) : 1;
    if (list.ctx)
        mlx_vector_array_free(list);
    return nn_own(c, res, rc);
}

static mlx_array run_nets(const hybrid *m, nn *c, const net_weights *w,
                          const inputs *in, int layer, nn_rows rows)
{
    mlx_array *parts = qn_calloc(rows.count, sizeof *parts);
    mlx_array y = {NULL};
    if (!parts && !c->status)
        c->status = QN_E_NOMEM;
    int first = 0;
    for (size_t i = 0; i < rows.count && !c->status; i++) {
        parts[i] = run_net(m, c, w, in, layer, first, &rows.rows[i]);
        first += rows.rows[i].count;
    }
    if (!c->status)
        y = rows.count == 1 ? parts[0] : join_rows(c, parts, rows.count);
    qn_free(parts);
    return nn_reshape(
        c, y, (int[]){1, first, m->net.value_heads * m->net.value_dim}, 3);
}

/* The order in which the last matrix has its columns. */
static mlx_array in_tiles(const hybrid *m, nn *c, mlx_array y)
{
    const net_config *n = &m->net;
    int each = n->value_heads / n->key_heads;
    if (!n->tiled || each == 1 || c->status)
        return y;
    int rows = mlx_array_dim(y, 1);
    y = nn_reshape(c, y, (int[]){rows, n->key_heads, each, n->value_dim}, 4);
    y = swap_heads(c, y);
    return nn_reshape(c, y, (int[]){1, rows, n->value_heads * n->value_dim}, 3);
}

/* x + out(norm(y) silu(z)) */
static mlx_array with_state(const hybrid *m, nn *c, int i, mlx_array x,
                            nn_rows rows)
{
    const net_weights *w = &m->layer[i].net;
    mlx_array in =
        nn_astype(c, nn_rms_norm(c, x, m->layer[i].before, m->eps), m->dtype);
    inputs parts = inputs_of(m, c, w, in);
    mlx_array y = run_nets(m, c, w, &parts, i, rows);
    y = nn_head_norm(c, y, w->norm, m->net.value_dim, m->eps);
    y = nn_mul(c, y, nn_silu(c, nn_astype(c, parts.z, MLX_FLOAT32)));
    y = in_tiles(m, c, y);
    return nn_linear_add(c, &w->out, nn_astype(c, y, m->dtype), x);
}

/* ---- the other layers ---- */

static mlx_array attend(const hybrid *m, nn *c, int i, mlx_array x,
                        nn_rows rows)
{
    const layer_weights *l = &m->layer[i];
    const attention_weights *w = &l->attention;
    mlx_array qkv[3];
    int d = m->head_dim;
    nn_linears(c, qkv, &w->qkv, x, (nn_norm){l->before, m->eps, m->dtype});
    mlx_array gate = of_heads(c, qkv[0], m->heads, d, d);
    mlx_array q = of_heads(c, qkv[0], m->heads, 0, d);
    q = nn_head_norm(c, q, w->q_norm, d, m->eps);
    mlx_array k = nn_head_norm(c, qkv[1], w->k_norm, d, m->eps);
    qn_attention how = {.heads = m->heads, .scale = (float)(1 / sqrt(d))};
    mlx_array y = nn_attend(c, rows, i, q, k, qkv[2], &m->rope, &how);
    return nn_linear_add(c, &w->o, nn_mul(c, y, nn_sigmoid(c, gate)), x);
}

static mlx_array feed_forward(const hybrid *m, nn *c, int i, mlx_array x)
{
    const layer_weights *w = &m->layer[i];
    if (w->moe)
        return nn_add(
            c, x, nn_moe_apply(c, w->moe, nn_rms_norm(c, x, w->after, m->eps)));
    mlx_array h =
        nn_gated(c, &w->mlp, x, (nn_norm){w->after, m->eps, m->dtype}, NN_SILU);
    return nn_linear_add(c, &w->down, h, x);
}

static mlx_array hybrid_forward(const void *state, nn *c, mlx_array ids,
                                nn_rows rows, bool last_only)
{
    const hybrid *m = state;
    mlx_array x = nn_embed(c, &m->embed, ids, MLX_FLOAT32);
    for (int i = 0; i < m->layers; i++) {
        x = m->layer[i].has_state ? with_state(m, c, i, x, rows)
                                  : attend(m, c, i, x, rows);
        x = feed_forward(m, c, i, x);
    }
    if (last_only)
        x = nn_last(c, x, rows);
    x = nn_rms_norm(c, x, m->norm, m->eps);
    return nn_linear(c, m->tied ? &m->embed : &m->head, x);
}

static bool hybrid_tied(const void *state)
{
    return ((const hybrid *)state)->tied;
}

static const char *const hybrid_ignored[] = {"rotary_emb.inv_freq", "mtp.",
                                             NULL};

static const qn_tensor_name hybrid_names[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"attn_qkv", "linear_attn.in_proj_qkv"},
    {"attn_gate", "linear_attn.in_proj_z"},
    {"ssm_in", "linear_attn.in_proj_qkvz"},
    {"ssm_ba", "linear_attn.in_proj_ba"},
    {"ssm_beta", "linear_attn.in_proj_b"},
    {"ssm_alpha", "linear_attn.in_proj_a"},
    {"ssm_conv1d", "linear_attn.conv1d"},
    {"ssm_a", "linear_attn.A_log"},
    {"ssm_dt", "linear_attn.dt_proj"},
    {"ssm_norm", "linear_attn.norm"},
    {"ssm_out", "linear_attn.out_proj"},
    {NULL, NULL},
};

static const char *const next_modules[] = {
    "input_layernorm",          "post_attention_layernorm",
    "linear_attn.in_proj_qkvz", "linear_attn.in_proj_ba",
    "linear_attn.out_proj",     NULL,
};

const qn_family qn_family_qwen3_next = {
    .prepare = hybrid_prepare,
    .configure = hybrid_configure,
    .check = hybrid_check,
    .varied = true,
    .gguf_names = hybrid_names,
    .cache = hybrid_cache,
    .widths = widths,
    .load = next_load,
    .free = hybrid_free,
    .forward = hybrid_forward,
    .tied = hybrid_tied,
    .ignored = hybrid_ignored,
    .modules = next_modules,
};

static const char *const qwen3_5_modules[] = {
    "input_layernorm",         "post_attention_layernorm",
    "linear_attn.in_proj_qkv", "linear_attn.in_proj_z",
    "linear_attn.out_proj",    NULL,
};

const qn_family qn_family_qwen3_5 = {
    .prepare = hybrid_prepare,
    .configure = hybrid_configure,
    .check = hybrid_check,
    .varied = true,
    .gguf_names = hybrid_names,
    .cache = hybrid_cache,
    .widths = widths,
    .load = qwen3_5_load,
    .free = hybrid_free,
    .forward = hybrid_forward,
    .tied = hybrid_tied,
    .ignored = hybrid_ignored,
    .modules = qwen3_5_modules,
};
