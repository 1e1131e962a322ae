/* amx.c: products in 8-bit integers for processors with tiles (AMX).
 *
 * One tile instruction multiplies 16 rows of bytes with 16 columns of codes and
 * sums over a unit: the rows are the high and the low bytes of 8 rows of x, the
 * columns the 16 rows of the panel.  The integers are those of every other
 * kernel, and so are the floats made of them.  Only full tiles go this way:
 * fewer rows wait for memory, whatever multiplies them.
 *
 * A tile is loaded from memory alone, so codes become bytes first, those of 64
 * steps for all tiles of x, and scales floats.  (A load right behind the stores
 * that it reads waits for them, with half the speed.)  Units are in three
 * stages at a time: four whose sums are in tiles, four whose sums are in
 * memory, and the rest of those is floats.  A tile that goes to memory right
 * after its product costs 29 cycles a product, one that goes four products
 * later 23 (16 are the multiplication).
 *
 * What bounds it (cycles a unit of 8 rows, Sapphire Rapids kind): 23 of tile
 * instructions and 20 to 24 that make floats of sums, which overlap little, 38
 * together: the two ports of 512-bit operations take the 4 or 5 for each row
 * and also move what tiles store.  Shaping tiles costs 170, once for all tiles
 * with a panel. */
#include "panel.h"
#include "vnni.h"

#undef FN
#define FN(name) name##_amx
#define FULL_TILES
#define FULL_SHIFT 8
/* One tile has nobody to share its bytes with: 60 to 95 GMAC/s with panels from
 * memory (K 2048), where VNNI has 86 to 109. */
#define LONE qn_panel_vnni
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
    CHUNK = 64, /* steps whose codes are bytes at a time: they stay in L1 */
    TURNS = 4   /* units whose sums are in tiles, and as many in memory */
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

/* ---- codes and scales of a chunk of a panel ---- */

/* The codes of `steps` steps from `at` on, of blocks of s->steps, as bytes,
 * less `zero`. */
VF_INLINE void make_bytes(uint8_t *to, width w, const shape *s,
                          const uint8_t *at, size_t steps, VI zero)
{
    const VI table = w.bits == w.value ? (VI){0} : (VI)vi_table(s->table);
    for (size_t n = 0; n < steps; n++, to += STEP_BYTES) {
        if (n % s->steps == 0)
            at += s->head;
#pragma GCC unroll 8
        for (int i = 0; i < QN_PANEL_QUADS; i++)
            *(VI *)(void *)(to + 64 * i) = (VI)_mm512_sub_epi8(
                (__m512i)values(at, i, w, table), (__m512i)zero);
        at += (size_t)w.bits * 64;
    }
}

#define MAKE(name, bits, value)                                                \
    static __attribute__((noinline)) void make_##name(                         \
        uint8_t *to, const shape *s, const uint8_t *at, size_t steps, VI zero) \
    {                                                                          \
        make_bytes(to, (width){bits, value}, s, at, steps, zero);              \
    }
MAKE(2, 2, 2)
MAKE(3, 3, 3)
MAKE(4, 4, 4)
MAKE(5, 5, 5)
MAKE(6, 6, 6)
MAKE(8, 8, 8)
MAKE(table, 4, 8)
#undef MAKE

typedef void (*make_fn)(uint8_t *, const shape *, const uint8_t *, size_t, VI);

static make_fn make_of(const qn_panel_form *form)
{
    static const make_fn makes[] = {[2] = make_2, [3] = make_3, [4] = make_4,
                                    [5] = make_5, [6] = make_6, [8] = make_8};
    return form->table ? make_table : makes[form->bits];
}

/* The scales (and biases) of so many blocks as floats, set after set. */
static void make_scales(float *to, const shape *s, const uint8_t *block,
                        size_t blocks, size_t block_bytes)
{
    const size_t set = s->biased ? 2 * VF_LANES : VF_LANES;
    for (; blocks--; block += block_bytes) {
        if (s->expand)
            expand(to, s, block, 0);
        for (size_t g = 0; g < s->groups && !s->expand; g++) {
            const uint8_t *at = block + g * s->set;
            vf_store(to + g * set, vf_load_any(at, 0, s->type));
            if (s->biased)
                vf_store(to + g * set + VF_LANES,
                         vf_load_any(at + s->factors, 0, s->type));
        }
        to += s->groups * set;
    }
}

/* ---- products ---- */

/* What all tiles of x take from a chunk. */
typedef struct chunk {
    const uint8_t *bytes;
    const float *scales;
    size_t units, group; /* in the chunk, in a group */
    /* What is fetched meanwhile, so much with each unit; whole lines. */
    const uint8_t *next;
    size_t next_bytes;
} chunk;

/* How the sums of a unit become floats. */
typedef struct folding {
    int unit;
    bool biased;
    bool zeros;  /* codes contain the form's zero: bytes have no signs */
    bool narrow; /* sums of high bytes fit into 16 bits */
} folding;

/* Sums of high bytes that fit into 16 bits take one operation: a product of
 * their lower halves with 256, of their upper ones with 0. */
VF_INLINE void join(VI sum[QN_PANEL_TILE], bool narrow, const tile_sums in)
{
#pragma GCC unroll 8
    for (int r = 0; r < QN_PANEL_TILE; r++)
        sum[r] = narrow ? (VI)_mm512_dpwssd_epi32(
                              (__m512i)in[QN_PANEL_TILE + r], (__m512i)in[r],
                              _mm512_set1_epi32(1 << FULL_SHIFT))
                        : (in[r] << FULL_SHIFT) + in[QN_PANEL_TILE + r];
}

/* Where the sums stand that are added next. */
typedef struct folded {
    place x;
    const float *scales;
    size_t left; /* units of the group */
} folded;

VF_INLINE void fold_unit(VF acc[QN_PANEL_TILE], folding how, const chunk *c,
                         folded *at, size_t n, const tile_sums in)
{
    const shape s = {.biased = how.biased,
                     .type = QN_FLOAT32,
                     .factors = VF_LANES * sizeof(float)};
    VI sum[QN_PANEL_TILE];
    join(sum, how.narrow, in);
    fold(acc, QN_PANEL_TILE, &s, (const uint8_t *)at->scales, at->x, sum,
         how.zeros);
    at->x.sums += QN_PANEL_TILE;
    if (how.unit == QN_PANEL_STEP || n % 2)
        at->x.d += QN_PANEL_TILE;
    if (!--at->left) {
        at->left = c->group;
        at->scales += how.biased ? 2 * VF_LANES : VF_LANES;
    }
}

/* Unit n + i of three kinds: sums that lie in memory are added, those of a
 * later one go from their tile to memory, and that tile takes the products of
 * a still later one.  What is below 0 is a number beyond all units. */
#define TURN(i)                                                                \
    do {                                                                       \
        if (n + i - 2 * TURNS < units)                                         \
            fold_unit(acc, how, c, &at, i, sums[i]);                           \
        if (n + i - TURNS < units)                                             \
            _tile_stored(SUMS##i, sums[i], 64);                                \
        if (n + i < units) {                                                   \
            _tile_loadd(ROWS##i, q, how.unit);                                 \
            _tile_loadd(CODES##i, codes, 64);                                  \
            _tile_zero(SUMS##i);                                               \
            if (how.biased || how.zeros)                                       \
                _tile_dpbsud(SUMS##i, ROWS##i, CODES##i);                      \
            else                                                               \
                _tile_dpbssd(SUMS##i, ROWS##i, CODES##i);                      \
            q += UNIT_ROWS * how.unit / 4;                                     \
            codes += how.unit * QN_PANEL_ROWS;                                 \
            fetch_next(next, next_bytes);                                      \
            next += next_bytes;                                                \
        }                                                                      \
    } while (0)

/* What becomes bytes next, while the first tile is multiplied (as far as L2
 * only: 5 to 10 % less for one tile with panels from memory). */
VF_INLINE void fetch_next(const uint8_t *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(at + i, 0, 3);
}

/* A chunk of a panel with that of a tile of x, added to out. */
VF_INLINE void tile_chunk(folding how, const chunk *c, float *out, place x)
{
    _Alignas(64) tile_sums sums[TURNS];
    VF acc[QN_PANEL_TILE];
    folded at = {x, c->scales, c->group};
    const size_t units = c->units;
    const int32_t *q = x.q;
    const uint8_t *codes = c->bytes, *next = c->next;
    const size_t next_bytes = c->next_bytes;
#pragma GCC unroll 8
    for (int r = 0; r < QN_PANEL_TILE; r++)
        acc[r] = vf_load(out + r * QN_PANEL_ROWS);
    for (size_t n = 0; n < units + 2 * TURNS; n += TURNS) {
        TURN(0);
        TURN(1);
        TURN(2);
        TURN(3);
    }
#pragma GCC unroll 8
    for (int r = 0; r < QN_PANEL_TILE; r++)
        vf_store(out + r * QN_PANEL_ROWS, acc[r]);
}

typedef void (*chunk_fn)(const chunk *, float *, place);
#define FOLDING(name, unit, biased, zeros, narrow)                             \
    static __attribute__((noinline)) void name##_##unit(const chunk *c,        \
                                                        float *out, place x)   \
    {                                                                          \
        tile_chunk((folding){unit, biased, zeros, narrow}, c, out, x);         \
    }
#define FOLDINGS(unit)                                                         \
    FOLDING(minus, unit, false, false, false)                                  \
    FOLDING(minus_narrow, unit, false, false, true)                            \
    FOLDING(biased, unit, true, false, false)                                  \
    FOLDING(biased_narrow, unit, true, false, true)                            \
    FOLDING(zeros, unit, false, true, false)
FOLDINGS(16)
FOLDINGS(32)

/* Whether a unit's sums of high bytes, -63 .. 64, fit into 16 bits. */
static bool is_narrow(const qn_panel_form *form, int zero)
{
    const uint8_t *table = qn_panel_table_of(form);
    const int most = 64 * (int)qn_panel_unit(form);
    int top = (1 << form->bits) - 1;
    for (int i = 0; table && i < 16; i++)
        top = i && top > table[i] ? top : table[i];
    return (top - zero) * most <= INT16_MAX && -zero * most >= INT16_MIN;
}

static chunk_fn chunk_of(const qn_panel_form *form, bool minus)
{
    static const chunk_fn all[][2][2] = {
        {{zeros_16, zeros_16}, {zeros_32, zeros_32}},
        {{minus_16, minus_narrow_16}, {minus_32, minus_narrow_32}},
        {{biased_16, biased_narrow_16}, {biased_32, biased_narrow_32}}};
    int kind = form->biased ? 2 : minus;
    bool narrow = is_narrow(form, minus ? form->zero : 0);
    return all[kind][form->group >= QN_PANEL_STEP][narrow];
}

/* Codes become bytes less the form's zero where they fit. */
static bool has_signs(const qn_panel_form *form)
{
    return !form->biased && form->zero <= 128 &&
           (1 << form->bits) - 1 - form->zero <= 127;
}

static void run_tiles(float *out, const qn_panel_form *form,
                      const uint8_t *panel, const qn_panel_x *x, size_t count,
                      size_t k)
{
    enum { TILE_FLOATS = QN_PANEL_TILE * QN_PANEL_ROWS };
    _Alignas(64) uint8_t bytes[CHUNK * STEP_BYTES];
    _Alignas(64) float scales[2 * CHUNK * 2 * VF_LANES];
    const shape s = shape_of(form, k);
    const size_t unit = qn_panel_unit(form), steps = k / QN_PANEL_STEP;
    const size_t block_bytes = qn_panel_block_bytes(form);
    const bool minus = has_signs(form);
    const VI zero = (VI)_mm512_set1_epi8((char)(minus ? form->zero : 0));
    const make_fn make = make_of(form);
    const chunk_fn multiply = chunk_of(form, minus);
    shape_tiles((int)unit);
    memset(out, 0, count * TILE_FLOATS * sizeof *out);
    for (size_t first = 0; first < steps; first += CHUNK) {
        size_t left = steps - first < CHUNK ? steps - first : CHUNK;
        size_t blocks = (left + s.steps - 1) / s.steps;
        make(bytes, &s, panel, left, zero);
        make_scales(scales, &s, panel, blocks, block_bytes);
        panel += blocks * block_bytes;
        /* The compiler doesn't know that tile loads read. */
        __asm__ volatile("" : : "r"(bytes) : "memory");
        const size_t units = left * QN_PANEL_STEP / unit;
        chunk c = {.bytes = bytes,
                   .scales = scales,
                   .units = units,
                   .group = (size_t)form->group / unit,
                   .next = panel,
                   .next_bytes = (blocks * block_bytes / units + 63) / 64 * 64};
        for (size_t t = 0; t < count; t++) {
            const uint32_t *sums = x[t].sums;
            place at = {x[t].q + first * 2 * QN_PANEL_TILE * QN_PANEL_QUADS,
                        x[t].d + first * QN_PANEL_TILE,
                        sums + first * QN_PANEL_STEP / unit * QN_PANEL_TILE};
            multiply(&c, out + t * TILE_FLOATS, at);
            c.next_bytes = 0;
        }
    }
    _tile_release();
}
