/* write_gguf.c: tensors and metadata of a GGUF file, version 3.
 *
 * A matrix of 4-bit affine groups becomes Q4_1, whose blocks are groups of 32
 * with a float16 scale and minimum: larger groups say theirs several times.
 * Where the minimum is -8 scales, as in what was Q4_0, it is Q4_0 again, and
 * 8-bit groups whose minimum is -128 scales are Q8_0.  What else is packed
 * becomes float16.  Vectors are float32. */
#include "write_gguf.h"

#include "base/alloc.h"
#include "base/f16.h"
#include "gguf_head.h"
#include "kv/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

enum { ALIGN = 32, BLOCK = 32 };

/* ---- names ---- */

static const struct {
    const char *module, *name;
} global_names[] = {
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
};

/* Gemma 2 and 3 have norms behind each sublayer, too. */
static const struct {
    const char *module, *name;
} gemma_names[] = {
    {"post_attention_layernorm", "post_attention_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
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

static bool four_norms(const qn_origin *s)
{
    return !strcmp(s->arch, "gemma2") || !strncmp(s->arch, "gemma3", 6);
}

/* What a module of a layer is called, or NULL. */
static const char *layer_name(const qn_origin *s, qn_str module)
{
    for (size_t i = 0; i < sizeof gemma_names / sizeof *gemma_names; i++)
        if (four_norms(s) && qn_str_is(module, gemma_names[i].module))
            return gemma_names[i].name;
    for (size_t i = 0; i < sizeof layer_names / sizeof *layer_names; i++)
        if (qn_str_is(module, layer_names[i].module))
            return layer_names[i].name;
    return NULL;
}

/* "model.layers.3.mlp.up_proj.weight" to "blk.3.ffn_up.weight". */
static qn_status gguf_name(char out[64], const qn_origin *s, const char *name)
{
    const char *dot = strrchr(name, '.'), *found = NULL;
    int layer, used = 0;
    size_t stem = dot ? (size_t)(dot - name) : 0;
    if (sscanf(name, "model.layers.%4d.%n", &layer, &used) == 1 && used &&
        stem > (size_t)used)
        found = layer_name(s, (qn_str){name + used, stem - (size_t)used});
    if (found) {
        snprintf(out, 64, "blk.%d.%s%s", layer, found, dot);
        return QN_OK;
    }
    for (size_t i = 0; i < sizeof global_names / sizeof *global_names; i++)
        if (qn_str_is((qn_str){name, stem}, global_names[i].module)) {
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

/* Whether each minimum is so many scales below 0. */
static bool is_centred(const qn_item *item, float middle)
{
    const qn_weight *scales = item->scales, *biases = item->biases;
    uint64_t count =
        scales->data.size / qn_st_dtype_size((qn_st_dtype)scales->type);
    for (uint64_t i = 0; i < count; i++) {
        float scale, bias;
        qn_read_plain(&scale, scales, i, 1);
        qn_read_plain(&bias, biases, i, 1);
        if (bias != -middle * scale)
            return false;
    }
    return true;
}

/* The type whose blocks hold the item's codes, or -1. */
static int block_type(qn_item *item)
{
    int bits = item->from.bits;
    if (item->form != QN_FORM_PACKED || item->action != QN_KEEP ||
        item->from.mode != QN_MODE_AFFINE || item->from.group % BLOCK)
        return -1;
    bool halves = halves_hold(item->scales);
    if (bits == 8)
        return halves && is_centred(item, 128) ? QN_GGUF_Q8_0_T : -1;
    if (bits != 4)
        return -1;
    if (halves && is_centred(item, 8))
        return QN_GGUF_Q4_0_T;
    item->inexact = !halves || !halves_hold(item->biases);
    return QN_GGUF_Q4_1_T;
}

static int type_of(qn_item *item)
{
    if (item->rows == 1 || item->main->ndim < 2)
        return QN_GGUF_F32_T;
    int blocks = block_type(item);
    if (blocks >= 0)
        return blocks;
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
    size_t bytes = 0, elements = 1;
    qn_gguf_type_block(type, &bytes, &elements);
    return cols / elements * bytes;
}

/* Norms of Gemma have the 1 that model directories leave to the program. */
static void add_one(const qn_origin *s, qn_item *item)
{
    const char *tail = strrchr(item->name, '.');
    bool norm = item->main->ndim == 1 && tail && tail - item->name >= 4 &&
                !strncmp(tail - 4, "norm.weight", 11);
    item->shift = norm && !strncmp(s->arch, "gemma", 5);
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

static qn_status add_info(qn_buf *head, const qn_origin *s, qn_item *item,
                          uint64_t at)
{
    char name[64];
    qn_status status = gguf_name(name, s, item->name);
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
        add_one(s, item);
        if (item->action == QN_QUANT)
            return qn_fail(QN_E_UNSUPPORTED,
                           "to gguf: quantize a directory first");
        item->gguf_type = type_of(item);
        item->out[0].at = at;
        item->out[0].size = item->rows * row_size(item->gguf_type, item->cols);
        status = add_info(head, s, item, at);
        at = aligned(at + item->out[0].size);
    }
    while (!status && head->size % ALIGN && !head->failed)
        qn_buf_add_char(head, '\0');
    *total = head->size + at;
    return status ? status : qn_buf_status(head);
}

/* ---- the data ---- */

static void put_half(uint8_t *out, const qn_weight *w, uint64_t i)
{
    float value;
    qn_read_plain(&value, w, i, 1);
    uint16_t half = qn_f32_to_f16(value);
    out[0] = (uint8_t)half;
    out[1] = (uint8_t)(half >> 8);
}

/* 32 codes of 4 bits, of which blocks have the first and the second half beside
 * each other. */
static void put_nibbles(uint8_t *out, const uint8_t *low)
{
    for (int i = 0; i < 16; i++) {
        int first = low[i / 2] >> 4 * (i % 2) & 15;
        int second = low[8 + i / 2] >> 4 * (i % 2) & 15;
        out[i] = (uint8_t)(first | second << 4);
    }
}

/* A row of groups as blocks. */
static void put_blocks(uint8_t *out, const qn_item *item, uint64_t row)
{
    uint64_t bits = (uint64_t)item->from.bits, bytes = BLOCK * bits / 8;
    uint64_t group = (uint64_t)item->from.group, groups = item->cols / group;
    const uint8_t *codes = item->main->data.data + row * item->cols * bits / 8;
    for (uint64_t b = 0; b < item->cols / BLOCK; b++, codes += bytes) {
        uint64_t g = row * groups + b * BLOCK / group;
        put_half(out, item->scales, g);
        out += 2;
        if (item->gguf_type == QN_GGUF_Q4_1_T) {
            put_half(out, item->biases, g);
            out += 2;
        }
        if (bits == 4)
            put_nibbles(out, codes);
        /* The codes of Q8_0 have a sign. */
        for (int i = 0; i < BLOCK && bits == 8; i++)
            out[i] = codes[i] ^ 0x80;
        out += bytes;
    }
}

static bool is_blocks(int type)
{
    return type == QN_GGUF_Q4_1_T || type == QN_GGUF_Q4_0_T ||
           type == QN_GGUF_Q8_0_T;
}

static qn_status put_row(uint8_t *out, float *values, const qn_item *item,
                         uint64_t row, mlx_stream s)
{
    if (is_blocks(item->gguf_type)) {
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
