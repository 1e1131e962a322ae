/* node.h: one pending operation.
 *
 * A node holds its inputs; each of its outputs (arrays) holds the node.  The
 * node knows its outputs without holding them.  An output that nobody wants
 * any more while a sibling keeps the node alive stays as a ghost, so that the
 * operation still finds every output's shape when it runs.
 *
 * Nodes are immutable once made.  `op` is a number whose meaning core does
 * not know (ops/ops.h); `params` are the op's constants. */
#ifndef QN_CORE_NODE_H
#define QN_CORE_NODE_H

#include "array.h"
#include "stream.h"

struct qn_node {
    atomic_uint refs;
    int op;
    int ninputs, noutputs;
    qn_stream *stream;
    qn_array **inputs;
    qn_array **outputs; /* not held */
    void *params;       /* aligned for any type; owned */
    void (*params_free)(void *params); /* frees what params point at; NULL */
    uint64_t mark; /* of the evaluation that visited it last */
};

typedef struct qn_node_spec {
    int op;
    qn_stream *stream;
    qn_array *const *inputs; /* borrowed; the node takes references */
    int ninputs;
    const void *params; /* copied bytewise */
    size_t params_size;
    void (*params_free)(void *params);
} qn_node_spec;

/* Makes a node and its outputs: outputs[i] arrives as a new array from
 * qn_array_new and is attached.  On failure nothing is attached and the caller
 * still owns outputs; params_free is not called then. */
qn_status qn_node_attach(const qn_node_spec *spec, qn_array *const *outputs,
                         int noutputs);

/* The common case: one new output of this dtype and shape. */
qn_status qn_node_new(qn_array **out, const qn_node_spec *spec,
                      qn_dtype dtype, const int *shape, int ndim);

#endif
