/* Blocks of GGUF tensors against the elements that the format's own package
 * makes of them (tests/tools/make_gguf_blocks.py). */
#include "support/qn_test.h"

#include "base/f16.h"
#include "base/gguf.h"
#include "base/gguf_blocks.h"
#include "base/json.h"

#include <math.h>

static int type_of(qn_str name)
{
    for (int type = 0; type < 64; type++) {
        const char *known = qn_gguf_type_name(type);
        if (known && qn_str_is(name, known))
            return type;
    }
    return -1;
}

static size_t bytes_of_hex(uint8_t *out, qn_str hex)
{
    for (size_t i = 0; i < hex.size / 2; i++) {
        char two[3] = {hex.data[2 * i], hex.data[2 * i + 1], '\0'};
        out[i] = (uint8_t)strtoul(two, NULL, 16);
    }
    return hex.size / 2;
}

typedef struct sample {
    int type;
    size_t bytes, elements;
    uint8_t block[512];
    float wanted[QN_GGUF_BLOCK_MAX];
} sample;

/* Calls `check` for each line of the file; the number of lines. */
static int each_sample(void (*check)(const sample *s))
{
    char *text;
    size_t size;
    int lines = 0;
    check_status(qn_file_read(&text, &size,
                              QN_TEST_VECTORS "/base/gguf_blocks.jsonl",
                              1 << 20),
                 QN_OK);
    for (char *line = text; *line; lines++) {
        char *end = strchr(line, '\n');
        qn_json_doc *doc;
        qn_str name, block, values;
        sample s;
        check_status(
            qn_json_parse(&doc, (qn_str){line, (size_t)(end - line)}, 0),
            QN_OK);
        const qn_json *root = qn_json_root(doc);
        assert_true(qn_json_as_str(qn_json_get(root, "type"), &name));
        assert_true(qn_json_as_str(qn_json_get(root, "block"), &block));
        assert_true(qn_json_as_str(qn_json_get(root, "float32"), &values));
        s.type = type_of(name);
        assert_true(qn_gguf_type_block(s.type, &s.bytes, &s.elements));
        assert_int_equal(bytes_of_hex(s.block, block), s.bytes);
        assert_int_equal(bytes_of_hex((uint8_t *)s.wanted, values),
                         s.elements * sizeof(float));
        check(&s);
        qn_json_doc_free(doc);
        line = end + 1;
    }
    qn_free(text);
    return lines;
}

static void check_expanded(const sample *s)
{
    float out[QN_GGUF_BLOCK_MAX];
    uint8_t *exact = exact_copy(s->block, s->bytes);
    assert_true(qn_gguf_expands(s->type));
    qn_gguf_expand(out, s->type, exact);
    assert_memory_equal(out, s->wanted, s->elements * sizeof *out);
    free(exact);
}

static void test_blocks_expand_to_the_bits_of_the_format_s_package(void **state)
{
    (void)state;
    assert_int_equal(each_sample(check_expanded), 26);
}

static int packed_types;

static void check_packed(const sample *s)
{
    int bits = qn_gguf_group_bits(s->type);
    if (!bits)
        return;
    packed_types++;
    uint32_t words[9] = {0};
    uint16_t scale, bias;
    float wide_scale, wide_bias;
    assert_true(qn_gguf_group_pack(words, &scale, &bias, s->type, s->block, 1));
    qn_gguf_group_wide(&wide_scale, &wide_bias, s->type, s->block, 1);
    assert_true(qn_f16_to_f32(scale) == wide_scale);
    assert_true(qn_f16_to_f32(bias) == wide_bias);
    for (int i = 0; i < QN_GGUF_GROUP; i++) {
        uint32_t q = 0;
        for (int b = 0; b < bits; b++) {
            int at = i * bits + b;
            q |= (words[at / 32] >> at % 32 & 1) << b;
        }
        /* The sum of two products of few bits: one rounding away. */
        double value = (double)wide_scale * q + wide_bias;
        assert_true(fabs(value - (double)s->wanted[i]) <=
                    1e-6 * (fabs(value) + fabs((double)wide_bias)));
    }
}

static void test_packed_groups_have_the_same_values(void **state)
{
    (void)state;
    packed_types = 0;
    each_sample(check_packed);
    assert_int_equal(packed_types, 2 * 5);
}

static void check_super(const sample *s)
{
    const qn_gguf_super *super = qn_gguf_super_of(s->type);
    if (!super)
        return;
    packed_types++;
    assert_int_equal(super->bytes, s->bytes);
    uint32_t words[64 + 1] = {0};
    float scales[16], biases[16];
    uint8_t *exact = exact_copy(s->block, s->bytes);
    qn_gguf_super_pack(words, scales, biases, s->type, exact, 1);
    free(exact);
    for (int i = 0; i < QN_GGUF_BLOCK_MAX; i++) {
        int at = i * super->bits, g = i / super->group;
        uint64_t two = words[at / 32] | (uint64_t)words[at / 32 + 1] << 32;
        uint32_t q = (uint32_t)(two >> at % 32) & ((1u << super->bits) - 1);
        float value = super->zero >= 0
                          ? scales[g] * (float)((int)q - super->zero)
                          : scales[g] * (float)q + biases[g];
        assert_true(value == s->wanted[i]);
        assert_true(super->zero < 0 ||
                    biases[g] == (float)-super->zero * scales[g]);
    }
}

static void test_large_blocks_are_groups_of_the_same_values(void **state)
{
    (void)state;
    packed_types = 0;
    each_sample(check_super);
    assert_int_equal(packed_types, 2 * 5);
}

static void test_a_bias_beyond_float16_is_said(void **state)
{
    (void)state;
    uint8_t block[34] = {0};
    uint16_t d = qn_f32_to_f16(1000), scale, bias;
    uint32_t words[8];
    float wide_scale, wide_bias;
    memcpy(block, &d, 2);
    assert_false(
        qn_gguf_group_pack(words, &scale, &bias, QN_GGUF_Q8_0_T, block, 1));
    qn_gguf_group_wide(&wide_scale, &wide_bias, QN_GGUF_Q8_0_T, block, 1);
    assert_true(wide_scale == 1000 && wide_bias == -128000);
}

static void test_the_largest_exponent_of_mxfp4_is_nan(void **state)
{
    (void)state;
    uint8_t block[17] = {255, 0x71};
    float out[QN_GGUF_GROUP];
    qn_gguf_expand(out, QN_GGUF_MXFP4_T, block);
    assert_true(isnan(out[0]) && isnan(out[16]));
    block[0] = 0; /* half of 2^-127 is still a float */
    qn_gguf_expand(out, QN_GGUF_MXFP4_T, block);
    assert_true(out[0] == 0x1p-128f && out[16] == 6 * 0x1p-127f);
}

static void test_other_types_are_known_as_such(void **state)
{
    (void)state;
    static const int others[] = {QN_GGUF_F32_T,
                                 QN_GGUF_I8_T,
                                 QN_GGUF_Q8_1_T,
                                 QN_GGUF_Q8_K_T,
                                 QN_GGUF_IQ2_XXS_T,
                                 QN_GGUF_TQ1_0_T,
                                 99};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_false(qn_gguf_expands(others[i]));
        assert_int_equal(qn_gguf_group_bits(others[i]), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_blocks_expand_to_the_bits_of_the_format_s_package),
        cmocka_unit_test(test_packed_groups_have_the_same_values),
        cmocka_unit_test(test_large_blocks_are_groups_of_the_same_values),
        cmocka_unit_test(test_a_bias_beyond_float16_is_said),
        cmocka_unit_test(test_the_largest_exponent_of_mxfp4_is_nan),
        cmocka_unit_test(test_other_types_are_known_as_such),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
