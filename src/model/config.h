/* config.h: what a model's files say about its architecture, in one form.
 *
 * config.json of a model directory and the metadata of a GGUF file are read
 * into the same structure; nothing behind this header knows which it was.
 * Everything is checked here: presence, JSON type, bounds, and rules between
 * values.  What a family requires beyond that is its own `check`. */
#ifndef QN_MODEL_CONFIG_H
#define QN_MODEL_CONFIG_H

#include "base/gguf.h"
#include "base/json.h"
#include "quant.h"

enum { QN_MAX_DIM = 1 << 24, QN_MAX_LAYERS = 1024, QN_MAX_END_IDS = 64 };

typedef enum qn_rope_type {
    QN_ROPE_DEFAULT,
    QN_ROPE_LINEAR,
    QN_ROPE_LLAMA3,
    QN_ROPE_YARN
} qn_rope_type;

typedef struct qn_rope_config {
    qn_rope_type type;
    double base;
    int dims; /* rotated part of a head, even */
    bool traditional;
    double factor; /* all but DEFAULT */
    double original_positions;
    double low_freq_factor, high_freq_factor;            /* LLAMA3 */
    double beta_fast, beta_slow, mscale, mscale_all_dim; /* YARN */
    double attention_factor; /* YARN: given outright; 0: from the mscales */
} qn_rope_config;

typedef struct qn_layer_config {
    int intermediate;
    int window; /* 0: full attention */
} qn_layer_config;

typedef struct qn_config {
    char *family; /* model_type or general.architecture, as written */
    char *name;   /* general.name; "" where there is none */
    bool gguf;
    int hidden, layers, intermediate, heads, kv_heads, head_dim, vocab_size;
    double rms_norm_eps;
    qn_rope_config rope;
    int64_t max_positions;
    bool attention_bias, mlp_bias;
    char *activation;       /* "silu" */
    int sliding_window;     /* 0: none */
    qn_layer_config *layer; /* one for each layer */
    /* 1, 0, or -1: decided by the presence of lm_head. */
    int tied;
    int64_t bos_id, pad_id; /* -1: none */
    int32_t end_ids[QN_MAX_END_IDS];
    int end_count;
    qn_quant_table quant;
} qn_config;

/* From config.json; `text` is the file, `path` its name for errors. On error
 * *out is untouched; on success the caller owns its contents
 * (qn_config_clear). */
qn_status qn_config_from_json(qn_config *out, qn_str text, const char *path);
/* From the metadata of a GGUF file. */
qn_status qn_config_from_gguf(qn_config *out, const qn_gguf *gguf,
                              const char *path);
void qn_config_clear(qn_config *config);

/* Replaces the end ids by those of `value`, an integer or a list of them.
 * `where` names it in errors. */
qn_status qn_config_set_end_ids(qn_config *config, const qn_json *value,
                                const char *where);

#endif
