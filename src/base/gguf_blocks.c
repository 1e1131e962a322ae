/* gguf_blocks.c: see gguf_blocks.h.  Packing and splitting are written for the
 * bandwidth of memory: eight elements are a word, no loop goes over single
 * ones but where 5-bit groups become a stream of bits.  Expanding is plain. */
#include "gguf_blocks.h"

#include "bytes.h"
#include "f16.h"
#include "gguf.h"

#include <assert.h>
#include <math.h>

/* ---- groups of 32 ---- */

/* The low four bits of each byte of x, gathered into 32 bits. */
static uint32_t gather_nibbles(uint64_t x)
{
    x &= 0x0f0f0f0f0f0f0f0fu;
    x = (x | x >> 4) & 0x00ff00ff00ff00ffu;
    x = (x | x >> 8) & 0x0000ffff0000ffffu;
    return (uint32_t)(x | x >> 16);
}

/* 16 bytes: low nibbles are elements 0-15, high ones 16-31. */
static void pack_nibbles(uint32_t *words, const uint8_t *q)
{
    uint64_t a = qn_le64(q), b = qn_le64(q + 8);
    words[0] = gather_nibbles(a);
    words[1] = gather_nibbles(b);
    words[2] = gather_nibbles(a >> 4);
    words[3] = gather_nibbles(b >> 4);
}

/* The same with a fifth bit for element j in bit j of `high`. */
static void pack_fives(uint32_t *words, const uint8_t *q, uint32_t high)
{
    uint64_t stream = 0;
    int filled = 0;
    for (int j = 0; j < QN_GGUF_GROUP; j++) {
        uint32_t low = j < 16 ? q[j] & 15u : (uint32_t)q[j - 16] >> 4;
        stream |= (uint64_t)(low | (high >> j & 1u) << 4) << filled;
        filled += 5;
        if (filled >= 32) {
            *words++ = (uint32_t)stream;
            stream >>= 32;
            filled -= 32;
        }
    }
}

/* Signed bytes become unsigned ones with the zero point 128. */
static void pack_bytes(uint32_t *words, const uint8_t *q)
{
    for (int i = 0; i < QN_GGUF_GROUP / 4; i++)
        words[i] = qn_le32(q + 4 * i) ^ 0x80808080u;
}

/* How a type is laid out. */
typedef struct layout {
    int type, bits, block_bytes;
    int zero; /* zero point; 0: the block has a minimum */
} layout;

static const layout layouts[] = {
    {QN_GGUF_Q4_0_T, 4, 18, 8},   {QN_GGUF_Q4_1_T, 4, 20, 0},
    {QN_GGUF_Q5_0_T, 5, 22, 16},  {QN_GGUF_Q5_1_T, 5, 24, 0},
    {QN_GGUF_Q8_0_T, 8, 34, 128},
};

static const layout *layout_of(int type)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].type == type)
            return &layouts[i];
    return NULL;
}

int qn_gguf_group_bits(int type)
{
    const layout *l = layout_of(type);
    return l ? l->bits : 0;
}

static void pack_block(uint32_t *words, int type, const uint8_t *block)
{
    switch (type) {
    case QN_GGUF_Q4_0_T:
        pack_nibbles(words, block + 2);
        break;
    case QN_GGUF_Q4_1_T:
        pack_nibbles(words, block + 4);
        break;
    case QN_GGUF_Q5_0_T:
        pack_fives(words, block + 6, qn_le32(block + 2));
        break;
    case QN_GGUF_Q5_1_T:
        pack_fives(words, block + 8, qn_le32(block + 4));
        break;
    case QN_GGUF_Q8_0_T:
        pack_bytes(words, block + 2);
        break;
    default:
        assert(!"a type without a layout");
    }
}

bool qn_gguf_group_pack(uint32_t *words, uint16_t *scales, uint16_t *biases,
                        int type, const uint8_t *block, size_t count)
{
    const layout *l = layout_of(type);
    assert(l);
    float zero = (float)-l->zero;
    bool fits = true;
    for (size_t i = 0; i < count; i++) {
        pack_block(words, type, block);
        scales[i] = qn_le16(block);
        if (l->zero) {
            /* A power of two times d: exact unless it overflows. */
            biases[i] = qn_f32_to_f16(zero * qn_f16_to_f32(scales[i]));
            fits &= (biases[i] & 0x7fffu) < 0x7c00u ||
                    (scales[i] & 0x7fffu) >= 0x7c00u;
        } else {
            biases[i] = qn_le16(block + 2);
        }
        words += l->bits;
        block += l->block_bytes;
    }
    return fits;
}

void qn_gguf_group_wide(float *scales, float *biases, int type,
                        const uint8_t *block, size_t count)
{
    const layout *l = layout_of(type);
    assert(l);
    for (size_t i = 0; i < count; i++, block += l->block_bytes) {
        scales[i] = qn_f16_to_f32(qn_le16(block));
        biases[i] = l->zero ? (float)-l->zero * scales[i]
                            : qn_f16_to_f32(qn_le16(block + 2));
    }
}

static void expand_group(float *out, int type, const uint8_t *block)
{
    uint32_t words[8 + 1] = {0}; /* one more: an element may end in it */
    float scale, bias;
    int bits = qn_gguf_group_bits(type);
    pack_block(words, type, block);
    qn_gguf_group_wide(&scale, &bias, type, block, 1);
    for (int i = 0; i < QN_GGUF_GROUP; i++) {
        int at = i * bits;
        uint64_t two = words[at / 32] | (uint64_t)words[at / 32 + 1] << 32;
        uint32_t q = (uint32_t)(two >> at % 32) & ((1u << bits) - 1);
        /* Whole multiples of the scale where the bias is one, too. */
        int zero = layout_of(type)->zero;
        out[i] =
            zero ? scale * (float)((int)q - zero) : scale * (float)q + bias;
    }
}

/* ---- blocks of 256 in groups of 16 or 32 ---- */

/* Scale and minimum j of 8, six bits each in 12 bytes (Q4_K, Q5_K). */
static void six_bits(int *scale, int *min, int j, const uint8_t *s)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
        *min = s[j + 4] >> 4 | s[j] >> 6 << 4;
    }
}

static const qn_gguf_super supers[] = {
    {QN_GGUF_Q2_K_T, 2, 16, -1, 84},  {QN_GGUF_Q3_K_T, 3, 16, 4, 110},
    {QN_GGUF_Q4_K_T, 4, 32, -1, 144}, {QN_GGUF_Q5_K_T, 5, 32, -1, 176},
    {QN_GGUF_Q6_K_T, 6, 16, 32, 210},
};

const qn_gguf_super *qn_gguf_super_of(int type)
{
    for (size_t i = 0; i < sizeof supers / sizeof *supers; i++)
        if (supers[i].type == type)
            return &supers[i];
    return NULL;
}

/* ---- blocks taken apart ---- */

static const uint64_t ones = 0x0101010101010101u;

/* n bytes (a multiple of 8): low halves to `low`, high ones to `high`. */
static void split_nibbles(uint8_t *low, uint8_t *high, const uint8_t *q, int n)
{
    for (int i = 0; i < n; i += 8) {
        uint64_t x = qn_le64(q + i);
        qn_put_le64(low + i, x & ones * 15);
        qn_put_le64(high + i, x >> 4 & ones * 15);
    }
}

/* Bit j of `bits` becomes bit 4 of code j. */
static void add_fifth_bits(uint8_t *codes, uint32_t bits)
{
    for (int i = 0; i < 4; i++, codes += 8, bits >>= 8) {
        uint64_t one_each = (bits & 255) * ones & 0x8040201008040201u;
        uint64_t bit = (one_each + ones * 127) >> 7 & ones;
        qn_put_le64(codes, qn_le64(codes) | bit << 4);
    }
}

/* Q2_K: 16 bytes of scale (low nibble) and minimum; 64 bytes of two-bit
 * integers: in each half of 128 elements, group pair k has bits 2k of 32 bytes;
 * d; dmin. */
static void codes_q2_k(uint8_t *codes, const uint8_t *block)
{
    for (int i = 0; i < 256; i += 8) {
        uint64_t q = qn_le64(block + 16 + 32 * (i / 128) + i % 32);
        qn_put_le64(codes + i, q >> i % 128 / 32 * 2 & ones * 3);
    }
}

/* Q3_K: 32 bytes whose bit 4 * half + k is the third bit of group pair k,
 * inverted in sign: 4 is taken away where it is 0; integers as above; 16 scales
 * of six bits, low four and high two apart, less 32; d. */
static void codes_q3_k(uint8_t *codes, const uint8_t *block)
{
    for (int i = 0; i < 256; i += 8) {
        int half = i / 128, pair = i % 128 / 32;
        uint64_t low = qn_le64(block + 32 + 32 * half + i % 32) >> 2 * pair;
        uint64_t third = qn_le64(block + i % 32) >> (4 * half + pair);
        qn_put_le64(codes + i, (low & ones * 3) | (third & ones) << 2);
    }
}

static int scale_q3_k(const uint8_t *s, int g)
{
    int low = s[g % 8] >> g / 8 * 4 & 15, high = s[8 + g % 4] >> g / 4 * 2 & 3;
    return (low | high << 4) - 32;
}

/* Q4_K, Q5_K: d; dmin; 12 bytes of six-bit scales and minima; with five bits:
 * 32 bytes whose bit g is the high bit of group g; four runs of 32 bytes, whose
 * low nibbles are group 2c and high ones group 2c + 1. */
static void codes_k(uint8_t *codes, const uint8_t *block, bool five)
{
    const uint8_t *high = block + 16, *q = block + (five ? 48 : 16);
    for (int i = 0; i < 4; i++)
        split_nibbles(codes + 64 * i, codes + 64 * i + 32, q + 32 * i, 32);
    for (int i = 0; i < 256 && five; i += 8) {
        uint64_t bit = qn_le64(high + i % 32) >> i / 32 & ones;
        qn_put_le64(codes + i, qn_le64(codes + i) | bit << 4);
    }
}

/* Q6_K: low four bits: 64 bytes for each half, in which quarter k of 32
 * elements has bytes 32 * (k % 2) on and the high nibble from k = 2 on; high
 * two bits: 32 bytes for each half, bits 2k; 16 signed scales; d.  Integers
 * less 32. */
static void codes_q6_k(uint8_t *codes, const uint8_t *block)
{
    for (int i = 0; i < 256; i += 8) {
        int half = i / 128, quarter = i % 128 / 32, l = i % 32;
        uint64_t low = qn_le64(block + 64 * half + quarter % 2 * 32 + l);
        uint64_t high = qn_le64(block + 128 + 32 * half + l) >> 2 * quarter;
        low = low >> quarter / 2 * 4 & ones * 15;
        qn_put_le64(codes + i, low | (high & ones * 3) << 4);
    }
}

void qn_gguf_split_codes(qn_gguf_split *out, int type, const uint8_t *block)
{
    uint8_t *codes = out->codes;
    switch (type) {
    case QN_GGUF_Q2_K_T:
        codes_q2_k(codes, block);
        break;
    case QN_GGUF_Q3_K_T:
        codes_q3_k(codes, block);
        break;
    case QN_GGUF_Q4_K_T:
    case QN_GGUF_Q5_K_T:
        codes_k(codes, block, type == QN_GGUF_Q5_K_T);
        break;
    case QN_GGUF_Q6_K_T:
        codes_q6_k(codes, block);
        break;
    case QN_GGUF_IQ4_XS_T:
        for (int g = 0; g < 8; g++)
            split_nibbles(codes + 32 * g, codes + 32 * g + 16,
                          block + 8 + 16 * g, 16);
        break;
    case QN_GGUF_MXFP4_T:
        split_nibbles(codes, codes + 16, block + 1, 16);
        break;
    case QN_GGUF_Q4_0_T:
    case QN_GGUF_IQ4_NL_T:
        split_nibbles(codes, codes + 16, block + 2, 16);
        break;
    case QN_GGUF_Q4_1_T:
        split_nibbles(codes, codes + 16, block + 4, 16);
        break;
    case QN_GGUF_Q5_0_T:
        split_nibbles(codes, codes + 16, block + 6, 16);
        add_fifth_bits(codes, qn_le32(block + 2));
        break;
    case QN_GGUF_Q5_1_T:
        split_nibbles(codes, codes + 16, block + 8, 16);
        add_fifth_bits(codes, qn_le32(block + 4));
        break;
    case QN_GGUF_Q8_0_T:
        for (int i = 0; i < 32; i += 8)
            qn_put_le64(codes + i, qn_le64(block + 2 + i) ^ ones * 128);
        break;
    default:
        assert(!"a type without a layout");
    }
}

void qn_gguf_split_scales(qn_gguf_split *out, int type, const uint8_t *block)
{
    int high = qn_le16(block + 2);
    out->d = qn_le16(block);
    out->m = (uint16_t)high;
    switch (type) {
    case QN_GGUF_Q2_K_T:
        for (int g = 0; g < 16; g++) {
            out->scales[g] = (int8_t)(block[g] & 15);
            out->mins[g] = block[g] >> 4;
        }
        out->d = qn_le16(block + 80);
        out->m = qn_le16(block + 82);
        break;
    case QN_GGUF_Q3_K_T:
        for (int g = 0; g < 16; g++)
            out->scales[g] = (int8_t)scale_q3_k(block + 96, g);
        out->d = qn_le16(block + 108);
        break;
    case QN_GGUF_Q4_K_T:
    case QN_GGUF_Q5_K_T:
        for (int g = 0; g < 8; g++) {
            int scale, min;
            six_bits(&scale, &min, g, block + 4);
            out->scales[g] = (int8_t)scale;
            out->mins[g] = (uint8_t)min;
        }
        break;
    case QN_GGUF_Q6_K_T:
        memcpy(out->scales, block + 192, 16);
        out->d = qn_le16(block + 208);
        break;
    case QN_GGUF_IQ4_XS_T:
        /* d; the high two bits of 8 scales; their low four; 8 groups of
         * nibbles. */
        for (int g = 0; g < 8; g++)
            out->scales[g] = (int8_t)(((block[4 + g / 2] >> g % 2 * 4 & 15) |
                                       (high >> 2 * g & 3) << 4) -
                                      32);
        break;
    case QN_GGUF_MXFP4_T:
        out->scales[0] = (int8_t)block[0];
        break;
    default:
        break;
    }
}

void qn_gguf_split_block(qn_gguf_split *out, int type, const uint8_t *block)
{
    qn_gguf_split_scales(out, type, block);
    qn_gguf_split_codes(out, type, block);
}

/* Codes, scales and, where the type has no zero point, biases of a block of
 * 256. */
static void split_super(qn_gguf_split *split, float *scales, float *biases,
                        const qn_gguf_super *super, const uint8_t *block)
{
    qn_gguf_split_block(split, super->type, block);
    float d = qn_f16_to_f32(split->d);
    float m = super->zero < 0 ? qn_f16_to_f32(split->m) : 0;
    for (int g = 0; g < 256 / super->group; g++) {
        scales[g] = d * (float)split->scales[g];
        if (super->zero < 0)
            biases[g] = -(m * (float)split->mins[g]);
    }
}

/* 256 codes as a stream of 8 * bits words. */
static void pack_codes(uint32_t *words, const uint8_t *codes, int bits)
{
    uint64_t stream = 0;
    int filled = 0;
    for (int i = 0; i < 256; i++) {
        stream |= (uint64_t)codes[i] << filled;
        filled += bits;
        if (filled >= 32) {
            *words++ = (uint32_t)stream;
            stream >>= 32;
            filled -= 32;
        }
    }
}

void qn_gguf_super_pack(uint32_t *words, float *scales, float *biases, int type,
                        const uint8_t *block, size_t count)
{
    const qn_gguf_super *super = qn_gguf_super_of(type);
    assert(super);
    int groups = 256 / super->group;
    for (size_t i = 0; i < count; i++) {
        qn_gguf_split split;
        split_super(&split, scales, biases, super, block);
        for (int g = 0; g < groups && super->zero >= 0; g++)
            biases[g] = (float)-super->zero * scales[g];
        pack_codes(words, split.codes, super->bits);
        words += 8 * super->bits;
        scales += groups;
        biases += groups;
        block += super->bytes;
    }
}

static void expand_super(float *out, const qn_gguf_super *super,
                         const uint8_t *block)
{
    qn_gguf_split split;
    float scales[16], biases[16];
    split_super(&split, scales, biases, super, block);
    for (int i = 0; i < 256; i++) {
        int g = i / super->group;
        out[i] = super->zero >= 0
                     ? scales[g] * (float)(split.codes[i] - super->zero)
                     : scales[g] * (float)split.codes[i] + biases[g];
    }
}

/* ---- codebooks ---- */

const int8_t qn_gguf_iq4_codes[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
const int8_t qn_gguf_fp4_codes[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                      0, -1, -2, -3, -4, -6, -8, -12};

/* A group of 32. */
static void expand_codes(float *out, const int8_t *table, float scale,
                         const uint8_t *codes)
{
    for (int i = 0; i < 32; i++)
        out[i] = scale * (float)table[codes[i]];
}

/* ---- by type ---- */

bool qn_gguf_expands(int type)
{
    switch (type) {
    case QN_GGUF_IQ4_NL_T:
    case QN_GGUF_IQ4_XS_T:
    case QN_GGUF_MXFP4_T:
        return true;
    default:
        return qn_gguf_group_bits(type) || qn_gguf_super_of(type);
    }
}

void qn_gguf_expand(float *out, int type, const uint8_t *block)
{
    const qn_gguf_super *super = qn_gguf_super_of(type);
    if (super) {
        expand_super(out, super, block);
        return;
    }
    if (layout_of(type)) {
        expand_group(out, type, block);
        return;
    }
    qn_gguf_split split;
    qn_gguf_split_block(&split, type, block);
    if (type == QN_GGUF_MXFP4_T) {
        /* E8M0: 2^(e - 127), and 255 is NaN; halved for the codes. */
        int e = (uint8_t)split.scales[0];
        expand_codes(out, qn_gguf_fp4_codes,
                     e == 255 ? NAN : ldexpf(1, e - 128), split.codes);
        return;
    }
    float d = qn_f16_to_f32(split.d);
    if (type == QN_GGUF_IQ4_NL_T)
        expand_codes(out, qn_gguf_iq4_codes, d, split.codes);
    for (int g = 0; g < 8 && type == QN_GGUF_IQ4_XS_T; g++)
        expand_codes(out + 32 * g, qn_gguf_iq4_codes,
                     d * (float)split.scales[g], split.codes + 32 * g);
}
