/* Storage of the two 16-bit floating types.
 *
 * Where the compiler has the type itself, HAS_FLOAT16 or HAS_BFLOAT16 is
 * defined and the accessors in array.h use it (float16_t and bfloat16_t of the
 * Arm C Language Extensions). Elsewhere they use the 16 bits as an integer:
 * IEEE 754 binary16 for float16, the upper half of binary32 for bfloat16. The
 * bytes are the same either way. */
#ifndef MLX_C_HALF_H
#define MLX_C_HALF_H

#include <stdint.h>

#if defined(__ARM_FEATURE_FP16_SCALAR_ARITHMETIC)
#define HAS_FLOAT16
#include <arm_fp16.h>
typedef float16_t mlx_float16_t;
#else
typedef uint16_t mlx_float16_t;
#endif

#if defined(__ARM_FEATURE_BF16)
#define HAS_BFLOAT16
#include <arm_bf16.h>
typedef bfloat16_t mlx_bfloat16_t;
#else
typedef uint16_t mlx_bfloat16_t;
#endif

#endif
