/* starcoder2.c: StarCoder2: norms with mean and bias, biases everywhere, and an
 * MLP without a gate. */
#include "decoder.h"

#include <stdio.h>

static const qn_tensor_name gguf_names[] = {
    {"ffn_up", "mlp.c_fc"},
    {"ffn_down", "mlp.c_proj"},
    {NULL, NULL},
};

static const char *const modules[] = {
    "input_layernorm",  "post_attention_layernorm",
    "self_attn.q_proj", "mlp.c_fc",
    "mlp.c_proj",       NULL,
};

static void prepare(qn_config *c)
{
    c->norm_eps = 1e-5;
    c->attention_bias = c->mlp_bias = true;
    snprintf(c->activation, sizeof c->activation, "gelu_pytorch_tanh");
}

static void configure(qn_config *c, qn_source *s)
{
    qn_read_real(s, &c->norm_eps, "norm_epsilon", NULL);
    qn_read_bool(s, &c->attention_bias, "use_bias", NULL);
    qn_read_bool(s, &c->mlp_bias, "use_bias", NULL);
    if (!qn_source_has(s, "layer_types", NULL))
        qn_config_set_windows(c, NULL);
}

static qn_status check(const qn_config *c)
{
    return decoder_check_activation(c, "gelu_pytorch_tanh");
}

static qn_status load(void **out, qn_loader *l)
{
    decoder_form form = decoder_usual(l->config);
    form.layer_norms = true;
    form.plain_mlp = true;
    return decoder_load(out, l, &form);
}

const qn_family qn_family_starcoder2 = {
    .prepare = prepare,
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
