/* fused.h: several elementwise operations as one node.
 *
 * A program of steps over registers: the first registers are the inputs, which
 * broadcast to the output's shape, then each step's result is one.  A step is
 * a unary or binary operation, a choice (SELECT) or a conversion (ASTYPE) of
 * whole registers, with the meaning and the rounding that the operation has as
 * a node of its own.  All outputs have one shape. */
#ifndef QN_OPS_FUSED_H
#define QN_OPS_FUSED_H

#include "ops.h"

#include <stdatomic.h>

enum {
    QN_FUSED_INPUTS = 24,
    QN_FUSED_STEPS = 64,
    QN_FUSED_OUTPUTS = 4,
    /* Of the inputs with more than one element and the outputs together: as
     * many as a backend's plan walks over. */
    QN_FUSED_LARGE = 8
};

typedef struct qn_fused_step {
    int op;
    int args[3]; /* registers */
    qn_dtype type;
    /* Where backends may keep the result while it is needed: 0 .. nplaces-1,
     * and not the place of one of the arguments unless that dies here and has
     * the same type. */
    int place;
} qn_fused_step;

typedef struct qn_fused qn_fused;
struct qn_fused {
    atomic_uint refs;
    int ninputs, nsteps, noutputs, nplaces;
    qn_dtype types[QN_FUSED_INPUTS];
    qn_fused_step steps[QN_FUSED_STEPS];
    int outputs[QN_FUSED_OUTPUTS]; /* registers of steps */
};

/* Number of operands of an operation that a step can be; 0 for others. */
int qn_fused_arity(int op);

/* Copies `like`, whose places are filled in here. */
qn_status qn_fused_new(qn_fused **out, const qn_fused *like);
qn_fused *qn_fused_ref(qn_fused *program);
/* NULL is fine. */
void qn_fused_unref(qn_fused *program);

static inline qn_dtype qn_fused_type(const qn_fused *p, int reg)
{
    return reg < p->ninputs ? p->types[reg] : p->steps[reg - p->ninputs].type;
}

/* The node.  Its outputs have the shape of `like`, to which the inputs
 * broadcast, or, when that is NULL, the inputs' common shape.  Types of the
 * inputs are as the program says. */
qn_status qn_op_fused(qn_array **out, qn_fused *program,
                      qn_array *const *inputs, const qn_array *like,
                      qn_stream *s);

#endif
