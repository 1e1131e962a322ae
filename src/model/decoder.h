/* decoder.h: the body that most families share, and what differs in it.
 *
 * A layer is
 *
 *     h = x + a * after(attention(before(x)))
 *     y = h + a * after(mlp(before(h)))
 *
 * where each norm may be missing, the MLP is down(silu(gate) * up), a plain
 * down(act(up)), or experts, and keys and queries may have norms of their own.
 * A family says in a decoder_form which of these it has, and under what names.
 *
 * x and h, the sums that run through all layers, are float32 whatever the dtype
 * of activations, and so are norms and logits: with sums rounded to 8 bits in
 * each layer, bfloat16 is a hundred times further from exact arithmetic
 * (docs/accuracy.md). */
#ifndef QN_MODEL_DECODER_H
#define QN_MODEL_DECODER_H

#include "family.h"
#include "moe.h"

/* Norms of queries and keys, before they are turned. */
typedef enum decoder_qk_norm {
    DECODER_QK_PLAIN,
    DECODER_QK_HEADS, /* of each head */
    DECODER_QK_WHOLE  /* of all heads of a row together */
} decoder_qk_norm;

typedef struct decoder_form {
    /* Names of norms below "model.layers.N."; NULL: there is none. */
    const char *before_attention, *after_attention, *before_mlp, *after_mlp;
    bool layer_norms; /* with mean and bias, instead of RMS */
    decoder_qk_norm qk_norm;
    /* q, k and v are the rows of one qkv_proj, gate and up of gate_up_proj. */
    bool fused_qkv, fused_gate;
    /* Matrices with biases; in GGUF files their presence decides. */
    bool qkv_bias, out_bias, mlp_bias;
    /* GGUF files have rows of q and k in pairs (qn_matrix_spec). */
    bool paired;
    bool sinks;           /* attention has a logit of its own for each head */
    bool plain_mlp;       /* c_proj(gelu_tanh(c_fc)) */
    const moe_form *moe;  /* of layers that are sparse */
    double embed_scale;   /* of embeddings; 0: 1, here and below */
    double branch_scale;  /* a */
    double logit_divisor; /* of what logits are made of */
    bool tied_undivided;  /* but not where the embedding makes them */
    double score_scale;   /* of attention; 0: head_dim^-0.5 */
} decoder_form;

/* What most have: norms before each branch by their usual names, and biases as
 * the configuration says. */
decoder_form decoder_usual(const qn_config *config);

/* QN_E_UNSUPPORTED unless the activation is this one. */
qn_status decoder_check_activation(const qn_config *config, const char *name);

/* The functions of a qn_family. */
qn_status decoder_load(void **out, qn_loader *loader, const decoder_form *form);
void decoder_free(void *state);
mlx_array decoder_forward(const void *state, nn *c, mlx_array ids, nn_rows rows,
                          bool last_only);
mlx_array decoder_hidden(const void *state, nn *c, mlx_array ids, nn_rows rows);
bool decoder_tied(const void *state);
/* Modules of a layer with the usual names; rotary_emb.inv_freq. */
extern const char *const decoder_modules[], *const decoder_ignored[];

/* ---- inside ---- */

typedef struct decoder_norm {
    mlx_array weight, bias; /* no arrays: no norm */
} decoder_norm;

typedef struct decoder_mlp {
    qn_matrix gate, up, down; /* no gate in a plain one */
    nn_group in;              /* gate and up */
} decoder_mlp;

typedef struct decoder_layer {
    decoder_norm before_attention, after_attention, before_mlp, after_mlp;
    mlx_array q_norm, k_norm, sinks;
    qn_matrix q, k, v, o;
    nn_group qkv;
    decoder_mlp mlp;
    nn_moe *moe; /* instead of mlp */
    const qn_rope *rope;
    int window;
} decoder_layer;

typedef struct decoder {
    decoder_form form;
    int layers, heads, kv_heads, head_dim;
    double eps;
    mlx_dtype dtype;
    qn_rope rope, local_rope, no_rope;
    qn_matrix embed, head; /* head is empty when tied */
    bool tied;
    decoder_norm norm;
    decoder_layer *layer;
} decoder;

#endif
