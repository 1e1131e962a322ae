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
    /* As qn_kv_attend; all parts are of this kind. */
    qn_status (*attend)(const qn_kv_share *shares, size_t count, mlx_array *out,
                        mlx_array q, mlx_array k, mlx_array v,
                        const qn_attention *how, mlx_stream s);
    /* Whether entries from `length` on can be forgotten, and forgetting. */
    bool (*trim)(qn_kv_part *part, int offset, int length);
    void (*reset)(qn_kv_part *part);
    qn_status (*arrays)(const qn_kv_part *part, mlx_vector_array out);
    void (*free)(qn_kv_part *part);
} qn_kv_kind;

/* The head of each kind's own structure. */
struct qn_kv_part {
    const qn_kv_kind *kind;
};

/* Every token's K and V, as floats or as codes.  NULL when memory is out. */
qn_kv_part *qn_kv_full_new(const qn_kv_shape *shape);

#endif
