/* tq_cache_file.c: a packed cache as bytes, and back.
 *
 *   0    "quernTQ1"
 *   8    CRC-64 of all that follows
 *   16   "turboquant", filled up with zeros to 16 bytes
 *   32   key bits, value bits, head dimension, offset, batch, kv heads,
 *        minimum reusable offset, guard, number of planes (5)
 *   68   for each plane its dtype and its four lengths
 *   168  tokens of each row
 *   ...  the planes, row-major
 *
 * Numbers are 32 bits, little-endian, as are the elements.  Loading trusts none
 * of them: fields are compared with what they must be, lengths with what is
 * there, and everything with the checksum. */
#include "tq_cache.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/checksum.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    KIND_AT = 16,
    KIND_SIZE = 16,
    FIELDS_AT = KIND_AT + KIND_SIZE,
    FIELDS = 9,
    PLANES_AT = FIELDS_AT + 4 * FIELDS,
    PLANE_SIZE = 20,
    ROWS_AT = PLANES_AT + TQ_PLANES * PLANE_SIZE
};

static const char magic[8] = "quernTQ1";
static const char kind[KIND_SIZE] = "turboquant";

/* Dtypes by numbers of the file's own. */
static const mlx_dtype dtypes[] = {MLX_INT8, MLX_UINT8, MLX_FLOAT16};

static uint32_t dtype_number(mlx_dtype dtype)
{
    uint32_t i = 0;
    while (dtypes[i] != dtype)
        i++;
    return i;
}

static uint64_t plane_bytes(const tq_plane *p)
{
    uint64_t bytes = p->dtype == MLX_FLOAT16 ? 2 : 1;
    for (int axis = 0; axis < 4; axis++)
        bytes *= (uint64_t)p->shape[axis];
    return bytes;
}

/* ---- writing ---- */

/* Header and row lengths of a cache; what follows is planes. */
static size_t write_header(uint8_t *out, const quern_tq_cache *c)
{
    const quern_tq_options *o = &c->options;
    const int fields[FIELDS] = {o->key_bits, o->value_bits, c->head_dim,
                                c->offset,   c->batch,      c->heads,
                                c->reusable, o->guard,      TQ_PLANES};
    memcpy(out, magic, sizeof magic);
    memcpy(out + KIND_AT, kind, sizeof kind);
    for (int i = 0; i < FIELDS; i++)
        qn_put_le32(out + FIELDS_AT + 4 * i, (uint32_t)fields[i]);
    for (int i = 0; i < TQ_PLANES; i++) {
        tq_plane p = tq_plane_of(c, i, c->offset);
        uint8_t *at = out + PLANES_AT + i * PLANE_SIZE;
        qn_put_le32(at, dtype_number(p.dtype));
        for (int axis = 0; axis < 4; axis++)
            qn_put_le32(at + 4 + 4 * axis, (uint32_t)p.shape[axis]);
    }
    for (int r = 0; r < c->batch; r++)
        qn_put_le32(out + ROWS_AT + 4 * r, (uint32_t)tq_valid(c, r));
    return ROWS_AT + 4 * (size_t)c->batch;
}

/* Copies plane i, row-major. */
static int write_plane(uint8_t *out, size_t size, const quern_tq_cache *c,
                       int i, mlx_stream stream)
{
    steps s = {.stream = stream};
    mlx_array cut = tq_cut(&s, c->planes[i], 0, c->batch, 0, c->offset), flat;
    STEP(&s, flat, mlx_contiguous(to, cut, false, stream));
    int failed = s.failed || mlx_array_eval(flat);
    const uint8_t *data = failed ? NULL : mlx_array_data_uint8(flat);
    if (data)
        memcpy(out, data, size);
    finish(&s);
    return !data;
}

int quern_tq_cache_save(void **data, size_t *size, const quern_tq_cache *cache,
                        const mlx_stream s)
{
    uint64_t total = ROWS_AT + 4 * (uint64_t)cache->batch;
    if (!cache->offset) {
        qn_fail(QN_E_ARG, "[tq_cache_save] The cache is empty.");
        return tq_report();
    }
    for (int i = 0; i < TQ_PLANES; i++) {
        tq_plane p = tq_plane_of(cache, i, cache->offset);
        total += plane_bytes(&p);
    }
    uint8_t *out = malloc(total);
    if (!out) {
        qn_fail(QN_E_NOMEM, "[tq_cache_save] Out of memory.");
        return tq_report();
    }
    size_t at = write_header(out, cache);
    int failed = 0;
    for (int i = 0; !failed && i < TQ_PLANES; i++) {
        tq_plane p = tq_plane_of(cache, i, cache->offset);
        size_t bytes = (size_t)plane_bytes(&p);
        failed = write_plane(out + at, bytes, cache, i, s);
        at += bytes;
    }
    if (failed) {
        free(out);
        return 1;
    }
    qn_put_le64(out + 8, qn_crc64(0, out + KIND_AT, at - KIND_AT));
    *data = out;
    *size = at;
    return 0;
}

/* ---- reading ---- */

static const char op[] = "tq_cache_load";

typedef struct reader {
    qn_bytes file;
    int fields[FIELDS];
    tq_plane planes[TQ_PLANES];
} reader;

enum {
    KEY_BITS,
    VALUE_BITS,
    HEAD_DIM,
    OFFSET,
    BATCH,
    HEADS,
    REUSABLE,
    GUARD,
    PLANE_COUNT
};

static qn_status wrong(const char *field, int64_t expected, int64_t found)
{
    return qn_fail(QN_E_FORMAT, "[%s] %s: expected %lld, found %lld.", op,
                   field, (long long)expected, (long long)found);
}

static qn_status number_at(int *out, const reader *r, size_t at,
                           const char *field)
{
    uint32_t value = qn_le32(r->file.data + at);
    if (value > INT_MAX)
        return qn_fail(QN_E_FORMAT,
                       "[%s] %s: expected a number below 2^31, "
                       "found %u.",
                       op, field, (unsigned)value);
    *out = (int)value;
    return QN_OK;
}

static qn_status read_fields(reader *r)
{
    static const char *const names[FIELDS] = {"kBits",
                                              "vBits",
                                              "headDim",
                                              "offset",
                                              "batch",
                                              "heads",
                                              "minimumReusableOffset",
                                              "guard",
                                              "planes"};
    qn_status status = QN_OK;
    for (int i = 0; !status && i < FIELDS; i++)
        status =
            number_at(&r->fields[i], r, (size_t)(FIELDS_AT + 4 * i), names[i]);
    return status;
}

static qn_status read_plane(tq_plane *p, const reader *r, int i)
{
    size_t at = (size_t)(PLANES_AT + i * PLANE_SIZE);
    uint32_t type = qn_le32(r->file.data + at);
    qn_status status = QN_OK;
    if (type >= sizeof dtypes / sizeof *dtypes)
        return qn_fail(QN_E_FORMAT,
                       "[%s] %s: expected a dtype below 3, found %u.", op,
                       tq_plane_names[i], (unsigned)type);
    p->dtype = dtypes[type];
    for (int axis = 0; !status && axis < 4; axis++)
        status = number_at(&p->shape[axis], r, at + 4 + 4 * (size_t)axis,
                           tq_plane_names[i]);
    return status;
}

/* What the file says of itself against what is wanted, in the order of the
 * header. */
static qn_status check_fields(const reader *r, const quern_tq_options *wanted,
                              int head_dim)
{
    const int *f = r->fields;
    if (memcmp(r->file.data + KIND_AT, kind, KIND_SIZE))
        return qn_fail(QN_E_FORMAT,
                       "[%s] kind: expected \"%s\", found \"%.16s\".", op, kind,
                       (const char *)r->file.data + KIND_AT);
    if (f[KEY_BITS] != wanted->key_bits)
        return wrong("kBits", wanted->key_bits, f[KEY_BITS]);
    if (f[VALUE_BITS] != wanted->value_bits)
        return wrong("vBits", wanted->value_bits, f[VALUE_BITS]);
    if (head_dim && f[HEAD_DIM] != head_dim)
        return wrong("headDim", head_dim, f[HEAD_DIM]);
    if (!qn_tq_has_dim(f[HEAD_DIM]))
        return qn_tq_check_dim(op, f[HEAD_DIM]);
    if (f[PLANE_COUNT] != TQ_PLANES)
        return wrong("planes", TQ_PLANES, f[PLANE_COUNT]);
    return QN_OK;
}

/* Lengths of planes and rows against offset, batch, heads and the file. */
static qn_status check_lengths(reader *r, quern_tq_cache *c)
{
    const int *f = r->fields;
    qn_status status = QN_OK;
    for (int i = 0; !status && i < TQ_PLANES; i++)
        status = read_plane(&r->planes[i], r, i);
    if (!status)
        status = tq_check_planes(op, c, r->planes);
    if (status)
        return status;
    if (c->capacity != f[OFFSET])
        return wrong("offset", c->capacity, f[OFFSET]);
    if (c->batch != f[BATCH])
        return wrong("batch", c->batch, f[BATCH]);
    if (c->heads != f[HEADS])
        return wrong("heads", c->heads, f[HEADS]);
    if (f[REUSABLE] > f[OFFSET])
        return wrong("minimumReusableOffset", f[OFFSET], f[REUSABLE]);
    /* Each plane is at most what is left, so sums can't wrap. */
    uint64_t left = r->file.size - ROWS_AT, need = 4 * (uint64_t)c->batch;
    for (int i = -1; i < TQ_PLANES; i++) {
        if (i >= 0) {
            const int *n = r->planes[i].shape;
            uint64_t heads = (uint64_t)n[0] * (uint64_t)n[1];
            need = heads > left || (uint64_t)n[2] > left / heads
                       ? left + 1
                       : plane_bytes(&r->planes[i]);
        }
        if (need > left)
            return wrong("bytes", (int64_t)(r->file.size - left + need),
                         (int64_t)r->file.size);
        left -= need;
    }
    return left ? wrong("bytes", (int64_t)(r->file.size - left),
                        (int64_t)r->file.size)
                : QN_OK;
}

static qn_status open_file(reader *r)
{
    if (r->file.size < ROWS_AT || memcmp(r->file.data, magic, sizeof magic))
        return qn_fail(
            QN_E_FORMAT,
            "[%s] Not a packed cache: expected %d bytes or more that "
            "begin with \"%.8s\", found %zu.",
            op, (int)ROWS_AT, magic, r->file.size);
    return read_fields(r);
}

static qn_status check_sum(const reader *r)
{
    uint64_t found =
        qn_crc64(0, r->file.data + KIND_AT, r->file.size - KIND_AT);
    uint64_t expected = qn_le64(r->file.data + 8);
    if (found == expected)
        return QN_OK;
    return qn_fail(QN_E_FORMAT,
                   "[%s] checksum: expected %016llx, found %016llx: the bytes "
                   "are not those that were written.",
                   op, (unsigned long long)expected, (unsigned long long)found);
}

static qn_status read_rows(quern_tq_cache *c, const reader *r)
{
    bool uneven = false;
    c->valid = qn_calloc((size_t)c->batch, sizeof *c->valid);
    if (!c->valid)
        return QN_E_NOMEM;
    for (int i = 0; i < c->batch; i++) {
        qn_status status =
            number_at(&c->valid[i], r, ROWS_AT + 4 * (size_t)i, "row offset");
        if (status)
            return status;
        if (c->valid[i] > c->offset)
            return wrong("row offset", c->offset, c->valid[i]);
        uneven |= c->valid[i] != c->offset;
    }
    if (!uneven) {
        qn_free(c->valid);
        c->valid = NULL;
    }
    return QN_OK;
}

static int make_planes(quern_tq_cache *c, const reader *r)
{
    const uint8_t *at = r->file.data + ROWS_AT + 4 * (size_t)c->batch;
    int failed = 0;
    for (int i = 0; !failed && i < TQ_PLANES; i++) {
        const tq_plane *p = &r->planes[i];
        failed = mlx_array_set_data(&c->planes[i], at, p->shape, 4, p->dtype);
        at += plane_bytes(p);
    }
    return failed;
}

int quern_tq_cache_load(quern_tq_cache **res, const void *data, size_t size,
                        const quern_tq_options *options, int head_dim)
{
    reader r = {.file = {data, size}};
    quern_tq_cache *made;
    if (quern_tq_cache_new(&made, options))
        return 1;
    qn_status status = open_file(&r);
    if (!status)
        status = check_fields(&r, options, head_dim);
    made->head_dim = r.fields[HEAD_DIM];
    if (!status)
        status = check_lengths(&r, made);
    if (!status)
        status = check_sum(&r);
    made->offset = r.fields[OFFSET];
    made->reusable = r.fields[REUSABLE];
    made->options.guard = r.fields[GUARD] != 0;
    if (!status)
        status = read_rows(made, &r);
    int failed = status ? tq_report() : make_planes(made, &r);
    if (failed)
        quern_tq_cache_free(made);
    else
        *res = made;
    return failed;
}
