/* qn_grad.h: rules of single operations (ops/rules.h), called by hand.
 *
 * An operation is built on arrays that the test holds; before it is evaluated
 * its rules turn cotangents into gradients, put it on a batch, and make it
 * again. */
#ifndef QN_TEST_SUPPORT_GRAD_H
#define QN_TEST_SUPPORT_GRAD_H

#include "qn_build.h"

#include "ops/rules.h"

enum { MOST_PARTS = 8 }; /* inputs or outputs of an operation */

/* The gradients by all inputs of the node that made outs[0] .. outs[n-1], all
 * of its outputs; kept until the test's end. */
static inline void gradients(qn_array **grad, qn_array *const *outs,
                             qn_array *const *cots)
{
    const qn_node *node = outs[0]->node;
    bool wanted[MOST_PARTS];
    qn_array *found[MOST_PARTS] = {NULL};
    for (int i = 0; i < MOST_PARTS; i++)
        wanted[i] = true;
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

/* ---- batches and remakes ---- */

/* The operation of `node` made again on `in`; `outs` are its outputs. */
static inline void remade(qn_array **out, const qn_node *node,
                          qn_array *const *outs, qn_array *const *in)
{
    qn_scope c;
    qn_scope_begin(&c, S);
    qn_array *made[MOST_PARTS] = {NULL};
    qn_again a = {.c = &c,
                  .node = node,
                  .was_in = node->inputs,
                  .was_out = outs,
                  .in = in,
                  .out = made};
    qn_rules_of(node->op)->again(&a);
    check_status(qn_scope_end_many(&c, out, made, node->noutputs), QN_OK);
    for (int i = 0; i < node->noutputs; i++)
        keep(out[i]);
    check_status(qn_eval(out, (size_t)node->noutputs), QN_OK);
}

static inline void check_same(const qn_array *found, size_t first,
                              const qn_array *wanted)
{
    assert_int_equal(found->dtype, wanted->dtype);
    for (size_t i = 0; i < wanted->size; i++) {
        const float *f = place_of(found, first + i), *w = place_of(wanted, i);
        assert_true(fabs(item(found, first + i) - item(wanted, i)) < 1e-4);
        if (wanted->dtype == QN_COMPLEX64)
            assert_true(fabsf(f[1] - w[1]) < 1e-4F);
    }
}

/* x and, if it is no integer, twice x, as a batch; or the second by itself. */
static inline qn_array *doubled(qn_array *x, bool both)
{
    BUILD(twice, qn_op_binary(&twice, QN_OP_ADD, x, x, S));
    qn_array *pair[2] = {x, qn_dtype_is_integer(x->dtype) ? x : twice};
    BUILD(stacked, qn_op_stack(&stacked, pair, 2, 0, S));
    check_status(qn_eval(pair, 2), QN_OK);
    check_status(qn_eval(&stacked, 1), QN_OK);
    return both ? stacked : pair[1];
}

/* Each choice of batched inputs gives what the entries give one by one. */
static inline void check_rules(qn_array *const *outs)
{
    const qn_node *node = outs[0]->node;
    qn_array *one[MOST_PARTS], *two[MOST_PARTS], *second[MOST_PARTS];
    int ninputs = node->ninputs, noutputs = node->noutputs;
    remade(one, node, outs, node->inputs);
    for (int choice = 1; choice < 1 << ninputs; choice++) {
        qn_array *in[MOST_PARTS], *made[MOST_PARTS] = {NULL}, *out[MOST_PARTS];
        bool batched[MOST_PARTS];
        for (int i = 0; i < ninputs; i++) {
            batched[i] = choice >> i & 1;
            in[i] =
                batched[i] ? doubled(node->inputs[i], true) : node->inputs[i];
            second[i] =
                batched[i] ? doubled(node->inputs[i], false) : node->inputs[i];
        }
        remade(two, node, outs, second);
        qn_scope c;
        qn_scope_begin(&c, S);
        qn_batch b = {.c = &c,
                      .node = node,
                      .like = outs,
                      .in = in,
                      .batched = batched,
                      .size = 2,
                      .out = made};
        qn_rules_of(node->op)->vmap(&b);
        check_status(qn_scope_end_many(&c, out, made, noutputs), QN_OK);
        for (int i = 0; i < noutputs; i++) {
            keep(out[i]);
            assert_int_equal(out[i]->ndim, outs[i]->ndim + 1);
            assert_int_equal(out[i]->shape[0], 2);
            check_status(qn_eval(&out[i], 1), QN_OK);
            check_same(out[i], 0, one[i]);
            check_same(out[i], one[i]->size, two[i]);
        }
    }
}

#endif
