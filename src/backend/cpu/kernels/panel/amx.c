/* amx.c: products in 8-bit integers for processors with tiles (AMX).
 *
 * One tile instruction multiplies 16 rows of bytes with 16 columns of codes and
 * sums over a unit: the rows are the high and the low bytes of 8 rows of x, the
 * columns the 16 rows of the panel.  The integers are those of every other
 * kernel, and so are the floats made of them.  Only full tiles go this way;
 * fewer rows wait for memory, whatever multiplies them.
 *
 * A tile is loaded from memory alone, so codes become bytes first, some steps
 * ahead: a load right behind the stores that it reads waits for them (half the
 * speed, measured).  The sums of a step are taken from the tile while the next
 * one is multiplied.  What bounds it: of about 70 cycles a step (a Xeon of the
 * Sapphire Rapids kind) the tile instructions alone take 46, of which the
 * multiplication is 16; loads and stores of tiles are the rest. */
#include "panel.h"

#include "backend/cpu/simd_avx512.h"
#include "vnni.h"

#undef FN
#define FN(name) name##_amx
#define FULL_TILES

#include "panel.inc"

enum {
    STEP_WORDS = QN_PANEL_QUADS * 2 * QN_PANEL_TILE, /* of a tile of x */
    STEP_BYTES = QN_PANEL_STEP * QN_PANEL_ROWS,      /* of codes as bytes */
    RING = 16,       /* steps whose codes are kept as bytes */
    AHEAD = RING / 2 /* how long before they are read */
};

/* The operand of LDTILECFG (Intel's manual, volume 1, "Tile configuration"). */
typedef struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16]; /* of a row of each register */
    uint8_t rows[16];
} tile_shapes;

/* Tile registers, two of each kind; numbers, for they become instructions'
 * text. */
#define SUMS0 0
#define SUMS1 1
#define ROWS0 2
#define ROWS1 3
#define CODES0 4
#define CODES1 5

static void shape_tiles(int unit)
{
    uint16_t bytes = (uint16_t)unit;
    uint8_t quads = (uint8_t)(unit / 4);
    tile_shapes shapes = {.palette = 1,
                          .bytes = {64, 64, bytes, bytes, 64, 64},
                          .rows = {16, 16, 16, 16, quads, quads}};
    _tile_loadconfig(&shapes);
}

#define MULTIPLY(n, out, q, codes)                                             \
    do {                                                                       \
        _tile_loadd(CODES##n, codes, 64);                                      \
        _tile_loadd(ROWS##n, q, QN_PANEL_STEP);                                \
        _tile_zero(SUMS##n);                                                   \
        _tile_dpbsud(SUMS##n, ROWS##n, CODES##n);                              \
        _tile_stored(SUMS##n, out, 64);                                        \
    } while (0)

typedef VI tile_sums[2][2 * QN_PANEL_TILE]; /* of a step's units */

/* The units of a step, on registers that take turns. */
VF_INLINE void multiply_step(tile_sums out, int unit, size_t step,
                             const int32_t *q, const uint8_t *codes)
{
    if (unit < QN_PANEL_STEP) {
        MULTIPLY(0, out[0], q, codes);
        MULTIPLY(1, out[1], q + unit / 4, codes + unit / 4 * 64);
    } else if (step % 2) {
        MULTIPLY(1, out[0], q, codes);
    } else {
        MULTIPLY(0, out[0], q, codes);
    }
}

VF_INLINE void fold_step(VF acc[QN_PANEL_TILE], int unit, const shape *s,
                         const uint8_t *scales, place x, tile_sums in)
{
    for (int u = 0; u < QN_PANEL_STEP / unit; u++) {
        VI sum[QN_PANEL_TILE];
#pragma GCC unroll 8
        for (int r = 0; r < QN_PANEL_TILE; r++)
            sum[r] = (in[u][r] << 7) + in[u][QN_PANEL_TILE + r];
        fold(acc, QN_PANEL_TILE, s, scales, x, sum);
        x.sums += QN_PANEL_TILE;
        scales += s->set;
    }
}

/* A step of a panel. */
typedef struct step_place {
    const uint8_t *at; /* its codes */
    size_t t;          /* its number in its block */
} step_place;

VF_INLINE void next_step(step_place *p, const shape *s, width w)
{
    p->at += (size_t)w.bits * 64;
    if (++p->t == s->steps) {
        p->t = 0;
        p->at += s->head;
    }
}

VF_INLINE void make_bytes(uint8_t *to, width w, VI table, const uint8_t *at)
{
    VI *out = (VI *)(void *)to;
#pragma GCC unroll 8
    for (int i = 0; i < QN_PANEL_QUADS; i++)
        out[i] = values(at, i, w, table);
}

/* The scales of the group that step `t` of a block is in, or begins. */
VF_INLINE const uint8_t *scales_of(const shape *s, const uint8_t *scales,
                                   int unit, size_t t)
{
    size_t group =
        unit < QN_PANEL_STEP ? 2 * t : t * QN_PANEL_STEP / (size_t)s->group;
    return scales + group * s->set;
}

VF_INLINE void full_tile(width w, int unit, const shape *s, float *out,
                         const uint8_t *panel, place x)
{
    const VI table = w.bits == w.value ? (VI){0} : (VI)vi_table(s->table);
    const size_t steps = (s->blocks - 1) * s->steps + s->last;
    const size_t units = (size_t)(QN_PANEL_STEP / unit);
    const bool ready = w.bits == 8; /* codes are bytes where they lie */
    _Alignas(64) uint8_t ring[RING][STEP_BYTES];
    _Alignas(64) tile_sums sums[2];
    _Alignas(64) float room[2 * 16 * VF_LANES];
    VF acc[QN_PANEL_TILE];
    step_place make = {panel + s->head, 0}, take = make;
    const uint8_t *block = panel, *scales = panel;
#pragma GCC unroll 8
    for (int r = 0; r < QN_PANEL_TILE; r++)
        acc[r] = vf_zero();
    for (size_t i = 0; i < AHEAD && i < steps && !ready; i++) {
        make_bytes(ring[i], w, table, make.at);
        next_step(&make, s, w);
    }
    /* The compiler doesn't know that tile loads read. */
    __asm__ volatile("" : : "r"(ring) : "memory");
    shape_tiles(unit);
    multiply_step(sums[0], unit, 0, x.q, ready ? take.at : ring[0]);
    for (size_t i = 0; i < steps; i++) {
        if (!ready && i + AHEAD < steps) {
            make_bytes(ring[(i + AHEAD) % RING], w, table, make.at);
            next_step(&make, s, w);
        }
        if (!take.t) {
            scales = block;
            if (s->expand) {
                expand(room, s, block, 0);
                scales = (const uint8_t *)room;
            }
            block += s->head + s->steps * (size_t)w.bits * 64;
        }
        const uint8_t *group = scales_of(s, scales, unit, take.t);
        next_step(&take, s, w);
        __asm__ volatile("" : : "r"(ring) : "memory");
        if (i + 1 < steps)
            multiply_step(sums[(i + 1) % 2], unit, i + 1, x.q + STEP_WORDS,
                          ready ? take.at : ring[(i + 1) % RING]);
        fold_step(acc, unit, s, group, x, sums[i % 2]);
        x.q += STEP_WORDS;
        x.d += QN_PANEL_TILE;
        x.sums += units * QN_PANEL_TILE;
    }
    _tile_release();
#pragma GCC unroll 8
    for (int r = 0; r < QN_PANEL_TILE; r++)
        vf_store(out + (size_t)r * QN_PANEL_ROWS, acc[r]);
}
