/* gguf.c: reads and checks the header of a GGUF file.
 *
 * Layout: "GGUF", version u32, tensor count u64, key count u64; the keys
 * (string, type u32, value); the tensor records (string, dimension count u32,
 * u64 each, type u32, offset u64); padding to the alignment; the data, to
 * which offsets are relative.  A string is a u64 length and its bytes.
 *
 * Text and numeric arrays stay where they are in the file; only an array of
 * strings gets a table, so that it can be indexed.  Counts are compared with
 * the bytes that are left before anything is allocated for them. */
#include "gguf.h"

#include "alloc.h"
#include "arena.h"
#include "map.h"
#include "utf8.h"

#include <assert.h>

enum {
    COUNT_MAX = 1000000,
    STRING_MAX = 64 << 20,
    DEFAULT_ALIGNMENT = 32,
    /* The fewest bytes that a key with its value, and a tensor, can take. */
    KEY_BYTES = 8 + 4 + 1,
    TENSOR_BYTES = 8 + 4 + 4 + 8
};

struct qn_gguf {
    int version;
    qn_arena arena;    /* tables of string arrays */
    qn_map *keys;      /* key -> position in values */
    qn_map *names;     /* tensor name -> position in tensors */
    qn_str *key_texts; /* in the file */
    qn_gguf_value *values;
    size_t key_count;
    qn_gguf_tensor *tensors;
    size_t tensor_count;
};

/* Where the parser stands in the file. */
typedef struct cursor {
    qn_bytes file;
    size_t pos;
} cursor;

/* ---- names for messages ---- */

static qn_str shown(qn_str name)
{
    if (name.size > 120) {
        name.size = 120;
        name.size -= qn_utf8_incomplete_tail(name);
    }
    return name;
}

#define SHOWN(name) (int)shown(name).size, shown(name).data

static const char *value_type_name(qn_gguf_value_type type)
{
    static const char *const names[] = {
        [QN_GGUF_U8] = "uint8",      [QN_GGUF_I8] = "int8",
        [QN_GGUF_U16] = "uint16",    [QN_GGUF_I16] = "int16",
        [QN_GGUF_U32] = "uint32",    [QN_GGUF_I32] = "int32",
        [QN_GGUF_F32] = "float32",   [QN_GGUF_BOOL] = "bool",
        [QN_GGUF_STRING] = "string", [QN_GGUF_ARRAY] = "array",
        [QN_GGUF_U64] = "uint64",    [QN_GGUF_I64] = "int64",
        [QN_GGUF_F64] = "float64",
    };
    return names[type];
}

const char *qn_gguf_type_name(int type)
{
    switch (type) {
#define QN_X(name, id, bytes, elements)                                        \
    case id:                                                                   \
        return #name;
        QN_GGUF_TYPES(QN_X)
#undef QN_X
    }
    return NULL;
}

bool qn_gguf_type_block(int type, size_t *bytes, size_t *elements)
{
    switch (type) {
#define QN_X(name, id, block_bytes, block_elements)                            \
    case id:                                                                   \
        *bytes = block_bytes;                                                  \
        *elements = block_elements;                                            \
        return true;
        QN_GGUF_TYPES(QN_X)
#undef QN_X
    }
    return false;
}

/* ---- reading ---- */

static size_t left(const cursor *c)
{
    return c->file.size - c->pos;
}

/* Steps over `size` bytes and gives where they are. */
static qn_status take(const uint8_t **out, cursor *c, uint64_t size,
                      const char *what)
{
    if (size > left(c))
        return qn_fail(QN_E_FORMAT,
                       "GGUF byte %zu: expected %llu bytes of %s, found %zu "
                       "to the end of the file",
                       c->pos, (unsigned long long)size, what, left(c));
    *out = c->file.data + c->pos;
    c->pos += (size_t)size;
    return QN_OK;
}

static qn_status take_u32(uint32_t *out, cursor *c, const char *what)
{
    const uint8_t *p;
    qn_status status = take(&p, c, 4, what);
    if (!status)
        *out = qn_le32(p);
    return status;
}

static qn_status take_u64(uint64_t *out, cursor *c, const char *what)
{
    const uint8_t *p;
    qn_status status = take(&p, c, 8, what);
    if (!status)
        *out = qn_le64(p);
    return status;
}

static qn_status take_string(qn_str *out, cursor *c, const char *what)
{
    uint64_t size;
    const uint8_t *p;
    size_t at = c->pos;
    qn_status status = take_u64(&size, c, what);
    if (status)
        return status;
    if (size > STRING_MAX)
        return qn_fail(QN_E_FORMAT,
                       "GGUF byte %zu: expected %s of at most %d bytes, found "
                       "%llu",
                       at, what, STRING_MAX, (unsigned long long)size);
    status = take(&p, c, size, what);
    if (!status)
        *out = (qn_str){(const char *)p, (size_t)size};
    return status;
}

/* A key or tensor name; these become C strings in the MLX API. */
static qn_status take_name(qn_str *out, cursor *c, const char *what)
{
    size_t at = c->pos;
    qn_status status = take_string(out, c, what);
    if (!status && memchr(out->data, 0, out->size))
        return qn_fail(QN_E_FORMAT,
                       "GGUF byte %zu: expected %s without NUL characters, "
                       "found \"%.*s\"",
                       at, what, SHOWN(*out));
    return status;
}

/* A count at the front of the file. */
static qn_status take_count(size_t *out, cursor *c, const char *what)
{
    uint64_t count;
    size_t at = c->pos;
    qn_status status = take_u64(&count, c, what);
    if (status)
        return status;
    if (count > COUNT_MAX)
        return qn_fail(QN_E_FORMAT,
                       "GGUF byte %zu: expected a %s of at most %d, found "
                       "%llu",
                       at, what, COUNT_MAX, (unsigned long long)count);
    *out = (size_t)count;
    return QN_OK;
}

/* Refuses a count of records for which the file is too short. */
static qn_status check_room(const cursor *c, size_t count, size_t record,
                            const char *what)
{
    if (count <= left(c) / record)
        return QN_OK;
    return qn_fail(QN_E_FORMAT,
                   "GGUF byte %zu: expected %zu %s, found only %zu bytes to "
                   "the end of the file",
                   c->pos, count, what, left(c));
}

/* ---- values ---- */

/* Bytes of a number or boolean; 0 for strings and arrays. */
static size_t scalar_size(qn_gguf_value_type type)
{
    switch (type) {
    case QN_GGUF_U8:
    case QN_GGUF_I8:
    case QN_GGUF_BOOL:
        return 1;
    case QN_GGUF_U16:
    case QN_GGUF_I16:
        return 2;
    case QN_GGUF_U32:
    case QN_GGUF_I32:
    case QN_GGUF_F32:
        return 4;
    case QN_GGUF_U64:
    case QN_GGUF_I64:
    case QN_GGUF_F64:
        return 8;
    case QN_GGUF_STRING:
    case QN_GGUF_ARRAY:
        break;
    }
    return 0;
}

static double load_float(qn_gguf_value_type type, const uint8_t *p)
{
    if (type == QN_GGUF_F32) {
        uint32_t bits = qn_le32(p);
        float value;
        memcpy(&value, &bits, sizeof value);
        return (double)value;
    }
    uint64_t bits = qn_le64(p);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* An integer or boolean of the file as 64 bits, sign-extended. */
static uint64_t load_int(qn_gguf_value_type type, const uint8_t *p)
{
    switch (type) {
    case QN_GGUF_U8:
    case QN_GGUF_BOOL:
        return p[0];
    case QN_GGUF_I8:
        return (uint64_t)(int64_t)(int8_t)p[0];
    case QN_GGUF_U16:
        return qn_le16(p);
    case QN_GGUF_I16:
        return (uint64_t)(int64_t)(int16_t)qn_le16(p);
    case QN_GGUF_U32:
        return qn_le32(p);
    case QN_GGUF_I32:
        return (uint64_t)(int64_t)(int32_t)qn_le32(p);
    default:
        return qn_le64(p);
    }
}

static qn_status take_type(qn_gguf_value_type *out, cursor *c)
{
    uint32_t type;
    size_t at = c->pos;
    qn_status status = take_u32(&type, c, "a value type");
    if (status)
        return status;
    if (type > QN_GGUF_F64)
        return qn_fail(QN_E_FORMAT,
                       "GGUF byte %zu: expected a value type from 0 to %d, "
                       "found %u",
                       at, QN_GGUF_F64, (unsigned)type);
    *out = (qn_gguf_value_type)type;
    return QN_OK;
}

/* Booleans have one byte, of which the format allows two values. */
static qn_status check_bools(const cursor *c, const uint8_t *p, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (p[i] > 1)
            return qn_fail(QN_E_FORMAT,
                           "GGUF byte %zu: expected a boolean 0 or 1, found "
                           "%d",
                           (size_t)(p - c->file.data) + i, p[i]);
    }
    return QN_OK;
}

static qn_status take_strings(qn_gguf *gguf, cursor *c, qn_gguf_value *out,
                              size_t count)
{
    qn_str *strs = qn_arena_alloc(&gguf->arena, count * sizeof *strs);
    if (!strs)
        return QN_E_NOMEM;
    qn_status status = QN_OK;
    for (size_t i = 0; i < count && !status; i++)
        status = take_string(&strs[i], c, "a string of an array");
    out->as.array.strs = strs;
    return status;
}

static qn_status take_array(qn_gguf *gguf, cursor *c, qn_gguf_value *out)
{
    size_t at = c->pos;
    qn_gguf_value_type item;
    uint64_t count;
    qn_status status = take_type(&item, c);
    if (!status && item == QN_GGUF_ARRAY)
        return qn_fail(QN_E_UNSUPPORTED,
                       "GGUF byte %zu: expected an array of numbers or "
                       "strings, found an array of arrays",
                       at);
    if (!status)
        status = take_u64(&count, c, "an array length");
    if (status)
        return status;
    /* A string takes at least the 8 bytes of its length. */
    size_t size = scalar_size(item);
    size_t least = size ? size : 8;
    if (count > left(c) / least)
        return qn_fail(QN_E_FORMAT,
                       "GGUF byte %zu: expected an array of %llu items (%s), "
                       "found only %zu bytes to the end of the file",
                       at, (unsigned long long)count, value_type_name(item),
                       left(c));
    out->as.array.item = item;
    out->as.array.count = (size_t)count;
    if (item == QN_GGUF_STRING)
        return take_strings(gguf, c, out, (size_t)count);
    status = take(&out->as.array.data, c, count * size, "an array");
    if (!status && item == QN_GGUF_BOOL)
        status = check_bools(c, out->as.array.data, (size_t)count);
    return status;
}

static qn_status take_value(qn_gguf *gguf, cursor *c, qn_gguf_value *out)
{
    *out = (qn_gguf_value){0};
    qn_status status = take_type(&out->type, c);
    if (status)
        return status;
    if (out->type == QN_GGUF_STRING)
        return take_string(&out->as.str, c, "a string");
    if (out->type == QN_GGUF_ARRAY)
        return take_array(gguf, c, out);
    const uint8_t *p;
    status = take(&p, c, scalar_size(out->type), "a value");
    if (status)
        return status;
    if (out->type == QN_GGUF_F32 || out->type == QN_GGUF_F64)
        out->as.f64 = load_float(out->type, p);
    else
        out->as.u64 = load_int(out->type, p);
    return out->type == QN_GGUF_BOOL ? check_bools(c, p, 1) : QN_OK;
}

static qn_status take_keys(qn_gguf *gguf, cursor *c, size_t count)
{
    qn_status status = check_room(c, count, KEY_BYTES, "keys");
    if (status)
        return status;
    gguf->key_texts = qn_reallocarray(NULL, count, sizeof *gguf->key_texts);
    gguf->values = qn_reallocarray(NULL, count, sizeof *gguf->values);
    if (!gguf->key_texts || !gguf->values)
        return QN_E_NOMEM;
    for (size_t i = 0; i < count; i++) {
        qn_str key;
        status = take_name(&key, c, "a key");
        if (status)
            return status;
        bool added;
        qn_map_value *slot = qn_map_put(gguf->keys, key, &added);
        if (!slot)
            return QN_E_NOMEM;
        if (!added)
            return qn_fail(QN_E_FORMAT,
                           "GGUF key \"%.*s\": expected distinct keys, found "
                           "it again",
                           SHOWN(key));
        slot->u64 = i;
        gguf->key_texts[i] = key;
        status = take_value(gguf, c, &gguf->values[i]);
        if (status)
            return status;
        gguf->key_count++;
    }
    return QN_OK;
}

/* ---- tensors ---- */

/* Elements and bytes of the tensor by type and dimensions.  A zero dimension
 * does not excuse the others: strides are products of them. */
static qn_status measure(qn_gguf_tensor *t, size_t *bytes)
{
    size_t block_bytes, block_elements, elements = 1, blocks;
    if (!qn_gguf_type_block(t->type, &block_bytes, &block_elements))
        return qn_fail(QN_E_UNSUPPORTED,
                       "GGUF tensor \"%.*s\": expected a known tensor type, "
                       "found %d",
                       SHOWN(t->name), (int)t->type);
    bool empty = false;
    for (int i = 0; i < t->ndim; i++) {
        if (!t->dims[i])
            empty = true;
        else if (t->dims[i] > SIZE_MAX ||
                 !qn_mul_size(&elements, elements, (size_t)t->dims[i]) ||
                 elements > INT64_MAX)
            return qn_fail(QN_E_FORMAT,
                           "GGUF tensor \"%.*s\": expected less than 2^63 "
                           "elements, found more at dimension %d",
                           SHOWN(t->name), i);
    }
    if (t->dims[0] % block_elements)
        return qn_fail(QN_E_FORMAT,
                       "GGUF tensor \"%.*s\": expected rows of a multiple of "
                       "%zu elements for type %s, found %llu",
                       SHOWN(t->name), block_elements,
                       qn_gguf_type_name(t->type),
                       (unsigned long long)t->dims[0]);
    if (empty)
        elements = 0;
    blocks = elements / block_elements;
    if (!qn_mul_size(bytes, blocks, block_bytes))
        return qn_fail(QN_E_FORMAT,
                       "GGUF tensor \"%.*s\": expected less than 2^64 bytes, "
                       "found %zu blocks of %zu",
                       SHOWN(t->name), blocks, block_bytes);
    t->elements = elements;
    return QN_OK;
}

/* Reads one record; *offset is relative to the data. */
static qn_status take_tensor(cursor *c, qn_gguf_tensor *t, uint64_t *offset)
{
    uint32_t ndim, type;
    *t = (qn_gguf_tensor){.dims = {1, 1, 1, 1}};
    qn_status status = take_name(&t->name, c, "a tensor name");
    if (!status)
        status = take_u32(&ndim, c, "a dimension count");
    if (status)
        return status;
    if (ndim > 4)
        return qn_fail(QN_E_FORMAT,
                       "GGUF tensor \"%.*s\": expected at most 4 dimensions, "
                       "found %u",
                       SHOWN(t->name), (unsigned)ndim);
    t->ndim = (int)ndim;
    for (int i = 0; i < t->ndim && !status; i++)
        status = take_u64(&t->dims[i], c, "a dimension");
    if (!status)
        status = take_u32(&type, c, "a tensor type");
    if (!status)
        status = take_u64(offset, c, "a tensor offset");
    if (status)
        return status;
    if (type > INT32_MAX)
        type = INT32_MAX; /* unknown either way */
    t->type = (qn_gguf_type)type;
    return QN_OK;
}

/* Points t->data at its bytes in the data section. */
static qn_status place(qn_gguf_tensor *t, uint64_t offset, qn_bytes data,
                       size_t alignment)
{
    size_t bytes;
    qn_status status = measure(t, &bytes);
    if (status)
        return status;
    if (offset % alignment)
        return qn_fail(QN_E_FORMAT,
                       "GGUF tensor \"%.*s\": expected an offset that is a "
                       "multiple of %zu, found %llu",
                       SHOWN(t->name), alignment, (unsigned long long)offset);
    if (offset > data.size || bytes > data.size - offset)
        return qn_fail(QN_E_FORMAT,
                       "GGUF tensor \"%.*s\": expected %zu bytes at offset "
                       "%llu, found only %zu bytes of data in the file",
                       SHOWN(t->name), bytes, (unsigned long long)offset,
                       data.size);
    t->data = (qn_bytes){data.data + offset, bytes};
    return QN_OK;
}

static qn_status find_alignment(const qn_gguf *gguf, size_t *out)
{
    int64_t alignment = DEFAULT_ALIGNMENT;
    qn_status status = qn_gguf_get_int(gguf, "general.alignment", &alignment);
    if (status && status != QN_E_NOTFOUND)
        return status;
    if (alignment < 8 || alignment > 1 << 30 || alignment & (alignment - 1))
        return qn_fail(QN_E_FORMAT,
                       "GGUF key \"general.alignment\": expected a power of "
                       "two from 8 to 2^30, found %lld",
                       (long long)alignment);
    *out = (size_t)alignment;
    return QN_OK;
}

static qn_status take_tensors(qn_gguf *gguf, cursor *c, size_t count)
{
    size_t alignment;
    qn_status status = find_alignment(gguf, &alignment);
    if (!status)
        status = check_room(c, count, TENSOR_BYTES, "tensors");
    if (status)
        return status;
    gguf->tensors = qn_reallocarray(NULL, count, sizeof *gguf->tensors);
    uint64_t *offsets = qn_reallocarray(NULL, count, sizeof *offsets);
    if (!gguf->tensors || !offsets) {
        status = QN_E_NOMEM;
        goto done;
    }
    for (size_t i = 0; i < count; i++) {
        status = take_tensor(c, &gguf->tensors[i], &offsets[i]);
        if (status)
            goto done;
        bool added;
        qn_str name = gguf->tensors[i].name;
        qn_map_value *slot = qn_map_put(gguf->names, name, &added);
        if (!slot) {
            status = QN_E_NOMEM;
            goto done;
        }
        if (!added) {
            status = qn_fail(QN_E_FORMAT,
                             "GGUF tensor \"%.*s\": expected distinct names, "
                             "found it again",
                             SHOWN(name));
            goto done;
        }
        slot->u64 = i;
        gguf->tensor_count++;
    }
    /* Where the data begins is known only now.  A file without tensors may
     * end before that. */
    size_t padding = (alignment - c->pos % alignment) % alignment;
    if (padding > left(c))
        padding = left(c);
    qn_bytes data = {c->file.data + c->pos + padding, left(c) - padding};
    for (size_t i = 0; i < count && !status; i++)
        status = place(&gguf->tensors[i], offsets[i], data, alignment);
done:
    qn_free(offsets);
    return status;
}

/* ---- the whole ---- */

static qn_status parse(qn_gguf *gguf, qn_bytes file)
{
    cursor c = {file, 0};
    const uint8_t *magic;
    uint32_t version = 0;
    size_t tensors = 0, keys = 0;
    qn_status status = take(&magic, &c, 4, "a magic number");
    if (status)
        return status;
    if (memcmp(magic, "GGUF", 4))
        return qn_fail(QN_E_FORMAT,
                       "GGUF: expected \"GGUF\" at byte 0, found bytes %02X "
                       "%02X %02X %02X",
                       magic[0], magic[1], magic[2], magic[3]);
    status = take_u32(&version, &c, "a version");
    if (status)
        return status;
    if (version != 2 && version != 3)
        return qn_fail(QN_E_UNSUPPORTED,
                       "GGUF: expected version 2 or 3, found %u%s",
                       (unsigned)version,
                       version && !(version & 0xffff) ? " (big-endian)" : "");
    gguf->version = (int)version;
    status = take_count(&tensors, &c, "tensor count");
    if (!status)
        status = take_count(&keys, &c, "key count");
    if (!status)
        status = take_keys(gguf, &c, keys);
    if (!status)
        status = take_tensors(gguf, &c, tensors);
    return status;
}

qn_status qn_gguf_parse(qn_gguf **out, qn_bytes file)
{
    qn_gguf *gguf = qn_calloc(1, sizeof *gguf);
    if (!gguf)
        return QN_E_NOMEM;
    gguf->keys = qn_map_new(0);
    gguf->names = qn_map_new(0);
    qn_status status =
        gguf->keys && gguf->names ? parse(gguf, file) : QN_E_NOMEM;
    if (status)
        qn_gguf_free(gguf);
    else
        *out = gguf;
    return status;
}

void qn_gguf_free(qn_gguf *gguf)
{
    if (!gguf)
        return;
    qn_map_free(gguf->keys, NULL);
    qn_map_free(gguf->names, NULL);
    qn_free(gguf->key_texts);
    qn_free(gguf->values);
    qn_free(gguf->tensors);
    qn_arena_free(&gguf->arena);
    qn_free(gguf);
}

/* ---- what was read ---- */

int qn_gguf_version(const qn_gguf *gguf)
{
    return gguf->version;
}

size_t qn_gguf_key_count(const qn_gguf *gguf)
{
    return gguf->key_count;
}

qn_str qn_gguf_key_at(const qn_gguf *gguf, size_t i)
{
    return gguf->key_texts[i];
}

const qn_gguf_value *qn_gguf_value_at(const qn_gguf *gguf, size_t i)
{
    return &gguf->values[i];
}

const qn_gguf_value *qn_gguf_get(const qn_gguf *gguf, const char *key)
{
    const qn_map_value *slot = qn_map_get(gguf->keys, qn_str_of(key));
    return slot ? &gguf->values[slot->u64] : NULL;
}

/* The value of a key that must be there. */
static qn_status need(const qn_gguf_value **out, const qn_gguf *gguf,
                      const char *key)
{
    *out = qn_gguf_get(gguf, key);
    if (*out)
        return QN_OK;
    return qn_fail(QN_E_NOTFOUND, "GGUF key \"%s\": expected, not found", key);
}

static qn_status wrong_type(const char *key, const char *what,
                            const qn_gguf_value *value)
{
    return qn_fail(QN_E_FORMAT, "GGUF key \"%s\": expected %s, found %s", key,
                   what, value_type_name(value->type));
}

static bool is_signed(qn_gguf_value_type type)
{
    return type == QN_GGUF_I8 || type == QN_GGUF_I16 || type == QN_GGUF_I32 ||
           type == QN_GGUF_I64;
}

static bool is_unsigned(qn_gguf_value_type type)
{
    return type == QN_GGUF_U8 || type == QN_GGUF_U16 || type == QN_GGUF_U32 ||
           type == QN_GGUF_U64;
}

static bool is_float(qn_gguf_value_type type)
{
    return type == QN_GGUF_F32 || type == QN_GGUF_F64;
}

qn_status qn_gguf_get_int(const qn_gguf *gguf, const char *key, int64_t *out)
{
    const qn_gguf_value *value;
    qn_status status = need(&value, gguf, key);
    if (status)
        return status;
    if (is_signed(value->type)) {
        *out = value->as.i64;
        return QN_OK;
    }
    if (!is_unsigned(value->type))
        return wrong_type(key, "an integer", value);
    if (value->as.u64 > INT64_MAX)
        return qn_fail(QN_E_FORMAT,
                       "GGUF key \"%s\": expected an integer below 2^63, "
                       "found %llu",
                       key, (unsigned long long)value->as.u64);
    *out = (int64_t)value->as.u64;
    return QN_OK;
}

qn_status qn_gguf_get_float(const qn_gguf *gguf, const char *key, double *out)
{
    const qn_gguf_value *value;
    qn_status status = need(&value, gguf, key);
    if (status)
        return status;
    if (is_float(value->type))
        *out = value->as.f64;
    else if (is_signed(value->type))
        *out = (double)value->as.i64;
    else if (is_unsigned(value->type))
        *out = (double)value->as.u64;
    else
        return wrong_type(key, "a number", value);
    return QN_OK;
}

qn_status qn_gguf_get_bool(const qn_gguf *gguf, const char *key, bool *out)
{
    const qn_gguf_value *value;
    qn_status status = need(&value, gguf, key);
    if (status)
        return status;
    if (value->type != QN_GGUF_BOOL)
        return wrong_type(key, "a bool", value);
    *out = value->as.u64 != 0;
    return QN_OK;
}

qn_status qn_gguf_get_str(const qn_gguf *gguf, const char *key, qn_str *out)
{
    const qn_gguf_value *value;
    qn_status status = need(&value, gguf, key);
    if (status)
        return status;
    if (value->type != QN_GGUF_STRING)
        return wrong_type(key, "a string", value);
    *out = value->as.str;
    return QN_OK;
}

/* Where item i of an array of numbers or booleans is. */
static const uint8_t *item_at(const qn_gguf_value *array, size_t i)
{
    assert(array->type == QN_GGUF_ARRAY && i < array->as.array.count &&
           array->as.array.item != QN_GGUF_STRING);
    return array->as.array.data + i * scalar_size(array->as.array.item);
}

double qn_gguf_array_float(const qn_gguf_value *array, size_t i)
{
    const uint8_t *p = item_at(array, i);
    qn_gguf_value_type item = array->as.array.item;
    if (is_float(item))
        return load_float(item, p);
    uint64_t value = load_int(item, p);
    return is_signed(item) ? (double)(int64_t)value : (double)value;
}

int64_t qn_gguf_array_int(const qn_gguf_value *array, size_t i)
{
    const uint8_t *p = item_at(array, i);
    assert(!is_float(array->as.array.item));
    return (int64_t)load_int(array->as.array.item, p);
}

qn_str qn_gguf_array_str(const qn_gguf_value *array, size_t i)
{
    assert(array->type == QN_GGUF_ARRAY && i < array->as.array.count &&
           array->as.array.item == QN_GGUF_STRING);
    return array->as.array.strs[i];
}

size_t qn_gguf_tensor_count(const qn_gguf *gguf)
{
    return gguf->tensor_count;
}

const qn_gguf_tensor *qn_gguf_tensor_at(const qn_gguf *gguf, size_t i)
{
    return &gguf->tensors[i];
}

const qn_gguf_tensor *qn_gguf_find(const qn_gguf *gguf, qn_str name)
{
    const qn_map_value *slot = qn_map_get(gguf->names, name);
    return slot ? &gguf->tensors[slot->u64] : NULL;
}
