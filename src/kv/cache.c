/* cache.c: the parts of a cache and the step they share.  See cache.h. */
#include "cache.h"

#include "base/alloc.h"
#include "engine.h"
#include "kinds.h"

#include <assert.h>
#include <limits.h>

const qn_kv_scheme *qn_kv_layer_scheme(const qn_kv_cache *cache, int layer)
{
    const bool *in_floats = cache->shape.in_floats;
    return cache->converted && !(in_floats && in_floats[layer])
               ? &cache->shape.scheme
               : &cache->floats;
}

qn_kv_shape qn_kv_layer_shape(const qn_kv_shape *shape, int layer)
{
    qn_kv_shape one = *shape;
    if (shape->layer) {
        one.kv_heads = shape->layer[layer].kv_heads;
        one.head_dim = shape->layer[layer].head_dim;
    }
    return one;
}

qn_status qn_kv_cache_new(qn_kv_cache **out, const qn_kv_shape *shape)
{
    qn_kv_cache *cache = qn_calloc(1, sizeof *cache);
    if (!cache)
        return QN_E_NOMEM;
    cache->shape = *shape;
    cache->floats.dtype = shape->floats;
    cache->converted = !shape->start;
    cache->parts = qn_calloc((size_t)shape->layers, sizeof(qn_kv_part *));
    if (!cache->parts)
        goto fail;
    for (; cache->count < shape->layers; cache->count++) {
        qn_kv_shape one = qn_kv_layer_shape(shape, cache->count);
        cache->parts[cache->count] =
            qn_kv_full_new(&one, qn_kv_layer_scheme(cache, cache->count));
        if (!cache->parts[cache->count])
            goto fail;
    }
    *out = cache;
    return QN_OK;
fail:
    qn_kv_cache_free(cache);
    return QN_E_NOMEM;
}

void qn_kv_cache_free(qn_kv_cache *cache)
{
    if (!cache)
        return;
    for (int i = 0; i < cache->count; i++)
        cache->parts[i]->kind->free(cache->parts[i]);
    qn_free(cache->parts);
    qn_free(cache);
}

int qn_kv_cache_length(const qn_kv_cache *cache)
{
    return cache->length;
}

void qn_kv_cache_expect(qn_kv_cache *cache, int length)
{
    assert(length >= 0 && length <= cache->shape.limit);
    cache->expected = length;
}

void qn_kv_cache_advance(qn_kv_cache *cache, int count)
{
    assert(count >= 0 && count <= cache->shape.limit - cache->length);
    assert(count <= qn_kv_cache_room(cache));
    cache->length += count;
}

int qn_kv_cache_room(const qn_kv_cache *cache)
{
    return cache->converted ? INT_MAX : cache->shape.start - cache->length;
}

qn_status qn_kv_cache_settle(qn_kv_cache *cache, mlx_stream s)
{
    if (cache->converted || cache->length < cache->shape.start)
        return QN_OK;
    qn_status status = QN_OK;
    cache->converted = true;
    for (int i = 0; i < cache->count && !status; i++) {
        qn_kv_part *part = cache->parts[i];
        const qn_kv_scheme *scheme = qn_kv_layer_scheme(cache, i);
        if (scheme != &cache->floats)
            status = part->kind->convert(part, cache->length, scheme, s);
    }
    return status;
}

bool qn_kv_cache_trim(qn_kv_cache *cache, int length)
{
    assert(length >= 0 && length <= cache->length);
    if (!length) {
        qn_kv_cache_reset(cache);
        return true;
    }
    if (cache->converted && length < cache->shape.start)
        return false;
    for (int i = 0; i < cache->count; i++) {
        qn_kv_part *part = cache->parts[i];
        if (!part->kind->trim(part, cache->length, length))
            return false;
    }
    cache->length = length;
    return true;
}

void qn_kv_cache_restart(qn_kv_cache *cache, bool converted)
{
    cache->converted = converted;
    for (int i = 0; i < cache->count; i++)
        cache->parts[i]->kind->reset(cache->parts[i],
                                     qn_kv_layer_scheme(cache, i));
    cache->length = cache->expected = 0;
}

void qn_kv_cache_reset(qn_kv_cache *cache)
{
    qn_kv_cache_restart(cache, !cache->shape.start);
}

size_t qn_kv_token_bytes(const qn_kv_shape *shape)
{
    qn_kv_scheme floats = {.dtype = shape->floats};
    size_t sum = 0;
    for (int i = 0; i < shape->layers; i++) {
        bool plain = shape->in_floats && shape->in_floats[i];
        qn_kv_shape one = qn_kv_layer_shape(shape, i);
        sum +=
            (size_t)one.kv_heads *
            qn_kv_scheme_bytes(plain ? &floats : &shape->scheme, one.head_dim);
    }
    return sum;
}

qn_status qn_kv_cache_arrays(const qn_kv_cache *cache, mlx_vector_array out)
{
    qn_status status = QN_OK;
    for (int i = 0; i < cache->count && !status; i++)
        status = cache->parts[i]->kind->arrays(cache->parts[i], out);
    return status;
}

int qn_kv_rows_total(const qn_kv_rows *rows, size_t count)
{
    int total = 0;
    for (size_t i = 0; i < count; i++)
        total += rows[i].count;
    return total;
}

/* Rows `first` .. `end` of x [1, R, width], if there is an x. */
static qn_status cut_rows(mlx_array *out, mlx_array x, int first, int end,
                          mlx_stream s)
{
    if (!x.ctx)
        return QN_OK;
    int start[3] = {0, first, 0}, step[3] = {1, 1, 1};
    int stop[3] = {1, end, mlx_array_dim(x, 2)};
    return qn_engine(mlx_slice(out, x, start, 3, stop, 3, step, 3, s));
}

/* Attention of those `shares` alone that follow one another in the step. */
static qn_status attend_run(const qn_kv_share *shares, size_t count, int first,
                            mlx_vector_array outs, const mlx_array qkv[3],
                            const qn_attention *how, mlx_stream s)
{
    mlx_array out = mlx_array_new(), rows[3];
    qn_status status = QN_OK;
    int end = first;
    for (size_t i = 0; i < count; i++)
        end += shares[i].count;
    for (int i = 0; i < 3; i++) {
        rows[i] = mlx_array_new();
        if (!status)
            status = cut_rows(&rows[i], qkv[i], first, end, s);
    }
    if (!status)
        status = shares->part->kind->attend(shares, count, &out, rows[0],
                                            rows[1], rows[2], how, s);
    if (!status)
        status = qn_engine(mlx_vector_array_append_value(outs, out));
    for (int i = 0; i < 3; i++)
        mlx_array_free(rows[i]);
    mlx_array_free(out);
    return status;
}

static bool alike(const qn_kv_share *a, const qn_kv_share *b)
{
    const qn_kv_kind *kind = a->part->kind;
    return kind == b->part->kind &&
           qn_kv_scheme_same(kind->scheme(a->part), kind->scheme(b->part));
}

/* Some sequences are converted and others not yet: stretches of equal ones are
 * computed one after the other. */
static qn_status attend_mixed(const qn_kv_share *shares, size_t count,
                              mlx_array *out, const mlx_array qkv[3],
                              const qn_attention *how, mlx_stream s)
{
    mlx_vector_array outs = mlx_vector_array_new();
    qn_status status = qn_engine_made(outs.ctx);
    int row = 0;
    for (size_t i = 0, end; i < count && !status; i = end) {
        int rows = 0;
        for (end = i; end < count && alike(&shares[i], &shares[end]); end++)
            rows += shares[end].count;
        status = attend_run(shares + i, end - i, row, outs, qkv, how, s);
        row += rows;
    }
    if (!status)
        status = qn_engine(mlx_concatenate_axis(out, outs, 1, s));
    if (outs.ctx)
        mlx_vector_array_free(outs);
    return status;
}

qn_status qn_kv_attend(const qn_kv_rows *rows, size_t count, mlx_array *out,
                       int layer, mlx_array q, mlx_array k, mlx_array v,
                       const qn_attention *how, mlx_stream s)
{
    assert(count);
    qn_kv_share one = {NULL, 0, 0, 0}, *shares = &one;
    if (count > 1)
        shares = qn_calloc(count, sizeof *shares);
    if (!shares)
        return QN_E_NOMEM;
    bool mixed = false;
    for (size_t i = 0; i < count; i++) {
        const qn_kv_cache *cache = rows[i].cache;
        assert(layer >= 0 && layer < cache->count);
        shares[i] = (qn_kv_share){cache->parts[layer], cache->length,
                                  rows[i].count, cache->expected};
        mixed = mixed || !alike(&shares[0], &shares[i]);
    }
    const qn_kv_kind *kind = shares->part->kind;
    qn_status status =
        mixed ? attend_mixed(shares, count, out, (mlx_array[]){q, k, v}, how, s)
              : kind->attend(shares, count, out, q, k, v, how, s);
    if (count > 1)
        qn_free(shares);
    return status;
}
