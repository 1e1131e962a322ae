/* quant.c: codes to numbers and back, exactly. */
#include "quant.h"

#include "base/f16.h"

#include <math.h>
#include <string.h>

static const float e2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

float qn_e2m1_to_f32(uint8_t code)
{
    float size = e2m1[code & 7];
    return code & 8 ? -size : size;
}

uint8_t qn_f32_to_e2m1(float value)
{
    /* Code c is nearest from the middle of c - 1 and c on; the middle itself
     * goes to the smaller one of them, as in MLX's CPU build. */
    float size = fabsf(value);
    uint8_t code = 0;
    while (code < 7) {
        float middle = (e2m1[code] + e2m1[code + 1]) / 2;
        if (!(size > middle))
            break;
        code++;
    }
    /* Only one zero. */
    return code && signbit(value) ? code | 8 : code;
}

float qn_e4m3_to_f32(uint8_t code)
{
    int exponent = code >> 3 & 15, fraction = code & 7;
    float size = exponent ? ldexpf((float)(8 + fraction), exponent - 10)
                          : ldexpf((float)fraction, -9);
    return code & 0x80 ? -size : size;
}

uint8_t qn_f32_to_e4m3(float value)
{
    uint8_t sign = signbit(value) ? 0x80 : 0;
    float size = fabsf(value);
    if (isnan(value))
        return sign | 0x7f;
    if (size >= 448)
        return sign | 0x7e;
    /* The unit in the last place of the result: eighths of the power of two
     * below, at least that of the subnormals.  Rounding up to the next power
     * of two carries into the exponent by itself. */
    int exponent = -5;
    if (size >= 0x1p-6f)
        frexpf(size, &exponent); /* size is in [2^(exponent - 1), 2^exponent) */
    int units = (int)rintf(ldexpf(size, 4 - exponent)); /* 0 .. 16 */
    return (uint8_t)(sign | (units + 8 * (exponent + 5)));
}

float qn_e8m0_to_f32(uint8_t code)
{
    return code == 255 ? NAN : ldexpf(1, (int)code - 127);
}

void qn_quant_unpack(uint8_t *codes, const uint32_t *row, size_t first,
                     size_t n, int bits)
{
    uint32_t mask = (1u << bits) - 1;
    for (size_t i = 0; i < n; i++) {
        size_t bit = (first + i) * (size_t)bits, word = bit / 32;
        unsigned shift = bit % 32;
        uint32_t code = row[word] >> shift;
        if (shift + (unsigned)bits > 32)
            code |= row[word + 1] << (32 - shift);
        codes[i] = (uint8_t)(code & mask);
    }
}

void qn_quant_pack(uint32_t *row, const uint8_t *codes, size_t n, int bits)
{
    memset(row, 0, (n * (size_t)bits + 31) / 32 * sizeof *row);
    for (size_t i = 0; i < n; i++) {
        size_t bit = i * (size_t)bits, word = bit / 32;
        unsigned shift = bit % 32;
        row[word] |= (uint32_t)codes[i] << shift;
        if (shift + (unsigned)bits > 32)
            row[word + 1] |= (uint32_t)codes[i] >> (32 - shift);
    }
}

float qn_quant_scale(qn_quant_mode mode, uint8_t code)
{
    return mode == QN_QUANT_NVFP4 ? qn_e4m3_to_f32(code) : qn_e8m0_to_f32(code);
}

void qn_quant_values(float *values, const uint8_t *codes, size_t n,
                     qn_quant_mode mode)
{
    for (size_t i = 0; i < n; i++)
        values[i] = mode == QN_QUANT_MXFP8 ? qn_e4m3_to_f32(codes[i])
                                           : qn_e2m1_to_f32(codes[i]);
}

/* The least and the greatest of numbers, without those that are none: lanes of
 * their own, so that compilers make vectors of them. */
static void find_edges(float *low, float *high, const float *w, size_t n)
{
    enum { LANES = 8 };
    float lows[LANES], highs[LANES];
    for (int j = 0; j < LANES; j++) {
        lows[j] = INFINITY;
        highs[j] = -INFINITY;
    }
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            lows[j] = w[i + (size_t)j] < lows[j] ? w[i + (size_t)j] : lows[j];
            highs[j] =
                w[i + (size_t)j] > highs[j] ? w[i + (size_t)j] : highs[j];
        }
    for (int j = 0; i < n; i++, j++) {
        lows[j] = w[i] < lows[j] ? w[i] : lows[j];
        highs[j] = w[i] > highs[j] ? w[i] : highs[j];
    }
    *low = lows[0];
    *high = highs[0];
    for (int j = 1; j < LANES; j++) {
        *low = lows[j] < *low ? lows[j] : *low;
        *high = highs[j] > *high ? highs[j] : *high;
    }
}

/* Rounded to even without a call, for numbers below 2^22; what is beyond stays
 * beyond, with its sign. */
static float rounded(float x)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23 */
    return x + shift - shift;
}

void qn_quant_affine_group(uint8_t *codes, float *scale, float *bias,
                           const float *w, size_t n, int bits)
{
    float low, high;
    find_edges(&low, &high, w, n);
    float most = (float)((1 << bits) - 1);
    bool from_low = fabsf(low) > fabsf(high);
    float s = fmaxf((high - low) / most, 1e-7f), b = 0;
    float edge = from_low ? low : high;
    if (!from_low)
        s = -s;
    /* The edge itself gets a whole code: its value is then exact. */
    float q0 = rintf(edge / s);
    if (q0 != 0) {
        s = edge / q0;
        b = edge;
    }
    for (size_t i = 0; i < n; i++) {
        float code = rounded((w[i] - b) / s);
        /* A NaN fails both comparisons and becomes 0. */
        code = code >= most ? most : code > 0 ? code : 0;
        codes[i] = (uint8_t)(int32_t)code;
    }
    *scale = s;
    *bias = b;
}

float qn_quant_global(float global_scale)
{
    return global_scale == 0 ? 1 : global_scale / 2688;
}

/* The power of two that is not below x, as a byte: no element saturates.  That
 * of zeros is 1. */
static uint8_t power_above(float x)
{
    int exponent;
    if (!(x > 0))
        return 127;
    if (isinf(x))
        return 254;
    /* x is fraction * 2^exponent with the fraction in [0.5, 1). */
    if (frexpf(x, &exponent) == 0.5f)
        exponent--;
    if (exponent > 127)
        return 254;
    return exponent < -127 ? 0 : (uint8_t)(exponent + 127);
}

void qn_quant_float_group(uint8_t *codes, uint8_t *scale, const float *w,
                          size_t n, qn_quant_mode mode, float global_scale)
{
    float largest = 0, s;
    for (size_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(w[i]));
    largest /= mode == QN_QUANT_MXFP8 ? 448 : 6;
    if (mode == QN_QUANT_NVFP4) {
        float encode = global_scale == 0 ? 1 : 2688 / global_scale;
        *scale = qn_f32_to_e4m3(largest * encode);
        s = qn_e4m3_to_f32(*scale) * qn_quant_global(global_scale);
    } else {
        *scale = power_above(largest);
        s = qn_e8m0_to_f32(*scale);
    }
    for (size_t i = 0; i < n; i++) {
        float x = s == 0 ? 0 : w[i] / s;
        codes[i] =
            mode == QN_QUANT_MXFP8 ? qn_f32_to_e4m3(x) : qn_f32_to_e2m1(x);
    }
}
