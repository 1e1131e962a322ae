/* rows.c: rows of an item as numbers. */
#include "convert.h"

#include "base/f16.h"
#include "base/gguf_blocks.h"
#include "kv/engine.h"

/* The types of plain tensors in both formats. */
static const struct {
    int gguf;
    qn_st_dtype st;
} plain_types[] = {
    {QN_GGUF_F32_T, QN_ST_F32},   {QN_GGUF_F16_T, QN_ST_F16},
    {QN_GGUF_BF16_T, QN_ST_BF16}, {QN_GGUF_I8_T, QN_ST_I8},
    {QN_GGUF_I16_T, QN_ST_I16},   {QN_GGUF_I32_T, QN_ST_I32},
};

/* The type of a plain item. */
static qn_st_dtype plain_type(const qn_item *item)
{
    if (!item->gguf)
        return (qn_st_dtype)item->main->type;
    for (size_t i = 0; i < sizeof plain_types / sizeof *plain_types; i++)
        if (plain_types[i].gguf == item->main->type)
            return plain_types[i].st;
    return QN_ST_U8;
}

static bool is_float(qn_st_dtype dtype)
{
    return dtype == QN_ST_F32 || dtype == QN_ST_F16 || dtype == QN_ST_BF16 ||
           dtype == QN_ST_F64;
}

bool qn_item_is_float(const qn_item *item)
{
    return item->form != QN_FORM_PLAIN || is_float(plain_type(item));
}

qn_st_dtype qn_item_floats(const qn_item *item)
{
    if (item->form == QN_FORM_BLOCKS)
        return QN_ST_F16;
    if (item->form == QN_FORM_PACKED)
        return item->from.mode == QN_MODE_AFFINE
                   ? (qn_st_dtype)item->scales->type
                   : QN_ST_BF16;
    qn_st_dtype dtype = plain_type(item);
    return dtype == QN_ST_F64 ? QN_ST_F32 : dtype;
}

uint64_t qn_row_of(const qn_item *item, uint64_t row)
{
    return item->source_row ? item->source_row[row] : row;
}

size_t qn_row_bytes(const qn_item *item)
{
    return item->rows ? item->main->data.size / item->rows : 0;
}

const uint8_t *qn_raw_rows(uint8_t *out, const qn_item *item, uint64_t first,
                           uint64_t count)
{
    size_t row = qn_row_bytes(item);
    for (uint64_t r = 0; item->stack && r < count; r++) {
        uint64_t inside;
        const qn_item *part = qn_stack_part(item, first + r, &inside);
        memcpy(out + r * row, part->main->data.data + inside * row, row);
    }
    if (item->stack)
        return out;
    if (!item->source_row)
        return item->main->data.data + first * row;
    for (uint64_t r = 0; r < count; r++)
        memcpy(out + r * row,
               item->main->data.data + qn_row_of(item, first + r) * row, row);
    return out;
}

static float plain_value(const uint8_t *data, qn_st_dtype dtype, size_t i)
{
    double wide;
    uint64_t bits;
    switch (dtype) {
    case QN_ST_F32:
        return qn_bits_float(qn_le32(data + 4 * i));
    case QN_ST_F16:
        return qn_f16_to_f32(qn_le16(data + 2 * i));
    case QN_ST_BF16:
        return qn_bf16_to_f32(qn_le16(data + 2 * i));
    case QN_ST_F64:
        bits = qn_le64(data + 8 * i);
        memcpy(&wide, &bits, sizeof wide);
        return (float)wide;
    default:
        return 0; /* integers are never read as floats */
    }
}

void qn_read_plain(float *out, const qn_weight *w, uint64_t first,
                   uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = plain_value(w->data.data, (qn_st_dtype)w->type, first + i);
}

static void read_plain(float *out, const qn_item *item, uint64_t first,
                       uint64_t count)
{
    qn_st_dtype dtype = plain_type(item);
    size_t row = qn_row_bytes(item);
    for (uint64_t r = 0; r < count; r++) {
        const uint8_t *data =
            item->main->data.data + qn_row_of(item, first + r) * row;
        for (size_t i = 0; i < item->cols; i++)
            out[i] = plain_value(data, dtype, i);
        /* Zeros keep their signs where nothing is added. */
        for (size_t i = 0; item->shift && i < item->cols; i++)
            out[i] += (float)item->shift;
        out += item->cols;
    }
}

static void read_blocks(float *out, const qn_item *item, uint64_t first,
                        uint64_t count)
{
    size_t bytes = 0, elements = 0, row = qn_row_bytes(item);
    qn_gguf_type_block(item->main->type, &bytes, &elements);
    for (uint64_t r = 0; r < count; r++) {
        const uint8_t *block =
            item->main->data.data + qn_row_of(item, first + r) * row;
        for (size_t i = 0; i < item->cols; i += elements, block += bytes) {
            qn_gguf_expand(out, item->main->type, block);
            out += elements;
        }
    }
}

/* ---- packed modules ---- */

mlx_dtype qn_array_dtype(qn_st_dtype floats)
{
    return floats == QN_ST_F16    ? MLX_FLOAT16
           : floats == QN_ST_BF16 ? MLX_BFLOAT16
                                  : MLX_FLOAT32;
}

/* Rows of one of the arrays, copied. */
static qn_status part_rows(mlx_array *out, const qn_weight *w, uint64_t rows,
                           uint64_t first, uint64_t count)
{
    static const struct {
        int st;
        mlx_dtype dtype;
    } types[] = {{QN_ST_U32, MLX_UINT32},   {QN_ST_F32, MLX_FLOAT32},
                 {QN_ST_F16, MLX_FLOAT16},  {QN_ST_BF16, MLX_BFLOAT16},
                 {QN_ST_U8, MLX_UINT8},     {QN_ST_F8_E4M3, MLX_UINT8},
                 {QN_ST_F8_E8M0, MLX_UINT8}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].st != w->type)
            continue;
        size_t row = w->data.size / rows;
        int shape[] = {(int)count, (int)(row / mlx_dtype_size(types[i].dtype))};
        *out = mlx_array_new_data(w->data.data + first * row, shape, 2,
                                  types[i].dtype);
        return qn_engine_made(out->ctx);
    }
    return qn_fail(QN_E_UNSUPPORTED,
                   "tensor %s: a type that packed modules "
                   "do not have",
                   w->name);
}

static qn_status read_packed(float *out, const qn_item *item, uint64_t first,
                             uint64_t count, qn_st_dtype dtype, mlx_stream s)
{
    mlx_array part[3] = {{NULL}, {NULL}, {NULL}}, values = {NULL};
    const qn_weight *w[] = {item->main, item->scales,
                            item->from.mode == QN_MODE_AFFINE ? item->biases
                                                              : NULL};
    qn_status status = QN_OK;
    for (int i = 0; i < 3 && !status; i++)
        if (w[i])
            status = part_rows(&part[i], w[i], item->rows, first, count);
    if (!status)
        status = qn_engine(mlx_dequantize(
            &values, part[0], part[1], part[2],
            (mlx_optional_int){item->from.group, true},
            (mlx_optional_int){item->from.bits, true},
            qn_quant_mode_name(item->from.mode), (mlx_array){NULL},
            /* The type that comes by itself has roundings of its own. */
            (mlx_optional_dtype){qn_array_dtype(dtype),
                                 dtype != qn_item_floats(item)},
            s));
    if (!status)
        status = qn_engine(mlx_astype(&values, values, MLX_FLOAT32, s));
    if (!status)
        status = qn_engine(mlx_array_eval(values));
    if (!status)
        memcpy(out, mlx_array_data_float32(values),
               count * item->cols * sizeof *out);
    for (int i = 0; i < 3; i++)
        if (part[i].ctx)
            mlx_array_free(part[i]);
    if (values.ctx)
        mlx_array_free(values);
    return status;
}

/* Piece by piece, each of one part. */
static qn_status read_stack(float *out, const qn_item *item, uint64_t first,
                            uint64_t count, qn_st_dtype dtype, mlx_stream s)
{
    qn_status status = QN_OK;
    while (count && !status) {
        uint64_t inside;
        const qn_item *part = qn_stack_part(item, first, &inside);
        uint64_t n = part->rows - inside < count ? part->rows - inside : count;
        status = qn_read_rows(out, part, inside, n, dtype, s);
        out += n * item->cols;
        first += n;
        count -= n;
    }
    return status;
}

qn_status qn_read_rows(float *out, const qn_item *item, uint64_t first,
                       uint64_t count, qn_st_dtype dtype, mlx_stream s)
{
    qn_status status = QN_OK;
    if (item->stack)
        status = read_stack(out, item, first, count, dtype, s);
    else if (item->form == QN_FORM_PACKED)
        status = read_packed(out, item, first, count, dtype, s);
    else if (item->form == QN_FORM_BLOCKS)
        read_blocks(out, item, first, count);
    else
        read_plain(out, item, first, count);
    for (uint64_t r = 0; r < count && item->factor && !status; r++)
        for (uint64_t i = 0; i < item->cols; i++)
            *out++ *= item->factor[i];
    return status;
}

void qn_floats_to(void *out, const float *in, size_t count, qn_st_dtype dtype)
{
    uint16_t *half = out;
    if (dtype == QN_ST_F32)
        memcpy(out, in, count * sizeof *in);
    else if (dtype == QN_ST_F16)
        for (size_t i = 0; i < count; i++)
            half[i] = qn_f32_to_f16(in[i]);
    else
        for (size_t i = 0; i < count; i++)
            half[i] = qn_f32_to_bf16(in[i]);
}
