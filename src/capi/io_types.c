/* io_types.c: the caller's streams, and the contents of GGUF files.
 *
 * The ctx of a reader or writer is the stream itself (io/stream.h), that of
 * GGUF contents a qn_gguf_contents. */
#include "handles.h"

#include "base/alloc.h"
#include "io/gguf.h"
#include "io/stream.h"
#include "ops_entry.h"

/* ---- readers and writers ---- */

static void *new_stream(const char *kind, void *desc, const mlx_io_vtable *t)
{
    const qn_io_calls calls = {
        .is_open = t->is_open,
        .good = t->good,
        .tell = t->tell,
        .seek = t->seek,
        .read = t->read,
        .read_at_offset = t->read_at_offset,
        .write = t->write,
        .label = t->label,
        .free = t->free,
    };
    qn_io *io;
    QN_CALL_OR(qn_io_new(&io, kind, desc, &calls, SIZE_MAX), NULL);
    return io;
}

/* What readers and writers have alike. */
#define QN_STREAM(type)                                                        \
    type type##_new(void *desc, mlx_io_vtable vtable)                          \
    {                                                                          \
        return (type){new_stream(#type, desc, &vtable)};                       \
    }                                                                          \
    int type##_descriptor(void **desc_, type io)                               \
    {                                                                          \
        QN_GET_OR(const qn_io, stream, io.ctx, type, 1);                       \
        *desc_ = qn_io_descriptor(stream);                                     \
        return 0;                                                              \
    }                                                                          \
    int type##_tostring(mlx_string *str_, type io)                             \
    {                                                                          \
        QN_GET_OR(const qn_io, stream, io.ctx, type, 1);                       \
        const char *label = qn_io_label(stream);                               \
        return QN_STORE_STRING(str_, label, strlen(label));                    \
    }                                                                          \
    int type##_free(type io)                                                   \
    {                                                                          \
        qn_io_unref(io.ctx);                                                   \
        return 0;                                                              \
    }

QN_STREAM(mlx_io_reader)
QN_STREAM(mlx_io_writer)

/* ---- contents of a GGUF file ---- */

#define QN_GET_CONTENTS(name, handle)                                          \
    QN_GET_OR(qn_gguf_contents, name, (handle).ctx, mlx_io_gguf, 1)

mlx_io_gguf mlx_io_gguf_new(void)
{
    mlx_io_gguf res = {NULL};
    qn_gguf_contents *contents = qn_alloc(sizeof *contents);
    qn_status status = contents ? qn_gguf_contents_new(contents) : QN_E_NOMEM;
    if (status) {
        qn_free(contents);
        QN_REPORT();
        return res;
    }
    res.ctx = contents;
    return res;
}

int mlx_io_gguf_free(mlx_io_gguf io)
{
    if (io.ctx)
        qn_gguf_contents_free(io.ctx);
    qn_free(io.ctx);
    return 0;
}

static qn_str key_of(const char *key)
{
    key = qn_capi_text(key);
    return (qn_str){key, strlen(key) + 1};
}

int mlx_io_gguf_get_keys(mlx_vector_string *keys, mlx_io_gguf io)
{
    QN_GET_CONTENTS(contents, io);
    size_t count = qn_map_size(contents->arrays);
    const char **names = qn_reallocarray(NULL, count, sizeof *names);
    if (!names)
        return QN_REPORT();
    for (size_t i = 0; i < count; i++)
        names[i] = qn_map_key_at(contents->arrays, i).data;
    qn_status status = qn_handle_set_strings(keys, names, count);
    qn_free(names);
    return QN_STORE(status);
}

/* 2, without a report, says that the key is not there. */
int mlx_io_gguf_get_array(mlx_array *arr, mlx_io_gguf io, const char *key)
{
    QN_GET_CONTENTS(contents, io);
    const qn_map_value *slot = qn_map_get(contents->arrays, key_of(key));
    return slot ? QN_STORE_ARRAY(arr, qn_array_ref(slot->ptr)) : 2;
}

/* NULL: there is none. */
static const qn_meta *find_meta(const qn_gguf_contents *contents,
                                const char *key)
{
    const qn_map_value *slot = qn_map_get(contents->metadata, key_of(key));
    return slot ? slot->ptr : NULL;
}

/* 3, likewise, says that the value is of another kind. */
#define QN_META(kind, type, store)                                             \
    int mlx_io_gguf_get_metadata_##kind(type *res, mlx_io_gguf io,             \
                                        const char *key)                       \
    {                                                                          \
        QN_GET_CONTENTS(contents, io);                                         \
        const qn_meta *meta = find_meta(contents, key);                        \
        if (!meta)                                                             \
            return 2;                                                          \
        return is_##kind(meta) ? QN_STORE(store) : 3;                          \
    }                                                                          \
    int mlx_io_gguf_has_metadata_##kind(bool *flag, mlx_io_gguf io,            \
                                        const char *key)                       \
    {                                                                          \
        *flag = false;                                                         \
        QN_GET_CONTENTS(contents, io);                                         \
        const qn_meta *meta = find_meta(contents, key);                        \
        if (!meta)                                                             \
            return 2;                                                          \
        *flag = is_##kind(meta);                                               \
        return 0;                                                              \
    }

static bool is_array(const qn_meta *meta)
{
    return meta->kind == QN_META_ARRAY;
}
static bool is_string(const qn_meta *meta)
{
    return meta->kind == QN_META_TEXT;
}
static bool is_vector_string(const qn_meta *meta)
{
    return meta->kind == QN_META_TEXTS;
}

QN_META(array, mlx_array, qn_handle_set_array(res, qn_array_ref(meta->array)))
QN_META(string, mlx_string,
        qn_handle_set_string(res, meta->texts[0], strlen(meta->texts[0])))
QN_META(vector_string, mlx_vector_string,
        qn_handle_set_strings(res, (const char *const *)meta->texts,
                              meta->count))

int mlx_io_gguf_set_array(mlx_io_gguf io, const char *key, const mlx_array arr)
{
    QN_GET_CONTENTS(contents, io);
    QN_GET_ARRAY(array, arr);
    QN_CALL(
        qn_gguf_set_array(contents, qn_capi_text(key), qn_array_ref(array)));
    return 0;
}

int mlx_io_gguf_set_metadata_array(mlx_io_gguf io, const char *key,
                                   const mlx_array marr)
{
    QN_GET_CONTENTS(contents, io);
    QN_GET_ARRAY(array, marr);
    QN_CALL(qn_gguf_set_meta(contents, qn_capi_text(key),
                             qn_meta_of_array(qn_array_ref(array))));
    return 0;
}

int mlx_io_gguf_set_metadata_string(mlx_io_gguf io, const char *key,
                                    const char *mstr)
{
    QN_GET_CONTENTS(contents, io);
    QN_CALL(qn_gguf_set_meta(contents, qn_capi_text(key),
                             qn_meta_of_text(qn_str_of(qn_capi_text(mstr)))));
    return 0;
}

int mlx_io_gguf_set_metadata_vector_string(mlx_io_gguf io, const char *key,
                                           const mlx_vector_string mvstr)
{
    QN_GET_CONTENTS(contents, io);
    QN_GET_OR(const qn_list, list, mvstr.ctx, mlx_vector_string, 1);
    qn_str *texts = qn_reallocarray(NULL, list->size, sizeof *texts);
    if (!texts)
        return QN_REPORT();
    for (size_t i = 0; i < list->size; i++)
        texts[i] = qn_str_of(list->texts[i]);
    qn_status status = qn_gguf_set_meta(contents, qn_capi_text(key),
                                        qn_meta_of_texts(texts, list->size));
    qn_free(texts);
    QN_CALL(status);
    return 0;
}
