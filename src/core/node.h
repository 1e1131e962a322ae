/* node.h: one pending operation.
 *
 * A node holds its inputs; each of its outputs (arrays) holds the node.  The
 * node knows its outputs without holding them.  An output that nobody wants
 * any more while a sibling keeps the node alive stays as a ghost, so that the
 * operation still finds every output's shape when it runs.
 *
 * Nodes are immutable once made.  `op` is a number whose meaning core does
 * not know (ops/ops.h); `params` are the op's constants.
 *
 * Whoever keeps a node beyond an evaluation (a walk over the graph) also takes
 * references to its inputs: the node's own are no protection against being
 * donated to its outputs. */
#ifndef QN_CORE_NODE_H
#define QN_CORE_NODE_H

#include "array.h"
#include "stream.h"

/* Set and read by the evaluation, under its lock. */
typedef enum qn_node_state {
    QN_NODE_WAITING,
    QN_NODE_RUNNING,
    QN_NODE_DONE
} qn_node_state;

struct qn_node {
    atomic_uint refs;
    int op;
    int ninputs, noutputs;
    qn_node_state state;
    qn_stream *stream;
    qn_array **inputs;
    qn_array **outputs; /* not held */
    void *params;       /* aligned for any type; owned; NULL: none */
    size_t params_size;
    void (*params_free)(void *params); /* frees what params point at; NULL */
    void (*params_ref)(void *params);
    uint64_t mark; /* of the evaluation that visited it last */
    qn_node *next; /* among those being destroyed */
};

typedef struct qn_node_spec {
    int op;
    qn_stream *stream;
    qn_array *const *inputs; /* borrowed; the node takes references */
    int ninputs;
    const void *params; /* copied bytewise */
    size_t params_size;
    void (*params_free)(void *params);
    /* Makes a bytewise copy of params one to be freed too.  NULL with a
     * params_free: params can't be copied. */
    void (*params_ref)(void *params);
} qn_node_spec;

/* Makes a node and its outputs: outputs[i] arrives as a new array from
 * qn_array_new and is attached.  On failure nothing is attached and the caller
 * still owns outputs; params_free is not called then. */
qn_status qn_node_attach(const qn_node_spec *spec, qn_array *const *outputs,
                         int noutputs);

/* The common case: one new output of this dtype and shape. */
qn_status qn_node_new(qn_array **out, const qn_node_spec *spec, qn_dtype dtype,
                      const int *shape, int ndim);

/* Whether an operation can be made again: its params can be copied. */
static inline bool qn_node_copyable(const qn_node *node)
{
    return !node->params_free || node->params_ref;
}
/* A copyable operation again, on inputs of the same types and shapes as the
 * first time; outputs[i] tells the type and the shape of out[i].  On failure
 * none is made. */
qn_status qn_node_again(qn_array **out, const qn_node *node,
                        qn_array *const *inputs, qn_array *const *outputs);

qn_node *qn_node_ref(qn_node *node);
/* Gives up `count` references; never recurses. */
void qn_node_unref(qn_node *node, unsigned count);

#endif
