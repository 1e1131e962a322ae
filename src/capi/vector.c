/* vector.c: growing lists of five kinds of items.
 *
 * A kind says how an item is stored and how one is made from what the caller
 * passes; the rest is common.  A new list is complete before it takes the place
 * of an old one, so nothing changes when something fails, and a list may be
 * assigned to itself. */
#include "handles.h"

#include "base/alloc.h"

#include <string.h>

typedef struct kind {
    size_t passed, stored; /* bytes of an item */
    /* Fill *to; the item is then dropped by `drop` (NULL: nothing to do). */
    qn_status (*take)(void *to, const void *passed);
    qn_status (*copy)(void *to, const void *stored);
    void (*drop)(void *stored);
} kind;

/* ---- what is common ---- */

static void *item(const kind *k, const qn_list *list, size_t i)
{
    return (char *)list->items + i * k->stored;
}

/* Drops the items from `size` on. */
static void cut(const kind *k, qn_list *list, size_t size)
{
    while (list->size > size) {
        list->size--;
        if (k->drop)
            k->drop(item(k, list, list->size));
    }
}

static void clear(const kind *k, qn_list *list)
{
    cut(k, list, 0);
    qn_free(list->items);
    *list = (qn_list){0};
}

static qn_status reserve(const kind *k, qn_list *list, size_t more)
{
    size_t needed, larger = list->capacity + list->capacity / 2;
    if (!qn_add_size(&needed, list->size, more))
        needed = SIZE_MAX; /* refused below */
    if (needed <= list->capacity)
        return QN_OK;
    if (larger < needed)
        larger = needed;
    void *items = qn_reallocarray(list->items, larger, k->stored);
    if (!items)
        return QN_E_NOMEM;
    list->items = items;
    list->capacity = larger;
    return QN_OK;
}

/* Appends items made by `make` from `size` others, `step` bytes apart; all or
 * none. */
static qn_status append(const kind *k, qn_list *list, const void *data,
                        size_t size, size_t step,
                        qn_status (*make)(void *to, const void *from))
{
    size_t before = list->size;
    qn_status status = reserve(k, list, size);
    for (size_t i = 0; i < size && !status; i++) {
        status = make(item(k, list, list->size), (const char *)data + i * step);
        if (!status)
            list->size++;
    }
    if (status)
        cut(k, list, before);
    return status;
}

static qn_status append_passed(const kind *k, qn_list *list, const void *data,
                               size_t size)
{
    return append(k, list, data, size, k->passed, k->take);
}

static qn_status copy_list(const kind *k, qn_list *to, const qn_list *from)
{
    *to = (qn_list){0};
    qn_status status =
        append(k, to, from->items, from->size, k->stored, k->copy);
    if (status)
        clear(k, to);
    return status;
}

/* Takes what `fresh` holds over, also on failure. */
static qn_status store(const kind *k, void **ctx, qn_list *fresh)
{
    qn_list *box = *ctx;
    if (!box) {
        box = qn_calloc(1, sizeof *box);
        if (!box) {
            clear(k, fresh);
            return QN_E_NOMEM;
        }
        *ctx = box;
    }
    qn_list before = *box;
    *box = *fresh;
    clear(k, &before);
    return QN_OK;
}

static qn_status store_passed(const kind *k, void **ctx, const void *data,
                              size_t size)
{
    qn_list fresh = {0};
    qn_status status = append_passed(k, &fresh, data, size);
    if (status) {
        clear(k, &fresh);
        return status;
    }
    return store(k, ctx, &fresh);
}

static qn_status store_copy(const kind *k, void **ctx, const qn_list *from)
{
    qn_list fresh;
    qn_status status = copy_list(k, &fresh, from);
    return status ? status : store(k, ctx, &fresh);
}

static qn_status in_range(const qn_list *list, size_t i)
{
    if (i < list->size)
        return QN_OK;
    return qn_fail(QN_E_ARG,
                   "[vector] index %zu is out of range for %zu elements", i,
                   list->size);
}

/* ---- the five kinds ---- */

static qn_status take_array(void *to, const void *passed)
{
    qn_array *array = qn_handle_array(*(const mlx_array *)passed);
    if (!array)
        return qn_fail(QN_E_ARG, "expected a non-empty mlx_array");
    *(qn_array **)to = qn_array_ref(array);
    return QN_OK;
}

static qn_status copy_array(void *to, const void *stored)
{
    *(qn_array **)to = qn_array_ref(*(qn_array *const *)stored);
    return QN_OK;
}

static void drop_array(void *stored)
{
    qn_array_unref(*(qn_array **)stored);
}

static const kind arrays = {sizeof(mlx_array), sizeof(qn_array *), take_array,
                            copy_array, drop_array};

static qn_status copy_arrays(void *to, const void *stored)
{
    return copy_list(&arrays, to, stored);
}

static qn_status take_arrays(void *to, const void *passed)
{
    const qn_list *list = qn_handle_arrays(*(const mlx_vector_array *)passed);
    if (!list)
        return qn_fail(QN_E_ARG, "expected a non-empty mlx_vector_array");
    return copy_arrays(to, list);
}

static void drop_arrays(void *stored)
{
    clear(&arrays, stored);
}

static const kind lists = {sizeof(mlx_vector_array), sizeof(qn_list),
                           take_arrays, copy_arrays, drop_arrays};

static qn_status copy_int(void *to, const void *from)
{
    *(int *)to = *(const int *)from;
    return QN_OK;
}

static const kind ints = {sizeof(int), sizeof(int), copy_int, copy_int, NULL};

static qn_status copy_text(void *to, const void *from)
{
    char *copy = qn_strdup(*(const char *const *)from);
    if (!copy)
        return QN_E_NOMEM;
    *(char **)to = copy;
    return QN_OK;
}

static void drop_text(void *stored)
{
    qn_free(*(char **)stored);
}

static const kind texts = {sizeof(char *), sizeof(char *), copy_text, copy_text,
                           drop_text};

static qn_status take_stream(void *to, const void *passed)
{
    qn_stream *stream = qn_handle_stream(*(const mlx_stream *)passed);
    if (!stream)
        return qn_fail(QN_E_ARG, "expected a non-empty mlx_stream");
    *(qn_stream **)to = stream;
    return QN_OK;
}

static qn_status copy_stream(void *to, const void *stored)
{
    *(qn_stream **)to = *(qn_stream *const *)stored;
    return QN_OK;
}

static const kind streams = {sizeof(mlx_stream), sizeof(qn_stream *),
                             take_stream, copy_stream, NULL};

/* ---- the functions of the API ---- */

/* All of a type's but _get: `pointer` and `value` are the types in which items
 * are passed. */
#define QN_VECTOR(vector, kind, pointer, value)                                \
    vector vector##_new(void)                                                  \
    {                                                                          \
        return vector##_new_data(NULL, 0);                                     \
    }                                                                          \
    vector vector##_new_data(pointer data, size_t size)                        \
    {                                                                          \
        vector res = {NULL};                                                   \
        QN_CALL_OR(store_passed(&kind, &res.ctx, data, size), res);            \
        return res;                                                            \
    }                                                                          \
    vector vector##_new_value(value val)                                       \
    {                                                                          \
        vector res = {NULL};                                                   \
        QN_CALL_OR(store_passed(&kind, &res.ctx, &val, 1), res);               \
        return res;                                                            \
    }                                                                          \
    int vector##_set(vector *vec, const vector src)                            \
    {                                                                          \
        QN_GET_OR(const qn_list, list, src.ctx, vector, 1);                    \
        return QN_STORE(store_copy(&kind, &vec->ctx, list));                   \
    }                                                                          \
    int vector##_set_data(vector *vec, pointer data, size_t size)              \
    {                                                                          \
        return QN_STORE(store_passed(&kind, &vec->ctx, data, size));           \
    }                                                                          \
    int vector##_set_value(vector *vec, value val)                             \
    {                                                                          \
        return QN_STORE(store_passed(&kind, &vec->ctx, &val, 1));              \
    }                                                                          \
    int vector##_append_data(vector vec, pointer data, size_t size)            \
    {                                                                          \
        QN_GET_OR(qn_list, list, vec.ctx, vector, 1);                          \
        return QN_STORE(append_passed(&kind, list, data, size));               \
    }                                                                          \
    int vector##_append_value(vector vec, value val)                           \
    {                                                                          \
        QN_GET_OR(qn_list, list, vec.ctx, vector, 1);                          \
        return QN_STORE(append_passed(&kind, list, &val, 1));                  \
    }                                                                          \
    size_t vector##_size(vector vec)                                           \
    {                                                                          \
        QN_GET_OR(const qn_list, list, vec.ctx, vector, 0);                    \
        return list->size;                                                     \
    }                                                                          \
    int vector##_free(vector vec)                                              \
    {                                                                          \
        qn_list *list = vec.ctx;                                               \
        if (list)                                                              \
            clear(&kind, list);                                                \
        qn_free(list);                                                         \
        return 0;                                                              \
    }

QN_VECTOR(mlx_vector_array, arrays, const mlx_array *, const mlx_array)
QN_VECTOR(mlx_vector_vector_array, lists, const mlx_vector_array *,
          const mlx_vector_array)
QN_VECTOR(mlx_vector_int, ints, int *, int)
QN_VECTOR(mlx_vector_string, texts, const char **, const char *)
QN_VECTOR(mlx_vector_stream, streams, const mlx_stream *, const mlx_stream)

/* Declares `list` for _get: the list, if it has element `idx`. */
#define QN_GET_ELEMENT(list, vec, vector, idx)                                 \
    QN_GET_OR(const qn_list, list, (vec).ctx, vector, 1);                      \
    QN_CALL(in_range(list, idx))

int mlx_vector_array_get(mlx_array *res, const mlx_vector_array vec, size_t idx)
{
    QN_GET_ELEMENT(list, vec, mlx_vector_array, idx);
    return QN_STORE_ARRAY(res, qn_array_ref(list->data[idx]));
}

int mlx_vector_vector_array_get(mlx_vector_array *res,
                                const mlx_vector_vector_array vec, size_t idx)
{
    QN_GET_ELEMENT(list, vec, mlx_vector_vector_array, idx);
    return QN_STORE(store_copy(&arrays, &res->ctx, &list->lists[idx]));
}

int mlx_vector_int_get(int *res, const mlx_vector_int vec, size_t idx)
{
    QN_GET_ELEMENT(list, vec, mlx_vector_int, idx);
    *res = list->ints[idx];
    return 0;
}

int mlx_vector_string_get(char **res, const mlx_vector_string vec, size_t idx)
{
    QN_GET_ELEMENT(list, vec, mlx_vector_string, idx);
    *res = list->texts[idx];
    return 0;
}

int mlx_vector_stream_get(mlx_stream *res, const mlx_vector_stream vec,
                          size_t idx)
{
    QN_GET_ELEMENT(list, vec, mlx_vector_stream, idx);
    return QN_STORE_STREAM(res, list->streams[idx]);
}

/* ---- results of other entries ---- */

qn_status qn_handle_set_arrays(mlx_vector_array *res, qn_array *const *data,
                               size_t count)
{
    /* The references are there already, so copy the list as it is. */
    qn_list fresh = {0};
    qn_status status = reserve(&arrays, &fresh, count);
    if (status) {
        for (size_t i = 0; i < count; i++)
            qn_array_unref(data[i]);
        return status;
    }
    if (count)
        memcpy(fresh.data, data, count * sizeof *data);
    fresh.size = count;
    return store(&arrays, &res->ctx, &fresh);
}

qn_status qn_handle_set_strings(mlx_vector_string *res, const char *const *data,
                                size_t count)
{
    return store_passed(&texts, &res->ctx, data, count);
}

qn_status qn_handle_copy_arrays(mlx_vector_array *res, const qn_list *list)
{
    return store_copy(&arrays, &res->ctx, list);
}

qn_status qn_handle_set_streams(mlx_vector_stream *res, qn_stream *const *data,
                                size_t count)
{
    qn_list fresh = {0};
    qn_status status =
        append(&streams, &fresh, data, count, sizeof *data, streams.copy);
    return status ? status : store(&streams, &res->ctx, &fresh);
}
