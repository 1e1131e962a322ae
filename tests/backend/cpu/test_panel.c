/* Products in 8-bit integers: every kernel against the formula of panel.h,
 * bit for bit. */
#include "support/qn_cpu_test.h"

#include "backend/common/panel.h"
#include "backend/common/quant.h"
#include "backend/cpu/kernels/panel/panel.h"
#include "base/f16.h"
#include "base/gguf.h"
#include "base/gguf_blocks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { K = 416 /* odd in groups of 32 */, ROWS = 13, TILE = QN_PANEL_FULL };

typedef struct sample {
    qn_panel_form form;
    size_t k;
    uint8_t *codes; /* values, where there is a table */
    uint16_t *half_scales, *half_biases;
    uint8_t *byte_scales;
    float *scales, *biases; /* what they are worth */
    float *x;               /* [TILE, k] */
    uint8_t *panel;
} sample;

static uint64_t seed = 7;

/* Scales of one byte, the ends of their range among them. */
static void byte_factors(const qn_panel_form *form, float *worth,
                         uint8_t *stored, size_t count)
{
    bool e8m0 = form->scaling == QN_PANEL_E8M0;
    for (size_t i = 0; i < count; i++) {
        stored[i] = (uint8_t)(e8m0 ? 120 + i % 9 : i * 37);
        if (e8m0 && i % 11 == 0)
            stored[i] = i % 2 ? 0 : 200;
        worth[i] = 0.5f * (e8m0 ? qn_e8m0_to_f32(stored[i])
                                : qn_e4m3_to_f32(stored[i]));
    }
}

static void factors(const qn_panel_form *form, float *worth, uint16_t *stored,
                    size_t count)
{
    for (size_t i = 0; i < count; i++) {
        worth[i] = (float)(test_random(&seed) * 0.01);
        if (form->scale_type == QN_FLOAT16)
            worth[i] = qn_f16_to_f32(stored[i] = qn_f32_to_f16(worth[i]));
        if (form->scale_type == QN_BFLOAT16)
            worth[i] = qn_bf16_to_f32(stored[i] = qn_f32_to_bf16(worth[i]));
    }
}

static sample sample_make(qn_panel_form form, size_t k)
{
    size_t groups = ROWS * k / (size_t)form.group;
    sample s = {
        .form = form,
        .k = k,
        .codes = malloc(ROWS * k),
        .scales = calloc(groups, 4),
        .biases = calloc(groups, 4),
        .half_scales = calloc(groups, 2),
        .half_biases = calloc(groups, 2),
        .byte_scales = calloc(groups, 1),
        .x = calloc(TILE * k, 4),
        .panel = aligned_alloc(64, (qn_panel_bytes(&form, k) + 63) / 64 * 64)};
    for (size_t i = 0; i < ROWS * k; i++)
        s.codes[i] = (uint8_t)((uint64_t)(fabs(test_random(&seed)) * 1e6) &
                               ((1u << form.bits) - 1));
    /* The extremes, side by side. */
    memset(s.codes, (1 << form.bits) - 1, 64);
    for (size_t i = 0; i < TILE * k; i++)
        s.x[i] = i < 64 ? 3.0f : (float)test_random(&seed);
    s.x[k + 3] = 0.0f;
    memset(s.x + 2 * k + 32, 0, 32 * sizeof *s.x);
    bool bytes = form.scaling != QN_PANEL_FLOATS;
    if (bytes)
        byte_factors(&form, s.scales, s.byte_scales, groups);
    else
        factors(&form, s.scales, s.half_scales, groups);
    factors(&form, s.biases, s.half_biases, groups);
    bool wide = form.scale_type == QN_FLOAT32;
    size_t words = k * (size_t)form.bits / 32;
    int64_t row = (int64_t)(k / (size_t)form.group * qn_panel_item(&form));
    uint32_t *stream = calloc(ROWS * words, 4);
    for (size_t r = 0; r < ROWS; r++)
        qn_quant_pack(stream + r * words, s.codes + r * k, k, form.bits);
    qn_panel_source source = {.rows = ROWS,
                              .k = k,
                              .words = (char *)stream,
                              .word_step = (int64_t)words * 4,
                              .scales = bytes  ? (char *)s.byte_scales
                                        : wide ? (char *)s.scales
                                               : (char *)s.half_scales,
                              .scale_step = row,
                              .biases = wide ? (char *)s.biases
                                             : (char *)s.half_biases,
                              .bias_step = row};
    qn_panel_pack(s.panel, &form, &source);
    free(stream);
    const uint8_t *table = qn_panel_table_of(&form);
    for (size_t i = 0; i < ROWS * k && table; i++)
        s.codes[i] = table[s.codes[i]];
    return s;
}

static void sample_free(sample *s)
{
    void *all[] = {s->codes,  s->half_scales, s->half_biases, s->scales,
                   s->biases, s->x,           s->panel,       s->byte_scales};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

/* Row `row` of x times row `n` of w, as panel.h says it. */
static float formula(const sample *s, size_t row, size_t n)
{
    const qn_panel_form *f = &s->form;
    const float *x = s->x + row * s->k;
    size_t unit = qn_panel_unit(f), groups = s->k / (size_t)f->group;
    float acc = 0;
    for (size_t e = 0; e < s->k; e += unit) {
        float top = 0, d;
        const float *step = x + e / 32 * 32;
        for (size_t i = 0; i < 32; i++)
            top = fmaxf(top, fabsf(step[i]));
        d = top / qn_panel_top(f);
        int sum = 0, plain = 0;
        for (size_t i = e; i < e + unit; i++) {
            int q = top > 0 ? (int)rintf(x[i] * (qn_panel_top(f) / top)) : 0;
            int c = s->codes[n * s->k + i];
            sum += (f->biased ? c : c - f->zero) * q;
            plain += q;
        }
        size_t g = n * groups + e / (size_t)f->group;
        float factor = s->scales[g] * d;
        acc = fmaf((float)sum, factor, acc);
        if (f->biased)
            acc = fmaf(s->biases[g], d * (float)plain, acc);
    }
    return acc;
}

static void check_rows(const qn_panel_kernel *kernel, const sample *s,
                       size_t rows)
{
    float out[TILE * QN_PANEL_ROWS];
    void *memory = aligned_alloc(64, qn_panel_x_bytes(&s->form, s->k, rows));
    /* What stands there before does not count. */
    memset(memory, 0xff, qn_panel_x_bytes(&s->form, s->k, rows));
    for (size_t r = 0; r < rows; r++)
        kernel->quantize(memory, &s->form, s->x + r * s->k, s->k, 0, s->k, r,
                         rows);
    qn_panel_x x = qn_panel_x_at(memory, s->k, rows);
    kernel->run(out, &s->form, s->panel, &x, s->k);
    for (size_t r = 0; r < rows; r++) {
        for (size_t n = 0; n < QN_PANEL_ROWS; n++) {
            float expected = n < ROWS ? formula(s, r, n) : 0.0f;
            float found = out[r * QN_PANEL_ROWS + n];
            if (memcmp(&expected, &found, 4) != 0)
                fail_msg("%d bits, group %d, %s, %zu rows: row %zu column %zu: "
                         "expected %a, found %a",
                         s->form.bits, s->form.group,
                         s->form.biased ? "biased" : "zero", rows, r, n,
                         (double)expected, (double)found);
        }
    }
    free(memory);
}

#ifdef QN_TEST_EVEX
extern const qn_panel_kernel qn_panel_evex;
#endif

static void each_kernel(void (*check)(const qn_panel_kernel *kernel))
{
    bool picked = false;
    for (int isa = QN_ISA_NONE; isa < QN_ISA_COUNT; isa++) {
        const qn_panel_kernel *kernel = qn_panel_at((qn_isa)isa);
        if (kernel)
            check(kernel);
        picked |= kernel == qn_panel_pick();
    }
#ifdef QN_TEST_EVEX
    /* The body of AVX-VNNI in instructions that more processors have. */
    if (qn_cpu_levels() >> QN_ISA_AVX512_VNNI & 1)
        check(&qn_panel_evex);
#endif
    assert_true(picked);
}

static void check_forms(const qn_panel_kernel *kernel)
{
    static const int widths[] = {2, 3, 4, 5, 6, 8};
    static const qn_dtype types[] = {QN_FLOAT32, QN_FLOAT16, QN_BFLOAT16};
    for (size_t w = 0; w < 6; w++) {
        for (int group = 16; group <= 128; group *= 2) {
            for (int t = 0; t < 6; t++) {
                qn_panel_form form = {.bits = widths[w],
                                      .group = group,
                                      .biased = t & 1,
                                      .zero = 1 << (widths[w] - 1),
                                      .scale_type = types[t / 2]};
                sample s = sample_make(form, group > 32 ? 384 : K);
                for (size_t rows = 1; rows <= kernel->tile;
                     rows += rows < 4 ? 1 : rows)
                    check_rows(kernel, &s, rows);
                sample_free(&s);
            }
        }
    }
}

/* Tiles one after the other have the bits that each has alone. */
static void check_tiles(const qn_panel_kernel *kernel, const sample *s)
{
    enum { COUNT = 3, FLOATS = TILE * QN_PANEL_ROWS };
    float all[COUNT * FLOATS], one[FLOATS];
    const size_t tile = kernel->tile, floats = tile * QN_PANEL_ROWS;
    void *memory[COUNT];
    qn_panel_x x[COUNT];
    for (size_t t = 0; t < COUNT; t++) {
        memory[t] = aligned_alloc(64, qn_panel_x_bytes(&s->form, s->k, tile));
        for (size_t r = 0; r < tile; r++)
            kernel->quantize(memory[t], &s->form, s->x + (r + t) % TILE * s->k,
                             s->k, 0, s->k, r, tile);
        x[t] = qn_panel_x_at(memory[t], s->k, tile);
    }
    kernel->run_tiles(all, &s->form, s->panel, x, COUNT, s->k);
    for (size_t t = 0; t < COUNT; t++) {
        kernel->run(one, &s->form, s->panel, &x[t], s->k);
        assert_memory_equal(one, all + t * floats, floats * sizeof *one);
        free(memory[t]);
    }
}

/* Longer than what a kernel may work at in one piece. */
static void check_long(const qn_panel_kernel *kernel)
{
    static const qn_panel_form forms[] = {
        {.bits = 4, .group = 32, .zero = 8, .scale_type = QN_FLOAT16},
        {.bits = 4, .group = 64, .biased = true, .scale_type = QN_BFLOAT16},
        {.bits = 6, .group = 16, .zero = 32, .scale_type = QN_FLOAT32},
        {.bits = 8, .group = 128, .zero = 128, .scale_type = QN_FLOAT16},
    };
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        sample s = sample_make(forms[f], 2 * 2048 + 384);
        check_rows(kernel, &s, kernel->tile);
        check_rows(kernel, &s, 1);
        if (kernel->run_tiles)
            check_tiles(kernel, &s);
        sample_free(&s);
    }
}

static const qn_panel_form byte_forms[] = {
    {4, 32, false, 12, QN_FLOAT16, QN_PANEL_E8M0, QN_PANEL_E2M1}, /* mxfp4 */
    {4, 16, false, 12, QN_FLOAT16, QN_PANEL_E4M3, QN_PANEL_E2M1}, /* nvfp4 */
};

static void check_byte_forms(const qn_panel_kernel *kernel)
{
    for (size_t i = 0; i < 2; i++) {
        sample s = sample_make(byte_forms[i], K);
        for (size_t rows = 1; rows <= kernel->tile; rows += rows < 4 ? 1 : rows)
            check_rows(kernel, &s, rows);
        sample_free(&s);
    }
}

/* A row of a panel as floats. */
static void check_panel_row(const qn_panel_kernel *kernel, const sample *s,
                            size_t n, const float *expected)
{
    float *scales = calloc(s->k, 4), *biases = calloc(s->k, 4);
    float *found = calloc(s->k, 4);
    qn_panel_factors(scales, biases, s->panel, &s->form, s->k, n);
    kernel->row(found, &s->form, s->panel, s->k, n, scales, biases);
    for (size_t e = 0; e < s->k; e++)
        if (expected[e] != found[e])
            fail_msg("%d bits, group %d: row %zu element %zu: expected %a, "
                     "found %a",
                     s->form.bits, s->form.group, n, e, (double)expected[e],
                     (double)found[e]);
    free(scales);
    free(biases);
    free(found);
}

static const int block_types[] = {
    QN_GGUF_Q4_0_T,  QN_GGUF_Q4_1_T, QN_GGUF_Q5_0_T,   QN_GGUF_Q5_1_T,
    QN_GGUF_Q8_0_T,  QN_GGUF_Q2_K_T, QN_GGUF_Q3_K_T,   QN_GGUF_Q4_K_T,
    QN_GGUF_Q5_K_T,  QN_GGUF_Q6_K_T, QN_GGUF_IQ4_NL_T, QN_GGUF_IQ4_XS_T,
    QN_GGUF_MXFP4_T,
};
enum { BLOCK_TYPES = sizeof block_types / sizeof block_types[0] };

/* Blocks of any bytes, but with scales that are numbers of a sensible size. */
static uint8_t *random_blocks(int type, size_t count)
{
    size_t bytes, elements;
    assert_true(qn_gguf_type_block(type, &bytes, &elements));
    uint8_t *data = malloc(count * bytes);
    for (size_t i = 0; i < count * bytes; i++)
        data[i] = (uint8_t)(uint64_t)(fabs(test_random(&seed)) * 1e6);
    for (size_t i = 0; i < count; i++) {
        uint8_t *b = data + i * bytes;
        uint16_t d = qn_f32_to_f16((float)test_random(&seed) * 0.01f);
        uint16_t m = qn_f32_to_f16((float)test_random(&seed) * 0.1f);
        size_t at = type == QN_GGUF_Q2_K_T   ? 80
                    : type == QN_GGUF_Q3_K_T ? 108
                    : type == QN_GGUF_Q6_K_T ? 208
                                             : 0;
        if (type == QN_GGUF_MXFP4_T) {
            b[0] = (uint8_t)(120 + i % 9);
            continue;
        }
        memcpy(b + at, &d, 2);
        if (type == QN_GGUF_Q4_1_T || type == QN_GGUF_Q5_1_T ||
            type == QN_GGUF_Q2_K_T || type == QN_GGUF_Q4_K_T ||
            type == QN_GGUF_Q5_K_T)
            memcpy(b + at + 2, &m, 2);
    }
    return data;
}

/* Of a type with nested scales: what it is with a float32 scale (and bias) for
 * each group, which the formula then takes. */
static void widen_super(sample *s, int type, const uint8_t *data)
{
    const qn_gguf_super *super = qn_gguf_super_of(type);
    size_t blocks = s->k / 256, groups = s->k / (size_t)super->group;
    uint32_t *words = malloc(s->k);
    for (size_t r = 0; r < ROWS; r++, data += blocks * super->bytes) {
        qn_gguf_super_pack(words, s->scales + r * groups,
                           s->biases + r * groups, type, data, blocks);
        qn_quant_unpack(s->codes + r * s->k, words, 0, s->k, super->bits);
    }
    free(words);
}

/* Of other types: scales by their definition, and codes that the values of the
 * format's package divided by them give. */
static void widen_values(sample *s, int type, const uint8_t *data, size_t bytes)
{
    size_t group = (size_t)s->form.group, groups = ROWS * s->k / group;
    for (size_t g = 0; g < groups; g++) {
        qn_gguf_split split;
        size_t per = type == QN_GGUF_IQ4_XS_T ? 8 : 1;
        qn_gguf_split_block(&split, type, data + g / per * bytes);
        float d = qn_f16_to_f32(split.d);
        s->scales[g] = type == QN_GGUF_MXFP4_T
                           ? 0.5f * qn_e8m0_to_f32((uint8_t)split.scales[0])
                       : per > 1 ? d * (float)split.scales[g % per]
                                 : d;
        s->biases[g] = s->form.biased ? qn_f16_to_f32(split.m) : 0;
        const uint8_t *table = qn_panel_table_of(&s->form);
        for (size_t i = 0; i < group; i++) {
            uint8_t code = split.codes[g % per * group + i];
            s->codes[g * group + i] = table ? table[code] : code;
        }
    }
}

static sample sample_of_blocks(int type, uint8_t **blocks)
{
    qn_panel_form form;
    size_t bytes, elements, k = 512;
    assert_true(qn_panel_form_of(&form, type));
    assert_true(qn_gguf_type_block(type, &bytes, &elements));
    sample s = sample_make((qn_panel_form){form.bits, form.group, form.biased,
                                           form.biased ? 0 : 1, QN_FLOAT32,
                                           QN_PANEL_FLOATS, QN_PANEL_CODES},
                           k);
    s.form = form;
    *blocks = random_blocks(type, ROWS * k / elements);
    if (qn_gguf_super_of(type))
        widen_super(&s, type, *blocks);
    else
        widen_values(&s, type, *blocks, bytes);
    const uint8_t *rows[ROWS];
    for (size_t r = 0; r < ROWS; r++)
        rows[r] = *blocks + r * (k / elements) * bytes;
    free(s.panel);
    s.panel = aligned_alloc(64, (qn_panel_bytes(&form, k) + 63) / 64 * 64);
    qn_panel_pack_blocks(s.panel, &form, type, rows, ROWS, k);
    return s;
}

static void check_blocks(const qn_panel_kernel *kernel)
{
    for (size_t i = 0; i < BLOCK_TYPES; i++) {
        size_t bytes, elements;
        uint8_t *blocks;
        sample s = sample_of_blocks(block_types[i], &blocks);
        for (size_t rows = 1; rows <= kernel->tile; rows += rows < 4 ? 1 : rows)
            check_rows(kernel, &s, rows);
        assert_true(qn_gguf_type_block(block_types[i], &bytes, &elements));
        float *expected = calloc(s.k, 4);
        for (size_t r = 0; r < ROWS; r++) {
            for (size_t e = 0; e < s.k; e += elements)
                qn_gguf_expand(expected + e, block_types[i],
                               blocks + (r * s.k + e) / elements * bytes);
            check_panel_row(kernel, &s, r, expected);
        }
        free(expected);
        free(blocks);
        sample_free(&s);
    }
}

/* Nested scales give the bits of float32 scales for each group. */
static void test_blocks_are_multiplied_as_their_wide_form(void **state)
{
    (void)state;
    each_kernel(check_blocks);
}

static void test_long_rows(void **state)
{
    (void)state;
    each_kernel(check_long);
}

static void test_scales_of_a_byte(void **state)
{
    (void)state;
    each_kernel(check_byte_forms);
}

/* All that a panel has over the bytes of its blocks. */
static void test_panels_are_hardly_larger_than_blocks(void **state)
{
    (void)state;
    for (size_t i = 0; i < BLOCK_TYPES; i++) {
        qn_panel_form form;
        size_t bytes, elements, k = 2048;
        assert_true(qn_panel_form_of(&form, block_types[i]));
        assert_true(qn_gguf_type_block(block_types[i], &bytes, &elements));
        double ratio = (double)qn_panel_bytes(&form, k) /
                       (double)(QN_PANEL_ROWS * k / elements * bytes);
        print_message("%-6s %.4f of its blocks\n",
                      qn_gguf_type_name(block_types[i]), ratio);
        assert_true(ratio <= 1.06);
    }
}

static void test_every_form_follows_the_formula(void **state)
{
    (void)state;
    each_kernel(check_forms);
}

static void check_not_finite(const qn_panel_kernel *kernel)
{
    qn_panel_form form = {
        .bits = 4, .group = 32, .zero = 8, .scale_type = QN_FLOAT16};
    const float values[] = {NAN, INFINITY, -INFINITY};
    /* Among ordinary numbers, among zeros, beside an infinity. */
    for (size_t i = 0; i < 9; i++) {
        sample s = sample_make(form, K);
        for (size_t e = 32; e < 64 && i / 3 == 1; e++)
            s.x[e] = 0;
        s.x[40] = values[i % 3];
        s.x[63] = i / 3 == 2 ? INFINITY : s.x[63];
        void *memory = aligned_alloc(64, qn_panel_x_bytes(&form, K, 2));
        float out[2 * QN_PANEL_ROWS];
        for (size_t r = 0; r < 2; r++)
            kernel->quantize(memory, &form, s.x + r * K, K, 0, K, r, 2);
        qn_panel_x x = qn_panel_x_at(memory, K, 2);
        kernel->run(out, &form, s.panel, &x, K);
        for (size_t n = 0; n < ROWS; n++) {
            assert_true(isnan(out[n]));
            assert_true(isfinite(out[QN_PANEL_ROWS + n]));
        }
        free(memory);
        sample_free(&s);
    }
}

static void test_what_is_not_finite_spoils_its_row_alone(void **state)
{
    (void)state;
    each_kernel(check_not_finite);
}

static void check_tiny(const qn_panel_kernel *kernel)
{
    qn_panel_form form = {
        .bits = 8, .group = 32, .zero = 128, .scale_type = QN_FLOAT32};
    sample s = sample_make(form, K);
    for (size_t i = 0; i < K; i++)
        s.x[i] = 1e-38f;
    void *memory = aligned_alloc(64, qn_panel_x_bytes(&form, K, 1));
    float out[QN_PANEL_ROWS];
    kernel->quantize(memory, &form, s.x, K, 0, K, 0, 1);
    qn_panel_x x = qn_panel_x_at(memory, K, 1);
    kernel->run(out, &form, s.panel, &x, K);
    for (size_t n = 0; n < QN_PANEL_ROWS; n++)
        assert_true(out[n] == 0.0f);
    free(memory);
    sample_free(&s);
}

static void test_what_is_too_small_is_zero(void **state)
{
    (void)state;
    each_kernel(check_tiny);
}

static void check_silu(const qn_panel_kernel *kernel)
{
    float gate[32], up[32], out[32];
    for (int i = 0; i < 32; i++) {
        gate[i] = (float)(test_random(&seed) * 20);
        up[i] = (float)test_random(&seed);
    }
    kernel->silu(out, gate, up, 32);
    for (int i = 0; i < 32; i++) {
        double g = (double)gate[i],
               expected = g / (1 + exp(-g)) * (double)up[i];
        assert_true(fabs((double)out[i] - expected) <=
                    5e-7 * fabs(expected) + 1e-30);
    }
}

static void check_gelu(const qn_panel_kernel *kernel)
{
    float gate[32], up[32], out[32];
    for (int i = 0; i < 32; i++) {
        gate[i] = (float)(test_random(&seed) * 8);
        up[i] = (float)test_random(&seed);
    }
    kernel->gelu(out, gate, up, 32);
    for (int i = 0; i < 32; i++) {
        double g = (double)gate[i];
        double u = sqrt(8 / acos(-1)) * (g + 0.044715 * g * g * g);
        double expected = g / (1 + exp(-u)) * (double)up[i];
        assert_true(fabs((double)out[i] - expected) <=
                    (1e-6 + 1e-7 * fabs(u)) * fabs(expected) + 1e-30);
    }
}

static void test_the_gates(void **state)
{
    (void)state;
    each_kernel(check_silu);
    each_kernel(check_gelu);
}

/* ---- nodes ---- */

enum { PARTS = 3, COLS = 160 };
static const int part_rows[PARTS] = {20, 7, 32};

/* Packed matrices, and the panels of the first `count` of them. */
typedef struct weights {
    qn_panel_form form;
    int count;
    qn_array *w[PARTS], *scales[PARTS], *biases[PARTS], *panels;
} weights;

static qn_array *random_matrix(qn_dtype dtype, int rows, int cols, double size)
{
    double *values = malloc((size_t)rows * (size_t)cols * sizeof *values);
    for (int i = 0; i < rows * cols; i++) {
        double value = test_random(&seed);
        values[i] = dtype == QN_UINT32 ? floor(fabs(value) * 4294967295.0)
                                       : value * size;
    }
    qn_array *a = array_of(dtype, values, SHAPE(rows, cols));
    free(values);
    return a;
}

static qn_array *evaluated(qn_array *array)
{
    check_status(qn_eval(&array, 1), QN_OK);
    return array;
}

static weights weights_make(qn_panel_form form, int count, const int *rows)
{
    weights m = {.form = form, .count = count};
    for (int i = 0; i < count; i++) {
        m.w[i] = random_matrix(QN_UINT32, rows[i], COLS * form.bits / 32, 1);
        m.scales[i] =
            random_matrix(form.scale_type, rows[i], COLS / form.group, 0.01);
        m.biases[i] =
            random_matrix(form.scale_type, rows[i], COLS / form.group, 0.1);
    }
    check_status(qn_op_panel_pack(&m.panels, &form, (size_t)count, m.w,
                                  m.scales, form.biased ? m.biases : NULL,
                                  test_stream()),
                 QN_OK);
    evaluated(m.panels);
    return m;
}

static void weights_free(weights *m)
{
    for (int i = 0; i < m->count; i++) {
        qn_array_unref(m->w[i]);
        qn_array_unref(m->scales[i]);
        qn_array_unref(m->biases[i]);
    }
    qn_array_unref(m->panels);
}

static qn_panel_matmul_params params_of(const weights *m, const int *rows)
{
    qn_panel_matmul_params p = {
        .w = {.form = m->form, .count = m->count, .cols = COLS}, .eps = 1e-5f};
    memcpy(p.w.rows, rows, (size_t)m->count * sizeof *rows);
    return p;
}

/* The results of the registered backend. */
static void product(qn_array **out, const weights *m,
                    const qn_panel_matmul_params *p, qn_array *x,
                    qn_array *norm, qn_array *residual)
{
    check_status(
        qn_op_panel_matmul(out, x, m->panels, norm, residual, p, test_stream()),
        QN_OK);
    for (int i = 0; i < (p->gate ? 1 : p->w.count); i++)
        evaluated(out[i]);
}

static const qn_panel_form forms[] = {
    {.bits = 4, .group = 32, .biased = true, .scale_type = QN_FLOAT16},
    {.bits = 8, .group = 32, .zero = 128, .scale_type = QN_FLOAT16},
    {.bits = 6, .group = 16, .zero = 32, .scale_type = QN_FLOAT32},
    {.bits = 5, .group = 32, .biased = true, .scale_type = QN_BFLOAT16},
    {.bits = 3, .group = 32, .zero = 4, .scale_type = QN_BFLOAT16},
};
enum { FORMS = sizeof forms / sizeof forms[0] };

static void test_packing_is_that_of_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < FORMS; i++) {
        use_fast();
        weights fast = weights_make(forms[i], PARTS, part_rows);
        use_reference();
        qn_array *plain = NULL;
        qn_array *columns = strided(qn_array_ref(fast.w[0]));
        qn_array *w[] = {columns, fast.w[1], fast.w[2]};
        check_status(qn_op_panel_pack(&plain, &forms[i], PARTS, w, fast.scales,
                                      forms[i].biased ? fast.biases : NULL,
                                      test_stream()),
                     QN_OK);
        assert_true(same_bits(evaluated(plain), fast.panels));
        qn_array_unref(plain);
        qn_array_unref(columns);
        weights_free(&fast);
    }
}

static void test_products_are_those_of_the_reference(void **state)
{
    (void)state;
    static const int counts[] = {1, 3, 7, 8, 9, 15, 31, 71, 151};
    for (int i = 0; i < FORMS; i++) {
        use_fast();
        weights m = weights_make(forms[i], PARTS, part_rows);
        qn_panel_matmul_params p = params_of(&m, part_rows);
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            qn_dtype type = float_types[c % FLOAT_TYPES];
            qn_array *x = random_matrix(type, counts[c], COLS, 2);
            qn_array *expected[PARTS], *found[PARTS];
            use_reference();
            product(expected, &m, &p, x, NULL, NULL);
            use_fast();
            for (int t = 0; t < THREAD_COUNTS; t++) {
                qn_pool_set_threads(thread_counts[t]);
                product(found, &m, &p, x, NULL, NULL);
                for (int part = 0; part < PARTS; part++) {
                    assert_true(same_bits(found[part], expected[part]));
                    qn_array_unref(found[part]);
                }
            }
            qn_pool_set_threads(0);
            for (int part = 0; part < PARTS; part++)
                qn_array_unref(expected[part]);
            qn_array_unref(x);
        }
        weights_free(&m);
    }
}

typedef struct told {
    const uint8_t *data;
    size_t size;
    size_t bytes; /* told of so far, by any thread */
} told;

static void note_done(void *ctx, const void *data, size_t size)
{
    told *t = ctx;
    size_t at = (size_t)((const uint8_t *)data - t->data);
    assert_true(at < t->size && size <= t->size - at);
    __atomic_fetch_add(&t->bytes, size, __ATOMIC_RELAXED);
}

/* Two matrices of blocks, the second with its rows turned round. */
static void test_blocks_are_laid_out_as_by_the_reference(void **state)
{
    (void)state;
    enum { N = 40 };
    uint32_t turned[N];
    for (uint32_t i = 0; i < N; i++)
        turned[i] = N - 1 - i;
    for (size_t i = 0; i < BLOCK_TYPES; i++) {
        size_t bytes, elements;
        assert_true(qn_gguf_type_block(block_types[i], &bytes, &elements));
        size_t size = N * (512 / elements) * bytes;
        uint8_t *data = random_blocks(block_types[i], N * 512 / elements);
        told t = {.data = data, .size = size};
        qn_panel_blocks_params p = {
            .w = {.count = 2, .cols = 512, .rows = {N, N - 7}},
            .type = block_types[i],
            .from = {{data, NULL}, {data, turned}},
            .done = note_done,
            .ctx = &t};
        qn_array *fast, *plain;
        use_fast();
        check_status(qn_op_panel_blocks(&fast, &p, test_stream()), QN_OK);
        evaluated(fast);
        assert_int_equal(t.bytes, size + size / N * (N - 7));
        use_reference();
        check_status(qn_op_panel_blocks(&plain, &p, test_stream()), QN_OK);
        assert_true(same_bits(evaluated(plain), fast));
        qn_array_unref(fast);
        qn_array_unref(plain);
        p.w.cols = 512 - 16;
        check_error(qn_op_panel_blocks(&fast, &p, test_stream()), QN_E_ARG,
                    "found 496");
        free(data);
    }
}

/* Rows made floats by a kernel and by the reference, in every type. */
static void test_rows_are_those_of_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < FORMS; i++) {
        use_fast();
        weights m = weights_make(forms[i], 1, part_rows);
        qn_panel_params p = {
            .form = forms[i], .count = 1, .cols = COLS, .rows = {part_rows[0]}};
        qn_array *ids =
            array_of(QN_INT32, VALUES(0, 19, -1, 7, -20, 16), SHAPE(2, 3));
        for (int t = 0; t < FLOAT_TYPES; t++) {
            qn_array *fast, *plain;
            use_fast();
            check_status(qn_op_panel_rows(&fast, m.panels, ids, &p,
                                          float_types[t], test_stream()),
                         QN_OK);
            evaluated(fast);
            use_reference();
            check_status(qn_op_panel_rows(&plain, m.panels, ids, &p,
                                          float_types[t], test_stream()),
                         QN_OK);
            assert_true(same_bits(evaluated(plain), fast));
            qn_array_unref(fast);
            qn_array_unref(plain);
        }
        qn_array_unref(ids);
        weights_free(&m);
    }
}

static void test_a_row_has_the_bits_it_has_alone(void **state)
{
    (void)state;
    enum { M = 75 };
    use_fast();
    weights m = weights_make(forms[0], 1, part_rows);
    qn_panel_matmul_params p = params_of(&m, part_rows);
    qn_array *x = random_matrix(QN_FLOAT32, M, COLS, 1), *all, *one;
    qn_array *norm = random_matrix(QN_FLOAT32, 1, COLS, 1);
    qn_array *weight = view_of(norm, SHAPE(COLS), (int64_t[]){1}, 0);
    product(&all, &m, &p, x, weight, NULL);
    for (int r = 0; r < M; r++) {
        qn_array *row =
            view_of(x, SHAPE(1, COLS), (int64_t[]){COLS, 1}, (size_t)r * COLS);
        product(&one, &m, &p, row, weight, NULL);
        assert_memory_equal(place_of(all, (size_t)(r * part_rows[0])),
                            qn_array_data(one),
                            (size_t)part_rows[0] * sizeof(float));
        qn_array_unref(one);
        qn_array_unref(row);
    }
    qn_array *more[] = {x, all, norm, weight};
    for (size_t i = 0; i < 4; i++)
        qn_array_unref(more[i]);
    weights_free(&m);
}

static void test_norm_gate_and_residual(void **state)
{
    (void)state;
    static const int rows[] = {40, 40};
    static const int ms[] = {1, 5, 33};
    use_fast();
    weights m = weights_make(forms[0], 2, rows);
    for (size_t i = 0; i < 9; i++) {
        qn_dtype type = float_types[i % FLOAT_TYPES];
        int count = ms[i / FLOAT_TYPES];
        qn_panel_matmul_params p = params_of(&m, rows);
        qn_array *x = random_matrix(type, count, COLS, 1);
        qn_array *weights_ = random_matrix(type, 1, COLS, 1);
        qn_array *norm = view_of(weights_, SHAPE(COLS), (int64_t[]){1}, 0);
        qn_array *residual = random_matrix(type, count, 40, 1);
        qn_array *fast, *slow;
        p.gate = i % 2 ? QN_GATE_GELU : QN_GATE_SILU;
        use_reference();
        product(&slow, &m, &p, x, norm, residual);
        use_fast();
        product(&fast, &m, &p, x, norm, residual);
        /* A step of the norm's last bit can move an element to the next of its
         * 8-bit integers. */
        assert_true(largest_difference(fast, slow) <=
                    4 * half_ulp(type) + 2e-3);
        assert_false(same_bits(fast, residual));
        /* A residual that dies here is overwritten. */
        qn_array *reused;
        check_status(qn_op_panel_matmul(&reused, x, m.panels, norm, residual,
                                        &p, test_stream()),
                     QN_OK);
        qn_array_unref(residual);
        assert_true(same_bits(evaluated(reused), fast));
        qn_array *all[] = {x, weights_, norm, fast, slow, reused};
        for (size_t j = 0; j < sizeof all / sizeof all[0]; j++)
            qn_array_unref(all[j]);
    }
    weights_free(&m);
}

static void test_rows_of_panels(void **state)
{
    (void)state;
    use_cpu();
    for (int i = 0; i < FORMS; i++) {
        weights m = weights_make(forms[i], 1, part_rows);
        qn_panel_params p = {
            .form = forms[i], .count = 1, .cols = COLS, .rows = {part_rows[0]}};
        qn_array *ids =
            array_of(QN_INT32, VALUES(0, 19, -1, 7, 3, 16), SHAPE(2, 3));
        static const int which[] = {0, 19, 19, 7, 3, 16};
        qn_array *out;
        check_status(qn_op_panel_rows(&out, m.panels, ids, &p, QN_FLOAT32,
                                      test_stream()),
                     QN_OK);
        evaluated(out);
        assert_int_equal(out->ndim, 3);
        for (int r = 0; r < 6; r++) {
            for (int e = 0; e < COLS; e++) {
                uint8_t code;
                int words = COLS * forms[i].bits / 32;
                qn_quant_unpack(
                    &code, (uint32_t *)qn_array_data(m.w[0]) + which[r] * words,
                    (size_t)e, 1, forms[i].bits);
                size_t g = (size_t)(which[r] * (COLS / forms[i].group) +
                                    e / forms[i].group);
                double scale = item(m.scales[0], g);
                double expected = forms[i].biased
                                      ? scale * code + item(m.biases[0], g)
                                      : scale * (code - forms[i].zero);
                assert_true(fabs(item(out, (size_t)(r * COLS + e)) - expected) <
                            1e-6 * (1 + fabs(expected)));
            }
        }
        qn_array_unref(out);
        qn_array_unref(ids);
        ids = array_of(QN_INT32, VALUES(20), SHAPE(1));
        check_status(qn_op_panel_rows(&out, m.panels, ids, &p, QN_FLOAT32,
                                      test_stream()),
                     QN_OK);
        check_error(qn_eval(&out, 1), QN_E_ARG, "found 20");
        qn_array_unref(out);
        qn_array_unref(ids);
        weights_free(&m);
    }
}

static void test_what_does_not_fit_is_refused(void **state)
{
    (void)state;
    use_cpu();
    weights m = weights_make(forms[0], 1, part_rows);
    qn_array *x = random_matrix(QN_FLOAT32, 2, COLS, 1);
    qn_array *narrow = random_matrix(QN_FLOAT32, 2, 32, 1), *out[PARTS];
    qn_panel_matmul_params p = params_of(&m, part_rows);
    qn_stream *s = test_stream();
    check_error(qn_op_panel_matmul(out, narrow, m.panels, NULL, NULL, &p, s),
                QN_E_ARG, "rows of 160, found float32 (2,32)");
    check_error(qn_op_panel_matmul(out, x, m.panels, NULL, narrow, &p, s),
                QN_E_ARG, "residual");
    check_error(qn_op_panel_matmul(out, x, x, NULL, NULL, &p, s), QN_E_ARG,
                "panels of type uint8");
    p.w.rows[0] = 40;
    check_status(qn_op_panel_matmul(out, x, m.panels, NULL, NULL, &p, s),
                 QN_E_ARG);
    p.w.rows[0] = 20;
    p.gate = QN_GATE_SILU;
    check_error(qn_op_panel_matmul(out, x, m.panels, NULL, NULL, &p, s),
                QN_E_ARG, "two matrices");
    p.gate = (qn_panel_gate)3;
    check_error(qn_op_panel_matmul(out, x, m.panels, NULL, NULL, &p, s),
                QN_E_ARG, "a gate of 0 to 2, found 3");
    qn_panel_form odd = forms[0];
    odd.bits = 7;
    check_status(qn_op_panel_pack(out, &odd, 1, m.w, m.scales, m.biases, s),
                 QN_E_ARG);
    odd = forms[0];
    odd.scale_type = QN_FLOAT32;
    check_error(qn_op_panel_pack(out, &odd, 1, m.w, m.scales, m.biases, s),
                QN_E_ARG, "scales of type float32");
    qn_array_unref(x);
    qn_array_unref(narrow);
    weights_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_form_follows_the_formula),
        cmocka_unit_test(test_long_rows),
        cmocka_unit_test(test_scales_of_a_byte),
        cmocka_unit_test(test_blocks_are_multiplied_as_their_wide_form),
        cmocka_unit_test(test_panels_are_hardly_larger_than_blocks),
        cmocka_unit_test(test_what_is_not_finite_spoils_its_row_alone),
        cmocka_unit_test(test_what_is_too_small_is_zero),
        cmocka_unit_test(test_the_gates),
        cmocka_unit_test(test_packing_is_that_of_the_reference),
        cmocka_unit_test(test_products_are_those_of_the_reference),
        cmocka_unit_test(test_blocks_are_laid_out_as_by_the_reference),
        cmocka_unit_test(test_rows_are_those_of_the_reference),
        cmocka_unit_test(test_a_row_has_the_bits_it_has_alone),
        cmocka_unit_test(test_norm_gate_and_residual),
        cmocka_unit_test(test_rows_of_panels),
        cmocka_unit_test(test_what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
