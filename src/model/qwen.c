/* qwen.c: Qwen2 and 2.5, which have biases on q, k and v alone; Qwen3, which
 * has none and norms the heads of q and k; and their relatives with experts. */
#include "decoder.h"

static qn_status qwen_check(const qn_config *c)
{
    return decoder_check_activation(c, "silu");
}

/* ---- windows ---- */

/* Whether layers slide by a rule of the family; *from is max_window_layers. */
static bool slides(qn_config *c, qn_source *s, int *from)
{
    bool used = false;
    *from = 28;
    qn_read_bool(s, &used, "use_sliding_window", NULL);
    qn_read_int(s, from, "max_window_layers", NULL, 0, 1 << 20);
    if (!used) {
        c->sliding_window = 0;
        qn_config_set_windows(c, NULL);
        return false;
    }
    if (!c->sliding_window)
        c->sliding_window = 4096;
    return !qn_source_has(s, "layer_types", NULL);
}

/* Layers from max_window_layers on. */
static void qwen_configure(qn_config *c, qn_source *s)
{
    int from;
    if (slides(c, s, &from))
        for (int i = 0; i < c->layers; i++)
            c->layer[i].window = i >= from ? c->sliding_window : 0;
}

/* ---- qwen2, qwen3 ---- */

static qn_status qwen2_load(void **out, qn_loader *l)
{
    decoder_form form = decoder_usual(l->config);
    form.qkv_bias = true;
    form.out_bias = false;
    return decoder_load(out, l, &form);
}

const qn_family qn_family_qwen2 = {
    .configure = qwen_configure,
    .check = qwen_check,
    .load = qwen2_load,
    .free = decoder_free,
    .forward = decoder_forward,
    .hidden = decoder_hidden,
    .tied = decoder_tied,
    .ignored = decoder_ignored,
    .modules = decoder_modules,
};

static const char *const qwen3_modules[] = {
    "input_layernorm",
    "post_attention_layernorm",
    "self_attn.q_proj",
    "self_attn.o_proj",
    "self_attn.q_norm",
    "self_attn.k_norm",
    "mlp.gate_proj",
    "mlp.down_proj",
    NULL,
};

static qn_status qwen3_load(void **out, qn_loader *l)
{
    decoder_form form = decoder_usual(l->config);
    form.qk_norm = DECODER_QK_HEADS;
    return decoder_load(out, l, &form);
}

const qn_family qn_family_qwen3 = {
    .configure = qwen_configure,
    .check = qwen_check,
    .load = qwen3_load,
    .free = decoder_free,
    .forward = decoder_forward,
    .hidden = decoder_hidden,
    .tied = decoder_tied,
    .ignored = decoder_ignored,
    .modules = qwen3_modules,
};

/* ---- experts ---- */

/* Which layers have them. */
static void read_sparse(qn_config *c, qn_source *s)
{
    int step = 1, count, dense[QN_MAX_LAYERS];
    qn_read_int(s, &step, "decoder_sparse_step", NULL, 1, 1 << 20);
    qn_read_list(s, dense, QN_MAX_LAYERS, &count, "mlp_only_layers", NULL, 0,
                 1 << 20);
    for (int i = 0; i < c->layers; i++)
        c->layer[i].sparse = (i + 1) % step == 0;
    for (int i = 0; i < count; i++)
        if (dense[i] < c->layers)
            c->layer[dense[i]].sparse = false;
}

static void qwen2_moe_configure(qn_config *c, qn_source *s)
{
    int until;
    c->moe.normalize = false;
    c->moe.used = 4;
    c->moe.shared_intermediate = s->gguf ? 0 : 5632;
    qn_config_read_moe(c, s);
    qn_read_bool(s, &c->moe.normalize, "norm_topk_prob", NULL);
    qn_read_int(s, &c->moe.shared_intermediate,
                "shared_expert_intermediate_size",
                "expert_shared_feed_forward_length", 1, QN_MAX_DIM);
    read_sparse(c, s);
    if (slides(c, s, &until))
        for (int i = 0; i < c->layers; i++)
            c->layer[i].window =
                i % 2 == 0 && i < until ? c->sliding_window : 0;
}

static const moe_form qwen_moe = {.block = "mlp",
                                  .gate = "gate_proj",
                                  .up = "up_proj",
                                  .down = "down_proj",
                                  .shared_gate = true};

static const char *const qwen2_moe_modules[] = {
    "input_layernorm",
    "post_attention_layernorm",
    "self_attn.q_proj",
    "self_attn.o_proj",
    "mlp.shared_expert_gate",
    "mlp.gate",
    NULL,
};

static qn_status qwen2_moe_load(void **out, qn_loader *l)
{
    decoder_form form = decoder_usual(l->config);
    form.qkv_bias = true;
    form.out_bias = false;
    form.moe = &qwen_moe;
    return decoder_load(out, l, &form);
}

const qn_family qn_family_qwen2_moe = {
    .configure = qwen2_moe_configure,
    .check = qwen_check,
    .load = qwen2_moe_load,
    .free = decoder_free,
    .forward = decoder_forward,
    .hidden = decoder_hidden,
    .tied = decoder_tied,
    .ignored = decoder_ignored,
    .modules = qwen2_moe_modules,
};

static void qwen3_moe_configure(qn_config *c, qn_source *s)
{
    int from;
    /* llama.cpp's files do not say, and it normalizes. */
    c->moe.normalize = s->gguf != NULL;
    c->moe.used = 8;
    qn_config_read_moe(c, s);
    qn_read_bool(s, &c->moe.normalize, "norm_topk_prob", NULL);
    read_sparse(c, s);
    if (slides(c, s, &from))
        qn_config_set_windows(c, NULL);
}

static const char *const qwen3_moe_modules[] = {
    "input_layernorm",
    "post_attention_layernorm",
    "self_attn.q_proj",
    "self_attn.q_norm",
    "self_attn.k_norm",
    "mlp.gate",
    NULL,
};

static qn_status qwen3_moe_load(void **out, qn_loader *l)
{
    decoder_form form = decoder_usual(l->config);
    form.qk_norm = DECODER_QK_HEADS;
    form.moe = &qwen_moe;
    return decoder_load(out, l, &form);
}

const qn_family qn_family_qwen3_moe = {
    .configure = qwen3_moe_configure,
    .check = qwen_check,
    .load = qwen3_moe_load,
    .free = decoder_free,
    .forward = decoder_forward,
    .hidden = decoder_hidden,
    .tied = decoder_tied,
    .ignored = decoder_ignored,
    .modules = qwen3_moe_modules,
};
