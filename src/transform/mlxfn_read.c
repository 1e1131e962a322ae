/* mlxfn_read.c: what the primitives of a file mean, in our operations.
 *
 * Every primitive goes through its builder, which checks the inputs, so a file
 * can ask for nothing that a program could not ask for.  What the file says of
 * the outputs serves where MLX's state leaves something out, and is compared
 * with what came out. */
#include "mlxfn.h"

#include "ops/params.h"

#include "base/alloc.h"

#include <limits.h>
#include <math.h>

/* In readers: one output from a call that stores into `made`. */
#define MAKE(call)                                                             \
    do {                                                                       \
        qn_array *made = NULL;                                                 \
        if (!m->c->status)                                                     \
            m->out[0] = qn_scope_hold(m->c, call, &made);                      \
    } while (0)
/* All outputs, of which there are `count`, from a call that stores into it. */
#define MAKE_SEVERAL(count, call)                                              \
    do {                                                                       \
        qn_array *made[MOST_OUTPUTS] = {NULL};                                 \
        if (wants(m, count))                                                   \
            take(m, call, made);                                               \
    } while (0)
#define STREAM m->c->stream
#define READER(name) static void read_##name(qn_mlxfn_made *m)

enum { MOST_OUTPUTS = 3 };

static const char *name_of(const qn_mlxfn_made *m)
{
    return qn_mlxfn_info_of(m->prim)->name;
}

static void refuse(qn_mlxfn_made *m, const char *what)
{
    if (!m->c->status)
        qn_scope_fail(m->c, qn_fail(QN_E_FORMAT, "[import_function] %s: %s.",
                                    name_of(m), what));
}

static bool wants(qn_mlxfn_made *m, size_t count)
{
    if (m->nout != count)
        refuse(m, "another number of outputs is expected");
    return !m->c->status;
}

static void take(qn_mlxfn_made *m, qn_status status, qn_array *const *made)
{
    if (status)
        qn_scope_fail(m->c, status);
    for (size_t i = 0; i < m->nout && !status; i++)
        m->out[i] = qn_scope_hold(m->c, QN_OK, &made[i]);
}

/* A list of the state as the axes or the shape of an array. */
static size_t ints_of(qn_mlxfn_made *m, int field, int *out)
{
    const qn_mlxfn_field *f = &m->f[field];
    if (f->count > QN_MAX_NDIM)
        refuse(m, "a list of at most 32 numbers is expected");
    for (int k = 0; k < f->count && !m->c->status; k++) {
        if (f->list[k] < INT_MIN || f->list[k] > INT_MAX)
            refuse(m, "a number of 32 bits is expected");
        out[k] = (int)f->list[k];
    }
    return m->c->status ? 0 : (size_t)f->count;
}

static int number(const qn_mlxfn_made *m, int field)
{
    return (int)m->f[field].i;
}

/* An enumeration's number as an index into `count` names. */
static int choice(qn_mlxfn_made *m, int field, int count)
{
    int64_t i = m->f[field].i;
    if (i < 0 || i >= count) {
        refuse(m, "an unknown kind");
        return 0;
    }
    return (int)i;
}

static const qn_dims *like(const qn_mlxfn_made *m)
{
    return &m->like[0].dims;
}

static qn_op op_of(const qn_mlxfn_made *m)
{
    return (qn_op)qn_mlxfn_info_of(m->prim)->op;
}

/* ---- regular families ---- */

READER(unary)
{
    m->out[0] = unary(m->c, op_of(m), m->in[0]);
}

/* Of complex numbers it is complex there. */
READER(abs)
{
    qn_array *y = unary(m->c, QN_OP_ABS, m->in[0]);
    m->out[0] = cast(m->c, y, m->like[0].dtype);
}

READER(log)
{
    static const qn_op bases[] = {QN_OP_LOG2, QN_OP_LOG10, QN_OP_LOG};
    m->out[0] = unary(m->c, bases[choice(m, 0, 3)], m->in[0]);
}

READER(sqrt)
{
    m->out[0] = unary(m->c, m->f[0].i ? QN_OP_RSQRT : QN_OP_SQRT, m->in[0]);
}

READER(binary)
{
    m->out[0] = binary(m->c, op_of(m), m->in[0], m->in[1]);
}

READER(bitwise)
{
    static const qn_op kinds[] = {QN_OP_BITWISE_AND, QN_OP_BITWISE_OR,
                                  QN_OP_BITWISE_XOR, QN_OP_LEFT_SHIFT,
                                  QN_OP_RIGHT_SHIFT};
    m->out[0] = binary(m->c, kinds[choice(m, 0, 5)], m->in[0], m->in[1]);
}

/* Of whole numbers it is the quotient without its fraction. */
READER(divide)
{
    bool whole = qn_dtype_kind(m->like[0].dtype) < QN_KIND_FLOAT;
    m->out[0] = binary(m->c, whole ? QN_OP_FLOOR_DIVIDE : QN_OP_DIVIDE,
                       m->in[0], m->in[1]);
}

READER(divmod)
{
    MAKE_SEVERAL(2, qn_op_divmod(made, m->in[0], m->in[1], STREAM));
}

READER(equal)
{
    qn_array *y = binary(m->c, QN_OP_EQUAL, m->in[0], m->in[1]);
    if (m->f[0].i && qn_dtype_kind(m->in[0]->dtype) >= QN_KIND_FLOAT) {
        qn_array *a = binary(m->c, QN_OP_NOT_EQUAL, m->in[0], m->in[0]);
        qn_array *b = binary(m->c, QN_OP_NOT_EQUAL, m->in[1], m->in[1]);
        y = binary(m->c, QN_OP_LOGICAL_OR, y,
                   binary(m->c, QN_OP_LOGICAL_AND, a, b));
    }
    m->out[0] = y;
}

READER(reduce)
{
    static const qn_op kinds[] = {QN_OP_ALL,  QN_OP_ANY, QN_OP_SUM,
                                  QN_OP_PROD, QN_OP_MIN, QN_OP_MAX};
    int axes[QN_MAX_NDIM];
    size_t n = ints_of(m, 1, axes);
    MAKE(qn_op_reduce(&made, kinds[choice(m, 0, 6)], m->in[0], axes, n, true,
                      STREAM));
}

READER(scan)
{
    static const qn_op kinds[] = {QN_OP_CUMMAX, QN_OP_CUMMIN, QN_OP_CUMSUM,
                                  QN_OP_CUMPROD, QN_OP_LOGCUMSUMEXP};
    MAKE(qn_op_scan(&made, kinds[choice(m, 0, 5)], m->in[0], number(m, 1),
                    m->f[2].i, m->f[3].i, STREAM));
}

/* ---- order ---- */

READER(arg_reduce)
{
    bool max = choice(m, 0, 2) == 1;
    MAKE(qn_op_arg_reduce(&made, m->in[0], max, number(m, 1), true, STREAM));
}

READER(sort)
{
    MAKE(qn_op_sort(&made, op_of(m), m->in[0], number(m, 0), STREAM));
}

READER(partition)
{
    MAKE(qn_op_partition(&made, op_of(m), m->in[0], number(m, 0), number(m, 1),
                         STREAM));
}

READER(searchsorted)
{
    MAKE(qn_op_searchsorted(&made, m->in[0], m->in[1],
                            m->f[0].i ? "right" : "left", STREAM));
}

/* ---- creation, types ---- */

/* Numbers whose whole part an int64 holds. */
static bool moderate(double x)
{
    return fabs(x) < 0x1p62;
}

/* The file's shape says how many there are: a quotient of rounded numbers might
 * be off by one. */
READER(arange)
{
    double start = m->f[0].d, step = m->f[2].d;
    bool floating = qn_dtype_kind(m->like[0].dtype) == QN_KIND_FLOAT;
    if (like(m)->ndim != 1)
        refuse(m, "an output of one dimension is expected");
    if (!floating && (!moderate(start) || !moderate(step)))
        refuse(m, "whole numbers of 62 bits are expected");
    if (m->c->status)
        return;
    qn_arange_params p;
    memset(&p, 0, sizeof p);
    p.start = start;
    p.step = step;
    p.istart = floating ? 0 : (int64_t)start;
    p.istep = floating ? 0 : (int64_t)step;
    MAKE(qn_make(&made, QN_OP_ARANGE, STREAM, NULL, 0, &p, sizeof p,
                 m->like[0].dtype, like(m)->dim, 1));
}

READER(astype)
{
    MAKE(qn_op_astype(&made, m->in[0], (qn_dtype)m->f[0].i, STREAM));
}

READER(view)
{
    MAKE(qn_op_view(&made, m->in[0], (qn_dtype)m->f[0].i, STREAM));
}

READER(select)
{
    m->out[0] = where(m->c, m->in[0], m->in[1], m->in[2]);
}

READER(random_bits)
{
    int shape[QN_MAX_NDIM];
    size_t n = ints_of(m, 0, shape);
    const qn_array *key = m->in[0];
    /* Keys of a batch have their dimensions in front. */
    if (key->ndim == 1)
        MAKE(
            qn_op_random_bits(&made, shape, n, number(m, 1), m->in[0], STREAM));
    else
        refuse(m, "one key is expected");
}

READER(number_of_elements)
{
    int axes[QN_MAX_NDIM];
    size_t n = ints_of(m, 0, axes);
    MAKE(qn_op_number_of_elements(&made, m->in[0], axes, n, m->f[1].i,
                                  (qn_dtype)m->f[2].i, STREAM));
}

/* ---- shape ---- */

READER(as_strided)
{
    int shape[QN_MAX_NDIM];
    size_t n = ints_of(m, 0, shape);
    MAKE(qn_op_as_strided(&made, m->in[0], shape, n, m->f[1].list,
                          (size_t)m->f[1].count, (size_t)m->f[2].i, STREAM));
}

/* With further inputs the shape is what they have in common. */
READER(broadcast)
{
    int shape[QN_MAX_NDIM];
    size_t n = ints_of(m, 0, shape);
    if (m->nin > 1)
        m->out[0] = broadcast(m->c, m->in[0], like(m));
    else
        MAKE(qn_op_broadcast_to(&made, m->in[0], shape, n, STREAM));
}

READER(broadcast_axes)
{
    m->out[0] = broadcast(m->c, m->in[0], like(m));
}

READER(copy)
{
    MAKE(qn_op_copy(&made, m->in[0], STREAM));
}

READER(stop_gradient)
{
    MAKE(qn_op_stop_gradient(&made, m->in[0], STREAM));
}

READER(depends)
{
    qn_array **made = qn_calloc(m->nout, sizeof(qn_array *));
    qn_status status = made ? QN_OK : QN_E_NOMEM;
    if (m->nout > m->nin)
        refuse(m, "an input for each output is expected");
    if (!status && !m->c->status)
        take(m,
             qn_op_depends(made, m->in, m->nout, m->in + m->nout,
                           m->nin - m->nout, STREAM),
             made);
    if (status)
        qn_scope_fail(m->c, status);
    qn_free(made);
}

READER(reshape)
{
    int shape[QN_MAX_NDIM];
    size_t n = ints_of(m, 0, shape);
    MAKE(qn_op_reshape(&made, m->in[0], shape, n, STREAM));
}

READER(flatten)
{
    MAKE(qn_op_flatten(&made, m->in[0], number(m, 0), number(m, 1), STREAM));
}

READER(unflatten)
{
    int shape[QN_MAX_NDIM];
    size_t n = ints_of(m, 1, shape);
    MAKE(qn_op_unflatten(&made, m->in[0], number(m, 0), shape, n, STREAM));
}

READER(squeeze)
{
    int axes[QN_MAX_NDIM];
    size_t n = ints_of(m, 0, axes);
    MAKE(qn_op_squeeze(&made, m->in[0], axes, n, STREAM));
}

READER(expand_dims)
{
    int axes[QN_MAX_NDIM];
    size_t n = ints_of(m, 0, axes);
    MAKE(qn_op_expand_dims(&made, m->in[0], axes, n, STREAM));
}

READER(transpose)
{
    int axes[QN_MAX_NDIM];
    size_t n = ints_of(m, 0, axes);
    MAKE(qn_op_transpose(&made, m->in[0], axes, n, STREAM));
}

/* ---- slices ---- */

/* Ends as the builders take them, of the part that the file says: its own ends
 * are clipped in several ways. */
static bool slice_of(qn_mlxfn_made *m, int first, const qn_dims *part,
                     int *start, int *stop, int *strides)
{
    size_t n = ints_of(m, first, start), k = ints_of(m, first + 2, strides);
    if (n != (size_t)part->ndim || k != n)
        refuse(m, "a start and a stride for each dimension are expected");
    for (int i = 0; i < part->ndim && !m->c->status; i++) {
        int64_t after = start[i] + (int64_t)(part->dim[i] - 1) * strides[i];
        after += strides[i] > 0 ? 1 : -1;
        if (part->dim[i] && (start[i] < 0 || after < -1 || after > INT_MAX))
            refuse(m, "the slice reaches outside of the array");
        else if (!part->dim[i])
            stop[i] = start[i];
        else
            stop[i] = after < 0 ? INT_MIN : (int)after;
    }
    return !m->c->status;
}

READER(slice)
{
    int start[QN_MAX_NDIM], stop[QN_MAX_NDIM], strides[QN_MAX_NDIM];
    size_t n = (size_t)like(m)->ndim;
    if (slice_of(m, 0, like(m), start, stop, strides))
        MAKE(qn_op_slice(&made, m->in[0], start, n, stop, n, strides, n,
                         STREAM));
}

/* MLX's order of the ways to combine. */
static const qn_combine combines[] = {QN_COMBINE_MAX, QN_COMBINE_MIN,
                                      QN_COMBINE_SUM, QN_COMBINE_PROD,
                                      QN_COMBINE_SET};

READER(slice_update)
{
    int start[QN_MAX_NDIM], stop[QN_MAX_NDIM], strides[QN_MAX_NDIM];
    qn_dims part = qn_dims_of(m->in[1]);
    size_t n = (size_t)part.ndim;
    int combine = (int)combines[choice(m, 0, 5)];
    if (slice_of(m, 1, &part, start, stop, strides))
        MAKE(qn_op_slice_update(&made, m->in[0], m->in[1], start, n, stop, n,
                                strides, n, combine, STREAM));
}

READER(dynamic_slice)
{
    int axes[QN_MAX_NDIM], size[QN_MAX_NDIM];
    size_t n = ints_of(m, 0, axes), k = ints_of(m, 1, size);
    MAKE(qn_op_slice_dynamic(&made, m->in[0], m->in[1], axes, n, size, k,
                             STREAM));
}

READER(dynamic_slice_update)
{
    int axes[QN_MAX_NDIM];
    size_t n = ints_of(m, 0, axes);
    MAKE(qn_op_slice_update_dynamic(&made, m->in[0], m->in[1], m->in[2], axes,
                                    n, STREAM));
}

READER(split)
{
    int places[QN_MLXFN_LIST];
    size_t n = (size_t)m->f[0].count, count = 0;
    qn_array **made = NULL;
    for (size_t k = 0; k < n; k++)
        places[k] = (int)m->f[0].list[k];
    if (m->c->status)
        return;
    qn_status status = qn_op_split_at(&made, &count, m->in[0], places, n,
                                      number(m, 1), STREAM);
    if (status) {
        qn_scope_fail(m->c, status);
        return;
    }
    if (wants(m, count)) {
        take(m, QN_OK, made);
    } else {
        for (size_t i = 0; i < count; i++)
            qn_array_unref(made[i]);
    }
    qn_free(made);
}

READER(concatenate)
{
    MAKE(qn_op_concatenate(&made, m->in, m->nin, number(m, 0), STREAM));
}

READER(pad)
{
    int axes[QN_MAX_NDIM], low[QN_MAX_NDIM], high[QN_MAX_NDIM];
    size_t n = ints_of(m, 0, axes);
    size_t nlow = ints_of(m, 1, low), nhigh = ints_of(m, 2, high);
    MAKE(qn_op_pad(&made, m->in[0], axes, n, low, nlow, high, nhigh, m->in[1],
                   "constant", STREAM));
}

/* ---- indices ---- */

READER(gather)
{
    int axes[QN_MAX_NDIM], sizes[QN_MAX_NDIM];
    size_t n = ints_of(m, 0, axes), k = ints_of(m, 1, sizes);
    MAKE(qn_op_gather(&made, m->in[0], m->in + 1, m->nin - 1, axes, n, sizes, k,
                      STREAM));
}

READER(gather_axis)
{
    MAKE(
        qn_op_take_along_axis(&made, m->in[0], m->in[1], number(m, 0), STREAM));
}

READER(scatter)
{
    int axes[QN_MAX_NDIM];
    int combine = (int)combines[choice(m, 0, 5)];
    size_t n = ints_of(m, 1, axes);
    MAKE(qn_op_scatter(&made, m->in[0], m->in + 1, m->nin - 2,
                       m->in[m->nin - 1], axes, n, combine, STREAM));
}

READER(scatter_axis)
{
    int combine = choice(m, 0, 2) ? QN_COMBINE_SET : QN_COMBINE_SUM;
    MAKE(qn_op_scatter_axis(&made, m->in[0], m->in[1], m->in[2], number(m, 1),
                            combine, STREAM));
}

/* With an axis of batches in front, each with a line of its own. */
READER(masked_scatter)
{
    qn_scope *c = m->c;
    for (int i = 0; i < 3; i++)
        if (!m->in[i]->ndim || m->in[i]->shape[0] != 1)
            refuse(m, "one batch is expected");
    qn_array *a = c->status ? NULL : squeeze(c, m->in[0], 0);
    qn_array *mask = c->status ? NULL : squeeze(c, m->in[1], 0);
    qn_array *line = c->status ? NULL : flatten(c, m->in[2]);
    qn_array *made = NULL;
    if (!c->status)
        qn_scope_hold(c, qn_op_masked_scatter(&made, a, mask, line, STREAM),
                      &made);
    if (!c->status)
        m->out[0] = expand(c, made, 0);
}

/* ---- products ---- */

READER(matmul)
{
    m->out[0] = matmul(m->c, m->in[0], m->in[1]);
}

READER(addmm)
{
    MAKE(qn_op_addmm(&made, m->in[2], m->in[0], m->in[1], (float)m->f[0].d,
                     (float)m->f[1].d, STREAM));
}

/* The mask of the output, then those of both operands. */
READER(block_masked_mm)
{
    size_t n = m->nin - 2;
    qn_array *out = n % 2 ? m->in[2] : NULL;
    qn_array *a = n >= 2 ? m->in[2 + n % 2] : NULL;
    qn_array *b = n >= 2 ? m->in[3 + n % 2] : NULL;
    MAKE(qn_op_block_masked_mm(&made, m->in[0], m->in[1], number(m, 0), out, a,
                               b, STREAM));
}

READER(gather_mm)
{
    MAKE(
        qn_op_gather_mm(&made, m->in[0], m->in[1], m->in[2], m->in[3], STREAM));
}

READER(segmented_mm)
{
    MAKE(qn_op_segmented_mm(&made, m->in[0], m->in[1], m->in[2], STREAM));
}

READER(hadamard)
{
    float scale = (float)m->f[0].d;
    MAKE(qn_op_hadamard_transform(&made, m->in[0], &scale, STREAM));
}

READER(hadamard_transposed)
{
    qn_hadamard_params p;
    memset(&p, 0, sizeof p);
    p.scale = (float)m->f[0].d;
    p.turned = true;
    qn_array *x = m->in[0];
    /* The builder checks the length; its node is not used. */
    read_hadamard(m);
    if (!m->c->status && (!x->ndim || m->out[0]->dtype != x->dtype))
        refuse(m, "a floating operand with dimensions is expected");
    MAKE(qn_make(&made, QN_OP_HADAMARD, STREAM, &x, 1, &p, sizeof p, x->dtype,
                 x->shape, x->ndim));
}

READER(convolution)
{
    int lists[5][QN_MAX_NDIM];
    size_t n[5];
    for (int k = 0; k < 5; k++)
        n[k] = ints_of(m, k, lists[k]);
    qn_conv_settings settings = {.stride = {lists[0], n[0]},
                                 .low = {lists[1], n[1]},
                                 .high = {lists[2], n[2]},
                                 .dilation = {lists[3], n[3]},
                                 .in_dilation = {lists[4], n[4]},
                                 .groups = number(m, 5),
                                 .flip = m->f[6].i};
    MAKE(qn_op_conv(&made, m->in[0], m->in[1], &settings, STREAM));
}

/* ---- packed numbers ---- */

static const char *mode_of(qn_mlxfn_made *m)
{
    static const char *const modes[] = {"affine", "mxfp4", "mxfp8", "nvfp4"};
    return modes[choice(m, 2, 4)];
}

READER(quantized_matmul)
{
    const char *mode = mode_of(m);
    qn_array *biases = m->nin > 3 ? m->in[3] : NULL;
    MAKE(qn_op_quantized_product(&made, m->in[0], m->in[1], m->in[2], biases,
                                 m->f[3].i, number(m, 0), number(m, 1), mode,
                                 false, STREAM));
}

READER(gather_qmm)
{
    const char *mode = mode_of(m);
    int group = number(m, 0), bits = number(m, 1);
    size_t n = m->nin;
    MAKE(qn_op_gather_qmm(&made, m->in[0], m->in[1], m->in[2],
                          n > 5 ? m->in[3] : NULL, m->in[n - 2], m->in[n - 1],
                          m->f[3].i, &group, &bits, mode, STREAM));
}

static void dequantize(qn_mlxfn_made *m)
{
    const char *mode = mode_of(m);
    int group = number(m, 0), bits = number(m, 1);
    size_t affine = m->f[2].i == 0;
    if (m->nin < 2 + affine || m->nin > 3 + affine) {
        refuse(m, "another number of inputs is expected");
        return;
    }
    qn_array *global = m->nin > 2 + affine ? m->in[2 + affine] : NULL;
    MAKE(qn_op_dequantize(&made, m->in[0], m->in[1], affine ? m->in[2] : NULL,
                          &group, &bits, mode, global, &m->like[0].dtype,
                          STREAM));
}

READER(quantize)
{
    if (m->f[3].i) {
        dequantize(m);
        return;
    }
    const char *mode = mode_of(m);
    int group = number(m, 0), bits = number(m, 1);
    size_t count = 0;
    if (m->nin > 2)
        refuse(m, "at most 2 inputs are expected");
    if (m->f[2].i)
        MAKE_SEVERAL(2,
                     qn_op_quantize(made, &count, m->in[0], &group, &bits, mode,
                                    m->nin > 1 ? m->in[1] : NULL, STREAM));
    else
        MAKE_SEVERAL(3,
                     qn_op_quantize(made, &count, m->in[0], &group, &bits, mode,
                                    m->nin > 1 ? m->in[1] : NULL, STREAM));
}

/* ---- the last axis ---- */

static const int last = -1;

READER(softmax)
{
    MAKE(qn_op_softmax(&made, m->in[0], &last, 1, m->f[0].i, STREAM));
}

READER(logsumexp)
{
    MAKE(qn_op_logsumexp(&made, m->in[0], &last, 1, true, STREAM));
}

/* A weight or a bias for each place of the last axis: where there is none, MLX
 * has a number. */
static qn_array *each(qn_mlxfn_made *m, qn_array *x)
{
    qn_dims row = {.ndim = 1};
    if (x->ndim || !m->in[0]->ndim)
        return x;
    row.dim[0] = m->in[0]->shape[m->in[0]->ndim - 1];
    return broadcast(m->c, x, &row);
}

/* NULL for a READY number of this value. */
static qn_array *unless(qn_array *x, double value)
{
    double found = NAN;
    if (x->ndim || !qn_array_ready(x))
        return x;
    if (x->dtype == QN_FLOAT32)
        found = (double)*(const float *)qn_array_data(x);
    else if (x->dtype == QN_FLOAT64)
        found = *(const double *)qn_array_data(x);
    else if (x->dtype == QN_FLOAT16 || x->dtype == QN_BFLOAT16)
        found = *(const uint16_t *)qn_array_data(x) == (value == 0 ? 0
                                                        : x->dtype == QN_FLOAT16
                                                            ? 0x3c00
                                                            : 0x3f80)
                    ? value
                    : NAN;
    return found == value ? NULL : x;
}

READER(rms_norm)
{
    qn_array *weight = unless(m->in[1], 1);
    if (weight)
        weight = each(m, weight);
    MAKE(qn_op_rms_norm(&made, m->in[0], weight, (float)m->f[0].d, STREAM));
}

READER(layer_norm)
{
    qn_array *weight = unless(m->in[1], 1), *bias = unless(m->in[2], 0);
    if (weight)
        weight = each(m, weight);
    if (bias)
        bias = each(m, bias);
    MAKE(qn_op_layer_norm(&made, m->in[0], weight, bias, (float)m->f[0].d,
                          STREAM));
}

/* dims, traditional, base, scale, forward; backwards it turns the other way. */
READER(rope)
{
    float base = (float)m->f[2].d, scale = (float)m->f[3].d;
    qn_array *freqs = m->nin > 2 ? m->in[2] : NULL;
    MAKE(qn_op_rope(&made, m->in[0], number(m, 0), m->f[1].i,
                    freqs ? NULL : &base, m->f[4].i ? scale : -scale, 0,
                    m->in[1], freqs, STREAM));
}

/* scale, causal, sinks, whether the logarithms of sums come out too, whether a
 * fused kernel is asked for. */
READER(sdpa)
{
    size_t sinks = (size_t)m->f[2].i;
    bool masked = m->nin == 4 + sinks;
    if (m->f[3].i || (!masked && m->nin != 3 + sinks) ||
        (masked && m->f[1].i)) {
        refuse(m, "these inputs and outputs are not supported");
        return;
    }
    MAKE(qn_op_sdpa(&made, m->in[0], m->in[1], m->in[2], (float)m->f[0].d,
                    m->f[1].i ? "causal"
                    : masked  ? "array"
                              : "",
                    masked ? m->in[3] : NULL, sinks ? m->in[3 + masked] : NULL,
                    STREAM));
}

/* ---- linear algebra, Fourier transforms ---- */

/* Of several axes the last one is real where one is. */
READER(fft)
{
    static const qn_fft_kind kinds[] = {QN_FFT_KIND_FFT, QN_FFT_KIND_RFFT,
                                        QN_FFT_KIND_IFFT, QN_FFT_KIND_IRFFT};
    int axes[QN_MAX_NDIM], lengths[QN_MAX_NDIM];
    size_t n = ints_of(m, 0, axes);
    const qn_array *x = m->in[0];
    for (size_t k = 0; k < n && !m->c->status; k++)
        if (axes[k] < 0 || axes[k] >= x->ndim || x->ndim != like(m)->ndim)
            refuse(m, "axes of the array are expected");
        else
            lengths[k] = x->shape[axes[k]];
    qn_fft_kind kind = kinds[2 * (m->f[1].i != 0) + (m->f[2].i != 0)];
    if (!m->c->status && kind == QN_FFT_KIND_IRFFT && n)
        lengths[n - 1] = like(m)->dim[axes[n - 1]];
    MAKE(qn_op_fft(&made, kind, m->in[0], lengths, n, axes, n,
                   QN_FFT_NORM_BACKWARD, STREAM));
}

READER(qr)
{
    MAKE_SEVERAL(2, qn_op_qr(made, m->in[0], STREAM));
}

READER(svd)
{
    bool vectors = m->f[0].i;
    MAKE_SEVERAL(vectors ? 3 : 1, qn_op_svd(made, m->in[0], vectors, STREAM));
}

READER(lu)
{
    MAKE_SEVERAL(3, qn_op_lu_parts(made, m->in[0], STREAM));
}

READER(eig)
{
    bool vectors = m->f[0].i;
    MAKE_SEVERAL(vectors ? 2 : 1, qn_op_eig(made, m->in[0], vectors, STREAM));
}

READER(eigh)
{
    const qn_mlxfn_field *f = m->f;
    bool upper = f->count == 1 && f->list[0] == 'U', vectors = f[1].i;
    if (!upper && !(f->count == 1 && f->list[0] == 'L'))
        refuse(m, "a triangle, \"L\" or \"U\", is expected");
    MAKE_SEVERAL(vectors ? 2 : 1, qn_op_eigh(made, m->in[0], upper ? "U" : "L",
                                             vectors, STREAM));
}

READER(inverse)
{
    if (m->f[0].i)
        MAKE(qn_op_tri_inv(&made, m->in[0], m->f[1].i, STREAM));
    else
        MAKE(qn_op_inv(&made, m->in[0], STREAM));
}

READER(cholesky)
{
    MAKE(qn_op_cholesky(&made, m->in[0], m->f[0].i, STREAM));
}

READER(solve)
{
    int form = choice(m, 0, 3);
    if (form == QN_MATRIX_GENERAL)
        MAKE(qn_op_solve(&made, m->in[0], m->in[1], STREAM));
    else
        MAKE(qn_op_solve_triangular(&made, m->in[0], m->in[1],
                                    form == QN_MATRIX_UPPER, STREAM));
}

/* ---- the table ---- */

static void (*const readers[QN_MLXFN_COUNT])(qn_mlxfn_made *) = {
#define QN_MLXFN(name, state, least, most, read, op)                           \
    [QN_MLXFN_##name] = read_##read,
#include "mlxfn.def"
};

static void compare(qn_mlxfn_made *m, size_t i)
{
    const qn_mlxfn_type *want = &m->like[i];
    const qn_array *found = m->out[i];
    if (found->dtype != want->dtype || !qn_has_dims(found, &want->dims))
        qn_scope_fail(
            m->c,
            qn_fail(
                QN_E_FORMAT,
                "[import_function] %s: output %zu is %s %s, expected %s "
                "%s.",
                name_of(m), i, qn_dtype_name(found->dtype),
                qn_array_shape_text(found).text, qn_dtype_name(want->dtype),
                qn_shape_text(want->dims.dim, (size_t)want->dims.ndim).text));
}

void qn_mlxfn_build(qn_mlxfn_made *m)
{
    const qn_mlxfn_info *info = qn_mlxfn_info_of(m->prim);
    if (m->nin < (size_t)info->least ||
        (info->most >= 0 && m->nin > (size_t)info->most))
        refuse(m, "another number of inputs is expected");
    else if (!m->nout)
        refuse(m, "an output is expected");
    if (m->c->status)
        return;
    readers[m->prim](m);
    for (size_t i = 0; i < m->nout && !m->c->status; i++)
        if (m->out[i])
            compare(m, i);
        else
            refuse(m, "another number of outputs is expected");
}
