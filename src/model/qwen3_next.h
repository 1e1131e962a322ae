/* qwen3_next.h: what Qwen3-Next and Qwen3.5 are made of, for the two files that
 * load (qwen3_next_load.c) and compute (qwen3_next.c) them. */
#ifndef QN_MODEL_QWEN3_NEXT_H
#define QN_MODEL_QWEN3_NEXT_H

#include "family.h"
#include "moe.h"

/* config->extra */
typedef struct net_config {
    int key_heads, value_heads, key_dim, value_dim, taps;
    /* Heads of values stand in the file as [v / k, k] instead of [k, v / k]. */
    bool tiled;
} net_config;

/* What the filter runs over: q, k and v. */
static inline int channels_of(const net_config *n)
{
    return 2 * n->key_heads * n->key_dim + n->value_heads * n->value_dim;
}

typedef struct net_weights {
    /* qkvz and ba; or qkv, z, b and a */
    qn_matrix in[4];
    nn_group wide, narrow;
    mlx_array filter, a_log, dt_bias, norm;
    qn_matrix out;
} net_weights;

typedef struct attention_weights {
    qn_matrix q, k, v, o;
    nn_group qkv;
    mlx_array q_norm, k_norm;
} attention_weights;

typedef struct layer_weights {
    mlx_array before, after; /* norms before attention and before the MLP */
    bool has_state;
    net_weights net;
    attention_weights attention;
    qn_matrix gate, up, down;
    nn_group mlp;
    nn_moe *moe; /* instead */
} layer_weights;

typedef struct hybrid {
    net_config net;
    int layers, heads, kv_heads, head_dim;
    double eps;
    mlx_dtype dtype;
    /* Rows of q, k, v and z by head of keys, and of b and a. */
    bool by_head, narrow_by_head, tied;
    qn_rope rope, local_rope;
    qn_matrix embed, head;
    mlx_array norm;
    layer_weights *layer;
} hybrid;

/* The functions of a qn_family; `by_head`: Qwen3-Next's order of rows. */
qn_status hybrid_load(void **out, qn_loader *loader, bool by_head);
void hybrid_free(void *state);

#endif
