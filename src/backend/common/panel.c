/* panel.c: see panel.h. */
#include "panel.h"

#include "base/f16.h"
#include "base/gguf.h"
#include "base/gguf_blocks.h"
#include "quant.h"

#include <assert.h>

#include <string.h>

/* 32 codes to where their row stands in a step's vectors; `bits` is constant.
 */
static inline void put_codes(uint8_t *to, int bits, const uint8_t *codes)
{
    uint32_t quads[QN_PANEL_STEP / 4];
    memcpy(quads, codes, sizeof quads);
    int low = 0; /* the widest plane has the lowest bits of a code */
    for (int plane = 8; plane; plane /= 2) {
        if (!(bits & plane))
            continue;
        const int fields = 8 / plane;
        const uint32_t mask = ((1u << plane) - 1) * 0x01010101u;
        for (int v = 0; v < plane; v++) {
            uint32_t word = 0;
            for (int f = 0; f < fields; f++)
                word |= (quads[v * fields + f] >> low & mask) << f * plane;
            memcpy(to + 64 * v, &word, 4);
        }
        low += plane;
        to += 64 * plane;
    }
}

static void put_step(uint8_t *to, int bits, const uint8_t *codes)
{
    switch (bits) {
    case 2:
        put_codes(to, 2, codes);
        break;
    case 3:
        put_codes(to, 3, codes);
        break;
    case 4:
        put_codes(to, 4, codes);
        break;
    case 5:
        put_codes(to, 5, codes);
        break;
    case 6:
        put_codes(to, 6, codes);
        break;
    default:
        put_codes(to, 8, codes);
        break;
    }
}

/* The low four nibbles of w in the low halves of four bytes. */
static uint32_t spread(uint32_t w)
{
    w = (w | w << 8) & 0x00ff00ff;
    return (w | w << 4) & 0x0f0f0f0f;
}

/* One step of one row, whose words begin at `from`, to where the row stands in
 * the step's vectors, which are zero. */
static void pack_step(uint8_t *to, int bits, const char *from)
{
    uint8_t codes[QN_PANEL_STEP];
    uint32_t words[QN_PANEL_STEP * 8 / 32];
    memcpy(words, from, (size_t)bits * 4);
    switch (bits) {
    case 8: /* a word is a quad */
        for (size_t i = 0; i < 8; i++)
            memcpy(to + i * 64, &words[i], 4);
        break;
    case 4: /* a word is two, the second goes into the high halves */
        for (size_t i = 0; i < 4; i++) {
            uint32_t word = spread(words[i] & 0xffff) | spread(words[i] >> 16)
                                                            << 4;
            memcpy(to + i * 64, &word, 4);
        }
        break;
    default:
        qn_quant_unpack(codes, words, 0, QN_PANEL_STEP, bits);
        put_step(to, bits, codes);
        break;
    }
}

/* 16 values of group `g`, one a row. */
static void pack_factors(uint8_t *to, const char *from, int64_t step,
                         size_t item, size_t g, size_t rows)
{
    for (size_t r = 0; r < rows; r++)
        memcpy(to + r * item, from + (int64_t)r * step + g * item, item);
}

void qn_panel_pack(uint8_t *panel, const qn_panel_form *form,
                   const qn_panel_source *source)
{
    size_t item = qn_panel_item(form);
    size_t k = source->k, groups = k / (size_t)form->group;
    size_t block = qn_panel_block(form), per_block = qn_panel_groups(form);
    memset(panel, 0, qn_panel_bytes(form, k));
    for (size_t b = 0; b < qn_panel_blocks(form, k); b++) {
        for (size_t g = b * per_block; g < (b + 1) * per_block; g++) {
            size_t rows = g < groups ? source->rows : 0;
            pack_factors(panel, source->scales, source->scale_step, item, g,
                         rows);
            panel += QN_PANEL_ROWS * item;
            if (!form->biased)
                continue;
            pack_factors(panel, source->biases, source->bias_step, item, g,
                         rows);
            panel += QN_PANEL_ROWS * item;
        }
        size_t end = (b + 1) * block < k ? (b + 1) * block : k;
        for (size_t e = b * block; e < end; e += QN_PANEL_STEP) {
            size_t at = e / QN_PANEL_STEP * (size_t)form->bits * 4;
            for (size_t r = 0; r < source->rows; r++)
                pack_step(panel + r * 4, form->bits,
                          source->words + (int64_t)r * source->word_step + at);
            panel += (size_t)form->bits * 64;
        }
    }
}

/* ---- from blocks of GGUF files ---- */

static void put_half(uint8_t *to, uint16_t half)
{
    memcpy(to, &half, sizeof half);
}

/* The scales of one block of a row, whose first group is number `g` of the
 * panel's block at `to`. */
static void put_scales(uint8_t *to, const qn_panel_form *form, size_t g,
                       size_t count, size_t row, const qn_gguf_split *from)
{
    size_t set = qn_panel_set(form);
    if (qn_panel_nested(form)) {
        put_half(to + 2 * row, from->d);
        if (form->biased) /* minima are taken away */
            put_half(to + 2 * (QN_PANEL_ROWS + row), from->m ^ 0x8000u);
    }
    to += qn_panel_front(form) + g * set;
    switch (form->scaling) {
    case QN_PANEL_FLOATS:
        put_half(to + 2 * row, from->d);
        if (form->biased)
            put_half(to + 2 * (QN_PANEL_ROWS + row), from->m);
        break;
    case QN_PANEL_NESTED:
        for (size_t i = 0; i < count; i++, to += set) {
            to[row] = (uint8_t)(from->scales[i] + (form->biased ? 0 : 128));
            if (form->biased)
                to[QN_PANEL_ROWS + row] = from->mins[i];
        }
        break;
    case QN_PANEL_NIBBLES:
        for (size_t i = 0; i < count; i++, to += set)
            to[row] = (uint8_t)(from->scales[i] | from->mins[i] << 4);
        break;
    default:
        to[row] = (uint8_t)from->scales[0];
        break;
    }
}

enum { LOW = 0x0f0f0f0f };

/* A step whose elements 0-15 are the low halves of 16 bytes, and 16-31 the high
 * ones: vector v of the panel has quads 2 v and 2 v + 1. */
static inline void put_halves(uint8_t *to, const uint8_t *q)
{
    uint32_t b[4], words[4];
    memcpy(b, q, sizeof b);
    for (int i = 0; i < 2; i++) {
        words[i] = (b[2 * i] & LOW) | (b[2 * i + 1] & LOW) << 4;
        words[2 + i] = (b[2 * i] >> 4 & LOW) | (b[2 * i + 1] & ~(uint32_t)LOW);
    }
    for (int i = 0; i < 4; i++)
        memcpy(to + 64 * i, &words[i], 4);
}

/* A step of 32 signed bytes. */
static inline void put_bytes(uint8_t *to, const uint8_t *q)
{
    for (int i = 0; i < 8; i++, to += 64, q += 4) {
        uint32_t word;
        memcpy(&word, q, 4);
        word ^= 0x80808080u;
        memcpy(to, &word, 4);
    }
}

/* A step of the low halves of 32 bytes, and a step of the high ones. */
static inline void put_half_steps(uint8_t *low, uint8_t *high, const uint8_t *q)
{
    for (int i = 0; i < 4; i++, low += 64, high += 64) {
        uint32_t b[2];
        memcpy(b, q + 8 * i, sizeof b);
        uint32_t word = (b[0] & LOW) | (b[1] & LOW) << 4;
        memcpy(low, &word, 4);
        word = (b[0] >> 4 & LOW) | (b[1] & ~(uint32_t)LOW);
        memcpy(high, &word, 4);
    }
}

/* Blocks of 32 with float16 scales: all is constant but what is read. */
static inline void pack_groups(uint8_t *panel, int bits, bool biased,
                               const uint8_t *const *data, size_t rows,
                               size_t k)
{
    const size_t groups = biased ? 1 : 2, halves = biased ? 2 : 1;
    const size_t set = halves * QN_PANEL_ROWS * 2, codes = (size_t)bits * 64;
    const size_t bytes = halves * 2 + (size_t)bits * 4;
    for (size_t g = 0; g < k / QN_GGUF_GROUP; g++) {
        uint8_t *block = panel + g / groups * groups * (set + codes);
        uint8_t *scales = block + g % groups * set;
        uint8_t *to = block + groups * set + g % groups * codes;
        for (size_t r = 0; r < rows; r++) {
            const uint8_t *from = data[r] + g * bytes;
            memcpy(scales + 2 * r, from, 2);
            if (biased)
                memcpy(scales + 2 * (QN_PANEL_ROWS + r), from + 2, 2);
            from += 2 * halves;
            if (bits == 4)
                put_halves(to + 4 * r, from);
            else
                put_bytes(to + 4 * r, from);
        }
    }
}

/* Any other blocks. */
static void pack_split(uint8_t *panel, const qn_panel_form *form, int type,
                       const uint8_t *const *data, size_t rows, size_t k,
                       size_t bytes, size_t elements)
{
    size_t block = qn_panel_block(form), head = qn_panel_head(form);
    size_t step = qn_panel_code_bytes(form, QN_PANEL_STEP);
    size_t group = (size_t)form->group, steps = elements / QN_PANEL_STEP;
    for (size_t e = 0; e < k; e += elements) {
        uint8_t *to = panel + e / block * qn_panel_block_bytes(form);
        uint8_t *codes = to + head + e % block / QN_PANEL_STEP * step;
        for (size_t r = 0; r < rows; r++, codes += 4) {
            const uint8_t *from = data[r] + e / elements * bytes;
            qn_gguf_split split;
            qn_gguf_split_scales(&split, type, from);
            put_scales(to, form, e % block / group, elements / group, r,
                       &split);
            if (type == QN_GGUF_Q4_K_T) {
                for (size_t i = 0; i < steps; i += 2)
                    put_half_steps(codes + i * step, codes + (i + 1) * step,
                                   from + 16 * (i + 1));
                continue;
            }
            qn_gguf_split_codes(&split, type, from);
            for (size_t i = 0; i < steps; i++)
                put_step(codes + i * step, form->bits,
                         split.codes + i * QN_PANEL_STEP);
        }
    }
}

void qn_panel_pack_blocks(uint8_t *panel, const qn_panel_form *form, int type,
                          const uint8_t *const *data, size_t rows, size_t k)
{
    size_t bytes, elements;
    bool known = qn_gguf_type_block(type, &bytes, &elements);
    assert(known && k % elements == 0);
    (void)known;
    memset(panel, 0, qn_panel_bytes(form, k));
    switch (type) {
    case QN_GGUF_Q4_0_T:
    case QN_GGUF_IQ4_NL_T:
        pack_groups(panel, 4, false, data, rows, k);
        break;
    case QN_GGUF_Q4_1_T:
        pack_groups(panel, 4, true, data, rows, k);
        break;
    case QN_GGUF_Q8_0_T:
        pack_groups(panel, 8, false, data, rows, k);
        break;
    default:
        pack_split(panel, form, type, data, rows, k, bytes, elements);
        break;
    }
}

/* ---- back ---- */

/* The bits of one plane of element `e` of a step. */
static unsigned plane_field(const uint8_t *from, size_t plane, size_t row,
                            size_t e)
{
    size_t fields = 8 / plane, quad = e / 4;
    uint8_t byte = from[quad / fields * 64 + row * 4 + e % 4];
    return byte >> quad % fields * plane & ((1u << plane) - 1);
}

static unsigned code_at(const uint8_t *step, int bits, size_t row, size_t e)
{
    unsigned code = 0;
    int low = 0;
    for (int plane = 8; plane; plane /= 2) {
        if (!(bits & plane))
            continue;
        code |= plane_field(step, (size_t)plane, row, e) << low;
        low += plane;
        step += plane * 64;
    }
    return code;
}

static float half_at(const uint8_t *p)
{
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return qn_f16_to_f32(half);
}

static float float_at(const uint8_t *p, qn_dtype type)
{
    float value;
    uint16_t half;
    if (type == QN_FLOAT32) {
        memcpy(&value, p, sizeof value);
        return value;
    }
    memcpy(&half, p, sizeof half);
    return type == QN_FLOAT16 ? qn_f16_to_f32(half) : qn_bf16_to_f32(half);
}

/* Scale and bias (0 if there is none) of a row in group `g` of a block. */
static void factors_at(float *scale, float *bias, const uint8_t *block,
                       const qn_panel_form *form, size_t g, size_t row)
{
    const uint8_t *at = block + qn_panel_front(form) + g * qn_panel_set(form);
    size_t item = qn_panel_item(form);
    *bias = 0;
    switch (form->scaling) {
    case QN_PANEL_FLOATS:
        *scale = float_at(at + row * item, form->scale_type);
        if (form->biased)
            *bias =
                float_at(at + (QN_PANEL_ROWS + row) * item, form->scale_type);
        break;
    case QN_PANEL_NESTED:
        *scale = half_at(block + 2 * row) *
                 (float)(at[row] - (form->biased ? 0 : 128));
        if (form->biased)
            *bias = half_at(block + 2 * (QN_PANEL_ROWS + row)) *
                    (float)at[QN_PANEL_ROWS + row];
        break;
    case QN_PANEL_NIBBLES:
        *scale = half_at(block + 2 * row) * (float)(at[row] & 15);
        *bias =
            half_at(block + 2 * (QN_PANEL_ROWS + row)) * (float)(at[row] >> 4);
        break;
    case QN_PANEL_E8M0:
        *scale = 0.5f * qn_e8m0_to_f32(at[row]);
        break;
    case QN_PANEL_E4M3:
        *scale = 0.5f * qn_e4m3_to_f32(at[row]);
        break;
    }
}

void qn_panel_factors(float *scales, float *biases, const uint8_t *panel,
                      const qn_panel_form *form, size_t k, size_t row)
{
    size_t groups = qn_panel_groups(form), bytes = qn_panel_block_bytes(form);
    for (size_t g = 0; g < k / (size_t)form->group; g++)
        factors_at(&scales[g], &biases[g], panel + g / groups * bytes, form,
                   g % groups, row);
}

void qn_panel_unpack(uint8_t *values, float *scales, float *biases,
                     const uint8_t *panel, const qn_panel_form *form, size_t k,
                     size_t row)
{
    size_t block = qn_panel_block(form), bytes = qn_panel_block_bytes(form);
    size_t head = qn_panel_head(form);
    const uint8_t *table = qn_panel_table_of(form);
    qn_panel_factors(scales, biases, panel, form, k, row);
    for (size_t e = 0; e < k; e++) {
        size_t step = e % block / QN_PANEL_STEP;
        const uint8_t *at = panel + e / block * bytes + head +
                            qn_panel_code_bytes(form, step * QN_PANEL_STEP);
        unsigned code = code_at(at, form->bits, row, e % QN_PANEL_STEP);
        values[e] = table ? table[code] : (uint8_t)code;
    }
}
