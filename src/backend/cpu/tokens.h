/* tokens.h: rows of logits, wherever they lie, block by block. */
#ifndef QN_CPU_TOKENS_H
#define QN_CPU_TOKENS_H

#include "core/dtype.h"

#include <stddef.h>
#include <stdint.h>

enum { QN_TOKENS_BLOCK = 4096 /* of a row; a multiple of 32 */ };

typedef struct qn_token_rows {
    const char *data; /* the first element */
    qn_dtype type;    /* float32, float16, bfloat16 */
    int ndim;         /* at least 1; the last axis is that of tokens */
    const int *shape;
    const int64_t *strides; /* elements */
    size_t count, n;        /* rows, and tokens in each */
} qn_token_rows;

/* Rows of the last axis of such an array. */
qn_token_rows qn_token_rows_of(const void *data, qn_dtype type, int ndim,
                               const int *shape, const int64_t *strides);
size_t qn_token_blocks(const qn_token_rows *rows);
/* Tokens in block `block` of a row. */
size_t qn_token_block_size(const qn_token_rows *rows, size_t block);
/* n tokens from number `first` on as neighbours: where they lie, or in `space`,
 * which has room for them. */
const void *qn_token_load(const qn_token_rows *rows, size_t row, size_t first,
                          size_t n, void *space);
/* Number `i` of the blocks of all rows, masked, to a row-major array; the mask
 * is that of the row.  `words` reach to the end of a row. */
void qn_token_mask(const qn_token_rows *rows, size_t i, const uint32_t *words,
                   void *out);

#endif
