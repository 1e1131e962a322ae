/* grad.h: gradients of recorded functions, backwards and forwards. */
#ifndef QN_TRANSFORM_GRAD_H
#define QN_TRANSFORM_GRAD_H

#include "function.h"

/* ---- walks over a recording, for the functions below ---- */

/* A part of the thread's recording seen as a function of the `seeds`. */
typedef struct qn_walk_of {
    size_t first, end; /* entries */
    qn_array *const *seeds;
    size_t nseeds;
    qn_array *const *outputs;
    size_t noutputs;
} qn_walk_of;

/* From cotangents of the outputs (NULL: zero; else of the output's shape) to
 * gradients with respect to the seeds: grads[i] is the caller's reference, or
 * NULL where nothing reaches the seed.  On failure all stay NULL. */
qn_status qn_walk_back(const qn_walk_of *walk, qn_array *const *cotangents,
                       qn_array **grads);
/* From tangents of the seeds (NULL: zero) to those of the outputs, likewise. */
qn_status qn_walk_forward(const qn_walk_of *walk, qn_array *const *tangents,
                          qn_array **results);

/* ---- transformations ---- */

/* outputs = fun(primals), and grads[i] = the cotangents' sum over the outputs
 * times d output / d primals[i].  One cotangent per output, one gradient per
 * primal.  The caller owns both lists; on error they are untouched. */
qn_status qn_vjp(qn_arrays *outputs, qn_arrays *grads, const qn_function *fun,
                 qn_array *const *primals, size_t nprimals,
                 qn_array *const *cotangents, size_t ncotangents);

/* outputs = fun(primals), and how they change along the tangents. */
qn_status qn_jvp(qn_arrays *outputs, qn_arrays *results, const qn_function *fun,
                 qn_array *const *primals, size_t nprimals,
                 qn_array *const *tangents, size_t ntangents);

/* outputs = fun(inputs), whose first is one number, and its gradients with
 * respect to inputs[argnums[i]]; negative argnums count from the end. */
qn_status qn_value_and_grad(qn_arrays *outputs, qn_arrays *grads,
                            const qn_function *fun, const int *argnums,
                            size_t nargnums, qn_array *const *inputs,
                            size_t ninputs);

#endif
