/* gguf_blocks.h: what the blocks of packed GGUF tensors hold.
 *
 * A row is cut into blocks of 32 or 256 elements.  A block has small integers
 * and the scales that make numbers of them.  Source: the block formats as the
 * runtime specification lists them (3.3). */
#ifndef QN_BASE_GGUF_BLOCKS_H
#define QN_BASE_GGUF_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { QN_GGUF_GROUP = 32, QN_GGUF_BLOCK_MAX = 256 };

/* ---- blocks that are one affine group of 32 ----
 *
 * element = scale * integer + bias, where the bias is the block's minimum or,
 * in a format without one, minus the zero point times the scale. */

/* Bits of the integers of Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0; 0 for other types.
 */
int qn_gguf_group_bits(int type);
/* Moves the integers of `count` blocks into little-endian bit order, `bits`
 * words for each block, with scales and biases in float16.  No value changes;
 * false when a bias is too large for float16 and has become infinite. */
bool qn_gguf_group_pack(uint32_t *words, uint16_t *scales, uint16_t *biases,
                        int type, const uint8_t *blocks, size_t count);
/* Only scales and biases, in float32, which holds them all. */
void qn_gguf_group_wide(float *scales, float *biases, int type,
                        const uint8_t *blocks, size_t count);

/* ---- blocks of 256 that are affine groups of 16 or 32 ---- */

typedef struct qn_gguf_super {
    int type, bits, group; /* of a code; elements that share a scale */
    int zero;              /* the code whose value is 0; -1: there is a bias */
    size_t bytes;          /* of a block */
} qn_gguf_super;

/* What is known of Q2_K, Q3_K, Q4_K, Q5_K and Q6_K; NULL for other types. */
const qn_gguf_super *qn_gguf_super_of(int type);
/* The codes of `count` blocks in little-endian bit order, 8 * bits words for
 * each, with float32 scales and biases, 256 / group for each.  No value
 * changes: the products of a block's scales need 17 bits. */
void qn_gguf_super_pack(uint32_t *words, float *scales, float *biases, int type,
                        const uint8_t *blocks, size_t count);

/* ---- any block ---- */

/* A block taken apart, nothing multiplied. */
typedef struct qn_gguf_split {
    /* The integers in order: those that the format calls signed plus its zero
     * point, those of a table as they are. */
    uint8_t codes[QN_GGUF_BLOCK_MAX];
    /* float16: the scale, or that of the scales; the minimum (Q4_1, Q5_1), or
     * the scale of the minima (Q2_K, Q4_K, Q5_K), which are taken away. */
    uint16_t d, m;
    /* One for each group in a block of 256, but for minima without a sign; of
     * MXFP4 the one byte of its scale. */
    int8_t scales[16];
    uint8_t mins[16];
} qn_gguf_split;

/* Fills what the type has, which is one that qn_gguf_expands. */
void qn_gguf_split_block(qn_gguf_split *out, int type, const uint8_t *block);
/* Only its codes, and only the rest. */
void qn_gguf_split_codes(qn_gguf_split *out, int type, const uint8_t *block);
void qn_gguf_split_scales(qn_gguf_split *out, int type, const uint8_t *block);

/* What the codes of IQ4_NL and IQ4_XS stand for, and twice what those of MXFP4
 * do (E2M1). */
extern const int8_t qn_gguf_iq4_codes[16], qn_gguf_fp4_codes[16];

/* Whether the type is one of those above, Q2_K to Q6_K, IQ4_NL, IQ4_XS or
 * MXFP4. */
bool qn_gguf_expands(int type);
/* The elements of one block of such a type. */
void qn_gguf_expand(float *out, int type, const uint8_t *block);

#endif
