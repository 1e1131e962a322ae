/* kinds.h: what a kind of KV storage has to offer.  Private to the room. */
#ifndef QN_KV_KINDS_H
#define QN_KV_KINDS_H

#include "cache.h"

typedef struct qn_kv_part qn_kv_part;

/* A mask that several layers of one step share. */
typedef struct qn_kv_mask {
    mlx_array array; /* bool [T, S], or no array */
    int offset, count, window, first;
} qn_kv_mask;

typedef struct qn_kv_kind {
    const char *name;
    /* As qn_kv_attend; `offset` tokens are stored. */
    qn_status (*attend)(qn_kv_part *part, mlx_array *out, int offset,
                        mlx_array q, mlx_array k, mlx_array v,
                        const qn_attention *how, qn_kv_mask *mask,
                        mlx_stream s);
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

/* K and V whole, [1, kv_heads, capacity, head_dim] each.  NULL when memory is
 * out. */
qn_kv_part *qn_kv_full_new(const qn_kv_shape *shape);

/* The mask of `count` queries from position `offset` on over the keys from
 * position `first` on; made anew only when *mask is another one. */
qn_status qn_kv_window_mask(qn_kv_mask *mask, int offset, int count, int first,
                            int window);

#endif
