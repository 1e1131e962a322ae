/* output.h: where a node's output gets its storage from.
 *
 * An input that dies with the node can be overwritten with the result
 * (donation).  That is right for an operation which reads element i of an
 * input before it writes element i of the output and reads it never again. */
#ifndef QN_BACKEND_COMMON_OUTPUT_H
#define QN_BACKEND_COMMON_OUTPUT_H

#include "core/array.h"

/* Makes `out` take over the storage and the layout of `input` if that is
 * donatable, without gaps, not empty and has the shape and the item size of
 * `out`. */
bool qn_output_donate(qn_array *out, const qn_array *input);

/* Donates the first of `inputs` that can be donated, else allocates row-major
 * storage.  Call only while the node runs. */
qn_status qn_output_reuse(qn_array *out, qn_array *const *inputs, int ninputs);

#endif
