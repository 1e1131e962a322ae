/* simd_avx512.h: the vector words (simd_none.h) for AVX-512 F, BW, DQ, VL. */
#ifndef QN_CPU_SIMD_AVX512_H
#define QN_CPU_SIMD_AVX512_H

#include "base/f16.h"
#include "bits.h"

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FN(name) name##_avx512
enum { VF_LANES = 16, VF_REGISTERS = 32 };
typedef __m512 VF;
typedef __mmask16 VM;

#define VF_INLINE static inline __attribute__((always_inline, unused))

VF_INLINE VF vf_set1(float x)
{
    return _mm512_set1_ps(x);
}
VF_INLINE VF vf_zero(void)
{
    return _mm512_setzero_ps();
}
VF_INLINE VF vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
VF_INLINE void vf_store(float *p, VF v)
{
    _mm512_storeu_ps(p, v);
}
VF_INLINE VF vf_add(VF a, VF b)
{
    return _mm512_add_ps(a, b);
}
VF_INLINE VF vf_sub(VF a, VF b)
{
    return _mm512_sub_ps(a, b);
}
VF_INLINE VF vf_mul(VF a, VF b)
{
    return _mm512_mul_ps(a, b);
}
VF_INLINE VF vf_div(VF a, VF b)
{
    return _mm512_div_ps(a, b);
}
VF_INLINE VF vf_max(VF a, VF b)
{
    return _mm512_max_ps(a, b);
}
VF_INLINE VF vf_min(VF a, VF b)
{
    return _mm512_min_ps(a, b);
}
VF_INLINE VF vf_fma(VF a, VF b, VF c)
{
    return _mm512_fmadd_ps(a, b, c);
}
VF_INLINE VM vm_lt(VF a, VF b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
VF_INLINE VM vm_le(VF a, VF b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ);
}
VF_INLINE VM vm_eq(VF a, VF b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
VF_INLINE VM vm_nan(VF a)
{
    return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
}
VF_INLINE VM vm_or(VM a, VM b)
{
    return (VM)(a | b);
}
VF_INLINE VF vf_select(VM m, VF a, VF b)
{
    return _mm512_mask_blend_ps(m, b, a);
}
VF_INLINE VF vf_abs(VF a)
{
    return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a);
}
VF_INLINE VF vf_neg(VF a)
{
    return _mm512_xor_ps(_mm512_set1_ps(-0.0f), a);
}
VF_INLINE VF vf_copysign(VF size, VF sign)
{
    VF bit = _mm512_set1_ps(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(bit, size), _mm512_and_ps(bit, sign));
}
VF_INLINE VF vf_sqrt(VF a)
{
    return _mm512_sqrt_ps(a);
}
VF_INLINE VF vf_rint(VF a)
{
    return _mm512_roundscale_ps(a,
                                _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
VF_INLINE VF vf_floor(VF a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
VF_INLINE VF vf_ceil(VF a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
}
VF_INLINE VF vf_trunc(VF a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}
VF_INLINE VF vf_scale2(VF a, VF n)
{
    return _mm512_scalef_ps(a, n);
}
VF_INLINE float vf_hmax(VF a)
{
    return _mm512_reduce_max_ps(a);
}
/* 16 lanes to 4: lane j of the result is (a[j] + a[j+8]) + (a[j+4] + a[j+12]).
 */
VF_INLINE __m128 vf_fold(VF a)
{
    __m256 half =
        _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half),
                      _mm256_extractf128_ps(half, 1));
}
VF_INLINE void vf_sum4(float out[4], VF a, VF b, VF c, VF d)
{
    /* The same additions as vf_fold and vf_sum, for all four at once. */
    VF ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44),
                          _mm512_shuffle_f32x4(a, b, 0xee));
    VF cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44),
                          _mm512_shuffle_f32x4(c, d, 0xee));
    VF v = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88),
                         _mm512_shuffle_f32x4(ab, cd, 0xdd));
    v = _mm512_add_ps(v, _mm512_permute_ps(v, 0x4e));
    v = _mm512_add_ps(v, _mm512_permute_ps(v, 0xb1));
    const __m512i firsts = _mm512_castsi128_si512(_mm_setr_epi32(0, 4, 8, 12));
    _mm_storeu_ps(out,
                  _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, v)));
}
VF_INLINE float vf_sum(VF a)
{
    __m128 v = vf_fold(a);
    v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps(v, v, 1)));
}
typedef __m512d VD;
VF_INLINE VD vd_low(VF a)
{
    return _mm512_cvtps_pd(_mm512_castps512_ps256(a));
}
VF_INLINE VD vd_high(VF a)
{
    return _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1));
}
VF_INLINE VF vf_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(
        _mm256_loadu_si256((const __m256i *)(const void *)p));
}
VF_INLINE VF vf_load_bf16(const uint16_t *p)
{
    __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
VF_INLINE void vf_store_f16(uint16_t *p, VF v)
{
    _mm256_storeu_si256((__m256i *)(void *)p,
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
VF_INLINE void vf_store_bf16(uint16_t *p, VF v)
{
    /* Round to nearest even as qn_f32_to_bf16 does; NaN becomes 0x7fc0. */
    __m512i u = _mm512_castps_si512(v);
    __m512i odd =
        _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r =
        _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    r = _mm512_mask_mov_epi32(r, nan, _mm512_set1_epi32(0x7fc00000));
    _mm256_storeu_si256((__m256i *)(void *)p,
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16)));
}
VF_INLINE VF vf_load_u8(const uint8_t *p)
{
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(b));
}
/* Sixteen codes as integers. */
VF_INLINE __m512i vi_codes16(const uint8_t *w, int bits)
{
    if (bits == 8)
        return _mm512_cvtepu8_epi32(
            _mm_loadu_si128((const __m128i *)(const void *)w));
    /* Sixteen codes are at most 12 bytes.  Every quarter of the register gets
     * them; each lane picks the two bytes its code touches and shifts. */
    int low = 2 * bits < 8 ? 2 * bits : 8;
    __m128i stream = _mm_set_epi64x(
        low < 2 * bits ? (int64_t)qn_load_bytes(w + low, 2 * bits - low) : 0,
        (int64_t)qn_load_bytes(w, low));
#define QN_PICK(i)                                                             \
    ((i)*bits >> 3) | (((i)*bits >> 3) + 1) << 8 | (int)0x80800000u
#define QN_SHIFT(i) (i) * bits & 7
#define QN_EACH(M)                                                             \
    _mm512_setr_epi32(M(0), M(1), M(2), M(3), M(4), M(5), M(6), M(7), M(8),    \
                      M(9), M(10), M(11), M(12), M(13), M(14), M(15))
    const __m512i pick = QN_EACH(QN_PICK), shift = QN_EACH(QN_SHIFT);
#undef QN_EACH
#undef QN_PICK
#undef QN_SHIFT
    __m512i v = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(stream), pick);
    return _mm512_and_si512(_mm512_srlv_epi32(v, shift),
                            _mm512_set1_epi32((1 << bits) - 1));
}
VF_INLINE void vf_codes16(VF out[16 / VF_LANES], const uint8_t *w, int bits)
{
    out[0] = _mm512_cvtepi32_ps(vi_codes16(w, bits));
}
VF_INLINE VF vf_load_i8(const uint8_t *p)
{
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(b));
}
VF_INLINE void vf_store_u8(uint8_t *p, VF v)
{
    _mm_storeu_si128((__m128i *)(void *)p,
                     _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
}
VF_INLINE void vf_take16(VF out[16 / VF_LANES], const uint8_t *w, int bits,
                         const float *table)
{
    __m512i code = vi_codes16(w, bits);
    if (bits == 8)
        out[0] = _mm512_i32gather_ps(code, table, 4);
    else if (bits == 5)
        out[0] = _mm512_permutex2var_ps(_mm512_loadu_ps(table), code,
                                        _mm512_loadu_ps(table + 16));
    else
        out[0] = _mm512_permutexvar_ps(code, _mm512_loadu_ps(table));
}
VF_INLINE VF vf_gather(const float *table, VF at)
{
    return _mm512_i32gather_ps(_mm512_cvtps_epi32(at), table, 4);
}
VF_INLINE VF vf_partner(VF a, int by)
{
    return by == 1   ? _mm512_permute_ps(a, 0xb1)
           : by == 2 ? _mm512_permute_ps(a, 0x4e)
           : by == 4 ? _mm512_shuffle_f32x4(a, a, 0xb1)
                     : _mm512_shuffle_f32x4(a, a, 0x4e);
}
VF_INLINE void vf_transpose(VF r[VF_LANES])
{
    /* Four by four floats inside the 128-bit quarters, then the quarters. */
    VF t[16];
    for (int i = 0; i < 16; i += 4) {
        VF a = _mm512_unpacklo_ps(r[i], r[i + 1]);
        VF b = _mm512_unpackhi_ps(r[i], r[i + 1]);
        VF c = _mm512_unpacklo_ps(r[i + 2], r[i + 3]);
        VF d = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);
        t[i] = _mm512_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
    for (int i = 0; i < 4; i++) {
        VF a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88);
        VF b = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
        VF c = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
        VF d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
        r[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        r[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        r[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

/* Of VF_STREAM bytes, `to` aligned to that. */
enum { VF_STREAM = 64 };
VF_INLINE void vf_stream(void *to, const void *from)
{
    _mm512_stream_si512((__m512i *)to, _mm512_loadu_si512(from));
}
static inline __attribute__((unused)) void vf_fence(void)
{
    _mm_sfence();
}

#endif
