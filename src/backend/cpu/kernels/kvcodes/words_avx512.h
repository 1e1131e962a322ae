/* words_avx512.h: what kvcodes.inc needs of AVX-512 besides vi_madd. */
#ifndef QN_CPU_KVCODES_WORDS_AVX512_H
#define QN_CPU_KVCODES_WORDS_AVX512_H

#include "backend/cpu/simd_avx512.h"

typedef struct table {
    VF low, high;
    const float *at;
} table;

VF_INLINE table load_table(const float *entries)
{
    return (table){vf_load(entries), vf_load(entries + 16), entries};
}

VF_INLINE VF look_up(const table *t, __m512i w, int bits)
{
    if (bits <= 4)
        return _mm512_permutexvar_ps(w, t->low);
    if (bits == 5)
        return _mm512_permutex2var_ps(t->low, w, t->high);
    w = _mm512_and_si512(w, _mm512_set1_epi32(255));
    return _mm512_i32gather_ps(w, t->at, 4);
}

#define vt_lookup(t, w, bits) look_up(t, (__m512i)(w), bits)
#define vf_fused(a, b, c) vf_fma(a, b, c)

#endif
