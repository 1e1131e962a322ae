/* vmap.c: operations on batches: one more axis in front.
 *
 * Most rules are the operation itself with its axes counted one further.
 * Where a batch needs what the operation can't express (a corner or a
 * parameter of its own for each entry), the entries are computed one by one
 * and stacked. */
#include "params.h"
#include "rules.h"

#include "base/alloc.h"

#include <string.h>

/* ---- shared steps ---- */

/* Input i with the batch axis, whether it varies along it or not. */
static qn_array *whole(qn_batch *b, int i)
{
    qn_array *x = b->in[i];
    if (b->batched[i] || b->c->status)
        return x;
    qn_dims dims = qn_dims_of(x);
    qn_status status = qn_dims_insert(&dims, "vmap", 0, b->size);
    if (status) {
        qn_scope_fail(b->c, status);
        return NULL;
    }
    return broadcast(b->c, x, &dims);
}

static qn_status batch_dims(qn_dims *dims, const qn_batch *b,
                            const qn_array *like)
{
    *dims = qn_dims_of(like);
    return qn_dims_insert(dims, "vmap", 0, b->size);
}

/* Input i with axes of length 1 put in behind the batch axis until it has
 * `ndim` axes besides that. */
static qn_array *aligned(qn_batch *b, int i, int ndim)
{
    qn_array *x = b->in[i];
    if (!b->batched[i] || b->c->status)
        return x;
    qn_dims dims = qn_dims_of(x);
    while (dims.ndim < ndim + 1) {
        qn_status status = qn_dims_insert(&dims, "vmap", 1, 1);
        if (status) {
            qn_scope_fail(b->c, status);
            return NULL;
        }
    }
    return reshape(b->c, x, &dims);
}

/* The operation with `params` on inputs with the axis, for operations that work
 * along the last axes or element by element.  The first `spread` inputs get it
 * in any case, the others are as they are. */
static void with_params(qn_batch *b, int spread, const void *params)
{
    qn_scope *c = b->c;
    const qn_node *node = b->node;
    size_t ninputs = (size_t)node->ninputs, noutputs = (size_t)node->noutputs;
    qn_array **in = qn_calloc(ninputs + noutputs, sizeof *in);
    if (!in) {
        qn_scope_fail(c, QN_E_NOMEM);
        return;
    }
    qn_array **made = in + ninputs;
    for (int i = 0; i < node->ninputs; i++)
        in[i] = i < spread ? whole(b, i) : b->in[i];
    qn_status status = c->status;
    for (size_t i = 0; i < noutputs && !status; i++) {
        qn_dims dims;
        status = batch_dims(&dims, b, b->like[i]);
        if (!status)
            status =
                qn_array_new(&made[i], b->like[i]->dtype, dims.dim, dims.ndim);
    }
    qn_node_spec spec = {.op = node->op,
                         .stream = node->stream,
                         .inputs = in,
                         .ninputs = node->ninputs,
                         .params = params,
                         .params_size = node->params_size};
    if (!status)
        status = qn_node_attach(&spec, made, node->noutputs);
    for (size_t i = 0; i < noutputs; i++)
        if (status)
            qn_array_unref(made[i]);
        else
            b->out[i] = qn_scope_hold(c, QN_OK, &made[i]);
    qn_free(in);
    if (status)
        qn_scope_fail(c, status);
}

/* All inputs with the axis. */
void qn_vmap_front(qn_batch *b)
{
    with_params(b, b->node->ninputs, b->node->params);
}

/* Inputs as they are. */
static void as_they_are(qn_batch *b)
{
    with_params(b, 0, b->node->params);
}

/* Entry number `at` of a batch. */
static qn_array *entry(qn_scope *c, qn_array *x, int at)
{
    return squeeze(c, c->status ? NULL : slice_axis(c, x, 0, at, at + 1), 0);
}

void qn_vmap_loop(qn_batch *b)
{
    qn_scope *c = b->c;
    const qn_node *node = b->node;
    size_t ninputs = (size_t)node->ninputs, noutputs = (size_t)node->noutputs;
    if (!qn_node_copyable(node)) {
        qn_scope_fail(c, qn_fail(QN_E_UNSUPPORTED,
                                 "[vmap] %s can't be done on a batch.",
                                 qn_op_info_of(node->op)->name));
        return;
    }
    qn_array **in = qn_calloc(ninputs + noutputs, sizeof *in);
    qn_array **made = in ? in + ninputs : NULL;
    qn_array **parts = NULL;
    size_t all;
    if (qn_mul_size(&all, noutputs, (size_t)b->size))
        parts = qn_calloc(all, sizeof *parts);
    if (!in || !parts)
        qn_scope_fail(c, QN_E_NOMEM);
    for (int at = 0; at < b->size && !c->status; at++) {
        for (size_t i = 0; i < ninputs; i++)
            in[i] = b->batched[i] ? entry(c, b->in[i], at) : b->in[i];
        if (c->status)
            break;
        qn_status status = qn_node_again(made, node, in, b->like);
        if (status) {
            qn_scope_fail(c, status);
            break;
        }
        for (size_t i = 0; i < noutputs; i++)
            parts[i * (size_t)b->size + (size_t)at] =
                expand(c, qn_scope_hold(c, QN_OK, &made[i]), 0);
    }
    for (size_t i = 0; i < noutputs && !c->status; i++) {
        qn_dims dims;
        if (b->size)
            b->out[i] =
                concat(c, parts + i * (size_t)b->size, (size_t)b->size, 0);
        else if (batch_dims(&dims, b, b->like[i]) == QN_OK)
            b->out[i] = full(c, &dims, 0, b->like[i]->dtype);
        else
            qn_scope_fail(c, QN_E_ARG);
    }
    qn_free(in);
    qn_free(parts);
}

/* ---- axes counted one further ---- */

void qn_vmap_reduce(qn_batch *b)
{
    qn_reduce_params p = *(const qn_reduce_params *)b->node->params;
    for (int i = 0; i < p.naxes; i++)
        p.axes[i]++;
    with_params(b, b->node->ninputs, &p);
}

void qn_vmap_scan(qn_batch *b)
{
    qn_scan_params p = *(const qn_scan_params *)b->node->params;
    p.axis++;
    with_params(b, b->node->ninputs, &p);
}

/* CONCATENATE, GATHER_AXIS, SORT, ARGSORT. */
void qn_vmap_axis(qn_batch *b)
{
    qn_axis_params p = *(const qn_axis_params *)b->node->params;
    p.axis++;
    with_params(b, b->node->ninputs, &p);
}

void qn_vmap_scatter_axis(qn_batch *b)
{
    qn_scatter_axis_params p = *(const qn_scatter_axis_params *)b->node->params;
    p.axis++;
    with_params(b, b->node->ninputs, &p);
}

void qn_vmap_arg_reduce(qn_batch *b)
{
    qn_arg_reduce_params p = *(const qn_arg_reduce_params *)b->node->params;
    p.axis++;
    with_params(b, b->node->ninputs, &p);
}

void qn_vmap_partition(qn_batch *b)
{
    qn_partition_params p = *(const qn_partition_params *)b->node->params;
    p.axis++;
    with_params(b, b->node->ninputs, &p);
}

void qn_vmap_transpose(qn_batch *b)
{
    const qn_transpose_params *was = b->node->params;
    qn_transpose_params p = {{0}};
    for (int i = 0; i < b->like[0]->ndim; i++)
        p.axes[i + 1] = was->axes[i] + 1;
    with_params(b, b->node->ninputs, &p);
}

/* The whole batch axis in front of starts and strides. */
static void prepend(int *to, const int *from, int ndim, int first)
{
    to[0] = first;
    memcpy(to + 1, from, (size_t)ndim * sizeof *to);
}

void qn_vmap_slice(qn_batch *b)
{
    const qn_slice_params *was = b->node->params;
    qn_slice_params p;
    memset(&p, 0, sizeof p);
    int ndim = b->like[0]->ndim;
    prepend(p.start, was->start, ndim, 0);
    prepend(p.strides, was->strides, ndim, 1);
    with_params(b, b->node->ninputs, &p);
}

void qn_vmap_slice_update(qn_batch *b)
{
    const qn_slice_update_params *was = b->node->params;
    qn_slice_update_params p;
    memset(&p, 0, sizeof p);
    int ndim = b->like[0]->ndim;
    p.combine = was->combine;
    prepend(p.start, was->start, ndim, 0);
    prepend(p.strides, was->strides, ndim, 1);
    with_params(b, b->node->ninputs, &p);
}

void qn_vmap_pad(qn_batch *b)
{
    const qn_pad_params *was = b->node->params;
    if (b->batched[1]) {
        qn_vmap_loop(b);
        return;
    }
    int low[QN_MAX_NDIM], high[QN_MAX_NDIM], axes[QN_MAX_NDIM];
    int ndim = b->like[0]->ndim;
    for (int i = 0; i < ndim; i++) {
        axes[i] = i + 1;
        low[i] = was->low[i];
        high[i] = b->like[0]->shape[i] - low[i] - b->in[0]->shape[i + 1];
    }
    qn_array *made = NULL;
    if (!b->c->status)
        b->out[0] = qn_scope_hold(
            b->c,
            qn_op_pad(&made, b->in[0], axes, (size_t)ndim, low, (size_t)ndim,
                      high, (size_t)ndim, b->in[1], "constant", b->c->stream),
            &made);
}

/* ---- views ---- */

/* Of something that broadcasts to the output: BROADCAST and FULL. */
static void stretched(qn_batch *b, bool copy)
{
    qn_scope *c = b->c;
    qn_dims dims;
    qn_status status = batch_dims(&dims, b, b->like[0]);
    qn_array *x = aligned(b, 0, b->like[0]->ndim), *made = NULL;
    if (status)
        qn_scope_fail(c, status);
    else if (!copy)
        b->out[0] = broadcast(c, x, &dims);
    else if (!c->status)
        b->out[0] = qn_scope_hold(c,
                                  qn_op_full(&made, dims.dim, (size_t)dims.ndim,
                                             x, x->dtype, c->stream),
                                  &made);
}

void qn_vmap_broadcast(qn_batch *b)
{
    stretched(b, false);
}

void qn_vmap_full(qn_batch *b)
{
    stretched(b, true);
}

void qn_vmap_reshape(qn_batch *b)
{
    qn_dims dims;
    qn_status status = batch_dims(&dims, b, b->like[0]);
    if (status)
        qn_scope_fail(b->c, status);
    b->out[0] = reshape(b->c, b->in[0], &dims);
}

void qn_vmap_as_strided(qn_batch *b)
{
    const qn_as_strided_params *was = b->node->params;
    const qn_array *like = b->like[0];
    int64_t strides[QN_MAX_NDIM + 1] = {0};
    qn_dims dims;
    qn_status status = batch_dims(&dims, b, like);
    if (status) {
        qn_scope_fail(b->c, status);
        return;
    }
    strides[0] = b->size ? (int64_t)(b->in[0]->size / (size_t)b->size) : 0;
    memcpy(strides + 1, was->strides, (size_t)like->ndim * sizeof *strides);
    qn_array *made = NULL;
    if (!b->c->status)
        b->out[0] = qn_scope_hold(b->c,
                                  qn_op_as_strided(&made, b->in[0], dims.dim,
                                                   (size_t)dims.ndim, strides,
                                                   (size_t)dims.ndim,
                                                   was->offset, b->c->stream),
                                  &made);
}

/* Outputs are inputs: no need for the further ones to have the axis. */
void qn_vmap_depends(qn_batch *b)
{
    for (int i = 0; i < b->node->noutputs; i++)
        b->out[i] = whole(b, i);
}

/* ---- slices whose corner is an array ---- */

static void axes_further(int *to, const qn_slice_dynamic_params *p)
{
    for (int i = 0; i < p->naxes; i++)
        to[i] = p->axes[i] + 1;
}

void qn_vmap_slice_dynamic(qn_batch *b)
{
    const qn_slice_dynamic_params *p = b->node->params;
    int axes[QN_MAX_NDIM];
    if (b->batched[1]) {
        qn_vmap_loop(b);
        return;
    }
    axes_further(axes, p);
    qn_dims dims;
    qn_status status = batch_dims(&dims, b, b->like[0]);
    if (status)
        qn_scope_fail(b->c, status);
    qn_array *made = NULL;
    if (!b->c->status)
        b->out[0] =
            qn_scope_hold(b->c,
                          qn_op_slice_dynamic(&made, b->in[0], b->in[1], axes,
                                              (size_t)p->naxes, dims.dim,
                                              (size_t)dims.ndim, b->c->stream),
                          &made);
}

void qn_vmap_slice_update_dynamic(qn_batch *b)
{
    const qn_slice_dynamic_params *p = b->node->params;
    int axes[QN_MAX_NDIM];
    if (b->batched[2]) {
        qn_vmap_loop(b);
        return;
    }
    axes_further(axes, p);
    qn_array *x = whole(b, 0), *update = whole(b, 1), *made = NULL;
    if (!b->c->status)
        b->out[0] = qn_scope_hold(
            b->c,
            qn_op_slice_update_dynamic(&made, x, update, b->in[2], axes,
                                       (size_t)p->naxes, b->c->stream),
            &made);
}

/* ---- indices ---- */

/* Indices 1 .. n of the node as they are, or with the axis and, in front of
 * them, the number of the entry. */
static bool index_list(qn_batch *b, qn_array **out, int n, bool batched)
{
    qn_scope *c = b->c;
    int first = 0;
    if (batched) {
        qn_dims line = {.ndim = 1, .dim = {b->size}};
        int ndim = n ? b->in[1]->ndim - b->batched[1] : 0;
        while (line.ndim < ndim + 1)
            line.dim[line.ndim++] = 1;
        out[first++] = reshape(c, arange(c, 0, b->size, 1, QN_INT32), &line);
    }
    for (int i = 0; i < n; i++)
        out[first + i] = batched ? whole(b, 1 + i) : b->in[1 + i];
    return !c->status;
}

static bool any_batched(const qn_batch *b, int first, int count)
{
    for (int i = first; i < first + count; i++)
        if (b->batched[i])
            return true;
    return false;
}

void qn_vmap_gather(qn_batch *b)
{
    qn_scope *c = b->c;
    const qn_gather_params *p = b->node->params;
    bool by_index = any_batched(b, 1, p->naxes), source = b->batched[0];
    qn_array *x = b->in[0], *made = NULL;
    int ndim = x->ndim - source, index_ndim = b->like[0]->ndim - ndim;
    if (p->naxes + 1 > QN_MAX_NDIM || ndim + 1 > QN_MAX_NDIM) {
        qn_vmap_loop(b);
        return;
    }
    int axes[QN_MAX_NDIM + 1], sizes[QN_MAX_NDIM + 1];
    qn_array *index[QN_MAX_NDIM + 1] = {NULL};
    for (int i = 0; i < p->naxes; i++)
        axes[i] = p->axes[i] + source;
    memcpy(sizes + source, p->slice_sizes, (size_t)ndim * sizeof *sizes);
    size_t n = (size_t)p->naxes;
    if (source)
        sizes[0] = by_index ? 1 : b->size;
    if (source && by_index) {
        memmove(axes + 1, axes, n * sizeof *axes);
        axes[0] = 0;
        n++;
    }
    if (by_index && !source) {
        /* Indices with the axis, the source as it is. */
        for (int i = 0; i < p->naxes; i++)
            index[i] = whole(b, 1 + i);
    } else if (!index_list(b, index, p->naxes, by_index)) {
        return;
    }
    if (c->status)
        return;
    made = qn_scope_hold(c,
                         qn_op_gather(&made, x, index, n, axes, n, sizes,
                                      (size_t)x->ndim, c->stream),
                         &made);
    if (!source)
        b->out[0] = made;
    else if (by_index)
        b->out[0] = squeeze(c, made, index_ndim + 1);
    else
        b->out[0] = c->status ? NULL : moveaxis(c, made, index_ndim, 0);
}

void qn_vmap_scatter(qn_batch *b)
{
    qn_scope *c = b->c;
    const qn_scatter_params *p = b->node->params;
    int at = 1 + p->naxes;
    int ndim = b->like[0]->ndim;
    if (p->naxes + 1 > QN_MAX_NDIM || b->in[at]->ndim + 2 > QN_MAX_NDIM) {
        qn_vmap_loop(b);
        return;
    }
    int axes[QN_MAX_NDIM + 1] = {0};
    qn_array *index[QN_MAX_NDIM + 1], *made = NULL;
    for (int i = 0; i < p->naxes; i++)
        axes[i + 1] = p->axes[i] + 1;
    qn_array *x = whole(b, 0), *updates = whole(b, at);
    if (!index_list(b, index, p->naxes, true))
        return;
    /* The batch axis is an index; a slice has one element of it. */
    updates = expand(c, updates, updates->ndim - ndim);
    size_t n = (size_t)p->naxes + 1;
    if (!c->status)
        b->out[0] = qn_scope_hold(c,
                                  qn_op_scatter(&made, x, index, n, updates,
                                                axes, n, p->combine, c->stream),
                                  &made);
}

void qn_vmap_searchsorted(qn_batch *b)
{
    if (b->batched[0])
        qn_vmap_loop(b);
    else
        as_they_are(b);
}

/* ---- products ---- */

void qn_vmap_matmul(qn_batch *b)
{
    qn_scope *c = b->c;
    int ndim = b->like[0]->ndim;
    qn_array *x = aligned(b, 0, ndim), *y = aligned(b, 1, ndim);
    b->out[0] = matmul(c, x, y);
}

/* A packed matrix for all: the rows of x are just more. */
void qn_vmap_quantized_matmul(qn_batch *b)
{
    for (int i = 1; i < b->node->ninputs; i++)
        if (b->batched[i]) {
            qn_vmap_loop(b);
            return;
        }
    if (b->in[1]->ndim > 2)
        qn_vmap_front(b);
    else
        as_they_are(b);
}

/* ---- norms, attention ---- */

void qn_vmap_norm(qn_batch *b)
{
    if (any_batched(b, 1, b->node->ninputs - 1))
        qn_vmap_loop(b);
    else
        as_they_are(b);
}

void qn_vmap_rope(qn_batch *b)
{
    const qn_rope_params *p = b->node->params;
    bool per_row = p->has_offset_array && b->in[1]->size > 1;
    if (per_row || any_batched(b, 1, b->node->ninputs - 1) ||
        b->in[0]->ndim + 1 > QN_MAX_NDIM)
        qn_vmap_loop(b);
    else
        as_they_are(b);
}

/* The batch axis and the next one made one. */
static qn_array *merged(qn_batch *b, int i)
{
    qn_array *x = whole(b, i), *made = NULL;
    return b->c->status
               ? NULL
               : qn_scope_hold(
                     b->c, qn_op_flatten(&made, x, 0, 1, b->c->stream), &made);
}

void qn_vmap_sdpa(qn_batch *b)
{
    const qn_sdpa_params *p = b->node->params;
    qn_scope *c = b->c;
    int n = 3 + p->has_mask;
    if (p->has_sinks && b->batched[n]) {
        qn_vmap_loop(b);
        return;
    }
    qn_array *in[5] = {NULL};
    for (int i = 0; i < n; i++)
        in[i] = merged(b, i);
    if (p->has_sinks)
        in[n] = b->in[n];
    if (c->status)
        return;
    qn_dims dims = qn_dims_of(b->like[0]), whole_dims;
    qn_status status = batch_dims(&whole_dims, b, b->like[0]);
    dims.dim[0] = in[0]->shape[0];
    qn_array *made = NULL;
    if (!status)
        status = qn_make(&made, QN_OP_SDPA, c->stream, in, b->node->ninputs, p,
                         sizeof *p, b->like[0]->dtype, dims.dim, dims.ndim);
    b->out[0] = reshape(c, qn_scope_hold(c, status, &made), &whole_dims);
}

/* DEQUANTIZE, QUANTIZE: a global scale is one for all. */
void qn_vmap_packed(qn_batch *b)
{
    const qn_quant_params *p = b->node->params;
    int n = b->node->ninputs - p->has_global_scale;
    if (p->has_global_scale && b->batched[n])
        qn_vmap_loop(b);
    else
        with_params(b, n, p);
}

/* Lengths are the same for all entries. */
void qn_vmap_number_of_elements(qn_batch *b)
{
    const qn_number_of_elements_params *p = b->node->params;
    int axes[QN_MAX_NDIM];
    for (int i = 0; i < p->naxes; i++)
        axes[i] = p->axes[i] + 1;
    qn_dims dims = {.ndim = 1, .dim = {b->size}};
    qn_array *made = NULL;
    if (!b->c->status)
        qn_scope_hold(b->c,
                      qn_op_number_of_elements(&made, b->in[0], axes,
                                               (size_t)p->naxes, p->inverted,
                                               b->like[0]->dtype, b->c->stream),
                      &made);
    b->out[0] = broadcast(b->c, made, &dims);
}
