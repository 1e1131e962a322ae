/* amx.c: products in 8-bit integers for processors with tiles (AMX).
 *
 * One tile instruction multiplies 16 rows of bytes with 16 columns of codes and
 * sums over a unit: the rows are the high and the low bytes of 8 rows of x, the
 * columns the 16 rows of the panel.  The integers are those of every other
 * kernel, and so are the floats made of them.  Only full tiles and units of 32
 * go this way: fewer rows wait for memory, whatever multiplies them, and units
 * of 16 would leave three quarters of the multipliers idle (0.9 of VNNI's
 * speed).
 *
 * A tile is loaded from memory alone, so codes become bytes first, some steps
 * ahead: a load right behind the stores that it reads waits for them (half the
 * speed, measured).  The sums of two steps are taken from tiles while the next
 * two are multiplied.
 *
 * What bounds it: 117 to 132 GMAC/s a core of a Xeon of the Sapphire Rapids
 * kind, where VNNI has 97 to 103.  Of about 90 cycles a step, tile instructions
 * alone take 46 (16 of them the multiplication: loads and stores of tiles are
 * the rest), and what makes floats of the sums 30 more. */
#include "panel.h"
#include "vnni.h"

#undef FN
#define FN(name) name##_amx
#define FULL_TILES
/* The prefetchers of these processors need help even with one row: panels from
 * memory arrive at 80 % of plain reading's rate instead of 50 to 65, and full
 * tiles take 72 to 90 GMAC/s (Q4_1, Q4_K), 56 to 73 (Q8_0).  2 to 10 KB make no
 * difference. */
#define AHEAD_ONE 4096
#define AHEAD_MANY 4096

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

static void shape_tiles(void)
{
    enum { BYTES = QN_PANEL_STEP, QUADS = QN_PANEL_QUADS };
    tile_shapes shapes = {.palette = 1,
                          .bytes = {64, 64, BYTES, BYTES, 64, 64},
                          .rows = {16, 16, 16, 16, QUADS, QUADS}};
    /* Some compilers believe that only its first bytes are read (GCC 12). */
    __asm__ volatile("" : : "r"(&shapes) : "memory");
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

typedef VI tile_sums[2 * QN_PANEL_TILE]; /* high bytes, low bytes */

VF_INLINE void fold_step(VF acc[QN_PANEL_TILE], const shape *s,
                         const uint8_t *scales, place x, const tile_sums in)
{
    VI sum[QN_PANEL_TILE];
#pragma GCC unroll 8
    for (int r = 0; r < QN_PANEL_TILE; r++)
        sum[r] = (in[r] << 7) + in[QN_PANEL_TILE + r];
    fold(acc, QN_PANEL_TILE, s, scales, x, sum);
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

/* What a full tile's loop works with. */
typedef struct full {
    width w;
    const shape *s;
    VI table;
    size_t steps;
    uint8_t (*ring)[STEP_BYTES];
    step_place make, load; /* steps whose codes become bytes, are multiplied */
    size_t made, loaded;   /* their numbers */
    const int32_t *q;      /* of step `loaded` */
} full;

VF_INLINE void make_some(full *f, size_t count)
{
    for (size_t i = 0; i < count && f->made < f->steps; i++) {
        fetch(f->make.at, (size_t)f->w.bits * 64, AHEAD_MANY);
        make_bytes(f->ring[f->made++ % RING], f->w, f->table, f->make.at);
        next_step(&f->make, f->s, f->w);
    }
}

/* The next step, on registers that take turns. */
VF_INLINE void multiply_step(full *f, tile_sums out)
{
    if (f->loaded == f->steps)
        return;
    const uint8_t *codes =
        f->w.bits == 8 ? f->load.at : f->ring[f->loaded % RING];
    if (f->w.bits == 8)
        fetch(codes, STEP_BYTES, AHEAD_MANY);
    if (f->loaded++ % 2)
        MULTIPLY(1, out, f->q, codes);
    else
        MULTIPLY(0, out, f->q, codes);
    f->q += STEP_WORDS;
    next_step(&f->load, f->s, f->w);
}

VF_INLINE void full_tile(width w, const shape *s, float *out,
                         const uint8_t *panel, place x)
{
    _Alignas(64) uint8_t ring[RING][STEP_BYTES];
    _Alignas(64) tile_sums sums[2][2]; /* pairs of steps */
    _Alignas(64) float room[2 * 16 * VF_LANES];
    VF acc[QN_PANEL_TILE];
    const bool ready = w.bits == 8; /* codes are bytes where they lie */
    const step_place first = {panel + s->head, 0};
    full f = {.w = w,
              .s = s,
              .table = w.bits == w.value ? (VI){0} : (VI)vi_table(s->table),
              .steps = (s->blocks - 1) * s->steps + s->last,
              .ring = ring,
              .make = first,
              .load = first,
              .q = x.q};
    const uint8_t *scales = panel;
    size_t t = 0, in_group = 0; /* steps into the block, elements of a group */
#pragma GCC unroll 8
    for (int r = 0; r < QN_PANEL_TILE; r++)
        acc[r] = vf_zero();
    if (!ready)
        make_some(&f, AHEAD);
    /* The compiler doesn't know that tile loads read. */
    __asm__ volatile("" : : "r"(ring) : "memory");
    shape_tiles();
    multiply_step(&f, sums[0][0]);
    multiply_step(&f, sums[0][1]);
    for (size_t i = 0; i < f.steps; i++) {
        if (i % 2 == 0) {
            if (!ready)
                make_some(&f, 2);
            __asm__ volatile("" : : "r"(ring) : "memory");
            multiply_step(&f, sums[(i / 2 + 1) % 2][0]);
            multiply_step(&f, sums[(i / 2 + 1) % 2][1]);
        }
        if (!t) {
            scales = panel;
            if (s->expand) {
                expand(room, s, panel, 0);
                scales = (const uint8_t *)room;
            }
            panel += s->head + s->steps * (size_t)w.bits * 64;
        }
        fold_step(acc, s, scales, x, sums[i / 2 % 2][i % 2]);
        x.d += QN_PANEL_TILE;
        x.sums += QN_PANEL_TILE;
        t = t + 1 == s->steps ? 0 : t + 1;
        in_group += QN_PANEL_STEP;
        if (!t || in_group >= (size_t)s->group) {
            scales += s->set;
            in_group = 0;
        }
    }
    _tile_release();
#pragma GCC unroll 8
    for (int r = 0; r < QN_PANEL_TILE; r++)
        vf_store(out + (size_t)r * QN_PANEL_ROWS, acc[r]);
}
