/* Transformations through the C API: functions with rules of their own,
 * checkpoints, batches, errors of callbacks, ownership. */
#include "capi.h"

#include "mlx/c/mlx.h"
#include "quern/ext.h"

#include <math.h>

static mlx_stream cpu;

static int setup(void **state)
{
    capi_setup(state);
    cpu = mlx_default_cpu_stream_new();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    mlx_stream_free(cpu);
    return 0;
}

/* ---- small things ---- */

static mlx_array line(int n, const float *values)
{
    return mlx_array_new_data(values, &n, 1, MLX_FLOAT32);
}

static mlx_vector_array list1(mlx_array a)
{
    mlx_vector_array list = mlx_vector_array_new();
    check_ok(mlx_vector_array_append_value(list, a));
    return list;
}

static mlx_vector_array list2(mlx_array a, mlx_array b)
{
    mlx_vector_array list = list1(a);
    check_ok(mlx_vector_array_append_value(list, b));
    return list;
}

static mlx_array at(mlx_vector_array list, size_t i)
{
    mlx_array x = mlx_array_new();
    check_ok(mlx_vector_array_get(&x, list, i));
    return x;
}

#define check_floats(list, i, ...)                                             \
    check_floats_at(list, i, (const float[]){__VA_ARGS__},                     \
                    sizeof(float[]){__VA_ARGS__} / sizeof(float))

static void check_floats_at(mlx_vector_array list, size_t i,
                            const float *wanted, size_t n)
{
    mlx_array x = at(list, i);
    check_ok(mlx_array_eval(x));
    assert_int_equal(mlx_array_size(x), n);
    const float *found = mlx_array_data_float32(x);
    for (size_t k = 0; k < n; k++)
        if (!(fabsf(found[k] - wanted[k]) <= 1e-5f * (1 + fabsf(wanted[k])))) {
            print_error("element %zu: expected %g, found %g\n", k,
                        (double)wanted[k], (double)found[k]);
            fail();
        }
    mlx_array_free(x);
}

/* A function with one input and one output, and how often it was called. */
typedef struct unary {
    int (*op)(mlx_array *, const mlx_array, const mlx_stream);
    int calls, destroyed;
} unary;

static int unary_call(mlx_vector_array *res, const mlx_vector_array in,
                      void *payload)
{
    unary *u = payload;
    mlx_array x = mlx_array_new(), y = mlx_array_new();
    u->calls++;
    int rc = mlx_vector_array_get(&x, in, 0);
    rc = rc || u->op(&y, x, cpu);
    rc = rc || mlx_vector_array_set_value(res, y);
    mlx_array_free(x);
    mlx_array_free(y);
    return rc;
}

static void unary_destroy(void *payload)
{
    ((unary *)payload)->destroyed++;
}

static mlx_closure closure_of(unary *u)
{
    return mlx_closure_new_func_payload(unary_call, u, unary_destroy);
}

/* ---- rules ---- */

static int ten_times(mlx_vector_array *res, const mlx_vector_array primals,
                     const mlx_vector_array cotangents,
                     const mlx_vector_array outputs, void *payload)
{
    (void)primals;
    (void)outputs;
    int *calls = payload;
    mlx_array c = at(cotangents, 0), ten = mlx_array_new_float(10),
              g = mlx_array_new();
    if (calls)
        ++*calls;
    int rc = mlx_multiply(&g, c, ten, cpu);
    rc = rc || mlx_vector_array_set_value(res, g);
    mlx_array_free(c);
    mlx_array_free(ten);
    mlx_array_free(g);
    return rc;
}

static void test_a_wrong_rule_is_used(void **state)
{
    (void)state;
    unary u = {mlx_square, 0, 0};
    int calls = 0;
    mlx_closure fun = closure_of(&u), custom = mlx_closure_new();
    mlx_closure_custom rule =
        mlx_closure_custom_new_func_payload(ten_times, &calls, NULL);
    check_ok(mlx_custom_vjp(&custom, fun, rule));
    mlx_closure_custom_free(rule);
    mlx_closure_free(fun);
    mlx_array x = line(2, (float[]){3, 4});
    mlx_vector_array in = list1(x), outs = mlx_vector_array_new(),
                     grads = mlx_vector_array_new();
    check_ok(mlx_closure_apply(&outs, custom, in));
    check_floats(outs, 0, 9, 16);
    assert_int_equal(calls, 0);
    check_ok(mlx_vjp(&outs, &grads, custom, in, in));
    check_floats(outs, 0, 9, 16);
    check_floats(grads, 0, 30, 40);
    assert_int_equal(calls, 1);
    /* Forwards there is no rule: the function's own graph. */
    check_ok(mlx_jvp(&outs, &grads, custom, in, in));
    check_floats(grads, 0, 18, 32);
    assert_int_equal(u.destroyed, 0);
    mlx_closure_free(custom);
    assert_int_equal(u.destroyed, 1);
    mlx_array_free(x);
    mlx_vector_array_free(in);
    mlx_vector_array_free(outs);
    mlx_vector_array_free(grads);
}

/* Operations without a gradient may be inside. */
static int packed(mlx_array *res, const mlx_array x, const mlx_stream s)
{
    mlx_vector_array parts = mlx_vector_array_new();
    mlx_optional_int none = {0, false};
    int rc = mlx_quantize(&parts, x, none, none, "affine", mlx_array_empty, s);
    mlx_array w = at(parts, 0), scales = at(parts, 1), biases = at(parts, 2);
    mlx_optional_dtype no_type = {MLX_FLOAT32, false};
    rc = rc || mlx_dequantize(res, w, scales, biases, none, none, "affine",
                              mlx_array_empty, no_type, s);
    mlx_array_free(w);
    mlx_array_free(scales);
    mlx_array_free(biases);
    mlx_vector_array_free(parts);
    return rc;
}

static void test_a_rule_hides_what_has_no_gradient(void **state)
{
    (void)state;
    unary u = {packed, 0, 0};
    mlx_closure fun = closure_of(&u), custom = mlx_closure_new();
    mlx_closure_custom rule =
        mlx_closure_custom_new_func_payload(ten_times, NULL, NULL);
    float values[64] = {1, 2, 3};
    int shape[] = {1, 64};
    mlx_array x = mlx_array_new_data(values, shape, 2, MLX_FLOAT32);
    mlx_vector_array in = list1(x), outs = mlx_vector_array_new(),
                     grads = mlx_vector_array_new();
    check_fails(mlx_vjp(&outs, &grads, fun, in, in), "[quantize]");
    check_ok(mlx_custom_vjp(&custom, fun, rule));
    check_ok(mlx_vjp(&outs, &grads, custom, in, in));
    mlx_array g = at(grads, 0);
    check_ok(mlx_array_eval(g));
    assert_true(mlx_array_data_float32(g)[2] == 30);
    mlx_array_free(g);
    mlx_closure_custom_free(rule);
    mlx_closure_free(fun);
    mlx_closure_free(custom);
    mlx_array_free(x);
    mlx_vector_array_free(in);
    mlx_vector_array_free(outs);
    mlx_vector_array_free(grads);
}

/* Two outputs, x + x and x * x. */
static int both(mlx_vector_array *res, const mlx_vector_array in)
{
    mlx_array x = at(in, 0), a = mlx_array_new(), b = mlx_array_new();
    int rc = mlx_add(&a, x, x, cpu) || mlx_multiply(&b, x, x, cpu);
    rc = rc || mlx_vector_array_set_data(res, (mlx_array[]){a, b}, 2);
    mlx_array_free(x);
    mlx_array_free(a);
    mlx_array_free(b);
    return rc;
}

/* The sum of both cotangents, and what the unused one was. */
static int sum_of_both(mlx_vector_array *res, const mlx_vector_array primals,
                       const mlx_vector_array cotangents,
                       const mlx_vector_array outputs, void *payload)
{
    (void)primals;
    float *unused = payload;
    mlx_array a = at(cotangents, 0), b = at(cotangents, 1), o = at(outputs, 1);
    mlx_array g = mlx_array_new();
    assert_int_equal(mlx_vector_array_size(outputs), 2);
    assert_int_equal(mlx_array_size(b), mlx_array_size(o));
    int rc = mlx_array_eval(b);
    *unused = mlx_array_data_float32(b)[0];
    rc = rc || mlx_add(&g, a, b, cpu) || mlx_vector_array_set_value(res, g);
    mlx_array_free(a);
    mlx_array_free(b);
    mlx_array_free(o);
    mlx_array_free(g);
    return rc;
}

static mlx_closure inner_custom;

/* The sum of the first output of the custom function. */
static int first_summed(mlx_vector_array *res, const mlx_vector_array in)
{
    mlx_vector_array outs = mlx_vector_array_new();
    mlx_array y = mlx_array_new();
    int rc = mlx_closure_apply(&outs, inner_custom, in);
    mlx_array first = rc ? mlx_array_new() : at(outs, 0);
    rc = rc || mlx_sum(&y, first, false, cpu);
    rc = rc || mlx_vector_array_set_value(res, y);
    mlx_array_free(first);
    mlx_array_free(y);
    mlx_vector_array_free(outs);
    return rc;
}

static void test_an_unused_output_has_zeros(void **state)
{
    (void)state;
    float unused = 5;
    mlx_closure fun = mlx_closure_new_func(both);
    mlx_closure_custom rule =
        mlx_closure_custom_new_func_payload(sum_of_both, &unused, NULL);
    inner_custom = mlx_closure_new();
    check_ok(mlx_custom_vjp(&inner_custom, fun, rule));
    mlx_closure outer = mlx_closure_new_func(first_summed);
    mlx_closure_value_and_grad vg = mlx_closure_value_and_grad_new();
    int arg = 0;
    check_ok(mlx_value_and_grad(&vg, outer, &arg, 1));
    mlx_array x = line(2, (float[]){3, 4});
    mlx_vector_array in = list1(x), value = mlx_vector_array_new(),
                     grads = mlx_vector_array_new();
    check_ok(mlx_closure_value_and_grad_apply(&value, &grads, vg, in));
    check_floats(value, 0, 14);
    check_floats(grads, 0, 1, 1);
    assert_true(unused == 0);
    mlx_array_free(x);
    mlx_vector_array_free(in);
    mlx_vector_array_free(value);
    mlx_vector_array_free(grads);
    mlx_closure_value_and_grad_free(vg);
    mlx_closure_free(outer);
    mlx_closure_free(inner_custom);
    mlx_closure_custom_free(rule);
    mlx_closure_free(fun);
}

static int wrong_count(mlx_vector_array *res, const mlx_vector_array primals,
                       const mlx_vector_array cotangents,
                       const mlx_vector_array outputs)
{
    (void)primals;
    (void)outputs;
    mlx_array c = at(cotangents, 0);
    int rc = mlx_vector_array_set_data(res, (mlx_array[]){c, c}, 2);
    mlx_array_free(c);
    return rc;
}

static int wrong_shape(mlx_vector_array *res, const mlx_vector_array primals,
                       const mlx_vector_array cotangents,
                       const mlx_vector_array outputs)
{
    (void)primals;
    (void)cotangents;
    (void)outputs;
    mlx_array c = mlx_array_new_float(1);
    int rc = mlx_vector_array_set_value(res, c);
    mlx_array_free(c);
    return rc;
}

static void test_gradients_of_rules_are_checked(void **state)
{
    (void)state;
    unary u = {mlx_square, 0, 0};
    mlx_closure fun = closure_of(&u), custom = mlx_closure_new();
    mlx_closure_custom rule = mlx_closure_custom_new_func(wrong_count);
    mlx_array x = line(2, (float[]){3, 4});
    mlx_vector_array in = list1(x), outs = mlx_vector_array_new(),
                     grads = mlx_vector_array_new();
    check_ok(mlx_custom_vjp(&custom, fun, rule));
    check_fails(mlx_vjp(&outs, &grads, custom, in, in),
                "Expected 1 gradients, one for each primal, found 2");
    mlx_closure_custom_free(rule);
    rule = mlx_closure_custom_new_func(wrong_shape);
    check_ok(mlx_custom_vjp(&custom, fun, rule));
    check_fails(mlx_vjp(&outs, &grads, custom, in, in),
                "Gradient 0 must be like its primal, float32 of shape (2), "
                "found float32 of shape ()");
    assert_int_equal(mlx_vector_array_size(outs), 0);
    mlx_closure_custom_free(rule);
    mlx_closure_free(fun);
    mlx_closure_free(custom);
    mlx_array_free(x);
    mlx_vector_array_free(in);
    mlx_vector_array_free(outs);
    mlx_vector_array_free(grads);
}

/* tangent * 7, of the argument that it says. */
static int seven(mlx_vector_array *res, const mlx_vector_array primals,
                 const mlx_vector_array tangents, const int *argnums, size_t n)
{
    assert_int_equal(mlx_vector_array_size(primals), 1);
    assert_int_equal(n, 1);
    assert_int_equal(argnums[0], 0);
    mlx_array t = at(tangents, 0), s = mlx_array_new_float(7),
              y = mlx_array_new();
    int rc = mlx_multiply(&y, t, s, cpu) || mlx_vector_array_set_value(res, y);
    mlx_array_free(t);
    mlx_array_free(s);
    mlx_array_free(y);
    return rc;
}

/* The batch plus 100, with its axis at the end. */
static int hundred(mlx_vector_array *res, mlx_vector_int *axes,
                   const mlx_vector_array in, const int *in_axes, size_t n)
{
    assert_int_equal(n, 1);
    assert_int_equal(in_axes[0], 0);
    mlx_array x = at(in, 0), h = mlx_array_new_float(100), y = mlx_array_new(),
              t = mlx_array_new();
    int rc = mlx_add(&y, x, h, cpu) || mlx_transpose(&t, y, cpu) ||
             mlx_vector_array_set_value(res, t) ||
             mlx_vector_int_set_value(axes, 1);
    mlx_array_free(x);
    mlx_array_free(h);
    mlx_array_free(y);
    mlx_array_free(t);
    return rc;
}

static void vmapped(mlx_vector_array *res, mlx_closure fun, mlx_array x)
{
    mlx_vector_array in = list1(x), given = mlx_vector_array_new(),
                     traced = mlx_vector_array_new();
    int axis = 0;
    check_ok(mlx_detail_vmap_trace(&given, &traced, fun, in, &axis, 1));
    check_ok(
        mlx_detail_vmap_replace(res, in, given, traced, &axis, 1, &axis, 1));
    mlx_vector_array_free(in);
    mlx_vector_array_free(given);
    mlx_vector_array_free(traced);
}

static void test_rules_forward_and_for_batches(void **state)
{
    (void)state;
    unary u = {mlx_square, 0, 0};
    mlx_closure fun = closure_of(&u), custom = mlx_closure_new();
    mlx_closure_custom none = {NULL};
    mlx_closure_custom_jvp jvp = mlx_closure_custom_jvp_new_func(seven);
    mlx_closure_custom_vmap vmap = mlx_closure_custom_vmap_new_func(hundred);
    check_ok(mlx_custom_function(&custom, fun, none, jvp, vmap));
    mlx_array x = line(2, (float[]){3, 4});
    mlx_vector_array in = list1(x), outs = mlx_vector_array_new(),
                     res = mlx_vector_array_new();
    check_ok(mlx_jvp(&outs, &res, custom, in, in));
    check_floats(outs, 0, 9, 16);
    check_floats(res, 0, 21, 28);
    /* Backwards the function's own graph. */
    check_ok(mlx_vjp(&outs, &res, custom, in, in));
    check_floats(res, 0, 18, 32);
    int shape[] = {2, 3};
    mlx_array m =
        mlx_array_new_data((float[]){1, 2, 3, 4, 5, 6}, shape, 2, MLX_FLOAT32);
    vmapped(&res, custom, m);
    check_floats(res, 0, 101, 102, 103, 104, 105, 106);
    /* Without any rule it is the function itself. */
    check_ok(mlx_custom_function(&custom, fun, none,
                                 (mlx_closure_custom_jvp){NULL},
                                 (mlx_closure_custom_vmap){NULL}));
    vmapped(&res, custom, m);
    check_floats(res, 0, 1, 4, 9, 16, 25, 36);
    check_ok(mlx_vjp(&outs, &res, custom, in, in));
    check_floats(res, 0, 18, 32);
    check_ok(mlx_jvp(&outs, &res, custom, in, in));
    check_floats(res, 0, 18, 32);
    mlx_array_free(m);
    mlx_array_free(x);
    mlx_vector_array_free(in);
    mlx_vector_array_free(outs);
    mlx_vector_array_free(res);
    mlx_closure_custom_jvp_free(jvp);
    mlx_closure_custom_vmap_free(vmap);
    mlx_closure_free(fun);
    mlx_closure_free(custom);
}

/* ---- checkpoints ---- */

typedef struct layer {
    mlx_array weight; /* captured */
    int calls;
} layer;

/* tanh(x * w) * x */
static int layer_call(mlx_vector_array *res, const mlx_vector_array in,
                      void *payload)
{
    layer *l = payload;
    mlx_array x = at(in, 0), a = mlx_array_new(), b = mlx_array_new(),
              y = mlx_array_new();
    l->calls++;
    int rc = mlx_multiply(&a, x, l->weight, cpu) || mlx_tanh(&b, a, cpu) ||
             mlx_multiply(&y, b, x, cpu) || mlx_vector_array_set_value(res, y);
    mlx_array_free(x);
    mlx_array_free(a);
    mlx_array_free(b);
    mlx_array_free(y);
    return rc;
}

/* A chain of layers with one weight, summed; checkpointed or not. */
typedef struct chain {
    int layers;
    bool checkpointed;
    layer l;
} chain;

static int chain_call(mlx_vector_array *res, const mlx_vector_array in,
                      void *payload)
{
    chain *c = payload;
    mlx_closure fun = mlx_closure_new_func_payload(layer_call, &c->l, NULL);
    /* Lives as long as the closure may be called: until the walk is over. */
    c->l.weight = at(in, 1);
    int rc = c->checkpointed ? mlx_checkpoint(&fun, fun) : 0;
    mlx_array x = at(in, 0), y = mlx_array_new();
    for (int i = 0; i < c->layers && !rc; i++) {
        mlx_vector_array one = list1(x), out = mlx_vector_array_new();
        rc = mlx_closure_apply(&out, fun, one) ||
             mlx_vector_array_get(&x, out, 0);
        mlx_vector_array_free(one);
        mlx_vector_array_free(out);
    }
    rc = rc || mlx_sum(&y, x, false, cpu) || mlx_vector_array_set_value(res, y);
    mlx_array_free(x);
    mlx_array_free(y);
    mlx_closure_free(fun);
    return rc;
}

/* Value and gradients by x and, if `count` is 2, the captured weight. */
static void chain_gradients(chain *c, size_t count, mlx_array x, mlx_array w,
                            mlx_vector_array *value, mlx_vector_array *grads)
{
    mlx_closure fun = mlx_closure_new_func_payload(chain_call, c, NULL);
    mlx_closure_value_and_grad vg = mlx_closure_value_and_grad_new();
    check_ok(mlx_value_and_grad(&vg, fun, (int[]){0, 1}, count));
    mlx_vector_array in = list2(x, w);
    check_ok(mlx_closure_value_and_grad_apply(value, grads, vg, in));
    mlx_array_free(c->l.weight);
    mlx_vector_array_free(in);
    mlx_closure_value_and_grad_free(vg);
    mlx_closure_free(fun);
}

static void test_checkpoints_change_no_gradient(void **state)
{
    (void)state;
    chain plain = {.layers = 3}, saved = {.layers = 3, .checkpointed = true};
    mlx_array x = line(3, (float[]){0.5f, -1, 2}),
              w = mlx_array_new_float(0.7f);
    mlx_vector_array v[2], g[2];
    for (int i = 0; i < 2; i++) {
        v[i] = mlx_vector_array_new();
        g[i] = mlx_vector_array_new();
        chain_gradients(i ? &saved : &plain, 2, x, w, &v[i], &g[i]);
    }
    assert_int_equal(plain.l.calls, 3);
    assert_int_equal(saved.l.calls, 6);
    for (size_t i = 0; i < 3; i++) {
        mlx_array a = at(i ? g[0] : v[0], i ? i - 1 : 0);
        mlx_array b = at(i ? g[1] : v[1], i ? i - 1 : 0);
        check_ok(mlx_array_eval(a));
        check_ok(mlx_array_eval(b));
        assert_int_equal(mlx_array_size(a), mlx_array_size(b));
        assert_memory_equal(mlx_array_data_float32(a),
                            mlx_array_data_float32(b), mlx_array_nbytes(a));
        /* The captured weight's gradient is there. */
        assert_true(mlx_array_data_float32(b)[0] != 0);
        mlx_array_free(a);
        mlx_array_free(b);
    }
    for (int i = 0; i < 2; i++) {
        mlx_vector_array_free(v[i]);
        mlx_vector_array_free(g[i]);
    }
    mlx_array_free(x);
    mlx_array_free(w);
}

static size_t peak_of(bool checkpointed)
{
    chain c = {.layers = 32, .checkpointed = checkpointed};
    int shape = 1 << 16;
    mlx_array x = mlx_array_new(), w = mlx_array_new_float(0.7f);
    size_t peak;
    check_ok(mlx_ones(&x, &shape, 1, MLX_FLOAT32, cpu));
    check_ok(mlx_array_eval(x));
    mlx_vector_array v = mlx_vector_array_new(), g = mlx_vector_array_new();
    chain_gradients(&c, 1, x, w, &v, &g);
    check_ok(mlx_reset_peak_memory());
    check_ok(mlx_eval(g));
    check_ok(mlx_get_peak_memory(&peak));
    mlx_vector_array_free(v);
    mlx_vector_array_free(g);
    mlx_array_free(x);
    mlx_array_free(w);
    return peak;
}

static void test_checkpoints_save_memory(void **state)
{
    (void)state;
    size_t kept = peak_of(false), saved = peak_of(true);
    if (saved * 2 >= kept)
        print_error("%zu bytes with checkpoints, %zu without\n", saved, kept);
    assert_true(saved * 2 < kept);
}

static int nothing(mlx_vector_array *res, const mlx_vector_array in)
{
    (void)in;
    mlx_vector_array empty = mlx_vector_array_new();
    int rc = mlx_vector_array_set(res, empty);
    mlx_vector_array_free(empty);
    return rc;
}

static int checkpointed_nothing(mlx_vector_array *res,
                                const mlx_vector_array in)
{
    mlx_closure fun = mlx_closure_new_func(nothing);
    int rc = mlx_checkpoint(&fun, fun) || mlx_closure_apply(res, fun, in);
    mlx_closure_free(fun);
    return rc;
}

static int refuses(mlx_vector_array *res, const mlx_vector_array in)
{
    (void)res;
    (void)in;
    mlx_error("the callback says %s", "no");
    return 1;
}

static void test_refused(void **state)
{
    (void)state;
    mlx_array x = mlx_array_new_float(2);
    mlx_vector_array in = list1(x), outs = mlx_vector_array_new(),
                     grads = mlx_vector_array_new();
    mlx_closure none = mlx_closure_new(), res = mlx_closure_new();
    mlx_closure_value_and_grad vg = mlx_closure_value_and_grad_new();
    int arg = 0;
    check_fails(mlx_vjp(&outs, &grads, none, in, in),
                "expected a non-empty mlx_closure");
    check_fails(mlx_checkpoint(&res, none), "expected a non-empty mlx_closure");
    check_fails(mlx_compile(&res, none, false),
                "expected a non-empty mlx_closure");
    mlx_closure fun = mlx_closure_new_func(checkpointed_nothing);
    check_fails(mlx_value_and_grad(&vg, fun, NULL, 0), "at least one");
    check_ok(mlx_value_and_grad(&vg, fun, &arg, 1));
    heard.count = 0;
    assert_int_equal(mlx_closure_value_and_grad_apply(&outs, &grads, vg, in),
                     1);
    assert_non_null(strstr(heard.text, "[checkpoint]"));
    mlx_closure_free(fun);

    /* The callback's own words are what is reported. */
    fun = mlx_closure_new_func(refuses);
    for (int i = 0; i < 3; i++) {
        heard.count = 0;
        int rc = i == 0   ? mlx_vjp(&outs, &grads, fun, in, in)
                 : i == 1 ? mlx_closure_apply(&outs, fun, in)
                          : mlx_compile(&res, fun, false) ||
                                mlx_closure_apply(&outs, res, in);
        assert_int_equal(rc, 1);
        assert_int_equal(heard.count, 2);
        assert_non_null(strstr(heard.text, "the callback says no"));
    }
    mlx_closure_free(fun);
    mlx_closure_free(res);
    mlx_closure_value_and_grad_free(vg);
    mlx_array_free(x);
    mlx_vector_array_free(in);
    mlx_vector_array_free(outs);
    mlx_vector_array_free(grads);
}

static void test_stop_gradient(void **state)
{
    (void)state;
    unary u = {mlx_stop_gradient, 0, 0};
    mlx_closure fun = closure_of(&u);
    mlx_array x = line(2, (float[]){3, 4});
    mlx_vector_array in = list1(x), outs = mlx_vector_array_new(),
                     grads = mlx_vector_array_new();
    check_ok(mlx_vjp(&outs, &grads, fun, in, in));
    check_floats(outs, 0, 3, 4);
    check_floats(grads, 0, 0, 0);
    mlx_closure_free(fun);
    mlx_array_free(x);
    mlx_vector_array_free(in);
    mlx_vector_array_free(outs);
    mlx_vector_array_free(grads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_wrong_rule_is_used, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_rule_hides_what_has_no_gradient,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_unused_output_has_zeros, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_gradients_of_rules_are_checked,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_rules_forward_and_for_batches,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_checkpoints_change_no_gradient,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_checkpoints_save_memory, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stop_gradient, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
