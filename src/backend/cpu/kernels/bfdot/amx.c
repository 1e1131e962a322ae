/* amx.c: products of bfloat16 in tiles (AMX-BF16).
 *
 * A tile has 16 rows of 64 bytes.  One instruction multiplies 16 rows of 32
 * elements of K (the left tile) with 16 pairs of K by 16 columns (the right
 * tile, rows k and k + 1 woven) and adds to 16 x 16 floats.
 *
 * Few rows of x, w along K: rows of w are the left tile, as they lie; x is
 * woven and the result comes out transposed.  Else rows of x are the left
 * tiles, copied together, and w is woven, a panel of columns at a time, which
 * stays in the second-level cache; two by two tiles of results share what they
 * load.  An element is the same chain of pairs either way: QN_BFDOT_TILE_DEPTH
 * of K, then one addition to the blocks before. */
#include "bfdot.h"

#include "backend/cpu/simd_avx512.h"

#undef FN
#define FN(name) name##_amx

enum {
    TILE = 16, /* rows, and columns of results */
    STEP = 32, /* elements of K in a tile */
    ELEMENTS = TILE * STEP,
    SUMS = TILE * TILE,
    DEPTH = QN_BFDOT_TILE_DEPTH,
    STEPS = DEPTH / STEP,
    PANEL = 256, /* columns */
    FEW_ROWS = TILE,
    /* Scratch memory: a panel, two tiles of rows, four tiles of results. */
    PANEL_BYTES = PANEL * DEPTH * 2,
    ROWS_BYTES = 2 * TILE * DEPTH * 2,
    SCRATCH = (PANEL_BYTES + ROWS_BYTES) / 4 + 4 * SUMS
};

/* LDTILECFG's memory (Intel's manual, volume 1, 18.3). */
typedef struct tile_config {
    uint8_t palette, start_row, zero[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

static void begin_tiles(void)
{
    _Alignas(64) tile_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = TILE;
    }
    /* Some compilers believe that only its first bytes are read (GCC 12). */
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
}

VF_INLINE size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Up to 32 elements, zeros behind them. */
VF_INLINE __m512i load_part(const uint16_t *p, size_t count)
{
    return count >= STEP
               ? _mm512_loadu_si512(p)
               : _mm512_maskz_loadu_epi16((__mmask32)((1u << count) - 1), p);
}

/* `rows` rows of `count` elements as a whole tile, zeros elsewhere. */
static void copy_tile(uint16_t *tile, const uint16_t *src, size_t stride,
                      size_t rows, size_t count)
{
    for (size_t i = 0; i < TILE; i++) {
        __m512i v = _mm512_setzero_si512();
        if (i < rows)
            v = load_part(src + i * stride, count);
        _mm512_storeu_si512(tile + i * STEP, v);
    }
}

/* The same rows as a right tile: row p has elements 2p and 2p + 1 of each. */
static void weave_rows(uint16_t *tile, const uint16_t *src, size_t stride,
                       size_t rows, size_t count)
{
    VF r[TILE];
    for (size_t i = 0; i < TILE; i++)
        r[i] = i < rows
                   ? _mm512_castsi512_ps(load_part(src + i * stride, count))
                   : vf_zero();
    vf_transpose(r);
    for (size_t i = 0; i < TILE; i++)
        vf_store((float *)(void *)(tile + i * STEP), r[i]);
}

/* `depth` elements of `rows` rows as tiles, step by step. */
static void copy_rows(uint16_t *dst, const uint16_t *src, size_t stride,
                      size_t rows, size_t depth)
{
    for (size_t k = 0; k < depth; k += STEP, dst += ELEMENTS)
        copy_tile(dst, src + k, stride, rows, smaller(STEP, depth - k));
}

/* Puts a tile of sums, or its transpose, to where it belongs; adds it unless
 * these are the first. */
static void put_tile(float *out, size_t stride, const float *sums, size_t rows,
                     size_t columns, bool first)
{
    __mmask16 mask = (__mmask16)((1u << columns) - 1);
    for (size_t i = 0; i < rows; i++) {
        VF v = vf_load(sums + i * TILE);
        float *to = out + i * stride;
        if (!first)
            v = vf_add(_mm512_maskz_loadu_ps(mask, to), v);
        _mm512_mask_storeu_ps(to, mask, v);
    }
}

static void put_transposed(float *out, size_t stride, float *sums, size_t rows,
                           size_t columns, bool first)
{
    if (rows == 1) { /* a column of the tile: no need to turn all of it */
        for (size_t i = 0; i < columns; i++)
            out[i] = first ? sums[i * TILE] : out[i] + sums[i * TILE];
        return;
    }
    VF r[TILE];
    for (size_t i = 0; i < TILE; i++)
        r[i] = vf_load(sums + i * TILE);
    vf_transpose(r);
    for (size_t i = 0; i < TILE; i++)
        vf_store(sums + i * TILE, r[i]);
    put_tile(out, stride, sums, rows, columns, first);
}

/* ---- few rows of x, w along K ---- */

static void few_rows(const qn_bfdot *job, size_t m0, size_t rows, size_t n0,
                     size_t n1, float *scratch)
{
    float *sums = scratch;
    uint16_t *rest = (uint16_t *)(void *)(scratch + SUMS);
    uint16_t *woven = rest + ELEMENTS;
    for (size_t k0 = 0; k0 < job->k; k0 += DEPTH) {
        size_t depth = smaller(DEPTH, job->k - k0);
        for (size_t k = 0; k < depth; k += STEP)
            weave_rows(woven + k * TILE, job->x + m0 * job->x_stride + k0 + k,
                       job->x_stride, rows, smaller(STEP, depth - k));
        for (size_t n = n0; n < n1; n += TILE) {
            size_t columns = smaller(TILE, n1 - n);
            const uint16_t *w = job->w + n * job->w_stride + k0;
            _tile_zero(0);
            for (size_t k = 0; k < depth; k += STEP) {
                if (columns == TILE && k + STEP <= depth) {
                    /* The tile below is a row of lines that nobody foresees. */
                    for (size_t i = 0; i < TILE; i++)
                        __builtin_prefetch(
                            (const void *)((uintptr_t)(w + k) +
                                           2 * (TILE + i) * job->w_stride));
                    _tile_loadd(1, w + k, (int)(2 * job->w_stride));
                } else {
                    copy_tile(rest, w + k, job->w_stride, columns,
                              smaller(STEP, depth - k));
                    _tile_loadd(1, rest, 64);
                }
                _tile_loadd(2, woven + k * TILE, 64);
                _tile_dpbf16ps(0, 1, 2);
            }
            _tile_stored(0, sums, 64);
            put_transposed(job->out + m0 * job->out_stride + n, job->out_stride,
                           sums, rows, columns, k0 == 0);
        }
    }
}

/* ---- panels of woven columns ---- */

/* Rows of w along K: 16 of them are the columns of a tile. */
static void weave_panel_k(const qn_bfdot *job, size_t n, size_t columns,
                          size_t k0, size_t depth, uint16_t *panel)
{
    size_t steps = (depth + STEP - 1) / STEP;
    for (size_t j = 0; j < columns; j += TILE)
        for (size_t k = 0; k < depth; k += STEP)
            weave_rows(panel + (j / TILE * steps + k / STEP) * ELEMENTS,
                       job->w + (n + j) * job->w_stride + k0 + k, job->w_stride,
                       smaller(TILE, columns - j), smaller(STEP, depth - k));
}

/* Rows of w along N, two at a time; rows beyond the last and columns beyond are
 * zeros. */
static void weave_panel_n(const qn_bfdot *job, size_t n, size_t columns,
                          size_t k0, size_t depth, uint16_t *panel)
{
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    size_t steps = (depth + STEP - 1) / STEP;
    for (size_t k = 0; k < steps * STEP; k += 2) {
        const uint16_t *row = job->w + (k0 + k) * job->w_stride + n;
        uint16_t *to = panel + k / STEP * ELEMENTS + k % STEP / 2 * STEP;
        for (size_t j = 0; j < columns; j += 2 * TILE) {
            __m512i a = _mm512_setzero_si512(), b = a;
            if (k < depth)
                a = load_part(row + j, columns - j);
            if (k + 1 < depth)
                b = load_part(row + job->w_stride + j, columns - j);
            a = _mm512_permutexvar_epi64(order, a);
            b = _mm512_permutexvar_epi64(order, b);
            uint16_t *tile = to + j / TILE * steps * ELEMENTS;
            _mm512_storeu_si512(tile, _mm512_unpacklo_epi16(a, b));
            if (j + TILE < columns)
                _mm512_storeu_si512(tile + steps * ELEMENTS,
                                    _mm512_unpackhi_epi16(a, b));
        }
    }
}

/* One or two tiles of rows times one or two of columns; `two_rows` and
 * `two_columns` are constants.  Tiles of one kind are `stride` elements apart.
 */
VF_INLINE void multiply(bool two_rows, bool two_columns, const uint16_t *x,
                        const uint16_t *w, size_t steps, float *sums)
{
    size_t stride = steps * ELEMENTS;
    _tile_zero(0);
    if (two_columns)
        _tile_zero(1);
    if (two_rows)
        _tile_zero(2);
    if (two_rows && two_columns)
        _tile_zero(3);
    for (size_t s = 0; s < steps; s++, x += ELEMENTS, w += ELEMENTS) {
        _tile_loadd(4, x, 64);
        _tile_loadd(6, w, 64);
        _tile_dpbf16ps(0, 4, 6);
        if (two_columns) {
            _tile_loadd(7, w + stride, 64);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (two_rows) {
            _tile_loadd(5, x + stride, 64);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (two_rows && two_columns)
            _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, 64);
    if (two_columns)
        _tile_stored(1, sums + SUMS, 64);
    if (two_rows)
        _tile_stored(2, sums + 2 * SUMS, 64);
    if (two_rows && two_columns)
        _tile_stored(3, sums + 3 * SUMS, 64);
}

/* Rows m .. m + rows, at most two tiles of them, times a panel. */
static void run_rows(const qn_bfdot *job, size_t m, size_t rows, size_t n,
                     size_t columns, bool first, const uint16_t *x,
                     const uint16_t *panel, size_t steps, float *sums)
{
    for (size_t j = 0; j < columns; j += 2 * TILE) {
        const uint16_t *w = panel + j / TILE * steps * ELEMENTS;
        bool two_rows = rows > TILE, two_columns = columns - j > TILE;
        if (two_rows && two_columns)
            multiply(true, true, x, w, steps, sums);
        else if (two_rows)
            multiply(true, false, x, w, steps, sums);
        else if (two_columns)
            multiply(false, true, x, w, steps, sums);
        else
            multiply(false, false, x, w, steps, sums);
        for (size_t t = 0; t < 4; t++) {
            size_t i = t / 2 * TILE, column = j + t % 2 * TILE;
            if (i < rows && column < columns)
                put_tile(job->out + (m + i) * job->out_stride + n + column,
                         job->out_stride, sums + t * SUMS,
                         smaller(TILE, rows - i),
                         smaller(TILE, columns - column), first);
        }
    }
}

static void many_rows(const qn_bfdot *job, size_t m0, size_t m1, size_t n0,
                      size_t n1, float *scratch)
{
    uint16_t *panel = (uint16_t *)(void *)scratch;
    uint16_t *x = panel + PANEL * DEPTH;
    float *sums = scratch + (PANEL_BYTES + ROWS_BYTES) / 4;
    for (size_t k0 = 0; k0 < job->k; k0 += DEPTH)
        for (size_t n = n0; n < n1; n += PANEL) {
            size_t depth = smaller(DEPTH, job->k - k0);
            size_t columns = smaller(PANEL, n1 - n);
            size_t steps = (depth + STEP - 1) / STEP;
            if (job->along_k)
                weave_panel_k(job, n, columns, k0, depth, panel);
            else
                weave_panel_n(job, n, columns, k0, depth, panel);
            for (size_t m = m0; m < m1; m += 2 * TILE) {
                size_t rows = smaller(2 * TILE, m1 - m);
                const uint16_t *from = job->x + m * job->x_stride + k0;
                for (size_t i = 0; i < rows; i += TILE)
                    copy_rows(x + i / TILE * steps * ELEMENTS,
                              from + i * job->x_stride, job->x_stride,
                              smaller(TILE, rows - i), depth);
                run_rows(job, m, rows, n, columns, k0 == 0, x, panel, steps,
                         sums);
            }
        }
}

static void run(const qn_bfdot *job, size_t m0, size_t m1, size_t n0, size_t n1,
                float *scratch)
{
    begin_tiles();
    if (job->along_k && m1 - m0 <= FEW_ROWS)
        few_rows(job, m0, m1 - m0, n0, n1, scratch);
    else
        many_rows(job, m0, m1, n0, n1, scratch);
    _tile_release();
}

const qn_bfdot_kernel FN(qn_bfdot) = {.run = run, .scratch = SCRATCH};
