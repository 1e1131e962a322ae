/* Blocks of GGUF files against their definition, element by element. */
#include "support/qn_test.h"

#include "base/f16.h"
#include "base/gguf_blocks.h"
#include "model/pack.h"

#include <math.h>

enum { ROWS = 6, COLS = 96, BLOCKS = COLS / 32 };

/* xorshift, so that every run sees the same bytes. */
static uint32_t random_state;

static uint32_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state;
}

static uint16_t random_half(void)
{
    /* Any finite float16, subnormals and both zeros among them. */
    uint16_t h = (uint16_t)next_random();
    return (h & 0x7c00u) == 0x7c00u ? (uint16_t)(h & 0x83ffu) : h;
}

typedef struct kind {
    int type, bytes, bits;
} kind;

static const kind kinds[] = {
    {QN_GGUF_Q4_0_T, 18, 4}, {QN_GGUF_Q4_1_T, 20, 4}, {QN_GGUF_Q5_0_T, 22, 5},
    {QN_GGUF_Q5_1_T, 24, 5}, {QN_GGUF_Q8_0_T, 34, 8},
};

/* Element i of a block, as the format defines it. */
static float block_value(int type, const uint8_t *b, int i)
{
    float d = qn_f16_to_f32(qn_le16(b));
    switch (type) {
    case QN_GGUF_Q4_0_T: {
        const uint8_t *q = b + 2;
        int n = i < 16 ? q[i] & 15 : q[i - 16] >> 4;
        return d * (float)(n - 8);
    }
    case QN_GGUF_Q4_1_T: {
        const uint8_t *q = b + 4;
        int n = i < 16 ? q[i] & 15 : q[i - 16] >> 4;
        return d * (float)n + qn_f16_to_f32(qn_le16(b + 2));
    }
    case QN_GGUF_Q5_0_T: {
        const uint8_t *q = b + 6;
        int n = i < 16 ? q[i] & 15 : q[i - 16] >> 4;
        n |= (int)(qn_le32(b + 2) >> i & 1) << 4;
        return d * (float)(n - 16);
    }
    case QN_GGUF_Q5_1_T: {
        const uint8_t *q = b + 8;
        int n = i < 16 ? q[i] & 15 : q[i - 16] >> 4;
        n |= (int)(qn_le32(b + 4) >> i & 1) << 4;
        return d * (float)n + qn_f16_to_f32(qn_le16(b + 2));
    }
    default:
        return d * (float)(int8_t)b[2 + i];
    }
}

static void fill_blocks(const kind *k, uint8_t *data, size_t count)
{
    for (size_t i = 0; i < count; i++, data += k->bytes) {
        for (int j = 0; j < k->bytes; j++)
            data[j] = (uint8_t)next_random();
        uint16_t d = random_half();
        memcpy(data, &d, 2);
        if (k->type == QN_GGUF_Q4_1_T || k->type == QN_GGUF_Q5_1_T) {
            uint16_t m = random_half();
            memcpy(data + 2, &m, 2);
        }
    }
}

/* Element i of a packed row: bits [i*b, (i+1)*b) of its bit stream. */
static unsigned packed_code(const uint32_t *row, int bits, int i)
{
    unsigned code = 0;
    for (int b = 0; b < bits; b++) {
        int at = i * bits + b;
        code |= (row[at / 32] >> (at % 32) & 1u) << b;
    }
    return code;
}

static void check_kind(const kind *k, const uint32_t *source_row, bool big)
{
    uint8_t data[ROWS * BLOCKS * 34];
    uint32_t words[ROWS * BLOCKS * 8];
    uint16_t scales[ROWS * BLOCKS], biases[ROWS * BLOCKS];
    float wide_scales[ROWS * BLOCKS], wide_biases[ROWS * BLOCKS];
    fill_blocks(k, data, ROWS * BLOCKS);
    if (!big)
        for (int i = 0; i < ROWS * BLOCKS; i++)
            data[i * k->bytes + 1] &= 0xdf; /* below 2^0: no bias overflows */

    qn_packed_rows out = {words, scales, biases};
    bool fits = qn_pack_rows(&out, k->type, data, ROWS, COLS, source_row);
    assert_true(fits || big);
    qn_pack_wide(wide_scales, wide_biases, k->type, data, ROWS, COLS,
                 source_row);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++) {
            int from = source_row ? (int)source_row[r] : r;
            const uint8_t *block = data + (from * BLOCKS + c / 32) * k->bytes;
            float expected = block_value(k->type, block, c % 32);
            int g = r * BLOCKS + c / 32;
            float code =
                (float)packed_code(words + r * BLOCKS * k->bits, k->bits, c);
            float wide = wide_scales[g] * code + wide_biases[g];
            assert_float_equal(wide, expected, 0);
            if (!fits)
                continue;
            float half =
                qn_f16_to_f32(scales[g]) * code + qn_f16_to_f32(biases[g]);
            assert_float_equal(half, expected, 0);
        }
}

static void test_blocks_keep_their_values(void **state)
{
    (void)state;
    static const uint32_t order[ROWS] = {5, 0, 3, 1, 4, 2};
    random_state = 1234567;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int round = 0; round < 20; round++) {
            check_kind(&kinds[i], NULL, false);
            check_kind(&kinds[i], order, false);
            check_kind(&kinds[i], NULL, true);
        }
}

static void test_large_scales_ask_for_float32(void **state)
{
    (void)state;
    static const struct {
        int type, bytes;
        float largest; /* whose bias is still a float16 */
    } rows[] = {
        {QN_GGUF_Q4_0_T, 18, 8188},
        {QN_GGUF_Q5_0_T, 22, 4094},
        {QN_GGUF_Q8_0_T, 34, 511.75f},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t block[34] = {0};
        uint32_t words[8];
        uint16_t scale, bias;
        qn_packed_rows out = {words, &scale, &bias};
        uint16_t d = qn_f32_to_f16(rows[i].largest);
        memcpy(block, &d, 2);
        assert_true(qn_pack_rows(&out, rows[i].type, block, 1, 32, NULL));
        d++; /* the next larger float16 */
        memcpy(block, &d, 2);
        assert_false(qn_pack_rows(&out, rows[i].type, block, 1, 32, NULL));
        float wide_scale, wide_bias;
        qn_pack_wide(&wide_scale, &wide_bias, rows[i].type, block, 1, 32, NULL);
        assert_float_equal(wide_scale, qn_f16_to_f32(d), 0);
        assert_true(isfinite(wide_bias) && fabsf(wide_bias) > 65504);
    }
}

static void test_other_types_have_no_packed_form(void **state)
{
    (void)state;
    qn_pack_form form;
    assert_true(qn_pack_form_of(&form, QN_GGUF_Q5_1_T));
    assert_int_equal(form.bits, 5);
    assert_int_equal(form.zero, -1);
    assert_false(form.wide);
    assert_true(qn_pack_form_of(&form, QN_GGUF_Q6_K_T));
    assert_int_equal(form.group, 16);
    assert_int_equal(form.zero, 32);
    assert_true(form.wide);
    assert_true(qn_pack_form_of(&form, QN_GGUF_MXFP4_T));
    assert_true(form.mxfp4);
    assert_false(qn_pack_form_of(&form, QN_GGUF_F16_T));
    assert_false(qn_pack_form_of(&form, QN_GGUF_IQ2_S_T));
}

/* Two rows of blocks of any bytes but infinite scales, read in turned order. */
static void fill_rows(uint8_t *data, size_t bytes, size_t count)
{
    for (size_t i = 0; i < count * bytes; i++)
        data[i] = (uint8_t)next_random();
    for (size_t i = 0; i < count; i++) {
        uint16_t d = random_half();
        memcpy(data + i * bytes, &d, 2);
        data[i * bytes + 1] &= 0xbf; /* below 2: a scale that e8m0 has, too */
    }
}

static void test_table_codes_become_bytes(void **state)
{
    (void)state;
    enum { WIDE = 512 };
    static const int types[] = {QN_GGUF_IQ4_NL_T, QN_GGUF_IQ4_XS_T};
    static const uint32_t order[] = {1, 0};
    for (size_t t = 0; t < 2; t++) {
        size_t bytes, elements;
        uint8_t data[2 * WIDE];
        uint32_t words[2 * WIDE / 4];
        float scales[2 * WIDE / 32], biases[2 * WIDE / 32], expected[256];
        assert_true(qn_gguf_type_block(types[t], &bytes, &elements));
        fill_rows(data, bytes, 2 * WIDE / elements);
        qn_pack_super(words, scales, biases, types[t], data, 2, WIDE, order);
        for (size_t i = 0; i < 2 * WIDE; i++) {
            size_t from = (i + WIDE) % (2 * WIDE);
            if (i % elements == 0)
                qn_gguf_expand(expected, types[t],
                               data + from / elements * bytes);
            float code = (float)packed_code(words, 8, (int)i);
            float found = scales[i / 32] * code + biases[i / 32];
            /* Both products are exact. */
            assert_true(found == expected[i % elements]);
        }
    }
}

static void test_mxfp4_keeps_codes_and_scales(void **state)
{
    (void)state;
    static const uint32_t order[] = {1, 0};
    static const float sizes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    uint8_t data[2 * BLOCKS * 17], scales[2 * BLOCKS];
    uint32_t words[2 * BLOCKS * 4];
    float expected[32];
    fill_rows(data, 17, 2 * BLOCKS);
    qn_pack_mxfp4(words, scales, data, 2, COLS, order);
    for (int i = 0; i < 2 * COLS; i++) {
        int from = (i + COLS) % (2 * COLS);
        if (i % 32 == 0)
            qn_gguf_expand(expected, QN_GGUF_MXFP4_T, data + from / 32 * 17);
        unsigned code = packed_code(words, 4, i);
        float size = ldexpf(sizes[code & 7], scales[i / 32] - 127);
        if (scales[i / 32] < 255)
            assert_true((code & 8 ? -size : size) == expected[i % 32]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_keep_their_values),
        cmocka_unit_test(test_large_scales_ask_for_float32),
        cmocka_unit_test(test_table_codes_become_bytes),
        cmocka_unit_test(test_mxfp4_keeps_codes_and_scales),
        cmocka_unit_test(test_other_types_have_no_packed_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
