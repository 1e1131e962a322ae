/* olmo2.c: OLMo 2, whose norms come after attention and MLP, and norm queries
 * and keys of all heads together. */
#include "decoder.h"

static const qn_tensor_name gguf_names[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    {NULL, NULL},
};

static const char *const modules[] = {
    "post_attention_layernorm",
    "post_feedforward_layernorm",
    "self_attn.q_proj",
    "self_attn.q_norm",
    "mlp.gate_proj",
    NULL,
};

static qn_status check(const qn_config *c)
{
    return decoder_check_activation(c, "silu");
}

static qn_status load(void **out, qn_loader *l)
{
    decoder_form form = decoder_usual(l->config);
    form.before_attention = form.before_mlp = NULL;
    form.after_attention = "post_attention_layernorm";
    form.after_mlp = "post_feedforward_layernorm";
    form.qk_norm = DECODER_QK_WHOLE;
    return decoder_load(out, l, &form);
}

const qn_family qn_family_olmo2 = {
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
