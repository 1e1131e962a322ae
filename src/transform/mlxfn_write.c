/* mlxfn_write.c: our operations as primitives of MLX.
 *
 * Most are one primitive with another layout of its constants. An operation
 * that MLX has no primitive for is written as what it is made of
 * (mlxfn_expand.c): that is recorded, and its tape written in its place. */
#include "mlxfn_write.h"

#include "mlxfn_expand.h"

#include "ops/params.h"
#include "ops/rules.h"

#include "base/alloc.h"

typedef qn_mlxfn_value value;
typedef qn_mlxfn_field field;

/* A step to be written. */
typedef struct step {
    qn_mlxfn_writer *w;
    const qn_tape_step *of;
    const qn_node *node;
    const value *in;
    value *out;
    qn_array *const *was_in, *const *was_out;
} step;

/* ---- entries ---- */

static qn_mlxfn_type type_of(const qn_array *x)
{
    return (qn_mlxfn_type){x->dtype, qn_dims_of(x)};
}

/* Writes an entry with `nout` outputs, whose types are set: their ids follow.
 */
static void emit_many(qn_mlxfn_writer *w, const qn_stream *stream,
                      qn_mlxfn_prim prim, const field *f, const value *in,
                      size_t nin, value *out, size_t nout)
{
    qn_buf *b = w->bytes;
    if (w->status)
        return;
    for (size_t i = 0; i < nout; i++)
        out[i].id = ++w->next_id;
    qn_mlxfn_put_u64(b, out[0].id);
    qn_mlxfn_put_bool(b, true);
    qn_mlxfn_put_u64(b, nin);
    for (size_t i = 0; i < nin; i++)
        qn_mlxfn_put_u64(b, in[i].id);
    qn_mlxfn_put_stream(b, stream);
    qn_mlxfn_put_text(b, qn_str_of(qn_mlxfn_info_of(prim)->name));
    qn_mlxfn_put_state(b, prim, f);
    qn_mlxfn_put_u64(b, nout - 1);
    if (nout > 1) {
        qn_mlxfn_put_u64(b, nout);
        for (size_t i = 0; i < nout; i++)
            qn_mlxfn_put_u64(b, out[i].id);
        qn_mlxfn_put_u64(b, nout);
    }
    for (size_t i = 0; i < nout; i++)
        qn_mlxfn_put_shape(b, out[i].type.dims.dim, out[i].type.dims.ndim);
    if (nout > 1)
        qn_mlxfn_put_u64(b, nout);
    for (size_t i = 0; i < nout; i++)
        qn_mlxfn_put_dtype(b, out[i].type.dtype);
    w->entries++;
    w->status = qn_buf_status(b);
}

static value emit(const step *s, qn_mlxfn_prim prim, const field *f,
                  const value *in, size_t nin, const qn_mlxfn_type *type)
{
    value out = {.type = *type};
    emit_many(s->w, s->node->stream, prim, f, in, nin, &out, 1);
    return out;
}

/* The step's only output, by one primitive over its inputs. */
static void whole(const step *s, qn_mlxfn_prim prim, const field *f)
{
    emit_many(s->w, s->node->stream, prim, f, s->in, s->of->ninputs, s->out,
              s->of->noutputs);
}

static value constant(qn_mlxfn_writer *w, qn_array *x)
{
    value v = {.type = type_of(x)};
    if (!w->status)
        v.id = w->constant(w, x);
    return v;
}

static value number(qn_mlxfn_writer *w, double x, qn_dtype dtype)
{
    qn_array *array;
    value v = {.type = {.dtype = dtype}};
    if (w->status)
        return v;
    w->status = qn_op_scalar(&array, x, dtype);
    if (w->status)
        return v;
    v = constant(w, array);
    qn_array_unref(array);
    return v;
}

/* ---- fields ---- */

static field ints(const int *values, int count)
{
    field f = {.count = count};
    for (int i = 0; i < count; i++)
        f.list[i] = values[i];
    return f;
}

static field dims_field(const qn_dims *dims)
{
    return ints(dims->dim, dims->ndim);
}

static field one(int64_t i)
{
    return (field){.i = i};
}

static field real(double d)
{
    return (field){.d = d};
}

/* ---- pieces that several writers use ---- */

static value astype(const step *s, value x, qn_dtype dtype)
{
    if (x.type.dtype == dtype)
        return x;
    field f = one((int64_t)dtype);
    qn_mlxfn_type type = {dtype, x.type.dims};
    return emit(s, QN_MLXFN_AsType, &f, &x, 1, &type);
}

static bool same_dims(const qn_dims *a, const qn_dims *b)
{
    return a->ndim == b->ndim &&
           !memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim);
}

static value broadcast_value(const step *s, value x, const qn_dims *dims)
{
    if (same_dims(&x.type.dims, dims))
        return x;
    field f = dims_field(dims);
    qn_mlxfn_type type = {x.type.dtype, *dims};
    return emit(s, QN_MLXFN_Broadcast, &f, &x, 1, &type);
}

static value reshaped(const step *s, value x, const qn_dims *dims)
{
    field f = dims_field(dims);
    qn_mlxfn_type type = {x.type.dtype, *dims};
    return emit(s, QN_MLXFN_Reshape, &f, &x, 1, &type);
}

/* Leaves out axes of length 1. */
static value squeezed(const step *s, value x, const int *axes, int count)
{
    field f = ints(axes, count);
    qn_mlxfn_type type = x.type;
    for (int k = count - 1; k >= 0; k--)
        qn_dims_remove(&type.dims, axes[k]);
    return count ? emit(s, QN_MLXFN_Squeeze, &f, &x, 1, &type) : x;
}

static value flattened(const step *s, value x, int start, int end)
{
    if (start == end)
        return x;
    field f[2] = {one(start), one(end)};
    qn_mlxfn_type type = x.type;
    for (int k = end; k > start; k--) {
        type.dims.dim[start] *= type.dims.dim[start + 1];
        qn_dims_remove(&type.dims, start + 1);
    }
    return emit(s, QN_MLXFN_Flatten, f, &x, 1, &type);
}

/* ---- regular families ---- */

static qn_mlxfn_prim plain_of(int op)
{
    for (int i = 0; i < QN_MLXFN_COUNT; i++) {
        const qn_mlxfn_info *info = qn_mlxfn_info_of((qn_mlxfn_prim)i);
        if (info->op == op && !*info->state)
            return (qn_mlxfn_prim)i;
    }
    return QN_MLXFN_COUNT;
}

#define WRITER(name) static void write_##name(const step *s)

/* Of complex numbers it is complex there. */
WRITER(abs)
{
    value y = emit(s, QN_MLXFN_Abs, NULL, s->in, 1, &s->in->type);
    *s->out = astype(s, y, s->out->type.dtype);
}

WRITER(log)
{
    int op = s->node->op;
    field f = one(op == QN_OP_LOG2 ? 0 : op == QN_OP_LOG10 ? 1 : 2);
    whole(s, QN_MLXFN_Log, &f);
}

WRITER(sqrt)
{
    field f = one(s->node->op == QN_OP_RSQRT);
    whole(s, QN_MLXFN_Sqrt, &f);
}

WRITER(bitwise)
{
    int64_t kind = 0;
    switch (s->node->op) {
    case QN_OP_BITWISE_OR:
        kind = 1;
        break;
    case QN_OP_BITWISE_XOR:
        kind = 2;
        break;
    case QN_OP_LEFT_SHIFT:
        kind = 3;
        break;
    case QN_OP_RIGHT_SHIFT:
        kind = 4;
        break;
    }
    field f = one(kind);
    whole(s, QN_MLXFN_BitwiseBinary, &f);
}

WRITER(equal)
{
    field f = one(false);
    whole(s, QN_MLXFN_Equal, &f);
}

WRITER(whole_quotient)
{
    whole(s, QN_MLXFN_Divide, NULL);
}

/* There the axes stay, with length 1. */
static void kept(const step *s, qn_mlxfn_prim prim, const field *f,
                 const int *axes, int naxes)
{
    qn_mlxfn_type type = {s->out->type.dtype, s->in->type.dims};
    for (int k = 0; k < naxes; k++)
        type.dims.dim[axes[k]] = 1;
    value y = emit(s, prim, f, s->in, 1, &type);
    bool same = s->out->type.dims.ndim == type.dims.ndim;
    *s->out = same ? y : squeezed(s, y, axes, naxes);
}

WRITER(reduce)
{
    const qn_reduce_params *p = s->node->params;
    static const struct {
        int op, kind;
    } kinds[] = {{QN_OP_ALL, 0},  {QN_OP_ANY, 1}, {QN_OP_SUM, 2},
                 {QN_OP_PROD, 3}, {QN_OP_MIN, 4}, {QN_OP_MAX, 5}};
    field f[2] = {one(0), ints(p->axes, p->naxes)};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].op == s->node->op)
            f[0].i = kinds[i].kind;
    kept(s, QN_MLXFN_Reduce, f, p->axes, p->naxes);
}

WRITER(arg_reduce)
{
    const qn_arg_reduce_params *p = s->node->params;
    field f[2] = {one(p->max), one(p->axis)};
    kept(s, QN_MLXFN_ArgReduce, f, &p->axis, 1);
}

WRITER(scan)
{
    const qn_scan_params *p = s->node->params;
    static const int kinds[] = {QN_OP_CUMMAX, QN_OP_CUMMIN, QN_OP_CUMSUM,
                                QN_OP_CUMPROD, QN_OP_LOGCUMSUMEXP};
    int kind = 0;
    while (kind < 4 && kinds[kind] != s->node->op)
        kind++;
    field f[4] = {one(kind), one(p->axis), one(p->reverse), one(p->inclusive)};
    whole(s, QN_MLXFN_Scan, f);
}

/* ---- order ---- */

WRITER(sort)
{
    const qn_axis_params *p = s->node->params;
    field f = one(p->axis);
    whole(s, s->node->op == QN_OP_SORT ? QN_MLXFN_Sort : QN_MLXFN_ArgSort, &f);
}

WRITER(partition)
{
    const qn_partition_params *p = s->node->params;
    field f[2] = {one(p->kth), one(p->axis)};
    whole(s,
          s->node->op == QN_OP_PARTITION ? QN_MLXFN_Partition
                                         : QN_MLXFN_ArgPartition,
          f);
}

WRITER(searchsorted)
{
    const qn_searchsorted_params *p = s->node->params;
    field f = one(p->right);
    whole(s, QN_MLXFN_SearchSorted, &f);
}

/* ---- creation, types ---- */

/* The end is put half a step before the next element, so that a rounded
 * quotient is no other number of them. */
WRITER(arange)
{
    const qn_arange_params *p = s->node->params;
    bool floating = qn_dtype_is_float(s->out->type.dtype);
    double start = floating ? p->start : (double)p->istart;
    double apart = floating ? p->step : (double)p->istep;
    double count = s->out->type.dims.dim[0];
    double stop = count > 0 ? start + (count - 0.5) * apart : start;
    field f[3] = {real(start), real(stop), real(apart)};
    whole(s, QN_MLXFN_Arange, f);
}

WRITER(full)
{
    value x = broadcast_value(s, s->in[0], &s->out->type.dims);
    *s->out = emit(s, QN_MLXFN_Full, NULL, &x, 1, &s->out->type);
}

WRITER(astype)
{
    field f = one((int64_t)s->out->type.dtype);
    whole(s, s->node->op == QN_OP_VIEW ? QN_MLXFN_View : QN_MLXFN_AsType, &f);
}

WRITER(select)
{
    whole(s, QN_MLXFN_Select, NULL);
}

/* Keys of a batch are in front of the shape that each has. */
WRITER(random_bits)
{
    const qn_random_bits_params *p = s->node->params;
    const qn_dims *dims = &s->out->type.dims;
    int batch = s->in->type.dims.ndim - 1;
    field f[2] = {ints(dims->dim + batch, dims->ndim - batch), one(p->width)};
    whole(s, QN_MLXFN_RandomBits, f);
}

WRITER(number_of_elements)
{
    const qn_number_of_elements_params *p = s->node->params;
    field f[3] = {ints(p->axes, p->naxes), one(p->inverted),
                  one((int64_t)s->out->type.dtype)};
    whole(s, QN_MLXFN_NumberOfElements, f);
}

/* ---- shape ---- */

/* MLX's takes one dimension. */
WRITER(as_strided)
{
    const qn_as_strided_params *p = s->node->params;
    const qn_dims *dims = &s->out->type.dims;
    field f[3] = {
        dims_field(dims), {.count = dims->ndim}, one((int64_t)p->offset)};
    for (int i = 0; i < dims->ndim; i++)
        f[1].list[i] = p->strides[i];
    value x = s->in[0];
    int ndim = x.type.dims.ndim;
    x = ndim ? flattened(s, x, 0, ndim - 1)
             : reshaped(s, x, &(qn_dims){.ndim = 1, .dim = {1}});
    *s->out = emit(s, QN_MLXFN_AsStrided, f, &x, 1, &s->out->type);
}

WRITER(broadcast)
{
    field f = dims_field(&s->out->type.dims);
    whole(s, QN_MLXFN_Broadcast, &f);
}

WRITER(copy)
{
    whole(s, QN_MLXFN_Copy, NULL);
}

WRITER(depends)
{
    whole(s, QN_MLXFN_Depends, NULL);
}

WRITER(stop_gradient)
{
    whole(s, QN_MLXFN_StopGradient, NULL);
}

/* Axes of length 1 left out and put in: true if that is all. */
static bool only_ones(const step *s)
{
    const qn_dims *from = &s->in->type.dims, *to = &s->out->type.dims;
    int out[QN_MAX_NDIM], in[QN_MAX_NDIM], nout = 0, nin = 0, i = 0, j = 0;
    while (i < from->ndim || j < to->ndim) {
        bool both = i < from->ndim && j < to->ndim;
        if (both && from->dim[i] == to->dim[j]) {
            i++;
            j++;
        } else if (i < from->ndim && from->dim[i] == 1) {
            out[nout++] = i++;
        } else if (j < to->ndim && to->dim[j] == 1) {
            in[nin++] = j++;
        } else {
            return false;
        }
    }
    value x = squeezed(s, s->in[0], out, nout);
    field f = ints(in, nin);
    *s->out = nin ? emit(s, QN_MLXFN_ExpandDims, &f, &x, 1, &s->out->type) : x;
    return true;
}

/* One run of axes made one, or one made several: true if that is all. */
static bool one_group(const step *s)
{
    const qn_dims *from = &s->in->type.dims, *to = &s->out->type.dims;
    int front = 0, back = 0;
    int least = from->ndim < to->ndim ? from->ndim : to->ndim;
    while (front < least && from->dim[front] == to->dim[front])
        front++;
    while (back < least - front &&
           from->dim[from->ndim - 1 - back] == to->dim[to->ndim - 1 - back])
        back++;
    int n = from->ndim - front - back, k = to->ndim - front - back;
    if (k == 1 && n > 1) {
        *s->out = flattened(s, s->in[0], front, front + n - 1);
        return true;
    }
    if (n != 1 || k < 2)
        return false;
    field f[2] = {one(front), ints(to->dim + front, k)};
    whole(s, QN_MLXFN_Unflatten, f);
    return true;
}

/* One that a builder derived is written as what it does, so that it can follow
 * other shapes. */
WRITER(reshape)
{
    const qn_reshape_params *p = s->node->params;
    if (!(p && p->given) && (only_ones(s) || one_group(s)))
        return;
    field f = dims_field(&s->out->type.dims);
    if (p && p->given && p->open >= 0)
        f.list[p->open] = -1;
    whole(s, QN_MLXFN_Reshape, &f);
}

WRITER(transpose)
{
    const qn_transpose_params *p = s->node->params;
    field f = ints(p->axes, s->in->type.dims.ndim);
    whole(s, QN_MLXFN_Transpose, &f);
}

/* ---- slices ---- */

/* Start, end and stride of each axis: an end before the first element is -1
 * less the length, as Python counts. */
static void slice_fields(field *f, const int *start, const int *strides,
                         const qn_dims *part, const qn_dims *source)
{
    f[0] = ints(start, part->ndim);
    f[1] = (field){.count = part->ndim};
    f[2] = ints(strides, part->ndim);
    for (int i = 0; i < part->ndim; i++) {
        int64_t after = start[i] + (int64_t)part->dim[i] * strides[i];
        if (strides[i] > 0)
            after = after > source->dim[i] ? source->dim[i] : after;
        else if (after < 0)
            after = -(int64_t)source->dim[i] - 1;
        f[1].list[i] = after;
    }
}

WRITER(slice)
{
    const qn_slice_params *p = s->node->params;
    field f[3];
    slice_fields(f, p->start, p->strides, &s->out->type.dims,
                 &s->in->type.dims);
    whole(s, QN_MLXFN_Slice, f);
}

int qn_mlxfn_combine(int combine)
{
    static const int kinds[] = {[QN_COMBINE_SET] = 4,
                                [QN_COMBINE_SUM] = 2,
                                [QN_COMBINE_PROD] = 3,
                                [QN_COMBINE_MAX] = 0,
                                [QN_COMBINE_MIN] = 1};
    return kinds[combine];
}

WRITER(slice_update)
{
    const qn_slice_update_params *p = s->node->params;
    field f[4];
    f[0] = one(qn_mlxfn_combine(p->combine));
    slice_fields(f + 1, p->start, p->strides, &s->in[1].type.dims,
                 &s->in->type.dims);
    whole(s, QN_MLXFN_SliceUpdate, f);
}

WRITER(slice_dynamic)
{
    const qn_slice_dynamic_params *p = s->node->params;
    field f[2] = {ints(p->axes, p->naxes), dims_field(&s->out->type.dims)};
    whole(s,
          s->node->op == QN_OP_SLICE_DYNAMIC ? QN_MLXFN_DynamicSlice
                                             : QN_MLXFN_DynamicSliceUpdate,
          f);
}

WRITER(concatenate)
{
    const qn_axis_params *p = s->node->params;
    field f = one(p->axis);
    whole(s, QN_MLXFN_Concatenate, &f);
}

WRITER(pad)
{
    const qn_pad_params *p = s->node->params;
    const qn_dims *from = &s->in->type.dims, *to = &s->out->type.dims;
    int axes[QN_MAX_NDIM], high[QN_MAX_NDIM];
    for (int i = 0; i < from->ndim; i++) {
        axes[i] = i;
        high[i] = to->dim[i] - p->low[i] - from->dim[i];
    }
    field f[3] = {ints(axes, from->ndim), ints(p->low, from->ndim),
                  ints(high, from->ndim)};
    whole(s, QN_MLXFN_Pad, f);
}

/* ---- indices ---- */

/* MLX's indices are of one type. */
static void with_indices(const step *s, qn_mlxfn_prim prim, const field *f,
                         size_t count)
{
    size_t n = s->of->ninputs;
    value *in = qn_calloc(n, sizeof *in);
    if (!in) {
        s->w->status = QN_E_NOMEM;
        return;
    }
    memcpy(in, s->in, n * sizeof *in);
    bool same = true;
    for (size_t i = 1; i < count; i++)
        same &= in[1 + i].type.dtype == in[1].type.dtype;
    for (size_t i = 0; i < count && !same; i++)
        in[1 + i] = astype(s, in[1 + i], QN_INT64);
    *s->out = emit(s, prim, f, in, n, &s->out->type);
    qn_free(in);
}

WRITER(gather)
{
    const qn_gather_params *p = s->node->params;
    field f[2] = {ints(p->axes, p->naxes),
                  ints(p->slice_sizes, s->in->type.dims.ndim)};
    with_indices(s, QN_MLXFN_Gather, f, (size_t)p->naxes);
}

WRITER(gather_axis)
{
    const qn_axis_params *p = s->node->params;
    field f = one(p->axis);
    whole(s, QN_MLXFN_GatherAxis, &f);
}

WRITER(scatter)
{
    const qn_scatter_params *p = s->node->params;
    field f[2] = {one(qn_mlxfn_combine(p->combine)), ints(p->axes, p->naxes)};
    with_indices(s, QN_MLXFN_Scatter, f, (size_t)p->naxes);
}

WRITER(scatter_axis)
{
    const qn_scatter_axis_params *p = s->node->params;
    field f[2] = {one(p->combine == QN_COMBINE_SET), one(p->axis)};
    whole(s, QN_MLXFN_ScatterAxis, f);
}

/* MLX's has an axis of batches in front. */
WRITER(masked_scatter)
{
    static const int front = 0;
    field f = ints(&front, 1);
    value in[3];
    for (int i = 0; i < 3; i++) {
        qn_mlxfn_type type = s->in[i].type;
        s->w->status = s->w->status
                           ? s->w->status
                           : qn_dims_insert(&type.dims, "export", 0, 1);
        in[i] = emit(s, QN_MLXFN_ExpandDims, &f, &s->in[i], 1, &type);
    }
    value y = emit(s, QN_MLXFN_MaskedScatter, NULL, in, 3, &in[0].type);
    *s->out = squeezed(s, y, &front, 1);
}

/* ---- products ---- */

/* A matrix for a batch on the left: MLX's has as many on both sides. */
WRITER(matmul)
{
    value in[2] = {s->in[0], s->in[1]};
    const qn_dims *dims = &s->out->type.dims;
    int ndim = in[0].type.dims.ndim;
    if (ndim <= 2 || in[1].type.dims.ndim > 2 || s->w->shapeless) {
        whole(s, QN_MLXFN_Matmul, NULL);
        return;
    }
    in[0] = flattened(s, in[0], 0, ndim - 2);
    qn_mlxfn_type type = {s->out->type.dtype, {.ndim = 2}};
    type.dims.dim[0] = in[0].type.dims.dim[0];
    type.dims.dim[1] = dims->dim[ndim - 1];
    value y = emit(s, QN_MLXFN_Matmul, NULL, in, 2, &type);
    field f[2] = {one(0), ints(dims->dim, ndim - 1)};
    *s->out = emit(s, QN_MLXFN_Unflatten, f, &y, 1, &s->out->type);
}

WRITER(gather_mm)
{
    value in[4];
    memcpy(in, s->in, sizeof in);
    for (int i = 2; i < 4; i++)
        in[i] = astype(s, in[i], QN_UINT32);
    field f[2] = {one(false), one(false)};
    *s->out = emit(s, QN_MLXFN_GatherMM, f, in, 4, &s->out->type);
}

WRITER(segmented_mm)
{
    whole(s, QN_MLXFN_SegmentedMM, NULL);
}

/* Sizes without a factor of 20 and 28 have symmetric matrices. */
WRITER(hadamard)
{
    const qn_hadamard_params *p = s->node->params;
    const qn_dims *dims = &s->in->type.dims;
    int n = dims->dim[dims->ndim - 1];
    bool symmetric = n % 5 && n % 7;
    field f = real((double)p->scale);
    whole(s,
          p->turned && !symmetric ? QN_MLXFN_HadamardTransposed
                                  : QN_MLXFN_Hadamard,
          &f);
}

/* What `count` elements cover that are `apart`. */
static int64_t covered(int count, int apart)
{
    return count ? (int64_t)(count - 1) * apart + 1 : 0;
}

WRITER(conv)
{
    const qn_conv_params *p = s->node->params;
    const qn_dims *x = &s->in->type.dims, *w = &s->in[1].type.dims;
    const qn_dims *y = &s->out->type.dims;
    int n = x->ndim - 2, high[QN_MAX_NDIM];
    for (int i = 0; i < n; i++) {
        int64_t border = covered(y->dim[i + 1], p->stride[i]) - 1 +
                         covered(w->dim[i + 1], p->dilation[i]) - p->low[i] -
                         covered(x->dim[i + 1], p->in_dilation[i]);
        /* Places that no step reaches may be there or not. */
        if (border < 0)
            border = border + p->stride[i] > 0 ? 0 : border + p->stride[i] - 1;
        high[i] = (int)border;
    }
    field f[7] = {ints(p->stride, n),   ints(p->low, n),         ints(high, n),
                  ints(p->dilation, n), ints(p->in_dilation, n), one(p->groups),
                  one(p->flip)};
    whole(s, QN_MLXFN_Convolution, f);
}

/* ---- packed numbers ---- */

/* Floats there are of one type; the sum is formed in float whatever the types,
 * so widening them changes nothing.  The operands, of which the third and a
 * fourth belong to w; the type. */
static qn_dtype one_type(const step *s, value *in)
{
    const qn_quant_params *p = s->node->params;
    size_t packed = p->mode == QN_QUANT_AFFINE ? 4 : 2;
    qn_dtype type = s->in->type.dtype;
    memcpy(in, s->in, s->of->ninputs * sizeof *in);
    for (size_t i = 2; i < packed; i++)
        type = qn_promote(type, in[i].type.dtype);
    for (size_t i = 2; i < packed; i++)
        in[i] = astype(s, in[i], type);
    in[0] = astype(s, in[0], type);
    return type;
}

WRITER(quantized_matmul)
{
    const qn_quant_params *p = s->node->params;
    value in[4];
    qn_mlxfn_type out = {one_type(s, in), s->out->type.dims};
    field f[4] = {one(p->group_size), one(p->bits), one(p->mode),
                  one(p->transpose)};
    value y = emit(s, QN_MLXFN_QuantizedMatmul, f, in, s->of->ninputs, &out);
    *s->out = astype(s, y, s->out->type.dtype);
}

WRITER(gather_qmm)
{
    const qn_quant_params *p = s->node->params;
    value in[6];
    size_t n = s->of->ninputs;
    qn_mlxfn_type out = {one_type(s, in), s->out->type.dims};
    for (size_t i = n - 2; i < n; i++)
        in[i] = astype(s, in[i], QN_UINT32);
    field f[6] = {one(p->group_size), one(p->bits), one(p->mode),
                  one(p->transpose),  one(false),   one(false)};
    value y = emit(s, QN_MLXFN_GatherQMM, f, in, n, &out);
    *s->out = astype(s, y, s->out->type.dtype);
}

WRITER(quantize)
{
    const qn_quant_params *p = s->node->params;
    field f[4] = {one(p->group_size), one(p->bits), one(p->mode),
                  one(s->node->op == QN_OP_DEQUANTIZE)};
    whole(s, QN_MLXFN_Quantize, f);
}

/* ---- the last axis ---- */

WRITER(softmax)
{
    field f = one(true);
    whole(s, QN_MLXFN_Softmax, &f);
}

WRITER(logsumexp)
{
    whole(s, QN_MLXFN_LogSumExp, NULL);
}

/* Where there is no weight and no bias MLX has a number. */
WRITER(norm)
{
    const qn_norm_params *p = s->node->params;
    bool layer = s->node->op == QN_OP_LAYER_NORM;
    qn_dtype dtype = s->in->type.dtype;
    field f = real((double)p->eps);
    value in[3] = {s->in[0]};
    in[1] = p->has_weight ? s->in[1] : number(s->w, 1, dtype);
    if (layer)
        in[2] = p->has_bias ? s->in[1 + p->has_weight] : number(s->w, 0, dtype);
    *s->out = emit(s, layer ? QN_MLXFN_LayerNorm : QN_MLXFN_RMSNorm, &f, in,
                   2 + layer, &s->out->type);
}

/* Of 4 dimensions; others are expanded. */
WRITER(rope)
{
    const qn_rope_params *p = s->node->params;
    field f[5] = {one(p->dims), one(p->traditional),
                  real(p->has_freqs ? 1 : (double)p->base),
                  real((double)p->scale), one(true)};
    value in[3] = {s->in[0]};
    in[1] = p->has_offset_array ? s->in[1] : number(s->w, p->offset, QN_INT32);
    if (p->has_freqs)
        in[2] = s->in[1 + p->has_offset_array];
    *s->out = emit(s, QN_MLXFN_RoPE, f, in, 2 + p->has_freqs, &s->out->type);
}

WRITER(sdpa)
{
    const qn_sdpa_params *p = s->node->params;
    qn_dtype type = s->out->type.dtype;
    field f[5] = {real((double)p->scale), one(p->causal), one(p->has_sinks),
                  one(false), one(false)};
    value in[5];
    size_t n = 3;
    for (size_t i = 0; i < 3; i++)
        in[i] = astype(s, s->in[i], type);
    if (p->has_mask) {
        in[n] = s->in[3];
        if (in[n].type.dtype != QN_BOOL)
            in[n] = astype(s, in[n], type);
        n++;
    }
    if (p->has_sinks) {
        in[n] = astype(s, s->in[3 + p->has_mask], type);
        n++;
    }
    *s->out =
        emit(s, QN_MLXFN_ScaledDotProductAttention, f, in, n, &s->out->type);
}

/* ---- linear algebra, Fourier transforms ---- */

WRITER(fft)
{
    const qn_fft_params *p = s->node->params;
    field f[3] = {{.count = 1, .list = {p->axis}},
                  one(p->form == QN_FFT_INVERSE || p->form == QN_FFT_TO_REAL),
                  one(p->form == QN_FFT_REAL || p->form == QN_FFT_TO_REAL)};
    whole(s, QN_MLXFN_FFT, f);
}

WRITER(qr)
{
    whole(s, QN_MLXFN_QRF, NULL);
}

WRITER(lu)
{
    whole(s, QN_MLXFN_LUF, NULL);
}

WRITER(svd)
{
    field f = one(s->of->noutputs == 3);
    whole(s, QN_MLXFN_SVD, &f);
}

WRITER(eig)
{
    field f = one(s->of->noutputs == 2);
    whole(s, QN_MLXFN_Eig, &f);
}

WRITER(eigh)
{
    const qn_triangle_params *p = s->node->params;
    field f[2] = {{.count = 1, .list = {p->upper ? 'U' : 'L'}},
                  one(s->of->noutputs == 2)};
    whole(s, QN_MLXFN_Eigh, f);
}

WRITER(inv)
{
    const qn_form_params *p = s->node->params;
    field f[2] = {one(p->form != QN_MATRIX_GENERAL),
                  one(p->form == QN_MATRIX_UPPER)};
    whole(s, QN_MLXFN_Inverse, f);
}

WRITER(cholesky)
{
    const qn_triangle_params *p = s->node->params;
    field f = one(p->upper);
    whole(s, QN_MLXFN_Cholesky, &f);
}

WRITER(solve)
{
    const qn_form_params *p = s->node->params;
    field f = one(p->form);
    whole(s, QN_MLXFN_Solve, &f);
}

/* ---- expansions ---- */

typedef struct recorded {
    qn_function base;
    const step *s;
    qn_mlxfn_expand expand;
} recorded;

static qn_status record_expansion(const qn_function *self, qn_arrays *out,
                                  qn_array *const *inputs, size_t ninputs)
{
    const recorded *r = (const recorded *)self;
    qn_scope c;
    qn_arrays made;
    (void)ninputs;
    qn_status status = qn_arrays_new(&made, 1);
    if (status)
        return status;
    qn_scope_begin(&c, r->s->node->stream);
    qn_mlxfn_expansion e = {
        .c = &c, .node = r->s->node, .in = inputs, .was_out = r->s->was_out};
    r->expand(&e);
    status = qn_scope_end(&c, made.data, e.out);
    if (status)
        qn_arrays_free(&made);
    else
        *out = made;
    return status;
}

static void write_expanded(const step *s, qn_mlxfn_expand by)
{
    recorded r = {.base = {record_expansion}, .s = s, .expand = by};
    qn_trace trace;
    qn_tape tape;
    if (s->w->status)
        return;
    s->w->status = qn_trace_like(&trace, &r.base, s->was_in, s->of->ninputs,
                                 s->w->shapeless);
    if (s->w->status)
        return;
    s->w->status = qn_tape_new(&tape, &trace, false);
    qn_trace_end(&trace);
    if (s->w->status)
        return;
    qn_mlxfn_write_tape(s->w, &tape, s->in, s->out);
    qn_tape_free(&tape);
}

/* ---- steps ---- */

static void (*const writers[QN_OP_COUNT])(const step *) = {
    [QN_OP_ABS] = write_abs,
    [QN_OP_LOG] = write_log,
    [QN_OP_LOG2] = write_log,
    [QN_OP_LOG10] = write_log,
    [QN_OP_SQRT] = write_sqrt,
    [QN_OP_RSQRT] = write_sqrt,
    [QN_OP_BITWISE_AND] = write_bitwise,
    [QN_OP_BITWISE_OR] = write_bitwise,
    [QN_OP_BITWISE_XOR] = write_bitwise,
    [QN_OP_LEFT_SHIFT] = write_bitwise,
    [QN_OP_RIGHT_SHIFT] = write_bitwise,
    [QN_OP_FLOOR_DIVIDE] = write_whole_quotient,
    [QN_OP_EQUAL] = write_equal,
    [QN_OP_ALL] = write_reduce,
    [QN_OP_ANY] = write_reduce,
    [QN_OP_MAX] = write_reduce,
    [QN_OP_MIN] = write_reduce,
    [QN_OP_PROD] = write_reduce,
    [QN_OP_SUM] = write_reduce,
    [QN_OP_CUMMAX] = write_scan,
    [QN_OP_CUMMIN] = write_scan,
    [QN_OP_CUMPROD] = write_scan,
    [QN_OP_CUMSUM] = write_scan,
    [QN_OP_LOGCUMSUMEXP] = write_scan,
    [QN_OP_FULL] = write_full,
    [QN_OP_ARANGE] = write_arange,
    [QN_OP_ASTYPE] = write_astype,
    [QN_OP_VIEW] = write_astype,
    [QN_OP_SELECT] = write_select,
    [QN_OP_AS_STRIDED] = write_as_strided,
    [QN_OP_BROADCAST] = write_broadcast,
    [QN_OP_CONTIGUOUS] = write_copy,
    [QN_OP_COPY] = write_copy,
    [QN_OP_MATERIALIZE] = write_copy,
    [QN_OP_RESHAPE] = write_reshape,
    [QN_OP_TRANSPOSE] = write_transpose,
    [QN_OP_DEPENDS] = write_depends,
    [QN_OP_STOP_GRADIENT] = write_stop_gradient,
    [QN_OP_NUMBER_OF_ELEMENTS] = write_number_of_elements,
    [QN_OP_SLICE] = write_slice,
    [QN_OP_SLICE_DYNAMIC] = write_slice_dynamic,
    [QN_OP_SLICE_UPDATE] = write_slice_update,
    [QN_OP_SLICE_UPDATE_DYNAMIC] = write_slice_dynamic,
    [QN_OP_CONCATENATE] = write_concatenate,
    [QN_OP_PAD] = write_pad,
    [QN_OP_GATHER] = write_gather,
    [QN_OP_GATHER_AXIS] = write_gather_axis,
    [QN_OP_SCATTER] = write_scatter,
    [QN_OP_SCATTER_AXIS] = write_scatter_axis,
    [QN_OP_MASKED_SCATTER] = write_masked_scatter,
    [QN_OP_ARG_REDUCE] = write_arg_reduce,
    [QN_OP_SORT] = write_sort,
    [QN_OP_ARGSORT] = write_sort,
    [QN_OP_SEARCHSORTED] = write_searchsorted,
    [QN_OP_PARTITION] = write_partition,
    [QN_OP_ARGPARTITION] = write_partition,
    [QN_OP_MATMUL] = write_matmul,
    [QN_OP_QUANTIZED_MATMUL] = write_quantized_matmul,
    [QN_OP_GATHER_QMM] = write_gather_qmm,
    [QN_OP_QUANTIZE] = write_quantize,
    [QN_OP_DEQUANTIZE] = write_quantize,
    [QN_OP_CONV] = write_conv,
    [QN_OP_GATHER_MM] = write_gather_mm,
    [QN_OP_SEGMENTED_MM] = write_segmented_mm,
    [QN_OP_HADAMARD] = write_hadamard,
    [QN_OP_SOFTMAX] = write_softmax,
    [QN_OP_LOGSUMEXP] = write_logsumexp,
    [QN_OP_RMS_NORM] = write_norm,
    [QN_OP_LAYER_NORM] = write_norm,
    [QN_OP_ROPE] = write_rope,
    [QN_OP_SDPA] = write_sdpa,
    [QN_OP_CHOLESKY] = write_cholesky,
    [QN_OP_QR] = write_qr,
    [QN_OP_LU] = write_lu,
    [QN_OP_SVD] = write_svd,
    [QN_OP_EIG] = write_eig,
    [QN_OP_EIGH] = write_eigh,
    [QN_OP_INV] = write_inv,
    [QN_OP_SOLVE] = write_solve,
    [QN_OP_FFT] = write_fft,
    [QN_OP_RANDOM_BITS] = write_random_bits,
};

static void write_step(const step *s)
{
    int op = s->node->op;
    qn_mlxfn_expand by = qn_mlxfn_expansion_of(s->node, s->was_in, s->was_out);
    qn_mlxfn_prim plain = plain_of(op);
    if (by)
        write_expanded(s, by);
    else if (writers[op])
        writers[op](s);
    else if (qn_op_info_of(op)->family != QN_FAMILY_PRIM &&
             plain != QN_MLXFN_COUNT)
        whole(s, plain, NULL);
    else
        s->w->status = qn_fail(QN_E_UNSUPPORTED,
                               "[export_function] Unable to serialize "
                               "primitive %s",
                               qn_op_info_of(op)->name);
}

/* ---- tapes ---- */

enum { NOWHERE = 0 };

/* A tape on its way. */
typedef struct walk {
    qn_mlxfn_writer *w;
    const qn_tape *tape;
    value *values; /* by slot; id NOWHERE: not written yet */
    /* By slot: the step of a derived broadcast that waits for its reader, which
     * knows the other operands. */
    const qn_tape_step **waiting;
    value *in;
} walk;

static void write_step_of(walk *k, const qn_tape_step *t, const value *in)
{
    value out[QN_LOAD_OUTPUTS], *room = out;
    if (t->noutputs > QN_LOAD_OUTPUTS) {
        room = qn_calloc(t->noutputs, sizeof *room);
        if (!room) {
            k->w->status = QN_E_NOMEM;
            return;
        }
    }
    for (size_t i = 0; i < t->noutputs; i++)
        room[i] = (value){.type = type_of(t->like.data[t->ninputs + i])};
    step s = {.w = k->w,
              .of = t,
              .node = t->node,
              .in = in,
              .out = room,
              .was_in = t->like.data,
              .was_out = t->like.data + t->ninputs};
    if (!k->w->status)
        write_step(&s);
    for (size_t i = 0; i < t->noutputs; i++)
        k->values[t->slots[t->ninputs + i]] = room[i];
    if (room != out)
        qn_free(room);
}

/* The value of a slot: a constant is written when it is needed first, and so is
 * a broadcast that waited. */
static value value_of(walk *k, size_t slot)
{
    value *v = &k->values[slot];
    const qn_tape_step *t = k->waiting[slot];
    if (t) {
        k->waiting[slot] = NULL;
        value in = value_of(k, t->slots[0]);
        write_step_of(k, t, &in);
    } else if (v->id == NOWHERE && k->tape->values[slot]) {
        *v = constant(k->w, k->tape->values[slot]);
    }
    return *v;
}

/* For other shapes than the recorded ones: every operand is stretched to the
 * shape that all have in common. */
static void stretch_operands(walk *k, const qn_tape_step *t, value *in)
{
    static const int matrix[] = {-2, -1};
    bool product = t->node->op == QN_OP_MATMUL;
    field f = ints(matrix, 2);
    value given[3], all[3];
    step s = {.w = k->w, .of = t, .node = t->node};
    for (size_t i = 0; i < t->ninputs; i++) {
        const qn_tape_step *waits = k->waiting[t->slots[i]];
        given[i] = value_of(k, waits ? waits->slots[0] : t->slots[i]);
    }
    for (size_t i = 0; i < t->ninputs; i++) {
        qn_mlxfn_type type = type_of(t->like.data[i]);
        size_t n = 0;
        all[n++] = given[i];
        for (size_t j = 0; j < t->ninputs; j++)
            if (j != i)
                all[n++] = given[j];
        if (product && t->ninputs == 2)
            for (int d = 0; d < 2; d++) {
                /* A matrix for a whole batch gets one of its own. */
                const qn_array *y = t->like.data[t->ninputs];
                int last = type.dims.dim[type.dims.ndim - 1];
                int row = type.dims.dim[type.dims.ndim - 2];
                type.dims = qn_dims_of(y);
                type.dims.dim[y->ndim - 2] = row;
                type.dims.dim[y->ndim - 1] = last;
            }
        else
            f = dims_field(&type.dims);
        in[i] = emit(&s, product ? QN_MLXFN_BroadcastAxes : QN_MLXFN_Broadcast,
                     &f, all, n, &type);
    }
}

static bool derived_broadcast(const qn_tape_step *t)
{
    const qn_broadcast_params *p = t->node->params;
    return t->node->op == QN_OP_BROADCAST && p && p->derived;
}

static void write_one(walk *k, const qn_tape_step *t)
{
    int op = t->node->op;
    if (k->w->shapeless && derived_broadcast(t)) {
        k->waiting[t->slots[1]] = t;
        return;
    }
    bool operands = qn_op_info_of(op)->family == QN_FAMILY_BINARY ||
                    op == QN_OP_SELECT || op == QN_OP_MATMUL;
    if (k->w->shapeless && operands)
        stretch_operands(k, t, k->in);
    else
        for (size_t i = 0; i < t->ninputs; i++)
            k->in[i] = value_of(k, t->slots[i]);
    write_step_of(k, t, k->in);
}

void qn_mlxfn_write_tape(qn_mlxfn_writer *w, const qn_tape *tape,
                         const value *inputs, value *outputs)
{
    size_t most = 1;
    for (size_t i = 0; i < tape->nsteps; i++)
        if (tape->steps[i].ninputs > most)
            most = tape->steps[i].ninputs;
    walk k = {.w = w,
              .tape = tape,
              .values = qn_calloc(tape->nslots, sizeof *k.values),
              .waiting = qn_calloc(tape->nslots, sizeof(qn_tape_step *)),
              .in = qn_calloc(most, sizeof *k.in)};
    if (!k.values || !k.waiting || !k.in)
        w->status = w->status ? w->status : QN_E_NOMEM;
    for (size_t i = 0; i < tape->ninputs && !w->status; i++)
        k.values[i] = inputs[i];
    for (size_t i = 0; i < tape->nsteps && !w->status; i++)
        write_one(&k, &tape->steps[i]);
    for (size_t i = 0; i < tape->noutputs && !w->status; i++)
        outputs[i] = value_of(&k, tape->outputs[i]);
    qn_free(k.values);
    qn_free(k.waiting);
    qn_free(k.in);
}
