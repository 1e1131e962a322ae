/* types.c: conversion between element types, and choice between arrays. */
#include "scope.h"

#include <limits.h>

qn_status qn_op_astype(qn_array **out, qn_array *x, qn_dtype dtype,
                       qn_stream *s)
{
    if (x->dtype == dtype)
        return qn_same(out, x);
    return qn_make(out, QN_OP_ASTYPE, s, &x, 1, NULL, 0, dtype, x->shape,
                   x->ndim);
}

qn_status qn_op_view(qn_array **out, qn_array *x, qn_dtype dtype, qn_stream *s)
{
    if (x->dtype == dtype)
        return qn_same(out, x);
    qn_dims dims = qn_dims_of(x);
    size_t from = qn_dtype_size(x->dtype), to = qn_dtype_size(dtype);
    if (from != to) {
        if (!dims.ndim)
            return qn_fail(QN_E_ARG,
                           "[view] Changing the type of a scalar is only "
                           "allowed for types of equal size, found %s to %s.",
                           qn_dtype_name(x->dtype), qn_dtype_name(dtype));
        int *last = &dims.dim[dims.ndim - 1];
        int64_t bytes = (int64_t)*last * (int64_t)from;
        if (bytes % (int64_t)to)
            return qn_fail(QN_E_ARG,
                           "[view] A last dimension of %d elements of %s does "
                           "not divide into elements of %s.",
                           *last, qn_dtype_name(x->dtype),
                           qn_dtype_name(dtype));
        qn_status status = qn_dim_fit(last, "view", bytes / (int64_t)to);
        if (status)
            return status;
    }
    return qn_make(out, QN_OP_VIEW, s, &x, 1, NULL, 0, dtype, dims.dim,
                   dims.ndim);
}

qn_status qn_op_where(qn_array **out, qn_array *condition, qn_array *x,
                      qn_array *y, qn_stream *s)
{
    qn_dtype dtype = qn_promote(x->dtype, y->dtype);
    qn_dims dims = qn_dims_of(condition), dx = qn_dims_of(x),
            dy = qn_dims_of(y);
    qn_status status = qn_dims_broadcast(&dims, "where", &dims, &dx);
    if (!status)
        status = qn_dims_broadcast(&dims, "where", &dims, &dy);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *inputs[3] = {
        broadcast(&c, cast(&c, condition, QN_BOOL), &dims),
        broadcast(&c, cast(&c, x, dtype), &dims),
        broadcast(&c, cast(&c, y, dtype), &dims),
    };
    qn_array *made = NULL;
    if (!c.status)
        qn_scope_hold(&c,
                      qn_make(&made, QN_OP_SELECT, s, inputs, 3, NULL, 0, dtype,
                              dims.dim, dims.ndim),
                      &made);
    return qn_scope_end(&c, out, made);
}
