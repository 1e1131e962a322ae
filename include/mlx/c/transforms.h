/* Evaluation, and transformations of functions of arrays: derivatives and their
 * custom rules.
 *
 * Functions must be pure: they may be called at any time, with placeholders
 * that they must not evaluate. */
#ifndef MLX_C_TRANSFORMS_H
#define MLX_C_TRANSFORMS_H

#include "mlx/c/types.h"

#include <stddef.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* --- Evaluation ----------------------------------------------------------- */

/* Computes the arrays in outputs and what they depend on, and waits for it. */
int mlx_eval(const mlx_vector_array outputs);

/* Starts the same and returns without waiting; an error shows at the next
 * wait. */
int mlx_async_eval(const mlx_vector_array outputs);

/* --- Derivatives ---------------------------------------------------------- */

/* Reverse mode. Stores fun(primals) in res_0 and, in res_1, one gradient for
 * each primal: the product of cotangents, one for each output, with the
 * Jacobian. */
int mlx_vjp(mlx_vector_array *res_0, mlx_vector_array *res_1,
            const mlx_closure fun, const mlx_vector_array primals,
            const mlx_vector_array cotangents);

/* Forward mode. Stores fun(primals) in res_0 and, in res_1, one tangent for
 * each output: the product of the Jacobian with tangents, one for each
 * primal. */
int mlx_jvp(mlx_vector_array *res_0, mlx_vector_array *res_1,
            const mlx_closure fun, const mlx_vector_array primals,
            const mlx_vector_array tangents);

/* Stores a closure that gives the values of fun and the gradients of the first
 * of them, which must have exactly one element, by the inputs numbered in
 * argnums, in that order. At least one number, each in range. */
int mlx_value_and_grad(mlx_closure_value_and_grad *res, const mlx_closure fun,
                       const int *argnums, size_t argnums_num);

/* --- Custom rules --------------------------------------------------------- */

/* Stores a closure that computes fun and, when differentiated, keeps nothing
 * inside fun but calls it once more: less memory for more work. fun must be
 * deterministic. */
int mlx_checkpoint(mlx_closure *res, const mlx_closure fun);

/* Stores a closure that computes fun and takes its reverse-mode gradient from
 * fun_vjp. Operations inside fun need no gradient of their own. Gradients must
 * agree with the primals in number, shape and dtype. */
int mlx_custom_vjp(mlx_closure *res, const mlx_closure fun,
                   const mlx_closure_custom fun_vjp);

/* The same with a rule for each transformation. A rule whose ctx is NULL leaves
 * that transformation as it is for fun. */
int mlx_custom_function(mlx_closure *res, const mlx_closure fun,
                        const mlx_closure_custom fun_vjp,
                        const mlx_closure_custom_jvp fun_jvp,
                        const mlx_closure_custom_vmap fun_vmap);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
