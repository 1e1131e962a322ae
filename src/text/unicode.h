/* unicode.h: character classes for splitting and normalizing text.
 *
 * Class bits for each code point, in a two-level table that is filled once
 * from the categories of Unicode 16 (unicode_ranges.def; qn_uc_init).  The
 * functions here take text that is known to be valid UTF-8
 * (qn_tokenizer_encode checks it at the door), so that they need not look for
 * errors again. */
#ifndef QN_TEXT_UNICODE_H
#define QN_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    QN_UC_LETTER = 1, /* \p{L} */
    QN_UC_MARK = 2,   /* \p{M} */
    QN_UC_NUMBER = 4, /* \p{N} */
    QN_UC_SPACE = 8,  /* White_Space, which is \s */
    QN_UC_PUNCT = 16, /* \p{P}, and all punctuation of ASCII */
    QN_UC_WORD = 32,  /* \w: letters, marks, digits, connectors, joiners */
    /* Letters that may begin a capitalized word, and that may stand in its
     * lower part: marks and letters without case are both. */
    QN_UC_TITLE = 64,       /* [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] */
    QN_UC_LOWER = 128,      /* [\p{Ll}\p{Lm}\p{Lo}\p{M}] */
    QN_UC_NONSPACING = 256, /* \p{Mn} */
    QN_UC_CONTROL = 512     /* Cc, Cf, Cs, Co: \p{C} but for unassigned ones */
};

enum {
    QN_UC_BLOCK_BITS = 8,
    QN_UC_CODES = 0x110000,
    QN_UC_BLOCK_MAX = 192 /* distinct blocks of this version: 163 */
};

/* Filled by qn_uc_init, constant afterwards. */
extern uint16_t qn_uc_index[QN_UC_CODES >> QN_UC_BLOCK_BITS];
extern uint16_t qn_uc_blocks[QN_UC_BLOCK_MAX][1 << QN_UC_BLOCK_BITS];

/* Fills the table; once for the process, from any thread.  Whoever loads a
 * tokenizer calls it before anything else here. */
void qn_uc_init(void);
/* "16.0.0": the Unicode version of the classes. */
const char *qn_uc_version(void);

/* The class bits of a code point (below QN_UC_CODES). */
static inline unsigned qn_uc_class(uint32_t code)
{
    return qn_uc_blocks[qn_uc_index[code >> QN_UC_BLOCK_BITS]]
                       [code & ((1 << QN_UC_BLOCK_BITS) - 1)];
}

/* Reads the character at p; returns its length. */
static inline int qn_uc_next(const char *p, uint32_t *code)
{
    const uint8_t *u = (const uint8_t *)p;
    if (u[0] < 0x80) {
        *code = u[0];
        return 1;
    }
    if (u[0] < 0xe0) {
        *code = (u[0] & 0x1fu) << 6 | (u[1] & 0x3fu);
        return 2;
    }
    if (u[0] < 0xf0) {
        *code = (u[0] & 0x0fu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu);
        return 3;
    }
    *code = (u[0] & 0x07u) << 18 | (u[1] & 0x3fu) << 12 | (u[2] & 0x3fu) << 6 |
            (u[3] & 0x3fu);
    return 4;
}

/* Reads the character that ends before p (at least one stands there);
 * returns its length. */
static inline int qn_uc_prev(const char *p, uint32_t *code)
{
    const char *q = p - 1;
    while (((uint8_t)*q & 0xc0) == 0x80)
        q--;
    return qn_uc_next(q, code);
}

static inline bool qn_uc_is_space(uint32_t code)
{
    return (qn_uc_class(code) & QN_UC_SPACE) != 0;
}

#endif
