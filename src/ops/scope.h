/* scope.h: how builders put operations together.
 *
 * A scope owns the arrays that a composite makes on its way and keeps the
 * first error.  Each function below takes arrays and returns an array that
 * the scope holds, or NULL after an error; given a scope that has failed they
 * do nothing, so their calls nest and only the end is checked:
 *
 *     qn_scope c;
 *     qn_scope_begin(&c, s);
 *     qn_array *twice = add(&c, x, x);
 *     return qn_scope_end(&c, out, unary(&c, QN_OP_EXP, twice));
 *
 * For a builder that has no function here, qn_scope_hold takes what it made. */
#ifndef QN_OPS_SCOPE_H
#define QN_OPS_SCOPE_H

#include "dims.h"
#include "ops.h"
#include "promote.h"

enum { QN_SCOPE_HELD = 16 };

typedef struct qn_scope {
    qn_stream *stream;
    qn_status status;
    int count;
    struct qn_scope_more *more; /* full pages of held arrays */
    qn_array *held[QN_SCOPE_HELD];
} qn_scope;

void qn_scope_begin(qn_scope *c, qn_stream *stream);
/* Takes over *made when `status` is QN_OK, else records the error.  A pointer,
 * so that the call which fills *made may be the other argument. */
qn_array *qn_scope_hold(qn_scope *c, qn_status status, qn_array *const *made);
/* Records an error that the caller has reported with qn_fail. */
void qn_scope_fail(qn_scope *c, qn_status status);
/* Drops everything held; on success *out is a reference to `result`. */
qn_status qn_scope_end(qn_scope *c, qn_array **out, qn_array *result);
/* The same for several results; on failure none is stored. */
qn_status qn_scope_end_many(qn_scope *c, qn_array **out,
                            qn_array *const *results, int count);

/* One node with one output: the plain case of every primitive. */
static inline qn_status qn_make(qn_array **out, qn_op op, qn_stream *s,
                                qn_array *const *inputs, int ninputs,
                                const void *params, size_t params_size,
                                qn_dtype dtype, const int *shape, int ndim)
{
    qn_node_spec spec = {.op = op,
                         .stream = s,
                         .inputs = inputs,
                         .ninputs = ninputs,
                         .params = params,
                         .params_size = params_size};
    return qn_node_new(out, &spec, dtype, shape, ndim);
}

/* The input itself as the result. */
static inline qn_status qn_same(qn_array **out, qn_array *x)
{
    *out = qn_array_ref(x);
    return QN_OK;
}

#define QN_SCOPED(call)                                                        \
    qn_array *made = NULL;                                                     \
    return c->status ? NULL : qn_scope_hold(c, call, &made)

static inline qn_array *unary(qn_scope *c, qn_op op, qn_array *x)
{
    QN_SCOPED(qn_op_unary(&made, op, x, c->stream));
}
static inline qn_array *binary(qn_scope *c, qn_op op, qn_array *a, qn_array *b)
{
    QN_SCOPED(qn_op_binary(&made, op, a, b, c->stream));
}
static inline qn_array *add(qn_scope *c, qn_array *a, qn_array *b)
{
    return binary(c, QN_OP_ADD, a, b);
}
static inline qn_array *sub(qn_scope *c, qn_array *a, qn_array *b)
{
    return binary(c, QN_OP_SUBTRACT, a, b);
}
static inline qn_array *mul(qn_scope *c, qn_array *a, qn_array *b)
{
    return binary(c, QN_OP_MULTIPLY, a, b);
}
static inline qn_array *divide(qn_scope *c, qn_array *a, qn_array *b)
{
    return binary(c, QN_OP_DIVIDE, a, b);
}
static inline qn_array *reduce(qn_scope *c, qn_op op, qn_array *x,
                               const int *axes, size_t naxes, bool keepdims)
{
    QN_SCOPED(qn_op_reduce(&made, op, x, axes, naxes, keepdims, c->stream));
}
static inline qn_array *where(qn_scope *c, qn_array *cond, qn_array *x,
                              qn_array *y)
{
    QN_SCOPED(qn_op_where(&made, cond, x, y, c->stream));
}
static inline qn_array *cast(qn_scope *c, qn_array *x, qn_dtype dtype)
{
    QN_SCOPED(qn_op_astype(&made, x, dtype, c->stream));
}
static inline qn_array *reshape(qn_scope *c, qn_array *x, const qn_dims *dims)
{
    QN_SCOPED(qn_op_reshape_derived(&made, x, dims->dim, (size_t)dims->ndim,
                                    c->stream));
}
static inline qn_array *flatten(qn_scope *c, qn_array *x)
{
    QN_SCOPED(qn_op_flatten(&made, x, 0, -1, c->stream));
}
static inline qn_array *expand(qn_scope *c, qn_array *x, int axis)
{
    QN_SCOPED(qn_op_expand_dims(&made, x, &axis, 1, c->stream));
}
static inline qn_array *squeeze(qn_scope *c, qn_array *x, int axis)
{
    QN_SCOPED(qn_op_squeeze(&made, x, &axis, 1, c->stream));
}
static inline qn_array *broadcast(qn_scope *c, qn_array *x, const qn_dims *dims)
{
    QN_SCOPED(qn_op_broadcast_derived(&made, x, dims->dim, (size_t)dims->ndim,
                                      c->stream));
}
static inline qn_array *transpose(qn_scope *c, qn_array *x, const int *axes)
{
    QN_SCOPED(qn_op_transpose(&made, x, axes, (size_t)x->ndim, c->stream));
}
static inline qn_array *moveaxis(qn_scope *c, qn_array *x, int from, int to)
{
    QN_SCOPED(qn_op_moveaxis(&made, x, from, to, c->stream));
}
/* Elements start .. stop-1 along one axis, both inside it. */
static inline qn_array *slice_axis(qn_scope *c, qn_array *x, int axis,
                                   int start, int stop)
{
    QN_SCOPED(qn_op_slice_axis(&made, x, axis, start, stop, c->stream));
}
static inline qn_array *concat(qn_scope *c, qn_array *const *arrays,
                               size_t count, int axis)
{
    QN_SCOPED(qn_op_concatenate(&made, arrays, count, axis, c->stream));
}
static inline qn_array *matmul(qn_scope *c, qn_array *a, qn_array *b)
{
    QN_SCOPED(qn_op_matmul(&made, a, b, c->stream));
}
static inline qn_array *full(qn_scope *c, const qn_dims *dims, double value,
                             qn_dtype dtype)
{
    QN_SCOPED(qn_op_full_value(&made, dims->dim, (size_t)dims->ndim, value,
                               dtype, c->stream));
}
static inline qn_array *arange(qn_scope *c, double start, double stop,
                               double step, qn_dtype dtype)
{
    QN_SCOPED(qn_op_arange(&made, start, stop, step, dtype, c->stream));
}
/* A constant without dimensions, rounded to `dtype`. */
static inline qn_array *scalar(qn_scope *c, double value, qn_dtype dtype)
{
    QN_SCOPED(qn_op_scalar(&made, value, dtype));
}
/* The scalar in the type of `x`. */
static inline qn_array *scalar_of(qn_scope *c, double value, const qn_array *x)
{
    return c->status ? NULL : scalar(c, value, x->dtype);
}

/* The matrices of x, which its leading axes count: 0, 1, 2 ... in the shape of
 * those axes. */
qn_array *qn_matrices_in_order(qn_scope *c, const char *op, const qn_array *x);

#undef QN_SCOPED

#endif
