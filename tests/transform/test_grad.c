/* Gradients of each primitive against differences in float64, forwards
 * against backwards, gradients of gradients, and what is refused. */
#include "programs.h"

#include "ops/rules.h"
#include "transform/grad.h"

static const program *running; /* for messages */

static void off(const char *what, size_t i, size_t k, double wanted,
                double found)
{
    print_error("%s: %s of input %zu, element %zu: expected %.12g, found "
                "%.12g\n",
                running->name, what, i, k, wanted, found);
    fail();
}

static bool differentiable(const program *p, int i)
{
    return qn_dtype_is_float(p->in[i].dtype);
}

static double evaluated_inner(qn_array *a, qn_array *b)
{
    double sum = 0;
    qn_array *both[] = {a, b};
    check_status(qn_eval(both, 2), QN_OK);
    assert_int_equal(a->size, b->size);
    for (size_t i = 0; i < a->size; i++)
        sum += item(a, i) * item(b, i);
    return sum;
}

/* Cotangents for the outputs, the same for each call. */
static void weights(qn_array **cot, qn_array *const *out, int n)
{
    for (int i = 0; i < n; i++)
        cot[i] = keep(random_array(out[i]->dtype, 1, 7 + (uint64_t)i,
                                   out[i]->shape, out[i]->ndim));
}

/* The weighted sum of all that the program returns. */
static double total(const program *p, qn_array *const *in)
{
    program_function f = function_of(p);
    qn_arrays list;
    qn_array *out[PROGRAM_OUTPUTS], *cot[PROGRAM_OUTPUTS];
    double sum = 0;
    check_status(f.base.call(&f.base, &list, in, (size_t)p->ninputs), QN_OK);
    keep_list(&list, out);
    weights(cot, out, p->noutputs);
    for (int i = 0; i < p->noutputs; i++)
        sum += evaluated_inner(out[i], cot[i]);
    return sum;
}

/* A copy of `x` with one element moved. */
static qn_array *moved(qn_array *x, size_t k, double by)
{
    qn_array *copy = array_of(x->dtype, NULL, x->shape, x->ndim);
    for (size_t i = 0; i < x->size; i++)
        element_put(place_of(copy, i), x->dtype,
                    item(x, i) + (i == k ? by : 0));
    return copy;
}

static void gradients_of(const program *p, qn_array *const *in, qn_array **grad)
{
    program_function f = function_of(p);
    qn_arrays list, outs, grads;
    qn_array *out[PROGRAM_OUTPUTS], *cot[PROGRAM_OUTPUTS];
    check_status(f.base.call(&f.base, &list, in, (size_t)p->ninputs), QN_OK);
    keep_list(&list, out);
    weights(cot, out, p->noutputs);
    check_status(qn_vjp(&outs, &grads, &f.base, in, (size_t)p->ninputs, cot,
                        (size_t)p->noutputs),
                 QN_OK);
    assert_int_equal(f.calls, 2);
    qn_arrays_free(&outs);
    assert_int_equal(grads.count, p->ninputs);
    keep_list(&grads, grad);
    for (int i = 0; i < p->ninputs; i++) {
        assert_int_equal(grad[i]->dtype, in[i]->dtype);
        assert_true(qn_same_shape(grad[i], in[i]));
    }
}

static void check_differences(const program *p)
{
    qn_array *in[PROGRAM_INPUTS], *grad[PROGRAM_INPUTS];
    double step = p->step > 0 ? p->step : 1e-6;
    double within = p->within > 0 ? p->within : 2e-6;
    running = p;
    program_inputs(p, in);
    gradients_of(p, in, grad);
    for (int i = 0; i < p->ninputs; i++) {
        if (!differentiable(p, i))
            continue;
        check_status(qn_eval(&grad[i], 1), QN_OK);
        for (size_t k = 0; k < in[i]->size; k++) {
            qn_array *x = in[i];
            double side[2];
            int held = kept_count;
            for (int s = 0; s < 2; s++) {
                in[i] = moved(x, k, s ? -step : step);
                side[s] = total(p, in);
                qn_array_unref(in[i]);
            }
            in[i] = x;
            while (kept_count > held)
                qn_array_unref(kept_arrays[--kept_count]);
            double wanted = (side[0] - side[1]) / (2 * step);
            double found = item(grad[i], k);
            if (!(fabs(wanted - found) <= within * (1 + fabs(wanted))))
                off("gradient", (size_t)i, k, wanted, found);
        }
    }
}

static void test_gradients_are_differences(void **state)
{
    (void)state;
    each_program(check_differences);
}

/* <cotangents, J t> is <gradients, t>. */
static void check_forward(const program *p)
{
    qn_array *in[PROGRAM_INPUTS], *grad[PROGRAM_INPUTS], *tan[PROGRAM_INPUTS];
    qn_array *out[PROGRAM_OUTPUTS], *cot[PROGRAM_OUTPUTS];
    double back = 0, forth = 0;
    double within = p->within > 0 ? p->within : 1e-9;
    program_function f = function_of(p);
    qn_arrays outs, results;
    running = p;
    program_inputs(p, in);
    gradients_of(p, in, grad);
    for (int i = 0; i < p->ninputs; i++) {
        tan[i] = keep(random_array(in[i]->dtype, differentiable(p, i), 50,
                                   in[i]->shape, in[i]->ndim));
        if (differentiable(p, i))
            back += evaluated_inner(grad[i], tan[i]);
    }
    check_status(qn_jvp(&outs, &results, &f.base, in, (size_t)p->ninputs, tan,
                        (size_t)p->ninputs),
                 QN_OK);
    assert_int_equal(f.calls, 1);
    qn_arrays_free(&outs);
    keep_list(&results, out);
    weights(cot, out, p->noutputs);
    for (int i = 0; i < p->noutputs; i++)
        forth += evaluated_inner(out[i], cot[i]);
    if (!(fabs(forth - back) <= within * (1 + fabs(back))))
        off("forward and backward", 0, 0, back, forth);
}

static void test_forward_is_backward_turned_around(void **state)
{
    (void)state;
    each_program(check_forward);
}

/* ---- gradients of gradients ---- */

/* The gradients of a program as a function of its inputs. */
typedef struct gradient_function {
    qn_function base;
    const program *p;
} gradient_function;

static qn_status gradient_call(const qn_function *self, qn_arrays *out,
                               qn_array *const *in, size_t nin)
{
    const program *p = ((const gradient_function *)self)->p;
    program_function f = function_of(p);
    qn_arrays list, outs;
    qn_array *cot[PROGRAM_OUTPUTS];
    qn_status status = f.base.call(&f.base, &list, in, nin);
    if (status)
        return status;
    weights(cot, list.data, p->noutputs);
    qn_arrays_free(&list);
    status = qn_vjp(&outs, out, &f.base, in, nin, cot, (size_t)p->noutputs);
    if (!status)
        qn_arrays_free(&outs);
    return status;
}

/* The gradients, weighted and summed. */
static double gradient_total(const program *p, qn_array *const *in,
                             qn_array *const *cot)
{
    qn_array *grad[PROGRAM_INPUTS];
    double sum = 0;
    gradients_of(p, in, grad);
    for (int i = 0; i < p->ninputs; i++)
        if (differentiable(p, i))
            sum += evaluated_inner(grad[i], cot[i]);
    return sum;
}

/* Only what is smooth twice over and fine enough for differences.  Singular
 * vectors, which the gradient of the values is made of, have none. */
static bool smooth(const program *p)
{
    return !(p->within > 0) && p->op != QN_OP_SVD &&
           strcmp(p->name, "prod and cumprod with zeros");
}

static void check_second(const program *p)
{
    qn_array *in[PROGRAM_INPUTS], *cot[PROGRAM_INPUTS], *hess[PROGRAM_INPUTS];
    gradient_function f = {{gradient_call}, p};
    qn_arrays outs, grads;
    double step = 1e-5;
    running = p;
    if (!smooth(p))
        return;
    program_inputs(p, in);
    for (int i = 0; i < p->ninputs; i++)
        cot[i] = keep(random_array(in[i]->dtype, differentiable(p, i), 90,
                                   in[i]->shape, in[i]->ndim));
    check_status(qn_vjp(&outs, &grads, &f.base, in, (size_t)p->ninputs, cot,
                        (size_t)p->ninputs),
                 QN_OK);
    qn_arrays_free(&outs);
    keep_list(&grads, hess);
    for (int i = 0; i < p->ninputs; i++) {
        if (!differentiable(p, i))
            continue;
        check_status(qn_eval(&hess[i], 1), QN_OK);
        for (size_t k = 0; k < in[i]->size; k += 3) {
            qn_array *x = in[i];
            double side[2];
            int held = kept_count;
            for (int s = 0; s < 2; s++) {
                in[i] = moved(x, k, s ? -step : step);
                side[s] = gradient_total(p, in, cot);
                qn_array_unref(in[i]);
            }
            in[i] = x;
            while (kept_count > held)
                qn_array_unref(kept_arrays[--kept_count]);
            double wanted = (side[0] - side[1]) / (2 * step);
            double found = item(hess[i], k);
            if (!(fabs(wanted - found) <= 1e-4 * (1 + fabs(wanted))))
                off("second gradient", (size_t)i, k, wanted, found);
        }
    }
}

static void test_gradients_of_gradients(void **state)
{
    (void)state;
    each_program(check_second);
}

/* ---- coverage ---- */

/* Each primitive that has a gradient has a program. */
static void test_every_gradient_is_tried(void **state)
{
    (void)state;
    bool tried[QN_OP_COUNT] = {false};
    program p;
    for (int op = 0; op < QN_OP_COUNT; op++)
        tried[op] = regular_program(&p, op);
    for (int i = 0; i < PROGRAMS_LISTED; i++)
        tried[program_table[i].op] = true;
    /* The same bytes as another type: no differences to compare with. */
    tried[QN_OP_VIEW] = true;
    /* The gradient passes its steps: tests/ops/test_quant_products.c. */
    tried[QN_OP_REQUANTIZE] = true;
    /* What a program's own rule says: test_custom. */
    tried[QN_OP_CUSTOM] = true;
    /* Between processes: tests/distributed/ranks.c. */
    tried[QN_OP_ALL_REDUCE] = tried[QN_OP_ALL_GATHER] = true;
    for (int op = 0; op < QN_OP_COUNT; op++) {
        qn_grad_rule rule = qn_rules_of(op)->grad;
        if (!tried[op] && rule != qn_grad_zero && rule != qn_grad_none) {
            print_error("no program for the gradient of %s\n",
                        qn_op_info_of(op)->name);
            fail();
        }
    }
}

/* ---- single things ---- */

static qn_status call_of(const qn_function *self, qn_arrays *out,
                         qn_array *const *in, size_t nin);

/* A function given by a block of code. */
typedef struct code {
    qn_function base;
    qn_array *(*run)(qn_scope *c, qn_array *const *in);
    size_t nout; /* how often the result is returned */
} code;

static qn_status call_of(const qn_function *self, qn_arrays *out,
                         qn_array *const *in, size_t nin)
{
    const code *f = (const code *)self;
    (void)nin;
    qn_scope c;
    qn_scope_begin(&c, S);
    qn_array *y = f->run(&c, in), *made = NULL;
    qn_status status = qn_scope_end(&c, &made, y);
    if (status)
        return status;
    qn_array *list[4] = {made, made, made, made};
    status = qn_arrays_copy(out, list, f->nout);
    qn_array_unref(made);
    return status;
}

#define CODE(name, ...)                                                        \
    static qn_array *name##_run(qn_scope *c, qn_array *const *in)              \
    {                                                                          \
        __VA_ARGS__                                                            \
    }                                                                          \
    static const code name = {{call_of}, name##_run, 1}

/* clang-format off */
CODE(squared, { return unary(c, QN_OP_SQUARE, in[0]); });
CODE(whole_sum, { return reduce(c, QN_OP_SUM, unary(c, QN_OP_SQUARE, in[0]), NULL, QN_ALL_AXES, false); });
CODE(looks, {
    qn_array *y = unary(c, QN_OP_EXP, in[0]);
    if (!c->status)
        qn_scope_fail(c, qn_eval(&y, 1));
    return mul(c, y, in[0]);
});
CODE(packs, {
    qn_array *made[3] = {NULL, NULL, NULL};
    size_t n = 0;
    qn_status status = qn_op_quantize(made, &n, in[0], NULL, NULL, "affine", NULL, c->stream);
    for (size_t i = 0; i < n; i++)
        qn_scope_hold(c, QN_OK, &made[i]);
    qn_scope_fail(c, status);
    return made[1];
});
CODE(stopped, {
    qn_array *made = NULL;
    qn_scope_hold(c, qn_op_stop_gradient(&made, in[0], c->stream), &made);
    return mul(c, made, in[0]);
});
CODE(unrelated, { (void)in; return scalar(c, 3, QN_FLOAT64); });
CODE(itself, { (void)c; return in[0]; });
/* clang-format on */

static void test_results_and_zeros(void **state)
{
    (void)state;
    qn_array *x = LINE(QN_FLOAT64, 1, 2, 3),
             *cot = LINE(QN_FLOAT64, 1, 10, 100);
    qn_arrays outs, grads;
    qn_array *out, *grad;
    check_status(qn_vjp(&outs, &grads, &squared.base, &x, 1, &cot, 1), QN_OK);
    keep_list(&outs, &out);
    keep_list(&grads, &grad);
    check_values(out, 1, 4, 9);
    check_values(grad, 2, 40, 600);

    qn_array *one = scalar_array(QN_FLOAT64, 1);
    check_status(qn_vjp(&outs, &grads, &unrelated.base, &x, 1, &one, 1), QN_OK);
    qn_arrays_free(&outs);
    keep_list(&grads, &grad);
    check_values(grad, 0, 0, 0);
    check_status(qn_jvp(&outs, &grads, &unrelated.base, &x, 1, &cot, 1), QN_OK);
    qn_arrays_free(&outs);
    keep_list(&grads, &grad);
    check_values(grad, 0);

    check_status(qn_vjp(&outs, &grads, &itself.base, &x, 1, &cot, 1), QN_OK);
    qn_arrays_free(&outs);
    keep_list(&grads, &grad);
    check_values(grad, 1, 10, 100);
    check_status(qn_jvp(&outs, &grads, &itself.base, &x, 1, &cot, 1), QN_OK);
    qn_arrays_free(&outs);
    keep_list(&grads, &grad);
    check_values(grad, 1, 10, 100);
}

/* One output returned twice gets both cotangents. */
static void test_an_output_twice(void **state)
{
    (void)state;
    code twice = squared;
    twice.nout = 2;
    qn_array *x = LINE(QN_FLOAT64, 1, 2);
    qn_array *cots[] = {LINE(QN_FLOAT64, 1, 1), LINE(QN_FLOAT64, 10, 20)};
    qn_arrays outs, grads;
    qn_array *grad;
    check_status(qn_vjp(&outs, &grads, &twice.base, &x, 1, cots, 2), QN_OK);
    assert_int_equal(outs.count, 2);
    qn_arrays_free(&outs);
    keep_list(&grads, &grad);
    check_values(grad, 22, 84);
}

/* Evaluating on the way does not lose the way. */
static void test_functions_may_look_at_values(void **state)
{
    (void)state;
    qn_array *x = LINE(QN_FLOAT64, 0.5), *cot = LINE(QN_FLOAT64, 1);
    qn_arrays outs, grads;
    qn_array *grad;
    check_status(qn_vjp(&outs, &grads, &looks.base, &x, 1, &cot, 1), QN_OK);
    qn_arrays_free(&outs);
    keep_list(&grads, &grad);
    check_near(grad, 1e-12, exp(0.5) * 1.5);
    check_status(qn_jvp(&outs, &grads, &looks.base, &x, 1, &cot, 1), QN_OK);
    qn_arrays_free(&outs);
    keep_list(&grads, &grad);
    check_near(grad, 1e-12, exp(0.5) * 1.5);
}

static void test_stopped_gradients(void **state)
{
    (void)state;
    qn_array *x = LINE(QN_FLOAT64, 3), *cot = LINE(QN_FLOAT64, 1);
    qn_arrays outs, grads;
    qn_array *grad;
    check_status(qn_vjp(&outs, &grads, &stopped.base, &x, 1, &cot, 1), QN_OK);
    qn_arrays_free(&outs);
    keep_list(&grads, &grad);
    check_values(grad, 3);
    check_status(qn_jvp(&outs, &grads, &stopped.base, &x, 1, &cot, 1), QN_OK);
    qn_arrays_free(&outs);
    keep_list(&grads, &grad);
    check_values(grad, 3);
}

static void test_value_and_gradients(void **state)
{
    (void)state;
    qn_array *in[] = {LINE(QN_FLOAT64, 1, 2), LINE(QN_FLOAT64, 5)};
    int argnums[] = {-2, 1};
    qn_arrays outs, grads;
    qn_array *out, *grad[2];
    check_status(
        qn_value_and_grad(&outs, &grads, &whole_sum.base, argnums, 2, in, 2),
        QN_OK);
    keep_list(&outs, &out);
    keep_list(&grads, grad);
    check_values(out, 5);
    check_values(grad[0], 2, 4);
    check_values(grad[1], 0);
}

/* Both halves of |z|^2 grow along z; a product is carried back conjugated. */
static void test_complex_gradients(void **state)
{
    (void)state;
    float z[] = {3, 4}, w[] = {1, 2};
    qn_array *x, *cot, *grad;
    check_status(qn_array_from_scalar(&x, z, QN_COMPLEX64), QN_OK);
    keep(x);
    check_status(qn_array_from_scalar(&cot, w, QN_COMPLEX64), QN_OK);
    keep(cot);
    qn_arrays outs, grads;
    check_status(qn_vjp(&outs, &grads, &squared.base, &x, 1, &cot, 1), QN_OK);
    qn_arrays_free(&outs);
    keep_list(&grads, &grad);
    check_status(qn_eval(&grad, 1), QN_OK);
    /* (1 + 2i) * 2 (3 - 4i) */
    assert_true(((float *)qn_array_data(grad))[0] == 22);
    assert_true(((float *)qn_array_data(grad))[1] == 4);
    check_status(qn_jvp(&outs, &grads, &squared.base, &x, 1, &cot, 1), QN_OK);
    qn_arrays_free(&outs);
    keep_list(&grads, &grad);
    check_status(qn_eval(&grad, 1), QN_OK);
    /* (1 + 2i) * 2 (3 + 4i) */
    assert_true(((float *)qn_array_data(grad))[0] == -10);
    assert_true(((float *)qn_array_data(grad))[1] == 20);
}

static void test_refused(void **state)
{
    (void)state;
    qn_array *x = LINE(QN_FLOAT64, 1, 2, 3), *two = LINE(QN_FLOAT64, 1, 2);
    qn_arrays outs = {0}, grads = {0};
    int arg = 0, far = 3, same[] = {0, 0};
    check_error(qn_vjp(&outs, &grads, &squared.base, &x, 1, &two, 1), QN_E_ARG,
                "(3) does not match cotangent shape (2)");
    check_error(qn_vjp(&outs, &grads, &squared.base, &x, 1, NULL, 0), QN_E_ARG,
                "(1) does not match number of cotangents (0)");
    check_error(qn_jvp(&outs, &grads, &squared.base, &x, 1, &two, 1), QN_E_ARG,
                "(2)");
    check_error(qn_jvp(&outs, &grads, &squared.base, &x, 1, NULL, 0), QN_E_ARG,
                "does not match number of tangents (0)");
    check_error(qn_value_and_grad(&outs, &grads, &squared.base, &arg, 1, &x, 1),
                QN_E_ARG, "scalar");
    check_error(
        qn_value_and_grad(&outs, &grads, &whole_sum.base, &far, 1, &x, 1),
        QN_E_ARG, "argument number 3");
    check_error(
        qn_value_and_grad(&outs, &grads, &whole_sum.base, same, 2, &x, 1),
        QN_E_ARG, "Repeat");
    double zeros[128] = {0};
    qn_array *w = keep(array_of(QN_FLOAT32, zeros, SHAPE(1, 64)));
    qn_array *cot = keep(array_of(QN_FLOAT32, zeros, SHAPE(1, 1)));
    check_error(qn_vjp(&outs, &grads, &packs.base, &w, 1, &cot, 1),
                QN_E_UNSUPPORTED, "[quantize]");
    check_error(qn_jvp(&outs, &grads, &packs.base, &w, 1, &w, 1),
                QN_E_UNSUPPORTED, "[quantize]");
    assert_null(outs.data);
    assert_null(grads.data);
    /* Nothing listens any more. */
    assert_false(qn_record_listening());
}

/* ---- memory ---- */

static qn_status scenario_vjp(void)
{
    const program *p = &program_table[PROGRAMS_LISTED - 3]; /* the chain */
    qn_array *in[2], *cot[3];
    qn_arrays outs, grads;
    program_function f = function_of(p);
    double values[6] = {1, 2, 3, 4, 5, 6};
    int shape[] = {2, 3}, line = 3;
    qn_status status = qn_array_from_data(&in[0], values, shape, 2, QN_FLOAT64);
    if (status)
        return status;
    status = qn_array_from_data(&in[1], values, &line, 1, QN_FLOAT64);
    if (!status) {
        for (int i = 0; i < 3; i++)
            cot[i] = in[0];
        status = qn_vjp(&outs, &grads, &f.base, in, 2, cot, 3);
        if (!status) {
            qn_arrays_free(&outs);
            status = qn_eval(grads.data, grads.count);
            qn_arrays_free(&grads);
        }
        qn_array_unref(in[1]);
    }
    qn_array_unref(in[0]);
    assert_false(qn_record_listening());
    return status;
}

static qn_status scenario_jvp(void)
{
    qn_arrays outs, grads;
    double values[6] = {1, 2, 3, 4, 5, 6};
    int shape[] = {2, 3};
    qn_array *x;
    qn_status status = qn_array_from_data(&x, values, shape, 2, QN_FLOAT64);
    if (status)
        return status;
    status = qn_jvp(&outs, &grads, &whole_sum.base, &x, 1, &x, 1);
    if (!status) {
        qn_arrays_free(&outs);
        status = qn_eval(grads.data, grads.count);
        qn_arrays_free(&grads);
    }
    qn_array_unref(x);
    assert_false(qn_record_listening());
    return status;
}

static void test_memory_may_run_out(void **state)
{
    (void)state;
    each_alloc_may_fail(scenario_vjp);
    each_alloc_may_fail(scenario_jvp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUILD_TEST(test_every_gradient_is_tried),
        BUILD_TEST(test_gradients_are_differences),
        BUILD_TEST(test_forward_is_backward_turned_around),
        BUILD_TEST(test_gradients_of_gradients),
        BUILD_TEST(test_results_and_zeros),
        BUILD_TEST(test_an_output_twice),
        BUILD_TEST(test_functions_may_look_at_values),
        BUILD_TEST(test_stopped_gradients),
        BUILD_TEST(test_value_and_gradients),
        BUILD_TEST(test_complex_gradients),
        BUILD_TEST(test_refused),
        BUILD_TEST(test_memory_may_run_out),
    };
    return run_build_tests(tests);
}
