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

static const char *text_of(const source *from, const char *name)
{
    const char *value = NULL;
    return mlx_map_string_to_string_get(&value, from->texts, name) ? NULL
                                                                   : value;
}

/* Since mlx-lm 0.32 the list that is third begins with an empty text. */
static bool is_newer(const source *from)
{
    const char *first = text_of(from, "2.0");
    return first && !*first;
}

/* The class of a layer's cache, or NULL. */
static const char *class_of(const source *from, int layer)
{
    char name[NAME_SIZE];
    snprintf(name, sizeof name, "%d.%d", is_newer(from) ? 1 : 2, layer);
    return text_of(from, name);
}

qn_status qn_kv_import_check(bool *out, const char *path, mlx_stream s)
{
    source from;
    qn_status status = open_source(&from, path, s);
    if (!status)
        *out = class_of(&from, 0) && !text_of(&from, "format");
    close_source(&from);
    return status ? qn_fail_where(status, "%s", path) : QN_OK;
}

/* ---- what a layer says of itself ---- */

/* A number of a layer's state: an array of its own, or, in older files, a text
 * of the metadata.  False when it is not there. */
static bool number(const source *from, int layer, int newer, int older,
                   int *out)
{
    char name[NAME_SIZE];
    if (!is_newer(from)) {
        int end = 0;
        snprintf(name, sizeof name, "0.%d.%d", layer, older);
        const char *text = text_of(from, name);
        return text && sscanf(text, "%9d%n", out, &end) == 1 && !text[end];
    }
    mlx_array x = mlx_array_new();
    int32_t value = 0;
    snprintf(name, sizeof name, "%d.%d", layer, newer);
    bool good = !mlx_map_string_to_array_get(&x, from->arrays, name) &&
                mlx_array_dtype(x) == MLX_INT32 && mlx_array_size(x) == 1 &&
                !mlx_array_eval(x) && !mlx_array_item_int32(&value, x);
    mlx_array_free(x);
    *out = value;
    return good;
}

/* Tokens of a layer, of which its arrays may have room for more; -1 in older
 * files, whose arrays have just as many. */
static qn_status read_count(const source *from, int layer, int *out)
{
    *out = -1;
    if (!is_newer(from))
        return QN_OK;
    if (number(from, layer, 2, 0, out) && *out > 0)
        return QN_OK;
    return qn_fail(QN_E_FORMAT,
                   "prompt cache of mlx-lm: %d.2: expected a "
                   "number of tokens",
                   layer);
}

/* A ring that has not turned yet is a list; what it will drop must be what the
 * layer here will drop. */
static qn_status check_ring(const source *from, int layer,
                            const qn_kv_layer *shape)
{
    int offset, keep, most, next;
    if (!number(from, layer, 2, 2, &offset) ||
        !number(from, layer, 3, 0, &keep) ||
        !number(from, layer, 4, 1, &most) || !number(from, layer, 5, 3, &next))
        return qn_fail(QN_E_FORMAT,
                       "prompt cache of mlx-lm: layer %d: a RotatingKVCache "
                       "without offset, keep, size and index",
                       layer);
    if (offset > most || next != offset)
        return qn_fail(QN_E_UNSUPPORTED,
                       "prompt cache of mlx-lm: layer %d: a RotatingKVCache "
                       "of %d tokens that has seen %d: only one that has "
                       "dropped none can be read",
                       layer, most, offset);
    if (most != shape->window + shape->keep || keep != shape->keep)
        return qn_fail(QN_E_MISMATCH,
                       "prompt cache of mlx-lm: layer %d: expected %d tokens "
                       "of which the first %d stay (--max-kv-size), found a "
                       "RotatingKVCache of %d and %d",
                       layer, shape->window + shape->keep, shape->keep, most,
                       keep);
    return QN_OK;
}

/* Whether the layer here stores what the class does. */
static qn_status check_class(const source *from, int layer,
                             const qn_kv_layer *shape,
                             const qn_kv_scheme *scheme)
{
    const char *class = class_of(from, layer);
    bool packed = class && !strcmp(class, "QuantizedKVCache");
    bool ring = class && !strcmp(class, "RotatingKVCache");
    if (!class || (strcmp(class, "KVCache") != 0 && !packed && !ring))
        return qn_fail(QN_E_UNSUPPORTED,
                       "prompt cache of mlx-lm: layer %d: expected a KVCache, "
                       "QuantizedKVCache or RotatingKVCache, found %s",
                       layer, class ? class : "nothing");
    if (!scheme || scheme->key_bits || packed != (scheme->bits > 0))
        return qn_fail(QN_E_MISMATCH,
                       "prompt cache of mlx-lm: layer %d is a %s, which is not "
                       "how it is stored here (--kv %s)",
                       layer, class, packed ? "affine4, affine8" : "f16, f32");
    return ring ? check_ring(from, layer, shape) : QN_OK;
}

/* ---- arrays ---- */

/* One array of a layer: the first *count tokens (-1: all, and *count becomes
 * their number), of `cols` columns, in a type that the cache has. */
static qn_status take(const source *from, mlx_vector_array planes,
                      const char *name, int heads, int cols, mlx_dtype dtype,
                      int *count, mlx_stream s)
{
    mlx_array x = mlx_array_new(), cut = mlx_array_new(),
              cast = mlx_array_new();
    qn_status status = QN_OK;
    if (mlx_map_string_to_array_get(&x, from->arrays, name))
        status =
            qn_fail(QN_E_FORMAT, "prompt cache of mlx-lm: no tensor %s", name);
    bool shaped = !status && mlx_array_ndim(x) == 4 &&
                  mlx_array_dim(x, 0) == 1 && mlx_array_dim(x, 1) == heads &&
                  mlx_array_dim(x, 3) == cols &&
                  (dtype != MLX_UINT32 || mlx_array_dtype(x) == dtype);
    int there = shaped ? mlx_array_dim(x, 2) : 0;
    bool exact = !is_newer(from);
    if (shaped && *count < 0)
        *count = there;
    if (!status && (!shaped || (exact ? there != *count : there < *count)))
        status = qn_fail(QN_E_MISMATCH,
                         "prompt cache of mlx-lm: %s: expected [1, %d, tokens, "
                         "%d], the same tokens in all",
                         name, heads, cols);
    int start[4] = {0}, stop[4] = {1, heads, *count, cols};
    const int steps[4] = {1, 1, 1, 1};
    if (!status)
        status = qn_engine(mlx_slice(&cut, x, start, 4, stop, 4, steps, 4, s));
    if (!status)
        status = qn_engine(mlx_astype(&cast, cut, dtype, s));
    if (!status)
        status = qn_engine(mlx_vector_array_append_value(planes, cast));
    mlx_array_free(x);
    mlx_array_free(cut);
    mlx_array_free(cast);
    return status;
}

/* Keys or values: floats, or codes with their scales and biases. */
static qn_status take_side(const source *from, mlx_vector_array planes,
                           int layer, int side, const qn_kv_layer *shape,
                           const qn_kv_scheme *scheme, int *count, mlx_stream s)
{
    char name[NAME_SIZE];
    qn_status status = QN_OK;
    snprintf(name, sizeof name, "%d.%d", layer, side);
    if (!scheme->bits)
        return take(from, planes, name, shape->kv_heads, shape->head_dim,
                    scheme->dtype, count, s);
    for (int i = 0; i < 3 && !status; i++) {
        snprintf(name, sizeof name, "%d.%d.%d", layer, side, i);
        int cols = i ? shape->head_dim / scheme->group
                     : shape->head_dim * scheme->bits / 32;
        status = take(from, planes, name, shape->kv_heads, cols,
                      i ? scheme->dtype : MLX_UINT32, count, s);
    }
    return status;
}

static qn_status take_layer(const source *from, qn_kv_cache *cache, int layer,
                            int *length, mlx_stream s)
{
    qn_kv_part *part = cache->parts[layer];
    const qn_kv_scheme *scheme =
        part && part->kind->scheme ? part->kind->scheme(part) : NULL;
    const qn_kv_layer *shape = qn_kv_layer_of(&cache->shape, layer);
    int count = -1;
    qn_status status = check_class(from, layer, shape, scheme);
    if (!status)
        status = read_count(from, layer, &count);
    mlx_vector_array planes = mlx_vector_array_new();
    if (!status)
        status = qn_engine_made(planes.ctx);
    for (int i = 0; i < 2 && !status; i++)
        status = take_side(from, planes, layer, i, shape, scheme, &count, s);
    if (!status && (count < 1 || count > cache->shape.limit))
        status = qn_fail(QN_E_UNSUPPORTED,
                         "%d saved tokens do not fit the context of %d", count,
                         cache->shape.limit);
    if (!status && *length >= 0 && count != *length)
        status = qn_fail(QN_E_MISMATCH,
                         "prompt cache of mlx-lm: layer %d: expected %d "
                         "tokens, found %d",
                         layer, *length, count);
    *length = count;
    /* A layer with a window takes what the next token sees. */
    if (!status && part->kind->saved(part, count) != count)
        status = qn_fail(QN_E_UNSUPPORTED,
                         "prompt cache of mlx-lm: layer %d: more tokens than "
                         "its window has",
                         layer);
    if (!status)
        status = part->kind->write(part, count, planes, s);
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
