/* Closures: functions of arrays that transformations and compilation take.
 *
 * A closure is made from a C function. In the _payload form the function also
 * gets payload as its last argument, and dtor, if not NULL, is called once with
 * payload when nothing holds the closure any more; closures made from it by
 * compilation or a transformation hold it too.
 *
 * In a callback, the inputs belong to the library and end with the call: keep
 * one with a _set function. Each result starts with a NULL ctx; fill it with a
 * _set function and the library owns it from then on. Return 0 for success.
 * Anything else makes the enclosing call fail, as does a result left empty.
 * Nothing may jump out of a callback.
 *
 * The six types differ in the signature of the function and have the same
 * functions otherwise. Let X be one of them:
 *
 *   X_new                    a handle without a closure (NULL ctx)
 *   X_new_func, _payload     a closure that calls fun
 *   X_set                    makes *cls refer to the closure of src
 *   X_apply                  calls cls with the inputs and stores what it makes
 *   X_free                   gives up the closure */
#ifndef MLX_C_CLOSURE_H
#define MLX_C_CLOSURE_H

#include "mlx/c/types.h"

#include <stddef.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* --- Arrays to arrays ----------------------------------------------------- */

/* fun(res, in) makes the list of results from the list of inputs. */
mlx_closure mlx_closure_new(void);
mlx_closure mlx_closure_new_func(int (*fun)(mlx_vector_array *,
                                            const mlx_vector_array));
mlx_closure mlx_closure_new_func_payload(int (*fun)(mlx_vector_array *,
                                                    const mlx_vector_array,
                                                    void *),
                                         void *payload, void (*dtor)(void *));

/* The same for one array: fun(res, in). Applying it takes a list of one. */
mlx_closure mlx_closure_new_unary(int (*fun)(mlx_array *, const mlx_array));

/* Assign, call and free. */
int mlx_closure_set(mlx_closure *cls, const mlx_closure src);
int mlx_closure_apply(mlx_vector_array *res, mlx_closure cls,
                      const mlx_vector_array input);
int mlx_closure_free(mlx_closure cls);

/* --- Arrays by place and by name ------------------------------------------ */

/* fun(res, in, kwargs): input_0 is the list of inputs by place, input_1 those
 * by name. */
mlx_closure_kwargs mlx_closure_kwargs_new(void);
mlx_closure_kwargs mlx_closure_kwargs_new_func(int (*fun)(
    mlx_vector_array *, const mlx_vector_array, const mlx_map_string_to_array));
mlx_closure_kwargs mlx_closure_kwargs_new_func_payload(
    int (*fun)(mlx_vector_array *, const mlx_vector_array,
               const mlx_map_string_to_array, void *),
    void *payload, void (*dtor)(void *));
int mlx_closure_kwargs_set(mlx_closure_kwargs *cls,
                           const mlx_closure_kwargs src);
int mlx_closure_kwargs_apply(mlx_vector_array *res, mlx_closure_kwargs cls,
                             const mlx_vector_array input_0,
                             const mlx_map_string_to_array input_1);
int mlx_closure_kwargs_free(mlx_closure_kwargs cls);

/* --- Values and gradients ------------------------------------------------- */

/* fun(values, grads, in): res_0 gets the values and res_1 the gradients.
 * mlx_value_and_grad makes such closures. */
mlx_closure_value_and_grad mlx_closure_value_and_grad_new(void);
mlx_closure_value_and_grad mlx_closure_value_and_grad_new_func(
    int (*fun)(mlx_vector_array *, mlx_vector_array *, const mlx_vector_array));
mlx_closure_value_and_grad mlx_closure_value_and_grad_new_func_payload(
    int (*fun)(mlx_vector_array *, mlx_vector_array *, const mlx_vector_array,
               void *),
    void *payload, void (*dtor)(void *));
int mlx_closure_value_and_grad_set(mlx_closure_value_and_grad *cls,
                                   const mlx_closure_value_and_grad src);
int mlx_closure_value_and_grad_apply(mlx_vector_array *res_0,
                                     mlx_vector_array *res_1,
                                     mlx_closure_value_and_grad cls,
                                     const mlx_vector_array input);
int mlx_closure_value_and_grad_free(mlx_closure_value_and_grad cls);

/* --- A reverse-mode rule -------------------------------------------------- */

/* fun(res, primals, cotangents, outputs) makes one gradient for each primal.
 * outputs are the results of the function whose rule this is, and cotangents
 * their gradients. */
mlx_closure_custom mlx_closure_custom_new(void);
mlx_closure_custom mlx_closure_custom_new_func(
    int (*fun)(mlx_vector_array *, const mlx_vector_array,
               const mlx_vector_array, const mlx_vector_array));
mlx_closure_custom mlx_closure_custom_new_func_payload(
    int (*fun)(mlx_vector_array *, const mlx_vector_array,
               const mlx_vector_array, const mlx_vector_array, void *),
    void *payload, void (*dtor)(void *));
int mlx_closure_custom_set(mlx_closure_custom *cls,
                           const mlx_closure_custom src);
int mlx_closure_custom_apply(mlx_vector_array *res, mlx_closure_custom cls,
                             const mlx_vector_array input_0,
                             const mlx_vector_array input_1,
                             const mlx_vector_array input_2);
int mlx_closure_custom_free(mlx_closure_custom cls);

/* --- A forward-mode rule -------------------------------------------------- */

/* fun(res, primals, tangents, argnums, n) makes one tangent for each result of
 * the function whose rule this is. tangents belong to the n primals numbered in
 * argnums. */
mlx_closure_custom_jvp mlx_closure_custom_jvp_new(void);
mlx_closure_custom_jvp mlx_closure_custom_jvp_new_func(
    int (*fun)(mlx_vector_array *, const mlx_vector_array,
               const mlx_vector_array, const int *, size_t _num));
mlx_closure_custom_jvp mlx_closure_custom_jvp_new_func_payload(
    int (*fun)(mlx_vector_array *, const mlx_vector_array,
               const mlx_vector_array, const int *, size_t _num, void *),
    void *payload, void (*dtor)(void *));
int mlx_closure_custom_jvp_set(mlx_closure_custom_jvp *cls,
                               const mlx_closure_custom_jvp src);
int mlx_closure_custom_jvp_apply(mlx_vector_array *res,
                                 mlx_closure_custom_jvp cls,
                                 const mlx_vector_array input_0,
                                 const mlx_vector_array input_1,
                                 const int *input_2, size_t input_2_num);
int mlx_closure_custom_jvp_free(mlx_closure_custom_jvp cls);

/* --- A rule for mapping over an axis -------------------------------------- */

/* fun(res, out_axes, in, axes, n): axes has, for each of the n inputs, the axis
 * that is mapped, or -1 for none. The results go to res_0 and the axis of each
 * that is mapped to res_1. */
mlx_closure_custom_vmap mlx_closure_custom_vmap_new(void);
mlx_closure_custom_vmap mlx_closure_custom_vmap_new_func(
    int (*fun)(mlx_vector_array *, mlx_vector_int *, const mlx_vector_array,
               const int *, size_t _num));
mlx_closure_custom_vmap mlx_closure_custom_vmap_new_func_payload(
    int (*fun)(mlx_vector_array *, mlx_vector_int *, const mlx_vector_array,
               const int *, size_t _num, void *),
    void *payload, void (*dtor)(void *));
int mlx_closure_custom_vmap_set(mlx_closure_custom_vmap *cls,
                                const mlx_closure_custom_vmap src);
int mlx_closure_custom_vmap_apply(mlx_vector_array *res_0,
                                  mlx_vector_int *res_1,
                                  mlx_closure_custom_vmap cls,
                                  const mlx_vector_array input_0,
                                  const int *input_1, size_t input_1_num);
int mlx_closure_custom_vmap_free(mlx_closure_custom_vmap cls);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
