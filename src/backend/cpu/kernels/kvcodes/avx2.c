/* avx2.c: products with packed keys and values for AVX2 and FMA. */
#include "kvcodes.h"

#include "backend/cpu/simd_avx2.h"

#define vi_madd(acc, c, q)                                                     \
    ((VI)_mm256_add_epi32((__m256i)(acc),                                      \
                          _mm256_madd_epi16((__m256i)(c), (__m256i)(q))))

typedef struct table {
    VF part[4];
    const float *at;
} table;

VF_INLINE table load_table(const float *entries)
{
    table t = {.at = entries};
    for (int i = 0; i < 4; i++)
        t.part[i] = vf_load(entries + 8 * i);
    return t;
}

/* Entry 8 bit + low of a pair of parts. */
VF_INLINE VF look_up4(const VF *part, __m256i w)
{
    VF low = _mm256_permutevar8x32_ps(part[0], w);
    VF high = _mm256_permutevar8x32_ps(part[1], w);
    return _mm256_blendv_ps(low, high,
                            _mm256_castsi256_ps(_mm256_slli_epi32(w, 28)));
}

VF_INLINE VF look_up(const table *t, __m256i w, int bits)
{
    if (bits <= 3)
        return _mm256_permutevar8x32_ps(t->part[0], w);
    if (bits == 4)
        return look_up4(t->part, w);
    if (bits == 5)
        return _mm256_blendv_ps(look_up4(t->part, w), look_up4(t->part + 2, w),
                                _mm256_castsi256_ps(_mm256_slli_epi32(w, 27)));
    w = _mm256_and_si256(w, _mm256_set1_epi32(255));
    return _mm256_i32gather_ps(t->at, w, 4);
}

#define vt_lookup(t, w, bits) look_up(t, (__m256i)(w), bits)
#define vf_fused(a, b, c) vf_fma(a, b, c)

#include "kvcodes.inc"
