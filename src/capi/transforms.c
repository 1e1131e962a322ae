/* transforms.c: evaluation, gradients, checkpoints and functions with rules of
 * the program's. */
#include "function.h"

#include "core/eval.h"
#include "ops/custom.h"
#include "transform/grad.h"
#include "transform/vmap.h"

#include "base/alloc.h"

#include <string.h>

int mlx_eval(const mlx_vector_array outputs)
{
    QN_GET_ARRAYS(arrays, outputs);
    QN_CALL(qn_eval(arrays->data, arrays->size));
    return 0;
}

int mlx_async_eval(const mlx_vector_array outputs)
{
    QN_GET_ARRAYS(arrays, outputs);
    QN_CALL(qn_eval_async(arrays->data, arrays->size));
    return 0;
}

/* ---- gradients ---- */

int mlx_vjp(mlx_vector_array *res_0, mlx_vector_array *res_1,
            const mlx_closure fun, const mlx_vector_array primals,
            const mlx_vector_array cotangents)
{
    QN_GET_CLOSURE(c, fun, mlx_closure);
    QN_GET_ARRAYS(in, primals);
    QN_GET_ARRAYS(cots, cotangents);
    qn_closure_function f = qn_function_of(c);
    qn_arrays lists[2];
    QN_CALL(qn_vjp(&lists[0], &lists[1], &f.shared.function, in->data, in->size,
                   cots->data, cots->size));
    return QN_STORE(
        qn_store_lists((mlx_vector_array *[]){res_0, res_1}, lists, 2));
}

int mlx_jvp(mlx_vector_array *res_0, mlx_vector_array *res_1,
            const mlx_closure fun, const mlx_vector_array primals,
            const mlx_vector_array tangents)
{
    QN_GET_CLOSURE(c, fun, mlx_closure);
    QN_GET_ARRAYS(in, primals);
    QN_GET_ARRAYS(tans, tangents);
    qn_closure_function f = qn_function_of(c);
    qn_arrays lists[2];
    QN_CALL(qn_jvp(&lists[0], &lists[1], &f.shared.function, in->data, in->size,
                   tans->data, tans->size));
    return QN_STORE(
        qn_store_lists((mlx_vector_array *[]){res_0, res_1}, lists, 2));
}

typedef struct value_and_grad {
    qn_closure *fun;
    size_t count;
    int argnums[];
} value_and_grad;

static void value_and_grad_free(void *payload)
{
    value_and_grad *p = payload;
    qn_closure_unref(p->fun);
    qn_free(p);
}

static int value_and_grad_call(mlx_vector_array *values,
                               mlx_vector_array *grads,
                               const mlx_vector_array in, void *payload)
{
    const value_and_grad *p = payload;
    const qn_list *inputs = qn_handle_arrays(in);
    qn_closure_function f = qn_function_of(p->fun);
    qn_arrays lists[2];
    qn_status status =
        qn_value_and_grad(&lists[0], &lists[1], &f.shared.function, p->argnums,
                          p->count, inputs->data, inputs->size);
    return (int)(status ? status
                        : qn_store_lists((mlx_vector_array *[]){values, grads},
                                         lists, 2));
}

int mlx_value_and_grad(mlx_closure_value_and_grad *res, const mlx_closure fun,
                       const int *argnums, size_t argnums_num)
{
    QN_GET_CLOSURE(c, fun, mlx_closure);
    QN_GET_COUNT(count, argnums_num);
    if (!count) {
        qn_fail(QN_E_ARG, "[value_and_grad] Must specify at least one "
                          "argument number.");
        return QN_REPORT();
    }
    value_and_grad *p =
        qn_alloc(sizeof *p + (size_t)count * sizeof *p->argnums);
    if (!p)
        return QN_REPORT();
    p->fun = qn_closure_ref(c);
    p->count = (size_t)count;
    memcpy(p->argnums, argnums, (size_t)count * sizeof *argnums);
    mlx_closure_value_and_grad made = {NULL};
    QN_CALL(qn_closure_new_own(&made.ctx, (void (*)(void))value_and_grad_call,
                               p, value_and_grad_free));
    QN_MOVE_CLOSURE(res, made, mlx_closure_value_and_grad);
    return 0;
}

int mlx_stop_gradient(mlx_array *res, const mlx_array a, const mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    qn_array *out;
    QN_CALL(qn_op_stop_gradient(&out, x, stream));
    return QN_STORE_ARRAY(res, out);
}

/* ---- checkpoints ---- */

static void unref_closure(void *payload)
{
    qn_closure_unref(payload);
}

static int checkpoint_call(mlx_vector_array *res, const mlx_vector_array in,
                           void *payload)
{
    const qn_list *inputs = qn_handle_arrays(in);
    qn_closure_function f = qn_function_of(payload);
    qn_arrays outputs;
    qn_status status =
        qn_checkpoint(&outputs, &f.shared, inputs->data, inputs->size);
    return (int)(status ? status : qn_store_lists(&res, &outputs, 1));
}

int mlx_checkpoint(mlx_closure *res, const mlx_closure fun)
{
    QN_GET_CLOSURE(c, fun, mlx_closure);
    mlx_closure made = {NULL};
    QN_CALL(qn_closure_new_own(&made.ctx, (void (*)(void))checkpoint_call,
                               qn_closure_ref(c), unref_closure));
    QN_MOVE_CLOSURE(res, made, mlx_closure);
    return 0;
}

/* ---- functions with rules ---- */

typedef struct rules {
    qn_custom custom;
    qn_closure *vjp, *jvp, *vmap; /* NULL: none */
} rules;

static void rules_free(qn_custom *self)
{
    rules *r = (rules *)self;
    qn_closure_unref(r->vjp);
    qn_closure_unref(r->jvp);
    qn_closure_unref(r->vmap);
    qn_free(r);
}

/* Hands the arrays of a list on to a rule's results. */
static void give(qn_array **results, qn_arrays *list)
{
    for (size_t i = 0; i < list->count; i++)
        results[i] = qn_array_ref(list->data[i]);
    qn_arrays_free(list);
}

static qn_status rule_vjp(qn_custom *self, qn_array **grads,
                          qn_array *const *primals, int nprimals,
                          qn_array *const *cotangents, qn_array *const *outputs,
                          int noutputs)
{
    qn_list in = qn_list_of(primals, (size_t)nprimals);
    qn_list cots = qn_list_of(cotangents, (size_t)noutputs);
    qn_list outs = qn_list_of(outputs, (size_t)noutputs);
    mlx_vector_array made = {NULL};
    qn_arrays list = {0};
    qn_status status =
        qn_call_closure_custom(((rules *)self)->vjp, &made, &in, &cots, &outs);
    if (!status)
        status = qn_take_arrays(&list, made);
    if (!status)
        status = qn_check_gradients(primals, (size_t)nprimals, list.data,
                                    list.count);
    if (status)
        qn_arrays_free(&list);
    else
        give(grads, &list);
    return status;
}

static qn_status rule_jvp(qn_custom *self, qn_array **results,
                          qn_array *const *primals, int nprimals,
                          qn_array *const *tangents, const int *argnums,
                          int nargs, int noutputs)
{
    qn_list in = qn_list_of(primals, (size_t)nprimals);
    qn_list tans = qn_list_of(tangents, (size_t)nargs);
    mlx_vector_array made = {NULL};
    qn_arrays list = {0};
    qn_status status = qn_call_closure_custom_jvp(
        ((rules *)self)->jvp, &made, &in, &tans, argnums, (size_t)nargs);
    if (!status)
        status = qn_take_arrays(&list, made);
    if (!status)
        status = qn_check_results("custom_jvp", list.count, (size_t)noutputs);
    if (status)
        qn_arrays_free(&list);
    else
        give(results, &list);
    return status;
}

static qn_status rule_vmap(qn_custom *self, qn_array **results,
                           int *result_axes, qn_array *const *inputs,
                           const int *axes, int ninputs, int noutputs)
{
    qn_list in = qn_list_of(inputs, (size_t)ninputs);
    mlx_vector_array made = {NULL};
    mlx_vector_int made_axes = {NULL};
    qn_arrays list = {0};
    qn_status status = qn_call_closure_custom_vmap(
        ((rules *)self)->vmap, &made, &made_axes, &in, axes, (size_t)ninputs);
    if (status)
        return status;
    status = qn_take_arrays(&list, made);
    const qn_list *found = made_axes.ctx;
    if (!status)
        status = qn_check_results("custom_vmap", list.count, (size_t)noutputs);
    if (!status)
        status = qn_check_results("custom_vmap", found->size, (size_t)noutputs);
    if (!status)
        memcpy(result_axes, found->ints, (size_t)noutputs * sizeof(int));
    mlx_vector_int_free(made_axes);
    if (status)
        qn_arrays_free(&list);
    else
        give(results, &list);
    return status;
}

typedef struct ruled {
    qn_closure *fun;
    qn_custom *custom;
} ruled;

static void ruled_free(void *payload)
{
    ruled *p = payload;
    qn_closure_unref(p->fun);
    qn_custom_unref(p->custom);
    qn_free(p);
}

static qn_status apply_ruled(qn_arrays *outputs, const ruled *p,
                             const qn_list *inputs)
{
    qn_closure_function f = qn_function_of(p->fun);
    qn_arrays plain;
    qn_status status = f.shared.function.call(&f.shared.function, &plain,
                                              inputs->data, inputs->size);
    if (status)
        return status;
    /* Nobody will ask for the rules, or there is nothing to ask for. */
    if (!qn_record_listening() || !plain.count) {
        *outputs = plain;
        return QN_OK;
    }
    qn_stream *stream;
    qn_arrays made;
    int ninputs, noutputs;
    status = qn_capi_count(&ninputs, inputs->size);
    if (!status)
        status = qn_capi_count(&noutputs, plain.count);
    if (!status)
        status = qn_stream_default(&stream, qn_device_default());
    if (!status)
        status = qn_arrays_new(&made, plain.count);
    if (!status) {
        status = qn_op_custom(made.data, p->custom, inputs->data, ninputs,
                              plain.data, noutputs, stream);
        if (status)
            qn_arrays_free(&made);
        else
            *outputs = made;
    }
    qn_arrays_free(&plain);
    return status;
}

static int ruled_call(mlx_vector_array *res, const mlx_vector_array in,
                      void *payload)
{
    qn_arrays outputs;
    qn_status status = apply_ruled(&outputs, payload, qn_handle_arrays(in));
    return (int)(status ? status : qn_store_lists(&res, &outputs, 1));
}

static qn_closure *ref_or_null(qn_closure *closure)
{
    return closure ? qn_closure_ref(closure) : NULL;
}

/* NULL without memory. */
static ruled *ruled_new(qn_closure *fun, qn_closure *vjp, qn_closure *jvp,
                        qn_closure *vmap)
{
    ruled *p = qn_alloc(sizeof *p);
    rules *r = qn_alloc(sizeof *r);
    if (!p || !r) {
        qn_free(p);
        qn_free(r);
        return NULL;
    }
    *r = (rules){.custom = {.vjp = vjp ? rule_vjp : NULL,
                            .jvp = jvp ? rule_jvp : NULL,
                            .vmap = vmap ? rule_vmap : NULL,
                            .free = rules_free},
                 .vjp = ref_or_null(vjp),
                 .jvp = ref_or_null(jvp),
                 .vmap = ref_or_null(vmap)};
    atomic_init(&r->custom.refs, 1);
    *p = (ruled){qn_closure_ref(fun), &r->custom};
    return p;
}

int mlx_custom_function(mlx_closure *res, const mlx_closure fun,
                        const mlx_closure_custom fun_vjp,
                        const mlx_closure_custom_jvp fun_jvp,
                        const mlx_closure_custom_vmap fun_vmap)
{
    QN_GET_CLOSURE(c, fun, mlx_closure);
    ruled *p = ruled_new(c, qn_handle_closure(fun_vjp.ctx),
                         qn_handle_closure(fun_jvp.ctx),
                         qn_handle_closure(fun_vmap.ctx));
    if (!p)
        return QN_REPORT();
    mlx_closure made = {NULL};
    QN_CALL(qn_closure_new_own(&made.ctx, (void (*)(void))ruled_call, p,
                               ruled_free));
    QN_MOVE_CLOSURE(res, made, mlx_closure);
    return 0;
}

int mlx_custom_vjp(mlx_closure *res, const mlx_closure fun,
                   const mlx_closure_custom fun_vjp)
{
    QN_GET_CLOSURE(vjp, fun_vjp, mlx_closure_custom);
    (void)vjp;
    return mlx_custom_function(res, fun, fun_vjp,
                               (mlx_closure_custom_jvp){NULL},
                               (mlx_closure_custom_vmap){NULL});
}

/* ---- batches ---- */

int mlx_detail_vmap_trace(mlx_vector_array *res_0, mlx_vector_array *res_1,
                          const mlx_closure fun, const mlx_vector_array inputs,
                          const int *in_axes, size_t in_axes_num)
{
    QN_GET_CLOSURE(c, fun, mlx_closure);
    QN_GET_ARRAYS(in, inputs);
    qn_closure_function f = qn_function_of(c);
    qn_arrays lists[2];
    QN_CALL(qn_vmap_trace(&lists[0], &lists[1], &f.shared.function, in->data,
                          in->size, in_axes, in_axes_num));
    return QN_STORE(
        qn_store_lists((mlx_vector_array *[]){res_0, res_1}, lists, 2));
}

int mlx_detail_vmap_replace(mlx_vector_array *res,
                            const mlx_vector_array inputs,
                            const mlx_vector_array s_inputs,
                            const mlx_vector_array s_outputs,
                            const int *in_axes, size_t in_axes_num,
                            const int *out_axes, size_t out_axes_num)
{
    QN_GET_ARRAYS(in, inputs);
    QN_GET_ARRAYS(given, s_inputs);
    QN_GET_ARRAYS(results, s_outputs);
    qn_arrays out;
    QN_CALL(qn_vmap_replace(&out, in->data, in->size, given->data, given->size,
                            results->data, results->size, in_axes, in_axes_num,
                            out_axes, out_axes_num));
    return QN_STORE(qn_store_lists(&res, &out, 1));
}
