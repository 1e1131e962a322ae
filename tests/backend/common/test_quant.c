/* Packed formats: codes against their definition, and the quantizers against
 * the reference implementation's answers (vectors/backend/quant.jsonl). */
#include "support/qn_nodes.h"

#include "backend/common/quant.h"
#include "base/json.h"

static void test_e2m1_codes(void **state)
{
    (void)state;
    const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    for (uint8_t code = 0; code < 16; code++) {
        float value = code & 8 ? -values[code & 7] : values[code & 7];
        assert_true(same_value((double)qn_e2m1_to_f32(code), (double)value));
        assert_int_equal(qn_f32_to_e2m1(value), code == 8 ? 0 : code);
    }
    /* Middles go to the smaller code, the rest to the nearest. */
    const float middles[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5};
    for (int i = 0; i < 7; i++) {
        assert_int_equal(qn_f32_to_e2m1(middles[i]), i);
        assert_int_equal(qn_f32_to_e2m1(nextafterf(middles[i], 0)), i);
        assert_int_equal(qn_f32_to_e2m1(nextafterf(middles[i], 9)), i + 1);
    }
    assert_int_equal(qn_f32_to_e2m1(INFINITY), 7);
    assert_int_equal(qn_f32_to_e2m1(-7), 15);
    assert_int_equal(qn_f32_to_e2m1(-0.2f), 0);
    assert_int_equal(qn_f32_to_e2m1(NAN), 0);
}

static void test_e4m3_codes(void **state)
{
    (void)state;
    for (int code = 0; code < 256; code++) {
        int e = code >> 3 & 15, f = code & 7;
        double size = e ? ldexp(1 + f / 8.0, e - 7) : ldexp(f / 8.0, -6);
        double value = code & 0x80 ? -size : size;
        float found = qn_e4m3_to_f32((uint8_t)code);
        assert_true(same_value((double)found, value));
        if ((code & 0x7f) == 0x7f) /* 480 is read but never written */
            continue;
        assert_int_equal(qn_f32_to_e4m3(found), code);
        if (code >= 0x7e)
            continue;
        /* Halfway to the next code, and just beside that. */
        float middle = (found + qn_e4m3_to_f32((uint8_t)(code + 1))) / 2;
        assert_int_equal(qn_f32_to_e4m3(middle), code + code % 2);
        assert_int_equal(qn_f32_to_e4m3(nextafterf(middle, 0)), code);
        assert_int_equal(qn_f32_to_e4m3(nextafterf(middle, 999)), code + 1);
    }
    assert_int_equal(qn_f32_to_e4m3(1e9f), 126);
    assert_int_equal(qn_f32_to_e4m3(-INFINITY), 254);
}

static void test_e8m0_codes(void **state)
{
    (void)state;
    assert_true(qn_e8m0_to_f32(127) == 1);
    assert_true(qn_e8m0_to_f32(0) == 0x1p-127f);
    assert_true(qn_e8m0_to_f32(254) == 0x1p127f);
    assert_true(isnan(qn_e8m0_to_f32(255)));
}

static void test_codes_survive_packing(void **state)
{
    (void)state;
    const int widths[] = {2, 3, 4, 5, 6, 8};
    uint64_t seed = 5;
    for (int w = 0; w < 6; w++) {
        uint8_t codes[96], found[96];
        uint32_t row[24];
        int bits = widths[w];
        for (int i = 0; i < 96; i++)
            codes[i] =
                (uint8_t)((int)(127 + 127 * test_random(&seed)) % (1 << bits));
        qn_quant_pack(row, codes, 96, bits);
        /* Element k is at bits [k * bits, (k + 1) * bits) of the stream. */
        for (int i = 0; i < 96; i++)
            for (int bit = 0; bit < bits; bit++) {
                int at = i * bits + bit;
                assert_int_equal(row[at / 32] >> (at % 32) & 1,
                                 codes[i] >> bit & 1);
            }
        qn_quant_unpack(found, row, 0, 96, bits);
        assert_memory_equal(found, codes, 96);
        qn_quant_unpack(found, row, 37, 50, bits);
        assert_memory_equal(found, codes + 37, 50);
    }
}

static void test_group_of_zeros_has_the_smallest_scale(void **state)
{
    (void)state;
    float w[32] = {0}, scale, bias;
    uint8_t codes[32];
    qn_quant_affine_group(codes, &scale, &bias, w, 32, 4);
    assert_true(scale == -1e-7f);
    assert_true(bias == 0);
    for (int i = 0; i < 32; i++)
        assert_int_equal(codes[i], 0);
}

static void test_hostile_weights_give_codes_in_range(void **state)
{
    (void)state;
    float w[32], scale, bias;
    uint8_t codes[32], byte;
    for (int i = 0; i < 32; i++)
        w[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY;
    qn_quant_affine_group(codes, &scale, &bias, w, 32, 3);
    for (int i = 0; i < 32; i++)
        assert_in_range(codes[i], 0, 7);
    qn_quant_float_group(codes, &byte, w, 32, QN_QUANT_MXFP4, 0);
    for (int i = 0; i < 32; i++)
        assert_in_range(codes[i], 0, 15);
}

/* ---- the reference implementation's answers ---- */

static double number_at(const qn_json *data, size_t i)
{
    /* Leaves of nested lists, counted in order. */
    while (data->type == QN_JSON_T_ARRAY) {
        const qn_json *leaf = data;
        size_t below = 1;
        while (leaf->items[0].type == QN_JSON_T_ARRAY) {
            leaf = &leaf->items[0];
            below *= leaf->count;
        }
        data = &data->items[i / below];
        i %= below;
    }
    double value = 0;
    assert_true(qn_json_as_double(data, &value));
    return value;
}

static size_t dim_of(const qn_json *array, size_t axis)
{
    int64_t value = 0;
    assert_true(
        qn_json_as_int(qn_json_at(qn_json_get(array, "shape"), axis), &value));
    return (size_t)value;
}

static const qn_json *expected_of(const qn_json *c, size_t i)
{
    return qn_json_get(qn_json_at(qn_json_get(c, "expect"), i), "data");
}

static void check_quantize(const qn_json *c, qn_quant_mode mode, int bits,
                           size_t group)
{
    const qn_json *w = qn_json_get(qn_json_get(c, "inputs"), "w");
    const qn_json *data = qn_json_get(w, "data");
    size_t rows = dim_of(w, 0), n = dim_of(w, 1), words = n * (size_t)bits / 32;
    for (size_t row = 0; row < rows; row++) {
        uint8_t codes[256];
        uint32_t packed[64];
        for (size_t g = 0; g < n / group; g++) {
            float from[128], scale, bias;
            uint8_t byte;
            size_t at = row * (n / group) + g;
            for (size_t i = 0; i < group; i++)
                from[i] = (float)number_at(data, row * n + g * group + i);
            if (mode == QN_QUANT_AFFINE) {
                qn_quant_affine_group(codes + g * group, &scale, &bias, from,
                                      group, bits);
                /* The file gives 8 digits: equal after rounding to float. */
                assert_true(scale == (float)number_at(expected_of(c, 1), at));
                assert_true(bias == (float)number_at(expected_of(c, 2), at));
            } else {
                qn_quant_float_group(codes + g * group, &byte, from, group,
                                     mode, 0);
                assert_true(byte == number_at(expected_of(c, 1), at));
            }
        }
        qn_quant_pack(packed, codes, n, bits);
        for (size_t i = 0; i < words; i++)
            assert_int_equal(packed[i],
                             number_at(expected_of(c, 0), row * words + i));
    }
}

static void test_quantizers_equal_the_reference(void **state)
{
    (void)state;
    char line[1 << 15];
    FILE *file = fopen(QN_TEST_VECTORS "/backend/quant.jsonl", "r");
    int seen = 0;
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        qn_json_doc *doc;
        qn_str id;
        check_status(qn_json_parse(&doc, qn_str_of(line), 0), QN_OK);
        const qn_json *c = qn_json_root(doc);
        assert_true(qn_json_as_str(qn_json_get(c, "id"), &id));
        seen++;
        if (qn_str_is(id, "quant/quantize/affine/b4-g32/float32"))
            check_quantize(c, QN_QUANT_AFFINE, 4, 32);
        else if (qn_str_is(id, "quant/quantize/mxfp4/float32/given"))
            check_quantize(c, QN_QUANT_MXFP4, 4, 32);
        else if (qn_str_is(id, "quant/quantize/mxfp8/float32/given"))
            check_quantize(c, QN_QUANT_MXFP8, 8, 32);
        else if (qn_str_is(id, "quant/quantize/nvfp4/float32/given"))
            check_quantize(c, QN_QUANT_NVFP4, 4, 16);
        else
            seen--;
        qn_json_doc_free(doc);
    }
    fclose(file);
    assert_int_equal(seen, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_e2m1_codes),
        cmocka_unit_test(test_e4m3_codes),
        cmocka_unit_test(test_e8m0_codes),
        cmocka_unit_test(test_codes_survive_packing),
        cmocka_unit_test(test_group_of_zeros_has_the_smallest_scale),
        cmocka_unit_test(test_hostile_weights_give_codes_in_range),
        cmocka_unit_test(test_quantizers_equal_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
