/* phi3.c: Phi-3 and Phi-4-mini: q, k and v in one matrix, gate and up in
 * another, a part of each head turned, and rotary factors that depend on how
 * long a sequence is to become. */
#include "decoder.h"

static const qn_tensor_name gguf_names[] = {
    {"ffn_up", "mlp.gate_up_proj"},
    {NULL, NULL},
};

static const char *const modules[] = {
    "input_layernorm",    "post_attention_layernorm",
    "self_attn.qkv_proj", "mlp.gate_up_proj",
    "mlp.down_proj",      NULL,
};

static void configure(qn_config *c, qn_source *s)
{
    if (qn_source_has(s, "layer_types", NULL))
        return;
    if (c->sliding_window >= c->max_positions)
        c->sliding_window = 0;
    qn_config_set_windows(c, NULL);
}

static qn_status check(const qn_config *c)
{
    return decoder_check_activation(c, "silu");
}

static qn_status load(void **out, qn_loader *l)
{
    decoder_form form = decoder_usual(l->config);
    form.fused_qkv = form.fused_gate = true;
    return decoder_load(out, l, &form);
}

const qn_family qn_family_phi3 = {
    .configure = configure,
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
