/* simd_avx2.h: the vector words (simd_none.h) for AVX2, FMA and F16C. */
#ifndef QN_CPU_SIMD_AVX2_H
#define QN_CPU_SIMD_AVX2_H

#include "base/f16.h"
#include "bits.h"

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FN(name) name##_avx2
enum { VF_LANES = 8, VF_REGISTERS = 16 };
typedef __m256 VF;
typedef __m256 VM;

#define VF_INLINE static inline __attribute__((always_inline, unused))

VF_INLINE VF vf_set1(float x)
{
    return _mm256_set1_ps(x);
}
VF_INLINE VF vf_zero(void)
{
    return _mm256_setzero_ps();
}
VF_INLINE VF vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
VF_INLINE void vf_store(float *p, VF v)
{
    _mm256_storeu_ps(p, v);
}
VF_INLINE VF vf_add(VF a, VF b)
{
    return _mm256_add_ps(a, b);
}
VF_INLINE VF vf_sub(VF a, VF b)
{
    return _mm256_sub_ps(a, b);
}
VF_INLINE VF vf_mul(VF a, VF b)
{
    return _mm256_mul_ps(a, b);
}
VF_INLINE VF vf_div(VF a, VF b)
{
    return _mm256_div_ps(a, b);
}
VF_INLINE VF vf_max(VF a, VF b)
{
    return _mm256_max_ps(a, b);
}
VF_INLINE VF vf_min(VF a, VF b)
{
    return _mm256_min_ps(a, b);
}
VF_INLINE VF vf_fma(VF a, VF b, VF c)
{
    return _mm256_fmadd_ps(a, b, c);
}
VF_INLINE VM vm_lt(VF a, VF b)
{
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}
VF_INLINE VM vm_le(VF a, VF b)
{
    return _mm256_cmp_ps(a, b, _CMP_LE_OQ);
}
VF_INLINE VM vm_eq(VF a, VF b)
{
    return _mm256_cmp_ps(a, b, _CMP_EQ_OQ);
}
VF_INLINE VM vm_nan(VF a)
{
    return _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
}
VF_INLINE VM vm_or(VM a, VM b)
{
    return _mm256_or_ps(a, b);
}
VF_INLINE VF vf_select(VM m, VF a, VF b)
{
    return _mm256_blendv_ps(b, a, m);
}
VF_INLINE VF vf_abs(VF a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
VF_INLINE VF vf_neg(VF a)
{
    return _mm256_xor_ps(_mm256_set1_ps(-0.0f), a);
}
VF_INLINE VF vf_copysign(VF size, VF sign)
{
    VF bit = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(bit, size), _mm256_and_ps(bit, sign));
}
VF_INLINE VF vf_sqrt(VF a)
{
    return _mm256_sqrt_ps(a);
}
VF_INLINE VF vf_rint(VF a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
VF_INLINE VF vf_floor(VF a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
VF_INLINE VF vf_ceil(VF a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
}
VF_INLINE VF vf_trunc(VF a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}
VF_INLINE VF vf_scale2(VF a, VF n)
{
    /* Two steps, so that neither factor leaves the range of exponents; only
     * the second can round. */
    const __m256i bias = _mm256_set1_epi32(127);
    __m256i all = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(all, 1);
    __m256i rest = _mm256_sub_epi32(all, half);
    __m256i first = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    __m256i second = _mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23);
    return vf_mul(vf_mul(a, _mm256_castsi256_ps(first)),
                  _mm256_castsi256_ps(second));
}
VF_INLINE float vf_hmax(VF a)
{
    __m128 v =
        _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    v = _mm_max_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_max_ss(v, _mm_shuffle_ps(v, v, 1)));
}
VF_INLINE void vf_sum4(float out[4], VF a, VF b, VF c, VF d)
{
    __m128 a4 =
        _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    __m128 b4 =
        _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    __m128 c4 =
        _mm_add_ps(_mm256_castps256_ps128(c), _mm256_extractf128_ps(c, 1));
    __m128 d4 =
        _mm_add_ps(_mm256_castps256_ps128(d), _mm256_extractf128_ps(d, 1));
    _MM_TRANSPOSE4_PS(a4, b4, c4, d4);
    _mm_storeu_ps(out, _mm_add_ps(_mm_add_ps(a4, c4), _mm_add_ps(b4, d4)));
}
VF_INLINE float vf_sum(VF a)
{
    __m128 v =
        _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps(v, v, 1)));
}
typedef __m256d VD;
VF_INLINE VD vd_low(VF a)
{
    return _mm256_cvtps_pd(_mm256_castps256_ps128(a));
}
VF_INLINE VD vd_high(VF a)
{
    return _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1));
}
VF_INLINE VF vf_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
VF_INLINE VF vf_load_bf16(const uint16_t *p)
{
    __m128i h = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
VF_INLINE void vf_store_f16(uint16_t *p, VF v)
{
    _mm_storeu_si128((__m128i *)(void *)p,
                     _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
VF_INLINE void vf_store_bf16(uint16_t *p, VF v)
{
    /* Round to nearest even as qn_f32_to_bf16 does; NaN becomes 0x7fc0. */
    __m256i u = _mm256_castps_si256(v);
    __m256i odd =
        _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r =
        _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    r = _mm256_srli_epi32(
        _mm256_blendv_epi8(r, _mm256_set1_epi32(0x7fc00000), nan), 16);
    __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_castsi256_si128(packed));
}
VF_INLINE VF vf_load_u8(const uint8_t *p)
{
    __m128i b = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(b));
}
/* Eight codes, `bits` bytes, as integers. */
VF_INLINE __m256i vi_codes8(const uint8_t *w, int bits)
{
    if (bits == 8)
        return _mm256_cvtepu8_epi32(
            _mm_loadl_epi64((const __m128i *)(const void *)w));
        /* Both halves of the register get the bytes; each lane picks the two
         * that its code touches and shifts. */
#define QN_PICK(i) (char)((i)*bits >> 3), (char)(((i)*bits >> 3) + 1), -1, -1
#define QN_SHIFT(i) (i) * bits & 7
    const __m256i pick =
        _mm256_setr_epi8(QN_PICK(0), QN_PICK(1), QN_PICK(2), QN_PICK(3),
                         QN_PICK(4), QN_PICK(5), QN_PICK(6), QN_PICK(7));
    const __m256i shift =
        _mm256_setr_epi32(QN_SHIFT(0), QN_SHIFT(1), QN_SHIFT(2), QN_SHIFT(3),
                          QN_SHIFT(4), QN_SHIFT(5), QN_SHIFT(6), QN_SHIFT(7));
#undef QN_PICK
#undef QN_SHIFT
    const __m256i mask = _mm256_set1_epi32((1 << bits) - 1);
    __m256i v;
    if (bits == 4) {
        uint32_t word;
        memcpy(&word, w, 4);
        v = _mm256_srlv_epi32(_mm256_set1_epi32((int)word),
                              _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    } else {
        v = _mm256_set1_epi64x((int64_t)qn_load_bytes(w, bits));
        v = _mm256_srlv_epi32(_mm256_shuffle_epi8(v, pick), shift);
    }
    return _mm256_and_si256(v, mask);
}
VF_INLINE void vf_codes16(VF out[16 / VF_LANES], const uint8_t *w, int bits)
{
    out[0] = _mm256_cvtepi32_ps(vi_codes8(w, bits));
    out[1] = _mm256_cvtepi32_ps(vi_codes8(w + bits, bits));
}
VF_INLINE VF vf_load_i8(const uint8_t *p)
{
    __m128i b = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b));
}
VF_INLINE void vf_store_u8(uint8_t *p, VF v)
{
    /* The low byte of each lane to the front of its half. */
    const __m256i low = _mm256_set1_epi32(0x0c080400);
    __m256i bytes = _mm256_shuffle_epi8(_mm256_cvtps_epi32(v), low);
    __m128i eight = _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes),
                                       _mm256_extracti128_si256(bytes, 1));
    _mm_storel_epi64((__m128i *)(void *)p, eight);
}
VF_INLINE void vf_take16(VF out[16 / VF_LANES], const uint8_t *w, int bits,
                         const float *table)
{
    for (int half = 0; half < 2; half++) {
        __m256i code = vi_codes8(w + half * bits, bits);
        if (bits > 4) {
            out[half] = _mm256_i32gather_ps(table, code, 4);
            continue;
        }
        out[half] = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), code);
        if (bits == 4) {
            VF high =
                _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), code);
            /* Bit 3 of the code where the blend looks, at the sign. */
            out[half] = _mm256_blendv_ps(
                out[half], high,
                _mm256_castsi256_ps(_mm256_slli_epi32(code, 28)));
        }
    }
}
VF_INLINE VF vf_gather(const float *table, VF at)
{
    return _mm256_i32gather_ps(table, _mm256_cvtps_epi32(at), 4);
}
VF_INLINE VF vf_partner(VF a, int by)
{
    return by == 1   ? _mm256_permute_ps(a, 0xb1)
           : by == 2 ? _mm256_permute_ps(a, 0x4e)
                     : _mm256_permute2f128_ps(a, a, 1);
}
VF_INLINE void vf_transpose(VF r[VF_LANES])
{
    VF t[8], u[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

/* Of VF_STREAM bytes, `to` aligned to that. */
enum { VF_STREAM = 64 };
VF_INLINE void vf_stream(void *to, const void *from)
{
    const __m256i *half = (const __m256i *)from;
    _mm256_stream_si256((__m256i *)to, _mm256_loadu_si256(half));
    _mm256_stream_si256((__m256i *)to + 1, _mm256_loadu_si256(half + 1));
}
static inline __attribute__((unused)) void vf_fence(void)
{
    _mm_sfence();
}

#endif
