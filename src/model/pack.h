/* pack.h: GGUF blocks into packed groups (runtime specification 3.3).
 *
 * A block of 32 elements with its own scale is exactly one affine group: the
 * integers move into little-endian bit order, the scale and, where the format
 * has one, the minimum are copied; a format without a minimum has a fixed
 * zero point z, whose bias is -z * scale.  Blocks of 256 (Q2_K to Q6_K) are
 * groups of 16 or 32 whose float32 scales are products of theirs.  The entries
 * of the table of IQ4_NL and IQ4_XS are 8-bit integers.  MXFP4 is a mode of its
 * own.  No value changes. */
#ifndef QN_MODEL_PACK_H
#define QN_MODEL_PACK_H

#include "base/gguf.h"

/* The packed form of a block type. */
typedef struct qn_pack_form {
    bool mxfp4; /* else affine */
    int bits, group;
    int zero;  /* the code whose value is 0 where the format fixes it, or -1 */
    int block; /* elements of a block: rows are whole blocks */
    bool wide; /* scales and biases are float32 (mxfp4: bytes, no biases) */
} qn_pack_form;

/* False when it has none. */
bool qn_pack_form_of(qn_pack_form *out, int gguf_type);

/* Where packed rows go.  Scales and biases are float16 bits. */
typedef struct qn_packed_rows {
    uint32_t *words;  /* rows * cols * bits / 32 */
    uint16_t *scales; /* rows * cols / 32 */
    uint16_t *biases; /* the same */
} qn_packed_rows;

/* Converts `rows` rows of `cols` elements (a multiple of 32) at `data`, of a
 * type whose form is not wide.  Row
 * r of the result is row source_row[r] of the data (NULL: r).  False when a
 * bias is too large for float16; qn_pack_wide then gives scales and biases. */
bool qn_pack_rows(const qn_packed_rows *out, int gguf_type, const uint8_t *data,
                  size_t rows, size_t cols, const uint32_t *source_row);
/* The same for a wide form: words, and float32 scales and biases. */
void qn_pack_super(uint32_t *words, float *scales, float *biases, int gguf_type,
                   const uint8_t *data, size_t rows, size_t cols,
                   const uint32_t *source_row);
/* The same for MXFP4: words and scales of mode mxfp4. */
void qn_pack_mxfp4(uint32_t *words, uint8_t *scales, const uint8_t *data,
                   size_t rows, size_t cols, const uint32_t *source_row);
/* Only the scales and biases of a form that is not wide, in float32. */
void qn_pack_wide(float *scales, float *biases, int gguf_type,
                  const uint8_t *data, size_t rows, size_t cols,
                  const uint32_t *source_row);

#endif
