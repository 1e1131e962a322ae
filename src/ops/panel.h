/* panel.h: the layout of panels, in which packed matrices are multiplied with
 * 8-bit integers.
 *
 * A panel is 16 rows of a matrix in the order in which a product reads them,
 * from one end to the other.  It is a sequence of blocks.  A block is `groups`
 * times 16 scales (and 16 biases), then its codes, step by step, a step being
 * 32 elements of each row: as many bit planes as the width has (4 + 2 for 6
 * bits), the widest first and with the lowest bits of a code.  A plane of p
 * bits has p vectors of 16 words a step; byte j of word r of vector v has p-bit
 * fields for the elements 4 q + j of row r, q = 8 / p v + f for field f from
 * the low end.  Rows beyond the last and elements beyond K are zero. */
#ifndef QN_OPS_PANEL_H
#define QN_OPS_PANEL_H

#include "core/dtype.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    QN_PANEL_ROWS = 16,
    QN_PANEL_STEP = 32,
    QN_PANEL_PARTS = 3 /* matrices whose panels lie in one array */
};

/* Activations become integers up to TOP (127 * 128); what is below TINY is zero
 * (backend/cpu/kernels/panel/panel.h has the formula). */
#define QN_PANEL_TOP 16256
#define QN_PANEL_TINY 1e-30f

/* The value of a code c: scale * c + bias, or scale * (c - zero). */
typedef struct qn_panel_form {
    int bits;            /* 2, 3, 4, 5, 6 or 8 */
    int group;           /* 16, 32, 64 or 128 */
    bool biased;         /* biases are stored */
    int zero;            /* if not biased: the code whose value is 0 */
    qn_dtype scale_type; /* of biases, too: float32, float16, bfloat16 */
} qn_panel_form;

/* Elements that have a sum of their own: a step, or a shorter group. */
static inline size_t qn_panel_unit(const qn_panel_form *f)
{
    return f->group < QN_PANEL_STEP ? (size_t)f->group : QN_PANEL_STEP;
}
/* Groups of a block: as many as fill cache lines with their scales, so that
 * codes begin on one. */
static inline size_t qn_panel_groups(const qn_panel_form *f)
{
    size_t item = qn_dtype_size(f->scale_type) * (f->biased ? 2 : 1);
    return f->group < QN_PANEL_STEP || item == 2 ? 2 : 1;
}
/* Elements of a block. */
static inline size_t qn_panel_block(const qn_panel_form *f)
{
    return qn_panel_groups(f) * (size_t)f->group;
}
static inline size_t qn_panel_block_bytes(const qn_panel_form *f)
{
    size_t item = qn_dtype_size(f->scale_type) * (f->biased ? 2 : 1);
    return qn_panel_groups(f) * QN_PANEL_ROWS * item +
           qn_panel_block(f) * (size_t)f->bits * QN_PANEL_ROWS / 8;
}
static inline size_t qn_panel_blocks(const qn_panel_form *f, size_t k)
{
    return (k + qn_panel_block(f) - 1) / qn_panel_block(f);
}
static inline size_t qn_panel_bytes(const qn_panel_form *f, size_t k)
{
    return qn_panel_blocks(f, k) * qn_panel_block_bytes(f);
}
/* Panels of a matrix of so many rows. */
static inline size_t qn_panel_count(int rows)
{
    return ((size_t)rows + QN_PANEL_ROWS - 1) / QN_PANEL_ROWS;
}

#endif
