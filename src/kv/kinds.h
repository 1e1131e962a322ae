/* kinds.h: what a kind of storage has to offer.  Private to the room. */
#ifndef QN_KV_KINDS_H
#define QN_KV_KINDS_H

#include "cache.h"

typedef struct qn_kv_part qn_kv_part;

/* The next `count` tokens of a sequence of which `offset` are stored and that
 * will have `expected` soon, and never more than `most`. */
typedef struct qn_kv_share {
    qn_kv_part *part;
    int offset, count, expected, most;
} qn_kv_share;

typedef struct qn_kv_kind {
    /* As qn_kv_attend; all parts are of this kind, and store alike.  NULL: the
     * layer does not attend. */
    qn_status (*attend)(const qn_kv_share *shares, size_t count, mlx_array *out,
                        mlx_array q, mlx_array k, mlx_array v,
                        const qn_attention *how, mlx_stream s);
    /* How it stores now; NULL where schemes don't matter. */
    const qn_kv_scheme *(*scheme)(const qn_kv_part *part);
    /* Stores the `length` tokens that it has, and all later ones, in another
     * way.  Evaluates, and gives the old arrays up. */
    qn_status (*convert)(qn_kv_part *part, int length,
                         const qn_kv_scheme *scheme, mlx_stream s);
    /* Whether entries from `length` on can be forgotten of a sequence of
     * `offset`; the cache's length alone says what counts then. */
    bool (*can_trim)(const qn_kv_part *part, int offset, int length);
    void (*reset)(qn_kv_part *part, const qn_kv_scheme *scheme);
    qn_status (*arrays)(const qn_kv_part *part, mlx_vector_array out);
    /* A part with the same arrays; NULL when memory is out. */
    qn_kv_part *(*clone)(const qn_kv_part *part);

    /* ---- the saved form ---- */

    /* Names of the arrays that are saved; returns how many. */
    int (*names)(const qn_kv_part *part, const char *const **names);
    /* Tokens in each of a sequence of `length`; -1: they have none. */
    int (*saved)(const qn_kv_part *part, int length);
    /* These arrays, a list that the caller owns; and back, into a part that has
     * none, for a sequence of `length`. */
    qn_status (*read)(const qn_kv_part *part, int length, mlx_vector_array *out,
                      mlx_stream s);
    qn_status (*write)(qn_kv_part *part, int length, mlx_vector_array planes,
                       mlx_stream s);

    void (*free)(qn_kv_part *part);
} qn_kv_kind;

struct qn_kv_cache {
    qn_kv_shape shape;
    qn_kv_scheme floats; /* of layers that are not, or not yet, packed */
    int length;
    int expected;   /* tokens that are on the way */
    int admitted;   /* tokens that there may be */
    int budget;     /* qn_kv_cache_set_budget */
    bool converted; /* to the schemes of the layers */
    int count;
    qn_kv_part **parts; /* NULL: the layer stores nothing */
};

/* How layer `layer` has to be stored now. */
const qn_kv_scheme *qn_kv_layer_scheme(const qn_kv_cache *cache, int layer);

/* Empties the cache, for sequences that are converted already or are not. */
void qn_kv_cache_restart(qn_kv_cache *cache, bool converted);

/* The head of each kind's own structure. */
struct qn_kv_part {
    const qn_kv_kind *kind;
};

/* Keys and values of every token, or of those that a window leaves, as floats
 * or as codes.  NULL when memory is out. */
qn_kv_part *qn_kv_tokens_new(const qn_kv_layer *layer,
                             const qn_kv_scheme *scheme, int step, int limit);
/* The state of a recurrence.  NULL when memory is out. */
qn_kv_part *qn_kv_recurrent_new(const qn_kv_recurrence *recurrence);
qn_status qn_kv_recurrent_get(const qn_kv_part *part, mlx_array *conv,
                              mlx_array *state, mlx_stream s);
qn_status qn_kv_recurrent_set(qn_kv_part *part, mlx_array conv,
                              mlx_array state);

/* What a window leaves; `base` tokens of a sequence have been dropped: its
 * first ones, or those behind the first block where some are kept. */
typedef struct qn_kv_window {
    int window, keep; /* 0 window: everything */
} qn_kv_window;
enum { QN_KV_DROP_UNIT = 128, QN_KV_SLACK = 64 };
/* Tokens that can be dropped of a sequence of `length`, when the last `slack`
 * of them may be trimmed again. */
int qn_kv_window_base(const qn_kv_window *w, int length, int slack);
/* Room for so many tokens is made ahead, so that moving is rare. */
int qn_kv_window_ahead(const qn_kv_window *w);
/* Tokens that there is room for at most when they come in steps of up to
 * `chunk`, for storage that grows by `step`. */
int64_t qn_kv_window_room(const qn_kv_window *w, int chunk, int step);
/* Whether the next token of a sequence of `length` sees nothing of them. */
bool qn_kv_window_allows(const qn_kv_window *w, int length, int base);

#endif
