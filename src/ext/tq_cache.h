/* tq_cache.h: what the files of a packed cache share. */
#ifndef QN_EXT_TQ_CACHE_H
#define QN_EXT_TQ_CACHE_H

#include "steps.h"

#include "base/turboquant.h"

#include <quern/ext.h>

#include <stddef.h>

enum { TQ_PLANES = 5 };

struct quern_tq_cache {
    quern_tq_options options;
    int head_dim, batch, heads; /* 0 while nothing is known */
    int offset, capacity, reusable;
    int *valid; /* tokens of each row, at the right end; NULL: all `offset` */
    mlx_array planes[TQ_PLANES]; /* [batch, heads, capacity, width] or empty */
    char signature[32], key[32];
};

/* What a plane is called, and how n tokens of it are shaped. */
extern const char *const tq_plane_names[TQ_PLANES];
typedef struct tq_plane {
    int shape[4];
    mlx_dtype dtype;
} tq_plane;
tq_plane tq_plane_of(const quern_tq_cache *c, int i, int tokens);

/* Reports the recorded error; 1. */
int tq_report(void);
#define TQ_CHECK(call)                                                         \
    do {                                                                       \
        if (call)                                                              \
            return tq_report();                                                \
    } while (0)

/* x[rows first .. end, :, tokens begin .. stop] of a plane. */
mlx_array tq_cut(steps *s, mlx_array x, int first, int end, int begin,
                 int stop);
mlx_array tq_zeros(steps *s, const tq_plane *plane);
/* Both along axis 2. */
mlx_array tq_behind(steps *s, mlx_array a, mlx_array b);

/* A cache without planes like `c`. */
qn_status tq_cache_like(quern_tq_cache **out, const quern_tq_cache *c);
/* Takes the handles of `made`, which become empty. */
void tq_cache_put(quern_tq_cache *c, mlx_array made[TQ_PLANES]);
int tq_valid(const quern_tq_cache *c, int row);

/* Fails unless `planes` are those of c->options, c->head_dim: dtypes and shapes
 * of turboquant.md.  Sets batch, heads and capacity. */
qn_status tq_check_planes(const char *op, quern_tq_cache *c,
                          const tq_plane planes[TQ_PLANES]);

#endif
