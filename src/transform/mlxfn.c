/* mlxfn.c: numbers, texts and states of a file of exported functions. */
#include "mlxfn.h"

#include <limits.h>

static const qn_mlxfn_info table[QN_MLXFN_COUNT] = {
#define QN_MLXFN(name, state, least, most, read, op)                           \
    [QN_MLXFN_##name] = {#name, state, least, most, QN_OP_##op},
#include "mlxfn.def"
};

const qn_mlxfn_info *qn_mlxfn_info_of(qn_mlxfn_prim prim)
{
    return &table[prim];
}

qn_mlxfn_prim qn_mlxfn_find(qn_str name)
{
    int i = 0;
    while (i < QN_MLXFN_COUNT && !qn_str_is(name, table[i].name))
        i++;
    return (qn_mlxfn_prim)i;
}

/* ---- writing ---- */

void qn_mlxfn_put_u64(qn_buf *buf, uint64_t value)
{
    uint8_t bytes[8];
    qn_put_le64(bytes, value);
    qn_buf_add(buf, bytes, sizeof bytes);
}

void qn_mlxfn_put_i32(qn_buf *buf, int32_t value)
{
    uint8_t bytes[4];
    qn_put_le32(bytes, (uint32_t)value);
    qn_buf_add(buf, bytes, sizeof bytes);
}

void qn_mlxfn_put_bool(qn_buf *buf, bool value)
{
    qn_buf_add_char(buf, value);
}

void qn_mlxfn_put_text(qn_buf *buf, qn_str text)
{
    qn_mlxfn_put_u64(buf, text.size);
    qn_buf_add_str(buf, text);
}

void qn_mlxfn_put_dtype(qn_buf *buf, qn_dtype dtype)
{
    qn_mlxfn_put_i32(buf, (int32_t)dtype);
    qn_buf_add_char(buf, (char)qn_dtype_size(dtype));
}

void qn_mlxfn_put_shape(qn_buf *buf, const int *shape, int ndim)
{
    qn_mlxfn_put_u64(buf, (uint64_t)ndim);
    for (int i = 0; i < ndim; i++)
        qn_mlxfn_put_i32(buf, shape[i]);
}

void qn_mlxfn_put_stream(qn_buf *buf, const qn_stream *stream)
{
    qn_device device = qn_stream_device(stream);
    qn_mlxfn_put_i32(buf, qn_stream_index(stream));
    qn_mlxfn_put_i32(buf, (int32_t)device.type);
    qn_mlxfn_put_i32(buf, device.index);
}

static void put_list(qn_buf *buf, char letter, const qn_mlxfn_field *f)
{
    qn_mlxfn_put_u64(buf, (uint64_t)f->count);
    for (int k = 0; k < f->count; k++)
        if (letter == 'I')
            qn_mlxfn_put_i32(buf, (int32_t)f->list[k]);
        else if (letter == 's')
            qn_buf_add_char(buf, (char)f->list[k]);
        else
            qn_mlxfn_put_u64(buf, (uint64_t)f->list[k]);
}

static void put_field(qn_buf *buf, char letter, const qn_mlxfn_field *f)
{
    uint32_t half;
    uint64_t whole;
    float single = (float)f->d;
    switch (letter) {
    case 'b':
        qn_mlxfn_put_bool(buf, f->i != 0);
        break;
    case 'i':
        qn_mlxfn_put_i32(buf, (int32_t)f->i);
        break;
    case 'z':
        qn_mlxfn_put_u64(buf, (uint64_t)f->i);
        break;
    case 'D':
        qn_mlxfn_put_dtype(buf, (qn_dtype)f->i);
        break;
    case 'f':
        memcpy(&half, &single, sizeof half);
        qn_mlxfn_put_i32(buf, (int32_t)half);
        break;
    case 'd':
        memcpy(&whole, &f->d, sizeof whole);
        qn_mlxfn_put_u64(buf, whole);
        break;
    default:
        put_list(buf, letter, f);
    }
}

void qn_mlxfn_put_state(qn_buf *buf, qn_mlxfn_prim prim,
                        const qn_mlxfn_field *fields)
{
    const char *state = table[prim].state;
    for (int k = 0; state[k]; k++)
        put_field(buf, state[k], &fields[k]);
}

/* ---- reading ---- */

void qn_mlxfn_refuse(qn_mlxfn_reader *r, const char *expected)
{
    if (!r->status)
        r->status = qn_fail(QN_E_FORMAT,
                            "[import_function] %s is expected at byte %zu of "
                            "%zu.",
                            expected, r->at, r->bytes.size);
}

const uint8_t *qn_mlxfn_skip(qn_mlxfn_reader *r, size_t size)
{
    if (!r->status && size > r->bytes.size - r->at)
        r->status = qn_fail(QN_E_FORMAT,
                            "[import_function] %zu more bytes are expected at "
                            "byte %zu, found the end of the file at %zu.",
                            size, r->at, r->bytes.size);
    if (r->status)
        return NULL;
    const uint8_t *here = r->bytes.data + r->at;
    r->at += size;
    return here;
}

uint64_t qn_mlxfn_u64(qn_mlxfn_reader *r)
{
    const uint8_t *p = qn_mlxfn_skip(r, 8);
    return p ? qn_le64(p) : 0;
}

int32_t qn_mlxfn_i32(qn_mlxfn_reader *r)
{
    const uint8_t *p = qn_mlxfn_skip(r, 4);
    return p ? (int32_t)qn_le32(p) : 0;
}

bool qn_mlxfn_bool(qn_mlxfn_reader *r)
{
    const uint8_t *p = qn_mlxfn_skip(r, 1);
    if (p && *p > 1) {
        r->at--;
        qn_mlxfn_refuse(r, "A bool");
    }
    return p && *p == 1;
}

size_t qn_mlxfn_length(qn_mlxfn_reader *r, size_t least)
{
    uint64_t length = qn_mlxfn_u64(r);
    if (!r->status && length > (r->bytes.size - r->at) / least) {
        r->at -= 8;
        qn_mlxfn_refuse(r, "A list that fits into the file");
    }
    return r->status ? 0 : (size_t)length;
}

qn_str qn_mlxfn_text(qn_mlxfn_reader *r)
{
    size_t size = qn_mlxfn_length(r, 1);
    const uint8_t *p = qn_mlxfn_skip(r, size);
    return p ? (qn_str){(const char *)p, size} : (qn_str){"", 0};
}

qn_dtype qn_mlxfn_dtype(qn_mlxfn_reader *r)
{
    int32_t number = qn_mlxfn_i32(r);
    const uint8_t *size = qn_mlxfn_skip(r, 1);
    if (!size)
        return QN_BOOL;
    if (number < 0 || number >= QN_DTYPE_COUNT ||
        *size != qn_dtype_size((qn_dtype)number)) {
        r->at -= 5;
        qn_mlxfn_refuse(r, "A dtype");
        return QN_BOOL;
    }
    return (qn_dtype)number;
}

void qn_mlxfn_shape(qn_mlxfn_reader *r, qn_dims *out)
{
    size_t ndim = qn_mlxfn_length(r, 4);
    out->ndim = 0;
    if (ndim > QN_MAX_NDIM) {
        qn_mlxfn_refuse(r, "A shape of at most 32 dimensions");
        return;
    }
    for (size_t i = 0; i < ndim; i++) {
        int32_t dim = qn_mlxfn_i32(r);
        if (dim < 0)
            qn_mlxfn_refuse(r, "A shape without negative dimensions");
        out->dim[i] = r->status ? 0 : dim;
    }
    out->ndim = r->status ? 0 : (int)ndim;
}

qn_stream *qn_mlxfn_stream(qn_mlxfn_reader *r)
{
    qn_stream *stream = NULL;
    (void)qn_mlxfn_i32(r); /* the stream of another process */
    int32_t type = qn_mlxfn_i32(r);
    int32_t index = qn_mlxfn_i32(r);
    if (type != QN_DEVICE_CPU && type != QN_DEVICE_GPU)
        qn_mlxfn_refuse(r, "A device, 0 (CPU) or 1 (GPU),");
    if (!r->status)
        r->status = qn_stream_default(&stream,
                                      (qn_device){(qn_device_type)type, index});
    return r->status ? NULL : stream;
}

static void read_list(qn_mlxfn_reader *r, char letter, qn_mlxfn_field *f)
{
    size_t least = letter == 'I' ? 4 : letter == 's' ? 1 : 8;
    size_t count = qn_mlxfn_length(r, least);
    if (count > QN_MLXFN_LIST) {
        qn_mlxfn_refuse(r, "A list of at most 256 numbers");
        count = 0;
    }
    for (size_t k = 0; k < count; k++) {
        const uint8_t *p = qn_mlxfn_skip(r, least);
        if (!p)
            return;
        f->list[k] = letter == 'I'   ? (int32_t)qn_le32(p)
                     : letter == 's' ? *p
                                     : (int64_t)qn_le64(p);
    }
    f->count = (int)count;
}

static void read_field(qn_mlxfn_reader *r, char letter, qn_mlxfn_field *f)
{
    float single;
    uint32_t half;
    uint64_t whole;
    switch (letter) {
    case 'b':
        f->i = qn_mlxfn_bool(r);
        break;
    case 'i':
        f->i = qn_mlxfn_i32(r);
        break;
    case 'z':
        f->i = (int64_t)qn_mlxfn_u64(r);
        break;
    case 'D':
        f->i = (int64_t)qn_mlxfn_dtype(r);
        break;
    case 'f':
        half = (uint32_t)qn_mlxfn_i32(r);
        memcpy(&single, &half, sizeof single);
        f->d = (double)single;
        break;
    case 'd':
        whole = qn_mlxfn_u64(r);
        memcpy(&f->d, &whole, sizeof f->d);
        break;
    default:
        read_list(r, letter, f);
    }
}

void qn_mlxfn_state(qn_mlxfn_reader *r, qn_mlxfn_prim prim,
                    qn_mlxfn_field *fields)
{
    const char *state = table[prim].state;
    for (int k = 0; state[k]; k++) {
        fields[k].count = 0;
        read_field(r, state[k], &fields[k]);
    }
}
