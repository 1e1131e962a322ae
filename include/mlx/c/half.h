/* Half. */
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
