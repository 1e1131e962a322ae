/* conv.c: convolutions over spatial axes.
 *
 * Everything is one primitive: a plain convolution, one with a spread input
 * (which is what a transposed convolution is) and one with a flipped kernel
 * differ in its constants alone. */
#include "params.h"
#include "scope.h"

#include <limits.h>

/* One value per axis. */
static qn_status spread_list(int *out, const char *what, qn_conv_list list,
                             int ndim, int missing, int least)
{
    if (list.count > 1 && list.count != (size_t)ndim)
        return qn_fail(QN_E_ARG,
                       "[conv] One %s, or one for each of the %d spatial axes, "
                       "is expected, found %zu.",
                       what, ndim, list.count);
    for (int i = 0; i < ndim; i++) {
        out[i] = !list.count       ? missing
                 : list.count == 1 ? list.values[0]
                                   : list.values[i];
        if (out[i] < least)
            return qn_fail(QN_E_ARG,
                           "[conv] The %s of spatial axis %d is expected to be "
                           "at least %d, found %d.",
                           what, i, least, out[i]);
    }
    return QN_OK;
}

/* Shapes and types of both operands; the type to compute in. */
static qn_status check_operands(qn_dtype *type, const qn_array *x,
                                const qn_array *w, int groups)
{
    *type = qn_promote(x->dtype, w->dtype);
    if (!qn_dtype_is_float(*type) || !qn_dtype_is_float(x->dtype))
        return qn_fail(QN_E_ARG,
                       "[conv] Floating operands are expected, found %s and "
                       "%s.",
                       qn_dtype_name(x->dtype), qn_dtype_name(w->dtype));
    if (x->ndim < 3 || w->ndim != x->ndim)
        return qn_fail(QN_E_ARG,
                       "[conv] An input (N, spatial axes, C) and a weight (O, "
                       "spatial axes, C / groups) are expected, found shapes "
                       "%s and %s.",
                       qn_array_shape_text(x).text,
                       qn_array_shape_text(w).text);
    int channels = x->shape[x->ndim - 1], out = w->shape[0];
    if (groups < 1 || channels % groups || out % groups)
        return qn_fail(QN_E_ARG,
                       "[conv] The number of groups, %d, must divide the "
                       "channels of the input, %d, and of the output, %d.",
                       groups, channels, out);
    if (w->shape[w->ndim - 1] != channels / groups)
        return qn_fail(QN_E_ARG,
                       "[conv] The weight is expected to have %d channels (%d "
                       "of the input in %d groups), found shape %s.",
                       channels / groups, channels, groups,
                       qn_array_shape_text(w).text);
    for (int i = 1; i < w->ndim - 1; i++)
        if (!w->shape[i])
            return qn_fail(QN_E_ARG,
                           "[conv] A kernel of at least 1 is expected along "
                           "each axis, found shape %s.",
                           qn_array_shape_text(w).text);
    return QN_OK;
}

/* What a kernel of `taps` covers. */
static int64_t covered(int taps, int dilation)
{
    return (int64_t)(taps - 1) * dilation + 1;
}

static qn_status output_dims(qn_dims *dims, const qn_array *x,
                             const qn_array *w, const qn_conv_params *p,
                             const int *high)
{
    *dims = qn_dims_of(x);
    dims->dim[dims->ndim - 1] = w->shape[0];
    for (int i = 0; i < x->ndim - 2; i++) {
        int64_t length =
            x->shape[i + 1] ? covered(x->shape[i + 1], p->in_dilation[i]) : 0;
        int64_t kernel = covered(w->shape[i + 1], p->dilation[i]);
        int64_t whole = length + p->low[i] + high[i];
        if (whole < kernel)
            return qn_fail(
                QN_E_ARG,
                "[conv] Along spatial axis %d the input has %lld "
                "elements with its padding, fewer than the %lld that "
                "the kernel covers.",
                i, (long long)whole, (long long)kernel);
        qn_status status = qn_dim_fit(&dims->dim[i + 1], "conv",
                                      (whole - kernel) / p->stride[i] + 1);
        if (status)
            return status;
    }
    return QN_OK;
}

qn_status qn_op_conv(qn_array **out, qn_array *x, qn_array *w,
                     const qn_conv_settings *settings, qn_stream *s)
{
    qn_conv_params p = {.groups = settings->groups, .flip = settings->flip};
    int high[QN_MAX_NDIM], n = x->ndim - 2;
    qn_dtype type;
    qn_dims dims;
    qn_status status = check_operands(&type, x, w, p.groups);
    if (!status)
        status = spread_list(p.stride, "stride", settings->stride, n, 1, 1);
    if (!status)
        status = spread_list(p.dilation, "kernel dilation", settings->dilation,
                             n, 1, 1);
    if (!status)
        status = spread_list(p.in_dilation, "input dilation",
                             settings->in_dilation, n, 1, 1);
    if (!status)
        status = spread_list(p.low, "padding", settings->low, n, 0, -INT_MAX);
    if (!status)
        status = spread_list(high, "padding", settings->high, n, 0, -INT_MAX);
    if (!status)
        status = output_dims(&dims, x, w, &p, high);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *inputs[2] = {cast(&c, x, type), cast(&c, w, type)};
    qn_array *made = NULL;
    if (!c.status)
        qn_scope_hold(&c,
                      qn_make(&made, QN_OP_CONV, s, inputs, 2, &p, sizeof p,
                              type, dims.dim, dims.ndim),
                      &made);
    return qn_scope_end(&c, out, made);
}

qn_status qn_op_conv_transpose(qn_array **out, qn_array *x, qn_array *w,
                               const qn_conv_settings *settings,
                               qn_conv_list more, qn_stream *s)
{
    int stride[QN_MAX_NDIM], padding[QN_MAX_NDIM], dilation[QN_MAX_NDIM];
    int extra[QN_MAX_NDIM], low[QN_MAX_NDIM], high[QN_MAX_NDIM];
    int n = x->ndim - 2;
    qn_dtype type;
    qn_status status = check_operands(&type, x, w, settings->groups);
    if (!status)
        status = spread_list(stride, "stride", settings->stride, n, 1, 1);
    if (!status)
        status = spread_list(dilation, "kernel dilation", settings->dilation, n,
                             1, 1);
    if (!status)
        status = spread_list(padding, "padding", settings->low, n, 0, -INT_MAX);
    if (!status)
        status = spread_list(extra, "output padding", more, n, 0, -INT_MAX);
    for (int i = 0; i < n && !status; i++) {
        int64_t side = covered(w->shape[i + 1], dilation[i]) - 1 - padding[i];
        if (side < -INT_MAX || side > INT_MAX || side + extra[i] < -INT_MAX ||
            side + extra[i] > INT_MAX)
            return qn_fail(QN_E_ARG,
                           "[conv] The padding of spatial axis %d is too large "
                           "for an int.",
                           i);
        low[i] = (int)side;
        high[i] = (int)(side + extra[i]);
    }
    if (status)
        return status;
    size_t count = (size_t)n;
    qn_conv_settings turned = {.low = {low, count},
                               .high = {high, count},
                               .dilation = {dilation, count},
                               .in_dilation = {stride, count},
                               .groups = settings->groups,
                               .flip = true};
    return qn_op_conv(out, x, w, &turned, s);
}
