/* cache.h: the keys and values of one sequence, layer by layer.
 *
 * A cache holds one part per layer; a part has a kind, which decides how keys
 * and values are stored (kinds.h).  The model knows only qn_kv_attend.
 *
 * A step is computed for several sequences at once, each with a cache of its
 * own: the rows of one sequence follow those of another.  A row has the bits
 * that it has when its sequence is computed alone.
 *
 * Storage.  New entries go into arrays that are larger than the sequence.  This
 * happens in place when nothing else refers to the array, so no handle of an
 * earlier step may be alive when the graph is evaluated.
 *
 * A cache whose evaluation failed is in no usable state: reset it. */
#ifndef QN_KV_CACHE_H
#define QN_KV_CACHE_H

#include "base/status.h"
#include "scheme.h"

#include <mlx/c/mlx.h>

typedef struct qn_kv_cache qn_kv_cache;

/* What layers may have of their own. */
typedef struct qn_kv_layer {
    int kv_heads, head_dim;
} qn_kv_layer;

typedef struct qn_kv_shape {
    int layers;   /* that store keys and values */
    int kv_heads; /* of every layer, unless `layer` says more */
    int head_dim;
    /* One for each layer; borrowed, and needed as long as the cache.  NULL: all
     * are alike. */
    const qn_kv_layer *layer;
    qn_kv_scheme scheme;
    /* Until the sequence has so many tokens all layers are stored as floats of
     * type `floats`; then they are converted. */
    int start;
    mlx_dtype floats;
    /* Of each layer whether it stays in floats for good; borrowed, and needed
     * as long as the cache.  NULL: none does. */
    const bool *in_floats;
    /* Room is made for so many further tokens at a time. */
    int step;
    /* Tokens that a sequence may have; growth never goes past it. */
    int limit;
} qn_kv_shape;

/* The same with the heads of one layer. */
qn_kv_shape qn_kv_layer_shape(const qn_kv_shape *shape, int layer);

/* A cache of full kind in every layer, empty.  The caller owns *out
 * (qn_kv_cache_free). */
qn_status qn_kv_cache_new(qn_kv_cache **out, const qn_kv_shape *shape);
void qn_kv_cache_free(qn_kv_cache *cache);

/* Tokens that are stored, which is also the position of the next one. */
int qn_kv_cache_length(const qn_kv_cache *cache);
/* Says that the sequence will have `length` tokens before long, so that storage
 * grows once for all of a prompt that is fed in pieces. */
void qn_kv_cache_expect(qn_kv_cache *cache, int length);
/* To be called after all layers have taken `count` further tokens. */
void qn_kv_cache_advance(qn_kv_cache *cache, int count);
/* Tokens that can be added before the cache has to be converted
 * (qn_kv_shape.start); INT_MAX when it has been, or never has to be.  No step
 * may take it further. */
int qn_kv_cache_room(const qn_kv_cache *cache);
/* Converts a cache that has come to that length, layer by layer, so that no
 * more than one is held twice; does nothing to another. */
qn_status qn_kv_cache_settle(qn_kv_cache *cache, mlx_stream s);

/* Forgets the tokens from `length` on; false when that can't be: a converted
 * cache has lost the floats that a sequence shorter than qn_kv_shape.start
 * would have. */
bool qn_kv_cache_trim(qn_kv_cache *cache, int length);
/* Forgets all and drops the storage. */
void qn_kv_cache_reset(qn_kv_cache *cache);

/* Bytes that one token takes in all layers (once they are converted). */
size_t qn_kv_token_bytes(const qn_kv_shape *shape);

/* Collects the arrays that hold the state, for evaluation without an output:
 * appends to `out`. */
qn_status qn_kv_cache_arrays(const qn_kv_cache *cache, mlx_vector_array out);

/* The next `count` tokens of the sequence in `cache`. */
typedef struct qn_kv_rows {
    qn_kv_cache *cache;
    int count;
    /* Positions at the end whose logits the step gives; 0 counts as 1. */
    int wanted;
    /* Tokens of an answer that come before the one that the last position
     * chooses; 0 for what is no answer. */
    int64_t answered;
} qn_kv_rows;

/* Tokens of all sequences of a step together. */
int qn_kv_rows_total(const qn_kv_rows *rows, size_t count);

/* As mlx_fast_rope has it; 0 dims: none. */
typedef struct qn_kv_rope {
    int dims;
    bool traditional;
    float base, scale;
    mlx_array freqs; /* or no array: the base counts */
} qn_kv_rope;

typedef struct qn_attention {
    int heads;
    float scale;
    float cap; /* a score s becomes cap * tanh(s / cap); 0: it stays */
    /* Query i sees key j iff i - window < j <= i; 0: j <= i. */
    int window;
    qn_kv_rope rope; /* of queries and keys */
} qn_attention;

/* Stores rows of `k` and `v` [1, R, kv_heads * head_dim] as the next tokens of
 * layer `layer` of `count` caches of one shape, R in all, and sets *out to the
 * attention of the rows of `q` [1, R, heads * head_dim], each over everything
 * that is stored of its sequence up to it.  Every layer must be called once,
 * with the same rows, before qn_kv_cache_advance; after that call further ones
 * without arrays for `k` and `v` attend to what it stored. */
qn_status qn_kv_attend(const qn_kv_rows *rows, size_t count, mlx_array *out,
                       int layer, mlx_array q, mlx_array k, mlx_array v,
                       const qn_attention *how, mlx_stream s);

#endif
