/* kv_codes.h: where the codes of packed keys and values lie (qn_kv_form in
 * ops/params.h has the layout), and rows as codes and back. */
#ifndef QN_BACKEND_COMMON_KV_CODES_H
#define QN_BACKEND_COMMON_KV_CODES_H

#include "core/array.h"
#include "ops/params.h"

enum { QN_KV_STEP = 32 }; /* elements of a head that are moved at a time */

/* The keys or the values of one block of a head. */
typedef struct qn_kv_side {
    const qn_kv_form *form;
    bool key;
    int bits, factors; /* arrays beside the words */
    size_t d;
    uint32_t *words;
    char *factor[2];
} qn_kv_side;

/* Those of the block that the token at `position` is in. */
qn_kv_side qn_kv_side_of(const qn_kv_form *form, qn_array *const *arrays,
                         bool key, int head, int position);

/* A head of the token in column `column` of its block from floats, rounded to
 * codes; and as floats again.  Values of turbo caches come back rotated. */
void qn_kv_side_encode(const qn_kv_side *side, int column, const float *x);
void qn_kv_side_decode(const qn_kv_side *side, int column, float *x);

/* Stores d codes (those with a sign keep it) and d / group bits of float16 for
 * each of the other arrays, of a turbo cache. */
void qn_kv_side_put(const qn_kv_side *side, int column, const uint8_t *codes,
                    const uint16_t *const *factors);

/* The token's rows of the planes of KV_READ: at plane[0] those of the codes,
 * at [1] and [2] those of the other arrays. */
void qn_kv_side_read(const qn_kv_side *side, int column, char *const *plane);
void qn_kv_side_write(const qn_kv_side *side, int column,
                      const char *const *plane);

#endif
