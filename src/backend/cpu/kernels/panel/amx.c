/* amx.c: products in 8-bit integers for processors with tiles (AMX).
 *
 * One tile instruction multiplies 16 rows of bytes with 16 columns of codes and
 * sums over a unit: the rows are the high and the low bytes of 8 rows of x, the
 * columns the 16 rows of the panel.  The integers are those of every other
 * kernel, and so are the floats made of them.  Only full tiles go this way:
 * fewer rows wait for memory, whatever multiplies them.
 *
 * A tile is loaded from memory alone, so codes become bytes first, some steps
 * ahead: a load right behind the stores that it reads waits for them (half the
 * speed, measured).  Units are in three stages at a time: four whose sums are
 * in tiles, four whose sums are in memory, and the rest of those is floats.  A
 * tile that goes to memory right after its product costs 29 cycles a product,
 * one that goes four products later 23 (16 are the multiplication).
 *
 * What bounds it: 160 to 185 GMAC/s a core of a Xeon of the Sapphire Rapids
 * kind, where VNNI has 97 to 103; units of 16 have 95.  Of about 66 cycles a
 * step, what makes floats of the sums takes 20, and nothing hides them. */
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
    UNIT_ROWS = 2 * QN_PANEL_TILE, /* of a tile of x: high bytes, low bytes */
    STEP_BYTES = QN_PANEL_STEP * QN_PANEL_ROWS, /* of codes as bytes */
    RING = 16,        /* steps whose codes are kept as bytes */
    AHEAD = RING / 2, /* how long before they are read */
    TURNS = 4         /* units whose sums are in tiles, and as many in memory */
};

/* The operand of LDTILECFG (Intel's manual, volume 1, "Tile configuration"). */
typedef struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16]; /* of a row of each register */
    uint8_t rows[16];
} tile_shapes;

/* Tile registers; numbers, for they become instructions' text. */
#define SUMS0 0
#define SUMS1 1
#define SUMS2 2
#define SUMS3 3
#define ROWS0 4
#define ROWS1 5
#define ROWS2 4
#define ROWS3 5
#define CODES0 6
#define CODES1 7
#define CODES2 6
#define CODES3 7

static void shape_tiles(int unit)
{
    const uint16_t bytes = (uint16_t)unit;
    const uint8_t quads = (uint8_t)(unit / 4);
    tile_shapes shapes = {.palette = 1,
                          .bytes = {64, 64, 64, 64, bytes, bytes, 64, 64},
                          .rows = {16, 16, 16, 16, 16, 16, quads, quads}};
    /* Some compilers believe that only its first bytes are read (GCC 12). */
    __asm__ volatile("" : : "r"(&shapes) : "memory");
    _tile_loadconfig(&shapes);
}

typedef VI tile_sums[UNIT_ROWS];

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

/* What a full tile's loop works with. */
typedef struct full {
    width w;
    int unit;
    const shape *s;
    VI table;
    size_t steps, units;
    uint8_t (*ring)[STEP_BYTES];
    step_place make; /* the step whose codes become bytes next */
    size_t made;
    step_place load; /* the step that is multiplied, if its codes are bytes */
    const int32_t *q;
    /* The unit whose sums are added next. */
    const uint8_t *block, *scales;
    float *room;
    place x;
    size_t t, u, in_group; /* steps into the block, units into the step */
} full;

VF_INLINE void make_bytes(full *f)
{
    if (f->made == f->steps)
        return;
    VI *out = (VI *)(void *)f->ring[f->made++ % RING];
    fetch(f->make.at, (size_t)f->w.bits * 64, AHEAD_MANY);
#pragma GCC unroll 8
    for (int i = 0; i < QN_PANEL_QUADS; i++)
        out[i] = values(f->make.at, i, f->w, f->table);
    next_step(&f->make, f->s, f->w);
}

/* The bytes of the codes of unit `n`, which is the next one. */
VF_INLINE const uint8_t *unit_bytes(full *f, size_t n)
{
    const size_t units = (size_t)(QN_PANEL_STEP / f->unit);
    size_t in_step = n % units * (size_t)f->unit * QN_PANEL_ROWS;
    if (f->w.bits != 8) {
        if (!in_step)
            make_bytes(f);
        return f->ring[n / units % RING] + in_step;
    }
    const uint8_t *at = f->load.at + in_step;
    fetch(at, (size_t)f->unit * QN_PANEL_ROWS, AHEAD_MANY);
    if (n % units + 1 == units)
        next_step(&f->load, f->s, f->w);
    return at;
}

/* The sums of the next unit into acc. */
VF_INLINE void fold_unit(VF acc[QN_PANEL_TILE], full *f, const tile_sums in)
{
    const shape *s = f->s;
    const size_t units = (size_t)(QN_PANEL_STEP / f->unit);
    VI sum[QN_PANEL_TILE];
    if (!f->t && !f->u) {
        f->scales = f->block;
        if (s->expand) {
            expand(f->room, s, f->block, 0);
            f->scales = (const uint8_t *)f->room;
        }
        f->block += s->head + s->steps * (size_t)f->w.bits * 64;
    }
#pragma GCC unroll 8
    for (int r = 0; r < QN_PANEL_TILE; r++)
        sum[r] = (in[r] << 7) + in[QN_PANEL_TILE + r];
    fold(acc, QN_PANEL_TILE, s, f->scales, f->x, sum);
    f->x.sums += QN_PANEL_TILE;
    f->in_group += (size_t)f->unit;
    if (++f->u == units) {
        f->u = 0;
        f->x.d += QN_PANEL_TILE;
        f->t = f->t + 1 == s->steps ? 0 : f->t + 1;
    }
    if (f->in_group >= (size_t)s->group) {
        f->scales += s->set;
        f->in_group = 0;
    }
}

/* Unit n + i of three kinds: sums that lie in memory are added, those of a
 * later one go from their tile to memory, and that tile takes the products of
 * a still later one.  What is below 0 is a number beyond all units. */
#define TURN(i)                                                                \
    do {                                                                       \
        if (n + i - 2 * TURNS < f.units)                                       \
            fold_unit(acc, &f, sums[i]);                                       \
        if (n + i - TURNS < f.units)                                           \
            _tile_stored(SUMS##i, sums[i], 64);                                \
        if (n + i < f.units) {                                                 \
            const uint8_t *codes = unit_bytes(&f, n + i);                      \
            _tile_loadd(ROWS##i, f.q, unit);                                   \
            _tile_loadd(CODES##i, codes, 64);                                  \
            _tile_zero(SUMS##i);                                               \
            _tile_dpbsud(SUMS##i, ROWS##i, CODES##i);                          \
            f.q += UNIT_ROWS * unit / 4;                                       \
        }                                                                      \
    } while (0)

VF_INLINE void full_tile(width w, int unit, const shape *s, float *out,
                         const uint8_t *panel, place x)
{
    _Alignas(64) uint8_t ring[RING][STEP_BYTES];
    _Alignas(64) tile_sums sums[TURNS];
    _Alignas(64) float room[2 * 16 * VF_LANES];
    VF acc[QN_PANEL_TILE];
    const step_place first = {panel + s->head, 0};
    const size_t steps = (s->blocks - 1) * s->steps + s->last;
    full f = {.w = w,
              .unit = unit,
              .s = s,
              .table = w.bits == w.value ? (VI){0} : (VI)vi_table(s->table),
              .steps = steps,
              .units = steps * (size_t)(QN_PANEL_STEP / unit),
              .ring = ring,
              .make = first,
              .load = first,
              .q = x.q,
              .block = panel,
              .room = room,
              .x = x};
#pragma GCC unroll 8
    for (int r = 0; r < QN_PANEL_TILE; r++)
        acc[r] = vf_zero();
    for (int i = 0; w.bits != 8 && i < AHEAD; i++)
        make_bytes(&f);
    shape_tiles(unit);
    for (size_t n = 0; n < f.units + 2 * TURNS; n += TURNS) {
        /* The compiler doesn't know that tile loads read. */
        __asm__ volatile("" : : "r"(ring) : "memory");
        TURN(0);
        TURN(1);
        TURN(2);
        TURN(3);
    }
    _tile_release();
#pragma GCC unroll 8
    for (int r = 0; r < QN_PANEL_TILE; r++)
        vf_store(out + (size_t)r * QN_PANEL_ROWS, acc[r]);
}
