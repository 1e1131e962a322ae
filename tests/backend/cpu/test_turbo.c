/* Kernels of the packed KV format: every instruction set that this machine has
 * gives the golden bytes and those of the plain functions. */
#include "support/qn_sha256.h"
#include "support/qn_tq.h"

#include "backend/cpu/kernels/turbo/turbo.h"

#include <math.h>

static const int dims[] = {64, 128, 256, 512};
static const int key_bits[] = {2, 4, 5, 8};
static const int value_bits[] = {2, 3, 4, 5, 8};

#define foreach(i, list) for (size_t i = 0; i < sizeof list / sizeof *list; i++)

static const qn_turbo_kernel *kernel;

static void each_kernel(void (*check)(void))
{
    int tested = 0;
    bool picked = false;
    for (int isa = QN_ISA_NONE; isa < QN_ISA_COUNT; isa++) {
        kernel = qn_turbo_at((qn_isa)isa);
        if (!kernel)
            continue;
        check();
        tested++;
        picked |= kernel == qn_turbo_pick();
    }
    assert_true(tested >= 1);
    assert_true(picked);
}

/* ---- against golden vectors ---- */

static void widen(float *to, const uint16_t *from, int n)
{
    for (int i = 0; i < n; i++)
        to[i] = qn_f16_to_f32(from[i]);
}

/* Memory for what `in` is coded to. */
typedef struct planes {
    uint8_t *codes, *packed;
    uint16_t *scale, *zero, *half, *turned, *deferred;
    float *wide;
} planes;

static planes planes_new(size_t count)
{
    return (planes){calloc(count, 1), calloc(count, 1), calloc(count, 1),
                    calloc(count, 1), calloc(count, 2), calloc(count, 2),
                    calloc(count, 2), calloc(count, 4)};
}

static void planes_free(planes *p)
{
    free(p->codes);
    free(p->packed);
    free(p->scale);
    free(p->zero);
    free(p->half);
    free(p->turned);
    free(p->deferred);
    free(p->wide);
}

static void key_case(goldens *g, const golden *in, const qn_json *c, int bits,
                     bool guard)
{
    int group = golden_int(c, "group"), d = golden_width(in), n = d / group;
    size_t bytes = (size_t)qn_tq_packed(d, bits), rows = in->count / (size_t)d;
    golden scales = golden_array(g, c, "scale");
    golden zeros = golden_array(g, c, "zero");
    golden decoded = golden_array(g, c, "decoded");
    planes p = planes_new(in->count);
    float *x = golden_floats(in), scale[16], zero[16];
    for (size_t r = 0; r < rows; r++) {
        size_t at = r * (size_t)d, at_group = r * (size_t)n;
        kernel->encode_key(p.codes + at, p.scale + at_group, p.zero + at_group,
                           x + at, d, bits, group, guard);
        qn_tq_pack(p.packed + r * bytes, p.codes + at, d, bits);
        widen(scale, p.scale + at_group, n);
        widen(zero, p.zero + at_group, n);
        kernel->decode_key(p.half + at, p.packed + r * bytes, scale, zero, d,
                           bits, group);
    }
    if (qn_json_get(c, "codes")) {
        golden codes = golden_array(g, c, "codes");
        check_golden(p.codes, &codes, "codes");
    } else {
        golden packed = golden_array(g, c, "packed");
        check_golden(p.packed, &packed, "packed");
    }
    check_golden(p.scale, &scales, "scale");
    check_golden(p.zero, &zeros, "zero");
    check_golden(p.half, &decoded, "decoded");
    free(x);
    planes_free(&p);
}

static void value_case(goldens *g, const golden *in, const qn_json *c, int bits)
{
    int group = golden_int(c, "group"), d = golden_width(in), n = d / group;
    size_t bytes = (size_t)qn_tq_packed(d, bits), rows = in->count / (size_t)d;
    golden packed = golden_array(g, c, "packed");
    golden scales = golden_array(g, c, "scale");
    golden rotated = golden_array(g, c, "rotated_f32");
    golden deferred = golden_array(g, c, "deferred");
    golden eager = golden_array(g, c, "eager");
    planes p = planes_new(in->count);
    float *x = golden_floats(in), scale[16], signs[QN_TQ_MAX_DIM];
    float table[256] = {0}, turned[QN_TQ_MAX_DIM];
    memcpy(table, qn_tq_centroids(bits), sizeof *table << bits);
    qn_tq_sign_floats(signs, d);
    for (size_t r = 0; r < rows; r++) {
        size_t at = r * (size_t)d, at_group = r * (size_t)n;
        uint8_t *row = p.packed + r * bytes;
        kernel->encode_value(p.codes + at, p.scale + at_group, x + at, signs, d,
                             bits, group);
        qn_tq_pack(row, p.codes + at, d, bits);
        widen(scale, p.scale + at_group, n);
        kernel->decode_value(p.wide + at, NULL, row, scale, table, d, bits,
                             group);
        kernel->decode_value(NULL, p.half + at, row, scale, table, d, bits,
                             group);
        kernel->unrotate(turned, p.turned + at, p.wide + at, signs, d);
    }
    check_golden(p.packed, &packed, "packed");
    check_golden(p.scale, &scales, "scale");
    check_golden(p.wide, &rotated, "rotated");
    check_golden(p.half, &deferred, "deferred");
    check_golden(p.turned, &eager, "eager");
    free(x);
    planes_free(&p);
}

static void golden_keys(void)
{
    goldens g;
    foreach (i, dims)
        foreach (j, key_bits) {
            char file[32];
            snprintf(file, sizeof file, "keys_d%d_k%d", dims[i], key_bits[j]);
            goldens_open(&g, file);
            golden in = golden_array(&g, g.root, "input");
            const qn_json *cases = qn_json_get(g.root, "cases");
            for (uint32_t n = 0; n < cases->count; n++)
                key_case(&g, &in, &cases->items[n], key_bits[j], false);
            goldens_close(&g);
        }
    goldens_open(&g, "degenerate_keys");
    golden in = golden_array(&g, g.root, "input");
    const qn_json *cases = qn_json_get(g.root, "cases");
    for (uint32_t n = 0; n < cases->count; n++) {
        const qn_json *c = &cases->items[n];
        key_case(&g, &in, c, golden_int(c, "bits"), golden_bool(c, "guard"));
    }
    goldens_close(&g);
}

static void golden_values(void)
{
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
                value_case(&g, &in, &cases->items[n], value_bits[j]);
            goldens_close(&g);
        }
}

static void golden_rotation(void)
{
    goldens g;
    goldens_open(&g, "rotation");
    const qn_json *cases = qn_json_get(g.root, "cases");
    for (uint32_t i = 0; i < cases->count; i++) {
        const qn_json *c = &cases->items[i];
        int d = golden_int(c, "dim");
        golden in = golden_array(&g, c, "input");
        golden there = golden_array(&g, c, "rotate");
        golden back = golden_array(&g, c, "unrotate");
        float signs[QN_TQ_MAX_DIM], *y = malloc(in.size);
        const float *x = in.data;
        qn_tq_sign_floats(signs, d);
        for (size_t at = 0; at < in.count; at += (size_t)d)
            kernel->rotate(y + at, x + at, signs, d);
        check_golden(y, &there, "rotate");
        memcpy(y, x, in.size);
        for (size_t at = 0; at < in.count; at += (size_t)d)
            kernel->unrotate(y + at, NULL, y + at, signs, d);
        check_golden(y, &back, "unrotate");
        free(y);
    }
    goldens_close(&g);
}

/* Row `row` of a plane of floating metadata. */
static void meta_row(float *out, const golden *meta, size_t row)
{
    size_t n = (size_t)golden_width(meta);
    for (size_t i = 0; i < n; i++)
        out[i] = golden_float(meta, row * n + i);
}

/* Stored planes of `capacity` tokens for each head, decoded. */
typedef struct stored {
    golden kp, ks, kz, vp, vs;
    int d, key_bits, value_bits, tokens, capacity;
} stored;

/* What the first tokens of each head decode to. */
static planes decode_stored(const stored *s)
{
    int kg = s->d / golden_width(&s->ks), vg = s->d / golden_width(&s->vs);
    size_t rows = s->kp.count / (size_t)golden_width(&s->kp), out = 0;
    planes p = planes_new(rows * (size_t)s->d);
    float table[256] = {0}, signs[512], turned[512], scale[16], zero[16];
    memcpy(table, qn_tq_centroids(s->value_bits),
           sizeof *table << s->value_bits);
    qn_tq_sign_floats(signs, s->d);
    for (size_t row = 0; row < rows; row++) {
        if ((int)(row % (size_t)s->capacity) >= s->tokens)
            continue;
        meta_row(scale, &s->ks, row);
        meta_row(zero, &s->kz, row);
        kernel->decode_key(p.half + out,
                           (uint8_t *)s->kp.data +
                               row * (size_t)golden_width(&s->kp),
                           scale, zero, s->d, s->key_bits, kg);
        const uint8_t *values =
            (uint8_t *)s->vp.data + row * (size_t)golden_width(&s->vp);
        meta_row(scale, &s->vs, row);
        kernel->decode_value(p.wide + out, NULL, values, scale, table, s->d,
                             s->value_bits, vg);
        kernel->decode_value(NULL, p.deferred + out, values, scale, table, s->d,
                             s->value_bits, vg);
        kernel->unrotate(turned, p.turned + out, p.wide + out, signs, s->d);
        out += (size_t)s->d;
    }
    return p;
}

static stored stored_of(goldens *g, const qn_json *c, const qn_json *form)
{
    return (stored){.kp = golden_array(g, c, "k_packed"),
                    .ks = golden_array(g, c, "k_scale"),
                    .kz = golden_array(g, c, "k_zero"),
                    .vp = golden_array(g, c, "v_packed"),
                    .vs = golden_array(g, c, "v_scale"),
                    .d = golden_int(form, "dim"),
                    .key_bits = golden_int(form, "key_bits"),
                    .value_bits = golden_int(form, "value_bits"),
                    .tokens = golden_int(c, "tokens"),
                    .capacity = golden_int(c, "capacity")};
}

static void joint_file(const char *file)
{
    goldens g;
    goldens_open(&g, file);
    const qn_json *cases = qn_json_get(g.root, "cases");
    for (uint32_t i = 0; i < cases->count; i++) {
        const qn_json *c = &cases->items[i];
        stored s = stored_of(&g, c, c);
        planes p = decode_stored(&s);
        golden keys = golden_array(&g, c, "out_k");
        golden rotated = golden_array(&g, c, "out_v_rotated_f32");
        golden deferred = golden_array(&g, c, "out_v_deferred");
        golden eager = golden_array(&g, c, "out_v_eager");
        check_golden(p.half, &keys, file);
        check_golden(p.wide, &rotated, file);
        check_golden(p.deferred, &deferred, file);
        check_golden(p.turned, &eager, file);
        planes_free(&p);
    }
    goldens_close(&g);
}

static void golden_joint(void)
{
    static const char *const types[] = {"float16", "bfloat16", "float32"};
    char file[48];
    foreach (i, key_bits) {
        snprintf(file, sizeof file, "joint_bits_k%d", key_bits[i]);
        joint_file(file);
    }
    foreach (i, dims)
        foreach (j, types) {
            snprintf(file, sizeof file, "joint_dims_d%d_%s", dims[i], types[j]);
            joint_file(file);
        }
}

/* A plane by the rule of inverse_large: numbers of the flat index. */
static golden by_rule(int capacity, int width, int plane)
{
    static const size_t shift[] = {0, 0, 3, 0, 5};
    golden a = {.dtype = plane % 3 ? "float16" : "uint8",
                .shape = {1, 4, capacity, width},
                .ndim = 4,
                .item = plane % 3 ? 2 : 1,
                .count = (size_t)4 * (size_t)capacity * (size_t)width};
    uint8_t *codes = malloc(2 * a.count);
    uint16_t *halves = (uint16_t *)(void *)codes;
    a.data = codes;
    for (size_t i = 0; i < a.count; i++)
        if (plane == 0)
            codes[i] = (uint8_t)(i * 45 + 49 - 128);
        else if (plane == 3)
            codes[i] = (uint8_t)(i * 23 + 95);
        else
            halves[i] =
                qn_f32_to_f16((float)((i + shift[plane]) % 29 + 1) / 64);
    return a;
}

static void check_digest(const void *found, size_t size, const qn_json *c,
                         const char *key)
{
    qn_str expected;
    char digest[65];
    assert_true(qn_json_as_str(qn_json_get(c, key), &expected));
    qn_sha256(digest, found, size);
    check_str(expected, digest);
}

static void golden_inverse(void)
{
    goldens g;
    goldens_open(&g, "inverse_small");
    const qn_json *cases = qn_json_get(g.root, "cases");
    for (uint32_t i = 0; i < cases->count; i++) {
        const qn_json *c = &cases->items[i];
        stored s = stored_of(&g, c, g.root);
        planes p = decode_stored(&s);
        golden keys = golden_array(&g, c, "out_k");
        golden values = golden_array(&g, c, "out_v");
        check_golden(p.half, &keys, "inverse keys");
        check_golden(p.turned, &values, "inverse values");
        planes_free(&p);
    }
    goldens_close(&g);
}

/* One case on every instruction set; the digests are made once. */
static void large_case(const qn_json *c)
{
    int capacity = golden_int(c, "capacity");
    stored s = {by_rule(capacity, 256, 0),
                by_rule(capacity, 8, 1),
                by_rule(capacity, 8, 2),
                by_rule(capacity, 96, 3),
                by_rule(capacity, 8, 4),
                256,
                8,
                3,
                golden_int(c, "tokens"),
                capacity};
    size_t size = (size_t)4 * (size_t)s.tokens * 256 * 2;
    planes first = {.codes = NULL};
    for (int isa = QN_ISA_NONE; isa < QN_ISA_COUNT; isa++) {
        kernel = qn_turbo_at((qn_isa)isa);
        if (!kernel)
            continue;
        planes p = decode_stored(&s);
        if (first.codes) {
            assert_memory_equal(p.half, first.half, size);
            assert_memory_equal(p.turned, first.turned, size);
            planes_free(&p);
        } else {
            first = p;
        }
    }
    check_digest(first.half, size, c, "sha256_k");
    check_digest(first.turned, size, c, "sha256_v");
    planes_free(&first);
    golden *all[] = {&s.kp, &s.ks, &s.kz, &s.vp, &s.vs};
    for (int j = 0; j < 5; j++)
        free(all[j]->data);
}

static void test_golden_inverse_large(void **state)
{
    (void)state;
    goldens g;
    goldens_open(&g, "inverse_large");
    const qn_json *cases = qn_json_get(g.root, "cases");
    for (uint32_t i = 0; i < cases->count; i++)
        large_case(&cases->items[i]);
    goldens_close(&g);
}

static void test_golden_keys(void **state)
{
    (void)state;
    each_kernel(golden_keys);
}

static void test_golden_values(void **state)
{
    (void)state;
    each_kernel(golden_values);
}

static void test_golden_rotation(void **state)
{
    (void)state;
    each_kernel(golden_rotation);
}

static void test_golden_joint(void **state)
{
    (void)state;
    each_kernel(golden_joint);
}

static void test_golden_inverse(void **state)
{
    (void)state;
    each_kernel(golden_inverse);
}

/* ---- against the plain functions ---- */

static uint64_t seed;

static uint32_t next(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 32);
}

/* Rows of every kind: ordinary, nearly constant, of few or special values,
 * and any bits at all. */
static void fill(float *x, int d, int kind)
{
    static const float special[] = {0,        -0.0f,  INFINITY, -INFINITY,
                                    NAN,      1e-45f, -1e-40f,  3e38f,
                                    -3.4e38f, 1,      0.5f,     65504};
    float shift = kind == 1 ? 3 : 0, size = kind == 1 ? 1e-4f : 2;
    if (kind == 2)
        size = 1e-6f;
    for (int i = 0; i < d; i++) {
        uint32_t bits = next();
        x[i] = ((float)(bits >> 8) / 0x1p23f - 1) * size + shift;
        if (kind == 3)
            x[i] = special[bits % 12];
        if (kind == 4)
            memcpy(&x[i], &bits, sizeof bits);
        if (kind == 5)
            x[i] = shift + 0.5f;
    }
}

/* Floats of the same bits, or NaN both. */
static void same_floats(const float *a, const float *b, int n)
{
    for (int i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) && !(a[i] != a[i] && b[i] != b[i]))
            fail_msg("element %d: expected %a, found %a", i, (double)a[i],
                     (double)b[i]);
}

static void check_key(const float *x, int d, int bits, int group, bool guard)
{
    uint8_t codes[2][512];
    uint16_t scale[2][16], zero[2][16];
    qn_tq_encode_key(codes[0], scale[0], zero[0], x, d, bits, group, guard);
    kernel->encode_key(codes[1], scale[1], zero[1], x, d, bits, group, guard);
    assert_memory_equal(codes[0], codes[1], (size_t)d);
    assert_memory_equal(scale[0], scale[1], 2 * (size_t)(d / group));
    assert_memory_equal(zero[0], zero[1], 2 * (size_t)(d / group));
}

static void check_value(const float *x, int d, int bits, int group)
{
    uint8_t codes[2][512];
    uint16_t scale[2][16];
    float signs[512], y[2][512];
    qn_tq_sign_floats(signs, d);
    qn_tq_encode_value(codes[0], scale[0], x, d, bits, group);
    kernel->encode_value(codes[1], scale[1], x, signs, d, bits, group);
    assert_memory_equal(codes[0], codes[1], (size_t)d);
    assert_memory_equal(scale[0], scale[1], 2 * (size_t)(d / group));
    qn_tq_rotate(y[0], x, d);
    kernel->rotate(y[1], x, signs, d);
    same_floats(y[0], y[1], d);
    qn_tq_unrotate(y[0], x, d);
    kernel->unrotate(y[1], NULL, x, signs, d);
    same_floats(y[0], y[1], d);
}

static void plain_encoding(void)
{
    float x[512];
    foreach (i, dims)
        for (int kind = 0; kind < 6; kind++)
            for (int turn = 0; turn < 8; turn++) {
                int group = turn & 1 ? 64 : 32;
                fill(x, dims[i], kind);
                foreach (j, key_bits)
                    check_key(x, dims[i], key_bits[j], group, turn & 2);
                foreach (j, value_bits)
                    check_value(x, dims[i], value_bits[j], group);
            }
}

/* Any bytes and any metadata: every code of every width is met. */
static void check_decoding(int d, int kb, int vb, int group)
{
    float scale[16], zero[16], wide[2][512], table[256] = {0};
    uint8_t codes[512], *kp, *vp;
    uint16_t half[2][512];
    fill(scale, 16, next() % 2 ? 0 : 3);
    fill(zero, 16, next() % 2 ? 0 : 3);
    memcpy(table, qn_tq_centroids(vb), sizeof *table << vb);
    size_t key_bytes = (size_t)qn_tq_packed(d, kb);
    size_t value_bytes = (size_t)qn_tq_packed(d, vb);
    kp = malloc(key_bytes); /* exact: a sanitizer sees reads beyond */
    vp = malloc(value_bytes);
    for (size_t i = 0; i < key_bytes; i++)
        kp[i] = (uint8_t)next();
    for (size_t i = 0; i < value_bytes; i++)
        vp[i] = (uint8_t)next();
    qn_tq_unpack(codes, kp, d, kb);
    qn_tq_decode_key(wide[0], codes, scale, zero, d, kb, group);
    for (int i = 0; i < d; i++)
        half[0][i] = qn_f32_to_bf16(wide[0][i]);
    kernel->decode_key(half[1], kp, scale, zero, d, kb, group);
    assert_memory_equal(half[0], half[1], 2 * (size_t)d);
    qn_tq_unpack(codes, vp, d, vb);
    qn_tq_decode_value(wide[0], codes, scale, d, vb, group);
    kernel->decode_value(wide[1], NULL, vp, scale, table, d, vb, group);
    same_floats(wide[0], wide[1], d);
    kernel->decode_value(NULL, half[1], vp, scale, table, d, vb, group);
    for (int i = 0; i < d; i++)
        assert_int_equal(half[1][i], qn_f32_to_bf16(wide[0][i]));
    free(kp);
    free(vp);
}

static void plain_decoding(void)
{
    foreach (i, dims)
        foreach (j, key_bits)
            foreach (k, value_bits)
                for (int turn = 0; turn < 8; turn++)
                    check_decoding(dims[i], key_bits[j], value_bits[k],
                                   turn & 1 ? 64 : 32);
}

static void test_encoding_is_that_of_the_plain_functions(void **state)
{
    (void)state;
    each_kernel(plain_encoding);
}

static void test_decoding_is_that_of_the_plain_functions(void **state)
{
    (void)state;
    each_kernel(plain_decoding);
}

/* Zero vectors have one code, boundaries themselves belong to the cell below,
 * and NaN to the first. */
static void zero_vector(void)
{
    static const int expected[] = {2, 3, 8, 16, 130};
    float x[64] = {0}, signs[64];
    uint8_t codes[64];
    uint16_t scale[2];
    qn_tq_sign_floats(signs, 64);
    foreach (i, value_bits) {
        kernel->encode_value(codes, scale, x, signs, 64, value_bits[i], 32);
        for (int j = 0; j < 64; j++)
            assert_int_equal(codes[j], expected[i]);
        assert_int_equal(scale[0], 0);
    }
}

static void test_zero_vectors(void **state)
{
    (void)state;
    each_kernel(zero_vector);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_keys),
        cmocka_unit_test(test_golden_values),
        cmocka_unit_test(test_golden_rotation),
        cmocka_unit_test(test_golden_joint),
        cmocka_unit_test(test_golden_inverse),
        cmocka_unit_test(test_golden_inverse_large),
        cmocka_unit_test(test_encoding_is_that_of_the_plain_functions),
        cmocka_unit_test(test_decoding_is_that_of_the_plain_functions),
        cmocka_unit_test(test_zero_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
