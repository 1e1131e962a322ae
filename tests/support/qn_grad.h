/* qn_grad.h: gradient rules of single operations, called by hand.
 *
 * An operation is built on arrays that the test holds; before it is evaluated
 * its rule (ops/rules.h) turns cotangents into gradients. */
#ifndef QN_TEST_SUPPORT_GRAD_H
#define QN_TEST_SUPPORT_GRAD_H

#include "qn_build.h"

#include "ops/rules.h"

/* The gradients by all inputs of the node that made outs[0] .. outs[n-1], all
 * of its outputs; kept until the test's end. */
static inline void gradients(qn_array **grad, qn_array *const *outs,
                             qn_array *const *cots)
{
    const qn_node *node = outs[0]->node;
    bool wanted[4] = {true, true, true, true};
    qn_array *found[4] = {NULL, NULL, NULL, NULL};
    qn_scope c;
    qn_scope_begin(&c, S);
    qn_grad g = {.c = &c,
                 .node = node,
                 .in = node->inputs,
                 .out = outs,
                 .cot = cots,
                 .wanted = wanted,
                 .grad = found};
    assert_false(qn_array_ready(outs[0]));
    qn_rules_of(node->op)->grad(&g);
    check_status(c.status, QN_OK);
    for (int i = 0; i < node->ninputs; i++)
        grad[i] = found[i] ? keep(qn_array_ref(found[i])) : NULL;
    qn_array *same;
    check_status(qn_scope_end(&c, &same, outs[0]), QN_OK);
    qn_array_unref(same);
}

/* Sum of the products of the elements (of real and imaginary parts). */
static inline double inner(qn_array *a, qn_array *b)
{
    double sum = 0;
    check_status(qn_eval(&a, 1), QN_OK);
    check_status(qn_eval(&b, 1), QN_OK);
    assert_int_equal(a->size, b->size);
    assert_int_equal(a->dtype, b->dtype);
    for (size_t i = 0; i < a->size; i++) {
        sum += item(a, i) * item(b, i);
        if (a->dtype == QN_COMPLEX64)
            sum += (double)((const float *)place_of(a, i))[1] *
                   (double)((const float *)place_of(b, i))[1];
    }
    return sum;
}

/* Random numbers, in both parts of complex ones. */
static inline qn_array *random_parts(qn_dtype dtype, uint64_t seed,
                                     const int *shape, int ndim)
{
    qn_array *a = random_array(dtype, 1, seed, shape, ndim);
    for (size_t i = 0; i < a->size && dtype == QN_COMPLEX64; i++)
        ((float *)place_of(a, i))[1] = (float)test_random(&seed);
    return keep(a);
}

#endif
