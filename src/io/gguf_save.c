/* gguf_save.c: GGUF contents into a file.
 *
 * The header is made in memory, because it says where each tensor will be; the
 * tensors follow one by one. */
#include "gguf.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/gguf.h"
#include "elements.h"
#include "file.h"

enum { DEFAULT_ALIGNMENT = 32, MAX_ALIGNMENT = 1 << 30, MAX_NDIM = 4 };

static void put_u32(qn_buf *out, uint32_t value)
{
    uint8_t bytes[4];
    qn_put_le32(bytes, value);
    qn_buf_add(out, bytes, sizeof bytes);
}

static void put_u64(qn_buf *out, uint64_t value)
{
    uint8_t bytes[8];
    qn_put_le64(bytes, value);
    qn_buf_add(out, bytes, sizeof bytes);
}

static void put_text(qn_buf *out, qn_str text)
{
    put_u64(out, text.size);
    qn_buf_add_str(out, text);
}

/* Zeros that are still missing at `size`. */
static size_t padding(size_t size, size_t alignment)
{
    return (alignment - size % alignment) % alignment;
}

/* ---- metadata ---- */

static int value_type(qn_dtype dtype)
{
    switch (dtype) {
    case QN_BOOL:
        return QN_GGUF_BOOL;
    case QN_UINT8:
        return QN_GGUF_U8;
    case QN_INT8:
        return QN_GGUF_I8;
    case QN_UINT16:
        return QN_GGUF_U16;
    case QN_INT16:
        return QN_GGUF_I16;
    case QN_UINT32:
        return QN_GGUF_U32;
    case QN_INT32:
        return QN_GGUF_I32;
    case QN_UINT64:
        return QN_GGUF_U64;
    case QN_INT64:
        return QN_GGUF_I64;
    case QN_FLOAT32:
        return QN_GGUF_F32;
    case QN_FLOAT64:
        return QN_GGUF_F64;
    default:
        return -1;
    }
}

static qn_status put_numbers(qn_buf *out, const char *key, qn_array *array)
{
    int type = value_type(array->dtype);
    if (type < 0)
        return qn_fail(QN_E_ARG,
                       "[save_gguf] array type %s not supported for metadata "
                       "\"%.200s\".",
                       qn_dtype_name(array->dtype), key);
    if (array->ndim > 1)
        return qn_fail(QN_E_ARG,
                       "[save_gguf] Cannot save arrays with more than one "
                       "dimension: metadata \"%.200s\".",
                       key);
    qn_array *settled;
    qn_status status = qn_elements_settle(&settled, array, false);
    if (status)
        return status;
    if (array->ndim) {
        put_u32(out, QN_GGUF_ARRAY);
        put_u32(out, (uint32_t)type);
        put_u64(out, array->size);
    } else {
        put_u32(out, (uint32_t)type);
    }
    const char *data = qn_array_data(settled);
    if (array->dtype != QN_BOOL)
        qn_buf_add(out, data, qn_array_nbytes(settled));
    else /* readers refuse other bytes than 0 and 1 */
        for (size_t i = 0; i < array->size; i++)
            qn_buf_add_char(out, data[i] != 0);
    qn_array_unref(settled);
    return QN_OK;
}

static qn_status put_metadata(qn_buf *out, const qn_map *metadata)
{
    qn_status status = QN_OK;
    for (size_t i = 0; i < qn_map_size(metadata) && !status; i++) {
        qn_str key = qn_named_text(qn_map_key_at(metadata, i));
        const qn_meta *meta = qn_map_value_at(metadata, i)->ptr;
        put_text(out, key);
        if (meta->kind == QN_META_ARRAY) {
            status = put_numbers(out, key.data, meta->array);
            continue;
        }
        bool list = meta->kind == QN_META_TEXTS;
        if (list)
            put_u32(out, QN_GGUF_ARRAY);
        put_u32(out, QN_GGUF_STRING);
        if (list)
            put_u64(out, meta->count);
        for (size_t j = 0; j < meta->count; j++)
            put_text(out, qn_str_of(meta->texts[j]));
    }
    return status;
}

/* What general.alignment says, which readers will go by. */
static qn_status find_alignment(size_t *out, const qn_map *metadata)
{
    const qn_map_value *slot =
        qn_map_get(metadata, qn_named_key("general.alignment"));
    *out = DEFAULT_ALIGNMENT;
    if (!slot)
        return QN_OK;
    const qn_meta *meta = slot->ptr;
    qn_array *array = meta->array, *settled;
    uint64_t value = 0;
    if (array && !array->ndim && qn_dtype_is_integer(array->dtype)) {
        qn_status status = qn_elements_settle(&settled, array, false);
        if (status)
            return status;
        /* The low byte comes first; what is negative is no power of two. */
        memcpy(&value, qn_array_data(settled), qn_array_itemsize(settled));
        qn_array_unref(settled);
    }
    if (value < 8 || value > MAX_ALIGNMENT || value & (value - 1))
        return qn_fail(QN_E_ARG,
                       "[save_gguf] expected a power of two from 8 to "
                       "2^30 as general.alignment");
    *out = (size_t)value;
    return QN_OK;
}

/* ---- tensors ---- */

static int tensor_type(qn_dtype dtype)
{
    switch (dtype) {
    case QN_FLOAT32:
        return QN_GGUF_F32_T;
    case QN_FLOAT16:
        return QN_GGUF_F16_T;
    case QN_INT8:
        return QN_GGUF_I8_T;
    case QN_INT16:
        return QN_GGUF_I16_T;
    case QN_INT32:
        return QN_GGUF_I32_T;
    default:
        return -1;
    }
}

/* The record of a tensor at *offset, which moves to where the next may be. */
static qn_status put_record(qn_buf *out, qn_str name, const qn_array *array,
                            size_t *offset, size_t alignment)
{
    int type = tensor_type(array->dtype);
    if (type < 0)
        return qn_fail(QN_E_ARG,
                       "[save_gguf] dtype %s is not supported: array "
                       "\"%.200s\".",
                       qn_dtype_name(array->dtype), name.data);
    if (array->ndim > MAX_NDIM)
        return qn_fail(QN_E_ARG,
                       "[save_gguf] expected at most %d dimensions, found %d: "
                       "array \"%.200s\".",
                       MAX_NDIM, array->ndim, name.data);
    put_text(out, name);
    put_u32(out, (uint32_t)array->ndim);
    for (int i = array->ndim - 1; i >= 0; i--)
        put_u64(out, (uint64_t)array->shape[i]);
    put_u32(out, (uint32_t)type);
    put_u64(out, *offset);
    size_t size = qn_array_nbytes(array);
    if (!qn_add_size(&size, size, padding(size, alignment)) ||
        !qn_add_size(offset, *offset, size))
        return qn_fail(QN_E_ARG, "[save_gguf] too many elements");
    return QN_OK;
}

static qn_status describe(qn_buf *out, const qn_gguf_contents *contents,
                          size_t alignment)
{
    size_t count = qn_map_size(contents->arrays), offset = 0;
    qn_buf_add_text(out, "GGUF");
    put_u32(out, 3);
    put_u64(out, count);
    put_u64(out, qn_map_size(contents->metadata));
    qn_status status = put_metadata(out, contents->metadata);
    for (size_t i = 0; i < count && !status; i++)
        status = put_record(
            out, qn_named_text(qn_map_key_at(contents->arrays, i)),
            qn_map_value_at(contents->arrays, i)->ptr, &offset, alignment);
    if (status)
        return status;
    for (size_t n = padding(out->size, alignment); n && !out->failed; n--)
        qn_buf_add_char(out, '\0');
    return qn_buf_status(out);
}

static qn_status write_zeros(qn_io *to, size_t count)
{
    static const char zeros[4096];
    qn_status status = QN_OK;
    while (count && !status) {
        size_t n = count < sizeof zeros ? count : sizeof zeros;
        status = qn_io_write(to, zeros, n);
        count -= n;
    }
    return status;
}

static qn_status write_tensors(qn_io *to, const qn_map *arrays,
                               size_t alignment)
{
    qn_status status = QN_OK;
    for (size_t i = 0; i < qn_map_size(arrays) && !status; i++) {
        qn_array *array = qn_map_value_at(arrays, i)->ptr;
        status = qn_elements_save(to, array);
        if (!status)
            status =
                write_zeros(to, padding(qn_array_nbytes(array), alignment));
    }
    return status;
}

qn_status qn_gguf_save(const char *path, const qn_gguf_contents *contents)
{
    size_t alignment;
    qn_buf header = QN_BUF_INIT;
    qn_io *to;
    qn_status status = find_alignment(&alignment, contents->metadata);
    if (!status)
        status = describe(&header, contents, alignment);
    if (!status)
        status = qn_named_eval(contents->arrays);
    if (!status)
        status = qn_io_create(&to, "save_gguf", path);
    if (!status) {
        status = qn_io_write(to, header.data, header.size);
        if (!status)
            status = write_tensors(to, contents->arrays, alignment);
        status = qn_io_commit(to, status);
    }
    qn_buf_free(&header);
    return status;
}
