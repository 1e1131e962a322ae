/* custom.h: a function of the program's with rules of its own.
 *
 * The function is called as it is when the graph is built.  Its results pass
 * through one CUSTOM node whose inputs are the primals and then those results;
 * its outputs are the results again.  A transformation that meets the node asks
 * the rules; where one is missing it goes on into the function's own graph. */
#ifndef QN_OPS_CUSTOM_H
#define QN_OPS_CUSTOM_H

#include "ops.h"

#include <stdatomic.h>

typedef struct qn_custom qn_custom;
struct qn_custom {
    atomic_uint refs;
    /* Each NULL: none.  Inputs are borrowed, results are the caller's; what a
     * rule fails with is reported as it is. */

    /* One gradient per primal, of its shape. */
    qn_status (*vjp)(qn_custom *self, qn_array **grads,
                     qn_array *const *primals, int nprimals,
                     qn_array *const *cotangents, qn_array *const *outputs,
                     int noutputs);
    /* tangents[i] belongs to primal argnums[i]; one result per output. */
    qn_status (*jvp)(qn_custom *self, qn_array **results,
                     qn_array *const *primals, int nprimals,
                     qn_array *const *tangents, const int *argnums, int nargs,
                     int noutputs);
    /* axes[i]: where the batch axis of inputs[i] is, -1: nowhere. */
    qn_status (*vmap)(qn_custom *self, qn_array **results, int *result_axes,
                      qn_array *const *inputs, const int *axes, int ninputs,
                      int noutputs);
    void (*free)(qn_custom *self);
};

qn_custom *qn_custom_ref(qn_custom *custom);
/* NULL is fine. */
void qn_custom_unref(qn_custom *custom);

/* The node; at least one result. */
qn_status qn_op_custom(qn_array **out, qn_custom *custom,
                       qn_array *const *primals, int nprimals,
                       qn_array *const *results, int nresults, qn_stream *s);

#endif
