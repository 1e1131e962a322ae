/* rules_signal.c: gradients, batches and remakes of Fourier transforms and
 * convolutions. */
#include "params.h"
#include "rules.h"

#include <limits.h>

/* ---- Fourier transforms ---- */

static qn_array *transformed(qn_scope *c, qn_array *x, int axis,
                             qn_fft_form form, double scale, int length)
{
    qn_array *made = NULL;
    return c->status ? NULL
                     : qn_scope_hold(c,
                                     qn_op_fft_axis(&made, x, axis, form, scale,
                                                    length, c->stream),
                                     &made);
}

/* 1 for the first entry of half a spectrum, and the last one of a line of even
 * length; `between` for those that stand for two. */
static qn_array *weights(qn_scope *c, const qn_array *spectrum, int axis, int n,
                         double between)
{
    int half = n / 2 + 1, count = 0;
    qn_dims dims = {.ndim = spectrum->ndim - axis};
    for (int i = 0; i < dims.ndim; i++)
        dims.dim[i] = 1;
    qn_array *parts[3];
    parts[count++] = full(c, &dims, 1, QN_FLOAT32);
    dims.dim[0] = half - 1 - (n % 2 == 0 && n > 1);
    if (dims.dim[0] > 0)
        parts[count++] = full(c, &dims, between, QN_FLOAT32);
    dims.dim[0] = 1;
    if (n % 2 == 0)
        parts[count++] = full(c, &dims, 1, QN_FLOAT32);
    return c->status ? NULL : concat(c, parts, (size_t)count, 0);
}

void qn_grad_fft(qn_grad *g)
{
    const qn_fft_params *p = g->node->params;
    qn_scope *c = g->c;
    qn_array *x = g->in[0], *cot = g->cot[0];
    int axis = p->axis, length = x->shape[axis], n = g->out[0]->shape[axis];
    switch (p->form) {
    case QN_FFT_FORWARD:
        g->grad[0] =
            transformed(c, cot, axis, QN_FFT_INVERSE, p->scale, length);
        break;
    case QN_FFT_INVERSE:
        g->grad[0] =
            transformed(c, cot, axis, QN_FFT_FORWARD, p->scale, length);
        break;
    case QN_FFT_REAL:
        /* The way back counts the entries between twice. */
        cot = mul(c, cot, weights(c, cot, axis, length, 0.5));
        g->grad[0] =
            transformed(c, cot, axis, QN_FFT_TO_REAL, p->scale, length);
        break;
    case QN_FFT_TO_REAL:
        cot = transformed(c, cot, axis, QN_FFT_REAL, p->scale, n);
        g->grad[0] =
            c->status ? NULL : mul(c, cot, weights(c, cot, axis, n, 2));
        break;
    }
}

void qn_vmap_fft(qn_batch *b)
{
    const qn_fft_params *p = b->node->params;
    int length = b->like[0]->shape[p->axis];
    b->out[0] = transformed(
        b->c, b->in[0], p->axis + 1, p->form, p->scale,
        p->form == QN_FFT_REAL ? b->in[0]->shape[p->axis + 1] : length);
}

void qn_again_fft(qn_again *a)
{
    const qn_fft_params *p = a->node->params;
    const qn_array *x = a->in[0];
    bool to_real = p->form == QN_FFT_TO_REAL;
    if (a->shapeless && (p->axis >= x->ndim ||
                         x->shape[p->axis] != a->was_in[0]->shape[p->axis])) {
        qn_scope_fail(a->c, qn_fail(QN_E_UNSUPPORTED,
                                    "[fft] The length of a transform can't "
                                    "change in a shapeless function."));
        return;
    }
    int length = (to_real ? a->was_out[0] : a->was_in[0])->shape[p->axis];
    a->out[0] = transformed(a->c, a->in[0], p->axis, p->form, p->scale, length);
}

/* ---- convolutions ---- */

static qn_array *convolved(qn_scope *c, qn_array *x, qn_array *w,
                           const qn_conv_params *p, const int *high)
{
    qn_array *made = NULL;
    if (c->status)
        return NULL;
    size_t n = (size_t)(x->ndim - 2);
    qn_conv_settings settings = {.stride = {p->stride, n},
                                 .low = {p->low, n},
                                 .high = {high, n},
                                 .dilation = {p->dilation, n},
                                 .in_dilation = {p->in_dilation, n},
                                 .groups = p->groups,
                                 .flip = p->flip};
    return qn_scope_hold(c, qn_op_conv(&made, x, w, &settings, c->stream),
                         &made);
}

/* What `length` elements cover, spread by `dilation`. */
static int64_t covered(int length, int dilation)
{
    return length ? (int64_t)(length - 1) * dilation + 1 : 0;
}

/* The last axis split into groups, the parts of which change places with the
 * first axis: [A, spatial..., groups * B] becomes [B, spatial..., groups * A].
 * `first`: the groups are a part of the first axis instead, and become a part
 * of the first again: [groups * A, ..., B] becomes [groups * B, ..., A]. */
static qn_array *exchanged(qn_scope *c, qn_array *x, int groups, bool first)
{
    if (c->status)
        return NULL;
    int order[QN_MAX_NDIM], last = x->ndim - 1;
    qn_dims dims = qn_dims_of(x), flat = dims;
    int outer = dims.dim[0], inner = dims.dim[last];
    qn_status status;
    if (first) {
        outer /= groups;
        dims.dim[0] = outer;
        status = qn_dims_insert(&dims, "conv", 0, groups);
        order[0] = 0;
        order[1] = last + 1;
        for (int i = 1; i < last; i++)
            order[i + 1] = i + 1;
        order[last + 1] = 1;
        flat.dim[0] = groups * inner;
        flat.dim[last] = outer;
    } else {
        inner /= groups;
        dims.dim[last] = inner;
        status = qn_dims_insert(&dims, "conv", last, groups);
        order[0] = last + 1;
        for (int i = 1; i <= last; i++)
            order[i] = i;
        order[last + 1] = 0;
        flat.dim[0] = inner;
        flat.dim[last] = groups * outer;
    }
    if (status) {
        qn_scope_fail(c, status);
        return NULL;
    }
    return reshape(c, transpose(c, reshape(c, x, &dims), order), &flat);
}

static qn_status border(int *out, int64_t value)
{
    *out = (int)value;
    if (value < -INT_MAX || value > INT_MAX)
        return qn_fail(QN_E_ARG, "[conv] A border of %lld elements",
                       (long long)value);
    return QN_OK;
}

/* By the input: the kernel the other way round over cotangents that are spread
 * by the stride. */
static void grad_input(qn_grad *g, const qn_conv_params *p)
{
    qn_scope *c = g->c;
    qn_array *x = g->in[0], *w = g->in[1], *cot = g->cot[0];
    qn_conv_params q = {.groups = p->groups, .flip = !p->flip};
    int high[QN_MAX_NDIM];
    for (int i = 0; i < x->ndim - 2; i++) {
        int64_t kernel = covered(w->shape[i + 1], p->dilation[i]);
        int64_t low = kernel - 1 - p->low[i];
        int64_t want = covered(x->shape[i + 1], p->in_dilation[i]);
        int64_t have = covered(cot->shape[i + 1], p->stride[i]);
        q.stride[i] = p->in_dilation[i];
        q.dilation[i] = p->dilation[i];
        q.in_dilation[i] = p->stride[i];
        qn_status status = border(&q.low[i], low);
        if (!status)
            status = border(&high[i], want + kernel - 1 - low - have);
        if (status) {
            qn_scope_fail(c, status);
            return;
        }
    }
    g->grad[0] =
        x->size ? convolved(c, cot, exchanged(c, w, p->groups, true), &q, high)
                : qn_zeros_like(c, x);
}

/* By the weight: images become channels, and the cotangents the kernel, whose
 * taps are the stride apart. */
static void grad_weight(qn_grad *g, const qn_conv_params *p)
{
    qn_scope *c = g->c;
    qn_array *x = g->in[0], *w = g->in[1], *cot = g->cot[0];
    qn_conv_params q = {.groups = p->groups, .flip = false};
    int high[QN_MAX_NDIM], axes[QN_MAX_NDIM], order[QN_MAX_NDIM];
    int n = x->ndim - 2;
    for (int i = 0; i < n; i++) {
        int64_t kernel = covered(cot->shape[i + 1], p->stride[i]);
        int64_t want = covered(w->shape[i + 1], p->dilation[i]);
        int64_t have = covered(x->shape[i + 1], p->in_dilation[i]);
        q.stride[i] = p->dilation[i];
        q.dilation[i] = p->stride[i];
        q.in_dilation[i] = p->in_dilation[i];
        q.low[i] = p->low[i];
        axes[i] = i + 1;
        order[i + 1] = i + 1;
        qn_status status =
            border(&high[i], want + kernel - 1 - p->low[i] - have);
        if (status) {
            qn_scope_fail(c, status);
            return;
        }
    }
    order[0] = n + 1;
    order[n + 1] = 0;
    qn_array *images = exchanged(c, x, p->groups, false);
    qn_array *kernel = transpose(c, cot, order);
    /* [C / groups, kernel..., O] */
    qn_array *y = convolved(c, images, kernel, &q, high), *made = NULL;
    y = c->status ? NULL : transpose(c, y, order);
    if (p->flip && !c->status)
        y = qn_scope_hold(c, qn_op_flip(&made, y, axes, (size_t)n, c->stream),
                          &made);
    g->grad[1] = y;
}

void qn_grad_conv(qn_grad *g)
{
    const qn_conv_params *p = g->node->params;
    if (g->wanted[0])
        grad_input(g, p);
    if (g->wanted[1])
        grad_weight(g, p);
}

/* Borders behind, from the output's shape. */
static bool high_of(qn_scope *c, int *high, const qn_conv_params *p,
                    const qn_array *x, const qn_array *w, const qn_array *y)
{
    for (int i = 0; i < x->ndim - 2; i++) {
        int64_t covers = covered(y->shape[i + 1], p->stride[i]) - 1 +
                         covered(w->shape[i + 1], p->dilation[i]);
        qn_status status =
            border(&high[i], covers - p->low[i] -
                                 covered(x->shape[i + 1], p->in_dilation[i]));
        if (status) {
            qn_scope_fail(c, status);
            return false;
        }
    }
    return true;
}

void qn_vmap_conv(qn_batch *b)
{
    const qn_conv_params *p = b->node->params;
    qn_scope *c = b->c;
    int high[QN_MAX_NDIM];
    if (b->batched[1]) {
        qn_vmap_loop(b);
        return;
    }
    /* The batch and the images are one axis. */
    qn_array *x = b->in[0];
    qn_dims dims = qn_dims_of(x), out = qn_dims_of(b->like[0]);
    qn_status status =
        qn_dim_fit(&dims.dim[1], "conv", (int64_t)dims.dim[0] * dims.dim[1]);
    if (!status)
        status = qn_dims_insert(&out, "conv", 0, b->size);
    if (status) {
        qn_scope_fail(c, status);
        return;
    }
    qn_dims_remove(&dims, 0);
    x = reshape(c, x, &dims);
    if (c->status || !high_of(c, high, p, x, b->in[1], b->like[0]))
        return;
    b->out[0] = reshape(c, convolved(c, x, b->in[1], p, high), &out);
}

void qn_again_conv(qn_again *a)
{
    const qn_conv_params *p = a->node->params;
    int high[QN_MAX_NDIM];
    if (a->in[0]->ndim != a->was_in[0]->ndim) {
        qn_scope_fail(a->c, qn_fail(QN_E_ARG,
                                    "[conv] %d dimensions are expected, "
                                    "found %d.",
                                    a->was_in[0]->ndim, a->in[0]->ndim));
        return;
    }
    if (high_of(a->c, high, p, a->was_in[0], a->was_in[1], a->was_out[0]))
        a->out[0] = convolved(a->c, a->in[0], a->in[1], p, high);
}
