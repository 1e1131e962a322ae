/* rules.h: what the transformations ask of a primitive.
 *
 * ops.def names three rules for each: how a gradient passes through it, how it
 * works on a batch, and how it is made once more on other inputs.  All are
 * functions over a node of the primitive; they build arrays in a scope
 * (scope.h), which keeps their first error, and touch no element. */
#ifndef QN_OPS_RULES_H
#define QN_OPS_RULES_H

#include "scope.h"

/* ---- gradients ---- */

/* From the gradients with respect to a node's outputs (cotangents) to those
 * with respect to its inputs.  Gradients of complex numbers are conjugated, so
 * that they point where a real result grows fastest. */
typedef struct qn_grad {
    qn_scope *c;
    const qn_node *node; /* for op, params and counts */
    qn_array *const *in, *const *out;
    qn_array *const *cot; /* one per output, of its type and shape */
    const bool *wanted;   /* one per input */
    qn_array **grad;      /* results, one per input; NULL: zero */
} qn_grad;

/* Fills grad[i] where wanted[i]; grad starts as NULLs. */
typedef void (*qn_grad_rule)(qn_grad *g);

/* Forward mode needs no rules of its own: what carries cotangents back is
 * linear in them and can be turned around (transform/jvp.c). */

/* ---- batches ---- */

/* A node with one more axis, of length `size`, at the front of some inputs. */
typedef struct qn_batch {
    qn_scope *c;
    const qn_node *node;
    qn_array *const
        *like;           /* the node's outputs as they are, for their shapes */
    qn_array **in;       /* batched ones have the axis in front */
    const bool *batched; /* one per input; some are */
    int size;
    qn_array **out; /* results, with the axis in front */
} qn_batch;

typedef void (*qn_vmap_rule)(qn_batch *b);

/* ---- once more ---- */

/* A node made again by its builder, which checks the inputs and finds the
 * results' shapes. */
typedef struct qn_again {
    qn_scope *c;
    const qn_node *node; /* for op and params */
    /* Inputs and outputs of the node when it was made first: their shapes say
     * which constants were sizes. */
    qn_array *const *was_in, *const *was_out;
    qn_array *const *in;
    /* The inputs' shapes may differ from those of the first time. */
    bool shapeless;
    qn_array **out;
} qn_again;

typedef void (*qn_again_rule)(qn_again *a);

/* ---- the table ---- */

typedef struct qn_rules {
    qn_grad_rule grad;
    qn_vmap_rule vmap;
    qn_again_rule again;
    /* Each element of an output depends on the same element of each input
     * alone. */
    bool elementwise;
    bool broadcasts; /* `again` brings operands to a common shape */
    /* Talks to other processes: not to be left out, done once for twice, or
     * done beforehand. */
    bool talks;
    /* Each result has storage of its own: not done once for twice. */
    bool apart;
} qn_rules;

const qn_rules *qn_rules_of(int op);

/* Of regular families, and what rows without rules of their own name. */
void qn_grad_zero(qn_grad *g);
void qn_grad_none(qn_grad *g);
void qn_vmap_front(qn_batch *b);
void qn_vmap_loop(qn_batch *b);
void qn_again_none(qn_again *a);
void qn_vmap_reduce(qn_batch *b);
void qn_vmap_scan(qn_batch *b);
void qn_again_unary(qn_again *a);
void qn_again_binary(qn_again *a);
void qn_again_reduce(qn_again *a);
void qn_again_scan(qn_again *a);
#define QN_UNARY(id, name, types, result, gradient, element, doc)              \
    void qn_##gradient(qn_grad *g);
#define QN_BINARY(id, name, types, result, gradient, element, doc)             \
    void qn_##gradient(qn_grad *g);
#define QN_REDUCE(id, name, types, gradient, doc)                              \
    void qn_##gradient(qn_grad *g);
#define QN_SCAN(id, name, types, gradient, doc) void qn_##gradient(qn_grad *g);
#define QN_PRIM(id, name, inputs, file, gradient, batch, again, doc)           \
    void qn_##gradient(qn_grad *g);                                            \
    void qn_##batch(qn_batch *b);                                              \
    void qn_##again(qn_again *a);
#include "ops.def"

/* ---- for rules ---- */

/* zeros in the shape and type of x. */
qn_array *qn_zeros_like(qn_scope *c, qn_array *x);
qn_array *qn_broadcast_like(qn_scope *c, qn_array *value, qn_array *x);
/* Matrices y, in the order of the indices `to`, added up for each matrix of an
 * array with this shape. */
qn_array *qn_sum_chosen(qn_scope *c, qn_array *y, qn_array *to,
                        const qn_dims *shape);
/* Sums over the axes that broadcasting to x's shape has stretched or added. */
qn_array *qn_sum_to(qn_scope *c, qn_array *x, const int *shape, int ndim);

#endif
