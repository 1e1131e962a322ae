/* Random numbers, as a function of a key.
 *
 * A key is an array of two uint32. The same key gives the same numbers,
 * whatever the thread or device; split a key for independent ones. A key whose
 * ctx is NULL stands for the calling thread's own sequence, which
 * mlx_random_seed starts. Everything is made from the bits of the Threefry-2x32
 * generator with 20 rounds (Salmon, Moraes, Dror, Shaw, "Parallel Random
 * Numbers: As Easy as 1, 2, 3", 2011). shape is the shape of the result. u is a
 * uniform number in [0, 1). */
#ifndef MLX_C_RANDOM_H
#define MLX_C_RANDOM_H

#include "mlx/c/array.h"
#include "mlx/c/types.h"

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* --- Keys ----------------------------------------------------------------- */

/* The key made from seed: its upper and its lower 32 bits. */
int mlx_random_key(mlx_array *res, uint64_t seed);

/* Starts the calling thread's sequence from seed. */
int mlx_random_seed(uint64_t seed);

/* num keys made from key, in the rows of an array (num, 2). */
int mlx_random_split_num(mlx_array *res, const mlx_array key, int num,
                         const mlx_stream s);

/* Two keys made from key. */
int mlx_random_split(mlx_array *res_0, mlx_array *res_1, const mlx_array key,
                     const mlx_stream s);

/* --- Bits and discrete numbers -------------------------------------------- */

/* Random bits, width bytes an element: uint8, uint16 or uint32 for 1, 2 or
 * 4. */
int mlx_random_bits(mlx_array *res, const int *shape, size_t shape_num,
                    int width, const mlx_array key, const mlx_stream s);

/* true with probability p, which is broadcast to shape. */
int mlx_random_bernoulli(mlx_array *res, const mlx_array p, const int *shape,
                         size_t shape_num, const mlx_array key,
                         const mlx_stream s);

/* Integers from low up to but not including high, which are broadcast to shape:
 * floor(low + u (high - low)), with u in float32. */
int mlx_random_randint(mlx_array *res, const mlx_array low,
                       const mlx_array high, const int *shape, size_t shape_num,
                       mlx_dtype dtype, const mlx_array key,
                       const mlx_stream s);

/* x with its entries along axis in random order; whole slices move. */
int mlx_random_permutation(mlx_array *res, const mlx_array x, int axis,
                           const mlx_array key, const mlx_stream s);

/* The numbers 0 to x - 1 in random order. */
int mlx_random_permutation_arange(mlx_array *res, int x, const mlx_array key,
                                  const mlx_stream s);

/* --- Categories ----------------------------------------------------------- */

/* Indices along axis, uint32, drawn with probabilities softmax(logits): one for
 * each distribution, in the shape of logits without axis. */
int mlx_random_categorical(mlx_array *res, const mlx_array logits, int axis,
                           const mlx_array key, const mlx_stream s);

/* num_samples for each distribution, along a new last axis. */
int mlx_random_categorical_num_samples(mlx_array *res, const mlx_array logits_,
                                       int axis, int num_samples,
                                       const mlx_array key, const mlx_stream s);

/* In a shape of the caller's choosing, to which the shape of logits without
 * axis must broadcast. */
int mlx_random_categorical_shape(mlx_array *res, const mlx_array logits,
                                 int axis, const int *shape, size_t shape_num,
                                 const mlx_array key, const mlx_stream s);

/* --- Continuous numbers --------------------------------------------------- */

/* low + u (high - low); low and high are broadcast to shape. */
int mlx_random_uniform(mlx_array *res, const mlx_array low,
                       const mlx_array high, const int *shape, size_t shape_num,
                       mlx_dtype dtype, const mlx_array key,
                       const mlx_stream s);

/* Normal numbers of mean loc and standard deviation scale: sqrt(2) erfinv(v)
 * with v uniform in (-1, 1). */
int mlx_random_normal(mlx_array *res, const int *shape, size_t shape_num,
                      mlx_dtype dtype, float loc, float scale,
                      const mlx_array key, const mlx_stream s);

/* The same with arrays for loc and scale, broadcast to shape; a NULL ctx stands
 * for 0 and for 1. */
int mlx_random_normal_broadcast(mlx_array *res, const int *shape,
                                size_t shape_num, mlx_dtype dtype,
                                const mlx_array loc, const mlx_array scale,
                                const mlx_array key, const mlx_stream s);

/* Normal vectors of mean (..., n) and covariance cov (..., n, n), which must be
 * positive semidefinite. The result has shape followed by n; the axes before
 * the last of mean and cov are broadcast to shape. float32 only. */
int mlx_random_multivariate_normal(mlx_array *res, const mlx_array mean,
                                   const mlx_array cov, const int *shape,
                                   size_t shape_num, mlx_dtype dtype,
                                   const mlx_array key, const mlx_stream s);

/* Standard normal numbers between lower and upper, which are broadcast to
 * shape. */
int mlx_random_truncated_normal(mlx_array *res, const mlx_array lower,
                                const mlx_array upper, const int *shape,
                                size_t shape_num, mlx_dtype dtype,
                                const mlx_array key, const mlx_stream s);

/* Standard Gumbel numbers, -log(-log(u)). */
int mlx_random_gumbel(mlx_array *res, const int *shape, size_t shape_num,
                      mlx_dtype dtype, const mlx_array key, const mlx_stream s);

/* Laplace numbers of mean loc: loc + scale sign(v) log(1 - |v|), v uniform in
 * (-1, 1). */
int mlx_random_laplace(mlx_array *res, const int *shape, size_t shape_num,
                       mlx_dtype dtype, float loc, float scale,
                       const mlx_array key, const mlx_stream s);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
