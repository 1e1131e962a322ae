/* closure.h: what a closure's handle holds, for the entries that keep one.
 *
 * A closure is a C function of the program's, perhaps with a payload.  It is
 * shared by handles, by the closures that transformations make of it and by
 * nodes of the graph; its destructor runs when the last of them lets go
 * (core/defer.h says when exactly). */
#ifndef QN_CAPI_CLOSURE_H
#define QN_CAPI_CLOSURE_H

#include "handles.h"

typedef struct qn_closure qn_closure;

qn_closure *qn_closure_ref(qn_closure *closure);
/* NULL is fine. */
void qn_closure_unref(qn_closure *closure);

/* The closure of a handle of one of the six types, by its ctx; borrowed.  NULL
 * for an empty handle. */
qn_closure *qn_handle_closure(const void *ctx);
/* A closure of the library's own, in a box in *ctx, which is NULL.  `fun` is a
 * function with a payload of the handle's type, which returns a qn_status and
 * what it fails with recorded.  The payload is taken over, also on failure. */
qn_status qn_closure_new_own(void **ctx, void (*fun)(void), void *payload,
                             void (*dtor)(void *));
/* The payload of a closure whose function that is, or NULL. */
void *qn_closure_payload(const qn_closure *closure, void (*fun)(void));
/* QN_GET_CLOSURE(c, cls, mlx_closure): like QN_GET_ARRAY. */
#define QN_GET_CLOSURE(name, handle, type)                                     \
    QN_GET_OR(qn_closure, name, qn_handle_closure((handle).ctx), type, 1)
/* Makes *ctx refer to the closure, by the rule for results.  The caller's
 * reference is taken over, also on failure. */
qn_status qn_handle_set_closure(void **ctx, qn_closure *closure);

/* Replaces what a result handle holds by what `made` does. */
#define QN_MOVE_CLOSURE(res, made, type)                                       \
    do {                                                                       \
        qn_status moved = qn_handle_set_closure(                               \
            &(res)->ctx, qn_closure_ref(qn_handle_closure((made).ctx)));       \
        type##_free(made);                                                     \
        QN_CALL(moved);                                                        \
    } while (0)

/* Call a closure of the type in the name, with inputs that it may keep but not
 * change.  Results arrive with a NULL ctx and are the caller's to free; on
 * failure they stay so.  The function's own failure is QN_E_CANCELLED, with
 * the sentence of the last error that it met in the library, if it met one. */
qn_status qn_call_closure(qn_closure *closure, mlx_vector_array *res,
                          const qn_list *inputs);
qn_status qn_call_closure_kwargs(qn_closure *closure, mlx_vector_array *res,
                                 const qn_list *inputs,
                                 mlx_map_string_to_array kwargs);
qn_status qn_call_closure_value_and_grad(qn_closure *closure,
                                         mlx_vector_array *values,
                                         mlx_vector_array *grads,
                                         const qn_list *inputs);
qn_status qn_call_closure_custom(qn_closure *closure, mlx_vector_array *res,
                                 const qn_list *primals,
                                 const qn_list *cotangents,
                                 const qn_list *outputs);
qn_status qn_call_closure_custom_jvp(qn_closure *closure, mlx_vector_array *res,
                                     const qn_list *primals,
                                     const qn_list *tangents,
                                     const int *argnums, size_t count);
qn_status qn_call_closure_custom_vmap(qn_closure *closure,
                                      mlx_vector_array *res,
                                      mlx_vector_int *out_axes,
                                      const qn_list *inputs, const int *axes,
                                      size_t count);

/* Moves a list that was made into a result, without a way to fail. */
void qn_handle_move_arrays(mlx_vector_array *res, mlx_vector_array made);

#endif
