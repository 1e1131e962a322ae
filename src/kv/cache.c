/* cache.c: the parts of a cache and the step they share.  See cache.h. */
#include "cache.h"

#include "base/alloc.h"
#include "engine.h"
#include "kinds.h"

#include <assert.h>

struct qn_kv_cache {
    qn_kv_shape shape;
    int length;
    qn_kv_mask mask;
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

static void drop_mask(qn_kv_cache *cache)
{
    if (cache->mask.array.ctx)
        mlx_array_free(cache->mask.array);
    cache->mask.array = (mlx_array){NULL};
}

void qn_kv_cache_free(qn_kv_cache *cache)
{
    if (!cache)
        return;
    for (int i = 0; i < cache->count; i++)
        cache->parts[i]->kind->free(cache->parts[i]);
    drop_mask(cache);
    qn_free(cache->parts);
    qn_free(cache);
}

int qn_kv_cache_length(const qn_kv_cache *cache)
{
    return cache->length;
}

void qn_kv_cache_advance(qn_kv_cache *cache, int count)
{
    assert(count >= 0 && count <= cache->shape.limit - cache->length);
    cache->length += count;
    drop_mask(cache);
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
    drop_mask(cache);
    cache->length = 0;
}

size_t qn_kv_token_bytes(const qn_kv_shape *shape)
{
    return (size_t)shape->layers * 2 * (size_t)shape->kv_heads *
           (size_t)shape->head_dim * mlx_dtype_size(shape->dtype);
}

qn_status qn_kv_cache_arrays(const qn_kv_cache *cache, mlx_vector_array out)
{
    qn_status status = QN_OK;
    for (int i = 0; i < cache->count && !status; i++)
        status = cache->parts[i]->kind->arrays(cache->parts[i], out);
    return status;
}

qn_status qn_kv_attend(qn_kv_cache *cache, mlx_array *out, int layer,
                       mlx_array q, mlx_array k, mlx_array v,
                       const qn_attention *how, mlx_stream s)
{
    assert(layer >= 0 && layer < cache->count);
    qn_kv_part *part = cache->parts[layer];
    return part->kind->attend(part, out, cache->length, q, k, v, how,
                              &cache->mask, s);
}

qn_status qn_kv_window_mask(qn_kv_mask *mask, int offset, int count, int first,
                            int window)
{
    if (mask->array.ctx && mask->offset == offset && mask->count == count &&
        mask->first == first && mask->window == window)
        return QN_OK;
    int keys = offset + count - first;
    size_t size;
    if (!qn_mul_size(&size, (size_t)count, (size_t)keys))
        return qn_fail(QN_E_NOMEM, "attention mask: %d x %d", count, keys);
    bool *data = qn_alloc(size);
    if (!data)
        return QN_E_NOMEM;
    bool *row = data;
    for (int i = offset; i < offset + count; i++, row += keys)
        for (int j = 0; j < keys; j++)
            row[j] = j + first <= i && j + first > i - window;
    if (mask->array.ctx)
        mlx_array_free(mask->array);
    mask->array = mlx_array_new_data_managed(data, (int[]){count, keys}, 2,
                                             MLX_BOOL, qn_free);
    mask->offset = offset;
    mask->count = count;
    mask->first = first;
    mask->window = window;
    return qn_engine_made(mask->array.ctx);
}
