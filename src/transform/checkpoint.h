/* checkpoint.h: functions whose intermediates are computed twice rather than
 * kept, and checks of the rules that programs give. */
#ifndef QN_TRANSFORM_CHECKPOINT_H
#define QN_TRANSFORM_CHECKPOINT_H

#include "function.h"

/* A function that may outlive the call that it is given to. */
typedef struct qn_shared_function {
    qn_function function;
    /* A copy, with a `release` of its own; NULL without memory. */
    struct qn_shared_function *(*share)(const struct qn_shared_function *self);
    void (*release)(struct qn_shared_function *self);
} qn_shared_function;

/* fun(inputs).  Under a transformation the results forget how they came
 * about: the reverse walk calls `fun` once more and differentiates that.
 * Arrays that it captures get their gradients, too. */
qn_status qn_checkpoint(qn_arrays *outputs, const qn_shared_function *fun,
                        qn_array *const *inputs, size_t ninputs);

/* Checks what a program's gradient rule returned. */
qn_status qn_check_gradients(qn_array *const *primals, size_t nprimals,
                             qn_array *const *grads, size_t ngrads);
/* And its forward and batch rules. */
qn_status qn_check_results(const char *rule, size_t nresults, size_t noutputs);

#endif
