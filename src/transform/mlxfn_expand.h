/* mlxfn_expand.h: operations that MLX has no primitive for, as what they are
 * made of. */
#ifndef QN_TRANSFORM_MLXFN_EXPAND_H
#define QN_TRANSFORM_MLXFN_EXPAND_H

#include "ops/scope.h"

typedef struct qn_mlxfn_expansion {
    qn_scope *c;
    const qn_node *node;
    qn_array *const *in; /* of the types and shapes that the node's have */
    qn_array *const *was_out;
    qn_array *out; /* held by the scope */
} qn_mlxfn_expansion;

typedef void (*qn_mlxfn_expand)(qn_mlxfn_expansion *e);

/* NULL where the operation, which was recorded with these inputs and outputs,
 * has a primitive of its own. */
qn_mlxfn_expand qn_mlxfn_expansion_of(const qn_node *node,
                                      qn_array *const *was_in,
                                      qn_array *const *was_out);

#endif
