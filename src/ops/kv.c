/* kv.c: caches of keys and values, and attention over them. */
#include "params.h"
#include "scope.h"

#include "base/alloc.h"

#include <string.h>

static const char op_name[] = "kv_attention";

static bool is_small_float(qn_dtype type)
{
    return type == QN_FLOAT32 || type == QN_FLOAT16 || type == QN_BFLOAT16;
}

static qn_status check_form(const qn_kv_form *f)
{
    if (f->kv_heads < 1 || f->head_dim < 1)
        return qn_fail(QN_E_ARG,
                       "[%s] Expected heads of keys with a dimension, found "
                       "%d heads of %d.",
                       op_name, f->kv_heads, f->head_dim);
    if (!is_small_float(f->dtype))
        return qn_fail(QN_E_ARG,
                       "[%s] Expected a cache of float32, float16 or bfloat16, "
                       "found %s.",
                       op_name, qn_dtype_name(f->dtype));
    if (!f->bits)
        return QN_OK;
    if ((f->bits != 4 && f->bits != 8) || (f->group != 32 && f->group != 64) ||
        f->head_dim % f->group)
        return qn_fail(QN_E_ARG,
                       "[%s] Expected codes of 4 or 8 bits in groups of 32 or "
                       "64 that divide the head's dimension (%d), found %d "
                       "bits in groups of %d.",
                       op_name, f->head_dim, f->bits, f->group);
    return QN_OK;
}

/* What array `i` of a cache looks like; its tokens (for keys in blocks: its
 * blocks) are on axis 1. */
static qn_dims part_dims(const qn_kv_form *f, int i, int capacity,
                         qn_dtype *type)
{
    *type = f->dtype;
    qn_dims dims = {.ndim = 3, .dim = {f->kv_heads, capacity, f->head_dim}};
    if (f->bits) {
        *type = i % 3 ? f->dtype : QN_UINT32;
        dims.dim[2] = i % 3 ? f->head_dim / f->group
                            : (int)((int64_t)f->head_dim * f->bits / 32);
    } else if (i == 0) {
        dims = (qn_dims){.ndim = 4,
                         .dim = {f->kv_heads, capacity / QN_KV_BLOCK,
                                 f->head_dim, QN_KV_BLOCK}};
    }
    return dims;
}

/* The capacity that the arrays of a cache have. */
static qn_status check_cache(const qn_kv_form *f, qn_array *const *arrays,
                             int *capacity)
{
    int last = qn_kv_parts(f) - 1;
    *capacity = arrays[last]->ndim == 3 ? arrays[last]->shape[1] : -1;
    for (int i = 0; i <= last; i++) {
        qn_dtype type;
        qn_dims dims = part_dims(f, i, *capacity, &type);
        bool fits = *capacity >= 0 && *capacity % QN_KV_BLOCK == 0 &&
                    arrays[i]->dtype == type && arrays[i]->ndim == dims.ndim;
        for (int axis = 0; fits && axis < dims.ndim; axis++)
            fits = arrays[i]->shape[axis] == dims.dim[axis];
        if (!fits)
            return qn_fail(QN_E_ARG,
                           "[%s] Array %d of a cache does not fit %d heads of "
                           "%d: found %s %s.",
                           op_name, i, f->kv_heads, f->head_dim,
                           qn_dtype_name(arrays[i]->dtype),
                           qn_array_shape_text(arrays[i]).text);
    }
    return QN_OK;
}

/* ---- room ---- */

static qn_array *zeros(qn_scope *c, const qn_dims *dims, qn_dtype type)
{
    qn_array *made = NULL;
    if (c->status)
        return NULL;
    return qn_scope_hold(c,
                         qn_op_full_value(&made, dims->dim, (size_t)dims->ndim,
                                          0, type, c->stream),
                         &made);
}

static qn_array *put_first(qn_scope *c, qn_array *to, qn_array *from)
{
    size_t n = (size_t)to->ndim;
    int start[4] = {0}, step[4] = {1, 1, 1, 1};
    qn_array *made = NULL;
    return qn_scope_hold(c,
                         qn_op_slice_update(&made, to, from, start, n,
                                            from->shape, n, step, n,
                                            QN_COMBINE_SET, c->stream),
                         &made);
}

qn_status qn_op_kv_room(qn_array **out, const qn_kv_form *f,
                        qn_array *const *old, int capacity, qn_stream *s)
{
    qn_status status = check_form(f);
    int before = 0;
    if (!status && old)
        status = check_cache(f, old, &before);
    if (!status && (capacity < before || capacity % QN_KV_BLOCK))
        status = qn_fail(QN_E_ARG,
                         "[%s] Expected a capacity in multiples of %d, at "
                         "least %d, found %d.",
                         op_name, QN_KV_BLOCK, before, capacity);
    if (status)
        return status;
    qn_array *made[QN_KV_PARTS];
    qn_scope c;
    qn_scope_begin(&c, s);
    for (int i = 0; i < qn_kv_parts(f); i++) {
        qn_dtype type;
        qn_dims dims = part_dims(f, i, capacity, &type);
        made[i] = zeros(&c, &dims, type);
        if (before && !c.status)
            made[i] = put_first(&c, made[i], old[i]);
    }
    return qn_scope_end_many(&c, out, made, qn_kv_parts(f));
}

/* ---- attention ---- */

static qn_status check_rows(const qn_array *x, const qn_array *q, int width,
                            const char *what)
{
    bool fits = x->dtype == q->dtype && is_small_float(x->dtype) &&
                x->ndim >= 2 && x->ndim == q->ndim &&
                x->shape[x->ndim - 1] == width;
    for (int i = 0; fits && i < x->ndim - 1; i++)
        fits = x->shape[i] == q->shape[i];
    if (!fits)
        return qn_fail(QN_E_ARG,
                       "[%s] Expected %s of type float32, float16 or bfloat16 "
                       "with rows of %d, as many as q has, found %s %s.",
                       op_name, what, width, qn_dtype_name(x->dtype),
                       qn_array_shape_text(x).text);
    return QN_OK;
}

static qn_status check_vector(const qn_array *x, int size, const char *what)
{
    if (!x || (x->ndim == 1 && x->shape[0] == size &&
               qn_dtype_is_float(x->dtype) && x->dtype != QN_FLOAT64))
        return QN_OK;
    return qn_fail(QN_E_ARG, "[%s] Expected %d %s, found %s %s.", op_name, size,
                   what, qn_dtype_name(x->dtype), qn_array_shape_text(x).text);
}

/* Positions are exact in a float up to here, and sums of them in an int. */
enum { MOST_TOKENS = 1 << 24 };

static qn_status check_steps(const qn_kv_params *p, const qn_array *q,
                             qn_array *const *caches)
{
    size_t rows = 0;
    for (int i = 0; i < p->count; i++) {
        int capacity, offset = p->steps[i].offset, count = p->steps[i].count;
        qn_status status = check_cache(
            &p->form, caches + (size_t)i * (size_t)qn_kv_parts(&p->form),
            &capacity);
        if (status)
            return status;
        if (offset < 0 || count < 1 || capacity > MOST_TOKENS ||
            offset > capacity || count > capacity - offset)
            return qn_fail(QN_E_ARG,
                           "[%s] Sequence %d: %d tokens behind %d do not fit a "
                           "cache of %d.",
                           op_name, i, count, offset, capacity);
        rows += (size_t)count;
    }
    size_t have = q->size / (size_t)q->shape[q->ndim - 1];
    if (p->count < 1 || rows != have)
        return qn_fail(QN_E_ARG,
                       "[%s] Expected rows for the steps' %zu tokens, found "
                       "%zu.",
                       op_name, rows, have);
    return QN_OK;
}

static qn_status check(const qn_kv_params *p, const qn_array *q,
                       const qn_array *k, const qn_array *v,
                       const qn_array *freqs, const qn_array *sinks,
                       qn_array *const *caches)
{
    const qn_kv_form *f = &p->form;
    qn_status status = check_form(f);
    if (status)
        return status;
    int64_t width = (int64_t)p->heads * f->head_dim, kv_width;
    kv_width = (int64_t)f->kv_heads * f->head_dim;
    if (p->heads < 1 || p->heads % f->kv_heads || width > INT32_MAX)
        return qn_fail(QN_E_ARG,
                       "[%s] Expected query heads in multiples of %d, found "
                       "%d.",
                       op_name, f->kv_heads, p->heads);
    if (p->window < 0)
        return qn_fail(QN_E_ARG,
                       "[%s] Expected a window of 0 or more, found "
                       "%d.",
                       op_name, p->window);
    if (p->dims < 0 || p->dims % 2 || p->dims > f->head_dim)
        return qn_fail(QN_E_ARG,
                       "[%s] Expected an even number of dimensions to turn, at "
                       "most %d, found %d.",
                       op_name, f->head_dim, p->dims);
    status = check_rows(q, q, (int)width, "q");
    if (!status)
        status = check_rows(k, q, (int)kv_width, "k");
    if (!status)
        status = check_rows(v, q, (int)kv_width, "v");
    if (!status)
        status = check_vector(freqs, p->dims / 2, "periods");
    if (!status)
        status = check_vector(sinks, p->heads, "sinks");
    return status ? status : check_steps(p, q, caches);
}

/* Makes the node; `inputs` begin with q, k, v. */
static qn_status attach(qn_array **out, qn_array *const *inputs, int ninputs,
                        int first_cache, const qn_kv_params *p, size_t size,
                        qn_stream *s)
{
    int noutputs = 1 + ninputs - first_cache, made = 0;
    qn_status status = QN_OK;
    for (; made < noutputs && !status; made++) {
        const qn_array *like =
            made ? inputs[first_cache + made - 1] : inputs[0];
        status = qn_array_new(&out[made], like->dtype, like->shape, like->ndim);
    }
    if (status)
        made--;
    qn_node_spec spec = {.op = QN_OP_KV_ATTENTION,
                         .stream = s,
                         .inputs = inputs,
                         .ninputs = ninputs,
                         .params = p,
                         .params_size = size};
    if (!status)
        status = qn_node_attach(&spec, out, noutputs);
    while (status && made)
        qn_array_delete(out[--made]);
    return status;
}

qn_status qn_op_kv_attention(qn_array **out, qn_array *q, qn_array *k,
                             qn_array *v, qn_array *freqs, qn_array *sinks,
                             qn_array *const *caches, const qn_kv_params *given,
                             qn_stream *s)
{
    qn_status status = check(given, q, k, v, freqs, sinks, caches);
    if (status)
        return status;
    size_t arrays = (size_t)given->count * (size_t)qn_kv_parts(&given->form);
    size_t size = sizeof *given + (size_t)given->count * sizeof *given->steps;
    qn_array **inputs = qn_calloc(arrays + 5, sizeof(qn_array *));
    qn_kv_params *p = qn_calloc(1, size);
    if (!inputs || !p) {
        qn_free(inputs);
        qn_free(p);
        return QN_E_NOMEM;
    }
    memcpy(p, given, size);
    p->has_freqs = freqs != NULL;
    p->has_sinks = sinks != NULL;
    int n = 0;
    inputs[n++] = q;
    inputs[n++] = k;
    inputs[n++] = v;
    if (freqs)
        inputs[n++] = freqs;
    if (sinks)
        inputs[n++] = sinks;
    memcpy(inputs + n, caches, arrays * sizeof *caches);
    status = attach(out, inputs, n + (int)arrays, n, p, size, s);
    qn_free(inputs);
    qn_free(p);
    return status;
}
