/* view.c: strides of views, and when a copy is needed. */
#include "view.h"

#include "ops/ops.h"
#include "ops/params.h"

#include <string.h>

bool qn_view_handles(int op)
{
    switch (op) {
    case QN_OP_BROADCAST:
    case QN_OP_RESHAPE:
    case QN_OP_TRANSPOSE:
    case QN_OP_SLICE:
    case QN_OP_AS_STRIDED:
    case QN_OP_CONTIGUOUS:
    case QN_OP_COPY:
    case QN_OP_MATERIALIZE:
    case QN_OP_VIEW:
    case QN_OP_DEPENDS:
    case QN_OP_STOP_GRADIENT:
        return true;
    default:
        return false;
    }
}

bool qn_view_reshape(int64_t *strides, const qn_array *source, const int *shape,
                     int ndim)
{
    if (source->size <= 1 || source->row_contiguous) {
        qn_row_strides(strides, shape, ndim);
        return true;
    }
    /* Stretches of the source's axes that are one even line, then each new
     * axis must lie inside one of them. */
    int64_t length[QN_MAX_NDIM], step[QN_MAX_NDIM];
    int n = 0;
    for (int axis = 0; axis < source->ndim; axis++) {
        int64_t len = source->shape[axis], by = source->strides[axis];
        if (len == 1)
            continue;
        if (n > 0 && step[n - 1] == len * by) {
            length[n - 1] *= len;
            step[n - 1] = by;
        } else {
            length[n] = len;
            step[n++] = by;
        }
    }
    int64_t left = 1, by = 0;
    int at = n;
    for (int axis = ndim - 1; axis >= 0; axis--) {
        if (shape[axis] == 1) {
            strides[axis] = left > 1 ? by : 1;
            continue;
        }
        if (left == 1) {
            if (at == 0)
                return false;
            left = length[--at];
            by = step[at];
        }
        if (left % shape[axis])
            return false;
        strides[axis] = by;
        by *= shape[axis];
        left /= shape[axis];
    }
    return true;
}

void qn_view_broadcast(int64_t *strides, const qn_array *source,
                       const int *shape, int ndim)
{
    int missing = ndim - source->ndim;
    for (int axis = 0; axis < ndim; axis++) {
        int from = axis - missing;
        bool stands = from < 0 || source->shape[from] != shape[axis];
        strides[axis] = stands ? 0 : source->strides[from];
    }
}

static void run_broadcast(qn_array *out, const qn_array *in)
{
    int64_t strides[QN_MAX_NDIM];
    qn_view_broadcast(strides, in, out->shape, out->ndim);
    qn_array_set_view(out, in, strides, in->offset);
}

static void run_transpose(qn_array *out, const qn_array *in,
                          const qn_transpose_params *p)
{
    int64_t strides[QN_MAX_NDIM];
    for (int axis = 0; axis < out->ndim; axis++)
        strides[axis] = in->strides[p->axes[axis]];
    qn_array_set_view(out, in, strides, in->offset);
}

static void run_slice(qn_array *out, const qn_array *in,
                      const qn_slice_params *p)
{
    int64_t strides[QN_MAX_NDIM], first = 0;
    for (int axis = 0; axis < out->ndim; axis++) {
        strides[axis] = in->strides[axis] * p->strides[axis];
        first += in->strides[axis] * p->start[axis];
    }
    if (out->size == 0)
        first = 0; /* a start past the end of nothing points nowhere */
    first *= (int64_t)qn_array_itemsize(in);
    qn_array_set_view(out, in, strides, (size_t)((int64_t)in->offset + first));
}

static qn_status run_copy(qn_array *out, const qn_array *in, qn_copy_fn copy)
{
    qn_status status = qn_array_alloc(out);
    return status ? status : copy(out, in);
}

/* A row-major copy of `in` under another header; the caller unrefs *out. */
static qn_status copied(qn_array **out, const qn_array *in, qn_copy_fn copy)
{
    qn_array *fresh;
    qn_status status = qn_array_new(&fresh, in->dtype, in->shape, in->ndim);
    if (status)
        return status;
    status = run_copy(fresh, in, copy);
    if (status) {
        qn_array_unref(fresh);
        return status;
    }
    *out = fresh;
    return QN_OK;
}

/* The window of elements that shape and strides reach, checked against
 * `size`; the builder may not have known the input's size in elements. */
static qn_status check_window(const qn_array *out,
                              const qn_as_strided_params *p, size_t size)
{
    if (out->size == 0)
        return QN_OK;
    int64_t low = 0, high = 0;
    bool wraps = p->offset > (size_t)INT64_MAX;
    if (!wraps)
        low = high = (int64_t)p->offset;
    for (int axis = 0; axis < out->ndim && !wraps; axis++) {
        int64_t *end = p->strides[axis] < 0 ? &low : &high, reach;
        wraps = __builtin_mul_overflow(p->strides[axis],
                                       (int64_t)out->shape[axis] - 1, &reach) ||
                __builtin_add_overflow(*end, reach, end);
    }
    if (wraps || low < 0 || (uint64_t)high >= size)
        return qn_fail(QN_E_ARG,
                       "[as_strided] the view reaches outside of the array's "
                       "%zu elements",
                       size);
    return QN_OK;
}

static qn_status run_as_strided(qn_array *out, const qn_array *in,
                                const qn_as_strided_params *p, qn_copy_fn copy)
{
    qn_status status = check_window(out, p, in->size);
    if (status)
        return status;
    qn_array *fresh = NULL;
    if (!in->row_contiguous) {
        status = copied(&fresh, in, copy);
        if (status)
            return status;
        in = fresh;
    }
    size_t first = out->size ? p->offset * qn_array_itemsize(in) : 0;
    qn_array_set_view(out, in, p->strides, in->offset + first);
    qn_array_unref(fresh);
    return QN_OK;
}

static qn_status run_contiguous(qn_array *out, const qn_array *in,
                                const qn_contiguous_params *p, qn_copy_fn copy)
{
    if (in->row_contiguous || (p->allow_col_major && in->col_contiguous)) {
        qn_array_share(out, in);
        return QN_OK;
    }
    return run_copy(out, in, copy);
}

/* Strides of `in` counted in elements of `size` bytes; false where they are
 * not whole, or where the elements of a new one would not be neighbours. */
static bool view_strides(int64_t *strides, const qn_array *in, size_t size)
{
    int64_t have = (int64_t)qn_array_itemsize(in), want = (int64_t)size;
    if (in->offset % size)
        return false;
    for (int axis = 0; axis < in->ndim; axis++) {
        bool last = axis == in->ndim - 1;
        int64_t bytes = in->strides[axis] * have;
        if (last && have != want) {
            if (in->strides[axis] != 1 && in->shape[axis] != 1)
                return false;
            bytes = want;
        }
        if (bytes % want && in->shape[axis] != 1)
            return false;
        strides[axis] = bytes / want;
    }
    return true;
}

static qn_status run_view(qn_array *out, const qn_array *in, qn_copy_fn copy)
{
    int64_t strides[QN_MAX_NDIM];
    size_t size = qn_array_itemsize(out);
    if (view_strides(strides, in, size)) {
        qn_array_set_view(out, in, strides, in->offset);
        return QN_OK;
    }
    qn_array *fresh;
    qn_status status = copied(&fresh, in, copy);
    if (status)
        return status;
    qn_row_strides(strides, out->shape, out->ndim);
    qn_array_set_view(out, fresh, strides, fresh->offset);
    qn_array_unref(fresh);
    return QN_OK;
}

static qn_status run_reshape(qn_array *out, const qn_array *in, qn_copy_fn copy)
{
    int64_t strides[QN_MAX_NDIM];
    if (!qn_view_reshape(strides, in, out->shape, out->ndim))
        return run_copy(out, in, copy);
    qn_array_set_view(out, in, strides, in->offset);
    return QN_OK;
}

/* The input's own buffer only where nobody else has it and all of it is
 * needed. */
static qn_status run_materialize(qn_array *out, const qn_array *in,
                                 qn_copy_fn copy)
{
    if (in->row_contiguous && !in->offset && qn_array_donatable(in) &&
        qn_buffer_exact(in->buffer, qn_array_nbytes(in))) {
        qn_row_strides(out->strides, out->shape, out->ndim);
        qn_array_set_view(out, in, out->strides, 0);
        return QN_OK;
    }
    qn_status status = qn_array_alloc_exact(out);
    return status || !out->size ? status : copy(out, in);
}

qn_status qn_view_run(qn_node *node, qn_copy_fn copy)
{
    qn_array *out = node->outputs[0];
    const qn_array *in = node->inputs[0];
    switch (node->op) {
    case QN_OP_BROADCAST:
        run_broadcast(out, in);
        return QN_OK;
    case QN_OP_RESHAPE:
        return run_reshape(out, in, copy);
    case QN_OP_TRANSPOSE:
        run_transpose(out, in, node->params);
        return QN_OK;
    case QN_OP_SLICE:
        run_slice(out, in, node->params);
        return QN_OK;
    case QN_OP_AS_STRIDED:
        return run_as_strided(out, in, node->params, copy);
    case QN_OP_CONTIGUOUS:
        return run_contiguous(out, in, node->params, copy);
    case QN_OP_COPY:
        return run_copy(out, in, copy);
    case QN_OP_MATERIALIZE:
        return run_materialize(out, in, copy);
    case QN_OP_VIEW:
        return run_view(out, in, copy);
    case QN_OP_DEPENDS:
    case QN_OP_STOP_GRADIENT:
        for (int i = 0; i < node->noutputs; i++)
            qn_array_share(node->outputs[i], node->inputs[i]);
        return QN_OK;
    default:
        return qn_fail(QN_E_INTERNAL, "view: no such operation");
    }
}
