/* map.c: maps from text to arrays and to text, and positions in them.
 *
 * Keys are stored with their terminating zero, so that they can be lent out. */
#include "handles.h"

#include "base/alloc.h"
#include "base/map.h"

#include <string.h>

typedef struct map_box {
    qn_map *map;
} map_box;

typedef struct position {
    size_t next;
} position;

/* How values are shared or copied, and dropped. */
typedef struct kind {
    void *(*copy)(void *value); /* NULL on allocation failure */
    void (*drop)(void *value);
} kind;

static void *share_array(void *value)
{
    return qn_array_ref(value);
}
static void drop_array(void *value)
{
    qn_array_unref(value);
}
static void *copy_text(void *value)
{
    return qn_strdup(value);
}

static const kind arrays = {share_array, drop_array};
static const kind texts = {copy_text, qn_free};

static qn_str key_of(const char *key)
{
    return (qn_str){key, strlen(key) + 1};
}

/* Takes `value` over, also on failure. */
static qn_status put(const kind *k, qn_map *map, qn_str key, void *value)
{
    if (!value)
        return QN_E_NOMEM;
    qn_map_value *slot = qn_map_put(map, key, NULL);
    if (!slot) {
        k->drop(value);
        return QN_E_NOMEM;
    }
    void *before = slot->ptr;
    slot->ptr = value;
    if (before)
        k->drop(before);
    return QN_OK;
}

static qn_status copy_map(const kind *k, qn_map **out, const qn_map *from)
{
    qn_map *map = qn_map_new(from ? qn_map_size(from) : 0);
    qn_status status = map ? QN_OK : QN_E_NOMEM;
    for (size_t i = 0; !status && from && i < qn_map_size(from); i++)
        status = put(k, map, qn_map_key_at(from, i),
                     k->copy(qn_map_value_at(from, i)->ptr));
    if (status) {
        qn_map_free(map, k->drop);
        return status;
    }
    *out = map;
    return QN_OK;
}

/* Stores a copy of `from` (NULL: an empty map). */
static qn_status store_copy(const kind *k, void **ctx, const qn_map *from)
{
    qn_map *fresh;
    qn_status status = copy_map(k, &fresh, from);
    if (status)
        return status;
    map_box *box = *ctx;
    if (!box) {
        box = qn_calloc(1, sizeof *box);
        if (!box) {
            qn_map_free(fresh, k->drop);
            return QN_E_NOMEM;
        }
        *ctx = box;
    }
    qn_map *before = box->map;
    box->map = fresh;
    qn_map_free(before, k->drop);
    return QN_OK;
}

static void free_map(const kind *k, map_box *box)
{
    if (box)
        qn_map_free(box->map, k->drop);
    qn_free(box);
}

static qn_status new_position(void **ctx)
{
    position *at = qn_calloc(1, sizeof *at);
    if (!at)
        return QN_E_NOMEM;
    *ctx = at;
    return QN_OK;
}

/* The next entry's value, whose key goes to *key; NULL at the end. */
static void *next(const char **key, position *at, const map_box *box)
{
    if (at->next >= qn_map_size(box->map))
        return NULL;
    size_t i = at->next++;
    *key = qn_map_key_at(box->map, i).data;
    return qn_map_value_at(box->map, i)->ptr;
}

/* ---- the functions of the API ---- */

/* What the two types have alike. */
#define QN_MAP(map_type, kind)                                                 \
    map_type map_type##_new(void)                                              \
    {                                                                          \
        map_type res = {NULL};                                                 \
        QN_CALL_OR(store_copy(&kind, &res.ctx, NULL), res);                    \
        return res;                                                            \
    }                                                                          \
    int map_type##_set(map_type *map, const map_type src)                      \
    {                                                                          \
        QN_GET_OR(const map_box, box, src.ctx, map_type, 1);                   \
        return QN_STORE(store_copy(&kind, &map->ctx, box->map));               \
    }                                                                          \
    int map_type##_free(map_type map)                                          \
    {                                                                          \
        free_map(&kind, map.ctx);                                              \
        return 0;                                                              \
    }                                                                          \
    map_type##_iterator map_type##_iterator_new(map_type map)                  \
    {                                                                          \
        map_type##_iterator res = {NULL, map.ctx};                             \
        if (!map.ctx)                                                          \
            QN_REPORT_EMPTY(map_type);                                         \
        else                                                                   \
            QN_CALL_OR(new_position(&res.ctx), res);                           \
        return res;                                                            \
    }                                                                          \
    int map_type##_iterator_free(map_type##_iterator it)                       \
    {                                                                          \
        qn_free(it.ctx);                                                       \
        return 0;                                                              \
    }

QN_MAP(mlx_map_string_to_array, arrays)
QN_MAP(mlx_map_string_to_string, texts)

int mlx_map_string_to_array_insert(mlx_map_string_to_array map, const char *key,
                                   const mlx_array value)
{
    QN_GET_OR(map_box, box, map.ctx, mlx_map_string_to_array, 1);
    QN_GET_ARRAY(array, value);
    QN_CALL(put(&arrays, box->map, key_of(key), qn_array_ref(array)));
    return 0;
}

int mlx_map_string_to_string_insert(mlx_map_string_to_string map,
                                    const char *key, const char *value)
{
    QN_GET_OR(map_box, box, map.ctx, mlx_map_string_to_string, 1);
    QN_CALL(put(&texts, box->map, key_of(key), qn_strdup(value)));
    return 0;
}

/* 2, without a report, says that the key is not there. */
int mlx_map_string_to_array_get(mlx_array *value,
                                const mlx_map_string_to_array map,
                                const char *key)
{
    QN_GET_OR(const map_box, box, map.ctx, mlx_map_string_to_array, 1);
    const qn_map_value *slot = qn_map_get(box->map, key_of(key));
    return slot ? QN_STORE_ARRAY(value, qn_array_ref(slot->ptr)) : 2;
}

int mlx_map_string_to_string_get(const char **value,
                                 const mlx_map_string_to_string map,
                                 const char *key)
{
    QN_GET_OR(const map_box, box, map.ctx, mlx_map_string_to_string, 1);
    const qn_map_value *slot = qn_map_get(box->map, key_of(key));
    if (!slot)
        return 2;
    *value = slot->ptr;
    return 0;
}

int mlx_map_string_to_array_iterator_next(const char **key, mlx_array *value,
                                          mlx_map_string_to_array_iterator it)
{
    QN_GET_OR(position, at, it.ctx, mlx_map_string_to_array_iterator, 1);
    qn_array *array = next(key, at, it.map_ctx);
    return array ? QN_STORE_ARRAY(value, qn_array_ref(array)) : 2;
}

int mlx_map_string_to_string_iterator_next(const char **key, const char **value,
                                           mlx_map_string_to_string_iterator it)
{
    QN_GET_OR(position, at, it.ctx, mlx_map_string_to_string_iterator, 1);
    const char *text = next(key, at, it.map_ctx);
    if (!text)
        return 2;
    *value = text;
    return 0;
}

/* ---- for closures and files ---- */

qn_status qn_handle_copy_map(mlx_map_string_to_array *res,
                             mlx_map_string_to_array map)
{
    return store_copy(&arrays, &res->ctx, ((const map_box *)map.ctx)->map);
}

const qn_map *qn_handle_array_map(mlx_map_string_to_array map)
{
    return map.ctx ? ((const map_box *)map.ctx)->map : NULL;
}

const qn_map *qn_handle_text_map(mlx_map_string_to_string map)
{
    return map.ctx ? ((const map_box *)map.ctx)->map : NULL;
}

/* The box that *ctx names or a new one. */
static map_box *need_box(void **ctx)
{
    return *ctx ? *ctx : qn_calloc(1, sizeof(map_box));
}

static void fill_box(void **ctx, map_box *box, qn_map *map, const kind *k)
{
    qn_map *before = box->map;
    box->map = map;
    *ctx = box;
    qn_map_free(before, k->drop);
}

qn_status qn_handle_set_maps(mlx_map_string_to_array *res_0, qn_map *map_0,
                             mlx_map_string_to_string *res_1, qn_map *map_1)
{
    map_box *box_0 = need_box(&res_0->ctx);
    map_box *box_1 = box_0 ? need_box(&res_1->ctx) : NULL;
    if (!box_1) {
        if (!res_0->ctx)
            qn_free(box_0);
        qn_map_free(map_0, arrays.drop);
        qn_map_free(map_1, texts.drop);
        return QN_E_NOMEM;
    }
    fill_box(&res_0->ctx, box_0, map_0, &arrays);
    fill_box(&res_1->ctx, box_1, map_1, &texts);
    return QN_OK;
}

qn_status qn_handle_set_map(mlx_map_string_to_array *res, qn_map *map)
{
    map_box *box = need_box(&res->ctx);
    if (box)
        fill_box(&res->ctx, box, map, &arrays);
    else
        qn_map_free(map, arrays.drop);
    return box ? QN_OK : QN_E_NOMEM;
}
