/* transform.c: steps that apply a transformation to a function of a case.
 *
 * The function is written in the case: parameters, steps, outputs.  Calling it
 * binds the parameters, runs the steps and unbinds all of its names again, so
 * it may be called any number of times and its names may hide the case's. */
#include "case.h"

#include <stdlib.h>
#include <string.h>

/* ---- the function ---- */

enum { MOST_NAMES = 64 };

typedef struct frame {
    qn_str names[MOST_NAMES];
    case_value hidden[MOST_NAMES];
    int count;
} frame;

/* Makes a name of the function's, empty; hides what it stood for. */
static bool open_name(frame *f, const qn_json *item)
{
    qn_str name;
    if (!qn_json_as_str(item, &name) || f->count == MOST_NAMES) {
        case_fail("case: a function has too many names");
        return false;
    }
    for (int i = 0; i < f->count; i++)
        if (qn_str_is(name, case_keep(f->names[i])))
            return true;
    case_value *v = value_make(name, VALUE_ARRAY);
    if (!v)
        return false;
    f->names[f->count] = name;
    f->hidden[f->count++] = *v;
    *v = (case_value){.kind = VALUE_ARRAY};
    return true;
}

static bool open_frame(frame *f, const qn_json *fun)
{
    const qn_json *params = qn_json_get(fun, "params");
    const qn_json *steps = qn_json_get(fun, "steps");
    bool good = true;
    f->count = 0;
    for (uint32_t i = 0; good && params && i < params->count; i++)
        good = open_name(f, &params->items[i]);
    for (uint32_t i = 0; good && steps && i < steps->count; i++) {
        const qn_json *out = qn_json_get(&steps->items[i], "out");
        for (uint32_t k = 0; good && out && k < out->count; k++)
            good = open_name(f, &out->items[k]);
    }
    return good;
}

static void close_frame(frame *f)
{
    while (f->count) {
        f->count--;
        case_value *v = value_find(f->names[f->count]);
        mlx_array_free((mlx_array){v->ctx});
        *v = f->hidden[f->count];
    }
}

static bool bind_params(const qn_json *fun, size_t first, mlx_vector_array in)
{
    const qn_json *params = qn_json_get(fun, "params");
    size_t count = mlx_vector_array_size(in);
    for (size_t i = 0; i < count; i++) {
        qn_str name;
        if (!qn_json_as_str(qn_json_at(params, (uint32_t)(first + i)), &name))
            return false;
        mlx_array array = {NULL};
        if (mlx_vector_array_get(&array, in, i))
            return false;
        value_find(name)->ctx = array.ctx;
    }
    return true;
}

static bool run_steps(const qn_json *fun)
{
    const qn_json *steps = qn_json_get(fun, "steps");
    bool good = true;
    for (uint32_t i = 0; good && steps && i < steps->count; i++)
        good = !abi_step(&steps->items[i]);
    return good;
}

static bool collect(const qn_json *fun, mlx_vector_array *res)
{
    const qn_json *outputs = qn_json_get(fun, "outputs");
    mlx_vector_array list = mlx_vector_array_new();
    bool good = true;
    for (uint32_t i = 0; good && outputs && i < outputs->count; i++) {
        qn_str name;
        case_value *v =
            qn_json_as_str(&outputs->items[i], &name) ? value_find(name) : NULL;
        good = v && !mlx_vector_array_append_value(list, (mlx_array){v->ctx});
    }
    good = good && !mlx_vector_array_set(res, list);
    mlx_vector_array_free(list);
    return good;
}

/* Calls the function with up to three lists of arguments. */
static int call_lists(mlx_vector_array *res, const qn_json *fun,
                      const mlx_vector_array *lists, int count)
{
    frame f;
    bool good = open_frame(&f, fun);
    size_t first = 0;
    for (int i = 0; good && i < count; i++) {
        good = bind_params(fun, first, lists[i]);
        first += mlx_vector_array_size(lists[i]);
    }
    good = good && run_steps(fun) && collect(fun, res);
    close_frame(&f);
    return !good;
}

static int call_plain(mlx_vector_array *res, const mlx_vector_array in,
                      void *payload)
{
    return call_lists(res, payload, &in, 1);
}

static int call_custom(mlx_vector_array *res, const mlx_vector_array primals,
                       const mlx_vector_array cotangents,
                       const mlx_vector_array outputs, void *payload)
{
    const mlx_vector_array lists[] = {primals, cotangents, outputs};
    return call_lists(res, payload, lists, 3);
}

/* A closure of the function with what wraps it; NULL ctx after an error. */
static mlx_closure closure_of(const qn_json *fun)
{
    const qn_json *vjp = qn_json_get(fun, "custom_vjp");
    mlx_closure cls =
        mlx_closure_new_func_payload(call_plain, (void *)(uintptr_t)fun, NULL);
    int code = 0;
    if (vjp) {
        mlx_closure_custom rule = mlx_closure_custom_new_func_payload(
            call_custom, (void *)(uintptr_t)vjp, NULL);
        code = mlx_custom_vjp(&cls, cls, rule);
        mlx_closure_custom_free(rule);
    }
    if (!code && case_bool(fun, "checkpoint", false))
        code = mlx_checkpoint(&cls, cls);
    if (!code && case_bool(fun, "compile", false))
        code = mlx_compile(&cls, cls, false);
    if (!code)
        return cls;
    mlx_closure_free(cls);
    return (mlx_closure){NULL};
}

/* ---- steps ---- */

/* Binds the i-th result, a list, which is taken over.  The name may have stood
 * for something else. */
static void bind_result(const qn_json *step, uint32_t i, mlx_vector_array list)
{
    qn_str name;
    if (!qn_json_as_str(qn_json_at(qn_json_get(step, "out"), i), &name))
        name = i ? QN_STR("(second)") : QN_STR("(first)");
    case_value *v = value_make(name, VALUE_VECTOR);
    if (v->kind == VALUE_ARRAY)
        mlx_array_free((mlx_array){v->ctx});
    else if (v->kind == VALUE_VECTOR)
        mlx_vector_array_free((mlx_vector_array){v->ctx});
    *v = (case_value){.kind = VALUE_VECTOR, .ctx = list.ctx};
}

static mlx_vector_array list_of(const qn_json *step, const char *key)
{
    return abi_vector(qn_json_get(step, key));
}

static size_t ints_of(const qn_json *step, const char *key, int *out)
{
    const qn_json *list = qn_json_get(step, key);
    size_t n = 0;
    for (; list && n < list->count && n < MOST_NAMES; n++) {
        int64_t value = 0;
        qn_json_as_int(&list->items[n], &value);
        out[n] = (int)value;
    }
    return n;
}

static int apply_step(const qn_json *step, mlx_closure cls)
{
    mlx_vector_array list = mlx_vector_array_new();
    int code = mlx_closure_apply(&list, cls, list_of(step, "primals"));
    bind_result(step, 0, list);
    return code;
}

static int compile_step(const qn_json *step, mlx_closure cls)
{
    const qn_json *calls = qn_json_get(step, "calls");
    mlx_closure compiled = mlx_closure_new();
    int code = mlx_compile(&compiled, cls, case_bool(step, "shapeless", false));
    for (uint32_t i = 0; !code && calls && i < calls->count; i++) {
        mlx_vector_array list = mlx_vector_array_new();
        code = mlx_closure_apply(&list, compiled, abi_vector(&calls->items[i]));
        bind_result(step, i, list);
    }
    mlx_closure_free(compiled);
    return code;
}

static int checkpoint_step(const qn_json *step, mlx_closure cls)
{
    mlx_closure wrapped = mlx_closure_new();
    int code = mlx_checkpoint(&wrapped, cls);
    if (!code)
        code = apply_step(step, wrapped);
    mlx_closure_free(wrapped);
    return code;
}

/* vjp and jvp. */
static int linear_step(const qn_json *step, mlx_closure cls, bool reverse)
{
    mlx_vector_array primals = list_of(step, "primals");
    mlx_vector_array given = list_of(step, reverse ? "cotangents" : "tangents");
    mlx_vector_array values = mlx_vector_array_new();
    mlx_vector_array results = mlx_vector_array_new();
    int code = reverse ? mlx_vjp(&values, &results, cls, primals, given)
                       : mlx_jvp(&values, &results, cls, primals, given);
    bind_result(step, 0, values);
    bind_result(step, 1, results);
    return code;
}

static int value_and_grad_step(const qn_json *step, mlx_closure cls)
{
    int argnums[MOST_NAMES];
    size_t n = ints_of(step, "argnums", argnums);
    mlx_closure_value_and_grad both = mlx_closure_value_and_grad_new();
    mlx_vector_array values = mlx_vector_array_new();
    mlx_vector_array grads = mlx_vector_array_new();
    int code = mlx_value_and_grad(&both, cls, argnums, n);
    if (!code)
        code = mlx_closure_value_and_grad_apply(&values, &grads, both,
                                                list_of(step, "primals"));
    mlx_closure_value_and_grad_free(both);
    bind_result(step, 0, values);
    bind_result(step, 1, grads);
    return code;
}

static int vmap_step(const qn_json *step, mlx_closure cls)
{
    int in_axes[MOST_NAMES], out_axes[MOST_NAMES];
    size_t nin = ints_of(step, "in_axes", in_axes);
    size_t nout = ints_of(step, "out_axes", out_axes);
    mlx_vector_array primals = list_of(step, "primals");
    mlx_vector_array given = mlx_vector_array_new();
    mlx_vector_array traced = mlx_vector_array_new();
    mlx_vector_array results = mlx_vector_array_new();
    int code =
        mlx_detail_vmap_trace(&given, &traced, cls, primals, in_axes, nin);
    if (!code)
        code = mlx_detail_vmap_replace(&results, primals, given, traced,
                                       in_axes, nin, out_axes, nout);
    bind_result(step, 0, results);
    mlx_vector_array_free(given);
    mlx_vector_array_free(traced);
    return code;
}

int transform_step(const qn_json *step)
{
    qn_str kind = case_text(step, "transform");
    mlx_closure cls = closure_of(qn_json_get(step, "fun"));
    int code = -1;
    if (!cls.ctx)
        return 1;
    if (qn_str_is(kind, "apply"))
        code = apply_step(step, cls);
    else if (qn_str_is(kind, "compile"))
        code = compile_step(step, cls);
    else if (qn_str_is(kind, "checkpoint"))
        code = checkpoint_step(step, cls);
    else if (qn_str_is(kind, "vjp") || qn_str_is(kind, "jvp"))
        code = linear_step(step, cls, qn_str_is(kind, "vjp"));
    else if (qn_str_is(kind, "value_and_grad"))
        code = value_and_grad_step(step, cls);
    else if (qn_str_is(kind, "vmap"))
        code = vmap_step(step, cls);
    else
        case_fail("case: unknown transformation");
    mlx_closure_free(cls);
    return code;
}
