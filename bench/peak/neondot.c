/* neondot.c: the limits of one core, for Advanced SIMD with 8-bit dot
 * products. */
#include "peak.h"

#include "backend/cpu/simd_neon.h"

#undef FN
#define FN(name) name##_neondot
#define BYTES int32x4_t
#define bytes_set1(x) vreinterpretq_s32_s8(vdupq_n_s8((signed char)(x)))
#define bytes_dot(acc, a, b)                                                   \
    vdotq_s32(acc, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b))
#define BYTES_AGAIN(a) ((void)0)

#include "peak.inc"
