/* panel.h: out[m][n] = sum over k of x[m][k] * w[n][k] by instructions that
 * multiply 8-bit integers.
 *
 * w lies in panels of 16 rows (ops/panel.h); x is made into tiles of 1, 2, 3,
 * 4, 8 or 16 rows of integers, which have one scale for every 32.  Such an
 * integer is (high << shift) + low, two bytes with signs, so a product takes
 * two 8-bit ones: 15 bits where the shift is 7, 12 to 14 where codes have 4 to
 * 2 (qn_panel_shift).  With 8 bits of x alone (llama.cpp's Q8_1) the demo
 * model's mean KL divergence from exact arithmetic is 4e-3, with 12 it is 2e-5
 * and with 15 it was 4e-7, and a token still waits for memory.
 *
 * The meaning, the same for every instruction set, bit for bit.  A step is 32
 * elements of a row.  For a step of x, d = max |x| / top (qn_panel_top)
 * and q = x / d rounded to even (as x * (top / max |x|)), all zero where max
 * |x| is below QN_PANEL_TINY; a step with an infinity or a NaN has d = NaN.  A
 * unit is 32 elements, or 16 with groups of 16.  With c the codes of w, or what
 * the form's table has for them, and `scale` that of the unit's group as a
 * float32 (which holds what ops/panel.h says of it exactly),
 *
 *   acc = fma(float(sum of (c - zero) q), scale * d, acc)   forms with a zero
 *   acc = fma(float(sum of c q), scale * d, acc), and then
 *   acc = fma(bias, d * float(sum of q), acc)               biased forms
 *
 * unit by unit in ascending order, from 0.  The sums are exact integers below
 * 2^28.  So a row of the product never depends on the rows beside it, nor on
 * threads, nor on the processor. */
#ifndef QN_CPU_PANEL_H
#define QN_CPU_PANEL_H

#include "base/cpu.h"
#include "core/dtype.h"
#include "ops/panel.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    QN_PANEL_TILE = 8,
    QN_PANEL_FULL = 16, /* the most rows of a tile of any kernel */
    QN_PANEL_QUADS = QN_PANEL_STEP / 4
};

/* Rows of x, quantized, side by side.  Four elements are two words, the bytes
 * of `high` and those of `low`: those of quad i of row r are
 * q[2 * i * rows + r] and q[(2 * i + 1) * rows + r]. */
typedef struct qn_panel_x {
    int rows;         /* 1, 2, 3, 4, QN_PANEL_TILE or the kernel's tile */
    const int32_t *q; /* [k / 4, 2, rows]; of a full tile the kernel's order */
    const float *d;   /* [k / 32, rows] */
    /* [units, rows]: d * sum of q as float (biased), -zero * sum of q as
     * int32. */
    const void *sums;
} qn_panel_x;

/* Bytes of a tile of `rows` rows of `k` elements; a multiple of 64. */
size_t qn_panel_x_bytes(const qn_panel_form *form, size_t k, size_t rows);
/* The parts of a tile of that many bytes at `memory` (aligned to 64). */
qn_panel_x qn_panel_x_at(void *memory, size_t k, size_t rows);

typedef struct qn_panel_kernel {
    /* Quantizes elements begin .. end (multiples of 32) of `x`, which are k,
     * into row `row` of the tile of `rows` rows at `memory`. */
    void (*quantize)(void *memory, const qn_panel_form *form, const float *x,
                     size_t k, size_t begin, size_t end, size_t row,
                     size_t rows);
    /* out[r * 16 + n] for the tile's rows and the panel's 16. */
    void (*run)(float *out, const qn_panel_form *form, const uint8_t *panel,
                const qn_panel_x *x, size_t k);
    /* Rows of a full tile: QN_PANEL_TILE or QN_PANEL_FULL. */
    size_t tile;
    /* The same for `count` full tiles, one after the other in out.  NULL: no
     * faster than tile by tile. */
    void (*run_tiles)(float *out, const qn_panel_form *form,
                      const uint8_t *panel, const qn_panel_x *x, size_t count,
                      size_t k);

    /* Row `r` of a panel as k floats, with its factors (qn_panel_factors):
     * rounded after the product, and after the bias. */
    void (*row)(float *out, const qn_panel_form *form, const uint8_t *panel,
                size_t k, size_t r, const float *scales, const float *biases);
    /* out = gate * sigmoid(gate) * up, n elements, a multiple of 16; out may
     * be one of them. */
    void (*silu)(float *out, const float *gate, const float *up, size_t n);
    /* The same with QN_GATE_GELU of `gate`. */
    void (*gelu)(float *out, const float *gate, const float *up, size_t n);
} qn_panel_kernel;

/* The rows of the next tile when so many are left. */
static inline size_t qn_panel_tile(const qn_panel_kernel *kernel, size_t left)
{
    if (left >= kernel->tile)
        return kernel->tile;
    return left >= QN_PANEL_TILE ? QN_PANEL_TILE : left >= 4 ? 4 : left;
}

const qn_panel_kernel *qn_panel_pick(void);
/* The kernel of one level, NULL when it is not built in or not supported: for
 * tests and benches. */
const qn_panel_kernel *qn_panel_at(qn_isa isa);

#define QN_PANEL(isa, name) extern const qn_panel_kernel name;
#include "kernels.def"
#undef QN_PANEL

#endif
