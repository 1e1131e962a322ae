/* npy.c: see npy.h. */
#include "npy.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "elements.h"

#include <limits.h>

static const char magic[] = "\x93NUMPY";

enum {
    MAGIC = 6,
    /* Far above what the largest shape takes; a length from a file is not to
     * decide how much memory is asked for. */
    HEADER_MAX = 1 << 20,
    ALIGNMENT = 64 /* of the elements */
};

static const struct {
    char kind, bytes;
    qn_dtype dtype;
} codes[] = {
    {'b', 1, QN_BOOL},     {'u', 1, QN_UINT8},     {'u', 2, QN_UINT16},
    {'u', 4, QN_UINT32},   {'u', 8, QN_UINT64},    {'i', 1, QN_INT8},
    {'i', 2, QN_INT16},    {'i', 4, QN_INT32},     {'i', 8, QN_INT64},
    {'f', 2, QN_FLOAT16},  {'f', 4, QN_FLOAT32},   {'f', 8, QN_FLOAT64},
    {'V', 2, QN_BFLOAT16}, {'c', 8, QN_COMPLEX64},
};

/* ---- the header's text ---- */

typedef struct header {
    qn_dtype dtype;
    bool swapped, col_major;
    int ndim;
    int shape[QN_MAX_NDIM];
} header;

typedef struct cursor {
    const char *at, *end, *begin;
} cursor;

static qn_status expected(const cursor *c, const char *what)
{
    size_t left = (size_t)(c->end - c->at);
    return qn_fail(QN_E_FORMAT,
                   "npy header: expected %s at byte %zu, found %s%.*s", what,
                   (size_t)(c->at - c->begin), left ? "" : "the end",
                   left < 20 ? (int)left : 20, c->at);
}

static void skip_space(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' ||
                              *c->at == '\n' || *c->at == '\r'))
        c->at++;
}

/* Steps over `text` and the white space before it. */
static bool skip(cursor *c, const char *text)
{
    skip_space(c);
    size_t size = strlen(text);
    if ((size_t)(c->end - c->at) < size || memcmp(c->at, text, size))
        return false;
    c->at += size;
    return true;
}

static bool take_quoted(cursor *c, qn_str *out)
{
    skip_space(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"'))
        return false;
    size_t left = (size_t)(c->end - c->at) - 1;
    const char *close = memchr(c->at + 1, *c->at, left);
    if (!close)
        return false;
    *out = (qn_str){c->at + 1, (size_t)(close - c->at) - 1};
    c->at = close + 1;
    return true;
}

static qn_status parse_descr(header *h, cursor *c)
{
    qn_str text;
    if (!take_quoted(c, &text))
        return skip(c, "[") ? qn_fail(QN_E_UNSUPPORTED,
                                      "npy header: records are not supported")
                            : expected(c, "a type in quotes");
    /* An order, a kind and digits; '=' and '|' say "as here" and "none". */
    if (text.size == 3 && strchr("<>|=", text.data[0])) {
        for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
            if (codes[i].kind == text.data[1] &&
                codes[i].bytes + '0' == text.data[2]) {
                h->dtype = codes[i].dtype;
                h->swapped = text.data[0] == '>';
                return QN_OK;
            }
    }
    return qn_fail(QN_E_UNSUPPORTED,
                   "npy header: expected a supported type, found '%.*s'",
                   text.size < 40 ? (int)text.size : 40, text.data);
}

static qn_status parse_order(header *h, cursor *c)
{
    h->col_major = skip(c, "True");
    return h->col_major || skip(c, "False") ? QN_OK
                                            : expected(c, "True or False");
}

static qn_status parse_dim(header *h, cursor *c)
{
    skip_space(c);
    const char *first = c->at;
    uint64_t dim = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
        if (dim <= INT_MAX)
            dim = 10 * dim + (uint64_t)(*c->at - '0');
    if (c->at == first)
        return expected(c, "a dimension");
    if (h->ndim == QN_MAX_NDIM)
        return qn_fail(QN_E_FORMAT,
                       "npy header: expected at most %d dimensions, found more",
                       QN_MAX_NDIM);
    qn_status status =
        qn_elements_dim(&h->shape[h->ndim], dim, QN_STR("npy header"));
    if (!status)
        h->ndim++;
    if (c->at < c->end && *c->at == 'L') /* written by Python 2 */
        c->at++;
    return status;
}

static qn_status parse_shape(header *h, cursor *c)
{
    if (!skip(c, "("))
        return expected(c, "a shape");
    while (!skip(c, ")")) {
        qn_status status = parse_dim(h, c);
        if (status)
            return status;
        if (!skip(c, ",") && (skip_space(c), c->at == c->end || *c->at != ')'))
            return expected(c, "',' or ')'");
    }
    return QN_OK;
}

static qn_status parse_header(header *h, qn_str text)
{
    enum { DESCR = 1, ORDER = 2, SHAPE = 4, ALL = 7 };
    cursor c = {text.data, text.data + text.size, text.data};
    unsigned seen = 0;
    if (!skip(&c, "{"))
        return expected(&c, "'{'");
    while (!skip(&c, "}")) {
        qn_str key;
        if (!take_quoted(&c, &key))
            return expected(&c, "a key in quotes");
        if (!skip(&c, ":"))
            return expected(&c, "':'");
        unsigned field = qn_str_is(key, "descr")           ? DESCR
                         : qn_str_is(key, "fortran_order") ? ORDER
                         : qn_str_is(key, "shape")         ? SHAPE
                                                           : 0;
        if (!field || seen & field)
            return qn_fail(QN_E_FORMAT,
                           "npy header: expected descr, fortran_order and "
                           "shape once, found '%.*s'",
                           key.size < 40 ? (int)key.size : 40, key.data);
        seen |= field;
        qn_status status = field == DESCR   ? parse_descr(h, &c)
                           : field == ORDER ? parse_order(h, &c)
                                            : parse_shape(h, &c);
        if (status)
            return status;
        if (!skip(&c, ",") && (skip_space(&c), c.at == c.end || *c.at != '}'))
            return expected(&c, "',' or '}'");
    }
    skip_space(&c);
    if (c.at != c.end)
        return expected(&c, "white space to the end");
    if (seen != ALL)
        return qn_fail(QN_E_FORMAT,
                       "npy header: expected descr, fortran_order "
                       "and shape, found no %s",
                       !(seen & DESCR)   ? "descr"
                       : !(seen & ORDER) ? "fortran_order"
                                         : "shape");
    return QN_OK;
}

/* ---- loading ---- */

/* Reads what is before the header and says how long that is. */
static qn_status read_start(size_t *out, qn_io *in)
{
    uint8_t start[MAGIC + 2], length[4];
    qn_status status = qn_io_read(in, start, sizeof start);
    if (status)
        return status;
    if (memcmp(start, magic, MAGIC))
        return qn_fail(QN_E_FORMAT,
                       "[load] Invalid header in file %s: expected "
                       "\\x93NUMPY",
                       qn_io_label(in));
    if (start[6] < 1 || start[6] > 3)
        return qn_fail(QN_E_UNSUPPORTED,
                       "[load] Unsupported npy format version "
                       "in file %s: expected 1, 2 or 3, found "
                       "%d",
                       qn_io_label(in), start[6]);
    bool wide = start[6] > 1;
    status = qn_io_read(in, length, wide ? 4 : 2);
    if (status)
        return status;
    *out = wide ? qn_le32(length) : qn_le16(length);
    if (*out > HEADER_MAX)
        return qn_fail(QN_E_FORMAT,
                       "[load] Invalid header in file %s: expected "
                       "at most %d bytes, found a length of %zu",
                       qn_io_label(in), HEADER_MAX, *out);
    return QN_OK;
}

static qn_status read_header(header *h, qn_io *in)
{
    size_t size;
    qn_status status = read_start(&size, in);
    if (status)
        return status;
    char *text = qn_alloc(size);
    if (!text)
        return QN_E_NOMEM;
    status = qn_io_read(in, text, size);
    if (!status) {
        status = parse_header(h, (qn_str){text, size});
        if (status)
            qn_fail_where(status, "%s", qn_io_label(in));
    }
    qn_free(text);
    return status;
}

qn_status qn_npy_load(qn_array **out, qn_io *in, qn_stream *s)
{
    header h = {0};
    qn_elements e = {.shape = h.shape};
    qn_array *array = NULL;
    qn_status status = qn_io_check(in, "load");
    if (!status)
        status = read_header(&h, in);
    if (!status)
        status = qn_io_tell(&e.offset, in);
    if (status)
        return status;
    e.dtype = h.dtype;
    e.ndim = h.ndim;
    e.col_major = h.col_major;
    e.swapped = h.swapped;
    status = qn_elements_load(&array, in, &e, s);
    if (status)
        return status;
    /* A stream of the caller's says so when it is read. */
    size_t size = qn_io_known_size(in);
    if (e.offset > size || qn_array_nbytes(array) > size - e.offset) {
        status = qn_fail(QN_E_FORMAT,
                         "[load] %s: expected %zu bytes of "
                         "elements, found %zu",
                         qn_io_label(in), qn_array_nbytes(array),
                         e.offset > size ? 0 : size - e.offset);
        qn_array_unref(array);
        return status;
    }
    *out = array;
    return QN_OK;
}

/* ---- saving ---- */

static void describe(qn_buf *out, const qn_array *array, bool col_major)
{
    size_t code = 0;
    while (codes[code].dtype != array->dtype)
        code++;
    qn_buf_add(out, magic, MAGIC);
    qn_buf_add(out, "\1\0\0\0", 4); /* version 1.0, the length to come */
    qn_buf_printf(out, "{'descr': '%c%c%d', 'fortran_order': %s, 'shape': (",
                  codes[code].bytes > 1 ? '<' : '|', codes[code].kind,
                  codes[code].bytes, col_major ? "True" : "False");
    for (int i = 0; i < array->ndim; i++)
        qn_buf_printf(out, i ? " %d," : "%d,", array->shape[i]);
    qn_buf_add_text(out, "), }");
    while ((out->size + 1) % ALIGNMENT && !out->failed)
        qn_buf_add_char(out, ' ');
    qn_buf_add_char(out, '\n');
    if (out->failed)
        return;
    size_t length = out->size - MAGIC - 4;
    out->data[MAGIC + 2] = (char)(length & 0xff);
    out->data[MAGIC + 3] = (char)(length >> 8);
}

qn_status qn_npy_save(qn_io *to, qn_array *array)
{
    qn_status status = qn_io_check(to, "save");
    if (status)
        return status;
    qn_array *settled;
    status = qn_elements_settle(&settled, array, true);
    if (status)
        return status;
    qn_buf text = QN_BUF_INIT;
    describe(&text, settled, !settled->row_contiguous);
    status = qn_buf_status(&text);
    if (!status)
        status = qn_io_write(to, text.data, text.size);
    if (!status)
        status =
            qn_io_write(to, qn_array_data(settled), qn_array_nbytes(settled));
    qn_buf_free(&text);
    qn_array_unref(settled);
    return status;
}
