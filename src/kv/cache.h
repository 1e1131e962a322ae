/* cache.h: the keys and values of one sequence, layer by layer.
 *
 * A cache holds one part per layer; a part has a kind, which decides how keys
 * and values are stored (kinds.h).  The model knows only two things of it:
 * at which position the next token stands, and qn_kv_attend.
 *
 * Storage.  Kinds write new entries by slice updates into arrays that are
 * larger than the sequence.  Such an update happens in place when nothing
 * else refers to the array, so no handle of an earlier step may be alive when
 * the graph is evaluated.
 *
 * A cache whose evaluation failed is in no usable state: reset it. */
#ifndef QN_KV_CACHE_H
#define QN_KV_CACHE_H

#include "base/status.h"

#include <mlx/c/mlx.h>

typedef struct qn_kv_cache qn_kv_cache;

typedef struct qn_kv_shape {
    int layers;
    int kv_heads; /* of every layer */
    int head_dim;
    mlx_dtype dtype; /* float32, float16 or bfloat16 */
    /* Room is made for so many further tokens at a time. */
    int step;
    /* Tokens that a sequence may have; growth never goes past it. */
    int limit;
} qn_kv_shape;

/* A cache of full kind in every layer, empty.  The caller owns *out
 * (qn_kv_cache_free). */
qn_status qn_kv_cache_new(qn_kv_cache **out, const qn_kv_shape *shape);
void qn_kv_cache_free(qn_kv_cache *cache);

/* Tokens that are stored, which is also the position of the next one. */
int qn_kv_cache_length(const qn_kv_cache *cache);
/* To be called after all layers have taken `count` further tokens. */
void qn_kv_cache_advance(qn_kv_cache *cache, int count);
/* Forgets the tokens from `length` on; false when a part can't. */
bool qn_kv_cache_trim(qn_kv_cache *cache, int length);
/* Forgets all and drops the storage. */
void qn_kv_cache_reset(qn_kv_cache *cache);

/* Bytes that one token takes in all layers. */
size_t qn_kv_token_bytes(const qn_kv_shape *shape);

/* Collects the arrays that hold the state, for evaluation without an output:
 * appends to `out`. */
qn_status qn_kv_cache_arrays(const qn_kv_cache *cache, mlx_vector_array out);

typedef struct qn_attention {
    float scale;
    /* Query i sees key j iff i - window < j <= i; 0: j <= i. */
    int window;
} qn_attention;

/* Stores `k` and `v` [1, kv_heads, T, head_dim] as the next T tokens of layer
 * `layer` and sets *out to the attention of `q` [1, heads, T, head_dim] over
 * everything stored there.  Every layer must be called once, with the same T,
 * before qn_kv_cache_advance. */
qn_status qn_kv_attend(qn_kv_cache *cache, mlx_array *out, int layer,
                       mlx_array q, mlx_array k, mlx_array v,
                       const qn_attention *how, mlx_stream s);

#endif
