/* safetensors.c: reads and checks the JSON index of a safetensors file.
 *
 * The index goes through the pull reader once; each tensor is checked by
 * itself as it comes (parse_tensor), and all together at the end
 * (check_layout): sorted by offset, each must begin where the one before it
 * ends, which rules out overlaps and holes alike.  Nothing read from the file
 * is added or multiplied before it is known to fit. */
#include "safetensors.h"

#include "alloc.h"
#include "arena.h"
#include "json.h"
#include "map.h"
#include "utf8.h"

#include <stdlib.h>

enum { HEADER_MIN = 2, HEADER_MAX = 100000000 };

/* The bytes after the header; they may be elsewhere (`bytes` NULL). */
typedef struct section {
    size_t offset, size;
    const uint8_t *bytes;
} section;

typedef struct pair {
    qn_str key, value;
} pair;

struct qn_st {
    qn_arena arena; /* shapes and metadata values */
    qn_map *names;  /* tensor name -> position in tensors */
    qn_st_tensor *tensors;
    size_t count, capacity;
    qn_map *metadata_keys; /* NULL without __metadata__ */
    pair *metadata;
    size_t metadata_count, metadata_capacity;
};

#define DTYPES(X)                                                              \
    X(BOOL, 1)                                                                 \
    X(U8, 1)                                                                   \
    X(I8, 1)                                                                   \
    X(U16, 2)                                                                  \
    X(I16, 2)                                                                  \
    X(F16, 2)                                                                  \
    X(BF16, 2)                                                                 \
    X(U32, 4)                                                                  \
    X(I32, 4)                                                                  \
    X(F32, 4)                                                                  \
    X(U64, 8)                                                                  \
    X(I64, 8)                                                                  \
    X(F64, 8)                                                                  \
    X(F8_E4M3, 1)                                                              \
    X(F8_E5M2, 1)                                                              \
    X(F8_E8M0, 1)                                                              \
    X(C64, 8)

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
#define X(name, size) [QN_ST_##name] = {#name, size},
    DTYPES(X)
#undef X
};

/* ---- messages ---- */

/* A name as it may stand in a message: at most 120 bytes of it. */
static qn_str shown(qn_str name)
{
    if (name.size > 120) {
        name.size = 120;
        name.size -= qn_utf8_incomplete_tail(name);
    }
    return name;
}

#define SHOWN(name) (int)shown(name).size, shown(name).data

static const char *event_name(qn_json_event event)
{
    switch (event) {
    case QN_JSON_OBJECT_BEGIN:
        return "an object";
    case QN_JSON_ARRAY_BEGIN:
        return "an array";
    case QN_JSON_STRING:
        return "a string";
    case QN_JSON_NUMBER:
        return "a number";
    case QN_JSON_TRUE:
    case QN_JSON_FALSE:
        return "a boolean";
    case QN_JSON_NULL:
        return "null";
    default:
        return "the end of an array";
    }
}

/* The next event must be `wanted`. */
static qn_status expect(qn_json_reader *r, qn_json_event wanted,
                        const char *what)
{
    qn_json_event event = qn_json_next(r);
    if (event == QN_JSON_ERROR)
        return qn_json_status(r);
    if (event != wanted)
        return qn_fail(QN_E_FORMAT,
                       "safetensors header byte %zu: expected %s, found %s",
                       qn_json_offset(r), what, event_name(event));
    return QN_OK;
}

/* ---- parts of the index ---- */

static qn_status parse_metadata(qn_st *st, qn_json_reader *r)
{
    if (st->metadata_keys)
        return qn_fail(QN_E_FORMAT, "safetensors: expected one __metadata__, "
                                    "found a second one");
    st->metadata_keys = qn_map_new(0);
    if (!st->metadata_keys)
        return QN_E_NOMEM;
    qn_json_event event = qn_json_next(r);
    /* What MLX writes where there is none. */
    if (event == QN_JSON_NULL)
        return QN_OK;
    if (event == QN_JSON_ERROR)
        return qn_json_status(r);
    if (event != QN_JSON_OBJECT_BEGIN)
        return qn_fail(QN_E_FORMAT,
                       "safetensors header byte %zu: expected an object after "
                       "__metadata__, found %s",
                       qn_json_offset(r), event_name(event));
    qn_status status;
    while ((event = qn_json_next(r)) == QN_JSON_KEY) {
        if (st->metadata_count == st->metadata_capacity) {
            size_t capacity = st->metadata_capacity * 2 + 8;
            pair *larger =
                qn_reallocarray(st->metadata, capacity, sizeof *larger);
            if (!larger)
                return QN_E_NOMEM;
            st->metadata = larger;
            st->metadata_capacity = capacity;
        }
        bool added;
        if (!qn_map_put(st->metadata_keys, qn_json_text(r), &added))
            return QN_E_NOMEM;
        if (!added)
            return qn_fail(QN_E_FORMAT,
                           "safetensors metadata: expected distinct keys, "
                           "found \"%.*s\" again",
                           SHOWN(qn_json_text(r)));
        pair *p = &st->metadata[st->metadata_count];
        p->key = qn_map_key_at(st->metadata_keys, st->metadata_count);
        status = expect(r, QN_JSON_STRING, "a metadata value in quotes");
        if (status)
            return status;
        if (!qn_arena_copy(&st->arena, &p->value, qn_json_text(r)))
            return QN_E_NOMEM;
        st->metadata_count++;
    }
    return event == QN_JSON_ERROR ? qn_json_status(r) : QN_OK;
}

/* A dimension or offset: a plain integer from 0 on. */
static qn_status parse_size(int64_t *out, qn_json_reader *r, qn_str name,
                            const char *what)
{
    qn_str text = qn_json_text(r);
    if (qn_json_int64(text, out) && *out >= 0)
        return QN_OK;
    return qn_fail(QN_E_FORMAT,
                   "safetensors tensor \"%.*s\": expected %s from 0 to "
                   "2^63 - 1, found %.*s",
                   SHOWN(name), what, SHOWN(text));
}

static qn_status parse_dtype(qn_st_tensor *t, qn_json_reader *r)
{
    qn_status status = expect(r, QN_JSON_STRING, "a dtype in quotes");
    if (status)
        return status;
    qn_str text = qn_json_text(r);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (qn_str_is(text, dtypes[i].name)) {
            t->dtype = (qn_st_dtype)i;
            return QN_OK;
        }
    }
    return qn_fail(QN_E_UNSUPPORTED,
                   "safetensors tensor \"%.*s\": expected a known dtype, "
                   "found \"%.*s\"",
                   SHOWN(t->name), SHOWN(text));
}

/* Reads the numbers of an array whose '[' is next into the buffer, as
 * int64_t. */
static qn_status parse_sizes(qn_buf *out, qn_json_reader *r, qn_str name,
                             const char *what)
{
    qn_status status = expect(r, QN_JSON_ARRAY_BEGIN, "an array");
    qn_buf_clear(out);
    while (!status) {
        qn_json_event event = qn_json_next(r);
        if (event == QN_JSON_ARRAY_END)
            return qn_buf_status(out);
        if (event == QN_JSON_ERROR)
            return qn_json_status(r);
        if (event != QN_JSON_NUMBER)
            return qn_fail(QN_E_FORMAT,
                           "safetensors tensor \"%.*s\": expected %s, found "
                           "%s",
                           SHOWN(name), what, event_name(event));
        int64_t value;
        status = parse_size(&value, r, name, what);
        qn_buf_add(out, &value, sizeof value);
    }
    return status;
}

static qn_status parse_shape(qn_st *st, qn_st_tensor *t, qn_json_reader *r,
                             qn_buf *sizes)
{
    qn_status status = parse_sizes(sizes, r, t->name, "a dimension");
    if (status)
        return status;
    int64_t *shape = qn_arena_alloc(&st->arena, sizes->size);
    if (!shape)
        return QN_E_NOMEM;
    if (sizes->size)
        memcpy(shape, sizes->data, sizes->size);
    t->shape = shape;
    /* The header's limit keeps the count far below INT_MAX. */
    t->ndim = (int)(sizes->size / sizeof *shape);
    return QN_OK;
}

/* Bytes of the tensor by shape and dtype.  A zero dimension does not excuse
 * the others: strides are products of them. */
static qn_status tensor_bytes(size_t *out, const qn_st_tensor *t)
{
    size_t total = dtypes[t->dtype].size;
    bool empty = false;
    for (int i = 0; i < t->ndim; i++) {
        if (!t->shape[i])
            empty = true;
        else if ((uint64_t)t->shape[i] > SIZE_MAX ||
                 !qn_mul_size(&total, total, (size_t)t->shape[i]) ||
                 total > INT64_MAX)
            return qn_fail(QN_E_FORMAT,
                           "safetensors tensor \"%.*s\": expected a shape of "
                           "less than 2^63 bytes, found more at dimension %d",
                           SHOWN(t->name), i);
    }
    *out = empty ? 0 : total;
    return QN_OK;
}

/* Points t->data at [begin, end) of the data section. */
static qn_status place(qn_st_tensor *t, const qn_buf *offsets, section data)
{
    int64_t range[2];
    if (offsets->size != sizeof range)
        return qn_fail(QN_E_FORMAT,
                       "safetensors tensor \"%.*s\": expected two "
                       "data_offsets, found %zu",
                       SHOWN(t->name), offsets->size / sizeof *range);
    memcpy(range, offsets->data, sizeof range);
    if (range[0] > range[1] || (uint64_t)range[1] > data.size)
        return qn_fail(QN_E_FORMAT,
                       "safetensors tensor \"%.*s\": expected data_offsets "
                       "begin <= end <= %zu, found [%lld, %lld]",
                       SHOWN(t->name), data.size, (long long)range[0],
                       (long long)range[1]);
    size_t size = (size_t)(range[1] - range[0]), wanted;
    qn_status status = tensor_bytes(&wanted, t);
    if (status)
        return status;
    if (size != wanted)
        return qn_fail(QN_E_FORMAT,
                       "safetensors tensor \"%.*s\": expected %zu bytes by "
                       "shape and dtype, found %zu by data_offsets",
                       SHOWN(t->name), wanted, size);
    t->offset = data.offset + (size_t)range[0];
    t->data = (qn_bytes){data.bytes ? data.bytes + range[0] : NULL, size};
    return QN_OK;
}

/* Adds a tensor with this name, all else unset. */
static qn_status add_tensor(qn_st *st, qn_str name)
{
    if (st->count == st->capacity) {
        size_t capacity = st->capacity * 2 + 16;
        qn_st_tensor *larger =
            qn_reallocarray(st->tensors, capacity, sizeof *larger);
        if (!larger)
            return QN_E_NOMEM;
        st->tensors = larger;
        st->capacity = capacity;
    }
    /* Names become C strings in the MLX API. */
    if (name.size && memchr(name.data, 0, name.size))
        return qn_fail(QN_E_FORMAT,
                       "safetensors tensor \"%.*s\": expected a name without "
                       "NUL characters",
                       SHOWN(name));
    bool added;
    qn_map_value *slot = qn_map_put(st->names, name, &added);
    if (!slot)
        return QN_E_NOMEM;
    if (!added)
        return qn_fail(QN_E_FORMAT,
                       "safetensors tensor \"%.*s\": expected distinct names, "
                       "found it again",
                       SHOWN(name));
    slot->u64 = st->count;
    st->tensors[st->count] =
        (qn_st_tensor){.name = qn_map_key_at(st->names, st->count)};
    st->count++;
    return QN_OK;
}

/* Reads the object that describes the tensor just added. */
static qn_status parse_tensor(qn_st *st, qn_json_reader *r, section data)
{
    qn_st_tensor *t = &st->tensors[st->count - 1];
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4, ALL = 7 };
    unsigned seen = 0;
    qn_buf shape = QN_BUF_INIT, offsets = QN_BUF_INIT;
    qn_status status =
        expect(r, QN_JSON_OBJECT_BEGIN, "an object that describes a tensor");
    qn_json_event event = QN_JSON_NULL;
    while (!status && (event = qn_json_next(r)) == QN_JSON_KEY) {
        qn_str key = qn_json_text(r);
        unsigned field = qn_str_is(key, "dtype")          ? DTYPE
                         : qn_str_is(key, "shape")        ? SHAPE
                         : qn_str_is(key, "data_offsets") ? OFFSETS
                                                          : 0;
        if (seen & field)
            status = qn_fail(QN_E_FORMAT,
                             "safetensors tensor \"%.*s\": expected one "
                             "%.*s, found a second one",
                             SHOWN(t->name), SHOWN(key));
        else if (field == DTYPE)
            status = parse_dtype(t, r);
        else if (field == SHAPE)
            status = parse_shape(st, t, r, &shape);
        else if (field == OFFSETS)
            status = parse_sizes(&offsets, r, t->name, "a data offset");
        else
            status = qn_fail(QN_E_FORMAT,
                             "safetensors tensor \"%.*s\": expected dtype, "
                             "shape and data_offsets, found \"%.*s\"",
                             SHOWN(t->name), SHOWN(key));
        seen |= field;
    }
    if (!status && event == QN_JSON_ERROR)
        status = qn_json_status(r);
    if (!status && seen != ALL)
        status = qn_fail(QN_E_FORMAT,
                         "safetensors tensor \"%.*s\": expected dtype, shape "
                         "and data_offsets, found no %s",
                         SHOWN(t->name),
                         !(seen & DTYPE)   ? "dtype"
                         : !(seen & SHAPE) ? "shape"
                                           : "data_offsets");
    if (!status)
        status = place(t, &offsets, data);
    qn_buf_free(&shape);
    qn_buf_free(&offsets);
    return status;
}

/* ---- the whole ---- */

static int by_place(const void *left, const void *right)
{
    const qn_st_tensor *a = *(const qn_st_tensor *const *)left;
    const qn_st_tensor *b = *(const qn_st_tensor *const *)right;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    return (a->data.size > b->data.size) - (a->data.size < b->data.size);
}

static qn_status check_layout(const qn_st *st, section data)
{
    const qn_st_tensor **sorted =
        qn_reallocarray(NULL, st->count, sizeof *sorted);
    if (!sorted)
        return QN_E_NOMEM;
    for (size_t i = 0; i < st->count; i++)
        sorted[i] = &st->tensors[i];
    qsort(sorted, st->count, sizeof *sorted, by_place);
    qn_status status = QN_OK;
    size_t end = 0;
    for (size_t i = 0; i < st->count && !status; i++) {
        const qn_st_tensor *t = sorted[i];
        size_t begin = t->offset - data.offset;
        if (begin != end)
            status = qn_fail(QN_E_FORMAT,
                             "safetensors tensor \"%.*s\": expected to begin "
                             "at %zu, where the one before it ends, found "
                             "%zu (%s)",
                             SHOWN(t->name), end, begin,
                             begin < end ? "an overlap" : "a hole");
        end = begin + t->data.size;
    }
    if (!status && end != data.size)
        status = qn_fail(QN_E_FORMAT,
                         "safetensors: expected the last tensor to end with "
                         "the %zu bytes of data, found its end at %zu",
                         data.size, end);
    qn_free(sorted);
    return status;
}

static qn_status parse_index(qn_st *st, qn_json_reader *r, section data)
{
    qn_status status =
        expect(r, QN_JSON_OBJECT_BEGIN, "an object as the header");
    qn_json_event event = QN_JSON_NULL;
    while (!status && (event = qn_json_next(r)) == QN_JSON_KEY) {
        if (qn_str_is(qn_json_text(r), "__metadata__")) {
            status = parse_metadata(st, r);
        } else {
            status = add_tensor(st, qn_json_text(r));
            if (!status)
                status = parse_tensor(st, r, data);
        }
    }
    if (!status && event != QN_JSON_ERROR)
        event = qn_json_next(r); /* the header ends here or is wrong */
    if (!status && event == QN_JSON_ERROR)
        status = qn_json_status(r);
    return status ? status : check_layout(st, data);
}

qn_status qn_st_front_size(size_t *out, const uint8_t *prefix, size_t file_size)
{
    if (file_size < QN_ST_PREFIX)
        return qn_fail(QN_E_FORMAT,
                       "safetensors: expected at least %d bytes, found %zu",
                       QN_ST_PREFIX, file_size);
    uint64_t length = qn_le64(prefix);
    if (length < HEADER_MIN || length > HEADER_MAX)
        return qn_fail(QN_E_FORMAT,
                       "safetensors: expected a header of %d to %d bytes, "
                       "found a length of %llu",
                       HEADER_MIN, HEADER_MAX, (unsigned long long)length);
    if (length > file_size - QN_ST_PREFIX)
        return qn_fail(QN_E_FORMAT,
                       "safetensors: expected a header of %llu bytes, found "
                       "only %zu in the file",
                       (unsigned long long)length, file_size - QN_ST_PREFIX);
    *out = QN_ST_PREFIX + (size_t)length;
    return QN_OK;
}

/* `front` has been measured by qn_st_front_size. */
static qn_status parse(qn_st **out, qn_bytes front, section data)
{
    qn_str header = {(const char *)front.data + QN_ST_PREFIX,
                     front.size - QN_ST_PREFIX};
    if (header.data[0] != '{')
        return qn_fail(QN_E_FORMAT,
                       "safetensors: expected '{' at byte %d, found byte "
                       "0x%02X",
                       QN_ST_PREFIX, front.data[QN_ST_PREFIX]);

    qn_status status = QN_E_NOMEM;
    qn_json_reader *reader = NULL;
    qn_st *st = qn_calloc(1, sizeof *st);
    if (!st)
        goto done;
    st->names = qn_map_new(0);
    reader = qn_json_reader_new(header, 0, 0);
    if (!st->names || !reader)
        goto done;
    status = parse_index(st, reader, data);
    if (status)
        goto done;
    *out = st;
    st = NULL;
done:
    qn_json_reader_free(reader);
    qn_st_free(st);
    return status;
}

qn_status qn_st_parse(qn_st **out, qn_bytes file)
{
    size_t front;
    qn_status status = qn_st_front_size(&front, file.data, file.size);
    if (status)
        return status;
    section data = {front, file.size - front, file.data + front};
    return parse(out, (qn_bytes){file.data, front}, data);
}

qn_status qn_st_parse_front(qn_st **out, qn_bytes front, size_t file_size)
{
    size_t size;
    qn_status status = qn_st_front_size(&size, front.data, file_size);
    if (status)
        return status;
    if (size != front.size)
        return qn_fail(QN_E_FORMAT,
                       "safetensors: expected a front of %zu bytes, found %zu",
                       size, front.size);
    section data = {size, file_size - size, NULL};
    return parse(out, front, data);
}

void qn_st_free(qn_st *st)
{
    if (!st)
        return;
    qn_map_free(st->names, NULL);
    qn_map_free(st->metadata_keys, NULL);
    qn_free(st->tensors);
    qn_free(st->metadata);
    qn_arena_free(&st->arena);
    qn_free(st);
}

size_t qn_st_count(const qn_st *st)
{
    return st->count;
}

const qn_st_tensor *qn_st_at(const qn_st *st, size_t i)
{
    return &st->tensors[i];
}

const qn_st_tensor *qn_st_find(const qn_st *st, qn_str name)
{
    const qn_map_value *slot = qn_map_get(st->names, name);
    return slot ? &st->tensors[slot->u64] : NULL;
}

size_t qn_st_metadata_count(const qn_st *st)
{
    return st->metadata_count;
}

void qn_st_metadata_at(const qn_st *st, size_t i, qn_str *key, qn_str *value)
{
    *key = st->metadata[i].key;
    *value = st->metadata[i].value;
}

const char *qn_st_dtype_name(qn_st_dtype dtype)
{
    return dtypes[dtype].name;
}

size_t qn_st_dtype_size(qn_st_dtype dtype)
{
    return dtypes[dtype].size;
}
