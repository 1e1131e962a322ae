/* Operations on arrays.
 *
 * Each stores its result in *res, or a list of results, and runs on stream s.
 * Errors in shapes and dtypes are reported at once (types.h).
 *
 * Axes. A negative axis counts from the end. A function in several forms works
 * on all elements in the plain form, in row-major order where order matters,
 * along one axis in the _axis form, and over several in the _axes form.
 * keepdims leaves a reduced axis in the result with size 1.
 *
 * Broadcasting. The shapes of several operands are aligned at the end; missing
 * sizes count as 1, and a size of 1 is repeated to match the others.
 *
 * Result dtypes. Operands of different dtypes are first promoted: bool yields
 * to every other dtype; among unsigned and among signed integers the wider one
 * wins; unsigned with signed gives the signed dtype that holds both, float32
 * for uint64; an integer yields to a float; float16 with bfloat16 gives
 * float32; else the wider float wins; complex64 wins over all. Functions that
 * are called float functions below turn integers and bool into float32 and keep
 * other dtypes. Integer arithmetic wraps around. */
#ifndef MLX_C_OPS_H
#define MLX_C_OPS_H

#include "mlx/c/array.h"
#include "mlx/c/optional.h"
#include "mlx/c/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* --- Creation ------------------------------------------------------------- */

/* An array of that shape filled with vals, which is broadcast to it. */
int mlx_full(mlx_array *res, const int *shape, size_t shape_num,
             const mlx_array vals, mlx_dtype dtype, const mlx_stream s);

/* The same in the shape of a. */
int mlx_full_like(mlx_array *res, const mlx_array a, const mlx_array vals,
                  mlx_dtype dtype, const mlx_stream s);

/* Zeros, and ones, of that shape and dtype. */
int mlx_zeros(mlx_array *res, const int *shape, size_t shape_num,
              mlx_dtype dtype, const mlx_stream s);
int mlx_ones(mlx_array *res, const int *shape, size_t shape_num,
             mlx_dtype dtype, const mlx_stream s);

/* The same in the shape and dtype of a, or in the shape of a and that dtype. */
int mlx_zeros_like(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_zeros_like_dtype(mlx_array *res, const mlx_array a, mlx_dtype dtype,
                         const mlx_stream s);
int mlx_ones_like(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_ones_like_dtype(mlx_array *res, const mlx_array a, mlx_dtype dtype,
                        const mlx_stream s);

/* start, start + step, ... up to but not including stop: ceil((stop - start) /
 * step) values. For an integer dtype, start and step are cut to integers, but
 * not the count. */
int mlx_arange(mlx_array *res, double start, double stop, double step,
               mlx_dtype dtype, const mlx_stream s);

/* num values at equal distances from start to stop, both included. */
int mlx_linspace(mlx_array *res, double start, double stop, int num,
                 mlx_dtype dtype, const mlx_stream s);

/* The same; without endpoint, stop itself is left out. */
int mlx_linspace_endpoint(mlx_array *res, double start, double stop, int num,
                          bool endpoint, mlx_dtype dtype, const mlx_stream s);

/* Ones on diagonal k of n rows and m columns, zeros elsewhere; k > 0 is above
 * the main diagonal. */
int mlx_eye(mlx_array *res, int n, int m, int k, mlx_dtype dtype,
            const mlx_stream s);

/* Ones on the main diagonal of n rows and columns. */
int mlx_identity(mlx_array *res, int n, mlx_dtype dtype, const mlx_stream s);

/* Ones on and below diagonal k of n rows and m columns, zeros elsewhere. */
int mlx_tri(mlx_array *res, int n, int m, int k, mlx_dtype type,
            const mlx_stream s);

/* Window functions: M values for n = 0 to M - 1 in float32. With x = n / (M -
 * 1):
 *
 *   Bartlett   1 - |2 x - 1|
 *   Hann       0.5 - 0.5 cos(2 pi x)
 *   Hamming    0.54 - 0.46 cos(2 pi x)
 *   Blackman   0.42 - 0.5 cos(2 pi x) + 0.08 cos(4 pi x) */
int mlx_bartlett(mlx_array *res, int M, const mlx_stream s);
int mlx_hanning(mlx_array *res, int M, const mlx_stream s);
int mlx_hamming(mlx_array *res, int M, const mlx_stream s);
int mlx_blackman(mlx_array *res, int M, const mlx_stream s);

/* --- Arithmetic on two arrays, element by element ------------------------- */

/* a + b, a - b and a * b. */
int mlx_add(mlx_array *res, const mlx_array a, const mlx_array b,
            const mlx_stream s);
int mlx_subtract(mlx_array *res, const mlx_array a, const mlx_array b,
                 const mlx_stream s);
int mlx_multiply(mlx_array *res, const mlx_array a, const mlx_array b,
                 const mlx_stream s);

/* a / b. A float function. */
int mlx_divide(mlx_array *res, const mlx_array a, const mlx_array b,
               const mlx_stream s);

/* floor(a / b) for floats; the quotient of integers is cut toward zero. */
int mlx_floor_divide(mlx_array *res, const mlx_array a, const mlx_array b,
                     const mlx_stream s);

/* The remainder of a / b, with the sign of b. */
int mlx_remainder(mlx_array *res, const mlx_array a, const mlx_array b,
                  const mlx_stream s);

/* A list of the two: mlx_floor_divide and mlx_remainder. */
int mlx_divmod(mlx_vector_array *res, const mlx_array a, const mlx_array b,
               const mlx_stream s);

/* a to the power of b; integers stay integers. */
int mlx_power(mlx_array *res, const mlx_array a, const mlx_array b,
              const mlx_stream s);

/* The larger and the smaller of a and b; NaN if either is. */
int mlx_maximum(mlx_array *res, const mlx_array a, const mlx_array b,
                const mlx_stream s);
int mlx_minimum(mlx_array *res, const mlx_array a, const mlx_array b,
                const mlx_stream s);

/* The angle of the point (b, a), in (-pi, pi]. A float function. */
int mlx_arctan2(mlx_array *res, const mlx_array a, const mlx_array b,
                const mlx_stream s);

/* log(exp(a) + exp(b)) without overflow. A float function. */
int mlx_logaddexp(mlx_array *res, const mlx_array a, const mlx_array b,
                  const mlx_stream s);

/* --- Arithmetic on one array, element by element -------------------------- */

/* The magnitude: real for complex64. */
int mlx_abs(mlx_array *res, const mlx_array a, const mlx_stream s);

/* -a and a itself. */
int mlx_negative(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_positive(mlx_array *res, const mlx_array a, const mlx_stream s);

/* -1, 0 or 1; a / |a| for complex64. 0 for NaN. */
int mlx_sign(mlx_array *res, const mlx_array a, const mlx_stream s);

/* a * a. */
int mlx_square(mlx_array *res, const mlx_array a, const mlx_stream s);

/* The square root, its reciprocal, and 1 / a. Float functions. */
int mlx_sqrt(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_rsqrt(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_reciprocal(mlx_array *res, const mlx_array a, const mlx_stream s);

/* e^a, and e^a - 1 without loss near 0. Float functions. */
int mlx_exp(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_expm1(mlx_array *res, const mlx_array a, const mlx_stream s);

/* Logarithms: natural, to base 2, to base 10, and of 1 + a without loss near 0.
 * Float functions. */
int mlx_log(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_log2(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_log10(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_log1p(mlx_array *res, const mlx_array a, const mlx_stream s);

/* Trigonometric functions of a in radians, and their inverses. Float
 * functions. */
int mlx_sin(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_cos(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_tan(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_arcsin(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_arccos(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_arctan(mlx_array *res, const mlx_array a, const mlx_stream s);

/* Hyperbolic functions and their inverses. Float functions. */
int mlx_sinh(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_cosh(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_tanh(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_arcsinh(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_arccosh(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_arctanh(mlx_array *res, const mlx_array a, const mlx_stream s);

/* From radians to degrees, and back. Float functions. */
int mlx_degrees(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_radians(mlx_array *res, const mlx_array a, const mlx_stream s);

/* 1 / (1 + e^-a). A float function. */
int mlx_sigmoid(mlx_array *res, const mlx_array a, const mlx_stream s);

/* The error function, 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to a,
 * and its inverse. Float functions. */
int mlx_erf(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_erfinv(mlx_array *res, const mlx_array a, const mlx_stream s);

/* The next integer below or equal, above or equal, and toward zero. The dtype
 * stays. */
int mlx_floor(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_ceil(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_trunc(mlx_array *res, const mlx_array a, const mlx_stream s);

/* a rounded to that many decimals (negative: tens, hundreds, ...), halves to
 * the even neighbour. */
int mlx_round(mlx_array *res, const mlx_array a, int decimals,
              const mlx_stream s);

/* a, but at least a_min and at most a_max. Either may be absent, not both. */
int mlx_clip(mlx_array *res, const mlx_array a, const mlx_array a_min,
             const mlx_array a_max, const mlx_stream s);

/* a with NaN replaced by nan, and the infinities by posinf and neginf, which
 * are the largest and the smallest finite value of the dtype if absent. */
int mlx_nan_to_num(mlx_array *res, const mlx_array a, float nan,
                   mlx_optional_float posinf, mlx_optional_float neginf,
                   const mlx_stream s);

/* The real part and the imaginary part, float32 for complex64, and the complex
 * conjugate. */
int mlx_real(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_imag(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_conjugate(mlx_array *res, const mlx_array a, const mlx_stream s);

/* --- Comparison, logic and choice ----------------------------------------- */

/* Compare element by element, into bool; false where an operand is NaN, but for
 * not_equal. */
int mlx_equal(mlx_array *res, const mlx_array a, const mlx_array b,
              const mlx_stream s);
int mlx_not_equal(mlx_array *res, const mlx_array a, const mlx_array b,
                  const mlx_stream s);
int mlx_greater(mlx_array *res, const mlx_array a, const mlx_array b,
                const mlx_stream s);
int mlx_greater_equal(mlx_array *res, const mlx_array a, const mlx_array b,
                      const mlx_stream s);
int mlx_less(mlx_array *res, const mlx_array a, const mlx_array b,
             const mlx_stream s);
int mlx_less_equal(mlx_array *res, const mlx_array a, const mlx_array b,
                   const mlx_stream s);

/* Whether |a - b| <= atol + rtol |b|, element by element. Infinities are close
 * to themselves; NaN is close to NaN if equal_nan. */
int mlx_isclose(mlx_array *res, const mlx_array a, const mlx_array b,
                double rtol, double atol, bool equal_nan, const mlx_stream s);

/* Whether mlx_isclose holds everywhere, as one element. */
int mlx_allclose(mlx_array *res, const mlx_array a, const mlx_array b,
                 double rtol, double atol, bool equal_nan, const mlx_stream s);

/* Whether shapes and all elements are equal, as one element. NaN equals NaN if
 * equal_nan. */
int mlx_array_equal(mlx_array *res, const mlx_array a, const mlx_array b,
                    bool equal_nan, const mlx_stream s);

/* Whether each element is of a kind: NaN, infinite, one of the infinities,
 * finite. */
int mlx_isnan(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_isinf(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_isposinf(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_isneginf(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_isfinite(mlx_array *res, const mlx_array a, const mlx_stream s);

/* Logic, element by element, into bool; what is not 0 is true. */
int mlx_logical_and(mlx_array *res, const mlx_array a, const mlx_array b,
                    const mlx_stream s);
int mlx_logical_or(mlx_array *res, const mlx_array a, const mlx_array b,
                   const mlx_stream s);
int mlx_logical_xor(mlx_array *res, const mlx_array a, const mlx_array b,
                    const mlx_stream s);
int mlx_logical_not(mlx_array *res, const mlx_array a, const mlx_stream s);

/* x where condition is true, else y; all three are broadcast. */
int mlx_where(mlx_array *res, const mlx_array condition, const mlx_array x,
              const mlx_array y, const mlx_stream s);

/* --- Bits: integers and bool ---------------------------------------------- */

/* Combine the bits of a and b, and invert those of a. bool is one bit. */
int mlx_bitwise_and(mlx_array *res, const mlx_array a, const mlx_array b,
                    const mlx_stream s);
int mlx_bitwise_or(mlx_array *res, const mlx_array a, const mlx_array b,
                   const mlx_stream s);
int mlx_bitwise_xor(mlx_array *res, const mlx_array a, const mlx_array b,
                    const mlx_stream s);
int mlx_bitwise_invert(mlx_array *res, const mlx_array a, const mlx_stream s);

/* Shift the bits of a by b places; to the right, the sign is kept. */
int mlx_left_shift(mlx_array *res, const mlx_array a, const mlx_array b,
                   const mlx_stream s);
int mlx_right_shift(mlx_array *res, const mlx_array a, const mlx_array b,
                    const mlx_stream s);

/* --- Dtypes, storage and the graph ---------------------------------------- */

/* a in another dtype. Floats are cut toward zero to integers; what is not 0,
 * NaN too, is true; smaller floats are rounded, halves to even, and overflow to
 * an infinity. */
int mlx_astype(mlx_array *res, const mlx_array a, mlx_dtype dtype,
               const mlx_stream s);

/* The bytes of a as another dtype. If the element sizes differ, the last axis
 * changes in proportion, which must work out. */
int mlx_view(mlx_array *res, const mlx_array a, mlx_dtype dtype,
             const mlx_stream s);

/* x as 8-bit floats with 4 bits of exponent and 3 of mantissa (E4M3), in uint8,
 * rounded to even, at most 448 in magnitude; and from there. */
int mlx_to_fp8(mlx_array *res, const mlx_array x, const mlx_stream s);
int mlx_from_fp8(mlx_array *res, const mlx_array x, mlx_dtype dtype,
                 const mlx_stream s);

/* a in storage of its own. */
int mlx_copy(mlx_array *res, const mlx_array a, const mlx_stream s);

/* a with elements in row-major order without gaps, or in column-major order too
 * if allow_col_major; a itself if it is so already. */
int mlx_contiguous(mlx_array *res, const mlx_array a, bool allow_col_major,
                   const mlx_stream s);

/* The elements of a in row-major order seen through another shape, strides
 * (counts of elements) and the offset of the first. Not checked against the
 * size of a. */
int mlx_as_strided(mlx_array *res, const mlx_array a, const int *shape,
                   size_t shape_num, const int64_t *strides, size_t strides_num,
                   size_t offset, const mlx_stream s);

/* a, but no gradient passes. */
int mlx_stop_gradient(mlx_array *res, const mlx_array a, const mlx_stream s);

/* The inputs; evaluating one of them evaluates dependencies first. */
int mlx_depends(mlx_vector_array *res, const mlx_vector_array inputs,
                const mlx_vector_array dependencies);

/* The product of the sizes along axes, or its reciprocal if inverted, as one
 * element: a size that compiled graphs work out anew. */
int mlx_number_of_elements(mlx_array *res, const mlx_array a, const int *axes,
                           size_t axes_num, bool inverted, mlx_dtype dtype,
                           const mlx_stream s);

/* --- Reductions ----------------------------------------------------------- */

/* Sums and products. bool and the integers below 32 bits become int32 or
 * uint32, other dtypes stay. 0 and 1 over nothing. */
int mlx_sum(mlx_array *res, const mlx_array a, bool keepdims,
            const mlx_stream s);
int mlx_sum_axis(mlx_array *res, const mlx_array a, int axis, bool keepdims,
                 const mlx_stream s);
int mlx_sum_axes(mlx_array *res, const mlx_array a, const int *axes,
                 size_t axes_num, bool keepdims, const mlx_stream s);
int mlx_prod(mlx_array *res, const mlx_array a, bool keepdims,
             const mlx_stream s);
int mlx_prod_axis(mlx_array *res, const mlx_array a, int axis, bool keepdims,
                  const mlx_stream s);
int mlx_prod_axes(mlx_array *res, const mlx_array a, const int *axes,
                  size_t axes_num, bool keepdims, const mlx_stream s);

/* The mean. A float function; NaN over nothing. */
int mlx_mean(mlx_array *res, const mlx_array a, bool keepdims,
             const mlx_stream s);
int mlx_mean_axis(mlx_array *res, const mlx_array a, int axis, bool keepdims,
                  const mlx_stream s);
int mlx_mean_axes(mlx_array *res, const mlx_array a, const int *axes,
                  size_t axes_num, bool keepdims, const mlx_stream s);

/* The sum of the squared distances from the mean, divided by n - ddof; and its
 * square root. Float functions. */
int mlx_var(mlx_array *res, const mlx_array a, bool keepdims, int ddof,
            const mlx_stream s);
int mlx_var_axis(mlx_array *res, const mlx_array a, int axis, bool keepdims,
                 int ddof, const mlx_stream s);
int mlx_var_axes(mlx_array *res, const mlx_array a, const int *axes,
                 size_t axes_num, bool keepdims, int ddof, const mlx_stream s);
int mlx_std(mlx_array *res, const mlx_array a, bool keepdims, int ddof,
            const mlx_stream s);
int mlx_std_axis(mlx_array *res, const mlx_array a, int axis, bool keepdims,
                 int ddof, const mlx_stream s);
int mlx_std_axes(mlx_array *res, const mlx_array a, const int *axes,
                 size_t axes_num, bool keepdims, int ddof, const mlx_stream s);

/* The middle value, or the mean of the two in the middle. A float function. An
 * error over nothing. */
int mlx_median(mlx_array *res, const mlx_array a, bool keepdims,
               const mlx_stream s);
int mlx_median_axis(mlx_array *res, const mlx_array a, int axis, bool keepdims,
                    const mlx_stream s);
int mlx_median_axes(mlx_array *res, const mlx_array a, const int *axes,
                    size_t axes_num, bool keepdims, const mlx_stream s);

/* The largest and the smallest value; NaN if there is one. An error over
 * nothing. */
int mlx_max(mlx_array *res, const mlx_array a, bool keepdims,
            const mlx_stream s);
int mlx_max_axis(mlx_array *res, const mlx_array a, int axis, bool keepdims,
                 const mlx_stream s);
int mlx_max_axes(mlx_array *res, const mlx_array a, const int *axes,
                 size_t axes_num, bool keepdims, const mlx_stream s);
int mlx_min(mlx_array *res, const mlx_array a, bool keepdims,
            const mlx_stream s);
int mlx_min_axis(mlx_array *res, const mlx_array a, int axis, bool keepdims,
                 const mlx_stream s);
int mlx_min_axes(mlx_array *res, const mlx_array a, const int *axes,
                 size_t axes_num, bool keepdims, const mlx_stream s);

/* Whether all elements, or any, are true (not 0). true and false over
 * nothing. */
int mlx_all(mlx_array *res, const mlx_array a, bool keepdims,
            const mlx_stream s);
int mlx_all_axis(mlx_array *res, const mlx_array a, int axis, bool keepdims,
                 const mlx_stream s);
int mlx_all_axes(mlx_array *res, const mlx_array a, const int *axes,
                 size_t axes_num, bool keepdims, const mlx_stream s);
int mlx_any(mlx_array *res, const mlx_array a, bool keepdims,
            const mlx_stream s);
int mlx_any_axis(mlx_array *res, const mlx_array a, int axis, bool keepdims,
                 const mlx_stream s);
int mlx_any_axes(mlx_array *res, const mlx_array a, const int *axes,
                 size_t axes_num, bool keepdims, const mlx_stream s);

/* How many elements are not 0, in int32. */
int mlx_count_nonzero(mlx_array *res, const mlx_array a, bool keepdims,
                      const mlx_stream s);
int mlx_count_nonzero_axis(mlx_array *res, const mlx_array a, int axis,
                           bool keepdims, const mlx_stream s);
int mlx_count_nonzero_axes(mlx_array *res, const mlx_array a, const int *axes,
                           size_t axes_num, bool keepdims, const mlx_stream s);

/* log(sum(exp(a))) without overflow. A float function. An error over
 * nothing. */
int mlx_logsumexp(mlx_array *res, const mlx_array a, bool keepdims,
                  const mlx_stream s);
int mlx_logsumexp_axis(mlx_array *res, const mlx_array a, int axis,
                       bool keepdims, const mlx_stream s);
int mlx_logsumexp_axes(mlx_array *res, const mlx_array a, const int *axes,
                       size_t axes_num, bool keepdims, const mlx_stream s);

/* The index of the largest and of the smallest value, uint32: of equal ones,
 * the first. An error over nothing. */
int mlx_argmax(mlx_array *res, const mlx_array a, bool keepdims,
               const mlx_stream s);
int mlx_argmax_axis(mlx_array *res, const mlx_array a, int axis, bool keepdims,
                    const mlx_stream s);
int mlx_argmin(mlx_array *res, const mlx_array a, bool keepdims,
               const mlx_stream s);
int mlx_argmin_axis(mlx_array *res, const mlx_array a, int axis, bool keepdims,
                    const mlx_stream s);

/* exp(a) / sum(exp(a)), the sum over all elements, an axis or axes; the shape
 * stays. A float function. precise computes in float32 at least. */
int mlx_softmax(mlx_array *res, const mlx_array a, bool precise,
                const mlx_stream s);
int mlx_softmax_axis(mlx_array *res, const mlx_array a, int axis, bool precise,
                     const mlx_stream s);
int mlx_softmax_axes(mlx_array *res, const mlx_array a, const int *axes,
                     size_t axes_num, bool precise, const mlx_stream s);

/* --- Scans: each element becomes a reduction of those up to it ------------ */

/* The running sum and product. With inclusive, an element's own value counts,
 * else the scan starts with 0 or 1; reverse goes from the end. a is first
 * turned into dtype; without one, bool becomes int32 and other dtypes stay. The
 * plain form gives a result of one axis. */
int mlx_cumsum(mlx_array *res, const mlx_array a, bool reverse, bool inclusive,
               mlx_optional_dtype dtype, const mlx_stream s);
int mlx_cumsum_axis(mlx_array *res, const mlx_array a, int axis, bool reverse,
                    bool inclusive, mlx_optional_dtype dtype,
                    const mlx_stream s);
int mlx_cumprod(mlx_array *res, const mlx_array a, bool reverse, bool inclusive,
                mlx_optional_dtype dtype, const mlx_stream s);
int mlx_cumprod_axis(mlx_array *res, const mlx_array a, int axis, bool reverse,
                     bool inclusive, mlx_optional_dtype dtype,
                     const mlx_stream s);

/* The running maximum and minimum; NaN from the first one on. */
int mlx_cummax(mlx_array *res, const mlx_array a, bool reverse, bool inclusive,
               const mlx_stream s);
int mlx_cummax_axis(mlx_array *res, const mlx_array a, int axis, bool reverse,
                    bool inclusive, const mlx_stream s);
int mlx_cummin(mlx_array *res, const mlx_array a, bool reverse, bool inclusive,
               const mlx_stream s);
int mlx_cummin_axis(mlx_array *res, const mlx_array a, int axis, bool reverse,
                    bool inclusive, const mlx_stream s);

/* The running log(sum(exp(a))). A float function. */
int mlx_logcumsumexp(mlx_array *res, const mlx_array a, bool reverse,
                     bool inclusive, const mlx_stream s);
int mlx_logcumsumexp_axis(mlx_array *res, const mlx_array a, int axis,
                          bool reverse, bool inclusive, const mlx_stream s);

/* The differences of neighbours along axis, taken n times over; each time the
 * axis gets shorter by one. */
int mlx_diff(mlx_array *res, const mlx_array a, int n, int axis,
             const mlx_stream s);

/* --- Order ---------------------------------------------------------------- */

/* a in ascending order, NaN last. Equal elements keep their order. The plain
 * form gives a result of one axis, here and below. */
int mlx_sort(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_sort_axis(mlx_array *res, const mlx_array a, int axis,
                  const mlx_stream s);

/* The indices, uint32, that mlx_sort would take the elements from. */
int mlx_argsort(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_argsort_axis(mlx_array *res, const mlx_array a, int axis,
                     const mlx_stream s);

/* a rearranged so that element kth is where sorting puts it, with none larger
 * before it and none smaller after it. kth may be negative. */
int mlx_partition(mlx_array *res, const mlx_array a, int kth,
                  const mlx_stream s);
int mlx_partition_axis(mlx_array *res, const mlx_array a, int kth, int axis,
                       const mlx_stream s);

/* The indices, uint32, that mlx_partition would take the elements from. */
int mlx_argpartition(mlx_array *res, const mlx_array a, int kth,
                     const mlx_stream s);
int mlx_argpartition_axis(mlx_array *res, const mlx_array a, int kth, int axis,
                          const mlx_stream s);

/* The k largest elements, in no order. */
int mlx_topk(mlx_array *res, const mlx_array a, int k, const mlx_stream s);
int mlx_topk_axis(mlx_array *res, const mlx_array a, int k, int axis,
                  const mlx_stream s);

/* The indices, uint32, at which values could be inserted to keep
 * sorted_sequence, which has one axis, in order: before equal elements for side
 * "left", after them for "right". */
int mlx_searchsorted(mlx_array *res, const mlx_array sorted_sequence,
                     const mlx_array values, const char *side,
                     const mlx_stream s);

/* --- Shapes --------------------------------------------------------------- */

/* The elements, in row-major order, in another shape of as many; one size may
 * be -1, to be worked out. */
int mlx_reshape(mlx_array *res, const mlx_array a, const int *shape,
                size_t shape_num, const mlx_stream s);

/* Axes start_axis to end_axis, both included, as one. */
int mlx_flatten(mlx_array *res, const mlx_array a, int start_axis, int end_axis,
                const mlx_stream s);

/* One axis as several, of the sizes in shape; one of them may be -1. */
int mlx_unflatten(mlx_array *res, const mlx_array a, int axis, const int *shape,
                  size_t shape_num, const mlx_stream s);

/* a without its axes of size 1: all of them, or those named, whose size must be
 * 1. */
int mlx_squeeze(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_squeeze_axis(mlx_array *res, const mlx_array a, int axis,
                     const mlx_stream s);
int mlx_squeeze_axes(mlx_array *res, const mlx_array a, const int *axes,
                     size_t axes_num, const mlx_stream s);

/* a with new axes of size 1, at these places in the result. */
int mlx_expand_dims(mlx_array *res, const mlx_array a, int axis,
                    const mlx_stream s);
int mlx_expand_dims_axes(mlx_array *res, const mlx_array a, const int *axes,
                         size_t axes_num, const mlx_stream s);

/* a with axes of size 1 added to have at least 1, 2 or 3: (n) becomes (1, n)
 * and (1, n, 1), (m, n) becomes (m, n, 1). */
int mlx_atleast_1d(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_atleast_2d(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_atleast_3d(mlx_array *res, const mlx_array a, const mlx_stream s);

/* a with its axes in reverse order, or in the order of axes, which names each
 * once. */
int mlx_transpose(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_transpose_axes(mlx_array *res, const mlx_array a, const int *axes,
                       size_t axes_num, const mlx_stream s);

/* a with two axes exchanged; with one moved to another place. */
int mlx_swapaxes(mlx_array *res, const mlx_array a, int axis1, int axis2,
                 const mlx_stream s);
int mlx_moveaxis(mlx_array *res, const mlx_array a, int source, int destination,
                 const mlx_stream s);

/* a repeated to that shape by the rule of broadcasting. */
int mlx_broadcast_to(mlx_array *res, const mlx_array a, const int *shape,
                     size_t shape_num, const mlx_stream s);

/* The inputs, all in the shape that they broadcast to. */
int mlx_broadcast_arrays(mlx_vector_array *res, const mlx_vector_array inputs,
                         const mlx_stream s);

/* --- Joining, cutting and rearranging ------------------------------------- */

/* The arrays one after the other along an axis (the plain form: the first).
 * Other sizes agree; dtypes are promoted. */
int mlx_concatenate(mlx_array *res, const mlx_vector_array arrays,
                    const mlx_stream s);
int mlx_concatenate_axis(mlx_array *res, const mlx_vector_array arrays,
                         int axis, const mlx_stream s);

/* The arrays, of one shape, along a new axis (the plain form: a first one). */
int mlx_stack(mlx_array *res, const mlx_vector_array arrays,
              const mlx_stream s);
int mlx_stack_axis(mlx_array *res, const mlx_vector_array arrays, int axis,
                   const mlx_stream s);

/* A list of num_splits equal parts of a along axis. */
int mlx_split(mlx_vector_array *res, const mlx_array a, int num_splits,
              int axis, const mlx_stream s);

/* A list of the parts of a along axis that begin at 0 and at each of
 * indices. */
int mlx_split_sections(mlx_vector_array *res, const mlx_array a,
                       const int *indices, size_t indices_num, int axis,
                       const mlx_stream s);

/* A list of the entries of a along an axis (the plain form: the first), which
 * is gone from them. */
int mlx_unstack(mlx_vector_array *res, const mlx_array a, const mlx_stream s);
int mlx_unstack_axis(mlx_vector_array *res, const mlx_array a, int axis,
                     const mlx_stream s);

/* Each element, or each entry along axis, repeats times in a row. The plain
 * form gives a result of one axis. */
int mlx_repeat(mlx_array *res, const mlx_array arr, int repeats,
               const mlx_stream s);
int mlx_repeat_axis(mlx_array *res, const mlx_array arr, int repeats, int axis,
                    const mlx_stream s);

/* arr put side by side with itself, reps times along each axis; the shorter of
 * shape and reps is filled up with ones in front. */
int mlx_tile(mlx_array *res, const mlx_array arr, const int *reps,
             size_t reps_num, const mlx_stream s);

/* a with low_pad_size entries before and high_pad_size after along each of
 * axes. mode "constant" fills them with pad_value, "edge" with the nearest
 * entry of a. */
int mlx_pad(mlx_array *res, const mlx_array a, const int *axes, size_t axes_num,
            const int *low_pad_size, size_t low_pad_size_num,
            const int *high_pad_size, size_t high_pad_size_num,
            const mlx_array pad_value, const char *mode, const mlx_stream s);

/* The same with pad_width entries on both sides of every axis. */
int mlx_pad_symmetric(mlx_array *res, const mlx_array a, int pad_width,
                      const mlx_array pad_value, const char *mode,
                      const mlx_stream s);

/* a with entries moved by shift places, those that leave at the end coming back
 * at the front. The plain form moves within the flattened array and keeps the
 * shape; with axes, each has its own shift. */
int mlx_roll(mlx_array *res, const mlx_array a, const int *shift,
             size_t shift_num, const mlx_stream s);
int mlx_roll_axis(mlx_array *res, const mlx_array a, const int *shift,
                  size_t shift_num, int axis, const mlx_stream s);
int mlx_roll_axes(mlx_array *res, const mlx_array a, const int *shift,
                  size_t shift_num, const int *axes, size_t axes_num,
                  const mlx_stream s);

/* a with entries in reverse order, along all axes, one or some. */
int mlx_flip(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_flip_axis(mlx_array *res, const mlx_array a, int axis,
                  const mlx_stream s);
int mlx_flip_axes(mlx_array *res, const mlx_array a, const int *axes,
                  size_t axes_num, const mlx_stream s);

/* Coordinates of a grid, from arrays of one axis: array i varies along axis i,
 * for indexing "ij", or with the first two axes exchanged, for "xy". sparse
 * leaves the other axes at size 1. */
int mlx_meshgrid(mlx_vector_array *res, const mlx_vector_array arrays,
                 bool sparse, const char *indexing, const mlx_stream s);

/* --- Diagonals and triangles ---------------------------------------------- */

/* A matrix with a, of one axis, on diagonal k; or diagonal k of a matrix a. */
int mlx_diag(mlx_array *res, const mlx_array a, int k, const mlx_stream s);

/* The diagonals at offset of the matrices that axis1 and axis2 span, along a
 * new last axis. */
int mlx_diagonal(mlx_array *res, const mlx_array a, int offset, int axis1,
                 int axis2, const mlx_stream s);

/* The sums of those diagonals, in dtype; the plain form takes the main diagonal
 * of the first two axes and the dtype of a. */
int mlx_trace(mlx_array *res, const mlx_array a, const mlx_stream s);
int mlx_trace_axes(mlx_array *res, const mlx_array a, int offset, int axis1,
                   int axis2, mlx_dtype dtype, const mlx_stream s);

/* x with zeros above diagonal k, and below it. */
int mlx_tril(mlx_array *res, const mlx_array x, int k, const mlx_stream s);
int mlx_triu(mlx_array *res, const mlx_array x, int k, const mlx_stream s);

/* --- Slices --------------------------------------------------------------- */

/* The entries from start to stop, not included, in steps of strides, one of
 * each for every axis, by the rules of Python's slices: negative positions
 * count from the end, and positions outside are clipped. Strides may be
 * negative, not 0. */
int mlx_slice(mlx_array *res, const mlx_array a, const int *start,
              size_t start_num, const int *stop, size_t stop_num,
              const int *strides, size_t strides_num, const mlx_stream s);

/* src with that slice replaced by update, which is broadcast to it and takes
 * the dtype of src. */
int mlx_slice_update(mlx_array *res, const mlx_array src,
                     const mlx_array update, const int *start, size_t start_num,
                     const int *stop, size_t stop_num, const int *strides,
                     size_t strides_num, const mlx_stream s);

/* src with that slice combined with update: their sum, product, maximum or
 * minimum. */
int mlx_slice_update_add(mlx_array *res, const mlx_array src,
                         const mlx_array update, const int *start,
                         size_t start_num, const int *stop, size_t stop_num,
                         const int *strides, size_t strides_num,
                         const mlx_stream s);
int mlx_slice_update_prod(mlx_array *res, const mlx_array src,
                          const mlx_array update, const int *start,
                          size_t start_num, const int *stop, size_t stop_num,
                          const int *strides, size_t strides_num,
                          const mlx_stream s);
int mlx_slice_update_max(mlx_array *res, const mlx_array src,
                         const mlx_array update, const int *start,
                         size_t start_num, const int *stop, size_t stop_num,
                         const int *strides, size_t strides_num,
                         const mlx_stream s);
int mlx_slice_update_min(mlx_array *res, const mlx_array src,
                         const mlx_array update, const int *start,
                         size_t start_num, const int *stop, size_t stop_num,
                         const int *strides, size_t strides_num,
                         const mlx_stream s);

/* The slice of slice_size, one size for every axis, that begins at start:
 * integers in an array, one for each of axes; other axes begin at 0. start is
 * not known before evaluation; it must leave the slice inside a. */
int mlx_slice_dynamic(mlx_array *res, const mlx_array a, const mlx_array start,
                      const int *axes, size_t axes_num, const int *slice_size,
                      size_t slice_size_num, const mlx_stream s);

/* src with the slice that begins at start replaced by update, whose size is
 * that of the slice and whose missing leading axes are added. */
int mlx_slice_update_dynamic(mlx_array *res, const mlx_array src,
                             const mlx_array update, const mlx_array start,
                             const int *axes, size_t axes_num,
                             const mlx_stream s);

/* --- Indexing ------------------------------------------------------------- */

/* Indices are integers; a negative one counts from the end. They are not known
 * before evaluation. */

/* Elements of the flattened array, or entries along axis, in the shape of
 * indices, which takes the place of the axis. */
int mlx_take(mlx_array *res, const mlx_array a, const mlx_array indices,
             const mlx_stream s);
int mlx_take_axis(mlx_array *res, const mlx_array a, const mlx_array indices,
                  int axis, const mlx_stream s);

/* Element by element: indices, which has the shape of a apart from axis or
 * broadcasts to it, says where along axis to take each. */
int mlx_take_along_axis(mlx_array *res, const mlx_array a,
                        const mlx_array indices, int axis, const mlx_stream s);

/* a with values, broadcast to indices, put in those places; or added to what is
 * there, as often as a place is named. */
int mlx_put_along_axis(mlx_array *res, const mlx_array a,
                       const mlx_array indices, const mlx_array values,
                       int axis, const mlx_stream s);
int mlx_scatter_add_axis(mlx_array *res, const mlx_array a,
                         const mlx_array indices, const mlx_array values,
                         int axis, const mlx_stream s);

/* Slices of a. indices has one array for each of axes, broadcast together; each
 * entry is where a slice of slice_sizes (one size for every axis of a) begins
 * along those axes. The result has the shape of the indices followed by
 * slice_sizes. The _single form has one axis. */
int mlx_gather(mlx_array *res, const mlx_array a,
               const mlx_vector_array indices, const int *axes, size_t axes_num,
               const int *slice_sizes, size_t slice_sizes_num,
               const mlx_stream s);
int mlx_gather_single(mlx_array *res, const mlx_array a,
                      const mlx_array indices, int axis, const int *slice_sizes,
                      size_t slice_sizes_num, const mlx_stream s);

/* The reverse: a with slices replaced. updates has the shape of the indices
 * followed by one size for every axis of a, the size of the slices. Of several
 * updates to one place any one may win. */
int mlx_scatter(mlx_array *res, const mlx_array a,
                const mlx_vector_array indices, const mlx_array updates,
                const int *axes, size_t axes_num, const mlx_stream s);
int mlx_scatter_single(mlx_array *res, const mlx_array a,
                       const mlx_array indices, const mlx_array updates,
                       int axis, const mlx_stream s);

/* The same, but updates are combined with what is there, all of them: sum,
 * product, maximum, minimum. */
int mlx_scatter_add(mlx_array *res, const mlx_array a,
                    const mlx_vector_array indices, const mlx_array updates,
                    const int *axes, size_t axes_num, const mlx_stream s);
int mlx_scatter_add_single(mlx_array *res, const mlx_array a,
                           const mlx_array indices, const mlx_array updates,
                           int axis, const mlx_stream s);
int mlx_scatter_prod(mlx_array *res, const mlx_array a,
                     const mlx_vector_array indices, const mlx_array updates,
                     const int *axes, size_t axes_num, const mlx_stream s);
int mlx_scatter_prod_single(mlx_array *res, const mlx_array a,
                            const mlx_array indices, const mlx_array updates,
                            int axis, const mlx_stream s);
int mlx_scatter_max(mlx_array *res, const mlx_array a,
                    const mlx_vector_array indices, const mlx_array updates,
                    const int *axes, size_t axes_num, const mlx_stream s);
int mlx_scatter_max_single(mlx_array *res, const mlx_array a,
                           const mlx_array indices, const mlx_array updates,
                           int axis, const mlx_stream s);
int mlx_scatter_min(mlx_array *res, const mlx_array a,
                    const mlx_vector_array indices, const mlx_array updates,
                    const int *axes, size_t axes_num, const mlx_stream s);
int mlx_scatter_min_single(mlx_array *res, const mlx_array a,
                           const mlx_array indices, const mlx_array updates,
                           int axis, const mlx_stream s);

/* a with the elements where mask is true replaced by those of src, one after
 * the other in row-major order. src must have enough of them. */
int mlx_masked_scatter(mlx_array *res, const mlx_array a, const mlx_array mask,
                       const mlx_array src, const mlx_stream s);

/* --- Products ------------------------------------------------------------- */

/* The matrix product of a (..., m, k) and b (..., k, n); the leading axes are
 * broadcast. An operand of one axis is a row on the left, a column on the
 * right, and that axis is gone from the result. Integers are refused. */
int mlx_matmul(mlx_array *res, const mlx_array a, const mlx_array b,
               const mlx_stream s);

/* alpha a b + beta c. */
int mlx_addmm(mlx_array *res, const mlx_array c, const mlx_array a,
              const mlx_array b, float alpha, float beta, const mlx_stream s);

/* The sums of products over the last axis of both. */
int mlx_inner(mlx_array *res, const mlx_array a, const mlx_array b,
              const mlx_stream s);

/* The products of each element of a, flattened, with each of b. */
int mlx_outer(mlx_array *res, const mlx_array a, const mlx_array b,
              const mlx_stream s);

/* The dot products of the vectors along axis. */
int mlx_vecdot(mlx_array *res, const mlx_array a, const mlx_array b, int axis,
               const mlx_stream s);

/* The sums of products over pairs of axes, axes_a of a and axes_b of b, in
 * order; what remains is that of a, then that of b. The _axis form pairs the
 * last axis axes of a with the first of b: axis counts them. */
int mlx_tensordot(mlx_array *res, const mlx_array a, const mlx_array b,
                  const int *axes_a, size_t axes_a_num, const int *axes_b,
                  size_t axes_b_num, const mlx_stream s);
int mlx_tensordot_axis(mlx_array *res, const mlx_array a, const mlx_array b,
                       int axis, const mlx_stream s);

/* Sums of products as subscripts say in Einstein's notation, such as
 * "ij,jk->ik". */
int mlx_einsum(mlx_array *res, const char *subscripts,
               const mlx_vector_array operands, const mlx_stream s);

/* The Kronecker product: a block of b, times the element, for each element of
 * a. */
int mlx_kron(mlx_array *res, const mlx_array a, const mlx_array b,
             const mlx_stream s);

/* The matrix product of a[lhs_indices] and b[rhs_indices], where an index,
 * uint32, counts the matrices of an operand, all leading axes flattened. The
 * index arrays are broadcast together; an absent one takes the matrices in
 * order. sorted_indices says that they ascend, which allows faster work. */
int mlx_gather_mm(mlx_array *res, const mlx_array a, const mlx_array b,
                  const mlx_array lhs_indices, const mlx_array rhs_indices,
                  bool sorted_indices, const mlx_stream s);

/* The matrix product by tiles of block_size rows and columns (32 or 64), with a
 * mask entry for each tile of the result, of a and of b: a false one counts as
 * a tile of zeros, a number scales the tile. Masks may be absent. */
int mlx_block_masked_mm(mlx_array *res, const mlx_array a, const mlx_array b,
                        int block_size, const mlx_array mask_out,
                        const mlx_array mask_lhs, const mlx_array mask_rhs,
                        const mlx_stream s);

/* Products of parts of a (m, k) and b (k, n): for each pair of uint32 along the
 * last axis of segments, begin and end, the sum over k from begin to end. The
 * result has the leading axes of segments, then m and n. */
int mlx_segmented_mm(mlx_array *res, const mlx_array a, const mlx_array b,
                     const mlx_array segments, const mlx_stream s);

/* Multiplies the vectors along the last axis by a Hadamard matrix and by scale,
 * 1 / sqrt(n) if absent. The size n is m 2^k with m of 1, 12, 20 or 28. */
int mlx_hadamard_transform(mlx_array *res, const mlx_array a,
                           mlx_optional_float scale, const mlx_stream s);

/* --- Convolutions --------------------------------------------------------- */

/* Channels come last: input (N, spatial axes, C), weight (O, spatial axes, C /
 * groups), result (N, spatial axes, O), of a floating dtype. Along a spatial
 * axis of size L, a kernel of size K, spread by dilation to D = dilation (K -
 * 1) + 1, gives floor((L + 2 padding - D) / stride) + 1 entries. The kernel is
 * not flipped. groups divides C and O into as many independent parts. */

/* Convolutions over one, two and three axes. */
int mlx_conv1d(mlx_array *res, const mlx_array input, const mlx_array weight,
               int stride, int padding, int dilation, int groups,
               const mlx_stream s);
int mlx_conv2d(mlx_array *res, const mlx_array input, const mlx_array weight,
               int stride_0, int stride_1, int padding_0, int padding_1,
               int dilation_0, int dilation_1, int groups, const mlx_stream s);
int mlx_conv3d(mlx_array *res, const mlx_array input, const mlx_array weight,
               int stride_0, int stride_1, int stride_2, int padding_0,
               int padding_1, int padding_2, int dilation_0, int dilation_1,
               int dilation_2, int groups, const mlx_stream s);

/* Transposed convolutions: the gradient of a convolution by its input. They
 * give (L - 1) stride - 2 padding + D + output_padding entries. */
int mlx_conv_transpose1d(mlx_array *res, const mlx_array input,
                         const mlx_array weight, int stride, int padding,
                         int dilation, int output_padding, int groups,
                         const mlx_stream s);
int mlx_conv_transpose2d(mlx_array *res, const mlx_array input,
                         const mlx_array weight, int stride_0, int stride_1,
                         int padding_0, int padding_1, int dilation_0,
                         int dilation_1, int output_padding_0,
                         int output_padding_1, int groups, const mlx_stream s);
int mlx_conv_transpose3d(mlx_array *res, const mlx_array input,
                         const mlx_array weight, int stride_0, int stride_1,
                         int stride_2, int padding_0, int padding_1,
                         int padding_2, int dilation_0, int dilation_1,
                         int dilation_2, int output_padding_0,
                         int output_padding_1, int output_padding_2, int groups,
                         const mlx_stream s);

/* A convolution over any number of axes, each with its own settings: padding on
 * both sides, and input_dilation - 1 zeros between the entries of the input. A
 * list of one value holds for all axes. flip flips the kernel. */
int mlx_conv_general(mlx_array *res, const mlx_array input,
                     const mlx_array weight, const int *stride,
                     size_t stride_num, const int *padding_lo,
                     size_t padding_lo_num, const int *padding_hi,
                     size_t padding_hi_num, const int *kernel_dilation,
                     size_t kernel_dilation_num, const int *input_dilation,
                     size_t input_dilation_num, int groups, bool flip,
                     const mlx_stream s);

/* --- Quantised matrices --------------------------------------------------- */

/* A group of group_size values along the last axis shares a scale. mode names
 * the form of the values:
 *
 *   affine   2, 3, 4, 5, 6 or 8 bits (4) in groups of 32, 64 or 128 (64):
 *            code * scale + bias, in the dtype of the scales
 *   mxfp4    4-bit floats (E2M1) in groups of 32, scales are powers of two in
 *            uint8 (E8M0)
 *   mxfp8    8-bit floats (E4M3) in groups of 32, scales as for mxfp4
 *   nvfp4    4-bit floats (E2M1) in groups of 16, scales in uint8 (E4M3)
 *
 * The values in parentheses count if group_size or bits is absent; the other
 * modes have just one of each, and no biases. Codes are packed into uint32, the
 * first in the lowest bits, each row a stream of bits: columns * bits / 32
 * words. With a global_scale g, scales of nvfp4 are multiplied by 2688 / g when
 * they are stored and by g / 2688 when they are used; 2688 is 448 * 6. (MX:
 * Open Compute Project, "Microscaling Formats", 2023.) */

/* Quantises w along its last axis, a multiple of group_size. The list has the
 * packed codes, the scales and, for affine, the biases. */
int mlx_quantize(mlx_vector_array *res, const mlx_array w,
                 mlx_optional_int group_size, mlx_optional_int bits,
                 const char *mode, const mlx_array global_scale,
                 const mlx_stream s);

/* The values that w, packed, stands for, in dtype, or else that of the scales
 * for affine and bfloat16 for the other modes. */
int mlx_dequantize(mlx_array *res, const mlx_array w, const mlx_array scales,
                   const mlx_array biases, mlx_optional_int group_size,
                   mlx_optional_int bits, const char *mode,
                   const mlx_array global_scale, mlx_optional_dtype dtype,
                   const mlx_stream s);

/* x w, or x w^T if transpose, for packed w: without it w has the rows of a
 * matrix (k, n), with it those of (n, k). x is floating. */
int mlx_quantized_matmul(mlx_array *res, const mlx_array x, const mlx_array w,
                         const mlx_array scales, const mlx_array biases,
                         bool transpose, mlx_optional_int group_size,
                         mlx_optional_int bits, const char *mode,
                         const mlx_stream s);

/* The same with indices for the matrices of x and of w, as in mlx_gather_mm. */
int mlx_gather_qmm(mlx_array *res, const mlx_array x, const mlx_array w,
                   const mlx_array scales, const mlx_array biases,
                   const mlx_array lhs_indices, const mlx_array rhs_indices,
                   bool transpose, mlx_optional_int group_size,
                   mlx_optional_int bits, const char *mode, bool sorted_indices,
                   const mlx_stream s);

/* x w^T with both operands quantised: x is quantised on the way; w is packed if
 * w_scales is given, else it is quantised too. The modes but affine. */
int mlx_qqmm(mlx_array *res, const mlx_array x, const mlx_array w,
             const mlx_array w_scales, mlx_optional_int group_size,
             mlx_optional_int bits, const char *mode,
             const mlx_array global_scale_x, const mlx_array global_scale_w,
             const mlx_stream s);

/* The same with indices for the matrices of x and of w, as in mlx_gather_mm. */
int mlx_gather_qqmm(mlx_array *res, const mlx_array x, const mlx_array w,
                    const mlx_array scales_w, const mlx_array lhs_indices,
                    const mlx_array rhs_indices, mlx_optional_int group_size,
                    mlx_optional_int bits, const char *mode,
                    const mlx_array global_scale_x,
                    const mlx_array global_scale_w, bool sorted_indices,
                    const mlx_stream s);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
