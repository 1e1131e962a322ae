/* kv.c: caches of keys and values, and attention over them. */
#include "params.h"
#include "scope.h"

#include "base/alloc.h"
#include "base/turboquant.h"

#include <float.h>
#include <string.h>

static const char op_name[] = "kv_attention";

static bool is_small_float(qn_dtype type)
{
    return type == QN_FLOAT32 || type == QN_FLOAT16 || type == QN_BFLOAT16;
}

/* `op` is the caller's name, for messages. */
static qn_status check_turbo(const char *op, const qn_kv_form *f)
{
    if (!qn_tq_has_key_bits(f->key_bits) ||
        !qn_tq_has_value_bits(f->value_bits))
        return qn_fail(QN_E_ARG,
                       "[%s] Expected key_bits " QN_TQ_KEY_BITS
                       " and value_bits " QN_TQ_VALUE_BITS ", found %d and %d.",
                       op, f->key_bits, f->value_bits);
    if (!qn_tq_has_dim(f->head_dim))
        return qn_fail(QN_E_ARG,
                       "[%s] Expected a head_dim of " QN_TQ_DIMS ", found %d.",
                       op, f->head_dim);
    return QN_OK;
}

static qn_status check_form(const char *op, const qn_kv_form *f)
{
    if (f->kv_heads < 1 || f->head_dim < 1)
        return qn_fail(QN_E_ARG,
                       "[%s] Expected heads of keys with a dimension, found "
                       "%d heads of %d.",
                       op, f->kv_heads, f->head_dim);
    if (!is_small_float(f->dtype))
        return qn_fail(QN_E_ARG,
                       "[%s] Expected a cache of float32, float16 or bfloat16, "
                       "found %s.",
                       op, qn_dtype_name(f->dtype));
    if (f->key_bits || f->value_bits)
        return check_turbo(op, f);
    if (!f->bits)
        return QN_OK;
    if ((f->bits != 4 && f->bits != 8) || (f->group != 32 && f->group != 64) ||
        f->head_dim % f->group)
        return qn_fail(QN_E_ARG,
                       "[%s] Expected codes of 4 or 8 bits in groups of 32 or "
                       "64 that divide the head's dimension (%d), found %d "
                       "bits in groups of %d.",
                       op, f->head_dim, f->bits, f->group);
    return QN_OK;
}

/* What an array looks like. */
typedef struct look {
    qn_dtype type;
    qn_dims dims;
} look;

/* Bits of a key's codes, or of a value's. */
static int code_bits(const qn_kv_form *f, bool key)
{
    return f->bits ? f->bits : key ? f->key_bits : f->value_bits;
}

/* Array `i` of a cache; its tokens, or blocks of them, are on axis 1. */
static look part_look(const qn_kv_form *f, int i, int capacity)
{
    int d = f->head_dim, blocks = capacity / QN_KV_BLOCK, n = QN_KV_BLOCK;
    bool packed = qn_kv_packed(f);
    if (!packed && i)
        return (look){f->dtype, {.ndim = 3, .dim = {f->kv_heads, capacity, d}}};
    look all = {f->dtype, {.ndim = 4, .dim = {f->kv_heads, blocks, d, n}}};
    if (!packed)
        return all;
    if (i % 3) {
        all.dims.dim[2] = d / f->group;
        return all;
    }
    all.type = QN_UINT32;
    all.dims.dim[2] = (i ? QN_KV_BLOCK : d) / 32 * code_bits(f, !i);
    all.dims.dim[3] = i ? d : n;
    return all;
}

/* Plane `i` of KV_READ and KV_WRITE. */
static look plane_look(const qn_kv_form *f, int i, int count)
{
    int d = f->head_dim;
    look all = {f->dtype, {.ndim = 4, .dim = {1, f->kv_heads, count, d}}};
    if (!qn_kv_packed(f))
        return all;
    if (i % 3) {
        all.dims.dim[3] = d / f->group;
        return all;
    }
    int bits = code_bits(f, !i);
    bool bytes = f->key_bits != 0;
    all.type = !bytes ? QN_UINT32 : !i && bits == 8 ? QN_INT8 : QN_UINT8;
    all.dims.dim[3] = d / 32 * bits * (bytes ? 4 : 1);
    return all;
}

static bool is_like(const qn_array *x, const look *l)
{
    bool fits = x->dtype == l->type && x->ndim == l->dims.ndim;
    for (int axis = 0; fits && axis < x->ndim; axis++)
        fits = x->shape[axis] == l->dims.dim[axis];
    return fits;
}

/* Positions are exact in a float up to here, and sums of them in an int. */
enum { MOST_TOKENS = 1 << 24 };

/* The capacity that the arrays of a cache have. */
static qn_status check_cache(const char *op, const qn_kv_form *f,
                             qn_array *const *arrays, int *capacity)
{
    int blocks = arrays[0]->ndim == 4 ? arrays[0]->shape[1] : 0;
    bool counts = blocks >= 0 && blocks <= MOST_TOKENS / QN_KV_BLOCK;
    *capacity = counts ? blocks * QN_KV_BLOCK : 0;
    for (int i = 0; i < qn_kv_parts(f); i++) {
        look l = part_look(f, i, *capacity);
        if (!is_like(arrays[i], &l))
            return qn_fail(QN_E_ARG,
                           "[%s] Array %d of a cache does not fit %d heads of "
                           "%d: found %s %s.",
                           op, i, f->kv_heads, f->head_dim,
                           qn_dtype_name(arrays[i]->dtype),
                           qn_array_shape_text(arrays[i]).text);
    }
    return QN_OK;
}

/* ---- room ---- */

static qn_array *zeros(qn_scope *c, const look *l)
{
    const qn_dims *dims = &l->dims;
    qn_array *made = NULL, *exact = NULL;
    if (c->status)
        return NULL;
    made = qn_scope_hold(c,
                         qn_op_full_value(&made, dims->dim, (size_t)dims->ndim,
                                          0, l->type, c->stream),
                         &made);
    if (c->status)
        return NULL;
    /* A cache stays: it must not sit in a larger buffer of the pool. */
    return qn_scope_hold(c, qn_op_materialize(&exact, made, c->stream), &exact);
}

/* Blocks (or their tokens) first .. end of an array of a cache. */
static qn_array *cut(qn_scope *c, qn_array *x, int first, int end)
{
    size_t n = (size_t)x->ndim;
    int unit = x->ndim == 4 ? 1 : QN_KV_BLOCK;
    int start[4] = {0, first * unit}, step[4] = {1, 1, 1, 1}, stop[4];
    memcpy(stop, x->shape, n * sizeof *stop);
    stop[1] = end * unit;
    qn_array *made = NULL;
    if (c->status)
        return NULL;
    return qn_scope_hold(
        c, qn_op_slice(&made, x, start, n, stop, n, step, n, c->stream), &made);
}

/* Block `first` of `to` and the following ones become `from`. */
static qn_array *put_at(qn_scope *c, qn_array *to, qn_array *from, int first)
{
    if (c->status)
        return NULL;
    size_t n = (size_t)to->ndim;
    int unit = to->ndim == 4 ? 1 : QN_KV_BLOCK;
    int start[4] = {0, first * unit}, step[4] = {1, 1, 1, 1}, stop[4];
    memcpy(stop, from->shape, n * sizeof *stop);
    stop[1] += first * unit;
    qn_array *made = NULL;
    return qn_scope_hold(c,
                         qn_op_slice_update(&made, to, from, start, n, stop, n,
                                            step, n, QN_COMBINE_SET, c->stream),
                         &made);
}

qn_status qn_op_kv_room(qn_array **out, const qn_kv_form *f,
                        qn_array *const *old, int *capacity, qn_stream *s)
{
    qn_status status = check_form("kv_room", f);
    int before = 0;
    if (!status && old)
        status = check_cache("kv_room", f, old, &before);
    if (!status &&
        (*capacity < 0 || *capacity % QN_KV_BLOCK || *capacity > MOST_TOKENS))
        status =
            qn_fail(QN_E_ARG,
                    "[kv_room] Expected a capacity in multiples of %d, from "
                    "0 to %d, found %d.",
                    QN_KV_BLOCK, MOST_TOKENS, *capacity);
    if (status)
        return status;
    if (*capacity < before)
        *capacity = before;
    qn_array *made[QN_KV_PARTS];
    qn_scope c;
    qn_scope_begin(&c, s);
    for (int i = 0; i < qn_kv_parts(f); i++) {
        look l = part_look(f, i, *capacity);
        made[i] = zeros(&c, &l);
        if (before && !c.status)
            made[i] = put_at(&c, made[i], old[i], 0);
    }
    return qn_scope_end_many(&c, out, made, qn_kv_parts(f));
}

qn_status qn_op_kv_drop(qn_array **out, const qn_kv_form *f,
                        qn_array *const *old, int first, int count,
                        int capacity, qn_stream *s)
{
    int before = 0;
    qn_status status = check_form("kv_drop", f);
    if (!status)
        status = check_cache("kv_drop", f, old, &before);
    if (!status &&
        (first < 0 || count < 0 || first > before || count > before - first ||
         first % QN_KV_BLOCK || count % QN_KV_BLOCK || capacity < first ||
         capacity % QN_KV_BLOCK || capacity > MOST_TOKENS))
        status = qn_fail(QN_E_ARG,
                         "[kv_drop] %d tokens from %d on, room for %d: not "
                         "possible for a cache of %d in blocks of %d.",
                         count, first, capacity, before, QN_KV_BLOCK);
    if (status)
        return status;
    int head = first / QN_KV_BLOCK, tail = (first + count) / QN_KV_BLOCK;
    int end = before / QN_KV_BLOCK, most = capacity / QN_KV_BLOCK;
    if (end - tail > most - head)
        end = tail + most - head;
    qn_array *made[QN_KV_PARTS];
    qn_scope c;
    qn_scope_begin(&c, s);
    for (int i = 0; i < qn_kv_parts(f); i++) {
        look l = part_look(f, i, capacity);
        made[i] = zeros(&c, &l);
        if (head)
            made[i] = put_at(&c, made[i], cut(&c, old[i], 0, head), 0);
        if (end > tail)
            made[i] = put_at(&c, made[i], cut(&c, old[i], tail, end), head);
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

/* Nothing that the rows see may have been dropped. */
static qn_status check_skipped(const qn_kv_params *p, int i)
{
    qn_kv_step step = p->steps[i];
    int first = p->keep ? QN_KV_BLOCK : 0;
    bool sane = step.skipped >= 0 && step.skipped % QN_KV_BLOCK == 0 &&
                step.skipped <= MOST_TOKENS - step.offset - step.count;
    if (sane &&
        (!step.skipped || (p->window && step.offset - p->window + 1 >= first)))
        return QN_OK;
    return qn_fail(QN_E_ARG,
                   "[%s] Sequence %d: %d tokens dropped before %d others: a "
                   "window of %d needs them, or they are not whole blocks.",
                   op_name, i, step.skipped, step.offset, p->window);
}

static qn_status check_steps(const qn_kv_params *p, const qn_array *q,
                             qn_array *const *caches)
{
    size_t rows = 0;
    for (int i = 0; i < p->count; i++) {
        int capacity, offset = p->steps[i].offset, count = p->steps[i].count;
        qn_status status = check_cache(
            op_name, &p->form,
            caches + (size_t)i * (size_t)qn_kv_parts(&p->form), &capacity);
        if (status)
            return status;
        if (offset < 0 || count < 1 || offset > capacity ||
            count > capacity - offset)
            return qn_fail(QN_E_ARG,
                           "[%s] Sequence %d: %d tokens behind %d do not fit a "
                           "cache of %d.",
                           op_name, i, count, offset, capacity);
        status = check_skipped(p, i);
        if (status)
            return status;
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
    qn_status status = check_form(op_name, f);
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
    if (!(p->cap >= 0 && p->cap <= FLT_MAX))
        return qn_fail(QN_E_ARG,
                       "[%s] Expected a cap of scores of 0 or more, found %g.",
                       op_name, (double)p->cap);
    if (p->keep < 0 || p->keep > QN_KV_BLOCK || (p->keep && !p->window))
        return qn_fail(QN_E_ARG,
                       "[%s] Expected 0 to %d tokens to keep beside a window, "
                       "found %d.",
                       op_name, QN_KV_BLOCK, p->keep);
    if (p->dims < 0 || p->dims % 2 || p->dims > f->head_dim)
        return qn_fail(QN_E_ARG,
                       "[%s] Expected an even number of dimensions to turn, at "
                       "most %d, found %d.",
                       op_name, f->head_dim, p->dims);
    status = check_rows(q, q, (int)width, "q");
    if (!status && !p->stored)
        status = check_rows(k, q, (int)kv_width, "k");
    if (!status && !p->stored)
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
    int noutputs = p->stored ? 1 : 1 + ninputs - first_cache, made = 0;
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
    if (!p->stored) {
        inputs[n++] = k;
        inputs[n++] = v;
    }
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

/* ---- reading and writing ---- */

/* Makes the node that turns `inputs` into arrays that look so. */
static qn_status copy_node(qn_array **out, qn_op op, qn_array *const *inputs,
                           const qn_kv_copy_params *p,
                           look (*look_of)(const qn_kv_form *, int, int),
                           int tokens, qn_stream *s)
{
    int parts = qn_kv_parts(&p->form), made = 0;
    qn_status status = QN_OK;
    for (; made < parts && !status; made++) {
        look l = look_of(&p->form, made, tokens);
        status = qn_array_new(&out[made], l.type, l.dims.dim, l.dims.ndim);
    }
    if (status)
        made--;
    qn_node_spec spec = {.op = op,
                         .stream = s,
                         .inputs = inputs,
                         .ninputs = parts,
                         .params = p,
                         .params_size = sizeof *p};
    if (!status)
        status = qn_node_attach(&spec, out, parts);
    while (status && made)
        qn_array_delete(out[--made]);
    return status;
}

qn_status qn_op_kv_read(qn_array **out, const qn_kv_form *f,
                        qn_array *const *arrays, int count, qn_stream *s)
{
    int capacity = 0;
    qn_status status = check_form("kv_read", f);
    if (!status)
        status = check_cache("kv_read", f, arrays, &capacity);
    if (!status && (count < 0 || count > capacity))
        status = qn_fail(QN_E_ARG,
                         "[kv_read] Expected at most the %d tokens that the "
                         "cache has room for, found %d.",
                         capacity, count);
    qn_kv_copy_params p = {*f, count, capacity};
    return status ? status
                  : copy_node(out, QN_OP_KV_READ, arrays, &p, plane_look, count,
                              s);
}

qn_status qn_op_kv_write(qn_array **out, const qn_kv_form *f,
                         qn_array *const *planes, int *capacity, qn_stream *s)
{
    qn_status status = check_form("kv_write", f);
    if (status)
        return status;
    int count = planes[0]->ndim == 4 ? planes[0]->shape[2] : 0;
    for (int i = 0; i < qn_kv_parts(f); i++) {
        look l = plane_look(f, i, count);
        if (!is_like(planes[i], &l) || count > MOST_TOKENS)
            return qn_fail(QN_E_ARG,
                           "[kv_write] Plane %d does not fit %d heads of %d "
                           "(and at most %d tokens, as many as in the others): "
                           "found %s %s.",
                           i, f->kv_heads, f->head_dim, MOST_TOKENS,
                           qn_dtype_name(planes[i]->dtype),
                           qn_array_shape_text(planes[i]).text);
    }
    *capacity = (count + QN_KV_BLOCK - 1) / QN_KV_BLOCK * QN_KV_BLOCK;
    qn_kv_copy_params p = {*f, count, *capacity};
    return copy_node(out, QN_OP_KV_WRITE, planes, &p, part_look, *capacity, s);
}
