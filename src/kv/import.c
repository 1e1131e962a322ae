/* import.c: see import.h. */
#include "import.h"

#include "base/file.h"
#include "engine.h"
#include "kinds.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { NAME_SIZE = 32 };

typedef struct source {
    mlx_map_string_to_array arrays;
    mlx_map_string_to_string texts;
} source;

static qn_status open_source(source *from, const char *path, mlx_stream s)
{
    from->arrays = mlx_map_string_to_array_new();
    from->texts = mlx_map_string_to_string_new();
    qn_status status = qn_engine(!from->arrays.ctx || !from->texts.ctx);
    if (!status)
        status = qn_file_check(path);
    if (!status)
        status = qn_engine(
            mlx_load_safetensors(&from->arrays, &from->texts, path, s));
    /* The engine's checks of a file are the file's fault. */
    return status == QN_E_INTERNAL ? QN_E_FORMAT : status;
}

static void close_source(source *from)
{
    if (from->arrays.ctx)
        mlx_map_string_to_array_free(from->arrays);
    if (from->texts.ctx)
        mlx_map_string_to_string_free(from->texts);
}

/* The class of a layer's cache, or NULL. */
static const char *class_of(const source *from, int layer)
{
    const char *value = NULL;
    char name[NAME_SIZE];
    snprintf(name, sizeof name, "2.%d", layer);
    return mlx_map_string_to_string_get(&value, from->texts, name) ? NULL
                                                                   : value;
}

qn_status qn_kv_import_check(bool *out, const char *path, mlx_stream s)
{
    source from;
    qn_status status = open_source(&from, path, s);
    const char *format = NULL;
    if (!status)
        *out = class_of(&from, 0) &&
               mlx_map_string_to_string_get(&format, from.texts, "format");
    close_source(&from);
    return status ? qn_fail_where(status, "%s", path) : QN_OK;
}

/* One array of a layer, in the cache's type; *length is set by the first and
 * held against the others. */
static qn_status take(const source *from, mlx_vector_array planes, int layer,
                      int which, const qn_kv_layer *shape, mlx_dtype dtype,
                      int *length, mlx_stream s)
{
    char name[NAME_SIZE];
    mlx_array x = mlx_array_new(), cast = mlx_array_new();
    snprintf(name, sizeof name, "%d.%d", layer, which);
    qn_status status = QN_OK;
    if (mlx_map_string_to_array_get(&x, from->arrays, name))
        status =
            qn_fail(QN_E_FORMAT, "prompt cache of mlx-lm: no tensor %s", name);
    bool shaped = !status && mlx_array_ndim(x) == 4 &&
                  mlx_array_dim(x, 0) == 1 &&
                  mlx_array_dim(x, 1) == shape->kv_heads &&
                  mlx_array_dim(x, 3) == shape->head_dim;
    if (shaped && *length < 0)
        *length = mlx_array_dim(x, 2);
    if (!status && (!shaped || mlx_array_dim(x, 2) != *length))
        status = qn_fail(QN_E_MISMATCH,
                         "prompt cache of mlx-lm: %s: expected [1, %d, tokens, "
                         "%d], the same tokens in all",
                         name, shape->kv_heads, shape->head_dim);
    if (!status)
        status = qn_engine(mlx_astype(&cast, x, dtype, s));
    if (!status)
        status = qn_engine(mlx_vector_array_append_value(planes, cast));
    mlx_array_free(x);
    mlx_array_free(cast);
    return status;
}

static qn_status take_layer(const source *from, qn_kv_cache *cache, int layer,
                            int *length, mlx_stream s)
{
    qn_kv_part *part = cache->parts[layer];
    const qn_kv_scheme *scheme =
        part && part->kind->scheme ? part->kind->scheme(part) : NULL;
    const char *class = class_of(from, layer);
    if (!class || strcmp(class, "KVCache") != 0)
        return qn_fail(QN_E_UNSUPPORTED,
                       "prompt cache of mlx-lm: layer %d: expected a KVCache, "
                       "found %s",
                       layer, class ? class : "nothing");
    if (!scheme || scheme->bits || scheme->key_bits)
        return qn_fail(QN_E_MISMATCH,
                       "prompt cache of mlx-lm: layer %d is not stored as "
                       "floats here",
                       layer);
    mlx_vector_array planes = mlx_vector_array_new();
    qn_status status = qn_engine_made(planes.ctx);
    const qn_kv_layer *shape = qn_kv_layer_of(&cache->shape, layer);
    for (int i = 0; i < 2 && !status; i++)
        status = take(from, planes, layer, i, shape, scheme->dtype, length, s);
    if (!status && (*length < 1 || *length > cache->shape.limit))
        status = qn_fail(QN_E_UNSUPPORTED,
                         "%d saved tokens do not fit the context of %d",
                         *length, cache->shape.limit);
    if (!status)
        status = part->kind->write(part, *length, planes, s);
    if (planes.ctx)
        mlx_vector_array_free(planes);
    return status;
}

qn_status qn_kv_import(qn_kv_cache *cache, const char *path, mlx_stream s)
{
    source from;
    int length = -1;
    assert(!cache->length);
    qn_status status = open_source(&from, path, s);
    for (int i = 0; i < cache->count && !status; i++)
        status = take_layer(&from, cache, i, &length, s);
    if (!status && class_of(&from, cache->count))
        status = qn_fail(QN_E_MISMATCH,
                         "prompt cache of mlx-lm: expected %d layers, found "
                         "more",
                         cache->count);
    close_source(&from);
    if (!status) {
        cache->length = length;
        return QN_OK;
    }
    qn_kv_cache_reset(cache);
    return qn_fail_where(status, "%s", path);
}
