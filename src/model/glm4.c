/* glm4.c: GLM-4, with norms before and after each branch, a part of each head
 * turned in adjacent pairs, and gate and up in one matrix. */
#include "decoder.h"

static const qn_tensor_name gguf_names[] = {
    {"post_attention_norm", "post_self_attn_layernorm"},
    {"post_ffw_norm", "post_mlp_layernorm"},
    {"ffn_up", "mlp.gate_up_proj"},
    {NULL, NULL},
};

static const char *const modules[] = {
    "input_layernorm",  "post_self_attn_layernorm", "post_mlp_layernorm",
    "self_attn.q_proj", "mlp.gate_up_proj",         NULL,
};

static void prepare(qn_config *c)
{
    c->rope.partial = 0.5;
    c->rope.traditional = true;
}

static qn_status check(const qn_config *c)
{
    return decoder_check_activation(c, "silu");
}

static qn_status load(void **out, qn_loader *l)
{
    decoder_form form = decoder_usual(l->config);
    form.after_attention = "post_self_attn_layernorm";
    form.after_mlp = "post_mlp_layernorm";
    form.fused_gate = true;
    form.out_bias = false;
    return decoder_load(out, l, &form);
}

const qn_family qn_family_glm4 = {
    .prepare = prepare,
    .check = check,
    .gguf_names = gguf_names,
    .load = load,
    .free = decoder_free,
    .forward = decoder_forward,
    .hidden = decoder_hidden,
    .tied = decoder_tied,
    .ignored = decoder_ignored,
    .modules = modules,
};
