/* write_gguf.c: tensors and metadata of a GGUF file, version 3.
 *
 * A matrix of 4-bit affine groups becomes Q4_1, whose blocks are groups of 32
 * with a float16 scale and minimum: larger groups say theirs several times.
 * What else is packed becomes float16.  Vectors are float32. */
#include "write_gguf.h"

#include "base/alloc.h"
#include "base/f16.h"
#include "gguf_head.h"
#include "kv/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

enum { ALIGN = 32, BLOCK = 32, BLOCK_BYTES = 20 };

/* ---- names ---- */

static const struct {
    const char *module, *name;
} global_names[] = {
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
};

static const struct {
    const char *module, *name;
} layer_names[] = {
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
};

/* "model.layers.3.mlp.up_proj.weight" to "blk.3.ffn_up.weight". */
static qn_status gguf_name(char out[64], const char *name)
{
    const char *dot = strrchr(name, '.');
    int layer, used = 0;
    size_t stem = dot ? (size_t)(dot - name) : 0;
    if (sscanf(name, "model.layers.%4d.%n", &layer, &used) == 1 && used) {
        for (size_t i = 0; i < sizeof layer_names / sizeof *layer_names; i++)
            if (stem == (size_t)used + strlen(layer_names[i].module) &&
                !strncmp(name + used, layer_names[i].module,
                         stem - (size_t)used)) {
                snprintf(out, 64, "blk.%d.%s%s", layer, layer_names[i].name,
                         dot);
                return QN_OK;
            }
    }
    for (size_t i = 0; i < sizeof global_names / sizeof *global_names; i++)
        if (stem == strlen(global_names[i].module) &&
            !strncmp(name, global_names[i].module, stem)) {
            snprintf(out, 64, "%s%s", global_names[i].name, dot);
            return QN_OK;
        }
    return qn_fail(QN_E_UNSUPPORTED, "tensor %s has no name in GGUF files",
                   name);
}

/* ---- types ---- */

/* Whether float16 holds all of them. */
static bool halves_hold(const qn_weight *w)
{
    if (w->type == QN_ST_F16)
        return true;
    uint64_t count = w->data.size / qn_st_dtype_size((qn_st_dtype)w->type);
    for (uint64_t i = 0; i < count; i++) {
        float value;
        qn_read_plain(&value, w, i, 1);
        if (qn_f16_to_f32(qn_f32_to_f16(value)) != value)
            return false;
    }
    return true;
}

static bool is_q4_1(const qn_item *item)
{
    return item->form == QN_FORM_PACKED && item->from.bits == 4 &&
           item->from.mode == QN_MODE_AFFINE && item->from.group % BLOCK == 0;
}

static int type_of(qn_item *item)
{
    if (item->rows == 1 || item->main->ndim < 2)
        return QN_GGUF_F32_T;
    if (item->action == QN_KEEP && is_q4_1(item)) {
        item->inexact =
            !halves_hold(item->scales) || !halves_hold(item->biases);
        return QN_GGUF_Q4_1_T;
    }
    qn_st_dtype dtype =
        item->action == QN_CAST ? item->dtype : qn_item_floats(item);
    if (item->action == QN_KEEP && item->form == QN_FORM_PACKED) {
        item->inexact = true;
        dtype = QN_ST_F16;
    }
    return dtype == QN_ST_F32    ? QN_GGUF_F32_T
           : dtype == QN_ST_BF16 ? QN_GGUF_BF16_T
                                 : QN_GGUF_F16_T;
}

static uint64_t row_size(int type, uint64_t cols)
{
    return type == QN_GGUF_Q4_1_T  ? cols / BLOCK * BLOCK_BYTES
           : type == QN_GGUF_F32_T ? cols * 4
                                   : cols * 2;
}

/* The rows of each head stand in pairs in files of this architecture. */
static void pair_rows(const qn_origin *s, qn_item *item)
{
    bool llama = !strcmp(s->arch, "llama") || !strcmp(s->arch, "mistral");
    bool q = strstr(item->name, ".self_attn.q_proj.") != NULL;
    bool k = strstr(item->name, ".self_attn.k_proj.") != NULL;
    int64_t heads = 0;
    if (!llama || (!q && !k))
        return;
    if (!k ||
        !qn_json_as_int(qn_origin_config(s, "num_key_value_heads"), &heads))
        qn_json_as_int(qn_origin_config(s, "num_attention_heads"), &heads);
    item->paired_heads = heads > 0 && heads < QN_PIECE ? (int)heads : 0;
    if (item->paired_heads && item->main->ndim == 1) {
        item->rows = item->cols;
        item->cols = 1;
    }
}

/* Which row of the directory is row `row` of the file. */
static uint64_t source_row(const qn_item *item, uint64_t row)
{
    uint64_t heads = (uint64_t)item->paired_heads;
    if (!heads || item->rows % (2 * heads))
        return row;
    uint64_t d = item->rows / heads, head = row / d, i = row % d;
    return head * d + i % 2 * (d / 2) + i / 2;
}

/* ---- the front ---- */

static uint64_t aligned(uint64_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static qn_status add_info(qn_buf *head, qn_item *item, uint64_t at)
{
    char name[64];
    qn_status status = gguf_name(name, item->name);
    if (status)
        return status;
    qn_gguf_put_text(head, qn_str_of(name));
    qn_gguf_put_u32(head, (uint32_t)item->main->ndim);
    if (item->main->ndim > 1)
        qn_gguf_put_u64(head, item->cols);
    for (int i = item->main->ndim - 2; i >= 0; i--)
        qn_gguf_put_u64(head, (uint64_t)item->main->shape[i]);
    if (item->main->ndim == 1)
        qn_gguf_put_u64(head, item->rows * item->cols);
    qn_gguf_put_u32(head, (uint32_t)item->gguf_type);
    qn_gguf_put_u64(head, at);
    return QN_OK;
}

qn_status qn_gguf_plan(qn_buf *head, qn_origin *s, uint64_t *total)
{
    uint64_t at = 0;
    qn_status status = s->gguf ? qn_fail(QN_E_UNSUPPORTED,
                                         "%s is a GGUF file already", s->path)
                               : qn_gguf_head(head, s, s->count);
    for (size_t i = 0; i < s->count && !status; i++) {
        qn_item *item = &s->items[i];
        pair_rows(s, item);
        if (item->action == QN_QUANT)
            return qn_fail(QN_E_UNSUPPORTED,
                           "to gguf: quantize a directory first");
        item->gguf_type = type_of(item);
        item->out[0].at = at;
        item->out[0].size = item->rows * row_size(item->gguf_type, item->cols);
        status = add_info(head, item, at);
        at = aligned(at + item->out[0].size);
    }
    while (!status && head->size % ALIGN && !head->failed)
        qn_buf_add_char(head, '\0');
    *total = head->size + at;
    return status ? status : qn_buf_status(head);
}

/* ---- the data ---- */

/* A row of groups as blocks. */
static void put_blocks(uint8_t *out, const qn_item *item, uint64_t row)
{
    uint64_t groups = item->cols / (uint64_t)item->from.group;
    const uint8_t *words = item->main->data.data + row * item->cols / 2;
    for (uint64_t b = 0; b < item->cols / BLOCK; b++, out += BLOCK_BYTES) {
        uint64_t g = row * groups + b * BLOCK / (uint64_t)item->from.group;
        float scale, bias;
        qn_read_plain(&scale, item->scales, g, 1);
        qn_read_plain(&bias, item->biases, g, 1);
        uint16_t d = qn_f32_to_f16(scale), m = qn_f32_to_f16(bias);
        out[0] = (uint8_t)d;
        out[1] = (uint8_t)(d >> 8);
        out[2] = (uint8_t)m;
        out[3] = (uint8_t)(m >> 8);
        for (int i = 0; i < 16; i++) {
            const uint8_t *low = words + b * 16;
            int first = low[i / 2] >> 4 * (i % 2) & 15;
            int second = low[8 + i / 2] >> 4 * (i % 2) & 15;
            out[4 + i] = (uint8_t)(first | second << 4);
        }
    }
}

static qn_status put_row(uint8_t *out, float *values, const qn_item *item,
                         uint64_t row, mlx_stream s)
{
    if (item->gguf_type == QN_GGUF_Q4_1_T) {
        put_blocks(out, item, row);
        return QN_OK;
    }
    qn_st_dtype dtype = item->gguf_type == QN_GGUF_F32_T    ? QN_ST_F32
                        : item->gguf_type == QN_GGUF_BF16_T ? QN_ST_BF16
                                                            : QN_ST_F16;
    qn_status status = qn_read_rows(values, item, row, 1, dtype, s);
    if (!status)
        qn_floats_to(out, values, item->cols, dtype);
    return status;
}

static qn_status write_all(int fd, const void *data, size_t size,
                           const char *path)
{
    const char *at = data;
    while (size) {
        ssize_t n = write(fd, at, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int error = n ? errno : ENOSPC;
            qn_status status = qn_fail(error == ENOSPC ? QN_E_SPACE : QN_E_IO,
                                       "cannot write: %s", strerror(error));
            return qn_fail_where(status, "%s", path);
        }
        at += n;
        size -= (size_t)n;
    }
    return QN_OK;
}

typedef struct out_file {
    int fd;
    const char *path;
    mlx_stream stream;
    int64_t done, total;
    qn_step_fn step;
    void *data;
} out_file;

static qn_status write_item(out_file *f, const qn_item *item)
{
    uint64_t row = row_size(item->gguf_type, item->cols);
    uint64_t piece = QN_PIECE / (item->cols ? item->cols : 1);
    piece = piece < 1 ? 1 : piece < item->rows ? piece : item->rows;
    uint8_t *bytes = qn_calloc(piece, row);
    float *values = qn_calloc(item->cols, sizeof *values);
    qn_status status = bytes && values ? QN_OK : QN_E_NOMEM;
    for (uint64_t r = 0; r < item->rows && !status; r += piece) {
        uint64_t count = item->rows - r < piece ? item->rows - r : piece;
        for (uint64_t i = 0; i < count && !status; i++)
            status = put_row(bytes + i * row, values, item,
                             source_row(item, r + i), f->stream);
        if (!status)
            status = write_all(f->fd, bytes, count * row, f->path);
        f->done += (int64_t)(count * row);
        if (!status && f->step && !f->step(f->data, f->done, f->total))
            status = qn_fail(QN_E_CANCELLED, "stopped");
    }
    static const uint8_t zeros[ALIGN];
    uint64_t size = item->out[0].size;
    if (!status)
        status = write_all(f->fd, zeros, aligned(size) - size, f->path);
    if (!item->main->owned)
        qn_file_dont_need(item->main->file,
                          (size_t)(item->main->data.data -
                                   qn_file_bytes(item->main->file).data),
                          item->main->data.size);
    qn_free(bytes);
    qn_free(values);
    return status;
}

qn_status qn_gguf_write(qn_origin *s, const qn_buf *head, const char *path,
                        qn_step_fn step, void *data)
{
    out_file f = {.path = path, .step = step, .data = data};
    mlx_device device = {NULL};
    f.fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (f.fd < 0)
        return qn_fail(QN_E_IO, "cannot open %s: %s", path, strerror(errno));
    qn_status status = qn_engine(mlx_get_default_device(&device));
    if (!status)
        f.stream = mlx_stream_new_thread_unsafe(device);
    if (device.ctx)
        mlx_device_free(device);
    for (size_t i = 0; i < s->count; i++)
        f.total += (int64_t)s->items[i].out[0].size;
    if (!status)
        status = write_all(f.fd, head->data, head->size, path);
    for (size_t i = 0; i < s->count && !status; i++)
        status = write_item(&f, &s->items[i]);
    bool failed = fsync(f.fd) != 0;
    failed |= close(f.fd) != 0;
    if (!status && failed)
        status = qn_fail(QN_E_IO, "cannot write %s: %s", path, strerror(errno));
    if (f.stream.ctx)
        mlx_stream_free(f.stream);
    mlx_clear_cache();
    return status;
}
