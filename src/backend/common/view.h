/* view.h: operations that only rearrange: an output shares the input's
 * storage where strides can express it, and is copied where they cannot.
 *
 * Handles BROADCAST, RESHAPE, TRANSPOSE, SLICE, AS_STRIDED, CONTIGUOUS, COPY,
 * VIEW, DEPENDS and STOP_GRADIENT.  The copying itself is the backend's. */
#ifndef QN_BACKEND_COMMON_VIEW_H
#define QN_BACKEND_COMMON_VIEW_H

#include "core/node.h"

/* Copies the elements of `source`, taken in row-major order, to `target`, which
 * has row-major storage, the same dtype and the same number of elements, but
 * perhaps another shape. */
typedef qn_status (*qn_copy_fn)(qn_array *target, const qn_array *source);

/* True for the operations named above. */
bool qn_view_handles(int op);
/* Makes the outputs of such a node.  QN_E_ARG when an AS_STRIDED view would
 * reach outside of its input. */
qn_status qn_view_run(qn_node *node, qn_copy_fn copy);

/* Strides (elements) with which `shape`, of as many elements, reads the READY
 * `source` in row-major order without copying; false when there are none. */
bool qn_view_reshape(int64_t *strides, const qn_array *source, const int *shape,
                     int ndim);

/* Strides with which `source` is read over a shape that it broadcasts to:
 * aligned from the right, 0 along missing axes and those that are stretched. */
void qn_view_broadcast(int64_t *strides, const qn_array *source,
                       const int *shape, int ndim);

#endif
