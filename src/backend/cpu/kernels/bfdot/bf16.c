/* bf16.c: products of bfloat16 for AVX512-BF16. */
#include "bfdot.h"

#include "backend/cpu/simd_avx512.h"

#undef FN
#define FN(name) name##_bf16

typedef __m512i VB;
enum { TILE_M = 6 };

VF_INLINE VB vb_load(const uint16_t *p)
{
    return _mm512_loadu_si512(p);
}
VF_INLINE VB vb_load_part(const uint16_t *p, size_t count)
{
    return _mm512_maskz_loadu_epi16((__mmask32)((1u << count) - 1), p);
}
VF_INLINE void vb_store(uint16_t *p, VB v)
{
    _mm512_storeu_si512(p, v);
}
VF_INLINE VB vb_pair(uint32_t pair)
{
    return _mm512_set1_epi32((int)pair);
}
VF_INLINE VF vb_dot(VF sum, VB a, VB b)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}
/* out[0]: a[0], b[0], a[1], b[1] ...; out[1]: the upper halves likewise. */
VF_INLINE void vb_zip(VB out[2], VB a, VB b)
{
    /* Eight elements of each at a time, so that both unpack to the lanes. */
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    a = _mm512_permutexvar_epi64(order, a);
    b = _mm512_permutexvar_epi64(order, b);
    VB low = _mm512_unpacklo_epi16(a, b), high = _mm512_unpackhi_epi16(a, b);
    out[0] = low;
    out[1] = high;
}

#include "bfdot.inc"
