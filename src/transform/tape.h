/* tape.h: a recorded function as a list of steps, to be run on other inputs.
 *
 * Values have numbers, slots: first the inputs, then, as they come, constants
 * (arrays that the function captured or made of nothing but constants) and
 * results of steps.  A step is a recorded node with the slots of its inputs and
 * of its outputs; the node itself, which stands on placeholders, is only a
 * pattern. */
#ifndef QN_TRANSFORM_TAPE_H
#define QN_TRANSFORM_TAPE_H

#include "function.h"

typedef struct qn_fused qn_fused;

typedef struct qn_tape_step {
    qn_node *node; /* held; of fused steps the last one's */
    /* The node's inputs, then its outputs, for their types and shapes; of fused
     * steps one output. */
    qn_arrays like;
    qn_fused *program; /* held; NULL: a plain step */
    size_t ninputs, noutputs;
    size_t *slots; /* ninputs + noutputs */
} qn_tape_step;

typedef struct qn_tape {
    size_t ninputs, nslots, noutputs;
    qn_array **values; /* by slot: a constant, held, or NULL */
    qn_tape_step *steps;
    size_t nsteps;
    size_t *outputs; /* slots */
} qn_tape;

/* The steps of a trace with placeholders that its outputs need, or all. */
qn_status qn_tape_new(qn_tape *out, const qn_trace *trace, bool all);
void qn_tape_free(qn_tape *tape);

/* A copy without duplicates, identities and rules of the program's.  `values`:
 * nobody will ask for gradients, so what stops them is an identity too. */
qn_status qn_tape_simplify(qn_tape *out, const qn_tape *tape, bool values);
/* What `fun` does with inputs of these types and shapes: traced, then as
 * above, for a program that may ask for gradients. */
qn_status qn_tape_record(qn_tape *out, const qn_function *fun,
                         const qn_arrays *inputs, bool shapeless);
/* A copy in which runs of elementwise steps are single ones.  `shapeless`: the
 * shapes of the trace are one example. */
qn_status qn_tape_fuse(qn_tape *out, const qn_tape *tape, bool shapeless);

/* Builds the graph for inputs of the same types and shapes; `shapeless`: of
 * the same types and numbers of dimensions.  The caller owns *out. */
qn_status qn_tape_run(qn_arrays *out, const qn_tape *tape,
                      qn_array *const *inputs, bool shapeless);

/* ---- for the files that make tapes ---- */

/* A tape with another one's slots and outputs, without steps. */
qn_status qn_tape_start(qn_tape *out, const qn_tape *tape);
/* Drops steps and constants that the outputs don't need. */
qn_status qn_tape_drop_unneeded(qn_tape *tape);
void qn_tape_step_free(qn_tape_step *step);
/* Appends a copy of a step with other slots. */
qn_status qn_tape_add(qn_tape *tape, size_t *capacity, const qn_tape_step *step,
                      const size_t *slots);

#endif
