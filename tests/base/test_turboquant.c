/* The packed KV format one head vector at a time, against golden vectors. */
#include "support/qn_tq.h"

#include "base/turboquant.h"

#include <math.h>

static const int dims[] = {64, 128, 256, 512};
static const int key_bits[] = {2, 4, 5, 8};
static const int value_bits[] = {2, 3, 4, 5, 8};

#define foreach(i, list) for (size_t i = 0; i < sizeof list / sizeof *list; i++)

static void check_words(const qn_json *words, const void *found, int count)
{
    assert_int_equal(words->count, count);
    for (int i = 0; i < count; i++) {
        qn_str text;
        char word[16];
        uint32_t bits;
        assert_true(qn_json_as_str(&words->items[i], &text));
        snprintf(word, sizeof word, "%.*s", (int)text.size, text.data);
        memcpy(&bits, (const char *)found + 4 * i, 4);
        assert_int_equal(bits, strtoul(word, NULL, 16));
    }
}

static void test_tables(void **state)
{
    (void)state;
    goldens g;
    char key[8];
    goldens_open(&g, "turboquant_tables");
    foreach (i, dims) {
        snprintf(key, sizeof key, "%d", dims[i]);
        const qn_json *of = qn_json_get(qn_json_get(g.root, "signs"), key);
        check_words(qn_json_get(of, "negative_mask_u32"), qn_tq_signs(dims[i]),
                    dims[i] / 32);
    }
    foreach (i, value_bits) {
        int bits = value_bits[i];
        snprintf(key, sizeof key, "%d", bits);
        const qn_json *of = qn_json_get(qn_json_get(g.root, "lloyd_max"), key);
        check_words(qn_json_get(of, "centroids_f32"), qn_tq_centroids(bits),
                    1 << bits);
        check_words(qn_json_get(of, "boundaries_f32"), qn_tq_boundaries(bits),
                    (1 << bits) - 1);
    }
    goldens_close(&g);
}

/* threefry-2x32, 20 rounds: where the signs come from. */
static void threefry(uint32_t key0, uint32_t key1, uint32_t *a, uint32_t *b)
{
    static const int turn[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
    uint32_t keys[3] = {key0, key1, key0 ^ key1 ^ 0x1bd11bda};
    *a += keys[0];
    *b += keys[1];
    for (uint32_t i = 0; i < 5; i++) {
        for (int r = 0; r < 4; r++) {
            int by = turn[i & 1][r];
            *a += *b;
            *b = (*b << by | *b >> (32 - by)) ^ *a;
        }
        *a += keys[(i + 1) % 3];
        *b += keys[(i + 2) % 3] + i + 1;
    }
}

static void test_signs_are_those_of_the_generator(void **state)
{
    (void)state;
    foreach (i, dims) {
        uint32_t d = (uint32_t)dims[i];
        const uint32_t *signs = qn_tq_signs(dims[i]);
        for (uint32_t j = 0; j < d / 2; j++) {
            uint32_t a = j, b = d / 2 + j, other = d / 2 + j;
            threefry(0, 42, &a, &b);
            assert_int_equal(signs[j / 32] >> j % 32 & 1, a >> 31);
            assert_int_equal(signs[other / 32] >> other % 32 & 1, b >> 31);
        }
    }
}

static void test_norms_are_rounded_once(void **state)
{
    (void)state;
    foreach (i, dims)
        assert_true(qn_tq_norm(dims[i]) ==
                    (float)(1.0 / sqrt((double)dims[i])));
}

/* But for 3 bits, whose two outer ones differ in the last place. */
static void test_boundaries_lie_in_the_middle(void **state)
{
    (void)state;
    foreach (i, value_bits) {
        int bits = value_bits[i];
        const float *c = qn_tq_centroids(bits), *b = qn_tq_boundaries(bits);
        for (int j = 0; j < (1 << bits) - 1; j++) {
            float middle = (c[j] + c[j + 1]) * 0.5f;
            assert_true(c[j] < c[j + 1]);
            if (bits == 3)
                assert_float_equal(b[j], middle, 3e-7);
            else
                assert_true(b[j] == middle);
        }
    }
}

static void test_pack(void **state)
{
    (void)state;
    goldens g;
    goldens_open(&g, "pack");
    const qn_json *cases = qn_json_get(g.root, "cases");
    for (uint32_t i = 0; i < cases->count; i++) {
        const qn_json *c = &cases->items[i];
        golden codes = golden_array(&g, c, "codes");
        golden packed = golden_array(&g, c, "packed");
        int bits = golden_int(c, "bits"), d = golden_width(&codes);
        int bytes = qn_tq_packed(d, bits);
        assert_int_equal(bytes, golden_width(&packed));
        for (size_t r = 0; r < codes.count / (size_t)d; r++) {
            /* Of exact size, so that a sanitizer sees a read past a row. */
            uint8_t *row = exact_copy(
                (uint8_t *)packed.data + r * (size_t)bytes, (size_t)bytes);
            uint8_t *out = malloc((size_t)d);
            uint8_t *from = (uint8_t *)codes.data + r * (size_t)d;
            qn_tq_unpack(out, row, d, bits);
            for (int j = 0; j < d; j++)
                assert_int_equal(out[j], from[j] & ((1 << bits) - 1));
            memset(row, 0xa5, (size_t)bytes);
            qn_tq_pack(row, from, d, bits);
            assert_memory_equal(row, (uint8_t *)packed.data + r * (size_t)bytes,
                                (size_t)bytes);
            free(out);
            free(row);
        }
    }
    goldens_close(&g);
}

static void test_rotation(void **state)
{
    (void)state;
    goldens g;
    goldens_open(&g, "rotation");
    const qn_json *cases = qn_json_get(g.root, "cases");
    for (uint32_t i = 0; i < cases->count; i++) {
        const qn_json *c = &cases->items[i];
        int d = golden_int(c, "dim");
        golden in = golden_array(&g, c, "input");
        golden rotated = golden_array(&g, c, "rotate");
        golden back = golden_array(&g, c, "unrotate");
        float *y = malloc(in.size);
        const float *x = in.data;
        size_t rows = in.count / (size_t)d, step = (size_t)d;
        for (size_t r = 0; r < rows; r++)
            qn_tq_rotate(y + r * step, x + r * step, d);
        check_golden(y, &rotated, "rotate");
        for (size_t r = 0; r < rows; r++)
            qn_tq_unrotate(y + r * step, x + r * step, d);
        check_golden(y, &back, "unrotate");
        /* In place. */
        memcpy(y, x, in.size);
        for (size_t r = 0; r < rows; r++)
            qn_tq_unrotate(y + r * step, y + r * step, d);
        check_golden(y, &back, "unrotate in place");
        free(y);
    }
    goldens_close(&g);
}

/* Stages of strides h, 2 h, ... of a worker of 2^stages elements that are h
 * apart, in memory of its own. */
static void radix_worker(float *y, int base, int h, int stages)
{
    float own[16];
    int n = 1 << stages;
    for (int r = 0; r < n; r++)
        own[r] = y[base + h * r];
    for (int step = 1; step < n; step *= 2)
        for (int j = 0; j < n; j++)
            if (!(j & step)) {
                float a = own[j], b = own[j + step];
                own[j] = a + b;
                own[j + step] = a - b;
            }
    for (int r = 0; r < n; r++)
        y[base + h * r] = own[r];
}

/* Passes of 4 stages with the strides 1 and 16, then what is left. */
static void radix_16(float *y, int d)
{
    for (int h = 1; h < d; h *= 16) {
        int stages = 0;
        while (stages < 4 && h << stages < d)
            stages++;
        for (int w = 0; w < d >> stages; w++) {
            int k = w & (h - 1);
            radix_worker(y, (w - k) * (1 << stages) + k, h, stages);
        }
    }
}

static void descending(float *y, int d)
{
    for (int h = d / 2; h; h /= 2)
        for (int j = 0; j < d; j++)
            if (!(j & h))
                radix_worker(y, j, h, 1);
}

/* The transform in passes of 16 elements has the same bits, that by falling
 * strides others: the order of the stages is a part of the format. */
static void test_order_of_stages(void **state)
{
    (void)state;
    uint32_t x = 1;
    foreach (i, dims) {
        enum { ROWS = 20 };
        int d = dims[i], differ = 0;
        float in[QN_TQ_MAX_DIM], y[QN_TQ_MAX_DIM], signs[QN_TQ_MAX_DIM];
        float passes[QN_TQ_MAX_DIM], down[QN_TQ_MAX_DIM];
        qn_tq_sign_floats(signs, d);
        for (int row = 0; row < ROWS; row++) {
            for (int j = 0; j < d; j++) {
                x = x * 1664525 + 1013904223;
                in[j] = (float)(x >> 8) / 8388608.0F - 1;
                passes[j] = down[j] = in[j] * signs[j];
            }
            qn_tq_rotate(y, in, d);
            radix_16(passes, d);
            descending(down, d);
            for (int j = 0; j < d; j++) {
                passes[j] *= qn_tq_norm(d);
                down[j] *= qn_tq_norm(d);
                differ += down[j] != y[j];
                assert_true(fabsf(down[j] - y[j]) < 1e-5F);
            }
            assert_memory_equal(y, passes, (size_t)d * sizeof *y);
        }
        assert_true(differ > ROWS);
    }
}

/* All head vectors of x as codes, packed codes, scales and zero points. */
typedef struct planes {
    uint8_t *codes, *packed;
    uint16_t *scale, *zero;
    float *decoded;
} planes;

static void planes_free(planes *p)
{
    free(p->codes);
    free(p->packed);
    free(p->scale);
    free(p->zero);
    free(p->decoded);
}

static planes planes_new(size_t count)
{
    planes p = {malloc(count), malloc(count), malloc(count), malloc(count),
                malloc(4 * count)};
    return p;
}

static void widen(float *to, const uint16_t *from, int n)
{
    for (int i = 0; i < n; i++)
        to[i] = qn_f16_to_f32(from[i]);
}

static planes encode_keys(const golden *in, int bits, int group, bool guard)
{
    int d = golden_width(in), bytes = qn_tq_packed(d, bits), n = d / group;
    planes p = planes_new(in->count);
    float *x = golden_floats(in), scale[16], zero[16];
    for (size_t r = 0; r < in->count / (size_t)d; r++) {
        size_t at = r * (size_t)d, g = r * (size_t)n;
        qn_tq_encode_key(p.codes + at, p.scale + g, p.zero + g, x + at, d, bits,
                         group, guard);
        qn_tq_pack(p.packed + r * (size_t)bytes, p.codes + at, d, bits);
        widen(scale, p.scale + g, n);
        widen(zero, p.zero + g, n);
        qn_tq_decode_key(p.decoded + at, p.codes + at, scale, zero, d, bits,
                         group);
    }
    free(x);
    return p;
}

static void check_bf16(const float *y, const golden *expected, const char *what)
{
    uint16_t *half = malloc(expected->size);
    for (size_t i = 0; i < expected->count; i++)
        half[i] = qn_f32_to_bf16(y[i]);
    check_golden(half, expected, what);
    free(half);
}

static void test_keys(void **state)
{
    (void)state;
    foreach (i, dims)
        foreach (j, key_bits) {
            goldens g;
            char file[32];
            snprintf(file, sizeof file, "keys_d%d_k%d", dims[i], key_bits[j]);
            goldens_open(&g, file);
            golden in = golden_array(&g, g.root, "input");
            const qn_json *cases = qn_json_get(g.root, "cases");
            for (uint32_t n = 0; n < cases->count; n++) {
                const qn_json *c = &cases->items[n];
                golden packed = golden_array(&g, c, "packed");
                golden scale = golden_array(&g, c, "scale");
                golden zero = golden_array(&g, c, "zero");
                golden decoded = golden_array(&g, c, "decoded");
                planes p = encode_keys(&in, key_bits[j], golden_int(c, "group"),
                                       false);
                check_golden(p.packed, &packed, file);
                check_golden(p.scale, &scale, file);
                check_golden(p.zero, &zero, file);
                check_bf16(p.decoded, &decoded, file);
                planes_free(&p);
            }
            goldens_close(&g);
        }
}

static void test_degenerate_keys(void **state)
{
    (void)state;
    goldens g;
    goldens_open(&g, "degenerate_keys");
    golden in = golden_array(&g, g.root, "input");
    const qn_json *cases = qn_json_get(g.root, "cases");
    for (uint32_t n = 0; n < cases->count; n++) {
        const qn_json *c = &cases->items[n];
        golden codes = golden_array(&g, c, "codes");
        golden scale = golden_array(&g, c, "scale");
        golden zero = golden_array(&g, c, "zero");
        golden decoded = golden_array(&g, c, "decoded");
        planes p = encode_keys(&in, golden_int(c, "bits"),
                               golden_int(c, "group"), golden_bool(c, "guard"));
        check_golden(p.codes, &codes, "codes");
        check_golden(p.scale, &scale, "scale");
        check_golden(p.zero, &zero, "zero");
        check_bf16(p.decoded, &decoded, "decoded");
        planes_free(&p);
    }
    goldens_close(&g);
}

static void check_values(goldens *g, const golden *in, const qn_json *c,
                         int bits)
{
    int group = golden_int(c, "group"), d = golden_width(in);
    int bytes = qn_tq_packed(d, bits), n = d / group;
    golden packed = golden_array(g, c, "packed");
    golden scales = golden_array(g, c, "scale");
    golden rotated = golden_array(g, c, "rotated_f32");
    golden deferred = golden_array(g, c, "deferred");
    golden eager = golden_array(g, c, "eager");
    planes p = planes_new(in->count);
    float *x = golden_floats(in), scale[16];
    for (size_t r = 0; r < in->count / (size_t)d; r++) {
        size_t at = r * (size_t)d;
        qn_tq_encode_value(p.codes + at, p.scale + r * (size_t)n, x + at, d,
                           bits, group);
        qn_tq_pack(p.packed + r * (size_t)bytes, p.codes + at, d, bits);
        widen(scale, p.scale + r * (size_t)n, n);
        qn_tq_decode_value(p.decoded + at, p.codes + at, scale, d, bits, group);
    }
    check_golden(p.packed, &packed, "packed");
    check_golden(p.scale, &scales, "scale");
    check_golden(p.decoded, &rotated, "rotated");
    check_bf16(p.decoded, &deferred, "deferred");
    for (size_t at = 0; at < in->count; at += (size_t)d)
        qn_tq_unrotate(p.decoded + at, p.decoded + at, d);
    check_bf16(p.decoded, &eager, "eager");
    free(x);
    planes_free(&p);
}

static void test_values(void **state)
{
    (void)state;
    foreach (i, dims)
        foreach (j, value_bits) {
            goldens g;
            char file[32];
            snprintf(file, sizeof file, "values_d%d_v%d", dims[i],
                     value_bits[j]);
            goldens_open(&g, file);
            golden in = golden_array(&g, g.root, "input");
            const qn_json *cases = qn_json_get(g.root, "cases");
            for (uint32_t n = 0; n < cases->count; n++)
                check_values(&g, &in, &cases->items[n], value_bits[j]);
            goldens_close(&g);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_signs_are_those_of_the_generator),
        cmocka_unit_test(test_boundaries_lie_in_the_middle),
        cmocka_unit_test(test_norms_are_rounded_once),
        cmocka_unit_test(test_pack),
        cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_order_of_stages),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_degenerate_keys),
        cmocka_unit_test(test_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
