/* pack.c: see pack.h. */
#include "pack.h"

#include "base/f16.h"
#include "base/gguf_blocks.h"

#include <assert.h>

static bool is_table(int gguf_type)
{
    return gguf_type == QN_GGUF_IQ4_NL_T || gguf_type == QN_GGUF_IQ4_XS_T;
}

bool qn_pack_form_of(qn_pack_form *out, int gguf_type)
{
    const qn_gguf_super *super = qn_gguf_super_of(gguf_type);
    int bits = qn_gguf_group_bits(gguf_type);
    if (super)
        *out = (qn_pack_form){.bits = super->bits,
                              .group = super->group,
                              .zero = super->zero,
                              .block = QN_GGUF_BLOCK_MAX,
                              .wide = true};
    else if (is_table(gguf_type))
        *out = (qn_pack_form){.bits = 8,
                              .group = QN_GGUF_GROUP,
                              .zero = 128,
                              .block = gguf_type == QN_GGUF_IQ4_XS_T
                                           ? QN_GGUF_BLOCK_MAX
                                           : QN_GGUF_GROUP,
                              .wide = true};
    else if (gguf_type == QN_GGUF_MXFP4_T)
        *out = (qn_pack_form){.mxfp4 = true,
                              .bits = 4,
                              .group = QN_GGUF_GROUP,
                              .zero = -1,
                              .block = QN_GGUF_GROUP,
                              .wide = true};
    else
        *out = (qn_pack_form){.bits = bits,
                              .group = QN_GGUF_GROUP,
                              .zero = gguf_type == QN_GGUF_Q4_0_T   ? 8
                                      : gguf_type == QN_GGUF_Q5_0_T ? 16
                                      : gguf_type == QN_GGUF_Q8_0_T ? 128
                                                                    : -1,
                              .block = QN_GGUF_GROUP};
    return out->bits != 0;
}

/* A group of table codes as bytes, 128 above the entries. */
static void pack_entries(uint32_t *words, const uint8_t *codes)
{
    for (int i = 0; i < QN_GGUF_GROUP / 4; i++) {
        uint8_t bytes[4];
        for (int j = 0; j < 4; j++)
            bytes[j] = (uint8_t)(qn_gguf_iq4_codes[codes[4 * i + j]] + 128);
        words[i] = qn_le32(bytes);
    }
}

/* `count` blocks of IQ4_NL or IQ4_XS. */
static void pack_table(uint32_t *words, float *scales, float *biases, int type,
                       const uint8_t *data, size_t count)
{
    size_t bytes = 0, elements = 0;
    qn_gguf_type_block(type, &bytes, &elements);
    for (size_t i = 0; i < count; i++, data += bytes) {
        qn_gguf_split split;
        qn_gguf_split_block(&split, type, data);
        float d = qn_f16_to_f32(split.d);
        for (size_t g = 0; g < elements / QN_GGUF_GROUP; g++) {
            bool own = type == QN_GGUF_IQ4_NL_T;
            *scales = own ? d : d * (float)split.scales[g];
            *biases++ = -128 * *scales++;
            pack_entries(words, split.codes + g * QN_GGUF_GROUP);
            words += QN_GGUF_GROUP / 4;
        }
    }
}

void qn_pack_super(uint32_t *words, float *scales, float *biases, int gguf_type,
                   const uint8_t *data, size_t rows, size_t cols,
                   const uint32_t *source_row)
{
    qn_pack_form form;
    size_t bytes = 0, elements = 1;
    qn_pack_form_of(&form, gguf_type);
    qn_gguf_type_block(gguf_type, &bytes, &elements);
    size_t blocks = cols / elements, groups = cols / (size_t)form.group;
    for (size_t r = 0; r < rows; r++) {
        size_t from = source_row ? source_row[r] : r;
        const uint8_t *row = data + from * blocks * bytes;
        if (is_table(gguf_type))
            pack_table(words, scales, biases, gguf_type, row, blocks);
        else
            qn_gguf_super_pack(words, scales, biases, gguf_type, row, blocks);
        words += cols * (size_t)form.bits / 32;
        scales += groups;
        biases += groups;
    }
}

void qn_pack_mxfp4(uint32_t *words, uint8_t *scales, const uint8_t *data,
                   size_t rows, size_t cols, const uint32_t *source_row)
{
    size_t bytes = 0, elements = 1;
    qn_gguf_type_block(QN_GGUF_MXFP4_T, &bytes, &elements);
    size_t blocks = cols / elements;
    for (size_t r = 0; r < rows; r++) {
        size_t from = source_row ? source_row[r] : r;
        for (size_t i = 0; i < blocks; i++) {
            qn_gguf_split split;
            qn_gguf_split_block(&split, QN_GGUF_MXFP4_T,
                                data + (from * blocks + i) * bytes);
            *scales++ = (uint8_t)split.scales[0];
            for (int j = 0; j < QN_GGUF_GROUP; j += 8, words++) {
                *words = 0;
                for (int k = 0; k < 8; k++)
                    *words |= (uint32_t)split.codes[j + k] << 4 * k;
            }
        }
    }
}

/* Sizes of a row. */
typedef struct row {
    size_t blocks, bytes, words;
} row;

static row row_of(int gguf_type, size_t cols)
{
    size_t block_bytes, elements;
    int bits = qn_gguf_group_bits(gguf_type);
    bool known = qn_gguf_type_block(gguf_type, &block_bytes, &elements);
    assert(known && bits && elements == QN_GGUF_GROUP && cols % elements == 0);
    (void)known;
    size_t blocks = cols / QN_GGUF_GROUP;
    return (row){blocks, blocks * block_bytes, blocks * (size_t)bits};
}

bool qn_pack_rows(const qn_packed_rows *out, int gguf_type, const uint8_t *data,
                  size_t rows, size_t cols, const uint32_t *source_row)
{
    const row size = row_of(gguf_type, cols);
    bool fits = true;
    for (size_t r = 0; r < rows; r++) {
        size_t from = source_row ? source_row[r] : r;
        fits &= qn_gguf_group_pack(out->words + r * size.words,
                                   out->scales + r * size.blocks,
                                   out->biases + r * size.blocks, gguf_type,
                                   data + from * size.bytes, size.blocks);
    }
    return fits;
}

void qn_pack_wide(float *scales, float *biases, int gguf_type,
                  const uint8_t *data, size_t rows, size_t cols,
                  const uint32_t *source_row)
{
    const row size = row_of(gguf_type, cols);
    for (size_t r = 0; r < rows; r++) {
        size_t from = source_row ? source_row[r] : r;
        qn_gguf_group_wide(scales + r * size.blocks, biases + r * size.blocks,
                           gguf_type, data + from * size.bytes, size.blocks);
    }
}
