/* eval.h: turns pending arrays into ready ones.
 *
 * The pending graph behind the requested arrays becomes a tape in
 * topological order (depth first, inputs in order: the order in which a
 * plain program would have computed them), without recursion.  Each node runs
 * through the backend of its stream's device; then its outputs are ready and
 * the node is dropped, so an input dies with its last consumer and its buffer
 * can be donated.
 *
 * One evaluation runs at a time in the process; backends parallelise inside
 * a node.  A callback that a node makes on the evaluating thread may evaluate
 * in turn, but must not wait for another thread that does.  A node that fails
 * leaves its outputs pending; the evaluation stops there with its error. */
#ifndef QN_CORE_EVAL_H
#define QN_CORE_EVAL_H

#include "node.h"

typedef struct qn_backend {
    const char *name;
    /* Computes the node's outputs: for each, qn_array_alloc and fill, or make
     * it a view or a donated input.  All inputs are READY.  On failure outputs
     * may have storage already, but no donated input has been written to. */
    qn_status (*run)(qn_node *node);
    /* Waits for what has been launched; NULL when `run` is synchronous. */
    qn_status (*synchronize)(qn_stream *stream);
} qn_backend;

/* Called once per device type at start-up, by capi. */
void qn_backend_register(qn_device_type type, const qn_backend *backend);
/* NULL when there is none. */
const qn_backend *qn_backend_of(qn_device_type type);

/* Computes the arrays (borrowed) and waits for them. */
qn_status qn_eval(qn_array *const *arrays, size_t count);
/* Returns at once; errors are delivered by the next wait on the stream: a
 * qn_eval that has to compute something on it, or qn_stream_synchronize. */
qn_status qn_eval_async(qn_array *const *arrays, size_t count);

/* Keeps evaluations of other threads away, so that nodes can be followed.  What
 * the thread lets go of in between is destroyed by qn_eval_end.  They nest. */
void qn_eval_begin(void);
void qn_eval_end(void);
/* True between them and inside a callback of an evaluation. */
bool qn_eval_active(void);

/* Something that waits for what nodes have begun and not finished, such as
 * messages on their way. */
typedef struct qn_eval_end_hook {
    qn_status (*run)(void);
    struct qn_eval_end_hook *next;
    bool listed;
} qn_eval_end_hook;

/* From a running node: `hook` (static storage) runs when the outermost
 * evaluation has run its nodes, once however often it is asked for.  After a
 * failure it is left to the next evaluation: the other side may never come. */
void qn_eval_at_end(qn_eval_end_hook *hook);

/* For async.c, under qn_eval_begin: computes the arrays and keeps an error in
 * the stream where it arose. */
void qn_eval_keep_error(qn_array *const *arrays, size_t count);

#endif
