/* amx.c: products in 8-bit integers for processors with tiles (AMX).
 *
 * One tile instruction multiplies 16 rows of bytes with 16 columns of codes and
 * sums over a unit; the columns are the 16 rows of the panel.  Codes of up to 4
 * bits are there twice, shifted and as they are, and a row is the high and then
 * the low bytes of a row of x: one sum for both.  With wider codes the rows are
 * the high and the low bytes of 8 rows of x, and their sums are joined as
 * floats are made of them.  The integers are those of every other kernel, and
 * so are the floats.  Only full tiles go this way: fewer rows wait for memory,
 * whatever multiplies them.
 *
 * A tile is loaded from memory alone, so codes become bytes first, those of 32
 * steps for all tiles of x, and scales floats.  (A load right behind the stores
 * that it reads waits for them, with half the speed.)
 *
 * What bounds it (cycles a product of a tile, Sapphire Rapids kind, measured
 * with loops of nothing else): 25 of tile instructions (two loads 8 each, the
 * multiplication 16, the store 16, whatever the number of rows), and 31 that
 * make floats of 16 rows of sums (three operations each on two ports).  Both in
 * one loop take 69, more than one after the other: a single tile instruction
 * beside them makes the floats half as slow again.  Random numbers instead of
 * zeros cost a sixth more.  That is 380 GMAC/s for joined sums; 300 are reached
 * with the codes that become bytes, 260 with biases, which are a fourth
 * operation, and 240 with sums that are apart (8 bits, groups of 32). */
#include "panel.h"
#include "vnni.h"

#undef FN
#define FN(name) name##_amx
#define FULL_TILES
#define FULL_SHIFT 8
/* The prefetchers of these processors need help even with one row: panels from
 * memory arrive at 80 % of plain reading's rate instead of 50 to 65, and full
 * tiles take 72 to 90 GMAC/s (Q4_1, Q4_K), 56 to 73 (Q8_0).  2 to 10 KB make no
 * difference. */
#define AHEAD_ONE 4096
#define AHEAD_MANY 4096

#include "panel.inc"

enum {
    HALF = QN_PANEL_FULL / 2,
    STEP_BYTES = QN_PANEL_STEP * QN_PANEL_ROWS, /* of codes as bytes */
    CHUNK = 32, /* steps whose codes are bytes at a time: they stay in L1 */
    TURNS = 4,  /* products whose sums are in tiles, and as many in memory */
    PHASE = 8   /* products before their sums are added */
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

static void shape_tiles(int unit, bool joined)
{
    const uint16_t bytes = (uint16_t)(joined ? 2 * unit : unit);
    const uint8_t quads = (uint8_t)(bytes / 4);
    tile_shapes shapes = {.palette = 1,
                          .bytes = {64, 64, 64, 64, bytes, bytes, 64, 64},
                          .rows = {16, 16, 16, 16, 16, 16, quads, quads}};
    /* Some compilers believe that only its first bytes are read (GCC 12). */
    __asm__ volatile("" : : "r"(&shapes) : "memory");
    _tile_loadconfig(&shapes);
}

typedef VI tile_sums[QN_PANEL_FULL];

/* ---- codes and scales of a chunk of a panel ---- */

VF_INLINE VI less(VI codes, VI zero)
{
    return (VI)_mm512_sub_epi8((__m512i)codes, (__m512i)zero);
}

/* The codes of `steps` steps from `at` on, of blocks of s->steps, as bytes,
 * less `zero`; joined: those of a unit shifted, then as they are. */
VF_INLINE void make_bytes(uint8_t *to, width w, const shape *s,
                          const uint8_t *at, size_t steps, VI zero)
{
    const VI table = w.bits == w.value ? (VI){0} : (VI)vi_table(s->table);
    const bool joined = shift_of(w) < 7;
    const int quads =
        s->group < QN_PANEL_STEP ? QN_PANEL_QUADS / 2 : QN_PANEL_QUADS;
    for (size_t n = 0, block = 0; n < steps; n++, block--) {
        if (!block) {
            at += s->head;
            block = s->steps;
        }
#pragma GCC unroll 8
        for (int i = 0; i < QN_PANEL_QUADS; i++) {
            VI c = less(values(at, i, w, table), zero);
            if (joined && i % quads == 0 && i)
                to += 64 * quads;
            if (joined) {
                /* A byte keeps what is shifted: nothing comes from the one
                 * below, whose upper bits are masked away. */
                VI high = (VI)((VU)c << shift_of(w) &
                               (0xffu << shift_of(w) & 0xffu) * 0x01010101u);
                *(VI *)(void *)(to + 64 * i) = high;
                *(VI *)(void *)(to + 64 * (i + quads)) = c;
            } else {
                *(VI *)(void *)(to + 64 * i) = c;
            }
        }
        to += joined ? STEP_BYTES + 64 * quads : STEP_BYTES;
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
    /* What is fetched meanwhile, so much with each product; whole lines. */
    const uint8_t *next;
    size_t next_bytes;
} chunk;

/* How the sums of a unit become floats. */
typedef struct folding {
    int unit;
    bool biased;
    bool zeros;  /* codes contain the form's zero: bytes have no signs */
    bool narrow; /* sums of high bytes fit into 16 bits */
    bool joined; /* sums of both bytes are one */
} folding;

/* Sums of high bytes that fit into 16 bits take one operation: a product of
 * their lower halves with 256, of their upper ones with 0. */
VF_INLINE void join(VI sum[HALF], folding how, const VI *in)
{
#pragma GCC unroll 8
    for (int r = 0; r < HALF; r++)
        sum[r] =
            how.joined ? in[r]
            : how.narrow
                ? (VI)_mm512_dpwssd_epi32((__m512i)in[HALF + r], (__m512i)in[r],
                                          _mm512_set1_epi32(1 << FULL_SHIFT))
                : (in[r] << FULL_SHIFT) + in[HALF + r];
}

/* Where the sums stand that are added next. */
typedef struct folded {
    place x;
    const float *scales;
    size_t left; /* units of the group */
} folded;

/* The sums of 8 rows of a unit, the first or the last ones of a tile. */
VF_INLINE void fold_half(VF acc[QN_PANEL_FULL], folding how, const folded *at,
                         int half, const VI *in)
{
    const shape s = {.biased = how.biased,
                     .type = QN_FLOAT32,
                     .factors = VF_LANES * sizeof(float)};
    const place x = {NULL, at->x.d + half * HALF, at->x.sums + half * HALF};
    VI sum[HALF];
    join(sum, how, in);
    fold(acc + half * HALF, HALF, &s, (const uint8_t *)at->scales, x, sum,
         how.zeros);
}

/* What product number `n` of four left in memory.  Sums of one kind are those
 * of 16 rows of a unit; else it takes a second product for the last 8. */
VF_INLINE void fold_product(VF acc[QN_PANEL_FULL], folding how, const chunk *c,
                            folded *at, int n, const tile_sums in)
{
    const int unit = how.joined ? n : n / 2;
    if (how.joined) {
        fold_half(acc, how, at, 0, in);
        fold_half(acc, how, at, 1, in + HALF);
    } else {
        fold_half(acc, how, at, n % 2, in);
        if (n % 2 == 0)
            return;
    }
    at->x.sums += QN_PANEL_FULL;
    if (how.unit == QN_PANEL_STEP || unit % 2)
        at->x.d += QN_PANEL_FULL;
    if (!--at->left) {
        at->left = c->group;
        at->scales += how.biased ? 2 * VF_LANES : VF_LANES;
    }
}

/* What becomes bytes next, while the first tile is multiplied (as far as L2
 * only: 5 to 10 % less for one tile with panels from memory). */
VF_INLINE void fetch_next(const uint8_t *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(at + i, 0, 3);
}

/* Where the products of a chunk with a tile of x stand. */
typedef struct walk {
    const int32_t *q;
    const uint8_t *codes, *next;
    size_t next_bytes;
} walk;

/* A product, in tiles number t.  Two follow one another with the same codes
 * where sums are apart. */
#define MULTIPLY(i, t)                                                         \
    do {                                                                       \
        _tile_loadd(ROWS##t, w->q, row);                                       \
        _tile_loadd(CODES##t, w->codes, 64);                                   \
        _tile_zero(SUMS##t);                                                   \
        if (how.biased || how.zeros)                                           \
            _tile_dpbsud(SUMS##t, ROWS##t, CODES##t);                          \
        else                                                                   \
            _tile_dpbssd(SUMS##t, ROWS##t, CODES##t);                          \
        w->q += QN_PANEL_FULL * row / 4;                                       \
        if (how.joined || i % 2)                                               \
            w->codes += row * QN_PANEL_ROWS;                                   \
        fetch_next(w->next, w->next_bytes);                                    \
        w->next += w->next_bytes;                                              \
    } while (0)

/* Product n + i of three kinds: sums that lie in memory are added, those of a
 * later one go from their tile to memory, and that tile takes the products of
 * a still later one.  What is below 0 is a number beyond all products. */
#define TURN(i)                                                                \
    do {                                                                       \
        if (n + i - 2 * TURNS < products)                                      \
            fold_product(acc, how, c, at, i, sums[i]);                         \
        if (n + i - TURNS < products)                                          \
            _tile_stored(SUMS##i, sums[i], 64);                                \
        if (n + i < products)                                                  \
            MULTIPLY(i, i);                                                    \
    } while (0)

/* Sums that are apart: the three kinds side by side. */
VF_INLINE void in_turns(VF acc[QN_PANEL_FULL], folding how, const chunk *c,
                        folded *at, walk *w)
{
    _Alignas(64) tile_sums sums[TURNS];
    const int row = how.unit; /* bytes */
    const size_t products = 2 * c->units;
    for (size_t n = 0; n < products + 2 * TURNS; n += TURNS) {
        TURN(0);
        TURN(1);
        TURN(2);
        TURN(3);
    }
}

#define PHASED(i, t)                                                           \
    do {                                                                       \
        if (i < count)                                                         \
            MULTIPLY(i, t);                                                    \
    } while (0)
#define STORE(i, t)                                                            \
    do {                                                                       \
        if (i < count)                                                         \
            _tile_stored(SUMS##t, sums[i], 64);                                \
    } while (0)

/* Joined sums: products, then floats, 8 units at a time. */
VF_INLINE void in_phases(VF acc[QN_PANEL_FULL], folding how, const chunk *c,
                         folded *at, walk *w)
{
    _Alignas(64) tile_sums sums[PHASE];
    const int row = 2 * how.unit; /* bytes */
    for (size_t n = 0; n < c->units; n += PHASE) {
        const size_t count = c->units - n < PHASE ? c->units - n : PHASE;
        PHASED(0, 0);
        PHASED(1, 1);
        PHASED(2, 2);
        PHASED(3, 3);
        STORE(0, 0);
        PHASED(4, 0);
        STORE(1, 1);
        PHASED(5, 1);
        STORE(2, 2);
        PHASED(6, 2);
        STORE(3, 3);
        PHASED(7, 3);
        STORE(4, 0);
        STORE(5, 1);
        STORE(6, 2);
        STORE(7, 3);
#pragma GCC unroll 8
        for (int i = 0; i < PHASE; i++)
            if ((size_t)i < count)
                fold_product(acc, how, c, at, i, sums[i]);
    }
}

/* A chunk of a panel with that of a tile of x, added to out. */
VF_INLINE void tile_chunk(folding how, const chunk *c, float *out, place x)
{
    VF acc[QN_PANEL_FULL];
    folded at = {x, c->scales, c->group};
    walk w = {x.q, c->bytes, c->next, c->next_bytes};
#pragma GCC unroll 16
    for (int r = 0; r < QN_PANEL_FULL; r++)
        acc[r] = vf_load(out + r * QN_PANEL_ROWS);
    if (how.joined)
        in_phases(acc, how, c, &at, &w);
    else
        in_turns(acc, how, c, &at, &w);
#pragma GCC unroll 16
    for (int r = 0; r < QN_PANEL_FULL; r++)
        vf_store(out + r * QN_PANEL_ROWS, acc[r]);
}

typedef void (*chunk_fn)(const chunk *, float *, place);
#define FOLDING(name, unit, biased, zeros, narrow, joined)                     \
    static __attribute__((noinline)) void name##_##unit(const chunk *c,        \
                                                        float *out, place x)   \
    {                                                                          \
        tile_chunk((folding){unit, biased, zeros, narrow, joined}, c, out, x); \
    }
#define FOLDINGS(unit)                                                         \
    FOLDING(minus, unit, false, false, false, false)                           \
    FOLDING(minus_narrow, unit, false, false, true, false)                     \
    FOLDING(minus_joined, unit, false, false, false, true)                     \
    FOLDING(biased, unit, true, false, false, false)                           \
    FOLDING(biased_narrow, unit, true, false, true, false)                     \
    FOLDING(biased_joined, unit, true, false, false, true)                     \
    FOLDING(zeros, unit, false, true, false, false)                            \
    FOLDING(zeros_joined, unit, false, true, false, true)
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

/* How sums are made: apart, apart and narrow, joined. */
static chunk_fn chunk_of(const qn_panel_form *form, bool minus)
{
    static const chunk_fn all[][2][3] = {
        {{zeros_16, zeros_16, zeros_joined_16},
         {zeros_32, zeros_32, zeros_joined_32}},
        {{minus_16, minus_narrow_16, minus_joined_16},
         {minus_32, minus_narrow_32, minus_joined_32}},
        {{biased_16, biased_narrow_16, biased_joined_16},
         {biased_32, biased_narrow_32, biased_joined_32}}};
    int kind = form->biased ? 2 : minus;
    int sums = qn_panel_shift(form) < 7                  ? 2
               : is_narrow(form, minus ? form->zero : 0) ? 1
                                                         : 0;
    return all[kind][form->group >= QN_PANEL_STEP][sums];
}

/* Codes become bytes less the form's zero where they fit, joined ones also when
 * they are shifted. */
static bool has_signs(const qn_panel_form *form)
{
    const int shift = qn_panel_shift(form);
    const int times = shift < 7 ? 1 << shift : 1;
    return !form->biased && form->zero * times <= 128 &&
           ((1 << form->bits) - 1 - form->zero) * times <= 127;
}

static void run_tiles(float *out, const qn_panel_form *form,
                      const uint8_t *panel, const qn_panel_x *x, size_t count,
                      size_t k)
{
    enum { TILE_FLOATS = QN_PANEL_FULL * QN_PANEL_ROWS };
    _Alignas(64) uint8_t bytes[CHUNK * STEP_BYTES];
    _Alignas(64) float scales[2 * CHUNK * 2 * VF_LANES];
    const bool joined = qn_panel_shift(form) < 7;
    const size_t most = joined ? CHUNK / 2 : CHUNK;
    const shape s = shape_of(form, k);
    const size_t unit = qn_panel_unit(form), steps = k / QN_PANEL_STEP;
    const size_t block_bytes = qn_panel_block_bytes(form);
    const bool minus = has_signs(form);
    const VI zero = (VI)_mm512_set1_epi8((char)(minus ? form->zero : 0));
    const make_fn make = make_of(form);
    const chunk_fn multiply = chunk_of(form, minus);
    shape_tiles((int)unit, joined);
    memset(out, 0, count * TILE_FLOATS * sizeof *out);
    for (size_t first = 0; first < steps; first += most) {
        size_t left = steps - first < most ? steps - first : most;
        size_t blocks = (left + s.steps - 1) / s.steps;
        make(bytes, &s, panel, left, zero);
        make_scales(scales, &s, panel, blocks, block_bytes);
        panel += blocks * block_bytes;
        /* The compiler doesn't know that tile loads read. */
        __asm__ volatile("" : : "r"(bytes) : "memory");
        const size_t units = left * QN_PANEL_STEP / unit;
        const size_t products = joined ? units : 2 * units;
        chunk c = {.bytes = bytes,
                   .scales = scales,
                   .units = units,
                   .group = (size_t)form->group / unit,
                   .next = panel,
                   .next_bytes =
                       (blocks * block_bytes / products + 63) / 64 * 64};
        for (size_t t = 0; t < count; t++) {
            const uint32_t *sums = x[t].sums;
            place at = {x[t].q + first * 2 * QN_PANEL_FULL * QN_PANEL_QUADS,
                        x[t].d + first * QN_PANEL_FULL,
                        sums + first * QN_PANEL_STEP / unit * QN_PANEL_FULL};
            multiply(&c, out + t * TILE_FLOATS, at);
            c.next_bytes = 0;
        }
    }
    _tile_release();
}
