/* safetensors.c: see safetensors.h. */
#include "safetensors.h"

#include "base/alloc.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "base/utf8.h"
#include "elements.h"

#include <limits.h>
#include <stdlib.h>

enum { HEADER_MAX = 100000000, ALIGNMENT = 8 };

/* name in the file, dtype; the first row of a dtype is written. */
static const struct {
    qn_st_dtype stored;
    qn_dtype dtype;
} types[] = {
    {QN_ST_BOOL, QN_BOOL},     {QN_ST_U8, QN_UINT8},
    {QN_ST_I8, QN_INT8},       {QN_ST_U16, QN_UINT16},
    {QN_ST_I16, QN_INT16},     {QN_ST_U32, QN_UINT32},
    {QN_ST_I32, QN_INT32},     {QN_ST_U64, QN_UINT64},
    {QN_ST_I64, QN_INT64},     {QN_ST_F16, QN_FLOAT16},
    {QN_ST_BF16, QN_BFLOAT16}, {QN_ST_F32, QN_FLOAT32},
    {QN_ST_C64, QN_COMPLEX64}, {QN_ST_F8_E4M3, QN_UINT8},
    {QN_ST_F8_E8M0, QN_UINT8},
};
enum { TYPES = sizeof types / sizeof *types };

/* ---- loading ---- */

static qn_status load_tensor(qn_map *arrays, const qn_st_tensor *t,
                             size_t begin, qn_io *in, qn_stream *s)
{
    int shape[QN_MAX_NDIM], type = 0;
    while (type < TYPES && types[type].stored != t->dtype)
        type++;
    if (type == TYPES)
        return qn_fail(QN_E_UNSUPPORTED,
                       "[load_safetensors] unsupported dtype %s of tensor "
                       "\"%.*s\"",
                       qn_st_dtype_name(t->dtype),
                       t->name.size < 200 ? (int)t->name.size : 200,
                       t->name.data);
    if (t->ndim > QN_MAX_NDIM)
        return qn_fail(QN_E_UNSUPPORTED,
                       "[load_safetensors] tensor \"%.*s\": expected at most "
                       "%d dimensions, found %d",
                       t->name.size < 200 ? (int)t->name.size : 200,
                       t->name.data, QN_MAX_NDIM, t->ndim);
    qn_status status = QN_OK;
    for (int i = 0; i < t->ndim && !status; i++)
        status = qn_elements_dim(&shape[i], (uint64_t)t->shape[i], t->name);
    if (status)
        return status;
    const qn_elements elements = {.offset = begin + t->offset,
                                  .dtype = types[type].dtype,
                                  .shape = shape,
                                  .ndim = t->ndim};
    qn_array *array;
    status = qn_elements_load(&array, in, &elements, s);
    return status ? status : qn_named_add(arrays, t->name, "", array);
}

static qn_status copy_metadata(qn_map *texts, const qn_st *st)
{
    qn_buf key = QN_BUF_INIT;
    qn_status status = QN_OK;
    for (size_t i = 0; i < qn_st_metadata_count(st) && !status; i++) {
        qn_str name, value;
        qn_st_metadata_at(st, i, &name, &value);
        qn_buf_clear(&key);
        qn_buf_add_str(&key, name);
        qn_buf_add_char(&key, '\0');
        status = qn_buf_status(&key);
        if (status)
            break;
        char *text = qn_strndup(value.data, value.size);
        qn_map_value *slot =
            text ? qn_map_put(texts, qn_buf_str(&key), NULL) : NULL;
        if (slot)
            slot->ptr = text;
        else
            qn_free(text);
        status = slot ? QN_OK : QN_E_NOMEM;
    }
    qn_buf_free(&key);
    return status;
}

/* The length and the header at the position: *front (qn_free), its size, and
 * the size of the whole file. */
static qn_status read_front(uint8_t **front, size_t *size, size_t *whole,
                            qn_io *in, size_t begin)
{
    uint8_t prefix[QN_ST_PREFIX];
    size_t end;
    qn_status status = qn_io_end(&end, in);
    if (!status)
        status = qn_io_read(in, prefix, sizeof prefix);
    if (status)
        return status;
    *whole = end > begin ? end - begin : 0;
    status = qn_st_front_size(size, prefix, *whole);
    if (status)
        return qn_fail_where(status, "%s", qn_io_label(in));
    *front = qn_alloc(*size);
    if (!*front)
        return QN_E_NOMEM;
    memcpy(*front, prefix, sizeof prefix);
    return qn_io_read(in, *front + sizeof prefix, *size - sizeof prefix);
}

static qn_status load_all(qn_map **arrays, qn_map **metadata, qn_bytes front,
                          size_t whole, size_t begin, qn_io *in, qn_stream *s)
{
    qn_st *st = NULL;
    qn_map *tensors = NULL, *texts = NULL;
    qn_status status = qn_st_parse_front(&st, front, whole);
    if (status)
        return status;
    tensors = qn_map_new(qn_st_count(st));
    texts = qn_map_new(qn_st_metadata_count(st));
    status = tensors && texts ? copy_metadata(texts, st) : QN_E_NOMEM;
    for (size_t i = 0; i < qn_st_count(st) && !status; i++)
        status = load_tensor(tensors, qn_st_at(st, i), begin, in, s);
    qn_st_free(st);
    if (status) {
        qn_named_free(tensors);
        qn_map_free(texts, qn_free);
        return status;
    }
    *arrays = tensors;
    *metadata = texts;
    return QN_OK;
}

qn_status qn_safetensors_load(qn_map **arrays, qn_map **metadata, qn_io *in,
                              qn_stream *s)
{
    uint8_t *front = NULL;
    size_t size, whole, begin;
    qn_status status = qn_io_check(in, "load_safetensors");
    if (!status)
        status = qn_io_tell(&begin, in);
    if (!status)
        status = read_front(&front, &size, &whole, in, begin);
    if (!status) {
        status = load_all(arrays, metadata, (qn_bytes){front, size}, whole,
                          begin, in, s);
        if (status)
            qn_fail_where(status, "%s", qn_io_label(in));
    }
    qn_free(front);
    return status;
}

/* ---- saving ---- */

typedef struct entry {
    qn_str name;
    qn_array *array; /* borrowed */
    const char *dtype;
} entry;

static int by_width(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    size_t wide = qn_array_itemsize(a->array);
    size_t other = qn_array_itemsize(b->array);
    if (wide != other)
        return wide > other ? -1 : 1;
    size_t common = a->name.size < b->name.size ? a->name.size : b->name.size;
    int order = memcmp(a->name.data, b->name.data, common);
    return order
               ? order
               : (a->name.size > b->name.size) - (a->name.size < b->name.size);
}

static qn_status check_text(qn_str text, const char *what)
{
    if (qn_utf8_valid(text, NULL))
        return QN_OK;
    return qn_fail(QN_E_ARG, "[save_safetensors] expected %s in UTF-8", what);
}

/* The arrays in the order in which they are written. */
static qn_status list_entries(entry *entries, const qn_map *arrays)
{
    for (size_t i = 0; i < qn_map_size(arrays); i++) {
        entry *e = &entries[i];
        e->name = qn_named_text(qn_map_key_at(arrays, i));
        e->array = qn_map_value_at(arrays, i)->ptr;
        e->dtype = NULL;
        for (int t = TYPES - 1; t >= 0; t--)
            if (types[t].dtype == e->array->dtype)
                e->dtype = qn_st_dtype_name(types[t].stored);
        if (!e->dtype)
            return qn_fail(QN_E_ARG,
                           "[save_safetensors] received invalid dtype %s of "
                           "array \"%.200s\"",
                           qn_dtype_name(e->array->dtype), e->name.data);
        if (qn_str_is(e->name, "__metadata__"))
            return qn_fail(QN_E_ARG, "[save_safetensors] an array can't be "
                                     "called __metadata__");
        qn_status status = check_text(e->name, "the name of an array");
        if (status)
            return status;
    }
    qsort(entries, qn_map_size(arrays), sizeof *entries, by_width);
    return QN_OK;
}

static qn_status write_metadata(qn_json_writer *w, const qn_map *metadata)
{
    qn_json_write_key(w, "__metadata__");
    qn_json_write_object(w);
    for (size_t i = 0; i < qn_map_size(metadata); i++) {
        qn_str key = qn_named_text(qn_map_key_at(metadata, i));
        qn_str value = qn_str_of(qn_map_value_at(metadata, i)->ptr);
        qn_status status = check_text(key, "metadata");
        if (!status)
            status = check_text(value, "metadata");
        if (status)
            return status;
        qn_json_write_key(w, key.data);
        qn_json_write_str(w, value);
    }
    qn_json_write_object_end(w);
    return QN_OK;
}

/* The front of the file: the length and the header, padded with spaces. */
static qn_status describe(qn_buf *out, const entry *entries, size_t count,
                          const qn_map *metadata)
{
    uint8_t length[QN_ST_PREFIX] = {0};
    qn_buf_add(out, length, sizeof length);
    qn_json_writer w;
    qn_json_write_begin(&w, out);
    qn_json_write_object(&w);
    qn_status status = metadata && qn_map_size(metadata)
                           ? write_metadata(&w, metadata)
                           : QN_OK;
    size_t begin = 0;
    for (size_t i = 0; i < count && !status; i++) {
        const qn_array *a = entries[i].array;
        size_t end;
        if (!qn_add_size(&end, begin, qn_array_nbytes(a)))
            return qn_fail(QN_E_ARG, "[save_safetensors] too many elements");
        qn_json_write_key(&w, entries[i].name.data);
        qn_json_write_object(&w);
        qn_json_write_key(&w, "dtype");
        qn_json_write_text(&w, entries[i].dtype);
        qn_json_write_key(&w, "shape");
        qn_json_write_array(&w);
        for (int axis = 0; axis < a->ndim; axis++)
            qn_json_write_int(&w, a->shape[axis]);
        qn_json_write_array_end(&w);
        qn_json_write_key(&w, "data_offsets");
        qn_json_write_array(&w);
        qn_json_write_uint(&w, begin);
        qn_json_write_uint(&w, end);
        qn_json_write_array_end(&w);
        qn_json_write_object_end(&w);
        begin = end;
    }
    if (status)
        return status;
    qn_json_write_object_end(&w);
    while (out->size % ALIGNMENT && !out->failed)
        qn_buf_add_char(out, ' ');
    status = qn_buf_status(out);
    if (status)
        return status;
    size_t size = out->size - QN_ST_PREFIX;
    if (size > HEADER_MAX)
        return qn_fail(QN_E_ARG,
                       "[save_safetensors] the header of %zu bytes is "
                       "above the format's limit of %d",
                       size, HEADER_MAX);
    qn_put_le64((uint8_t *)out->data, size);
    return QN_OK;
}

qn_status qn_safetensors_save(qn_io *to, const qn_map *arrays,
                              const qn_map *metadata)
{
    size_t count = qn_map_size(arrays);
    qn_buf front = QN_BUF_INIT;
    entry *entries = NULL;
    qn_status status = qn_io_check(to, "save_safetensors");
    if (status)
        return status;
    entries = qn_reallocarray(NULL, count, sizeof *entries);
    status = entries ? list_entries(entries, arrays) : QN_E_NOMEM;
    if (!status)
        status = describe(&front, entries, count, metadata);
    /* All before the first byte is written: what they are still to be read
     * from may be what the caller's stream overwrites. */
    if (!status)
        status = qn_named_eval(arrays);
    if (!status)
        status = qn_io_write(to, front.data, front.size);
    for (size_t i = 0; i < count && !status; i++)
        status = qn_elements_save(to, entries[i].array);
    qn_buf_free(&front);
    qn_free(entries);
    return status;
}
