/* none.c: products with packed keys and values in portable C. */
#include "kvcodes.h"

#include "backend/cpu/simd_none.h"

#include "words_plain.h"

#define vi_madd(acc, c, q) ((VI)add_pairs((pairs)(acc), (pairs)(c), (pairs)(q)))
typedef int32_t pairs __attribute__((vector_size(16)));
VF_INLINE pairs add_pairs(pairs acc, pairs c, pairs q)
{
    for (int i = 0; i < 4; i++)
        acc[i] += (int16_t)c[i] * (int16_t)q[i] + (c[i] >> 16) * (q[i] >> 16);
    return acc;
}

#define vf_fused(a, b, c) fused(a, b, c)
VF_INLINE VF fused(VF a, VF b, VF c)
{
    for (int i = 0; i < VF_LANES; i++)
        c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
}

#define MOST_ROWS 1
#include "kvcodes.inc"
