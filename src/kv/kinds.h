/* kinds.h: what a kind of KV storage has to offer.  Private to the room. */
#ifndef QN_KV_KINDS_H
#define QN_KV_KINDS_H

#include "cache.h"

typedef struct qn_kv_part qn_kv_part;

/* The next `count` tokens of a sequence of which `offset` are stored and that
 * will have `expected` soon. */
typedef struct qn_kv_share {
    qn_kv_part *part;
    int offset, count, expected;
} qn_kv_share;

typedef struct qn_kv_kind {
    const char *name;
    /* As qn_kv_attend; all parts are of this kind, and store alike. */
    qn_status (*attend)(const qn_kv_share *shares, size_t count, mlx_array *out,
                        mlx_array q, mlx_array k, mlx_array v,
                        const qn_attention *how, mlx_stream s);
    /* How it stores now. */
    const qn_kv_scheme *(*scheme)(const qn_kv_part *part);
    /* Stores the `length` tokens that it has, and all later ones, in another
     * way.  Evaluates, and gives the old arrays up. */
    qn_status (*convert)(qn_kv_part *part, int length,
                         const qn_kv_scheme *scheme, mlx_stream s);
    /* Whether entries from `length` on can be forgotten, and forgetting. */
    bool (*trim)(qn_kv_part *part, int offset, int length);
    void (*reset)(qn_kv_part *part, const qn_kv_scheme *scheme);
    qn_status (*arrays)(const qn_kv_part *part, mlx_vector_array out);
    /* The first `length` tokens in canonical form (quern_kv_read), a list that
     * the caller owns; and back, into a part that has none. */
    qn_status (*read)(const qn_kv_part *part, int length, mlx_vector_array *out,
                      mlx_stream s);
    qn_status (*write)(qn_kv_part *part, mlx_vector_array planes, mlx_stream s);
    void (*free)(qn_kv_part *part);
} qn_kv_kind;

struct qn_kv_cache {
    qn_kv_shape shape;
    qn_kv_scheme floats; /* of layers that are not, or not yet, packed */
    int length;
    int expected;   /* tokens that are on the way */
    bool converted; /* to the scheme of the shape */
    int count;
    qn_kv_part **parts;
};

/* How layer `layer` has to be stored now. */
const qn_kv_scheme *qn_kv_layer_scheme(const qn_kv_cache *cache, int layer);

/* Empties the cache, for sequences that are converted already or are not. */
void qn_kv_cache_restart(qn_kv_cache *cache, bool converted);

/* The head of each kind's own structure. */
struct qn_kv_part {
    const qn_kv_kind *kind;
};

/* Every token's K and V, as floats or as codes.  NULL when memory is out. */
qn_kv_part *qn_kv_full_new(const qn_kv_shape *shape,
                           const qn_kv_scheme *scheme);

#endif
