/* foreign.c: see foreign.h.
 *
 * AWQ: qweight [in, out / 8], in whose words column 8 j + i stands in nibble
 * 0,4,1,5,2,6,3,7 of i; qzeros [in / g, out / 8] alike; scales [in / g, out].
 * GPTQ: qweight [in / 8, out], eight rows in a word; qzeros [in / g, out / 8],
 * each one less than the zero point; scales as above.  Both have x W, so rows
 * become columns.
 * compressed-tensors: weight_packed [out, in / 8] with codes 8 above their
 * number, weight_scale [out, in / g]; of nvfp4 bytes [out, in / 2] and scales
 * that weight_global_scale divides. */
#include "foreign.h"

#include "base/alloc.h"
#include "base/f16.h"
#include "base/gguf_blocks.h"

#include <stdio.h>

typedef struct module {
    const char *path;
    int64_t out, in;
    int group;
    uint32_t *words;
    float *scales, *biases;
} module;

static const qn_weight *part(const qn_weights *w, const char *path,
                             const char *suffix)
{
    char name[512];
    int size = snprintf(name, sizeof name, "%s.%s", path, suffix);
    return size < (int)sizeof name ? qn_weights_find(w, name) : NULL;
}

static qn_status bad(const module *m, const char *what)
{
    return qn_fail(QN_E_MISMATCH, "%s: %s", m->path, what);
}

/* A matrix [rows, cols] of 32-bit integers. */
static bool is_words(const qn_weight *w, int64_t rows, int64_t cols)
{
    return w && w->ndim == 2 && w->shape[0] == rows && w->shape[1] == cols &&
           (w->type == QN_ST_I32 || w->type == QN_ST_U32);
}

static bool is_floats(const qn_weight *w, int64_t rows, int64_t cols)
{
    return w && w->ndim == 2 && w->shape[0] == rows && w->shape[1] == cols &&
           (w->type == QN_ST_F16 || w->type == QN_ST_BF16 ||
            w->type == QN_ST_F32);
}

static float float_at(const qn_weight *w, size_t i)
{
    const uint8_t *data = w->data.data;
    return w->type == QN_ST_F16    ? qn_f16_to_f32(qn_le16(data + 2 * i))
           : w->type == QN_ST_BF16 ? qn_bf16_to_f32(qn_le16(data + 2 * i))
                                   : qn_bits_float(qn_le32(data + 4 * i));
}

static uint32_t nibble(const qn_weight *w, size_t word, unsigned at)
{
    return qn_le32(w->data.data + 4 * word) >> 4 * at & 15;
}

static qn_status make_room(module *m)
{
    size_t words, groups;
    if (m->out < 1 || m->in < 1 || m->in % m->group || m->in % 8 ||
        !qn_mul_size(&words, (size_t)m->out, (size_t)m->in / 8) ||
        !qn_mul_size(&groups, (size_t)m->out, (size_t)(m->in / m->group)))
        return bad(m, "rows that the group does not divide");
    m->words = qn_calloc(words, sizeof *m->words);
    m->scales = qn_calloc(groups, sizeof *m->scales);
    m->biases = qn_calloc(groups, sizeof *m->biases);
    return m->words && m->scales && m->biases ? QN_OK : QN_E_NOMEM;
}

static void set_code(module *m, int64_t row, int64_t col, uint32_t code)
{
    size_t at = (size_t)row * (size_t)m->in + (size_t)col;
    m->words[at / 8] |= code << 4 * (at % 8);
}

static void set_factors(module *m, int64_t row, int64_t group, float scale,
                        uint32_t zero)
{
    size_t at = (size_t)row * (size_t)(m->in / m->group) + (size_t)group;
    m->scales[at] = scale;
    m->biases[at] = -(float)zero * scale;
}

/* ---- AWQ and GPTQ ---- */

/* In a word, where column i of eight stands. */
static const unsigned awq_order[8] = {0, 4, 1, 5, 2, 6, 3, 7};
static const unsigned plain_order[8] = {0, 1, 2, 3, 4, 5, 6, 7};

static void set_groups(module *m, const qn_weight *zeros,
                       const qn_weight *scales, const unsigned order[8],
                       uint32_t above)
{
    for (int64_t g = 0; g < m->in / m->group; g++)
        for (int64_t r = 0; r < m->out; r++) {
            size_t at = (size_t)(g * m->out + r);
            set_factors(m, r, g, float_at(scales, at),
                        nibble(zeros, at / 8, order[r % 8]) + above);
        }
}

static qn_status check_pair(const module *m, const qn_weight *zeros,
                            const qn_weight *scales)
{
    int64_t groups = m->in / m->group;
    if (!is_words(zeros, groups, m->out / 8))
        return bad(m, "qzeros is missing, or of another shape");
    return is_floats(scales, groups, m->out)
               ? QN_OK
               : bad(m, "scales are missing, or of another shape");
}

static qn_status read_awq(module *m, const qn_weights *w)
{
    const qn_weight *q = part(w, m->path, "qweight");
    const qn_weight *zeros = part(w, m->path, "qzeros");
    const qn_weight *scales = part(w, m->path, "scales");
    m->in = q->shape[0];
    m->out = q->shape[1] * 8;
    qn_status status = is_words(q, m->in, m->out / 8)
                           ? make_room(m)
                           : bad(m, "qweight: expected 32-bit integers");
    if (!status)
        status = check_pair(m, zeros, scales);
    if (status)
        return status;
    for (int64_t c = 0; c < m->in; c++)
        for (int64_t r = 0; r < m->out; r++)
            set_code(m, r, c,
                     nibble(q, (size_t)(c * m->out + r) / 8, awq_order[r % 8]));
    set_groups(m, zeros, scales, awq_order, 0);
    return QN_OK;
}

/* Rows in the order of their activity would need another product. */
static qn_status check_order(const module *m, const qn_weight *order)
{
    if (!order)
        return QN_OK;
    if (order->ndim != 1 || order->shape[0] != m->in ||
        (order->type != QN_ST_I32 && order->type != QN_ST_U32))
        return bad(m, "g_idx: expected a number for each row");
    for (int64_t i = 0; i < m->in; i++)
        if (qn_le32(order->data.data + 4 * (size_t)i) !=
            (uint32_t)(i / m->group))
            return qn_fail(QN_E_UNSUPPORTED,
                           "%s: GPTQ with act-order is not supported", m->path);
    return QN_OK;
}

static qn_status read_gptq(module *m, const qn_weights *w, bool second)
{
    const qn_weight *q = part(w, m->path, "qweight");
    const qn_weight *zeros = part(w, m->path, "qzeros");
    const qn_weight *scales = part(w, m->path, "scales");
    m->in = q->shape[0] * 8;
    m->out = q->shape[1];
    qn_status status = is_words(q, m->in / 8, m->out) && m->out % 8 == 0
                           ? make_room(m)
                           : bad(m, "qweight: expected 32-bit integers");
    if (!status)
        status = check_pair(m, zeros, scales);
    if (!status)
        status = check_order(m, part(w, m->path, "g_idx"));
    if (status)
        return status;
    for (int64_t c = 0; c < m->in; c++)
        for (int64_t r = 0; r < m->out; r++)
            set_code(
                m, r, c,
                nibble(q, (size_t)(c / 8 * m->out + r), (unsigned)(c % 8)));
    set_groups(m, zeros, scales, plain_order, second ? 0 : 1);
    return QN_OK;
}

/* ---- compressed-tensors ---- */

static qn_status read_int4(module *m, const qn_weights *w)
{
    const qn_weight *q = part(w, m->path, "weight_packed");
    const qn_weight *scales = part(w, m->path, "weight_scale");
    m->out = q->shape[0];
    m->in = q->shape[1] * 8;
    qn_status status = is_words(q, m->out, m->in / 8)
                           ? make_room(m)
                           : bad(m, "weight_packed: expected 32-bit integers");
    if (!status && !is_floats(scales, m->out, m->in / m->group))
        status = bad(m, "weight_scale is missing, or of another shape");
    if (!status && part(w, m->path, "weight_zero_point"))
        status = qn_fail(QN_E_UNSUPPORTED,
                         "%s: compressed-tensors with zero points is not "
                         "supported",
                         m->path);
    if (status)
        return status;
    for (size_t i = 0; i < (size_t)(m->out * m->in / 8); i++)
        m->words[i] = qn_le32(q->data.data + 4 * i);
    for (int64_t r = 0; r < m->out; r++)
        for (int64_t g = 0; g < m->in / m->group; g++)
            set_factors(m, r, g,
                        float_at(scales, (size_t)(r * (m->in / m->group) + g)),
                        8);
    return QN_OK;
}

static float e4m3(uint8_t code)
{
    int exponent = code >> 3 & 15, fraction = code & 7;
    float size = exponent ? (float)(8 + fraction) : (float)fraction;
    for (int i = exponent ? exponent - 10 : -9; i < 0; i++)
        size /= 2;
    for (int i = exponent ? exponent - 10 : -9; i > 0; i--)
        size *= 2;
    return code & 0x80 ? -size : size;
}

/* Scales are divided by one number of the whole matrix, which no packed form of
 * ours has: the values themselves. */
static qn_status read_nvfp4(float **out, module *m, const qn_weights *w)
{
    const qn_weight *q = part(w, m->path, "weight_packed");
    const qn_weight *scales = part(w, m->path, "weight_scale");
    const qn_weight *whole = part(w, m->path, "weight_global_scale");
    m->out = q->ndim == 2 ? q->shape[0] : 0;
    m->in = q->ndim == 2 ? q->shape[1] * 2 : 0;
    size_t count;
    if (m->out < 1 || m->in < 16 || m->in % 16 || q->type != QN_ST_U8 ||
        !scales || scales->ndim != 2 || scales->shape[0] != m->out ||
        scales->shape[1] != m->in / 16 ||
        (scales->type != QN_ST_F8_E4M3 && scales->type != QN_ST_U8))
        return bad(m, "weight_packed and weight_scale do not fit");
    if (whole && (whole->type != QN_ST_F32 || whole->data.size != 4))
        return bad(m, "weight_global_scale: expected one float32");
    float all = whole ? float_at(whole, 0) : 1;
    if (!qn_mul_size(&count, (size_t)m->out, (size_t)m->in))
        return QN_E_NOMEM;
    float *values = qn_calloc(count, sizeof *values);
    if (!values)
        return QN_E_NOMEM;
    for (size_t i = 0; i < count; i++) {
        uint8_t code = q->data.data[i / 2] >> 4 * (i % 2) & 15;
        float scale = e4m3(scales->data.data[i / 16]) / all;
        values[i] = (float)qn_gguf_fp4_codes[code] * 0.5f * scale;
    }
    *out = values;
    return QN_OK;
}

/* ---- the list ---- */

static void take(const qn_weights *w, const char *path)
{
    static const char *const suffixes[] = {
        "qweight",
        "qzeros",
        "scales",
        "g_idx",
        "weight_packed",
        "weight_scale",
        "weight_shape",
        "weight_global_scale",
        "input_global_scale",
        "input_scale",
    };
    char name[512];
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        snprintf(name, sizeof name, "%s.%s", path, suffixes[i]);
        qn_weight *found = qn_weights_find(w, name);
        if (found)
            found->used = true;
    }
}

static qn_status add(qn_weights *w, const module *m, const char *suffix,
                     qn_st_dtype type, int64_t cols, void **data)
{
    char name[512];
    snprintf(name, sizeof name, "%s.%s", m->path, suffix);
    qn_status status =
        qn_weights_add(w, name, (int64_t[]){m->out, cols}, type, *data);
    if (!status)
        *data = NULL;
    return status;
}

static qn_status adopt(qn_weights *w, const qn_quant_table *t, const char *path)
{
    module m = {.path = path, .group = t->defaults.group};
    float *values = NULL;
    qn_status status = t->foreign == QN_FOREIGN_AWQ    ? read_awq(&m, w)
                       : t->foreign == QN_FOREIGN_GPTQ ? read_gptq(&m, w, false)
                       : t->foreign == QN_FOREIGN_GPTQ2 ? read_gptq(&m, w, true)
                       : t->foreign == QN_FOREIGN_INT4
                           ? read_int4(&m, w)
                           : read_nvfp4(&values, &m, w);
    if (!status) {
        take(w, path);
        /* The names are taken by others of another form. */
        qn_weights_forget(w, path, "scales");
    }
    void *parts[] = {values ? (void *)values : (void *)m.words, m.scales,
                     m.biases};
    if (!status && values)
        status = add(w, &m, "weight", QN_ST_F32, m.in, &parts[0]);
    else if (!status)
        status = add(w, &m, "weight", QN_ST_U32, m.in / 8, &parts[0]);
    if (!status && !values)
        status = add(w, &m, "scales", QN_ST_F32, m.in / m.group, &parts[1]);
    if (!status && !values)
        status = add(w, &m, "biases", QN_ST_F32, m.in / m.group, &parts[2]);
    for (int i = 0; i < 3; i++)
        qn_free(parts[i]);
    return status;
}

qn_status qn_foreign_adopt(qn_weights *w, const qn_quant_table *t)
{
    const char *suffix =
        t->foreign == QN_FOREIGN_INT4 || t->foreign == QN_FOREIGN_NVFP4
            ? ".weight_packed"
            : ".qweight";
    size_t tail = strlen(suffix), count = qn_weights_count(w);
    qn_status status = QN_OK;
    for (size_t i = 0; i < count && t->foreign && !status; i++) {
        const qn_weight *item = qn_weights_at(w, i);
        size_t size = strlen(item->name);
        if (size <= tail || item->ndim != 2 ||
            strcmp(item->name + size - tail, suffix) != 0)
            continue;
        char *path = qn_strndup(item->name, size - tail);
        status = path ? adopt(w, t, path) : QN_E_NOMEM;
        qn_free(path);
    }
    return status ? qn_fail_where(status, "%s", qn_weights_path(w)) : QN_OK;
}
