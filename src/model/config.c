/* config.c: what both readers of a configuration share, and the rules between
 * its values.  config_json.c and config_gguf.c read what only one form has. */
#include "config.h"

#include "base/alloc.h"
#include "config_read.h"

#include <stdio.h>

static void clear_rope(qn_rope_config *rope)
{
    qn_free(rope->short_factors);
    qn_free(rope->long_factors);
}

void qn_config_clear(qn_config *config)
{
    qn_free(config->family);
    qn_free(config->name);
    qn_free(config->layer);
    qn_free(config->extra);
    clear_rope(&config->rope);
    clear_rope(&config->local_rope);
    qn_quant_clear(&config->quant);
    *config = (qn_config){0};
}

/* ---- reading ---- */

/* A value that only a default of the family makes dispensable. */
static void read_size(qn_source *s, int *out, const char *json,
                      const char *gguf, int high)
{
    if (*out)
        qn_read_int(s, out, json, gguf, 1, high);
    else
        qn_need_int(s, out, json, gguf, 1, high);
}

static void set_defaults(qn_config *c)
{
    const qn_rope_config rope = {
        .base = 10000,
        .partial = 1,
        .low_freq_factor = 1,
        .high_freq_factor = 4,
        .beta_fast = 32,
        .beta_slow = 1,
        .mscale = 1,
    };
    c->rope = c->local_rope = rope;
    c->tied = -1;
    c->norm_eps = -1;
    c->bos_id = c->pad_id = -1;
    snprintf(c->activation, sizeof c->activation, "silu");
    const qn_family *family = qn_family_find(qn_str_of(c->family));
    if (family && family->prepare)
        family->prepare(c);
}

static void read_head_dim(qn_config *c, qn_source *s)
{
    int key = c->head_dim, value = 0;
    qn_read_int(s, &key, "head_dim", "attention.key_length", 1, QN_MAX_DIM);
    qn_read_int(s, &value, NULL, "attention.value_length", 1, QN_MAX_DIM);
    if (s->status)
        return;
    if (!key && c->hidden % c->heads)
        qn_source_fail(
            s,
            qn_fail(QN_E_FORMAT,
                    "%s is missing, and the width %d does not divide by %d "
                    "heads",
                    s->gguf ? "attention.key_length" : "head_dim", c->hidden,
                    c->heads),
            "head_dim", "attention.key_length");
    c->head_dim = key ? key : c->hidden / c->heads;
    if (value && value != c->head_dim)
        qn_source_fail(s,
                       qn_fail(QN_E_UNSUPPORTED,
                               "keys of %d and values of %d are not supported",
                               c->head_dim, value),
                       NULL, "attention.value_length");
}

static void make_layers(qn_config *c, qn_source *s)
{
    if (s->status)
        return;
    c->layer = qn_calloc((size_t)c->layers, sizeof *c->layer);
    if (!c->layer) {
        s->status = QN_E_NOMEM;
        return;
    }
    for (int i = 0; i < c->layers; i++)
        c->layer[i] = (qn_layer_config){.intermediate = c->intermediate,
                                        .kv_heads = c->kv_heads,
                                        .head_dim = c->head_dim,
                                        .kv_from = i};
}

enum layer_value { INTERMEDIATE, KV_HEADS };

/* A value that may be given for each layer; the model's is the largest. */
static void read_layers(qn_config *c, qn_source *s, enum layer_value what,
                        int *largest, const char *json, const char *gguf)
{
    if (s->status || !qn_source_has(s, json, gguf))
        return;
    int *values = qn_calloc((size_t)c->layers, sizeof *values);
    if (!values) {
        s->status = QN_E_NOMEM;
        return;
    }
    qn_read_ints(s, values, c->layers, json, gguf, 1, QN_MAX_DIM);
    if (!s->status)
        *largest = 0;
    for (int i = 0; i < c->layers && !s->status; i++) {
        int *to = what == KV_HEADS ? &c->layer[i].kv_heads
                                   : &c->layer[i].intermediate;
        *to = values[i];
        *largest = values[i] > *largest ? values[i] : *largest;
    }
    qn_free(values);
}

/* Query heads: GGUF files may have a list of equal numbers. */
static void read_heads(qn_config *c, qn_source *s)
{
    int *values = qn_calloc((size_t)c->layers, sizeof *values);
    if (!values) {
        s->status = QN_E_NOMEM;
        return;
    }
    const char *gguf = "attention.head_count";
    if (!c->heads && !qn_source_has(s, "num_attention_heads", gguf))
        qn_source_missing(s, "num_attention_heads", gguf);
    values[0] = c->heads;
    for (int i = 1; i < c->layers; i++)
        values[i] = c->heads;
    if (s->gguf)
        qn_read_ints(s, values, c->layers, NULL, gguf, 1, QN_MAX_DIM);
    else
        qn_read_int(s, values, "num_attention_heads", NULL, 1, QN_MAX_DIM);
    c->heads = values[0];
    for (int i = 1; s->gguf && i < c->layers && !s->status; i++)
        if (values[i] != c->heads)
            qn_source_fail(s,
                           qn_fail(QN_E_UNSUPPORTED,
                                   "%s.%s: layers with different numbers of "
                                   "heads (%d and %d) are not supported",
                                   s->arch, gguf, c->heads, values[i]),
                           NULL, gguf);
    qn_free(values);
}

void qn_config_read_sizes(qn_config *c, qn_source *s)
{
    set_defaults(c);
    read_size(s, &c->hidden, "hidden_size", "embedding_length", QN_MAX_DIM);
    read_size(s, &c->layers, "num_hidden_layers", "block_count", QN_MAX_LAYERS);
    if (!s->status)
        read_heads(c, s);
    if (!s->status)
        read_head_dim(c, s);
    c->kv_heads = c->kv_heads ? c->kv_heads : c->heads;
    make_layers(c, s);
    if (!c->intermediate &&
        !qn_source_has(s, "intermediate_size", "feed_forward_length"))
        qn_source_missing(s, "intermediate_size", "feed_forward_length");
    read_layers(c, s, INTERMEDIATE, &c->intermediate, "intermediate_size",
                "feed_forward_length");
    read_layers(c, s, KV_HEADS, &c->kv_heads, "num_key_value_heads",
                "attention.head_count_kv");
    int positions = (int)c->max_positions;
    read_size(s, &positions, "max_position_embeddings", "context_length",
              QN_MAX_DIM);
    c->max_positions = positions;
    qn_read_real(s, &c->norm_eps, "layer_norm_eps",
                 "attention.layer_norm_epsilon");
    qn_read_real(s, &c->norm_eps, "rms_norm_eps",
                 "attention.layer_norm_rms_epsilon");
    if (c->norm_eps == -1 &&
        !qn_source_has(s, "rms_norm_eps", "attention.layer_norm_rms_epsilon"))
        qn_source_missing(s, "rms_norm_eps",
                          "attention.layer_norm_rms_epsilon");
    qn_read_int(s, &c->sliding_window, "sliding_window",
                "attention.sliding_window", 0, QN_MAX_DIM);
}

void qn_config_set_windows(qn_config *c, bool (*sliding)(int layer))
{
    for (int i = 0; i < c->layers; i++)
        c->layer[i].window = !sliding || sliding(i) ? c->sliding_window : 0;
}

void qn_config_read_moe(qn_config *c, qn_source *s)
{
    qn_moe_config *m = &c->moe;
    bool local = qn_source_has(s, "num_local_experts", NULL);
    read_size(s, &m->count, local ? "num_local_experts" : "num_experts",
              "expert_count", 4096);
    read_size(s, &m->used, "num_experts_per_tok", "expert_used_count",
              m->count > 0 ? m->count : 1);
    read_size(s, &m->intermediate, "moe_intermediate_size",
              "expert_feed_forward_length", QN_MAX_DIM);
}

void qn_config_all_sparse(qn_config *c)
{
    for (int i = 0; i < c->layers; i++)
        c->layer[i].sparse = true;
}

/* ---- rules ---- */

static qn_status refuse(const char *path, const char *fmt, int a, int b)
{
    qn_status status = QN_E_FORMAT;
    if (b < 0)
        status = qn_fail(status, fmt, a);
    else
        status = qn_fail(status, fmt, a, b);
    return qn_fail_where(status, "%s", path);
}

/* `head_dim`: of the widest layer that turns so. */
static qn_status check_rope(const qn_rope_config *r, int head_dim,
                            const char *path)
{
    if (r->dims < 2 || r->dims > head_dim || r->dims % 2)
        return refuse(path,
                      "rotary dimensions: expected an even number up to the "
                      "head dimension %d, found %d",
                      head_dim, r->dims);
    /* Periods grow from pair to pair; YaRN divides by the logarithm. Written so
     * that NaN is refused too. */
    bool yarn = r->type == QN_ROPE_YARN;
    if (!(r->base >= 1 && r->base <= 1e12) || (yarn && r->base == 1)) {
        qn_status status =
            qn_fail(QN_E_FORMAT,
                    "rope base: expected %s 1, up to 1e12, found "
                    "%g",
                    yarn ? "above" : "at least", r->base);
        return qn_fail_where(status, "%s", path);
    }
    if (yarn && !(r->beta_fast > 0 && r->beta_slow > 0)) {
        qn_status status = qn_fail(
            QN_E_FORMAT,
            "rope scaling: beta_fast, beta_slow: expected positive numbers, "
            "found %g and %g",
            r->beta_fast, r->beta_slow);
        return qn_fail_where(status, "%s", path);
    }
    bool scaled = r->type == QN_ROPE_LINEAR || r->type == QN_ROPE_LLAMA3 ||
                  r->type == QN_ROPE_YARN || r->type == QN_ROPE_DYNAMIC ||
                  r->type == QN_ROPE_PROPORTIONAL;
    if (scaled && !(r->factor >= 1 && r->factor <= 1e6)) {
        qn_status status = qn_fail(
            QN_E_FORMAT, "rope scaling factor: expected at least 1, found %g",
            r->factor);
        return qn_fail_where(status, "%s", path);
    }
    bool needs_original = r->type == QN_ROPE_LLAMA3 ||
                          r->type == QN_ROPE_YARN ||
                          r->type == QN_ROPE_LONGROPE;
    if (needs_original && !(r->original_positions >= 1)) {
        qn_status status =
            qn_fail(QN_E_FORMAT,
                    "rope scaling: original_max_position_embeddings: expected "
                    "a positive number, found %g",
                    r->original_positions);
        return qn_fail_where(status, "%s", path);
    }
    if (r->type == QN_ROPE_LLAMA3 &&
        !(r->low_freq_factor > 0 && r->high_freq_factor > r->low_freq_factor)) {
        qn_status status = qn_fail(
            QN_E_FORMAT,
            "rope scaling: expected 0 < low_freq_factor < high_freq_factor, "
            "found %g and %g",
            r->low_freq_factor, r->high_freq_factor);
        return qn_fail_where(status, "%s", path);
    }
    return QN_OK;
}

static qn_status check_ropes(const qn_config *c, const char *path)
{
    int widest[2] = {0, 0};
    for (int i = 0; i < c->layers; i++) {
        const qn_layer_config *l = &c->layer[i];
        if (l->kind != QN_LAYER_ATTENTION || l->rope == QN_LAYER_NO_ROPE)
            continue;
        int *w = &widest[l->rope == QN_LAYER_LOCAL_ROPE];
        *w = l->head_dim > *w ? l->head_dim : *w;
    }
    qn_status status =
        widest[0] ? check_rope(&c->rope, widest[0], path) : QN_OK;
    if (!status && widest[1])
        status = check_rope(&c->local_rope, widest[1], path);
    return status;
}

static qn_status check_layers(const qn_config *c, const char *path,
                              const qn_family *family)
{
    for (int i = 0; i < c->layers; i++) {
        const qn_layer_config *l = &c->layer[i];
        bool alike = l->kind == QN_LAYER_ATTENTION &&
                     l->kv_heads == c->kv_heads && l->head_dim == c->head_dim;
        if (!alike && family && !family->varied) {
            qn_status status =
                qn_fail(QN_E_UNSUPPORTED,
                        "layers with different numbers of heads, or of other "
                        "kinds (layer %d: "
                        "%d of %d, expected %d of %d) are not supported in %s",
                        i, l->kv_heads, l->head_dim, c->kv_heads, c->head_dim,
                        c->family);
            return qn_fail_where(status, "%s", path);
        }
        if (c->heads % l->kv_heads)
            return refuse(path,
                          "%d attention heads can't be shared by %d key-value "
                          "heads",
                          c->heads, l->kv_heads);
        if ((int64_t)c->heads * l->head_dim > QN_MAX_DIM)
            return refuse(path, "%d heads of %d are too wide", c->heads,
                          l->head_dim);
    }
    return QN_OK;
}

static qn_status check(const qn_config *c, const char *path,
                       const qn_family *family)
{
    qn_status status = check_layers(c, path, family);
    if (status)
        return status;
    if (!(c->norm_eps >= 0 && c->norm_eps < 1)) {
        status = qn_fail(QN_E_FORMAT, "rms_norm_eps: expected 0..1, found %g",
                         c->norm_eps);
        return qn_fail_where(status, "%s", path);
    }
    return check_ropes(c, path);
}

/* Configurations give the length before or after scaling; the original length,
 * where it is given, tells which. */
static void settle_positions(qn_config *c)
{
    const qn_rope_config *r = &c->rope;
    if (r->type == QN_ROPE_LINEAR || r->type == QN_ROPE_YARN) {
        double scaled = r->original_positions * r->factor;
        if (scaled > (double)c->max_positions && scaled <= QN_MAX_DIM * 16.0)
            c->max_positions = (int64_t)scaled;
    }
    if (r->type == QN_ROPE_DYNAMIC) {
        double scaled = (double)c->max_positions * r->factor;
        if (scaled <= QN_MAX_DIM * 16.0)
            c->max_positions = (int64_t)scaled;
    }
}

qn_status qn_config_finish(qn_config *c, qn_source *s)
{
    const qn_family *family = qn_family_find(qn_str_of(c->family));
    if (!s->status && family && family->configure)
        family->configure(c, s);
    if (!s->status)
        s->status = check(c, s->path, family);
    if (!s->status)
        settle_positions(c);
    return s->status;
}
