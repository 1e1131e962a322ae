/* f16.h: float16 and bfloat16 as 16-bit storage, converted in software.
 *
 * Rounding is to nearest even; overflow gives infinity.  NaN becomes 0x7FC0
 * in bfloat16 and a quiet NaN with the sign in float16.  Kernels with
 * hardware conversions must agree bit for bit except for NaN payloads. */
#ifndef QN_BASE_F16_H
#define QN_BASE_F16_H

#include <stdint.h>
#include <string.h>

static inline uint32_t qn_float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float qn_bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float qn_bf16_to_f32(uint16_t h)
{
    return qn_bits_float((uint32_t)h << 16);
}

static inline uint16_t qn_f32_to_bf16(float value)
{
    uint32_t u = qn_float_bits(value);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return 0x7fc0;
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

static inline float qn_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t rest = (uint32_t)(h & 0x7fffu) << 13;
    if (rest >= 0x0f800000u) /* infinity and NaN: exponent 31 becomes 255 */
        return qn_bits_float(sign | (rest + 0x70000000u));
    /* Shifting the exponent by multiplication also makes subnormals right:
     * the product is exact. */
    return qn_bits_float(sign | qn_float_bits(qn_bits_float(rest) * 0x1p112f));
}

static inline uint16_t qn_f32_to_f16(float value)
{
    uint32_t u = qn_float_bits(value);
    uint16_t sign = (uint16_t)((u >> 16) & 0x8000u);
    u &= 0x7fffffffu;
    if (u > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (u >= 0x477ff000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (u < 0x38800000u) {
        /* Below 2^-14 the result is subnormal.  Adding 2^-1 (whose last
         * place is 2^-24, that of a subnormal half) rounds to even there. */
        float shifted = qn_bits_float(u) + 0.5f;
        return (uint16_t)(sign | (qn_float_bits(shifted) - 0x3f000000u));
    }
    u += 0xfffu + ((u >> 13) & 1);
    return (uint16_t)(sign | ((u - 0x38000000u) >> 13));
}

#endif
