/* gguf.c: what all that deals with GGUF contents shares, and loading. */
#include "gguf.h"

#include "base/alloc.h"
#include "base/f16.h"
#include "base/gguf.h"
#include "base/gguf_blocks.h"
#include "elements.h"
#include "file.h"
#include "ops/ops.h"
#include "ops/params.h"

#include <assert.h>

/* ---- metadata values ---- */

qn_meta *qn_meta_of_array(qn_array *array)
{
    qn_meta *meta = qn_calloc(1, sizeof *meta);
    if (!meta) {
        qn_array_unref(array);
        return NULL;
    }
    meta->array = array;
    return meta;
}

/* One block: the value, the pointers, the texts with their zeros. */
qn_meta *qn_meta_of_texts(const qn_str *texts, size_t count)
{
    qn_meta *meta = NULL;
    size_t size = sizeof *meta, pointers;
    bool fits = qn_mul_size(&pointers, count, sizeof *meta->texts) &&
                qn_add_size(&size, size, pointers);
    for (size_t i = 0; i < count && fits; i++)
        fits = qn_add_size(&size, size, texts[i].size + 1);
    meta = qn_alloc(fits ? size : SIZE_MAX);
    if (!meta)
        return NULL;
    *meta = (qn_meta){QN_META_TEXTS, NULL, count, (char **)(meta + 1)};
    char *to = (char *)(meta->texts + count);
    for (size_t i = 0; i < count; i++) {
        meta->texts[i] = to;
        if (texts[i].size)
            memcpy(to, texts[i].data, texts[i].size);
        to[texts[i].size] = '\0';
        to += texts[i].size + 1;
    }
    return meta;
}

qn_meta *qn_meta_of_text(qn_str text)
{
    qn_meta *meta = qn_meta_of_texts(&text, 1);
    if (meta)
        meta->kind = QN_META_TEXT;
    return meta;
}

void qn_meta_free(void *value)
{
    qn_meta *meta = value;
    if (meta)
        qn_array_unref(meta->array);
    qn_free(meta);
}

/* ---- contents ---- */

qn_status qn_gguf_contents_new(qn_gguf_contents *out)
{
    qn_gguf_contents made = {qn_map_new(0), qn_map_new(0)};
    if (!made.arrays || !made.metadata) {
        qn_gguf_contents_free(&made);
        return QN_E_NOMEM;
    }
    *out = made;
    return QN_OK;
}

void qn_gguf_contents_free(qn_gguf_contents *contents)
{
    qn_named_free(contents->arrays);
    qn_map_free(contents->metadata, qn_meta_free);
    *contents = (qn_gguf_contents){0};
}

static void drop_array(void *array)
{
    qn_array_unref(array);
}

static qn_status set(qn_map *map, const char *name, void *value,
                     void (*drop)(void *))
{
    if (!value)
        return QN_E_NOMEM;
    qn_map_value *slot = qn_map_put(map, qn_named_key(name), NULL);
    if (!slot) {
        drop(value);
        return QN_E_NOMEM;
    }
    void *before = slot->ptr;
    slot->ptr = value;
    if (before)
        drop(before);
    return QN_OK;
}

qn_status qn_gguf_set_array(qn_gguf_contents *contents, const char *name,
                            qn_array *array)
{
    return set(contents->arrays, name, array, drop_array);
}

qn_status qn_gguf_set_meta(qn_gguf_contents *contents, const char *name,
                           qn_meta *meta)
{
    return set(contents->metadata, name, meta, qn_meta_free);
}

/* ---- loading metadata ---- */

static qn_dtype dtype_of(qn_gguf_value_type type)
{
    static const qn_dtype dtypes[] = {
        [QN_GGUF_U8] = QN_UINT8,    [QN_GGUF_I8] = QN_INT8,
        [QN_GGUF_U16] = QN_UINT16,  [QN_GGUF_I16] = QN_INT16,
        [QN_GGUF_U32] = QN_UINT32,  [QN_GGUF_I32] = QN_INT32,
        [QN_GGUF_F32] = QN_FLOAT32, [QN_GGUF_BOOL] = QN_BOOL,
        [QN_GGUF_U64] = QN_UINT64,  [QN_GGUF_I64] = QN_INT64,
        [QN_GGUF_F64] = QN_FLOAT64,
    };
    return dtypes[type];
}

static qn_meta *load_number(const qn_gguf_value *value)
{
    /* Integers are sign-extended: their low bytes are the narrower ones. */
    const void *data = &value->as;
    float narrow;
    if (value->type == QN_GGUF_F32) {
        narrow = (float)value->as.f64;
        data = &narrow;
    }
    qn_array *array;
    if (qn_array_from_scalar(&array, data, dtype_of(value->type)))
        return NULL;
    return qn_meta_of_array(array);
}

static qn_status load_value(qn_meta **out, const qn_gguf_value *value,
                            qn_str key)
{
    qn_status status = QN_OK;
    qn_array *array;
    int count;
    if (value->type == QN_GGUF_STRING) {
        *out = qn_meta_of_text(value->as.str);
    } else if (value->type != QN_GGUF_ARRAY) {
        *out = load_number(value);
    } else if (value->as.array.item == QN_GGUF_STRING) {
        *out = qn_meta_of_texts(value->as.array.strs, value->as.array.count);
    } else {
        status = qn_elements_dim(&count, value->as.array.count, key);
        if (!status)
            status = qn_array_from_data(&array, value->as.array.data, &count, 1,
                                        dtype_of(value->as.array.item));
        if (status)
            return status;
        *out = qn_meta_of_array(array);
    }
    return *out ? QN_OK : QN_E_NOMEM;
}

static qn_status load_metadata(qn_gguf_contents *out, const qn_gguf *gguf)
{
    qn_status status = QN_OK;
    for (size_t i = 0; i < qn_gguf_key_count(gguf) && !status; i++) {
        qn_str key = qn_gguf_key_at(gguf, i);
        qn_meta *meta = NULL;
        status = load_value(&meta, qn_gguf_value_at(gguf, i), key);
        if (status)
            break;
        char *name = qn_strndup(key.data, key.size);
        if (name) {
            status = qn_gguf_set_meta(out, name, meta);
        } else {
            qn_meta_free(meta);
            status = QN_E_NOMEM;
        }
        qn_free(name);
    }
    return status;
}

/* ---- loading blocks ---- */

typedef struct source {
    qn_io *io;
    size_t offset, blocks;
    size_t block_bytes, block_elements;
    int type;
    int bits; /* of the packed form; 0: expanded to float16 */
} source;

enum { CHUNK = 1024 }; /* blocks read at a time */

static void expand(uint16_t *out, const source *s, const uint8_t *block,
                   size_t count)
{
    float values[QN_GGUF_BLOCK_MAX];
    for (size_t i = 0; i < count; i++, block += s->block_bytes) {
        qn_gguf_expand(values, s->type, block);
        for (size_t j = 0; j < s->block_elements; j++)
            *out++ = qn_f32_to_f16(values[j]);
    }
}

static qn_status fill_blocks(void *from, void *const *data)
{
    const source *s = from;
    uint8_t *chunk = qn_reallocarray(NULL, CHUNK, s->block_bytes);
    if (!chunk)
        return QN_E_NOMEM;
    qn_status status = QN_OK;
    for (size_t done = 0; done < s->blocks && !status; done += CHUNK) {
        size_t left = s->blocks - done, n = left < CHUNK ? left : CHUNK;
        status = qn_io_read_at(s->io, chunk, n * s->block_bytes,
                               s->offset + done * s->block_bytes);
        if (status)
            break;
        if (s->bits)
            qn_gguf_group_pack((uint32_t *)data[0] + done * (size_t)s->bits,
                               (uint16_t *)data[1] + done,
                               (uint16_t *)data[2] + done, s->type, chunk, n);
        else
            expand((uint16_t *)data[0] + done * s->block_elements, s, chunk, n);
    }
    qn_free(chunk);
    return status;
}

static void free_source(void *from)
{
    source *s = from;
    qn_io_unref(s->io);
    qn_free(s);
}

/* `count` arrays whose elements come from the blocks of a tensor. */
static qn_status load_blocks(qn_array **out, const qn_load_output *outputs,
                             int count, const source *like, qn_stream *s)
{
    source *copy = qn_alloc(sizeof *copy);
    if (!copy)
        return QN_E_NOMEM;
    *copy = *like;
    qn_io_ref(copy->io);
    const qn_load_params params = {
        .fill = fill_blocks, .free = free_source, .source = copy};
    qn_status status = qn_op_load(out, outputs, count, &params, s);
    if (status)
        free_source(copy);
    return status;
}

/* X of X.weight. */
static qn_str stem_of(qn_str name)
{
    static const char suffix[] = ".weight";
    size_t size = sizeof suffix - 1;
    if (name.size >= size &&
        !memcmp(name.data + name.size - size, suffix, size))
        name.size -= size;
    return name;
}

static qn_status load_packed(qn_map *arrays, const qn_gguf_tensor *t,
                             const int *shape, const source *like, qn_stream *s)
{
    assert(t->ndim > 0); /* a row of whole blocks */
    int words[4], groups[4], last = t->ndim - 1;
    memcpy(words, shape, sizeof words);
    memcpy(groups, shape, sizeof groups);
    groups[last] = shape[last] / QN_GGUF_GROUP;
    words[last] = groups[last] * like->bits;
    const qn_load_output outputs[] = {{QN_UINT32, words, t->ndim},
                                      {QN_FLOAT16, groups, t->ndim},
                                      {QN_FLOAT16, groups, t->ndim}};
    qn_array *made[3];
    qn_status status = load_blocks(made, outputs, 3, like, s);
    if (status)
        return status;
    qn_status added[3] = {
        qn_named_add(arrays, t->name, "", made[0]),
        qn_named_add(arrays, stem_of(t->name), ".scales", made[1]),
        qn_named_add(arrays, stem_of(t->name), ".biases", made[2])};
    return added[0] ? added[0] : added[1] ? added[1] : added[2];
}

/* ---- loading tensors ---- */

/* The dtype of tensors of plain numbers; QN_DTYPE_COUNT for others. */
static qn_dtype plain_dtype(qn_gguf_type type)
{
    switch (type) {
    case QN_GGUF_F32_T:
        return QN_FLOAT32;
    case QN_GGUF_F16_T:
        return QN_FLOAT16;
    case QN_GGUF_BF16_T:
        return QN_BFLOAT16;
    case QN_GGUF_F64_T:
        return QN_FLOAT64;
    case QN_GGUF_I8_T:
        return QN_INT8;
    case QN_GGUF_I16_T:
        return QN_INT16;
    case QN_GGUF_I32_T:
        return QN_INT32;
    case QN_GGUF_I64_T:
        return QN_INT64;
    default:
        return QN_DTYPE_COUNT;
    }
}

static qn_status load_tensor(qn_map *arrays, const qn_gguf_tensor *t,
                             size_t offset, qn_io *in, qn_stream *s)
{
    /* The fastest axis comes first in the file and last in an array. */
    int shape[4] = {0};
    for (int i = 0; i < t->ndim; i++) {
        qn_status status =
            qn_elements_dim(&shape[t->ndim - 1 - i], t->dims[i], t->name);
        if (status)
            return status;
    }
    qn_array *array;
    qn_status status;
    qn_dtype dtype = plain_dtype(t->type);
    if (dtype != QN_DTYPE_COUNT) {
        const qn_elements e = {
            .offset = offset, .dtype = dtype, .shape = shape, .ndim = t->ndim};
        status = qn_elements_load(&array, in, &e, s);
        return status ? status : qn_named_add(arrays, t->name, "", array);
    }
    if (!qn_gguf_expands(t->type))
        return qn_fail(QN_E_UNSUPPORTED,
                       "[load_gguf] tensor \"%.*s\" has the type %s, which is "
                       "not supported",
                       t->name.size < 200 ? (int)t->name.size : 200,
                       t->name.data, qn_gguf_type_name(t->type));
    source like = {.io = in, .offset = offset, .type = t->type};
    qn_gguf_type_block(t->type, &like.block_bytes, &like.block_elements);
    like.blocks = t->data.size / like.block_bytes;
    if (t->type == QN_GGUF_Q4_0_T || t->type == QN_GGUF_Q4_1_T ||
        t->type == QN_GGUF_Q8_0_T) {
        like.bits = qn_gguf_group_bits(t->type);
        return load_packed(arrays, t, shape, &like, s);
    }
    const qn_load_output output = {QN_FLOAT16, shape, t->ndim};
    status = load_blocks(&array, &output, 1, &like, s);
    return status ? status : qn_named_add(arrays, t->name, "", array);
}

static qn_status load_all(qn_gguf_contents *out, qn_io *in, qn_bytes file,
                          qn_stream *s)
{
    qn_gguf *gguf;
    qn_status status = qn_gguf_parse(&gguf, file);
    if (status)
        return status;
    status = load_metadata(out, gguf);
    for (size_t i = 0; i < qn_gguf_tensor_count(gguf) && !status; i++) {
        const qn_gguf_tensor *t = qn_gguf_tensor_at(gguf, i);
        size_t offset = (size_t)(t->data.data - file.data);
        status = load_tensor(out->arrays, t, offset, in, s);
    }
    qn_gguf_free(gguf);
    return status;
}

qn_status qn_gguf_load(qn_gguf_contents *out, const char *path, qn_stream *s)
{
    qn_io *in;
    qn_bytes file;
    qn_gguf_contents made;
    qn_status status = qn_io_open(&in, "load_gguf", path);
    if (status)
        return status;
    status = qn_io_map(&file, in);
    if (!status) {
        status = qn_gguf_contents_new(&made);
        if (!status) {
            status = load_all(&made, in, file, s);
            if (status) {
                qn_fail_where(status, "%s", path);
                qn_gguf_contents_free(&made);
            }
        }
        qn_io_unmap(file);
    }
    qn_io_unref(in);
    if (!status)
        *out = made;
    return status;
}
