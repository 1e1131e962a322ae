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
/* QN_GET_CLOSURE(c, cls, mlx_closure): like QN_GET_ARRAY. */
#define QN_GET_CLOSURE(name, handle, type)                                     \
    QN_GET_OR(qn_closure, name, qn_handle_closure((handle).ctx), type, 1)
/* Makes *ctx refer to the closure, by the rule for results.  The caller's
 * reference is taken over, also on failure. */
qn_status qn_handle_set_closure(void **ctx, qn_closure *closure);

/* Call a closure of the type in the name, with inputs that it may keep but not
 * change.  Results arrive with a NULL ctx and are the caller's to free; on
 * failure they stay so.  The function's own failure is QN_E_CANCELLED. */
qn_status qn_call_closure(qn_closure *closure, mlx_vector_array *res,
                          const qn_list *inputs);
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

#endif
