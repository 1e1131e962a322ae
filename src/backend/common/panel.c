/* panel.c: see panel.h. */
#include "panel.h"

#include "quant.h"

#include <string.h>

/* ORs `plane` bits of each of a step's codes, from bit `low` on, into the
 * vectors of that plane. */
static void pack_plane(uint8_t *to, int plane, int low, const uint8_t *codes)
{
    size_t fields = 8 / (size_t)plane;
    unsigned mask = (1u << plane) - 1;
    for (size_t e = 0; e < QN_PANEL_STEP; e++) {
        size_t quad = e / 4, vector = quad / fields, field = quad % fields;
        uint8_t *byte = to + vector * 64 + e % 4;
        *byte = (uint8_t)(*byte |
                          ((codes[e] >> low & mask) << field * (size_t)plane));
    }
}

static void pack_planes(uint8_t *to, int bits, const uint8_t *codes)
{
    int low = 0; /* the widest plane has the lowest bits of a code */
    for (int plane = 8; plane; plane /= 2) {
        if (!(bits & plane))
            continue;
        pack_plane(to, plane, low, codes);
        low += plane;
        to += (size_t)plane * 64;
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
        pack_planes(to, bits, codes);
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
    size_t item = qn_dtype_size(form->scale_type);
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
        for (size_t e = b * block; e < (b + 1) * block; e += QN_PANEL_STEP) {
            size_t at = e / QN_PANEL_STEP * (size_t)form->bits * 4;
            for (size_t r = 0; r < source->rows && e < k; r++)
                pack_step(panel + r * 4, form->bits,
                          source->words + (int64_t)r * source->word_step + at);
            panel += (size_t)form->bits * 64;
        }
    }
}

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

void qn_panel_unpack(uint8_t *codes, char *scales, char *biases,
                     const uint8_t *panel, const qn_panel_form *form, size_t k,
                     size_t row)
{
    size_t item = qn_dtype_size(form->scale_type);
    size_t factors = QN_PANEL_ROWS * item, set = factors << form->biased;
    size_t groups = qn_panel_groups(form), block = qn_panel_block(form);
    size_t bytes = qn_panel_block_bytes(form), head = groups * set;
    for (size_t g = 0; g < k / (size_t)form->group; g++) {
        const uint8_t *at =
            panel + g / groups * bytes + g % groups * set + row * item;
        memcpy(scales + g * item, at, item);
        if (form->biased)
            memcpy(biases + g * item, at + factors, item);
    }
    for (size_t e = 0; e < k; e++) {
        size_t step = e % block / QN_PANEL_STEP;
        const uint8_t *at =
            panel + e / block * bytes + head + step * (size_t)form->bits * 64;
        codes[e] = (uint8_t)code_at(at, form->bits, row, e % QN_PANEL_STEP);
    }
}
