/* vmap.h: functions of single arrays applied to batches of them.
 *
 * Tracing calls the function with placeholders, which lack the batch axis.
 * Replacing follows the recorded graph from the results back to the
 * placeholders and builds it again for the whole batch. */
#ifndef QN_TRANSFORM_VMAP_H
#define QN_TRANSFORM_VMAP_H

#include "function.h"

/* in_axes[i]: the batch axis of inputs[i], negative: it has none.  The caller
 * owns both lists: what the function was called with, and its results. */
qn_status qn_vmap_trace(qn_arrays *placeholders, qn_arrays *results,
                        const qn_function *fun, qn_array *const *inputs,
                        size_t ninputs, const int *in_axes, size_t naxes);

/* results[i] over the batch, its axis at out_axes[i]; negative: the result
 * does not vary and has none. */
qn_status qn_vmap_replace(qn_arrays *out, qn_array *const *inputs,
                          size_t ninputs, qn_array *const *placeholders,
                          size_t nplaceholders, qn_array *const *results,
                          size_t nresults, const int *in_axes, size_t nin_axes,
                          const int *out_axes, size_t nout_axes);

#endif
