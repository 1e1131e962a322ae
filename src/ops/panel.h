/* panel.h: the layout of panels, in which packed matrices are multiplied with
 * 8-bit integers.
 *
 * A panel is 16 rows of a matrix in the order in which a product reads them,
 * from one end to the other.  It is a sequence of blocks, the last of which may
 * be shorter.  A block is its scales and then its codes, step by step, a step
 * being 32 elements of each row: as many bit planes as the width has (4 + 2 for
 * 6 bits), the widest first and with the lowest bits of a code.  A plane of p
 * bits has p vectors of 16 words a step; byte j of word r of vector v has p-bit
 * fields for the elements 4 q + j of row r, q = 8 / p v + f for field f from
 * the low end.  Rows beyond the last are zero.
 *
 * The scales of a block are, for each of its groups, 16 scales (and 16 biases),
 * or whatever qn_panel_scaling says; a short block has room for all of them. */
#ifndef QN_OPS_PANEL_H
#define QN_OPS_PANEL_H

#include "core/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    QN_PANEL_ROWS = 16,
    QN_PANEL_STEP = 32,
    QN_PANEL_NEST = 256, /* elements of a block of nested scales */
    QN_PANEL_PARTS = 3   /* matrices whose panels lie in one array */
};

/* Activations below TINY are zero where they become integers
 * (backend/cpu/kernels/panel/panel.h has the formula). */
#define QN_PANEL_TINY 1e-30f

/* How the scale and the bias of a group are stored. */
typedef enum qn_panel_scaling {
    /* Numbers of scale_type. */
    QN_PANEL_FLOATS,
    /* Before all groups of a block, 16 float16 d (and 16 m, if biased); of a
     * group 16 bytes s (and 16 bytes b).  The scale is d * s, the bias m * b;
     * without biases s has a sign and is stored as s + 128.  Products of 11
     * and 8 bits are exact in float32. */
    QN_PANEL_NESTED,
    /* The same, biased, with s in the low and b in the high half of a byte. */
    QN_PANEL_NIBBLES,
    /* A byte e: half of 2^(e - 127), NaN for 255 (E2M1 codes are doubled). */
    QN_PANEL_E8M0,
    /* A byte: half of the number with 1 bit of sign, 4 of exponent, biased by
     * 7, and 3 of fraction. */
    QN_PANEL_E4M3
} qn_panel_scaling;

/* What a code stands for: itself, or an entry of a table of 16. */
typedef enum qn_panel_table {
    QN_PANEL_CODES,
    QN_PANEL_E2M1, /* twice the number, plus 12 */
    QN_PANEL_IQ4   /* that of IQ4_NL and IQ4_XS, plus 128 */
} qn_panel_table;

/* The value of a code c, with v from the table: scale * v(c) + bias, or
 * scale * (v(c) - zero). */
typedef struct qn_panel_form {
    int bits;            /* 2, 3, 4, 5, 6 or 8; 4 with a table */
    int group;           /* 16, 32, 64 or 128 */
    bool biased;         /* biases are stored */
    int zero;            /* if not biased: the v whose value is 0 */
    qn_dtype scale_type; /* FLOATS: float32, float16, bfloat16; biases, too */
    qn_panel_scaling scaling;
    qn_panel_table table;
} qn_panel_form;

/* 16 entries; NULL for codes that stand for themselves. */
const uint8_t *qn_panel_table_of(const qn_panel_form *form);
/* The form of a type of GGUF tensors (base/gguf.h) whose blocks are laid out
 * as they are; false for other types. */
bool qn_panel_form_of(qn_panel_form *out, int gguf_type);

/* An activation is (high << shift) + low, two bytes with signs.  A code of up
 * to 4 bits leaves a byte room for code << shift, so that both bytes' products
 * are sums of one kind: that takes shift 8 - bits, and half the work where
 * tiles are multiplied (kernels/panel/amx.c). */
static inline int qn_panel_shift(const qn_panel_form *f)
{
    return f->table == QN_PANEL_CODES && f->bits <= 4 ? 8 - f->bits : 7;
}
/* The largest activation as such an integer. */
static inline float qn_panel_top(const qn_panel_form *f)
{
    return (float)(127 << qn_panel_shift(f));
}

/* Elements that have a sum of their own: a step, or a shorter group. */
static inline size_t qn_panel_unit(const qn_panel_form *f)
{
    return f->group < QN_PANEL_STEP ? (size_t)f->group : QN_PANEL_STEP;
}
/* Bytes of one of a row's scales in a group; biases have as many. */
static inline size_t qn_panel_item(const qn_panel_form *f)
{
    return f->scaling == QN_PANEL_FLOATS ? qn_dtype_size(f->scale_type) : 1;
}
/* Bytes of the 16 scales (and biases) of a group. */
static inline size_t qn_panel_set(const qn_panel_form *f)
{
    bool two = f->biased && f->scaling != QN_PANEL_NIBBLES;
    return QN_PANEL_ROWS * qn_panel_item(f) * (two ? 2 : 1);
}
static inline bool qn_panel_nested(const qn_panel_form *f)
{
    return f->scaling == QN_PANEL_NESTED || f->scaling == QN_PANEL_NIBBLES;
}
/* Bytes of what comes before the scales of a block's groups. */
static inline size_t qn_panel_front(const qn_panel_form *f)
{
    return qn_panel_nested(f) ? QN_PANEL_ROWS * 2u << f->biased : 0;
}
/* Groups of a block: as many as fill cache lines with their scales, so that
 * codes begin on one. */
static inline size_t qn_panel_groups(const qn_panel_form *f)
{
    if (qn_panel_nested(f))
        return QN_PANEL_NEST / (size_t)f->group;
    if (f->scaling != QN_PANEL_FLOATS)
        return 4;
    return f->group < QN_PANEL_STEP || qn_panel_set(f) < 64 ? 2 : 1;
}
/* Elements of a block. */
static inline size_t qn_panel_block(const qn_panel_form *f)
{
    return qn_panel_groups(f) * (size_t)f->group;
}
/* Bytes of a block before its codes, which begin on a cache line: a vector of
 * codes that lies on two takes twice as long to load. */
static inline size_t qn_panel_head(const qn_panel_form *f)
{
    size_t scales = qn_panel_front(f) + qn_panel_groups(f) * qn_panel_set(f);
    return (scales + 63) / 64 * 64;
}
/* Bytes of the codes of so many elements. */
static inline size_t qn_panel_code_bytes(const qn_panel_form *f,
                                         size_t elements)
{
    return elements * (size_t)f->bits * QN_PANEL_ROWS / 8;
}
static inline size_t qn_panel_block_bytes(const qn_panel_form *f)
{
    return qn_panel_head(f) + qn_panel_code_bytes(f, qn_panel_block(f));
}
static inline size_t qn_panel_blocks(const qn_panel_form *f, size_t k)
{
    return (k + qn_panel_block(f) - 1) / qn_panel_block(f);
}
static inline size_t qn_panel_bytes(const qn_panel_form *f, size_t k)
{
    return qn_panel_blocks(f, k) * qn_panel_head(f) + qn_panel_code_bytes(f, k);
}
/* Panels of a matrix of so many rows. */
static inline size_t qn_panel_count(int rows)
{
    return ((size_t)rows + QN_PANEL_ROWS - 1) / QN_PANEL_ROWS;
}

#endif
