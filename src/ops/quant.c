/* quant.c: packed matrices.
 *
 * Rows are packed group by group along the last axis: `bits` per element as
 * one little-endian bit stream in uint32 words, with a scale (and in affine
 * mode a bias) for each group.  Scales and biases keep their own types: the
 * backend reads any floating type, only the result's type is decided here. */
#include "quant.h"

#include <limits.h>
#include <string.h>

/* ---- modes ---- */

typedef struct mode_info {
    const char *name;
    int group_size, bits; /* what a caller may leave out */
} mode_info;

static const mode_info modes[] = {
    [QN_QUANT_AFFINE] = {"affine", 64, 4},
    [QN_QUANT_MXFP4] = {"mxfp4", 32, 4},
    [QN_QUANT_MXFP8] = {"mxfp8", 32, 8},
    [QN_QUANT_NVFP4] = {"nvfp4", 16, 4},
};

const char *qn_packed_mode_name(qn_quant_mode mode)
{
    return modes[mode].name;
}

qn_status qn_packed_format(qn_quant_params *p, const char *op,
                           const int *group_size, const int *bits,
                           const char *mode, bool small)
{
    memset(p, 0, sizeof *p);
    size_t i = 0, n = sizeof modes / sizeof *modes;
    while (i < n && strcmp(mode, modes[i].name))
        i++;
    if (i == n)
        return qn_fail(QN_E_ARG, "[%s] Invalid quantization mode '%s'.", op,
                       mode);
    p->mode = (qn_quant_mode)i;
    p->group_size = group_size ? *group_size : modes[i].group_size;
    p->bits = bits ? *bits : modes[i].bits;
    if (p->mode != QN_QUANT_AFFINE) {
        if (p->group_size != modes[i].group_size || p->bits != modes[i].bits)
            return qn_fail(QN_E_ARG,
                           "[%s] %s quantization requires group size %d and %d "
                           "bits but got %d and %d.",
                           op, mode, modes[i].group_size, modes[i].bits,
                           p->group_size, p->bits);
        return QN_OK;
    }
    switch (p->group_size) {
    case 32:
    case 64:
    case 128:
        break;
    case 16:
        if (small)
            break;
        /* fallthrough */
    default:
        return qn_fail(QN_E_ARG,
                       "[%s] The requested group size %d is not supported. The "
                       "supported group sizes are 32, 64, and 128.",
                       op, p->group_size);
    }
    switch (p->bits) {
    case 2:
    case 3:
    case 4:
    case 5:
    case 6:
    case 8:
        return QN_OK;
    default:
        return qn_fail(QN_E_ARG,
                       "[%s] The requested number of bits %d is not supported. "
                       "The supported bits are 2, 3, 4, 5, 6 and 8.",
                       op, p->bits);
    }
}

/* Checks a packed matrix against its scales and biases.  On success *columns
 * is the unpacked length of its rows. */
static qn_status check_packed(int *columns, const char *op,
                              const qn_quant_params *p, const qn_array *w,
                              const qn_array *scales, const qn_array *biases)
{
    if (w->dtype != QN_UINT32)
        return qn_fail(QN_E_ARG,
                       "[%s] The packed matrix should be uint32 but received "
                       "%s.",
                       op, qn_dtype_name(w->dtype));
    if (p->mode == QN_QUANT_AFFINE) {
        if (!biases)
            return qn_fail(QN_E_ARG,
                           "[%s] Biases must be provided for affine "
                           "quantization.",
                           op);
        if (!qn_dtype_is_float(scales->dtype) ||
            !qn_dtype_is_float(biases->dtype))
            return qn_fail(QN_E_ARG,
                           "[%s] Scales and biases must be of real floating "
                           "types, found %s and %s.",
                           op, qn_dtype_name(scales->dtype),
                           qn_dtype_name(biases->dtype));
        if (!qn_same_shape(scales, biases))
            return qn_fail(QN_E_ARG,
                           "[%s] Scales and biases should have the same shape, "
                           "found %s and %s.",
                           op, qn_array_shape_text(scales).text,
                           qn_array_shape_text(biases).text);
    } else {
        if (biases)
            return qn_fail(QN_E_ARG, "[%s] Biases must be null for mode '%s'.",
                           op, modes[p->mode].name);
        if (scales->dtype != QN_UINT8)
            return qn_fail(QN_E_ARG,
                           "[%s] Scale type must be uint8 but received type "
                           "%s.",
                           op, qn_dtype_name(scales->dtype));
    }
    if (w->ndim < 2)
        return qn_fail(QN_E_ARG,
                       "[%s] The packed matrix must have at least 2 dimensions "
                       "but it has only %d.",
                       op, w->ndim);
    bool fits = w->ndim == scales->ndim;
    for (int i = 0; fits && i < w->ndim - 1; i++)
        fits = w->shape[i] == scales->shape[i];
    int64_t words = fits ? w->shape[w->ndim - 1] : 0;
    int64_t length = words * 32 / p->bits;
    fits = fits && words * 32 % p->bits == 0 && length <= INT_MAX &&
           length == (int64_t)scales->shape[w->ndim - 1] * p->group_size;
    if (!fits)
        return qn_fail(QN_E_ARG,
                       "[%s] A packed matrix of shape %s and scales of shape "
                       "%s do not match with group_size=%d and bits=%d.",
                       op, qn_array_shape_text(w).text,
                       qn_array_shape_text(scales).text, p->group_size,
                       p->bits);
    *columns = (int)length;
    return QN_OK;
}

static qn_status check_global(const char *op, qn_quant_params *p,
                              const qn_array *global_scale)
{
    p->has_global_scale = global_scale != NULL;
    if (!global_scale)
        return QN_OK;
    if (p->mode != QN_QUANT_NVFP4)
        return qn_fail(QN_E_ARG,
                       "[%s] A global scale is only supported for mode "
                       "'nvfp4'.",
                       op);
    if (global_scale->size != 1 || global_scale->dtype != QN_FLOAT32)
        return qn_fail(QN_E_ARG,
                       "[%s] The global scale must be one float32 element, "
                       "found %s of shape %s.",
                       op, qn_dtype_name(global_scale->dtype),
                       qn_array_shape_text(global_scale).text);
    return QN_OK;
}

/* ---- packing and unpacking ---- */

qn_status qn_op_quantize(qn_array **out, size_t *count, qn_array *w,
                         const int *group_size, const int *bits,
                         const char *mode, qn_array *global_scale, qn_stream *s)
{
    qn_quant_params p;
    qn_status status =
        qn_packed_format(&p, "quantize", group_size, bits, mode, false);
    if (!status)
        status = check_global("quantize", &p, global_scale);
    if (status)
        return status;
    if (!qn_dtype_is_float(w->dtype))
        return qn_fail(QN_E_ARG,
                       "[quantize] Only real floating types can be quantized "
                       "but w has type %s.",
                       qn_dtype_name(w->dtype));
    if (w->ndim < 2)
        return qn_fail(QN_E_ARG,
                       "[quantize] The matrix to be quantized must have at "
                       "least 2 dimension but it has only %d.",
                       w->ndim);
    int columns = w->shape[w->ndim - 1];
    if (columns % p.group_size)
        return qn_fail(QN_E_ARG,
                       "[quantize] The last dimension must be divisible by the "
                       "group size %d, found shape %s.",
                       p.group_size, qn_array_shape_text(w).text);
    qn_dims packed = qn_dims_of(w), groups = qn_dims_of(w);
    packed.dim[w->ndim - 1] = (int)((int64_t)columns * p.bits / 32);
    groups.dim[w->ndim - 1] = columns / p.group_size;

    bool affine = p.mode == QN_QUANT_AFFINE;
    qn_dtype scale_type = affine ? w->dtype : QN_UINT8;
    int n = affine ? 3 : 2;
    qn_array *made[3] = {NULL, NULL, NULL};
    status = qn_array_new(&made[0], QN_UINT32, packed.dim, packed.ndim);
    for (int i = 1; i < n && !status; i++)
        status = qn_array_new(&made[i], scale_type, groups.dim, groups.ndim);
    qn_array *inputs[2] = {w, global_scale};
    qn_node_spec spec = {.op = QN_OP_QUANTIZE,
                         .stream = s,
                         .inputs = inputs,
                         .ninputs = 1 + p.has_global_scale,
                         .params = &p,
                         .params_size = sizeof p};
    if (!status)
        status = qn_node_attach(&spec, made, n);
    if (status) {
        for (int i = 0; i < n; i++)
            qn_array_unref(made[i]);
        return status;
    }
    memcpy(out, made, (size_t)n * sizeof *out);
    *count = (size_t)n;
    return QN_OK;
}

qn_status qn_op_dequantize(qn_array **out, qn_array *w, qn_array *scales,
                           qn_array *biases, const int *group_size,
                           const int *bits, const char *mode,
                           qn_array *global_scale, const qn_dtype *dtype,
                           qn_stream *s)
{
    qn_quant_params p;
    int columns;
    qn_status status =
        qn_packed_format(&p, "dequantize", group_size, bits, mode, true);
    if (!status)
        status = check_global("dequantize", &p, global_scale);
    if (!status)
        status = check_packed(&columns, "dequantize", &p, w, scales, biases);
    if (status)
        return status;
    bool affine = p.mode == QN_QUANT_AFFINE;
    qn_dtype type = dtype    ? *dtype
                    : affine ? qn_promote(scales->dtype, biases->dtype)
                             : QN_BFLOAT16;
    if (!qn_dtype_is_float(type))
        return qn_fail(QN_E_ARG,
                       "[dequantize] Only real floating types are supported "
                       "but the output dtype is %s.",
                       qn_dtype_name(type));
    qn_dims dims = qn_dims_of(w);
    dims.dim[w->ndim - 1] = columns;
    qn_array *inputs[4] = {w, scales};
    int n = 2;
    if (affine)
        inputs[n++] = biases;
    if (global_scale)
        inputs[n++] = global_scale;
    return qn_make(out, QN_OP_DEQUANTIZE, s, inputs, n, &p, sizeof p, type,
                   dims.dim, dims.ndim);
}

/* ---- products ---- */

qn_status qn_packed_check(qn_packed_sizes *sizes, const char *op,
                          const qn_quant_params *p, bool keep,
                          const qn_array *x, const qn_array *w,
                          const qn_array *scales, const qn_array *biases)
{
    int columns;
    qn_status status = check_packed(&columns, op, p, w, scales, biases);
    if (status)
        return status;
    sizes->type = x->dtype;
    if (!keep && p->mode == QN_QUANT_AFFINE)
        sizes->type =
            qn_promote(x->dtype, qn_promote(scales->dtype, biases->dtype));
    if (!qn_dtype_is_float(sizes->type))
        return qn_fail(QN_E_ARG,
                       "[%s] Only real floating types are supported but x has "
                       "type %s.",
                       op, qn_dtype_name(x->dtype));
    int rows = w->shape[w->ndim - 2];
    sizes->inner = p->transpose ? columns : rows;
    sizes->outer = p->transpose ? rows : columns;
    if (x->ndim && x->shape[x->ndim - 1] == sizes->inner)
        return QN_OK;
    return qn_fail(QN_E_ARG,
                   "[%s] The last dimension of the first input with shape %s "
                   "does not match the expanded quantized matrix of %d rows "
                   "and %d columns (packed shape %s, group_size=%d, bits=%d, "
                   "transpose=%s).",
                   op, qn_array_shape_text(x).text, rows, columns,
                   qn_array_shape_text(w).text, p->group_size, p->bits,
                   p->transpose ? "true" : "false");
}

static qn_status product(qn_array **out, const char *op, qn_array *x,
                         qn_array *w, qn_array *scales, qn_array *biases,
                         const qn_quant_params *p, bool keep, qn_stream *s)
{
    qn_packed_sizes sizes;
    qn_status status =
        qn_packed_check(&sizes, op, p, keep, x, w, scales, biases);
    if (status)
        return status;
    qn_dtype type = sizes.type;
    int inner = sizes.inner, outer = sizes.outer;
    qn_array *inputs[4] = {x, w, scales, biases};
    int n = biases ? 4 : 3;
    /* Each decode step builds some two hundred of these: the plain case, one
     * matrix and x of the right type, makes the node and nothing else. */
    qn_dims dims = qn_dims_of(x);
    dims.dim[x->ndim - 1] = outer;
    bool floating = qn_dtype_is_float(x->dtype);
    if (w->ndim == 2 && x->ndim >= 2 && floating)
        return qn_make(out, QN_OP_QUANTIZED_MATMUL, s, inputs, n, p, sizeof *p,
                       type, dims.dim, dims.ndim);

    qn_scope c;
    qn_scope_begin(&c, s);
    bool line = x->ndim == 1;
    if (!floating)
        inputs[0] = cast(&c, inputs[0], type);
    if (line)
        inputs[0] = expand(&c, inputs[0], 0);
    if (c.status)
        return qn_scope_end(&c, out, NULL);
    dims = qn_dims_of(inputs[0]);
    if (w->ndim > 2) {
        qn_dims batch_x = dims, batch_w = qn_dims_of(w), batch;
        batch_x.ndim -= 2;
        batch_w.ndim -= 2;
        status = qn_dims_broadcast(&batch, op, &batch_x, &batch_w);
        if (status) {
            qn_scope_fail(&c, status);
            return qn_scope_end(&c, out, NULL);
        }
        int m = dims.dim[dims.ndim - 2];
        for (int i = 0; i < n; i++) {
            const qn_array *y = inputs[i];
            dims = batch;
            dims.dim[dims.ndim++] = y->shape[y->ndim - 2];
            dims.dim[dims.ndim++] = y->shape[y->ndim - 1];
            inputs[i] = broadcast(&c, inputs[i], &dims);
            if (c.status)
                return qn_scope_end(&c, out, NULL);
        }
        dims = batch;
        dims.dim[dims.ndim++] = m;
        dims.dim[dims.ndim++] = inner;
    }
    dims.dim[dims.ndim - 1] = outer;
    qn_array *made = NULL;
    qn_scope_hold(&c,
                  qn_make(&made, QN_OP_QUANTIZED_MATMUL, s, inputs, n, p,
                          sizeof *p, type, dims.dim, dims.ndim),
                  &made);
    if (line)
        made = squeeze(&c, made, -2);
    return qn_scope_end(&c, out, made);
}

qn_status qn_op_quantized_matmul(qn_array **out, qn_array *x, qn_array *w,
                                 qn_array *scales, qn_array *biases,
                                 bool transpose, const int *group_size,
                                 const int *bits, const char *mode,
                                 qn_stream *s)
{
    static const char op[] = "quantized_matmul";
    qn_quant_params p;
    qn_status status = qn_packed_format(&p, op, group_size, bits, mode, false);
    if (status)
        return status;
    p.transpose = transpose;
    return product(out, op, x, w, scales, biases, &p, false, s);
}

qn_status qn_op_quantized_matmul_keep(qn_array **out, qn_array *x, qn_array *w,
                                      qn_array *scales, qn_array *biases,
                                      int group_size, int bits,
                                      const char *mode, qn_stream *s)
{
    return qn_op_quantized_product(out, x, w, scales, biases, true, group_size,
                                   bits, mode, true, s);
}

qn_status qn_op_quantized_product(qn_array **out, qn_array *x, qn_array *w,
                                  qn_array *scales, qn_array *biases,
                                  bool transpose, int group_size, int bits,
                                  const char *mode, bool keep, qn_stream *s)
{
    static const char op[] = "quantized_matmul";
    qn_quant_params p;
    qn_status status = qn_packed_format(&p, op, &group_size, &bits, mode, true);
    if (status)
        return status;
    p.transpose = transpose;
    return product(out, op, x, w, scales, biases, &p, keep, s);
}
