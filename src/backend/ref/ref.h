/* ref.h: the reference backend.
 *
 * Plain loops that say what every primitive means.  It judges the fast
 * kernels of other backends, and serves them as the fallback for what they
 * have no kernel for.  Single-threaded; any number of threads may run nodes of
 * their own. */
#ifndef QN_BACKEND_REF_REF_H
#define QN_BACKEND_REF_REF_H

#include "core/eval.h"

const qn_backend *qn_backend_ref(void);

/* Computes one node, whose inputs are READY, on the calling thread. */
qn_status qn_ref_run(qn_node *node);

#endif
