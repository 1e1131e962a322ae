/* none.c: products in 8-bit integers in portable C. */
#include "panel.h"

#include "backend/cpu/simd_none.h"

#define TILE_M 1

#define vi_dot(acc, c, q, bits) dot_words(acc, c, q)
typedef int32_t words __attribute__((vector_size(16)));
/* A function of its own: the loops that call it are unrolled. */
static __attribute__((noinline)) words dot_words(words acc, words c, words q)
{
    for (int i = 0; i < 4; i++) {
        uint32_t u = (uint32_t)c[i], s = (uint32_t)q[i];
        for (int j = 0; j < 32; j += 8)
            acc[i] += (int32_t)(u >> j & 255) * (int8_t)(s >> j & 255);
    }
    return acc;
}

#define vi_table(p) load_table(p)
VF_INLINE words load_table(const uint8_t *p)
{
    words t;
    memcpy(&t, p, sizeof t);
    return t;
}
#define vi_lookup(t, c) lookup(t, c)
VF_INLINE words lookup(words t, words c)
{
    typedef uint8_t bytes __attribute__((vector_size(16)));
    bytes from = (bytes)t, at = (bytes)c;
    for (int i = 0; i < 16; i++)
        at[i] = from[at[i]];
    return (words)at;
}

#define vi_bytes(to, v) store_bytes(to, v)
VF_INLINE void store_bytes(int8_t *to, words v)
{
    for (int i = 0; i < 4; i++)
        to[i] = (int8_t)v[i];
}

#define vf_fused(a, b, c) fused(a, b, c)
VF_INLINE VF fused(VF a, VF b, VF c)
{
    for (int i = 0; i < VF_LANES; i++)
        c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
}

#include "panel.inc"
