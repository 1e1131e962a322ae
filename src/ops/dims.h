/* dims.h: arithmetic on shapes and axes that all builders share.
 *
 * `op` is the name that a message begins with.  Counts come from callers
 * unchecked: a list whose count is 0 is never read and may be NULL. */
#ifndef QN_OPS_DIMS_H
#define QN_OPS_DIMS_H

#include "core/array.h"

/* A shape on its way through a builder. */
typedef struct qn_dims {
    int ndim;
    int dim[QN_MAX_NDIM];
} qn_dims;

/* "(2,3)", for messages.  Lives until the end of the calling expression. */
typedef struct qn_shape_str {
    char text[QN_MAX_NDIM * 12 + 3];
} qn_shape_str;
qn_shape_str qn_shape_text(const int *shape, size_t ndim);
static inline qn_shape_str qn_array_shape_text(const qn_array *x)
{
    return qn_shape_text(x->shape, (size_t)x->ndim);
}

static inline qn_dims qn_dims_of(const qn_array *x)
{
    qn_dims dims = {.ndim = x->ndim};
    for (int i = 0; i < x->ndim; i++)
        dims.dim[i] = x->shape[i];
    return dims;
}
static inline bool qn_same_shape(const qn_array *a, const qn_array *b)
{
    if (a->ndim != b->ndim)
        return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->shape[i] != b->shape[i])
            return false;
    return true;
}
static inline bool qn_has_dims(const qn_array *x, const qn_dims *dims)
{
    if (x->ndim != dims->ndim)
        return false;
    for (int i = 0; i < x->ndim; i++)
        if (x->shape[i] != dims->dim[i])
            return false;
    return true;
}

/* Copies a shape given by a caller: at most QN_MAX_NDIM dimensions, none
 * negative. */
qn_status qn_dims_given(qn_dims *out, const char *op, const int *shape,
                        size_t ndim);
/* A dimension that was computed: fails when an int does not hold it. */
qn_status qn_dim_fit(int *out, const char *op, int64_t dim);
/* Puts a dimension in before `axis` (0 .. ndim), or takes one out. */
qn_status qn_dims_insert(qn_dims *dims, const char *op, int axis, int dim);
void qn_dims_remove(qn_dims *dims, int axis);

/* Turns an axis that may count from the end into 0 .. ndim-1. */
qn_status qn_axis_of(int *out, const char *op, int axis, int ndim);
/* The same for a list without repetition, whose order is kept; `out` has room
 * for QN_MAX_NDIM. */
qn_status qn_axes_of(int *out, const char *op, const int *axes, size_t naxes,
                     int ndim);

/* The common shape of two, dimensions of length 1 stretching.  `out` may be
 * `a`. */
qn_status qn_dims_broadcast(qn_dims *out, const char *op, const qn_dims *a,
                            const qn_dims *b);
/* Product of all dimensions; false when a size_t does not hold it. */
bool qn_dims_size(size_t *out, const qn_dims *dims);

#endif
