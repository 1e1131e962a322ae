/* array.h: a lazy, immutable, reference-counted value.
 *
 * An array has a shape and a dtype from the start; its elements exist either
 * already (state READY, `buffer` set) or as the output of a node that has
 * not run (state PENDING, `node` set).  Evaluation moves it from the second
 * state to the first and drops the node, and with it the graph behind it.  A
 * GHOST is a PENDING array that nobody wants any more and that its node still
 * lists (node.h); only the evaluation meets it.
 *
 * Any thread may hold an array and read its shape and dtype.  What evaluation
 * sets (strides, offset, flags, buffer) is to be read only after
 * qn_array_ready() has said yes; `node` is to be followed only inside an
 * evaluation or under qn_eval_begin (eval.h).
 *
 * Strides count elements and may be 0 or negative; `offset` counts bytes.
 * A PENDING array has row-major strides. */
#ifndef QN_CORE_ARRAY_H
#define QN_CORE_ARRAY_H

#include "base/status.h"
#include "buffer.h"
#include "dtype.h"

#include <stdatomic.h>
#include <stdint.h>

enum { QN_MAX_NDIM = 32 };

typedef struct qn_node qn_node;

typedef enum qn_array_state { QN_PENDING, QN_READY, QN_GHOST } qn_array_state;

typedef struct qn_array {
    atomic_uint refs;
    _Atomic qn_array_state state;
    qn_dtype dtype;
    int ndim;
    size_t size;   /* elements */
    qn_node *node; /* means nothing when READY */
    int output;    /* which output of `node` */
    /* Over the dimensions longer than 1; true of an empty array: */
    bool contiguous;     /* no gaps: the elements fill size * itemsize bytes */
    bool row_contiguous; /* in row-major order */
    bool col_contiguous; /* in column-major order */
    qn_buffer *buffer;
    size_t offset;
    int64_t *strides; /* ndim */
    int *shape;       /* ndim */
} qn_array;

/* An array without elements yet and without a node: the maker sets one of
 * both before handing it on.  Shape is checked: ndim <= QN_MAX_NDIM, no
 * negative dimension, total bytes < 2^63 (QN_E_ARG). */
qn_status qn_array_new(qn_array **out, qn_dtype dtype, const int *shape,
                       int ndim);
qn_array *qn_array_ref(qn_array *array);
/* Never recurses, however long the graph behind it is. NULL is fine. */
void qn_array_unref(qn_array *array);

/* READY arrays from host data: copies `data` (row-major; not read when the
 * array has no elements). */
qn_status qn_array_from_data(qn_array **out, const void *data, const int *shape,
                             int ndim, qn_dtype dtype);
/* Takes the data over; `dtor(payload)` runs once, also on failure.  Data that
 * is not aligned for its dtype is copied. */
qn_status qn_array_from_managed(qn_array **out, void *data, const int *shape,
                                int ndim, qn_dtype dtype, void *payload,
                                void (*dtor)(void *));
qn_status qn_array_from_scalar(qn_array **out, const void *value,
                               qn_dtype dtype);

static inline bool qn_array_ready(const qn_array *array)
{
    return atomic_load_explicit(&array->state, memory_order_acquire) ==
           QN_READY;
}
/* First element of a READY array. */
static inline void *qn_array_data(const qn_array *array)
{
    return (char *)array->buffer->data + array->offset;
}
static inline size_t qn_array_itemsize(const qn_array *array)
{
    return qn_dtype_size(array->dtype);
}
static inline size_t qn_array_nbytes(const qn_array *array)
{
    return array->size * qn_dtype_size(array->dtype);
}
/* True when the array's node input may be overwritten with the result: only
 * that node holds it, and nothing else shares its buffer, and the buffer is
 * the pool's.  Call only while the node runs. */
bool qn_array_donatable(const qn_array *array);

/* ---- for backends, while a node runs ---- */

/* Gives an output fresh row-major storage. */
qn_status qn_array_alloc(qn_array *array);
/* The same without bytes to spare (qn_buffer_new_exact). */
qn_status qn_array_alloc_exact(qn_array *array);
/* The same for what stays (qn_buffer_new_lasting). */
qn_status qn_array_alloc_lasting(qn_array *array);
/* Makes `array` a view: shares `source`'s buffer; flags are computed.  Strides
 * and offset are the view's (they may be the source's own). */
void qn_array_set_view(qn_array *array, const qn_array *source,
                       const int64_t *strides, size_t offset);
/* Takes over the layout and the buffer of an input of the same shape. */
void qn_array_share(qn_array *array, const qn_array *source);
/* Makes an array that was never handed on READY: it has its storage. */
void qn_array_set_ready(qn_array *array);
/* Row-major strides of a shape. */
void qn_row_strides(int64_t *strides, const int *shape, int ndim);
/* Recomputes the three flags from shape and strides. */
void qn_array_update_flags(qn_array *array);

/* ---- for node.c, the other half of destruction ---- */

/* Gives up a reference.  When that was the last: frees the array, or leaves a
 * ghost and returns its node, on which the caller gives up one reference. */
qn_node *qn_array_drop(qn_array *array);
/* Frees an array without looking at its references. */
void qn_array_delete(qn_array *array);

#endif
