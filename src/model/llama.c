/* llama.c: Llama 2 and 3, SmolLM2, TinyLlama, Mistral 7B, Mixtral, and
 * SmolLM3, which leaves some layers without rotary positions.
 *
 * GGUF files of all of them name the architecture llama (but smollm3) and have
 * the rows of q and k in pairs; Mixtral's are those with experts. */
#include "decoder.h"

/* Where a configuration has a window without saying which layers slide. */
static void slide_all(qn_config *c, const qn_source *s)
{
    if (!qn_source_has(s, "layer_types", NULL))
        qn_config_set_windows(c, NULL);
}

static qn_status llama_check(const qn_config *c)
{
    return decoder_check_activation(c, "silu");
}

/* ---- llama, mistral ---- */

static void read_experts(qn_config *c, qn_source *s)
{
    /* Experts are as wide as other MLPs, and their weights sum up to 1. */
    c->moe.intermediate = c->intermediate;
    c->moe.used = 2;
    c->moe.normalize = true;
    qn_config_read_moe(c, s);
    qn_config_all_sparse(c);
}

static void llama_configure(qn_config *c, qn_source *s)
{
    if (s->gguf && qn_source_has(s, NULL, "expert_count"))
        read_experts(c, s);
    if (!s->gguf && !strcmp(c->family, "mistral"))
        slide_all(c, s);
}

static const moe_form mixtral_moe = {
    .block = "block_sparse_moe", .gate = "w1", .up = "w3", .down = "w2"};
static const moe_form gguf_moe = {.block = "mlp"};

static qn_status llama_load(void **out, qn_loader *l)
{
    decoder_form form = decoder_usual(l->config);
    form.paired = true;
    form.moe = l->config->gguf ? &gguf_moe : &mixtral_moe;
    return decoder_load(out, l, &form);
}

const qn_family qn_family_llama = {
    .configure = llama_configure,
    .check = llama_check,
    .load = llama_load,
    .free = decoder_free,
    .forward = decoder_forward,
    .hidden = decoder_hidden,
    .tied = decoder_tied,
    .ignored = decoder_ignored,
    .modules = decoder_modules,
};

/* ---- mixtral ---- */

static void mixtral_prepare(qn_config *c)
{
    c->rope.base = 1e6;
}

static void mixtral_configure(qn_config *c, qn_source *s)
{
    read_experts(c, s);
    slide_all(c, s);
}

static const char *const mixtral_modules[] = {
    "input_layernorm",  "post_attention_layernorm", "self_attn.q_proj",
    "self_attn.o_proj", "block_sparse_moe.gate",    NULL,
};

const qn_family qn_family_mixtral = {
    .prepare = mixtral_prepare,
    .configure = mixtral_configure,
    .check = llama_check,
    .load = llama_load,
    .free = decoder_free,
    .forward = decoder_forward,
    .hidden = decoder_hidden,
    .tied = decoder_tied,
    .ignored = decoder_ignored,
    .modules = mixtral_modules,
};

/* ---- smollm3 ---- */

static void smollm3_prepare(qn_config *c)
{
    c->rope.base = 2e6;
}

static void smollm3_configure(qn_config *c, qn_source *s)
{
    int turns[QN_MAX_LAYERS], interval = 4;
    qn_read_int(s, &interval, "no_rope_layer_interval", NULL, 1, QN_MAX_LAYERS);
    for (int i = 0; i < c->layers; i++)
        turns[i] = (i + 1) % interval != 0;
    qn_read_ints(s, turns, c->layers, "no_rope_layers", NULL, 0, 1);
    bool slides = false;
    qn_read_bool(s, &slides, "use_sliding_window", NULL);
    bool listed = qn_source_has(s, "layer_types", NULL);
    for (int i = 0; i < c->layers; i++) {
        c->layer[i].rope = turns[i] ? QN_LAYER_ROPE : QN_LAYER_NO_ROPE;
        if (!listed)
            c->layer[i].window = slides && !turns[i] ? c->sliding_window : 0;
    }
}

const qn_family qn_family_smollm3 = {
    .prepare = smollm3_prepare,
    .configure = smollm3_configure,
    .check = llama_check,
    .load = llama_load,
    .free = decoder_free,
    .forward = decoder_forward,
    .hidden = decoder_hidden,
    .tied = decoder_tied,
    .ignored = decoder_ignored,
    .modules = decoder_modules,
};
