/* kv_codes.c: see kv_codes.h. */
#include "kv_codes.h"

#include "backend/common/kv.h"
#include "backend/common/quant.h"
#include "base/f16.h"
#include "base/turboquant.h"

#include <string.h>

enum { STEP = QN_KV_STEP, MOST_GROUP = 64 };

qn_kv_side qn_kv_side_of(const qn_kv_form *f, qn_array *const *arrays, bool key,
                         int head, int position)
{
    int first = key ? 0 : qn_kv_value_part(f);
    int last = key ? qn_kv_value_part(f) : qn_kv_parts(f);
    qn_kv_side side = {.form = f,
                       .key = key,
                       .bits = f->bits ? f->bits
                               : key   ? f->key_bits
                                       : f->value_bits,
                       .factors = last - first - 1,
                       .d = (size_t)f->head_dim};
    void *at[3] = {NULL};
    for (int i = first; i < last; i++)
        at[i - first] =
            (char *)qn_array_data(arrays[i]) +
            qn_kv_at(arrays[i], head, position) * qn_array_itemsize(arrays[i]);
    side.words = at[0];
    side.factor[0] = at[1];
    side.factor[1] = at[2];
    return side;
}

/* Codes with a sign are stored with their top bit flipped. */
static uint8_t flip(const qn_kv_side *s)
{
    return s->form->key_bits == 8 && s->key ? 0x80 : 0;
}

/* ---- keys: pairs of codes in the halves of words ---- */

static void put_pairs(uint32_t *to, const uint8_t *codes, int bits)
{
    for (int word = 0; word < bits; word++) {
        uint32_t all = 0;
        for (int n = 0; n < 16 / bits; n++, codes += 2)
            all |= (codes[0] | (uint32_t)codes[1] << 16) << n * bits;
        to[word * QN_KV_BLOCK] = all;
    }
    if (bits != 5)
        return;
    uint32_t last = codes[0] | (uint32_t)codes[1] << 16;
    for (int word = 0; word < bits; word++)
        to[word * QN_KV_BLOCK] |= (last >> word & 0x10001) << 15;
}

static void get_pairs(uint8_t *codes, const uint32_t *from, int bits)
{
    uint32_t mask = (1u << bits) - 1, last = 0;
    for (int word = 0; word < bits; word++) {
        uint32_t all = from[word * QN_KV_BLOCK];
        for (int n = 0; n < 16 / bits; n++, codes += 2, all >>= bits) {
            codes[0] = (uint8_t)(all & mask);
            codes[1] = (uint8_t)(all >> 16 & mask);
        }
        last |= (from[word * QN_KV_BLOCK] >> 15 & 0x10001) << word;
    }
    if (bits != 5)
        return;
    codes[0] = (uint8_t)(last & mask);
    codes[1] = (uint8_t)(last >> 16);
}

/* ---- values: a field of the words of many elements ---- */

static void put_field(uint32_t *words, int shift, int bits,
                      const uint8_t *codes, int from_bit)
{
    uint32_t mask = ((1u << bits) - 1) << shift;
    for (int i = 0; i < STEP; i++)
        words[i] = (words[i] & ~mask) |
                   (((uint32_t)codes[i] >> from_bit) << shift & mask);
}

static void get_field(uint8_t *codes, const uint32_t *words, int shift,
                      int bits, int to_bit)
{
    uint32_t mask = (1u << bits) - 1;
    for (int i = 0; i < STEP; i++)
        codes[i] |= (uint8_t)((words[i] >> shift & mask) << to_bit);
}

static void put_run(uint32_t *to, size_t d, int t, const uint8_t *codes,
                    int bits)
{
    int fit = 32 / bits, left = (t - fit * bits) * bits;
    if (left < 0) {
        put_field(to + (size_t)(t / fit) * d, t % fit * bits, bits, codes, 0);
        return;
    }
    for (int bit = 0; bit < bits; bit++, left++)
        put_field(to + (size_t)(left / 2) * d, 30 + left % 2, 1, codes, bit);
}

static void get_run(uint8_t *codes, const uint32_t *from, size_t d, int t,
                    int bits)
{
    int fit = 32 / bits, left = (t - fit * bits) * bits;
    memset(codes, 0, STEP);
    if (left < 0) {
        get_field(codes, from + (size_t)(t / fit) * d, t % fit * bits, bits, 0);
        return;
    }
    for (int bit = 0; bit < bits; bit++, left++)
        get_field(codes, from + (size_t)(left / 2) * d, 30 + left % 2, 1, bit);
}

/* ---- both ---- */

static uint32_t *words_at(const qn_kv_side *s, int column, size_t first)
{
    size_t bits = (size_t)s->bits;
    if (s->key)
        return s->words + first / STEP * bits * QN_KV_BLOCK + column;
    return s->words + (size_t)column / QN_KV_RUN * bits * s->d + first;
}

/* Codes of elements first .. first + STEP; those with a sign keep it. */
static void put_step(const qn_kv_side *s, int column, size_t first,
                     const uint8_t *codes)
{
    uint32_t *to = words_at(s, column, first);
    uint8_t flipped[STEP], by = flip(s);
    for (int i = 0; i < STEP; i++)
        flipped[i] = codes[i] ^ by;
    if (s->key)
        put_pairs(to, flipped, s->bits);
    else
        put_run(to, s->d, column % QN_KV_RUN, flipped, s->bits);
}

static void get_step(const qn_kv_side *s, int column, size_t first,
                     uint8_t *codes)
{
    const uint32_t *from = words_at(s, column, first);
    uint8_t by = flip(s);
    if (s->key)
        get_pairs(codes, from, s->bits);
    else
        get_run(codes, from, s->d, column % QN_KV_RUN, s->bits);
    for (int i = 0; i < STEP; i++)
        codes[i] ^= by;
}

static char *factor_at(const qn_kv_side *s, int n, size_t group, int column)
{
    return s->factor[n] + (group * QN_KV_BLOCK + (size_t)column) *
                              qn_dtype_size(s->form->dtype);
}

static float get_factor(const qn_kv_side *s, int n, size_t group, int column)
{
    const char *at = factor_at(s, n, group, column);
    float value;
    uint16_t half;
    if (s->form->dtype == QN_FLOAT32) {
        memcpy(&value, at, sizeof value);
        return value;
    }
    memcpy(&half, at, sizeof half);
    return s->form->dtype == QN_FLOAT16 ? qn_f16_to_f32(half)
                                        : qn_bf16_to_f32(half);
}

static void put_factor(const qn_kv_side *s, int n, size_t group, int column,
                       float value)
{
    char *at = factor_at(s, n, group, column);
    uint16_t half = s->form->dtype == QN_FLOAT16 ? qn_f32_to_f16(value)
                                                 : qn_f32_to_bf16(value);
    if (s->form->dtype == QN_FLOAT32)
        memcpy(at, &value, sizeof value);
    else
        memcpy(at, &half, sizeof half);
}

/* ---- floats ---- */

static void encode_affine(const qn_kv_side *s, int column, const float *x)
{
    size_t group = (size_t)s->form->group;
    for (size_t i = 0; i < s->d; i += group) {
        uint8_t codes[MOST_GROUP];
        float factor[2];
        qn_quant_affine_group(codes, &factor[0], &factor[1], x + i, group,
                              s->bits);
        for (size_t j = 0; j < group; j += STEP)
            put_step(s, column, i + j, codes + j);
        for (int n = 0; n < 2; n++)
            put_factor(s, n, i / group, column, factor[n]);
    }
}

void qn_kv_side_put(const qn_kv_side *s, int column, const uint8_t *codes,
                    const uint16_t *const *factors)
{
    for (size_t i = 0; i < s->d; i += STEP)
        put_step(s, column, i, codes + i);
    for (int n = 0; n < s->factors; n++)
        for (size_t g = 0; g < s->d / QN_TQ_GROUP; g++)
            memcpy(factor_at(s, n, g, column), &factors[n][g],
                   sizeof factors[n][g]);
}

static void encode_turbo(const qn_kv_side *s, int column, const float *x)
{
    uint8_t codes[QN_TQ_MAX_DIM];
    uint16_t factor[2][QN_TQ_MAX_GROUPS];
    const uint16_t *factors[2] = {factor[0], factor[1]};
    int d = (int)s->d;
    if (s->key)
        qn_tq_encode_key(codes, factor[0], factor[1], x, d, s->bits,
                         QN_TQ_GROUP, true);
    else
        qn_tq_encode_value(codes, factor[0], x, d, s->bits, QN_TQ_GROUP);
    qn_kv_side_put(s, column, codes, factors);
}

void qn_kv_side_encode(const qn_kv_side *s, int column, const float *x)
{
    if (s->form->bits)
        encode_affine(s, column, x);
    else
        encode_turbo(s, column, x);
}

void qn_kv_side_decode(const qn_kv_side *s, int column, float *x)
{
    size_t group = (size_t)s->form->group;
    for (size_t i = 0; i < s->d; i += STEP, x += STEP) {
        uint8_t codes[STEP];
        float factor[2] = {0};
        get_step(s, column, i, codes);
        for (int n = 0; n < s->factors; n++)
            factor[n] = get_factor(s, n, i / group, column);
        if (s->form->bits)
            for (int j = 0; j < STEP; j++)
                x[j] = (float)codes[j] * factor[0] + factor[1];
        else if (s->key)
            qn_tq_decode_key(x, codes, &factor[0], &factor[1], STEP, s->bits,
                             STEP);
        else
            qn_tq_decode_value(x, codes, &factor[0], STEP, s->bits, STEP);
    }
}

/* ---- planes ---- */

void qn_kv_side_read(const qn_kv_side *s, int column, char *const *plane)
{
    uint8_t codes[STEP], *to = (uint8_t *)plane[0];
    size_t item = qn_dtype_size(s->form->dtype);
    for (size_t i = 0; i < s->d; i += STEP, to += qn_tq_packed(STEP, s->bits)) {
        get_step(s, column, i, codes);
        qn_tq_pack(to, codes, STEP, s->bits);
    }
    for (int n = 0; n < s->factors; n++)
        for (size_t g = 0; g < s->d / (size_t)s->form->group; g++)
            memcpy(plane[1 + n] + g * item, factor_at(s, n, g, column), item);
}

void qn_kv_side_write(const qn_kv_side *s, int column, const char *const *plane)
{
    uint8_t codes[STEP];
    const uint8_t *from = (const uint8_t *)plane[0];
    size_t item = qn_dtype_size(s->form->dtype);
    for (size_t i = 0; i < s->d;
         i += STEP, from += qn_tq_packed(STEP, s->bits)) {
        qn_tq_unpack(codes, from, STEP, s->bits);
        put_step(s, column, i, codes);
    }
    for (int n = 0; n < s->factors; n++)
        for (size_t g = 0; g < s->d / (size_t)s->form->group; g++)
            memcpy(factor_at(s, n, g, column), plane[1 + n] + g * item, item);
}
