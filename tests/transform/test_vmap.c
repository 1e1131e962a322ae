/* Batches against a loop over their entries: each program, its gradients too,
 * with the batch axis in different places of some or all inputs. */
#include "programs.h"

#include "ops/rules.h"
#include "transform/grad.h"
#include "transform/vmap.h"

enum { ENTRIES = 3 };

static const program *running;

static void off(const char *what, int output, size_t k, double wanted,
                double found)
{
    print_error("%s (%s): output %d, element %zu: expected %.12g, found "
                "%.12g\n",
                running->name, what, output, k, wanted, found);
    fail();
}

/* ENTRIES inputs as one, with the batch axis at `axis`. */
static qn_array *stacked(qn_array *const *entries, int axis)
{
    qn_array *list[ENTRIES], *made;
    for (int i = 0; i < ENTRIES; i++) {
        check_status(qn_op_expand_dims(&list[i], entries[i], &axis, 1, S),
                     QN_OK);
        keep(list[i]);
    }
    check_status(qn_op_concatenate(&made, list, ENTRIES, axis, S), QN_OK);
    return keep(made);
}

static qn_array *entry(qn_array *x, int axis, int at)
{
    qn_array *part, *made;
    check_status(qn_op_slice_axis(&part, x, axis, at, at + 1, S), QN_OK);
    keep(part);
    check_status(qn_op_squeeze(&made, part, &axis, 1, S), QN_OK);
    return keep(made);
}

static void compare(const char *what, int output, qn_array *wanted,
                    qn_array *found)
{
    qn_array *both[] = {wanted, found};
    check_status(qn_eval(both, 2), QN_OK);
    assert_int_equal(found->dtype, wanted->dtype);
    assert_true(qn_same_shape(wanted, found));
    double within = wanted->dtype == QN_FLOAT64 ? 1e-12 : 1e-5;
    for (size_t k = 0; k < wanted->size; k++) {
        double a = item(wanted, k), b = item(found, k);
        if (!(fabs(a - b) <= within * (1 + fabs(a))) && !(isnan(a) && isnan(b)))
            off(what, output, k, a, b);
    }
}

/* A function of a program's inputs. */
typedef struct subject {
    const qn_function *fun;
    const program *p;
    const char *what;
} subject;

/* `mask`: which inputs are batched; `back`: at the end rather than in front. */
static void check_batch(const subject *s, unsigned mask, bool back)
{
    const program *p = s->p;
    qn_array *entries[PROGRAM_INPUTS][ENTRIES], *in[PROGRAM_INPUTS];
    qn_array *single[PROGRAM_INPUTS], *found[8];
    int in_axes[PROGRAM_INPUTS], out_axes[8];
    size_t nin = (size_t)p->ninputs;
    for (int i = 0; i < p->ninputs; i++) {
        const program_input *pi = &p->in[i];
        for (int e = 0; e < ENTRIES; e++)
            entries[i][e] = program_values(pi, 100 + (uint64_t)(i + 10 * e),
                                           pi->shape, pi->ndim);
        in_axes[i] = !(mask & 1u << i) ? -1 : back ? pi->ndim : 0;
        in[i] =
            in_axes[i] < 0 ? entries[i][0] : stacked(entries[i], in_axes[i]);
    }
    qn_arrays given, results, out;
    check_status(qn_vmap_trace(&given, &results, s->fun, in, nin, in_axes, nin),
                 QN_OK);
    assert_false(qn_record_listening());
    size_t nout = results.count;
    for (size_t i = 0; i < nout; i++)
        out_axes[i] = back ? results.data[i]->ndim : 0;
    check_status(qn_vmap_replace(&out, in, nin, given.data, nin, results.data,
                                 nout, in_axes, nin, out_axes, nout),
                 QN_OK);
    qn_arrays_free(&given);
    qn_arrays_free(&results);
    keep_list(&out, found);
    for (int e = 0; e < ENTRIES; e++) {
        qn_arrays list;
        qn_array *wanted[8];
        for (int i = 0; i < p->ninputs; i++)
            single[i] = entries[i][in_axes[i] < 0 ? 0 : e];
        check_status(s->fun->call(s->fun, &list, single, nin), QN_OK);
        assert_int_equal(list.count, nout);
        keep_list(&list, wanted);
        for (size_t i = 0; i < nout; i++)
            compare(s->what, (int)i, wanted[i],
                    entry(found[i], out_axes[i], e));
    }
}

static void check_program(const program *p)
{
    program_function f = function_of(p);
    subject s = {&f.base, p, "values"};
    unsigned all = (1u << p->ninputs) - 1;
    running = p;
    check_batch(&s, all, false);
    check_batch(&s, all, true);
    for (int i = 0; i < p->ninputs && p->ninputs > 1; i++) {
        check_batch(&s, 1u << i, i % 2);
        drop_all(NULL);
        check_batch(&s, all & ~(1u << i), !(i % 2));
        drop_all(NULL);
    }
}

static void test_batches_are_loops(void **state)
{
    (void)state;
    each_program(check_program);
}

/* ---- gradients of a batch ---- */

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
    for (int i = 0; i < p->noutputs; i++)
        cot[i] = keep(random_array(list.data[i]->dtype, 1, 7 + (uint64_t)i,
                                   list.data[i]->shape, list.data[i]->ndim));
    qn_arrays_free(&list);
    status = qn_vjp(&outs, out, &f.base, in, nin, cot, (size_t)p->noutputs);
    if (!status)
        qn_arrays_free(&outs);
    return status;
}

static void check_gradients(const program *p)
{
    gradient_function f = {{gradient_call}, p};
    subject s = {&f.base, p, "gradients"};
    running = p;
    check_batch(&s, (1u << p->ninputs) - 1, false);
    drop_all(NULL);
    check_batch(&s, 1, true);
}

static void test_gradients_of_batches_are_loops(void **state)
{
    (void)state;
    each_program(check_gradients);
}

/* ---- coverage ---- */

static void test_every_rule_is_tried(void **state)
{
    (void)state;
    bool tried[QN_OP_COUNT] = {false};
    program p;
    for (int op = 0; op < QN_OP_COUNT; op++)
        tried[op] = regular_program(&p, op);
    for (int i = 0; i < PROGRAMS_LISTED; i++)
        tried[program_table[i].op] = true;
    /* Between processes: tests/distributed/ranks.c. */
    tried[QN_OP_ALL_GATHER] = true;
    for (int op = 0; op < QN_OP_COUNT; op++) {
        const qn_op_info *info = qn_op_info_of(op);
        qn_vmap_rule rule = qn_rules_of(op)->vmap;
        bool plain = rule == qn_vmap_front || rule == qn_vmap_loop;
        if (!tried[op] && info->family == QN_FAMILY_PRIM && !plain &&
            op != QN_OP_STOP_GRADIENT && op != QN_OP_CUSTOM &&
            op != QN_OP_NUMBER_OF_ELEMENTS && op != QN_OP_QUANTIZE &&
            op != QN_OP_REQUANTIZE) {
            print_error("no program for batches of %s\n", info->name);
            fail();
        }
    }
}

/* ---- single things ---- */

typedef struct code {
    qn_function base;
    qn_array *(*run)(qn_scope *c, qn_array *const *in);
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
    status = qn_arrays_copy(out, &made, 1);
    qn_array_unref(made);
    return status;
}

static qn_array *twice_run(qn_scope *c, qn_array *const *in)
{
    return add(c, in[0], in[0]);
}
static const code twice = {{call_of}, twice_run};

static qn_array *constant_run(qn_scope *c, qn_array *const *in)
{
    (void)in;
    return scalar(c, 2, QN_FLOAT64);
}
static const code constant = {{call_of}, constant_run};

static qn_array *looking_run(qn_scope *c, qn_array *const *in)
{
    qn_array *y = in[0];
    qn_scope_fail(c, qn_eval(&y, 1));
    return y;
}
static const code looking = {{call_of}, looking_run};

static qn_status batch_of(qn_arrays *out, const code *f, qn_array *x, int in,
                          int to)
{
    qn_arrays given, results;
    qn_status status = qn_vmap_trace(&given, &results, &f->base, &x, 1, &in, 1);
    if (status)
        return status;
    status = qn_vmap_replace(out, &x, 1, given.data, 1, results.data, 1, &in, 1,
                             &to, 1);
    qn_arrays_free(&given);
    qn_arrays_free(&results);
    return status;
}

static void test_a_constant_result(void **state)
{
    (void)state;
    qn_array *x = LINE(QN_FLOAT64, 1, 2, 3), *found;
    qn_arrays out;
    check_status(batch_of(&out, &constant, x, 0, 0), QN_OK);
    keep_list(&out, &found);
    check_values(found, 2, 2, 2);
    check_status(batch_of(&out, &constant, x, 0, -1), QN_OK);
    keep_list(&out, &found);
    check_values(found, 2);
}

/* A long chain is walked without recursion. */
static qn_array *long_run(qn_scope *c, qn_array *const *in)
{
    qn_array *y = qn_array_ref(in[0]);
    for (int i = 0; i < 100000 && !c->status; i++) {
        qn_array *more = NULL;
        qn_scope_fail(c, qn_op_binary(&more, QN_OP_ADD, y, y, c->stream));
        qn_array_unref(y);
        y = more;
    }
    return c->status ? NULL : qn_scope_hold(c, QN_OK, &y);
}
static const code long_chain = {{call_of}, long_run};

static void test_a_long_chain(void **state)
{
    (void)state;
    qn_array *x = LINE(QN_INT32, 1, 2), *found;
    qn_arrays out;
    check_status(batch_of(&out, &long_chain, x, 0, 0), QN_OK);
    keep_list(&out, &found);
    check_values(found, 0, 0); /* doubled until it wrapped */
}

static void test_refused(void **state)
{
    (void)state;
    qn_array *x = LINE(QN_FLOAT64, 1, 2, 3), *y = LINE(QN_FLOAT64, 1, 2);
    qn_array *both[] = {x, y};
    qn_arrays given, results, out;
    int zero = 0, three = 3, none = -1, zeros[] = {0, 0};
    check_error(qn_vmap_trace(&given, &results, &twice.base, &x, 1, &three, 1),
                QN_E_ARG,
                "Invalid vectorization axis 3 for array with shape (3)");
    check_error(qn_vmap_trace(&given, &results, &twice.base, both, 2, zeros, 2),
                QN_E_ARG, "Inconsistent axis sizes: 3 and 2");
    check_error(qn_vmap_trace(&given, &results, &twice.base, &x, 1, &none, 1),
                QN_E_ARG, "At least one");
    check_error(qn_vmap_trace(&given, &results, &twice.base, &x, 1, zeros, 2),
                QN_E_ARG, "(2)");
    check_error(qn_vmap_trace(&given, &results, &looking.base, &x, 1, &zero, 1),
                QN_E_ARG, "[eval]");
    check_error(batch_of(&out, &twice, x, 0, -1), QN_E_ARG,
                "needs an out axis");
    check_error(batch_of(&out, &twice, x, 0, 5), QN_E_ARG, "out of bounds");
    assert_false(qn_record_listening());
}

/* ---- memory ---- */

static qn_status scenario(void)
{
    const program *p = &program_table[PROGRAMS_LISTED - 3]; /* the chain */
    program_function f = function_of(p);
    qn_array *in[2];
    double values[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    int shape[] = {2, 2, 3}, line[] = {2, 3}, zeros[] = {0, 0, 0};
    qn_status status = qn_array_from_data(&in[0], values, shape, 3, QN_FLOAT64);
    if (status)
        return status;
    status = qn_array_from_data(&in[1], values, line, 2, QN_FLOAT64);
    if (!status) {
        qn_arrays given, results, out;
        status = qn_vmap_trace(&given, &results, &f.base, in, 2, zeros, 2);
        if (!status) {
            status = qn_vmap_replace(&out, in, 2, given.data, 2, results.data,
                                     3, zeros, 2, zeros, 3);
            qn_arrays_free(&given);
            qn_arrays_free(&results);
        }
        if (!status) {
            status = qn_eval(out.data, out.count);
            qn_arrays_free(&out);
        }
        qn_array_unref(in[1]);
    }
    qn_array_unref(in[0]);
    return status;
}

static void test_memory_may_run_out(void **state)
{
    (void)state;
    each_alloc_may_fail(scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUILD_TEST(test_every_rule_is_tried),
        BUILD_TEST(test_batches_are_loops),
        BUILD_TEST(test_gradients_of_batches_are_loops),
        BUILD_TEST(test_a_constant_result),
        BUILD_TEST(test_a_long_chain),
        BUILD_TEST(test_refused),
        BUILD_TEST(test_memory_may_run_out),
    };
    return run_build_tests(tests);
}
