/* settings_gguf.c: config.json of the metadata of a GGUF file.
 *
 * Each key has a name in both forms; what only one architecture has is a row
 * with its name.  Values that an architecture fixes, and that the metadata
 * therefore does not have, are rows of their own. */
#include "base/alloc.h"
#include "settings.h"
#include "text/tokenizer.h"

#include <stdio.h>

/* general.architecture -> model_type, and a class for `architectures`. */
static const struct {
    const char *arch, *type, *class_name;
} types[] = {
    {"llama", "llama", "LlamaForCausalLM"},
    {"qwen2", "qwen2", "Qwen2ForCausalLM"},
    {"qwen2moe", "qwen2_moe", "Qwen2MoeForCausalLM"},
    {"qwen3", "qwen3", "Qwen3ForCausalLM"},
    {"qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM"},
    {"gemma", "gemma", "GemmaForCausalLM"},
    {"gemma2", "gemma2", "Gemma2ForCausalLM"},
    {"gemma3", "gemma3_text", "Gemma3ForCausalLM"},
    {"phi3", "phi3", "Phi3ForCausalLM"},
    {"olmo2", "olmo2", "Olmo2ForCausalLM"},
    {"starcoder2", "starcoder2", "Starcoder2ForCausalLM"},
};

static const qn_settings_key keys[] = {
    {"embedding_length", "hidden_size", false},
    {"block_count", "num_hidden_layers", false},
    {"feed_forward_length", "intermediate_size", false},
    {"attention.head_count", "num_attention_heads", false},
    {"attention.head_count_kv", "num_key_value_heads", false},
    {"context_length", "max_position_embeddings", false},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", true},
    {"attention.layer_norm_epsilon", "layer_norm_eps", true},
    {"attention.sliding_window", "sliding_window", false},
    {"rope.freq_base", "rope_theta", true},
    {"attn_logit_softcapping", "attn_logit_softcapping", true},
    {"final_logit_softcapping", "final_logit_softcapping", true},
    {"expert_count", "num_experts", false},
    {"expert_used_count", "num_experts_per_tok", false},
    {"expert_feed_forward_length", "moe_intermediate_size", false},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size",
     false},
};

const qn_settings_key *qn_settings_keys(size_t *count)
{
    *count = sizeof keys / sizeof *keys;
    return keys;
}

/* Literal members of one model_type. */
static const struct {
    const char *type, *key, *json;
} fixed[] = {
    {"llama", "hidden_act", "\"silu\""},
    {"qwen2", "hidden_act", "\"silu\""},
    {"qwen2", "use_sliding_window", "false"},
    {"qwen3", "hidden_act", "\"silu\""},
    {"qwen2_moe", "hidden_act", "\"silu\""},
    {"qwen2_moe", "norm_topk_prob", "false"},
    {"qwen2_moe", "decoder_sparse_step", "1"},
    {"qwen3_moe", "hidden_act", "\"silu\""},
    {"qwen3_moe", "norm_topk_prob", "true"},
    {"qwen3_moe", "decoder_sparse_step", "1"},
    {"qwen3_moe", "mlp_only_layers", "[]"},
    {"gemma", "hidden_activation", "\"gelu_pytorch_tanh\""},
    {"gemma2", "hidden_activation", "\"gelu_pytorch_tanh\""},
    {"gemma3_text", "hidden_activation", "\"gelu_pytorch_tanh\""},
    {"gemma3_text", "sliding_window_pattern", "6"},
    {"gemma3_text", "rope_local_base_freq", "10000.0"},
    {"phi3", "hidden_act", "\"silu\""},
    {"olmo2", "hidden_act", "\"silu\""},
    {"starcoder2", "hidden_act", "\"gelu_pytorch_tanh\""},
};

static const qn_gguf_value *find(const qn_origin *s, const char *tail)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", s->arch, tail);
    return qn_gguf_get(s->gguf, key);
}

/* The number that stands there, or `absent`. */
static int64_t whole(const qn_origin *s, const char *tail, int64_t absent)
{
    char key[128];
    int64_t value = absent;
    snprintf(key, sizeof key, "%s.%s", s->arch, tail);
    return qn_gguf_get_int(s->gguf, key, &value) ? absent : value;
}

static double real(const qn_origin *s, const char *tail, double absent)
{
    char key[128];
    double value = absent;
    snprintf(key, sizeof key, "%s.%s", s->arch, tail);
    return qn_gguf_get_float(s->gguf, key, &value) ? absent : value;
}

static bool has_tensor(const qn_origin *s, const char *name)
{
    return qn_weights_find(s->weights, name) != NULL;
}

/* ---- values ---- */

static void write_list(qn_json_writer *w, const qn_gguf_value *list)
{
    qn_json_write_array(w);
    for (size_t i = 0; i < list->as.array.count; i++)
        qn_json_write_int(w, qn_gguf_array_int(list, i));
    qn_json_write_array_end(w);
}

static void write_keys(qn_json_writer *w, const qn_origin *s)
{
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const qn_gguf_value *value = find(s, keys[i].tail);
        if (!value)
            continue;
        bool list = value->type == QN_GGUF_ARRAY;
        if (list && value->as.array.item == QN_GGUF_STRING)
            continue;
        qn_json_write_key(w, keys[i].key);
        if (list)
            write_list(w, value);
        else if (keys[i].real)
            qn_json_write_double(w, real(s, keys[i].tail, 0));
        else
            qn_json_write_int(w, whole(s, keys[i].tail, 0));
    }
}

static int64_t head_dim(const qn_origin *s)
{
    int64_t heads = whole(s, "attention.head_count", 1);
    int64_t hidden = whole(s, "embedding_length", 0);
    return whole(s, "attention.key_length", heads > 0 ? hidden / heads : 0);
}

static void write_heads(qn_json_writer *w, const qn_origin *s, const char *type)
{
    int64_t dim = head_dim(s), turned = whole(s, "rope.dimension_count", dim);
    qn_json_write_key(w, "head_dim");
    qn_json_write_int(w, dim);
    if (turned > 0 && turned < dim) {
        qn_json_write_key(w, "partial_rotary_factor");
        qn_json_write_double(w, (double)turned / (double)dim);
    }
    if (strcmp(type, "gemma2") && strcmp(type, "gemma3_text"))
        return;
    /* The largest models of both scale by hidden / heads, the others by the
     * width of a head; the metadata tells them apart by their layers. */
    int64_t layers = whole(s, "block_count", 0);
    int64_t heads = whole(s, "attention.head_count", 1);
    bool largest = layers == (strcmp(type, "gemma2") ? 62 : 46);
    qn_json_write_key(w, "query_pre_attn_scalar");
    qn_json_write_int(w, largest && heads > 0
                             ? whole(s, "embedding_length", 0) / heads
                             : dim);
}

static void write_scaling(qn_json_writer *w, const qn_origin *s)
{
    const qn_gguf_value *type = find(s, "rope.scaling.type");
    if (!type || type->type != QN_GGUF_STRING ||
        qn_str_is(type->as.str, "none"))
        return;
    qn_json_write_key(w, "rope_scaling");
    qn_json_write_object(w);
    qn_json_write_key(w, "rope_type");
    qn_json_write_str(w, type->as.str);
    qn_json_write_key(w, "factor");
    qn_json_write_double(w, real(s, "rope.scaling.factor", 1));
    int64_t original = whole(s, "rope.scaling.original_context_length", 0);
    if (original) {
        qn_json_write_key(w, "original_max_position_embeddings");
        qn_json_write_int(w, original);
    }
    if (qn_str_is(type->as.str, "yarn")) {
        qn_json_write_key(w, "beta_fast");
        qn_json_write_double(w, real(s, "rope.scaling.yarn_beta_fast", 32));
        qn_json_write_key(w, "beta_slow");
        qn_json_write_double(w, real(s, "rope.scaling.yarn_beta_slow", 1));
    }
    qn_json_write_object_end(w);
}

/* ---- the rest ---- */

static qn_status write_ids(qn_json_writer *w, const qn_origin *s)
{
    static const struct {
        const char *gguf, *key;
    } ids[] = {
        {"tokenizer.ggml.bos_token_id", "bos_token_id"},
        {"tokenizer.ggml.padding_token_id", "pad_token_id"},
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        int64_t id;
        if (qn_gguf_get_int(s->gguf, ids[i].gguf, &id))
            continue;
        qn_json_write_key(w, ids[i].key);
        qn_json_write_int(w, id);
    }
    qn_tokenizer *tokenizer;
    qn_ids ends = {0};
    qn_status status = qn_tokenizer_from_gguf(&tokenizer, s->gguf);
    if (status)
        return qn_fail_where(status, "%s", s->path);
    status = qn_tokenizer_end_ids(tokenizer, &ends);
    qn_json_write_key(w, "eos_token_id");
    qn_json_write_array(w);
    for (size_t i = 0; i < ends.size; i++)
        qn_json_write_int(w, ends.data[i]);
    qn_json_write_array_end(w);
    qn_ids_free(&ends);
    qn_tokenizer_free(tokenizer);
    return status;
}

static void write_flags(qn_json_writer *w, const qn_origin *s)
{
    qn_json_write_key(w, "tie_word_embeddings");
    qn_json_write_bool(w, !has_tensor(s, "lm_head.weight"));
    qn_json_write_key(w, "attention_bias");
    qn_json_write_bool(w,
                       has_tensor(s, "model.layers.0.self_attn.q_proj.bias"));
    qn_json_write_key(w, "mlp_bias");
    qn_json_write_bool(w, has_tensor(s, "model.layers.0.mlp.down_proj.bias"));
}

static void write_fixed(qn_json_writer *w, const char *type)
{
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        if (strcmp(fixed[i].type, type))
            continue;
        qn_json_doc *doc;
        if (qn_json_parse(&doc, qn_str_of(fixed[i].json), 0)) {
            w->out->failed = true;
            return;
        }
        qn_json_write_key(w, fixed[i].key);
        qn_json_write_value(w, qn_json_root(doc));
        qn_json_doc_free(doc);
    }
}

qn_status qn_settings_from_gguf(qn_json_writer *w, const qn_origin *s)
{
    size_t t = 0, count = sizeof types / sizeof *types;
    while (t < count && strcmp(types[t].arch, s->arch))
        t++;
    if (t == count)
        return qn_fail(QN_E_UNSUPPORTED,
                       "%s: conversion of architecture '%s' is not supported",
                       s->path, s->arch);
    const char *type = types[t].type;
    /* A window in every layer is Mistral's. */
    if (!strcmp(type, "llama") && find(s, "attention.sliding_window"))
        type = "mistral";
    qn_json_write_key(w, "model_type");
    qn_json_write_text(w, type);
    qn_json_write_key(w, "architectures");
    qn_json_write_array(w);
    qn_json_write_text(w, strcmp(type, "mistral") ? types[t].class_name
                                                  : "MistralForCausalLM");
    qn_json_write_array_end(w);
    write_keys(w, s);
    write_heads(w, s, type);
    if (!find(s, "rope.freq_base")) {
        qn_json_write_key(w, "rope_theta");
        qn_json_write_double(w, 10000);
    }
    write_scaling(w, s);
    const qn_gguf_value *tokens = qn_gguf_get(s->gguf, "tokenizer.ggml.tokens");
    qn_json_write_key(w, "vocab_size");
    qn_json_write_uint(w, tokens && tokens->type == QN_GGUF_ARRAY
                              ? tokens->as.array.count
                              : 0);
    write_flags(w, s);
    write_fixed(w, type);
    return write_ids(w, s);
}
