/* config.h: what a model's files say about its architecture, in one form.
 *
 * config.json of a model directory and the metadata of a GGUF file are read
 * into the same structure; nothing behind this header knows which it was.
 * Everything is checked here: presence, JSON type, bounds, and rules between
 * values.  Keys that only some families have are read by their `configure`
 * (family.h, source.h). */
#ifndef QN_MODEL_CONFIG_H
#define QN_MODEL_CONFIG_H

#include "base/gguf.h"
#include "base/json.h"
#include "quant.h"
#include "source.h"

enum { QN_MAX_DIM = 1 << 24, QN_MAX_LAYERS = 1024, QN_MAX_END_IDS = 64 };

typedef enum qn_rope_type {
    QN_ROPE_DEFAULT,
    QN_ROPE_LINEAR,
    QN_ROPE_LLAMA3,
    QN_ROPE_YARN,
    QN_ROPE_DYNAMIC,
    QN_ROPE_LONGROPE,
    QN_ROPE_PROPORTIONAL
} qn_rope_type;

typedef struct qn_rope_config {
    qn_rope_type type;
    double base;
    /* Rotated part of a head, even; PROPORTIONAL: the whole head, of whose
     * pairs the first `turned` turn. */
    int dims;
    int turned;
    double partial; /* what part of the head that is */
    bool traditional;
    double factor; /* all but DEFAULT */
    double original_positions;
    double low_freq_factor, high_freq_factor;            /* LLAMA3 */
    double beta_fast, beta_slow, mscale, mscale_all_dim; /* YARN */
    bool between_pairs; /* YARN: its ramp may begin between two pairs */
    /* YARN, LONGROPE: given outright; 0: by the rule. */
    double attention_factor;
    /* LONGROPE: dims / 2 each, owned; GGUF files have them as tensors. */
    float *short_factors, *long_factors;
    bool always_long; /* LONGROPE: the long ones for sequences of any length */
} qn_rope_config;

typedef enum qn_layer_kind {
    QN_LAYER_ATTENTION,
    QN_LAYER_RECURRENT /* a state of fixed size instead of keys and values */
} qn_layer_kind;

/* Which rotary positions a layer has. */
typedef enum qn_layer_rope {
    QN_LAYER_ROPE,
    QN_LAYER_LOCAL_ROPE, /* qn_config.local_rope */
    QN_LAYER_NO_ROPE
} qn_layer_rope;

/* Layers of most families are all alike; a family that allows others says so
 * (qn_family.varied) and fills this in. */
typedef struct qn_layer_config {
    qn_layer_kind kind;
    qn_layer_rope rope;
    int intermediate;
    int window; /* 0: full attention */
    int kv_heads, head_dim;
    int kv_from; /* whose keys and values it reads: its own number */
    bool sparse; /* its MLP is experts */
} qn_layer_config;

/* Experts; none where `count` is 0.  Read by qn_config_moe. */
typedef struct qn_moe_config {
    int count, used;         /* per layer and per token */
    int intermediate;        /* of an expert */
    int shared_intermediate; /* of the expert that all tokens have; 0: none */
    bool normalize;          /* the weights of those used sum up to 1 */
} qn_moe_config;

typedef struct qn_config {
    char *family; /* model_type or general.architecture, as written */
    char *name;   /* general.name; "" where there is none */
    bool gguf;
    int hidden, layers, intermediate, heads, kv_heads, head_dim, vocab_size;
    double norm_eps;
    qn_rope_config rope, local_rope;
    int64_t max_positions;
    bool attention_bias, mlp_bias;
    char activation[32];    /* "silu" */
    int sliding_window;     /* 0: none */
    qn_layer_config *layer; /* one for each layer */
    /* 1, 0, or -1: decided by the presence of lm_head. */
    int tied;
    int64_t bos_id, pad_id; /* -1: none */
    int32_t end_ids[QN_MAX_END_IDS];
    int end_count;
    qn_quant_table quant;
    /* Packed matrices of a GGUF file become floats, rounded to "f32", "f16" or
     * "bf16"; NULL: they stay packed.  Borrowed. */
    const char *dense_as;
    qn_moe_config moe;
    /* What the family's `configure` keeps for itself: one allocation, freed
     * with the rest. */
    void *extra;
} qn_config;

/* From config.json; `text` is the file, `path` its name for errors. On error
 * *out is untouched; on success the caller owns its contents
 * (qn_config_clear). */
qn_status qn_config_from_json(qn_config *out, qn_str text, const char *path);
/* From the metadata of a GGUF file. */
qn_status qn_config_from_gguf(qn_config *out, const qn_gguf *gguf,
                              const char *path);
void qn_config_clear(qn_config *config);

/* ---- for `configure` of a family ---- */

/* Sets the window of layer i to sliding_window where `sliding(i)`, and to 0
 * elsewhere; NULL: all of them slide. */
void qn_config_set_windows(qn_config *config, bool (*sliding)(int layer));
/* Reads the scaling of rotary positions of one object of config.json over
 * *rope, whose dims follow from head_dim and the part that is turned. */
void qn_read_rope(qn_source *source, qn_rope_config *rope,
                  const qn_json *object, int head_dim);
/* Makes all layers those that have experts. */
void qn_config_all_sparse(qn_config *config);
/* Reads `moe`: number, number used and width of experts by the names that are
 * common; the number is needed, and so are the others but where *moe has them
 * already. */
void qn_config_read_moe(qn_config *config, qn_source *source);

/* Replaces the end ids by those of `value`, an integer or a list of them.
 * `where` names it in errors. */
qn_status qn_config_set_end_ids(qn_config *config, const qn_json *value,
                                const char *where);

#endif
