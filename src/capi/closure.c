/* closure.c: functions of the program as objects, in six signatures.
 *
 * A function is kept under a common type and called under its own.  It gets
 * copies of the input lists, so whatever it does to them stays its own affair,
 * and it is held during the call, so it may free its own handle. */
#include "closure.h"

#include "base/alloc.h"
#include "core/defer.h"

#include <stdatomic.h>

struct qn_closure {
    atomic_uint refs;
    bool has_payload; /* the function takes it as its last argument */
    bool unary;       /* the function is a unary_fun */
    bool own;         /* the function returns a qn_status */
    void (*fun)(void);
    void *payload;
    void (*dtor)(void *);
    qn_deferred deferred;
};

typedef struct closure_box {
    qn_closure *closure;
} closure_box;

/* ---- objects ---- */

qn_closure *qn_closure_ref(qn_closure *closure)
{
    atomic_fetch_add_explicit(&closure->refs, 1, memory_order_relaxed);
    return closure;
}

static void destroy(qn_deferred *item)
{
    qn_closure *c =
        (qn_closure *)((char *)item - offsetof(qn_closure, deferred));
    if (c->dtor)
        c->dtor(c->payload);
    qn_free(c);
}

void qn_closure_unref(qn_closure *closure)
{
    if (closure &&
        atomic_fetch_sub_explicit(&closure->refs, 1, memory_order_acq_rel) == 1)
        qn_defer(&closure->deferred);
}

qn_closure *qn_handle_closure(const void *ctx)
{
    return ctx ? ((const closure_box *)ctx)->closure : NULL;
}

qn_status qn_handle_set_closure(void **ctx, qn_closure *closure)
{
    closure_box *box = *ctx;
    if (!box) {
        box = qn_calloc(1, sizeof *box);
        if (!box) {
            qn_closure_unref(closure);
            return QN_E_NOMEM;
        }
        *ctx = box;
    }
    qn_closure *before = box->closure;
    box->closure = closure;
    qn_closure_unref(before);
    return QN_OK;
}

/* A closure in a box of its own; on failure *ctx stays NULL and the payload has
 * been destroyed. */
static qn_status make(void **ctx, qn_closure like)
{
    qn_closure *c = qn_alloc(sizeof *c);
    if (!c) {
        qn_error error;
        qn_error_save(&error);
        if (like.dtor)
            like.dtor(like.payload);
        qn_error_restore(&error);
        return QN_E_NOMEM;
    }
    *c = like;
    atomic_init(&c->refs, 1);
    c->deferred.run = destroy;
    return qn_handle_set_closure(ctx, c);
}

qn_status qn_closure_new_own(void **ctx, void (*fun)(void), void *payload,
                             void (*dtor)(void *))
{
    qn_closure like = {.has_payload = true,
                       .own = true,
                       .fun = fun,
                       .payload = payload,
                       .dtor = dtor};
    return make(ctx, like);
}

void *qn_closure_payload(const qn_closure *closure, void (*fun)(void))
{
    return closure->own && closure->fun == fun ? closure->payload : NULL;
}

static void free_box(closure_box *box)
{
    if (box)
        qn_closure_unref(box->closure);
    qn_free(box);
}

/* ---- calling ---- */

/* The types of a closure's function, without and with a payload, and the call
 * of whichever it is. */
#define QN_SIGNATURE(type, ...)                                                \
    typedef int (*type##_fun)(__VA_ARGS__);                                    \
    typedef int (*type##_payload_fun)(__VA_ARGS__, void *)
#define QN_INVOKE(type, c, ...)                                                \
    ((c)->has_payload                                                          \
         ? ((type##_payload_fun)(c)->fun)(__VA_ARGS__, (c)->payload)           \
         : ((type##_fun)(c)->fun)(__VA_ARGS__))

QN_SIGNATURE(mlx_closure, mlx_vector_array *, const mlx_vector_array);
QN_SIGNATURE(mlx_closure_kwargs, mlx_vector_array *, const mlx_vector_array,
             const mlx_map_string_to_array);
QN_SIGNATURE(mlx_closure_value_and_grad, mlx_vector_array *, mlx_vector_array *,
             const mlx_vector_array);
QN_SIGNATURE(mlx_closure_custom, mlx_vector_array *, const mlx_vector_array,
             const mlx_vector_array, const mlx_vector_array);
QN_SIGNATURE(mlx_closure_custom_jvp, mlx_vector_array *, const mlx_vector_array,
             const mlx_vector_array, const int *, size_t);
QN_SIGNATURE(mlx_closure_custom_vmap, mlx_vector_array *, mlx_vector_int *,
             const mlx_vector_array, const int *, size_t);
typedef int (*unary_fun)(mlx_array *, const mlx_array);

enum { MAX_LISTS = 3 };

/* A call in progress. */
typedef struct call {
    qn_closure *closure;
    mlx_vector_array in[MAX_LISTS];
} call;

static void end(call *c)
{
    for (int i = 0; i < MAX_LISTS; i++)
        mlx_vector_array_free(c->in[i]);
    qn_closure_unref(c->closure);
}

/* Copies up to MAX_LISTS lists; on failure nothing is left to end. */
static qn_status begin(call *c, qn_closure *closure, int count,
                       const qn_list *const *lists)
{
    *c = (call){.closure = qn_closure_ref(closure)};
    for (int i = 0; i < count; i++) {
        qn_status status = qn_handle_copy_arrays(&c->in[i], lists[i]);
        if (status) {
            end(c);
            return status;
        }
    }
    qn_error_clear();
    return QN_OK;
}

/* Turns the function's own report and a result that it has to fill into a
 * status. */
static qn_status check(const qn_closure *closure, int rc, const char *type,
                       const void *result, const char *result_type)
{
    if (rc && closure->own)
        return (qn_status)rc;
    if (rc && *qn_error_text())
        return QN_E_CANCELLED;
    if (rc)
        return qn_fail(QN_E_CANCELLED, "%s returned a non-zero value", type);
    if (!result)
        return qn_fail(QN_E_ARG, "expected a non-empty %s", result_type);
    return QN_OK;
}

/* The check for a list; after a failure the result is empty. */
static qn_status check_list(const qn_closure *closure, int rc, const char *type,
                            mlx_vector_array *res)
{
    qn_status status = check(closure, rc, type, res->ctx, "mlx_vector_array");
    if (status) {
        mlx_vector_array_free(*res);
        res->ctx = NULL;
    }
    return status;
}

static qn_status call_unary(const qn_closure *closure, mlx_vector_array *res,
                            const qn_list *inputs)
{
    if (inputs->size != 1)
        return qn_fail(QN_E_ARG,
                       "[mlx_closure] expected 1 array for a function of one "
                       "array, found %zu",
                       inputs->size);
    mlx_array in = {NULL}, made = {NULL};
    qn_status status = qn_handle_set_array(&in, qn_array_ref(inputs->data[0]));
    if (status)
        return status;
    int rc = ((unary_fun)closure->fun)(&made, in);
    status = check(closure, rc, "mlx_closure", made.ctx, "mlx_array");
    if (!status) {
        qn_array *array = qn_array_ref(qn_handle_array(made));
        status = qn_handle_set_arrays(res, &array, 1);
    }
    mlx_array_free(made);
    mlx_array_free(in);
    return status;
}

qn_status qn_call_closure(qn_closure *closure, mlx_vector_array *res,
                          const qn_list *inputs)
{
    call c;
    qn_status status = begin(&c, closure, 1, &inputs);
    if (status)
        return status;
    if (closure->unary)
        status = call_unary(closure, res, inputs);
    else
        status =
            check_list(closure, QN_INVOKE(mlx_closure, closure, res, c.in[0]),
                       "mlx_closure", res);
    end(&c);
    return status;
}

qn_status qn_call_closure_kwargs(qn_closure *closure, mlx_vector_array *res,
                                 const qn_list *inputs,
                                 mlx_map_string_to_array kwargs)
{
    call c;
    qn_status status = begin(&c, closure, 1, &inputs);
    if (status)
        return status;
    mlx_map_string_to_array named = {NULL};
    status = qn_handle_copy_map(&named, kwargs);
    if (!status)
        status = check_list(
            closure,
            QN_INVOKE(mlx_closure_kwargs, closure, res, c.in[0], named),
            "mlx_closure_kwargs", res);
    mlx_map_string_to_array_free(named);
    end(&c);
    return status;
}

qn_status qn_call_closure_value_and_grad(qn_closure *closure,
                                         mlx_vector_array *values,
                                         mlx_vector_array *grads,
                                         const qn_list *inputs)
{
    call c;
    qn_status status = begin(&c, closure, 1, &inputs);
    if (status)
        return status;
    int rc =
        QN_INVOKE(mlx_closure_value_and_grad, closure, values, grads, c.in[0]);
    end(&c);
    status = check(closure, rc, "mlx_closure_value_and_grad",
                   values->ctx ? grads->ctx : NULL, "mlx_vector_array");
    if (status) {
        mlx_vector_array_free(*values);
        mlx_vector_array_free(*grads);
        values->ctx = grads->ctx = NULL;
    }
    return status;
}

qn_status qn_call_closure_custom(qn_closure *closure, mlx_vector_array *res,
                                 const qn_list *primals,
                                 const qn_list *cotangents,
                                 const qn_list *outputs)
{
    const qn_list *lists[] = {primals, cotangents, outputs};
    call c;
    qn_status status = begin(&c, closure, 3, lists);
    if (status)
        return status;
    status = check_list(
        closure,
        QN_INVOKE(mlx_closure_custom, closure, res, c.in[0], c.in[1], c.in[2]),
        "mlx_closure_custom", res);
    end(&c);
    return status;
}

qn_status qn_call_closure_custom_jvp(qn_closure *closure, mlx_vector_array *res,
                                     const qn_list *primals,
                                     const qn_list *tangents,
                                     const int *argnums, size_t count)
{
    const qn_list *lists[] = {primals, tangents};
    call c;
    qn_status status = begin(&c, closure, 2, lists);
    if (status)
        return status;
    status = check_list(closure,
                        QN_INVOKE(mlx_closure_custom_jvp, closure, res, c.in[0],
                                  c.in[1], argnums, count),
                        "mlx_closure_custom_jvp", res);
    end(&c);
    return status;
}

qn_status qn_call_closure_custom_vmap(qn_closure *closure,
                                      mlx_vector_array *res,
                                      mlx_vector_int *out_axes,
                                      const qn_list *inputs, const int *axes,
                                      size_t count)
{
    call c;
    qn_status status = begin(&c, closure, 1, &inputs);
    if (status)
        return status;
    int rc = QN_INVOKE(mlx_closure_custom_vmap, closure, res, out_axes, c.in[0],
                       axes, count);
    end(&c);
    status = check(closure, rc, "mlx_closure_custom_vmap", res->ctx,
                   "mlx_vector_array");
    if (!status)
        status = check(closure, rc, "mlx_closure_custom_vmap", out_axes->ctx,
                       "mlx_vector_int");
    if (status) {
        mlx_vector_array_free(*res);
        mlx_vector_int_free(*out_axes);
        res->ctx = out_axes->ctx = NULL;
    }
    return status;
}

/* ---- the functions of the API ---- */

/* All of a type's but _apply. */
#define QN_CLOSURE(type, ...)                                                  \
    type type##_new(void)                                                      \
    {                                                                          \
        return (type){NULL};                                                   \
    }                                                                          \
    type type##_new_func(int (*fun)(__VA_ARGS__))                              \
    {                                                                          \
        type res = {NULL};                                                     \
        qn_closure like = {.fun = (void (*)(void))fun};                        \
        QN_CALL_OR(make(&res.ctx, like), res);                                 \
        return res;                                                            \
    }                                                                          \
    type type##_new_func_payload(int (*fun)(__VA_ARGS__, void *),              \
                                 void *payload, void (*dtor)(void *))          \
    {                                                                          \
        type res = {NULL};                                                     \
        qn_closure like = {.has_payload = true,                                \
                           .fun = (void (*)(void))fun,                         \
                           .payload = payload,                                 \
                           .dtor = dtor};                                      \
        QN_CALL_OR(make(&res.ctx, like), res);                                 \
        return res;                                                            \
    }                                                                          \
    int type##_set(type *cls, const type src)                                  \
    {                                                                          \
        QN_GET_CLOSURE(c, src, type);                                          \
        QN_CALL(qn_handle_set_closure(&cls->ctx, qn_closure_ref(c)));          \
        return 0;                                                              \
    }                                                                          \
    int type##_free(type cls)                                                  \
    {                                                                          \
        free_box(cls.ctx);                                                     \
        return 0;                                                              \
    }

QN_CLOSURE(mlx_closure, mlx_vector_array *, const mlx_vector_array)
QN_CLOSURE(mlx_closure_kwargs, mlx_vector_array *, const mlx_vector_array,
           const mlx_map_string_to_array)
QN_CLOSURE(mlx_closure_value_and_grad, mlx_vector_array *, mlx_vector_array *,
           const mlx_vector_array)
QN_CLOSURE(mlx_closure_custom, mlx_vector_array *, const mlx_vector_array,
           const mlx_vector_array, const mlx_vector_array)
QN_CLOSURE(mlx_closure_custom_jvp, mlx_vector_array *, const mlx_vector_array,
           const mlx_vector_array, const int *, size_t)
QN_CLOSURE(mlx_closure_custom_vmap, mlx_vector_array *, mlx_vector_int *,
           const mlx_vector_array, const int *, size_t)

mlx_closure mlx_closure_new_unary(int (*fun)(mlx_array *, const mlx_array))
{
    mlx_closure res = {NULL};
    qn_closure like = {.unary = true, .fun = (void (*)(void))fun};
    QN_CALL_OR(make(&res.ctx, like), res);
    return res;
}

/* Moves a list that a function made into a result, without a way to fail.
 * *made is then what is left to be freed. */
static void move_list(void **res, void **made)
{
    if (*res) {
        qn_list *to = *res, *from = *made, before = *to;
        *to = *from;
        *from = before;
    } else {
        *res = *made;
        *made = NULL;
    }
}

void qn_handle_move_arrays(mlx_vector_array *res, mlx_vector_array made)
{
    move_list(&res->ctx, &made.ctx);
    mlx_vector_array_free(made);
}

int mlx_closure_apply(mlx_vector_array *res, mlx_closure cls,
                      const mlx_vector_array input)
{
    QN_GET_CLOSURE(c, cls, mlx_closure);
    QN_GET_ARRAYS(in, input);
    mlx_vector_array made = {NULL};
    QN_CALL(qn_call_closure(c, &made, in));
    qn_handle_move_arrays(res, made);
    return 0;
}

int mlx_closure_kwargs_apply(mlx_vector_array *res, mlx_closure_kwargs cls,
                             const mlx_vector_array input_0,
                             const mlx_map_string_to_array input_1)
{
    QN_GET_CLOSURE(c, cls, mlx_closure_kwargs);
    QN_GET_ARRAYS(in, input_0);
    if (!input_1.ctx)
        return QN_REPORT_EMPTY(mlx_map_string_to_array);
    mlx_vector_array made = {NULL};
    QN_CALL(qn_call_closure_kwargs(c, &made, in, input_1));
    qn_handle_move_arrays(res, made);
    return 0;
}

int mlx_closure_value_and_grad_apply(mlx_vector_array *res_0,
                                     mlx_vector_array *res_1,
                                     mlx_closure_value_and_grad cls,
                                     const mlx_vector_array input)
{
    QN_GET_CLOSURE(c, cls, mlx_closure_value_and_grad);
    QN_GET_ARRAYS(in, input);
    mlx_vector_array values = {NULL}, grads = {NULL};
    QN_CALL(qn_call_closure_value_and_grad(c, &values, &grads, in));
    qn_handle_move_arrays(res_0, values);
    qn_handle_move_arrays(res_1, grads);
    return 0;
}

int mlx_closure_custom_apply(mlx_vector_array *res, mlx_closure_custom cls,
                             const mlx_vector_array input_0,
                             const mlx_vector_array input_1,
                             const mlx_vector_array input_2)
{
    QN_GET_CLOSURE(c, cls, mlx_closure_custom);
    QN_GET_ARRAYS(primals, input_0);
    QN_GET_ARRAYS(cotangents, input_1);
    QN_GET_ARRAYS(outputs, input_2);
    mlx_vector_array made = {NULL};
    QN_CALL(qn_call_closure_custom(c, &made, primals, cotangents, outputs));
    qn_handle_move_arrays(res, made);
    return 0;
}

int mlx_closure_custom_jvp_apply(mlx_vector_array *res,
                                 mlx_closure_custom_jvp cls,
                                 const mlx_vector_array input_0,
                                 const mlx_vector_array input_1,
                                 const int *input_2, size_t input_2_num)
{
    QN_GET_CLOSURE(c, cls, mlx_closure_custom_jvp);
    QN_GET_ARRAYS(primals, input_0);
    QN_GET_ARRAYS(tangents, input_1);
    mlx_vector_array made = {NULL};
    QN_CALL(qn_call_closure_custom_jvp(c, &made, primals, tangents, input_2,
                                       input_2_num));
    qn_handle_move_arrays(res, made);
    return 0;
}

int mlx_closure_custom_vmap_apply(mlx_vector_array *res_0,
                                  mlx_vector_int *res_1,
                                  mlx_closure_custom_vmap cls,
                                  const mlx_vector_array input_0,
                                  const int *input_1, size_t input_1_num)
{
    QN_GET_CLOSURE(c, cls, mlx_closure_custom_vmap);
    QN_GET_ARRAYS(in, input_0);
    mlx_vector_array made = {NULL};
    mlx_vector_int axes = {NULL};
    QN_CALL(
        qn_call_closure_custom_vmap(c, &made, &axes, in, input_1, input_1_num));
    qn_handle_move_arrays(res_0, made);
    move_list(&res_1->ctx, &axes.ctx);
    mlx_vector_int_free(axes);
    return 0;
}
