/* file.c: see file.h. */
#include "file.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/checksum.h"
#include "base/file.h"
#include "engine.h"
#include "kinds.h"

#include <quern/ext.h>

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { OWN_FIELDS = 14, NAME_SIZE = 64 };

static const char format[] = "quern-kv-1";

/* ---- the header ---- */

/* Its fields in their order, without the checksum. */
typedef struct header {
    qn_kv_fact *fields;
    size_t count;
    qn_buf texts[OWN_FIELDS]; /* values that were made here */
    size_t made;
    size_t own, tail; /* fields own .. tail are about who computed it */
} header;

static void free_header(header *h)
{
    for (size_t i = 0; i < h->made; i++)
        qn_buf_free(&h->texts[i]);
    qn_free(h->fields);
}

static void add_text(header *h, const char *name, const char *value)
{
    qn_buf *text = &h->texts[h->made++];
    qn_buf_add_text(text, value);
    h->fields[h->count++] =
        (qn_kv_fact){name, text->data ? text->data : "", false};
}

/* One layer, such as "floats 2x64", "affine8 2x64 window 512 keep 4", "state
 * 3x6144 32x128x128" or "none". */
static void describe_layer(qn_buf *out, const qn_kv_layer *l)
{
    const qn_kv_recurrence *r = &l->recurrence;
    char scheme[QN_KV_NAME_SIZE];
    if (r->channels) {
        qn_buf_printf(out, "state %dx%d %dx%dx%d", r->taps, r->channels,
                      r->heads, r->key_dim, r->value_dim);
        return;
    }
    if (!l->kv_heads) {
        qn_buf_add_text(out, "none");
        return;
    }
    bool packed = l->scheme.bits || l->scheme.key_bits;
    qn_kv_scheme_name(scheme, &l->scheme);
    qn_buf_printf(out, "%s %dx%d", packed ? scheme : "floats", l->kv_heads,
                  l->head_dim);
    if (l->scheme.bits)
        qn_buf_printf(out, " group %d", l->scheme.group);
    if (l->window)
        qn_buf_printf(out, " window %d keep %d", l->window, l->keep);
}

/* All layers, each as often as it is repeated: "6 floats 2x64, 1 none". */
static qn_status add_kind(header *h, const qn_kv_shape *shape)
{
    qn_buf *text = &h->texts[h->made++];
    qn_buf last = QN_BUF_INIT, next = QN_BUF_INIT;
    int same = 0;
    qn_status status = QN_OK;
    for (int i = 0; i <= shape->layers && !status; i++) {
        qn_buf_clear(&next);
        if (i < shape->layers)
            describe_layer(&next, qn_kv_layer_of(shape, i));
        status = qn_buf_status(&next);
        if (i && !(next.size == last.size &&
                   !memcmp(next.data, last.data, next.size))) {
            qn_buf_printf(text, "%s%d ", text->size ? ", " : "", same);
            qn_buf_add_str(text, qn_buf_str(&last));
            same = 0;
        }
        qn_buf swap = last;
        last = next;
        next = swap;
        same++;
    }
    h->fields[h->count++] =
        (qn_kv_fact){"kind", text->data ? text->data : "", false};
    qn_buf_free(&last);
    qn_buf_free(&next);
    return status;
}

/* The type of keys and values, or of their scales; of each layer that has
 * another than the one before. */
static void add_floats(header *h, const qn_kv_shape *shape)
{
    qn_buf *text = &h->texts[h->made++];
    const qn_kv_scheme *last = NULL;
    for (int i = 0; i < shape->layers; i++) {
        const qn_kv_layer *l = qn_kv_layer_of(shape, i);
        qn_kv_scheme floats = {.dtype = l->scheme.dtype};
        char name[QN_KV_NAME_SIZE] = "";
        if (!l->kv_heads || (last && last->dtype == floats.dtype))
            continue;
        qn_kv_scheme_name(name, &floats);
        qn_buf_printf(text, "%s%s", text->size ? " " : "", name);
        last = &l->scheme;
    }
    h->fields[h->count++] =
        (qn_kv_fact){"kv_dtype", text->data ? text->data : "", false};
}

static void add_number(header *h, const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    add_text(h, name, text);
}

static qn_status add_version(header *h)
{
    mlx_string version = mlx_string_new();
    qn_status status = qn_engine(mlx_version(&version));
    if (!status)
        add_text(h, "mlx", mlx_string_data(version));
    mlx_string_free(version);
    return status;
}

/* The device, and which of its instruction sets computes; another library may
 * not tell. */
static qn_status add_device(header *h)
{
    const char *architecture = quern_device_architecture();
    qn_status status = qn_engine_made(architecture);
    if (status)
        return status;
    add_text(h, "device", architecture);
    mlx_device device = mlx_device_new();
    mlx_device_info info = mlx_device_info_new();
    const char *isa = NULL;
    mlx_device_type type = MLX_CPU;
    status = qn_engine(mlx_get_default_device(&device));
    if (!status)
        status = qn_engine(mlx_device_get_type(&type, device));
    if (!status)
        status = qn_engine(mlx_device_info_get(&info, device));
    add_text(h, "backend", type == MLX_CPU ? "cpu" : "gpu");
    if (!status && mlx_device_info_get_string(&isa, info, "isa"))
        isa = NULL;
    add_text(h, "isa", isa ? isa : "");
    mlx_device_info_free(info);
    mlx_device_free(device);
    return status;
}

/* What a file of this cache with `length` tokens says of itself. */
static qn_status make_header(header *h, const qn_kv_cache *cache, int length,
                             const qn_kv_fact *facts, size_t count)
{
    const qn_kv_shape *shape = &cache->shape;
    *h = (header){0};
    h->fields = qn_calloc(OWN_FIELDS + count, sizeof *h->fields);
    if (!h->fields)
        return QN_E_NOMEM;
    add_text(h, "format", format);
    for (size_t i = 0; i < count; i++)
        if (!facts[i].engine)
            h->fields[h->count++] = facts[i];
    add_number(h, "layers", shape->layers);
    qn_status status = add_kind(h, shape);
    add_number(h, "kind_from", shape->start);
    add_text(h, "packed", cache->converted ? "yes" : "no");
    h->own = h->count;
    for (size_t i = 0; i < count; i++)
        if (facts[i].engine)
            h->fields[h->count++] = facts[i];
    add_floats(h, shape);
    add_text(h, "quern", quern_version());
    if (!status)
        status = add_version(h);
    if (!status)
        status = add_device(h);
    h->tail = h->count;
    add_number(h, "tokens", length);
    add_number(h, "budget", cache->budget);
    for (size_t i = 0; i < h->made && !status; i++)
        status = qn_buf_status(&h->texts[i]);
    return status;
}

/* ---- arrays ---- */

static void full_name(char out[NAME_SIZE], int layer, const char *name)
{
    snprintf(out, NAME_SIZE, "layers.%d.%s", layer, name);
}

/* Adds the bytes of an array in row-major order. */
static qn_status sum_array(uint64_t *sum, mlx_array x, mlx_stream s)
{
    mlx_array plain = mlx_array_new(), bytes = mlx_array_new();
    qn_status status = qn_engine(mlx_contiguous(&plain, x, false, s));
    if (!status)
        status = qn_engine(mlx_view(&bytes, plain, MLX_UINT8, s));
    if (!status)
        status = qn_engine(mlx_array_eval(bytes));
    if (!status) {
        const uint8_t *data = mlx_array_data_uint8(bytes);
        status = qn_engine_made(data);
        if (!status)
            *sum = qn_crc64(*sum, data, mlx_array_nbytes(bytes));
    }
    mlx_array_free(plain);
    mlx_array_free(bytes);
    return status;
}

static uint64_t sum_header(const header *h)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < h->count; i++) {
        const qn_kv_fact *f = &h->fields[i];
        sum = qn_crc64(sum, f->name, strlen(f->name) + 1);
        sum = qn_crc64(sum, f->value, strlen(f->value) + 1);
    }
    return sum;
}

/* ---- writing ---- */

typedef struct sink {
    qn_file_writer *file;
    size_t size;
    bool failed;
} sink;

static bool sink_open(void *desc)
{
    return ((sink *)desc)->file != NULL;
}

static bool sink_good(void *desc)
{
    return !((sink *)desc)->failed;
}

static size_t sink_tell(void *desc)
{
    return ((sink *)desc)->size;
}

static int sink_seek(void *desc, int64_t offset, int whence)
{
    (void)desc;
    (void)offset;
    (void)whence;
    return -1;
}

static size_t sink_write(void *desc, const char *data, size_t size)
{
    sink *to = desc;
    if (!to->failed && qn_file_append(to->file, data, size))
        to->failed = true;
    if (to->failed)
        return 0;
    to->size += size;
    return size;
}

static const char *sink_label(void *desc)
{
    (void)desc;
    return "KV cache";
}

static void sink_free(void *desc)
{
    (void)desc;
}

static qn_status write_maps(const char *path, mlx_map_string_to_array arrays,
                            mlx_map_string_to_string texts)
{
    static const mlx_io_vtable vtable = {.is_open = sink_open,
                                         .good = sink_good,
                                         .tell = sink_tell,
                                         .seek = sink_seek,
                                         .write = sink_write,
                                         .label = sink_label,
                                         .free = sink_free};
    sink to = {0};
    qn_status status = qn_file_begin(&to.file, path);
    if (status)
        return status;
    mlx_io_writer writer = mlx_io_writer_new(&to, vtable);
    status = qn_engine_made(writer.ctx);
    if (!status) {
        status = qn_engine(mlx_save_safetensors_writer(writer, arrays, texts));
        mlx_io_writer_free(writer);
    }
    if (to.failed)
        status = qn_fail(QN_E_IO, "cannot write the KV cache");
    if (!status)
        return qn_file_commit(to.file);
    qn_file_abort(to.file);
    return status;
}

struct qn_kv_saving {
    const qn_kv_cache *cache;
    mlx_stream stream;
    header head;
    int next; /* layer; those before it are in `arrays` */
    uint64_t sum;
    mlx_map_string_to_array arrays;
    mlx_map_string_to_string texts;
};

/* As it is written: nothing is left to be computed. */
static qn_status insert(qn_kv_saving *s, const char *name, mlx_array x)
{
    mlx_array plain = mlx_array_new();
    qn_status status = qn_engine(mlx_contiguous(&plain, x, false, s->stream));
    if (!status)
        status = sum_array(&s->sum, plain, s->stream);
    if (!status)
        status = qn_engine(mlx_array_eval(plain));
    if (!status)
        status =
            qn_engine(mlx_map_string_to_array_insert(s->arrays, name, plain));
    mlx_array_free(plain);
    return status;
}

static qn_status collect_layer(qn_kv_saving *s, int layer)
{
    const qn_kv_cache *cache = s->cache;
    const qn_kv_part *part = cache->parts[layer];
    const char *const *names;
    if (!part)
        return QN_OK;
    int count = part->kind->names(part, &names);
    mlx_vector_array planes = {NULL};
    qn_status status =
        part->kind->read(part, cache->length, &planes, s->stream);
    for (int i = 0; i < count && !status; i++) {
        char name[NAME_SIZE];
        full_name(name, layer, names[i]);
        mlx_array plane = mlx_array_new();
        status = qn_engine(mlx_vector_array_get(&plane, planes, (size_t)i));
        if (!status)
            status = insert(s, name, plane);
        mlx_array_free(plane);
    }
    if (planes.ctx)
        mlx_vector_array_free(planes);
    return status;
}

static qn_status insert_tokens(qn_kv_saving *s, const int32_t *ids)
{
    mlx_array tokens =
        mlx_array_new_data(ids, &s->cache->length, 1, MLX_UINT32);
    qn_status status = qn_engine_made(tokens.ctx);
    if (!status) {
        status = insert(s, "tokens", tokens);
        mlx_array_free(tokens);
    }
    return status;
}

static qn_status describe(const header *h, uint64_t sum,
                          mlx_map_string_to_string map)
{
    char text[24];
    snprintf(text, sizeof text, "%016" PRIx64, sum);
    qn_status status =
        qn_engine(mlx_map_string_to_string_insert(map, "checksum", text));
    for (size_t i = 0; i < h->count && !status; i++)
        status = qn_engine(mlx_map_string_to_string_insert(
            map, h->fields[i].name, h->fields[i].value));
    return status;
}

qn_status qn_kv_saving_new(qn_kv_saving **out, const qn_kv_cache *cache,
                           const int32_t *ids, const qn_kv_fact *facts,
                           size_t count, mlx_stream stream)
{
    if (!cache->length)
        return qn_fail(QN_E_ARG, "a KV cache without tokens can't be saved");
    qn_kv_saving *s = qn_calloc(1, sizeof *s);
    if (!s)
        return QN_E_NOMEM;
    s->cache = cache;
    s->stream = stream;
    s->arrays = mlx_map_string_to_array_new();
    s->texts = mlx_map_string_to_string_new();
    qn_status status =
        make_header(&s->head, cache, cache->length, facts, count);
    if (!status)
        status = qn_engine(!s->arrays.ctx || !s->texts.ctx);
    if (!status) {
        s->sum = sum_header(&s->head);
        status = insert_tokens(s, ids);
    }
    if (status)
        qn_kv_saving_free(s);
    else
        *out = s;
    return status;
}

void qn_kv_saving_free(qn_kv_saving *s)
{
    if (!s)
        return;
    free_header(&s->head);
    if (s->arrays.ctx)
        mlx_map_string_to_array_free(s->arrays);
    if (s->texts.ctx)
        mlx_map_string_to_string_free(s->texts);
    qn_free(s);
}

qn_status qn_kv_saving_step(qn_kv_saving *s, bool *more)
{
    *more = false;
    if (s->next < s->cache->count) {
        qn_status status = collect_layer(s, s->next++);
        *more = !status;
        return status;
    }
    return describe(&s->head, s->sum, s->texts);
}

qn_status qn_kv_saving_write(qn_kv_saving *s, const char *path)
{
    qn_status status = write_maps(path, s->arrays, s->texts);
    return status ? qn_fail_where(status, "%s", path) : QN_OK;
}

qn_status qn_kv_cache_save(const qn_kv_cache *cache, const char *path,
                           const int32_t *ids, const qn_kv_fact *facts,
                           size_t count, mlx_stream stream)
{
    qn_kv_saving *s = NULL;
    qn_status status = qn_kv_saving_new(&s, cache, ids, facts, count, stream);
    for (bool more = true; !status && more;)
        status = qn_kv_saving_step(s, &more);
    if (!status)
        status = qn_kv_saving_write(s, path);
    else
        qn_fail_where(status, "%s", path);
    qn_kv_saving_free(s);
    return status;
}

/* ---- reading ---- */

typedef struct source {
    mlx_map_string_to_array arrays;
    mlx_map_string_to_string texts;
    size_t taken; /* arrays that were asked for */
} source;

/* The value of a field, or NULL. */
static const char *field(const source *from, const char *name)
{
    const char *value = NULL;
    return mlx_map_string_to_string_get(&value, from->texts, name) ? NULL
                                                                   : value;
}

static qn_status read_length(int *out, const qn_kv_cache *cache,
                             const source *from)
{
    const char *text = field(from, "tokens");
    long long value = 0;
    int end = 0;
    if (!text || sscanf(text, "%9lld%n", &value, &end) != 1 || text[end] ||
        value < 1)
        return qn_fail(QN_E_FORMAT, "no saved KV cache: tokens is %s",
                       text ? text : "missing");
    if (value > cache->shape.limit)
        return qn_fail(QN_E_UNSUPPORTED,
                       "%lld saved tokens do not fit the context of %d", value,
                       cache->shape.limit);
    *out = (int)value;
    return QN_OK;
}

/* What the sequence was to become is part of what it is. */
static qn_status set_budget(qn_kv_cache *cache, const source *from)
{
    const char *text = field(from, "budget");
    int value = 0, end = 0;
    if (!text || sscanf(text, "%9d%n", &value, &end) != 1 || text[end] ||
        value < 0)
        return qn_fail(QN_E_FORMAT, "saved KV cache: budget is %s",
                       text ? text : "missing");
    qn_kv_cache_set_budget(cache, value);
    return QN_OK;
}

/* A cache that is packed from some length on is saved as it is.  At just that
 * length both can be. */
static qn_status set_packed(qn_kv_cache *cache, const source *from, int length)
{
    const char *text = field(from, "packed");
    bool packed = text && !strcmp(text, "yes");
    int start = cache->shape.start;
    if (!text || (packed ? length < start : length > start))
        return qn_fail(QN_E_FORMAT,
                       "saved KV cache: packed: not possible for %d tokens, "
                       "found %s",
                       length, text ? text : "nothing");
    qn_kv_cache_restart(cache, packed);
    return QN_OK;
}

static qn_status check_header(const header *h, const source *from)
{
    for (size_t i = 0; i < h->count; i++) {
        const qn_kv_fact *f = &h->fields[i];
        const char *found = field(from, f->name);
        if (!found || strcmp(found, f->value))
            return qn_fail(!i                           ? QN_E_FORMAT
                           : i >= h->own && i < h->tail ? QN_E_UNSUPPORTED
                                                        : QN_E_MISMATCH,
                           "saved KV cache: %s: expected %s, found %s", f->name,
                           *f->value ? f->value : "nothing",
                           found && *found ? found : "nothing");
    }
    return QN_OK;
}

/* The array of that name, with its bytes added to the checksum. */
static qn_status take(source *from, mlx_array *out, const char *name,
                      uint64_t *sum, mlx_stream s)
{
    if (mlx_map_string_to_array_get(out, from->arrays, name))
        return qn_fail(QN_E_FORMAT, "saved KV cache: no tensor %s", name);
    from->taken++;
    qn_status status = sum_array(sum, *out, s);
    /* The map lets go of it, so that the file is not held beside the cache. */
    mlx_array nothing = mlx_array_new_bool(false);
    if (!status)
        status = qn_engine(
            mlx_map_string_to_array_insert(from->arrays, name, nothing));
    mlx_array_free(nothing);
    return status;
}

static qn_status take_tokens(source *from, int32_t **ids, int length,
                             uint64_t *sum, mlx_stream s)
{
    mlx_array tokens = mlx_array_new();
    qn_status status = take(from, &tokens, "tokens", sum, s);
    if (!status &&
        (mlx_array_dtype(tokens) != MLX_UINT32 || mlx_array_ndim(tokens) != 1 ||
         mlx_array_dim(tokens, 0) != length))
        status =
            qn_fail(QN_E_FORMAT, "saved KV cache: tokens: expected uint32 [%d]",
                    length);
    if (!status) {
        const uint32_t *data = mlx_array_data_uint32(tokens);
        *ids = qn_alloc((size_t)length * sizeof **ids);
        status = data && *ids ? QN_OK : QN_E_NOMEM;
        for (int i = 0; i < length && !status; i++) {
            (*ids)[i] = (int32_t)data[i];
            if (data[i] > INT32_MAX)
                status = qn_fail(QN_E_FORMAT,
                                 "saved KV cache: tokens: expected ids below "
                                 "2^31, found %" PRIu32,
                                 data[i]);
        }
    }
    mlx_array_free(tokens);
    return status;
}

/* Kinds check types and shapes; that all have `count` tokens is seen here. */
static qn_status check_tokens(mlx_array plane, const char *name, int count)
{
    if (count < 0 ||
        (mlx_array_ndim(plane) == 4 && mlx_array_dim(plane, 2) == count))
        return QN_OK;
    return qn_fail(QN_E_FORMAT, "saved KV cache: %s: expected %d tokens", name,
                   count);
}

static qn_status take_layer(source *from, qn_kv_cache *cache, int layer,
                            int length, uint64_t *sum, mlx_stream s)
{
    qn_kv_part *part = cache->parts[layer];
    const char *const *names;
    if (!part)
        return QN_OK;
    int count = part->kind->names(part, &names);
    int tokens = part->kind->saved(part, length);
    mlx_vector_array planes = mlx_vector_array_new();
    qn_status status = qn_engine_made(planes.ctx);
    for (int i = 0; i < count && !status; i++) {
        char name[NAME_SIZE];
        full_name(name, layer, names[i]);
        mlx_array plane = mlx_array_new();
        status = take(from, &plane, name, sum, s);
        if (!status)
            status = check_tokens(plane, name, tokens);
        if (!status)
            status = qn_engine(mlx_vector_array_append_value(planes, plane));
        mlx_array_free(plane);
    }
    if (!status)
        status = part->kind->write(part, length, planes, s);
    if (planes.ctx)
        mlx_vector_array_free(planes);
    return status;
}

/* Nothing may be in the file that nobody asked for. */
static qn_status check_rest(const source *from)
{
    mlx_map_string_to_array_iterator it =
        mlx_map_string_to_array_iterator_new(from->arrays);
    qn_status status = qn_engine_made(it.ctx);
    size_t count = 0;
    const char *name = NULL;
    mlx_array value = mlx_array_new();
    while (!status && !mlx_map_string_to_array_iterator_next(&name, &value, it))
        count++;
    mlx_array_free(value);
    if (it.ctx)
        mlx_map_string_to_array_iterator_free(it);
    if (!status && count != from->taken)
        status = qn_fail(QN_E_FORMAT,
                         "saved KV cache: expected %zu tensors, found %zu",
                         from->taken, count);
    return status;
}

static qn_status check_sum(const source *from, uint64_t sum)
{
    char text[24];
    snprintf(text, sizeof text, "%016" PRIx64, sum);
    const char *found = field(from, "checksum");
    if (found && !strcmp(found, text))
        return QN_OK;
    return qn_fail(QN_E_FORMAT,
                   "saved KV cache: the bytes have the checksum %s, the file "
                   "says %s",
                   text, found ? found : "nothing");
}

static qn_status restore(qn_kv_cache *cache, source *from, int32_t **ids,
                         const qn_kv_fact *facts, size_t count, mlx_stream s)
{
    int length = 0;
    header h = {0};
    qn_status status = read_length(&length, cache, from);
    if (!status)
        status = set_packed(cache, from, length);
    if (!status)
        status = set_budget(cache, from);
    if (!status)
        status = make_header(&h, cache, length, facts, count);
    if (!status)
        status = check_header(&h, from);
    uint64_t sum = status ? 0 : sum_header(&h);
    free_header(&h);
    if (!status)
        status = take_tokens(from, ids, length, &sum, s);
    for (int i = 0; i < cache->count && !status; i++)
        status = take_layer(from, cache, i, length, &sum, s);
    if (!status)
        status = check_rest(from);
    if (!status)
        status = check_sum(from, sum);
    if (!status)
        cache->length = length;
    return status;
}

static qn_status open_source(source *from, const char *path, mlx_stream s)
{
    *from = (source){mlx_map_string_to_array_new(),
                     mlx_map_string_to_string_new(), 0};
    qn_status status = qn_engine(!from->arrays.ctx || !from->texts.ctx);
    if (!status)
        status = qn_file_check(path);
    if (status)
        return status;
    status =
        qn_engine(mlx_load_safetensors(&from->arrays, &from->texts, path, s));
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

qn_status qn_kv_file_tokens(const char *path, int32_t **ids, size_t *count,
                            mlx_stream s)
{
    source from;
    uint64_t sum = 0;
    int length = 0;
    *ids = NULL;
    mlx_array tokens = mlx_array_new();
    qn_status status = open_source(&from, path, s);
    if (!status && mlx_map_string_to_array_get(&tokens, from.arrays, "tokens"))
        status = qn_fail(QN_E_FORMAT, "saved KV cache: no tensor tokens");
    if (!status && mlx_array_ndim(tokens) == 1)
        length = mlx_array_dim(tokens, 0);
    if (!status)
        status = length ? take_tokens(&from, ids, length, &sum, s)
                        : qn_fail(QN_E_FORMAT, "saved KV cache: no tokens");
    mlx_array_free(tokens);
    close_source(&from);
    if (status) {
        qn_free(*ids);
        *ids = NULL;
        return qn_fail_where(status, "%s", path);
    }
    *count = (size_t)length;
    return QN_OK;
}

qn_status qn_kv_cache_load(qn_kv_cache *cache, const char *path, int32_t **ids,
                           const qn_kv_fact *facts, size_t count, mlx_stream s)
{
    assert(!cache->length);
    source from;
    int32_t *found = NULL;
    qn_status status = open_source(&from, path, s);
    if (!status)
        status = restore(cache, &from, &found, facts, count, s);
    close_source(&from);
    if (!status) {
        *ids = found;
        return QN_OK;
    }
    qn_free(found);
    qn_kv_cache_reset(cache);
    return qn_fail_where(status, "%s", path);
}
