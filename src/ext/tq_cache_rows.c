/* tq_cache_rows.c: rows of batched packed caches.
 *
 * The rows of a cache have one length; a shorter one has zero records on the
 * left, and its tokens at the right end.  Every operation here makes a cache of
 * pieces, runs of stored tokens of one row: bytes move, nothing is decoded. */
#include "tq_cache.h"

#include "base/alloc.h"

#include <string.h>

/* Tokens of one row of a cache. */
typedef struct piece {
    const quern_tq_cache *from;
    int row, first, count;
} piece;

/* The valid tokens of a row but for the newest `drop`. */
static piece piece_of(const quern_tq_cache *c, int row, int drop)
{
    int valid = tq_valid(c, row);
    piece p = {c, row, c->offset - valid, valid > drop ? valid - drop : 0};
    return p;
}

/* Plane i of a piece, after zeros up to `length` tokens. */
static mlx_array padded(steps *s, const quern_tq_cache *like, const piece *p,
                        int i, int length)
{
    tq_plane zeros = tq_plane_of(like, i, length - p->count);
    zeros.shape[0] = 1;
    if (!p->count)
        return tq_zeros(s, &zeros);
    mlx_array x = tq_cut(s, p->from->planes[i], p->row, p->row + 1, p->first,
                         p->first + p->count);
    return zeros.shape[2] ? tq_behind(s, tq_zeros(s, &zeros), x) : x;
}

static int join(mlx_array *res, const quern_tq_cache *like, const piece *pieces,
                int count, int i, int length, mlx_stream stream)
{
    mlx_vector_array rows = mlx_vector_array_new();
    int failed = 0;
    for (int r = 0; !failed && r < count; r++) {
        steps s = {.stream = stream};
        mlx_array x = padded(&s, like, &pieces[r], i, length);
        failed = s.failed || mlx_vector_array_append_value(rows, x);
        finish(&s);
    }
    if (!failed)
        failed = count == 1 ? mlx_vector_array_get(res, rows, 0)
                            : mlx_concatenate_axis(res, rows, 0, stream);
    mlx_vector_array_free(rows);
    return failed;
}

/* A new cache whose rows are the pieces; `like` has its form. */
static int assemble(quern_tq_cache **res, const quern_tq_cache *like,
                    const piece *pieces, int count, mlx_stream stream)
{
    quern_tq_cache *made;
    TQ_CHECK(tq_cache_like(&made, like));
    int failed = 0, uneven = 0;
    for (int r = 0; r < count; r++)
        if (pieces[r].count > made->offset)
            made->offset = pieces[r].count;
    for (int r = 0; r < count; r++)
        uneven |= pieces[r].count != made->offset;
    made->batch = count;
    made->capacity = made->offset;
    if (uneven) {
        made->valid = qn_calloc((size_t)count, sizeof *made->valid);
        failed = made->valid ? 0 : tq_report();
        for (int r = 0; !failed && r < count; r++)
            made->valid[r] = pieces[r].count;
    }
    for (int i = 0; !failed && made->offset && i < TQ_PLANES; i++)
        failed = join(&made->planes[i], made, pieces, count, i, made->offset,
                      stream);
    if (failed)
        quern_tq_cache_free(made);
    else
        *res = made;
    return failed;
}

static qn_status check_row(const char *op, const quern_tq_cache *c, int row)
{
    if (row >= 0 && row < c->batch)
        return QN_OK;
    return qn_fail(QN_E_ARG, "[%s] Expected a row of %d, found %d.", op,
                   c->batch, row);
}

/* ---- merging ---- */

static qn_status check_alike(const quern_tq_cache *a, const quern_tq_cache *b)
{
    const quern_tq_options *x = &a->options, *y = &b->options;
    if (x->key_bits != y->key_bits || x->value_bits != y->value_bits)
        return qn_fail(QN_E_ARG,
                       "[tq_cache_merge] Caches of k%dv%d and of k%dv%d.",
                       x->key_bits, x->value_bits, y->key_bits, y->value_bits);
    if (b->head_dim && (a->head_dim != b->head_dim || a->heads != b->heads))
        return qn_fail(QN_E_ARG,
                       "[tq_cache_merge] kv heads and head_dim are (%d, %d) "
                       "and (%d, %d).",
                       a->heads, a->head_dim, b->heads, b->head_dim);
    return QN_OK;
}

/* Rows of a cache; one that is empty is a row without tokens. */
static int rows_of(const quern_tq_cache *c)
{
    return c->batch ? c->batch : 1;
}

int quern_tq_cache_merge(quern_tq_cache **res,
                         const quern_tq_cache *const *caches, size_t count,
                         const mlx_stream s)
{
    enum { MOST = 1 << 16 };
    const quern_tq_cache *like = NULL;
    int rows = 0, reusable = 0, n = 0;
    if (count < 1 || count > MOST) {
        qn_fail(QN_E_ARG,
                "[tq_cache_merge] Expected 1 to %d caches, found "
                "%zu.",
                (int)MOST, count);
        return tq_report();
    }
    for (size_t i = 0; i < count; i++)
        if (!like || (!like->head_dim && caches[i]->head_dim))
            like = caches[i];
    for (size_t i = 0; i < count; i++) {
        TQ_CHECK(check_alike(like, caches[i]));
        rows += rows_of(caches[i]);
        if (caches[i]->reusable > reusable)
            reusable = caches[i]->reusable;
    }
    piece *pieces = qn_calloc((size_t)rows, sizeof *pieces);
    if (!pieces)
        return tq_report();
    for (size_t i = 0; i < count; i++)
        for (int r = 0; r < rows_of(caches[i]); r++)
            pieces[n++] = piece_of(caches[i], r, 0);
    int failed = assemble(res, like, pieces, rows, s);
    if (!failed)
        (*res)->reusable = reusable;
    qn_free(pieces);
    return failed;
}

/* ---- choosing rows ---- */

int quern_tq_cache_filter(quern_tq_cache **res, const quern_tq_cache *cache,
                          const int *rows, size_t count, const mlx_stream s)
{
    if (count < 1 || count > 1 << 16) {
        qn_fail(QN_E_ARG, "[tq_cache_filter] Expected rows, found %zu.", count);
        return tq_report();
    }
    for (size_t i = 0; i < count; i++)
        TQ_CHECK(check_row("tq_cache_filter", cache, rows[i]));
    piece *pieces = qn_calloc(count, sizeof *pieces);
    if (!pieces)
        return tq_report();
    for (size_t i = 0; i < count; i++)
        pieces[i] = piece_of(cache, rows[i], 0);
    int failed = assemble(res, cache, pieces, (int)count, s);
    qn_free(pieces);
    return failed;
}

int quern_tq_cache_extract(quern_tq_cache **res, const quern_tq_cache *cache,
                           int row, const mlx_stream s)
{
    TQ_CHECK(check_row("tq_cache_extract", cache, row));
    piece p = piece_of(cache, row, 0);
    return assemble(res, cache, &p, 1, s);
}

/* ---- lengths ---- */

/* `to` becomes what `from` is, which goes. */
static void replace(quern_tq_cache *to, quern_tq_cache *from)
{
    quern_tq_cache old = *to;
    *to = *from;
    *from = old;
    quern_tq_cache_free(from);
}

int quern_tq_cache_rollback(quern_tq_cache *cache, const int *drop,
                            size_t count, const mlx_stream s)
{
    bool even = true;
    if (count != (size_t)cache->batch) {
        qn_fail(QN_E_ARG,
                "[tq_cache_rollback] Expected numbers for %d rows, found %zu.",
                cache->batch, count);
        return tq_report();
    }
    for (size_t i = 0; i < count; i++) {
        if (drop[i] < 0) {
            qn_fail(QN_E_ARG,
                    "[tq_cache_rollback] Expected 0 tokens or more, found %d.",
                    drop[i]);
            return tq_report();
        }
        even &= drop[i] == drop[0];
    }
    int dropped;
    if (!count || even)
        return count ? quern_tq_cache_trim(&dropped, cache, drop[0]) : 0;
    piece *pieces = qn_calloc(count, sizeof *pieces);
    if (!pieces)
        return tq_report();
    for (size_t i = 0; i < count; i++)
        pieces[i] = piece_of(cache, (int)i, drop[i]);
    quern_tq_cache *made = NULL;
    int failed = assemble(&made, cache, pieces, cache->batch, s);
    qn_free(pieces);
    if (!failed)
        replace(cache, made);
    return failed;
}

int quern_tq_cache_left_pad(quern_tq_cache *cache, int n, const mlx_stream s)
{
    if (n < 0 || n > 1 << 30 || !cache->offset) {
        qn_fail(QN_E_ARG,
                "[tq_cache_left_pad] Expected 0 tokens or more before others, "
                "found %d before %d.",
                n, cache->offset);
        return tq_report();
    }
    int *valid = qn_calloc((size_t)cache->batch, sizeof *valid);
    if (!valid)
        return tq_report();
    mlx_array made[TQ_PLANES] = {{NULL}};
    int failed = 0;
    for (int i = 0; !failed && i < TQ_PLANES; i++) {
        steps c = {.stream = s};
        tq_plane zeros = tq_plane_of(cache, i, n);
        mlx_array x =
            tq_cut(&c, cache->planes[i], 0, cache->batch, 0, cache->offset);
        x = tq_behind(&c, tq_zeros(&c, &zeros), x);
        failed = c.failed || mlx_array_set(&made[i], x);
        finish(&c);
    }
    if (failed) {
        for (int i = 0; i < TQ_PLANES; i++)
            mlx_array_free(made[i]);
        qn_free(valid);
        return 1;
    }
    for (int i = 0; i < cache->batch; i++)
        valid[i] = tq_valid(cache, i);
    qn_free(cache->valid);
    cache->valid = valid;
    cache->offset += n;
    cache->capacity = cache->offset;
    tq_cache_put(cache, made);
    return 0;
}
