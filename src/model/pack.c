/* pack.c: see pack.h.  Written for the bandwidth of memory: a block is a few
 * word operations, no loop over elements but for the rare 5-bit types. */
#include "pack.h"

#include "base/f16.h"

#include <assert.h>

enum { GROUP = 32 };

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
    for (int j = 0; j < GROUP; j++) {
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
    for (int i = 0; i < GROUP / 4; i++)
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

int qn_pack_bits(int gguf_type)
{
    const layout *l = layout_of(gguf_type);
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

/* One row of blocks; true while every bias fits float16. */
static bool pack_row(const layout *l, uint32_t *words, uint16_t *scales,
                     uint16_t *biases, const uint8_t *block, size_t blocks)
{
    size_t word_count = (size_t)l->bits;
    float zero = (float)-l->zero;
    bool fits = true;
    for (size_t i = 0; i < blocks; i++) {
        pack_block(words, l->type, block);
        scales[i] = qn_le16(block);
        if (l->zero) {
            /* A power of two times d: exact unless it overflows. */
            biases[i] = qn_f32_to_f16(zero * qn_f16_to_f32(scales[i]));
            fits &= (biases[i] & 0x7fffu) < 0x7c00u ||
                    (scales[i] & 0x7fffu) >= 0x7c00u;
        } else {
            biases[i] = qn_le16(block + 2);
        }
        words += word_count;
        block += l->block_bytes;
    }
    return fits;
}

bool qn_pack_rows(const qn_packed_rows *out, int gguf_type, const uint8_t *data,
                  size_t rows, size_t cols, const uint32_t *source_row)
{
    const layout *l = layout_of(gguf_type);
    assert(l && cols % GROUP == 0);
    size_t blocks = cols / GROUP;
    size_t row_bytes = blocks * (size_t)l->block_bytes;
    size_t row_words = blocks * (size_t)l->bits;
    bool fits = true;
    for (size_t r = 0; r < rows; r++) {
        size_t from = source_row ? source_row[r] : r;
        fits &=
            pack_row(l, out->words + r * row_words, out->scales + r * blocks,
                     out->biases + r * blocks, data + from * row_bytes, blocks);
    }
    return fits;
}

void qn_pack_wide(float *scales, float *biases, int gguf_type,
                  const uint8_t *data, size_t rows, size_t cols,
                  const uint32_t *source_row)
{
    const layout *l = layout_of(gguf_type);
    assert(l && cols % GROUP == 0);
    size_t blocks = cols / GROUP;
    for (size_t r = 0; r < rows; r++) {
        size_t from = source_row ? source_row[r] : r;
        const uint8_t *block = data + from * blocks * (size_t)l->block_bytes;
        for (size_t i = 0; i < blocks; i++, block += l->block_bytes) {
            float d = qn_f16_to_f32(qn_le16(block));
            *scales++ = d;
            *biases++ = l->zero ? (float)-l->zero * d
                                : qn_f16_to_f32(qn_le16(block + 2));
        }
    }
}
