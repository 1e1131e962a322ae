/* family.h: what a model family has to offer; families.def lists them.
 *
 * A family is one file: which keys of a configuration it reads beside the
 * common ones, which tensors it consumes, and its forward pass. */
#ifndef QN_MODEL_FAMILY_H
#define QN_MODEL_FAMILY_H

#include "nn.h"

/* The name of a tensor of a GGUF file, without "blk.N." and ".weight", and of
 * the module that it is in a model directory, without "model.layers.N.". */
typedef struct qn_tensor_name {
    const char *gguf, *module;
} qn_tensor_name;

/* Floats of one token that a step holds at once (predict.c). */
typedef struct qn_widths {
    int64_t kept;      /* through all layers: the sum they add to */
    int64_t normed;    /* what queries, keys and values are made of */
    int64_t projected; /* these, or what a recurrence takes */
    int64_t widest;    /* of these the result of one product */
    int64_t attending; /* queries, keys, values and the result */
    int64_t result;    /* of a branch, before it is added */
} qn_widths;

typedef struct qn_family {
    /* Sets what holds where a configuration says nothing, before it is read:
     * sizes (which are then not needed), norm_eps, activation, rope, tied.  May
     * be NULL. */
    void (*prepare)(qn_config *config);
    /* Reads the family's own keys (source.h) into config->extra and `moe`, and
     * settles what differs between layers; all common keys have been read.  May
     * be NULL. */
    void (*configure)(qn_config *config, qn_source *source);
    /* What the family requires of a configuration beyond config.c; may be
     * NULL. */
    qn_status (*check)(const qn_config *config);
    /* Changes a configuration to what mlx-lm makes of it; NULL: the same. */
    void (*as_mlx_lm)(qn_config *config);
    /* Layers may have different kinds, numbers and widths of heads. */
    bool varied;
    /* Names of layers' tensors in GGUF files that are not the common ones
     * (weights.c); NULL: none.  {NULL, NULL} ends it. */
    const qn_tensor_name *gguf_names;
    /* Changes what qn_family_cache says of a layer; NULL: nothing. */
    void (*cache)(const qn_config *config, int layer, qn_kv_layer *out);
    /* Changes what a layer of the common form holds; NULL: nothing. */
    void (*widths)(const qn_config *config, int layer, qn_widths *out);
    /* Loads all weights.  On success the caller owns *out. */
    qn_status (*load)(void **out, qn_loader *loader);
    void (*free)(void *state);
    /* Logits for int32 `ids` [1, T], the next tokens of the sequences of
     * `rows`: [1, T, vocab], or [1, W, vocab] for those that are wanted
     * (nn_last). */
    mlx_array (*forward)(const void *state, nn *c, mlx_array ids, nn_rows rows,
                         bool last_only);
    /* What logits are made of, [1, T, hidden]; NULL: not to be had. */
    mlx_array (*hidden)(const void *state, nn *c, mlx_array ids, nn_rows rows);
    /* Tokens see those behind them, too: each sequence is computed at once, in
     * one step and without a cache, and there are no logits (`forward`). */
    bool encoder;
    /* Whether logits come from the embedding matrix. */
    bool (*tied)(const void *state);
    /* Parts of tensor names that a file may have and nobody needs; NULL
     * ends the list. */
    const char *const *ignored;
    /* Modules of a layer, to recognize a foreign file by; NULL ends it. */
    const char *const *modules;
} qn_family;

#define QN_FAMILY(type, name) extern const qn_family qn_family_##name;
#include "families.def"
#undef QN_FAMILY

/* The family of a model_type or general.architecture; NULL: none has it. */
const qn_family *qn_family_find(qn_str type);
/* What a layer stores, but for the scheme. */
void qn_family_cache(const qn_config *config, int layer, qn_kv_layer *out);
/* All types there are, in the order of families.def: NULL at the end. */
const qn_family *qn_family_at(size_t i, const char **type);

#endif
