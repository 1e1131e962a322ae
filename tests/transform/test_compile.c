/* Compiled functions: the same bits as without, in every mode; traces counted;
 * what is recorded stays as it was; other shapes; caches of threads. */
#include "programs.h"

#include "backend/cpu/cpu.h"
#include "ops/fused.h"
#include "ops/rules.h"
#include "transform/compile.h"
#include "transform/grad.h"

#include <pthread.h>

static const program *running;

typedef struct compiled {
    qn_compiled call;
    atomic_size_t traces;
} compiled;

static void compiled_of(compiled *c, const qn_function *fun, bool shapeless)
{
    *c = (compiled){.call = {.fun = fun,
                             .id = qn_compile_new_id(),
                             .shapeless = shapeless}};
    c->call.traces = &c->traces;
}

static void off(const char *what, int output, size_t k)
{
    print_error("%s (%s): output %d, element %zu differs\n",
                running ? running->name : "?", what, output, k);
    fail();
}

static bool same_bits(const qn_array *a, const qn_array *b, size_t k)
{
    if (!memcmp(place_of(a, k), place_of(b, k), qn_array_itemsize(a)))
        return true;
    /* Which NaN it is does not count. */
    return qn_dtype_is_float(a->dtype) && isnan(item(a, k)) &&
           isnan(item(b, k));
}

static void compare(const char *what, int output, qn_array *wanted,
                    qn_array *found)
{
    qn_array *both[] = {wanted, found};
    check_status(qn_eval(both, 2), QN_OK);
    assert_int_equal(found->dtype, wanted->dtype);
    assert_true(qn_same_shape(wanted, found));
    for (size_t k = 0; k < wanted->size; k++)
        if (!same_bits(wanted, found, k))
            off(what, output, k);
}

static void apply_to(const compiled *c, qn_array *const *in, int nin,
                     qn_array **out)
{
    qn_arrays list;
    check_status(qn_compiled_call(&list, &c->call, in, (size_t)nin), QN_OK);
    keep_list(&list, out);
}

/* ---- programs ---- */

static const char *const mode_names[] = {"disabled", "no_simplify", "no_fuse",
                                         "enabled"};

static void check_modes(const program *p)
{
    program_function f = function_of(p);
    qn_array *in[PROGRAM_INPUTS], *wanted[PROGRAM_OUTPUTS];
    qn_array *found[PROGRAM_OUTPUTS];
    qn_arrays list;
    compiled c;
    running = p;
    program_inputs(p, in);
    check_status(f.base.call(&f.base, &list, in, (size_t)p->ninputs), QN_OK);
    keep_list(&list, wanted);
    compiled_of(&c, &f.base, false);
    f.calls = 0;
    for (int m = QN_COMPILE_ENABLED; m >= QN_COMPILE_DISABLED; m--) {
        qn_compile_set_mode((qn_compile_mode)m);
        for (int again = 0; again < 2; again++) {
            apply_to(&c, in, p->ninputs, found);
            for (int i = 0; i < p->noutputs; i++)
                compare(mode_names[m], i, wanted[i], found[i]);
        }
        /* Once for all modes that record. */
        assert_int_equal(f.calls, m == QN_COMPILE_DISABLED ? 3 : 1);
    }
    qn_compile_set_mode(QN_COMPILE_ENABLED);
    assert_int_equal(c.traces, 1);
    qn_compile_forget(c.call.id);
}

static void test_programs_in_all_modes(void **state)
{
    (void)state;
    each_program(check_modes);
}

/* Gradients of compiled functions, and compiled gradients. */
static qn_status gradient_call(const qn_function *self, qn_arrays *out,
                               qn_array *const *in, size_t nin);

typedef struct gradient_function {
    qn_function base;
    const qn_function *fun;
    int noutputs;
} gradient_function;

static qn_status gradient_call(const qn_function *self, qn_arrays *out,
                               qn_array *const *in, size_t nin)
{
    const gradient_function *g = (const gradient_function *)self;
    qn_arrays list, outs;
    qn_array *cot[PROGRAM_OUTPUTS];
    qn_status status = g->fun->call(g->fun, &list, in, nin);
    if (status)
        return status;
    for (int i = 0; i < g->noutputs; i++)
        cot[i] = keep(random_array(list.data[i]->dtype, 1, 7 + (uint64_t)i,
                                   list.data[i]->shape, list.data[i]->ndim));
    qn_arrays_free(&list);
    status = qn_vjp(&outs, out, g->fun, in, nin, cot, (size_t)g->noutputs);
    if (!status)
        qn_arrays_free(&outs);
    return status;
}

/* A compiled function as a function. */
typedef struct compiled_function {
    qn_function base;
    const qn_compiled *call;
} compiled_function;

static qn_status compiled_call(const qn_function *self, qn_arrays *out,
                               qn_array *const *in, size_t nin)
{
    return qn_compiled_call(out, ((const compiled_function *)self)->call, in,
                            nin);
}

static void check_gradients(const program *p)
{
    program_function f = function_of(p);
    gradient_function g = {{gradient_call}, &f.base, p->noutputs};
    qn_array *in[PROGRAM_INPUTS], *wanted[PROGRAM_INPUTS];
    qn_array *found[PROGRAM_INPUTS];
    qn_arrays list;
    compiled c;
    running = p;
    program_inputs(p, in);
    check_status(g.base.call(&g.base, &list, in, (size_t)p->ninputs), QN_OK);
    keep_list(&list, wanted);

    compiled_of(&c, &g.base, false);
    apply_to(&c, in, p->ninputs, found);
    for (int i = 0; i < p->ninputs; i++)
        compare("compiled gradient", i, wanted[i], found[i]);
    qn_compile_forget(c.call.id);

    compiled_of(&c, &f.base, false);
    compiled_function inner = {{compiled_call}, &c.call};
    gradient_function outer = {{gradient_call}, &inner.base, p->noutputs};
    check_status(outer.base.call(&outer.base, &list, in, (size_t)p->ninputs),
                 QN_OK);
    keep_list(&list, found);
    for (int i = 0; i < p->ninputs; i++)
        compare("gradient of compiled", i, wanted[i], found[i]);
    qn_compile_forget(c.call.id);
}

static void test_gradients(void **state)
{
    (void)state;
    each_program(check_gradients);
}

/* ---- random elementwise programs ---- */

enum { RANDOM_VALUES = 24 };

/* A random expression: each value comes from earlier ones. */
typedef struct random_program {
    qn_function base;
    uint64_t seed;
    int noutputs;
} random_program;

static int draw(uint64_t *seed, int n)
{
    double unit = (test_random(seed) + 1) / 2;
    int k = (int)(unit * n);
    return k < n ? k : n - 1;
}

static const qn_dtype draw_types[] = {QN_FLOAT32, QN_FLOAT16,   QN_BFLOAT16,
                                      QN_FLOAT32, QN_FLOAT64,   QN_INT32,
                                      QN_UINT8,   QN_COMPLEX64, QN_BOOL};

static qn_array *random_step(qn_scope *c, uint64_t *seed, qn_array **values,
                             int n)
{
    qn_array *a = values[draw(seed, n)], *b = values[draw(seed, n)];
    qn_array *made = NULL;
    switch (draw(seed, 8)) {
    case 0:
        return cast(c, a,
                    draw_types[draw(
                        seed, (int)(sizeof draw_types / sizeof *draw_types))]);
    case 1:
        return where(c, values[draw(seed, n)], a, b);
    default:
        break;
    }
    /* Some operation that takes these types. */
    for (int attempt = 0; attempt < 50; attempt++) {
        int op = draw(seed, QN_OP_COUNT);
        qn_op_family family = qn_op_info_of(op)->family;
        qn_status status = QN_E_ARG;
        if (family == QN_FAMILY_UNARY)
            status = qn_op_unary(&made, (qn_op)op, a, c->stream);
        else if (family == QN_FAMILY_BINARY)
            status = qn_op_binary(&made, (qn_op)op, a, b, c->stream);
        if (!status)
            return qn_scope_hold(c, status, &made);
    }
    return a;
}

static qn_status random_call(const qn_function *self, qn_arrays *out,
                             qn_array *const *in, size_t nin)
{
    const random_program *r = (const random_program *)self;
    uint64_t seed = r->seed;
    qn_array *values[RANDOM_VALUES + 8];
    qn_scope c;
    qn_scope_begin(&c, S);
    int n = 0;
    for (size_t i = 0; i < nin; i++)
        values[n++] = in[i];
    values[n++] = scalar(&c, 0.75, QN_FLOAT32);
    values[n++] = scalar(&c, 3, QN_INT32);
    while (n < RANDOM_VALUES && !c.status) {
        values[n] = random_step(&c, &seed, values, n);
        n++;
    }
    qn_arrays list;
    qn_status status = qn_arrays_new(&list, (size_t)r->noutputs);
    if (status)
        return status;
    /* The last value, and some others. */
    qn_array *results[4] = {values[n - 1]};
    for (int i = 1; i < r->noutputs; i++)
        results[i] = values[(int)nin + 2 + draw(&seed, n - (int)nin - 2)];
    status = qn_scope_end_many(&c, list.data, results, r->noutputs);
    if (status)
        qn_arrays_free(&list);
    else
        *out = list;
    return status;
}

static qn_array *random_input(qn_dtype dtype, uint64_t seed, const int *shape,
                              int ndim, bool flipped)
{
    qn_array *a = array_of(dtype, NULL, shape, ndim);
    for (size_t k = 0; k < a->size; k++)
        element_put(place_of(a, k), dtype,
                    dtype == QN_BOOL || dtype == QN_UINT8
                        ? floor(2 + 2 * test_random(&seed))
                        : 4 * test_random(&seed));
    return keep(flipped ? strided(a) : a);
}

static void check_random(uint64_t seed, int rows, int columns)
{
    uint64_t choices = seed * 77 + 1;
    random_program r = {{random_call}, seed, 1 + (int)(seed % 3)};
    program named = {.name = "random"};
    int whole[] = {rows, columns}, row[] = {columns}, column[] = {rows, 1};
    qn_array *in[5], *wanted[4], *found[4];
    qn_arrays list;
    compiled c;
    running = &named;
    in[0] = random_input(draw_types[draw(&choices, 9)], seed, whole, 2, false);
    in[1] = random_input(draw_types[draw(&choices, 9)], seed + 1, whole, 2,
                         seed % 2);
    in[2] =
        random_input(draw_types[draw(&choices, 9)], seed + 2, row, 1, false);
    in[3] =
        random_input(draw_types[draw(&choices, 9)], seed + 3, column, 2, false);
    in[4] = random_input(QN_FLOAT32, seed + 4, NULL, 0, false);
    check_status(r.base.call(&r.base, &list, in, 5), QN_OK);
    keep_list(&list, wanted);
    for (int shapeless = 0; shapeless < 2; shapeless++) {
        compiled_of(&c, &r.base, shapeless);
        apply_to(&c, in, 5, found);
        for (int i = 0; i < r.noutputs; i++) {
            qn_array *both[] = {wanted[i], found[i]};
            check_status(qn_eval(both, 2), QN_OK);
            if (!qn_same_shape(wanted[i], found[i])) {
                print_error("random %llu: shapes differ\n",
                            (unsigned long long)seed);
                fail();
            }
            for (size_t k = 0; k < wanted[i]->size; k++)
                if (!same_bits(wanted[i], found[i], k)) {
                    print_error("random %llu: ", (unsigned long long)seed);
                    off(shapeless ? "shapeless" : "fused", i, k);
                }
        }
        qn_compile_forget(c.call.id);
    }
}

static void test_random_programs(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        check_random(seed, 3, 5);
        drop_all(NULL);
    }
    /* Several blocks, several threads. */
    for (uint64_t seed = 1; seed <= 12; seed++) {
        check_random(seed, 70, 1500);
        drop_all(NULL);
    }
    check_random(7, 0, 4);
}

/* ---- fusion ---- */

typedef struct code {
    qn_function base;
    void (*run)(qn_scope *c, qn_array *const *in, qn_array **out);
    int noutputs;
    int *calls;
} code;

static qn_status call_of(const qn_function *self, qn_arrays *out,
                         qn_array *const *in, size_t nin)
{
    const code *f = (const code *)self;
    qn_array *results[8] = {NULL};
    qn_arrays list;
    (void)nin;
    qn_status status = qn_arrays_new(&list, (size_t)f->noutputs);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, S);
    if (f->calls)
        ++*f->calls;
    f->run(&c, in, results);
    status = qn_scope_end_many(&c, list.data, results, f->noutputs);
    if (status)
        qn_arrays_free(&list);
    else
        *out = list;
    return status;
}

/* Nodes behind an array that have not run, of one operation or (-1) any. */
static int count_nodes(qn_array *const *arrays, int n, int op)
{
    qn_node *seen[256];
    int count = 0, nseen = 0;
    qn_array *todo[256];
    int left = 0;
    for (int i = 0; i < n; i++)
        todo[left++] = arrays[i];
    while (left) {
        qn_array *a = todo[--left];
        if (qn_array_ready(a) || !a->node)
            continue;
        bool known = false;
        for (int i = 0; i < nseen; i++)
            known |= seen[i] == a->node;
        if (known)
            continue;
        assert_true(nseen < 256 && left + a->node->ninputs < 256);
        seen[nseen++] = a->node;
        count += op < 0 || a->node->op == op;
        for (int i = 0; i < a->node->ninputs; i++)
            todo[left++] = a->node->inputs[i];
    }
    return count;
}

static void gelu_run(qn_scope *c, qn_array *const *in, qn_array **out)
{
    qn_array *x = in[0];
    qn_array *t = mul(c, x, scalar(c, 0.70710678, QN_FLOAT32));
    qn_array *e = add(c, unary(c, QN_OP_ERF, t), scalar(c, 1, QN_FLOAT32));
    out[0] = mul(c, mul(c, x, e), scalar(c, 0.5, QN_FLOAT32));
}

static void test_a_chain_becomes_one_node(void **state)
{
    (void)state;
    code f = {{call_of}, gelu_run, 1, NULL};
    compiled c;
    qn_array *x = LINE(QN_FLOAT32, -1, 0, 1, 2), *y;
    compiled_of(&c, &f.base, false);
    apply_to(&c, &x, 1, &y);
    assert_int_equal(count_nodes(&y, 1, QN_OP_FUSED), 1);
    assert_int_equal(count_nodes(&y, 1, -1), 1);
    check_near(y, 1e-6, -0.15865526, 0, 0.84134475, 1.9544997);
    qn_compile_set_mode(QN_COMPILE_NO_FUSE);
    apply_to(&c, &x, 1, &y);
    assert_int_equal(count_nodes(&y, 1, QN_OP_FUSED), 0);
    qn_compile_set_mode(QN_COMPILE_ENABLED);
    qn_compile_forget(c.call.id);
}

/* exp is needed by the sum, which is needed by the quotient: one node would
 * wait for itself. */
static void softmax_run(qn_scope *c, qn_array *const *in, qn_array **out)
{
    int axis = 1;
    qn_array *e = unary(c, QN_OP_EXP, mul(c, in[0], in[1]));
    qn_array *s = reduce(c, QN_OP_SUM, e, &axis, 1, true);
    out[0] = unary(c, QN_OP_SQRT, divide(c, e, s));
}

static void test_groups_keep_the_order(void **state)
{
    (void)state;
    code f = {{call_of}, softmax_run, 1, NULL};
    compiled c;
    qn_array *in[] = {
        keep(array_of(QN_FLOAT32, VALUES(1, 2, 3, 4), SHAPE(2, 2))),
        LINE(QN_FLOAT32, 1, 1)};
    qn_array *y;
    compiled_of(&c, &f.base, false);
    apply_to(&c, in, 2, &y);
    assert_int_equal(count_nodes(&y, 1, QN_OP_FUSED), 2);
    assert_int_equal(count_nodes(&y, 1, -1), 3);
    double a = sqrt(1 / (1 + exp(1))), b = sqrt(1 / (1 + exp(-1)));
    check_near(y, 1e-6, a, b, a, b);
    qn_compile_forget(c.call.id);
}

/* Duplicates are computed once, what nobody needs not at all. */
static void wasteful_run(qn_scope *c, qn_array *const *in, qn_array **out)
{
    qn_array *a = matmul(c, in[0], in[0]), *b = matmul(c, in[0], in[0]);
    matmul(c, a, b);
    qn_array *one = scalar(c, 1, QN_FLOAT32), *other = scalar(c, 1, QN_FLOAT32);
    out[0] = sub(c, add(c, a, one), add(c, b, other));
    qn_array *same = NULL;
    if (!c->status)
        qn_scope_hold(c, qn_op_stop_gradient(&same, out[0], c->stream), &same);
    out[0] = same;
}

static void test_simplified(void **state)
{
    (void)state;
    code f = {{call_of}, wasteful_run, 1, NULL};
    compiled c;
    qn_array *x = keep(array_of(QN_FLOAT32, VALUES(1, 2, 3, 4), SHAPE(2, 2)));
    qn_array *y;
    compiled_of(&c, &f.base, false);
    apply_to(&c, &x, 1, &y);
    assert_int_equal(count_nodes(&y, 1, QN_OP_MATMUL), 1);
    assert_int_equal(count_nodes(&y, 1, -1), 2);
    check_values(y, 0, 0, 0, 0);
    qn_compile_set_mode(QN_COMPILE_NO_SIMPLIFY);
    apply_to(&c, &x, 1, &y);
    assert_int_equal(count_nodes(&y, 1, QN_OP_MATMUL), 2);
    check_values(y, 0, 0, 0, 0);
    qn_compile_set_mode(QN_COMPILE_ENABLED);
    qn_compile_forget(c.call.id);
}

/* An input that dies is written over, and read before that. */
static void two_run(qn_scope *c, qn_array *const *in, qn_array **out)
{
    out[0] = add(c, in[0], in[1]);
    out[1] = mul(c, out[0], in[0]);
}

static void test_outputs_over_inputs(void **state)
{
    (void)state;
    code f = {{call_of}, two_run, 2, NULL};
    compiled c;
    int shape = 5000;
    qn_array *in[2], *y[2];
    qn_arrays list;
    compiled_of(&c, &f.base, false);
    for (int i = 0; i < 2; i++)
        in[i] = array_of(QN_FLOAT32, NULL, &shape, 1);
    for (int k = 0; k < shape; k++) {
        ((float *)qn_array_data(in[0]))[k] = (float)k;
        ((float *)qn_array_data(in[1]))[k] = 1;
    }
    check_status(qn_compiled_call(&list, &c.call, in, 2), QN_OK);
    keep_list(&list, y);
    assert_int_equal(count_nodes(y, 2, -1), 1);
    const void *was = qn_array_data(in[0]);
    qn_array_unref(in[0]);
    qn_array_unref(in[1]);
    check_status(qn_eval(y, 2), QN_OK);
    assert_ptr_equal(qn_array_data(y[0]), was);
    for (int k = 0; k < shape; k++) {
        assert_true(item(y[0], (size_t)k) == k + 1);
        assert_true(item(y[1], (size_t)k) ==
                    (double)((float)k * (float)(k + 1)));
    }
    qn_compile_forget(c.call.id);
}

/* ---- traces ---- */

static void line_run(qn_scope *c, qn_array *const *in, qn_array **out)
{
    out[0] = add(c, mul(c, in[0], scalar(c, 2, QN_FLOAT32)),
                 scalar(c, 1, QN_FLOAT32));
}

static void test_one_trace_per_signature(void **state)
{
    (void)state;
    int calls = 0;
    code f = {{call_of}, line_run, 1, &calls};
    compiled c;
    qn_array *y;
    compiled_of(&c, &f.base, false);
    qn_array *three = LINE(QN_FLOAT32, 1, 2, 3), *two = LINE(QN_FLOAT32, 4, 5);
    qn_array *deep = keep(array_of(QN_FLOAT32, VALUES(1, 2, 3), SHAPE(1, 3)));
    qn_array *whole = LINE(QN_INT32, 1, 2, 3);
    qn_array *order[] = {three, two, three, deep, whole, two, deep};
    int traces[] = {1, 2, 2, 3, 4, 4, 4};
    for (int i = 0; i < 7; i++) {
        apply_to(&c, &order[i], 1, &y);
        assert_int_equal(calls, traces[i]);
        assert_int_equal(c.traces, traces[i]);
    }
    apply_to(&c, &three, 1, &y);
    check_values(y, 3, 5, 7);
    /* Other constants, another graph. */
    uint64_t constants[] = {1, 2};
    c.call.constants = constants;
    c.call.nconstants = 2;
    apply_to(&c, &three, 1, &y);
    apply_to(&c, &three, 1, &y);
    assert_int_equal(calls, 5);
    constants[1] = 3;
    apply_to(&c, &three, 1, &y);
    assert_int_equal(calls, 6);
    /* Another default stream, another graph. */
    qn_stream *before = S, *stream;
    check_status(qn_stream_new(&stream, (qn_device){QN_DEVICE_CPU, 0}), QN_OK);
    qn_stream_set_default(stream);
    apply_to(&c, &three, 1, &y);
    assert_int_equal(calls, 7);
    qn_stream_set_default(before);
    qn_compile_forget(c.call.id);
    apply_to(&c, &three, 1, &y);
    assert_int_equal(calls, 8);
    qn_compile_forget(c.call.id);
}

static void test_shapeless(void **state)
{
    (void)state;
    int calls = 0;
    code f = {{call_of}, line_run, 1, &calls};
    compiled c;
    qn_array *y;
    compiled_of(&c, &f.base, true);
    qn_array *three = LINE(QN_FLOAT32, 1, 2, 3),
             *five = LINE(QN_FLOAT32, 1, 2, 3, 4, 5);
    apply_to(&c, &three, 1, &y);
    check_values(y, 3, 5, 7);
    apply_to(&c, &three, 1, &y);
    apply_to(&c, &five, 1, &y);
    assert_int_equal(count_nodes(&y, 1, QN_OP_FUSED), 1);
    check_values(y, 3, 5, 7, 9, 11);
    assert_int_equal(calls, 1);
    qn_array *deep = keep(array_of(QN_FLOAT32, VALUES(1, 2, 3), SHAPE(1, 3)));
    apply_to(&c, &deep, 1, &y);
    assert_int_equal(calls, 2);
    qn_compile_forget(c.call.id);
}

/* Regular operations, at other sizes than the first. */
static void check_shapeless(const program *p)
{
    program_function f = function_of(p);
    qn_array *in[PROGRAM_INPUTS], *wanted[PROGRAM_OUTPUTS];
    qn_array *found[PROGRAM_OUTPUTS];
    /* The program around a scan has a slice in it. */
    qn_op_family family = qn_op_info_of(p->op)->family;
    bool regular = !strcmp(p->name, qn_op_info_of(p->op)->name) &&
                   family != QN_FAMILY_PRIM && family != QN_FAMILY_SCAN;
    compiled c;
    running = p;
    compiled_of(&c, &f.base, true);
    for (int round = 0; round < 3; round++) {
        qn_arrays list;
        for (int i = 0; i < p->ninputs; i++) {
            int shape[5];
            memcpy(shape, p->in[i].shape, sizeof shape);
            if (regular)
                for (int k = 0; k < p->in[i].ndim; k++)
                    shape[k] += round;
            in[i] = program_values(&p->in[i], 100 + (uint64_t)i, shape,
                                   p->in[i].ndim);
        }
        qn_status status = f.base.call(&f.base, &list, in, (size_t)p->ninputs);
        check_status(status, QN_OK);
        keep_list(&list, wanted);
        status = qn_compiled_call(&list, &c.call, in, (size_t)p->ninputs);
        if (status == QN_E_UNSUPPORTED && !regular) {
            /* It said which operation has no shape to infer. */
            assert_true(qn_error_text()[0] == '[');
            break;
        }
        check_status(status, QN_OK);
        keep_list(&list, found);
        for (int i = 0; i < p->noutputs; i++)
            compare("shapeless", i, wanted[i], found[i]);
        assert_int_equal(c.traces, 1);
    }
    qn_compile_forget(c.call.id);
}

static void test_shapeless_programs(void **state)
{
    (void)state;
    each_program(check_shapeless);
}

static void mean_run(qn_scope *c, qn_array *const *in, qn_array **out)
{
    qn_array *made = NULL;
    int axis = -1;
    if (!c->status)
        out[0] = qn_scope_hold(
            c, qn_op_mean(&made, in[0], &axis, 1, false, c->stream), &made);
    if (!c->status)
        out[1] =
            qn_scope_hold(c, qn_op_zeros_like(&made, in[0], c->stream), &made);
    if (!c->status)
        out[2] = qn_scope_hold(
            c, qn_op_var(&made, in[0], &axis, 1, true, 1, c->stream), &made);
    out[3] = flatten(c, expand(c, in[0], 0));
}

/* What is counted or shaped by an input follows it. */
static void test_sizes_are_not_frozen(void **state)
{
    (void)state;
    code f = {{call_of}, mean_run, 4, NULL};
    compiled c;
    qn_array *y[4];
    compiled_of(&c, &f.base, true);
    qn_array *two = LINE(QN_FLOAT64, 1, 3),
             *four = LINE(QN_FLOAT64, 1, 2, 3, 6);
    apply_to(&c, &two, 1, y);
    check_values(y[0], 2);
    check_values(y[1], 0, 0);
    check_values(y[2], 2);
    check_values(y[3], 1, 3);
    apply_to(&c, &four, 1, y);
    check_values(y[0], 3);
    check_values(y[1], 0, 0, 0, 0);
    check_near(y[2], 1e-12, 14.0 / 3);
    check_values(y[3], 1, 2, 3, 6);
    assert_int_equal(c.traces, 1);
    qn_compile_forget(c.call.id);
}

static void frozen_run(qn_scope *c, qn_array *const *in, qn_array **out)
{
    float two[] = {10, 20};
    int shape = 2;
    qn_array *made = NULL;
    qn_scope_hold(c, qn_array_from_data(&made, two, &shape, 1, QN_FLOAT32),
                  &made);
    out[0] = add(c, in[0], made);
}

static void slice_run(qn_scope *c, qn_array *const *in, qn_array **out)
{
    out[0] = c->status ? NULL : slice_axis(c, in[0], 0, 0, 1);
}

static void test_shapeless_refused(void **state)
{
    (void)state;
    code f = {{call_of}, frozen_run, 1, NULL};
    compiled c;
    qn_array *y;
    qn_arrays list;
    compiled_of(&c, &f.base, true);
    qn_array *two = LINE(QN_FLOAT32, 1, 3), *three = LINE(QN_FLOAT32, 1, 2, 3);
    apply_to(&c, &two, 1, &y);
    check_values(y, 11, 23);
    check_error(qn_compiled_call(&list, &c.call, &three, 1), QN_E_ARG,
                "[add] Shapes (3) and (2)");
    qn_compile_forget(c.call.id);

    code g = {{call_of}, slice_run, 1, NULL};
    compiled_of(&c, &g.base, true);
    for (int i = 0; i < 2; i++)
        check_error(qn_compiled_call(&list, &c.call, &three, 1),
                    QN_E_UNSUPPORTED, "[slice]");
    /* No entry was kept. */
    assert_int_equal(c.traces, 2);
    assert_false(qn_record_shapeless());
}

/* ---- what is recorded ---- */

static qn_array *captured;

static void capture_run(qn_scope *c, qn_array *const *in, qn_array **out)
{
    out[0] = add(c, in[0], captured);
}

static void test_captured_arrays_stay(void **state)
{
    (void)state;
    code f = {{call_of}, capture_run, 1, NULL};
    compiled c;
    qn_array *x = LINE(QN_FLOAT32, 1, 2), *y;
    compiled_of(&c, &f.base, false);
    captured = array_of(QN_FLOAT32, VALUES(10, 20), SHAPE(2));
    apply_to(&c, &x, 1, &y);
    check_values(y, 11, 22);
    qn_array_unref(captured);
    captured = array_of(QN_FLOAT32, VALUES(100, 200), SHAPE(2));
    apply_to(&c, &x, 1, &y);
    check_values(y, 11, 22);
    qn_array_unref(captured);
    /* A pending one is computed once. */
    qn_array *half = scalar_array(QN_FLOAT32, 0.5);
    check_status(qn_op_binary(&captured, QN_OP_ADD, half, half, S), QN_OK);
    compiled_of(&c, &f.base, false);
    apply_to(&c, &x, 1, &y);
    check_values(y, 2, 3);
    assert_true(qn_array_ready(captured));
    apply_to(&c, &x, 1, &y);
    check_values(y, 2, 3);
    qn_array_unref(captured);
    qn_compile_forget(c.call.id);
}

static bool broken;

static void failing_run(qn_scope *c, qn_array *const *in, qn_array **out)
{
    out[0] = in[0];
    if (broken)
        qn_scope_fail(c, qn_fail(QN_E_CANCELLED, "not today"));
}

static void looking_run(qn_scope *c, qn_array *const *in, qn_array **out)
{
    out[0] = add(c, in[0], in[0]);
    if (!c->status)
        qn_scope_fail(c, qn_eval(out, 1));
}

static void test_failing_traces(void **state)
{
    (void)state;
    code f = {{call_of}, failing_run, 1, NULL};
    compiled c;
    qn_array *x = LINE(QN_FLOAT32, 1, 2), *y;
    qn_arrays list;
    compiled_of(&c, &f.base, false);
    broken = true;
    check_error(qn_compiled_call(&list, &c.call, &x, 1), QN_E_CANCELLED,
                "not today");
    assert_false(qn_record_listening());
    broken = false;
    apply_to(&c, &x, 1, &y);
    check_values(y, 1, 2);
    assert_int_equal(c.traces, 2);
    qn_compile_forget(c.call.id);

    code g = {{call_of}, looking_run, 1, NULL};
    compiled_of(&c, &g.base, false);
    check_error(qn_compiled_call(&list, &c.call, &x, 1), QN_E_ARG, "[eval]");
    qn_compile_forget(c.call.id);
}

/* ---- threads ---- */

static compiled shared;

static void *other_thread(void *arg)
{
    qn_array *x = array_of(QN_FLOAT32, VALUES(1, 2, 3), SHAPE(3));
    qn_compile_cache **out = arg;
    for (int i = 0; i < 20; i++) {
        qn_arrays list;
        check_status(qn_compiled_call(&list, &shared.call, &x, 1), QN_OK);
        check_status(qn_eval(list.data, 1), QN_OK);
        assert_true(item(list.data[0], 2) == 7);
        qn_arrays_free(&list);
    }
    check_status(qn_compile_cache_here(out), QN_OK);
    qn_array_unref(x);
    return NULL;
}

static void test_each_thread_has_its_cache(void **state)
{
    (void)state;
    code f = {{call_of}, line_run, 1, NULL};
    pthread_t threads[4];
    qn_compile_cache *caches[4];
    compiled_of(&shared, &f.base, false);
    for (int i = 0; i < 4; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, other_thread, &caches[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(shared.traces, 4);
    for (int i = 0; i < 4; i++) {
        /* Their threads are gone: nothing happens. */
        qn_compile_cache_erase(caches[i], shared.call.id);
        qn_compile_cache_clear(caches[i]);
        qn_compile_cache_unref(caches[i]);
    }
    /* This thread's can be erased by any. */
    qn_array *x = LINE(QN_FLOAT32, 1, 2, 3), *y;
    qn_compile_cache *own;
    apply_to(&shared, &x, 1, &y);
    apply_to(&shared, &x, 1, &y);
    assert_int_equal(shared.traces, 5);
    check_status(qn_compile_cache_here(&own), QN_OK);
    qn_compile_cache_erase(own, shared.call.id + 2);
    apply_to(&shared, &x, 1, &y);
    assert_int_equal(shared.traces, 5);
    qn_compile_cache_erase(own, shared.call.id);
    apply_to(&shared, &x, 1, &y);
    assert_int_equal(shared.traces, 6);
    qn_compile_cache_clear(own);
    apply_to(&shared, &x, 1, &y);
    assert_int_equal(shared.traces, 7);
    qn_compile_cache_unref(own);
    qn_compile_forget(shared.call.id);
}

/* ---- memory ---- */

static qn_status scenario(bool shapeless)
{
    const program *p = &program_table[PROGRAMS_LISTED - 3]; /* the chain */
    program_function f = function_of(p);
    compiled c;
    qn_array *in[2];
    double values[6] = {1, 2, 3, 4, 5, 6};
    int shape[] = {2, 3}, line = 3;
    qn_status status = qn_array_from_data(&in[0], values, shape, 2, QN_FLOAT64);
    if (status)
        return status;
    compiled_of(&c, &f.base, shapeless);
    status = qn_array_from_data(&in[1], values, &line, 1, QN_FLOAT64);
    if (!status) {
        for (int i = 0; i < 2 && !status; i++) {
            qn_arrays list;
            status = qn_compiled_call(&list, &c.call, in, 2);
            if (status)
                break;
            status = qn_eval(list.data, list.count);
            qn_arrays_free(&list);
        }
        qn_array_unref(in[1]);
    }
    qn_array_unref(in[0]);
    qn_compile_forget(c.call.id);
    return status;
}

static qn_status scenario_shaped(void)
{
    return scenario(false);
}

static qn_status scenario_shapeless(void)
{
    return scenario(true);
}

static void test_memory_may_run_out(void **state)
{
    (void)state;
    each_alloc_may_fail(scenario_shaped);
    each_alloc_may_fail(scenario_shapeless);
}

static int use_cpu(void **state)
{
    (void)state;
    qn_backend_register(QN_DEVICE_CPU, qn_backend_cpu());
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUILD_TEST(test_programs_in_all_modes),
        BUILD_TEST(test_gradients),
        BUILD_TEST(test_random_programs),
        BUILD_TEST(test_a_chain_becomes_one_node),
        BUILD_TEST(test_groups_keep_the_order),
        BUILD_TEST(test_simplified),
        BUILD_TEST(test_outputs_over_inputs),
        BUILD_TEST(test_one_trace_per_signature),
        BUILD_TEST(test_shapeless),
        BUILD_TEST(test_shapeless_programs),
        BUILD_TEST(test_sizes_are_not_frozen),
        BUILD_TEST(test_shapeless_refused),
        BUILD_TEST(test_captured_arrays_stay),
        BUILD_TEST(test_failing_traces),
        BUILD_TEST(test_each_thread_has_its_cache),
        BUILD_TEST(test_memory_may_run_out),
    };
    int failed = run_build_tests(tests);
    return failed ? failed : cmocka_run_group_tests(tests, use_cpu, NULL);
}
