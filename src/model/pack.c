/* pack.c: see pack.h. */
#include "pack.h"

#include "base/gguf_blocks.h"

#include <assert.h>

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
    else
        *out = (qn_pack_form){.bits = bits,
                              .group = QN_GGUF_GROUP,
                              .zero = gguf_type == QN_GGUF_Q4_0_T   ? 8
                                      : gguf_type == QN_GGUF_Q5_0_T ? 16
                                      : gguf_type == QN_GGUF_Q8_0_T ? 128
                                                                    : -1,
                              .block = QN_GGUF_GROUP};
    return super || bits;
}

void qn_pack_super(uint32_t *words, float *scales, float *biases, int gguf_type,
                   const uint8_t *data, size_t rows, size_t cols,
                   const uint32_t *source_row)
{
    const qn_gguf_super *super = qn_gguf_super_of(gguf_type);
    size_t blocks = cols / QN_GGUF_BLOCK_MAX;
    size_t groups = cols / (size_t)super->group;
    for (size_t r = 0; r < rows; r++) {
        size_t from = source_row ? source_row[r] : r;
        qn_gguf_super_pack(words, scales, biases, gguf_type,
                           data + from * blocks * super->bytes, blocks);
        words += cols * (size_t)super->bits / 32;
        scales += groups;
        biases += groups;
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
