/* cache.c: the parts of a cache and the step they share.  See cache.h. */
#include "cache.h"

#include "base/alloc.h"
#include "engine.h"
#include "kinds.h"

#include <assert.h>

struct qn_kv_cache {
    qn_kv_shape shape;
    int length;
    int expected; /* tokens that are on the way */
    int count;
    qn_kv_part **parts;
};

qn_status qn_kv_cache_new(qn_kv_cache **out, const qn_kv_shape *shape)
{
    qn_kv_cache *cache = qn_calloc(1, sizeof *cache);
    if (!cache)
        return QN_E_NOMEM;
    cache->shape = *shape;
    cache->parts = qn_calloc((size_t)shape->layers, sizeof(qn_kv_part *));
    if (!cache->parts)
        goto fail;
    for (; cache->count < shape->layers; cache->count++) {
        cache->parts[cache->count] = qn_kv_full_new(shape);
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
    cache->length += count;
}

bool qn_kv_cache_trim(qn_kv_cache *cache, int length)
{
    assert(length >= 0 && length <= cache->length);
    for (int i = 0; i < cache->count; i++) {
        qn_kv_part *part = cache->parts[i];
        if (!part->kind->trim(part, cache->length, length))
            return false;
    }
    cache->length = length;
    return true;
}

void qn_kv_cache_reset(qn_kv_cache *cache)
{
    for (int i = 0; i < cache->count; i++)
        cache->parts[i]->kind->reset(cache->parts[i]);
    cache->length = cache->expected = 0;
}

size_t qn_kv_token_bytes(const qn_kv_shape *shape)
{
    size_t d = (size_t)shape->head_dim, item = mlx_dtype_size(shape->dtype);
    size_t row = shape->bits ? d * (size_t)shape->bits / 8 +
                                   2 * d / (size_t)shape->group * item
                             : d * item;
    return (size_t)shape->layers * 2 * (size_t)shape->kv_heads * row;
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
    for (size_t i = 0; i < count; i++) {
        const qn_kv_cache *cache = rows[i].cache;
        assert(layer >= 0 && layer < cache->count);
        shares[i] = (qn_kv_share){cache->parts[layer], cache->length,
                                  rows[i].count, cache->expected};
    }
    const qn_kv_kind *kind = rows->cache->parts[layer]->kind;
    qn_status status = kind->attend(shares, count, out, q, k, v, how, s);
    if (count > 1)
        qn_free(shares);
    return status;
}
