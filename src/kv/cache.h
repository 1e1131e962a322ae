/* cache.h: what a model remembers of one sequence, layer by layer.
 *
 * A cache holds one part per layer; a part has a kind (kinds.h): keys and
 * values of every token, or of those in a window, or the state of a recurrence.
 * The model knows only qn_kv_attend and qn_kv_state_get / _set.
 *
 * A step is computed for several sequences at once, each with a cache of its
 * own: the rows of one sequence follow those of another.  A row has the bits
 * that it has when its sequence is computed alone, however its sequence was cut
 * into steps, trimmed, cloned or saved before.
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

/* The state of a layer that reads a sequence once and keeps no tokens: the last
 * `taps` inputs of a convolution, [taps, channels], and one matrix for each
 * head, [heads, key_dim, value_dim]; both float32, zeros at the beginning. */
typedef struct qn_kv_recurrence {
    int taps, channels; /* 0 channels: no such layer */
    int heads, key_dim, value_dim;
} qn_kv_recurrence;

/* What one layer stores: keys and values, a recurrent state, or (all zeros)
 * nothing. */
typedef struct qn_kv_layer {
    int kv_heads; /* 0: no keys and values */
    int head_dim;
    qn_kv_scheme scheme; /* of keys and values in the end */
    /* Only what the next tokens see is kept: the last `window` tokens (0: all)
     * and the first `keep` (0..QN_KV_MOST_KEPT) of the sequence. */
    int window, keep;
    qn_kv_recurrence recurrence;
} qn_kv_layer;

enum { QN_KV_MOST_KEPT = 128 };

typedef struct qn_kv_shape {
    int layers;
    /* One for each layer; borrowed, and needed as long as the cache.  NULL: all
     * are like `every`. */
    const qn_kv_layer *layer;
    qn_kv_layer every;
    /* Until the sequence has so many tokens all layers are stored as floats of
     * type `floats`; then they are converted. */
    int start;
    mlx_dtype floats;
    /* Room is made for so many further tokens at a time. */
    int step;
    /* Tokens that a sequence may have; growth never goes past it. */
    int limit;
} qn_kv_shape;

/* Layer `layer` of a shape. */
const qn_kv_layer *qn_kv_layer_of(const qn_kv_shape *shape, int layer);
/* Why a cache of that shape can't be: QN_E_ARG. */
qn_status qn_kv_shape_check(const qn_kv_shape *shape);

/* An empty cache of a shape that was checked.  The caller owns *out
 * (qn_kv_cache_free). */
qn_status qn_kv_cache_new(qn_kv_cache **out, const qn_kv_shape *shape);
void qn_kv_cache_free(qn_kv_cache *cache);

/* A snapshot: a cache with the same tokens, which goes its own way.  It shares
 * arrays until one of them writes; nothing may be pending.  The caller owns
 * *out. */
qn_status qn_kv_cache_clone(qn_kv_cache **out, const qn_kv_cache *cache);

/* Tokens that the cache has seen, which is also the position of the next. */
int qn_kv_cache_length(const qn_kv_cache *cache);
/* Says that the sequence will have `length` tokens before long, so that storage
 * grows once for all of a prompt that is fed in pieces. */
void qn_kv_cache_expect(qn_kv_cache *cache, int length);
/* Says what length the sequence is to reach, before its first token: rotary
 * positions of some models depend on it (model/rope.h).  It stays through trims
 * and resets; 0, as in a new cache: unknown, which counts as short. */
void qn_kv_cache_set_budget(qn_kv_cache *cache, int tokens);
int qn_kv_cache_budget(const qn_kv_cache *cache);
/* Tokens for which memory was set aside (at first shape.limit): a step that
 * goes past them is refused, qn_kv_cache_check. */
void qn_kv_cache_admit(qn_kv_cache *cache, int tokens);
/* QN_OK when `count` further tokens are within what was admitted, else
 * QN_E_NOMEM with both numbers. */
qn_status qn_kv_cache_check(const qn_kv_cache *cache, int count);
/* To be called after all layers have taken `count` further tokens. */
void qn_kv_cache_advance(qn_kv_cache *cache, int count);
/* Tokens that can be added before the cache has to be converted
 * (qn_kv_shape.start); INT_MAX when it has been, or never has to be.  No step
 * may take it further. */
int qn_kv_cache_room(const qn_kv_cache *cache);
/* Converts a cache that has come to that length, layer by layer, so that no
 * more than one is held twice; does nothing to another. */
qn_status qn_kv_cache_settle(qn_kv_cache *cache, mlx_stream s);

/* Whether the tokens from `length` on can be forgotten.  Not where a converted
 * cache has lost the floats that a shorter sequence would have (below
 * qn_kv_shape.start), where a window has moved on (it can go back over 64
 * tokens at least), and never in a recurrent layer, unless `length` is all or
 * none. */
bool qn_kv_cache_can_trim(const qn_kv_cache *cache, int length);
/* Forgets them; false, with nothing done, when that can't be. */
bool qn_kv_cache_trim(qn_kv_cache *cache, int length);
/* Forgets all and drops the storage. */
void qn_kv_cache_reset(qn_kv_cache *cache);

/* Bytes that one token takes in all layers that store it (once they are
 * converted). */
size_t qn_kv_token_bytes(const qn_kv_shape *shape);
/* Bytes of a cache of `tokens` tokens: windows end it in their layers,
 * recurrent layers take theirs from the beginning.  Without what is allocated
 * ahead. */
uint64_t qn_kv_bytes(const qn_kv_shape *shape, int64_t tokens);
/* The same with all that is allocated, at most, when they come in steps of up
 * to `chunk`. */
uint64_t qn_kv_room_bytes(const qn_kv_shape *shape, int64_t tokens, int chunk);

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
    /* Query i sees key j iff i - window < j <= i; 0: j <= i.  Where the layer's
     * cache has a window of its own, that counts. */
    int window;
    qn_kv_rope rope; /* of queries and keys */
    /* One logit for each head that takes part in the softmax and has no value;
     * or no array. */
    mlx_array sinks;
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

/* The state of a recurrent layer: *conv [taps, channels] and *state [heads,
 * key_dim, value_dim].  The caller owns both. */
qn_status qn_kv_state_get(const qn_kv_cache *cache, int layer, mlx_array *conv,
                          mlx_array *state, mlx_stream s);
/* What it is after this step; handles stay the caller's. */
qn_status qn_kv_state_set(qn_kv_cache *cache, int layer, mlx_array conv,
                          mlx_array state);

#endif
