/* quant_products.c: products with packed matrices that are chosen by indices,
 * and products of which both sides are packed.
 *
 * Where both sides are packed, x is rounded to what its packed form stands for
 * (REQUANTIZE), and the product is one of numbers: the result is that of
 * packing x first, and the gradient passes the rounding as if it were not
 * there. */
#include "quant.h"

#include <string.h>

static qn_status check_integers(const char *op, const qn_array *x)
{
    if (!x || qn_dtype_is_integer(x->dtype))
        return QN_OK;
    return qn_fail(QN_E_ARG,
                   "[%s] Got indices with invalid dtype %s. Indices must be "
                   "integral.",
                   op, qn_dtype_name(x->dtype));
}

static qn_status check_matrix(const char *op, const qn_array *x)
{
    if (x->ndim >= 2)
        return QN_OK;
    return qn_fail(QN_E_ARG,
                   "[%s] Input must have at least two dimensions but got input "
                   "with shape %s.",
                   op, qn_array_shape_text(x).text);
}

/* ---- chosen matrices ---- */

/* Lists without indices name the matrices in order; both become one shape. */
static qn_status index_lists(qn_scope *c, const char *op, qn_array **lists,
                             qn_dims *dims, const qn_array *x,
                             const qn_array *w)
{
    if (!lists[0])
        lists[0] = qn_matrices_in_order(c, op, x);
    if (!lists[1])
        lists[1] = qn_matrices_in_order(c, op, w);
    if (c->status)
        return c->status;
    qn_dims other = qn_dims_of(lists[1]);
    *dims = qn_dims_of(lists[0]);
    qn_status status = qn_dims_broadcast(dims, op, dims, &other);
    if (!status && dims->ndim > QN_MAX_NDIM - 2)
        status = qn_fail(QN_E_ARG,
                         "[%s] Indices have at most %d dimensions, found %d.",
                         op, QN_MAX_NDIM - 2, dims->ndim);
    qn_scope_fail(c, status);
    lists[0] = broadcast(c, lists[0], dims);
    lists[1] = broadcast(c, lists[1], dims);
    return c->status;
}

qn_status qn_op_gather_quantized(qn_array **out, qn_array *x, qn_array *w,
                                 qn_array *scales, qn_array *biases,
                                 qn_array *indices_x, qn_array *indices_w,
                                 const qn_quant_params *p, bool keep,
                                 qn_stream *s)
{
    static const char op[] = "gather_qmm";
    qn_packed_sizes sizes;
    qn_status status = check_integers(op, indices_x);
    if (!status)
        status = check_integers(op, indices_w);
    if (!status)
        status = check_matrix(op, x);
    if (!status)
        status = qn_packed_check(&sizes, op, p, keep, x, w, scales, biases);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_dims dims;
    qn_array *lists[2] = {indices_x, indices_w}, *made = NULL;
    if (!qn_dtype_is_float(x->dtype))
        x = cast(&c, x, sizes.type);
    if (!c.status)
        index_lists(&c, op, lists, &dims, x, w);
    if (!c.status) {
        qn_array *inputs[6] = {x, w, scales};
        int n = 3;
        if (biases)
            inputs[n++] = biases;
        inputs[n++] = lists[0];
        inputs[n++] = lists[1];
        dims.dim[dims.ndim++] = x->shape[x->ndim - 2];
        dims.dim[dims.ndim++] = sizes.outer;
        qn_scope_hold(&c,
                      qn_make(&made, QN_OP_GATHER_QMM, s, inputs, n, p,
                              sizeof *p, sizes.type, dims.dim, dims.ndim),
                      &made);
    }
    return qn_scope_end(&c, out, made);
}

qn_status qn_op_gather_qmm(qn_array **out, qn_array *x, qn_array *w,
                           qn_array *scales, qn_array *biases,
                           qn_array *indices_x, qn_array *indices_w,
                           bool transpose, const int *group_size,
                           const int *bits, const char *mode, qn_stream *s)
{
    static const char op[] = "gather_qmm";
    if (!indices_x && !indices_w)
        return qn_op_quantized_matmul(out, x, w, scales, biases, transpose,
                                      group_size, bits, mode, s);
    qn_quant_params p;
    qn_status status = qn_packed_format(&p, op, group_size, bits, mode, false);
    if (status)
        return status;
    p.transpose = transpose;
    return qn_op_gather_quantized(out, x, w, scales, biases, indices_x,
                                  indices_w, &p, false, s);
}

/* ---- both sides packed ---- */

qn_status qn_op_requantize(qn_array **out, qn_array *x,
                           const qn_quant_params *format,
                           qn_array *global_scale, qn_stream *s)
{
    static const char op[] = "requantize";
    qn_quant_params p = *format;
    p.transpose = false;
    p.has_global_scale = global_scale != NULL;
    if (p.mode == QN_QUANT_AFFINE || !qn_dtype_is_float(x->dtype))
        return qn_fail(QN_E_ARG,
                       "[%s] Real floating types and another mode than affine "
                       "are expected, found %s.",
                       op, qn_dtype_name(x->dtype));
    if (!x->ndim || x->shape[x->ndim - 1] % p.group_size)
        return qn_fail(QN_E_ARG,
                       "[%s] The last dimension must be divisible by the group "
                       "size %d, found shape %s.",
                       op, p.group_size, qn_array_shape_text(x).text);
    qn_array *inputs[2] = {x, global_scale};
    return qn_make(out, QN_OP_REQUANTIZE, s, inputs, 1 + p.has_global_scale, &p,
                   sizeof p, QN_FLOAT32, x->shape, x->ndim);
}

/* A product of which both sides are packed, as the program gives it. */
typedef struct both_sides {
    const char *op;
    qn_quant_params format;
    qn_array *x, *w, *scales;      /* scales NULL: w has numbers */
    qn_array *global_x, *global_w; /* both or none */
} both_sides;

static qn_status check_global(const both_sides *b, const qn_array *scale)
{
    if (!scale)
        return QN_OK;
    if (scale->dtype != QN_FLOAT32)
        return qn_fail(QN_E_ARG,
                       "[%s] Global scale must have dtype float32 but got %s.",
                       b->op, qn_dtype_name(scale->dtype));
    if (scale->size != 1)
        return qn_fail(QN_E_ARG,
                       "[%s] Global scale must be a scalar but got shape %s.",
                       b->op, qn_array_shape_text(scale).text);
    return QN_OK;
}

static qn_status check_globals(const both_sides *b)
{
    if (!b->global_x && !b->global_w)
        return QN_OK;
    if (b->format.mode != QN_QUANT_NVFP4)
        return qn_fail(QN_E_ARG,
                       "[%s] Global scale is only supported for 'nvfp4' "
                       "quantization mode.",
                       b->op);
    if (!b->global_x || !b->global_w)
        return qn_fail(QN_E_ARG,
                       "[%s] For nvfp4 mode, either both global_scale_x and "
                       "global_scale_w must be provided, or neither.",
                       b->op);
    qn_status status = check_global(b, b->global_x);
    return status ? status : check_global(b, b->global_w);
}

static bool narrow_float(const qn_array *x)
{
    return qn_dtype_is_float(x->dtype) && x->dtype != QN_FLOAT64;
}

static qn_status check_both(both_sides *b, const int *group_size,
                            const int *bits, const char *mode)
{
    qn_status status =
        qn_packed_format(&b->format, b->op, group_size, bits, mode, false);
    if (status)
        return status;
    b->format.transpose = true;
    if (b->format.mode == QN_QUANT_AFFINE)
        return qn_fail(QN_E_ARG,
                       "[%s] One of the modes mxfp4, mxfp8, nvfp4 is expected, "
                       "found 'affine'.",
                       b->op);
    const qn_array *x = b->x, *w = b->w;
    if (!narrow_float(x) ||
        (!b->scales && w->dtype != QN_UINT32 && !narrow_float(w)))
        return qn_fail(QN_E_ARG,
                       "[%s] Only real floating types except float64 are "
                       "supported but %s argument dtype == %s.",
                       b->op, narrow_float(x) ? "second" : "first",
                       qn_dtype_name(narrow_float(x) ? w->dtype : x->dtype));
    if (!b->scales && w->dtype == QN_UINT32)
        return qn_fail(QN_E_ARG,
                       "[%s] Scales must be provided if second argument is "
                       "quantized.",
                       b->op);
    status = check_globals(b);
    if (status)
        return status;
    qn_packed_sizes sizes;
    if (b->scales)
        return qn_packed_check(&sizes, b->op, &b->format, true, x, w, b->scales,
                               NULL);
    if (x->shape[x->ndim - 1] == w->shape[w->ndim - 1])
        return QN_OK;
    return qn_fail(
        QN_E_ARG,
        "[%s] Last dimension of first input with shape %s must match "
        "last dimension of second input with shape %s.",
        b->op, qn_array_shape_text(x).text, qn_array_shape_text(w).text);
}

static qn_array *rounded(qn_scope *c, const both_sides *b, qn_array *x,
                         qn_array *global)
{
    qn_array *made = NULL;
    return c->status ? NULL
                     : qn_scope_hold(c,
                                     qn_op_requantize(&made, x, &b->format,
                                                      global, c->stream),
                                     &made);
}

/* What the scales of a packed w leave to be multiplied with: a global scale of
 * 0 is none (backend/common/quant.h). */
static qn_array *times_global(qn_scope *c, const both_sides *b, qn_array *y)
{
    qn_array *g = b->global_w;
    if (!g || c->status)
        return y;
    qn_dims none = {.ndim = 0};
    g = reshape(c, g, &none);
    qn_array *zero = scalar(c, 0, QN_FLOAT32), *one = scalar(c, 1, QN_FLOAT32);
    qn_array *is_zero = binary(c, QN_OP_EQUAL, g, zero);
    g = divide(c, g, scalar(c, 2688, QN_FLOAT32));
    return mul(c, y, where(c, is_zero, one, g));
}

static qn_array *turned(qn_scope *c, qn_array *w)
{
    qn_array *made = NULL;
    return c->status
               ? NULL
               : qn_scope_hold(c, qn_op_swapaxes(&made, w, -1, -2, c->stream),
                               &made);
}

qn_status qn_op_qqmm(qn_array **out, qn_array *x, qn_array *w, qn_array *scales,
                     const int *group_size, const int *bits, const char *mode,
                     qn_array *global_x, qn_array *global_w, qn_stream *s)
{
    both_sides b = {.op = "qqmm",
                    .x = x,
                    .w = w,
                    .scales = scales,
                    .global_x = global_x,
                    .global_w = global_w};
    if (!x->ndim || w->ndim != 2)
        return qn_fail(QN_E_ARG,
                       "[qqmm] Only 2D inputs are supported but x.ndim() == %d "
                       "and w.ndim() == %d.",
                       x->ndim, w->ndim);
    qn_status status = check_both(&b, group_size, bits, mode);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, s);
    const qn_quant_params *p = &b.format;
    qn_array *left = rounded(&c, &b, x, global_x), *made = NULL;
    if (!scales) {
        made = c.status
                   ? NULL
                   : matmul(&c, left, turned(&c, rounded(&c, &b, w, global_w)));
    } else if (!c.status) {
        status = qn_op_quantized_product(&made, left, w, scales, NULL, true,
                                         p->group_size, p->bits,
                                         qn_packed_mode_name(p->mode), true, s);
        made = times_global(&c, &b, qn_scope_hold(&c, status, &made));
    }
    return qn_scope_end(&c, out, cast(&c, made, x->dtype));
}

qn_status qn_op_gather_qqmm(qn_array **out, qn_array *x, qn_array *w,
                            qn_array *scales, qn_array *indices_x,
                            qn_array *indices_w, const int *group_size,
                            const int *bits, const char *mode,
                            qn_array *global_x, qn_array *global_w,
                            qn_stream *s)
{
    both_sides b = {.op = "gather_qqmm",
                    .x = x,
                    .w = w,
                    .scales = scales,
                    .global_x = global_x,
                    .global_w = global_w};
    qn_status status = check_integers(b.op, indices_x);
    if (!status)
        status = check_integers(b.op, indices_w);
    if (!status)
        status = check_matrix(b.op, x);
    if (!status)
        status = check_matrix(b.op, w);
    if (!status)
        status = check_both(&b, group_size, bits, mode);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *left = rounded(&c, &b, x, global_x), *made = NULL;
    qn_array *right = w;
    if (!scales)
        right = turned(&c, rounded(&c, &b, w, global_w));
    if (c.status)
        return qn_scope_end(&c, out, NULL);
    if (scales)
        status = qn_op_gather_quantized(&made, left, w, scales, NULL, indices_x,
                                        indices_w, &b.format, true, s);
    else
        status = qn_op_gather_mm(&made, left, right, indices_x, indices_w, s);
    made = qn_scope_hold(&c, status, &made);
    if (scales)
        made = times_global(&c, &b, made);
    return qn_scope_end(&c, out, cast(&c, made, x->dtype));
}
